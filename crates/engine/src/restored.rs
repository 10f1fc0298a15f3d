//! What a restore is told, how far it is, and what it could not do.
//!
//! **Promises.** What the snapshot has and the target could not be given (an owner, a mode, an extended attribute) is
//! told file by file, where the engine can tell; file contents are written whole or the restore fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What becomes of files that are in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Those that the snapshot has too are replaced.
    Replace,
    /// They stay as they are.
    Keep,
    /// One that the snapshot has too ends the restore: nothing was there when it began. Looked at before anything is
    /// written (restic's format), or file by file (Kopia).
    Refuse,
}

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestoreOptions {
    /// What becomes of files that are in the target.
    pub existing: Existing,
    /// Files that the snapshot does not have are deleted. Not together with [`Existing::Keep`].
    pub delete_others: bool,
    /// Owners are restored.
    pub owners: bool,
    /// Runs of zeros take no room. Only into a target without files: what is there is not overwritten with zeros.
    pub sparse: bool,
    /// What may not be set ends the restore, where the engine cannot say afterwards what was not set (Kopia). The others
    /// go on and say it.
    pub all_or_fail: bool,
}

impl Default for RestoreOptions {
    fn default() -> Self {
        Self {
            existing: Existing::Replace,
            delete_others: false,
            owners: true,
            sparse: false,
            all_or_fail: false,
        }
    }
}

/// How far a restore is; cheap to clone, read from another thread.
#[derive(Debug, Clone, Default)]
pub struct Meter(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    total: AtomicU64,
    done: AtomicU64,
}

impl Meter {
    /// Bytes there will be; 0 while unknown.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Relaxed)
    }

    /// Bytes written.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }

    pub(crate) fn set_total(&self, bytes: u64) {
        self.0.total.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.0.done.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What was restored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restored {
    /// Files of the snapshot, links among them.
    pub files: u64,
    /// Their logical bytes.
    pub bytes: u64,
    /// What could not be set; `None` when the engine cannot tell.
    pub unset: Option<Vec<Unset>>,
}

/// One thing of a file that is not as the snapshot has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unset {
    /// The path below the target.
    pub path: String,
    /// What of it.
    pub what: What,
}

/// What could not be set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Owner and group, as the snapshot has them.
    Owner(u32, u32),
    /// Mode, as the snapshot has it.
    Mode(u32),
    /// Time of change.
    Time,
    /// Extended attribute of this name.
    Xattr(String),
    /// It is a device, a socket or the like, and is not there.
    Special,
}

impl What {
    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Owner(user, group) => format!("owner {user}:{group}"),
            Self::Mode(mode) => format!("mode {mode:04o}"),
            Self::Time => "time of change".to_owned(),
            Self::Xattr(name) => format!("extended attribute {name}"),
            Self::Special => "special file".to_owned(),
        }
    }
}
