//! A namespace that is torn down does not take backups along: the objects go, the data stays.

use anyhow::{Context, Result};
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{Scenario, VAULT_CLAIM, remove_namespace, suffix};
use holdfast_e2e::{Lab, count, objects};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

#[tokio::test]
async fn the_namespace_goes_and_the_data_stays() -> Result<()> {
    let Some(lab) = Lab::for_test("the_namespace_goes_and_the_data_stays").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "teardown", Some(3)).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    scenario.seeded("nightly", "Delete", 6).await?;
    // The volume must outlive its claim, or there were nothing left to look at.
    let claims: Api<PersistentVolumeClaim> = lab.api(&scenario.namespace);
    let claim = claims.get(VAULT_CLAIM).await?;
    let volume = claim
        .spec
        .and_then(|s| s.volume_name)
        .context("the claim is not bound")?;
    let volumes: Api<PersistentVolume> = Api::all(lab.client.clone());
    let patch = |spec: serde_json::Value| Patch::Merge(json!({ "spec": spec }));
    let retain = patch(json!({ "persistentVolumeReclaimPolicy": "Retain" }));
    volumes.patch(&volume, &PatchParams::default(), &retain).await?;

    scenario
        .end()
        .await
        .context("the namespace must go although six deletions are above the threshold of 3")?;
    assert!(watch.all().is_empty(), "a delete Job existed");

    let after = format!("teardown-after-{}", suffix());
    lab.create(objects::namespace(&after, "e2e")).await?;
    volumes
        .patch(
            &volume,
            &PatchParams::default(),
            &patch(json!({ "claimRef": null })),
        )
        .await?;
    let mut claim = objects::claim(&after, VAULT_CLAIM);
    claim["spec"]["volumeName"] = json!(volume);
    lab.create(claim).await?;
    assert_eq!(
        count::files(&lab, &after, VAULT_CLAIM).await?,
        6,
        "data went with the namespace"
    );
    let delete = patch(json!({ "persistentVolumeReclaimPolicy": "Delete" }));
    volumes.patch(&volume, &PatchParams::default(), &delete).await?;
    remove_namespace(&lab, &after).await
}
