//! A schedule deleted with `--cascade=orphan` leaves its Snapshots alone; from then on only their own policy matters.

use crate::with;
use anyhow::Result;
use holdfast_api::{Snapshot, SnapshotSchedule};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::{Look, until};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PropagationPolicy};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn only_their_own_policy_matters() -> Result<()> {
    with("orphans", None, async |scenario, watch| {
        let (_, members) = scenario.seeded("nightly", "Retain", 3).await?;
        let schedules: Api<SnapshotSchedule> = scenario.lab.api(&scenario.namespace);
        let orphan = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        schedules.delete("nightly", &orphan).await?;
        until(
            "the Snapshots to have no owner",
            Duration::from_secs(60),
            || async {
                let owned = scenario
                    .recorded()
                    .await?
                    .iter()
                    .filter(|s| !s.owner_references().is_empty())
                    .count();
                let schedule = schedules.get_opt("nightly").await?;
                Ok(if owned == 0 && schedule.is_none() {
                    Look::Done(())
                } else {
                    Look::Not(format!("{owned} have"))
                })
            },
        )
        .await?;
        let there = scenario.recorded().await?;
        assert!(there.len() == 3 && there.iter().all(|s| s.metadata.deletion_timestamp.is_none()));

        let api: Api<Snapshot> = scenario.lab.api(&scenario.namespace);
        let retain = Patch::Merge(json!({ "spec": { "deletionPolicy": "Retain" } }));
        api.patch(&members[0].name, &PatchParams::default(), &retain)
            .await?;
        scenario.delete_each(&members[..2]).await?;
        scenario.left(&[&members[2].name]).await?;
        assert_eq!(scenario.count().await?, 2, "Retain keeps, Delete deletes");
        let jobs = watch.all();
        assert_eq!(jobs.len(), 1);
        assert_eq!(jobs[0].members, uids(&members[1..2]));
        Ok(())
    })
    .await
}
