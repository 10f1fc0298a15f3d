//! What happens when there is no snapshot.

use jiff::{SignedDuration, Timestamp};

/// What the Restore asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnMissing {
    /// It fails.
    Fail,
    /// The target is left empty.
    Continue,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Look again, until this moment.
    LookAgain(Timestamp),
    /// Fail.
    Fail,
    /// Leave the target empty.
    Continue,
}

/// Decides. The wait is counted from `since`: the Restore's creation, or that of the claim it fills.
#[must_use]
pub fn missing(on: OnMissing, since: Timestamp, wait: SignedDuration, now: Timestamp) -> Missing {
    let until = since.checked_add(wait).unwrap_or(Timestamp::MAX);
    if now < until {
        return Missing::LookAgain(until);
    }
    match on {
        OnMissing::Fail => Missing::Fail,
        OnMissing::Continue => Missing::Continue,
    }
}
