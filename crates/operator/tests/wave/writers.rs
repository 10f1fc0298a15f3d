//! Writers that have a Job and have not started: suspended for a batch, and resumed after it whatever happens.

use crate::reappeared::look_at;
use crate::server::Fate;
use crate::story::{Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::protect::wave::again;
use holdfast_operator::protect::wave::tidy::tidy;
use holdfast_operator::world::views::RepositoryView;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SUSPENDED_AT: &str = "kopiur.home-operations.com/suspended-for-deletions-at";
const NIGHTLY: &str = "/apis/batch/v1/namespaces/backup/jobs/nightly";

/// A lane whose engine minds, and a Job controller that stops what is suspended: at once, or never.
fn story(stops: bool) -> Story {
    let mut story = Story::new(10);
    story.ctx.settings.needs_silence = true;
    if stops {
        story.server.after_write(|write, objects| {
            if write.path == NIGHTLY && objects.by_path[NIGHTLY]["spec"]["suspend"] == true {
                objects.edit(NIGHTLY, |job| {
                    job["status"] = json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
                });
            }
        });
    }
    story
}

/// The backup Job of the Snapshot `nightly`, which is running.
fn backup(story: &Story, edit: impl FnOnce(&mut Value)) {
    story.run("nightly");
    story.server.edit(&snapshot_path("nightly"), |run| {
        run["status"]["phase"] = json!("Running");
        run["status"]["job"] = json!({ "name": "nightly" });
        run["status"]["resolved"] =
            json!({ "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" } });
    });
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": "nightly", "namespace": "backup", "uid": "j-nightly",
            "ownerReferences": [{
                    "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
                    "name": "nightly", "uid": "u-nightly", "controller": true,
                }],
                "labels": {
                "kopiur.home-operations.com/op": "snapshot-backup", "app.kubernetes.io/managed-by": "holdfast",
                "kopiur.home-operations.com/owner-uid": "u-nightly",
            },
            "annotations": {
                "kopiur.home-operations.com/works-for": "nightly", "kopiur.home-operations.com/writes-to": "id",
            },
        },
        "spec": {}, "status": {},
    });
    edit(&mut job);
    story.server.put(NIGHTLY, job);
}

/// A batch suspended it, and its pod is gone.
fn suspended(job: &mut Value) {
    job["metadata"]["annotations"][SUSPENDED_AT] = json!("2026-01-01T00:00:00Z");
    job["spec"]["suspend"] = json!(true);
    job["status"] = json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
}

fn pod(story: &Story, status: Value) {
    story.server.put(
        "/api/v1/namespaces/backup/pods/nightly-x",
        json!({
            "metadata": {
                "name": "nightly-x", "namespace": "backup",
                "labels": { "batch.kubernetes.io/controller-uid": "j-nightly" },
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "j-nightly", "controller": true }],
            },
            "status": status,
        }),
    );
}

fn is_suspended(story: &Story) -> (bool, bool) {
    let job = story.server.get(NIGHTLY).unwrap();
    let said = !job["metadata"]["annotations"][SUSPENDED_AT].is_null();
    (job["spec"]["suspend"] == true, said)
}

fn blocked(story: &Story, name: &str) -> String {
    let object = story.server.get(&snapshot_path(name)).unwrap();
    story.condition(&object, "DeletionBlocked").1
}

#[tokio::test]
async fn a_writer_that_has_not_started_is_suspended_for_the_batch_and_goes_on_first_after_it() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    story.pass().await;
    let (path, _) = story.job().expect("nobody is waited for");
    assert_eq!(is_suspended(&story), (true, true));
    // The watch tells what the Job controller wrote.
    story.server.edit(NIGHTLY, |_| {});
    let first = |part: &str| {
        let all = story.server.writes(&Method::PATCH, "");
        all.iter().position(|w| w.path.contains(part)).unwrap()
    };
    assert!(
        first("/jobs/nightly") < first("/snapshots/a/status"),
        "before anything is claimed"
    );
    // Its run says why it does not go on.
    story.run_pass("nightly").await;
    let run = story.server.get(&snapshot_path("nightly")).unwrap();
    let (_, reason, message) = story.condition(&run, "Ready");
    assert_eq!(reason, "DeletionsRunning");
    assert!(message.contains("is suspended"), "{message}");
    story.pass().await;
    assert_eq!(is_suspended(&story), (true, true), "the batch is live");

    story.snapshot("b", json!({}));
    story.finish(&path, Some("D"), None);
    story.pass().await;
    story.pass().await;
    assert_eq!(is_suspended(&story), (false, false));
    assert!(story.job().is_none());
    assert_eq!(blocked(&story, "b"), "WritersFirst");
    story
        .server
        .edit(NIGHTLY, |job| job["status"] = json!({ "active": 1, "ready": 1 }));
    story.run_pass("nightly").await;
    let run = story.server.get(&snapshot_path("nightly")).unwrap();
    assert_eq!(story.condition(&run, "Ready").1, "Running");
    story.pass().await;
    assert_eq!(blocked(&story, "b"), "WritersRunning");
}

#[tokio::test]
async fn a_pod_that_waits_for_its_container_has_not_started() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |job| job["status"] = json!({ "active": 1 }));
    pod(&story, json!({ "phase": "Pending" }));
    story.pass().await;
    assert!(story.job().is_some());
    assert_eq!(is_suspended(&story), (true, true));
}

#[tokio::test]
async fn a_writer_that_runs_is_waited_for_and_not_suspended() {
    let running = json!({ "active": 1, "ready": 1 });
    for (status, pods) in [
        (running, None),
        (json!({ "active": 1 }), Some(json!({ "phase": "Running" }))),
    ] {
        let story = story(true);
        story.snapshot("a", json!({}));
        backup(&story, |job| job["status"] = status);
        if let Some(pods) = pods {
            pod(&story, pods);
        }
        story.pass().await;
        assert!(story.job().is_none());
        assert_eq!(blocked(&story, "a"), "WritersRunning");
        assert_eq!(is_suspended(&story), (false, false));
    }
}

#[tokio::test(start_paused = true)]
async fn one_whose_pod_does_not_go_is_waited_for_as_one_that_runs() {
    let story = story(false);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    story.pass().await;
    assert!(story.job().is_none(), "its container may have started meanwhile");
    assert_eq!(is_suspended(&story), (true, true));
    assert!(
        story.server.writes(&Method::PATCH, "/snapshots/a").is_empty(),
        "nothing is claimed"
    );
    story.pass().await;
    assert!(story.job().is_none());
    assert_eq!(blocked(&story, "a"), "WritersRunning");
    assert_eq!(
        is_suspended(&story),
        (true, true),
        "resumed while it is being stopped it would never end"
    );
}

#[tokio::test]
async fn one_that_started_since_the_plan_was_made_is_waited_for_and_not_suspended() {
    let mut story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    let (server, lists) = (story.server.clone(), AtomicUsize::new(0));
    story.ctx.client = story.server.client_with(Arc::new(move |method, path, query| {
        let writers = query.get("labelSelector").contains("snapshot-backup");
        if *method == Method::GET && path == "/apis/batch/v1/jobs" && writers {
            // Once for the plan, then for the suspension.
            if lists.fetch_add(1, Ordering::Relaxed) == 1 {
                server.objects().edit(NIGHTLY, |job| {
                    job["status"] = json!({ "active": 1, "ready": 1 });
                });
            }
        }
        Fate::Answered
    }));
    story.pass().await;
    assert!(story.job().is_none(), "it runs");
    assert_eq!(is_suspended(&story), (false, false));
    story.server.edit(NIGHTLY, |_| {});
    story.pass().await;
    assert!(story.job().is_none());
    assert_eq!(blocked(&story, "a"), "WritersRunning");
}

const WAITING_SINCE: &str = "kopiur.home-operations.com/lane-waiting-since";

/// Nobody may change this Job.
fn refuse_nightly(story: &Story) {
    story
        .server
        .on_write(|write, _| (write.path == NIGHTLY).then_some(StatusCode::FORBIDDEN));
}

#[tokio::test]
async fn one_that_may_not_be_suspended_is_waited_for_as_one_that_runs_and_not_for_ever() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    refuse_nightly(&story);
    story.pass().await;
    assert!(story.job().is_none());
    let lease = story.lease_path();
    let since = story.server.get(&lease).unwrap()["metadata"]["annotations"][WAITING_SINCE].clone();
    assert!(since.is_string(), "the ten minutes have begun");
    story.pass().await;
    assert!(story.job().is_none());
    let still = story.server.get(&lease).unwrap()["metadata"]["annotations"][WAITING_SINCE].clone();
    assert_eq!(still, since);
    let long_ago = (Timestamp::now() - SignedDuration::from_mins(11)).to_string();
    story.server.edit(&lease, |l| {
        l["metadata"]["annotations"][WAITING_SINCE] = json!(long_ago);
    });
    story.pass().await;
    assert!(story.job().is_some(), "beside it");
}

#[tokio::test]
async fn one_that_may_not_be_resumed_keeps_no_other_waiting() {
    let story = story(true);
    backup(&story, suspended);
    let weekly = NIGHTLY.replace("nightly", "weekly");
    let mut job = story.server.get(NIGHTLY).unwrap();
    job["metadata"]["name"] = json!("weekly");
    job["metadata"]["uid"] = json!("j-weekly");
    job["metadata"]["annotations"]["kopiur.home-operations.com/works-for"] = json!("weekly");
    story.server.put(&weekly, job);
    for (refused, other) in [(NIGHTLY, &*weekly), (&*weekly, NIGHTLY)] {
        for path in [refused, other] {
            story.server.edit(path, suspended);
        }
        let refused = refused.to_owned();
        story
            .server
            .on_write(move |write, _| (write.path == refused).then_some(StatusCode::FORBIDDEN));
        story.pass().await;
        assert_eq!(
            story.server.get(other).unwrap()["spec"]["suspend"],
            false,
            "{other}"
        );
    }
}

#[tokio::test]
async fn what_a_person_let_go_on_and_suspends_later_stays_suspended() {
    for by_its_run in [false, true] {
        let story = story(true);
        backup(&story, |job| {
            suspended(job);
            job["spec"]["suspend"] = json!(false);
            job["status"] = json!({ "active": 1, "ready": 1 });
        });
        if by_its_run {
            story.run_pass("nightly").await;
        } else {
            story.snapshot("a", json!({}));
            story.pass().await;
        }
        assert_eq!(is_suspended(&story), (false, false), "by its run: {by_its_run}");
        story
            .server
            .edit(NIGHTLY, |job| job["spec"]["suspend"] = json!(true));
        story.pass().await;
        assert_eq!(is_suspended(&story), (true, false));
    }
}

#[tokio::test]
async fn beside_another_manager_a_suspended_writer_goes_on_when_no_batch_of_ours_is_live() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    story.pass().await;
    let (path, _) = story.job().unwrap();
    assert_eq!(is_suspended(&story), (true, true));
    story.server.edit(NIGHTLY, |_| {});
    story.somebody_writes(Timestamp::now());
    story.pass().await;
    assert_eq!(is_suspended(&story), (true, true), "the batch is live");
    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert_eq!(is_suspended(&story), (false, false));
}

#[tokio::test]
async fn what_a_crash_left_suspended_goes_on_with_the_next_pass() {
    let story = story(true);
    backup(&story, suspended);
    story.pass().await;
    assert_eq!(is_suspended(&story), (false, false));
    story.server.edit(NIGHTLY, |job| {
        suspended(job);
        job["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(SUSPENDED_AT);
    });
    story.pass().await;
    assert_eq!(is_suspended(&story), (true, false), "somebody else did that");
}

#[tokio::test]
async fn a_suspended_run_that_is_deleted_is_stopped_for_good_and_not_resumed() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |_| {});
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.server.edit(&snapshot_path("nightly"), |run| {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        run["metadata"]["deletionTimestamp"] = json!(now);
    });
    story.pass().await;
    assert_eq!(
        is_suspended(&story),
        (true, false),
        "no longer for the batch alone"
    );
    story.finish(&path, Some("D"), None);
    story.pass().await;
    story.pass().await;
    assert!(
        story.server.get(&snapshot_path("nightly")).is_none(),
        "nothing was recorded"
    );
    assert_eq!(is_suspended(&story), (true, false));
}

#[tokio::test]
async fn a_writer_of_a_repository_without_an_object_is_resumed_by_the_clean_up() {
    let story = story(true);
    backup(&story, |job| {
        suspended(job);
        job["metadata"]["annotations"]["kopiur.home-operations.com/writes-to"] = json!("gone");
    });
    story.pass().await;
    assert_eq!(is_suspended(&story), (true, true), "of another lane");
    tidy(&story.ctx, Timestamp::now()).await.unwrap();
    assert_eq!(is_suspended(&story), (false, false));
}

// --- the second look after a writer that ran beside the batch

fn view(story: &Story) -> RepositoryView {
    let object = story.server.get(&repository_path()).unwrap();
    RepositoryView::namespaced(serde_json::from_value(object).unwrap())
}

fn due(story: &Story) -> Timestamp {
    let repository = story.server.get(&repository_path()).unwrap();
    let at = &repository["status"]["catalog"]["secondLookAt"];
    at.as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn the_first_look_waits_for_the_end_of_the_last_writer_beside_the_batch() {
    let story = story(true);
    story.snapshot("a", json!({}));
    backup(&story, |job| job["status"] = json!({ "active": 1, "ready": 1 }));
    story.pass().await;
    let lease = story.lease_path();
    let long_ago = (Timestamp::now() - SignedDuration::from_mins(11)).to_string();
    story.server.edit(&lease, |l| {
        l["metadata"]["annotations"]["kopiur.home-operations.com/lane-waiting-since"] = json!(long_ago);
    });
    story.pass().await;
    let (path, _) = story.job().expect("beside it");
    story.finish(&path, Some("D"), None);
    story.pass().await;
    let memory = story.memories().into_iter().next().unwrap().1;
    assert_eq!(memory["data"]["beside"], "j-nightly");

    // Due ten minutes after the batch; then it still runs.
    let ten = SignedDuration::from_mins(10);
    let first = due(&story);
    let put_off = again::put_off(&story.ctx, &view(&story), first).await.unwrap();
    assert_eq!(put_off, Some(first + ten));
    assert_eq!(due(&story), first + ten);
    // A listing that a person asked for meanwhile is no first look either.
    look_at(&story, &[], SignedDuration::ZERO).await;
    let ahead = due(&story).duration_since(Timestamp::now());
    assert!(ahead > SignedDuration::from_mins(9) && ahead <= ten, "{ahead}");
    // It ends, seven minutes after the batch.
    let ended = first - SignedDuration::from_mins(3);
    let ended = Timestamp::from_second(ended.as_second()).unwrap();
    story.server.edit(NIGHTLY, |job| {
        job["status"] = json!({ "conditions": [
            { "type": "Complete", "status": "True", "lastTransitionTime": ended.to_string() },
        ] });
    });
    story.server.edit(&repository_path(), |r| {
        r["status"]["catalog"]["lookedAt"] = Value::Null;
    });
    let put_off = again::put_off(&story.ctx, &view(&story), first).await.unwrap();
    assert_eq!(put_off, Some(ended + ten));
    let now_due = again::put_off(&story.ctx, &view(&story), ended + ten)
        .await
        .unwrap();
    assert_eq!(now_due, None, "ten minutes after it");
}

#[tokio::test]
async fn a_batch_that_was_alone_is_looked_at_when_its_look_is_due() {
    let story = story(true);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some("D"), None);
    story.pass().await;
    let memory = story.memories().into_iter().next().unwrap().1;
    assert!(memory["data"]["beside"].is_null());
    let at = due(&story);
    assert_eq!(again::put_off(&story.ctx, &view(&story), at).await.unwrap(), None);
}
