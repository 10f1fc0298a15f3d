//! Projections: what a decision reads of an object, decoded straight from the watch.
//!
//! **Promises.** Managed fields and bulky status parts are dropped before an object is kept, so that 100,000
//! Snapshots fit in a small process. What is not kept is read live by the code that needs it.

use super::keys::{self, ObjectKey, RepositoryKey};
use holdfast_api::mover::MoverDefaults;
use holdfast_api::repository::{
    Backend, ClusterRepository, DeletionProtectionStatus, FilesystemBackend, Repository, RepositorySpec,
    RepositoryStatus, S3Backend,
};
use holdfast_api::schedule::ScheduleDeletion;
use holdfast_api::shared::{CascadePolicy, DeletionPolicy, Origin, PolicyRef};
use holdfast_api::snapshot::{
    DeletionStatus, JobStatus, PinStatus, RecordedSnapshot, Resolved, RunFailure, Snapshot, SnapshotPhase,
    Stats, Timing,
};
use holdfast_api::{SnapshotSchedule, conditions, names};
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Serialize};

/// What decisions read of a Snapshot.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = Snapshot)]
pub struct SnapshotView {
    /// Names, times, labels, annotations, owners.
    pub metadata: ObjectMeta,
    /// The part of the spec that decisions read.
    #[serde(default)]
    pub spec: SnapshotSpecView,
    /// The part of the status that decisions read; absent means the object never had one.
    pub status: Option<SnapshotStatusView>,
}

/// The part of a Snapshot's spec that decisions read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpecView {
    /// The policy.
    pub policy_ref: Option<PolicyRef>,
    /// What deleting the object does to its data.
    pub deletion_policy: Option<DeletionPolicy>,
    /// What the schedule's disappearance does.
    pub on_schedule_delete: Option<CascadePolicy>,
    /// Retention never prunes it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub pin: bool,
}

/// The part of a Snapshot's status that decisions read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatusView {
    /// Phase.
    pub phase: Option<SnapshotPhase>,
    /// Origin.
    pub origin: Option<Origin>,
    /// What the repository holds.
    pub snapshot: Option<RecordedSnapshot>,
    /// When it ran.
    pub timing: Option<Timing>,
    /// How much; written when a result is recorded, not kept from the watch.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Stats>,
    /// Why the run failed; as above.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RunFailure>,
    /// Its mover Job.
    pub job: Option<JobStatus>,
    /// What it was pinned to.
    pub resolved: Option<Resolved>,
    /// The repository's record says that it is to be kept.
    pub pinned: Option<bool>,
    /// How it is pinned.
    pub pin: Option<PinStatus>,
    /// How its deletion goes.
    pub deletion: Option<DeletionStatus>,
    /// All conditions: a merge patch replaces the list whole.
    pub conditions: Vec<Condition>,
}

/// What decisions read of the schedule that owns a Snapshot.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = SnapshotSchedule)]
pub struct ScheduleView {
    /// Names, times, finalizers.
    pub metadata: ObjectMeta,
    /// The part of the spec that decisions read.
    #[serde(default)]
    pub spec: ScheduleSpecView,
}

/// The part of a schedule's spec that decisions read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ScheduleSpecView {
    /// What deleting the schedule does to the data of its Snapshots.
    pub deletion: Option<ScheduleDeletion>,
}

impl ScheduleView {
    /// What its end means for the data; absent is Retain.
    #[must_use]
    pub fn cascade(&self) -> CascadePolicy {
        let deletion = self.spec.deletion.as_ref();
        deletion.map(|d| d.on_schedule_delete).unwrap_or_default()
    }
}

impl From<&SnapshotSchedule> for ScheduleView {
    fn from(schedule: &SnapshotSchedule) -> Self {
        Self {
            metadata: schedule.metadata.clone(),
            spec: ScheduleSpecView {
                deletion: schedule.spec.deletion.clone(),
            },
        }
    }
}

impl SnapshotView {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(self)
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// What its snapshot is of, as it records it.
    #[must_use]
    pub fn source(&self) -> Option<Source> {
        let identity = self.status.as_ref()?.snapshot.as_ref()?.identity.as_ref()?;
        Some(Source {
            username: identity.username.clone(),
            hostname: identity.hostname.clone(),
            path: identity.source_path.clone(),
        })
    }

    /// Whether the API server waits for finalizers and ours is among them.
    #[must_use]
    pub fn is_pending_deletion(&self) -> bool {
        self.metadata.deletion_timestamp.is_some() && self.has_finalizer()
    }

    /// Whether our finalizer is on it.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
            .iter()
            .any(|f| f == names::FINALIZER)
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// The repository it was pinned to when its run began.
    #[must_use]
    pub fn pin(&self) -> Option<RepositoryKey> {
        let resolved = self.status.as_ref()?.resolved.as_ref()?;
        keys::resolve(resolved.repository.as_ref()?, self.metadata.namespace.as_deref()?)
    }

    /// Whether its status names a repository, readable or not.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        let resolved = self.status.as_ref().and_then(|s| s.resolved.as_ref());
        resolved.is_some_and(|r| r.repository.is_some())
    }

    /// Key of its policy.
    #[must_use]
    pub fn policy(&self) -> Option<ObjectKey> {
        let policy = self.spec.policy_ref.as_ref()?;
        Some(ObjectKey::new(self.metadata.namespace.clone()?, &policy.name))
    }

    /// UID and name of the SnapshotSchedule that owns it (case 12: an owner of another kind does not count).
    #[must_use]
    pub fn schedule_owner(&self) -> Option<(&str, &str)> {
        self.metadata
            .owner_references
            .as_deref()
            .unwrap_or_default()
            .iter()
            .find_map(|o| {
                // Whatever version the reference was written in: the guard must not depend on it.
                let group = o.api_version.split_once('/').map(|(group, _)| group);
                let ours = o.kind == SnapshotSchedule::kind(&()) && group == Some(names::GROUP);
                ours.then_some((o.uid.as_str(), o.name.as_str()))
            })
    }

    /// The recorded snapshot id.
    #[must_use]
    pub fn snapshot_id(&self) -> Option<&str> {
        Some(
            self.status
                .as_ref()?
                .snapshot
                .as_ref()?
                .kopia_snapshot_id
                .as_str(),
        )
    }

    /// The phase, when the object has a status with one.
    #[must_use]
    pub fn phase(&self) -> Option<SnapshotPhase> {
        self.status.as_ref()?.phase
    }

    /// Unique id of the repository that its run was pinned to.
    #[must_use]
    pub fn pinned_unique_id(&self) -> Option<&str> {
        self.status.as_ref()?.resolved.as_ref()?.unique_id.as_deref()
    }

    /// Whether it is a row of the catalog and records nothing of its own: label and status have to agree. The label
    /// alone may be written by anybody who may edit Snapshots.
    #[must_use]
    pub fn is_discovered(&self) -> bool {
        let recorded = self.status.as_ref().and_then(|s| s.origin);
        self.label(names::ORIGIN_LABEL) == Some(Origin::Discovered.as_str())
            && recorded == Some(Origin::Discovered)
    }

    /// Whether it is kept from retention: by its object, or by its record in the repository, whoever said so there.
    #[must_use]
    pub fn is_kept_by_pin(&self) -> bool {
        self.spec.pin || self.status.as_ref().is_some_and(|s| s.pinned == Some(true))
    }

    /// Whether its snapshot was found gone from the repository (`docs/design.md` 3.7).
    #[must_use]
    pub fn is_vanished(&self) -> bool {
        let list = self.status.as_ref().map(|s| s.conditions.as_slice());
        conditions::is_true(list.unwrap_or_default(), conditions::VANISHED)
    }
}

/// Both repository kinds as one.
#[derive(Debug, Clone)]
pub struct RepositoryView {
    /// Which object.
    pub key: RepositoryKey,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What both kinds have.
    pub spec: RepositorySpec,
    /// Which namespaces may use it; `None` on a Repository (its own only).
    pub allowed: Option<holdfast_api::repository::AllowedNamespaces>,
    /// Whether its Secrets may be copied to where movers run.
    pub projects: bool,
    /// Refusals of the whole spec.
    pub refusals: Vec<String>,
    /// Its status.
    pub status: RepositoryStatus,
}

impl RepositoryView {
    /// From a Repository.
    #[must_use]
    pub fn namespaced(object: Repository) -> Self {
        let refusals = holdfast_api::validate::repository(&object.spec)
            .iter()
            .map(ToString::to_string)
            .collect();
        Self {
            key: RepositoryKey::Repository {
                namespace: object.metadata.namespace.clone().unwrap_or_default(),
                name: object.metadata.name.clone().unwrap_or_default(),
            },
            metadata: object.metadata,
            spec: object.spec,
            allowed: None,
            projects: false,
            refusals,
            status: object.status.unwrap_or_default(),
        }
    }

    /// From a ClusterRepository.
    #[must_use]
    pub fn cluster(object: ClusterRepository) -> Self {
        let refusals = holdfast_api::validate::cluster_repository(&object.spec)
            .iter()
            .map(ToString::to_string)
            .collect();
        Self {
            key: RepositoryKey::ClusterRepository {
                name: object.metadata.name.clone().unwrap_or_default(),
            },
            metadata: object.metadata,
            spec: object.spec.repository,
            allowed: Some(object.spec.allowed_namespaces),
            projects: object
                .spec
                .credential_projection
                .is_some_and(|grant| grant.allowed),
            refusals,
            status: object.status.unwrap_or_default(),
        }
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The unique id that was recorded when it was first connected.
    #[must_use]
    pub fn unique_id(&self) -> Option<&str> {
        self.status.unique_id.as_deref()
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The breaker's memory.
    #[must_use]
    pub fn protection(&self) -> DeletionProtectionStatus {
        self.status.deletion_protection.clone().unwrap_or_default()
    }

    /// Where movers that work for the repository itself run: its namespace, the operator's for a
    /// ClusterRepository (`docs/design.md` 3.6).
    #[must_use]
    pub fn place<'a>(&'a self, operator_namespace: &'a str) -> &'a str {
        self.key.namespace().unwrap_or(operator_namespace)
    }

    /// The directory of a filesystem backend, and its volume.
    #[must_use]
    pub fn filesystem(&self) -> Option<&FilesystemBackend> {
        let Backend { filesystem, .. } = &self.spec.backend;
        filesystem.as_ref()
    }

    /// The claim of a filesystem backend that has one.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        let volume = &self.filesystem()?.volume;
        volume.pvc.as_ref().map(|pvc| pvc.name.as_str())
    }

    /// How the pods of its movers are.
    #[must_use]
    pub fn mover_defaults(&self) -> MoverDefaults {
        self.spec.mover_defaults.clone().unwrap_or_default()
    }

    /// The backend's key in the interface.
    #[must_use]
    pub fn backend_name(&self) -> &'static str {
        match self.s3() {
            Some(_) => "s3",
            None => "filesystem",
        }
    }

    /// The bucket of an S3 backend.
    #[must_use]
    pub fn s3(&self) -> Option<&S3Backend> {
        self.spec.backend.s3.as_ref()
    }
}

/// What decisions read of a Job of ours.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = Job)]
pub struct JobView {
    /// Names, labels, annotations.
    pub metadata: ObjectMeta,
    /// The part of the spec that decisions read.
    #[serde(default)]
    pub spec: JobSpecView,
    /// Counters and conditions.
    pub status: Option<JobStatusView>,
}

/// The part of a Job's spec that decisions read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpecView {
    /// The Job controller ends its pods and starts no other.
    pub suspend: Option<bool>,
    /// Set when a backup Job's result has been recorded.
    pub ttl_seconds_after_finished: Option<i32>,
}

/// The part of a Job's status that decisions read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobStatusView {
    /// Pods that run or wait.
    pub active: i32,
    /// Those of them whose container runs.
    pub ready: i32,
    /// Pods that ended well.
    pub succeeded: i32,
    /// Pods that ended badly.
    pub failed: i32,
    /// Pods that are being deleted and have not ended.
    pub terminating: i32,
    /// Complete, Failed, …
    pub conditions: Vec<k8s_openapi::api::batch::v1::JobCondition>,
}

impl JobStatusView {
    fn has(&self, kind: &str) -> bool {
        self.conditions
            .iter()
            .any(|c| c.type_ == kind && c.status == "True")
    }
}

/// How far a Job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// No pod was seen yet.
    Waiting,
    /// A pod exists, so a container may have started.
    Active,
    /// Complete.
    Succeeded,
    /// Failed for good.
    Failed,
}

impl JobView {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(self)
    }

    /// The value of a label.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether it is of this object of ours: in its namespace, and controlled by it. Labels say nothing, for whoever may
    /// make Jobs anywhere writes them.
    #[must_use]
    pub fn is_of(&self, kind: &str, object: &ObjectKey, uid: &str) -> bool {
        let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
        self.key().namespace == object.namespace
            && owners.iter().any(|owner| {
                owner.api_version == names::API_VERSION
                    && owner.kind == kind
                    && owner.name == object.name
                    && owner.uid == uid
                    && owner.controller == Some(true)
            })
    }

    /// The value of an annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// How far it is.
    #[must_use]
    pub fn state(&self) -> JobState {
        let Some(status) = &self.status else {
            return JobState::Waiting;
        };
        let has = |kind: &str| status.has(kind);
        if has("Complete") {
            JobState::Succeeded
        } else if has("Failed") {
            JobState::Failed
        } else if status.active > 0 || status.failed > 0 || status.succeeded > 0 {
            JobState::Active
        } else {
            JobState::Waiting
        }
    }

    /// Whether it was ended because it took too long.
    #[must_use]
    pub fn ran_out_of_time(&self) -> bool {
        let conditions = self.status.iter().flat_map(|s| &s.conditions);
        conditions
            .filter(|c| c.type_ == "Failed" && c.status == "True")
            .any(|c| c.reason.as_deref() == Some("DeadlineExceeded"))
    }

    /// Its UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether it is suspended and none of its pods is left that could still do something. Counters of zero say
    /// nothing before the Job controller has seen the suspension: it may be creating the pod at this moment.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.spec.suspend == Some(true)
            && self
                .status
                .as_ref()
                .is_some_and(|s| s.active == 0 && s.terminating == 0 && s.has("Suspended"))
    }

    /// Whether a batch suspended it, to go on later.
    #[must_use]
    pub fn is_suspended_for_batch(&self) -> bool {
        self.spec.suspend == Some(true) && self.annotation(names::SUSPENDED_AT).is_some()
    }

    /// When it came to an end, or was stopped.
    #[must_use]
    pub fn ended_at(&self) -> Option<Timestamp> {
        let conditions = self.status.iter().flat_map(|s| &s.conditions);
        let ends = conditions.filter(|c| {
            c.status == "True" && ["Complete", "Failed", "Suspended"].contains(&c.type_.as_str())
        });
        ends.filter_map(|c| c.last_transition_time.as_ref().map(|t| t.0))
            .max()
    }

    /// Whether it came to an end.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.state(), JobState::Succeeded | JobState::Failed)
    }
}
