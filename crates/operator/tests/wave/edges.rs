//! What stops, waits, is withdrawn; and what a process that ends anywhere leaves to the next.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The process ends at its n-th write, for every n there is: a new one comes to the same end.
#[tokio::test]
async fn a_process_that_ends_at_any_write_comes_to_the_same_end() {
    let mut kills = 0;
    for n in 0.. {
        let story = Story::new(10);
        for name in ["a", "b", "c"] {
            story.snapshot(name, json!({}));
        }
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        story.server.on_write(move |_, _| {
            let dead = count.fetch_add(1, Ordering::SeqCst) == n;
            dead.then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        let mut created = 0;
        for round in 0..12 {
            let _ = story.try_pass().await;
            created = story
                .server
                .writes(&Method::POST, JOBS)
                .iter()
                .filter(|w| w.path == JOBS)
                .count();
            if let Some((path, job)) = story.job()
                && job["status"]["conditions"].is_null()
            {
                let members = job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"]
                    .as_str()
                    .unwrap()
                    .split(',')
                    .count();
                story.finish(&path, Some(&"D".repeat(members)), None);
            }
            let left = ["a", "b", "c"]
                .iter()
                .filter(|n| story.server.get(&snapshot_path(n)).is_some())
                .count();
            if left == 0 && story.job().is_none() {
                break;
            }
            assert!(round < 11, "write {n}: {left} left");
        }
        assert!(created <= 2, "write {n}: {created} Jobs");
        if written.load(Ordering::SeqCst) <= n {
            break; // The whole story has fewer writes than that.
        }
        kills += 1;
    }
    assert!(kills >= 12, "only {kills} writes were tried");
}

/// The same with a result that is not the same for all: what failed is counted once, whatever write is the last.
#[tokio::test]
async fn a_process_that_ends_while_recording_counts_a_failure_once() {
    for n in 0.. {
        let story = Story::new(10);
        for name in ["a", "b", "c"] {
            story.snapshot(name, json!({}));
        }
        story.pass().await;
        let (path, _) = story.job().unwrap();
        story.finish(&path, Some("DFA"), Some("OperationFailed"));
        let written = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&written);
        story.server.on_write(move |_, _| {
            let dead = count.fetch_add(1, Ordering::SeqCst) == n;
            dead.then_some(StatusCode::INTERNAL_SERVER_ERROR)
        });
        for _ in 0..4 {
            let _ = story.try_pass().await;
        }
        assert!(story.server.get(&snapshot_path("a")).is_none(), "write {n}");
        assert!(story.server.get(&snapshot_path("c")).is_none(), "write {n}");
        let b = story.server.get(&snapshot_path("b")).unwrap();
        assert_eq!(b["status"]["deletion"]["attempts"], 1, "write {n}");
        assert!(story.job().is_none(), "write {n}");
        if written.load(Ordering::SeqCst) <= n {
            assert!(n >= 5, "only {n} writes were tried");
            break;
        }
    }
}

#[tokio::test]
async fn a_job_that_does_not_start_is_withdrawn_in_the_foreground() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    let old = Timestamp::now() - SignedDuration::from_mins(6);
    story.server.edit(&path, |_| {});
    story.server.set_created(&path, old);
    story.pass().await;
    let deletions = story.server.writes(&Method::DELETE, JOBS);
    assert_eq!(deletions.len(), 1);
    assert_eq!(deletions[0].body["propagationPolicy"], "Foreground");
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(
        story.condition(&repository, "DeletionJobsFailing").1,
        "BatchNotStarted"
    );
    // Gone at once here; its claim binds nobody, and the repository backs off.
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert!(a["status"]["deletion"]["job"].is_null());
    assert_eq!(story.condition(&a, "DeletionBlocked").1, "RepositoryBackingOff");
}

#[tokio::test]
async fn skipping_a_member_of_a_job_that_has_not_started_withdraws_it() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.snapshot("b", json!({}));
    story.pass().await;
    story.server.edit(&snapshot_path("b"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    story.pass().await;
    assert!(story.job().is_none());
    assert!(
        story.server.get(&snapshot_path("b")).is_some(),
        "not before the Job is gone"
    );
    story.pass().await;
    assert!(story.server.get(&snapshot_path("b")).is_none(), "orphaned");
    story.pass().await;
    let (_, job) = story.job().unwrap();
    assert_eq!(
        job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"],
        "u-a"
    );
}

#[tokio::test]
async fn skipping_a_member_in_flight_changes_nothing() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert!(story.job().is_some());
    let (status, reason, message) = story.condition(&a, "DeletionBlocked");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "InFlight"));
    assert!(message.contains("too late"), "{message}");
}

#[tokio::test]
async fn a_connected_repository_has_no_lane_of_an_unconnected_one() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, job) = story.job().unwrap();
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    // What a process marks at its start, before it knows that the object is connected.
    story.pass_unconnected().await;
    let a = story
        .server
        .get(&snapshot_path("a"))
        .expect("in flight: its result decides");
    assert_eq!(a["status"]["deletion"]["job"], job["metadata"]["name"]);
}

#[tokio::test]
async fn a_repository_object_that_goes_while_its_job_runs_lets_the_result_decide() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    story.server.remove(&repository_path());
    story.pass_unresolved().await;
    assert!(story.server.get(&snapshot_path("a")).is_some(), "in flight");
    story.finish(&path, Some("D"), None);
    story.pass_unresolved().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.job().is_none());
}

#[tokio::test]
async fn the_cap_counts_jobs_of_other_lanes() {
    let mut story = Story::new(10);
    story.ctx.settings.max_concurrent_delete_jobs = 1;
    story.snapshot("a", json!({}));
    let other = "/apis/batch/v1/namespaces/elsewhere/jobs/other";
    let labels = json!({ "kopiur.home-operations.com/op": "snapshot-delete-batch" });
    // The watch does not have it yet.
    story.server.put(
        other,
        json!({ "metadata": { "name": "other", "namespace": "elsewhere", "labels": labels } }),
    );
    story.forget_job(other);
    story.pass().await;
    assert!(story.job().is_none());
    story.server.remove(other);
    story.pass().await;
    assert!(story.job().is_some());
}

#[tokio::test]
async fn nothing_fires_while_a_pod_of_a_job_deleted_by_hand_is_left() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, job) = story.job().unwrap();
    story.server.put(
        "/api/v1/namespaces/backup/pods/left",
        json!({
            "metadata": { "name": "left", "labels": job["metadata"]["labels"] },
            "status": { "phase": "Running" },
        }),
    );
    story.server.remove(&path);
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none());
    story.server.edit("/api/v1/namespaces/backup/pods/left", |p| {
        p["status"]["phase"] = json!("Failed");
    });
    story.pass().await;
    assert!(story.job().is_some());
}

#[tokio::test]
async fn a_missing_secret_is_the_repositorys_trouble_and_creates_no_job() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.remove("/api/v1/namespaces/backup/secrets/key");
    story.pass().await;
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(
        story.condition(&repository, "DeletionJobsFailing").1,
        "MissingCredentialsSecret"
    );
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    assert!(
        story.server.get(&snapshot_path("a")).unwrap()["status"]["deletion"].is_null(),
        "nobody is claimed for a Job that cannot be"
    );
}

#[tokio::test]
async fn a_suspended_repository_says_so_on_each_member() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story
        .server
        .edit(&repository_path(), |r| r["spec"]["suspend"] = json!(true));
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "DeletionBlocked").1, "RepositorySuspended");
    assert_eq!(a["status"]["phase"], "Deleting");
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
}

#[tokio::test]
async fn a_repository_suspended_a_moment_ago_stops_the_batch() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    // The watch has not told it yet; the live proof does.
    story.server.edit_unseen(&repository_path(), |r| {
        r["spec"]["suspend"] = json!(true);
    });
    story.server.on_write(|write, _| {
        assert!(!write.path.starts_with(JOBS), "no Job");
        None
    });
    let _ = story.try_pass().await;
}

#[tokio::test]
async fn a_snapshot_of_another_physical_repository_waits() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["resolved"]["uniqueId"] = json!("the one before");
    });
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "DeletionBlocked").1, "RepositoryMismatch");
    assert!(story.job().is_none());
}

#[tokio::test]
async fn a_repository_that_only_the_cache_lost_orphans_nobody() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.forget_repository();
    story.pass_unresolved().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "DeletionBlocked").1, "RepositoryUnreadable");
    story.server.remove_unseen(&repository_path());
    story.pass_unresolved().await;
    assert!(
        story.server.get(&snapshot_path("a")).is_none(),
        "proven gone: orphaned"
    );
}

#[tokio::test]
async fn an_unreadable_acknowledgement_is_told_once() {
    let story = Story::new(10);
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"]["kopiur.home-operations.com/allow-mass-deletion"] = json!("yes");
    });
    story.snapshot("a", json!({}));
    story.pass().await;
    story.pass().await;
    let told = story.server.writes(&Method::POST, "/events");
    let told: Vec<_> = told
        .iter()
        .filter(|w| w.body["reason"] == "InvalidMassDeletionAck")
        .collect();
    assert_eq!(told.len(), 1);
}

#[tokio::test]
async fn a_running_backup_is_stopped_and_a_snapshot_without_status_let_go() {
    let story = Story::new(10);
    story.snapshot("lost", json!({}));
    story.server.edit(&snapshot_path("lost"), |s| {
        s["status"] = json!({ "resolved": s["status"]["resolved"] });
    });
    story.snapshot("running", json!({}));
    story.server.edit(&snapshot_path("running"), |s| {
        s["status"]["snapshot"] = serde_json::Value::Null;
        s["status"]["phase"] = json!("Running");
    });
    let job = format!("{JOBS}/running");
    story.server.put(
        &job,
        json!({
            "metadata": {
                "name": "running", "namespace": "backup",
                "ownerReferences": [{
                    "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
                    "name": "running", "uid": "u-running", "controller": true,
                }],
                "labels": {
                    "kopiur.home-operations.com/op": "snapshot-backup",
                    "kopiur.home-operations.com/owner-uid": "u-running",
                },
                "annotations": { "kopiur.home-operations.com/works-for": "running" },
            },
            "spec": {},
            "status": { "active": 1 },
        }),
    );
    story.pass().await;
    assert!(story.server.get(&snapshot_path("lost")).is_none());
    assert_eq!(story.server.get(&job).unwrap()["spec"]["suspend"], true);
    assert!(story.server.get(&snapshot_path("running")).is_some());
    // The Job controller has not looked yet: its pod may still be on its way.
    story.server.edit(&job, |j| j["status"] = json!({}));
    story.pass().await;
    assert!(story.server.get(&snapshot_path("running")).is_some());
    story.server.edit(&job, |j| {
        j["status"] = json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("running")).is_none());
}
