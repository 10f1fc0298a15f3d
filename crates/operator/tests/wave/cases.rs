//! Given, when, then: what a careful operator does, numbered as its cases are. Those that the decision alone answers
//! are tests of `holdfast-core`, those that the mover answers are tests of its plan, the others are here; where the
//! design says something else than the case, the name says so.

use crate::server::{Fate, Server};
use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::queue::Next;
use holdfast_operator::runtime::watch;
use holdfast_operator::world::World;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MEMBERS: &str = "kopiur.home-operations.com/delete-members";

impl Story {
    /// So many members, and one more object that is not to count.
    fn with_one_more(members: usize, threshold: u32, change: impl FnOnce(&mut Value)) -> Self {
        let story = Self::new(threshold);
        for n in 0..members {
            story.snapshot(&format!("m{n}"), json!({}));
        }
        story.snapshot("odd", json!({}));
        story.server.edit(&snapshot_path("odd"), change);
        story
    }

    fn members(&self) -> Vec<String> {
        let Some((_, job)) = self.job() else {
            return Vec::new();
        };
        let list = job["metadata"]["annotations"][MEMBERS].as_str().unwrap();
        list.split(',').map(str::to_owned).collect()
    }

    fn deletion(&self, name: &str) -> Value {
        self.server.get(&snapshot_path(name)).unwrap()["status"]["deletion"].clone()
    }
}

#[tokio::test]
async fn case_04_one_that_is_not_being_deleted_is_no_member() {
    let story = Story::with_one_more(1, 2, |s| {
        s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    });
    story.pass().await;
    assert_eq!(story.members(), ["u-m0"], "one of a threshold of two");
}

#[tokio::test]
async fn case_05_one_whose_finalizer_is_gone_is_no_member() {
    let story = Story::with_one_more(1, 2, |s| s["metadata"]["finalizers"] = json!(["somebody.else/s"]));
    story.pass().await;
    assert_eq!(story.members(), ["u-m0"]);
    assert!(story.server.writes(&Method::PATCH, "snapshots/odd").is_empty());
}

#[tokio::test]
async fn case_10_one_that_is_pinned_to_another_repository_is_no_member() {
    let story = Story::with_one_more(1, 2, |s| {
        s["status"]["resolved"]["repository"]["name"] = json!("another");
    });
    story.pass().await;
    assert_eq!(story.members(), ["u-m0"]);
}

/// An owner reference of another kind, or of the same kind in another group, makes no child of a schedule.
#[tokio::test]
async fn case_12_only_an_owner_of_our_kind_is_a_schedule() {
    for (version, kind, kept) in [
        ("kopiur.home-operations.com/v1alpha1", "SnapshotSchedule", true),
        ("kopiur.home-operations.com/v2", "SnapshotSchedule", true),
        ("kopiur.home-operations.com/v1alpha1", "SnapshotPolicy", false),
        ("example.org/v1", "SnapshotSchedule", false),
    ] {
        let story = Story::new(10);
        story.snapshot(
            "a",
            json!([{ "apiVersion": version, "kind": kind, "name": "gone", "uid": "gone" }]),
        );
        story.pass().await;
        assert_eq!(story.job().is_none(), kept, "{version} {kind}");
    }
}

/// Each distinct namespace of a batch is read once; one in which nothing is being deleted is not asked about.
#[tokio::test]
async fn case_15_namespaces_are_read_once_each_and_only_those_of_members() {
    let mut story = Story::new(10);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&asked);
    story.ctx.client = story.server.client_with(Arc::new(move |method, path, _| {
        let name = path
            .strip_prefix("/api/v1/namespaces/")
            .filter(|name| !name.contains('/'));
        if let (&Method::GET, Some(name)) = (method, name) {
            log.lock().unwrap().push(name.to_owned());
        }
        Fate::Answered
    }));
    for name in ["a", "b", "c"] {
        story.snapshot(name, json!({}));
    }
    story.server.put(
        "/api/v1/namespaces/quiet",
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "quiet" } }),
    );
    let quiet = snapshot_path("live").replace("/backup/", "/quiet/");
    story.server.put(
        &quiet,
        json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
            "metadata": { "name": "live", "namespace": "quiet", "uid": "live" },
            "spec": { "policyRef": { "name": "p" } },
        }),
    );
    story.pass().await;
    assert_eq!(story.members().len(), 3);
    assert_eq!(*asked.lock().unwrap(), ["backup"]);
}

async fn is_synced(lists: StatusCode) -> bool {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = Server::watched(Clock::system(), 0);
    let name = "snapshotschedules.kopiur.home-operations.com";
    server.put(
        &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
        json!({ "metadata": { "name": name } }),
    );
    let client = server.client_with(Arc::new(move |_, path, _| {
        if lists != StatusCode::OK && path.ends_with("v1alpha1/snapshotschedules") {
            Fate::Refused(lists)
        } else {
            Fate::Answered
        }
    }));
    let world = World::new();
    let sink: watch::Sink = Arc::new(|_| {});
    let _watches = watch::start(&client, &world, &sink, false, &Clock::system(), &Foreign::none());
    for _ in 0..20 {
        if world.is_synced() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[tokio::test]
async fn case_59_an_empty_list_of_schedules_is_knowledge_and_a_failed_one_is_not() {
    assert!(is_synced(StatusCode::OK).await);
    assert!(!is_synced(StatusCode::INTERNAL_SERVER_ERROR).await);
    assert!(!is_synced(StatusCode::FORBIDDEN).await);
}

#[tokio::test]
async fn case_66_design_a_job_of_that_name_is_never_overwritten_and_looked_at_again_within_15_seconds() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.on_write(|write, objects| {
        if write.method == Method::POST && write.path.contains("/jobs") {
            // Somebody else was faster.
            let name = write.body["metadata"]["name"].as_str().unwrap();
            objects.put(&format!("{JOBS}/{name}"), write.body.clone());
        }
        None
    });
    let Next::After(delay) = story.pass().await else {
        panic!("looked at again");
    };
    assert!(delay <= Duration::from_secs(15), "{delay:?}");
    assert!(story.server.writes(&Method::PUT, JOBS).is_empty());
    assert!(story.server.writes(&Method::PATCH, JOBS).is_empty());
    assert_eq!(story.server.under(JOBS).len(), 1);
}

/// The recorded outcome decides, whatever Jobs there were.
#[tokio::test]
async fn case_68_design_a_recorded_success_is_released_whatever_failed_before() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["deletion"] = json!({
            "job": "snapdel-nas-2", "outcome": "Deleted", "attempts": 1, "lastError": "disk full",
        });
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
}

#[tokio::test]
async fn case_69_design_one_that_failed_and_rides_again_is_in_flight() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["deletion"] =
            json!({ "outcome": "Failed", "attempts": 1, "nextAttemptAt": "2026-01-01T00:00:00Z" });
    });
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    // The skip annotation comes too late: what rides is not judged by what failed before.
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_some());
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 1);
}

#[tokio::test]
async fn case_70_one_that_no_job_includes_waits_for_the_live_one_and_rides_without() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    story.snapshot("b", json!({}));
    story.pass().await;
    assert_eq!(story.members(), ["u-a"]);
    let b = story.server.get(&snapshot_path("b")).unwrap();
    assert_eq!(story.condition(&b, "DeletionBlocked").1, "BatchLive");
    story.finish(&path, Some("D"), None);
    story.pass().await;
    story.pass().await;
    assert_eq!(story.members(), ["u-b"]);
}

/// What counts is that the outcome is recorded, not that the finalizer is gone.
#[tokio::test]
async fn case_72_design_a_job_is_kept_until_every_outcome_is_recorded_and_no_longer() {
    let trouble = StatusCode::INTERNAL_SERVER_ERROR;
    for (refused, with, kept) in [
        ("snapshots/a/status", trouble, true),
        // A webhook keeps the finalizer.
        ("snapshots/a", StatusCode::FORBIDDEN, false),
    ] {
        let story = Story::new(10);
        for name in ["a", "b"] {
            story.snapshot(name, json!({}));
        }
        story.pass().await;
        let (path, _) = story.job().unwrap();
        story.finish(&path, Some("DD"), None);
        story
            .server
            .on_write(move |write, _| write.path.ends_with(refused).then_some(with));
        let _ = story.try_pass().await;
        let _ = story.try_pass().await;
        assert_eq!(story.job().is_some(), kept, "{refused}");
        assert!(story.server.get(&snapshot_path("a")).is_some(), "{refused}");
        story.server.on_write(|_, _| None);
        story.pass().await;
        story.pass().await;
        assert!(story.job().is_none(), "{refused}");
        assert!(story.server.get(&snapshot_path("a")).is_none(), "{refused}");
        assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 1, "{refused}");
    }
}

#[tokio::test]
async fn case_73_design_a_failed_job_is_reaped_as_soon_as_it_is_recorded_without_a_delay() {
    let story = Story::new(10);
    for name in ["a", "b"] {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.finish(&path, Some("FF"), Some("OperationFailed"));
    story.pass().await;
    assert!(story.job().is_none());
    for name in ["a", "b"] {
        assert_eq!(story.deletion(name)["attempts"], 1);
        assert_eq!(story.deletion(name)["outcome"], "DeleteFailed");
    }
    let figures = story.ctx.metrics.text();
    assert!(
        figures.contains(r#"kopiur_snapshot_delete_batch_jobs_total{outcome="failed"} 1"#),
        "{figures}"
    );
    assert!(figures.contains(r#"kopiur_snapshot_delete_batch_members_total{outcome="failed"} 2"#));
}

#[tokio::test]
async fn case_74_a_live_job_and_one_that_does_not_say_that_it_ended_are_kept() {
    for status in [
        json!({ "active": 1 }),
        json!({ "succeeded": 1 }),
        json!({ "failed": 1 }),
        json!({ "conditions": [{ "type": "Complete", "status": "Unknown" }] }),
        json!({ "conditions": [{ "type": "Suspended", "status": "True" }] }),
    ] {
        let story = Story::new(10);
        story.snapshot("a", json!({}));
        story.pass().await;
        let (path, _) = story.job().unwrap();
        story.server.edit(&path, |job| job["status"] = status.clone());
        story.pass().await;
        story.pass().await;
        assert!(story.server.get(&path).is_some(), "{status}");
        assert!(story.server.get(&snapshot_path("a")).is_some(), "{status}");
        let repository = story.server.get(&repository_path()).unwrap();
        assert!(repository["status"]["deletionProtection"]["jobs"].is_null());
    }
}
