//! Retention prunes at full speed while other deletions of the same repository are held.

use crate::with;
use anyhow::{Context, Result};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::objects;
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, REPOSITORY};
use holdfast_e2e::seed::Member;

#[tokio::test]
async fn two_prunes_and_three_stay() -> Result<()> {
    with("prunes", Some(2), async |scenario, watch| {
        let keeps_one = objects::policy(&scenario.namespace, "keeps-one", REPOSITORY, DATA_CLAIM, Some(1));
        scenario.lab.create(keeps_one).await?;
        let mut members = Vec::new();
        for name in ["one", "two", "three"] {
            let made = scenario.back_up(name, POLICY).await?;
            members.push(Member {
                name: name.to_owned(),
                uid: made.metadata.uid.context("no UID")?,
            });
        }
        scenario.delete_each(&members).await?;
        scenario.held(&members).await?;

        scenario.back_up("run-1", "keeps-one").await?;
        for (run, pruned) in [("run-2", "run-1"), ("run-3", "run-2")] {
            scenario.back_up(run, "keeps-one").await?;
            scenario.gone(pruned).await?;
        }
        scenario.held(&members).await?;
        assert!(
            watch.with_member_of(&uids(&members)).is_empty(),
            "a held one rode"
        );
        assert_eq!(scenario.count().await?, 4);

        scenario.release().await?;
        scenario.left(&["run-3"]).await?;
        assert_eq!(scenario.count().await?, 1);
        Ok(())
    })
    .await
}
