//! Whether a watch still tells what happens (`docs/design.md` 4.4: a stale ledger refuses, and says so).
//!
//! **Promises.** A watch that is refused, that fails, or whose connection is dead is silent, and silence is noticed
//! after a fixed time. A watch of a kind in which nothing happens is not silent: it is bounded in length, so the API
//! server's next answer tells as much as an event.
//!
//! **Assumes.** Times are of a clock that never goes back. Only what the API server really sent counts as told: an
//! attempt is no answer.

use std::time::Duration;

/// How long one watch is asked for. Each answer to the next one says that nothing was missed.
pub const LENGTH: Duration = Duration::from_secs(45);
/// A watch that told nothing for two lengths is silent: one may be lost with its connection, not two in a row.
pub const SILENCE: Duration = Duration::from_secs(90);

/// Whether a watch that last told something at `told` is silent at `now`. One that never told anything is.
#[must_use]
pub fn is_silent(told: Option<Duration>, now: Duration, patience: Duration) -> bool {
    told.is_none_or(|told| now.saturating_sub(told) >= patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_is_silent_when_it_told_nothing_for_as_long_as_the_patience() {
        let at = Duration::from_secs;
        assert!(is_silent(None, at(0), SILENCE), "it never told anything");
        assert!(!is_silent(Some(at(10)), at(10), SILENCE));
        assert!(!is_silent(Some(at(10)), at(99), SILENCE));
        assert!(is_silent(Some(at(10)), at(100), SILENCE));
        assert!(!is_silent(Some(at(11)), at(10), SILENCE), "told meanwhile");
    }
}
