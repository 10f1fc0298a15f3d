//! A world that lags.

use super::*;
use holdfast_api::SnapshotPolicy;
use std::cell::Cell;
use std::sync::{Arc, Mutex};

/// The world sees the policy like this.
fn show(story: &Story, policy: &SnapshotPolicy) {
    let seen = Change::Set(Observed::Policy(Box::new(policy.clone())));
    story.ctx.world.apply(seen, Timestamp::now());
}

impl Story {
    /// What the policy has is of a schedule: no names of it are written down before it is pruned.
    fn all_scheduled(&self) {
        for (path, _) in self.server.under(SNAPSHOTS) {
            self.server.edit(&path, |s| {
                s["metadata"]["ownerReferences"] = json!([{
                    "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
                    "name": "s", "uid": "s", "controller": true,
                }]);
            });
        }
    }
}

/// The watch of policies hangs, that of Snapshots does not: the policy is seen as it was before the adoption, and what it
/// has as it is after it.
#[tokio::test]
async fn a_policy_that_is_seen_as_it_was_before_an_adoption_prunes_nothing_of_what_came() {
    let story = Story::new(10);
    story.full_policy();
    story.all_scheduled();
    let before = story.ctx.world.policy(&ObjectKey::new("backup", "p")).unwrap();
    story.scanned(&listing(12)).await;
    assert_eq!(story.of_origin("adopted").len(), 12);
    show(&story, &before);
    let _ = policy::pass(&story.ctx, &ObjectKey::new("backup", "p")).await;
    assert_eq!(story.stamps(), 0);
}

/// The adoption comes and goes while the pass asks for a scan: what was read before that is not what is judged.
#[tokio::test]
async fn a_policy_is_judged_as_it_is_after_it_asked_for_a_scan() {
    let story = Story::new(10);
    story.scanned(&listing(2)).await;
    story.full_policy();
    story.all_scheduled();
    // More than retention keeps.
    story.server.edit(&policy_path(), |p| {
        p["spec"]["retention"] = json!({ "keepLatest": 1 })
    });
    let world = Arc::clone(&story.ctx.world);
    story.server.on_write(move |write, objects| {
        if !write.path.contains("/repositories/") {
            return None;
        }
        objects.edit(&policy_path(), |p| {
            p["status"]["adoption"] = json!({ "underWay": Timestamp::now().to_string() });
        });
        let now = serde_json::from_value(objects.by_path[&policy_path()].clone()).unwrap();
        world.apply(Change::Set(Observed::Policy(Box::new(now))), Timestamp::now());
        Some(StatusCode::CONFLICT)
    });
    story.adopter_pass().await;
    assert_eq!(story.stamps(), 0);
    let policy = story.adopter_now();
    let (_, _, message) = story.condition(&policy, "Ready");
    assert!(message.contains("retention waits"), "{message}");
}

/// What was made is not seen yet: retention waits for it.
#[tokio::test(start_paused = true)]
async fn retention_goes_on_only_when_what_was_taken_over_is_seen() {
    let story = Story::new(10);
    story.full_policy();
    let hidden = Arc::new(Mutex::new(true));
    let (hides, world) = (Arc::clone(&hidden), Arc::clone(&story.ctx.world));
    story.server.after_write(move |write, objects| {
        if !*hides.lock().unwrap() || !write.path.starts_with(SNAPSHOTS) {
            return;
        }
        for (path, object) in &objects.by_path {
            if path.starts_with(SNAPSHOTS) && object["metadata"]["labels"][ORIGIN] == "adopted" {
                let view = serde_json::from_value(object.clone()).unwrap();
                let gone = Change::Gone(Observed::Snapshot(Box::new(view)));
                world.apply(gone, Timestamp::now());
            }
        }
    });
    let all = listing(12);
    story.scanned(&all).await;
    let under_way = |story: &Story| story.adopter_now()["status"]["adoption"]["underWay"].clone();
    assert!(under_way(&story).is_string());
    *hidden.lock().unwrap() = false;
    for (path, _) in story.server.under(SNAPSHOTS) {
        story.server.edit(&path, |_| {});
    }
    story.scanned(&all).await;
    assert!(under_way(&story).is_null());
}

/// Retention runs over and over while an adoption goes on.
#[tokio::test]
async fn retention_that_runs_between_two_writes_of_an_adoption_prunes_nothing() {
    let story = Story::new(10);
    story.full_policy();
    story.all_scheduled();
    let all = listing(12);
    let over = Cell::new(false);
    let scan = async {
        story.scanned(&all).await;
        over.set(true);
    };
    let passes = async {
        let mut passes = 0;
        while !over.get() {
            // One that meets a write of the scan ends in a conflict.
            let _ = policy::pass(&story.ctx, &ObjectKey::new("backup", "p")).await;
            passes += 1;
            tokio::task::yield_now().await;
        }
        passes
    };
    let ((), passes) = tokio::join!(scan, passes);
    assert!(passes >= 5, "{passes}");
    assert_eq!(story.stamps(), 0);
    for _ in 0..3 {
        story.scanned(&all).await;
        story.adopter_pass().await;
    }
    assert_eq!((story.of_origin("adopted").len(), story.stamps()), (12, 0));
    let policy = story.adopter_now();
    assert_eq!(story.condition(&policy, "MassPruneHeld").0, "True");
}
