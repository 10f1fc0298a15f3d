//! Whether a schedule runs now, and for which of its policies.
//!
//! **Promises.** A due slot runs at most once; one older than `startingDeadlineSeconds` is passed over; without a
//! deadline it runs late, once. Nothing runs while something about it cannot be read. A run that has not begun stands
//! for the slots that come meanwhile: while a repository is away there is one run waiting for each policy, whatever
//! the concurrency policy says.
//!
//! **Assumes.** The plan is applied in this order: create the Snapshots named by the slot (AlreadyExists is done), end
//! the runs that they replace, then write `lastSchedule` and the pin. A Snapshot counts while it is Pending, Running or
//! without a phase, is not being deleted, and is not the due slot's own.

use super::cron::ScheduleError;
use super::timetable::Timetable;
use jiff::{SignedDuration, Timestamp};

/// Most policies that one schedule runs at once. More are more likely a selector that selects too much.
pub const MAX_POLICIES: usize = 100;

/// `spec.concurrencyPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Concurrency {
    /// A due slot waits until no run is active.
    Forbid,
    /// Runs may overlap.
    Allow,
    /// A due slot ends the run under way and takes its place.
    Replace,
    /// A value of a newer version: hold, touch nothing.
    Unknown,
}

/// The runs of one policy that have not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Runs {
    /// Those that have begun.
    pub begun: u32,
    /// Those that wait for something before they begin.
    pub parked: u32,
    /// Those whose phase cannot be read.
    pub unreadable: u32,
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
    /// The runs of each of its policies that exist, are not being deleted and not suspended.
    pub policies: Vec<Runs>,
    /// `status.nextSchedule.at`.
    pub pinned: Option<Timestamp>,
    /// `status.lastSchedule.at`: the slot that ran last.
    pub last: Option<Timestamp>,
    /// Cron, time zone or jitter are not those the pin was computed with.
    pub timetable_changed: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulePlan {
    /// Create the Snapshots of this slot, for the policies whose turn it is.
    pub run: Option<Timestamp>,
    /// Of each policy, in the order of the facts, when a slot runs; else empty.
    pub turns: Vec<Turn>,
    /// A due slot that is passed over for good.
    pub missed: Option<Timestamp>,
    /// What the due slot waits for.
    pub wait: Option<ScheduleWait>,
    /// What `status.nextSchedule.at` must say, written after the Snapshot exists.
    pub pin: Timestamp,
    /// When to look again without an event. None: an event ends the wait.
    pub wake_at: Option<Timestamp>,
}

/// What a slot that runs does for one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// A new run.
    Run,
    /// A new run, which ends those that have begun.
    Replace,
    /// None; the slot is passed over for this policy.
    Wait(ScheduleWait),
}

/// Why a due slot does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScheduleWait {
    /// `spec.schedule.suspend`; its slots are passed over.
    Suspended,
    /// Its policy is missing, suspended or going, or none that is selected is ready.
    PolicyNotReady,
    /// More policies are selected than [`MAX_POLICIES`]; the slot is passed over.
    FanoutTooLarge,
    /// A run is active under Forbid.
    RunActive,
    /// Under Allow, a run has not begun: it stands for this slot, which is passed over.
    RunParked,
    /// The same under Replace: to replace it would gain nothing.
    ReplacementHeld,
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
            Self::FanoutTooLarge => "FanoutTooLarge",
            Self::RunActive => "RunActive",
            Self::RunParked => "RunParked",
            Self::ReplacementHeld => "ReplacementHeld",
            Self::BlockedOnUnreadableRun => "BlockedOnUnreadableRun",
            Self::ConcurrencyUnreadable => "ConcurrencyUnreadable",
        }
    }

    /// Whether the slot is passed over; else it stays and runs when the wait ends.
    #[must_use]
    pub fn passes_over(self) -> bool {
        match self {
            Self::Suspended | Self::FanoutTooLarge | Self::RunParked | Self::ReplacementHeld => true,
            Self::PolicyNotReady
            | Self::RunActive
            | Self::BlockedOnUnreadableRun
            | Self::ConcurrencyUnreadable => false,
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
    let on = |missed, wait, pin: Timestamp| SchedulePlan {
        run: None,
        turns: Vec::new(),
        missed,
        wait,
        pin,
        wake_at: Some(pin),
    };
    let suspended = facts.suspend.then_some(ScheduleWait::Suspended);

    let slot = match facts.pinned {
        Some(pinned) if !facts.timetable_changed => pinned,
        None if facts.run_on_create && facts.last.is_none() && !facts.timetable_changed => facts.created_at,
        Some(_) | None => return Ok(on(None, suspended, next(now)?)),
    };
    if slot > now {
        return Ok(on(None, suspended, slot));
    }
    if facts.last.is_some_and(|last| last >= slot) {
        // It ran; only the pin was not moved.
        return Ok(on(None, suspended, next(slot)?));
    }
    if suspended.is_some() {
        return Ok(on(Some(slot), suspended, next(slot)?));
    }
    if facts
        .starting_deadline
        .is_some_and(|deadline| now.duration_since(slot) > deadline)
    {
        return Ok(on(Some(slot), None, next(slot)?));
    }
    match turns(facts) {
        Ok(turns) => Ok(SchedulePlan {
            run: Some(slot),
            turns,
            ..on(None, None, next(slot)?)
        }),
        Err(wait) if wait.passes_over() => Ok(on(Some(slot), Some(wait), next(slot)?)),
        Err(wait) => {
            let passed_over = facts
                .starting_deadline
                .and_then(|deadline| slot.checked_add(deadline).ok());
            let wake_at = passed_over.and_then(|at| at.checked_add(SignedDuration::from_secs(1)).ok());
            Ok(SchedulePlan {
                wake_at,
                ..on(None, Some(wait), slot)
            })
        }
    }
}

/// Whose turn it is, if anybody's. Where it is nobody's, the wait that keeps the slot counts before one that does not.
fn turns(facts: &ScheduleFacts) -> Result<Vec<Turn>, ScheduleWait> {
    if facts.policies.len() > MAX_POLICIES {
        return Err(ScheduleWait::FanoutTooLarge);
    }
    let turns: Vec<Turn> = facts
        .policies
        .iter()
        .map(|runs| turn(facts.concurrency, *runs))
        .collect();
    let waits: Vec<ScheduleWait> = turns
        .iter()
        .filter_map(|turn| match turn {
            Turn::Run | Turn::Replace => None,
            Turn::Wait(wait) => Some(*wait),
        })
        .collect();
    if waits.len() < turns.len() {
        return Ok(turns);
    }
    let keeps = waits.iter().find(|wait| !wait.passes_over());
    Err(keeps
        .or(waits.first())
        .copied()
        .unwrap_or(ScheduleWait::PolicyNotReady))
}

fn turn(concurrency: Concurrency, runs: Runs) -> Turn {
    let unreadable = Turn::Wait(ScheduleWait::BlockedOnUnreadableRun);
    match concurrency {
        Concurrency::Unknown => Turn::Wait(ScheduleWait::ConcurrencyUnreadable),
        Concurrency::Forbid if runs.unreadable > 0 => unreadable,
        Concurrency::Forbid if runs.begun > 0 || runs.parked > 0 => Turn::Wait(ScheduleWait::RunActive),
        Concurrency::Forbid => Turn::Run,
        Concurrency::Allow if runs.parked > 0 => Turn::Wait(ScheduleWait::RunParked),
        Concurrency::Allow => Turn::Run,
        Concurrency::Replace if runs.unreadable > 0 => unreadable,
        Concurrency::Replace if runs.parked > 0 => Turn::Wait(ScheduleWait::ReplacementHeld),
        Concurrency::Replace if runs.begun > 0 => Turn::Replace,
        Concurrency::Replace => Turn::Run,
    }
}
