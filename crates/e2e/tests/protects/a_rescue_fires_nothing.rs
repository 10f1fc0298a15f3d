//! Three of twelve held Snapshots are rescued: the other nine, which are fewer than the threshold, stay held.

use crate::with;
use anyhow::Result;
use holdfast_api::conditions;
use holdfast_e2e::deletions::uids;
use std::time::Duration;

#[tokio::test]
async fn three_of_twelve_are_rescued_and_nine_stay_held() -> Result<()> {
    with("rescues", None, async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Retain", 12).await?;
        scenario.delete_each(&members).await?;
        scenario.held(&members).await?;
        for member in &members[..3] {
            scenario.skip(&member.name).await?;
        }
        scenario.held(&members[3..]).await?;
        scenario
            .repository_condition(conditions::MASS_DELETION_HELD, |c| {
                c.status == "True"
                    && c.message.contains("9 held here")
                    && c.message.contains("below the threshold of 10")
            })
            .await?;
        // Longer than the quiet window: whatever could fire would have fired.
        tokio::time::sleep(Duration::from_secs(15)).await;
        scenario.held(&members[3..]).await?;
        assert!(watch.all().is_empty(), "a delete Job existed");
        assert_eq!(scenario.count().await?, 12);

        scenario.release().await?;
        scenario.left(&[]).await?;
        let carried: std::collections::BTreeSet<String> =
            watch.all().into_iter().flat_map(|b| b.members).collect();
        assert_eq!(carried, uids(&members[3..]));
        assert_eq!(scenario.count().await?, 3);
        Ok(())
    })
    .await
}
