//! What schedules make, and what they end: several policies, Replace, what repositories leave to them.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::protect::{policy, schedule, snapshot};
use holdfast_operator::world::keys::ObjectKey;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const GROUP: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup";
const BY: &str = "kopiur.home-operations.com/pruned-by";

fn schedule_path() -> String {
    format!("{GROUP}/snapshotschedules/nightly")
}

/// The moment before now at which a schedule of this pattern was due.
fn due() -> String {
    (Timestamp::now() - SignedDuration::from_secs(30))
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

impl Story {
    fn policy_of(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut policy = json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
            "metadata": {
                "name": name, "namespace": "backup", "uid": format!("p-{name}"), "generation": 1,
                "labels": { "tier": "gold" },
                "finalizers": ["kopiur.home-operations.com/policy-cleanup"],
            },
            "spec": { "repository": { "name": "nas" }, "sources": [{ "pvc": { "name": name } }] },
        });
        change(&mut policy);
        self.server
            .put(&format!("{GROUP}/snapshotpolicies/{name}"), policy);
        self.server.put(
            &format!("/api/v1/namespaces/backup/persistentvolumeclaims/{name}"),
            json!({ "metadata": { "name": name } }),
        );
    }

    /// A schedule of this spec whose slot is due.
    fn due_schedule(&self, spec: Value) {
        let slot = due();
        let zone = spec["schedule"]["timezone"].clone();
        self.server.put(
            &schedule_path(),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
                "metadata": {
                    "name": "nightly", "namespace": "backup", "uid": "sched", "generation": 1,
                    "finalizers": ["kopiur.home-operations.com/schedule-cleanup"],
                },
                "spec": spec,
                "status": { "nextSchedule": { "at": slot, "cron": "*/10 * * * *", "timezone": zone } },
            }),
        );
    }

    async fn schedule_now(&self) {
        self.try_schedule().await.expect("a pass");
    }

    async fn try_schedule(&self) -> Result<(), holdfast_operator::context::Error> {
        let key = ObjectKey::new("backup", "nightly");
        schedule::pass(&self.ctx, &key).await.map(drop)
    }

    /// Children of the schedule, those that are being deleted among them.
    fn children(&self) -> Vec<Value> {
        let all = self.server.under(&format!("{GROUP}/snapshots"));
        all.into_iter().map(|(_, s)| s).collect()
    }

    fn told_schedule(&self, reason: &str) -> usize {
        let events = self.server.writes(&Method::POST, "/events");
        events.iter().filter(|e| e.body["reason"] == reason).count()
    }

    fn schedule_condition(&self, kind: &str) -> (String, String, String) {
        let schedule = self.server.get(&schedule_path()).unwrap();
        self.condition(&schedule, kind)
    }

    /// The mover of a run under way; whether its container runs.
    async fn begin(&self, name: &str) -> String {
        self.run_pass(name).await;
        self.run_pass(name).await;
        let path = format!("{JOBS}/{name}");
        self.server
            .edit(&path, |job| job["status"] = json!({ "active": 1, "ready": 1 }));
        path
    }
}

fn named(replace: &str) -> Value {
    json!({
        "policyRef": { "name": "web" },
        "schedule": { "cron": "*/10 * * * *", "concurrencyPolicy": replace },
    })
}

fn selecting() -> Value {
    json!({
        "policySelector": { "matchLabels": { "tier": "gold" } },
        "schedule": { "cron": "*/10 * * * *", "concurrencyPolicy": "Forbid" },
    })
}

#[tokio::test]
async fn every_selected_policy_gets_a_snapshot_of_its_own_under_one_slot() {
    let story = Story::new(10);
    story.policy_of("db", |p| p["spec"]["defaultDeletionPolicy"] = json!("Retain"));
    story.policy_of("web", |_| {});
    story.policy_of("suspended", |p| p["spec"]["suspend"] = json!(true));
    story.policy_of("iron", |p| p["metadata"]["labels"]["tier"] = json!("iron"));
    story.due_schedule(selecting());
    story.schedule_now().await;
    let children = story.children();
    let of = |policy: &str| children.iter().find(|c| c["spec"]["policyRef"]["name"] == policy);
    assert_eq!(children.len(), 2, "the ready ones with the label");
    // What the policy says of the data is obeyed by its schedule's children.
    assert_eq!(of("db").unwrap()["spec"]["deletionPolicy"], "Retain");
    assert_eq!(of("web").unwrap()["spec"]["deletionPolicy"], "Delete");
    for child in &children {
        assert_eq!(child["status"]["phase"], "Pending");
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], "sched");
    }
    let schedule = story.server.get(&schedule_path()).unwrap();
    assert!(schedule["status"]["lastSchedule"]["snapshotRef"].is_null());
    story.schedule_now().await;
    assert_eq!(story.children().len(), 2, "the slot is over");
    // One that ends is not made again by a pass of a stale moment.
    let name = of("web").unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    story.server.remove(&snapshot_path(&name));
    story.schedule_now().await;
    assert_eq!(story.children().len(), 1);
}

#[tokio::test]
async fn a_policy_whose_run_is_under_way_does_not_hold_up_the_others() {
    let story = Story::new(10);
    story.policy_of("db", |_| {});
    story.policy_of("web", |_| {});
    story.due_schedule(selecting());
    story.schedule_now().await;
    let db = |c: &&Value| c["spec"]["policyRef"]["name"] == "db";
    let first = story.children();
    let busy = first.iter().find(db).unwrap()["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    for child in &first {
        let name = child["metadata"]["name"].as_str().unwrap();
        if name != busy {
            story.server.edit(&snapshot_path(name), |s| {
                s["status"]["phase"] = json!("Succeeded")
            });
        }
    }
    let later = (Timestamp::now() - SignedDuration::from_secs(5)).to_string();
    story.server.edit(&schedule_path(), |s| {
        s["status"]["nextSchedule"]["at"] = json!(later);
    });
    story.schedule_now().await;
    assert_eq!(story.children().len(), 3, "one more, for web");
    assert_eq!(story.children().iter().filter(db).count(), 1);
    assert_eq!(story.told_schedule("RunActive"), 1);
}

#[tokio::test]
async fn a_replaced_run_is_stopped_and_nothing_of_it_is_deleted() {
    for committed in [false, true] {
        let story = Story::new(1);
        story.policy_of("web", |_| {});
        story.due_schedule(named("Forbid"));
        story.schedule_now().await;
        let old = story.children()[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let job = story.begin(&old).await;
        let running = story.server.get(&snapshot_path(&old)).unwrap();
        assert_eq!(running["status"]["phase"], "Running");
        let later = (Timestamp::now() - SignedDuration::from_secs(5)).to_string();
        story.server.edit(&schedule_path(), |s| {
            s["spec"] = named("Replace");
            s["status"]["nextSchedule"]["at"] = json!(later);
        });
        if committed {
            // The mover ends well at the same moment; nobody has recorded it.
            let message = json!({
                "version": 1, "uniqueId": "id",
                "result": { "backedUp": { "taken": 1, "first": {
                    "uid": running["metadata"]["uid"], "snapshotId": "abc",
                    "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:01:00Z",
                    "sizeBytes": 1, "filesNew": 1, "filesModified": 0, "filesUnchanged": 0,
                } } },
            });
            story.end(&job, &message.to_string(), true);
        }
        story.schedule_now().await;
        let children = story.children();
        assert_eq!(children.len(), 2, "the new one is there before the old one goes");
        let replaced = story.server.get(&snapshot_path(&old)).unwrap();
        assert!(!replaced["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(replaced["metadata"]["annotations"][BY], "replaced-run");
        assert_eq!(story.told_schedule("ReplacedActiveRun"), 1);
        story.schedule_now().await;
        assert_eq!(story.children().len(), 2, "the new one is replaced by nothing");
        story.pass().await;
        if !committed {
            assert_eq!(
                story.server.get(&job).unwrap()["spec"]["suspend"],
                true,
                "stopped"
            );
            story.server.edit(&job, |j| {
                j["status"] = json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
            });
        }
        story.pass().await;
        story.pass().await;
        assert!(
            story.server.get(&snapshot_path(&old)).is_none(),
            "it goes ({committed})"
        );
        assert!(story.job().is_none(), "and nothing is deleted");
        let statuses = story
            .server
            .writes(&Method::PATCH, &format!("snapshots/{old}/status"));
        let recorded = |w: &crate::server::Write| w.body["status"]["snapshot"]["kopiaSnapshotID"] == "abc";
        assert_eq!(statuses.iter().any(recorded), committed, "its result was read");
        let repository = story.server.get(&repository_path()).unwrap();
        assert!(repository["status"]["deletionProtection"]["heldThrough"].is_null());
    }
}

#[tokio::test]
async fn a_replacement_that_was_half_applied_is_finished_and_a_run_that_ended_meanwhile_stays() {
    let story = Story::new(10);
    story.policy_of("web", |_| {});
    story.due_schedule(named("Forbid"));
    story.schedule_now().await;
    let old = story.children()[0]["metadata"]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    story.begin(&old).await;
    let later = (Timestamp::now() - SignedDuration::from_secs(5)).to_string();
    story.server.edit(&schedule_path(), |s| {
        s["spec"] = named("Replace");
        s["status"]["nextSchedule"]["at"] = json!(later);
    });
    // The process ends after the new one was created.
    let path = snapshot_path(&old);
    let refused = path.clone();
    story
        .server
        .on_write(move |write, _| (write.path == refused).then_some(StatusCode::INTERNAL_SERVER_ERROR));
    assert!(story.try_schedule().await.is_err());
    story.server.on_write(|_, _| None);
    assert_eq!(story.children().len(), 2);
    // Meanwhile the old one has ended, and its result is recorded.
    story
        .server
        .edit(&path, |s| s["status"]["phase"] = json!("Succeeded"));
    story.schedule_now().await;
    assert_eq!(story.children().len(), 2, "the slot's own is not made twice");
    let old = story.server.get(&path).unwrap();
    assert!(old["metadata"]["deletionTimestamp"].is_null() && old["metadata"]["annotations"][BY].is_null());
}

#[tokio::test]
async fn time_zone_and_jitter_come_from_the_repository_where_the_schedule_says_nothing() {
    let story = Story::new(10);
    story.policy_of("web", |_| {});
    story.server.edit(&repository_path(), |r| {
        r["spec"]["scheduleDefaults"] = json!({ "timezone": "Asia/Kolkata", "jitter": "5m" });
    });
    story.due_schedule(json!({
        "policyRef": { "name": "web" },
        "schedule": { "cron": "0 3 * * *", "concurrencyPolicy": "Forbid" },
    }));
    story.schedule_now().await;
    let schedule = story.server.get(&schedule_path()).unwrap();
    let next = &schedule["status"]["nextSchedule"];
    assert_eq!(
        (&next["timezone"], &next["jitter"]),
        (&json!("Asia/Kolkata"), &json!("5m"))
    );
    let at: Timestamp = next["at"].as_str().unwrap().parse().unwrap();
    let after_midnight = at.as_second().rem_euclid(86_400);
    let three_in_kolkata = 21 * 3600 + 30 * 60;
    assert!(
        (three_in_kolkata..three_in_kolkata + 300).contains(&after_midnight),
        "{at}"
    );
    assert_eq!(story.children().len(), 0, "another timetable is another slot");

    // Its repository is gone for a while: nothing moves.
    story
        .server
        .edit(&repository_path(), |r| r["status"]["phase"] = json!("Pending"));
    story.forget_repository();
    story.schedule_now().await;
    let still = story.server.get(&schedule_path()).unwrap();
    assert_eq!(still["status"]["nextSchedule"]["at"], next["at"]);
}

#[tokio::test]
async fn repositories_that_disagree_leave_it_at_utc_and_the_schedule_says_so() {
    let story = Story::new(10);
    story.policy_of("db", |p| p["spec"]["repository"]["name"] = json!("other"));
    story.policy_of("web", |_| {});
    let mut other = story.server.get(&repository_path()).unwrap();
    other["metadata"] = json!({ "name": "other", "namespace": "backup" });
    other["spec"]["scheduleDefaults"] = json!({ "timezone": "Asia/Kolkata" });
    let path = format!("{GROUP}/repositories/other");
    story.server.put(&path, other);
    story.due_schedule(selecting());
    story.schedule_now().await;
    let (status, reason, _) = story.schedule_condition("TimezoneDefaultAmbiguous");
    assert_eq!(
        (status.as_str(), reason.as_str()),
        ("True", "RepositoryDefaultsDisagree")
    );
    story
        .server
        .edit(&path, |r| r["spec"]["scheduleDefaults"] = json!({}));
    story.schedule_now().await;
    assert_eq!(story.schedule_condition("TimezoneDefaultAmbiguous").0, "False");
}

/// With `keepLatest: 1`, each of two that a tool keeps in its manifests would push out the other one for ever.
#[tokio::test]
async fn a_tool_that_makes_a_pruned_snapshot_again_makes_no_loop() {
    let story = Story::new(10);
    story.policy_of("p", |p| p["spec"]["retention"] = json!({ "keepLatest": 1 }));
    for (name, day) in [("one", 1), ("two", 2)] {
        story.run(name);
        story.policy_of("p", |p| p["spec"]["retention"] = json!({ "keepLatest": 1 }));
        story.server.edit(&snapshot_path(name), |s| {
            s["status"] = json!({
                "phase": "Succeeded", "origin": "manual",
                "timing": { "endTime": format!("2026-01-0{day}T00:00:00Z") },
                "snapshot": {
                    "kopiaSnapshotID": format!("id-{name}"),
                    "identity": { "username": "p", "hostname": "backup", "sourcePath": "/pvc/data" },
                },
                "resolved": { "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" } },
            });
        });
    }
    let key = ObjectKey::new("backup", "p");
    policy::pass(&story.ctx, &key).await.expect("a pass");
    let one = story.server.get(&snapshot_path("one")).unwrap();
    assert_eq!(one["metadata"]["annotations"][BY], "retention");
    let policy = story.server.get(&format!("{GROUP}/snapshotpolicies/p")).unwrap();
    assert_eq!(policy["status"]["retention"]["prunedNames"][0]["name"], "one");
    let writes = story.server.writes(&Method::PATCH, "");
    let place = |part: &str| writes.iter().position(|w| w.path.contains(part)).unwrap();
    assert!(
        place("snapshotpolicies/p/status") < place("snapshots/one"),
        "the name is recorded before the Snapshot goes"
    );
    story.server.remove(&snapshot_path("one"));
    // The tool applies its manifest again, and again after each of ours.
    let mut runs = 0;
    for _ in 0..3 {
        if story.server.get(&snapshot_path("one")).is_none() {
            story.server.put(
                &snapshot_path("one"),
                json!({
                    "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Snapshot",
                    "metadata": { "name": "one", "namespace": "backup", "uid": "again" },
                    "spec": { "policyRef": { "name": "p" } },
                }),
            );
        }
        let one = ObjectKey::new("backup", "one");
        for _ in 0..3 {
            snapshot::pass(&story.ctx, &one).await.expect("a pass");
        }
        policy::pass(&story.ctx, &key).await.expect("a pass");
        runs += story.server.writes(&Method::POST, JOBS).len();
    }
    assert_eq!(runs, 0);
    let one = story.server.get(&snapshot_path("one")).unwrap();
    assert_eq!(one["status"]["phase"], "Failed");
    assert_eq!(story.condition(&one, "Ready").1, "MadeAgainAfterPrune");
    let two = story.server.get(&snapshot_path("two")).unwrap();
    assert!(two["metadata"]["deletionTimestamp"].is_null());
    // And it can be deleted at any time: there is nothing to delete in the repository.
    story.server.edit(&snapshot_path("one"), |s| {
        s["metadata"]["deletionTimestamp"] = json!(due());
    });
    story.pass().await;
    story.pass_unresolved().await;
    assert!(story.server.get(&snapshot_path("one")).is_none());
    assert!(story.job().is_none());
}

/// Whatever an empty or failed Snapshot is pinned to, and whatever became of that: it can be deleted.
#[tokio::test]
async fn an_empty_or_failed_snapshot_can_always_be_deleted() {
    let status = |phase: &str, pin: Option<&str>| {
        let mut status = json!({ "phase": phase });
        if let Some(name) = pin {
            status["resolved"] = json!({
                "repository": { "kind": "Repository", "name": name, "namespace": "backup" },
            });
        }
        status
    };
    let shapes = [
        ("nothing", Value::Null),
        ("pending", status("Pending", None)),
        ("failed", status("Failed", Some("nas"))),
        ("failed-elsewhere", status("Failed", Some("gone"))),
        ("failed-unpinned", status("Failed", None)),
    ];
    for away in ["ready", "degraded", "suspended", "held", "paused"] {
        let mut story = Story::new(1);
        story.ctx.settings.deletions_paused = away == "paused";
        story.server.edit(&repository_path(), |r| match away {
            "degraded" => r["status"]["phase"] = json!("Degraded"),
            "suspended" => r["spec"]["suspend"] = json!(true),
            _ => {}
        });
        // One with data is not let go meanwhile, so that the pause and the hold are what they are called.
        let waits = match away {
            "held" => Some("DeletionHeld"),
            "paused" => Some("DeletionBlocked"),
            _ => None,
        };
        if let Some(kind) = waits {
            story.snapshot("whole", json!({}));
            if away == "paused" {
                // Below the threshold: nothing but the pause keeps it.
                story.server.edit(&repository_path(), |r| {
                    r["spec"]["deletionProtection"]["threshold"] = json!(10);
                });
            }
            story.pass().await;
            let whole = story.server.get(&snapshot_path("whole")).unwrap();
            assert_eq!(story.condition(&whole, kind).0, "True", "{away}");
        }
        for (name, status) in &shapes {
            story.snapshot(name, json!({}));
            story
                .server
                .edit(&snapshot_path(name), |s| s["status"] = status.clone());
        }
        for _ in 0..2 {
            story.pass().await;
            story.pass_unresolved().await;
        }
        for (name, _) in &shapes {
            assert!(
                story.server.get(&snapshot_path(name)).is_none(),
                "{name} stays while the repository is {away}"
            );
        }
        assert!(story.job().is_none());
        if let Some(kind) = waits {
            let whole = story.server.get(&snapshot_path("whole")).unwrap();
            assert_eq!(story.condition(&whole, kind).0, "True", "{away} all the while");
        }
    }
}

/// The schedule's own word (here: delete what goes with me) is about the schedule's deletion and overrules no policy.
#[tokio::test]
async fn a_policy_that_says_retain_is_obeyed_by_its_schedules_children() {
    for (says, kept) in [("Retain", true), ("Delete", false)] {
        let story = Story::new(10);
        story.policy_of("web", |p| p["spec"]["defaultDeletionPolicy"] = json!(says));
        let mut spec = named("Forbid");
        spec["deletion"] = json!({ "onScheduleDelete": "Delete" });
        story.due_schedule(spec);
        story.schedule_now().await;
        let name = story.children()[0]["metadata"]["name"]
            .as_str()
            .unwrap()
            .to_owned();
        let at = snapshot_path(&name);
        story.server.edit(&at, |s| {
            assert_eq!(s["spec"]["deletionPolicy"], says);
            // Its run succeeds, and a person deletes it.
            s["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            s["metadata"]["finalizers"] = json!(["kopiur.home-operations.com/snapshot-cleanup"]);
            s["status"]["phase"] = json!("Succeeded");
            s["status"]["snapshot"] = json!({
                "kopiaSnapshotID": "id-child",
                "identity": { "username": "web", "hostname": "backup", "sourcePath": "/pvc/web" },
            });
            s["status"]["resolved"] = json!({
                "repository": { "kind": "Repository", "name": "nas", "namespace": "backup" },
            });
        });
        story.pass().await;
        story.pass().await;
        assert_eq!(story.job().is_none(), kept, "{says}: {:?}", story.server.get(&at));
        assert_eq!(
            story.server.get(&at).is_none(),
            kept,
            "{says}: released only if its data stays"
        );
    }
}
