//! Figures and forms that the design names: what a Job looks like, when a failure is told, what a window counts.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use serde_json::{Value, json};

impl Story {
    /// Another Snapshot is deleted; all of them are done by one Job.
    async fn drain(&self) {
        self.pass().await;
        let (path, job) = self.job().unwrap();
        let members = job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"].as_str();
        let count = members.unwrap().split(',').count();
        self.finish(&path, Some(&"D".repeat(count)), None);
        self.pass().await;
    }
}

#[tokio::test]
async fn a_member_that_fails_is_told_once_at_the_third_failure() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    for attempt in 1..=5 {
        story.pass().await;
        let (path, _) = story.job().unwrap();
        story.finish(&path, Some("F"), Some("OperationFailed"));
        story.pass().await;
        let a = story.server.get(&snapshot_path("a")).unwrap();
        assert_eq!(a["status"]["deletion"]["attempts"], attempt);
        let told = story.told("SnapshotDeletionFailing");
        assert_eq!(told.len(), usize::from(attempt >= 3), "attempt {attempt}");
        if let Some(event) = told.first() {
            assert_eq!(event["type"], "Warning");
            let note = event["note"].as_str().unwrap();
            assert!(
                note.contains("3 attempts") && note.contains("disk full"),
                "{note}"
            );
        }
        // Its time has come.
        story.server.edit(&snapshot_path("a"), |s| {
            s["status"]["deletion"]["nextAttemptAt"] = Value::Null;
        });
    }
}

#[tokio::test]
async fn a_delete_job_runs_once_survives_disruptions_and_outlives_its_repository() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (_, job) = story.job().unwrap();
    let spec = &job["spec"];
    let rules = &spec["podFailurePolicy"]["rules"];
    assert_eq!(
        rules,
        &json!([{ "action": "Ignore", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }])
    );
    assert_eq!(spec["backoffLimit"], 0);
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Never");
    assert!(spec["ttlSecondsAfterFinished"].is_null());
    assert!(
        job["metadata"]["ownerReferences"].is_null(),
        "it outlives its repository"
    );
}

/// In a namespace that is being deleted no event can be created: one on the repository instead, however many.
#[tokio::test]
async fn what_cannot_be_told_in_a_terminating_namespace_is_told_once_on_the_repository() {
    for (on_delete, reason) in [("Delete", "SnapshotDeletionHeld"), ("Orphan", "SnapshotOrphaned")] {
        let story = Story::new(2);
        story.server.edit(&repository_path(), |r| {
            r["spec"]["onNamespaceDelete"] = json!(on_delete)
        });
        story.server.put(
            "/api/v1/namespaces/app",
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": "app", "deletionTimestamp": "2026-01-01T00:00:00Z" },
            }),
        );
        for n in 0..3 {
            story.snapshot_in("app", &format!("s{n}"));
        }
        story.pass().await;
        story.pass().await;
        let events = story.server.writes(&Method::POST, "/namespaces/backup/events");
        let told: Vec<_> = events.iter().filter(|e| e.body["reason"] == reason).collect();
        assert_eq!(told.len(), 1, "{on_delete}");
        assert_eq!(told[0].body["regarding"]["name"], "nas", "{on_delete}");
        let note = told[0].body["note"].as_str().unwrap();
        assert!(note.starts_with("3 Snapshots"), "{note}");
        assert!(story.job().is_none());
    }
}

#[tokio::test]
async fn while_deletions_are_paused_nothing_fires_and_each_says_why() {
    let mut story = Story::new(10);
    story.ctx.settings.deletions_paused = true;
    for name in ["a", "b"] {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    story.pass().await;
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    for name in ["a", "b"] {
        let snapshot = story.server.get(&snapshot_path(name)).unwrap();
        let (status, reason, _) = story.condition(&snapshot, "DeletionBlocked");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "DeletionsPaused"));
    }
    story.ctx.settings.deletions_paused = false;
    story.pass().await;
    assert!(story.job().is_some());
}

/// Nine were deleted one after the other; with the tenth the window is full, also for a process that was just started.
#[tokio::test]
async fn a_sliding_window_counts_what_was_fired_and_a_new_process_reads_it_back() {
    let story = Story::new(100);
    story.server.edit(&repository_path(), |r| {
        r["spec"]["deletionProtection"]["slidingWindow"] = json!({ "duration": "24h", "threshold": 10 });
    });
    for n in 0..9 {
        story.snapshot(&format!("s{n}"), json!({}));
        story.drain().await;
    }
    assert_eq!(story.memories().len(), 9, "written down, batch by batch");
    let story = story.restarted();
    story.snapshot("s9", json!({}));
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none());
    let s9 = story.server.get(&snapshot_path("s9")).unwrap();
    assert_eq!(story.condition(&s9, "DeletionHeld").0, "True");
    let repository = story.server.get(&repository_path()).unwrap();
    let (status, reason, message) = story.condition(&repository, "MassDeletionHeld");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("True", "SlidingWindowExceeded")
    );
    assert!(message.contains("9 were carried out"), "{message}");
    // Without the window it is one of a hundred; the hold stays all the same.
    story.server.edit(&repository_path(), |r| {
        r["spec"]["deletionProtection"]["slidingWindow"] = Value::Null;
    });
    story.pass().await;
    assert!(story.job().is_none(), "a hold latches");
}

#[tokio::test]
async fn a_sliding_window_is_as_long_as_it_says() {
    for (duration, goes) in [("24h", false), ("1s", true)] {
        let story = Story::new(100);
        story.server.edit(&repository_path(), |r| {
            r["spec"]["deletionProtection"]["slidingWindow"] =
                json!({ "duration": duration, "threshold": 2 });
        });
        story.snapshot("s0", json!({}));
        story.drain().await;
        tokio::time::sleep(std::time::Duration::from_millis(2_500)).await;
        story.snapshot("s1", json!({}));
        story.pass().await;
        story.pass().await;
        assert_eq!(story.job().is_some(), goes, "{duration}");
    }
}
