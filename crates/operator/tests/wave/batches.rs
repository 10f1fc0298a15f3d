//! Batches to the last sentence of `docs/design.md` 3.6: what is refused, forged, silent, capped, and whose turn it is.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::jobs::outcome::{self, Read};
use holdfast_operator::runtime::queue::Next;
use holdfast_operator::world::views::JobView;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::time::Duration;

const LANE_JOB: &str = "kopiur.home-operations.com/lane-job";

fn members(job: &Value) -> Vec<String> {
    let text = job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"].as_str();
    text.unwrap().split(',').map(str::to_owned).collect()
}

/// Lets the repository's backoff pass.
fn no_backoff(story: &Story) {
    story.server.edit(&repository_path(), |r| {
        if let Some(jobs) = r["status"]["deletionProtection"]["jobs"].as_object_mut() {
            jobs.remove("nextAttemptAt");
        }
    });
}

#[tokio::test]
async fn a_status_that_is_refused_keeps_neither_the_job_nor_the_lane() {
    let story = Story::new(10);
    for name in ["a", "b", "c"] {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some("DDF"), Some("OperationFailed"));
    story.server.on_write(|write, _| {
        let refused = ["snapshots/a/status", "snapshots/c/status"];
        let hit = refused.iter().any(|part| write.path.contains(part));
        hit.then_some(StatusCode::FORBIDDEN)
    });
    story.pass().await;
    assert!(story.job().is_none(), "reaped");
    let lease = story.lease().unwrap();
    assert!(lease["metadata"]["annotations"][LANE_JOB].is_null(), "free");
    assert!(
        story.server.get(&snapshot_path("a")).is_none(),
        "its letter proves the data gone, and its finalizer may go"
    );
    assert!(story.server.get(&snapshot_path("b")).is_none());
    assert!(story.server.get(&snapshot_path("c")).is_some());
    // Its claim is refused like any other write: no Job, and no hurry.
    let next = story.pass().await;
    assert!(story.job().is_none());
    assert!(
        matches!(next, Next::After(delay) if delay >= Duration::from_secs(15)),
        "{next:?}"
    );
    story.server.on_write(|_, _| None);
    story.pass().await;
    assert_eq!(members(&story.job().unwrap().1), ["u-c"]);
}

#[tokio::test]
async fn a_pod_that_only_carries_the_jobs_label_answers_nothing() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, job) = story.job().unwrap();
    story.finish(&path, Some("D"), None);
    let pods = story.server.under("/api/v1/namespaces/backup/pods");
    let forgeries: [fn(&mut Value); 3] = [
        |pod| _ = pod["metadata"].as_object_mut().unwrap().remove("ownerReferences"),
        |pod| pod["metadata"]["ownerReferences"][0]["controller"] = json!(false),
        |pod| pod["metadata"]["ownerReferences"][0]["uid"] = json!("another"),
    ];
    for forge in forgeries {
        let mut pod = pods[0].1.clone();
        forge(&mut pod);
        story.server.put(&pods[0].0, pod);
        let job: JobView = serde_json::from_value(job.clone()).unwrap();
        let read = outcome::read(&story.ctx.client, &job).await.unwrap();
        assert!(matches!(read, Read::Unreadable(_)), "{read:?}");
    }
    story.pass().await;
    assert!(
        story.server.get(&snapshot_path("a")).is_some(),
        "nothing is proven"
    );
}

#[tokio::test]
async fn a_lane_without_the_definition_of_snapshot_is_looked_at_every_half_minute() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.remove(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/snapshots.kopiur.home-operations.com",
    );
    let next = story.pass().await;
    assert_eq!(next, Next::After(Duration::from_secs(30)));
    assert!(story.server.writes(&Method::PATCH, "").is_empty());
}

#[tokio::test]
async fn prunes_fire_before_a_growing_wave_is_wholly_marked() {
    let story = Story::new(10);
    for n in 0..300 {
        story.snapshot(&format!("s{n:03}"), json!({}));
    }
    let now = Timestamp::now() - SignedDuration::from_secs(60);
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    story.snapshot("kept", json!({}));
    story.server.edit(&snapshot_path("kept"), |s| {
        s["metadata"]["deletionTimestamp"] = Value::Null;
    });
    story.snapshot("pruned", json!({}));
    story.server.edit(&snapshot_path("pruned"), |s| {
        s["metadata"]["annotations"] = json!({
            "kopiur.home-operations.com/pruned-by": "failed-history",
            "kopiur.home-operations.com/pruned-at": now,
        });
    });
    // Every mark of the wave ends in a conflict: somebody writes all the time.
    story.server.on_write(|write, _| {
        let mark = write.path.contains("/snapshots/s") && write.path.ends_with("/status");
        mark.then_some(StatusCode::CONFLICT)
    });
    story.pass().await;
    assert_eq!(
        members(&story.job().unwrap().1),
        ["u-pruned"],
        "fired all the same"
    );
    story.server.on_write(|_, _| None);
    story.pass().await;
    story.pass().await;
    let order: Vec<String> = story
        .server
        .writes(&Method::PATCH, "/status")
        .iter()
        .map(|w| w.path.clone())
        .collect();
    assert!(order[0].contains("/repositories/"), "the latch is first");
    for n in [0, 150, 299] {
        let s = story.server.get(&snapshot_path(&format!("s{n:03}"))).unwrap();
        assert_eq!(story.condition(&s, "DeletionHeld").0, "True");
    }
}

#[tokio::test]
async fn a_job_that_has_ended_does_not_wait_for_the_marks_of_a_large_wave() {
    let story = Story::new(10);
    for n in 0..700 {
        story.snapshot(&format!("s{n:03}"), json!({}));
    }
    story.snapshot("pruned", json!({}));
    story.server.edit(&snapshot_path("pruned"), |s| {
        let now = Timestamp::now() - SignedDuration::from_secs(60);
        s["metadata"]["annotations"] = json!({
            "kopiur.home-operations.com/pruned-by": "failed-history",
            "kopiur.home-operations.com/pruned-at": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        });
    });
    let marked = || {
        let all = (0..700).map(|n| story.server.get(&snapshot_path(&format!("s{n:03}"))).unwrap());
        all.filter(|s| s["status"]["conditions"].is_array()).count()
    };
    let next = story.pass().await;
    let (path, _) = story.job().unwrap();
    assert_eq!(marked(), 300);
    assert!(
        matches!(next, Next::After(delay) if delay <= Duration::from_secs(1)),
        "{next:?}"
    );
    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert!(story.job().is_none(), "settled");
    assert_eq!(marked(), 300, "before the others are told");
    story.pass().await;
    assert_eq!(marked(), 700);
}

#[tokio::test]
async fn a_live_snapshot_of_the_same_id_that_the_watch_has_not_told_is_found_before_firing() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    let mut twin = story.server.get(&snapshot_path("a")).unwrap();
    twin["metadata"]["name"] = json!("twin");
    twin["metadata"]["uid"] = json!("u-twin");
    twin["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("deletionTimestamp");
    story.server.objects().put(&snapshot_path("twin"), twin.clone());
    story.pass().await;
    assert!(story.server.writes(&Method::POST, JOBS).is_empty(), "read live");
    assert!(story.server.get(&snapshot_path("a")).is_some());
    // A row of the catalog is no other.
    twin["metadata"]["labels"] = json!({ "kopiur.home-operations.com/origin": "discovered" });
    for origin in ["manual", ""] {
        twin["status"]["origin"] = if origin.is_empty() {
            Value::Null
        } else {
            json!(origin)
        };
        story.server.objects().put(&snapshot_path("twin"), twin.clone());
        story.pass().await;
        assert!(story.job().is_none(), "anybody may write a label: {origin}");
    }
    twin["status"]["origin"] = json!("discovered");
    story.server.objects().put(&snapshot_path("twin"), twin);
    story.pass().await;
    assert!(story.job().is_some());
}

#[tokio::test]
async fn one_that_no_mover_survives_is_found_by_halving_and_keeps_no_other() {
    let story = Story::new(0);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        story.snapshot(name, json!({}));
    }
    let mut sizes = Vec::new();
    for _ in 0..60 {
        story.pass().await;
        no_backoff(&story);
        let Some((path, job)) = story.job() else {
            continue;
        };
        if !job["status"]["conditions"].is_null() {
            continue;
        }
        let members = members(&job);
        sizes.push(members.len());
        if members.contains(&"u-d".to_owned()) {
            story.finish(&path, None, None);
        } else {
            story.finish(&path, Some(&"D".repeat(members.len())), None);
        }
        let d = story.server.get(&snapshot_path("d")).unwrap();
        if d["status"]["deletion"]["outcome"] == "NoResult" {
            break;
        }
    }
    story.pass().await;
    let d = story.server.get(&snapshot_path("d")).unwrap();
    assert_eq!(d["status"]["deletion"]["outcome"], "NoResult", "{sizes:?}");
    assert_eq!(d["status"]["deletion"]["attempts"], 1, "it answers for itself");
    assert!(!d["status"]["deletion"]["nextAttemptAt"].is_null());
    for _ in 0..6 {
        story.pass().await;
        no_backoff(&story);
        if let Some((path, job)) = story.job()
            && job["status"]["conditions"].is_null()
        {
            story.finish(&path, Some(&"D".repeat(members(&job).len())), None);
        }
    }
    for name in ["a", "b", "c", "e"] {
        assert!(
            story.server.get(&snapshot_path(name)).is_none(),
            "{name}: {sizes:?}"
        );
    }
    // Its time comes: alone, and one more silent end is its own at once.
    story.server.edit(&snapshot_path("d"), |s| {
        s["status"]["deletion"]["nextAttemptAt"] = Value::Null;
    });
    no_backoff(&story);
    story.pass().await;
    let (path, job) = story.job().unwrap();
    assert_eq!(members(&job), ["u-d"]);
    story.finish(&path, None, None);
    story.pass().await;
    let d = story.server.get(&snapshot_path("d")).unwrap();
    assert_eq!(d["status"]["deletion"]["attempts"], 2);
}

fn batch_elsewhere(story: &Story, name: &str) {
    let labels = json!({
        "kopiur.home-operations.com/op": "snapshot-delete-batch", "app.kubernetes.io/managed-by": "holdfast",
    });
    story.server.put(
        &format!("/apis/batch/v1/namespaces/elsewhere/jobs/{name}"),
        json!({ "metadata": { "name": name, "namespace": "elsewhere", "labels": labels } }),
    );
}

#[tokio::test]
async fn a_cap_of_three_lets_the_third_job_through_and_tells_the_fourth_to_wait() {
    let mut story = Story::new(10);
    story.ctx.settings.max_concurrent_delete_jobs = 3;
    for name in ["one", "two", "three"] {
        batch_elsewhere(&story, name);
    }
    story.snapshot("a", json!({}));
    story.pass().await;
    assert!(story.job().is_none());
    let a = story.server.get(&snapshot_path("a")).unwrap();
    let (status, reason, message) = story.condition(&a, "DeletionBlocked");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "JobCapReached"));
    assert!(message.contains("maxConcurrentDeleteJobs"), "{message}");
    story
        .server
        .remove("/apis/batch/v1/namespaces/elsewhere/jobs/three");
    story.pass().await;
    assert!(story.job().is_some(), "two live ones leave room");
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "DeletionBlocked").0, "False");
}

/// Before each batch it is asked once, by label, whether the Kopia operator left delete Jobs.
const LOOKS_FOR_LEGACY: usize = 1;

#[tokio::test]
async fn without_a_cap_nobody_lists_the_jobs_of_the_cluster() {
    for (cap, lists) in [(0, LOOKS_FOR_LEGACY), (3, LOOKS_FOR_LEGACY + 1)] {
        let mut story = Story::new(10);
        story.ctx.settings.max_concurrent_delete_jobs = cap;
        story.snapshot("a", json!({}));
        story.pass().await;
        assert!(story.job().is_some());
        let asked = story.server.reads("/apis/batch/v1/jobs");
        assert_eq!(asked, lists, "cap {cap}");
    }
}

// --- the repository to itself

fn needs_silence(story: &mut Story) {
    story.ctx.settings.needs_silence = true;
}

fn writer(story: &Story, name: &str) -> String {
    let path = format!("{JOBS}/{name}");
    story.server.put(
        &path,
        json!({
            "metadata": {
                "name": name, "namespace": "backup",
                "labels": {
                    "kopiur.home-operations.com/op": "snapshot-backup", "app.kubernetes.io/managed-by": "holdfast",
                    "kopiur.home-operations.com/owner-uid": format!("run-{name}"),
                },
                "annotations": {
                    "kopiur.home-operations.com/works-for": name, "kopiur.home-operations.com/writes-to": "id",
                },
            },
            "spec": {}, "status": { "active": 1 },
        }),
    );
    path
}

fn lane_time(story: &Story, which: &str) -> Option<Timestamp> {
    let lease = story.lease()?;
    let at = &lease["metadata"]["annotations"][format!("kopiur.home-operations.com/{which}")];
    at.as_str()?.parse().ok()
}

#[tokio::test]
async fn a_batch_waits_for_running_writers_says_so_and_goes_when_they_have_ended() {
    let mut story = Story::new(10);
    needs_silence(&mut story);
    story.snapshot("a", json!({}));
    let path = writer(&story, "nightly");
    story.pass().await;
    assert!(story.job().is_none());
    let a = story.server.get(&snapshot_path("a")).unwrap();
    let (status, reason, _) = story.condition(&a, "DeletionBlocked");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "WritersRunning"));
    let since =
        lane_time(&story, "lane-waiting-since").expect("recorded, so that a restart does not wait anew");
    story.pass().await;
    assert_eq!(lane_time(&story, "lane-waiting-since"), Some(since));
    story.server.edit(&path, |job| {
        job["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    });
    story.pass().await;
    assert!(story.job().is_some());
    assert_eq!(lane_time(&story, "lane-waiting-since"), None);
}

#[tokio::test]
async fn a_batch_that_waited_ten_minutes_runs_beside_them() {
    let mut story = Story::new(10);
    needs_silence(&mut story);
    story.snapshot("a", json!({}));
    writer(&story, "endless");
    story.pass().await;
    let lease = story.lease_path();
    let long_ago = (Timestamp::now() - SignedDuration::from_mins(11)).to_string();
    story.server.edit(&lease, |l| {
        l["metadata"]["annotations"]["kopiur.home-operations.com/lane-waiting-since"] = json!(long_ago);
    });
    story.pass().await;
    assert!(story.job().is_some());
}

#[tokio::test]
async fn a_writer_that_the_watch_has_not_told_is_found_before_firing() {
    let mut story = Story::new(10);
    needs_silence(&mut story);
    story.snapshot("a", json!({}));
    let path = writer(&story, "nightly");
    story.forget_job(&path);
    story.pass().await;
    assert!(story.job().is_none(), "read live");
}

#[tokio::test]
async fn an_engine_that_does_not_mind_waits_for_nobody_and_reads_nothing() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    writer(&story, "nightly");
    story.pass().await;
    let of = members_of(&story);
    assert_eq!(of, ["u-a"]);
    assert_eq!(story.server.reads("/apis/batch/v1/jobs"), LOOKS_FOR_LEGACY);
}

fn members_of(story: &Story) -> Vec<String> {
    let jobs = story.server.writes(&Method::POST, JOBS);
    members(&jobs.last().unwrap().body)
}

#[tokio::test]
async fn a_writer_does_not_begin_while_a_batch_is_live_and_goes_first_after_it() {
    let mut story = Story::new(10);
    needs_silence(&mut story);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.run("nightly");
    // The watch has not told the delete Job: the lane's lock does.
    story.forget_job(&path);
    story.run_pass("nightly").await;
    story.run_pass("nightly").await;
    assert!(
        story.server.get(&format!("{JOBS}/nightly")).is_none(),
        "held back"
    );
    let run = story.server.get(&snapshot_path("nightly")).unwrap();
    let (_, reason, message) = story.condition(&run, "Ready");
    assert_eq!(reason, "DeletionsRunning");
    assert!(message.contains("A delete Job runs"), "{message}");

    story.snapshot("b", json!({}));
    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert!(lane_time(&story, "lane-batch-ended").is_some());
    story.pass().await;
    assert!(story.job().is_none(), "the writer it held back goes first");
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(story.condition(&b, "DeletionBlocked").1, "WritersFirst");
    story.run_pass("nightly").await;
    let backup = story.server.get(&format!("{JOBS}/nightly")).expect("begun");
    assert_eq!(
        backup["metadata"]["annotations"]["kopiur.home-operations.com/writes-to"],
        "id"
    );
    story.pass().await;
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(
        story.condition(&b, "DeletionBlocked").1,
        "WritersFirst",
        "it has not started"
    );
    story.server.edit(&format!("{JOBS}/nightly"), |job| {
        job["status"] = json!({ "active": 1, "ready": 1 });
    });
    story.pass().await;
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(story.condition(&b, "DeletionBlocked").1, "WritersRunning");
}

#[tokio::test]
async fn a_batch_that_cannot_start_holds_writers_back_for_five_minutes_and_no_longer() {
    let mut story = Story::new(10);
    needs_silence(&mut story);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.run("nightly");
    story.run_pass("nightly").await;
    story.run_pass("nightly").await;
    assert!(story.server.get(&format!("{JOBS}/nightly")).is_none());
    story
        .server
        .set_created(&path, Timestamp::now() - SignedDuration::from_mins(6));
    story.pass().await;
    assert!(story.job().is_none(), "withdrawn");
    story.pass().await;
    story.run_pass("nightly").await;
    assert!(story.server.get(&format!("{JOBS}/nightly")).is_some());
}
