//! When a store is listed next (`docs/design.md` 4.5).
//!
//! **Promises.** A listing that failed is tried again sooner than the interval, later each time. One that was asked
//! for is due at once, and only once.
//!
//! **Assumes.** Times are of one clock; one that lies in the future by a clock that was set back is waited for no
//! longer than an interval.

use jiff::{SignedDuration, Timestamp};

/// Pause after the first attempt that failed; doubled with each further one.
pub const FIRST_RETRY: SignedDuration = SignedDuration::from_secs(60);

/// What is known of earlier listings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Past {
    /// When the last complete one began.
    pub complete_began: Option<Timestamp>,
    /// When the last attempt ended, whole or not.
    pub attempted: Option<Timestamp>,
    /// Attempts in a row that did not reach the end.
    pub failures: u32,
    /// When somebody asked for one.
    pub requested: Option<Timestamp>,
}

/// When the next listing is due; not after `now`: it is due.
#[must_use]
pub fn next(past: &Past, interval: SignedDuration, now: Timestamp) -> Timestamp {
    let Some(attempted) = past.attempted else {
        return now;
    };
    let answered = |asked: Timestamp| {
        past.complete_began.is_some_and(|began| asked <= began) || (past.failures > 0 && asked <= attempted)
    };
    let pause = match past.failures {
        0 => interval,
        failures => retry(failures).min(interval),
    };
    let due = attempted.checked_add(pause).unwrap_or(now);
    let due = due.min(now.checked_add(pause).unwrap_or(now));
    match past.requested.filter(|asked| !answered(*asked)) {
        // The clock of who asked may be ahead of ours.
        Some(asked) => due.min(asked.max(now)),
        None => due,
    }
}

fn retry(failures: u32) -> SignedDuration {
    let factor = 1_i32 << (failures.clamp(1, 16) - 1);
    FIRST_RETRY.saturating_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn past() -> Past {
        Past {
            complete_began: Some(at(900)),
            attempted: Some(at(1_000)),
            failures: 0,
            requested: None,
        }
    }

    #[test]
    fn one_that_was_never_listed_is_due() {
        assert_eq!(next(&Past::default(), HOUR, at(5)), at(5));
    }

    #[test]
    fn the_interval_runs_from_the_end_of_the_last() {
        assert_eq!(next(&past(), HOUR, at(1_001)), at(4_600));
    }

    #[test]
    fn failures_are_tried_again_sooner_and_never_later_than_the_interval() {
        let failed = |failures| Past { failures, ..past() };
        assert_eq!(next(&failed(1), HOUR, at(1_001)), at(1_060));
        assert_eq!(next(&failed(3), HOUR, at(1_001)), at(1_240));
        assert_eq!(next(&failed(u32::MAX), HOUR, at(1_001)), at(4_600));
    }

    #[test]
    fn one_that_was_asked_for_is_due_once() {
        let asked = |second, failures| Past {
            requested: Some(at(second)),
            failures,
            ..past()
        };
        // While the last one ran: that may not have seen what it was asked for.
        assert_eq!(next(&asked(950, 0), HOUR, at(1_001)), at(1_001));
        assert_eq!(next(&asked(900, 0), HOUR, at(1_001)), at(4_600));
        // The attempt it led to failed: then the pace of failures holds.
        assert_eq!(next(&asked(990, 1), HOUR, at(1_001)), at(1_060));
        assert_eq!(next(&asked(1_050, 1), HOUR, at(1_055)), at(1_055));
        // Of the future: then, or when it is due anyway.
        assert_eq!(next(&asked(1_003, 0), HOUR, at(1_001)), at(1_003));
        assert_eq!(next(&asked(9_000, 0), HOUR, at(1_001)), at(4_600));
    }

    #[test]
    fn a_clock_that_was_set_back_delays_by_one_interval_at_most() {
        assert_eq!(next(&past(), HOUR, at(10)), at(3_610));
    }
}
