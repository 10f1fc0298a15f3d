//! What cannot be made.

use super::*;

impl Story {
    fn adoption(&self) -> Value {
        self.adopter_now()["status"]["adoption"].clone()
    }

    /// So many objects may be made, and no more.
    fn quota(&self, mut free: usize) {
        self.server.on_write(move |write, _| {
            let makes = write.method == Method::POST
                && write.path == SNAPSHOTS
                && write.body["metadata"]["labels"][ORIGIN] == "adopted";
            if !makes {
                return None;
            }
            let refused = free == 0;
            free = free.saturating_sub(1);
            refused.then_some(StatusCode::FORBIDDEN)
        });
    }

    /// It has waited for as long as a scan takes, and longer.
    fn waits_for_an_hour(&self) {
        self.server.edit(&policy_path(), |p| {
            let since = Timestamp::now() - SignedDuration::from_hours(1);
            p["status"]["adoption"]["underWay"] = json!(since.to_string());
        });
    }
}

#[tokio::test]
async fn what_can_never_be_made_has_retention_neither_wait_nor_begin_anew() {
    let story = Story::new(10);
    story.full_policy();
    story.adopter_pass().await;
    story.quota(0);
    for _ in 0..3 {
        story.scanned(&listing(1)).await;
        let adoption = story.adoption();
        assert!(adoption["underWay"].is_null() && adoption["lastAdoptedAt"].is_null());
        let retention = story.adopter_now()["status"]["retention"].clone();
        assert_eq!(retention["completedGeneration"], 1, "nothing came: it is no edit");
    }
    let repository = story.server.get(&repository_path()).unwrap();
    assert!(
        repository["status"]["catalog"]["lastError"].is_string(),
        "it is said"
    );
}

/// An answer that does not arrive may be to something that was carried out.
#[tokio::test]
async fn what_may_have_been_made_has_retention_wait() {
    let story = Story::new(10);
    story.full_policy();
    story.server.on_write(|write, _| {
        let status = write.path.starts_with(SNAPSHOTS) && write.path.ends_with("/status");
        status.then_some(StatusCode::GATEWAY_TIMEOUT)
    });
    story.scanned(&listing(1)).await;
    assert!(story.adoption()["underWay"].is_string());
}

/// A quota that frees as many places as were pruned would have all of them go, a few at a time.
#[tokio::test]
async fn after_half_an_adoption_even_one_prune_waits_for_a_person() {
    let story = Story::new(10);
    story.full_policy();
    let all = listing(12);
    story.quota(3);
    story.scanned(&all).await;
    story.adopter_pass().await;
    assert!(story.adoption()["underWay"].is_string());
    story.waits_for_an_hour();
    story.quota(0);
    story.scanned(&all).await;
    let adoption = story.adoption();
    assert!(adoption["underWay"].is_null(), "not for ever");
    assert_eq!(adoption["partial"], true);
    for _ in 0..2 {
        story.adopter_pass().await;
        assert_eq!(story.stamps(), 0);
    }
    let policy = story.adopter_now();
    let held = story.condition(&policy, "MassPruneHeld");
    assert_eq!(held.0, "True");
    // What is shown stays, for nothing came since.
    story.scanned(&all).await;
    story.adopter_pass().await;
    assert_eq!(story.condition(&story.adopter_now(), "MassPruneHeld").2, held.2);
    assert_eq!(story.of_origin("adopted").len(), 3);
    // When the rest is there it is whole.
    story.quota(100);
    story.scanned(&all).await;
    assert_eq!(story.of_origin("adopted").len(), 12);
    assert!(story.adoption()["partial"].is_null());
}

/// The process that had it wait is gone, and no listing arrives whole any more.
#[tokio::test]
async fn who_waits_for_an_hour_without_any_scan_goes_on_by_itself() {
    for (there, progress, goes_on) in [(true, false, true), (true, true, false), (false, false, true)] {
        let story = Story::new(10);
        story.full_policy();
        story.waits_for_an_hour();
        story.server.edit(&repository_path(), |r| {
            r["status"]["catalog"] = if progress {
                json!({ "progress": { "done": 500, "of": 5_000 } })
            } else {
                json!({ "failures": 7 })
            };
        });
        if !there {
            story.server.remove(&repository_path());
        }
        story.adopter_pass().await;
        let adoption = story.adoption();
        assert_eq!(adoption["underWay"].is_null(), goes_on, "{there} {progress}");
        if goes_on {
            assert_eq!(adoption["partial"], true, "as after an edit, whatever its count");
            assert!(story.adopter_now()["status"]["retention"]["completedGeneration"].is_null());
        }
    }
}

/// Thousands of events would be as many writes, in the way of the scan's own.
#[tokio::test]
async fn while_it_waits_a_policy_is_not_written_for_what_comes() {
    let story = Story::new(10);
    story.full_policy();
    story.adopter_pass().await;
    story.server.edit(&policy_path(), |p| {
        p["status"]["adoption"]["underWay"] = json!(Timestamp::now().to_string());
    });
    story.adopter_pass().await;
    let before = story.written();
    for n in 0..5 {
        story.own(&format!("more-{n}"), 1);
        story.adopter_pass().await;
    }
    assert_eq!(story.written(), before);
}
