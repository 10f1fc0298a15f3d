//! The termination message: the truth about what a mover did.
//!
//! **Promises.** At most [`crate::MESSAGE_LIMIT`] bytes; the error text is cut, never the letters, which come
//! last. A message that is cut, empty or foreign decodes to an error, and an error confirms nothing.

use crate::letters::{self, Letter};
use crate::restore::RestoreAnswer;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a mover reports when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Must equal [`crate::VERSION`].
    pub version: u32,
    /// Unique id of the repository that was connected; absent when the connection failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// Why the operation failed; absent on success. Beside letters it says why the first `F` failed (or that the
    /// repository was replaced), and the letters count; without letters it is the repository's failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// What was done. Last, so that the letters end the message.
    pub result: OperationResult,
}

/// A failure: a class that conditions and metrics carry, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Named class.
    pub class: FailureClass,
    /// What happened, why, what to do next. No secrets.
    pub message: String,
}

/// Classes of failure. Those of the repository count against no member of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FailureClass {
    /// The password does not open the repository.
    InvalidPassword,
    /// There is no repository and creating one is not allowed.
    RepositoryNotInitialized,
    /// The repository has another unique id than the one recorded.
    RepositoryReplaced,
    /// The backend cannot be read or written (missing directory, permissions, I/O).
    BackendUnreachable,
    /// The source of a backup cannot be read.
    SourceUnreadable,
    /// The work document was refused.
    InvalidWork,
    /// The operation itself failed.
    OperationFailed,
    /// Written by a newer mover.
    #[serde(other)]
    Unknown,
}

/// Most missing ids that an outcome names, so that it stays within [`crate::MESSAGE_LIMIT`].
pub const MISSING_LIMIT: usize = 64;

/// What each operation answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OperationResult {
    /// Nothing beyond the error.
    None,
    /// Connected (the unique id stands in the outcome).
    Bootstrapped {
        /// Whether the repository was created by this run.
        created: bool,
        /// Snapshots in the repository.
        snapshots: u64,
    },
    /// Snapshots taken, in item order; only the first is given in a message, the rest are logged as JSON lines.
    BackedUp {
        /// How many items were taken.
        taken: u64,
        /// The first (a Snapshot's own Job has exactly one).
        #[serde(skip_serializing_if = "Option::is_none")]
        first: Option<TakenSnapshot>,
        /// Snapshots of the same sources that were there before the run and not after it, cut by
        /// [`crate::work::cut`], at most [`MISSING_LIMIT`]. The run deletes nothing, so others did: a program of
        /// somebody's, or retention that the repository itself applies.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        vanished: Vec<String>,
    },
    /// A listing was posted: complete only if the operator assembled exactly this.
    Listed {
        /// Number of snapshots.
        snapshots: u64,
        /// Number of chunks.
        chunks: u32,
        /// SHA-256 of all chunk bodies in order, hex.
        digest: String,
    },
    /// Of a restore.
    Restore(RestoreAnswer),
    /// Of a maintenance run that was made.
    #[serde(rename_all = "camelCase")]
    Maintained {
        /// Bytes of storage that the run freed.
        freed_bytes: u64,
        /// Bytes that no snapshot needs, and that a later run frees when the engine's safety period is over.
        marked_bytes: u64,
        /// Bytes that the repository takes in storage now, when that could be read.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stored_bytes: Option<u64>,
        /// Who maintains it, as the repository says; absent where its format has no record of that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// A snapshot is as it was asked for, read back after the last write.
    #[serde(rename_all = "camelCase")]
    Pinned {
        /// UID of the Snapshot object it is for.
        uid: String,
        /// Whole id that the snapshot has now.
        snapshot_id: String,
        /// The repository's record says that it is to be kept, whoever said so.
        pinned: bool,
        /// We said so.
        ours: bool,
    },
    /// Nothing was done: another maintains the repository.
    NotOwner {
        /// Who, as the repository says.
        owner: String,
    },
    /// A delete batch's letters in member order (see [`letters`]).
    Batch {
        /// Kept ids that are not in the listing, cut as they came, each once, at most [`MISSING_LIMIT`]: what the
        /// letters `V` are about.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        missing: Vec<String>,
        /// One letter per member.
        letters: String,
    },
}

/// One snapshot as the engine wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TakenSnapshot {
    /// UID of the Snapshot object it is for.
    pub uid: String,
    /// Whole id in the repository.
    pub snapshot_id: String,
    /// When the run began, as recorded in the repository.
    pub start_time: Timestamp,
    /// When it ended.
    pub end_time: Timestamp,
    /// Logical size of the source in bytes.
    pub size_bytes: u64,
    /// Bytes the repository grew by, when the engine can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_new: Option<u64>,
    /// Files not in the parent snapshot.
    pub files_new: u64,
    /// Files changed since the parent.
    pub files_modified: u64,
    /// Files unchanged since the parent.
    pub files_unchanged: u64,
}

/// Why a termination message was not understood.
#[derive(Debug, thiserror::Error)]
pub enum OutcomeError {
    /// Empty, cut or foreign text.
    #[error("the mover left no readable result ({0})")]
    Malformed(String),
}

impl Outcome {
    /// Encodes within [`crate::MESSAGE_LIMIT`] bytes, cutting the error's text if needed.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut shortened = self.clone();
        loop {
            let text = serde_json::to_string(&shortened).unwrap_or_default();
            if text.len() <= crate::MESSAGE_LIMIT {
                return text;
            }
            let over = text.len() - crate::MESSAGE_LIMIT;
            let Some(failure) = shortened.error.as_mut().filter(|f| !f.message.is_empty()) else {
                return text;
            };
            let mut keep = failure.message.len().saturating_sub(over + 3);
            while !failure.message.is_char_boundary(keep) {
                keep -= 1;
            }
            failure.message.truncate(keep);
            if keep > 0 {
                failure.message.push('…');
            }
        }
    }

    /// Decodes a termination message.
    ///
    /// # Errors
    /// [`OutcomeError`] when it is empty, cut, of another version or not an outcome.
    pub fn decode(text: &str) -> Result<Self, OutcomeError> {
        let outcome: Outcome =
            serde_json::from_str(text.trim()).map_err(|e| OutcomeError::Malformed(e.to_string()))?;
        if outcome.version != crate::VERSION {
            return Err(OutcomeError::Malformed(format!(
                "version {} instead of {}",
                outcome.version,
                crate::VERSION
            )));
        }
        Ok(outcome)
    }

    /// The letters of a batch of `members`, or `None` when this outcome confirms nothing.
    #[must_use]
    pub fn letters(&self, members: usize) -> Option<Vec<Letter>> {
        match &self.result {
            OperationResult::Batch { missing: _, letters } => letters::read(letters, members),
            OperationResult::None
            | OperationResult::Bootstrapped { .. }
            | OperationResult::BackedUp { .. }
            | OperationResult::Listed { .. }
            | OperationResult::Restore(_)
            | OperationResult::Maintained { .. }
            | OperationResult::Pinned { .. }
            | OperationResult::NotOwner { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(letters: &str, message: &str) -> Outcome {
        Outcome {
            version: crate::VERSION,
            unique_id: Some("u".repeat(64)),
            error: Some(Failure {
                class: FailureClass::OperationFailed,
                message: message.to_owned(),
            }),
            result: OperationResult::Batch {
                missing: vec!["f".repeat(crate::work::KEPT_ID_LENGTH); MISSING_LIMIT],
                letters: letters.to_owned(),
            },
        }
    }

    #[test]
    fn the_letters_are_never_cut() {
        let outcome = batch(&"D".repeat(200), &"ä\"\n".repeat(5000));
        let text = outcome.encode();
        assert!(text.len() <= crate::MESSAGE_LIMIT, "{}", text.len());
        let back = Outcome::decode(&text).expect("decodes");
        assert_eq!(back.letters(200).map(|l| l.len()), Some(200));
        let OperationResult::Batch { missing, .. } = back.result else {
            panic!("a batch");
        };
        assert_eq!(missing.len(), MISSING_LIMIT);
        assert!(
            text.ends_with(&format!("{}\"}}}}}}", "D".repeat(200))),
            "letters last"
        );
    }

    #[test]
    fn a_cut_message_confirms_nothing() {
        let text = batch(&"D".repeat(200), "").encode();
        assert!(Outcome::decode(&text[..text.len() - 1]).is_err());
        assert!(Outcome::decode("").is_err());
    }

    #[test]
    fn another_version_confirms_nothing() {
        let mut outcome = batch("D", "");
        outcome.version = crate::VERSION + 1;
        assert!(Outcome::decode(&serde_json::to_string(&outcome).expect("json")).is_err());
    }
}
