//! Quotas of a tree of tenants, with the platform's own controller: a program that is not built here.
//!
//! `HOLDFAST_E2E_TENANT_QUOTA_CONTROLLER` is a command that runs it in the foreground against `$KUBECONFIG`; elsewhere
//! the test says that it was skipped.

use super::lab::SIZE;
use super::office::{ETCD, Tenant};
use holdfast_api::backups::Backup;
use holdfast_api::names;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const CONTROLLER: &str = "HOLDFAST_E2E_TENANT_QUOTA_CONTROLLER";
/// The declared budget of a tenant, and what the platform's controller leaves to each member of its pool.
const BUDGET: &str = "tenant-quota";
const ALLOCATED: &str = "tenant-quota-allocated";
/// The platform looks again after a minute at the latest.
const RESYNC: Duration = Duration::from_secs(60);

async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let object: K = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object)
        .await
        .expect("created");
}

/// What a quota has of our key in `spec.hard` and in `status.used`.
async fn size(quotas: &Api<ResourceQuota>, name: &str) -> (Option<String>, Option<String>) {
    let Some(quota) = quotas.get_opt(name).await.expect("read") else {
        return (None, None);
    };
    let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
    let used = quota.status.and_then(|status| status.used).unwrap_or_default();
    let of = |all: std::collections::BTreeMap<
        String,
        k8s_openapi::apimachinery::pkg::api::resource::Quantity,
    >| { all.get(SIZE).map(|quantity| quantity.0.clone()) };
    (of(hard), of(used))
}

/// Case real 28.
#[tokio::test]
async fn what_a_child_publishes_falls_off_what_its_parent_may_still_use_within_a_minute() {
    let Ok(command) = std::env::var(CONTROLLER) else {
        println!("skipped: no controller of tenants' quotas ({CONTROLLER} is not set)");
        return;
    };
    let Some(tenant) = Tenant::new("tree").await else {
        return;
    };
    let kubeconfig = std::env::var("HOLDFAST_E2E_CONTROL_PLANE").expect("checked");
    let mut controller = tokio::process::Command::new("sh")
        .args(["-c", &format!("exec {command}")])
        .env("KUBECONFIG", kubeconfig)
        .kill_on_drop(true)
        .spawn()
        .expect("a shell");
    let client = &tenant.lab.client;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let parent = format!("tenant-{}", tenant.namespace().replace('-', ""));
    let child = format!("{parent}-dev");
    for name in [&parent, &child] {
        create(&namespaces, json!({ "metadata": { "name": name } })).await;
    }
    let of_parent: Api<ResourceQuota> = Api::namespaced(client.clone(), &parent);
    let of_child: Api<ResourceQuota> = Api::namespaced(client.clone(), &child);
    let budget = json!({ "metadata": { "name": BUDGET }, "spec": { "hard": { SIZE: "10Gi" } } });
    create(&of_parent, budget).await;
    tenant
        .lab
        .until("the controller to share the budget out", async || {
            assert_eq!(controller.try_wait().expect("asked"), None, "{command} ended");
            let whole = Some("10Gi".to_owned());
            size(&of_parent, ALLOCATED).await.0 == whole && size(&of_child, ALLOCATED).await.0 == whole
        })
        .await;

    let backups: Api<Backup> = Api::namespaced(client.clone(), &child);
    let backup = json!({
        "metadata": { "name": "nightly" },
        "spec": {
            "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": ETCD, "name": "control" },
            "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": ETCD, "name": "any" },
            "takenAt": "2026-08-22T00:00:09Z",
        },
        "status": { "phase": "Ready", "artifact": { "uri": format!("s3://b/{child}/one"), "sizeBytes": 4_i64 << 30 } },
    });
    create(&backups, backup).await;
    tenant
        .lab
        .until("the child's figure", async || {
            size(&of_child, ALLOCATED).await.1.as_deref() == Some("4Gi")
        })
        .await;
    let published = Instant::now();
    tenant
        .lab
        .until("it to fall off what the parent may use", async || {
            size(&of_parent, ALLOCATED).await.0.as_deref() == Some("6Gi")
        })
        .await;
    let after = published.elapsed();
    assert!(after <= RESYNC, "it took {after:?}");
    println!("the parent may use less after {:.1} s", after.as_secs_f64());
    for name in [&child, &parent] {
        namespaces
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }
    controller.kill().await.expect("ended");
    tenant.end().await;
}
