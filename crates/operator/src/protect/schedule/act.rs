//! Carrying out a plan: the Snapshots of a slot, what they replace, the limit on failed runs.

use super::observe::{Observed, child_name};
use super::report::{report, slot_of, write_status};
use super::{create, history, replace};
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use holdfast_api::SnapshotSchedule;
use holdfast_api::shared::CascadePolicy;
use holdfast_api::snapshot::Snapshot;
use holdfast_core::schedule::{SchedulePlan, Turn};
use jiff::Timestamp;
use kube::Resource;
use kube::api::Api;
use kube::runtime::events::EventType;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

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
    let wake_at = plan.wake_at;
    let Some(slot) = plan.run else {
        report(ctx, key, observed, &plan, now).await?;
        return Ok(again(wake_at, now));
    };
    if observed.facts.pinned != Some(slot) {
        // `runOnCreate`: record the slot before anything depends on it; this write brings the schedule back.
        let recorded = slot_of(observed, slot);
        write_status(ctx, key, observed, |status| status.next_schedule = Some(recorded)).await?;
        return Ok(Next::Settled);
    }
    // Live proof: a slot of a stale cache may have run, and its Snapshots may be gone on purpose.
    let schedules: Api<SnapshotSchedule> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let live = schedules.get_opt(&key.name).await?;
    if live.and_then(|s| s.metadata.resource_version) != observed.schedule.metadata.resource_version {
        return Err(Error::Conflict);
    }
    for (member, turn) in observed.ready.iter().zip(&plan.turns) {
        let policy = member.policy.metadata.name.as_deref().unwrap_or_default();
        let name = child_name(&observed.schedule, policy, slot);
        match turn {
            Turn::Wait(_) => continue,
            Turn::Run => create::snapshot(ctx, key, observed, &member.policy, &name).await?,
            Turn::Replace => {
                create::snapshot(ctx, key, observed, &member.policy, &name).await?;
                replace::carry_out(ctx, observed, &member.children, &name).await?;
            }
        }
        ctx.metrics.scheduled();
    }
    report(ctx, key, observed, &plan, now).await?;
    tell_passed_over(ctx, observed, &plan, slot).await;
    Ok(again(wake_at, now))
}

/// Names the policies that a slot which ran for others was passed over for.
async fn tell_passed_over(ctx: &Context, observed: &Observed, plan: &SchedulePlan, slot: Timestamp) {
    let mut passed_over = BTreeMap::<&str, Vec<&str>>::new();
    for (member, turn) in observed.ready.iter().zip(&plan.turns) {
        match turn {
            Turn::Run | Turn::Replace => {}
            Turn::Wait(wait) => passed_over
                .entry(wait.reason())
                .or_default()
                .push(member.policy.metadata.name.as_deref().unwrap_or_default()),
        }
    }
    let about = SnapshotSchedule::object_ref(&*observed.schedule, &());
    for (reason, policies) in passed_over {
        let note = format!(
            "The slot {slot} was passed over for {}, whose run before has not ended: {}",
            match policies.len() {
                1 => "one policy".to_owned(),
                count => format!("{count} policies"),
            },
            policies.join(", ")
        );
        let _ = ctx
            .events
            .publish(&about, EventType::Normal, reason, &note, "Schedule")
            .await;
    }
}

fn again(wake_at: Option<Timestamp>, now: Timestamp) -> Next {
    match wake_at {
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            Next::After(wait.max(Duration::from_millis(100)))
        }
        None => Next::Settled,
    }
}

/// What a schedule says of the data of its Snapshots.
pub(super) fn cascade(schedule: &SnapshotSchedule) -> CascadePolicy {
    schedule
        .spec
        .deletion
        .as_ref()
        .map(|d| d.on_schedule_delete)
        .unwrap_or_default()
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
            // No reason to stop the others, or the backups: told again by the next pass, and asked live by the lane.
            Err(error) if error.is_refusal() => {
                tracing::warn!(snapshot = %key, %error, "a Snapshot cannot be told what becomes of its data; going on with the others");
            }
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
