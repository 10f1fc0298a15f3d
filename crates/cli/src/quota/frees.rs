//! What would free space.
//!
//! **Promises.** Deleting a Backup is never named as a way by itself where its driver deletes no bytes.

use holdfast_core::quota::{Deletion, Reason, Record, State};
use serde::Serialize;

/// Most artifacts that are named.
const NAMED: usize = 3;

/// A way to free space, its word in the JSON output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Way {
    /// Their driver has been asked, and has not said that it is done.
    WaitForDriver,
    /// Their driver failed, or says nothing.
    LookAtDriver,
    /// No Backup refers to them, and nobody will delete them.
    DeleteBytes,
    /// Their driver deletes the bytes of a deleted Backup.
    DeleteBackups,
    /// Their driver does not: first the Backups, then the bytes.
    DeleteBackupsAndBytes,
}

impl Way {
    const ALL: [Self; 5] = [
        Self::WaitForDriver,
        Self::LookAtDriver,
        Self::DeleteBytes,
        Self::DeleteBackups,
        Self::DeleteBackupsAndBytes,
    ];

    fn sentence(self) -> &'static str {
        match self {
            Self::WaitForDriver => {
                "being deleted by their driver: they are free when it says so; after a day without word they count as retained"
            }
            Self::LookAtDriver => {
                "their deletion failed, or nobody says whether it was done: look at the driver's own objects, then delete the bytes or have them written off"
            }
            Self::DeleteBytes => {
                "no Backup refers to them, and their driver deletes nothing: delete the bytes in the store (two complete listings free them), or have them written off"
            }
            Self::DeleteBackups => "Backups refer to them: delete those, and their driver deletes the bytes",
            Self::DeleteBackupsAndBytes => {
                "Backups refer to them: deleting those alone frees nothing, because their driver deletes no bytes; delete the Backups, then the bytes in the store"
            }
        }
    }

    /// What would free this record's bytes; `None`: it is not charged, or nothing would.
    pub fn of(record: &Record) -> Option<Self> {
        match record.state {
            State::PendingPurge => Some(Self::WaitForDriver),
            State::Retained => Some(match record.reason {
                Reason::PurgeFailed | Reason::PurgeUnproven => Self::LookAtDriver,
                Reason::Admitted
                | Reason::JobDeleted
                | Reason::BackupSeen
                | Reason::DeletionRequested
                | Reason::AwaitingReadBack
                | Reason::NotPurged
                | Reason::RecordOnlyDeleted
                | Reason::CapabilityUnknown
                | Reason::KeptOnPurpose
                | Reason::BackupMoved
                | Reason::NoBackupRecorded
                | Reason::Reappeared
                | Reason::PurgeProven
                | Reason::ReadBack
                | Reason::NoLongerListed
                | Reason::WrittenOff
                | Reason::NewerVersion => Self::DeleteBytes,
            }),
            State::Attributed => Some(match record.in_force.capabilities.deletion {
                Deletion::Requested | Deletion::Confirmed => Self::DeleteBackups,
                Deletion::None | Deletion::RecordOnly | Deletion::Unknown => Self::DeleteBackupsAndBytes,
            }),
            State::InFlight | State::Released | State::WrittenOff | State::Unknown => None,
        }
    }
}

/// What one way would free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Frees {
    /// The way.
    pub way: Way,
    /// Artifacts.
    pub artifacts: u64,
    /// Their bytes, as far as they are known.
    pub bytes: i64,
    /// How many of them have no known size.
    pub unreported: u64,
    /// In words.
    pub how: &'static str,
    /// The largest.
    pub names: Vec<String>,
}

/// What would free space of these records, ways that need least first.
pub fn ways<'a>(records: impl Iterator<Item = &'a Record> + Clone) -> Vec<Frees> {
    let mut all = Vec::new();
    for way in Way::ALL {
        let mut of_way: Vec<&Record> = records
            .clone()
            .filter(|record| Way::of(record) == Some(way))
            .collect();
        if of_way.is_empty() {
            continue;
        }
        super::sums::largest_first(&mut of_way);
        let known = of_way.iter().filter_map(|record| record.size.bytes);
        all.push(Frees {
            way,
            artifacts: count(of_way.len()),
            bytes: known.fold(0_i64, i64::saturating_add),
            unreported: count(of_way.iter().filter(|record| record.size.bytes.is_none()).count()),
            how: way.sentence(),
            names: of_way
                .iter()
                .take(NAMED)
                .map(|record| record.name.clone())
                .collect(),
        });
    }
    all
}

/// As the output has it.
pub fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
