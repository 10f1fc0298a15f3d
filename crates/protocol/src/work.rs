//! The work document: what a mover Job is asked to do.
//!
//! **Promises.** Decoding refuses unknown versions, unknown operations and unknown fields, with the reason.
//!
//! **Assumes.** Paths inside are container paths of this crate's constants, never paths of a node.

use crate::restore::{RestoreItem, Wanted};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One Job's work. Serialised as JSON into the annotation [`crate::WORK_ANNOTATION`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkDocument {
    /// Must equal [`crate::VERSION`].
    pub version: u32,
    /// UID of the namespace `kube-system`: which cluster this mover works for (`docs/design.md` 3.7).
    pub cluster: String,
    /// How to reach the repository.
    pub repository: RepositoryAccess,
    /// What to do once connected.
    pub operation: Operation,
    /// Where long results are posted; absent when the operation has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<ResultsEndpoint>,
}

/// How to reach a repository. The password is the file [`crate::SECRET_DIR`]`/<password_key>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepositoryAccess {
    /// Which engine speaks to it.
    pub engine: EngineKind,
    /// Directory of the repository inside the container (below [`crate::REPOSITORY_DIR`]); empty with `bucket`.
    pub path: String,
    /// The bucket that the repository is in; absent for one in a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketAccess>,
    /// Key of the mounted Secret that holds the password.
    pub password_key: String,
    /// The unique id recorded when the repository was first connected. Absent only for a bootstrap that may
    /// still learn it; every other operation fails with `RepositoryReplaced` on a different id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unique_id: Option<String>,
    /// The user that a mover which starts as root becomes before it opens the repository, with its other capabilities: so
    /// that what it writes there belongs to whom it always belongs. Absent: it stays who it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<u32>,
}

/// A bucket on an S3 server. Its keys are files in [`crate::BACKEND_DIR`], named as in the Secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BucketAccess {
    /// Its name.
    pub name: String,
    /// What the keys of the repository begin with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `host` or `host:port`; absent: Amazon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Talk without TLS.
    #[serde(default)]
    pub disable_tls: bool,
    /// Do not check the server's certificate.
    #[serde(default)]
    pub insecure_skip_verify: bool,
    /// The authorities to trust are in the file [`crate::BACKEND_CA`] beside the keys.
    #[serde(default)]
    pub private_ca: bool,
}

/// Engines a mover may be asked to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EngineKind {
    /// The kopia program, which ships in the mover image.
    Kopia,
    /// rustic_core, in process, restic's repository format.
    Restic,
}

/// What a mover does. Exactly one per Job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub enum Operation {
    /// Connect, and create the repository when allowed and absent. Answers with the unique id.
    Bootstrap {
        /// Whether an absent repository may be created. Never true once a unique id was recorded.
        create: bool,
    },
    /// Take snapshots, in this order, in one process.
    Backup {
        /// What to back up; one item for a Snapshot's own Job.
        items: Vec<BackupItem>,
    },
    /// Delete the members' snapshots and read back (`docs/design.md` 3.6).
    DeleteBatch {
        /// The members in the order of the answer's letters.
        members: Vec<BatchMember>,
        /// Groups of ids that retention kept when it pruned members, each id cut by [`cut`]. Once for each group,
        /// however many members point to it: whole and repeated they would not fit (`docs/design.md` 3.7).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kept: Vec<Vec<String>>,
    },
    /// Have the repository's own record say that a snapshot is to be kept, or take back that we said so, and read it back.
    Pin {
        /// Which.
        item: PinItem,
    },
    /// List every snapshot and post it in chunks (`docs/design.md` section 7).
    List {},
    /// Look up which snapshot a restore is of. Nothing is written anywhere.
    Resolve {
        /// What is asked for.
        wanted: Wanted,
    },
    /// Write the content of a snapshot into a mounted volume. The repository is only read.
    Restore {
        /// What and where.
        item: RestoreItem,
    },
    /// Maintain the repository: free what no snapshot needs.
    Maintain {
        /// How much.
        effort: Effort,
        /// For whom.
        claim: Claim,
    },
}

/// How much a maintenance run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Effort {
    /// What is cheap.
    Quick,
    /// Everything.
    Full,
}

/// For whom a repository is maintained, where its format has a record of that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Claim {
    /// The name that is to stand in the repository.
    pub owner: String,
    /// Whether it is written over the name of another.
    pub take_over: bool,
}

/// One snapshot to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupItem {
    /// UID of the Snapshot object; written as tag `holdfast-snapshot`.
    pub uid: String,
    /// Directory inside the container to read.
    pub read_from: String,
    /// Who and what the snapshot is of, as the repository records it.
    pub source: Source,
    /// Further tags of the user.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

/// Identity of a snapshot's source inside a repository.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    /// Default: the SnapshotPolicy's name.
    pub username: String,
    /// Default: the namespace.
    pub hostname: String,
    /// Default: `/pvc/<claim>`; as the repository records it.
    pub path: String,
}

/// One member of a delete batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchMember {
    /// UID of the Snapshot object.
    pub uid: String,
    /// Id of the snapshot in the repository, whole.
    pub snapshot_id: String,
    /// What the object recorded about the source; a listed snapshot with another one is not deleted.
    pub source: Source,
    /// What the object recorded about the start, compared to the second; a listed snapshot with another one
    /// is not deleted. Absent when the object has none: then the source alone is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Set on what retention pruned: which group of `kept` has to be wholly in the listing for it to be deleted.
    /// Absent on everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub justified_by: Option<u32>,
    /// The object recorded that its snapshot was taken into the repository of this unique id. Only then does an
    /// absent id say that it is gone; without it, it may be in another repository.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seen_here: bool,
}

/// One snapshot to pin or unpin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinItem {
    /// UID of the Snapshot object.
    pub uid: String,
    /// Id of the snapshot in the repository, as the object records it; what it is called now may be another one.
    pub snapshot_id: String,
    /// What the object recorded about the source; a listed snapshot with another one is not touched.
    pub source: Source,
    /// What the object recorded about the start. Absent: only the recorded id is believed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Pin, or take our pin back.
    pub on: bool,
}

/// Characters of a kept id that travel: 64 bits of a hash, which no two snapshots of a repository share.
pub const KEPT_ID_LENGTH: usize = 16;

/// A kept id as it travels: its first [`KEPT_ID_LENGTH`] characters.
#[must_use]
pub fn cut(id: &str) -> &str {
    id.char_indices()
        .nth(KEPT_ID_LENGTH)
        .map_or(id, |(end, _)| &id[..end])
}

/// Where long results go: the operator's HTTPS port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResultsEndpoint {
    /// `<ip>:<port>` of the operator's Service.
    pub address: String,
    /// Name that the serving certificate carries, e.g. `holdfast.holdfast-system.svc`.
    pub server_name: String,
    /// The operator's own CA, PEM.
    pub ca: String,
    /// Identifies this scan in the URL path; the UID of the object it is for, or a random one.
    pub scan: String,
}

/// Why a work document was refused.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Not JSON of the expected shape; the field is in the text.
    #[error("the work document cannot be read: {0}; operator and mover images must be of the same release")]
    Malformed(#[from] serde_json::Error),
    /// Another version.
    #[error(
        "the work document has version {found}, this mover reads {}; use the mover image of the operator's release",
        crate::VERSION
    )]
    Version {
        /// The version found.
        found: u32,
    },
}

impl WorkDocument {
    /// Decodes and checks the version first, so that a newer document is named as such.
    ///
    /// # Errors
    /// [`WorkError`] when the text is not a document of this version.
    pub fn parse(text: &str) -> Result<Self, WorkError> {
        #[derive(Deserialize)]
        struct Head {
            version: u32,
        }
        let head: Head = serde_json::from_str(text)?;
        if head.version != crate::VERSION {
            return Err(WorkError::Version { found: head.version });
        }
        Ok(serde_json::from_str(text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_without_a_justification_decodes_as_before() {
        let source = r#"{"username":"p","hostname":"h","path":"/d"}"#;
        let member = format!(r#"{{"uid":"u","snapshotId":"s","source":{source}}}"#);
        let text = format!(r#"{{"deleteBatch":{{"members":[{member}]}}}}"#);
        let Operation::DeleteBatch { members, kept } = serde_json::from_str(&text).expect("decodes") else {
            panic!("a batch");
        };
        assert_eq!((members[0].justified_by, kept.len()), (None, 0));
        let operation = Operation::DeleteBatch { members, kept };
        assert_eq!(serde_json::to_string(&operation).expect("json"), text);
    }

    #[test]
    fn kept_ids_are_cut_and_short_ones_are_whole() {
        assert_eq!(cut(&"a".repeat(64)), "a".repeat(16));
        assert_eq!(cut("id-1"), "id-1");
        assert_eq!(cut(&"ä".repeat(20)), "ä".repeat(16));
    }
}
