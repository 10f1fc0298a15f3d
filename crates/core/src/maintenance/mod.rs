//! Maintenance of a repository: when it runs, what it waits for, and who may.
//!
//! **Promises.** A slot that was missed runs once. A run that frees bytes does not begin while a wave is held, while
//! deleted snapshots have come back, or right before it is looked whether they have: what was lost by accident can be
//! brought back for as long as nothing frees it. It never begins beside a delete batch, and not while one waits, so
//! that neither waits for the other for ever.
//!
//! **Assumes.** Delete batches wait while a run is live ([`crate::deletion`]); a run's Job has an end of its own.

pub mod decide;
pub mod lease;
mod reason;

pub use decide::{Choice, Facts, Lane, Plan, Repository, Request, Track, decide};
pub use reason::{Means, Reason};

/// How much a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effort {
    /// What is cheap.
    Quick,
    /// Everything.
    Full,
}

impl Effort {
    /// The word, as in the spec and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}
