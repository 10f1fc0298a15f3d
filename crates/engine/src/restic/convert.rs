//! Between rustic's records and ours.
//!
//! **Promises.** What [`snapshot_file`] writes, [`info`] reads back equal: identity, time, tags.

use crate::{
    BackupRequest, EngineError, ErrorClass, Sizes, SnapshotInfo, SourceIdentity, TAG_CLUSTER, TAG_SNAPSHOT,
    request,
};
use jiff::{Timestamp, tz::TimeZone};
use rustic_core::repofile::{DeleteOption, SnapshotFile};
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
    let mut tags = BTreeMap::new();
    for tag in file.tags.iter() {
        let (key, value) = tag.split_once('=').unwrap_or((tag, ""));
        match key {
            TAG_CLUSTER => cluster.push(value),
            TAG_SNAPSHOT => snapshot_uid.push(value),
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustic_core::ErrorKind;

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
