//! Copies of a ClusterRepository's Secrets where something else than the usual comes in between: another Job, a wait, an
//! edit, a server that refuses.

use crate::cluster_repository::SHARED;
use crate::projection::{SECRETS, consenting, policy_path, restores, restoring};
use crate::story::{JOBS, Story, snapshot_path};
use axum::http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const DELETED: &str = "deletionTimestamp";

impl Story {
    fn is_active(&self, job: &str) {
        self.server.edit(&format!("{JOBS}/{job}"), |j| {
            j["status"] = json!({ "active": 1, "ready": 1 })
        });
    }

    fn forbids(&self) {
        self.server.edit(SHARED, |r| {
            r["spec"]["credentialProjection"] = json!({ "allowed": false });
        });
    }

    fn refuses(&self, method: Method, part: &'static str, code: u16) {
        let code = StatusCode::from_u16(code).unwrap();
        self.server
            .on_write(move |write, _| (write.method == method && write.path.contains(part)).then_some(code));
    }

    fn restored(&self) -> Value {
        let path = snapshot_path("back").replace("/snapshots/", "/restores/");
        self.server.get(&path).unwrap()
    }

    /// The Job of the stage answers.
    fn answers(&self, restore: Value) {
        let message = json!({ "version": 1, "uniqueId": "id", "result": { "restore": restore } });
        let jobs = self.server.under(JOBS);
        let open = jobs.iter().find(|(_, j)| j["status"]["conditions"].is_null());
        self.end(&open.expect("a Job").0, &message.to_string(), true);
    }
}

fn found(other: Value) -> Value {
    let mut found = json!({
        "snapshotId": "k", "startTime": "2026-01-01T00:00:00Z", "sizeBytes": 1,
        "source": { "username": "p", "hostname": "backup", "path": "/pvc/data" },
    });
    if !other.is_null() {
        found["otherCluster"] = other;
    }
    json!({ "resolved": { "found": found, "of_identity": 1, "paths": ["/pvc/data"] } })
}

#[tokio::test]
async fn a_job_of_another_name_gets_no_copy_whatever_else_is_right_on_it() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    story.is_active("a");
    let own = story.copies();
    // It sorts before the Snapshot's own, and never ends.
    let mut other = story.job_of("a").unwrap();
    other["metadata"]["name"] = json!("0");
    other["metadata"]["uid"] = json!("other-uid");
    story.server.put(&format!("{JOBS}/0"), other);
    story.run_pass("a").await;
    let names = |copies: &[Value]| {
        copies
            .iter()
            .map(|c| c["metadata"]["name"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&story.copies()), names(&own));
    story.ends_well("a").await;
    assert!(story.copies().is_empty());
    let done = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(done["status"]["phase"], "Succeeded", "it is its own Job's end");
}

#[tokio::test]
async fn a_job_elsewhere_with_anothers_label_holds_no_deletion_back() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    let mut theirs = story.job_of("a").unwrap();
    story.ends_well("a").await;
    let elsewhere = JOBS.replace("/backup/", "/other/");
    theirs["metadata"]["namespace"] = json!("other");
    theirs["metadata"]["uid"] = json!("theirs");
    theirs["status"] = json!({ "active": 1 });
    story.server.put(&format!("{elsewhere}/a"), theirs);
    let deleted = (Timestamp::now() - SignedDuration::from_secs(60)).strftime("%Y-%m-%dT%H:%M:%SZ");
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"][DELETED] = json!(deleted.to_string());
    });
    story.pass().await;
    let batches = story.server.writes(&Method::POST, "/holdfast-system/jobs");
    assert_eq!(batches.len(), 1, "the batch is made");
    let theirs = story.server.get(&format!("{elsewhere}/a")).unwrap();
    assert!(
        theirs["spec"]["suspend"].is_null(),
        "and nothing of theirs is touched"
    );
}

#[tokio::test]
async fn a_restores_copy_goes_where_it_waits_with_a_job() {
    // For a person's word, as to whose the snapshot is: its find Job has ended, and stays.
    let story = consenting();
    restoring(&story);
    restores(&story).await;
    assert_eq!(story.copies().len(), 1);
    story.answers(found(json!("another")));
    restores(&story).await;
    assert_eq!(story.condition(&story.restored(), "Ready").1, "OtherCluster");
    assert_eq!(story.server.under(JOBS).len(), 1);
    assert!(story.copies().is_empty());

    // For its policy, which went while the find Job runs: nobody knows whom to ask for consent.
    let story = consenting();
    let path = restoring(&story);
    story.projecting("a");
    story.server.edit(&path, |r| {
        r["spec"]["source"] = json!({ "fromPolicy": { "name": "p" } })
    });
    restores(&story).await;
    assert_eq!(story.copies().len(), 1);
    story.server.remove(&policy_path());
    restores(&story).await;
    assert_eq!(story.condition(&story.restored(), "Ready").1, "PolicyNotFound");
    assert!(story.copies().is_empty());

    // For its claim, while the Job that writes to it runs: the consents go on counting.
    let story = consenting();
    restoring(&story);
    restores(&story).await;
    story.answers(found(Value::Null));
    restores(&story).await;
    assert_eq!(story.copies().len(), 1, "of the one that writes, and no other");
    let of_writer = story.copies()[0]["metadata"]["ownerReferences"][0]["name"].clone();
    story.is_active(of_writer.as_str().unwrap());
    story
        .server
        .remove("/api/v1/namespaces/backup/persistentvolumeclaims/data");
    restores(&story).await;
    assert_eq!(story.condition(&story.restored(), "Ready").1, "TargetNotFound");
    assert_eq!(story.copies().len(), 1);
    story.forbids();
    restores(&story).await;
    assert!(story.copies().is_empty());
}

#[tokio::test]
async fn a_restore_that_is_written_or_tried_again_leaves_no_copy() {
    for unreachable in [false, true] {
        let story = consenting();
        restoring(&story);
        restores(&story).await;
        story.answers(found(Value::Null));
        restores(&story).await;
        assert_eq!(story.copies().len(), 1);
        if unreachable {
            let message = json!({
                "version": 1, "uniqueId": "id",
                "error": { "class": "BackendUnreachable", "message": "no route" }, "result": "none",
            });
            let jobs = story.server.under(JOBS);
            let open = jobs.iter().find(|(_, j)| j["status"]["conditions"].is_null());
            story.end(&open.unwrap().0, &message.to_string(), false);
        } else {
            story.answers(json!({ "restored": { "snapshot_id": "k", "files": 1, "bytes": 1 } }));
        }
        restores(&story).await;
        let reason = story.condition(&story.restored(), "Ready").1;
        let expected = if unreachable {
            "BackendUnreachable"
        } else {
            "RestoreSucceeded"
        };
        assert_eq!(reason, expected, "{}", story.restored());
        assert!(story.copies().is_empty(), "{unreachable}");
    }
}

#[tokio::test]
async fn a_secret_that_may_not_be_made_is_said_whatever_code_refuses_it() {
    for code in [400, 403, 422] {
        let story = consenting();
        story.projecting("a");
        story.refuses(Method::POST, "/secrets", code);
        story.runs("a").await;
        assert!(story.job_of("a").is_none());
        let (_, reason, message) = story.said("a");
        assert_eq!(reason, "CredentialProjectionNotAllowed", "{code}");
        assert!(message.contains("refused by the test"), "{message}");
    }
}

#[tokio::test]
async fn a_secret_that_may_not_be_removed_holds_no_result_and_no_other_deletion() {
    for (method, part, code) in [
        (Method::DELETE, "/secrets/", 400),
        (Method::DELETE, "/secrets/", 422),
        (Method::DELETE, "/secrets/", 500),
        (Method::PATCH, "/snapshots/a/status", 422),
    ] {
        let story = consenting();
        story.projecting("a");
        story.runs("a").await;
        story.refuses(method.clone(), part, code);
        if method == Method::DELETE {
            story.ends_well("a").await;
            let done = story.server.get(&snapshot_path("a")).unwrap();
            assert_eq!(done["status"]["phase"], "Succeeded", "{code}");
            continue;
        }
        // Its result cannot be recorded, and it is being deleted, as another one is.
        let message = json!({
            "version": 1, "uniqueId": "id",
            "result": { "backedUp": { "taken": 1, "first": {
                "uid": "u-a", "snapshotId": "id-a",
                "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:01:00Z",
                "sizeBytes": 1, "filesNew": 1, "filesModified": 0, "filesUnchanged": 0,
            } } },
        });
        story.end(&format!("{JOBS}/a"), &message.to_string(), true);
        let deleted = (Timestamp::now() - SignedDuration::from_secs(60)).strftime("%Y-%m-%dT%H:%M:%SZ");
        story.server.edit(&snapshot_path("a"), |s| {
            s["metadata"][DELETED] = json!(deleted.to_string());
        });
        story.server.put(
            "/api/v1/namespaces/two",
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "two" } }),
        );
        story.snapshot_in("two", "s");
        let other = snapshot_path("s").replace("/namespaces/backup/", "/namespaces/two/");
        story.server.edit(&other, |s| {
            s["status"]["resolved"] =
                json!({ "repository": { "kind": "ClusterRepository", "name": "shared" }, "uniqueId": "id" });
        });
        // The mark on the first one is refused as well, after the firing: that is said by the pass.
        let _ = story.try_pass().await;
        let batches = story.server.writes(&Method::POST, "/holdfast-system/jobs");
        assert_eq!(batches.len(), 1, "the other one's deletion goes on");
    }
}

#[tokio::test]
async fn a_copy_goes_when_the_run_is_of_a_namespaced_repository_by_now() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    assert_eq!(story.copies().len(), 1);
    // As after a crash between the copy and its Job.
    story.server.remove(&format!("{JOBS}/a"));
    let mut own = story.server.get(SHARED).unwrap();
    own["kind"] = json!("Repository");
    own["metadata"] = json!({ "name": "nas", "namespace": "backup", "uid": "nas-uid", "generation": 1 });
    for field in ["allowedNamespaces", "credentialProjection"] {
        own["spec"].as_object_mut().unwrap().remove(field);
    }
    own["spec"]["encryption"]["passwordSecretRef"] = json!({ "name": "key", "key": "KOPIA_PASSWORD" });
    story.server.put(&crate::story::repository_path(), own);
    let key = story
        .server
        .get("/api/v1/namespaces/holdfast-system/secrets/key")
        .unwrap();
    story.server.put(&format!("{SECRETS}/key"), key);
    story.server.edit(&policy_path(), |p| {
        p["spec"]["repository"] = json!({ "name": "nas" });
        p["spec"]["credentialProjection"] = Value::Null;
    });
    story.runs("a").await;
    let run = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(run["status"]["resolved"]["repository"]["name"], "nas", "{run}");
    let left = story.copies();
    assert!(
        left.iter().all(|s| s["metadata"]["labels"].is_null()),
        "only its own Secret: {left:?}"
    );
}

#[tokio::test]
async fn the_own_job_that_the_watch_has_not_shown_keeps_its_copy() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    let uid = story.job_of("a").unwrap()["metadata"]["uid"].clone();
    story.forget_job(&format!("{JOBS}/a"));
    story.run_pass("a").await;
    let copies = story.copies();
    assert_eq!(copies.len(), 1);
    assert_eq!(copies[0]["metadata"]["ownerReferences"][0]["uid"], uid);
    let run = story.server.get(&snapshot_path("a")).unwrap();
    assert_ne!(story.condition(&run, "Ready").1, "JobNameTaken");
}

#[tokio::test]
async fn a_consent_counts_for_a_job_that_a_batch_suspended() {
    let story = consenting();
    story.projecting("a");
    story.runs("a").await;
    story.server.edit(&format!("{JOBS}/a"), |j| {
        j["spec"]["suspend"] = json!(true);
        j["metadata"]["annotations"]["kopiur.home-operations.com/suspended-for-deletions-at"] =
            json!("2026-01-01T00:00:00Z");
    });
    story.forbids();
    story.run_pass("a").await;
    assert!(story.copies().is_empty());
}

#[tokio::test]
async fn without_the_right_a_copy_stays_with_its_job_and_that_is_said() {
    let mut story = consenting();
    story.projecting("a");
    story.runs("a").await;
    story.is_active("a");
    story.ctx.settings.credential_projection = false;
    story.run_pass("a").await;
    assert_eq!(story.copies().len(), 1);
    let (status, reason, message) = story.said("a");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("False", "CredentialProjectionNotAllowed")
    );
    assert!(
        message.contains("features.credentialProjection.enabled: true") && message.contains("goes with Job"),
        "{message}"
    );
    assert!(!message.contains("was removed"), "{message}");
}
