//! Rule 9 of `docs/design.md` 3.3: the breaker, its threshold and its latch (3.4).
//!
//! **Promises.** Held iff the threshold is not 0, no acknowledgement covers the member, and the count is at the
//! threshold or the member is latched. A smaller count or a higher threshold never ends a hold.
//!
//! **Assumes.** Only external, destructive members get here; rules that keep data have had their say.

use super::facts::{HeldCondition, MemberFacts, RepositoryFacts};
use super::guard::is_own_prune;
use super::settings::Settings;
use super::verdict::{DeleteReason, HeldReason, Verdict};
use jiff::Timestamp;

/// The state of a lane's breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breaker {
    /// Strictest threshold of the lane; 0: off.
    pub threshold: u32,
    /// Members that count and are not covered.
    pub count: usize,
}

/// The smallest threshold that is not 0; 0 only when every object says 0. A lane without objects has the default.
#[must_use]
pub fn strictest_threshold(repositories: &[RepositoryFacts], settings: &Settings) -> u32 {
    let thresholds = repositories.iter().map(|repository| repository.threshold);
    strictest(thresholds, settings.default_threshold)
}

/// The same of what the objects say; absent is the default.
#[must_use]
pub fn strictest(thresholds: impl IntoIterator<Item = Option<u32>>, default: u32) -> u32 {
    let mut strictest = None;
    for threshold in thresholds.into_iter().map(|t| t.unwrap_or(default)) {
        strictest = match strictest {
            None | Some(0) => Some(threshold),
            Some(least) if threshold != 0 => Some(threshold.min(least)),
            Some(least) => Some(least),
        };
    }
    strictest.unwrap_or(default)
}

/// Rule 9.
#[must_use]
pub fn judge(breaker: Breaker, covered: bool, latched: bool) -> Verdict {
    if covered {
        return Verdict::Delete(DeleteReason::Acknowledged);
    }
    if breaker.threshold == 0 {
        return Verdict::Delete(DeleteReason::BreakerDisabled);
    }
    if latched || is_tripped(breaker) {
        return Verdict::Held(HeldReason::MassDeletionBreaker);
    }
    Verdict::Delete(DeleteReason::BelowThreshold)
}

/// Whether the count alone is enough to hold.
#[must_use]
pub fn is_tripped(breaker: Breaker) -> bool {
    // A count too large for the threshold's type is at any threshold.
    breaker.threshold != 0 && u32::try_from(breaker.count).map_or(true, |count| count >= breaker.threshold)
}

/// Whether a member was part of a hold: its own condition says so, or its deletion is not after the newest one
/// ever judged held on an object of the lane (`held_through`, the latest of them). The second witness does not
/// bind a prune that was stamped before its deletion: retention goes on while a wave is held. The other stamps
/// either keep the data or, in a namespace torn down, count as external: those it binds.
#[must_use]
pub fn is_latched(member: &MemberFacts, held_through: Option<Timestamp>) -> bool {
    let by_condition = match member.held {
        HeldCondition::NotHeld => false,
        HeldCondition::Held { .. } | HeldCondition::Unreadable => true,
    };
    by_condition
        || (held_through.is_some_and(|through| member.deleted_at <= through)
            && !stamped_before_deletion(member))
}

/// Deletion times are whole seconds, so a stamp in the same second was before it: stamps are only ever written to
/// live objects, but for the re-stamp of an upgrade.
fn stamped_before_deletion(member: &MemberFacts) -> bool {
    is_own_prune(member, false)
        && !member.restamped
        && member
            .pruned_at
            .is_some_and(|pruned_at| pruned_at.as_second() <= member.deleted_at.as_second())
}
