//! Recording a slot, creating its Snapshot, reporting.

use super::history;
use super::observe::Observed;
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::schedule::{Slot, SnapshotScheduleStatus};
use holdfast_api::shared::{CascadePolicy, LocalRef, Origin, PolicyRef};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase, SnapshotSpec};
use holdfast_api::{SnapshotSchedule, conditions, names};
use holdfast_core::schedule::{SchedulePlan, ScheduleWait, snapshot_name};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// Says why the schedule cannot be used.
pub async fn refuse(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    why: &str,
    now: Timestamp,
) -> Result<Next, Error> {
    let generation = observed.schedule.metadata.generation;
    write_status(ctx, key, observed, |status| {
        status.observed_generation = generation;
        let list = &mut status.conditions;
        conditions::Kstatus {
            ready: false,
            reconciling: false,
            stalled: true,
        }
        .set(list, "InvalidSchedule", why, generation, now);
    })
    .await?;
    Ok(Next::Settled)
}

/// Carries out a plan.
pub async fn carry_out(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    plan: SchedulePlan,
    now: Timestamp,
) -> Result<Next, Error> {
    propagate_cascade(ctx, observed).await?;
    let limit = observed.schedule.spec.failed_jobs_history_limit;
    history::prune(ctx, &history::beyond(&observed.children, limit)).await?;
    let Some(slot) = plan.run else {
        report(ctx, key, observed, plan, None, now).await?;
        return Ok(again(plan, now));
    };
    let name = snapshot_name(&key.name, slot);
    if observed.facts.pinned != Some(slot) {
        // `runOnCreate`: record the slot before anything depends on it; this write brings the schedule back.
        let recorded = slot_of(observed, slot, &name);
        write_status(ctx, key, observed, |status| status.next_schedule = Some(recorded)).await?;
        return Ok(Next::Settled);
    }
    create_snapshot(ctx, key, observed, &name).await?;
    ctx.metrics.scheduled();
    report(ctx, key, observed, plan, Some((slot, name)), now).await?;
    Ok(again(plan, now))
}

fn again(plan: SchedulePlan, now: Timestamp) -> Next {
    match plan.wake_at {
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Next::After(wait.max(Duration::from_millis(100)))
        }
        None => Next::Settled,
    }
}

fn slot_of(observed: &Observed, at: Timestamp, snapshot: &str) -> Slot {
    let times = &observed.schedule.spec.schedule;
    Slot {
        at,
        cron: Some(times.cron.clone()),
        timezone: times.timezone.clone(),
        jitter: times.jitter.clone(),
        snapshot_ref: Some(LocalRef {
            name: snapshot.to_owned(),
        }),
    }
}

fn cascade(schedule: &SnapshotSchedule) -> CascadePolicy {
    schedule
        .spec
        .deletion
        .as_ref()
        .map(|d| d.on_schedule_delete)
        .unwrap_or_default()
}

/// Creates the Snapshot of the recorded slot and writes its first status; completes it when it exists already.
async fn create_snapshot(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    name: &str,
) -> Result<(), Error> {
    let schedule = &observed.schedule;
    let uid = schedule.metadata.uid.clone().unwrap_or_default();
    // Live proof: a slot of a stale cache may have run, and its Snapshot may be gone on purpose.
    let schedules: Api<SnapshotSchedule> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let live = schedules.get_opt(&key.name).await?;
    if live.and_then(|s| s.metadata.resource_version) != schedule.metadata.resource_version {
        return Err(Error::Conflict);
    }
    let Some(policy) = &observed.policy else {
        return Err(Error::Conflict);
    };
    let policy_name = policy.metadata.name.clone().unwrap_or_default();
    let spec = SnapshotSpec {
        policy_ref: Some(PolicyRef {
            name: policy_name.clone(),
            namespace: None,
        }),
        deletion_policy: Some(policy.spec.default_deletion_policy),
        on_schedule_delete: Some(cascade(schedule)),
        ..SnapshotSpec::default()
    };
    let mut snapshot = Snapshot::new(name, spec);
    snapshot.metadata.namespace = Some(key.namespace.clone());
    snapshot.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
    snapshot.metadata.labels = Some(BTreeMap::from([
        (
            names::ORIGIN_LABEL.to_owned(),
            Origin::Scheduled.as_str().to_owned(),
        ),
        (names::SCHEDULE_LABEL.to_owned(), label_value(&key.name)),
        (names::CONFIG_LABEL.to_owned(), label_value(&policy_name)),
        (names::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned()),
    ]));
    snapshot.metadata.owner_references = Some(vec![OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: SnapshotSchedule::kind(&()).into_owned(),
        name: key.name.clone(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }]);
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    ctx.leadership.guard()?;
    let made = match api.create(&params, &snapshot).await.map_err(WriteError::from) {
        Ok(made) => made,
        Err(WriteError::Conflict) => match api.get_opt(name).await? {
            Some(known) => known,
            None => return Err(Error::Conflict),
        },
        Err(error) => return Err(error.into()),
    };
    let ours = made
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|o| o.uid == uid);
    let begun = made.status.as_ref().is_some_and(|s| s.phase.is_some());
    if !ours || begun || made.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let version = made.metadata.resource_version.as_deref().unwrap_or_default();
    let status = json!({ "origin": Origin::Scheduled, "phase": SnapshotPhase::Pending });
    ctx.leadership.guard()?;
    match write::patch_status(&api, name, version, status).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn label_value(name: &str) -> String {
    crate::jobs::job_name(name)
}

/// Brings `onScheduleDelete` to the children that were made before it was edited.
async fn propagate_cascade(ctx: &Context, observed: &Observed) -> Result<(), Error> {
    let wanted = cascade(&observed.schedule);
    if wanted == CascadePolicy::Unknown {
        return Ok(());
    }
    for child in &observed.children {
        let says = child.spec.on_schedule_delete.unwrap_or_default();
        if child.metadata.deletion_timestamp.is_some() || says == wanted {
            continue;
        }
        let key = child.key();
        let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let version = child.metadata.resource_version.as_deref().unwrap_or_default();
        match write_cascade(ctx, &api, &key, version, wanted).await {
            // A child that changed meanwhile brings the schedule back by its own event.
            Ok(()) | Err(Error::Conflict) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes `onScheduleDelete` on one child, if it is still at `version`.
pub(super) async fn write_cascade<K>(
    ctx: &Context,
    api: &Api<K>,
    key: &ObjectKey,
    version: &str,
    wanted: CascadePolicy,
) -> Result<(), Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    ctx.leadership.guard()?;
    let patch = json!({ "spec": { "onScheduleDelete": wanted } });
    match write::patch(api, &key.name, version, patch).await {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error @ (WriteError::Conflict | WriteError::Api(_))) => Err(error.into()),
    }
}

async fn write_status(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    change: impl FnOnce(&mut SnapshotScheduleStatus),
) -> Result<(), Error> {
    let before = observed.schedule.status.clone().unwrap_or_default();
    let mut status = before.clone();
    change(&mut status);
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(());
    };
    ctx.leadership.guard()?;
    let api: Api<SnapshotSchedule> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = observed
        .schedule
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default();
    write::patch_status(&api, &key.name, version, patch).await?;
    Ok(())
}

async fn report(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    plan: SchedulePlan,
    ran: Option<(Timestamp, String)>,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = observed.schedule.metadata.generation;
    let pin = slot_of(observed, plan.pin, &snapshot_name(&key.name, plan.pin));
    let (failures, succeeded) = history(&observed.children);
    write_status(ctx, key, observed, |status| {
        if let Some((slot, name)) = &ran {
            status.last_schedule = Some(slot_of(observed, *slot, name));
        }
        status.next_schedule = Some(pin.clone());
        status.consecutive_failures = failures;
        if let Some(snapshot) = succeeded {
            let at = snapshot.metadata.creation_timestamp.as_ref().map_or(now, |t| t.0);
            let known = status
                .last_successful_schedule
                .as_ref()
                .and_then(|s| s.snapshot_ref.as_ref());
            let name = snapshot.metadata.name.clone().unwrap_or_default();
            if known.is_none_or(|k| k.name != name) {
                status.last_successful_schedule = Some(slot_of(observed, at, &name));
            }
        }
        status.observed_generation = generation;
        let (ready, reason, message) = words(plan.wait, plan.missed);
        let list = &mut status.conditions;
        let reconciling = !ready && plan.wait != Some(ScheduleWait::Suspended);
        conditions::Kstatus {
            ready,
            reconciling,
            stalled: false,
        }
        .set(list, reason, &message, generation, now);
    })
    .await
}

fn words(wait: Option<ScheduleWait>, missed: Option<Timestamp>) -> (bool, &'static str, String) {
    match wait {
        None => match missed {
            Some(at) => (
                true,
                "Scheduled",
                format!("The slot {at} was passed over: it is older than startingDeadlineSeconds."),
            ),
            None => (
                true,
                "Scheduled",
                "The next slot is in status.nextSchedule.".into(),
            ),
        },
        Some(wait) => {
            let message = match wait {
                ScheduleWait::Suspended => {
                    "spec.schedule.suspend is set: no new runs. Set it to false to go on."
                }
                ScheduleWait::PolicyNotReady => {
                    "The policy is missing, refused, suspended or being deleted; its conditions say why. The slot runs when it is ready."
                }
                // A run under way is what the schedule is for.
                ScheduleWait::RunActive => {
                    return (
                        true,
                        wait.reason(),
                        "The due slot waits for the run under way (concurrencyPolicy: Forbid).".into(),
                    );
                }
                ScheduleWait::RunParked => {
                    return (
                        true,
                        wait.reason(),
                        "A run waits for the repository to be reached; the due slot waits with it, so that there is one and not many.".into(),
                    );
                }
                ScheduleWait::BlockedOnUnreadableRun => {
                    "A Snapshot of this schedule has a phase of a newer release. Update Holdfast."
                }
                ScheduleWait::ConcurrencyUnreadable => {
                    "spec.schedule.concurrencyPolicy has a value of a newer release. Update Holdfast."
                }
            };
            (false, wait.reason(), message.into())
        }
    }
}

/// Failed runs since the newest success, and that success.
fn history(children: &[std::sync::Arc<SnapshotView>]) -> (u32, Option<&SnapshotView>) {
    let mut ended: Vec<&SnapshotView> = children
        .iter()
        .map(AsRef::as_ref)
        .filter(|c| matches!(c.phase(), Some(SnapshotPhase::Succeeded | SnapshotPhase::Failed)))
        .collect();
    ended.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let failures = ended
        .iter()
        .take_while(|c| c.phase() == Some(SnapshotPhase::Failed))
        .count();
    let succeeded = ended
        .into_iter()
        .find(|c| c.phase() == Some(SnapshotPhase::Succeeded));
    (u32::try_from(failures).unwrap_or(u32::MAX), succeeded)
}
