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
    story.scanned(&found).await;
    assert_eq!(story.remembered(), [""; 0], "an object says it");
}
