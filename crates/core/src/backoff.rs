//! When to try again (`docs/design.md` 3.6).
//!
//! **Promises.** Never sooner than the first pause, never later than the longest, whatever the number of attempts.
//!
//! **Assumes.** One counter for each member and one for each repository object; they do not touch each other.

use jiff::{SignedDuration, Timestamp};

/// Pauses that double with each failure in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: SignedDuration,
    longest: SignedDuration,
}

/// Of one member that could not be deleted: one minute, doubling, at most an hour.
pub const MEMBER: Backoff = Backoff {
    first: SignedDuration::from_mins(1),
    longest: SignedDuration::from_hours(1),
};

/// Of a repository that could not be reached, by a bootstrap or a delete Job: 15 seconds, doubling, at most 10
/// minutes.
pub const REPOSITORY: Backoff = Backoff {
    first: SignedDuration::from_secs(15),
    longest: SignedDuration::from_mins(10),
};

/// Of a maintenance run that failed: ten minutes, doubling, at most six hours.
pub const MAINTENANCE: Backoff = Backoff {
    first: SignedDuration::from_mins(10),
    longest: SignedDuration::from_hours(6),
};

impl Backoff {
    /// Pause after this many failures in a row; none after none.
    #[must_use]
    pub fn pause(self, failures: u32) -> SignedDuration {
        match failures {
            0 => SignedDuration::ZERO,
            // More doublings than this exceed any longest pause.
            1..=12 => (self.first * (1 << (failures - 1))).min(self.longest),
            13.. => self.longest,
        }
    }

    /// The moment of the next try, in whole seconds as the API keeps it.
    #[must_use]
    pub fn next(self, failures: u32, now: Timestamp) -> Timestamp {
        let at = now.checked_add(self.pause(failures)).unwrap_or(Timestamp::MAX);
        Timestamp::from_second(at.as_second()).unwrap_or(at)
    }

    /// Whether a recorded next try is still to be waited for. One further away than the longest pause was written by
    /// a clock that was wrong, and would be waited for for ever.
    #[must_use]
    pub fn waits(self, next: Timestamp, now: Timestamp) -> bool {
        next > now && next.duration_since(now) <= self.longest
    }
}
