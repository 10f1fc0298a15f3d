//! Kopia repositories through the official program, as a child process.
//!
//! **Promises.** Everything [`crate::Engine`] promises. What only reads connects read-only, since on an ordinary
//! connection even a listing rewrites manifests. Every call sees the storage as it is: no list of indexes and no
//! format is taken from a cache. Only whole manifest ids that a listing has just shown are ever named for
//! deletion. The program's own retention never expires a snapshot of ours (`policy`), and its maintenance is
//! left to who asks for it. Exit code 0 is not proof: a snapshot is reported after another process has seen it, and
//! a deletion is a claim until a listing proves it. The unique id is the one of `kopia repository status`.
//!
//! **Assumes.** Deletions are lost when others write at the same time, and this cannot be prevented from here: the
//! caller keeps writers away ([`crate::Engine::deletes_need_silence`]), reads back and looks again.

mod care;
mod classify;
mod command;
#[cfg(test)]
mod contract;
mod output;
mod place;
mod policy;

use crate::{
    BackupRequest, Depth, Effort, Engine, EngineError, ErrorClass, Listing, Location, Maintainer, Meter, PIN,
    Password, Reclaimed, Repository, RestoreOptions, Restored, SnapshotInfo, TAG_CLUSTER, TAG_SNAPSHOT,
    request,
};
use classify::Doing;
pub use command::PROGRAM_VARIABLE;
use command::{Call, Ended, Session, View};
use output::{Manifest, Row, Status};
use place::Place;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Most ids that are named in one call.
const IDS_PER_CALL: usize = 200;

/// What every connection is made with: nothing from a cache that another process could have outdated, a name that
/// is the same in every Job (the program ties maintenance to it), and caches that fit a pod.
const CONNECTION: [&str; 9] = [
    "--max-list-cache-duration=0s",
    "--disable-repository-format-cache",
    "--no-check-for-updates",
    "--override-username=holdfast",
    "--override-hostname=holdfast",
    "--content-cache-size-mb=128",
    "--content-cache-size-limit-mb=256",
    "--metadata-cache-size-mb=512",
    "--metadata-cache-size-limit-mb=1024",
];

/// The engine: with the program that [`PROGRAM_VARIABLE`] names or `PATH` has, or with a given one.
#[derive(Debug, Clone, Default)]
pub struct Kopia {
    program: Option<PathBuf>,
}

impl Kopia {
    /// With this program and no other.
    #[must_use]
    pub fn using(program: impl Into<PathBuf>) -> Self {
        Self {
            program: Some(program.into()),
        }
    }
}

struct Connection {
    session: Session,
    at: Location,
    unique_id: String,
}

impl Engine for Kopia {
    fn deletes_need_silence(&self) -> bool {
        true
    }

    fn ids_may_change(&self) -> bool {
        true
    }

    fn open(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        const WHAT: &str = "the repository cannot be opened";
        if let Location::Directory(path) = at {
            found(WHAT, path)?;
        }
        let mut connection = Connection::closed(self, at, password)?;
        connection.open(WHAT, View::Reading, Doing::Connecting)?;
        connection.unique_id = connection.status(WHAT, Doing::Connecting)?;
        Ok(Box::new(connection))
    }

    fn initialize(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        const WHAT: &str = "the repository cannot be created";
        let mut connection = Connection::closed(self, at, password)?;
        let _lock = match at {
            Location::Directory(path) => {
                // Judged before anything is written, and again under the lock.
                place::look(path)?;
                let lock = crate::lock::creation(WHAT, path)?;
                place::prepare(path)?;
                Some(lock)
            }
            // The program itself builds only where no name begins with the prefix.
            Location::Bucket(_) => None,
        };
        let storage = connection.storage("create");
        let call = Call::new(WHAT, View::Writing, storage);
        let ended = connection.session.run(&call)?;
        if !ended.success {
            return Err(classify::failed(WHAT, Doing::Connecting, &ended));
        }
        connection.open(WHAT, View::Reading, Doing::Connecting)?;
        connection.unique_id = connection.status(WHAT, Doing::Connecting)?;
        Ok(Box::new(connection))
    }
}

/// Whether the directory holds a repository.
fn found(what: &str, path: &Path) -> Result<(), EngineError> {
    let next = "Check the repository's path, or allow its creation";
    let absent = |why: &str| Err(EngineError::new(ErrorClass::NotInitialized, what, why, next));
    match place::look(path)? {
        Place::Repository => Ok(()),
        Place::Absent | Place::Free => absent("there is none in this directory"),
        Place::Foreign(_) => absent("there is none in this directory, only other files"),
        Place::LostFormat => Err(EngineError::new(
            ErrorClass::Failed,
            what,
            "its file `kopia.repository.f` is missing while its data is there",
            "Restore that file from a copy of the repository",
        )),
    }
}

impl Connection {
    fn closed(engine: &Kopia, at: &Location, password: &Password) -> Result<Self, EngineError> {
        let at = match at {
            Location::Directory(path) => Location::Directory(std::path::absolute(path).map_err(|cause| {
                let what = "the repository cannot be opened";
                EngineError::new(ErrorClass::Failed, what, cause, "Check the repository's path")
            })?),
            Location::Bucket(bucket) => Location::Bucket(bucket.clone()),
        };
        let program = engine.program.clone().map_or_else(command::find, Ok)?;
        Ok(Self {
            session: Session::new(program, password, &at)?,
            at,
            unique_id: String::new(),
        })
    }

    /// Arguments of `repository connect` and `repository create`.
    fn storage(&self, verb: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = ["repository", verb].map(Into::into).into();
        match &self.at {
            Location::Directory(root) => {
                let mut path = OsString::from("--path=");
                path.push(root);
                arguments.extend(["filesystem".into(), path]);
            }
            Location::Bucket(bucket) => {
                arguments.push("s3".into());
                arguments.extend(self.session.bucket(bucket));
            }
        }
        arguments.extend(CONNECTION.map(Into::into));
        arguments
    }

    fn open(&self, what: &str, view: View, doing: Doing) -> Result<(), EngineError> {
        let mut arguments = self.storage("connect");
        if view == View::Reading {
            arguments.push("--readonly".into());
        }
        let ended = self.session.run(&Call::new(what, view, arguments))?;
        if ended.success {
            Ok(())
        } else {
            Err(classify::failed(what, doing, &ended))
        }
    }

    /// A directory is looked at before the program is asked; a bucket is asked by the program, which fails without it.
    fn there(&self) -> Result<(), EngineError> {
        match &self.at {
            Location::Directory(root) => place::there(root),
            Location::Bucket(_) => Ok(()),
        }
    }

    /// Connects for writing, once.
    fn writable(&self, what: &str) -> Result<(), EngineError> {
        if self.session.connected(View::Writing) {
            return Ok(());
        }
        self.open(what, View::Writing, Doing::Working)
    }

    fn status(&self, what: &str, doing: Doing) -> Result<String, EngineError> {
        let call = Call::new(what, View::Reading, ["repository", "status", "--json"]);
        let ended = self.session.run(&call)?;
        if !ended.success {
            return Err(classify::failed(what, doing, &ended));
        }
        let status: Status = output::parse(what, &ended.stdout)?;
        if status.unique_id.is_empty() {
            let why = "the program names no unique id";
            let next = "Use the kopia version of this release's mover image";
            return Err(EngineError::new(ErrorClass::Failed, what, why, next));
        }
        Ok(status.unique_id)
    }

    /// Reads the unique id again: the format is never taken from a cache.
    fn prove_identity(&self, what: &str) -> Result<(), EngineError> {
        let now = self.status(what, Doing::Working)?;
        if now == self.unique_id {
            return Ok(());
        }
        Err(EngineError::new(
            ErrorClass::Replaced,
            what,
            format!("it has the unique id {now} instead of {}", self.unique_id),
            "Put the recorded repository back, or record the new one",
        ))
    }

    /// A listing by `snapshot list`: of everything, or of one source.
    fn rows(&self, what: &str, further: &[&str]) -> Result<Listing, EngineError> {
        let fixed = [
            "snapshot",
            "list",
            "--json",
            "--no-retention",
            "--log-level=error",
        ];
        let mut call = Call::new(what, View::Reading, fixed.iter().chain(further));
        call.said_limit = command::WHOLE_LIMIT;
        let ended = self.session.run(&call)?;
        if !ended.success {
            return Err(classify::failed(what, Doing::Working, &ended));
        }
        if ended.cut {
            let why = "the program reported more errors than can be read";
            let next = "Check the repository with `kopia snapshot verify`";
            return Err(EngineError::new(ErrorClass::Failed, what, why, next));
        }
        output::listing(what, &ended.stdout, &ended.stderr)
    }

    fn ids(&self, what: &str, command: &str) -> Result<Vec<Row>, EngineError> {
        let call = Call::new(
            what,
            View::Reading,
            [command, "list", "--json", "--log-level=error"],
        );
        let ended = self.session.run(&call)?;
        if !ended.success {
            return Err(classify::failed(what, Doing::Working, &ended));
        }
        output::parse(what, &ended.stdout)
    }

    /// "No snapshots" is believed only of a repository that shows something else, or holds no data at all: without
    /// its indexes every repository looks empty.
    fn prove_empty(&self, what: &str) -> Result<(), EngineError> {
        if !self.ids(what, "manifest")?.is_empty() {
            return Ok(());
        }
        let packs = self
            .ids(what, "blob")?
            .iter()
            .filter(|b| b.id.starts_with(['p', 'q']))
            .count();
        if packs == 0 {
            return Ok(());
        }
        Err(EngineError::new(
            ErrorClass::Unreachable,
            what,
            format!("its indexes show nothing while {packs} packs of data are there"),
            "Check that the whole storage is mounted; restore the files of its folder `x` from a copy",
        ))
    }

    fn take(&self, request: &BackupRequest, source: &str) -> Result<SnapshotInfo, EngineError> {
        let what = format!("the backup for {} failed", request.snapshot_uid);
        let unreadable = |why: String| {
            let next =
                "Check that the volume is mounted and readable for the mover's user; nothing was recorded";
            EngineError::new(ErrorClass::SourceUnreadable, &what, why, next)
        };
        let shown = request.read_from.display();
        fs::read_dir(&request.read_from).map_err(|cause| unreadable(format!("{shown}: {cause}")))?;
        let read_from = std::path::absolute(&request.read_from)
            .map_err(|cause| unreadable(format!("{shown}: {cause}")))?;
        let mut arguments: Vec<OsString> = vec!["snapshot".into(), "create".into(), read_from.into()];
        // Without the first, a source that was only partly read would be recorded as if it were whole.
        let fixed = [
            "--fail-fast",
            "--json",
            "--no-send-snapshot-report",
            "--force-disable-actions",
        ];
        arguments.extend(fixed.map(Into::into));
        arguments.push(format!("--override-source={source}").into());
        let ours = [
            (TAG_CLUSTER, &request.cluster),
            (TAG_SNAPSHOT, &request.snapshot_uid),
        ];
        let theirs = request.tags.iter().map(|(key, value)| (key.as_str(), value));
        for (key, value) in ours.into_iter().chain(theirs) {
            arguments.push(format!("--tags={key}:{value}").into());
        }
        let ended = self
            .session
            .run(&Call::new(&what, View::Writing, arguments).however_long())?;
        let manifest = output::parse::<Manifest>(&what, &ended.stdout);
        if let Ok(manifest) = &manifest
            && let Some(fault) = manifest.fault()
        {
            let id = manifest.id.clone();
            if manifest.complete() {
                // The program recorded it as if it were whole.
                self.delete(&[id])?;
            }
            return Err(unreadable(fault));
        }
        if !ended.success {
            return Err(classify::failed(&what, Doing::BackingUp, &ended));
        }
        let manifest = manifest?;
        let complete = manifest.complete();
        let claimed = manifest.info();
        if !complete || !output::is_manifest_id(&claimed.id) || claimed.source != request.source {
            let why = format!(
                "the program reports another snapshot than the one asked for ({})",
                claimed.id
            );
            let next = "Use the kopia version of this release's mover image";
            return Err(EngineError::new(ErrorClass::Failed, &what, why, next));
        }
        self.seen(&what, source, &claimed.id)
    }

    /// The snapshot as another process sees it, with what it added to the one before it of the same source.
    fn seen(&self, what: &str, source: &str, id: &str) -> Result<SnapshotInfo, EngineError> {
        let near = self.rows(what, &[source, "--storage-stats", "--max-results=2"])?;
        if let Some(info) = near.find(id) {
            return Ok(info.clone());
        }
        // Not among the latest two: others wrote the same source, or a clock is off.
        self.rows(what, &["--all"])?.find(id).cloned().ok_or_else(|| {
            let why = format!("the program reported snapshot {id}, and the repository does not show it");
            let next = "It is tried again; look for other programs that delete in this repository";
            EngineError::new(ErrorClass::Failed, what, why, next)
        })
    }
}

/// Refuses what the program would read as something else.
fn speakable(request: &BackupRequest) -> Result<(), EngineError> {
    request::check(request, ':')?;
    let source = &request.source;
    let crooked = |text: &str| text.is_empty() || text.contains(['@', ':']) || text.starts_with('-');
    if crooked(&source.username) || crooked(&source.hostname) {
        let why = format!(
            "user `{}` or host `{}` is empty, contains `@` or `:`, or begins with `-`",
            source.username, source.hostname
        );
        return Err(request::refused(request, why));
    }
    Ok(())
}

impl Repository for Connection {
    fn unique_id(&self) -> &str {
        &self.unique_id
    }

    fn list(&self) -> Result<Listing, EngineError> {
        const WHAT: &str = "the snapshots cannot be listed";
        self.there()?;
        let listing = self.rows(WHAT, &["--all"])?;
        if listing.snapshots.is_empty() && listing.unreadable.is_empty() {
            self.prove_empty(WHAT)?;
        }
        // Last: what was listed was listed from the repository that is still there now.
        self.prove_identity(WHAT)?;
        Ok(listing)
    }

    fn back_up(
        &mut self,
        requests: &[BackupRequest],
        taken: &mut dyn FnMut(usize, &SnapshotInfo),
    ) -> Result<(), EngineError> {
        const WHAT: &str = "the backup failed";
        if requests.is_empty() {
            return Ok(());
        }
        self.there()?;
        self.writable(WHAT)?;
        self.prove_identity(WHAT)?;
        let mut kept = BTreeSet::new();
        for (number, request) in requests.iter().enumerate() {
            speakable(request)?;
            let source = &request.source;
            let source = format!("{}@{}:{}", source.username, source.hostname, source.path);
            if kept.insert(source.clone()) {
                policy::keep_all(&self.session, &source)?;
            }
            let done = self.take(request, &source)?;
            taken(number, &done);
        }
        Ok(())
    }

    fn delete(&self, ids: &[String]) -> Result<(), EngineError> {
        const WHAT: &str = "the snapshots cannot be deleted";
        // The program tries anything else as the id of an object, and deletes every snapshot with that content.
        if let Some(id) = ids.iter().find(|id| !output::is_manifest_id(id)) {
            let why = format!("`{id}` is not a whole snapshot id");
            let next = "Name snapshots by the 32 digits of their id";
            return Err(EngineError::new(ErrorClass::Failed, WHAT, why, next));
        }
        if ids.is_empty() {
            return Ok(());
        }
        // One absent id, and the program deletes none of those named with it.
        let listing = self.list()?;
        let present: BTreeSet<&String> = ids.iter().filter(|id| listing.contains(id)).collect();
        if present.is_empty() {
            return Ok(());
        }
        self.writable(WHAT)?;
        let present: Vec<&String> = present.into_iter().collect();
        for some in present.chunks(IDS_PER_CALL) {
            let fixed = ["snapshot", "delete", "--delete"].into_iter().map(OsString::from);
            let arguments = fixed.chain(some.iter().map(|id| OsString::from(id.as_str())));
            let ended: Ended = self.session.run(&Call::new(WHAT, View::Writing, arguments))?;
            if !ended.success {
                return Err(classify::failed(WHAT, Doing::Working, &ended));
            }
        }
        Ok(())
    }

    fn pin(&self, id: &str, on: bool) -> Result<(), EngineError> {
        const WHAT: &str = "the snapshot cannot be pinned or unpinned";
        // The program tries anything else as the id of an object.
        let listing = self.list()?;
        let found = listing.find(id).filter(|_| output::is_manifest_id(id));
        let Some(found) = found else {
            return Err(request::unknown_snapshot(WHAT, id));
        };
        if found.pin_is_ours == on {
            return Ok(());
        }
        self.writable(WHAT)?;
        let verb = if on { "--add" } else { "--remove" };
        let call = Call::new(WHAT, View::Writing, ["snapshot", "pin", id, verb, PIN]);
        let ended = self.session.run(&call)?;
        if ended.success {
            Ok(())
        } else {
            Err(classify::failed(WHAT, Doing::Working, &ended))
        }
    }

    fn restore(
        &self,
        id: &str,
        to: &Path,
        how: &RestoreOptions,
        meter: &Meter,
    ) -> Result<Restored, EngineError> {
        self.restore_to(id, to, how, meter)
    }

    fn check(&self, depth: Depth) -> Result<(), EngineError> {
        self.check_all(depth)
    }

    fn reclaim(&mut self, effort: Effort, maintainer: Option<&str>) -> Result<Reclaimed, EngineError> {
        self.reclaim_now(effort, maintainer)
    }

    fn maintainer(&self) -> Result<Option<Maintainer>, EngineError> {
        self.recorded_maintainer().map(Some)
    }

    fn set_maintainer(&mut self, name: &str) -> Result<(), EngineError> {
        self.record_maintainer(name)
    }

    fn stored_bytes(&self) -> Result<u64, EngineError> {
        self.blob_bytes()
    }
}
