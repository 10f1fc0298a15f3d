//! Our own prunes: what they stand on, and what becomes of them when that is gone.

use crate::story::{JOBS, Story, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::protect::policy;
use holdfast_operator::world::keys::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const BY: &str = "kopiur.home-operations.com/pruned-by";
const AT: &str = "kopiur.home-operations.com/pruned-at";
const KEPT: &str = "kopiur.home-operations.com/pruned-kept";

impl Story {
    /// A Snapshot that retention pruned a minute ago, in favour of these.
    pub fn pruned(&self, name: &str, kept: &str) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            let deleted = s["metadata"]["deletionTimestamp"].clone();
            s["metadata"]["annotations"] = json!({ BY: "retention", AT: deleted, KEPT: kept });
        });
    }

    /// A Snapshot that is there.
    pub fn kept(&self, name: &str) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
            let ended = (Timestamp::now() - SignedDuration::from_hours(1)).to_string();
            s["status"]["timing"] = json!({ "endTime": ended });
        });
    }

    fn batch(&self) -> Value {
        let (_, job) = self.job().unwrap();
        let text = &job["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
        let document: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        document["operation"]["deleteBatch"].clone()
    }

    /// The mover ends with these letters, having missed these ids.
    fn finish_missing(&self, letters: &str, missing: &[&str]) {
        let (path, job) = self.job().unwrap();
        self.finish(&path, Some(letters), Some("OperationFailed"));
        let name = job["metadata"]["name"].as_str().unwrap();
        let pod = format!("/api/v1/namespaces/backup/pods/{name}-x");
        let message = json!({
            "version": 1, "uniqueId": "id",
            "error": { "class": "OperationFailed", "message": "missing" },
            "result": { "batch": { "missing": missing, "letters": letters } },
        });
        self.server.edit(&pod, |pod| {
            pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
                json!(message.to_string());
        });
    }

    pub fn told(&self, reason: &str) -> Vec<Value> {
        let events = self.server.writes(&Method::POST, "/events");
        let of = events.into_iter().filter(|e| e.body["reason"] == reason);
        of.map(|e| e.body).collect()
    }
}

#[tokio::test]
async fn what_was_kept_travels_once_for_all_and_external_members_need_none() {
    let story = Story::new(10);
    story.kept("k1");
    story.kept("k2");
    story.pruned("a", "id-k1,id-k2");
    story.pruned("b", "id-k1,id-k2");
    story.snapshot("c", json!({}));
    story.pass().await;
    let batch = story.batch();
    assert_eq!(batch["kept"], json!([["id-k1", "id-k2"]]));
    let groups: Vec<&Value> = batch["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| &m["justifiedBy"])
        .collect();
    assert_eq!(groups, [&json!(0), &json!(0), &Value::Null]);
}

#[tokio::test]
async fn what_was_kept_and_deleted_since_does_not_stop_a_prune() {
    let story = Story::new(10);
    story.kept("k2");
    story.pruned("a", "id-k1,id-k2");
    // k1 was pruned itself meanwhile, in favour of k2.
    story.pruned("k1", "id-k2");
    // An older operator wrote no ids: what is kept now stands in.
    story.pruned("b", "");
    story.pass().await;
    let batch = story.batch();
    assert_eq!(batch["kept"], json!([["id-k2"]]));
    assert!(
        batch["members"]
            .as_array()
            .unwrap()
            .iter()
            .all(|m| m["justifiedBy"] == 0)
    );
}

#[tokio::test]
async fn a_prune_whose_kept_snapshot_vanished_is_void_and_its_data_stays() {
    let story = Story::new(10);
    story.kept("k1");
    story.kept("k2");
    story.pruned("a", "id-k1,id-k2");
    story.pruned("b", "id-k2");
    story.pass().await;
    story.finish_missing("VD", &["id-k1"]);
    story.pass().await;
    let k1 = story.server.get(&snapshot_path("k1")).unwrap();
    assert_eq!(story.condition(&k1, "Vanished").0, "True");
    assert!(k1["metadata"]["deletionTimestamp"].is_null());
    let k2 = story.server.get(&snapshot_path("k2")).unwrap();
    assert!(k2["status"]["conditions"].is_null());
    assert!(story.server.get(&snapshot_path("b")).is_none(), "b went");
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["deletion"]["outcome"], "PruneUnjustified");
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
    assert_eq!(
        story.server.writes(&Method::POST, JOBS).len(),
        1,
        "without deleting"
    );
    assert_eq!(story.told("SnapshotVanished").len(), 1);
    let void = story.told("SnapshotPruneVoid");
    assert_eq!(void.len(), 1);
    let note = void[0]["note"].as_str().unwrap();
    assert!(note.contains("id-k1") && note.contains("kept"), "{note}");
}

#[tokio::test]
async fn what_is_known_to_have_vanished_voids_a_prune_before_any_job() {
    let story = Story::new(10);
    story.kept("k1");
    story.kept("k2");
    story.server.edit(&snapshot_path("k1"), |s| {
        s["status"]["conditions"] = json!([{
            "type": "Vanished", "status": "True", "reason": "NotListed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
    story.pruned("a", "id-k1,id-k2");
    story.pruned("b", "id-k2");
    story.pass().await;
    let (_, job) = story.job().unwrap();
    let riding = &job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"];
    assert_eq!(riding, "u-b");
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert_eq!(story.told("SnapshotPruneVoid").len(), 1);
}

#[tokio::test]
async fn the_last_one_of_a_source_is_never_pruned() {
    let story = Story::new(10);
    story.pruned("a", "id-gone");
    story.pass().await;
    story.pass().await;
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert_eq!(story.told("SnapshotPruneVoid").len(), 1);
}

#[tokio::test]
async fn a_missing_id_that_nobody_records_any_more_is_no_reason_to_give_up() {
    let story = Story::new(10);
    story.kept("k1");
    story.kept("k2");
    story.pruned("a", "id-k1,id-k2");
    story.pass().await;
    // A person deletes k1 and its data by hand while the Job runs.
    story.server.remove(&snapshot_path("k1"));
    story.finish_missing("V", &["id-k1"]);
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["deletion"]["attempts"], 1);
    assert_eq!(a["status"]["deletion"]["outcome"], "KeptSnapshotMissing");
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["deletion"]["nextAttemptAt"] = Value::Null;
    });
    story.pass().await;
    assert_eq!(story.batch()["kept"], json!([["id-k2"]]));
}

#[tokio::test]
async fn a_crash_after_the_mark_and_before_the_record_comes_to_the_same_end() {
    let story = Story::new(10);
    story.kept("k1");
    story.pruned("a", "id-k1");
    story.pass().await;
    story.finish_missing("V", &["id-k1"]);
    let mut died = false;
    story.server.on_write(move |write, _| {
        let hit = !died && write.path.contains("snapshots/a/status");
        died |= hit;
        hit.then_some(axum::http::StatusCode::INTERNAL_SERVER_ERROR)
    });
    assert!(story.try_pass().await.is_err());
    let k1 = story.server.get(&snapshot_path("k1")).unwrap();
    assert_eq!(story.condition(&k1, "Vanished").0, "True");
    assert!(story.job().is_some(), "the only copy of the result stays");
    story.pass().await;
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert_eq!(story.server.writes(&Method::POST, JOBS).len(), 1);
    assert_eq!(story.told("SnapshotVanished").len(), 1);
}

#[tokio::test]
async fn a_batch_is_cut_to_what_fits_with_what_its_prunes_stand_on() {
    let story = Story::new(10);
    for n in 0..200 {
        // Each with a history of its own: 200 ids of 16 characters, different for each.
        let kept: Vec<String> = (0..60).map(|k| format!("{n:08}{k:08}")).collect();
        for id in &kept {
            story.kept(id);
            story.server.edit(&snapshot_path(id), |s| {
                s["status"]["snapshot"]["kopiaSnapshotID"] = json!(id);
            });
        }
        story.pruned(&format!("s{n:03}"), &kept.join(","));
    }
    story.pass().await;
    let (_, job) = story.job().unwrap();
    let text = &job["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
    let bytes = text.as_str().unwrap().len();
    let riding = story.batch()["members"].as_array().unwrap().len();
    println!("{riding} members, {bytes} bytes");
    assert!(bytes <= holdfast_protocol::WORK_LIMIT && bytes > holdfast_protocol::WORK_LIMIT / 2);
    assert!(riding > 20 && riding < 200);
}

fn policy_path() -> String {
    snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/")
}

impl Story {
    pub fn policy(&self, keep: u32, generation: i64) {
        self.server.put(
            &policy_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
                "metadata": {
                    "name": "p", "namespace": "backup", "uid": "p-uid", "generation": generation,
                    "annotations": {},
                    "finalizers": ["kopiur.home-operations.com/policy-cleanup"],
                },
                "spec": {
                    "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": "data" } }],
                    "retention": { "keepLatest": keep },
                },
            }),
        );
    }

    pub async fn retention(&self) {
        let key = ObjectKey::new("backup", "p");
        policy::pass(&self.ctx, &key).await.expect("a pass");
    }

    pub fn stamped(&self) -> usize {
        let snapshots = self.server.under(snapshot_path("x").trim_end_matches("/x"));
        snapshots
            .iter()
            .filter(|(_, s)| !s["metadata"]["annotations"][BY].is_null())
            .count()
    }
}

#[tokio::test]
async fn an_edit_that_prunes_many_waits_for_its_generation_and_routine_pruning_does_not() {
    let story = Story::new(10);
    for n in 0..30 {
        story.kept(&format!("s{n:02}"));
    }
    story.policy(30, 1);
    story.retention().await;
    let policy = story.server.get(&policy_path()).unwrap();
    assert_eq!(policy["status"]["retention"]["completedGeneration"], 1);
    // Edited: 20 would go.
    story.server.edit(&policy_path(), |p| {
        p["metadata"]["generation"] = json!(2);
        p["spec"]["retention"]["keepLatest"] = json!(10);
    });
    story.retention().await;
    story.retention().await;
    assert_eq!(story.stamped(), 0);
    let policy = story.server.get(&policy_path()).unwrap();
    let (status, reason, message) = story.condition(&policy, "MassPruneHeld");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ThresholdExceeded"));
    assert!(
        message.contains("20 Snapshots") && message.contains("allow-mass-prune=\"2\""),
        "{message}"
    );
    assert_eq!(policy["status"]["retention"]["completedGeneration"], 1);
    assert_eq!(story.told("MassPruneHeld").len(), 1);
    story.server.edit(&policy_path(), |p| {
        p["metadata"]["annotations"]["kopiur.home-operations.com/allow-mass-prune"] = json!("2");
    });
    story.retention().await;
    assert_eq!(story.stamped(), 20);
    let policy = story.server.get(&policy_path()).unwrap();
    assert_eq!(story.condition(&policy, "MassPruneHeld").0, "False");
    assert_eq!(policy["status"]["retention"]["completedGeneration"], 2);
    let one = story.server.writes(&Method::PATCH, "/snapshots/").remove(0);
    let kept = one.body["metadata"]["annotations"][KEPT].as_str().unwrap();
    assert_eq!(kept.split(',').count(), 10);
    // Routine from here on, however many.
    story.server.edit(&policy_path(), |p| {
        p["metadata"]["annotations"] = json!({});
    });
    for n in 30..60 {
        story.kept(&format!("s{n:02}"));
    }
    story.retention().await;
    assert_eq!(story.stamped(), 50);
}

#[tokio::test]
async fn a_policy_that_was_edited_unseen_prunes_nothing() {
    let story = Story::new(10);
    for n in 0..4 {
        story.kept(&format!("s{n}"));
    }
    story.policy(1, 1);
    story
        .server
        .edit_unseen(&policy_path(), |p| p["metadata"]["generation"] = json!(2));
    story.retention().await;
    assert_eq!(story.stamped(), 0);
}

#[tokio::test]
async fn a_backup_ended_between_the_making_of_its_object_and_its_record_whatever_its_mover_says() {
    let started = "2020-01-01T00:00:00Z";
    for (says, early) in [("2020-01-01T00:01:00Z", true), ("2100-01-01T00:00:00Z", false)] {
        let story = Story::new(10);
        story.run("nightly");
        let created = Timestamp::now() - SignedDuration::from_hours(1);
        let created = Timestamp::from_second(created.as_second()).unwrap();
        story.server.set_created(&snapshot_path("nightly"), created);
        story.server.edit(&snapshot_path("nightly"), |run| {
            run["status"]["phase"] = json!("Running");
            run["status"]["resolved"] =
                json!({ "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" } });
        });
        let message = json!({
            "version": 1, "uniqueId": "id",
            "result": { "backedUp": { "taken": 1, "first": {
                "uid": "u-nightly", "snapshotId": "id-nightly", "startTime": started, "endTime": says,
                "sizeBytes": 1, "filesNew": 1, "filesModified": 0, "filesUnchanged": 0,
            } } },
        });
        story.server.put(
            "/api/v1/namespaces/backup/pods/nightly-x",
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "nightly-x", "namespace": "backup",
                    "labels": { "batch.kubernetes.io/controller-uid": "j-nightly" },
                    "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "nightly", "uid": "j-nightly", "controller": true }],
                },
                "status": { "phase": "Succeeded", "containerStatuses": [{
                    "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": { "terminated": { "exitCode": 0, "message": message.to_string() } },
                }] },
            }),
        );
        story.server.put(
            "/apis/batch/v1/namespaces/backup/jobs/nightly",
            json!({
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
                    "annotations": { "kopiur.home-operations.com/works-for": "nightly" },
                },
                "spec": {}, "status": { "conditions": [{ "type": "Complete", "status": "True" }] },
            }),
        );
        let before = Timestamp::now();
        story.run_pass("nightly").await;
        let run = story.server.get(&snapshot_path("nightly")).unwrap();
        assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
        let timing = &run["status"]["timing"];
        assert_eq!(timing["startTime"], started, "as the repository has it");
        let ended: Timestamp = timing["endTime"].as_str().unwrap().parse().unwrap();
        if early {
            assert_eq!(ended, created);
        } else {
            assert!(
                ended >= before - SignedDuration::from_secs(1) && ended <= Timestamp::now(),
                "{ended}"
            );
        }
    }
}

#[tokio::test]
async fn an_edit_while_many_are_being_pruned_counts_for_the_rest() {
    let story = Story::new(1_000);
    for n in 0..130 {
        story.kept(&format!("s{n:03}"));
    }
    story.policy(10, 1);
    let mut deleted = 0;
    story.server.after_write(move |write, objects| {
        if write.method == Method::DELETE && write.path.contains("/snapshots/") {
            deleted += 1;
            if deleted == 20 {
                objects.edit(&policy_path(), |p| p["metadata"]["generation"] = json!(2));
            }
        }
    });
    let key = ObjectKey::new("backup", "p");
    // Its report conflicts with the edit, or it looks again: the next pass judges anew either way.
    let _ = policy::pass(&story.ctx, &key).await;
    assert_eq!(story.stamped(), 50, "of 120");
}

impl Story {
    /// One that the Kopia operator's retention was deleting when it was replaced: stamped, without a time.
    fn begun_elsewhere(&self, name: &str, hours_old: i64) {
        self.snapshot(name, json!({}));
        self.server.edit(&snapshot_path(name), |s| {
            let ended = Timestamp::now() - SignedDuration::from_hours(hours_old);
            s["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            s["metadata"]["annotations"] = json!({ BY: "retention" });
            s["status"]["timing"] = json!({ "endTime": ended.to_string() });
        });
    }

    fn annotation(&self, name: &str, key: &str) -> Value {
        self.server.get(&snapshot_path(name)).unwrap()["metadata"]["annotations"][key].clone()
    }
}

/// After an upgrade: what another operator's retention had begun goes on as a prune, however long ago it was deleted.
#[tokio::test]
async fn a_prune_that_another_operator_began_is_stamped_anew_and_is_not_held() {
    let story = Story::new(3);
    story.kept("new");
    for name in ["old1", "old2"] {
        story.begun_elsewhere(name, 50);
    }
    // A person's, and one that is newer than what is kept: retention would not have touched it.
    story.snapshot("by-hand", json!({}));
    story.begun_elsewhere("newest", 0);
    story.policy(1, 1);
    story.server.edit(&policy_path(), |p| {
        p["status"] = json!({ "retention": { "completedGeneration": 1 } });
    });
    story.server.edit(&snapshot_path("new"), |s| {
        let ended = Timestamp::now() - SignedDuration::from_mins(1);
        s["status"]["timing"]["endTime"] = json!(ended.to_string());
    });
    story.server.edit(&snapshot_path("newest"), |s| {
        s["status"]["timing"]["endTime"] = json!(Timestamp::now().to_string());
    });
    story.retention().await;
    // What would be kept is the newest, which is being deleted and justifies nothing: so nothing is stamped.
    assert_eq!(story.annotation("old1", AT), Value::Null);
    story.server.edit(&policy_path(), |p| {
        p["spec"]["retention"]["keepLatest"] = json!(2)
    });
    story.retention().await;
    for name in ["old1", "old2"] {
        assert!(story.annotation(name, AT).is_string());
        assert_eq!(story.annotation(name, KEPT), "id-new");
        let snapshot = story.server.get(&snapshot_path(name)).unwrap();
        assert_eq!(
            snapshot["status"]["deletion"]["restampedAt"],
            story.annotation(name, AT)
        );
    }
    assert_eq!(story.annotation("newest", AT), Value::Null);
    assert_eq!(story.annotation("by-hand", AT), Value::Null);
    story.pass().await;
    let (_, job) = story.job().unwrap();
    let members = &job["metadata"]["annotations"]["kopiur.home-operations.com/delete-members"];
    // Four are pending and the threshold is three: two of them do not count.
    assert_eq!(members, "u-by-hand,u-newest,u-old1,u-old2");
}

#[tokio::test]
async fn a_held_one_is_not_stamped_anew_and_a_stamp_that_somebody_else_dated_counts_for_nothing() {
    let story = Story::new(2);
    story.kept("new");
    for name in ["old1", "old2"] {
        story.begun_elsewhere(name, 50);
    }
    story.pass().await;
    let held = story.server.get(&snapshot_path("old1")).unwrap();
    assert_eq!(story.condition(&held, "DeletionHeld").0, "True");
    story.policy(1, 1);
    story.server.edit(&policy_path(), |p| {
        p["status"] = json!({ "retention": { "completedGeneration": 1 } });
    });
    story.retention().await;
    assert_eq!(story.annotation("old1", AT), Value::Null);
    // A time beside the stamp without the operator's own note of it.
    let story = Story::new(2);
    for name in ["old1", "old2"] {
        story.begun_elsewhere(name, 50);
        story.server.edit(&snapshot_path(name), |s| {
            s["metadata"]["annotations"][AT] = json!(Timestamp::now().to_string());
        });
    }
    story.pass().await;
    assert!(story.job().is_none());
}

/// A webhook of somebody else's, for good: retention goes on for all others, and is not said to be complete.
#[tokio::test]
async fn one_that_cannot_be_stamped_keeps_no_other_from_being_pruned() {
    for refused in ["/snapshots/s00", "/snapshots/s01"] {
        let story = Story::new(10);
        for n in 0..6 {
            story.kept(&format!("s{n:02}"));
            story.server.edit(&snapshot_path(&format!("s{n:02}")), |s| {
                s["status"]["timing"]["endTime"] = json!(format!("2026-01-0{}T00:00:00Z", n + 1));
            });
        }
        story.policy(2, 1);
        story.server.on_write(move |write, _| {
            let hit = write.method == Method::PATCH && write.path.ends_with(refused);
            hit.then_some(StatusCode::FORBIDDEN)
        });
        for _ in 0..3 {
            story.retention().await;
        }
        assert_eq!(story.stamped(), 3, "{refused}: four go, one is refused");
        let policy = story.server.get(&policy_path()).unwrap();
        assert!(policy["status"]["retention"]["completedGeneration"].is_null());
        story.server.on_write(|_, _| None);
        story.retention().await;
        assert_eq!(story.stamped(), 4, "{refused}");
    }
}

#[tokio::test]
async fn one_begun_elsewhere_that_cannot_be_stamped_anew_keeps_no_other_waiting() {
    let story = Story::new(10);
    story.kept("k");
    for name in ["a", "b", "c"] {
        story.begun_elsewhere(name, 2);
    }
    story.policy(1, 1);
    story.server.edit(&policy_path(), |p| {
        p["status"] = json!({ "retention": { "completedGeneration": 1 } });
    });
    story.server.on_write(|write, _| {
        let hit = write.method == Method::PATCH && write.path.ends_with("/snapshots/a/status");
        hit.then_some(StatusCode::FORBIDDEN)
    });
    story.retention().await;
    let anew = |name: &str| {
        let s = story.server.get(&snapshot_path(name)).unwrap();
        !s["status"]["deletion"]["restampedAt"].is_null()
    };
    assert_eq!(["a", "b", "c"].map(anew), [false, true, true]);
}
