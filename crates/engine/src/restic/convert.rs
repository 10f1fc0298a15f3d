//! Between rustic's records and ours.
//!
//! **Promises.** What [`snapshot_file`] writes, [`info`] reads back equal: identity, time, tags.

use crate::{
    BackupRequest, EngineError, ErrorClass, PIN, Sizes, SnapshotInfo, SourceIdentity, TAG_CLUSTER, TAG_PIN,
    TAG_SNAPSHOT, request,
};
use jiff::{Timestamp, tz::TimeZone};
use rustic_core::repofile::{DeleteOption, SnapshotFile, SnapshotId};
use rustic_core::{RusticError, SnapshotOptions};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;

/// rustic's error as one line, without its own words for the kind of error.
pub(super) fn reason(error: &RusticError) -> String {
    let text = error.display_log();
    let text = text.strip_prefix("Error: ").unwrap_or(&text);
    let text = match text.split_once("(kind: ") {
        Some((before, after)) => {
            let after = after
                .split_once(')')
                .map_or("", |(_, rest)| rest.trim_start_matches(':'));
            format!("{before}{after}")
        }
        None => text.to_owned(),
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Unreachable when the operating system or the object store said no; rustic keeps its own kind to itself.
pub(super) fn classify(error: &RusticError) -> ErrorClass {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if inner.is::<io::Error>() || inner.is::<object_store::Error>() {
            return ErrorClass::Unreachable;
        }
        cause = inner.source();
    }
    ErrorClass::Failed
}

/// Wraps a failed call to rustic.
pub(super) fn failed(what: &str, error: &RusticError) -> EngineError {
    EngineError::new(
        classify(error),
        what,
        reason(error),
        "Check that the volume is mounted, writable for the mover's user and not full, or that the bucket is there and the keys are good",
    )
}

/// The record of a snapshot about to be taken.
pub(super) fn snapshot_file(request: &BackupRequest, start: Timestamp) -> Result<SnapshotFile, EngineError> {
    request::check(request, '=')?;
    let mut snapshot = SnapshotOptions::default()
        .host(Some(request.source.hostname.clone()))
        .time(Some(start.to_zoned(TimeZone::UTC)))
        .command(Some("holdfast-mover".to_owned()))
        .to_snapshot()
        .map_err(|e| request::refused(request, reason(&e)))?;
    snapshot.username.clone_from(&request.source.username);
    snapshot.tags.add(format!("{TAG_CLUSTER}={}", request.cluster));
    snapshot
        .tags
        .add(format!("{TAG_SNAPSHOT}={}", request.snapshot_uid));
    for (key, value) in &request.tags {
        snapshot.tags.add(format!("{key}={value}"));
    }
    Ok(snapshot)
}

/// Our view of a recorded snapshot. `id` is given apart: the record does not hold its own.
pub(super) fn info(id: String, file: &SnapshotFile) -> SnapshotInfo {
    let mut cluster = Vec::new();
    let mut snapshot_uid = Vec::new();
    let mut pin_is_ours = false;
    let mut tags = BTreeMap::new();
    for tag in file.tags.iter() {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        match key {
            TAG_CLUSTER => cluster.push(value),
            TAG_SNAPSHOT => snapshot_uid.push(value),
            TAG_PIN => pin_is_ours = true,
            other => {
                tags.insert(other.to_owned(), value.to_owned());
            }
        }
    }
    let paths: Vec<&str> = file.paths.iter().map(String::as_str).collect();
    SnapshotInfo {
        id,
        source: SourceIdentity {
            username: file.username.clone(),
            hostname: file.hostname.clone(),
            path: paths.join(","),
        },
        start: file.time.timestamp(),
        end: file.summary.as_ref().map(|s| s.backup_end.timestamp()),
        cluster: (!cluster.is_empty()).then(|| cluster.join(",")),
        snapshot_uid: (!snapshot_uid.is_empty()).then(|| snapshot_uid.join(",")),
        pinned: file.delete == DeleteOption::Never,
        pin_is_ours: file.delete == DeleteOption::Never && pin_is_ours,
        root: Some(file.tree.to_string()),
        tags,
        sizes: file.summary.as_ref().map(|s| Sizes {
            size_bytes: s.total_bytes_processed,
            bytes_new: Some(s.data_added_packed),
            files_new: s.files_new,
            files_modified: s.files_changed,
            files_unchanged: s.files_unmodified,
        }),
    }
}

/// The record as it is with our pin, or without; `None` when it is so already. A protection that carries no word of ours
/// is somebody else's: nothing is written over it, and it is not taken back.
pub(super) fn pinned(id: SnapshotId, file: &SnapshotFile, on: bool) -> Option<SnapshotFile> {
    let mut file = file.clone();
    let kept = file.delete == DeleteOption::Never;
    let tag = format!("{TAG_PIN}={PIN}");
    let ours = file.tags.contains(&tag);
    match (on, kept, ours) {
        (true, true, _) | (false, _, false) => return None,
        (true, false, _) => {
            file.delete = DeleteOption::Never;
            file.tags.add(tag);
        }
        (false, _, true) => {
            if kept {
                file.delete = DeleteOption::NotSet;
            }
            file.tags.remove_all(&[tag.parse().unwrap_or_default()]);
        }
    }
    // As restic does with what it rewrites.
    file.original = file.original.or(Some(id));
    Some(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rustic_core::ErrorKind;

    fn written(file: &SnapshotFile, on: bool) -> Option<SnapshotFile> {
        pinned(SnapshotId::default(), file, on)
    }

    #[test]
    fn only_our_own_protection_is_taken_back() {
        let plain = SnapshotFile::default();
        assert!(written(&plain, false).is_none());
        let ours = written(&plain, true).unwrap();
        let told = info("x".to_owned(), &ours);
        assert!(told.pinned && told.pin_is_ours);
        assert!(told.tags.is_empty(), "it is no tag of a user");
        assert!(written(&ours, true).is_none());
        let told = info("x".to_owned(), &written(&ours, false).unwrap());
        assert!(!told.pinned && !told.pin_is_ours);

        let theirs = SnapshotFile {
            delete: DeleteOption::Never,
            ..SnapshotFile::default()
        };
        let told = info("x".to_owned(), &theirs);
        assert!(told.pinned && !told.pin_is_ours);
        assert!(written(&theirs, true).is_none() && written(&theirs, false).is_none());
        // A program that knows of tags alone wrote the record anew, and its protection is gone.
        let lost = SnapshotFile {
            delete: DeleteOption::NotSet,
            ..ours
        };
        assert!(!info("x".to_owned(), &lost).pin_is_ours);
        assert!(info("x".to_owned(), &written(&lost, true).unwrap()).pin_is_ours);
    }

    #[test]
    fn what_is_protected_against_removal_is_pinned() {
        let mut file = SnapshotFile::default();
        assert!(!info("x".to_owned(), &file).pinned);
        file.delete = DeleteOption::Never;
        assert!(info("x".to_owned(), &file).pinned);
    }

    #[test]
    fn an_error_is_one_plain_line() {
        let cause = io::Error::other("input/output error");
        let error = RusticError::with_source(ErrorKind::Backend, "Failed to read `{path}`.", cause)
            .attach_context("path", "/repository/config");
        assert_eq!(
            reason(&error),
            "Failed to read `/repository/config`. caused by: input/output error"
        );
        assert_eq!(classify(&error), ErrorClass::Unreachable);
        let bare = RusticError::new(ErrorKind::Internal, "Odd.");
        assert_eq!(
            (reason(&bare).as_str(), classify(&bare)),
            ("Odd.", ErrorClass::Failed)
        );
    }
}
