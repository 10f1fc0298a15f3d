//! What a decision rests on: the facts about one lane, its repository objects and its pending members.
//!
//! **Promises.** Every fact that can be unknown has a value that says so, and that value never makes a deletion
//! more likely.
//!
//! **Assumes.** Deletion times are the API server's, cut to whole seconds; all other times are our own clock.

use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;
use std::fmt;

/// The pending deletions of one physical repository, and the repository objects that share it
/// (`docs/design.md` 3.1). A lane without any repository object holds members that resolve to none: they can
/// only be released, orphaned or wait.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lane {
    /// The repository objects with this physical unique id. An object whose id is unknown is a lane of its own.
    pub repositories: Vec<RepositoryFacts>,
    /// Every Snapshot that is being deleted, still carries our finalizer, and belongs here.
    pub members: Vec<MemberFacts>,
    /// Members without a pin that may still resolve to this lane but are decided in another one: they count
    /// here (`docs/design.md` 3.4) and get no [`crate::deletion::Decision`].
    pub unplaced: Vec<MemberFacts>,
    /// The batch Job of this lane that is not yet reaped, if any.
    pub live: Option<LiveBatch>,
    /// What the lane itself remembers of a hold, beside its repository objects.
    pub latch: Option<LaneLatch>,
    /// External deletions that batches of the last day fired without an acknowledgement, each at most once. Only read
    /// when an object of the lane has a [`SlidingWindow`].
    pub fired: Vec<Fired>,
    /// Whether every cache these facts come from has been filled once.
    pub cache: Cache,
    /// Another manager of this API group is alive: nothing is decided (`docs/design.md` 3.8).
    pub foreign_manager: bool,
    /// The CRD of Snapshot itself is being deleted (`docs/design.md` 3.3 rule 2).
    pub api_going_away: bool,
    /// Most members of the next batch, where delete Jobs ended without an answer ([`crate::deletion::split`]).
    pub most_members: Option<usize>,
    /// Who else writes to the repository; none: its engine does not mind ([`crate::deletion::silence`]).
    pub writers: Option<super::silence::Writers>,
    /// A maintenance Job is live: no batch fires beside it, whatever the engine ([`crate::maintenance`]).
    pub maintenance: bool,
    /// Batch Jobs alive in the whole cluster, those of other lanes included; only read when a cap is set.
    pub live_jobs_in_cluster: u32,
}

/// A lane's own memory while something in it is latched (`docs/design.md` 3.4): a repository object that is deleted
/// takes neither the latch nor its threshold with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LaneLatch {
    /// The newest deletion time judged held on any object of the lane, gone ones included.
    pub held_through: Option<Timestamp>,
    /// The threshold of each object of the lane, gone ones included.
    pub thresholds: BTreeMap<RepositoryKey, u32>,
}

/// One external deletion that a batch fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// UID of the Snapshot.
    pub uid: String,
    /// When its batch was created, by our own clock.
    pub at: Timestamp,
}

/// `spec.deletionProtection.slidingWindow`: the breaker also counts what was fired lately (`docs/design.md` 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlidingWindow {
    /// How far back fired deletions count; at most a day, because no longer is remembered.
    pub duration: SignedDuration,
    /// Pending and fired ones together are held from here on; at least 1.
    pub threshold: u32,
}

/// Whether the caches have been filled. A cold cache is unknown, never zero (`docs/design.md` 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Cache {
    /// Every watch the facts come from has delivered its first list.
    Synced,
    /// At least one has not.
    #[default]
    Cold,
}

/// Names one repository object. Two of the same name in different namespaces, or of different kinds, differ.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RepositoryKey {
    /// The namespaced kind.
    Repository {
        /// Namespace of the object.
        namespace: String,
        /// Name of the object.
        name: String,
    },
    /// The cluster-scoped kind.
    ClusterRepository {
        /// Name of the object.
        name: String,
    },
}

impl RepositoryKey {
    /// The kind as a manifest spells it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Repository { .. } => "Repository",
            Self::ClusterRepository { .. } => "ClusterRepository",
        }
    }

    /// The namespace; none for the cluster-scoped kind.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::Repository { namespace, .. } => Some(namespace),
            Self::ClusterRepository { .. } => None,
        }
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Repository { name, .. } | Self::ClusterRepository { name } => name,
        }
    }
}

impl fmt::Display for RepositoryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repository { namespace, name } => write!(f, "repository {namespace}/{name}"),
            Self::ClusterRepository { name } => write!(f, "clusterrepository {name}"),
        }
    }
}

/// Facts about one Repository or ClusterRepository object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryFacts {
    /// Which object.
    pub key: RepositoryKey,
    /// `spec.deletionProtection.threshold`; absent means [`crate::deletion::Settings::default_threshold`], 0 switches the
    /// breaker off (for the lane only when every object of it says 0).
    pub threshold: Option<u32>,
    /// `spec.deletionProtection.slidingWindow`.
    pub sliding_window: Option<SlidingWindow>,
    /// `spec.onNamespaceDelete`.
    pub on_namespace_delete: OnNamespaceDelete,
    /// `spec.suspend`. One suspended object stops the whole lane: it is one physical repository.
    pub suspend: bool,
    /// `status.uniqueId` is known. Until then nothing fires (`docs/design.md` 3.1).
    pub connected: bool,
    /// The annotation `…/allow-mass-deletion` as written, unparsed.
    pub acknowledgement: Option<String>,
    /// `status.deletionProtection.acknowledgement`.
    pub recorded_acknowledgement: Option<RecordedAcknowledgement>,
    /// `status.deletionProtection.invalidAcknowledgement`: a value that was refused, and stays so.
    pub refused_acknowledgement: Option<String>,
    /// `status.deletionProtection.heldThrough`: the latch.
    pub held_through: Option<Timestamp>,
    /// No Job before this moment: it could not start or connect (`docs/design.md` 3.6).
    pub backoff_until: Option<Timestamp>,
}

/// `status.deletionProtection.acknowledgement`: what an acknowledgement was clamped to when first seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAcknowledgement {
    /// The annotation's value, to the letter.
    pub value: String,
    /// Deletions up to and including this moment are released.
    pub effective: Timestamp,
    /// When the value was first seen.
    pub seen_at: Timestamp,
}

/// `spec.onNamespaceDelete` of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OnNamespaceDelete {
    /// Keep the data of Snapshots whose namespace is torn down.
    Orphan,
    /// The teardown was opted into: the breaker still applies.
    Delete,
    /// Not readable, or a value of a newer version: as Orphan.
    Unknown,
}

/// Facts about one Snapshot that is being deleted (`docs/design.md` 3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberFacts {
    /// UID of the object.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `metadata.deletionTimestamp`.
    pub deleted_at: Timestamp,
    /// When this operator first saw it deleting, by its own clock. Starts the quiet window.
    pub first_seen: Timestamp,
    /// The annotation `…/skip-snapshot-cleanup` is present, whatever its value.
    pub skip: bool,
    /// The annotation `…/pruned-by`.
    pub stamp: Stamp,
    /// The annotation `…/pruned-at`, when readable.
    pub pruned_at: Option<Timestamp>,
    /// The stamp was written to the already deleting, unheld object by the pass that would have pruned it
    /// (upgrade, `docs/design.md` 3.7); it counts however old the deletion is, and never ends a latch.
    pub restamped: bool,
    /// What becomes of the data: [`crate::deletion::guard::effective_policy`], not `spec.deletionPolicy`.
    pub policy: Policy,
    /// What the schedule's end means for the data: [`crate::deletion::guard::effective_cascade`], not
    /// `spec.onScheduleDelete`.
    pub cascade: Cascade,
    /// The SnapshotSchedule that owns it.
    pub owner: Owner,
    /// Its own namespace.
    pub namespace_state: NamespaceState,
    /// `status.resolved.repository`.
    pub pin: Option<RepositoryKey>,
    /// Where it belongs: the pin if there is one, else the live resolution through its policy.
    pub repository: Resolution,
    /// `status.snapshot` with source and start time.
    pub snapshot: Option<RecordedSnapshot>,
    /// Whether another Snapshot that is not being deleted records the same id (discovered rows apart).
    pub sharing: Sharing,
    /// Its own backup mover.
    pub mover: OwnMover,
    /// Its condition `DeletionHeld`: the second witness of a latch.
    pub held: HeldCondition,
    /// The namespace in which its delete Job would run. Only looked at once the repository is resolved.
    pub place: Place,
    /// `status.deletion.attempts`: failed tries of this member.
    pub attempts: u32,
    /// `status.deletion.nextAttemptAt`.
    pub next_attempt_at: Option<Timestamp>,
    /// No delete Job that carried it ever answered: it rides alone ([`crate::deletion::split`]).
    pub rides_alone: bool,
    /// Bytes this member adds to the work document.
    pub document_bytes: usize,
}

/// `…/pruned-by`: who asked for the deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stamp {
    /// No stamp: external.
    None,
    /// Our retention.
    Retention,
    /// Our retention, but what it kept instead is not in the repository (`docs/design.md` 3.7): the prune is void.
    Unjustified,
    /// Our limit on failed runs.
    FailedHistory,
    /// Our own deletion of the children of a SnapshotPolicy that went with `onPolicyDelete: Retain`.
    PolicyCascade,
    /// Our own deletion of a run that concurrency `Replace` cancelled.
    ReplacedRun,
    /// A value we do not know: external.
    Unknown,
}

impl Stamp {
    /// Reads the annotation's value. Whatever is not exactly one of ours is external. Whether a prune is void is not
    /// in it: that is in the member's status.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Self {
        match value {
            None => Self::None,
            Some("retention") => Self::Retention,
            Some("failed-history") => Self::FailedHistory,
            Some("policy-cascade") => Self::PolicyCascade,
            Some("replaced-run") => Self::ReplacedRun,
            Some(_) => Self::Unknown,
        }
    }
}

/// What a deletion means for the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Delete the snapshot from the repository.
    Delete,
    /// Keep it and let the object go.
    Retain,
    /// Keep it, never contact the repository, let the object go.
    Orphan,
    /// A value of a newer version: hold, touch nothing.
    Unknown,
}

/// `spec.onScheduleDelete`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cascade {
    /// The schedule's deletion does not delete data. Also when absent.
    Retain,
    /// It does; the breaker applies.
    Delete,
    /// A value of a newer version: hold, touch nothing.
    Unknown,
}

/// The owning SnapshotSchedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Owner {
    /// No owner reference to a SnapshotSchedule (others do not count).
    None,
    /// It exists with the recorded UID and is not being deleted.
    Alive,
    /// It does not exist.
    Gone,
    /// One of the same name with another UID exists.
    Replaced,
    /// It is being deleted.
    Terminating,
    /// It could not be read.
    Unknown,
}

/// State of a member's own namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NamespaceState {
    /// It exists and is not being deleted.
    Live,
    /// It is confirmed to be terminating.
    Terminating,
    /// It could not be read: counts, never fires.
    Unreadable,
}

/// Whether a member's repository object is known.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// It is this one; equal to the pin when there is a pin.
    Resolved(RepositoryKey),
    /// It is proven that none can be resolved any more.
    Gone,
    /// It could not be read now.
    Unreadable,
}

/// What a Snapshot recorded about its snapshot in the repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordedSnapshot {
    /// `status.snapshot.kopiaSnapshotID`.
    pub id: String,
    /// Its source, `username@hostname:path`. Without it the mover could not check what it deletes: no firing.
    pub source: Option<String>,
    /// Its start time, when recorded.
    pub start: Option<Timestamp>,
}

/// Whether another live Snapshot records the same snapshot id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// No other does.
    Alone,
    /// This one does (`namespace/name`).
    WithLive(String),
    /// Not known now.
    Unknown,
}

/// The Snapshot's own backup mover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OwnMover {
    /// No Job of this UID, or its result has been recorded.
    None,
    /// A Job is running.
    Running,
    /// A Job has ended and its result has not been recorded.
    Unread,
    /// Not known now.
    Unknown,
}

/// The condition `DeletionHeld` on a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeldCondition {
    /// Absent, or status False.
    NotHeld,
    /// Status True.
    Held {
        /// Its last transition.
        since: Timestamp,
    },
    /// Any other status: counts as held.
    Unreadable,
}

/// The namespace in which a delete Job would run: the Repository's, or the operator's for a ClusterRepository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// It exists and is not terminating.
    Fine,
    /// It is terminating: no Job can be created there.
    Terminating,
    /// It could not be read now.
    Unknown,
    /// The operator's own namespace is not configured.
    NotSet,
}

/// The batch Job a lane has. It stays live until every member's outcome is recorded and it is reaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveBatch {
    /// Name of the Job.
    pub job: String,
    /// The repository object it works for.
    pub repository: RepositoryKey,
    /// UIDs of its members.
    pub members: Vec<String>,
    /// A container of it may have started. Unknown counts as started.
    pub started: bool,
    /// When it was created, by the API server's clock.
    pub created_at: Timestamp,
}
