//! What is in a directory that is, or shall become, a repository.
//!
//! **Promises.** "Nothing is there" is said only after the directory was read. What an interrupted creation
//! left (empty folders, a key, an unfinished config) is told apart from a repository that lost its config and
//! from foreign files, and only the first may be built over.

use crate::{EngineError, ErrorClass};
use std::fs;
use std::io;
use std::path::Path;

/// Folders that hold something worth keeping once they hold any file.
const PRECIOUS: [&str; 3] = ["data", "index", "snapshots"];

/// Files and folders of an unfinished creation, and what file systems put into a fresh volume.
const HARMLESS: [&str; 4] = ["keys", "locks", "config-tmp-", "lost+found"];

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// A config file: a repository.
    Repository,
    /// Nothing, or what an interrupted creation left.
    Free,
    /// A repository's files without the config.
    LostConfig,
    /// This entry belongs to something else.
    Foreign(String),
}

/// Reads the directory and judges it. An absent directory is free.
///
/// # Errors
/// [`ErrorClass::Unreachable`] when it cannot be read.
pub(super) fn look(root: &Path) -> Result<Place, EngineError> {
    judge(root).map_err(|cause| EngineError::unreadable(root, &cause))
}

fn judge(root: &Path) -> io::Result<Place> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Place::Free),
        Err(cause) => return Err(cause),
    };
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    of_names(names, |name| has_files(&root.join(name)))
}

/// Judges by the names that are there; `holds` says whether a folder of the layout holds any file.
///
/// # Errors
/// What `holds` answers.
pub(super) fn of_names<E>(
    names: Vec<String>,
    mut holds: impl FnMut(&str) -> Result<bool, E>,
) -> Result<Place, E> {
    if names.iter().any(|name| name == "config") {
        return Ok(Place::Repository);
    }
    let mut foreign = None;
    let mut precious = false;
    for name in names {
        if PRECIOUS.contains(&name.as_str()) {
            precious |= holds(&name)?;
        } else if !HARMLESS.contains(&name.as_str()) {
            foreign = Some(name);
        }
    }
    Ok(match foreign {
        Some(name) => Place::Foreign(name),
        None if precious => Place::LostConfig,
        None => Place::Free,
    })
}

fn has_files(path: &Path) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.is_dir() {
        return Ok(true);
    }
    for entry in fs::read_dir(path)? {
        if has_files(&entry?.path())? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses what must not be built over.
///
/// # Errors
/// [`ErrorClass::Failed`] with what is in the way.
pub(super) fn free(found: Place, place: impl std::fmt::Display) -> Result<(), EngineError> {
    let refused = |why: String, next: &str| {
        let what = format!("no repository is created in {place}");
        Err(EngineError::new(ErrorClass::Failed, what, why, next))
    };
    match found {
        Place::Free => Ok(()),
        Place::Repository => refused("there is one already".to_owned(), "Connect to it instead"),
        Place::LostConfig => refused(
            "it holds a repository's data without the file `config`".to_owned(),
            "Restore that file from a copy; creating a new repository would make the data unreadable",
        ),
        Place::Foreign(name) => refused(
            format!("the place is not empty (it has `{name}`)"),
            "Choose an empty place, or a folder below it through the repository's path or prefix",
        ),
    }
}

/// Clears the way for a creation: refuses what must not be built over, and removes the keys of an interrupted
/// one (a later opening could pick such a key, which does not decrypt the new config).
///
/// # Errors
/// [`ErrorClass::Failed`] with what is in the way, [`ErrorClass::Unreachable`] when it cannot be read or written.
pub(super) fn prepare(root: &Path) -> Result<(), EngineError> {
    free(look(root)?, root.display())?;
    let keys = root.join("keys");
    match fs::remove_dir_all(&keys) {
        Ok(()) => Ok(()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(cause) => Err(EngineError::unreadable(&keys, &cause)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_is_judged_by_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        assert_eq!(look(&root.join("absent")).unwrap(), Place::Free);
        assert_eq!(look(root).unwrap(), Place::Free);
        fs::create_dir(root.join("lost+found")).unwrap();
        fs::create_dir_all(root.join("data/00")).unwrap();
        fs::create_dir_all(root.join("keys")).unwrap();
        fs::write(root.join("keys/stale"), "x").unwrap();
        fs::write(root.join("config-tmp-"), "").unwrap();
        assert_eq!(look(root).unwrap(), Place::Free);
        prepare(root).unwrap();
        assert!(!root.join("keys").exists());
        fs::write(root.join("data/00/pack"), "x").unwrap();
        assert_eq!(look(root).unwrap(), Place::LostConfig);
        assert!(prepare(root).unwrap_err().to_string().contains("config"));
        fs::write(root.join("holiday.jpg"), "x").unwrap();
        assert_eq!(look(root).unwrap(), Place::Foreign("holiday.jpg".to_owned()));
        assert!(prepare(root).unwrap_err().to_string().contains("holiday.jpg"));
        fs::write(root.join("config"), "x").unwrap();
        assert_eq!(look(root).unwrap(), Place::Repository);
        assert!(prepare(root).is_err());
        fs::write(root.join("file"), "x").unwrap();
        assert_eq!(
            look(&root.join("file")).unwrap_err().class(),
            ErrorClass::Unreachable
        );
    }
}
