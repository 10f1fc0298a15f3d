//! What others do meanwhile: refuse, remove, replace. One member's trouble is nobody else's, and nothing untrue is
//! said.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_api::SnapshotSchedule;
use holdfast_operator::jobs::outcome::{self, Read};
use holdfast_operator::protect::repository;
use holdfast_operator::world::keys::RepositoryKey;
use holdfast_operator::world::views::JobView;
use holdfast_operator::world::{Change, Observed};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

fn owned_by(uid: &str) -> Value {
    json!([{ "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule", "name": "nightly", "uid": uid }])
}

/// The process ended between outcome and finalizer, and a person removed the Job: the rules must not judge again, or
/// a Snapshot whose data is gone would be told to be kept.
#[tokio::test]
async fn what_was_proven_deleted_is_released_as_deleted_even_without_its_job() {
    let story = Story::new(10);
    story.snapshot("a", owned_by("gone"));
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["deletion"] = json!({ "job": "snapdel-nas-1", "outcome": "Deleted" });
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.writes(&Method::POST, "/events").is_empty());
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
}

#[tokio::test]
async fn a_finalizer_that_a_webhook_refuses_to_let_go_keeps_no_other_waiting() {
    let story = Story::new(10);
    story.snapshot("a", owned_by("gone"));
    story.snapshot("b", json!({}));
    story
        .server
        .on_write(|write, _| (write.path == snapshot_path("a")).then_some(StatusCode::FORBIDDEN));
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_some());
    assert!(story.job().is_some(), "b rides");
}

#[tokio::test]
async fn a_status_that_is_refused_keeps_no_other_from_riding_or_being_held() {
    for (threshold, held) in [(10, false), (2, true)] {
        let story = Story::new(threshold);
        story.snapshot("a", json!({}));
        story.snapshot("b", json!({}));
        story.server.on_write(|write, _| {
            write
                .path
                .contains("snapshots/a/status")
                .then_some(StatusCode::UNPROCESSABLE_ENTITY)
        });
        story.pass().await;
        if held {
            let b = story.server.get(&snapshot_path("b")).unwrap();
            assert_eq!(story.condition(&b, "DeletionHeld").0, "True");
            assert!(story.job().is_none());
        } else {
            let (_, job) = story.job().unwrap();
            assert_eq!(
                job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"],
                "u-b"
            );
        }
    }
}

#[tokio::test]
async fn a_pod_that_does_not_end_is_named_in_a_condition() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, job) = story.job().unwrap();
    story.server.remove(&path);
    let pod = "/api/v1/namespaces/backup/pods/left";
    let long_ago = Timestamp::now() - SignedDuration::from_mins(3);
    story.server.put(
        pod,
        json!({
            "metadata": {
                "name": "left",
                "labels": job["metadata"]["labels"],
                "deletionTimestamp": long_ago.to_string(),
            },
            "status": { "phase": "Running" },
        }),
    );
    story.pass().await;
    assert!(story.job().is_none());
    let repository = story.server.get(&repository_path()).unwrap();
    let (status, reason, message) = story.condition(&repository, "DeletionJobsFailing");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "LeftoverPod"));
    assert!(message.contains("backup/left"), "{message}");
}

#[tokio::test]
async fn a_schedule_that_only_the_cache_lost_is_not_told_to_be_gone() {
    let story = Story::new(10);
    let path = story.schedule("nightly", "sched");
    let schedule: SnapshotSchedule = serde_json::from_value(story.server.get(&path).unwrap()).unwrap();
    let gone = Change::Gone(Observed::Schedule(Box::new(schedule)));
    story.ctx.world.apply(gone, Timestamp::now());
    story.snapshot("a", owned_by("sched"));
    story.pass().await;
    assert!(story.server.writes(&Method::POST, "/events").is_empty());
    assert!(story.job().is_some(), "its owner is alive: deleted by hand");
}

#[tokio::test]
async fn one_without_a_pin_is_bound_to_the_repository_that_its_job_works_on() {
    let story = Story::new(10);
    let policy = story.unpinned("a");
    story.pass().await;
    let (path, _) = story.job().unwrap();
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["resolved"]["repository"]["name"], "nas");
    assert!(
        a["status"]["resolved"]["uniqueId"].is_null(),
        "nobody has seen it there"
    );
    // Its policy goes while the Job runs: still in flight, and the result decides.
    story.server.remove(&policy);
    story
        .server
        .edit(&path, |job| job["status"] = json!({ "active": 1 }));
    story.pass_unresolved().await;
    assert!(story.server.get(&snapshot_path("a")).is_some());
    story.finish(&path, Some("D"), None);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.writes(&Method::POST, "/events").is_empty());
}

#[tokio::test]
async fn a_pod_of_an_earlier_job_of_the_same_name_is_no_result() {
    let story = Story::new(10);
    let pod = |name: &str, uid: &str, message: &str| {
        story.server.put(
            &format!("/api/v1/namespaces/backup/pods/{name}"),
            json!({
                "metadata": { "name": name, "labels": {
                    "batch.kubernetes.io/job-name": "nas-bootstrap",
                    "batch.kubernetes.io/controller-uid": uid,
                }},
                "status": { "containerStatuses": [{
                    "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "terminated": { "exitCode": 0, "message": message } },
                }]},
            }),
        );
    };
    pod(
        "before",
        "old",
        r#"{"version":1,"uniqueId":"another","result":"none"}"#,
    );
    pod("now", "new", "killed");
    let job: JobView = serde_json::from_value(json!({
        "metadata": { "name": "nas-bootstrap", "namespace": "backup", "uid": "new" },
    }))
    .unwrap();
    let read = outcome::read(&story.ctx.client, &job).await.unwrap();
    assert!(matches!(read, Read::Unreadable(_)), "{read:?}");
}

#[tokio::test]
async fn a_job_that_a_quota_refuses_is_the_repositorys_trouble_in_the_servers_words() {
    for refused in [JOBS, "/configmaps"] {
        let story = Story::new(10);
        story.snapshot("a", json!({}));
        story.server.on_write(move |write, _| {
            (write.method == Method::POST && write.path.contains(refused)).then_some(StatusCode::FORBIDDEN)
        });
        story.pass().await;
        let repository = story.server.get(&repository_path()).unwrap();
        let (_, reason, message) = story.condition(&repository, "DeletionJobsFailing");
        assert_eq!(reason, "JobRefused");
        assert!(message.contains("refused by the test"), "{message}");
        story.pass().await;
        let a = story.server.get(&snapshot_path("a")).unwrap();
        assert_eq!(story.condition(&a, "DeletionBlocked").1, "RepositoryBackingOff");
    }
}

/// The repository object goes a moment after CREATE, before the watch delivers the Job.
#[tokio::test]
async fn a_job_that_only_a_claim_names_still_decides_without_a_repository_object() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.pass().await;
    let (path, _) = story.job().unwrap();
    story.forget_job(&path);
    story.server.remove(&repository_path());
    story.pass_unresolved().await;
    assert!(
        story.server.get(&snapshot_path("a")).is_some(),
        "its Job may be deleting it: not told to be kept"
    );
    assert!(story.server.writes(&Method::POST, "/events").is_empty());
}

#[tokio::test]
async fn the_gauges_of_a_repository_object_go_with_it() {
    let story = Story::new(2);
    for name in ["a", "b"] {
        story.snapshot(name, json!({}));
    }
    story.pass().await;
    assert!(story.ctx.metrics.text().contains("repo_name=\"nas\""));
    story.server.remove(&repository_path());
    let key = RepositoryKey::Repository {
        namespace: "backup".to_owned(),
        name: "nas".to_owned(),
    };
    repository::pass(&story.ctx, &key).await.unwrap();
    assert!(!story.ctx.metrics.text().contains("repo_name=\"nas\""));
}

impl Story {
    /// A Snapshot without a pin, and the policy that leads it to the repository `nas`.
    fn unpinned(&self, name: &str) -> String {
        let policy =
            "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshotpolicies/p".to_owned();
        self.server.put(
            &policy,
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
                "metadata": { "name": "p", "namespace": "backup" },
                "spec": { "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }] },
            }),
        );
        self.snapshot(name, json!({}));
        self.server
            .edit(&snapshot_path(name), |s| s["status"]["resolved"] = Value::Null);
        policy
    }
}

/// Its policy was edited to this repository after it had run into another one: absent here is not deleted.
#[tokio::test]
async fn one_that_was_never_recorded_to_be_here_is_not_told_to_be_deleted_because_it_is_absent() {
    let story = Story::new(10);
    story.unpinned("a");
    story.pass().await;
    let (path, job) = story.job().unwrap();
    let document = crate::work_document(&job);
    assert!(document["operation"]["deleteBatch"]["members"][0]["seenHere"].is_null());
    story.finish(&path, Some("N"), None);
    story.pass().await;
    assert!(story.job().is_none(), "reaped");
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["deletion"]["outcome"], "NeverSeenHere");
    assert!(a["status"]["deletion"]["attempts"].as_u64().unwrap_or(0) == 0);
    let memory = &story.memories()[0].1;
    assert!(!memory.to_string().contains("confirmedAt"), "{memory}");
    // Let go as one whose repository nobody knows, with a warning; no Job is tried again.
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 1);
    let events = story.server.writes(&Method::POST, "/events");
    let told = &events[0].body;
    assert_eq!(
        (&told["type"], &told["reason"]),
        (&json!("Warning"), &json!("SnapshotOrphaned"))
    );
    let note = told["note"].as_str().unwrap();
    assert!(note.contains("may be in another one"), "{note}");
}

#[tokio::test]
async fn one_that_recorded_its_repository_is_told_to_be_seen_here() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["resolved"]["uniqueId"] = json!("id");
    });
    story.pass().await;
    let document = crate::work_document(&story.job().unwrap().1);
    assert_eq!(
        document["operation"]["deleteBatch"]["members"][0]["seenHere"],
        true
    );
}

/// The watch of policies hangs: what the policy says now is read before the batch fires.
#[tokio::test]
async fn where_one_without_a_pin_belongs_is_read_live() {
    let story = Story::new(10);
    let policy = story.unpinned("a");
    story
        .server
        .edit_unseen(&policy, |p| p["spec"]["repository"]["name"] = json!("other"));
    story.pass().await;
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 0);
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert!(a["status"]["resolved"].is_null(), "not pinned to the wrong one");
    // It went: nothing fires either.
    story.server.remove_unseen(&policy);
    story.pass().await;
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 0);
}

impl Story {
    /// A Snapshot that was deleted so many minutes ago, and of which the watch has not told.
    fn deleted_unseen(&self, name: &str, minutes: i64, change: impl FnOnce(&mut Value)) {
        let mut snapshot = self.server.get(&snapshot_path("s0")).unwrap();
        let deleted = Timestamp::now() - SignedDuration::from_mins(minutes);
        snapshot["metadata"]["name"] = json!(name);
        snapshot["metadata"]["uid"] = json!(format!("u-{name}"));
        snapshot["metadata"]["deletionTimestamp"] = json!(deleted.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        snapshot["status"]["snapshot"]["kopiaSnapshotID"] = json!(format!("id-{name}"));
        change(&mut snapshot);
        self.server.objects().put(&snapshot_path(name), snapshot);
    }
}

/// Nine of seven hundred are known: the count is read live, and the threshold is ten.
#[tokio::test]
async fn a_watch_that_hangs_in_the_middle_of_a_mass_deletion_fires_nothing() {
    let story = Story::new(10);
    for n in 0..9 {
        story.snapshot(&format!("s{n}"), json!({}));
    }
    for n in 9..700 {
        story.deleted_unseen(&format!("s{n}"), 3, |_| {});
    }
    story.pass().await;
    assert!(story.job().is_none());
    let claimed = |n: usize| {
        let s = story.server.get(&snapshot_path(&format!("s{n}"))).unwrap();
        !s["status"]["deletion"]["job"].is_null()
    };
    assert!(!(0..9).any(claimed), "nobody was claimed");
    let repository = story.server.get(&repository_path()).unwrap();
    let (status, reason, message) = story.condition(&repository, "DeletionJobsFailing");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "PendingUnknown"));
    assert!(message.contains("backup/s"), "{message}");
}

#[tokio::test]
async fn an_unseen_deletion_in_another_repository_stops_nobody() {
    let story = Story::new(10);
    story.snapshot("s0", json!({}));
    story.deleted_unseen("else", 1, |s| {
        s["status"]["resolved"]["uniqueId"] = json!("another")
    });
    story.deleted_unseen("released", 1, |s| {
        s["metadata"]["finalizers"] = json!(["their/own"])
    });
    story.pass().await;
    assert!(story.job().is_some());
}

/// A deletion that arrives a moment later is counted, and the wave is held.
#[tokio::test]
async fn a_deletion_that_the_watch_delivers_a_moment_later_is_counted() {
    let story = Story::new(2);
    story.snapshot("s0", json!({}));
    story.deleted_unseen("s1", 1, |_| {});
    let late = story.server.get(&snapshot_path("s1")).unwrap();
    let (passed, ()) = tokio::join!(story.try_pass(), async {
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        story.server.put(&snapshot_path("s1"), late);
    });
    passed.unwrap();
    assert!(story.job().is_none());
    story.pass().await;
    let s0 = story.server.get(&snapshot_path("s0")).unwrap();
    assert_eq!(story.condition(&s0, "DeletionHeld").0, "True");
}
