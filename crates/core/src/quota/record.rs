//! What is remembered of one thing that occupies storage, or of a run that may come to (`docs/design.md` 4.1).
//!
//! **Promises.** A size grows by a claim at once and shrinks only by a measurement. Every state has a named reason.
//!
//! **Assumes.** Sizes that Backups claim are anybody's who may write Backups: they are bounded, and negative ones are
//! unknown.

use super::amount::LARGEST;
use super::capability::InForce;
use super::identity::{Identity, StrategyKind};
use super::words;
use jiff::Timestamp;
use std::collections::BTreeMap;

words! {
    /// Where a record is in its life.
    State {
        /// A run was admitted; the gate counts it beside what is used.
        InFlight => "InFlight",
        /// A Backup refers to it. Charged.
        Attributed => "Attributed",
        /// Its Backups are gone and its deletion was asked for. Charged.
        PendingPurge => "PendingPurge",
        /// Its Backups are gone and its bytes are not. Charged.
        Retained => "Retained",
        /// Its bytes are gone. Not charged.
        Released => "Released",
        /// An administrator decided not to charge it.
        WrittenOff => "WrittenOff",
        /// Written by a newer version: charged, and never touched.
        Unknown => "Unknown",
    }
}

impl State {
    /// Whether it counts as used.
    #[must_use]
    pub fn is_charged(self) -> bool {
        match self {
            Self::Attributed | Self::PendingPurge | Self::Retained | Self::Unknown => true,
            Self::InFlight | Self::Released | Self::WrittenOff => false,
        }
    }
}

words! {
    /// Why a record is in its state.
    Reason {
        /// InFlight: its BackupJob was admitted and no Backup records a result.
        Admitted => "Admitted",
        /// InFlight: its BackupJob was deleted, the run goes on.
        JobDeleted => "JobDeleted",
        /// Attributed: a Backup refers to it.
        BackupSeen => "BackupSeen",
        /// PendingPurge: the driver was asked to delete it.
        DeletionRequested => "DeletionRequested",
        /// PendingPurge: it was deleted, and that is to be read back.
        AwaitingReadBack => "AwaitingReadBack",
        /// Retained: its driver deletes nothing when a Backup goes.
        NotPurged => "NotPurged",
        /// Retained: its driver deletes its own record only.
        RecordOnlyDeleted => "RecordOnlyDeleted",
        /// Retained: nobody says what its driver does.
        CapabilityUnknown => "CapabilityUnknown",
        /// Retained: the object was let go and the data kept.
        KeptOnPurpose => "KeptOnPurpose",
        /// Retained: deleting it failed.
        PurgeFailed => "PurgeFailed",
        /// Retained: nobody said within a day how deleting it came out.
        PurgeUnproven => "PurgeUnproven",
        /// Retained: its last Backup names another place now.
        BackupMoved => "BackupMoved",
        /// Retained: a run succeeded, or was never seen to end, and no Backup records what it wrote.
        NoBackupRecorded => "NoBackupRecorded",
        /// Attributed or Retained: a listing found again what counted as gone.
        Reappeared => "Reappeared",
        /// Released: its driver deleted it.
        PurgeProven => "PurgeProven",
        /// Released: the place was read back and does not have it any more.
        ReadBack => "ReadBack",
        /// Released: two complete listings in a row did not have it any more.
        NoLongerListed => "NoLongerListed",
        /// WrittenOff: an administrator said so.
        WrittenOff => "WrittenOff",
        /// Unknown: written by a newer version.
        NewerVersion => "NewerVersion",
    }
}

impl Reason {
    /// The reason as a sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Admitted => "the BackupJob was admitted and no Backup records a result yet",
            Self::JobDeleted => "the BackupJob was deleted, but its run goes on",
            Self::BackupSeen => "a Backup refers to it",
            Self::DeletionRequested => {
                "its last Backup was deleted and its driver was asked to delete the bytes; charged until it says that it did"
            }
            Self::AwaitingReadBack => {
                "its last Backup was deleted and the bytes with it; charged until that has been read back"
            }
            Self::NotPurged => "its last Backup was deleted, which deletes no bytes with this driver",
            Self::RecordOnlyDeleted => {
                "its last Backup was deleted, which deletes only the driver's own record"
            }
            Self::CapabilityUnknown => {
                "its last Backup was deleted, and nobody says whether this driver deletes bytes: declare it on the strategy"
            }
            Self::KeptOnPurpose => "its last Backup was let go and the data was kept",
            Self::PurgeFailed => {
                "deleting the bytes failed: look at the driver, then delete them or write the record off"
            }
            Self::PurgeUnproven => {
                "nobody said within a day whether the bytes were deleted: look at the driver, then write the record off"
            }
            Self::BackupMoved => "its last Backup refers to another place now",
            Self::NoBackupRecorded => {
                "a run succeeded, or its BackupJob was deleted and nobody saw it fail, and no Backup records what it wrote: \
                 delete the bytes if there are any, then write the record off"
            }
            Self::Reappeared => "a listing found it again after it had counted as gone",
            Self::PurgeProven => "its driver says that the bytes are deleted",
            Self::ReadBack => "the place was read back and does not have it any more",
            Self::NoLongerListed => "two complete listings in a row did not have it any more",
            Self::WrittenOff => "an administrator decided that it is not charged",
            Self::NewerVersion => "written by a newer version of Holdfast: it is charged and left alone",
        }
    }
}

words! {
    /// Why a record goes.
    RemoveReason {
        /// The run's Backup is recorded.
        Recorded => "Recorded",
        /// The run failed.
        RunFailed => "RunFailed",
        /// The driver's own object says that the run failed.
        RunOver => "RunOver",
        /// The run was a pod of the BackupJob, which is gone.
        DiedWithJob => "DiedWithJob",
        /// The driver's deadline, or a day, has passed.
        DeadlinePassed => "DeadlinePassed",
        /// No controller took the BackupJob up within a day.
        NeverTakenUp => "NeverTakenUp",
        /// The run succeeded without a Backup of its own; what it wrote has a record now, or had one.
        Replaced => "Replaced",
        /// It was released a week ago and nothing refers to it.
        Forgotten => "Forgotten",
    }
}

words! {
    /// Who says how large something is.
    SizeSource {
        /// A Backup's status.
        Claim => "claim",
        /// A listing.
        Measured => "measured",
        /// Nobody.
        Unknown => "unknown",
    }
}

/// How large something is, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// What is charged, in bytes; `None` is unknown and never zero.
    pub bytes: Option<i64>,
    /// Who says so.
    pub source: SizeSource,
}

impl Size {
    /// Nobody says.
    pub const UNKNOWN: Self = Self {
        bytes: None,
        source: SizeSource::Unknown,
    };

    /// What a Backup's `sizeBytes` is worth: zero and absent mean unknown, negative is unknown, and nothing is more
    /// than a quota can hold.
    #[must_use]
    pub fn claim(raw: Option<i64>) -> Option<i64> {
        raw.filter(|bytes| *bytes > 0).map(|bytes| bytes.min(LARGEST))
    }

    /// With a claim that was not made before: it grows at once, and never shrinks.
    #[must_use]
    pub fn with_claim(self, claim: i64) -> Self {
        if self.bytes.is_some_and(|bytes| claim <= bytes) {
            return self;
        }
        Self {
            bytes: Some(claim),
            source: SizeSource::Claim,
        }
    }

    /// As it was measured, which counts in both directions.
    #[must_use]
    pub fn measured(bytes: i64) -> Self {
        Self {
            bytes: Some(bytes.clamp(0, LARGEST)),
            source: SizeSource::Measured,
        }
    }
}

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A run that was admitted.
    Run {
        /// Namespace of its BackupJob.
        namespace: String,
        /// Its strategy, if the BackupClass could be resolved.
        strategy: Option<StrategyKind>,
    },
    /// Something in storage.
    Artifact(Identity),
}

impl Subject {
    /// The namespace that is charged.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Run { namespace, .. } => namespace,
            Self::Artifact(identity) => &identity.namespace,
        }
    }

    /// The strategy, if it is known.
    #[must_use]
    pub fn strategy(&self) -> Option<&StrategyKind> {
        match self {
            Self::Run { strategy, .. } => strategy.as_ref(),
            Self::Artifact(identity) => Some(&identity.strategy),
        }
    }

    /// The identity of something in storage.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        match self {
            Self::Run { .. } => None,
            Self::Artifact(identity) => Some(identity),
        }
    }
}

/// What is backed up.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Application {
    /// API group, the platform's default filled in.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
}

/// A Backup that refers to a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupEntry {
    /// Name.
    pub name: String,
    /// When the API server created it; `None` only of records of an older version.
    pub created_at: Option<Timestamp>,
    /// The largest size it has claimed: only a larger one raises the charge, so that a claim which was measured does
    /// not come back.
    pub claimed: Option<i64>,
}

/// The BackupJob of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobEntry {
    /// UID, which is also the name of the run's record.
    pub uid: String,
    /// Name, which will be its Backup's too.
    pub name: String,
    /// When the API server created it.
    pub created_at: Option<Timestamp>,
}

/// When what happened, by our own clock unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// The record was first written.
    pub recorded_at: Option<Timestamp>,
    /// The run was admitted.
    pub admitted_at: Option<Timestamp>,
    /// The run began, as its BackupJob says.
    pub started_at: Option<Timestamp>,
    /// The first Backup was seen.
    pub attributed_at: Option<Timestamp>,
    /// The newest Backup was seen.
    pub last_backup_at: Option<Timestamp>,
    /// The last Backup, or the BackupJob of a run, went.
    pub deleted_at: Option<Timestamp>,
    /// It was released or written off.
    pub released_at: Option<Timestamp>,
    /// A complete listing last found it.
    pub last_seen_in_listing: Option<Timestamp>,
}

/// What complete listings of one store have seen of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListingEntry {
    /// The store.
    pub store: String,
    /// When the listing began whose answer stands here: none counts twice.
    pub judged: Timestamp,
    /// Complete listings in a row that missed it.
    pub missed: u32,
    /// A complete listing has found it.
    pub found: bool,
}

/// A record of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Name of the object.
    pub name: String,
    /// What it is about.
    pub subject: Subject,
    /// Where it is in its life.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// How large.
    pub size: Size,
    /// What its driver could do when it was written.
    pub in_force: InForce,
    /// The Backups that refer to it, by UID.
    pub backups: BTreeMap<String, BackupEntry>,
    /// What was backed up.
    pub application: Application,
    /// The run.
    pub job: Option<JobEntry>,
    /// UID of the namespace when it was last seen.
    pub namespace_uid: Option<String>,
    /// Another namespace has a record of the same place and key.
    pub shared_across_namespaces: bool,
    /// Who wrote it off.
    pub written_off_by: Option<String>,
    /// When what happened.
    pub times: Times,
    /// What listings have seen of it.
    pub listing: Option<ListingEntry>,
}

impl Record {
    /// The namespace that is charged.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.subject.namespace()
    }

    /// The same record in another state.
    #[must_use]
    pub fn moved(&self, state: State, reason: Reason) -> Self {
        Self {
            state,
            reason,
            ..self.clone()
        }
    }
}
