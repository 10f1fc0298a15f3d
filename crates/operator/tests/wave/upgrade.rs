//! After an upgrade from the Kopia operator: what it stored and left behind.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

impl Story {
    /// A Job of the Kopia operator that was created so long ago.
    fn their_job(&self, name: &str, minutes_ago: i64, batch_of: Option<&str>) -> String {
        let path = format!("{JOBS}/{name}");
        let mut labels = json!({ "app.kubernetes.io/managed-by": "kopiur" });
        let mut annotations = json!({});
        if let Some(members) = batch_of {
            labels["kopiur.home-operations.com/op"] = json!("snapshot-delete-batch");
            annotations["kopiur.home-operations.com/delete-members"] = json!(members);
        }
        self.server.put(
            &path,
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": { "name": name, "namespace": "backup", "uid": name, "labels": labels, "annotations": annotations },
                "spec": {}, "status": { "active": 1 },
            }),
        );
        let created = Timestamp::now() - SignedDuration::from_mins(minutes_ago);
        self.server.set_created(&path, created);
        path
    }

    fn ours(&self) -> usize {
        self.server.writes(&Method::POST, JOBS).len()
    }
}

#[tokio::test]
async fn a_delete_job_that_the_other_operator_left_is_not_doubled() {
    for (name, batch_of) in [
        ("a-delete", None),
        ("backup-a-delete", None),
        ("snapdel-x", Some("u-z,u-a")),
    ] {
        let story = Story::new(10);
        story.snapshot("a", json!({}));
        let path = story.their_job(name, 1, batch_of);
        story.pass().await;
        assert_eq!(story.ours(), 0, "{name}");
        let repository = story.server.get(&repository_path()).unwrap();
        assert!(
            repository["status"]["conditions"]
                .as_array()
                .is_none_or(|list| list.iter().all(|c| c["type"] != "DeletionJobsFailing"))
        );
        // Its end says nothing about the data: our own mover looks.
        story.server.edit(&path, |job| {
            job["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
        });
        story.pass().await;
        assert_eq!(story.ours(), 1, "{name}");
        assert!(story.server.get(&snapshot_path("a")).is_some());
    }
}

#[tokio::test]
async fn one_that_does_not_end_is_named_and_one_of_another_snapshot_stops_nobody() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.their_job("a-delete", 3, None);
    story.pass().await;
    assert_eq!(story.ours(), 0);
    let repository = story.server.get(&repository_path()).unwrap();
    let (_, reason, message) = story.condition(&repository, "DeletionJobsFailing");
    assert_eq!(reason, "LegacyDeleteJob");
    assert!(message.contains("backup/a-delete"), "{message}");

    // Known to be of another repository.
    let story = Story::new(10);
    for name in ["a", "b"] {
        story.snapshot(name, json!({}));
    }
    story.server.edit(&snapshot_path("b"), |s| {
        s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
        s["status"]["resolved"]["uniqueId"] = json!("another");
    });
    story.their_job("b-delete", 3, None);
    let batch = story.their_job("snapdel-x", 3, Some("u-b"));
    story.server.edit(&batch, |job| {
        job["metadata"]["labels"]["kopiur.home-operations.com/delete-repo"] = json!("nas2-01234567");
    });
    story.pass().await;
    assert_eq!(story.ours(), 1);
}

/// Two would delete from one repository at once; where it cannot be told, not for ever.
#[tokio::test]
async fn one_that_may_delete_something_else_from_the_repository_is_waited_for_as_a_writer_is() {
    let label = |story: &Story, path: &str| {
        story.server.edit(path, |job| {
            job["metadata"]["labels"]["kopiur.home-operations.com/delete-repo"] = json!("nas-01234567");
        });
    };
    for (name, batch_of, labelled) in [
        ("gone-delete", None, false),
        ("snapdel-x", Some("u-gone"), false),
        ("snapdel-x", Some("u-gone"), true),
    ] {
        for (minutes, ours) in [(1, 0), (3, 0), (11, 1)] {
            let story = Story::new(10);
            story.snapshot("a", json!({}));
            let path = story.their_job(name, minutes, batch_of);
            if labelled {
                label(&story, &path);
            }
            story.pass().await;
            assert_eq!(story.ours(), ours, "{name} {minutes}");
            if minutes == 3 {
                let repository = story.server.get(&repository_path()).unwrap();
                let (_, reason, message) = story.condition(&repository, "DeletionJobsFailing");
                assert_eq!(reason, "LegacyDeleteJob");
                assert!(
                    message.contains("may delete") && message.contains(", or at "),
                    "{message}"
                );
            }
        }
    }
}

#[tokio::test]
async fn they_are_looked_for_until_none_was_left() {
    let story = Story::new(0);
    let reads = || story.server.reads("/apis/batch/v1/jobs");
    story.snapshot("a", json!({}));
    let path = story.their_job("b-delete", 11, None);
    story.pass().await;
    let (ours, _) = story.job().unwrap();
    assert_eq!(reads(), 1);
    story.finish(&ours, Some("D"), None);
    story.pass().await;
    // One is left, of another Snapshot: it is looked at again, and has ended now.
    story.server.edit(&path, |job| {
        job["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    });
    for (name, looks) in [("c", 2), ("d", 2), ("e", 2)] {
        story.snapshot(name, json!({}));
        story.pass().await;
        let (ours, _) = story.job().unwrap();
        story.finish(&ours, Some("D"), None);
        story.pass().await;
        assert_eq!(reads(), looks, "{name}");
    }
}

/// Objects that were stored before these fields existed: threshold 10, Orphan, Retain.
#[tokio::test]
async fn stored_objects_without_the_new_fields_are_protected() {
    let owner = json!([{ "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule", "name": "gone", "uid": "gone" }]);
    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        let spec = r["spec"].as_object_mut().unwrap();
        spec.remove("deletionProtection");
        spec.remove("onNamespaceDelete");
    });
    for n in 0..10 {
        story.snapshot(&format!("s{n}"), json!({}));
    }
    story.snapshot("of-a-schedule", owner);
    story.pass().await;
    assert_eq!(
        story.ours(),
        0,
        "ten are held without anybody having set a threshold"
    );
    let s0 = story.server.get(&snapshot_path("s0")).unwrap();
    assert_eq!(story.condition(&s0, "DeletionHeld").0, "True");
    assert!(story.server.get(&snapshot_path("of-a-schedule")).is_none());
    let events = story.server.writes(&Method::POST, "/events");
    assert!(
        events
            .iter()
            .any(|e| e.body["reason"] == "SnapshotRetainedOnScheduleDelete")
    );

    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        r["spec"]["deletionProtection"] = Value::Null
    });
    story.snapshot("a", json!({}));
    story.server.edit("/api/v1/namespaces/backup", |n| {
        n["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    story.pass().await;
    assert_eq!(story.ours(), 0, "a teardown is no wish to delete data");
    assert!(story.server.get(&snapshot_path("a")).is_none());
}
