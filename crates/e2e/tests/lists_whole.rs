//! A listing that a mover posts to the operator's HTTPS port arrives complete. (Ten thousand rows are covered by the
//! operator's own test of that port.)

use anyhow::{Context, Result};
use holdfast_e2e::scenario::{POLICY, REPOSITORY, Scenario};
use holdfast_e2e::{Lab, count};

#[tokio::test]
async fn the_count_is_that_of_the_volume() -> Result<()> {
    let Some(lab) = Lab::for_test("the_count_is_that_of_the_volume").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "lists", None).await?;
    let ns = &scenario.namespace;
    assert_eq!(count::scan(&lab, ns, REPOSITORY).await?, 0);
    scenario.seeded("many", "Retain", 60).await?;
    assert_eq!(scenario.count().await?, 60);
    assert_eq!(count::scan(&lab, ns, REPOSITORY).await?, 60);
    scenario.back_up("one-more", POLICY).await?;
    assert_eq!(count::scan(&lab, ns, REPOSITORY).await?, 61);
    let status = scenario.repository_ready().await?.status.context("a status")?;
    let catalog = status.catalog.context("what the scan saw")?;
    assert_eq!(catalog.last_error, None);
    assert!(status.storage_stats.and_then(|s| s.total_size).unwrap_or(0) > 60 * 20_000);
    scenario.end().await
}
