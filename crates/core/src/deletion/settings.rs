//! Limits and switches that come from the operator's configuration, not from the lane.
//!
//! **Promises.** [`Default`] is what `docs/design.md` 3.6 says.
//!
//! **Assumes.** Values of 0 where 0 has no meaning (members, bytes) are read as the smallest that has one.

use jiff::SignedDuration;

/// Limits and switches. Durations are exact; [`Default`] gives the values of `docs/design.md`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a deletion waits for others (3.6).
    pub quiet_window: SignedDuration,
    /// Most members of a batch.
    pub max_members: usize,
    /// Most bytes of all [`crate::deletion::MemberFacts::document_bytes`] of a batch.
    pub max_bytes: usize,
    /// `maxConcurrentDeleteJobs`: most batch Jobs in the cluster; 0 is no cap.
    pub max_jobs: u32,
    /// `deletions.paused`: nothing fires anywhere.
    pub paused: bool,
    /// Threshold of a repository that names none.
    pub default_threshold: u32,
    /// How long a Job may take to start before it is withdrawn.
    pub start_within: SignedDuration,
    /// When something unknown is looked at again at the latest.
    pub recheck: SignedDuration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            quiet_window: SignedDuration::from_secs(10),
            max_members: 200,
            // Of the 128 KiB of a batch's work document, 16 KiB are for what is not a member.
            max_bytes: 112 * 1024,
            max_jobs: 0,
            paused: false,
            default_threshold: 10,
            start_within: SignedDuration::from_mins(5),
            recheck: SignedDuration::from_secs(15),
        }
    }
}
