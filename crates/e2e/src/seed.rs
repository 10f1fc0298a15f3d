//! Many real snapshots with the objects that record them, without a Job for each.
//!
//! **Promises.** The objects are what a schedule makes: owned by it, labelled, with the finalizer and the stamped
//! `onScheduleDelete`. The snapshots are real: mover Jobs with the operator's own image take them, each tagged
//! with its object's UID, and what those Jobs report is what the statuses record.
//!
//! **Assumes.** The schedule does not come due meanwhile; the repository is connected.

use crate::lab::Lab;
use crate::{objects, pods};
use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use holdfast_api::repository::Engine;
use holdfast_api::{Snapshot, names};
use holdfast_protocol::outcome::TakenSnapshot;
use holdfast_protocol::work::{BackupItem, EngineKind, Operation, RepositoryAccess, Source, WorkDocument};
use holdfast_protocol::{REPOSITORY_DIR, SECRET_DIR, SOURCE_DIR, WORK_ANNOTATION, WORK_LIMIT, WORK_PATH};
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::gvk::GroupVersionKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Requests under way at once.
pub const AT_ONCE: usize = 16;
/// Snapshots that one seeding Job takes: its work document stays below the limit.
pub const PER_JOB: usize = 350;

/// A Snapshot object that was made here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// Where a repository is: most often where its Snapshots are.
#[derive(Debug, Clone)]
pub struct Home {
    /// `Repository` or `ClusterRepository`.
    pub kind: &'static str,
    /// Namespace of its claim, its Secret, the claim that is backed up, and the seeding Jobs.
    pub namespace: String,
}

impl Home {
    /// A Repository in this namespace.
    #[must_use]
    pub fn repository(namespace: &str) -> Self {
        Self {
            kind: "Repository",
            namespace: namespace.to_owned(),
        }
    }
}

/// What all members of a set have in common.
#[derive(Debug, Clone)]
pub struct Set {
    /// Their namespace.
    pub namespace: String,
    /// Name of the repository.
    pub repository: String,
    /// Where that is.
    pub home: Home,
    /// Name of the SnapshotPolicy.
    pub policy: String,
    /// Name of the claim that the policy backs up.
    pub claim: String,
    /// Name of the SnapshotSchedule that owns them.
    pub schedule: String,
    /// Its UID.
    pub schedule_uid: String,
    /// `Retain` or `Delete`.
    pub on_schedule_delete: &'static str,
}

impl Set {
    fn object(&self, name: &str) -> Value {
        json!({
            "apiVersion": names::API_VERSION,
            "kind": "Snapshot",
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "finalizers": [names::FINALIZER],
                "labels": {
                    names::ORIGIN_LABEL: "scheduled",
                    names::SCHEDULE_LABEL: self.schedule,
                    names::CONFIG_LABEL: self.policy,
                    names::MANAGED_BY_LABEL: names::MANAGED_BY,
                },
                "ownerReferences": [{
                    "apiVersion": names::API_VERSION,
                    "kind": "SnapshotSchedule",
                    "name": self.schedule,
                    "uid": self.schedule_uid,
                    "controller": true,
                    "blockOwnerDeletion": false,
                }],
            },
            "spec": {
                "policyRef": { "name": self.policy },
                "deletionPolicy": "Delete",
                "onScheduleDelete": self.on_schedule_delete,
            },
        })
    }

    /// The repository object.
    async fn repository(&self, lab: &Lab) -> Result<Value> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(
            names::GROUP,
            names::VERSION,
            self.home.kind,
        ));
        let api: Api<DynamicObject> = if self.is_of_cluster() {
            Api::all_with(lab.client.clone(), &resource)
        } else {
            Api::namespaced_with(lab.client.clone(), &self.home.namespace, &resource)
        };
        Ok(serde_json::to_value(api.get(&self.repository).await?)?)
    }

    fn is_of_cluster(&self) -> bool {
        self.home.kind == "ClusterRepository"
    }

    fn source(&self) -> Source {
        Source {
            username: self.policy.clone(),
            hostname: self.namespace.clone(),
            path: format!("/pvc/{}", self.claim),
        }
    }
}

/// Creates `count` Snapshot objects without a status.
///
/// # Errors
/// When the API server refuses one.
pub async fn objects(lab: &Lab, set: &Set, count: usize) -> Result<Vec<Member>> {
    let api: Api<Snapshot> = lab.api(&set.namespace);
    let (api, params) = (&api, &PostParams::default());
    let mut members: Vec<Member> = stream::iter(0..count)
        .map(|n| async move {
            let name = format!("{}-{:04}", set.schedule, n + 1);
            let object: Snapshot = serde_json::from_value(set.object(&name))?;
            let made = api
                .create(params, &object)
                .await
                .with_context(|| format!("Snapshot {name}"))?;
            lab.note(format!("{} of {count} objects", n + 1));
            anyhow::Ok(Member {
                name,
                uid: made.metadata.uid.unwrap_or_default(),
            })
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    members.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(members)
}

/// Takes a real snapshot for each member, with seeding Jobs one after another.
///
/// # Errors
/// When a Job fails, or did not report one snapshot for each member.
pub async fn snapshots(lab: &Lab, set: &Set, members: &[Member]) -> Result<Vec<TakenSnapshot>> {
    let repository = set.repository(lab).await?;
    let mut taken = BTreeMap::new();
    for (n, some) in members.chunks(PER_JOB).enumerate() {
        lab.note(format!("{} of {} snapshots", taken.len(), members.len()));
        let job = job(lab, set, &repository, n, some)?;
        let ended = pods::run(lab, job, patience(some.len())).await?;
        for line in ended.log.lines() {
            let Some(value) = serde_json::from_str::<Value>(line)
                .ok()
                .filter(|v| v["taken"].is_object())
            else {
                continue;
            };
            let one: TakenSnapshot = serde_json::from_value(value["taken"].clone())?;
            taken.insert(one.uid.clone(), one);
        }
    }
    let all: Vec<TakenSnapshot> = members.iter().filter_map(|m| taken.remove(&m.uid)).collect();
    ensure!(
        all.len() == members.len(),
        "the seeding Jobs reported {} snapshots for {} objects",
        all.len(),
        members.len()
    );
    Ok(all)
}

/// How long a seeding Job may take: Kopia is a process for each step of a snapshot.
fn patience(snapshots: usize) -> Duration {
    let each = u64::try_from(snapshots).unwrap_or(u64::MAX).saturating_mul(5);
    match objects::engine() {
        Engine::Kopia => Duration::from_secs(300).saturating_add(Duration::from_secs(each)),
        Engine::Restic | Engine::Unknown => Duration::from_secs(300),
    }
}

fn job(lab: &Lab, set: &Set, repository: &Value, n: usize, members: &[Member]) -> Result<Value> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let password = &repository["spec"]["encryption"]["passwordSecretRef"];
    let key = text(&password["key"]).unwrap_or_else(|| names::PASSWORD_KEY.to_owned());
    let secret = text(&password["name"]);
    let claim = text(&repository["spec"]["backend"]["filesystem"]["volume"]["pvc"]["name"]);
    let unique_id = text(&repository["status"]["uniqueId"]);
    let read_from = format!("{SOURCE_DIR}/{}", set.claim);
    let document = WorkDocument {
        version: holdfast_protocol::VERSION,
        cluster: lab.cluster.clone(),
        repository: RepositoryAccess {
            engine: match repository["spec"]["engine"].as_str() {
                Some("Restic") => EngineKind::Restic,
                Some("Kopia") | None => EngineKind::Kopia,
                Some(other) => anyhow::bail!("the repository has the engine {other}"),
            },
            path: REPOSITORY_DIR.to_owned(),
            bucket: None,
            password_key: key.clone(),
            unique_id: Some(unique_id.context("the repository is not connected")?),
            user: None,
        },
        operation: Operation::Backup {
            items: members
                .iter()
                .map(|m| BackupItem {
                    uid: m.uid.clone(),
                    read_from: read_from.clone(),
                    source: set.source(),
                    tags: BTreeMap::new(),
                })
                .collect(),
        },
        results: None,
    };
    let document = serde_json::to_string(&document)?;
    ensure!(
        document.len() <= WORK_LIMIT,
        "the work document has {} bytes",
        document.len()
    );
    let work = Path::new(WORK_PATH);
    let part = |p: Option<&std::ffi::OsStr>| p.unwrap_or_default().to_string_lossy().into_owned();
    let field = format!("metadata.annotations['{WORK_ANNOTATION}']");
    Ok(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": format!("seed-{}-{}", set.schedule, n + 1), "namespace": set.home.namespace },
        "spec": { "backoffLimit": 0, "template": {
            "metadata": { "annotations": { WORK_ANNOTATION: document } },
            "spec": {
                "restartPolicy": "Never",
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "securityContext": objects::pod_security(),
                "containers": [{
                    "name": "mover",
                    "image": lab.mover_image,
                    "imagePullPolicy": "IfNotPresent",
                    "securityContext": objects::container_security(),
                    "volumeMounts": [
                        { "name": "work", "mountPath": part(work.parent().map(Path::as_os_str)), "readOnly": true },
                        { "name": "secret", "mountPath": SECRET_DIR, "readOnly": true },
                        { "name": "tmp", "mountPath": "/tmp" },
                        { "name": "repository", "mountPath": REPOSITORY_DIR },
                        { "name": "source", "mountPath": read_from, "readOnly": true },
                    ],
                }],
                "volumes": [
                    { "name": "work", "downwardAPI": { "items": [
                        { "path": part(work.file_name()), "fieldRef": { "fieldPath": field } },
                    ] } },
                    { "name": "secret", "secret": { "secretName": secret, "items": [{ "key": key, "path": key }] } },
                    { "name": "tmp", "emptyDir": {} },
                    { "name": "repository", "persistentVolumeClaim": { "claimName": claim } },
                    { "name": "source", "persistentVolumeClaim": { "claimName": set.claim } },
                ],
            },
        } },
    }))
}

/// Writes what was taken into the members' statuses, as the operator would have.
///
/// # Errors
/// When the API server refuses one.
pub async fn record(lab: &Lab, set: &Set, members: &[Member], taken: &[TakenSnapshot]) -> Result<()> {
    let unique_id = set.repository(lab).await?["status"]["uniqueId"]
        .as_str()
        .map(str::to_owned);
    let api: Api<Snapshot> = lab.api(&set.namespace);
    let (api, unique_id) = (&api, &unique_id);
    stream::iter(members.iter().zip(taken))
        .map(|(member, taken)| async move {
            let status = status(set, unique_id.as_deref(), taken);
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(&member.name, &PatchParams::default(), &patch)
                .await
                .with_context(|| format!("the status of Snapshot {}", member.name))?;
            lab.note(format!("status of {}", member.name));
            anyhow::Ok(())
        })
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}

fn status(set: &Set, unique_id: Option<&str>, taken: &TakenSnapshot) -> Value {
    let source = set.source();
    let mut pin = json!({ "kind": set.home.kind, "name": set.repository });
    if !set.is_of_cluster() {
        pin["namespace"] = json!(set.home.namespace);
    }
    json!({
        "phase": "Succeeded",
        "origin": "scheduled",
        "snapshot": {
            "kopiaSnapshotID": taken.snapshot_id,
            "identity": { "username": source.username, "hostname": source.hostname, "sourcePath": source.path },
        },
        "timing": {
            "startTime": taken.start_time,
            "endTime": taken.end_time,
            "durationSeconds": taken.end_time.duration_since(taken.start_time).as_secs(),
        },
        "stats": {
            "sizeBytes": taken.size_bytes, "bytesNew": taken.bytes_new, "filesNew": taken.files_new,
            "filesModified": taken.files_modified, "filesUnchanged": taken.files_unchanged,
        },
        "resolved": {
            "repository": pin,
            "uniqueId": unique_id,
            "sources": [{ "pvc": set.claim, "sourcePath": format!("/pvc/{}", set.claim) }],
        },
    })
}
