//! How a restore ends: what was written is recorded, a filled volume is handed over, the end is told once.

use super::act::{populates, remove, remove_all};
use super::claims::Claim;
use super::decide::Written;
use super::observe::{self, Facts, Target};
use super::{copies, job, report};
use crate::context::{Context, Error};
use crate::jobs::outcome::JobFact;
use crate::runtime::metrics::BackupResult;
use crate::runtime::queue::Next;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::JobState;
use holdfast_api::names;
use holdfast_api::restore::{NotRestored, RestoreProgress, RestoreStatus};
use holdfast_api::snapshot::RunFailure;
use holdfast_core::restore::{Means, Reason};
use holdfast_protocol::restore::NotSet;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::json;
use std::time::Duration;

/// Seconds that a Job stays after its result was recorded.
const KEEP_SECONDS: i32 = 3600;

/// Records what was written. A volume that is to be handed over is so next; everything else is done.
pub async fn written(ctx: &Context, facts: &Facts, written: &Written, now: Timestamp) -> Result<Next, Error> {
    // Also where the Job stays for the claim that it owns: it reads no repository any more.
    copies::withdraw_recorded(ctx, facts).await?;
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    ctx.results.progress().forget(&job::run(&facts.view));
    report::write(ctx, facts, |status| {
        status.progress = Some(RestoreProgress {
            bytes_restored: signed(written.bytes),
            bytes_total: Some(signed(written.bytes)),
            files_restored: signed(written.files),
        });
        status.not_restored = written.not_set.as_ref().map(not_restored);
        let mut timing = status.timing.clone().unwrap_or_default();
        timing.end_time = Some(now);
        let start = timing.start_time.unwrap_or(now);
        timing.duration_seconds = Some(now.duration_since(start).as_secs());
        status.timing = Some(timing);
        match &written.failed {
            Some(why) => {
                status.failure = Some(RunFailure {
                    class: Reason::NotAllSet.as_str().to_owned(),
                    message: why.clone(),
                });
                remember_claim(status, facts);
                report::say(status, facts, Reason::NotAllSet, why, now);
            }
            None => {
                let message = "Everything is written; the volume is handed over.";
                report::say(status, facts, Reason::WaitingForVolume, message, now);
            }
        }
    })
    .await?;
    if let Some(why) = &written.failed {
        told(ctx, facts, Reason::NotAllSet, why, now).await;
    }
    // The Job owns the claim whose volume is to be handed over: it does not go by itself before.
    if let Some(job) = facts
        .job
        .as_ref()
        .filter(|_| !populates(facts) || written.failed.is_some())
    {
        keep_for_a_while(ctx, job).await?;
    }
    Ok(Next::Settled)
}

/// The claim is not tried again by this generation. Those that are gone are forgotten.
pub(super) fn remember_claim(status: &mut RestoreStatus, facts: &Facts) {
    let (Target::Populate(populate), Some(uid)) = (&facts.target, facts.filling()) else {
        return;
    };
    if facts.is_edited() {
        status.ended_claims.clear();
    }
    status
        .ended_claims
        .retain(|ended| ended != uid && populate.find(ended).is_some());
    status.ended_claims.push(uid.to_owned());
}

fn not_restored(not_set: &NotSet) -> NotRestored {
    let NotSet {
        owners,
        modes,
        times,
        xattrs,
        special_files,
        examples,
    } = not_set;
    let signed = |n: &u64| i64::try_from(*n).unwrap_or(i64::MAX);
    NotRestored {
        owners: signed(owners),
        modes: signed(modes),
        times: signed(times),
        xattrs: signed(xattrs),
        special_files: signed(special_files),
        examples: examples.clone(),
    }
}

/// Makes the filled volume that of the claim: the claim it was made for loses it in the same write.
pub async fn hand_over(
    ctx: &Context,
    facts: &Facts,
    volume: &str,
    claim: &Claim,
    now: Timestamp,
) -> Result<Next, Error> {
    if facts.volume() != Some(volume) {
        report::write(ctx, facts, |status| {
            status.target.get_or_insert_default().volume = Some(volume.to_owned());
        })
        .await?;
        return Ok(Next::Settled);
    }
    let api: Api<PersistentVolume> = Api::all(ctx.client.clone());
    let Some(found) = api.get_opt(volume).await? else {
        let message = format!("Volume {volume}, which was filled, is gone. Make the claim anew.");
        return end(ctx, facts, Reason::RestoreFailed, &message, now).await;
    };
    let reference = found
        .spec
        .as_ref()
        .and_then(|s| s.claim_ref.clone())
        .unwrap_or_default();
    if reference.uid.as_deref() == Some(claim.uid.as_str()) {
        return Ok(Next::After(Duration::from_secs(1)));
    }
    let namespace = ObjectKey::of(facts.view.as_ref()).namespace;
    let prime = match &facts.target {
        Target::Populate(populate) => populate.prime.as_ref(),
        Target::New(_) | Target::Existing(_) | Target::Unread => None,
    };
    let Some(prime) = prime else {
        let message = format!(
            "The claim that was filled is gone, and its volume {volume} was not handed over. Make the claim anew."
        );
        return end(ctx, facts, Reason::RestoreFailed, &message, now).await;
    };
    if reference.uid.as_deref() != Some(prime.uid.as_str()) {
        let message = format!("Volume {volume} belongs to another claim by now; nothing was handed over.");
        return end(ctx, facts, Reason::PopulateHijacked, &message, now).await;
    }
    ctx.leadership.guard()?;
    let patch = json!({ "spec": { "claimRef": {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": claim.name,
        "uid": claim.uid,
        "resourceVersion": claim.object.metadata.resource_version,
    } } });
    let version = found.metadata.resource_version.unwrap_or_default();
    write::patch(&api, volume, &version, patch).await?;
    Ok(Next::After(Duration::from_secs(1)))
}

/// The end: recorded, told, counted.
pub async fn end(
    ctx: &Context,
    facts: &Facts,
    reason: Reason,
    message: &str,
    now: Timestamp,
) -> Result<Next, Error> {
    let failed = reason.means() == Means::Failed;
    copies::withdraw_recorded(ctx, facts).await?;
    ctx.results.progress().forget(&job::run(&facts.view));
    let written = report::write(ctx, facts, |status| {
        status.failure = failed.then(|| RunFailure {
            class: reason.as_str().to_owned(),
            message: message.to_owned(),
        });
        status.next_attempt_at = None;
        remember_claim(status, facts);
        if !failed
            && populates(facts)
            && let Some(target) = &mut status.target
        {
            target.pvc_prime = None;
        }
        report::say(status, facts, reason, message, now);
    })
    .await?;
    if written {
        told(ctx, facts, reason, message, now).await;
    }
    let runs = facts.job.as_ref().is_some_and(|job| match job.state {
        JobState::Waiting | JobState::Active => true,
        JobState::Succeeded | JobState::Failed => false,
    });
    if populates(facts) && !failed {
        // The claim that was filled goes with its Job: the volume is not its any more.
        remove_all(ctx, &observe::jobs_of(ctx, &facts.view)).await?;
    } else if runs {
        // What has failed must not be tried again by its Job. If this fails, the next pass finds it left over.
        remove(ctx, facts).await?;
    } else if let Some(job) = &facts.job {
        keep_for_a_while(ctx, job).await?;
    }
    Ok(Next::Settled)
}

async fn told(ctx: &Context, facts: &Facts, reason: Reason, message: &str, now: Timestamp) {
    let failed = reason.means() == Means::Failed;
    let (kind, action, result) = if failed {
        (EventType::Warning, "ReadConditions", BackupResult::Failed)
    } else {
        (EventType::Normal, "Restore", BackupResult::Succeeded)
    };
    let start = facts
        .view
        .status
        .as_ref()
        .and_then(|s| s.timing.as_ref()?.start_time);
    let took = start.map_or(0.0, |start| now.duration_since(start).as_secs_f64());
    ctx.metrics.restored(result, took);
    report::event(ctx, facts, kind, reason.as_str(), message, action).await;
}

/// Lets the Job go an hour later, for its log.
pub async fn keep_for_a_while(ctx: &Context, job: &JobFact) -> Result<(), Error> {
    let key = job.job.key();
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let patch = Patch::Merge(json!({ "spec": { "ttlSecondsAfterFinished": KEEP_SECONDS } }));
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    ctx.leadership.guard()?;
    match api
        .patch(&key.name, &params, &patch)
        .await
        .map_err(WriteError::from)
    {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
