//! The breaker on a stored ClusterRepository: one tenant's wave holds the deletions of all.

use crate::story::{Story, snapshot_path};
use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

pub const SHARED: &str = "/apis/kopiur.home-operations.com/v1alpha1/clusterrepositories/shared";
const OURS: &str = "/apis/batch/v1/namespaces/holdfast-system/jobs";
const ACK: &str = "kopiur.home-operations.com/allow-mass-deletion";

impl Story {
    /// As [`Story::snapshot`], elsewhere.
    pub fn snapshot_in(&self, namespace: &str, name: &str) {
        self.snapshot(name, json!({}));
        let mut snapshot = self.server.get(&snapshot_path(name)).unwrap();
        self.server.remove(&snapshot_path(name));
        snapshot["metadata"]["namespace"] = json!(namespace);
        snapshot["metadata"]["uid"] = json!(format!("u-{namespace}-{name}"));
        self.server.put(&path_in(namespace, name), snapshot);
    }

    fn shared(&self) -> Value {
        self.server.get(SHARED).unwrap()
    }

    fn tenants(&self, deletions: &[(&str, usize)]) {
        for (namespace, count) in deletions {
            self.server.put(
                &format!("/api/v1/namespaces/{namespace}"),
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            );
            for n in 0..*count {
                let name = format!("s{n}");
                self.snapshot_in(namespace, &name);
                self.server.edit(&path_in(namespace, &name), |s| {
                    s["status"]["resolved"] =
                        json!({ "repository": { "kind": "ClusterRepository", "name": "shared" }, "uniqueId": "id" });
                });
            }
        }
    }

    fn held_in(&self, namespace: &str, name: &str) -> bool {
        let snapshot = self.server.get(&path_in(namespace, name)).unwrap();
        self.condition(&snapshot, "DeletionHeld").0 == "True"
    }

    fn jobs_of_ours(&self) -> usize {
        self.server.writes(&Method::POST, OURS).len()
    }
}

fn path_in(namespace: &str, name: &str) -> String {
    snapshot_path(name).replace("/namespaces/backup/", &format!("/namespaces/{namespace}/"))
}

/// A story whose only repository is the ClusterRepository `shared`.
pub fn shared(threshold: u32) -> Story {
    let story = Story::new(threshold);
    let mut object = story.server.get(&crate::story::repository_path()).unwrap();
    story.server.remove(&crate::story::repository_path());
    object["kind"] = json!("ClusterRepository");
    object["metadata"] = json!({ "name": "shared", "annotations": {} });
    object["spec"]["allowedNamespaces"] = json!({ "all": true });
    object["spec"]["encryption"]["passwordSecretRef"]["namespace"] = json!("holdfast-system");
    story.server.put(SHARED, object);
    for (plural, name) in [
        ("secrets", "key"),
        ("persistentvolumeclaims", "store"),
        ("serviceaccounts", "holdfast-mover"),
    ] {
        let from = story
            .server
            .get(&format!("/api/v1/namespaces/backup/{plural}/{name}"))
            .unwrap();
        story.server.put(
            &format!("/api/v1/namespaces/holdfast-system/{plural}/{name}"),
            from,
        );
    }
    story
}

#[tokio::test]
async fn one_tenants_wave_holds_the_deletions_of_all_and_the_condition_says_where() {
    let story = shared(4);
    story.tenants(&[("one", 3), ("two", 1)]);
    story.pass().await;
    assert_eq!(story.jobs_of_ours(), 0);
    assert!(story.held_in("one", "s0") && story.held_in("two", "s0"));
    let (status, reason, message) = story.condition(&story.shared(), "MassDeletionHeld");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ThresholdExceeded"));
    for part in [
        "one (3), two (1)",
        "kubectl annotate clusterrepository/shared",
        "held here since 20",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(!story.shared()["status"]["deletionProtection"]["heldThrough"].is_null());
}

#[tokio::test]
async fn a_hold_on_it_outlasts_rescues_raised_thresholds_and_what_is_no_time_and_ends_by_an_acknowledgement()
{
    let story = shared(3);
    story.tenants(&[("one", 2), ("two", 1)]);
    story.pass().await;
    // Rescued, and more allowed: the two that are left stay held.
    story.server.edit(&path_in("two", "s0"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    for threshold in [json!(10), Value::Null] {
        story.server.edit(SHARED, |r| {
            r["spec"]["deletionProtection"]["threshold"] = threshold
        });
        story.pass().await;
    }
    assert!(story.server.get(&path_in("two", "s0")).is_none());
    assert!(story.held_in("one", "s0") && story.held_in("one", "s1"));
    // No time: said once, and still armed.
    story
        .server
        .edit(SHARED, |r| r["metadata"]["annotations"][ACK] = json!("yes, all"));
    story.pass().await;
    story.pass().await;
    let events = story.server.writes(&Method::POST, "/events");
    let told = events
        .iter()
        .filter(|e| e.body["reason"] == "InvalidMassDeletionAck");
    assert_eq!(told.count(), 1);
    assert_eq!(story.jobs_of_ours(), 0);
    assert_eq!(
        story.shared()["status"]["deletionProtection"]["invalidAcknowledgement"],
        "yes, all"
    );
    // A person says so: recorded first, in force afterwards.
    let now = (Timestamp::now() - SignedDuration::from_secs(1))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    story
        .server
        .edit(SHARED, |r| r["metadata"]["annotations"][ACK] = json!(now));
    story.pass().await;
    assert_eq!(story.jobs_of_ours(), 0);
    assert_eq!(
        story.shared()["status"]["deletionProtection"]["acknowledgement"]["value"],
        now
    );
    story.pass().await;
    assert_eq!(story.jobs_of_ours(), 1);
}

#[tokio::test]
async fn a_threshold_of_0_on_it_lets_a_held_wave_go() {
    let story = shared(2);
    story.tenants(&[("one", 2)]);
    story.pass().await;
    assert!(story.held_in("one", "s0"));
    story.server.edit(SHARED, |r| {
        r["spec"]["deletionProtection"]["threshold"] = json!(0)
    });
    story.pass().await;
    assert_eq!(story.jobs_of_ours(), 1);
}
