//! A lane with one repository in the namespace `backup`, ready to be looked at.

use crate::server::Server;
use clap::Parser;
use futures::future::BoxFuture;
use holdfast_operator::context::{Context, Error, Gates, Queues};
use holdfast_operator::protect::{snapshot, wave};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::events::Events;
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::metrics::Metrics;
use holdfast_operator::runtime::queue::Next;
use holdfast_operator::runtime::results::Results;
use holdfast_operator::runtime::review::{Reviewer, Reviews, Unavailable, Verdict};
use holdfast_operator::settings::Settings;
use holdfast_operator::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use holdfast_operator::world::views::{JobView, RepositoryView};
use holdfast_operator::world::{Change, Observed, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::{Arc, RwLock};

const GROUP: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup";
/// Where batch Jobs are created.
pub const JOBS: &str = "/apis/batch/v1/namespaces/backup/jobs";

pub fn snapshot_path(name: &str) -> String {
    format!("{GROUP}/snapshots/{name}")
}

pub fn repository_path() -> String {
    format!("{GROUP}/repositories/nas")
}

struct Nobody;

impl Reviewer for Nobody {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
        unreachable!("no mover posts here")
    }
}

/// See the module.
pub struct Story {
    pub server: Server,
    pub ctx: Context,
}

impl Story {
    pub fn new(threshold: u32) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let world = World::new();
        let server = Server::new(Arc::clone(&world));
        let ctx = Self::process(&server, world);
        let story = Self { server, ctx };
        for name in ["backup", "holdfast-system"] {
            story.server.put(
                &format!("/api/v1/namespaces/{name}"),
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }),
            );
        }
        story.server.put(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/snapshots.kopiur.home-operations.com",
            json!({ "metadata": { "name": "snapshots.kopiur.home-operations.com" } }),
        );
        story.server.put(
            "/api/v1/namespaces/backup/secrets/key",
            json!({ "metadata": { "name": "key" }, "data": { "KOPIA_PASSWORD": "eA==" } }),
        );
        for (path, name) in [
            ("persistentvolumeclaims", "store"),
            ("serviceaccounts", "holdfast-mover"),
        ] {
            story.server.put(
                &format!("/api/v1/namespaces/backup/{path}/{name}"),
                json!({ "metadata": { "name": name } }),
            );
        }
        story.server.put(
            &repository_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1",
                "kind": "Repository",
                "metadata": { "name": "nas", "namespace": "backup", "annotations": {} },
                "spec": {
                    "engine": "Restic",
                    "backend": { "filesystem": { "path": "/r", "volume": { "pvc": { "name": "store" } } } },
                    "encryption": { "passwordSecretRef": { "name": "key" } },
                    "deletionProtection": { "threshold": threshold },
                },
                "status": { "phase": "Ready", "uniqueId": "id" },
            }),
        );
        story
    }

    /// A process that knows what the API server has, and nothing else.
    fn process(server: &Server, world: Arc<World>) -> Context {
        let client = server.client();
        let leadership = Leadership::always();
        Context {
            client: client.clone(),
            world,
            settings: Settings::parse_from(["holdfast-operator", "--namespace", "holdfast-system"]),
            clock: Clock::system(),
            leadership: leadership.clone(),
            events: Events::new(client, "test"),
            metrics: Arc::new(Metrics::new()),
            results: Results::new(Reviews::new(Arc::new(Nobody)), leadership),
            endpoint: RwLock::new(None),
            cluster: "cluster".to_owned(),
            identity: "me".to_owned(),
            queues: Queues::new(),
            foreign: Foreign::none(),
            gates: Gates::default(),
        }
    }

    /// The process ends and another one begins.
    pub fn restarted(self) -> Self {
        let ctx = Self::process(&self.server, Arc::clone(&self.ctx.world));
        Self {
            server: self.server,
            ctx,
        }
    }

    /// A Snapshot that was deleted a minute ago.
    pub fn snapshot(&self, name: &str, owners: Value) {
        let deleted = Timestamp::now() - SignedDuration::from_secs(60);
        let owners = if owners.is_array() { owners } else { json!([]) };
        self.server.put(
            &snapshot_path(name),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1",
                "kind": "Snapshot",
                "metadata": {
                    "name": name,
                    "namespace": "backup",
                    "uid": format!("u-{name}"),
                    "annotations": {},
                    "deletionTimestamp": deleted.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
                    "finalizers": ["kopiur.home-operations.com/snapshot-cleanup"],
                    "ownerReferences": owners,
                },
                "spec": { "policyRef": { "name": "p" } },
                "status": {
                    "phase": "Succeeded",
                    "snapshot": {
                        "kopiaSnapshotID": format!("id-{name}"),
                        "identity": { "username": "p", "hostname": "backup", "sourcePath": "/pvc/data" },
                    },
                    "resolved": { "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" } },
                },
            }),
        );
    }

    pub fn schedule(&self, name: &str, uid: &str) -> String {
        let path = format!("{GROUP}/snapshotschedules/{name}");
        self.server.put(
            &path,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1",
                "kind": "SnapshotSchedule",
                "metadata": { "name": name, "namespace": "backup", "uid": uid },
                "spec": { "policyRef": { "name": "p" }, "schedule": { "cron": "0 3 * * *" } },
            }),
        );
        path
    }

    pub async fn try_pass(&self) -> Result<Next, Error> {
        wave::pass(&self.ctx, &LaneKey::Physical("id".to_owned())).await
    }

    /// A Snapshot of the policy `p` that is about to run.
    pub fn run(&self, name: &str) {
        let policies = format!("{GROUP}/snapshotpolicies/p");
        self.server.put(
            &policies,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
                "metadata": { "name": "p", "namespace": "backup", "uid": "policy", "generation": 1 },
                "spec": { "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }] },
            }),
        );
        self.server.put(
            "/api/v1/namespaces/backup/persistentvolumeclaims/data",
            json!({ "metadata": { "name": "data" } }),
        );
        self.server.put(
            &snapshot_path(name),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
                "metadata": {
                    "name": name, "namespace": "backup", "uid": format!("u-{name}"),
                    "finalizers": ["kopiur.home-operations.com/snapshot-cleanup"],
                },
                "spec": { "policyRef": { "name": "p" } },
                "status": { "phase": "Pending", "origin": "manual" },
            }),
        );
    }

    pub async fn run_pass(&self, name: &str) {
        let key = ObjectKey::new("backup", name);
        snapshot::pass(&self.ctx, &key).await.expect("a pass");
    }

    pub async fn pass_unresolved(&self) {
        wave::pass(&self.ctx, &LaneKey::Unresolved).await.expect("a pass");
    }

    pub async fn pass_unconnected(&self) {
        let nas = RepositoryKey::Repository {
            namespace: "backup".to_owned(),
            name: "nas".to_owned(),
        };
        wave::pass(&self.ctx, &LaneKey::Unconnected(nas))
            .await
            .expect("a pass");
    }

    /// Takes the repository out of the world although it is there.
    pub fn forget_repository(&self) {
        let object = self.server.get(&repository_path()).unwrap();
        let view = RepositoryView::namespaced(serde_json::from_value(object).unwrap());
        let gone = Change::Gone(Observed::Repository(Box::new(view)));
        self.ctx.world.apply(gone, Timestamp::now());
    }

    pub async fn pass(&self) -> Next {
        self.try_pass().await.expect("a pass")
    }

    /// The one batch Job.
    pub fn job(&self) -> Option<(String, Value)> {
        let mut jobs = self.server.under(JOBS);
        jobs.retain(|(_, j)| {
            j["metadata"]["labels"]["kopiur.home-operations.com/op"] == "snapshot-delete-batch"
        });
        assert!(jobs.len() <= 1, "never two Jobs at once");
        jobs.into_iter().next()
    }

    pub fn memories(&self) -> Vec<(String, Value)> {
        self.server.under("/api/v1/namespaces/holdfast-system/configmaps")
    }

    pub fn lease_path(&self) -> String {
        let leases = self
            .server
            .under("/apis/coordination.k8s.io/v1/namespaces/holdfast-system/leases");
        assert_eq!(leases.len(), 1);
        leases[0].0.clone()
    }

    pub fn lease(&self) -> Option<Value> {
        self.server.get(&self.lease_path())
    }

    /// The mover ends: with these letters, or without a result.
    pub fn finish(&self, path: &str, letters: Option<&str>, class: Option<&str>) {
        let error = class.map(|class| json!({ "class": class, "message": "disk full" }));
        let mut message =
            json!({ "version": 1, "uniqueId": "id", "result": { "batch": { "letters": letters } } });
        if let Some(error) = error {
            message["error"] = error;
        }
        let message = if letters.is_some() {
            message.to_string()
        } else {
            String::new()
        };
        self.end(path, &message, letters.is_some() && class.is_none());
    }

    /// The mover ends with this message.
    pub fn end(&self, path: &str, message: &str, well: bool) {
        let job = self.server.get(path).unwrap();
        let name = job["metadata"]["name"].as_str().unwrap();
        let namespace = job["metadata"]["namespace"].as_str().unwrap();
        self.server.put(
            &format!("/api/v1/namespaces/{namespace}/pods/{name}-x"),
            json!({
                "metadata": {
                    "name": format!("{name}-x"),
                    "namespace": namespace,
                    "labels": {
                        "batch.kubernetes.io/job-name": name,
                        "batch.kubernetes.io/controller-uid": job["metadata"]["uid"],
                    },
                    "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job["metadata"]["uid"], "controller": true }],
                },
                "status": {
                    "phase": if well { "Succeeded" } else { "Failed" },
                    "containerStatuses": [{
                        "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                        "state": { "terminated": { "exitCode": i32::from(!well), "message": message } },
                    }],
                },
            }),
        );
        let ended = if well { "Complete" } else { "Failed" };
        self.server.edit(path, |job| {
            job["status"] = json!({ "conditions": [{ "type": ended, "status": "True" }] });
        });
    }

    /// Takes a Job out of the world, as if its event had not arrived.
    pub fn forget_job(&self, path: &str) {
        let job: JobView = serde_json::from_value(self.server.get(path).unwrap()).unwrap();
        self.ctx
            .world
            .apply(Change::Gone(Observed::Job(Box::new(job))), Timestamp::now());
    }

    /// Status, reason and message of a condition.
    pub fn condition(&self, object: &Value, kind: &str) -> (String, String, String) {
        let list = object["status"]["conditions"].as_array().unwrap();
        let found = list.iter().find(|c| c["type"] == kind).unwrap();
        let text = |key: &str| found[key].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }
}
