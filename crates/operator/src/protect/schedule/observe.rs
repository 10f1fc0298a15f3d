//! What the decision on a schedule rests on.

use super::defaults::{self, InForce};
use crate::context::Context;
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::schedule::{ConcurrencyPolicy, ScheduleTimes, Slot};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotPolicy, SnapshotSchedule};
use holdfast_core::schedule::{Concurrency, Runs, ScheduleFacts, Timetable, selected_name, snapshot_name};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A schedule, its policies, its children, and the facts made of them.
pub struct Observed {
    /// The object.
    pub schedule: Arc<SnapshotSchedule>,
    /// Its policies that are ready, in the order of the facts, each with its children.
    pub ready: Vec<Member>,
    /// Its Snapshots.
    pub children: Vec<Arc<SnapshotView>>,
    /// The time zone and the jitter in force.
    pub in_force: InForce,
    /// When it runs, or why that cannot be said.
    pub timetable: Result<Timetable, String>,
    /// The facts.
    pub facts: ScheduleFacts,
}

/// One policy of a schedule.
pub struct Member {
    /// It.
    pub policy: Arc<SnapshotPolicy>,
    /// The schedule's Snapshots of it.
    pub children: Vec<Arc<SnapshotView>>,
}

/// Name of the Snapshot of a slot. Whoever selects its policies has one for each.
#[must_use]
pub fn child_name(schedule: &SnapshotSchedule, policy: &str, slot: Timestamp) -> String {
    let name = schedule.metadata.name.as_deref().unwrap_or_default();
    match schedule.spec.policy_selector {
        None => snapshot_name(name, slot),
        Some(_) => selected_name(name, policy, slot),
    }
}

/// Gathers the facts from the world.
pub fn observe(ctx: &Context, key: &ObjectKey, schedule: Arc<SnapshotSchedule>) -> Observed {
    let uid = schedule.metadata.uid.clone().unwrap_or_default();
    let children = ctx.world.snapshots_of_schedule(&uid);
    let policies = policies(ctx, key, &schedule);
    let in_force = defaults::in_force(ctx, &schedule, &policies);
    let created_at = schedule
        .metadata
        .creation_timestamp
        .as_ref()
        .map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    let times = &schedule.spec.schedule;
    let status = schedule.status.clone().unwrap_or_default();
    let next = status.next_schedule.as_ref();
    let slot = next.map_or(created_at, |s| s.at);
    let ready: Vec<Member> = policies
        .into_iter()
        .filter(|p| is_ready(p))
        .map(|policy| Member {
            children: children_of(&schedule, &policy, &children),
            policy,
        })
        .collect();
    let runs = |member: &Member| {
        let policy = member.policy.metadata.name.as_deref().unwrap_or_default();
        count(&member.children, &child_name(&schedule, policy, slot))
    };
    let facts = ScheduleFacts {
        created_at,
        suspend: times.suspend,
        run_on_create: times.run_on_create,
        starting_deadline: times.starting_deadline_seconds.map(SignedDuration::from_secs),
        concurrency: match times.concurrency_policy {
            ConcurrencyPolicy::Forbid => Concurrency::Forbid,
            ConcurrencyPolicy::Allow => Concurrency::Allow,
            ConcurrencyPolicy::Replace => Concurrency::Replace,
            ConcurrencyPolicy::Unknown => Concurrency::Unknown,
        },
        policies: ready.iter().map(runs).collect(),
        pinned: next.map(|s| s.at),
        last: status.last_schedule.as_ref().map(|s| s.at),
        timetable_changed: next.is_some_and(|s| !same_timetable(s, times, &in_force)),
    };
    let timetable = timetable(&schedule, &in_force, &uid);
    Observed {
        schedule,
        ready,
        children,
        in_force,
        timetable,
        facts,
    }
}

/// The policies that a schedule names or selects and that are not being deleted.
fn policies(ctx: &Context, key: &ObjectKey, schedule: &SnapshotSchedule) -> Vec<Arc<SnapshotPolicy>> {
    let spec = &schedule.spec;
    let mut policies = match (&spec.policy_ref, &spec.policy_selector) {
        (Some(named), None) => {
            let named = ctx.world.policy(&ObjectKey::new(&key.namespace, &named.name));
            named.into_iter().collect()
        }
        (None, Some(selector)) => ctx.world.policies_selected(&key.namespace, selector),
        // Refused.
        (Some(_), Some(_)) | (None, None) => Vec::new(),
    };
    policies.retain(|p| p.metadata.deletion_timestamp.is_none());
    policies
}

fn is_ready(policy: &SnapshotPolicy) -> bool {
    !policy.spec.suspend && holdfast_api::validate::policy(&policy.spec).is_empty()
}

/// Of a schedule that names its policy, every child: one of the policy that it named before is under way too.
fn children_of(
    schedule: &SnapshotSchedule,
    policy: &SnapshotPolicy,
    children: &[Arc<SnapshotView>],
) -> Vec<Arc<SnapshotView>> {
    let selects = schedule.spec.policy_selector.is_some();
    let is_of = |child: &&Arc<SnapshotView>| {
        let named = child.spec.policy_ref.as_ref().map(|p| &p.name);
        !selects || named == policy.metadata.name.as_ref()
    };
    children.iter().filter(is_of).cloned().collect()
}

fn timetable(schedule: &SnapshotSchedule, in_force: &InForce, uid: &str) -> Result<Timetable, String> {
    let refusals = holdfast_api::validate::schedule(&schedule.spec);
    if !refusals.is_empty() {
        return Err(refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; "));
    }
    let times = &schedule.spec.schedule;
    let jitter = match in_force.jitter.as_deref() {
        Some(text) => holdfast_api::shared::duration(text).ok_or_else(|| {
            format!("spec.schedule.jitter {text:?} is not a duration: write it as 90s, 5m or 1h30m")
        })?,
        None => SignedDuration::ZERO,
    };
    let timezone = in_force.timezone.as_deref();
    Timetable::new(&times.cron, timezone, jitter, uid).map_err(|error| {
        if in_force.inherited {
            format!(
                "{error}. What the schedule leaves out comes from spec.scheduleDefaults of the repository"
            )
        } else {
            error.to_string()
        }
    })
}

fn same_timetable(slot: &Slot, times: &ScheduleTimes, in_force: &InForce) -> bool {
    slot.cron.as_deref() == Some(times.cron.as_str())
        && slot.timezone == in_force.timezone
        && slot.jitter == in_force.jitter
}

/// Children that have begun, that wait before they begin, and those with a phase of a newer version; the due slot's own
/// not among them. One that lost its status is none of them: it will never run by itself.
fn count(children: &[Arc<SnapshotView>], own: &str) -> Runs {
    let mut runs = Runs::default();
    let others = children
        .iter()
        .filter(|c| c.metadata.deletion_timestamp.is_none() && c.metadata.name.as_deref() != Some(own));
    for child in others {
        match child.phase() {
            Some(SnapshotPhase::Running) => runs.begun += 1,
            Some(SnapshotPhase::Pending) => runs.parked += 1,
            None => {
                let lost = child.status.as_ref().is_some_and(|s| {
                    holdfast_api::conditions::is_true(&s.conditions, holdfast_api::conditions::STATUS_LOST)
                });
                runs.parked += u32::from(!lost);
            }
            Some(SnapshotPhase::Unknown) => runs.unreadable += 1,
            Some(
                SnapshotPhase::Succeeded
                | SnapshotPhase::Failed
                | SnapshotPhase::Deleting
                | SnapshotPhase::Discovered
                | SnapshotPhase::Unchanged,
            ) => {}
        }
    }
    runs
}
