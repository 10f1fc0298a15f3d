//! The lane controller against an API server in memory: what it writes, in which order, and what it does not.
#![allow(clippy::unwrap_used)]

mod adoption;
mod batches;
mod cases;
mod catalog;
mod cluster_repository;
mod conformance;
mod copies;
mod edges;
mod field_reports;
mod field_words;
mod fields;
mod figures;
mod foreign;
mod identity;
mod lost_deletions;
mod maintenance;
mod manifests;
mod many_prunes;
mod names;
mod others;
mod pins;
mod policy_deleted;
mod projection;
mod prunes;
mod reappeared;
mod restores;
mod schedule_deleted;
mod schedules;
mod server;
mod story;
mod sweep;
mod uninstalled;
mod upgrade;
mod writers;

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use story::{JOBS, Story, repository_path, snapshot_path};

#[tokio::test]
async fn a_member_is_claimed_deleted_read_back_released_and_the_job_reaped() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, job) = story.job().unwrap();
    assert_eq!(
        job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"],
        "u-a"
    );
    assert_eq!(job["spec"]["backoffLimit"], 0);
    assert_eq!(job["spec"]["activeDeadlineSeconds"], 601);
    assert!(job["spec"]["ttlSecondsAfterFinished"].is_null());
    let name = job["metadata"]["name"].as_str().unwrap().to_owned();
    assert_eq!(
        story.server.get(&snapshot_path("a")).unwrap()["status"]["deletion"]["job"],
        name
    );
    let lease = story.lease().unwrap();
    assert_eq!(
        lease["metadata"]["annotations"]["kopiur.home-operations.com/lane-job"],
        format!("backup/{name}")
    );
    assert_eq!(story.memories().len(), 1);
    // A second pass while it lives creates nothing.
    story.pass().await;
    assert_eq!(story.server.writes(&Method::POST, "/jobs").len(), 1);

    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "released");
    assert!(story.job().is_none(), "reaped");
    let outcome = story
        .server
        .writes(&Method::PATCH, "snapshots/a/status")
        .pop()
        .unwrap();
    assert_eq!(outcome.body["status"]["deletion"]["outcome"], "Deleted");
    assert!(
        story.lease().unwrap()["metadata"]["annotations"]["kopiur.home-operations.com/lane-job"].is_null()
    );
    story.pass().await;
    assert_eq!(story.server.writes(&Method::POST, "/jobs").len(), 1);
}

#[tokio::test]
async fn a_member_that_changed_since_it_was_judged_does_not_ride() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.snapshot("b", json!({}));
    // Somebody puts the skip annotation on b after it was judged and before it is claimed.
    story.server.on_write(|write, objects| {
        if write.path.contains("/leases") {
            let path = snapshot_path("b");
            objects.by_path.get_mut(&path).unwrap()["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
            objects.bump(&path);
        }
        None
    });
    story.pass().await;
    let (_, job) = story.job().unwrap();
    assert_eq!(
        job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"],
        "u-a"
    );
    let document = work_document(&job);
    assert_eq!(
        document["operation"]["deleteBatch"]["members"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

fn work_document(job: &Value) -> Value {
    let text = &job["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_claim_without_a_job_binds_nobody() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.on_write(|write, _| {
        (write.method == Method::POST && write.path.contains("/jobs"))
            .then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    assert!(story.try_pass().await.is_err(), "CREATE failed after the claim");
    assert!(story.job().is_none());
    story.server.on_write(|_, _| None);
    story.pass().await;
    assert!(story.job().is_some(), "claimed anew, with the same name");
}

#[tokio::test]
async fn an_unreadable_result_confirms_nothing_and_counts_against_no_member() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, None, None);
    story.pass().await;
    let snapshot = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(snapshot["metadata"]["finalizers"].as_array().unwrap().len(), 1);
    assert!(snapshot["status"]["deletion"]["attempts"].as_u64().unwrap_or(0) == 0);
    assert!(snapshot["status"]["deletion"]["job"].is_null());
    assert!(
        story.job().is_none(),
        "nothing is left to be read, so it is reaped"
    );
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(repository["status"]["deletionProtection"]["jobs"]["failures"], 1);
    assert_eq!(story.condition(&repository, "DeletionJobsFailing").0, "True");
    story.pass().await;
    assert!(story.job().is_none(), "the repository backs off");
}

#[tokio::test]
async fn a_member_that_failed_backs_off_and_the_others_go() {
    let story = Story::new(10);
    for name in ["a", "b", "c"] {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some("DFA"), Some("OperationFailed"));
    // The process ends while it records: the first write of the failed member is refused once.
    let mut refused = false;
    story.server.on_write(move |write, _| {
        let hit = !refused && write.path.contains("snapshots/b/status");
        refused |= hit;
        hit.then_some(StatusCode::CONFLICT)
    });
    assert!(story.try_pass().await.is_err());
    assert!(story.job().is_some(), "the only copy of the result stays");
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.get(&snapshot_path("c")).is_none());
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(b["status"]["deletion"]["attempts"], 1);
    assert!(!b["status"]["deletion"]["nextAttemptAt"].is_null());
    assert!(story.job().is_none());
    story.pass().await;
    assert!(story.job().is_none(), "not before its time");
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(story.condition(&b, "DeletionBlocked").1, "BackingOff");
}

#[tokio::test]
async fn seven_hundred_held_are_written_once_each_and_no_job_exists() {
    let story = Story::new(10);
    for n in 0..700 {
        story.snapshot(&format!("s{n:03}"), json!({}));
    }
    story.pass().await;
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none());
    let marks = story.server.writes(&Method::PATCH, "/snapshots/");
    assert_eq!(marks.len(), 700, "one write for each");
    assert_eq!(story.server.writes(&Method::POST, "/events").len(), 700);
    let repository = story.server.get(&repository_path()).unwrap();
    let (status, reason, message) = story.condition(&repository, "MassDeletionHeld");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ThresholdExceeded"));
    assert!(
        message.contains("kubectl -n backup annotate repository/nas"),
        "{message}"
    );
    assert!(!repository["status"]["deletionProtection"]["heldThrough"].is_null());
    // The latch is there before the first mark.
    let order: Vec<bool> = story
        .server
        .writes(&Method::PATCH, "/status")
        .iter()
        .map(|w| w.path.contains("/repositories/"))
        .collect();
    assert!(order[0]);
}

#[tokio::test]
async fn an_acknowledged_wave_drains_in_batches_one_job_at_a_time() {
    let story = Story::new(2);
    for n in 0..250 {
        story.snapshot(&format!("s{n:03}"), json!({}));
    }
    story.pass().await;
    let held = story.server.get(&repository_path()).unwrap();
    let message = story.condition(&held, "MassDeletionHeld").2;
    let value = message.split("allow-mass-deletion=\"").nth(1).unwrap();
    let value = value.split('"').next().unwrap().to_owned();
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"]["kopiur.home-operations.com/allow-mass-deletion"] = json!(value);
    });
    story.pass().await;
    assert!(story.job().is_none(), "recorded first, in force afterwards");
    let mut jobs = 0;
    for _ in 0..6 {
        story.pass().await;
        if let Some((path, job)) = story.job() {
            jobs += 1;
            let members = job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"]
                .as_str()
                .unwrap()
                .split(',')
                .count();
            assert_eq!(members, if jobs == 1 { 200 } else { 50 });
            story.finish(&path, Some(&"D".repeat(members)), None);
        }
    }
    assert_eq!(jobs, 2);
    assert!(story.server.get(&snapshot_path("s000")).is_none());
    assert!(story.server.get(&snapshot_path("s249")).is_none());
    let writes = story.server.writes(&Method::PATCH, "/snapshots/s249");
    assert!(writes.len() <= 4, "{writes:?}");
    story.pass().await;
    let repository = story.server.get(&repository_path()).unwrap();
    assert!(repository["status"]["deletionProtection"]["heldThrough"].is_null());
}

#[tokio::test]
async fn a_job_that_exists_under_the_name_is_taken_up() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    // The answer to CREATE is lost; the Job is there.
    story.pass().await;
    let (path, job) = story.job().unwrap();
    story.forget_job(&path);
    assert!(story.ctx.world.batch_jobs().is_empty(), "the watch lags");
    story.pass().await;
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 1);
    assert_eq!(story.job().unwrap().1["metadata"]["uid"], job["metadata"]["uid"]);
}

#[tokio::test]
async fn a_cascade_is_kept_with_one_warning_each_and_no_job() {
    let story = Story::new(10);
    for name in ["a", "b"] {
        story.snapshot(
            name,
            json!([{ "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule", "name": "nightly", "uid": "gone" }]),
        );
    }
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.get(&snapshot_path("b")).is_none());
    let events = story.server.writes(&Method::POST, "/events");
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].body["reason"], "SnapshotRetainedOnScheduleDelete");
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
}

#[tokio::test]
async fn a_schedule_that_the_watch_still_has_but_that_is_gone_keeps_the_data() {
    let story = Story::new(10);
    let owner = json!([{ "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule", "name": "nightly", "uid": "sched" }]);
    let path = story.schedule("nightly", "sched");
    story.snapshot("a", owner);
    story.server.on_write(|_, _| None);
    story.server.remove_unseen(&path);
    story.pass().await;
    assert!(
        story.server.writes(&Method::POST, JOBS).is_empty(),
        "the live proof says that the owner is gone"
    );
    assert!(
        story
            .server
            .writes(&Method::PATCH, "/snapshots/a")
            .iter()
            .all(|w| { w.body["status"]["deletion"]["job"].is_null() })
    );
}

#[tokio::test]
async fn a_former_leaders_lock_is_rewritten_before_anything_else() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    let lease = story.lease_path();
    story
        .server
        .edit(&lease, |l| l["spec"]["holderIdentity"] = json!("another#1"));
    story.finish(&path, Some("D"), None);
    let before = story.server.writes(&Method::PUT, "/leases").len();
    story.pass().await;
    assert!(story.server.writes(&Method::PUT, "/leases").len() > before);
    assert!(
        story.lease().unwrap()["spec"]["holderIdentity"]
            .as_str()
            .unwrap()
            .starts_with("me#")
    );
}
