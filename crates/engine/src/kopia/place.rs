//! What is in a directory before the program is asked.
//!
//! **Promises.** The program makes a repository over foreign files as long as none has a name like its own, makes a
//! missing directory, and retries for minutes in a path that is a file. So the directory is read here first:
//! "nothing is there" is said only after it was, and only an empty one, or what an interrupted creation left, is
//! built over.

use crate::{EngineError, ErrorClass};
use std::fs;
use std::io;
use std::path::Path;

/// The file that makes a directory a repository.
const FORMAT: &str = "kopia.repository.f";

/// Its folders, named by the first letter of what they hold.
const DATA: [&str; 4] = ["p", "q", "x", "n"];

/// Written before it: all that an interrupted creation leaves.
const BEFORE_FORMAT: [&str; 2] = [".shards", "kopia.blobcfg.f"];

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// No such directory.
    Absent,
    /// Nothing, or what an interrupted creation left.
    Free,
    /// A repository.
    Repository,
    /// A repository's data without its format.
    LostFormat,
    /// This entry belongs to something else.
    Foreign(String),
}

/// Reads the directory and judges it.
///
/// # Errors
/// [`ErrorClass::Unreachable`] when it cannot be read.
pub(super) fn look(root: &Path) -> Result<Place, EngineError> {
    judge(root).map_err(|cause| EngineError::unreadable(root, &cause))
}

fn judge(root: &Path) -> io::Result<Place> {
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Place::Absent),
        Err(cause) => return Err(cause),
    };
    let mut format = false;
    let mut data = false;
    let mut foreign = None;
    let mut crooked = None;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let unfinished = BEFORE_FORMAT.iter().any(|known| name.starts_with(known));
        if name == FORMAT {
            format = true;
        } else if DATA.contains(&name.as_str()) {
            if entry.file_type()?.is_dir() {
                data = true;
            } else {
                crooked = Some(name);
            }
        } else if name != "lost+found" && !unfinished && !name.starts_with(&format!("{FORMAT}.tmp")) {
            foreign = Some(name);
        }
    }
    Ok(match (format, data, foreign.or(crooked.clone())) {
        (true, _, _) => match crooked {
            // The program would try to list it for ever.
            Some(name) => {
                let why = format!("its folder `{name}` is no folder");
                return Err(io::Error::new(io::ErrorKind::NotADirectory, why));
            }
            None => Place::Repository,
        },
        (false, true, _) => Place::LostFormat,
        (false, false, Some(name)) => Place::Foreign(name),
        (false, false, None) => Place::Free,
    })
}

/// Refuses to ask the program about a repository that is not there: it would try again for minutes.
///
/// # Errors
/// [`ErrorClass::Unreachable`].
pub(super) fn there(root: &Path) -> Result<(), EngineError> {
    let gone = match look(root)? {
        Place::Repository => return Ok(()),
        Place::Absent => "it is gone",
        Place::Free => "it is empty",
        Place::LostFormat => "its file `kopia.repository.f` is gone",
        Place::Foreign(_) => "it holds only other files",
    };
    Err(EngineError::unreadable(root, &io::Error::other(gone)))
}

/// Clears the way for a creation, and makes the directory.
///
/// # Errors
/// [`ErrorClass::Failed`] with what is in the way, [`ErrorClass::Unreachable`] when it cannot be read or written.
pub(super) fn prepare(root: &Path) -> Result<(), EngineError> {
    let refused = |why: String, next: &str| {
        let what = format!("no repository is created in {}", root.display());
        Err(EngineError::new(ErrorClass::Failed, what, why, next))
    };
    match look(root)? {
        Place::Absent | Place::Free => {}
        Place::Repository => {
            return refused("there is one already".to_owned(), "Connect to it instead");
        }
        Place::LostFormat => {
            return refused(
                format!("it holds a repository's data without the file `{FORMAT}`"),
                "Restore that file from a copy; creating a new repository would make the data unreadable",
            );
        }
        Place::Foreign(name) => {
            return refused(
                format!("the directory is not empty (it has `{name}`)"),
                "Choose an empty directory, or a subdirectory through the repository's path",
            );
        }
    }
    fs::create_dir_all(root).map_err(|cause| EngineError::unreadable(root, &cause))?;
    for name in BEFORE_FORMAT {
        match fs::remove_file(root.join(name)) {
            Ok(()) => {}
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => {}
            Err(cause) => return Err(EngineError::unreadable(root, &cause)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_is_judged_by_what_it_holds() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("repository");
        assert_eq!(look(&root).unwrap(), Place::Absent);
        prepare(&root).unwrap();
        fs::create_dir(root.join("lost+found")).unwrap();
        fs::write(root.join("kopia.blobcfg.f"), "x").unwrap();
        fs::write(root.join(".shards"), "x").unwrap();
        assert_eq!(look(&root).unwrap(), Place::Free);
        prepare(&root).unwrap();
        assert!(
            !root.join("kopia.blobcfg.f").exists(),
            "it would stop the program"
        );
        fs::write(root.join("holiday.jpg"), "x").unwrap();
        assert_eq!(look(&root).unwrap(), Place::Foreign("holiday.jpg".to_owned()));
        assert!(prepare(&root).unwrap_err().to_string().contains("holiday.jpg"));
        fs::create_dir(root.join("q")).unwrap();
        assert_eq!(look(&root).unwrap(), Place::LostFormat);
        assert!(prepare(&root).unwrap_err().to_string().contains(FORMAT));
        fs::write(root.join(FORMAT), "x").unwrap();
        assert_eq!(look(&root).unwrap(), Place::Repository);
        assert!(prepare(&root).is_err());
        there(&root).unwrap();
        fs::write(root.join("x"), "x").unwrap();
        assert_eq!(there(&root).unwrap_err().class(), ErrorClass::Unreachable);
        let class = |path: &Path| look(path).unwrap_err().class();
        assert_eq!(class(&root.join(FORMAT)), ErrorClass::Unreachable);
        assert_eq!(class(&root.join(FORMAT).join("sub")), ErrorClass::Unreachable);
    }
}
