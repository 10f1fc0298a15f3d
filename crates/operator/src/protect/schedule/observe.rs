//! What the decision on a schedule rests on.

use crate::context::Context;
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::schedule::{ConcurrencyPolicy, Slot};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotPolicy, SnapshotSchedule};
use holdfast_core::schedule::{Concurrency, ScheduleFacts, Timetable};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A schedule, its policy, its children, and the facts made of them.
pub struct Observed {
    /// The object.
    pub schedule: Arc<SnapshotSchedule>,
    /// Its policy, if it exists.
    pub policy: Option<Arc<SnapshotPolicy>>,
    /// Its Snapshots.
    pub children: Vec<Arc<SnapshotView>>,
    /// When it runs, or why that cannot be said.
    pub timetable: Result<Timetable, String>,
    /// The facts.
    pub facts: ScheduleFacts,
}

/// Gathers the facts from the world.
pub fn observe(ctx: &Context, key: &ObjectKey, schedule: Arc<SnapshotSchedule>) -> Observed {
    let uid = schedule.metadata.uid.clone().unwrap_or_default();
    let children = ctx.world.snapshots_of_schedule(&uid);
    let policy = schedule.spec.policy_ref.as_ref();
    let policy = policy.and_then(|p| ctx.world.policy(&ObjectKey::new(&key.namespace, &p.name)));
    let (active, unreadable) = count(&children);
    let times = &schedule.spec.schedule;
    let status = schedule.status.clone().unwrap_or_default();
    let next = status.next_schedule.as_ref();
    let facts = ScheduleFacts {
        created_at: schedule
            .metadata
            .creation_timestamp
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
        suspend: times.suspend,
        run_on_create: times.run_on_create,
        starting_deadline: times.starting_deadline_seconds.map(SignedDuration::from_secs),
        concurrency: match times.concurrency_policy {
            ConcurrencyPolicy::Forbid => Concurrency::Forbid,
            ConcurrencyPolicy::Allow => Concurrency::Allow,
            ConcurrencyPolicy::Replace | ConcurrencyPolicy::Unknown => Concurrency::Unknown,
        },
        policy_ready: policy.as_ref().is_some_and(|p| {
            p.metadata.deletion_timestamp.is_none()
                && !p.spec.suspend
                && holdfast_api::validate::policy(&p.spec).is_empty()
        }),
        active,
        unreadable,
        parked: parked(&children),
        pinned: next.map(|s| s.at),
        last: status.last_schedule.as_ref().map(|s| s.at),
        timetable_changed: next.is_some_and(|s| !same_timetable(s, &schedule)),
    };
    let timetable = timetable(&schedule, &uid);
    Observed {
        schedule,
        policy,
        children,
        timetable,
        facts,
    }
}

fn timetable(schedule: &SnapshotSchedule, uid: &str) -> Result<Timetable, String> {
    let refusals = holdfast_api::validate::schedule(&schedule.spec);
    if !refusals.is_empty() {
        return Err(refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "));
    }
    let times = &schedule.spec.schedule;
    let jitter = match times.jitter.as_deref() {
        Some(text) => holdfast_api::shared::duration(text).ok_or_else(|| {
            format!("spec.schedule.jitter {text:?} is not a duration: write it as 90s, 5m or 1h30m")
        })?,
        None => SignedDuration::ZERO,
    };
    Timetable::new(&times.cron, times.timezone.as_deref(), jitter, uid).map_err(|e| e.to_string())
}

fn same_timetable(slot: &Slot, schedule: &SnapshotSchedule) -> bool {
    let times = &schedule.spec.schedule;
    slot.cron.as_deref() == Some(times.cron.as_str())
        && slot.timezone == times.timezone
        && slot.jitter == times.jitter
}

/// Children that wait for their repository to be reached.
fn parked(children: &[Arc<SnapshotView>]) -> u32 {
    let waits = |child: &&Arc<SnapshotView>| {
        let list = child.status.as_ref().map(|s| s.conditions.as_slice());
        child.metadata.deletion_timestamp.is_none()
            && child.phase() == Some(SnapshotPhase::Pending)
            && holdfast_api::conditions::get(list.unwrap_or_default(), holdfast_api::conditions::READY)
                .is_some_and(|c| c.reason == "RepositoryNotReady")
    };
    u32::try_from(children.iter().filter(waits).count()).unwrap_or(u32::MAX)
}

/// Active children (Pending, Running or without a phase, not being deleted) and those with a phase of a newer
/// version. One that lost its status is neither: it will never run by itself.
fn count(children: &[Arc<SnapshotView>]) -> (u32, u32) {
    let (mut active, mut unreadable) = (0, 0);
    for child in children
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none())
    {
        match child.phase() {
            Some(SnapshotPhase::Pending | SnapshotPhase::Running) => active += 1,
            None => {
                let lost = child.status.as_ref().is_some_and(|s| {
                    holdfast_api::conditions::is_true(&s.conditions, holdfast_api::conditions::STATUS_LOST)
                });
                active += u32::from(!lost);
            }
            Some(SnapshotPhase::Unknown) => unreadable += 1,
            Some(
                SnapshotPhase::Succeeded
                | SnapshotPhase::Failed
                | SnapshotPhase::Deleting
                | SnapshotPhase::Discovered
                | SnapshotPhase::Unchanged,
            ) => {}
        }
    }
    (active, unreadable)
}
