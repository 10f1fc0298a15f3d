//! A repository directory, read strictly.
//!
//! **Promises.** A listing is complete or an error. rustic's own local backend logs what it cannot read and
//! leaves it out, so an unmounted volume looks like a repository without snapshots; here every entry that
//! cannot be read fails the listing, and so does a directory that is missing. A snapshot file is not written
//! once a fault of its source is known. What was written or removed is synced with its directory.
//!
//! **Assumes.** restic's layout: `config`, `keys/`, `index/`, `snapshots/`, `data/xx/`.

use super::faults::Faults;
use bytes::Bytes;
use rustic_backend::LocalBackend;
use rustic_core::{BytesList, ErrorKind, FileType, Id, ReadBackend, RusticError, RusticResult, WriteBackend};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory.
#[derive(Debug)]
pub(super) struct StrictLocal {
    inner: LocalBackend,
    root: PathBuf,
    faults: Arc<Faults>,
}

impl StrictLocal {
    pub(super) fn new(root: &Path, faults: Arc<Faults>) -> RusticResult<Self> {
        let text = root.to_str().ok_or_else(|| {
            RusticError::new(
                ErrorKind::InvalidInput,
                "The repository's path is not valid UTF-8.",
            )
        })?;
        Ok(Self {
            inner: LocalBackend::new(text, [])?,
            root: root.to_owned(),
            faults,
        })
    }

    fn directory(&self, tpe: FileType, id: &Id) -> PathBuf {
        match tpe {
            FileType::Config => self.root.clone(),
            FileType::Pack => self.root.join("data").join(&id.to_hex().as_str()[..2]),
            FileType::Index | FileType::Key | FileType::Snapshot => self.root.join(tpe.dirname()),
        }
    }
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}

fn backend_error(what: &'static str, path: &Path, cause: io::Error) -> Box<RusticError> {
    RusticError::with_source(ErrorKind::Backend, what, cause)
        .attach_context("path", path.display().to_string())
}

/// Every file with an id for a name in `path`, and below it when `deep`.
fn files(path: &Path, deep: bool, found: &mut Vec<(Id, u32)>) -> RusticResult<()> {
    let failed = |cause| backend_error("The directory `{path}` cannot be listed.", path, cause);
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        if kind.is_dir() && deep {
            files(&entry.path(), false, found)?;
        }
        let name = entry.file_name();
        let Some(id) = name
            .to_str()
            .filter(|_| kind.is_file())
            .and_then(|n| n.parse::<Id>().ok())
        else {
            continue;
        };
        let length = match entry.metadata() {
            Ok(meta) => meta.len(),
            // Removed by someone else between the two calls: it is not there.
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(failed(cause)),
        };
        found.push((id, u32::try_from(length).unwrap_or(u32::MAX)));
    }
    Ok(())
}

impl ReadBackend for StrictLocal {
    fn location(&self) -> String {
        self.inner.location()
    }

    fn list_with_size(&self, tpe: FileType) -> RusticResult<Vec<(Id, u32)>> {
        if tpe == FileType::Config {
            let path = self.root.join("config");
            return match fs::metadata(&path) {
                Ok(meta) => Ok(vec![(
                    Id::default(),
                    u32::try_from(meta.len()).unwrap_or(u32::MAX),
                )]),
                Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
                Err(cause) => Err(backend_error(
                    "The file `{path}` cannot be looked at.",
                    &path,
                    cause,
                )),
            };
        }
        let mut found = Vec::new();
        files(&self.root.join(tpe.dirname()), tpe == FileType::Pack, &mut found)?;
        Ok(found)
    }

    fn read_full(&self, tpe: FileType, id: &Id) -> RusticResult<Bytes> {
        self.inner.read_full(tpe, id)
    }

    fn read_partial(
        &self,
        tpe: FileType,
        id: &Id,
        cacheable: bool,
        offset: u32,
        length: u32,
    ) -> RusticResult<Bytes> {
        self.inner.read_partial(tpe, id, cacheable, offset, length)
    }

    fn warmup_path(&self, tpe: FileType, id: &Id) -> String {
        self.inner.warmup_path(tpe, id)
    }
}

impl WriteBackend for StrictLocal {
    fn create(&self) -> RusticResult<()> {
        self.inner.create()
    }

    fn write_bytes(&self, tpe: FileType, id: &Id, cacheable: bool, content: BytesList) -> RusticResult<()> {
        // The snapshot file is the commit: it is the last thing written, so every fault is known by now.
        if tpe == FileType::Snapshot && self.faults.any() {
            return Err(RusticError::new(
                ErrorKind::InputOutput,
                "The source could not be read whole; no snapshot is written.",
            ));
        }
        self.inner.write_bytes(tpe, id, cacheable, content)?;
        let directory = self.directory(tpe, id);
        sync_directory(&directory)
            .map_err(|cause| backend_error("The directory `{path}` cannot be synced.", &directory, cause))
    }

    fn remove(&self, tpe: FileType, id: &Id, cacheable: bool) -> RusticResult<()> {
        if tpe != FileType::Snapshot {
            return self.inner.remove(tpe, id, cacheable);
        }
        // An absent snapshot is what was asked for; a read-back tells this from a directory that went away.
        let path = self.directory(tpe, id).join(id.to_hex().as_str());
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(cause) => Err(backend_error(
                "The file `{path}` cannot be removed.",
                &path,
                cause,
            )),
        }
    }
}
