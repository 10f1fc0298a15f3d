//! `failedJobsHistoryLimit`: how many failed runs of a schedule are kept.
//!
//! **Promises.** The newest failures stay; an absent limit is [`DEFAULT_LIMIT`], 0 keeps none.
//!
//! **Assumes.** Only failed runs that are not being deleted are passed in.

use jiff::Timestamp;

/// The limit of a schedule that names none.
pub const DEFAULT_LIMIT: u32 = 10;

/// A run that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedRun {
    /// UID of the Snapshot.
    pub uid: String,
    /// When it ended, else when it was created.
    pub at: Timestamp,
}

/// UIDs beyond the limit, oldest first; ties by UID.
#[must_use]
pub fn beyond_limit(runs: &[FailedRun], limit: Option<u32>) -> Vec<String> {
    let limit = usize::try_from(limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or(usize::MAX);
    let mut sorted: Vec<&FailedRun> = runs.iter().collect();
    sorted.sort_by(|a, b| b.at.cmp(&a.at).then(b.uid.cmp(&a.uid)));
    let mut beyond: Vec<String> = sorted
        .into_iter()
        .skip(limit)
        .map(|run| run.uid.clone())
        .collect();
    beyond.reverse();
    beyond
}
