//! The second look: what was proven gone and came back; and what a crash leaves behind.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_api::Repository;
use holdfast_operator::protect::catalog::arrived;
use holdfast_operator::protect::catalog::due::Request;
use holdfast_operator::protect::wave::tidy::tidy;
use holdfast_operator::world::views::RepositoryView;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/holdfast-system/configmaps";
const AGAIN: &str = "kopiur.home-operations.com/delete-reappeared";

pub fn listed(name: &str) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: format!("id-{name}"),
        source: Source {
            username: "p".into(),
            hostname: "backup".into(),
            path: "/pvc/data".into(),
        },
        start_time: Timestamp::UNIX_EPOCH,
        size_bytes: Some(1),
        cluster: Some("cluster".into()),
        snapshot_uid: Some(format!("u-{name}")),
        pinned: false,
        pin_is_ours: false,
    }
}

fn repository(story: &Story) -> Value {
    story.server.get(&repository_path()).unwrap()
}

fn reappeared(story: &Story) -> Value {
    repository(story)["status"]["deletionProtection"]["reappeared"].clone()
}

/// A whole listing that began after everything that was confirmed.
async fn look(story: &Story, names: &[String]) {
    let listing: Vec<ListedSnapshot> = names.iter().map(|name| listed(name)).collect();
    // Longer after the batch than one takes, so that the listing is a proof.
    look_at(story, &listing, SignedDuration::from_hours(1)).await;
}

/// The same with whatever is listed, begun so long from now.
pub async fn look_at(story: &Story, listing: &[ListedSnapshot], from_now: SignedDuration) {
    let object: Repository = serde_json::from_value(repository(story)).unwrap();
    let view = RepositoryView::namespaced(object);
    let began = Timestamp::now() + from_now;
    arrived(&story.ctx, &view, began, &Request::default(), listing)
        .await
        .unwrap();
}

fn named(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("s{n:02}")).collect()
}

/// So many Snapshots are deleted and proven gone, in one batch.
async fn deleted(threshold: u32, count: usize) -> (Story, Vec<String>) {
    let story = Story::new(0);
    let names = named(count);
    for name in &names {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some(&"D".repeat(count)), None);
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none());
    story.server.edit(&repository_path(), |r| {
        r["spec"]["deletionProtection"]["threshold"] = json!(threshold);
    });
    (story, names)
}

#[tokio::test]
async fn a_batch_schedules_its_second_look_and_remembers_what_it_proved_gone() {
    let (story, _) = deleted(10, 2).await;
    let maps = story.server.under(MAPS);
    assert_eq!(maps.len(), 1);
    assert_eq!(maps[0].1["data"]["confirmed"], "u-s00,u-s01");
    assert!(!maps[0].1["data"]["confirmedAt"].is_null());
    let at: Timestamp = repository(&story)["status"]["catalog"]["secondLookAt"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let ahead = at.duration_since(Timestamp::now());
    assert!(
        ahead > SignedDuration::from_mins(9) && ahead <= SignedDuration::from_mins(10),
        "{ahead}"
    );
    // The memory was written before the first finalizer went.
    let order: Vec<String> = story
        .server
        .writes(&Method::PATCH, "")
        .into_iter()
        .map(|w| w.path)
        .collect();
    let memory = order.iter().position(|p| p.contains("/configmaps/")).unwrap();
    let status = order
        .iter()
        .rposition(|p| p.ends_with("repositories/nas/status"))
        .unwrap();
    let finalizer = order
        .iter()
        .rposition(|p| p.contains("/snapshots/") && !p.ends_with("/status"))
        .unwrap();
    assert!(memory < finalizer && memory < status);
    // Nothing came back: the next look is the one before the day is over.
    look(&story, &[]).await;
    let at: Timestamp = repository(&story)["status"]["catalog"]["secondLookAt"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(at.duration_since(Timestamp::now()) > SignedDuration::from_hours(22));
    assert!(reappeared(&story).is_null());
}

#[tokio::test]
async fn fewer_than_the_threshold_are_deleted_again_counted_and_watched_on() {
    let (story, names) = deleted(10, 3).await;
    look(&story, &names[..2]).await;
    assert_eq!(reappeared(&story)["count"], 2);
    assert!(
        story
            .server
            .under("/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshots")
            .is_empty(),
        "no rows: the lane decides about them"
    );
    assert!(
        story.ctx.metrics.text().contains(
            "kopiur_deleted_snapshots_reappeared_total{repo_kind=\"Repository\",repo_name=\"nas\"} 2"
        )
    );
    story.pass().await;
    let (path, job) = story.job().expect("a batch of their own");
    assert_eq!(job["metadata"]["annotations"][AGAIN], "true");
    assert_eq!(
        job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"],
        "u-s00,u-s01"
    );
    let document = job["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"]
        .as_str()
        .unwrap();
    assert!(
        document.contains("\"id-s00\"")
            && document.contains("\"id-s01\"")
            && !document.contains("\"id-s02\"")
    );
    let (status, reason, message) = story.condition(&repository(&story), "DeletedSnapshotsReappeared");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "BelowThreshold"));
    assert!(message.contains("2 snapshots"), "{message}");
    // It is not withdrawn for want of objects, and nothing else fires beside it.
    story.snapshot("late", json!({}));
    story.pass().await;
    assert!(story.job().is_some());
    // One is still there.
    story.finish(&path, Some("DS"), Some("OperationFailed"));
    story.pass().await;
    assert_eq!(reappeared(&story)["count"], 1);
    assert_eq!(reappeared(&story)["attempts"], 1);
    assert!(!reappeared(&story)["nextAttemptAt"].is_null());
    story.pass().await;
    let (path, job) = story.job().unwrap();
    assert!(
        job["metadata"]["annotations"][AGAIN].is_null(),
        "the lane's own meanwhile"
    );
    story.finish(&path, Some("D"), None);
    story.pass().await;
    story.server.edit(&repository_path(), |r| {
        r["status"]["deletionProtection"]["reappeared"]["nextAttemptAt"] = Value::Null;
    });
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert!(reappeared(&story).is_null());
    let (status, reason, _) = story.condition(&repository(&story), "DeletedSnapshotsReappeared");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "DeletedAgain"));
    // Proven gone anew, so looked for anew.
    look(&story, &names[..1]).await;
    assert_eq!(reappeared(&story)["count"], 1);
}

#[tokio::test]
async fn at_the_threshold_they_are_held_until_a_person_says_so() {
    let (story, names) = deleted(10, 12).await;
    look(&story, &names).await;
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none(), "someone may have rolled the bucket back");
    let (status, reason, message) = story.condition(&repository(&story), "DeletedSnapshotsReappeared");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ThresholdExceeded"));
    assert!(
        message.contains("12 snapshots") && message.contains("kubectl -n backup annotate repository/nas"),
        "{message}"
    );
    let told: Vec<_> = story
        .server
        .writes(&Method::POST, "/events")
        .into_iter()
        .filter(|w| w.body["reason"] == "DeletedSnapshotsReappeared")
        .collect();
    assert_eq!(told.len(), 1, "once");
    // Fewer are left of them: the hold latches.
    look(&story, &names[..3]).await;
    story.pass().await;
    assert!(story.job().is_none());
    assert_eq!(reappeared(&story)["held"], true);
    // An acknowledgement from before they were found covers none of them.
    let old = "2020-01-01T00:00:00Z";
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"]["kopiur.home-operations.com/allow-mass-deletion"] = json!(old);
    });
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_none());
    let (_, _, message) = story.condition(&repository(&story), "DeletedSnapshotsReappeared");
    let value = message.split("allow-mass-deletion=\"").nth(1).unwrap();
    let value = value.split('"').next().unwrap().to_owned();
    story.server.edit(&repository_path(), |r| {
        r["metadata"]["annotations"]["kopiur.home-operations.com/allow-mass-deletion"] = json!(value);
    });
    story.pass().await;
    story.pass().await;
    assert!(story.job().is_some(), "recorded, then in force");
}

#[tokio::test]
async fn an_id_that_an_object_refers_to_is_forgotten() {
    let (story, names) = deleted(10, 2).await;
    // Restored under another name while its data came back.
    story.snapshot("restored", json!({}));
    story.server.edit(&snapshot_path("restored"), |s| {
        s["metadata"]["deletionTimestamp"] = Value::Null;
        s["status"]["snapshot"]["kopiaSnapshotID"] = json!("id-s00");
    });
    look(&story, &names[..1]).await;
    assert!(reappeared(&story).is_null(), "known at the look");
    look(&story, &names).await;
    assert_eq!(reappeared(&story)["count"], 1);
    look(&story, &names[..1]).await;
    assert!(reappeared(&story).is_null(), "it went by itself");
    look(&story, &names).await;
    assert_eq!(reappeared(&story)["count"], 1);
    // One more is restored, and the watch has not told it.
    let mut twin = story.server.get(&snapshot_path("restored")).unwrap();
    twin["metadata"]["name"] = json!("twin");
    twin["metadata"]["uid"] = json!("u-twin");
    twin["status"]["snapshot"]["kopiaSnapshotID"] = json!("id-s01");
    story.server.objects().put(&snapshot_path("twin"), twin);
    story.pass().await;
    story.pass().await;
    assert!(
        story
            .server
            .writes(&Method::POST, JOBS)
            .iter()
            .all(|w| w.body["metadata"]["annotations"][AGAIN].is_null())
    );
    assert!(reappeared(&story).is_null());
}

#[tokio::test]
async fn what_nobody_remembers_any_more_is_kept_and_a_scan_is_due() {
    let (story, names) = deleted(2, 2).await;
    look(&story, &names).await;
    story.pass().await;
    assert!(story.job().is_none());
    for (path, _) in story.server.under(MAPS) {
        story.server.remove(&path);
    }
    story.pass().await;
    assert!(reappeared(&story).is_null());
    let now = repository(&story);
    assert_eq!(story.condition(&now, "DeletedSnapshotsReappeared").1, "Forgotten");
    assert!(!now["status"]["catalog"]["scanDue"].is_null());
    look(&story, &names).await;
    let rows = story
        .server
        .under("/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshots");
    assert_eq!(rows.len(), 2, "seen again as discovered");
}

// --- what a crash leaves behind

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/holdfast-system/leases";

#[tokio::test]
async fn a_lock_that_names_a_job_that_is_gone_is_cleared_by_the_next_pass() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.server.remove(&path);
    // A repository that waits fires nothing, and clears its lock all the same.
    story
        .server
        .edit(&repository_path(), |r| r["spec"]["suspend"] = json!(true));
    story.pass().await;
    assert!(
        story.lease().unwrap()["metadata"]["annotations"]["kopiur.home-operations.com/lane-job"].is_null()
    );
}

#[tokio::test]
async fn what_a_crash_left_is_removed_and_no_metric_moves() {
    let (story, _) = deleted(10, 1).await;
    let now = Timestamp::now();
    let before = story.ctx.metrics.text();
    // Nothing is old yet.
    tidy(&story.ctx, now).await.unwrap();
    assert_eq!(
        (story.server.under(LEASES).len(), story.server.under(MAPS).len()),
        (1, 1)
    );
    // A lock whose process died between reaping and saying so, of a repository that is gone.
    let mut left = story.server.under(LEASES)[0].1.clone();
    left["metadata"]["name"] = json!("holdfast-lane-left");
    left["metadata"]["annotations"] = json!({
        "kopiur.home-operations.com/delete-unique-id": "gone", "kopiur.home-operations.com/lane-job": "backup/snapdel-gone",
    });
    story
        .server
        .put(&format!("{LEASES}/holdfast-lane-left"), left.clone());
    // One that names a Job which is there, and another manager's.
    let job = format!("{JOBS}/snapdel-there");
    story.server.put(
        &job,
        json!({ "metadata": { "name": "snapdel-there", "namespace": "backup" } }),
    );
    left["metadata"]["name"] = json!("holdfast-lane-busy");
    left["metadata"]["annotations"]["kopiur.home-operations.com/lane-job"] = json!("backup/snapdel-there");
    story
        .server
        .put(&format!("{LEASES}/holdfast-lane-busy"), left.clone());
    left["metadata"]["name"] = json!("holdfast-leader");
    story.server.put(&format!("{LEASES}/holdfast-leader"), left);
    let labels = json!({ "kopiur.home-operations.com/op": "snapshot-delete-batch" });
    let orphan = format!("{JOBS}/snapdel-orphan");
    story.server.put(
        &orphan,
        json!({
            "metadata": { "name": "snapdel-orphan", "namespace": "backup", "labels": labels },
            "status": { "conditions": [{ "type": "Failed", "status": "True" }] },
        }),
    );
    tidy(&story.ctx, now + SignedDuration::from_hours(2))
        .await
        .unwrap();
    let names: Vec<String> = story
        .server
        .under(LEASES)
        .iter()
        .map(|(_, l)| l["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(names, ["holdfast-lane-busy", "holdfast-leader"]);
    assert_eq!(story.server.under(MAPS).len(), 1, "kept for a day");
    assert!(story.server.get(&orphan).is_some());
    tidy(&story.ctx, now + SignedDuration::from_hours(25))
        .await
        .unwrap();
    assert!(story.server.under(MAPS).is_empty());
    assert!(story.server.get(&orphan).is_none());
    assert!(story.server.get(&job).is_some(), "not ours");
    assert_eq!(story.ctx.metrics.text(), before);
}

#[tokio::test]
async fn a_lane_with_something_to_do_keeps_its_lock() {
    let story = Story::new(1);
    story.snapshot("a", json!({}));
    story.server.edit(&repository_path(), |r| {
        r["spec"]["deletionProtection"]["threshold"] = json!(0)
    });
    story.pass().await;
    assert!(story.job().is_some());
    tidy(&story.ctx, Timestamp::now() + SignedDuration::from_hours(2))
        .await
        .unwrap();
    assert_eq!(story.server.under(LEASES).len(), 1);
}

/// Their memory cannot be written: said on the repository, and what the lane tells last is told all the same.
#[tokio::test]
async fn where_the_memory_of_a_batch_of_theirs_is_refused_the_pass_goes_on_to_its_end() {
    let (story, names) = deleted(3, 2).await;
    look(&story, &names).await;
    // A wave that is over: the latch is cleared at the end of a pass.
    story.server.edit(&repository_path(), |r| {
        r["status"]["deletionProtection"]["heldThrough"] = json!("2026-01-01T00:00:00Z");
    });
    story.server.on_write(|write, _| {
        (write.method == Method::POST && write.path.contains("/configmaps")).then_some(StatusCode::FORBIDDEN)
    });
    story.pass().await;
    assert!(story.job().is_none());
    let after = repository(&story);
    assert_eq!(story.condition(&after, "DeletionJobsFailing").1, "JobRefused");
    assert!(after["status"]["deletionProtection"]["heldThrough"].is_null());
    assert_eq!(story.condition(&after, "MassDeletionHeld").0, "False");
}
