//! The stamp on a Snapshot that is *not* being deleted (`docs/design.md` 3.7).
//!
//! **Promises.** A stamp whose delete never came is taken off, so that a later delete by a person is not mistaken
//! for a prune. (On a deleting Snapshot it does not count then either: [`crate::deletion::guard::stamp_is_fresh`].)
//!
//! **Assumes.** The stamp's time is our own clock.

use crate::deletion::guard::STAMP_FRESH;
use jiff::Timestamp;

/// Whether a live object's stamp is to be removed: too old, in the future, or without a readable time.
#[must_use]
pub fn is_left_over(pruned_at: Option<Timestamp>, now: Timestamp) -> bool {
    pruned_at.is_none_or(|pruned_at| now.duration_since(pruned_at).abs() > STAMP_FRESH)
}
