//! `onScheduleDelete` is set back to Retain and the schedule is deleted at once: its Snapshots still say Delete, and
//! their data is kept all the same.

use crate::with;
use anyhow::Result;
use holdfast_api::SnapshotSchedule;
use holdfast_e2e::deletions::uids;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test]
async fn over_a_deletion_right_after_it() -> Result<()> {
    with("tightens", None, async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Delete", 4).await?;
        let api: Api<SnapshotSchedule> = scenario.lab.api(&scenario.namespace);
        let retain = Patch::Merge(json!({ "spec": { "deletion": { "onScheduleDelete": "Retain" } } }));
        api.patch("nightly", &PatchParams::default(), &retain).await?;
        api.delete("nightly", &DeleteParams::background()).await?;
        scenario.left(&[]).await?;
        assert!(watch.all().is_empty(), "a delete Job existed");
        assert_eq!(scenario.count().await?, 4);
        scenario
            .events("SnapshotRetainedOnScheduleDelete", &uids(&members))
            .await?;
        Ok(())
    })
    .await
}
