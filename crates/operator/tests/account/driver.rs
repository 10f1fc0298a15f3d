//! What drivers' own objects prove, and kinds that are installed late or not at all.

use super::office::{Tenant, define, may_read, permissive};
use holdfast_api::names;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

fn velero(tenant: &Tenant, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("velero.io", "v1", kind), plural);
    Api::namespaced_with(tenant.lab.client.clone(), tenant.namespace(), &resource)
}

/// Installs Velero's kinds, and waits until they are watched.
pub async fn install(tenant: &Tenant) {
    for (kind, plural) in [
        ("Backup", "backups"),
        ("DeleteBackupRequest", "deletebackuprequests"),
    ] {
        define(
            &tenant.lab.client,
            permissive("velero.io", "v1", kind, plural, "Namespaced"),
        )
        .await;
    }
    let account = tenant.office.account();
    use holdfast_operator::account::world::Kind;
    tenant
        .lab
        .until("Velero's kinds to be watched", async || {
            account.world.is_synced(&Kind::VeleroBackup) && account.world.is_synced(&Kind::VeleroRequest)
        })
        .await;
}

async fn create(api: &Api<DynamicObject>, kind: &str, name: &str, spec: Value) {
    let object = json!({
        "apiVersion": "velero.io/v1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        "status": { "phase": if kind == "Backup" { "Completed" } else { "New" } },
    });
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object)
        .await
        .expect("created");
}

/// Makes a Velero Backup and the platform's Backup that stands for it.
async fn backed_up(tenant: &Tenant, name: &str) {
    create(&velero(tenant, "Backup", "backups"), "Backup", name, json!({})).await;
    let spec = json!({
        "applicationRef": { "kind": "VMInstance", "name": "web" },
        "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": "Velero", "name": "any" },
        "driverMetadata": {
            "velero.io/backup-name": name, "velero.io/backup-namespace": tenant.namespace(),
        },
    });
    let uri = format!("velero://{}/{name}", tenant.namespace());
    tenant
        .backup_of(
            name,
            spec,
            json!({ "phase": "Ready", "artifact": { "uri": uri } }),
        )
        .await;
}

/// The driver's object of the run of a BackupJob, in this phase.
pub async fn run_of(tenant: &Tenant, job: &str, phase: &str) {
    let object = json!({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": { "name": job, "labels": {
            names::OWNED_BY_JOB: job, names::OWNED_BY_JOB_NAMESPACE: tenant.namespace(),
        } },
        "spec": {}, "status": { "phase": phase },
    });
    let params = PatchParams::apply("velero").force();
    let backups = velero(tenant, "Backup", "backups");
    let applied = backups.patch(job, &params, &Patch::Apply(&object)).await;
    applied.expect("applied");
}

/// The platform's cleanup: a request, and the Backup goes at once.
async fn deleted(tenant: &Tenant, name: &str) {
    let request = json!({ "backupName": name });
    create(
        &velero(tenant, "DeleteBackupRequest", "deletebackuprequests"),
        "DeleteBackupRequest",
        &format!("{name}-x"),
        request,
    )
    .await;
    tenant.delete_backup(name).await;
}

async fn processed(tenant: &Tenant, name: &str, errors: Value) {
    let patch = Patch::Merge(json!({ "status": { "phase": "Processed", "errors": errors } }));
    let requests = velero(tenant, "DeleteBackupRequest", "deletebackuprequests");
    requests
        .patch(&format!("{name}-x"), &PatchParams::default(), &patch)
        .await
        .expect("patched");
}

/// Case ledger 5.
#[tokio::test]
async fn a_requested_deletion_is_charged_until_the_driver_says_it_succeeded() {
    let Some(tenant) = Tenant::new("velero").await else {
        return;
    };
    install(&tenant).await;
    tenant.quota().await;
    for name in ["good", "bad", "swept"] {
        backed_up(&tenant, name).await;
    }
    tenant.until_used("0", "3").await;
    for name in ["good", "bad", "swept"] {
        deleted(&tenant, name).await;
    }
    tenant
        .until_states(&[("PendingPurge DeletionRequested", 3)])
        .await;
    assert_eq!(
        tenant.lab.used("cap").await[super::lab::COUNT],
        "3",
        "asking frees nothing"
    );

    let backups = velero(&tenant, "Backup", "backups");
    processed(&tenant, "bad", json!(["the location is read-only"])).await;
    processed(&tenant, "good", json!([])).await;
    backups
        .delete("good", &DeleteParams::default())
        .await
        .expect("deleted");
    tenant
        .until_states(&[
            ("PendingPurge DeletionRequested", 1),
            ("Released PurgeProven", 1),
            ("Retained PurgeFailed", 1),
        ])
        .await;
    tenant.until_used("0", "2").await;
    // Velero sweeps what succeeded at once: its own record, gone after the request, says the same.
    backups
        .delete("swept", &DeleteParams::default())
        .await
        .expect("deleted");
    tenant
        .until_states(&[("Released PurgeProven", 2), ("Retained PurgeFailed", 1)])
        .await;
    tenant.until_used("0", "1").await;
    tenant.end().await;
}

/// A kind of strategy that nobody knew, installed while the operator runs, and one that is removed again.
#[tokio::test]
async fn a_kind_that_is_installed_late_is_watched_and_one_that_goes_is_no_error() {
    let Some(tenant) = Tenant::new("late").await else {
        return;
    };
    tenant.quota().await;
    // One that may not be read keeps nobody waiting.
    let locked = permissive(names::STRATEGY_GROUP, "v1alpha1", "Locked", "lockeds", "Cluster");
    define(&tenant.lab.client, locked).await;
    let (kind, plural) = ("Tape", "tapes");
    may_read(&tenant.lab.client, plural).await;
    let definition = permissive(names::STRATEGY_GROUP, "v1alpha1", kind, plural, "Cluster");
    define(&tenant.lab.client, definition).await;
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(names::STRATEGY_GROUP, "v1alpha1", kind),
        plural,
    );
    let tapes: Api<DynamicObject> = Api::all_with(tenant.lab.client.clone(), &resource);
    let tape = json!({
        "apiVersion": format!("{}/v1alpha1", names::STRATEGY_GROUP), "kind": kind,
        "metadata": { "name": "vault", "annotations": { names::CAPABILITIES: r#"{"deletion":"recordOnly","size":"driver"}"# } },
    });
    let tape: DynamicObject = serde_json::from_value(tape).expect("a strategy");
    tapes
        .create(&PostParams::default(), &tape)
        .await
        .expect("created");
    let account = tenant.office.account();
    let known = holdfast_operator::account::world::views::StrategyRef {
        kind: holdfast_core::quota::StrategyKind {
            group: names::STRATEGY_GROUP.to_owned(),
            kind: kind.to_owned(),
        },
        name: "vault".to_owned(),
    };
    tenant
        .lab
        .until("its declaration to be read", async || {
            account.world.strategy(&known).is_some()
        })
        .await;
    let spec = json!({
        "applicationRef": { "kind": "X", "name": "x" },
        "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": kind, "name": "vault" },
    });
    tenant
        .backup_of(
            "one",
            spec,
            json!({ "artifact": { "uri": tenant.uri("tape"), "sizeBytes": 3 << 20 } }),
        )
        .await;
    tenant.until_used("3Mi", "1").await;
    let definitions: Api<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    > = Api::all(tenant.lab.client.clone());
    let name = format!("{plural}.{}", names::STRATEGY_GROUP);
    definitions
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    tenant
        .lab
        .until("it to be known as gone", async || {
            account.world.strategy(&known).is_none()
        })
        .await;
    tenant.delete_backup("one").await;
    tenant.until_states(&[("Retained RecordOnlyDeleted", 1)]).await;
    tenant.etcd("two", 1).await;
    tenant.until_used("4Mi", "2").await;
    tenant.end().await;
}
