//! The program's JSON, as far as it is needed.
//!
//! **Promises.** A row that is there and cannot be understood counts as present. Snapshots that the program itself
//! calls incomplete (checkpoints, interrupted runs) are none: nothing records them, and it clears them itself.

use crate::{
    EngineError, ErrorClass, Listing, PIN, Sizes, SnapshotInfo, SourceIdentity, TAG_CLUSTER, TAG_SNAPSHOT,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Prefix of a user's tag in a manifest's labels.
const TAG_LABEL: &str = "tag:";

/// Digits of a manifest's id.
const ID_LENGTH: usize = 32;

/// Whether this is a manifest's id and nothing that the program would try as the id of an object.
pub(super) fn is_manifest_id(text: &str) -> bool {
    text.len() == ID_LENGTH
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A snapshot's manifest.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) id: String,
    source: Source,
    start_time: Timestamp,
    end_time: Option<Timestamp>,
    /// Why it is incomplete; empty or absent when it is whole.
    #[serde(default)]
    incomplete: String,
    root_entry: Option<RootEntry>,
    stats: Option<Stats>,
    storage_stats: Option<StorageStats>,
    pins: Option<Vec<String>>,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Source {
    host: String,
    user_name: String,
    path: String,
}

#[derive(Debug, Clone, Deserialize)]
struct RootEntry {
    obj: Option<String>,
    #[serde(default)]
    size: u64,
    summ: Option<Summary>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Summary {
    #[serde(default)]
    size: u64,
    #[serde(default)]
    num_failed: u64,
    #[serde(default)]
    errors: Vec<EntryError>,
}

#[derive(Debug, Clone, Deserialize)]
struct EntryError {
    path: String,
    error: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stats {
    #[serde(default)]
    cached_files: u64,
    #[serde(default)]
    non_cached_files: u64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageStats {
    new_data: NewData,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NewData {
    packed_content_bytes: u64,
}

impl Manifest {
    /// Whether the program calls it whole.
    pub(super) fn complete(&self) -> bool {
        self.incomplete.is_empty()
    }

    /// What could not be read of the source: the first, and how many there are. `None` when all was read.
    pub(super) fn fault(&self) -> Option<String> {
        let summary = self.root_entry.as_ref()?.summ.as_ref()?;
        if summary.num_failed == 0 {
            return None;
        }
        let first = summary.errors.first();
        let first = first.map_or_else(String::new, |e| format!(", the first is {}: {}", e.path, e.error));
        Some(format!("{} files or directories{first}", summary.num_failed))
    }

    /// Our view of it.
    pub(super) fn info(self) -> SnapshotInfo {
        let mut tags = BTreeMap::new();
        let mut cluster = None;
        let mut snapshot_uid = None;
        for (label, value) in self.tags {
            let key = label.strip_prefix(TAG_LABEL).unwrap_or(&label);
            match key {
                TAG_CLUSTER => cluster = Some(value),
                TAG_SNAPSHOT => snapshot_uid = Some(value),
                other => {
                    tags.insert(other.to_owned(), value);
                }
            }
        }
        let root = self.root_entry.as_ref().and_then(|root| root.obj.clone());
        let size_bytes = self
            .root_entry
            .map(|root| root.summ.map_or(root.size, |summary| summary.size));
        let sizes = self.stats.zip(size_bytes).map(|(stats, size_bytes)| Sizes {
            size_bytes,
            bytes_new: self.storage_stats.map(|s| s.new_data.packed_content_bytes),
            files_new: stats.non_cached_files,
            files_modified: 0,
            files_unchanged: stats.cached_files,
        });
        SnapshotInfo {
            id: self.id,
            source: SourceIdentity {
                username: self.source.user_name,
                hostname: self.source.host,
                path: self.source.path,
            },
            start: self.start_time,
            end: self.end_time,
            cluster,
            snapshot_uid,
            root,
            pinned: self.pins.as_ref().is_some_and(|pins| !pins.is_empty()),
            pin_is_ours: self.pins.is_some_and(|pins| pins.iter().any(|pin| pin == PIN)),
            tags,
            sizes,
        }
    }
}

/// Reads JSON that must be as expected.
///
/// # Errors
/// [`ErrorClass::Failed`]: exit code 0 is not proof.
pub(super) fn parse<T: DeserializeOwned>(what: &str, stdout: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(stdout).map_err(|cause| {
        let why = format!("the program's answer cannot be read ({cause})");
        EngineError::new(
            ErrorClass::Failed,
            what,
            why,
            "Use the kopia version of this release's mover image",
        )
    })
}

/// Reads a listing. `said` is everything the program said on standard error at the level of errors.
///
/// # Errors
/// [`ErrorClass::Failed`] when the rows cannot be told apart, or when an error is told that is not about one
/// manifest: rows may be missing then.
pub(super) fn listing(what: &str, stdout: &[u8], said: &str) -> Result<Listing, EngineError> {
    let mut listing = Listing::default();
    for row in parse::<Vec<Value>>(what, stdout)? {
        let Some(id) = row.get("id").and_then(Value::as_str).map(str::to_owned) else {
            let why = "a row of the listing has no id";
            let next = "Use the kopia version of this release's mover image";
            return Err(EngineError::new(ErrorClass::Failed, what, why, next));
        };
        match serde_json::from_value::<Manifest>(row) {
            Ok(manifest) if manifest.complete() => listing.snapshots.push(manifest.info()),
            Ok(_) => {}
            Err(_) => listing.unreadable.push(id),
        }
    }
    for line in said.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let id = line
            .strip_prefix("unable to parse snapshot manifest ")
            .and_then(|rest| rest.split_once(':'))
            .map(|(id, _)| id);
        match id {
            Some(id) => listing.unreadable.push(id.to_owned()),
            None => {
                let why = format!("the listing may not be whole, the program says: {line}");
                let next = "Check the repository; nothing is concluded from a listing with errors";
                return Err(EngineError::new(ErrorClass::Failed, what, why, next));
            }
        }
    }
    listing.snapshots.sort_by(|a, b| a.id.cmp(&b.id));
    listing.unreadable.sort();
    listing.unreadable.dedup();
    Ok(listing)
}

/// `repository status --json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Status {
    #[serde(rename = "uniqueIDHex")]
    pub(super) unique_id: String,
}

/// One row of `manifest list --json` or `blob list --json`.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    pub(super) id: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const ROW: &str = r#"{"id":"2538cfac0f51c8f3e9eb2251cabb1bb8","source":{"host":"apps","userName":"wiki","path":"/data"},
        "startTime":"2026-11-30T05:22:11.159073471Z","rootEntry":{"summ":{"size":7}},"stats":{"cachedFiles":1}}"#;

    #[test]
    fn an_incomplete_snapshot_is_none_and_an_odd_one_is_present() {
        let other = ROW.replace("2538", "aaaa");
        let incomplete = other.replace("\"startTime\"", "\"incomplete\":\"checkpoint\",\"startTime\"");
        let odd = ROW.replace("2538", "bbbb").replace("2026-", "someday-");
        let text = format!("[{ROW},{incomplete},{odd}]");
        let listing = listing("it failed", text.as_bytes(), "").unwrap();
        assert_eq!(listing.snapshots.len(), 1);
        assert_eq!(listing.snapshots[0].sizes.unwrap().size_bytes, 7);
        assert_eq!(listing.unreadable, ["bbbbcfac0f51c8f3e9eb2251cabb1bb8"]);
    }

    #[test]
    fn a_manifest_that_the_program_cannot_parse_counts_as_present() {
        let said = "unable to parse snapshot manifest 0cc49d1e7f5e7d437fbe3d326630bc08: content not found\n";
        let listing = listing("it failed", b"[]", said).unwrap();
        assert!(listing.contains("0cc49d1e7f5e7d437fbe3d326630bc08"));
    }

    #[test]
    fn a_listing_with_an_unknown_error_or_without_an_id_is_no_listing() {
        assert!(listing("it failed", b"[]", "something else went wrong").is_err());
        assert!(listing("it failed", b"[{}]", "").is_err());
        assert!(listing("it failed", b"", "").is_err());
        assert!(listing("it failed", b"[", "").is_err());
    }

    #[test]
    fn only_whole_manifest_ids_are_ids() {
        assert!(is_manifest_id("2538cfac0f51c8f3e9eb2251cabb1bb8"));
        for no in [
            "",
            "latest",
            "2538cfac",
            "k5f3a888bfa685b1232139a37c1dd5896",
            "2538CFAC0F51C8F3E9EB2251CABB1BB8",
            "-538cfac0f51c8f3e9eb2251cabb1bb8",
        ] {
            assert!(!is_manifest_id(no), "{no}");
        }
    }
}
