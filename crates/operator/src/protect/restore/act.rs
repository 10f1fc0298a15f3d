//! Carrying out a step. What a Job is for is recorded before the Job is created.

use super::claims::{Claim, SELECTED_NODE};
use super::decide::Step;
use super::observe::{self, Facts, Target};
use super::{copies, finish, job, report};
use crate::context::{Context, Error};
use crate::jobs::create::{Created, create_job};
use crate::jobs::outcome::{JobFact, Read, refused_pod};
use crate::jobs::projection::{self, Hold, Projection};
use crate::runtime::queue::Next;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::{JobView, RepositoryView};
use holdfast_api::restore::{BoundClaim, ResolvedRestore, RestoreProgress, RestoreStatus, TargetStatus};
use holdfast_api::snapshot::{JobStatus, Timing};
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::restore::{Reason, room_for};
use holdfast_protocol::work::Operation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, PostParams, PropagationPolicy};
use kube::runtime::events::EventType;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// How often a running Job's progress is read.
const PACE: Duration = Duration::from_secs(5);

/// Carries out one step and says when to look again.
pub async fn carry_out(ctx: &Context, facts: &Facts, step: Step, now: Timestamp) -> Result<Next, Error> {
    match step {
        Step::Rest(again) => Ok(again.map_or(Next::Settled, after)),
        Step::Say(reason, message, again) => {
            copies::while_waiting(ctx, facts).await?;
            report::write(ctx, facts, |status| {
                report::say(status, facts, reason, &message, now)
            })
            .await?;
            let status = facts.view.status.as_ref();
            let said = status.and_then(|s| conditions::get(&s.conditions, conditions::READY));
            let new = said.is_none_or(|c| c.reason != reason.as_str());
            if reason == Reason::PrivilegedMoverNotPermitted && new {
                let word = reason.as_str();
                report::event(
                    ctx,
                    facts,
                    EventType::Warning,
                    word,
                    &message,
                    "AnnotateNamespace",
                )
                .await;
            }
            Ok(after(again))
        }
        Step::Fail(reason, message) => finish::end(ctx, facts, reason, &message, now).await,
        Step::Finish(reason, message) => finish::end(ctx, facts, reason, &message, now).await,
        Step::Begin(claim) => begin(ctx, facts, &claim, now).await,
        Step::Forget => {
            copies::withdraw_recorded(ctx, facts).await?;
            ctx.results.progress().forget(&job::run(&facts.view));
            // With them goes the claim that one of them owns.
            remove_all(ctx, &observe::jobs_of(ctx, &facts.view)).await?;
            let message = "The claim that was being filled is gone. Waiting for another one.";
            report::write(ctx, facts, |status| {
                begin_anew(status, facts);
                report::say(status, facts, Reason::WaitingForClaim, message, now);
            })
            .await?;
            Ok(Next::After(PACE))
        }
        Step::Remove(jobs) => {
            remove_all(ctx, &jobs).await?;
            Ok(Next::After(Duration::from_secs(2)))
        }
        Step::StartOver => {
            copies::withdraw_recorded(ctx, facts).await?;
            ctx.results.progress().forget(&job::run(&facts.view));
            report::write(ctx, facts, |status| {
                let target = status.target.take().filter(|_| facts.populates());
                begin_anew(status, facts);
                status.target = target.map(|target| TargetStatus {
                    pvc_prime: None,
                    ..target
                });
                let message = "The spec was edited: what was recorded for the old one is forgotten.";
                report::say(status, facts, Reason::Resolving, message, now);
            })
            .await?;
            Ok(Next::Settled)
        }
        Step::Pin(resolved) => pin(ctx, facts, *resolved, now).await,
        Step::Ask(asks, repository) => {
            let operation = Operation::Resolve {
                wanted: asks.wanted.clone(),
            };
            start(ctx, facts, &repository, operation, None, now).await
        }
        Step::Write(repository, target) => {
            let Some(resolved) = facts.resolved() else {
                return Err(Error::Conflict);
            };
            let item = job::item(&facts.view, resolved);
            start(
                ctx,
                facts,
                &repository,
                Operation::Restore { item },
                Some(target),
                now,
            )
            .await
        }
        Step::MakeClaim => make_claim(ctx, facts, now).await,
        Step::MakePrime(claim) => {
            copies::while_waiting(ctx, facts).await?;
            make_prime(ctx, facts, &claim, now).await
        }
        Step::Running(job) => running(ctx, facts, &job, now).await,
        Step::Retry(reason, why, next) => retry(ctx, facts, reason, &why, next, now).await,
        Step::Written(written) => finish::written(ctx, facts, &written, now).await,
        Step::HandOver(volume, claim) => finish::hand_over(ctx, facts, &volume, &claim, now).await,
    }
}

pub(super) fn after(d: SignedDuration) -> Next {
    let d = Duration::try_from(d).unwrap_or_default();
    Next::After(d.max(Duration::from_millis(200)))
}

/// Forgets everything but what is said, and which claims this generation is done with.
pub(super) fn begin_anew(status: &mut RestoreStatus, facts: &Facts) {
    let conditions = std::mem::take(&mut status.conditions);
    let mut ended = std::mem::take(&mut status.ended_claims);
    if facts.is_edited() {
        ended.clear();
    }
    *status = RestoreStatus {
        conditions,
        ended_claims: ended,
        source_kind: status.source_kind.take(),
        ..RestoreStatus::default()
    };
}

/// A claim asks: everything of an earlier one is forgotten, the snapshot among it.
async fn begin(ctx: &Context, facts: &Facts, claim: &Claim, now: Timestamp) -> Result<Next, Error> {
    copies::withdraw_recorded(ctx, facts).await?;
    ctx.results.progress().forget(&job::run(&facts.view));
    let before = facts.filling().is_some();
    let message = format!("Claim {} asks to be filled.", claim.name);
    report::write(ctx, facts, |status| {
        begin_anew(status, facts);
        status.target = Some(TargetStatus {
            pvc_ref: Some(BoundClaim {
                name: claim.name.clone(),
                uid: Some(claim.uid.clone()),
            }),
            ..TargetStatus::default()
        });
        report::say(status, facts, Reason::Resolving, &message, now);
    })
    .await?;
    if before {
        let note = format!(
            "Claim {} is another one than was filled before; it is filled anew.",
            claim.name
        );
        report::event(
            ctx,
            facts,
            EventType::Normal,
            "ClaimRecreated",
            &note,
            "FillClaim",
        )
        .await;
    }
    Ok(Next::Settled)
}

async fn pin(ctx: &Context, facts: &Facts, resolved: ResolvedRestore, now: Timestamp) -> Result<Next, Error> {
    copies::withdraw_recorded(ctx, facts).await?;
    ctx.results.progress().forget(&job::run(&facts.view));
    let message = match &resolved.kopia_snapshot_id {
        Some(id) => format!("It is snapshot {id}."),
        None => "There is no snapshot; the target is left as it is.".to_owned(),
    };
    report::write(ctx, facts, |status| {
        status.resolved = Some(resolved);
        status.job = None;
        status.attempts = None;
        status.next_attempt_at = None;
        if !facts.populates() {
            status.target = Some(TargetStatus {
                pvc_ref: Some(BoundClaim {
                    name: job::target(&facts.view),
                    uid: None,
                }),
                ..TargetStatus::default()
            });
        }
        report::say(status, facts, Reason::Restoring, &message, now);
    })
    .await?;
    if let Some(job) = &facts.job {
        finish::keep_for_a_while(ctx, job).await?;
    }
    Ok(Next::Settled)
}

/// Records the Job, then creates it: a crash in between leaves a name without a Job, never the reverse.
async fn start(
    ctx: &Context,
    facts: &Facts,
    repository: &RepositoryView,
    operation: Operation,
    target: Option<String>,
    now: Timestamp,
) -> Result<Next, Error> {
    let restore = &facts.view;
    let mut mover = job::mover(ctx, restore, repository, operation);
    let place = format!("{}/{}", mover.namespace, mover.name);
    let reason = if target.is_some() {
        Reason::Restoring
    } else {
        Reason::Resolving
    };
    let message = match &target {
        Some(claim) => format!("Job {place} writes to claim {claim}."),
        None => format!("Job {place} looks up which snapshot it is."),
    };
    let recorded = restore.status.as_ref().and_then(|s| s.job.as_ref());
    if recorded.is_none_or(|job| job.name != mover.name) {
        report::write(ctx, facts, |status| {
            status.job = Some(JobStatus {
                name: mover.name.clone(),
            });
            if target.is_some() {
                status.timing = Some(Timing {
                    start_time: Some(now),
                    ..Timing::default()
                });
            }
            if facts.populates() && target.is_some() {
                let place = status.target.get_or_insert_default();
                place.pvc_prime = Some(job::prime(restore));
            }
            report::say(status, facts, reason, &message, now);
        })
        .await?;
        return Ok(Next::Settled);
    }
    ctx.results
        .progress()
        .expect(&job::run(restore), &mover.namespace);
    let copy = job::projects(restore).then(|| {
        let uid = restore.metadata.uid.as_deref().unwrap_or_default();
        Projection::of(ctx, repository, &mover.namespace, &mover.name, uid)
    });
    if let (Some(copy), Some(owner)) = (&copy, mover.owner.clone()) {
        copy.apply(&mut mover);
        if let Some(hold) = projection::ensure(ctx, copy, &owner).await? {
            report::write(ctx, facts, |status| {
                report::say(status, facts, held(&hold), hold.message(), now)
            })
            .await?;
            return Ok(Next::After(Duration::from_secs(10)));
        }
    }
    let built = job::built(restore, &mover, target.as_deref())?;
    let (reason, message) = match create_job(ctx, &mover.namespace, built).await {
        Ok(Created::Yes(job)) => {
            if let Some(copy) = &copy {
                projection::ensure(ctx, copy, &projection::owned_by(&job)).await?;
            }
            return Ok(Next::After(PACE));
        }
        Ok(Created::Exists) => match copies::own_job(ctx, facts).await? {
            // Its own, which the watch has not shown yet.
            Some(owner) => {
                if let Some(copy) = &copy {
                    projection::ensure(ctx, copy, &owner).await?;
                }
                return Ok(Next::After(PACE));
            }
            None => (
                Reason::JobNameTaken,
                format!(
                    "Job {place} exists and is not of this Restore; the restore goes on when it is gone."
                ),
            ),
        },
        Ok(Created::NoPlace) => (
            Reason::NoPlaceToRun,
            format!("Namespace {} takes no new Jobs.", mover.namespace),
        ),
        Err(error) if error.is_refusal() => (
            Reason::JobRefused,
            format!("The API server does not take Job {place}: {error}"),
        ),
        Err(error) => return Err(error),
    };
    if let Some(copy) = &copy {
        projection::withdraw_unused(ctx, copy).await?;
    }
    report::write(ctx, facts, |status| {
        report::say(status, facts, reason, &message, now)
    })
    .await?;
    Ok(Next::After(Duration::from_secs(10)))
}

fn held(hold: &Hold) -> Reason {
    match hold {
        Hold::Source(_) => Reason::MissingCredentialsSecret,
        Hold::Taken(_) => Reason::ProjectedSecretTaken,
        Hold::Forbidden(_) => Reason::CredentialProjectionNotAllowed,
    }
}

async fn running(ctx: &Context, facts: &Facts, job: &JobFact, now: Timestamp) -> Result<Next, Error> {
    let followed = copies::follow(ctx, facts, &job.job).await?;
    let run = job::run(&facts.view);
    ctx.results.progress().expect(&run, &job.job.key().namespace);
    let told = ctx.results.progress().of(&run);
    let writes = job.job.label(names::OP_LABEL) == Some(names::OP_RESTORE);
    let reason = if writes {
        Reason::Restoring
    } else {
        Reason::Resolving
    };
    let created = job.job.metadata.creation_timestamp.as_ref();
    let age = created.map(|t| now.duration_since(t.0));
    let message = match &job.read {
        // A container that does not start is worth a word, but not for the seconds that every start takes.
        Read::Unreadable(why) | Read::Silent(why)
            if age.is_some_and(|a| a > SignedDuration::from_secs(20)) =>
        {
            Some(format!("Job {} runs; {why}.", job.job.key()))
        }
        Read::Unreadable(_) | Read::Silent(_) | Read::Outcome { .. } => None,
    };
    let (reason, message) = match message {
        None => (reason, None),
        Some(message) => match refused_pod(&ctx.client, job).await? {
            Some(refused) => (Reason::JobRefused, Some(refused)),
            None => (reason, Some(message)),
        },
    };
    let message = message.or(followed);
    report::write(ctx, facts, |status| {
        if let Some(told) = told {
            let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            status.progress = Some(RestoreProgress {
                bytes_restored: signed(told.bytes_done),
                bytes_total: (told.bytes_total > 0).then(|| signed(told.bytes_total)),
                files_restored: 0,
            });
        }
        if let Some(message) = message {
            report::say(status, facts, reason, &message, now);
        }
    })
    .await?;
    Ok(Next::After(PACE))
}

/// Nothing came of the Job: it goes, and another comes later.
async fn retry(
    ctx: &Context,
    facts: &Facts,
    reason: Reason,
    why: &str,
    next: Option<Timestamp>,
    now: Timestamp,
) -> Result<Next, Error> {
    copies::withdraw_recorded(ctx, facts).await?;
    ctx.results.progress().forget(&job::run(&facts.view));
    let attempts = facts
        .view
        .status
        .as_ref()
        .and_then(|s| s.attempts)
        .unwrap_or(0)
        .saturating_add(1);
    let (next, message) = match next {
        Some(next) => (next, why.to_owned()),
        None => {
            let next = backoff::REPOSITORY.next(attempts, now);
            (next, format!("{why} Tried again at {next}."))
        }
    };
    report::write(ctx, facts, |status| {
        status.attempts = Some(attempts);
        status.next_attempt_at = Some(next);
        status.job = None;
        if let Some(target) = &mut status.target {
            target.pvc_prime = None;
        }
        report::say(status, facts, reason, &message, now);
    })
    .await?;
    remove(ctx, facts).await?;
    Ok(after(next.duration_since(now)))
}

/// Removes the Job of the stage, and with it the claim that it owns.
pub(super) async fn remove(ctx: &Context, facts: &Facts) -> Result<(), Error> {
    match &facts.job {
        Some(job) => remove_all(ctx, &[Arc::clone(&job.job)]).await,
        None => Ok(()),
    }
}

/// Removes Jobs, and with them the claims that they own. Each stays until its pods are gone: while it is there, a pod
/// may still write.
pub(super) async fn remove_all(ctx: &Context, jobs: &[Arc<JobView>]) -> Result<(), Error> {
    for job in jobs {
        if job.metadata.deletion_timestamp.is_some() {
            continue;
        }
        ctx.leadership.guard()?;
        let key = job.key();
        let api: Api<Job> = Api::namespaced(ctx.client.clone(), &key.namespace);
        match write::delete(&api, &key.name, job.uid(), None, PropagationPolicy::Foreground).await {
            Ok(()) | Err(WriteError::Gone) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The claim of `spec.target.pvc`: without an owner, so that it stays whatever becomes of the Restore.
async fn make_claim(ctx: &Context, facts: &Facts, now: Timestamp) -> Result<Next, Error> {
    let Some(new) = &facts.view.spec.target.pvc else {
        return Err(Error::Conflict);
    };
    let size = facts.resolved().and_then(|r| r.size_bytes).unwrap_or(0);
    let room = room_for(u64::try_from(size).unwrap_or(0));
    let modes = if new.access_modes.is_empty() {
        vec!["ReadWriteOnce".to_owned()]
    } else {
        new.access_modes.clone()
    };
    let mut spec = json!({
        "accessModes": modes,
        "resources": { "requests": { "storage": new.capacity.clone().unwrap_or_else(|| room.to_string()) } },
    });
    if let Some(class) = &new.storage_class_name {
        spec["storageClassName"] = json!(class);
    }
    let metadata = json!({
        "name": new.name,
        "annotations": { names::MADE_BY_RESTORE: facts.view.metadata.uid },
    });
    create_claim(ctx, facts, metadata, spec, now).await
}

/// The claim that is filled in the place of another: like it, without its data source.
async fn make_prime(ctx: &Context, facts: &Facts, claim: &Claim, now: Timestamp) -> Result<Next, Error> {
    let restore = &facts.view;
    let name = job::prime(restore);
    let named = restore
        .status
        .as_ref()
        .and_then(|s| s.target.as_ref())
        .and_then(|t| t.pvc_prime.as_deref());
    if named != Some(name.as_str()) {
        report::write(ctx, facts, |status| {
            status.target.get_or_insert_default().pvc_prime = Some(name.clone());
        })
        .await?;
        return Ok(Next::Settled);
    }
    let wanted = claim.object.spec.clone().unwrap_or_default();
    let spec = json!({
        "accessModes": wanted.access_modes,
        "resources": { "requests": wanted.resources.and_then(|r| r.requests) },
        "storageClassName": wanted.storage_class_name,
        "volumeMode": wanted.volume_mode,
    });
    // It goes with the Job that fills it; without one, with the Restore.
    let owner = match &facts.job {
        Some(job) => {
            json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job.job.key().name, "uid": job.job.uid() })
        }
        None => json!({
            "apiVersion": names::API_VERSION, "kind": "Restore",
            "name": restore.metadata.name, "uid": restore.metadata.uid,
        }),
    };
    let mut annotations = json!({ names::MADE_BY_RESTORE: restore.metadata.uid });
    let on = claim.object.metadata.annotations.as_ref();
    if let Some(node) = on.and_then(|a| a.get(SELECTED_NODE)) {
        annotations[SELECTED_NODE] = json!(node);
    }
    let metadata = json!({ "name": name, "annotations": annotations, "ownerReferences": [owner] });
    create_claim(ctx, facts, metadata, spec, now).await
}

async fn create_claim(
    ctx: &Context,
    facts: &Facts,
    mut metadata: Value,
    spec: Value,
    now: Timestamp,
) -> Result<Next, Error> {
    let namespace = ObjectKey::of(facts.view.as_ref()).namespace;
    metadata["namespace"] = json!(namespace);
    metadata["labels"] = json!({ names::MANAGED_BY_LABEL: names::MANAGED_BY });
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({ "metadata": metadata, "spec": spec }))
        .map_err(crate::jobs::build::BuildError::from)?;
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    ctx.leadership.guard()?;
    match api.create(&params, &claim).await {
        Ok(_) => Ok(Next::After(Duration::from_millis(500))),
        // Somebody was faster: who made it is looked at next.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Next::After(Duration::from_millis(500))),
        Err(error) => {
            let error = Error::from(WriteError::from(error));
            if !error.is_refusal() {
                return Err(error);
            }
            let message = format!(
                "The API server does not take the claim {}: {error}",
                claim.metadata.name.unwrap_or_default()
            );
            report::write(ctx, facts, |status| {
                report::say(status, facts, Reason::WaitingForVolume, &message, now);
            })
            .await?;
            Ok(Next::After(Duration::from_secs(10)))
        }
    }
}

/// Whether the target is a claim that is filled in another's place.
pub(super) fn populates(facts: &Facts) -> bool {
    match &facts.target {
        Target::Populate(_) => true,
        Target::New(_) | Target::Existing(_) | Target::Unread => false,
    }
}
