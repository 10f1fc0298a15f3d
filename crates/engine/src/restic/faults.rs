//! What could not be read in a source while it was being backed up.
//!
//! **Promises.** rustic leaves out what it cannot read and goes on; here each such thing is a fault, and a
//! snapshot with a fault is never committed. Something that vanished while a live volume was being read is no
//! fault: the snapshot is of a moment when it was gone.

use rustic_core::{
    ErrorKind, LocalSource, ReadSource, ReadSourceEntry, ReadSourceOpen, RusticError, RusticResult,
};
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Faults of the backup that is running.
#[derive(Debug, Default)]
pub(super) struct Faults(Mutex<Vec<String>>);

impl Faults {
    fn entries(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn any(&self) -> bool {
        !self.entries().is_empty()
    }

    pub(super) fn push(&self, text: String) {
        self.entries().push(text);
    }

    /// Empties the list for the next backup.
    pub(super) fn clear(&self) {
        self.entries().clear();
    }

    /// The first fault, and how many more there are.
    pub(super) fn summary(&self) -> Option<String> {
        let entries = self.entries();
        let first = entries.first()?;
        Some(match entries.len() - 1 {
            0 => first.clone(),
            more => format!("{first} (and {more} more)"),
        })
    }
}

/// A local directory whose faults are noted.
#[derive(Debug)]
pub(super) struct WatchedSource {
    pub(super) inner: LocalSource,
    pub(super) faults: Arc<Faults>,
}

/// Its entries.
pub(super) struct WatchedWalk {
    inner: <LocalSource as ReadSource>::Iter,
    faults: Arc<Faults>,
}

/// One file about to be read.
#[derive(Debug)]
pub(super) struct WatchedOpen {
    path: PathBuf,
    faults: Arc<Faults>,
}

/// One file being read.
#[derive(Debug)]
pub(super) struct WatchedReader {
    file: File,
    path: PathBuf,
    faults: Arc<Faults>,
}

/// Whether the error, somewhere in its chain, is "no such file".
fn vanished(error: &RusticError) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return io.kind() == io::ErrorKind::NotFound;
        }
        cause = inner.source();
    }
    // The walker's error keeps its io::Error to itself and shows it only as text (2 is ENOENT).
    error.display_log().contains("(os error 2)")
}

impl ReadSource for WatchedSource {
    type Open = WatchedOpen;
    type Iter = WatchedWalk;

    fn size(&self) -> RusticResult<Option<u64>> {
        Ok(None)
    }

    fn entries(&self) -> WatchedWalk {
        WatchedWalk {
            inner: self.inner.entries(),
            faults: Arc::clone(&self.faults),
        }
    }
}

impl Iterator for WatchedWalk {
    type Item = RusticResult<ReadSourceEntry<WatchedOpen>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(match self.inner.next()? {
            Ok(entry) => Ok(ReadSourceEntry {
                open: entry.open.is_some().then(|| WatchedOpen {
                    path: entry.path.clone(),
                    faults: Arc::clone(&self.faults),
                }),
                path: entry.path,
                node: entry.node,
            }),
            Err(error) => {
                if !vanished(&error) {
                    self.faults.push(super::convert::reason(&error));
                }
                Err(error)
            }
        })
    }
}

impl ReadSourceOpen for WatchedOpen {
    type Reader = WatchedReader;

    fn open(self) -> RusticResult<WatchedReader> {
        match File::open(&self.path) {
            Ok(file) => Ok(WatchedReader {
                file,
                path: self.path,
                faults: self.faults,
            }),
            Err(cause) => {
                if cause.kind() != io::ErrorKind::NotFound {
                    self.faults.push(format!("{}: {cause}", self.path.display()));
                }
                Err(RusticError::with_source(
                    ErrorKind::InputOutput,
                    "A file of the source cannot be opened.",
                    cause,
                ))
            }
        }
    }
}

impl Read for WatchedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer).inspect_err(|cause| {
            if cause.kind() != io::ErrorKind::Interrupted {
                self.faults.push(format!("{}: {cause}", self.path.display()));
            }
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_failing_read_is_a_fault_and_a_vanished_file_is_none() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let faults = Arc::new(Faults::default());
        let open = |name: &str| WatchedOpen {
            path: dir.path().join(name),
            faults: Arc::clone(&faults),
        };
        assert!(open("vanished").open().is_err());
        let mut text = String::new();
        open("file").open().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((faults.any(), text.as_str()), (false, "x"));
        assert!(open("file/below").open().is_err());
        assert!(faults.any());
        faults.clear();
        // A directory opens, and reading it fails.
        assert!(open("").open().unwrap().read(&mut [0]).is_err());
        assert!(faults.summary().unwrap().contains("directory"));
    }
}
