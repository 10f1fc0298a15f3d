//! Restores: which snapshot, what happens when there is none, and who may have which.
//!
//! **Promises.** The choice depends on nothing but what the repository lists and what was asked for, so that a second
//! look over the same listing chooses the same. No rule here knows of waves, lanes, quotas or paused deletions: a
//! restore waits for none of them. Every reason has one word ([`Reason`]).
//!
//! **Assumes.** The caller records a choice before it acts on it, and does not choose again.

mod choose;
mod missing;
mod others;
mod reason;

pub use choose::{Candidate, Choice, Wanted, choose};
pub use missing::{Missing, OnMissing, missing};
pub use others::{Whose, other_names};
pub use reason::{Means, Reason};

/// Whether a namespace may restore what the repository records under this host name. A Repository is its namespace's
/// own, with everything in it. In a ClusterRepository the host name is the namespace a snapshot belongs to
/// (`docs/design.md` 3.7).
#[must_use]
pub fn may_restore(of_cluster: bool, hostname: &str, namespace: &str) -> bool {
    !of_cluster || hostname == namespace
}

/// Whether a snapshot that another cluster took may be restored unasked. Of a Repository, yes: it belongs to one
/// namespace. In a ClusterRepository the namespace of the same name in the other cluster may be somebody else's; there a
/// person asks for it, by the snapshot's id or by the cluster's.
#[must_use]
pub fn may_restore_of(
    of_cluster: bool,
    other_cluster: Option<&str>,
    by_id: bool,
    asked_for: &[&str],
) -> bool {
    let Some(other) = other_cluster else {
        return true;
    };
    !of_cluster || by_id || asked_for.contains(&other)
}

/// The smallest claim that is made without being told how large.
pub const SMALLEST_CLAIM: u64 = 1 << 30;

/// Bytes of a claim for a snapshot of this logical size: a quarter more, for what the file system itself needs.
#[must_use]
pub fn room_for(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / 4).max(SMALLEST_CLAIM)
}
