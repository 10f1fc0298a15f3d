//! What people reported of operators of this kind: what went away unseen, and what kept the wrong thing waiting.

use crate::reappeared::{listed, look_at};
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use holdfast_api::Repository;
use holdfast_operator::protect::catalog::due::Request;
use holdfast_operator::protect::catalog::void;
use holdfast_operator::protect::{restore, wave};
use holdfast_operator::world::keys::{LaneKey, ObjectKey};
use holdfast_operator::world::views::RepositoryView;
use holdfast_protocol::chunks::ListedSnapshot;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// When the run of `recorded(name, hours)` began and ended.
fn hours_ago(hours: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_hours(hours)
}

impl Story {
    /// A live Snapshot whose run ended so many hours ago.
    fn recorded(&self, name: &str, hours: i64) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            let at = hours_ago(hours).to_string();
            s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
            s["metadata"]["creationTimestamp"] = json!(at);
            s["status"]["origin"] = json!("manual");
            s["status"]["timing"] = json!({ "startTime": at, "endTime": at });
            s["status"]["resolved"]["uniqueId"] = json!("id");
            s["status"]["conditions"] = json!([{
                "type": "Ready", "status": "True", "reason": "SnapshotCreated", "message": "",
                "lastTransitionTime": at,
            }]);
        });
    }

    fn is_vanished(&self, name: &str) -> bool {
        let snapshot = self.server.get(&snapshot_path(name)).unwrap();
        let list = snapshot["status"]["conditions"].as_array().unwrap();
        list.iter()
            .any(|c| c["type"] == "Vanished" && c["status"] == "True" && c["reason"] == "NotListed")
    }

    fn statuses_written(&self, name: &str) -> usize {
        self.server
            .writes(&Method::PATCH, &format!("snapshots/{name}/status"))
            .len()
    }

    /// A whole listing that began an hour from now.
    async fn look(&self, names: &[&str]) {
        let listing: Vec<ListedSnapshot> = names.iter().map(|name| listed(name)).collect();
        look_at(self, &listing, SignedDuration::from_hours(1)).await;
    }
}

#[tokio::test]
async fn a_snapshot_that_a_listing_lacks_is_reported_once_and_counts_again_when_it_is_back() {
    let story = Story::new(10);
    story.recorded("there", 3);
    story.recorded("gone", 2);
    story.look(&["there"]).await;
    assert!(story.is_vanished("gone"));
    assert!(!story.is_vanished("there"));
    let told = story.told("SnapshotVanished");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["regarding"]["name"], "gone");
    assert!(
        told[0]["note"].as_str().unwrap().contains("id-gone"),
        "{}",
        told[0]
    );
    story.look(&["there"]).await;
    assert_eq!(story.statuses_written("gone"), 1, "said once");
    assert_eq!(story.told("SnapshotVanished").len(), 1, "told once");

    story.look(&["there", "gone"]).await;
    assert!(!story.is_vanished("gone"));
    story.look(&["there"]).await;
    assert!(story.is_vanished("gone"), "it went again");
    assert_eq!(story.told("SnapshotVanished").len(), 2);
    assert_eq!(story.statuses_written("there"), 0);
}

#[tokio::test]
async fn an_emptied_repository_is_reported_and_loses_no_object() {
    let story = Story::new(2);
    let names: Vec<String> = (0..30).map(|n| format!("s{n:02}")).collect();
    for (name, hours) in names.iter().zip(1..) {
        story.recorded(name, hours);
    }
    let object = story.server.get(&repository_path()).unwrap();
    let object: Repository = serde_json::from_value(object).unwrap();
    let nas = RepositoryView::namespaced(object);
    void(&story.ctx, &nas, &Request::default(), "chunk 0 never arrived")
        .await
        .unwrap();
    assert!(
        !names.iter().any(|name| story.is_vanished(name)),
        "a void listing says nothing"
    );

    story.look(&[]).await;
    story.policy(3, 1);
    for _ in 0..2 {
        story.retention().await;
        story.pass().await;
    }
    for name in &names {
        let snapshot = story.server.get(&snapshot_path(name)).unwrap();
        assert!(story.is_vanished(name), "{name}");
        assert!(snapshot["metadata"]["deletionTimestamp"].is_null(), "{name}");
        assert_eq!(
            snapshot["metadata"]["finalizers"].as_array().unwrap().len(),
            1,
            "{name}"
        );
    }
    assert!(story.server.under(JOBS).is_empty());
    let written = story.server.writes(&Method::PATCH, "/status");
    let of_snapshots = written.iter().filter(|w| w.path.contains("/snapshots/"));
    assert_eq!(of_snapshots.count(), 30, "one write each");
    // Thirty events would hide that it is one thing.
    let told = story.told("SnapshotVanished");
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["regarding"]["kind"], "Repository");
    assert!(
        told[0]["note"].as_str().unwrap().starts_with("30 snapshots"),
        "{}",
        told[0]
    );
}

/// The three newest are what retention would keep: without them it may not prune the three that are left.
#[tokio::test]
async fn after_a_bucket_was_rolled_back_what_is_left_of_it_is_not_pruned() {
    for rolled_back in [false, true] {
        let story = Story::new(100);
        let names = ["s1", "s2", "s3", "s4", "s5", "s6"];
        for (name, hours) in names.iter().zip(1..) {
            story.recorded(name, hours);
        }
        story
            .look(if rolled_back { &names[3..] } else { &names[..] })
            .await;
        story.policy(3, 1);
        // The first pass may do no more than ask for a scan.
        story.retention().await;
        story.retention().await;
        let policy = story
            .server
            .get(&snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/"));
        assert_eq!(story.stamped(), if rolled_back { 0 } else { 3 }, "{policy:?}");
    }
}

/// Another's live delete Job.
fn delete_job(story: &Story) {
    let labels = json!({
        "kopiur.home-operations.com/op": "snapshot-delete-batch", "app.kubernetes.io/managed-by": "holdfast",
    });
    story.server.put(
        "/apis/batch/v1/namespaces/elsewhere/jobs/other",
        json!({ "metadata": { "name": "other", "namespace": "elsewhere", "labels": labels } }),
    );
}

/// Whoever deleted too much wants it back at once.
#[tokio::test]
async fn a_restore_waits_for_no_deletion() {
    for (meanwhile, kind, reason) in [
        ("the cap is full", "DeletionBlocked", "JobCapReached"),
        ("deletions are paused", "DeletionBlocked", "DeletionsPaused"),
        ("deletions are held", "DeletionHeld", "MassDeletionBreaker"),
    ] {
        let mut story = Story::new(if kind == "DeletionHeld" { 1 } else { 10 });
        match reason {
            "JobCapReached" => {
                story.ctx.settings.max_concurrent_delete_jobs = 1;
                delete_job(&story);
            }
            "DeletionsPaused" => story.ctx.settings.deletions_paused = true,
            _ => {}
        }
        story.recorded("whole", 1);
        story.snapshot("a", json!({}));
        story.pass().await;
        let a = story.server.get(&snapshot_path("a")).unwrap();
        let said = story.condition(&a, kind);
        assert_eq!(
            (said.0.as_str(), said.1.as_str()),
            ("True", reason),
            "{meanwhile}"
        );

        let path = snapshot_path("back").replace("/snapshots/", "/restores/");
        story.server.put(
            "/api/v1/namespaces/backup/persistentvolumeclaims/data",
            json!({ "metadata": { "name": "data", "uid": "data-uid" }, "spec": {} }),
        );
        story.server.put(
            &path,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
                "metadata": { "name": "back", "namespace": "backup", "uid": "r-uid", "generation": 1 },
                "spec": { "source": { "snapshotRef": { "name": "whole" } }, "target": { "pvcRef": { "name": "data" } } },
            }),
        );
        for _ in 0..3 {
            let key = ObjectKey::new("backup", "back");
            restore::pass(&story.ctx, &key).await.expect("a pass");
        }
        let back = story.server.get(&path).unwrap();
        let job = back["status"]["job"]["name"].as_str();
        let job = job.unwrap_or_else(|| panic!("{meanwhile}: {back}"));
        assert!(
            story.server.get(&format!("{JOBS}/{job}")).is_some(),
            "{meanwhile}"
        );
        story.pass().await;
        assert!(story.job().is_none(), "{meanwhile}: and that goes on");
        let a = story.server.get(&snapshot_path("a")).unwrap();
        assert_eq!(
            story.condition(&a, kind).0,
            "True",
            "{meanwhile}: and that goes on"
        );
    }
}

fn batches(story: &Story) -> Vec<(String, Value)> {
    let mut jobs = story.server.under(JOBS);
    jobs.retain(|(_, j)| j["metadata"]["labels"]["kopiur.home-operations.com/op"] == "snapshot-delete-batch");
    jobs
}

#[tokio::test]
async fn a_hanging_delete_in_one_repository_does_not_delay_anothers() {
    let story = Story::new(10);
    let mut other = story.server.get(&repository_path()).unwrap();
    other["metadata"] = json!({ "name": "other", "namespace": "backup", "annotations": {} });
    other["status"]["uniqueId"] = json!("other-id");
    story
        .server
        .put(&repository_path().replace("/nas", "/other"), other);
    story.snapshot("a", json!({}));
    story.pass().await;
    let hanging = batches(&story).remove(0).0;

    let elsewhere = LaneKey::Physical("other-id".to_owned());
    for name in ["b", "c"] {
        story.snapshot(name, json!({}));
        story.server.edit(&snapshot_path(name), |s| {
            s["status"]["resolved"]["repository"]["name"] = json!("other");
        });
        wave::pass(&story.ctx, &elsewhere).await.expect("a pass");
        let mut jobs = batches(&story);
        jobs.retain(|(path, _)| *path != hanging);
        assert_eq!(jobs.len(), 1, "{name} is fired beside it");
        let message = json!({
            "version": 1, "uniqueId": "other-id", "result": { "batch": { "letters": "D" } },
        });
        story.end(&jobs[0].0, &message.to_string(), true);
        wave::pass(&story.ctx, &elsewhere).await.expect("a pass");
        assert!(
            story.server.get(&snapshot_path(name)).is_none(),
            "{name} is released"
        );
        story.pass().await;
        let left: Vec<String> = batches(&story).into_iter().map(|(path, _)| path).collect();
        assert_eq!(left, [hanging.as_str()], "and its Job is gone");
    }
    assert!(story.server.get(&snapshot_path("a")).is_some());
}
