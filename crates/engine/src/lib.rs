//! What can be done to a backup repository, whatever program wrote it.
//!
//! **Promises.** One interface for every engine: [`Engine`] opens or creates, [`Repository`] lists, backs up and
//! deletes. Calls take whole batches, so an engine may do in one step what it can. A listing is complete or an
//! error: a directory that cannot be read is never an empty repository. A snapshot of a source that could not
//! be read whole is never written. A panic inside an engine's library is an error like any other. No error
//! text, debug output or recorded tag carries a password.
//!
//! **Assumes.** Calls block and may use all CPUs allowed ([`bound_threads`]): keep them off an async executor.
//! Deleting is two things here: [`Repository::delete`] asks for it, a later [`Repository::list`] proves it.

mod error;
pub mod kopia;
mod location;
mod lock;
mod request;
pub mod restic;
mod restored;

pub use error::{EngineError, ErrorClass};
pub use location::{Bucket, Keys, Location};
pub use restored::{Existing, Meter, RestoreOptions, Restored, Unset, What};

use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Tag that says which cluster took a snapshot (`docs/design.md` 3.7).
pub const TAG_CLUSTER: &str = "holdfast-cluster";

/// Tag that says for which Snapshot object it was taken (`docs/design.md` 3.7).
pub const TAG_SNAPSHOT: &str = "holdfast-snapshot";

/// Name of the pin that [`Repository::pin`] writes where pins have names. Of all pins only this one is ever taken back.
pub const PIN: &str = "holdfast";

/// Tag that says the same where they have none: without it, a protection against removal is somebody else's.
pub const TAG_PIN: &str = "holdfast-pin";

/// Prefix of the tags that only Holdfast writes; a user's tag that begins with it is refused.
pub const TAG_PREFIX: &str = "holdfast-";

/// A password that shows itself to nobody: no `Display`, and `Debug` prints a placeholder.
#[derive(Clone)]
pub struct Password(String);

impl Password {
    /// Takes the text as it is; trimming is the caller's business.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the engine that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// Who and what a snapshot is of, as the repository records it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceIdentity {
    /// User name.
    pub username: String,
    /// Host name.
    pub hostname: String,
    /// Logical path such as `/pvc/data`; never the place where the mover happened to mount it.
    pub path: String,
}

/// One snapshot to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupRequest {
    /// Directory to read.
    pub read_from: PathBuf,
    /// Identity to record.
    pub source: SourceIdentity,
    /// Value of [`TAG_CLUSTER`].
    pub cluster: String,
    /// Value of [`TAG_SNAPSHOT`].
    pub snapshot_uid: String,
    /// Further tags of the user.
    pub tags: BTreeMap<String, String>,
}

/// Sizes and counts as recorded when a snapshot was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Logical size of the source in bytes.
    pub size_bytes: u64,
    /// Bytes the repository grew by (after deduplication and compression). Kopia: what the snapshot before it of
    /// the same source does not refer to; known when a snapshot was just taken, recorded nowhere.
    pub bytes_new: Option<u64>,
    /// Files not in the parent snapshot. Kopia: new or changed, it does not tell them apart.
    pub files_new: u64,
    /// Files changed since the parent. Kopia: always 0, see `files_new`.
    pub files_modified: u64,
    /// Files unchanged since the parent.
    pub files_unchanged: u64,
}

/// One snapshot as the repository has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Whole id.
    pub id: String,
    /// What it is of.
    pub source: SourceIdentity,
    /// When it was begun.
    pub start: Timestamp,
    /// When it ended, if recorded.
    pub end: Option<Timestamp>,
    /// Value of [`TAG_CLUSTER`]; contradicting tags are joined by a comma, and so equal no cluster's UID.
    pub cluster: Option<String>,
    /// Value of [`TAG_SNAPSHOT`]; contradicting tags are joined likewise.
    pub snapshot_uid: Option<String>,
    /// The repository's own record says that it is to be kept, whoever said so: a pin of Kopia, the protection against
    /// removal that rustic writes. Restic's own program has none.
    pub pinned: bool,
    /// [`Repository::pin`] said so, whoever else did.
    pub pin_is_ours: bool,
    /// What its files are, by content and in the engine's own writing: two records with one root are records of the same
    /// files. None where it is not recorded.
    pub root: Option<String>,
    /// All other tags; one without `=` has an empty value.
    pub tags: BTreeMap<String, String>,
    /// Sizes, if recorded.
    pub sizes: Option<Sizes>,
}

/// Everything a repository has at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The snapshots that could be read, by id.
    pub snapshots: Vec<SnapshotInfo>,
    /// Ids that are there but whose record could not be read. They count as present.
    pub unreadable: Vec<String>,
}

impl Listing {
    /// Whether the id is in the repository, readable or not.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.find(id).is_some() || self.unreadable.iter().any(|u| u == id)
    }

    /// The readable snapshot with this id.
    #[must_use]
    pub fn find(&self, id: &str) -> Option<&SnapshotInfo> {
        let place = self.snapshots.binary_search_by(|s| s.id.as_str().cmp(id)).ok()?;
        self.snapshots.get(place)
    }
}

/// How much a check reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// That everything a snapshot refers to is recorded and stored.
    Structure,
    /// The same, and every byte is read and proven.
    Data,
}

/// How much work reclaiming may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effort {
    /// What is cheap. Restic: packs of which nothing is needed are marked, and marked ones freed; none is rewritten. Kopia:
    /// the program's quick maintenance, which collects no contents.
    Quick,
    /// Everything.
    Full,
}

/// Who maintains a repository, where its format has a record of that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Maintainer {
    /// As recorded; empty: nobody yet.
    pub name: String,
    /// It is the name that creating a repository with this engine records: nobody was ever named on purpose.
    pub by_creation: bool,
}

/// What deleting has freed, in bytes of storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reclaimed {
    /// Found without any snapshot that needs it, and freed by a later call when the engine's safety period is over.
    /// Restic: told once, by the call that marks it. Kopia: told by every call until it is free.
    pub marked_bytes: u64,
    /// Freed by this call.
    pub freed_bytes: u64,
}

/// A program or library that speaks one repository format.
pub trait Engine: Send + Sync {
    /// Whether deletions are only safe while nobody else writes. True for Kopia (its maintenance and manifest
    /// compaction were seen to undo deletions of others); false for Restic, where one snapshot is one file.
    fn deletes_need_silence(&self) -> bool;

    /// Whether the id of a snapshot may change while it stays what it is: pinning writes a new record of it.
    fn ids_may_change(&self) -> bool;

    /// Opens an existing repository.
    ///
    /// # Errors
    /// [`ErrorClass::InvalidPassword`], [`ErrorClass::NotInitialized`] (nothing is there, positively),
    /// [`ErrorClass::Unreachable`] (it cannot be told), [`ErrorClass::Failed`].
    fn open(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError>;

    /// Creates a repository where none is, and opens it. What an interrupted creation left is replaced, where the engine
    /// can tell it; anything else in the way is refused.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when a repository or foreign files are there already,
    /// [`ErrorClass::Unreachable`] when the place cannot be read or written.
    fn initialize(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError>;

    /// [`Engine::open`] in a directory.
    ///
    /// # Errors
    /// As there.
    fn connect(&self, at: &Path, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        self.open(&at.into(), password)
    }

    /// [`Engine::initialize`] in a directory.
    ///
    /// # Errors
    /// As there.
    fn create(&self, at: &Path, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        self.initialize(&at.into(), password)
    }
}

/// An open repository.
pub trait Repository: Send {
    /// Identity of the physical repository, stable for its life.
    fn unique_id(&self) -> &str;

    /// Everything that is in the repository now, with a fresh view, sorted by id; it has also proven that the
    /// repository is still the one that was opened.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`] when any part cannot be listed, [`ErrorClass::Replaced`] when another
    /// repository has taken the place.
    fn list(&self) -> Result<Listing, EngineError>;

    /// Takes the snapshots in order and calls `taken` with the item's number after each one is committed.
    /// Stops at the first error; what was reported before stays.
    ///
    /// # Errors
    /// [`ErrorClass::SourceUnreadable`] when something in the source could not be read (no snapshot of that
    /// item is written), [`ErrorClass::Unreachable`], [`ErrorClass::Failed`].
    fn back_up(
        &mut self,
        requests: &[BackupRequest],
        taken: &mut dyn FnMut(usize, &SnapshotInfo),
    ) -> Result<(), EngineError>;

    /// Asks to delete these snapshots. An absent or repeated id is no error. Success is a claim, not a proof;
    /// after an error any part may have been deleted.
    ///
    /// # Errors
    /// Any class; look again before concluding anything.
    fn delete(&self, ids: &[String]) -> Result<(), EngineError>;

    /// Has the repository's own record say that a snapshot is to be kept, or takes back that we said so: what others
    /// wrote of it stays. Nothing is written where it is so already. The snapshot has another id afterwards, and is
    /// otherwise what it was; after a crash it may be there under both. Success is a claim: look again.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when there is no such snapshot, [`ErrorClass::Unreachable`], [`ErrorClass::Replaced`].
    fn pin(&self, id: &str, on: bool) -> Result<(), EngineError>;

    /// Writes the content of a snapshot below `to`, which is made when it is not there. Other files there stay, unless
    /// the options say otherwise. File contents are read back by nobody: compare, or check the repository.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] when there is no such snapshot or the target cannot be written,
    /// [`ErrorClass::Unreachable`]. The target may hold part of the files then.
    fn restore(
        &self,
        id: &str,
        to: &Path,
        how: &RestoreOptions,
        meter: &Meter,
    ) -> Result<Restored, EngineError>;

    /// Checks what all snapshots refer to.
    ///
    /// # Errors
    /// [`ErrorClass::Failed`] with the first thing that is not as it should be, [`ErrorClass::Unreachable`].
    fn check(&self, depth: Depth) -> Result<(), EngineError>;

    /// Frees what no snapshot refers to, within the safety margins that the engine needs beside running backups. `maintainer`
    /// is who the repository is to say maintains it; none: who creating it recorded. Nothing happens where another is
    /// recorded. Without effect where the format has no such record.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`], [`ErrorClass::Replaced`], [`ErrorClass::Failed`]; what was freed before an error
    /// is free.
    fn reclaim(&mut self, effort: Effort, maintainer: Option<&str>) -> Result<Reclaimed, EngineError>;

    /// Who maintains the repository; none: its format has no such record.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`], [`ErrorClass::Failed`].
    fn maintainer(&self) -> Result<Option<Maintainer>, EngineError>;

    /// Records who maintains it, whoever did before. Without effect where the format has no such record.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`], [`ErrorClass::Replaced`], [`ErrorClass::Failed`].
    fn set_maintainer(&mut self, name: &str) -> Result<(), EngineError>;

    /// Bytes that the repository's data takes in storage now.
    ///
    /// # Errors
    /// [`ErrorClass::Unreachable`], [`ErrorClass::Failed`].
    fn stored_bytes(&self) -> Result<u64, EngineError>;
}

/// Bounds the threads of the engines' shared pool to the CPU limit of this process (the cgroup's quota is
/// honoured), and keeps a panic in that pool from ending the process. Call once, early; later calls change
/// nothing.
pub fn bound_threads() {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        // The panic's own text is on stderr already; what it left undone is found by the callers' counts.
        .panic_handler(|_| eprintln!("a worker thread of the engine panicked"));
    if pool.build_global().is_err() {
        eprintln!("the engine's thread pool was running already; its size stays as it is");
    }
}
