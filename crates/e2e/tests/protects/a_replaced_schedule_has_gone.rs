//! A schedule that is made anew under its name is another one: what the first one made is kept, what the second one
//! made is deleted when a person asks for it.

use crate::with;
use anyhow::Result;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::seed;

#[tokio::test]
async fn same_name_other_uid() -> Result<()> {
    with("replaces", None, async |scenario, watch| {
        let (mut set, members) = scenario.seeded("nightly", "Retain", 3).await?;
        // Without a pause, as `kubectl replace --force` and some GitOps tools do.
        scenario.delete_schedule("nightly").await?;
        set.schedule_uid = scenario.schedule("nightly", "Retain").await?;
        scenario.left(&[]).await?;
        let told = scenario
            .events("SnapshotRetainedOnScheduleDelete", &uids(&members))
            .await?;
        assert!(told.iter().all(|e| e.type_.as_deref() == Some("Warning")));
        assert!(watch.all().is_empty(), "a delete Job existed");
        assert_eq!(scenario.count().await?, 3);

        let of_second = seed::objects(&scenario.lab, &set, 1).await?;
        let taken = seed::snapshots(&scenario.lab, &set, &of_second).await?;
        seed::record(&scenario.lab, &set, &of_second, &taken).await?;
        assert_eq!(scenario.count().await?, 4);
        scenario.delete_each(&of_second).await?;
        scenario.left(&[]).await?;
        assert_eq!(scenario.count().await?, 3, "a living schedule guards nothing");
        assert_eq!(watch.with_member_of(&uids(&of_second)).len(), 1);
        Ok(())
    })
    .await
}
