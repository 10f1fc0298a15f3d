//! While nobody answers for the quota no run begins, and nothing else is in the way.

use anyhow::{Result, bail, ensure};
use holdfast_api::backups::Backup;
use holdfast_api::names;
use holdfast_e2e::lab::DEPLOYMENT;
use holdfast_e2e::platform::{self, Asked, SIZED, Tenant};
use holdfast_e2e::scenario::suffix;
use holdfast_e2e::standin::{self, Standins};
use holdfast_e2e::{Lab, Look, until};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

/// Case webhook 8, with the real operator gone.
#[tokio::test]
async fn without_the_operator_a_new_run_is_refused_and_a_restore_a_deletion_and_a_finalizer_are_not()
-> Result<()> {
    let Some(lab) = Lab::for_test("quota_without_the_operator").await? else {
        return Ok(());
    };
    platform::install(&lab.client).await?;
    platform::class(&lab).await?;
    let standins = Standins::start(&lab, &format!("standins-{}", suffix()), &standin::image()).await?;
    let tenant = Tenant::new(&lab, "tenant-alone", json!({ names::QUOTA_COUNT: "10" })).await?;
    for name in ["kept", "gone"] {
        tenant.back_up(name, SIZED, name, MIB).await?;
    }
    let before = replicas(&lab, 0).await?;
    let result = alone(&lab, &tenant).await;
    // Whatever became of it: the next program needs the operator.
    replicas(&lab, before).await?;
    result?;
    until("a run to be admitted again", PATIENCE, || async {
        Ok(match tenant.ask("later", SIZED, "kept", MIB).await {
            Ok(Asked::Admitted(_)) => Look::Done(()),
            Ok(Asked::Refused(why)) => Look::Not(why),
            Err(error) => Look::Not(error.to_string()),
        })
    })
    .await?;
    tenant.end().await?;
    standins.end(&lab).await
}

/// What is asked while no operator runs.
async fn alone(lab: &Lab, tenant: &Tenant) -> Result<()> {
    let refused = match tenant.ask("never", SIZED, "kept", MIB).await {
        Ok(Asked::Admitted(name)) => bail!("{name} was admitted, and nobody counted"),
        Ok(Asked::Refused(why)) => why,
        Err(error) => format!("{error:#}"),
    };
    ensure!(
        refused.contains("quota.holdfast.backups.cozystack.io"),
        "the refusal does not say who did not answer: {refused}"
    );
    ensure!(!tenant.jobs().await?.contains(&"never".to_owned()), "it is there");
    lab.create(json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "RestoreJob",
        "metadata": { "name": "back", "namespace": tenant.namespace },
        "spec": { "backupRef": { "name": "kept" } },
    }))
    .await?;
    let backups: Api<Backup> = lab.api(&tenant.namespace);
    // A driver puts a finalizer on what it records, and takes it off when the data is gone.
    let finalizers = |list: &[&str]| Patch::Merge(json!({ "metadata": { "finalizers": list } }));
    let params = PatchParams::default();
    backups
        .patch("gone", &params, &finalizers(&["example.org/driver"]))
        .await?;
    backups.delete("gone", &DeleteParams::default()).await?;
    backups.patch("gone", &params, &finalizers(&[])).await?;
    until("the Backup to be gone", PATIENCE, || async {
        Ok(match backups.get_opt("gone").await? {
            None => Look::Done(()),
            Some(_) => Look::Not("it is there".into()),
        })
    })
    .await
}

/// Lets so many operators run, waits until they do, and says how many it was before.
async fn replicas(lab: &Lab, wanted: i32) -> Result<i32> {
    let deployments: Api<Deployment> = lab.api(names::OPERATOR_NAMESPACE);
    let before = deployments.get(DEPLOYMENT).await?;
    let patch = Patch::Merge(json!({ "spec": { "replicas": wanted } }));
    deployments
        .patch(DEPLOYMENT, &PatchParams::default(), &patch)
        .await?;
    let pods: Api<Pod> = lab.api(names::OPERATOR_NAMESPACE);
    let labels = before
        .spec
        .as_ref()
        .and_then(|spec| spec.selector.match_labels.clone())
        .unwrap_or_default();
    let selector: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let list = ListParams::default().labels(&selector.join(","));
    until(&format!("{wanted} operators to run"), PATIENCE, || async {
        let ready = pods.list(&list).await?.items.len();
        let told = deployments
            .get(DEPLOYMENT)
            .await?
            .status
            .and_then(|s| s.ready_replicas);
        let right = i32::try_from(ready).ok() == Some(wanted) && told.unwrap_or_default() == wanted;
        Ok(if right {
            Look::Done(())
        } else {
            Look::Not(format!("{ready} pods, {told:?} ready"))
        })
    })
    .await?;
    Ok(before.spec.and_then(|spec| spec.replicas).unwrap_or(1))
}
