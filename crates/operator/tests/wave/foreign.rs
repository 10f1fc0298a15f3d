//! Another manager of the API group beside us: nothing is decided, and it is said once.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use holdfast_operator::protect;
use holdfast_operator::protect::wave::tidy::tidy;
use holdfast_operator::runtime::foreign::Foreign;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

impl Story {
    pub fn somebody_writes(&self, at: Timestamp) {
        seen(&self.ctx.foreign, at);
    }
}

fn appears(foreign: &Foreign) {
    seen(foreign, Timestamp::now());
}

fn seen(foreign: &Foreign, at: Timestamp) {
    let fields: Vec<ManagedFieldsEntry> = serde_json::from_value(
        json!([{ "manager": "kopiur", "operation": "Update", "time": at.to_string() }]),
    )
    .unwrap();
    foreign.look(Some(&fields), Timestamp::now());
}

#[tokio::test]
async fn beside_another_manager_nothing_is_deleted_held_or_let_go_and_each_is_told_once() {
    let story = Story::new(2);
    for name in ["a", "b", "c"] {
        story.snapshot(name, json!({}));
    }
    story.server.edit(&snapshot_path("c"), |s| {
        s["metadata"]["annotations"]["kopiur.home-operations.com/skip-snapshot-cleanup"] = json!("");
    });
    story.somebody_writes(Timestamp::now());
    for _ in 0..3 {
        story.pass().await;
    }
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    assert!(
        story.server.writes(&Method::POST, "/leases").is_empty(),
        "no lock either"
    );
    assert!(story.server.get(&snapshot_path("c")).is_some(), "not even let go");
    let repository = story.server.get(&repository_path()).unwrap();
    assert!(repository["status"]["deletionProtection"].is_null());
    for name in ["a", "b", "c"] {
        let snapshot = story.server.get(&snapshot_path(name)).unwrap();
        let (status, reason, message) = story.condition(&snapshot, "DeletionBlocked");
        assert_eq!((status.as_str(), reason.as_str()), ("True", "ForeignManager"));
        assert!(message.contains("kopiur"), "{message}");
        let path = format!("snapshots/{name}/status");
        assert_eq!(
            story.server.writes(&Method::PATCH, &path).len(),
            1,
            "not in turns with it"
        );
    }
}

#[tokio::test]
async fn when_the_other_manager_is_gone_the_lane_decides() {
    let story = Story::new(10);
    story.snapshot("a", json!({}));
    story.somebody_writes(Timestamp::now() - SignedDuration::from_mins(3));
    story.pass().await;
    assert!(story.job().is_some(), "an old write stops nobody");
}

impl Story {
    /// Work for every controller but the lane's: a slot that is due, a run that waits, a prune, a repository to look at.
    fn work_for_all(&self) {
        self.run("waits");
        let policy = snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/");
        self.server
            .edit(&policy, |p| p["spec"]["retention"] = json!({ "keepLatest": 1 }));
        for (name, day) in [("old", 1), ("new", 2)] {
            self.snapshot(name, json!({}));
            self.server.edit(&snapshot_path(name), |s| {
                s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
                s["status"]["timing"] = json!({ "endTime": format!("2026-01-0{day}T00:00:00Z") });
            });
        }
        self.schedule("nightly", "sched");
        self.server.put(
            &snapshot_path("r").replace("/snapshots/", "/restores/"),
            json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Restore",
                "metadata": { "name": "r", "namespace": "backup", "uid": "restore", "generation": 1 },
                "spec": { "source": { "snapshotRef": { "name": "new" } }, "target": { "pvcRef": { "name": "data" } } },
            }),
        );
    }
}

/// How many writes the workers make in a second.
async fn written(beside: bool) -> Vec<String> {
    let story = Story::new(10);
    story.work_for_all();
    if beside {
        story.somebody_writes(Timestamp::now());
    }
    let (server, ctx, end) = (story.server, Arc::new(story.ctx), CancellationToken::new());
    ctx.queues.add(ctx.world.everything());
    let mut workers = protect::start(&ctx, &end);
    // Long enough for each kind to have its turn.
    let paths = || {
        let methods = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
        let all = methods.iter().flat_map(|method| server.writes(method, ""));
        all.map(|w| w.path).collect::<Vec<_>>()
    };
    for _ in 0..if beside { 15 } else { 100 } {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let told = paths();
        let had_a_turn = |kind: &str| told.iter().any(|path| path.contains(&format!("/{kind}/")));
        if KINDS.iter().all(|kind| had_a_turn(kind)) {
            break;
        }
    }
    end.cancel();
    while workers.join_next().await.is_some() {}
    paths()
}

const KINDS: [&str; 5] = [
    "repositories",
    "snapshotpolicies",
    "snapshotschedules",
    "snapshots",
    "restores",
];

#[tokio::test]
async fn beside_another_manager_no_controller_writes_anything() {
    let alone = written(false).await;
    for kind in KINDS {
        assert!(
            alone.iter().any(|path| path.contains(&format!("/{kind}/"))),
            "{kind} has work: {alone:?}"
        );
    }
    assert_eq!(written(true).await, Vec::<String>::new());
}

/// What a crash left may be the other one's to settle.
#[tokio::test]
async fn beside_another_manager_nothing_is_tidied_up() {
    let memory = "/api/v1/namespaces/holdfast-system/configmaps/old";
    for beside in [true, false] {
        let story = Story::new(10);
        let written = (Timestamp::now() - SignedDuration::from_hours(30)).to_string();
        story.server.put(
            memory,
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": "old", "namespace": "holdfast-system", "uid": "old",
                    "labels": { "kopiur.home-operations.com/batch-memory": "nas" },
                    "annotations": { "kopiur.home-operations.com/written-at": written },
                },
                "data": { "writtenAt": written },
            }),
        );
        if beside {
            story.somebody_writes(Timestamp::now());
        }
        tidy(&story.ctx, Timestamp::now()).await.unwrap();
        assert_eq!(story.server.get(memory).is_some(), beside);
    }
}

/// It appears in the middle of a long pass: the rest is left alone.
#[tokio::test]
async fn another_manager_that_appears_while_many_are_pruned_stops_the_rest() {
    let story = Story::new(10_000);
    story.run("any");
    story.server.remove(&snapshot_path("any"));
    let policy = snapshot_path("p").replace("/snapshots/", "/snapshotpolicies/");
    story.server.edit(&policy, |p| {
        p["metadata"]["finalizers"] = json!(["kopiur.home-operations.com/policy-cleanup"]);
        p["spec"]["retention"] = json!({ "keepLatest": 1 });
    });
    for n in 0..120 {
        let name = format!("s{n:03}");
        story.snapshot(&name, json!({}));
        story.server.edit(&snapshot_path(&name), |s| {
            s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
            s["status"]["timing"] =
                json!({ "endTime": (Timestamp::now() - SignedDuration::from_hours(200 - n)).to_string() });
        });
    }
    let foreign = story.ctx.foreign.clone();
    let mut stamps = 0;
    story.server.on_write(move |write, _| {
        stamps += usize::from(write.method == Method::PATCH && write.path.contains("/snapshots/"));
        if stamps == 10 {
            appears(&foreign);
        }
        None
    });
    let key = holdfast_operator::world::keys::ObjectKey::new("backup", "p");
    let _ = protect::policy::pass(&story.ctx, &key).await;
    let stamped = story.server.writes(&Method::PATCH, "/snapshots/").len();
    assert_eq!(stamped, 50, "asked again after so many");
}
