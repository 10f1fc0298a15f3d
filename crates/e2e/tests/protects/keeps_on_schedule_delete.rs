//! A schedule that goes does not take its backups along, unless it says so.

use anyhow::Result;
use holdfast_e2e::Lab;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::Scenario;

#[tokio::test]
async fn by_default_the_data_is_kept_loudly() -> Result<()> {
    let Some(lab) = Lab::for_test("by_default_the_data_is_kept_loudly").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "keeps", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    scenario.delete_schedule("nightly").await?;
    scenario.left(&[]).await?;
    assert!(watch.all().is_empty(), "a delete Job existed");
    assert_eq!(scenario.count().await?, 5);
    let told = scenario
        .events("SnapshotRetainedOnScheduleDelete", &uids(&members))
        .await?;
    assert!(told.iter().all(|e| e.type_.as_deref() == Some("Warning")));
    scenario.end().await
}

#[tokio::test]
async fn below_the_threshold_an_opted_in_cascade_deletes() -> Result<()> {
    let Some(lab) = Lab::for_test("below_the_threshold_an_opted_in_cascade_deletes").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "cascades", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    scenario.seeded("nightly", "Delete", 2).await?;
    scenario.delete_schedule("nightly").await?;
    scenario.left(&[]).await?;
    assert_eq!(watch.all().len(), 1, "two deletions at once are one batch");
    assert_eq!(scenario.count().await?, 0);
    scenario.end().await
}
