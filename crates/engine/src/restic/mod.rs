//! Restic's repository format through rustic_core, in this process.
//!
//! **Promises.** Everything [`crate::Engine`] promises, for a repository in a directory or in a bucket. Nothing is
//! cached on disk. The unique id is the id in the repository's config file.
//!
//! **Assumes.** Nobody prunes with `instant_delete` beside us: an index that was read stays usable while packs
//! are only marked (rustic frees them a day later).

mod backend;
mod bucket;
mod care;
mod convert;
mod faults;
mod listing;
mod place;
mod restore;
mod sparing;
mod storage;

use crate::{
    BackupRequest, Depth, Effort, Engine, EngineError, ErrorClass, Listing, Location, Maintainer, Meter,
    Password, Reclaimed, Repository, RestoreOptions, Restored, SnapshotInfo, request,
};
use convert::failed;
use faults::{Faults, WatchedSource};
use jiff::Timestamp;
use place::Place;
use rustic_core::repofile::{ConfigFile, RepoFile, SnapshotFile, SnapshotId};
use rustic_core::{
    BackupOptions, ConfigOptions, Credentials, Excludes, FileType, Id, IndexedIdsStatus, KeyOptions,
    LocalSource, LocalSourceFilterOptions, LocalSourceSaveOptions, OpenStatus, ParentOptions,
    RepositoryBackends, RepositoryOptions, RusticResult, WriteBackend,
};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::Storage;

/// The engine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Restic;

type Opened = rustic_core::Repository<OpenStatus>;
type Indexed = rustic_core::Repository<IndexedIdsStatus>;

struct Connection {
    storage: Storage,
    unique_id: String,
    opened: Opened,
    faults: Arc<Faults>,
}

/// Runs a call into rustic, which documents panics, and turns one into an error.
fn guarded<T>(what: &str, call: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|payload| {
        Err(EngineError::new(
            ErrorClass::Failed,
            what,
            format!("the engine panicked: {}", panic_text(payload.as_ref())),
            "This is a bug worth reporting; nothing was concluded from it",
        ))
    })
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}

impl Engine for Restic {
    fn deletes_need_silence(&self) -> bool {
        false
    }

    fn ids_may_change(&self) -> bool {
        true
    }

    fn open(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        const WHAT: &str = "the repository cannot be opened";
        guarded(WHAT, || {
            let storage = Storage::at(WHAT, at)?;
            let next = "Check the repository's path, or allow its creation";
            let absent = |why: &str| Err(EngineError::new(ErrorClass::NotInitialized, WHAT, why, next));
            match storage.look(WHAT)? {
                Place::Repository => {}
                Place::Free => return absent("there is none in this place"),
                Place::Foreign(_) => return absent("there is none in this place, only other files"),
                Place::LostConfig => {
                    return Err(EngineError::new(
                        ErrorClass::Failed,
                        WHAT,
                        "its file `config` is missing while its data is there",
                        "Restore that file from a copy of the repository",
                    ));
                }
            }
            let faults = Arc::new(Faults::default());
            let backend = storage.backend(&faults).map_err(|e| failed(WHAT, &e))?;
            if backend
                .list(FileType::Key)
                .map_err(|e| failed(WHAT, &e))?
                .is_empty()
            {
                return Err(EngineError::new(
                    ErrorClass::Failed,
                    WHAT,
                    "it has no key files",
                    "Restore its folder `keys` from a copy of the repository",
                ));
            }
            let credentials = Credentials::password(password.expose());
            let opened = closed(backend)
                .and_then(|r| r.open(&credentials))
                .map_err(|e| open_failed(WHAT, &e))?;
            let opened: Box<dyn Repository> = Box::new(connection(storage, opened, faults));
            Ok(opened)
        })
    }

    fn initialize(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        const WHAT: &str = "the repository cannot be created";
        guarded(WHAT, || {
            let storage = Storage::at(WHAT, at)?;
            let _lock = storage.prepare(WHAT)?;
            let faults = Arc::new(Faults::default());
            let backend = storage.backend(&faults).map_err(|e| failed(WHAT, &e))?;
            let credentials = Credentials::password(password.expose());
            let opened = closed(backend)
                .and_then(|r| r.init(&credentials, &KeyOptions::default(), &ConfigOptions::default()))
                .map_err(|e| failed(WHAT, &e))?;
            let opened: Box<dyn Repository> = Box::new(connection(storage, opened, faults));
            Ok(opened)
        })
    }
}

fn closed(backend: Arc<dyn WriteBackend>) -> RusticResult<rustic_core::Repository<()>> {
    let mut options = RepositoryOptions::default();
    options.no_cache = true;
    rustic_core::Repository::new(&options, &RepositoryBackends::new(backend, None))
}

fn open_failed(what: &str, error: &rustic_core::RusticError) -> EngineError {
    if error.is_incorrect_password() {
        return EngineError::new(
            ErrorClass::InvalidPassword,
            what,
            "the password does not fit any of its keys",
            "Check the Secret that the repository names and the key inside it",
        );
    }
    failed(what, error)
}

fn connection(storage: Storage, opened: Opened, faults: Arc<Faults>) -> Connection {
    Connection {
        storage,
        unique_id: opened.config().id.to_hex().as_str().to_owned(),
        opened,
        faults,
    }
}

#[cfg(test)]
fn connection_for_tests(at: &Path, password: &Password) -> Connection {
    let faults = Arc::new(Faults::default());
    let storage = Storage::Directory(at.to_owned());
    let opened = storage
        .backend(&faults)
        .and_then(closed)
        .and_then(|repository| repository.open(&Credentials::password(password.expose())));
    match opened {
        Ok(opened) => connection(storage, opened, faults),
        Err(error) => panic!("{}", convert::reason(&error)),
    }
}

fn hex(id: SnapshotId) -> String {
    id.to_hex().as_str().to_owned()
}

fn whole(what: &str, id: &str) -> Result<SnapshotId, EngineError> {
    let parsed: Result<Id, _> = id.parse();
    parsed.map(SnapshotId::from).map_err(|_| {
        let why = format!("`{id}` is not a whole snapshot id");
        let next = "Name snapshots by the 64 digits of their id";
        EngineError::new(ErrorClass::Failed, what, why, next)
    })
}

impl Connection {
    /// Reads the config again: whoever put another repository into the directory also changed it.
    fn prove_identity(&self, what: &str) -> Result<(), EngineError> {
        let replaced = |why: String| {
            EngineError::new(
                ErrorClass::Replaced,
                what,
                why,
                "Put the recorded repository back, or record the new one",
            )
        };
        let config: ConfigFile = self
            .opened
            .get_file(&<ConfigFile as RepoFile>::Id::default())
            .map_err(|e| match convert::classify(&e) {
                ErrorClass::Unreachable => failed(what, &e),
                ErrorClass::InvalidPassword
                | ErrorClass::NotInitialized
                | ErrorClass::Replaced
                | ErrorClass::SourceUnreadable
                | ErrorClass::Failed => {
                    replaced(format!("its config no longer opens ({})", convert::reason(&e)))
                }
            })?;
        let now = config.id.to_hex();
        if now.as_str() == self.unique_id {
            return Ok(());
        }
        let now = now.as_str();
        Err(replaced(format!(
            "it has the unique id {now} instead of {}",
            self.unique_id
        )))
    }

    /// One readable record, `None` when it went away meanwhile, or its id when it cannot be read.
    fn read(&self, id: SnapshotId) -> Option<Result<SnapshotInfo, String>> {
        match self.opened.get_file::<SnapshotFile>(&id) {
            Ok(file) => Some(Ok(convert::info(hex(id), &file))),
            Err(_) => self.storage.may_have(&hex(id)).then(|| Err(hex(id))),
        }
    }

    /// The index as it is now. The master key is at hand, so no password is stretched again.
    fn indexed(&self) -> RusticResult<Indexed> {
        closed(self.storage.backend(&self.faults)?)?
            .open(&Credentials::Masterkey(self.opened.key()))?
            .to_indexed_ids()
    }

    fn take(
        &self,
        request: &BackupRequest,
        index: &Indexed,
        parent: Option<&String>,
    ) -> Result<SnapshotFile, EngineError> {
        let uid = &request.snapshot_uid;
        let what = format!("the backup for {uid} failed");
        let unreadable = |why: String| {
            EngineError::new(
                ErrorClass::SourceUnreadable,
                &what,
                why,
                "Check that the volume is mounted and readable for the mover's user; nothing was recorded",
            )
        };
        let shown = request.read_from.display();
        fs::read_dir(&request.read_from).map_err(|cause| unreadable(format!("{shown}: {cause}")))?;
        let snapshot = convert::snapshot_file(request, Timestamp::now())?;
        self.faults.clear();
        let source = LocalSource::new(
            LocalSourceSaveOptions::default(),
            &Excludes::default(),
            &LocalSourceFilterOptions::default(),
            &[&request.read_from],
        )
        .map_err(|e| unreadable(convert::reason(&e)))?;
        let source = WatchedSource {
            inner: source,
            faults: Arc::clone(&self.faults),
        };
        // The parent is named, so that rustic need not read every snapshot to find it.
        let parents = ParentOptions::default()
            .force(parent.is_none())
            .parents(parent.cloned().into_iter().collect::<Vec<_>>());
        let options = BackupOptions::default()
            .as_path(Some(PathBuf::from(&request.source.path)))
            .no_scan(true)
            .parent_opts(parents);
        let done = index.archive(
            &options,
            &source,
            snapshot,
            std::slice::from_ref(&request.read_from),
        );
        if let Some(fault) = self.faults.summary() {
            return Err(unreadable(fault));
        }
        done.map_err(|e| failed(&what, &e))
    }
}

impl Connection {
    /// Writes the record anew beside the old one, and removes that when the new one was read back.
    fn rewrite(&self, what: &str, id: SnapshotId, on: bool) -> Result<(), EngineError> {
        let Ok(old) = self.opened.get_file::<SnapshotFile>(&id) else {
            return match self.storage.may_have(&hex(id)) {
                true => Err(EngineError::new(
                    ErrorClass::Unreachable,
                    what,
                    format!("the record of snapshot {} cannot be read", hex(id)),
                    "Check the volume or the bucket; it is tried again",
                )),
                false => Err(request::unknown_snapshot(what, &hex(id))),
            };
        };
        let Some(new) = convert::pinned(id, &old, on) else {
            return Ok(());
        };
        let wanted = convert::info(String::new(), &new);
        self.opened
            .save_snapshots(vec![new])
            .map_err(|e| failed(what, &e))?;
        self.storage.synced(what)?;
        let listing = self.list()?;
        let is_there = listing.snapshots.iter().any(|found| {
            let nameless = SnapshotInfo {
                id: String::new(),
                ..found.clone()
            };
            nameless == wanted
        });
        if !is_there {
            let why = "its new record was written and is not listed; the old one stays";
            let next = "It is tried again; check the volume or the bucket";
            return Err(EngineError::new(ErrorClass::Failed, what, why, next));
        }
        self.opened
            .delete_snapshots(&[id])
            .map_err(|e| failed(what, &e))?;
        self.storage.synced(what)
    }
}

impl Repository for Connection {
    fn unique_id(&self) -> &str {
        &self.unique_id
    }

    fn list(&self) -> Result<Listing, EngineError> {
        const WHAT: &str = "the snapshots cannot be listed";
        guarded(WHAT, || {
            self.prove_identity(WHAT)?;
            listing::whole(
                || Ok(self.opened.list().map_err(|e| failed(WHAT, &e))?.collect()),
                |id| self.read(id),
                hex,
            )
        })
    }

    fn back_up(
        &mut self,
        requests: &[BackupRequest],
        taken: &mut dyn FnMut(usize, &SnapshotInfo),
    ) -> Result<(), EngineError> {
        const WHAT: &str = "the backup failed";
        let mut newest: BTreeMap<(String, String), (Timestamp, String)> = BTreeMap::new();
        for known in self.list()?.snapshots {
            let key = (known.source.hostname, known.source.path);
            let entry = (known.start, known.id);
            if newest.get(&key).is_none_or(|held| *held < entry) {
                newest.insert(key, entry);
            }
        }
        let mut index: Option<Indexed> = None;
        for (number, request) in requests.iter().enumerate() {
            let key = (request.source.hostname.clone(), request.source.path.clone());
            let done = guarded(WHAT, || {
                let ready = match index.take() {
                    Some(ready) => ready,
                    None => self.indexed().map_err(|e| failed(WHAT, &e))?,
                };
                let file = self.take(request, &ready, newest.get(&key).map(|(_, id)| id))?;
                // An index does not see what was added through it: keep it only if nothing was.
                let added = file
                    .summary
                    .as_ref()
                    .is_none_or(|s| s.data_blobs + s.tree_blobs > 0);
                if !added {
                    index = Some(ready);
                }
                Ok(convert::info(hex(file.id), &file))
            })?;
            newest.insert(key, (done.start, done.id.clone()));
            taken(number, &done);
        }
        Ok(())
    }

    fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
        const WHAT: &str = "the snapshots cannot be deleted";
        let mut parsed = BTreeSet::new();
        for id in ids {
            parsed.insert(whole(WHAT, id)?);
        }
        let parsed: Vec<SnapshotId> = parsed.into_iter().collect();
        guarded(WHAT, || {
            self.opened
                .delete_snapshots(&parsed)
                .map_err(|e| failed(WHAT, &e))?;
            self.storage.synced(WHAT)
        })
    }

    fn pin(&self, id: &str, on: bool) -> Result<(), EngineError> {
        const WHAT: &str = "the snapshot cannot be pinned or unpinned";
        self.prove_identity(WHAT)?;
        let parsed = whole(WHAT, id)?;
        guarded(WHAT, || self.rewrite(WHAT, parsed, on))
    }

    fn restore(
        &self,
        id: &str,
        to: &Path,
        how: &RestoreOptions,
        meter: &Meter,
    ) -> Result<Restored, EngineError> {
        const WHAT: &str = "the snapshot cannot be restored";
        let id = whole(WHAT, id)?;
        guarded(WHAT, || self.restore_to(id, to, how, meter))
    }

    fn check(&self, depth: Depth) -> Result<(), EngineError> {
        guarded("the repository cannot be checked", || self.check_all(depth))
    }

    fn reclaim(&mut self, effort: Effort, _maintainer: Option<&str>) -> Result<Reclaimed, EngineError> {
        const WHAT: &str = "space cannot be reclaimed";
        self.prove_identity(WHAT)?;
        guarded(WHAT, || self.reclaim_now(effort).map_err(|e| failed(WHAT, &e)))
    }

    fn maintainer(&self) -> Result<Option<Maintainer>, EngineError> {
        Ok(None)
    }

    fn set_maintainer(&mut self, _name: &str) -> Result<(), EngineError> {
        Ok(())
    }

    fn stored_bytes(&self) -> Result<u64, EngineError> {
        const WHAT: &str = "the repository's size cannot be read";
        guarded(WHAT, || self.pack_bytes().map_err(|e| failed(WHAT, &e)))
    }
}
