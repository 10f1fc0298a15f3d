//! Whether a repository that was connected can be reached: when it is asked, and what failures mean.
//!
//! **Promises.** One failed probe says nothing yet; as many in a row as the threshold make it degraded, and one that
//! succeeds ends that, without a person. After a failure it is asked again soon, and never later than the interval of
//! probes: what heals by itself is seen within one. A connection that takes long gets longer each time it was cut off, so
//! that what is only slow is connected in the end, and is never called dead.
//!
//! **Assumes.** A wrong password, a repository that is not there and another one in its place are no failures to reach it:
//! they are positive answers, and a person has to act.

use crate::backoff;
use jiff::{SignedDuration, Timestamp};

/// Seconds that a first try to connect may take.
pub const FIRST_DEADLINE: i64 = 120;
/// Seconds that a try may take at most.
pub const LONGEST_DEADLINE: i64 = 3_600;
/// A probe that somebody asks for comes no sooner than this after the last one.
pub const ASKED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// `spec.health.probe`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Whether it is asked by itself.
    pub enabled: bool,
    /// How often.
    pub interval: SignedDuration,
    /// Failures in a row that make it degraded.
    pub threshold: u32,
    /// Whether they do; otherwise they are only told.
    pub degrades: bool,
}

impl Default for Probe {
    fn default() -> Self {
        Self {
            enabled: true,
            interval: SignedDuration::from_mins(30),
            threshold: 3,
            degrades: true,
        }
    }
}

/// When a connected repository is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Now.
    Now,
    /// Then.
    At(Timestamp),
    /// Not by itself.
    Never,
}

/// Decides. `last` is when the last answer came, `asked` whether somebody asks for a probe that was not made yet.
#[must_use]
pub fn due(probe: Probe, last: Option<Timestamp>, asked: bool, now: Timestamp) -> Due {
    // One in the future is a clock that was set back.
    let last = last.filter(|last| *last <= now);
    let after = |pause: SignedDuration| last.and_then(|last| last.checked_add(pause).ok()).unwrap_or(now);
    let own = probe.enabled.then(|| after(probe.interval));
    let wanted = asked.then(|| after(ASKED_AGAIN));
    match own.into_iter().chain(wanted).min() {
        Some(at) if at <= now => Due::Now,
        Some(at) => Due::At(at),
        None => Due::Never,
    }
}

/// Whether so many failures in a row leave it usable.
#[must_use]
pub fn is_usable(probe: Probe, failures: u32) -> bool {
    !probe.degrades || failures < probe.threshold.max(1)
}

/// When it is asked again after so many failures in a row.
#[must_use]
pub fn next_attempt(probe: Probe, failures: u32, now: Timestamp) -> Timestamp {
    let at = backoff::REPOSITORY.next(failures, now);
    if !probe.enabled {
        return at;
    }
    let latest = now.checked_add(probe.interval).unwrap_or(at);
    at.min(Timestamp::from_second(latest.as_second()).unwrap_or(latest))
}

/// Seconds that the next try may take, after one of `seconds` that was cut off.
#[must_use]
pub fn longer(seconds: i64) -> i64 {
    seconds.saturating_mul(2).clamp(FIRST_DEADLINE, LONGEST_DEADLINE)
}
