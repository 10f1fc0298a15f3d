//! What a person wrote on a row is not lost when its object comes.

use super::*;

const SKIP: &str = "kopiur.home-operations.com/skip-snapshot-cleanup";

#[tokio::test]
async fn what_is_written_on_a_row_while_it_is_taken_over_is_inherited_before_retention_goes_on() {
    let story = Story::new(10);
    let all = listing(2);
    story.scanned(&all).await;
    story.adopter(json!({ "defaultDeletionPolicy": "Delete" }));
    // Between what was judged and the removal.
    let mut edited = false;
    story.server.on_write(move |write, objects| {
        if write.method == Method::POST && write.path == SNAPSHOTS && !edited {
            edited = true;
            let rows = objects
                .by_path
                .iter()
                .filter(|(path, _)| path.starts_with(SNAPSHOTS));
            let rows: Vec<String> = rows.map(|(path, _)| path.clone()).collect();
            for path in rows {
                objects.edit(&path, |row| {
                    row["spec"]["pin"] = json!(true);
                    row["metadata"]["annotations"][SKIP] = json!("");
                });
            }
        }
        None
    });
    story.scanned(&all).await;
    assert_eq!(story.of_origin("adopted").len(), 2);
    assert_eq!(story.of_origin("discovered").len(), 2, "they were edited");
    let under_way = |story: &Story| story.adopter_now()["status"]["adoption"]["underWay"].clone();
    assert!(under_way(&story).is_string(), "retention waits");
    // As the watch delivers it.
    for (path, _) in story.server.under(SNAPSHOTS) {
        story.server.edit(&path, |_| {});
    }
    story.scanned(&all).await;
    assert!(story.of_origin("discovered").is_empty());
    let kept = (json!("Retain"), json!(true));
    assert_eq!(story.says(), [kept.clone(), kept]);
    assert!(under_way(&story).is_null());
}
