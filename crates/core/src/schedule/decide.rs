//! Whether a schedule runs now.
//!
//! **Promises.** A due slot runs at most once; one older than `startingDeadlineSeconds` is passed over; without a
//! deadline it runs late, once. Nothing runs while something about it cannot be read.
//!
//! **Assumes.** The plan is applied in this order: create the Snapshot named by the slot (AlreadyExists is done),
//! then write `lastSchedule` and the pin. A Snapshot counts as active while it is Pending, Running or without a
//! phase, and is not being deleted.

use super::cron::ScheduleError;
use super::timetable::Timetable;
use jiff::{SignedDuration, Timestamp};

/// `spec.concurrencyPolicy`. `Replace` is refused by the API for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Concurrency {
    /// A due slot waits until no run is active.
    Forbid,
    /// Runs may overlap.
    Allow,
    /// A value of a newer version: hold, touch nothing.
    Unknown,
}

/// What is known about a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleFacts {
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// `spec.schedule.suspend`.
    pub suspend: bool,
    /// `spec.schedule.runOnCreate`.
    pub run_on_create: bool,
    /// `spec.schedule.startingDeadlineSeconds`.
    pub starting_deadline: Option<SignedDuration>,
    /// `spec.schedule.concurrencyPolicy`.
    pub concurrency: Concurrency,
    /// Its policy exists, is not being deleted and not suspended.
    pub policy_ready: bool,
    /// Active runs.
    pub active: u32,
    /// Runs whose phase cannot be read.
    pub unreadable: u32,
    /// Runs that wait for their repository to be reached.
    pub parked: u32,
    /// `status.nextSchedule.at`.
    pub pinned: Option<Timestamp>,
    /// `status.lastSchedule.at`: the slot that ran last.
    pub last: Option<Timestamp>,
    /// Cron, time zone or jitter are not those the pin was computed with.
    pub timetable_changed: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchedulePlan {
    /// Create the Snapshot of this slot.
    pub run: Option<Timestamp>,
    /// A due slot that is passed over for good.
    pub missed: Option<Timestamp>,
    /// What the due slot waits for.
    pub wait: Option<ScheduleWait>,
    /// What `status.nextSchedule.at` must say, written after the Snapshot exists.
    pub pin: Timestamp,
    /// When to look again without an event. None: an event ends the wait.
    pub wake_at: Option<Timestamp>,
}

/// Why a due slot does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleWait {
    /// `spec.schedule.suspend`; its slots are passed over.
    Suspended,
    /// Its policy is missing, suspended or going.
    PolicyNotReady,
    /// A run is active under Forbid.
    RunActive,
    /// A run waits for the repository, under whatever policy: one that waits is as good as many.
    RunParked,
    /// A run whose phase cannot be read.
    BlockedOnUnreadableRun,
    /// `concurrencyPolicy` has a value of a newer version.
    ConcurrencyUnreadable,
}

impl ScheduleWait {
    /// The reason's one word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Suspended => "Suspended",
            Self::PolicyNotReady => "PolicyNotReady",
            Self::RunActive => "RunActive",
            Self::RunParked => "RunParked",
            Self::BlockedOnUnreadableRun => "BlockedOnUnreadableRun",
            Self::ConcurrencyUnreadable => "ConcurrencyUnreadable",
        }
    }
}

/// Decides whether the pinned slot runs now, and what the pin becomes.
///
/// # Errors
/// [`ScheduleError::Never`] when there is no next slot.
pub fn decide(
    facts: &ScheduleFacts,
    timetable: &Timetable,
    now: Timestamp,
) -> Result<SchedulePlan, ScheduleError> {
    let next = |after: Timestamp| timetable.next_after(after.max(now));
    let on = |run, missed, wait, pin: Timestamp| SchedulePlan {
        run,
        missed,
        wait,
        pin,
        wake_at: Some(pin),
    };
    let suspended = facts.suspend.then_some(ScheduleWait::Suspended);

    let slot = match facts.pinned {
        Some(pinned) if !facts.timetable_changed => pinned,
        None if facts.run_on_create && facts.last.is_none() && !facts.timetable_changed => facts.created_at,
        Some(_) | None => return Ok(on(None, None, suspended, next(now)?)),
    };
    if slot > now {
        return Ok(on(None, None, suspended, slot));
    }
    if facts.last.is_some_and(|last| last >= slot) {
        // It ran; only the pin was not moved.
        return Ok(on(None, None, suspended, next(slot)?));
    }
    if suspended.is_some() {
        return Ok(on(None, Some(slot), suspended, next(slot)?));
    }
    if facts
        .starting_deadline
        .is_some_and(|deadline| now.duration_since(slot) > deadline)
    {
        return Ok(on(None, Some(slot), None, next(slot)?));
    }
    if let Some(wait) = waits(facts) {
        let passed_over = facts
            .starting_deadline
            .and_then(|deadline| slot.checked_add(deadline).ok());
        let wake_at = passed_over.and_then(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
        return Ok(SchedulePlan {
            run: None,
            missed: None,
            wait: Some(wait),
            pin: slot,
            wake_at,
        });
    }
    Ok(on(Some(slot), None, None, next(slot)?))
}

fn waits(facts: &ScheduleFacts) -> Option<ScheduleWait> {
    if !facts.policy_ready {
        return Some(ScheduleWait::PolicyNotReady);
    }
    match facts.concurrency {
        Concurrency::Allow if facts.parked > 0 => Some(ScheduleWait::RunParked),
        Concurrency::Allow => None,
        Concurrency::Forbid if facts.unreadable > 0 => Some(ScheduleWait::BlockedOnUnreadableRun),
        Concurrency::Forbid if facts.active > 0 => Some(ScheduleWait::RunActive),
        Concurrency::Forbid => None,
        Concurrency::Unknown => Some(ScheduleWait::ConcurrencyUnreadable),
    }
}
