//! Which run begins now.
//!
//! **Promises.** First what a person asked for, then a full run, then a quick one. A run that has to wait keeps no other
//! waiting that does not. A failed slot is tried again with growing pauses and is never joined by the slots it missed.
//!
//! **Assumes.** A result is recorded before the Job goes: `last` is the slot that was handled, also by a run of more.

use super::{Effort, Reason};
use crate::backoff;
use crate::schedule::{self, Concurrency, ScheduleError, ScheduleFacts, Timetable};
use jiff::{SignedDuration, Timestamp};

/// A look at what was deleted that is due within this time is waited for. The first one comes ten to twenty minutes
/// after a batch ([`crate::deletion::look`]).
pub const LOOK_NEAR: SignedDuration = SignedDuration::from_mins(20);

/// The schedule of one effort.
#[derive(Debug, Clone)]
pub struct Track {
    /// When it runs.
    pub timetable: Timetable,
    /// `status.<effort>.nextScheduledAt`.
    pub pinned: Option<Timestamp>,
    /// `status.<effort>.lastHandledAt`.
    pub last: Option<Timestamp>,
    /// Cron, time zone or jitter are not those the pin was computed with.
    pub changed: bool,
    /// A failed run is not tried again before.
    pub next_attempt_at: Option<Timestamp>,
}

/// What a person asked for and did not get yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// How much.
    pub effort: Effort,
    /// The time that the annotation names.
    pub at: Timestamp,
}

/// What is known of the repository object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repository {
    /// Its mover can run. A degraded one is among these: slowness is what maintenance may cure.
    Usable,
    /// It cannot, and this is why.
    Not(Reason),
}

/// What is known of the lane of the physical repository (`docs/design.md` 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lane {
    /// The chart's `deletions.paused`.
    pub paused: bool,
    /// A wave is held on one of its objects.
    pub held: bool,
    /// Deleted snapshots have come back.
    pub reappeared: bool,
    /// When it is looked next whether they have.
    pub look_at: Option<Timestamp>,
    /// A delete Job is live, or waits for those who write.
    pub deleting: bool,
    /// A maintenance Job of another object is live.
    pub other_running: bool,
}

/// What is known of a Maintenance whose spec can be read.
#[derive(Debug, Clone)]
pub struct Facts {
    /// `metadata.creationTimestamp`.
    pub created_at: Timestamp,
    /// Quick runs.
    pub quick: Track,
    /// Full runs.
    pub full: Track,
    /// What a person asked for.
    pub request: Option<Request>,
    /// Its repository.
    pub repository: Repository,
    /// An older one is of the same physical repository.
    pub another: bool,
    /// The lane.
    pub lane: Lane,
    /// Whether a quick run of the engine frees anything that a snapshot may have needed.
    pub quick_frees: bool,
}

/// A run that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// How much.
    pub effort: Effort,
    /// The slot, or the time that a person named.
    pub slot: Timestamp,
    /// A person asked for it.
    pub asked: bool,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Begin this one.
    pub run: Option<Choice>,
    /// Why the first of those that are due does not begin, or why none ever could.
    pub wait: Option<Reason>,
    /// What `status.quick.nextScheduledAt` must say.
    pub quick: Timestamp,
    /// What `status.full.nextScheduledAt` must say.
    pub full: Timestamp,
    /// When time alone could change the answer.
    pub wake_at: Option<Timestamp>,
}

/// Decides.
///
/// # Errors
/// [`ScheduleError::Never`] when a schedule has no next slot.
pub fn decide(facts: &Facts, now: Timestamp) -> Result<Plan, ScheduleError> {
    let quick = slot(facts.created_at, &facts.quick, now)?;
    let full = slot(facts.created_at, &facts.full, now)?;
    let asked = facts.request.map(|request| Choice {
        effort: request.effort,
        slot: request.at,
        asked: true,
    });
    let due = |slot: &Due, effort| {
        let choice = |slot| Choice {
            effort,
            slot,
            asked: false,
        };
        slot.due.filter(|_| slot.pause.is_none()).map(choice)
    };
    let candidates = [asked, due(&full, Effort::Full), due(&quick, Effort::Quick)];
    let mut plan = Plan {
        run: None,
        wait: standing(facts),
        quick: quick.pin,
        full: full.pin,
        wake_at: [quick.wake_at, full.wake_at].into_iter().flatten().min(),
    };
    if plan.wait.is_some() {
        return Ok(plan);
    }
    for candidate in candidates.into_iter().flatten() {
        match obstacle(facts, candidate.effort, now) {
            None => {
                plan.run = Some(candidate);
                break;
            }
            Some(why) => {
                plan.wait.get_or_insert(why);
            }
        }
    }
    if plan.wait == Some(Reason::SecondLookDue) {
        plan.wake_at = plan.wake_at.into_iter().chain(facts.lane.look_at).min();
    }
    if plan.run.is_none() && plan.wait.is_none() && (quick.pause.is_some() || full.pause.is_some()) {
        plan.wait = Some(Reason::MaintenanceFailed);
    }
    Ok(plan)
}

/// One track at this moment.
struct Due {
    due: Option<Timestamp>,
    pin: Timestamp,
    /// It is due and backs off until then.
    pause: Option<Timestamp>,
    wake_at: Option<Timestamp>,
}

fn slot(created_at: Timestamp, track: &Track, now: Timestamp) -> Result<Due, ScheduleError> {
    let facts = ScheduleFacts {
        created_at,
        suspend: false,
        run_on_create: false,
        starting_deadline: None,
        concurrency: Concurrency::Allow,
        policy_ready: true,
        active: 0,
        unreadable: 0,
        parked: 0,
        pinned: track.pinned,
        last: track.last,
        timetable_changed: track.changed,
    };
    let plan = schedule::decide(&facts, &track.timetable, now)?;
    let pause = track
        .next_attempt_at
        .filter(|at| plan.run.is_some() && backoff::MAINTENANCE.waits(*at, now));
    Ok(Due {
        due: plan.run,
        // The slot stays pinned until it is handled.
        pin: plan.run.unwrap_or(plan.pin),
        pause,
        wake_at: match plan.run {
            Some(_) => pause,
            None => Some(plan.pin),
        },
    })
}

/// What keeps every run from beginning, due or not.
fn standing(facts: &Facts) -> Option<Reason> {
    match facts.repository {
        Repository::Not(why) => Some(why),
        Repository::Usable if facts.another => Some(Reason::AnotherMaintenance),
        Repository::Usable => None,
    }
}

/// What keeps a due run from beginning.
fn obstacle(facts: &Facts, effort: Effort, now: Timestamp) -> Option<Reason> {
    let frees = match effort {
        Effort::Quick => facts.quick_frees,
        Effort::Full => true,
    };
    let lane = facts.lane;
    let look_near = lane.look_at.is_some_and(|at| at.duration_since(now) <= LOOK_NEAR);
    [
        (frees && lane.paused, Reason::DeletionsPaused),
        (frees && lane.held, Reason::MassDeletionHeld),
        (frees && lane.reappeared, Reason::DeletedSnapshotsReappeared),
        (frees && look_near, Reason::SecondLookDue),
        (lane.deleting, Reason::DeletionsRunning),
        (lane.other_running, Reason::OtherMaintenanceRunning),
    ]
    .into_iter()
    .find_map(|(is, why)| is.then_some(why))
}
