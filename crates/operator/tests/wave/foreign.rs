//! Another manager of the API group beside us: nothing is decided, and it is said once.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::Method;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::json;

impl Story {
    pub fn somebody_writes(&self, at: Timestamp) {
        let fields: Vec<ManagedFieldsEntry> = serde_json::from_value(
            json!([{ "manager": "kopiur", "operation": "Update", "time": at.to_string() }]),
        )
        .unwrap();
        self.ctx.foreign.look(Some(&fields), Timestamp::now());
    }
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
