//! What is to be done for one lane: the answer of [`crate::deletion::wave()`].
//!
//! **Promises.** One [`Decision`] for each member, each with the rule that made it and a reason whose one word is
//! the same everywhere. At most one batch fires, none while another is live.
//!
//! **Assumes** that it is applied in this order, and that a failed step ends the pass (the next plan starts over):
//! 1. for each repository: record or forget the acknowledgement, then *raise* the latch (`heldThrough`);
//! 2. members: mark held ones (one event per transition), write `DeletionBlocked`, release finalizers;
//! 3. withdraw the live batch, or fire: read live, plan again, [`Plan::confirm`], claim, create;
//! 4. clear the latch, write the repositories' conditions.

use super::facts::{RecordedAcknowledgement, RepositoryKey};
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The plan for one lane at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// One for each member of the lane, oldest deletion first, ties by UID.
    pub decisions: Vec<Decision>,
    /// One for each repository object of the lane, in the order of their keys.
    pub repositories: Vec<RepositoryPlan>,
    /// The batch to fire now.
    pub fire: Option<Batch>,
    /// The live batch must be withdrawn (Foreground deletion, until no pod is left) for this reason.
    pub withdraw: Option<Withdraw>,
    /// The earliest moment at which the answer could change by time alone, or at which something unknown is
    /// worth reading again. Always after the plan's `now`.
    pub wake_at: Option<Timestamp>,
}

impl Plan {
    /// The decision on one member.
    #[must_use]
    pub fn decision(&self, uid: &str) -> Option<&Decision> {
        self.decisions.iter().find(|decision| decision.uid == uid)
    }

    /// Whether nothing has to be written, released, withdrawn or created.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.fire.is_none()
            && self.withdraw.is_none()
            && self.repositories.iter().all(RepositoryPlan::is_settled)
            && self
                .decisions
                .iter()
                .all(|d| !d.releases() && d.held_change == HeldChange::Keep)
    }
}

/// What is decided about one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// UID of the member.
    pub uid: String,
    /// What becomes of it.
    pub verdict: Verdict,
    /// The rule of `docs/design.md` 3.3 that matched.
    pub rule: Rule,
    /// Why the verdict is not acted on in this plan; `None`: act now (a Delete without it rides in `fire`).
    pub not_yet: Option<Wait>,
    /// What to do with the condition `DeletionHeld`.
    pub held_change: HeldChange,
}

impl Decision {
    /// The finalizer is to be released now, without deleting anything.
    #[must_use]
    pub fn releases(&self) -> bool {
        self.not_yet.is_none()
            && match self.verdict {
                Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) => true,
                Verdict::InFlight | Verdict::Wait(_) | Verdict::Held(_) | Verdict::Delete(_) => false,
            }
    }

    /// What it waits for, to be written as `DeletionBlocked`; none for an end, for a held member (`DeletionHeld`
    /// is the breaker's alone) and for one that rides.
    #[must_use]
    pub fn waits_for(&self) -> Option<Wait> {
        match self.verdict {
            Verdict::Wait(wait) => Some(wait),
            Verdict::Held(_) | Verdict::InFlight => None,
            Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) | Verdict::Delete(_) => {
                self.not_yet
            }
        }
    }

    /// The word for condition, event, metric and docs: what it waits for if it waits, else the verdict's.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.waits_for()
            .map_or_else(|| self.verdict.reason(), Wait::reason)
    }
}

/// What to do with a member's condition `DeletionHeld`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeldChange {
    /// It is right as it is (the message may be refreshed, without an event).
    Keep,
    /// Set it to True, with the event `SnapshotDeletionHeld`. Only after the latch is recorded.
    Set,
    /// The member rides: set it to False with this reason.
    Clear(DeleteReason),
}

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

    /// Whether it lets the finalizer go without deleting.
    #[must_use]
    pub fn keeps_data_and_ends(self) -> bool {
        match self {
            Self::Release(_) | Self::Orphan(_) | Self::Retain(_) => true,
            Self::InFlight | Self::Wait(_) | Self::Held(_) | Self::Delete(_) => false,
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
    /// It is eligible, and rides in a later batch.
    NextBatch,
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
            Self::NextBatch => "NextBatch",
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

/// What is to be written to one repository object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryPlan {
    /// Which object.
    pub key: RepositoryKey,
    /// What to do with `status.deletionProtection.acknowledgement`.
    pub acknowledgement: AcknowledgementChange,
    /// The annotation is not an RFC 3339 time: event `InvalidMassDeletionAck`, the breaker stays armed.
    pub invalid_acknowledgement: Option<String>,
    /// What to do with `status.deletionProtection.heldThrough`.
    pub held_through: LatchChange,
    /// The lane's threshold: the smallest that is not 0; 0 if the breaker is off. `None` while the caches are
    /// cold or another manager is alive: then no condition is written either.
    pub threshold: Option<u32>,
    /// Pending deletions of the lane that count against the threshold.
    pub count: usize,
    /// What is held on this object; none: `MassDeletionHeld` is False.
    pub hold: Option<Hold>,
}

impl RepositoryPlan {
    /// Whether neither acknowledgement nor latch has to be written.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.acknowledgement == AcknowledgementChange::Keep && self.held_through == LatchChange::Keep
    }

    /// Status and reason of the condition `MassDeletionHeld`; none: leave it as it is.
    #[must_use]
    pub fn condition(&self) -> Option<(bool, &'static str)> {
        self.threshold?;
        Some(if self.hold.is_some() {
            (true, "ThresholdExceeded")
        } else {
            (false, "BelowThreshold")
        })
    }
}

/// What to do with the record of an acknowledgement. It is in force only once recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcknowledgementChange {
    /// It is right as it is.
    Keep,
    /// Write this one, before anything depends on it.
    Record(RecordedAcknowledgement),
    /// The annotation is gone or unreadable: remove the record.
    Forget,
}

/// What to do with the latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LatchChange {
    /// It is right as it is.
    Keep,
    /// Write this time before the first member is marked.
    Raise(Timestamp),
    /// No latched member is pending: remove it, last.
    Clear,
}

/// What a repository object holds back: the stuff of conditions and messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Members held that belong to this object.
    pub held: usize,
    /// The newest deletion time among them: the value to acknowledge.
    pub newest: Timestamp,
    /// Namespaces of the held members, with how many each.
    pub namespaces: BTreeMap<String, usize>,
    /// Since when.
    pub since: Timestamp,
}

/// A batch that may become one Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The repository object all members belong to.
    pub repository: RepositoryKey,
    /// UIDs, oldest deletion first, ties by UID; never empty.
    pub members: Vec<String>,
    /// Name of the Job, at most 63 characters; the same set has the same name.
    pub job_name: String,
}
