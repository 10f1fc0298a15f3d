//! Names derived from what is protected: batch Jobs, the lane's lock, label values.
//!
//! **Promises.** Every name is a DNS label of at most 63 characters, and the same input has the same name in
//! every process and release.
//!
//! **Assumes.** UIDs are unique in a cluster.

use super::facts::RepositoryKey;
use sha2::{Digest, Sha256};

/// Longest Kubernetes label value, and longest Job name whose pods can still be named after it.
pub const MAX_NAME: usize = 63;

/// A batch without members was to be named: a programming error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a batch without members has no name; this is a bug in Holdfast")]
pub struct EmptyBatch;

/// `snapdel-<repository>-<hash of the sorted UIDs>` (`docs/design.md` 3.6).
///
/// # Errors
/// [`EmptyBatch`] when there are no members.
pub fn job_name<S: AsRef<str>>(repository: &RepositoryKey, members: &[S]) -> Result<String, EmptyBatch> {
    if members.is_empty() {
        return Err(EmptyBatch);
    }
    let mut uids: Vec<&str> = members.iter().map(AsRef::as_ref).collect();
    uids.sort_unstable();
    uids.dedup();
    let hash = short_hash(uids.iter().copied(), 8);
    let room = MAX_NAME - "snapdel-".len() - 1 - hash.len();
    Ok(format!("snapdel-{}-{hash}", label_part(repository.name(), room)))
}

/// The value of a label that selects objects of one repository object: at most 40 characters of its name, then
/// eight hex digits of a hash of the whole key.
#[must_use]
pub fn repository_label(repository: &RepositoryKey) -> String {
    let parts = [
        repository.kind(),
        repository.namespace().unwrap_or_default(),
        repository.name(),
    ];
    format!(
        "{}-{}",
        label_part(repository.name(), 40),
        short_hash(parts.into_iter(), 4)
    )
}

/// `holdfast-lane-<hash>`: the Lease that is the lock of one physical repository (`docs/design.md` 3.6).
#[must_use]
pub fn lane_lease_name(engine: &str, unique_id: &str) -> String {
    format!("holdfast-lane-{}", short_hash([engine, unique_id].into_iter(), 8))
}

/// Hex of the first `bytes` bytes of SHA-256 over the parts, each ended by a zero byte so that no two different
/// lists look alike.
fn short_hash<'a>(parts: impl Iterator<Item = &'a str>, bytes: usize) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher
        .finalize()
        .iter()
        .take(bytes)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Lower-case letters, digits and dashes only, at most `room`, neither starting nor ending with a dash.
pub(crate) fn label_part(name: &str, room: usize) -> String {
    let clean: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_lowercase()
            } else {
                '-'
            }
        })
        .take(room)
        .collect();
    let trimmed = clean.trim_matches('-');
    if trimmed.is_empty() {
        "x".to_owned()
    } else {
        trimmed.to_owned()
    }
}
