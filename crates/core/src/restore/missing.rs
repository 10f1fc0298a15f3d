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
    /// Hold: there is data of the same path under another name, and an empty volume would stand in for it.
    OtherIdentity,
}

/// Decides. The wait is counted from `since`: the Restore's creation, or that of the claim it fills. `others`: the path
/// has snapshots under other names, and none under the one that is asked for.
#[must_use]
pub fn missing(
    on: OnMissing,
    since: Timestamp,
    wait: SignedDuration,
    now: Timestamp,
    others: bool,
) -> Missing {
    let until = since.checked_add(wait).unwrap_or(Timestamp::MAX);
    if now < until {
        return Missing::LookAgain(until);
    }
    match on {
        OnMissing::Fail => Missing::Fail,
        OnMissing::Continue if others => Missing::OtherIdentity,
        OnMissing::Continue => Missing::Continue,
    }
}
