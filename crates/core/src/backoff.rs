//! When to try again (`docs/design.md` 3.6): one minute, doubling, at most an hour.
//!
//! **Promises.** Never sooner than a minute, never later than an hour, whatever the number of attempts.
//!
//! **Assumes.** One counter for each member and one for each repository object; they do not touch each other.

use jiff::{SignedDuration, Timestamp};

/// Pause after the first failure.
pub const FIRST: SignedDuration = SignedDuration::from_mins(1);
/// Longest pause.
pub const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// Pause after this many failures in a row; none after none.
#[must_use]
pub fn pause(failures: u32) -> SignedDuration {
    match failures {
        0 => SignedDuration::ZERO,
        // 1, 2, 4, 8, 16, 32 minutes; the next would be more than an hour.
        1..=6 => FIRST * (1 << (failures - 1)),
        7.. => LONGEST,
    }
}

/// The moment of the next try, for `status.deletion.nextAttemptAt`.
#[must_use]
pub fn next_attempt(failures: u32, now: Timestamp) -> Timestamp {
    now.checked_add(pause(failures)).unwrap_or(Timestamp::MAX)
}
