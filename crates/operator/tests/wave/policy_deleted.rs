//! A policy that is deleted: its Snapshots go, their data stays unless it said otherwise, and held ones keep nothing.

use crate::story::{JOBS, Story, snapshot_path};
use axum::http::Method;
use holdfast_operator::protect::policy;
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

const BY: &str = "kopiur.home-operations.com/pruned-by";
const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn policy_path() -> String {
    snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/")
}

impl Story {
    fn with_policy(on_policy_delete: Option<&str>) -> Self {
        let story = Self::new(3);
        let name = "snapshotpolicies.kopiur.home-operations.com";
        story
            .server
            .put(&format!("{CRD}/{name}"), json!({ "metadata": { "name": name } }));
        let mut spec = json!({ "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }] });
        if let Some(word) = on_policy_delete {
            spec["deletion"] = json!({ "onPolicyDelete": word });
        }
        story.server.put(
            &policy_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
                "metadata": { "name": "p", "namespace": "backup", "uid": "p-uid", "generation": 1 },
                "spec": spec,
            }),
        );
        story
    }

    fn child(&self, name: &str, origin: &str) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            let meta = s["metadata"].as_object_mut().unwrap();
            meta.remove("deletionTimestamp");
            meta.insert(
                "labels".to_owned(),
                json!({ "kopiur.home-operations.com/origin": origin }),
            );
        });
    }

    async fn policy_pass(&self) {
        policy::pass(&self.ctx, &ObjectKey::new("backup", "p"))
            .await
            .expect("a pass");
    }

    fn delete_policy(&self) {
        self.server.edit(&policy_path(), |p| {
            p["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
    }

    fn is_deleting(&self, name: &str) -> bool {
        let snapshot = self.server.get(&snapshot_path(name)).unwrap();
        !snapshot["metadata"]["deletionTimestamp"].is_null()
    }
}

async fn deleted(on_policy_delete: Option<&str>, children: usize) -> Story {
    let story = Story::with_policy(on_policy_delete);
    story.policy_pass().await;
    let policy = story.server.get(&policy_path()).unwrap();
    assert_eq!(
        policy["metadata"]["finalizers"],
        json!(["kopiur.home-operations.com/policy-cleanup"]),
        "before it has children"
    );
    for n in 0..children {
        story.child(&format!("c{n}"), "scheduled");
    }
    story.delete_policy();
    story.policy_pass().await;
    story
}

#[tokio::test]
async fn by_default_the_children_go_and_their_data_stays_with_a_warning_each() {
    for word in [None, Some("Retain"), Some("AskFirst")] {
        let story = deleted(word, 4).await;
        assert!((0..4).all(|n| story.is_deleting(&format!("c{n}"))));
        let c0 = story.server.get(&snapshot_path("c0")).unwrap();
        assert_eq!(c0["metadata"]["annotations"][BY], "policy-cascade");
        story.policy_pass().await;
        assert!(story.server.get(&policy_path()).is_none(), "{word:?}");
        story.pass().await;
        assert!(story.server.get(&snapshot_path("c0")).is_none());
        assert!(story.server.writes(&Method::POST, JOBS).is_empty());
        let events = story.server.writes(&Method::POST, "/events");
        let loud = |e: &&crate::server::Write| e.body["reason"] == "SnapshotRetainedOnPolicyDelete";
        assert_eq!(events.iter().filter(loud).count(), 4);
    }
}

#[tokio::test]
async fn with_delete_the_breaker_counts_them_and_a_held_one_keeps_no_policy() {
    let story = deleted(Some("Delete"), 4).await;
    story.policy_pass().await;
    assert!(
        story.server.get(&policy_path()).is_none(),
        "not kept by held children"
    );
    story.pass().await;
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    let c0 = story.server.get(&snapshot_path("c0")).unwrap();
    assert_eq!(c0["metadata"]["annotations"][BY], Value::Null);
    assert_eq!(story.condition(&c0, "DeletionHeld").0, "True");
}

#[tokio::test]
async fn a_stamp_that_was_left_on_a_child_does_not_take_it_past_the_breaker() {
    let story = deleted(Some("Delete"), 0).await;
    for n in 0..4 {
        let name = format!("s{n}");
        story.child(&name, "manual");
        story.server.edit(&snapshot_path(&name), |s| {
            let now = jiff::Timestamp::now().to_string();
            s["metadata"]["annotations"] =
                json!({ BY: "retention", "kopiur.home-operations.com/pruned-at": now });
        });
    }
    // The finalizer went with the first pass: put it back.
    story.server.put(
        &policy_path(),
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
            "metadata": {
                "name": "p", "namespace": "backup", "uid": "p-uid",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
                "finalizers": ["kopiur.home-operations.com/policy-cleanup"],
            },
            "spec": {
                "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }],
                "deletion": { "onPolicyDelete": "Delete" },
            },
        }),
    );
    story.policy_pass().await;
    story.pass().await;
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    let s0 = story.server.get(&snapshot_path("s0")).unwrap();
    assert_eq!(story.condition(&s0, "DeletionHeld").0, "True");
}

#[tokio::test]
async fn rows_that_are_nobodys_children_stay() {
    let story = Story::with_policy(None);
    story.policy_pass().await;
    for (name, origin) in [
        ("found", "discovered"),
        ("copied", "replicated"),
        ("newer", "from-a-newer-release"),
    ] {
        story.child(name, origin);
    }
    story.child("adopted", "adopted");
    story.delete_policy();
    story.policy_pass().await;
    story.policy_pass().await;
    assert!(story.is_deleting("adopted"));
    for name in ["found", "copied", "newer"] {
        assert!(!story.is_deleting(name), "{name}");
    }
    assert!(story.server.get(&policy_path()).is_none());
}

#[tokio::test]
async fn in_a_teardown_and_while_uninstalling_the_policy_decides_nothing() {
    for gone in [
        "/api/v1/namespaces/backup".to_owned(),
        format!("{CRD}/snapshotpolicies.kopiur.home-operations.com"),
        format!("{CRD}/snapshots.kopiur.home-operations.com"),
    ] {
        let story = Story::with_policy(Some("Delete"));
        story.policy_pass().await;
        story.child("c", "scheduled");
        story.server.edit_unseen(&gone, |o| {
            o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        });
        story.delete_policy();
        story.policy_pass().await;
        assert!(story.server.get(&policy_path()).is_none(), "{gone}");
        assert!(!story.is_deleting("c"), "{gone}");
    }
}

#[tokio::test]
async fn a_child_that_changes_meanwhile_is_judged_again_and_keeps_the_policy_until_then() {
    let story = Story::with_policy(None);
    story.policy_pass().await;
    story.child("c", "scheduled");
    let mut changed = false;
    story.server.on_write(move |write, objects| {
        if !changed && write.path.contains("/snapshots/c") {
            changed = true;
            objects.bump(&snapshot_path("c"));
        }
        None
    });
    story.delete_policy();
    story.policy_pass().await;
    assert!(!story.is_deleting("c"));
    assert!(story.server.get(&policy_path()).is_some());
    story.policy_pass().await;
    assert!(story.is_deleting("c"));
    story.policy_pass().await;
    assert!(story.server.get(&policy_path()).is_none());
}
