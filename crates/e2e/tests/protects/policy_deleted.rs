//! A policy that goes does not take its backups along, unless it says so; and then the breaker counts them.

use anyhow::{Context as _, Result};
use holdfast_api::SnapshotPolicy;
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{POLICY, Scenario};
use holdfast_e2e::{Lab, Look, until};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// Deletes the policy and waits until it is gone.
async fn policy_goes(scenario: &Scenario, on_policy_delete: Option<&str>) -> Result<()> {
    let policies: Api<SnapshotPolicy> = scenario.lab.api(&scenario.namespace);
    if let Some(word) = on_policy_delete {
        let patch = json!({ "spec": { "deletion": { "onPolicyDelete": word } } });
        policies
            .patch(POLICY, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .context("onPolicyDelete")?;
    }
    policies.delete(POLICY, &DeleteParams::default()).await?;
    until("the policy to be gone", Duration::from_secs(60), || async {
        Ok(match policies.get_opt(POLICY).await? {
            None => Look::Done(()),
            Some(_) => Look::Not("it is there".to_owned()),
        })
    })
    .await
}

#[tokio::test]
async fn by_default_a_policy_that_goes_keeps_the_data_loudly() -> Result<()> {
    let Some(lab) = Lab::for_test("by_default_a_policy_that_goes_keeps_the_data_loudly").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "policy-keeps", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 5).await?;
    policy_goes(&scenario, None).await?;
    scenario.left(&[]).await?;
    assert!(watch.all().is_empty(), "a delete Job existed");
    assert_eq!(scenario.count().await?, 5);
    scenario
        .events("SnapshotRetainedOnPolicyDelete", &uids(&members))
        .await?;
    scenario.end().await
}

#[tokio::test]
async fn an_opted_in_policy_is_held_at_the_threshold_and_does_not_wait_for_it() -> Result<()> {
    let name = "an_opted_in_policy_is_held_at_the_threshold_and_does_not_wait_for_it";
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "policy-deletes", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    let (_, members) = scenario.seeded("nightly", "Delete", 5).await?;
    policy_goes(&scenario, Some("Delete")).await?;
    scenario.held(&members).await?;
    assert!(watch.all().is_empty(), "a delete Job existed");
    assert_eq!(scenario.count().await?, 5);
    scenario.end().await
}
