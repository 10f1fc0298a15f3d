//! The second look (`docs/design.md` 3.6): when a repository is listed again for what was confirmed deleted, and what
//! becomes of snapshots that came back.
//!
//! **Promises.** Every confirmed batch is looked at again ten minutes after it and the last writer beside it, and once
//! before its day is over; many batches share a look, so that there is about one in ten minutes. What came back is a wave of its own: fewer than
//! the threshold are deleted again, at the threshold they are held until a person says so. A hold does not end because
//! some went by themselves.
//!
//! **Assumes.** A listing proves only what was confirmed before it began. Ids that an object records are not told here.

use super::batch::after;
use super::verdict::DeleteReason;
use crate::backoff;
use jiff::{SignedDuration, Timestamp};

/// From the end of a batch, and of the last writer beside it, to the first look.
pub const FIRST: SignedDuration = SignedDuration::from_mins(10);
/// From the end of a batch to the look before its day is over.
pub const DAY: SignedDuration = SignedDuration::from_hours(23);
/// A look after this counts as the one before the day is over.
const LATE: SignedDuration = SignedDuration::from_hours(20);

/// A writer that still ran when the batch beside it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// It still does.
    Runs,
    /// It ended then.
    Ended(Timestamp),
}

/// How long after a batch a writer beside it is waited for: its looks have to come before the day of the memory is over.
pub const BESIDE: SignedDuration = SignedDuration::from_hours(12);

/// From when a batch's looks count: its own end, or that of the last writer beside it. One that still runs ends now at the
/// earliest, and at most [`BESIDE`] after the batch.
#[must_use]
pub fn over(confirmed: Timestamp, beside: &[Beside], now: Timestamp) -> Timestamp {
    let ends = beside.iter().map(|writer| match writer {
        Beside::Runs => now,
        // A clock that was set back puts no look off.
        Beside::Ended(at) => (*at).min(now),
    });
    ends.fold(confirmed, Timestamp::max).min(after(confirmed, BESIDE))
}

/// When the next look is due: `confirmed` are the batches of the day, as [`over`] says, `looked` is when the newest whole
/// listing began.
#[must_use]
pub fn next(confirmed: &[Timestamp], looked: Option<Timestamp>) -> Option<Timestamp> {
    let not_since = |pause: SignedDuration| {
        confirmed
            .iter()
            .filter(move |at| looked.is_none_or(|looked| looked < after(**at, pause)))
    };
    let firsts = || not_since(FIRST).map(|at| after(*at, FIRST));
    // One look for as many as possible, and none of them waits longer than twice the time.
    let first = firsts()
        .max()
        .zip(firsts().min())
        .map(|(newest, oldest)| newest.min(after(oldest, FIRST)));
    let day = not_since(LATE).map(|at| after(*at, DAY)).min();
    [first, day].into_iter().flatten().min()
}

/// When the look after a batch that was confirmed now is due: a recorded one stays, even if it is being taken; its end
/// says when the next one is due.
#[must_use]
pub fn scheduled(recorded: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let soon = after(now, FIRST);
    recorded.map_or(soon, |at| at.min(soon))
}

/// Snapshots that were confirmed deleted from a repository and are listed again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reappeared {
    /// How many.
    pub count: usize,
    /// When they were found; an acknowledgement covers them if it is not before.
    pub found_at: Timestamp,
    /// They were held before.
    pub held: bool,
    /// Not before this moment: the last try failed.
    pub next_attempt_at: Option<Timestamp>,
}

/// What becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Again {
    /// They are deleted again.
    Delete(DeleteReason),
    /// They are deleted again, not before then.
    Later(Timestamp),
    /// Held: someone may have rolled the bucket back.
    Held,
}

/// Decides. `threshold` is the lane's strictest one, `acknowledged` what is in force on their repository object.
#[must_use]
pub fn judge(found: &Reappeared, threshold: u32, acknowledged: Option<Timestamp>, now: Timestamp) -> Again {
    let many = u32::try_from(found.count).map_or(true, |count| count >= threshold);
    let why = if acknowledged.is_some_and(|effective| found.found_at <= effective) {
        DeleteReason::Acknowledged
    } else if threshold == 0 {
        DeleteReason::BreakerDisabled
    } else if found.held || many {
        return Again::Held;
    } else {
        DeleteReason::BelowThreshold
    };
    match found.next_attempt_at.filter(|at| backoff::MEMBER.waits(*at, now)) {
        Some(at) => Again::Later(at),
        None => Again::Delete(why),
    }
}
