//! Verdicts, rules and reasons: the words in which a decision is told.
//!
//! **Promises.** Each reason has exactly one CamelCase word, and no two mean the same.
//!
//! **Assumes.** Words are contract once released: they are in people's alerts.

use jiff::Timestamp;

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It rides in a Job whose container may have started; the result decides.
    InFlight,
    /// There is nothing to delete: release the finalizer.
    Release(ReleaseReason),
    /// Release the finalizer and never contact the repository.
    Orphan(OrphanReason),
    /// Release the finalizer; the data stays and will be found again.
    Retain(RetainReason),
    /// Nothing can be decided yet: touch nothing.
    Wait(Wait),
    /// The breaker holds it: touch nothing until a person says so.
    Held(HeldReason),
    /// Delete the snapshot from the repository.
    Delete(DeleteReason),
}

impl Verdict {
    /// The verdict's one word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::InFlight => "InFlight",
            Self::Release(reason) => reason.reason(),
            Self::Orphan(reason) => reason.reason(),
            Self::Retain(reason) => reason.reason(),
            Self::Wait(reason) => reason.reason(),
            Self::Held(reason) => reason.reason(),
            Self::Delete(reason) => reason.reason(),
        }
    }

    /// The kind of verdict, for a metric label.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::InFlight => "InFlight",
            Self::Release(_) => "Release",
            Self::Orphan(_) => "Orphan",
            Self::Retain(_) => "Retain",
            Self::Wait(_) => "Wait",
            Self::Held(_) => "Held",
            Self::Delete(_) => "Delete",
        }
    }

    /// Whether it lets the finalizer go without deleting anything.
    #[must_use]
    pub fn keeps_data_and_ends(self) -> bool {
        match self {
            Self::Release(_) | Self::Orphan(_) | Self::Retain(_) => true,
            Self::InFlight | Self::Wait(_) | Self::Held(_) | Self::Delete(_) => false,
        }
    }

    /// Whether the snapshot is to be deleted from the repository.
    #[must_use]
    pub fn deletes(self) -> bool {
        match self {
            Self::Delete(_) => true,
            Self::InFlight
            | Self::Release(_)
            | Self::Orphan(_)
            | Self::Retain(_)
            | Self::Wait(_)
            | Self::Held(_) => false,
        }
    }

    /// Whether the breaker holds it.
    #[must_use]
    pub fn is_held(self) -> bool {
        match self {
            Self::Held(_) => true,
            Self::InFlight
            | Self::Release(_)
            | Self::Orphan(_)
            | Self::Retain(_)
            | Self::Wait(_)
            | Self::Delete(_) => false,
        }
    }

    /// What it waits for, if nothing can be decided yet.
    #[must_use]
    pub fn wait(self) -> Option<Wait> {
        match self {
            Self::Wait(wait) => Some(wait),
            Self::InFlight
            | Self::Release(_)
            | Self::Orphan(_)
            | Self::Retain(_)
            | Self::Held(_)
            | Self::Delete(_) => None,
        }
    }
}

/// Gives each variant of a reason its one word.
macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every variant, for tests and the docs.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The reason's one word: condition reason, event reason, metric label and docs anchor.
            #[must_use]
            pub fn reason(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

reasons! {
    /// Why there is nothing to delete.
    ReleaseReason {
        /// No snapshot id was ever recorded, and no mover could still record one.
        NothingRecorded => "NothingRecorded",
    }
}
reasons! {
    /// Why the repository is not contacted.
    OrphanReason {
        /// The annotation `…/skip-snapshot-cleanup`.
        Skip => "SkipSnapshotCleanup",
        /// The CRD itself is being deleted.
        ApiGoingAway => "APIGoingAway",
        /// The namespace is torn down and `onNamespaceDelete` is Orphan or unknown.
        NamespaceTerminating => "NamespaceTerminating",
        /// The namespace in which the Job would run is terminating, or the operator's is not set.
        NoPlaceToRun => "NoPlaceToRun",
        /// `deletionPolicy: Orphan`.
        Policy => "OrphanPolicy",
        /// No repository can be resolved any more.
        RepositoryUnknown => "RepositoryUnknown",
    }
}
reasons! {
    /// Why the data is kept.
    RetainReason {
        /// Effective policy Retain.
        Policy => "RetainPolicy",
        /// The schedule went with `onScheduleDelete: Retain`. Loud: a Warning event.
        ScheduleDelete => "RetainOnScheduleDelete",
        /// The policy went with `onPolicyDelete: Retain`. Loud: a Warning event.
        PolicyDelete => "RetainOnPolicyDelete",
        /// Pruned in favour of snapshots that are not in the repository, or pinned there. Loud: a Warning event.
        Unjustified => "PruneUnjustified",
        /// A run that `concurrencyPolicy: Replace` cancelled had finished all the same.
        ReplacedRun => "ReplacedRun",
        /// Another live Snapshot records the same snapshot id.
        SharedSnapshot => "SharedSnapshot",
    }
}
reasons! {
    /// Why a person has to look first.
    HeldReason {
        /// The wave is at the threshold, or was when this member was judged.
        MassDeletionBreaker => "MassDeletionBreaker",
    }
}
reasons! {
    /// Why deleting is allowed.
    DeleteReason {
        /// Freshly stamped by our own retention or history limit.
        OwnPrune => "OwnPrune",
        /// Fewer external deletions are pending than the threshold.
        BelowThreshold => "BelowThreshold",
        /// Threshold 0 on every repository object of the lane.
        BreakerDisabled => "BreakerDisabled",
        /// A recorded acknowledgement covers it.
        Acknowledged => "Acknowledged",
    }
}
reasons! {
    /// Why the live batch is withdrawn.
    Withdraw {
        /// It has not started in time.
        NotStarted => "BatchNotStarted",
        /// A member of it may no longer be deleted.
        MemberNotDeletable => "MemberNoLongerDeletable",
    }
}

/// What a member waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Another manager of the API group is alive.
    ForeignManager,
    /// The caches are not filled.
    CacheCold,
    /// Its own backup mover runs; it is stopped first.
    OwnMoverRunning,
    /// Its own backup mover's result is not recorded.
    OwnResultUnread,
    /// Whether it has a mover is not known.
    OwnMoverUnknown,
    /// The namespace for the Job cannot be read.
    PlaceUnknown,
    /// `spec.deletionPolicy` has a value of a newer version.
    PolicyUnreadable,
    /// `spec.onScheduleDelete` has a value of a newer version.
    CascadeUnreadable,
    /// The owning schedule cannot be read.
    OwnerUnknown,
    /// Whether another Snapshot records the same id is not known.
    SharingUnknown,
    /// A pending Snapshot that is held or waits records the same id.
    SharedWithPending,
    /// Its repository cannot be read now.
    RepositoryUnreadable,
    /// Its pin and its resolved repository differ, or the repository is not of this lane.
    RepositoryMismatch,
    /// Its own namespace cannot be read.
    NamespaceUnreadable,
    /// It recorded no source for the mover to compare.
    SourceNotRecorded,
    /// The repository's unique id is not known.
    RepositoryNotConnected,
    /// A repository object of the lane is suspended.
    RepositorySuspended,
    /// Deletions are paused for the whole operator.
    DeletionsPaused,
    /// The repository could not be reached; tried again then.
    RepositoryBackingOff(Timestamp),
    /// This member failed; tried again then.
    BackingOff(Timestamp),
    /// It alone does not fit a work document.
    MemberTooLarge,
    /// Waits for others to arrive, until then.
    QuietWindow(Timestamp),
    /// Another batch of the lane is live.
    BatchLive,
    /// It rides in a Job whose container has not started.
    JobNotStarted,
    /// It is bound to a batch that is being withdrawn.
    Withdrawing,
    /// As many batch Jobs as allowed run in the cluster.
    JobCapReached,
    /// Others write to the repository, whose deletions need silence; it fires then at the latest.
    WritersRunning(Timestamp),
    /// Writers that the last batch held back go first, until then at the latest.
    WritersFirst(Timestamp),
    /// A maintenance or a pin Job runs on the repository; no delete Job ever runs beside one.
    MaintenanceRunning,
    /// It is eligible, and rides in a later batch.
    NextBatch,
    /// It is eligible, but rides alone, in a later batch: it has no pin, or no mover survived it.
    RidesAlone,
}

impl Wait {
    /// The reason's one word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::ForeignManager => "ForeignManager",
            Self::CacheCold => "CacheNotSynced",
            Self::OwnMoverRunning => "OwnMoverRunning",
            Self::OwnResultUnread => "OwnResultUnread",
            Self::OwnMoverUnknown => "OwnMoverUnknown",
            Self::PlaceUnknown => "PlaceUnknown",
            Self::PolicyUnreadable => "PolicyUnreadable",
            Self::CascadeUnreadable => "CascadeUnreadable",
            Self::OwnerUnknown => "OwnerUnknown",
            Self::SharingUnknown => "SharingUnknown",
            Self::SharedWithPending => "SharedWithPending",
            Self::RepositoryUnreadable => "RepositoryUnreadable",
            Self::RepositoryMismatch => "RepositoryMismatch",
            Self::NamespaceUnreadable => "NamespaceUnreadable",
            Self::SourceNotRecorded => "SourceNotRecorded",
            Self::RepositoryNotConnected => "RepositoryNotConnected",
            Self::RepositorySuspended => "RepositorySuspended",
            Self::DeletionsPaused => "DeletionsPaused",
            Self::RepositoryBackingOff(_) => "RepositoryBackingOff",
            Self::BackingOff(_) => "BackingOff",
            Self::MemberTooLarge => "MemberTooLarge",
            Self::QuietWindow(_) => "QuietWindow",
            Self::BatchLive => "BatchLive",
            Self::JobNotStarted => "JobNotStarted",
            Self::Withdrawing => "Withdrawing",
            Self::JobCapReached => "JobCapReached",
            Self::WritersRunning(_) => "WritersRunning",
            Self::WritersFirst(_) => "WritersFirst",
            Self::MaintenanceRunning => "MaintenanceRunning",
            Self::NextBatch => "NextBatch",
            Self::RidesAlone => "RidesAlone",
        }
    }
}

/// The rule that decided (`docs/design.md` 3.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Before all: another manager is alive, or the caches are cold.
    Lane,
    /// Before rule 1: a container may have started.
    InFlight,
    /// Rule 1.
    Skip,
    /// Rule 2.
    ApiGoingAway,
    /// Rule 3.
    NothingRecorded,
    /// Rule 4.
    Namespace,
    /// Rule 5.
    OwnStamp,
    /// Rule 6.
    ScheduleGuard,
    /// Rule 7.
    Policy,
    /// Rule 8.
    SharedOrUnknown,
    /// Rule 9.
    Breaker,
}

impl Rule {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lane => "Lane",
            Self::InFlight => "InFlight",
            Self::Skip => "SkipAnnotation",
            Self::ApiGoingAway => "APIGoingAway",
            Self::NothingRecorded => "NothingRecorded",
            Self::Namespace => "NamespaceTeardown",
            Self::OwnStamp => "OwnStamp",
            Self::ScheduleGuard => "ScheduleGuard",
            Self::Policy => "DeletionPolicy",
            Self::SharedOrUnknown => "SharedOrUnknown",
            Self::Breaker => "MassDeletionBreaker",
        }
    }

    /// Its number in `docs/design.md` 3.3; 0 for what comes before rule 1.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Lane | Self::InFlight => 0,
            Self::Skip => 1,
            Self::ApiGoingAway => 2,
            Self::NothingRecorded => 3,
            Self::Namespace => 4,
            Self::OwnStamp => 5,
            Self::ScheduleGuard => 6,
            Self::Policy => 7,
            Self::SharedOrUnknown => 8,
            Self::Breaker => 9,
        }
    }
}
