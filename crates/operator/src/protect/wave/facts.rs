//! From what the API server says to what the decision reads: pure translations.
//!
//! **Promises.** What cannot be told becomes the value that says so, never the one that deletes. Nothing here asks
//! a clock or the API server.
//!
//! **Assumes.** The world is synced; a caller that is not sure of an absence passes what it is sure of.

use super::{justified, member};
use crate::world::NamespaceKnown;
use crate::world::keys::LaneKey;
use crate::world::views::{JobView, RepositoryView, ScheduleView, SnapshotView};
use holdfast_api::shared::{CascadePolicy, DeletionPolicy, NamespaceDeletePolicy, Origin, duration};
use holdfast_api::{conditions, names};
use holdfast_core::deletion::guard::{self, effective_cascade, effective_policy};
use holdfast_core::deletion::{
    Cascade, HeldCondition, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover, Owner, Place, Policy,
    RecordedAcknowledgement, RecordedSnapshot, RepositoryFacts, Resolution, Sharing, SlidingWindow, Stamp,
};
use holdfast_protocol::work::BatchMember;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::sync::Arc;

/// What is known around a Snapshot, beside the object itself.
#[derive(Debug, Clone)]
pub struct Around {
    /// When this process first saw it deleting.
    pub first_seen: Timestamp,
    /// The schedule that owns it.
    pub owner: Owner,
    /// What that schedule says about the data, where there is one to ask.
    pub schedule_says: Option<Cascade>,
    /// Its namespace.
    pub namespace: NamespaceState,
    /// Where it belongs.
    pub repository: Resolution,
    /// Who else records the same snapshot.
    pub sharing: Sharing,
    /// Its own backup Job.
    pub mover: OwnMover,
    /// Where its delete Job would run.
    pub place: Place,
}

/// Facts about a pending Snapshot.
#[must_use]
pub fn member(view: &SnapshotView, around: Around) -> MemberFacts {
    let key = view.key();
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    let pruned_at: Option<Timestamp> = view.annotation(names::PRUNED_AT).and_then(|t| t.parse().ok());
    let document_bytes = batch_member(view)
        .and_then(|m| serde_json::to_string(&m).ok())
        .map_or(0, |text| text.len() + 1);
    MemberFacts {
        uid: view.uid().to_owned(),
        namespace: key.namespace,
        name: key.name,
        deleted_at: view
            .metadata
            .deletion_timestamp
            .as_ref()
            // Only pending Snapshots get here; one without a time would be the newest there is.
            .map_or(Timestamp::MAX, |t| t.0),
        first_seen: around.first_seen,
        skip: view.annotation(names::SKIP_SNAPSHOT_CLEANUP).is_some(),
        stamp: stamp(view),
        pruned_at,
        restamped: pruned_at.is_some() && deletion.and_then(|d| d.restamped_at) == pruned_at,
        policy: policy(view),
        cascade: effective_cascade(view.spec.on_schedule_delete.map(cascade), around.schedule_says),
        owner: around.owner,
        namespace_state: around.namespace,
        pin: view.pin(),
        repository: around.repository,
        snapshot: recorded(view),
        sharing: around.sharing,
        mover: around.mover,
        held: held(view),
        place: around.place,
        attempts: deletion.map_or(0, |d| d.attempts),
        next_attempt_at: deletion.and_then(|d| d.next_attempt_at),
        rides_alone: deletion.is_some_and(|d| d.outcome.as_deref() == Some(member::NO_ANSWER)),
        document_bytes,
    }
}

fn cascade(policy: CascadePolicy) -> Cascade {
    match policy {
        CascadePolicy::Retain => Cascade::Retain,
        CascadePolicy::Delete => Cascade::Delete,
        CascadePolicy::Unknown => Cascade::Unknown,
    }
}

fn stamp(view: &SnapshotView) -> Stamp {
    match Stamp::parse(view.annotation(names::PRUNED_BY)) {
        Stamp::Retention if justified::is_void(view) => Stamp::Unjustified,
        stamp @ (Stamp::None
        | Stamp::Retention
        | Stamp::Unjustified
        | Stamp::FailedHistory
        | Stamp::PolicyCascade
        | Stamp::ReplacedRun
        | Stamp::Unknown) => stamp,
    }
}

fn policy(view: &SnapshotView) -> Policy {
    let spec = view.spec.deletion_policy.map(|p| match p {
        DeletionPolicy::Delete => Policy::Delete,
        DeletionPolicy::Retain => Policy::Retain,
        DeletionPolicy::Orphan => Policy::Orphan,
        DeletionPolicy::Unknown => Policy::Unknown,
    });
    let status = view.status.as_ref().and_then(|s| s.origin).map(Origin::as_str);
    effective_policy(
        spec,
        guard::Origin::parse(view.label(names::ORIGIN_LABEL)),
        guard::Origin::parse(status),
    )
}

fn recorded(view: &SnapshotView) -> Option<RecordedSnapshot> {
    let status = view.status.as_ref()?;
    let snapshot = status.snapshot.as_ref()?;
    Some(RecordedSnapshot {
        id: snapshot.kopia_snapshot_id.clone(),
        source: snapshot
            .identity
            .as_ref()
            .map(|i| format!("{}@{}:{}", i.username, i.hostname, i.source_path)),
        start: status.timing.as_ref().and_then(|t| t.start_time),
    })
}

fn held(view: &SnapshotView) -> HeldCondition {
    let list = view.status.as_ref().map(|s| s.conditions.as_slice());
    match conditions::get(list.unwrap_or_default(), conditions::DELETION_HELD) {
        None => HeldCondition::NotHeld,
        Some(c) => match c.status.as_str() {
            "False" => HeldCondition::NotHeld,
            "True" => HeldCondition::Held {
                since: c.last_transition_time.0,
            },
            _ => HeldCondition::Unreadable,
        },
    }
}

/// What a mover is told about a Snapshot; none if it records too little to be told.
#[must_use]
pub fn batch_member(view: &SnapshotView) -> Option<BatchMember> {
    let status = view.status.as_ref()?;
    let snapshot = status.snapshot.as_ref()?;
    Some(BatchMember {
        uid: view.uid().to_owned(),
        snapshot_id: snapshot.kopia_snapshot_id.clone(),
        source: view.source()?,
        start_time: status.timing.as_ref().and_then(|t| t.start_time),
        justified_by: None,
        seen_here: view.pinned_unique_id().is_some(),
    })
}

/// Facts about a repository object.
#[must_use]
pub fn repository(view: &RepositoryView) -> RepositoryFacts {
    let protection = view.protection();
    RepositoryFacts {
        key: view.key.clone(),
        threshold: view.spec.deletion_protection.as_ref().and_then(|p| p.threshold),
        on_namespace_delete: match view.spec.on_namespace_delete {
            NamespaceDeletePolicy::Orphan => OnNamespaceDelete::Orphan,
            NamespaceDeletePolicy::Delete => OnNamespaceDelete::Delete,
            NamespaceDeletePolicy::Unknown => OnNamespaceDelete::Unknown,
        },
        suspend: view.spec.suspend,
        // A spec that is refused says who knows what: nothing is deleted through it.
        connected: view.unique_id().is_some() && view.refusals.is_empty(),
        acknowledgement: view.annotation(names::ALLOW_MASS_DELETION).map(str::to_owned),
        recorded_acknowledgement: protection.acknowledgement.map(|a| RecordedAcknowledgement {
            value: a.value,
            effective: a.effective,
            seen_at: a.seen_at,
        }),
        sliding_window: view
            .spec
            .deletion_protection
            .as_ref()
            .and_then(|p| p.sliding_window.as_ref())
            // One that cannot be read is a refused spec, which fires nothing.
            .and_then(|window| {
                Some(SlidingWindow {
                    duration: duration(&window.duration)?,
                    threshold: window.threshold,
                })
            }),
        refused_acknowledgement: protection.invalid_acknowledgement,
        held_through: protection.held_through,
        backoff_until: protection.jobs.and_then(|j| j.next_attempt_at),
    }
}

/// The unique id of the physical repository that a Snapshot was taken into, if that is not the lane's.
#[must_use]
pub fn elsewhere<'a>(view: &'a SnapshotView, lane: &LaneKey) -> Option<&'a str> {
    let recorded = view.pinned_unique_id()?;
    match lane {
        LaneKey::Physical(id) if id != recorded => Some(recorded),
        LaneKey::Physical(_) | LaneKey::Unconnected(_) | LaneKey::Unresolved => None,
    }
}

/// The owning schedule, given what there is under its name.
#[must_use]
pub fn owner(owner_uid: Option<&str>, found: Option<&ObjectMeta>) -> Owner {
    match (owner_uid, found) {
        (None, _) => Owner::None,
        (Some(_), None) => Owner::Gone,
        (Some(uid), Some(meta)) if meta.uid.as_deref() != Some(uid) => Owner::Replaced,
        (Some(_), Some(meta)) if meta.deletion_timestamp.is_some() => Owner::Terminating,
        (Some(_), Some(_)) => Owner::Alive,
    }
}

/// What the owning schedule says about the data, given what there is under its name: also while it is being deleted,
/// never that of another one of the same name.
#[must_use]
pub fn schedule_says(owner_uid: Option<&str>, found: Option<&ScheduleView>) -> Option<Cascade> {
    let uid = owner_uid?;
    found
        .filter(|schedule| schedule.metadata.uid.as_deref() == Some(uid))
        .map(|schedule| cascade(schedule.cascade()))
}

/// A member's own namespace.
#[must_use]
pub fn namespace(known: NamespaceKnown) -> NamespaceState {
    match known {
        NamespaceKnown::Live => NamespaceState::Live,
        NamespaceKnown::Terminating => NamespaceState::Terminating,
        NamespaceKnown::Absent => NamespaceState::Unreadable,
    }
}

/// The namespace in which a delete Job would run.
#[must_use]
pub fn place(name: &str, known: NamespaceKnown) -> Place {
    match known {
        _ if name.is_empty() => Place::NotSet,
        NamespaceKnown::Live => Place::Fine,
        NamespaceKnown::Terminating => Place::Terminating,
        NamespaceKnown::Absent => Place::Unknown,
    }
}

/// A Snapshot's own backup Jobs. `missing` says that its status names one that is not among them and was not
/// looked for. A recorded id is the result of a Job that ended; without one, a Job that ended counts as read once
/// it was given a time to live (which happens after its result was recorded).
#[must_use]
pub fn own_mover(jobs: &[Arc<JobView>], has_id: bool, missing: bool) -> OwnMover {
    let mut unread = false;
    let mut any = false;
    for job in jobs
        .iter()
        .filter(|j| j.label(names::OP_LABEL) == Some(names::OP_BACKUP))
    {
        any = true;
        if job.is_terminal() {
            unread |= !has_id && job.spec.ttl_seconds_after_finished.is_none();
        } else if !job.is_stopped() || job.is_suspended_for_batch() {
            // Suspended for a batch it would go on.
            return OwnMover::Running;
        }
    }
    if unread {
        OwnMover::Unread
    } else if missing && !any && !has_id {
        OwnMover::Unknown
    } else {
        OwnMover::None
    }
}

/// Whether a container of a Job that has not ended may have started, given its pods as they are now. A pod that
/// was counted and is not to be seen any more may have done anything.
#[must_use]
pub fn started(job: &JobView, pods: &[Pod]) -> bool {
    let counted = job
        .status
        .as_ref()
        .is_some_and(|s| s.active > 0 || s.failed > 0 || s.succeeded > 0 || s.terminating > 0);
    if pods.is_empty() {
        return counted || job.is_terminal();
    }
    job.is_terminal() || pods.iter().any(pod_started)
}

fn pod_started(pod: &Pod) -> bool {
    let Some(status) = &pod.status else {
        return false;
    };
    if !matches!(status.phase.as_deref(), None | Some("Pending")) {
        return true;
    }
    status.container_statuses.iter().flatten().any(|c| {
        let state = c.state.as_ref();
        c.restart_count > 0
            || c.started == Some(true)
            || state.is_some_and(|s| s.running.is_some() || s.terminated.is_some())
    })
}
