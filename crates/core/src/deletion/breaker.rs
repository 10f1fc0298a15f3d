//! Rule 9 of `docs/design.md` 3.3: the breaker, its threshold and its latch (3.4).
//!
//! **Promises.** Held iff the threshold is not 0, no acknowledgement covers the member, and the count is at the
//! threshold, or with what was fired lately at that of a sliding window, or the member is latched. A smaller count, a
//! higher threshold or a repository object that goes never ends a hold.
//!
//! **Assumes.** Only external, destructive members get here; rules that keep data have had their say.

use super::facts::{Fired, HeldCondition, MemberFacts, RepositoryFacts, SlidingWindow};
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
    /// The threshold that binds what is latched: also of repository objects that went since; 0: off.
    pub latch_threshold: u32,
    /// The sliding window that is reached, if one is.
    pub window: Option<Reached>,
}

/// A sliding window whose threshold is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The window.
    pub window: SlidingWindow,
    /// External deletions fired in it without an acknowledgement.
    pub fired: usize,
}

/// The first sliding window that pending and fired deletions reach together. What is pending is not counted twice.
#[must_use]
pub fn reached(
    windows: impl IntoIterator<Item = SlidingWindow>,
    fired: &[Fired],
    is_pending: impl Fn(&str) -> bool,
    count: usize,
    now: Timestamp,
) -> Option<Reached> {
    windows.into_iter().find_map(|window| {
        let fired = fired
            .iter()
            .filter(|one| now.duration_since(one.at) < window.duration && !is_pending(&one.uid))
            .count();
        is_at(count.saturating_add(fired), window.threshold).then_some(Reached { window, fired })
    })
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
    if latched && breaker.latch_threshold != 0 {
        return Verdict::Held(HeldReason::MassDeletionBreaker);
    }
    if breaker.threshold == 0 {
        return Verdict::Delete(DeleteReason::BreakerDisabled);
    }
    if is_tripped(breaker) {
        return Verdict::Held(HeldReason::MassDeletionBreaker);
    }
    Verdict::Delete(DeleteReason::BelowThreshold)
}

/// Whether the count, or a sliding window, is enough to hold.
#[must_use]
pub fn is_tripped(breaker: Breaker) -> bool {
    breaker.threshold != 0 && (is_at(breaker.count, breaker.threshold) || breaker.window.is_some())
}

/// A count too large for the threshold's type is at any threshold.
pub(super) fn is_at(count: usize, threshold: u32) -> bool {
    u32::try_from(count).map_or(true, |count| count >= threshold)
}

/// Whether a member was part of a hold: its own condition says so, or its deletion is not after the newest one
/// ever judged held on an object of the lane (`held_through`, the latest of them and of the lane's own memory). The second witness does not
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
