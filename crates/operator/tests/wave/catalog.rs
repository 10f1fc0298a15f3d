//! The catalog against the API server in memory.

use crate::story::{JOBS, Story, repository_path, snapshot_path};
use axum::http::{Method, StatusCode};
use holdfast_api::Repository;
use holdfast_operator::protect::catalog::due::Request;
use holdfast_operator::protect::catalog::{arrived, void};
use holdfast_operator::world::views::RepositoryView;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const SNAPSHOTS: &str = "/apis/kopiur.home-operations.com/v1alpha1/namespaces/backup/snapshots";

fn listing(count: usize) -> Vec<ListedSnapshot> {
    (0..count)
        .map(|n| ListedSnapshot {
            snapshot_id: format!("{n:064x}"),
            source: Source {
                username: "p".into(),
                hostname: "backup".into(),
                path: "/pvc/data".into(),
            },
            start_time: Timestamp::UNIX_EPOCH,
            size_bytes: Some(1),
            cluster: Some("cluster".into()),
            snapshot_uid: Some(format!("u-{n}")),
            pinned: false,
            pin_is_ours: false,
        })
        .collect()
}

fn view(story: &Story) -> RepositoryView {
    let object: Repository = serde_json::from_value(story.server.get(&repository_path()).unwrap()).unwrap();
    RepositoryView::namespaced(object)
}

fn asked() -> Request {
    Request {
        asked: Some("t".into()),
        due: None,
    }
}

async fn scan(story: &Story, listing: &[ListedSnapshot]) {
    // Began a second from now: everything there is was there before.
    let began = Timestamp::now() + SignedDuration::from_secs(1);
    arrived(&story.ctx, &view(story), began, &asked(), listing)
        .await
        .unwrap();
}

fn catalog(story: &Story) -> Value {
    story.server.get(&repository_path()).unwrap()["status"]["catalog"].clone()
}

#[tokio::test]
async fn ten_thousand_rows_are_made_once_and_said() {
    let story = Story::new(10);
    let all = listing(10_000);
    scan(&story, &all).await;
    let rows = story.server.under(SNAPSHOTS);
    assert_eq!(rows.len(), 10_000);
    for (path, row) in &rows {
        assert_eq!(row["status"]["phase"], "Discovered", "{path}");
        assert_eq!(row["spec"]["deletionPolicy"], "Retain");
        assert!(row["metadata"]["finalizers"].is_null());
    }
    let told = story.server.writes(&Method::PATCH, "repositories/nas/status");
    let progress: Vec<&Value> = told
        .iter()
        .map(|w| &w.body["status"]["catalog"]["progress"])
        .filter(|p| p["done"].is_number())
        .collect();
    assert_eq!(progress.len(), 20, "progress was said");
    assert_eq!(catalog(&story)["discoveredBackupCount"], 10_000);
    assert_eq!(catalog(&story)["scanRequestHonored"], "t");
    assert!(catalog(&story)["progress"].is_null());
    let writes = story.server.writes(&Method::POST, "/snapshots").len();
    scan(&story, &all).await;
    assert_eq!(
        story.server.writes(&Method::POST, "/snapshots").len(),
        writes,
        "nothing to do"
    );
    assert_eq!(catalog(&story)["discoveredBackupCount"], 10_000);
}

#[tokio::test]
async fn rows_go_with_their_snapshots_and_a_void_listing_removes_none() {
    let story = Story::new(10);
    scan(&story, &listing(3)).await;
    void(&story.ctx, &view(&story), &asked(), "chunk 0 never arrived")
        .await
        .unwrap();
    assert_eq!(story.server.under(SNAPSHOTS).len(), 3);
    assert_eq!(catalog(&story)["lastError"], "chunk 0 never arrived");
    scan(&story, &listing(2)).await;
    assert_eq!(story.server.under(SNAPSHOTS).len(), 2);
    assert_eq!(catalog(&story)["discoveredBackupCount"], 2);
    assert!(catalog(&story)["lastError"].is_null());
    // One that somebody deletes comes back.
    let (path, _) = story.server.under(SNAPSHOTS).remove(0);
    story.server.remove(&path);
    scan(&story, &listing(2)).await;
    assert!(story.server.get(&path).is_some());
}

#[tokio::test]
async fn a_row_that_cannot_be_written_keeps_no_other_from_being_written() {
    let story = Story::new(10);
    let mut refused = 0;
    story.server.on_write(move |write, _| {
        let first = write.method == Method::POST && write.path == SNAPSHOTS && refused == 0;
        refused += usize::from(first);
        first.then_some(StatusCode::FORBIDDEN)
    });
    scan(&story, &listing(5)).await;
    assert_eq!(story.server.under(SNAPSHOTS).len(), 4);
    let catalog = catalog(&story);
    assert!(
        catalog["lastError"]
            .as_str()
            .unwrap()
            .starts_with("1 rows could not be written")
    );
    assert!(catalog["scanDue"]["at"].is_string(), "it is tried again");
}

#[tokio::test]
async fn a_row_without_a_status_gets_it_from_the_next_scan() {
    let story = Story::new(10);
    let mut refused = 0;
    story.server.on_write(move |write, _| {
        let first = write.path.starts_with(SNAPSHOTS) && write.path.ends_with("/status") && refused == 0;
        refused += usize::from(first);
        first.then_some(StatusCode::INTERNAL_SERVER_ERROR)
    });
    scan(&story, &listing(1)).await;
    assert!(story.server.under(SNAPSHOTS)[0].1["status"].is_null());
    scan(&story, &listing(1)).await;
    let rows = story.server.under(SNAPSHOTS);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].1["status"]["phase"], "Discovered");
}

#[tokio::test]
async fn a_scan_is_due_before_the_first_object_goes_whose_data_is_kept() {
    let story = Story::new(10);
    for name in ["a", "b"] {
        story.snapshot(name, json!({}));
        story.server.edit(&snapshot_path(name), |s| {
            s["spec"]["deletionPolicy"] = json!("Retain")
        });
    }
    story.server.on_write(|write, objects| {
        if write.method == Method::PATCH
            && write.path.contains("/snapshots/")
            && !write.path.ends_with("/status")
        {
            let repository = &objects.by_path[&repository_path()];
            assert!(repository["status"]["catalog"]["scanDue"]["at"].is_string());
        }
        None
    });
    story.pass().await;
    assert!(story.server.under(SNAPSHOTS).is_empty(), "both are released");
    let due: Timestamp = catalog(&story)["scanDue"]["at"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(due >= Timestamp::now() + SignedDuration::from_secs(30));
    let told = story.server.writes(&Method::PATCH, "repositories/nas/status");
    let due = told
        .iter()
        .filter(|w| w.body["status"]["catalog"]["scanDue"].is_object());
    assert_eq!(due.count(), 1, "one record for both");
}

#[tokio::test]
async fn a_discovered_row_is_let_go_without_touching_data_whatever_finalizer_it_carries() {
    let story = Story::new(1);
    scan(&story, &listing(1)).await;
    let (path, mut row) = story.server.under(SNAPSHOTS).remove(0);
    // Somebody put our finalizer on and asks for Delete; the label and the status still say what it is.
    row["metadata"]["finalizers"] = json!(["kopiur.home-operations.com/snapshot-cleanup"]);
    row["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    row["spec"]["deletionPolicy"] = json!("Delete");
    story.server.put(&path, row);
    story.pass().await;
    assert!(story.server.get(&path).is_none(), "released");
    assert!(
        story.server.under(JOBS).is_empty(),
        "without a delete Job, and not held"
    );
    assert!(catalog(&story)["scanDue"].is_object(), "and found again");
}
