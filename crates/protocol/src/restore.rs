//! What is asked of a mover that restores, and what it answers.
//!
//! **Promises.** Which snapshot is looked up in one run and restored in another: what is restored was recorded before,
//! and a retry does not choose again. A refusal is named, so that the operator need not read a sentence.

use crate::work::Source;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Most examples of what could not be set that an answer carries, so that it stays within [`crate::MESSAGE_LIMIT`].
pub const EXAMPLES_LIMIT: usize = 10;

/// Most names that an answer carries.
pub const NAMES_LIMIT: usize = 4;

/// Most characters of one example.
pub const EXAMPLE_LENGTH: usize = 120;

/// Which snapshot is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wanted {
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
    /// Path; any when there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// This very snapshot of the identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// How many to go back from the newest.
    #[serde(default)]
    pub offset: u32,
    /// Only what was begun at this time or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// Whose snapshots of the path are told of by name where the identity has none; absent: nobody's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<Others>,
}

/// Whose snapshots are told of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Others {
    /// This namespace's; absent: all, the repository is of one namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// `spec.identityDefaults.cluster` of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

/// One snapshot to restore.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreItem {
    /// What it is restored for: the Restore's UID, and with a populator the claim's.
    pub uid: String,
    /// Id of the snapshot, whole.
    pub snapshot_id: String,
    /// What it has to be of; another snapshot is not restored.
    pub source: Source,
    /// When it was begun, to the second: finds a snapshot whose id has changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Directory inside the container to write to.
    pub to: String,
    /// How.
    pub how: How,
}

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct How {
    /// What becomes of files that are in the target.
    pub existing: Existing,
    /// Files that the snapshot does not have are deleted.
    pub delete_others: bool,
    /// Owners are restored.
    pub owners: bool,
    /// Runs of zeros take no room, where nothing is overwritten.
    pub sparse: bool,
    /// What cannot be set makes the restore fail.
    pub all_or_fail: bool,
}

/// What becomes of files that are in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Existing {
    /// There must be none.
    Refuse,
    /// They are replaced.
    Replace,
    /// They stay.
    Keep,
}

/// What a mover that restores answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RestoreAnswer {
    /// Which snapshot it is.
    Resolved {
        /// The snapshot; none when nothing fits.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        found: Option<Found>,
        /// Snapshots of the identity, whenever they were begun.
        of_identity: u64,
        /// Paths, when there is more than one and none was named; at most ten.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        paths: Vec<String>,
        /// Names (`user@host`) that have snapshots of the path while the identity has none; at most
        /// [`NAMES_LIMIT`], each cut to [`EXAMPLE_LENGTH`].
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        others: Vec<String>,
    },
    /// Everything of the snapshot is in the target.
    Restored {
        /// Id of the snapshot.
        snapshot_id: String,
        /// Files of the snapshot.
        files: u64,
        /// Their logical bytes.
        bytes: u64,
        /// What could not be set; absent when the engine cannot tell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_set: Option<NotSet>,
    },
    /// Nothing was written.
    Refused {
        /// Why.
        why: Refused,
    },
}

/// Why nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refused {
    /// There is no such snapshot.
    SnapshotNotFound,
    /// The target holds files.
    TargetNotEmpty,
    /// The target holds a repository.
    TargetIsRepository,
    /// Written by a newer mover.
    #[serde(other)]
    Unknown,
}

/// A snapshot that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Whole id.
    pub snapshot_id: String,
    /// What it is of.
    pub source: Source,
    /// When it was begun.
    pub start_time: Timestamp,
    /// Logical size in bytes, when the repository records it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Another cluster that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other_cluster: Option<String>,
}

/// How many files could not be set as the snapshot has them, and the first of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NotSet {
    /// Owner or group.
    pub owners: u64,
    /// Mode.
    pub modes: u64,
    /// Time of change.
    pub times: u64,
    /// Extended attributes.
    pub xattrs: u64,
    /// Devices, sockets and the like that are not there.
    pub special_files: u64,
    /// A path and what it lacks, at most [`EXAMPLES_LIMIT`] of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
}

impl NotSet {
    /// Whether everything could be set.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        let Self {
            owners,
            modes,
            times,
            xattrs,
            special_files,
            examples: _,
        } = self;
        owners + modes + times + xattrs + special_files == 0
    }
}

/// How far a restore is, as it is posted now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Bytes written or found as they should be.
    pub bytes_done: u64,
    /// Bytes there will be; 0 while unknown.
    pub bytes_total: u64,
}

/// Path of the progress of one run on the operator's HTTPS port.
#[must_use]
pub fn progress_path(scan: &str) -> String {
    format!("/v1/results/{scan}/progress")
}

/// An example cut to what an answer takes.
#[must_use]
pub fn example(path: &str, lacks: &str) -> String {
    let room = EXAMPLE_LENGTH.saturating_sub(lacks.chars().count() + 2);
    let length = path.chars().count();
    if length <= room {
        return format!("{path}: {lacks}");
    }
    // The end of a path tells more than its beginning.
    let end: String = path.chars().skip(length - room.saturating_sub(1)).collect();
    format!("…{end}: {lacks}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{OperationResult, Outcome};

    #[test]
    fn the_longest_answer_fits_a_termination_message() {
        let long = "ä".repeat(5_000);
        let answer = RestoreAnswer::Restored {
            snapshot_id: "f".repeat(64),
            files: u64::MAX,
            bytes: u64::MAX,
            not_set: Some(NotSet {
                owners: u64::MAX,
                modes: u64::MAX,
                times: u64::MAX,
                xattrs: u64::MAX,
                special_files: u64::MAX,
                examples: vec![example(&long, "extended attribute user.a"); EXAMPLES_LIMIT],
            }),
        };
        let outcome = Outcome {
            version: crate::VERSION,
            unique_id: Some("u".repeat(64)),
            error: None,
            result: OperationResult::Restore(answer),
        };
        let text = outcome.encode();
        assert!(text.len() <= crate::MESSAGE_LIMIT, "{}", text.len());
        assert_eq!(Outcome::decode(&text).expect("decodes"), outcome);
    }

    #[test]
    fn the_most_names_fit_a_termination_message() {
        let outcome = Outcome {
            version: crate::VERSION,
            unique_id: Some("u".repeat(64)),
            error: None,
            result: OperationResult::Restore(RestoreAnswer::Resolved {
                found: None,
                of_identity: 0,
                paths: Vec::new(),
                others: vec!["\u{1}".repeat(EXAMPLE_LENGTH); NAMES_LIMIT],
            }),
        };
        let text = outcome.encode();
        assert!(text.len() <= crate::MESSAGE_LIMIT, "{}", text.len());
        assert_eq!(Outcome::decode(&text).expect("decodes"), outcome);
    }

    #[test]
    fn an_example_keeps_the_end_of_its_path() {
        assert_eq!(example("a/b", "owner 0:0"), "a/b: owner 0:0");
        let cut = example(&format!("{}/end", "x".repeat(500)), "mode");
        assert!(cut.starts_with('…') && cut.ends_with("/end: mode"));
        assert_eq!(cut.chars().count(), EXAMPLE_LENGTH);
    }
}
