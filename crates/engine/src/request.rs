//! What no engine records, whoever asks.
//!
//! **Promises.** A request that passes [`check`] has a plain absolute source path and no tag that only Holdfast may
//! write.

use crate::{BackupRequest, EngineError, ErrorClass, TAG_PREFIX};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};

/// The refusal of a request.
pub(crate) fn refused(request: &BackupRequest, why: impl Display) -> EngineError {
    EngineError::new(
        ErrorClass::Failed,
        format!("the snapshot for {} cannot be recorded", request.snapshot_uid),
        why,
        "Correct the policy's identity or tags",
    )
}

/// Refuses crooked paths and reserved tags. `separator` is what parts key and value of a tag in the repository.
///
/// # Errors
/// [`ErrorClass::Failed`].
pub(crate) fn check(request: &BackupRequest, separator: char) -> Result<(), EngineError> {
    let path = Path::new(&request.source.path);
    let plain = path.components().all(|c| match c {
        Component::RootDir | Component::Normal(_) => true,
        Component::CurDir | Component::ParentDir | Component::Prefix(_) => false,
    });
    let spelled: PathBuf = path.components().collect();
    if !plain || !path.is_absolute() || spelled.as_os_str() != path.as_os_str() {
        let shown = &request.source.path;
        return Err(refused(
            request,
            format!("the source path `{shown}` is not absolute and plain"),
        ));
    }
    let reserved = |key: &&String| key.starts_with(TAG_PREFIX) || key.contains(separator);
    if let Some(tag) = request.tags.keys().find(reserved) {
        return Err(refused(
            request,
            format!("the tag `{tag}` begins with `{TAG_PREFIX}` or contains `{separator}`"),
        ));
    }
    Ok(())
}

/// A snapshot that is to be changed and is not there.
pub(crate) fn unknown_snapshot(what: &str, id: &str) -> EngineError {
    let why = format!("`{id}` is no snapshot of this repository");
    let next =
        "Look at what is there: it may have been deleted, or its record written anew by another program";
    EngineError::new(ErrorClass::Failed, what, why, next)
}
