//! A schedule that goes does not take its backups along, unless it says so.

use anyhow::Result;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::Scenario;
use holdfast_e2e::{Lab, Look, until};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams};
use std::collections::BTreeSet;
use std::time::Duration;

async fn all_gone(scenario: &Scenario) -> Result<()> {
    until("every Snapshot to be gone", Duration::from_secs(120), || async {
        let left = scenario.snapshots().await?.len();
        Ok(if left == 0 {
            Look::Done(())
        } else {
            Look::Not(format!("{left} left"))
        })
    })
    .await
}

#[tokio::test]
async fn by_default_the_data_is_kept_loudly() -> Result<()> {
    let Some(lab) = Lab::for_test("by_default_the_data_is_kept_loudly").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "keeps", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    scenario.delete_schedule("nightly").await?;
    // Created anew under the same name: another UID, so the old owner is still gone.
    scenario.schedule("nightly", "Retain").await?;
    all_gone(&scenario).await?;
    assert!(watch.all().is_empty(), "a delete Job existed");
    assert_eq!(scenario.count().await?, 5);
    let events: Api<Event> = lab.api(&scenario.namespace);
    let reason = ListParams::default().fields("reason=SnapshotRetainedOnScheduleDelete");
    let told = until("one event for each", Duration::from_secs(30), || async {
        let all = events.list(&reason).await?.items;
        Ok(if all.len() == 5 {
            Look::Done(all)
        } else {
            Look::Not(format!("{}", all.len()))
        })
    })
    .await?;
    let about: BTreeSet<String> = told
        .iter()
        .filter_map(|e| e.regarding.as_ref()?.uid.clone())
        .collect();
    assert_eq!(about, members.iter().map(|m| m.uid.clone()).collect());
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
    all_gone(&scenario).await?;
    assert_eq!(watch.all().len(), 1, "two deletions at once are one batch");
    assert_eq!(scenario.count().await?, 0);
    scenario.end().await
}
