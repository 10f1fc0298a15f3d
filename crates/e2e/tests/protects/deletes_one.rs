//! A Snapshot that a person deletes takes its data along, through one Job of one member.

use anyhow::{Context, Result};
use holdfast_api::{Snapshot, names};
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{POLICY, Scenario};
use holdfast_e2e::{Lab, Look, until};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use std::time::{Duration, Instant};

#[tokio::test]
async fn one_job_of_one_member_after_the_quiet_window() -> Result<()> {
    let Some(lab) = Lab::for_test("one_job_of_one_member_after_the_quiet_window").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "deletes-one", None).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let doomed = scenario.back_up("doomed", POLICY).await?;
    scenario.back_up("stays", POLICY).await?;
    assert_eq!(scenario.count().await?, 2);
    let started = Instant::now();
    scenario.delete("doomed").await?;
    scenario.gone("doomed").await?;
    let batches = watch.all();
    assert_eq!(batches.len(), 1);
    assert!(
        batches[0].name.starts_with("snapdel-vault-"),
        "{}",
        batches[0].name
    );
    let members: Vec<String> = batches[0].members.iter().cloned().collect();
    assert_eq!(members, [doomed.metadata.uid.context("a UID")?]);
    let waited = batches[0].seen.duration_since(started);
    assert!(waited >= Duration::from_secs(9), "the Job came after {waited:?}");
    assert_eq!(scenario.count().await?, 1);
    assert!(scenario.snapshot("stays").await?.is_some());
    until("the Job to be reaped", Duration::from_secs(30), || async {
        let left = watch.all().iter().filter(|b| b.removed.is_none()).count();
        Ok(if left == 0 {
            Look::Done(())
        } else {
            Look::Not(format!("{left} left"))
        })
    })
    .await?;
    scenario.end().await
}

#[tokio::test]
async fn skip_and_retain_let_the_object_go_and_keep_the_data() -> Result<()> {
    let Some(lab) = Lab::for_test("skip_and_retain_let_the_object_go_and_keep_the_data").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "keeps-one", None).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let api: Api<Snapshot> = lab.api(&scenario.namespace);
    for (name, patch) in [
        (
            "skipped",
            json!({ "metadata": { "annotations": { names::SKIP_SNAPSHOT_CLEANUP: "" } } }),
        ),
        ("retained", json!({ "spec": { "deletionPolicy": "Retain" } })),
        ("orphaned", json!({ "spec": { "deletionPolicy": "Orphan" } })),
    ] {
        scenario.back_up(name, POLICY).await?;
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        scenario.delete(name).await?;
        scenario.gone(name).await?;
    }
    assert_eq!(scenario.count().await?, 3, "data was deleted");
    assert!(watch.all().is_empty(), "a delete Job existed");
    scenario.end().await
}
