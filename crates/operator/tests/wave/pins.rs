//! Pins in the repository: written and taken back by a Job beside no delete Job, and read from listings.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_api::Repository;
use holdfast_operator::protect::catalog::arrived;
use holdfast_operator::protect::catalog::due::Request;
use holdfast_operator::protect::snapshot;
use holdfast_operator::world::keys::ObjectKey;
use holdfast_operator::world::views::RepositoryView;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const START: &str = "2026-01-01T00:00:00.000000007Z";

/// A live Snapshot that has succeeded.
fn live(story: &Story, name: &str, edit: impl FnOnce(&mut Value)) {
    let mut object = json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
        "metadata": {
            "name": name, "namespace": "backup", "uid": format!("u-{name}"), "generation": 1,
            "finalizers": ["kopiur.home-operations.com/snapshot-cleanup"],
        },
        "spec": { "policyRef": { "name": "p" } },
        "status": {
            "phase": "Succeeded", "origin": "manual",
            "snapshot": {
                "kopiaSnapshotID": format!("id-{name}"),
                "identity": { "username": "p", "hostname": "backup", "sourcePath": "/pvc/data" },
            },
            "timing": { "startTime": START, "endTime": "2026-01-01T00:01:00Z" },
            "resolved": {
                "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" }, "uniqueId": "id",
            },
        },
    });
    edit(&mut object);
    story.server.put(&snapshot_path(name), object);
}

fn wanted(object: &mut Value) {
    object["spec"]["pin"] = json!(true);
}

fn jobs(story: &Story) -> Vec<(String, Value)> {
    let mut jobs = story.server.under(JOBS);
    jobs.retain(|(_, j)| j["metadata"]["labels"]["kopiur.home-operations.com/op"] == "snapshot-pin");
    jobs
}

fn job(story: &Story) -> Option<(String, Value)> {
    let jobs = jobs(story);
    assert!(jobs.len() <= 1, "one at a time");
    jobs.into_iter().next()
}

fn status(story: &Story, name: &str) -> Value {
    story.server.get(&snapshot_path(name)).unwrap()["status"].clone()
}

fn said(story: &Story, name: &str) -> (String, String) {
    let object = story.server.get(&snapshot_path(name)).unwrap();
    let (status, reason, _) = story.condition(&object, "Pinned");
    (status, reason)
}

fn is(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

fn answer(name: &str, id: &str, pinned: bool, ours: bool) -> String {
    let answer = json!({ "uid": format!("u-{name}"), "snapshotId": id, "pinned": pinned, "ours": ours });
    json!({ "version": 1, "uniqueId": "id", "result": { "pinned": answer } }).to_string()
}

/// Until its Job is there: what is to come is recorded first.
async fn started(story: &Story, name: &str) -> String {
    story.run_pass(name).await;
    assert!(job(story).is_none(), "recorded before it is created");
    assert_eq!(status(story, name)["pin"]["job"], format!("{name}-pin"));
    story.run_pass(name).await;
    job(story).expect("a Job").0
}

#[tokio::test]
async fn a_pin_reaches_the_repository_and_is_taken_back_and_its_new_ids_are_recorded_with_it() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    let path = started(&story, "a").await;
    let made = job(&story).unwrap().1;
    let meta = &made["metadata"];
    assert_eq!(meta["name"], "a-pin");
    assert_eq!(
        meta["annotations"]["kopiur.home-operations.com/pin-target"],
        "true"
    );
    assert_eq!(made["spec"]["activeDeadlineSeconds"], 600);
    let text = &made["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
    let document: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    assert_eq!(
        document["operation"]["pin"]["item"],
        json!({
            "uid": "u-a", "snapshotId": "id-a", "startTime": START, "on": true,
            "source": { "username": "p", "hostname": "backup", "path": "/pvc/data" },
        })
    );
    story.run_pass("a").await;
    assert_eq!(said(&story, "a"), is("Unknown", "PinJobRunning"));

    story.end(&path, &answer("a", "id-new", true, true), true);
    story.run_pass("a").await;
    let write = story
        .server
        .writes(&Method::PATCH, "snapshots/a/status")
        .pop()
        .unwrap();
    assert_eq!(write.body["status"]["snapshot"]["kopiaSnapshotID"], "id-new");
    assert_eq!(write.body["status"]["pinned"], true, "in one write");
    assert_eq!(status(&story, "a")["pin"]["ours"], true);
    assert!(status(&story, "a")["pin"]["job"].is_null());
    assert_eq!(said(&story, "a"), is("True", "Pinned"));
    assert!(job(&story).is_none(), "reaped");
    let writes = story.server.writes(&Method::PATCH, "snapshots/a").len();
    story.run_pass("a").await;
    assert_eq!(story.server.writes(&Method::PATCH, "snapshots/a").len(), writes);

    story
        .server
        .edit(&snapshot_path("a"), |s| s["spec"]["pin"] = json!(false));
    let path = started(&story, "a").await;
    let made = job(&story).unwrap().1;
    assert_eq!(
        made["metadata"]["annotations"]["kopiur.home-operations.com/pin-target"],
        "false"
    );
    story.end(&path, &answer("a", "id-newer", false, false), true);
    story.run_pass("a").await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-newer");
    assert_eq!(status(&story, "a")["pinned"], false);
    assert_eq!(said(&story, "a"), is("False", "NotPinned"));
    story.run_pass("a").await;
    assert!(job(&story).is_none());
}

#[tokio::test]
async fn what_another_program_pinned_gets_no_job_of_ours_whatever_is_asked() {
    let story = Story::new(10);
    for (name, pin) in [("a", false), ("b", true)] {
        live(&story, name, |s| {
            s["spec"]["pin"] = json!(pin);
            s["status"]["pinned"] = json!(true);
            s["status"]["pin"] = json!({ "ours": false });
        });
        for _ in 0..3 {
            story.run_pass(name).await;
        }
        assert!(job(&story).is_none(), "{name}");
        assert_eq!(said(&story, name), is("True", "PinnedInRepository"));
    }
    // What nobody asked about is not written to.
    live(&story, "c", |_| {});
    story.run_pass("c").await;
    assert!(story.server.writes(&Method::PATCH, "snapshots/c").is_empty());
}

#[tokio::test]
async fn what_another_snapshot_records_too_is_not_given_another_id() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    live(&story, "b", |s| {
        s["status"]["snapshot"]["kopiaSnapshotID"] = json!("id-a")
    });
    for _ in 0..3 {
        story.run_pass("a").await;
    }
    assert!(job(&story).is_none());
    assert_eq!(said(&story, "a"), is("False", "SharedSnapshot"));
    story.server.remove(&snapshot_path("b"));
    started(&story, "a").await;
}

#[tokio::test]
async fn a_failure_is_counted_once_and_waited_after_and_a_result_outlives_a_crash() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    let path = started(&story, "a").await;
    let failure = json!({
        "version": 1, "uniqueId": "id", "error": { "class": "BackendUnreachable", "message": "disk full" },
        "result": "none",
    });
    story.end(&path, &failure.to_string(), false);
    story.run_pass("a").await;
    let pin = status(&story, "a")["pin"].clone();
    assert_eq!(
        (&pin["attempts"], &pin["lastError"]),
        (&json!(1), &json!("disk full."))
    );
    assert_eq!(said(&story, "a"), is("False", "PinJobFailed"));
    for _ in 0..3 {
        story.run_pass("a").await;
    }
    assert!(job(&story).is_none(), "not before its time");
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-a");
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["pin"]["nextAttemptAt"] = Value::Null
    });
    let path = started(&story, "a").await;

    // The process ends while it records the new id: its Job stays, and is read again.
    story.end(&path, &answer("a", "id-new", true, true), true);
    let mut died = false;
    story.server.on_write(move |write, _| {
        let hit = !died && write.path.contains("snapshots/a/status");
        died |= hit;
        hit.then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    let key = ObjectKey::new("backup", "a");
    assert!(snapshot::pass(&story.ctx, &key).await.is_err());
    assert!(job(&story).is_some(), "the only copy of the result stays");
    let story = story.restarted();
    story.run_pass("a").await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-new");
    assert_eq!(status(&story, "a")["pin"]["attempts"], 0);
    assert!(job(&story).is_none());
}

#[tokio::test]
async fn an_answer_for_another_object_or_repository_is_none() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    for message in [
        answer("b", "id-new", true, true),
        answer("a", "id-new", true, true).replace("\"uniqueId\":\"id\"", "\"uniqueId\":\"other\""),
        json!({ "version": 1, "uniqueId": "id", "result": "none" }).to_string(),
        String::new(),
    ] {
        story.server.edit(&snapshot_path("a"), |s| {
            s["status"]["pin"]["nextAttemptAt"] = Value::Null
        });
        let path = started(&story, "a").await;
        story.end(&path, &message, true);
        story.run_pass("a").await;
        assert_eq!(said(&story, "a"), is("False", "PinJobFailed"), "{message}");
        assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-a");
    }
}

fn delete(story: &Story, name: &str) {
    let deleted = Timestamp::now() - SignedDuration::from_secs(60);
    story.server.edit(&snapshot_path(name), |s| {
        s["metadata"]["deletionTimestamp"] = json!(deleted.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    });
}

#[tokio::test]
async fn a_delete_job_waits_for_a_pin_job_and_finds_the_snapshot_whatever_its_result_was() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    let path = started(&story, "a").await;
    delete(&story, "a");
    story.pass().await;
    assert!(story.job().is_none());
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(story.condition(&a, "DeletionBlocked").1, "MaintenanceRunning");
    // A world that has not heard of it is no excuse.
    story.forget_job(&path);
    story.pass().await;
    assert!(story.job().is_none(), "asked live");

    // It wrote a new id, which nobody records any more.
    story.end(&path, &answer("a", "id-new", true, true), true);
    story.run_pass("a").await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-a");
    story.pass().await;
    let (path, batch) = story.job().expect("it is no backup that would be read first");
    let text = &batch["spec"]["template"]["metadata"]["annotations"]["kopiur.home-operations.com/work"];
    let document: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
    let member = &document["operation"]["deleteBatch"]["members"][0];
    // What the mover heals by.
    assert_eq!(
        (&member["snapshotId"], &member["startTime"]),
        (&json!("id-a"), &json!(START))
    );
    story.finish(&path, Some("S"), None);
    story.pass().await;
    assert!(
        story.server.get(&snapshot_path("a")).is_some(),
        "still listed under the other id: not released"
    );
}

#[tokio::test]
async fn a_pin_waits_for_a_delete_job_and_for_another_pin_and_is_not_begun_on_what_is_deleted() {
    let story = Story::new(10);
    story.snapshot("gone", json!({}));
    story.pass().await;
    let (batch, _) = story.job().expect("a batch");
    live(&story, "a", wanted);
    story.run_pass("a").await;
    story.run_pass("a").await;
    assert!(job(&story).is_none());
    assert_eq!(said(&story, "a"), is("False", "DeletionsRunning"));
    story.finish(&batch, Some("D"), None);
    story.pass().await;

    // Deleted a moment ago, and the watch has not told.
    story.server.edit_unseen(&snapshot_path("a"), |s| {
        s["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    let key = ObjectKey::new("backup", "a");
    assert!(snapshot::pass(&story.ctx, &key).await.is_err());
    assert!(job(&story).is_none());

    live(&story, "b", wanted);
    let path = started(&story, "b").await;
    live(&story, "c", wanted);
    story.run_pass("c").await;
    story.run_pass("c").await;
    assert_eq!(said(&story, "c"), is("False", "WaitingForPinJob"));
    story.end(&path, &answer("b", "id-new", true, true), true);
    story.run_pass("b").await;
    story.run_pass("c").await;
    assert_eq!(job(&story).unwrap().1["metadata"]["name"], "c-pin");
}

#[tokio::test]
async fn a_pin_waits_until_everything_it_needs_is_there() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    type Edit = fn(&mut Value);
    let obstacles: [(Edit, Edit, &str); 3] = [
        (
            |r| r["spec"]["suspend"] = json!(true),
            |r| r["spec"]["suspend"] = json!(false),
            "RepositorySuspended",
        ),
        (
            |r| r["status"]["phase"] = json!("Failed"),
            |r| r["status"]["phase"] = json!("Ready"),
            "RepositoryNotReady",
        ),
        (
            |r| r["spec"]["encryption"]["passwordSecretRef"]["name"] = json!("other"),
            |r| r["spec"]["encryption"]["passwordSecretRef"]["name"] = json!("key"),
            "MissingCredentialsSecret",
        ),
    ];
    for (on, off, reason) in obstacles {
        story.server.edit(&repository_path(), on);
        story.run_pass("a").await;
        story.run_pass("a").await;
        assert_eq!(said(&story, "a"), is("False", reason));
        assert!(job(&story).is_none());
        story.server.edit(&repository_path(), off);
    }
    started(&story, "a").await;
}

fn listed(id: &str, pinned: bool, ours: bool) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: id.into(),
        source: Source {
            username: "p".into(),
            hostname: "backup".into(),
            path: "/pvc/data".into(),
        },
        start_time: START.parse().unwrap(),
        size_bytes: Some(1),
        cluster: Some("cluster".into()),
        snapshot_uid: Some("u-a".into()),
        pinned,
        pin_is_ours: ours,
    }
}

async fn scan(story: &Story, began: Timestamp, listing: &[ListedSnapshot]) {
    let object: Repository = serde_json::from_value(story.server.get(&repository_path()).unwrap()).unwrap();
    let view = RepositoryView::namespaced(object);
    let asked = Request {
        asked: Some("t".into()),
        due: None,
    };
    arrived(&story.ctx, &view, began, &asked, listing).await.unwrap();
}

fn snapshots(story: &Story) -> usize {
    let all = story.server.under(snapshot_path("").trim_end_matches('/'));
    all.len()
}

fn soon() -> Timestamp {
    Timestamp::now() + SignedDuration::from_secs(1)
}

#[tokio::test]
async fn what_was_pinned_with_the_repositorys_own_program_is_known_under_its_new_id_and_kept() {
    let story = Story::new(10);
    live(&story, "a", |s| {
        s["status"]["conditions"] = json!([{
            "type": "Vanished", "status": "True", "reason": "NotListed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
    scan(&story, soon(), &[listed("id-by-hand", true, false)]).await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["snapshot"]["kopiaSnapshotID"], "id-by-hand");
    assert_eq!(
        (&a["status"]["pinned"], &a["status"]["pin"]["ours"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(said(&story, "a"), is("True", "PinnedInRepository"));
    assert_eq!(story.condition(&a, "Vanished").0, "False", "it is there");
    assert!(a["spec"]["pin"].is_null(), "what a person wants is theirs to say");
    story.run_pass("a").await;
    assert!(job(&story).is_none(), "and nobody takes it back");
    let seen = story.ctx.world.snapshot(&ObjectKey::new("backup", "a")).unwrap();
    assert!(seen.is_kept_by_pin());
    assert_eq!(snapshots(&story), 1, "no row of it");

    let writes = story.server.writes(&Method::PATCH, "snapshots/a").len();
    scan(&story, soon(), &[listed("id-by-hand", true, false)]).await;
    assert_eq!(story.server.writes(&Method::PATCH, "snapshots/a").len(), writes);
    scan(&story, soon(), &[listed("id-once-more", false, false)]).await;
    assert_eq!(status(&story, "a")["pinned"], false, "unpinned by hand");
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-once-more");
}

#[tokio::test]
async fn two_that_could_be_it_are_neither() {
    let story = Story::new(10);
    live(&story, "a", |_| {});
    scan(
        &story,
        soon(),
        &[listed("one", true, false), listed("two", true, false)],
    )
    .await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-a");
    assert!(status(&story, "a")["pinned"].is_null());
}

#[tokio::test]
async fn a_listing_that_is_older_than_a_pin_says_nothing_about_it_and_a_second_record_is_no_row() {
    let story = Story::new(10);
    live(&story, "a", wanted);
    let before = Timestamp::now() - SignedDuration::from_secs(5);
    let path = started(&story, "a").await;
    scan(&story, soon(), &[listed("id-new", true, true)]).await;
    assert_eq!(
        status(&story, "a")["snapshot"]["kopiaSnapshotID"],
        "id-a",
        "its Job tells"
    );
    story.end(&path, &answer("a", "id-new", true, true), true);
    story.run_pass("a").await;
    scan(&story, before, &[listed("id-a", false, false)]).await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-new");
    assert_eq!(status(&story, "a")["pinned"], true);
    // A deletion of its old record was lost.
    let both = [listed("id-a", false, false), listed("id-new", true, true)];
    scan(&story, soon(), &both).await;
    assert_eq!(status(&story, "a")["snapshot"]["kopiaSnapshotID"], "id-new");
    assert_eq!(snapshots(&story), 1);
    // Somebody else took our pin away: it is put back.
    scan(&story, soon(), &[listed("id-new", false, false)]).await;
    assert_eq!(status(&story, "a")["pinned"], false);
    started(&story, "a").await;
}

#[tokio::test]
async fn a_prune_of_what_is_pinned_in_the_repository_is_void_and_its_data_stays() {
    let story = Story::new(10);
    story.kept("k1");
    story.pruned("a", "id-k1");
    story.pass().await;
    let (path, _) = story.job().expect("nobody has heard of the pin");
    story.finish(&path, Some("P"), None);
    story.pass().await;
    let a = story.server.get(&snapshot_path("a")).unwrap();
    assert_eq!(a["status"]["deletion"]["outcome"], "PruneUnjustified");
    let k1 = story.server.get(&snapshot_path("k1")).unwrap();
    assert!(k1["status"]["conditions"].is_null(), "nothing vanished");
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
    assert_eq!(
        story.server.writes(&Method::POST, JOBS).len(),
        1,
        "without deleting"
    );
    let void = story.told("SnapshotPruneVoid");
    assert_eq!(void.len(), 1);
    let note = void[0]["note"].as_str().unwrap();
    assert!(note.contains("pinned it there"), "{note}");
}
