//! An acknowledgement lets go what was deleted up to its value; what was deleted a second later stays held.

use crate::with;
use anyhow::{Context, Result, ensure};
use holdfast_e2e::Scenario;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::seed::Member;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

async fn deleted_at(scenario: &Scenario, member: &Member) -> Result<Timestamp> {
    let snapshot = scenario.snapshot(&member.name).await?.context("it is gone")?;
    Ok(snapshot
        .metadata
        .deletion_timestamp
        .context("it is not being deleted")?
        .0)
}

#[tokio::test]
async fn partly_acknowledged_then_released() -> Result<()> {
    with("partly", Some(3), async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Retain", 6).await?;
        let (first, second) = members.split_at(3);
        scenario.delete_each(first).await?;
        let value = deleted_at(scenario, &first[2]).await?;
        // Deletion times are whole seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
        scenario.delete_each(second).await?;
        ensure!(value < deleted_at(scenario, &second[0]).await?);
        scenario.held(&members).await?;

        scenario.acknowledge(&value.to_string()).await?;
        let names: Vec<&str> = second.iter().map(|m| m.name.as_str()).collect();
        scenario.left(&names).await?;
        scenario.held(second).await?;
        let carried: BTreeSet<String> = watch.all().into_iter().flat_map(|b| b.members).collect();
        assert_eq!(carried, uids(first));
        assert_eq!(scenario.count().await?, 3);

        scenario.release().await?;
        scenario.left(&[]).await?;
        assert_eq!(scenario.count().await?, 0);
        Ok(())
    })
    .await
}
