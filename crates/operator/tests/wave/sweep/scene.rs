//! What is in the cluster and in the repositories before a story begins, and how its end is told.

use super::model::Model;
use crate::server::objects::Objects;
use crate::server::path::Place;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const GROUP: &str = "/apis/kopiur.home-operations.com/v1alpha1";
pub const API: &str = "kopiur.home-operations.com/v1alpha1";
pub const SKIP: &str = "kopiur.home-operations.com/skip-snapshot-cleanup";
pub const ALLOW: &str = "kopiur.home-operations.com/allow-mass-deletion";
pub const PRUNED_BY: &str = "kopiur.home-operations.com/pruned-by";
pub const PRUNED_AT: &str = "kopiur.home-operations.com/pruned-at";
pub const PRUNED_KEPT: &str = "kopiur.home-operations.com/pruned-kept";
pub const FINALIZER: &str = "kopiur.home-operations.com/snapshot-cleanup";
pub const ORIGIN: &str = "kopiur.home-operations.com/origin";
pub const OP: &str = "kopiur.home-operations.com/op";
pub const UNIQUE_ID: &str = "kopiur.home-operations.com/delete-unique-id";
pub const AGAIN: &str = "kopiur.home-operations.com/delete-reappeared";
pub const MEMBERS: &str = "kopiur.home-operations.com/delete-members";
const LANE_JOB: &str = "kopiur.home-operations.com/lane-job";

/// When every story begins, seconds since 1970.
pub const BEGIN: i64 = 1_800_000_000;

/// A moment of the story, in seconds after its beginning, as the API writes it.
pub fn at(seconds: i64) -> String {
    let begin = Timestamp::from_second(BEGIN).unwrap();
    let at = begin + SignedDuration::from_secs(seconds);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn snapshot_path(name: &str) -> String {
    snapshot_in("backup", name)
}

pub fn snapshot_in(namespace: &str, name: &str) -> String {
    format!("{GROUP}/namespaces/{namespace}/snapshots/{name}")
}

pub fn repository_path(name: &str) -> String {
    format!("{GROUP}/namespaces/backup/repositories/{name}")
}

pub fn schedule_path(name: &str) -> String {
    format!("{GROUP}/namespaces/backup/snapshotschedules/{name}")
}

pub fn writer_path(name: &str) -> String {
    format!("/apis/batch/v1/namespaces/backup/jobs/{name}")
}

/// Puts things where they are when the story begins.
pub struct Scene<'a> {
    pub objects: &'a mut Objects,
    pub model: &'a mut Model,
}

impl Scene<'_> {
    /// The namespaces `backup`, `team` and the operator's, and what movers need in `backup`.
    pub fn ground(&mut self) {
        for name in ["backup", "team", "holdfast-system"] {
            self.objects.put(
                &format!("/api/v1/namespaces/{name}"),
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            );
        }
        let name = "snapshots.kopiur.home-operations.com";
        self.objects.put(
            &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
            json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": { "name": name } }),
        );
        for (plural, name, data) in [
            ("secrets", "key", json!({ "KOPIA_PASSWORD": "eA==" })),
            ("persistentvolumeclaims", "store", Value::Null),
            ("serviceaccounts", "holdfast-mover", Value::Null),
        ] {
            self.objects.put(
                &format!("/api/v1/namespaces/backup/{plural}/{name}"),
                json!({ "apiVersion": "v1", "metadata": { "name": name, "namespace": "backup" }, "data": data }),
            );
        }
    }

    /// A repository object over the bucket of this unique id.
    pub fn repository(&mut self, name: &str, unique_id: &str, threshold: u32) {
        self.objects.put(
            &repository_path(name),
            json!({
                "apiVersion": API, "kind": "Repository",
                "metadata": { "name": name, "namespace": "backup", "uid": format!("r-{name}"), "generation": 1 },
                "spec": {
                    "engine": "Restic",
                    "backend": { "filesystem": { "path": "/r", "volume": { "pvc": { "name": "store" } } } },
                    "encryption": { "passwordSecretRef": { "name": "key" } },
                    "deletionProtection": { "threshold": threshold },
                },
                "status": { "phase": "Ready", "uniqueId": unique_id },
            }),
        );
    }

    /// A Snapshot in `backup` that is pinned to `nas`, with its data, not being deleted.
    pub fn snapshot(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        self.snapshot_in("backup", name, change);
    }

    pub fn snapshot_in(&mut self, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = json!({
            "apiVersion": API, "kind": "Snapshot",
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("u-{name}"), "generation": 1,
                "finalizers": [FINALIZER],
            },
            "spec": { "policyRef": { "name": "p" } },
            "status": {
                "phase": "Succeeded",
                "snapshot": {
                    "kopiaSnapshotID": format!("id-{name}"),
                    "identity": { "username": "p", "hostname": namespace, "sourcePath": "/pvc/data" },
                },
                "resolved": { "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" } },
            },
        });
        change(&mut object);
        if let Some(id) = object["status"]["snapshot"]["kopiaSnapshotID"].as_str() {
            let repository = &object["status"]["resolved"]["repository"]["name"];
            let repository = repository.as_str().unwrap_or("nas");
            let unique_id = self.objects.by_path[&repository_path(repository)]["status"]["uniqueId"].clone();
            let unique_id = unique_id.as_str().unwrap_or_default().to_owned();
            self.model.add(&unique_id, id);
            if object["status"]["resolved"]["repository"].is_object() {
                object["status"]["resolved"]["uniqueId"] = json!(unique_id);
            }
        }
        self.objects.put(&snapshot_in(namespace, name), object);
    }

    /// So many snapshots without objects that were proven gone and that a look found again.
    pub fn came_back(&mut self, count: usize) {
        let rows: Vec<Value> = (0..count)
            .map(|n| {
                self.model.add("id", &format!("id-back{n}"));
                json!({
                    "uid": format!("u-back{n}"), "namespace": "backup", "name": format!("back{n}"),
                    "snapshot": format!("id-back{n}"),
                    "source": { "username": "p", "hostname": "backup", "path": "/pvc/data" },
                })
            })
            .collect();
        let name = format!(
            "holdfast-reappeared-{}",
            holdfast_operator::jobs::short_hash("Repository/backup/nas")
        );
        self.objects.put(
            &format!("/api/v1/namespaces/holdfast-system/configmaps/{name}"),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": name, "namespace": "holdfast-system",
                    "labels": { "kopiur.home-operations.com/batch-memory": "nas" },
                },
                "data": {
                    "repository": "Repository/backup/nas", "uniqueId": "id", "writtenAt": at(0),
                    "members": Value::from(rows).to_string(),
                },
            }),
        );
        self.objects.edit(&repository_path("nas"), |r| {
            r["status"]["deletionProtection"]["reappeared"] = json!({ "count": count, "foundAt": at(0) });
        });
    }

    /// A backup Job that writes to the repository of this unique id.
    pub fn writer(&mut self, name: &str, unique_id: &str) {
        self.objects.put(
            &writer_path(name),
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": name, "namespace": "backup",
                    "labels": { OP: "snapshot-backup", "app.kubernetes.io/managed-by": "holdfast" },
                    "annotations": {
                        "kopiur.home-operations.com/works-for": name,
                        "kopiur.home-operations.com/writes-to": unique_id,
                    },
                },
                "spec": {}, "status": { "active": 1 },
            }),
        );
    }

    /// The Snapshot that retention kept.
    pub fn kept(&mut self) {
        self.snapshot("kept", |s| {
            s["status"]["timing"] = json!({ "startTime": at(-900), "endTime": at(-800) })
        });
    }

    /// Snapshots `s0`, `s1`, … that a person has deleted, one second after the other.
    pub fn deleted(&mut self, count: i64) {
        for n in 0..count {
            self.snapshot(&format!("s{n}"), |s| delete(s, n));
        }
    }

    pub fn schedule(&mut self, name: &str) {
        self.objects.put(
            &schedule_path(name),
            json!({
                "apiVersion": API, "kind": "SnapshotSchedule",
                "metadata": { "name": name, "namespace": "backup", "uid": format!("sched-{name}") },
                "spec": { "policyRef": { "name": "p" }, "schedule": { "cron": "0 3 * * *" } },
            }),
        );
    }

    /// The policy `p`, that keeps so many.
    pub fn policy(&mut self, keep: u32) {
        self.objects.put(
            &format!("{GROUP}/namespaces/backup/snapshotpolicies/p"),
            json!({
                "apiVersion": API, "kind": "SnapshotPolicy",
                "metadata": { "name": "p", "namespace": "backup", "uid": "policy", "generation": 1 },
                "spec": {
                    "repository": { "name": "nas" },
                    "sources": [{ "pvc": { "name": "data" } }],
                    "retention": { "keepLatest": keep },
                },
            }),
        );
    }
}

/// Deleted so many seconds after the beginning.
pub fn delete(snapshot: &mut Value, second: i64) {
    snapshot["metadata"]["deletionTimestamp"] = json!(at(second));
}

/// Owned by a schedule.
pub fn owned(snapshot: &mut Value, schedule: &str) {
    snapshot["metadata"]["ownerReferences"] = json!([{
        "apiVersion": API, "kind": "SnapshotSchedule", "name": schedule, "uid": format!("sched-{schedule}"),
    }]);
}

/// Stamped by retention when it was deleted, in favour of [`Scene::kept`].
pub fn stamped(snapshot: &mut Value, second: i64) {
    delete(snapshot, second);
    snapshot["metadata"]["annotations"][PRUNED_BY] = json!("retention");
    snapshot["metadata"]["annotations"][PRUNED_AT] = json!(at(second));
    snapshot["metadata"]["annotations"][PRUNED_KEPT] = json!("id-kept");
}

/// Status and reason of a condition.
pub fn condition(object: &Value, kind: &str) -> Option<(String, String)> {
    let list = object["status"]["conditions"].as_array()?;
    let found = list.iter().find(|c| c["type"] == kind)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    Some((text("status"), text("reason")))
}

pub fn is_true(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|(status, _)| status == "True")
}

/// The end of a story: what the objects, the finalizers and the repositories are. Times, counters and versions apart.
pub fn end(objects: &Objects, model: &Model) -> Value {
    let mut told: BTreeMap<String, Value> = BTreeMap::new();
    for (path, object) in &objects.by_path {
        let Some(place) = Place::parse(path) else {
            continue;
        };
        let protection = &object["status"]["deletionProtection"];
        let end = match place.plural {
            "snapshots" => json!({
                "deleting": !object["metadata"]["deletionTimestamp"].is_null(),
                "finalizers": object["metadata"]["finalizers"],
                "stamp": object["metadata"]["annotations"][PRUNED_BY],
                "held": condition(object, "DeletionHeld"),
                "blocked": condition(object, "DeletionBlocked"),
                "job": object["status"]["deletion"]["job"],
                "outcome": object["status"]["deletion"]["outcome"],
                "tried": object["status"]["deletion"]["attempts"].as_u64().unwrap_or(0) > 0,
            }),
            "repositories" => json!({
                "latched": !protection["heldThrough"].is_null(),
                "acknowledged": protection["acknowledgement"]["value"],
                // One that was written for the future counts from when it was seen first: a crash puts that off.
                "effective": protection["acknowledgement"]["effective"] == protection["acknowledgement"]["value"],
                "scan": !object["status"]["catalog"]["scanDue"].is_null(),
                "look": !object["status"]["catalog"]["secondLookAt"].is_null(),
                "invalid": protection["invalidAcknowledgement"],
                "held": condition(object, "MassDeletionHeld"),
                "failing": condition(object, "DeletionJobsFailing").map(|c| c.0),
                "reappeared": condition(object, "DeletedSnapshotsReappeared"),
                "most": protection["jobs"]["mostMembers"],
            }),
            // A name of a Job that is not there binds nobody: the process died between reaping and saying so.
            "leases" => {
                let named = object["metadata"]["annotations"][LANE_JOB]
                    .as_str()
                    .unwrap_or_default();
                let (namespace, name) = named.split_once('/').unwrap_or_default();
                let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}");
                json!({ "job": objects.by_path.contains_key(&path) })
            }
            "jobs" => json!({ "suspended": object["spec"]["suspend"] == true }),
            "pods" => json!("there"),
            _ => continue,
        };
        told.insert(path.clone(), end);
    }
    json!({ "objects": told, "repositories": model.stores })
}
