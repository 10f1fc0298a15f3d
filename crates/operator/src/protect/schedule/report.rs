//! What a schedule says in its status.

use super::observe::{Observed, child_name};
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::{diff, write};
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::schedule::{Slot, SnapshotScheduleStatus};
use holdfast_api::shared::LocalRef;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotSchedule, conditions};
use holdfast_core::schedule::{MAX_POLICIES, SchedulePlan, ScheduleWait};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::Api;

/// Says why the schedule cannot be used.
///
/// # Errors
/// [`Error`].
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

/// A slot with its Snapshot; one that several policies share names none.
pub fn slot_of(observed: &Observed, at: Timestamp) -> Slot {
    let schedule = &observed.schedule;
    let selects = schedule.spec.policy_selector.is_some();
    Slot {
        at,
        cron: Some(schedule.spec.schedule.cron.clone()),
        timezone: observed.in_force.timezone.clone(),
        jitter: observed.in_force.jitter.clone(),
        snapshot_ref: (!selects).then(|| LocalRef {
            name: child_name(schedule, "", at),
        }),
    }
}

/// Writes a status if it changes, against the judged resourceVersion.
///
/// # Errors
/// [`Error`].
pub async fn write_status(
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

/// Writes what was decided.
///
/// # Errors
/// [`Error`].
pub async fn report(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    plan: &SchedulePlan,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = observed.schedule.metadata.generation;
    let pin = slot_of(observed, plan.pin);
    let (failures, succeeded) = history(&observed.children);
    write_status(ctx, key, observed, |status| {
        if let Some(slot) = plan.run {
            status.last_schedule = Some(slot_of(observed, slot));
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
                status.last_successful_schedule = Some(Slot {
                    snapshot_ref: Some(LocalRef { name }),
                    ..slot_of(observed, at)
                });
            }
        }
        status.observed_generation = generation;
        let (ready, reason, message) = words(plan.wait, plan.missed);
        let list = &mut status.conditions;
        report_flags(list, observed, plan.wait, generation, now);
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

/// The conditions of their own that are there while something is so, and say False once it is not any more.
fn report_flags(
    list: &mut Vec<Condition>,
    observed: &Observed,
    wait: Option<ScheduleWait>,
    generation: Option<i64>,
    now: Timestamp,
) {
    let disagreed = observed.in_force.disagreed.join(" and ");
    let ambiguous = format!(
        "The repositories of the selected policies disagree about scheduleDefaults.{disagreed}: UTC without them counts. Set it in spec.schedule."
    );
    let flags = [
        (
            conditions::TIMEZONE_DEFAULT_AMBIGUOUS,
            !observed.in_force.disagreed.is_empty(),
            "RepositoryDefaultsDisagree",
            ambiguous.as_str(),
        ),
        (
            conditions::FANOUT_CAPPED,
            wait == Some(ScheduleWait::FanoutTooLarge),
            "FanoutTooLarge",
            "More policies are selected than one schedule runs.",
        ),
    ];
    for (kind, is, reason, message) in flags {
        let was = conditions::is_true(list, kind);
        if is {
            conditions::set(list, kind, true, reason, message, generation, now);
        } else if was {
            conditions::set(list, kind, false, "Resolved", "This is over.", generation, now);
        }
    }
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
                    "The policy is missing, refused, suspended or being deleted, or none that is selected is ready; the conditions of the policies say why. The slot runs when one is ready."
                }
                ScheduleWait::FanoutTooLarge => {
                    return (
                        false,
                        wait.reason(),
                        format!(
                            "spec.policySelector selects more than {MAX_POLICIES} policies: the slot was passed over, and nothing runs. Make the selector narrower, or use several schedules."
                        ),
                    );
                }
                // What waits has the same work to do as what would be made beside it.
                ScheduleWait::RunParked | ScheduleWait::ReplacementHeld => {
                    return (
                        true,
                        wait.reason(),
                        "The run before has not begun; its Snapshot says what it waits for. It stands for the slot that was due, which was passed over.".into(),
                    );
                }
                // A run under way is what the schedule is for.
                ScheduleWait::RunActive => {
                    return (
                        true,
                        wait.reason(),
                        "The due slot waits for the run under way (concurrencyPolicy: Forbid).".into(),
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
