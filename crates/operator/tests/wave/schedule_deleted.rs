//! A schedule that is deleted: its last word about the data of its Snapshots counts, whenever it was said.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_operator::protect::schedule;
use holdfast_operator::world::keys::ObjectKey;
use serde_json::{Value, json};

const FINALIZER: &str = "kopiur.home-operations.com/schedule-cleanup";

fn owner() -> Value {
    json!([{ "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule", "name": "nightly", "uid": "sched" }])
}

impl Story {
    /// A schedule that says `word`, with the finalizer that its first pass puts there.
    fn nightly(&self, word: &str) -> String {
        let path = self.schedule("nightly", "sched");
        self.server.edit(&path, |s| {
            s["metadata"]["finalizers"] = json!([FINALIZER]);
            s["spec"]["deletion"] = json!({ "onScheduleDelete": word });
        });
        path
    }

    /// A child that carries `word`; deleted a minute ago, or not at all.
    fn scheduled(&self, name: &str, word: &str, deleting: bool) {
        self.snapshot(name, owner());
        self.server.edit(&snapshot_path(name), |s| {
            s["spec"]["onScheduleDelete"] = json!(word);
            if !deleting {
                s["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
            }
        });
    }

    async fn schedule_pass(&self) {
        schedule::pass(&self.ctx, &ObjectKey::new("backup", "nightly"))
            .await
            .expect("a pass");
    }

    fn carries(&self, name: &str) -> Value {
        self.server.get(&snapshot_path(name)).unwrap()["spec"]["onScheduleDelete"].clone()
    }
}

fn delete(story: &Story, path: &str) {
    story.server.edit(path, |s| {
        s["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
}

#[tokio::test]
async fn a_schedule_gets_its_finalizer_before_it_has_children() {
    let story = Story::new(10);
    let path = story.schedule("nightly", "sched");
    story.schedule_pass().await;
    assert_eq!(
        story.server.get(&path).unwrap()["metadata"]["finalizers"],
        json!([FINALIZER])
    );
    assert!(story.server.writes(&Method::POST, "/snapshots").is_empty());
}

/// Delete was edited to Retain and the schedule deleted at once: no pass has seen the edit.
#[tokio::test]
async fn a_tightening_edit_wins_over_the_deletion_right_after_it() {
    let story = Story::new(10);
    let path = story.nightly("Retain");
    for name in ["a", "b"] {
        story.scheduled(name, "Delete", false);
    }
    delete(&story, &path);
    story.schedule_pass().await;
    assert!(
        story.server.get(&path).is_none(),
        "it goes once its children know"
    );
    for name in ["a", "b"] {
        assert_eq!(story.carries(name), "Retain");
        // The garbage collector comes now.
        story.scheduled(name, "Retain", true);
    }
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    assert!(story.server.writes(&Method::POST, JOBS).is_empty());
    let events = story.server.writes(&Method::POST, "/events");
    assert!(events.len() == 2 && events[0].body["reason"] == "SnapshotRetainedOnScheduleDelete");
}

/// Foreground: the children are deleted while the schedule is still there, and the lane looks first.
#[tokio::test]
async fn the_lane_asks_the_schedule_that_is_being_deleted_before_its_children_are_told() {
    for only_live in [false, true] {
        let story = Story::new(10);
        let path = story.nightly(if only_live { "Delete" } else { "Retain" });
        delete(&story, &path);
        story.scheduled("a", "Delete", true);
        if only_live {
            // The world has not seen the edit; the live proof before the Job does.
            story.server.edit_unseen(&path, |s| {
                s["spec"]["deletion"] = json!({ "onScheduleDelete": "Retain" });
            });
        }
        story.pass().await;
        assert!(story.server.writes(&Method::POST, JOBS).is_empty(), "{only_live}");
        assert_eq!(story.server.get(&snapshot_path("a")).is_none(), !only_live);
    }
}

#[tokio::test]
async fn a_schedule_of_the_same_name_says_nothing_about_the_children_of_the_one_before() {
    let story = Story::new(10);
    story.nightly("Retain");
    story.scheduled("a", "Delete", true);
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["ownerReferences"][0]["uid"] = json!("before");
    });
    story.pass().await;
    assert!(story.job().is_some(), "its own word was Delete");
}

#[tokio::test]
async fn a_loosening_edit_reaches_the_children_too_and_the_breaker_counts_them() {
    let story = Story::new(2);
    let path = story.nightly("Delete");
    for name in ["a", "b"] {
        story.scheduled(name, "Retain", false);
    }
    delete(&story, &path);
    story.schedule_pass().await;
    assert!(story.server.get(&path).is_none());
    for name in ["a", "b"] {
        assert_eq!(story.carries(name), "Delete");
        story.scheduled(name, "Delete", true);
    }
    story.pass().await;
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, "MassDeletionHeld").0, "True");
    assert!(story.job().is_none());
}

#[tokio::test]
async fn a_word_of_a_newer_release_keeps_the_data() {
    let story = Story::new(10);
    let path = story.nightly("AskFirst");
    story.scheduled("a", "Delete", false);
    delete(&story, &path);
    story.schedule_pass().await;
    assert_eq!(story.carries("a"), "Retain");
}

#[tokio::test]
async fn a_child_that_cannot_be_told_to_keep_its_data_keeps_the_schedule() {
    for (says, carries, stays) in [("Retain", "Delete", true), ("Delete", "Retain", false)] {
        let story = Story::new(10);
        let path = story.nightly(says);
        story.scheduled("a", carries, false);
        delete(&story, &path);
        story
            .server
            .on_write(|write, _| (write.path == snapshot_path("a")).then_some(StatusCode::FORBIDDEN));
        story.schedule_pass().await;
        assert_eq!(story.server.get(&path).is_some(), stays, "{says}");
        story.server.on_write(|_, _| None);
        story.schedule_pass().await;
        assert!(story.server.get(&path).is_none());
    }
}

#[tokio::test]
async fn children_of_another_schedule_are_left_alone() {
    let story = Story::new(10);
    let path = story.nightly("Retain");
    story.scheduled("a", "Delete", false);
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["ownerReferences"][0]["uid"] = json!("another");
    });
    delete(&story, &path);
    story.schedule_pass().await;
    assert_eq!(story.carries("a"), "Delete");
    assert!(story.server.get(&path).is_none());
}

/// `failedJobsHistoryLimit`: the oldest failures go with our own stamp, and the breaker does not count them.
#[tokio::test]
async fn failed_runs_beyond_the_limit_go_as_our_own_prunes() {
    let story = Story::new(1);
    let path = story.nightly("Retain");
    story
        .server
        .edit(&path, |s| s["spec"]["failedJobsHistoryLimit"] = json!(2));
    for n in 0..4 {
        let name = format!("f{n}");
        story.scheduled(&name, "Retain", false);
        story.server.edit(&snapshot_path(&name), |s| {
            s["status"] = json!({
                "phase": "Failed",
                "timing": { "endTime": format!("2026-01-0{}T00:00:00Z", n + 1) },
            });
        });
    }
    story.scheduled("well", "Retain", false);
    story.schedule_pass().await;
    let deleting = |name: &str| {
        let snapshot = story.server.get(&snapshot_path(name)).unwrap();
        !snapshot["metadata"]["deletionTimestamp"].is_null()
    };
    assert!(deleting("f0") && deleting("f1"));
    assert!(!deleting("f2") && !deleting("f3") && !deleting("well"));
    let f0 = story.server.get(&snapshot_path("f0")).unwrap();
    let annotations = &f0["metadata"]["annotations"];
    assert_eq!(
        annotations["kopiur.home-operations.com/pruned-by"],
        "failed-history"
    );
    assert!(annotations["kopiur.home-operations.com/pruned-at"].is_string());
}

/// A webhook of somebody else's refuses one child for good: the others are told, and the backups go on.
#[tokio::test]
async fn a_child_that_refuses_to_be_told_or_pruned_stops_neither_the_others_nor_the_backups() {
    let story = Story::new(10);
    story.run("any");
    story.server.remove(&snapshot_path("any"));
    let path = story.nightly("Delete");
    for name in ["a", "b", "c"] {
        story.scheduled(name, "Retain", false);
    }
    for (name, hour) in [("f1", 1), ("f2", 2), ("f3", 3)] {
        story.scheduled(name, "Delete", false);
        story.server.edit(&snapshot_path(name), |s| {
            s["status"] = json!({ "phase": "Failed", "timing": { "endTime": format!("2026-01-01T0{hour}:00:00Z") } });
        });
    }
    let slot = (jiff::Timestamp::now() - jiff::SignedDuration::from_secs(5)).to_string();
    story.server.edit(&path, |s| {
        s["spec"]["failedJobsHistoryLimit"] = json!(1);
        let times = s["spec"]["schedule"].clone();
        s["status"] = json!({ "nextSchedule": { "at": slot, "cron": times["cron"] } });
    });
    story.server.on_write(|write, _| {
        let refuses = ["/snapshots/a", "/snapshots/f1"]
            .iter()
            .any(|p| write.path.ends_with(p));
        refuses.then_some(StatusCode::UNPROCESSABLE_ENTITY)
    });
    story.schedule_pass().await;
    assert_eq!(story.carries("a"), "Retain");
    for name in ["b", "c"] {
        assert_eq!(story.carries(name), "Delete", "{name}");
    }
    let f2 = story.server.get(&snapshot_path("f2"));
    assert!(f2.is_none_or(|s| !s["metadata"]["deletionTimestamp"].is_null()));
    assert_eq!(
        story.server.writes(&Method::POST, "/snapshots").len(),
        1,
        "the slot ran"
    );
}
