//! What is remembered of what was let go.

use super::*;

impl Story {
    /// The keys of what is remembered.
    fn remembered(&self) -> Vec<String> {
        let maps = self.kept_maps().into_iter();
        let keys = maps.filter_map(|map| Some(map["data"].as_object()?.keys().cloned().collect::<Vec<_>>()));
        keys.flatten().collect()
    }

    /// One that was begun long ago is deleted, and its data stays.
    fn retained_since(&self, name: &str, begun: Timestamp) {
        self.retained(name);
        self.server.edit(&snapshot_path(name), |s| {
            s["status"]["timing"] = json!({ "startTime": begun.to_string() });
        });
    }
}

#[tokio::test]
async fn what_two_listings_a_day_apart_lack_is_forgotten_and_nothing_sooner() {
    let story = Story::new(10);
    story.adopter(json!({}));
    let begun = long_ago();
    story.retained_since("a", begun);
    story.pass().await;
    let hours = |n| Timestamp::now() + SignedDuration::from_hours(n);
    let found = [listed("id-a", begun)];
    // A replica that lags, a bucket that was rolled back: it is there again.
    for (at, listing) in [(1, &[][..]), (20, &[]), (22, &found), (26, &[]), (49, &[])] {
        story.scanned_at(hours(at), listing).await;
        assert_eq!(story.remembered(), ["id-a"], "{at}");
    }
    story.scanned_at(hours(51), &[]).await;
    assert_eq!(story.remembered(), [""; 0]);
}

/// Kopia gives a snapshot that is pinned or unpinned there a new id.
#[tokio::test]
async fn what_was_let_go_is_known_under_another_id() {
    let story = Story::new(10);
    story.adopter(json!({}));
    let begun = long_ago();
    story.retained_since("a", begun);
    story.pass().await;
    // Whole seconds are what some objects know.
    let renamed = listed("another", begun + SignedDuration::from_millis(3));
    let untagged = ListedSnapshot {
        cluster: None,
        snapshot_uid: None,
        ..renamed
    };
    let found = [untagged];
    for _ in 0..2 {
        story.scanned(&found).await;
        assert!(
            story.of_origin("adopted").is_empty(),
            "it was let go under this very policy"
        );
    }
    story.policy_made_again();
    story.scanned(&found).await;
    assert_eq!(story.says(), [(json!("Retain"), json!(true))]);
    story.scanned_later(&found).await;
    assert_eq!(story.remembered(), [""; 0], "an object says it");
}

/// A person, or a tool that tidies up, removes the maps, or takes off the label by which they are found.
#[tokio::test]
async fn a_memory_that_is_gone_is_not_taken_for_one_that_never_was() {
    for label_only in [false, true] {
        let story = Story::new(10);
        story.adopter(json!({}));
        let begun = long_ago();
        story.retained_since("a", begun);
        story.pass().await;
        let maps = story.server.under(KEPT).into_iter();
        let maps = maps.filter(|(path, _)| path.contains("holdfast-kept-"));
        for (path, _) in maps {
            if label_only {
                story
                    .server
                    .edit(&path, |map| map["metadata"]["labels"] = json!({}));
            } else {
                story.server.remove(&path);
            }
        }
        story.policy_made_again();
        let found = [listed("id-a", begun)];
        for _ in 0..2 {
            story.scanned(&found).await;
            assert!(story.of_origin("adopted").is_empty());
        }
        let repository = story.server.get(&repository_path()).unwrap();
        let said = story.condition(&repository, INCOMPLETE);
        assert_eq!((said.0.as_str(), said.1.as_str()), ("True", "MemoryLost"));
        let policy = story.adopter_now();
        assert_eq!(story.condition(&policy, "AdoptionHeld").1, INCOMPLETE);
        // Nothing is left of which something could have been forgotten.
        story.scanned(&[]).await;
        story.scanned(&[]).await;
        story.scanned(&[listed("later", long_ago())]).await;
        assert_eq!(story.of_origin("adopted").len(), 1);
    }
}

#[tokio::test]
async fn the_label_by_which_a_map_is_found_is_restored_with_the_next_entry() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.pass().await;
    let (path, _) = story
        .server
        .under(KEPT)
        .into_iter()
        .find(|(path, _)| path.contains("holdfast-kept-"))
        .unwrap();
    story
        .server
        .edit(&path, |map| map["metadata"]["labels"] = json!({}));
    // Another object of the same snapshot.
    story.retained("a");
    story
        .server
        .edit(&snapshot_path("a"), |s| s["metadata"]["uid"] = json!("another"));
    story.pass().await;
    let map = story.server.get(&path).unwrap();
    assert!(map["metadata"]["labels"]["kopiur.home-operations.com/kept-memory"].is_string());
}

#[tokio::test]
async fn that_something_is_not_remembered_stays_known_when_the_repository_is_made_again() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.refuses_the_memory_of_a(StatusCode::FORBIDDEN);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    story.server.on_write(|_, _| None);
    let mut repository = story.server.get(&repository_path()).unwrap();
    story.server.remove(&repository_path());
    repository["metadata"]["uid"] = Value::Null;
    repository["status"] = json!({ "phase": "Ready", "uniqueId": "id" });
    story.server.put(&repository_path(), repository);
    story.policy_made_again();
    let found = [listed("id-a", long_ago())];
    for _ in 0..2 {
        story.scanned(&found).await;
        assert!(story.of_origin("adopted").is_empty());
    }
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "True");
    story.scanned(&[]).await;
    story.scanned(&[]).await;
    let lease = story.lease().unwrap();
    assert!(lease["metadata"]["annotations"][LANE_INCOMPLETE].is_null());
    story.scanned(&[listed("later", long_ago())]).await;
    assert_eq!(story.of_origin("adopted").len(), 1);
}

/// There is no object of its repository that could say it.
#[tokio::test]
async fn what_is_of_no_repository_that_is_there_does_not_wait_for_a_memory_that_is_refused() {
    for known in [true, false] {
        let story = Story::new(10);
        story.adopter(json!({}));
        story.retained("a");
        if !known {
            story.server.edit(&snapshot_path("a"), |s| {
                s["status"]["resolved"]["uniqueId"] = Value::Null;
            });
        }
        let repository = story.server.get(&repository_path()).unwrap();
        story.server.remove(&repository_path());
        story.refuses_the_memory_of_a(StatusCode::FORBIDDEN);
        story.pass_unresolved().await;
        assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
        assert_eq!(story.told(INCOMPLETE).len(), 1);
        story.server.on_write(|_, _| None);
        if known {
            story.server.put(&repository_path(), repository);
            story.policy_made_again();
            story.scanned(&[listed("id-a", long_ago())]).await;
            assert!(story.of_origin("adopted").is_empty());
        }
    }
}

#[tokio::test]
async fn an_error_that_lasts_counts_as_a_refusal() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.refuses_the_memory_of_a(StatusCode::INTERNAL_SERVER_ERROR);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_some());
    let ago = Timestamp::now() - SignedDuration::from_mins(6);
    story.server.edit(&snapshot_path("a"), |s| {
        s["metadata"]["deletionTimestamp"] = json!(ago.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
    });
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none());
    let repository = story.server.get(&repository_path()).unwrap();
    assert_eq!(story.condition(&repository, INCOMPLETE).0, "True");
}

#[tokio::test]
async fn what_goes_with_the_interface_does_not_wait_for_an_error_of_a_moment() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.interface_goes();
    story.refuses_the_memory_of_a(StatusCode::INTERNAL_SERVER_ERROR);
    story.pass().await;
    assert!(story.server.get(&snapshot_path("a")).is_none(), "let go");
}

#[tokio::test]
async fn a_person_may_accept_that_something_is_not_remembered() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.refuses_the_memory_of_a(StatusCode::FORBIDDEN);
    story.pass().await;
    story.server.on_write(|_, _| None);
    story.policy_made_again();
    let found = [listed("id-a", long_ago())];
    let key = "kopiur.home-operations.com/accept-incomplete-memory";
    let accept = |value: &str| {
        story.server.edit(&repository_path(), |r| {
            r["metadata"]["annotations"][key] = json!(value);
        });
    };
    accept("2026-01-01T00:00:00Z");
    story.scanned(&found).await;
    assert!(story.of_origin("adopted").is_empty(), "that was of another time");
    let repository = story.server.get(&repository_path()).unwrap();
    let (_, _, message) = story.condition(&repository, INCOMPLETE);
    let value = message.split(&format!("{key}=\"")).nth(1).unwrap();
    accept(value.split('"').next().unwrap());
    story.scanned(&found).await;
    assert_eq!(story.of_origin("adopted").len(), 1);
    let repository = story.server.get(&repository_path()).unwrap();
    let said = story.condition(&repository, INCOMPLETE);
    assert_eq!((said.0.as_str(), said.1.as_str()), ("False", "Accepted"));
    let lease = story.lease().unwrap();
    assert!(lease["metadata"]["annotations"][LANE_INCOMPLETE].is_null());
    assert_eq!(story.condition(&story.adopter_now(), "AdoptionHeld").0, "False");
}

/// It is remembered without a repository, and goes when a live object says it, but not because a listing lacks it.
#[tokio::test]
async fn what_is_of_no_known_repository_is_forgotten_when_an_object_says_it() {
    let story = Story::new(10);
    story.adopter(json!({}));
    story.retained("a");
    story.server.edit(&snapshot_path("a"), |s| {
        s["status"]["resolved"]["uniqueId"] = Value::Null;
    });
    let repository = story.server.get(&repository_path()).unwrap();
    story.server.remove(&repository_path());
    story.pass_unresolved().await;
    story.server.put(&repository_path(), repository);
    story.policy_made_again();
    assert_eq!(story.remembered(), ["id-a"]);
    for hours in [1, 30, 60] {
        let at = Timestamp::now() + SignedDuration::from_hours(hours);
        story.scanned_at(at, &[]).await;
        assert_eq!(story.remembered(), ["id-a"]);
    }
    let found = [listed("id-a", long_ago())];
    story.scanned(&found).await;
    assert_eq!(story.says(), [(json!("Retain"), json!(true))]);
    story.scanned_later(&found).await;
    assert_eq!(story.remembered(), [""; 0]);
}
