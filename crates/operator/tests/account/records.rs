//! What objects do to records.

use super::lab::SIZE;
use super::office::{ETCD, Tenant};
use holdfast_api::names;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;

/// Cases ledger 1, 2, 3 and 4.
#[tokio::test]
async fn deleting_backups_moves_nothing_and_writing_off_does() {
    let Some(tenant) = Tenant::new("ledger").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("nightly", 48).await;
    tenant.until_used("48Mi", "1").await;
    tenant.delete_backup("nightly").await;
    tenant.until_states(&[("Retained NotPurged", 1)]).await;
    assert_eq!(tenant.lab.used("cap").await[SIZE], "48Mi");
    // The same name again, another archive.
    tenant
        .backup("nightly", ETCD, Some(&tenant.uri("another")), Some(50 << 20))
        .await;
    tenant.until_used("98Mi", "2").await;
    tenant.delete_backup("nightly").await;
    tenant.until_states(&[("Retained NotPurged", 2)]).await;

    let records: Api<holdfast_api::Artifact> = Api::all(tenant.lab.client.clone());
    for record in tenant.records().await {
        let name = record.metadata.name.expect("a name");
        let off =
            json!({ "status": { "state": "WrittenOff", "reason": "WrittenOff", "writtenOffBy": "admin" } });
        for _ in 0..2 {
            let written = records
                .patch_status(&name, &PatchParams::default(), &Patch::Merge(&off))
                .await;
            written.expect("written off, twice without harm");
        }
    }
    tenant.until_used("0", "0").await;
    tenant.end().await;
}

/// Cases ledger 9, 18 and 19.
#[tokio::test]
async fn a_claim_grows_at_once_never_shrinks_and_a_negative_one_is_unknown() {
    let Some(tenant) = Tenant::new("claims").await else {
        return;
    };
    tenant.quota().await;
    let uri = tenant.uri("one");
    tenant.backup("one", ETCD, Some(&uri), Some(0)).await;
    tenant.until_used("0", "1").await;
    let claim = async |bytes: i64| {
        let patch = Patch::Merge(json!({ "status": { "artifact": { "sizeBytes": bytes } } }));
        tenant
            .backups()
            .patch("one", &PatchParams::default(), &patch)
            .await
            .expect("patched");
    };
    claim(4 << 30).await;
    tenant.until_used("4Gi", "1").await;
    claim(1 << 30).await;
    tenant.etcd("mark", 1).await;
    tenant.until_used("4097Mi", "2").await;
    let failed =
        json!({ "phase": "Failed", "artifact": { "uri": tenant.uri("failed"), "sizeBytes": 1 << 20 } });
    let spec = json!({
        "applicationRef": { "kind": ETCD, "name": "control" },
        "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": ETCD, "name": "any" },
    });
    tenant.backup_of("failed", spec, failed).await;
    tenant.until_used("4098Mi", "3").await;
    tenant
        .backup("negative", ETCD, Some(&tenant.uri("negative")), Some(-5))
        .await;
    tenant.until_used("4098Mi", "4").await;
    tenant
        .lab
        .until("the warning", async || {
            !tenant.events("SizeIsNonsense").await.is_empty()
        })
        .await;
    tenant.end().await;
}

/// Case ledger 10, and capabilities that a strategy declares: a copy of what was in force stays with the record.
#[tokio::test]
async fn an_unknown_driver_retains_and_a_declaration_counts_for_what_is_recorded_after_it() {
    let Some(tenant) = Tenant::new("declared").await else {
        return;
    };
    tenant.quota().await;
    let foreign = json!({
        "applicationRef": { "kind": "X", "name": "x" },
        "strategyRef": { "apiGroup": "backup.vendor.example", "kind": "Tape", "name": "t" },
    });
    tenant
        .backup_of("tape", foreign, json!({ "phase": "Ready" }))
        .await;
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    tenant.delete_backup("tape").await;
    tenant.until_states(&[("Retained CapabilityUnknown", 1)]).await;

    let strategy = format!("declared-{}", tenant.namespace());
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk(names::STRATEGY_GROUP, "v1alpha1", "Etcd"),
        "etcds",
    );
    let strategies: Api<DynamicObject> = Api::all_with(tenant.lab.client.clone(), &resource);
    let object = json!({
        "apiVersion": "strategy.backups.cozystack.io/v1alpha1", "kind": "Etcd", "metadata": { "name": strategy }, "spec": {},
    });
    let object: DynamicObject = serde_json::from_value(object).expect("a strategy");
    strategies
        .create(&PostParams::default(), &object)
        .await
        .expect("created");
    let of_strategy = |name: &str| {
        let spec = json!({
            "applicationRef": { "kind": ETCD, "name": "control" },
            "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": ETCD, "name": strategy },
        });
        (
            name.to_owned(),
            spec,
            json!({ "artifact": { "uri": tenant.uri(name), "sizeBytes": 1 << 20 } }),
        )
    };
    let (name, spec, status) = of_strategy("before");
    tenant.backup_of(&name, spec, status).await;
    tenant.until_used("1Mi", "2").await;
    let declare = async |text: &str| {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { names::CAPABILITIES: text } } }));
        strategies
            .patch(&strategy, &PatchParams::default(), &patch)
            .await
            .expect("patched");
    };
    declare(r#"{"deletion":"requested"}"#).await;
    let account = tenant.office.account();
    let known = holdfast_operator::account::world::views::StrategyRef {
        kind: holdfast_core::quota::StrategyKind {
            group: names::STRATEGY_GROUP.to_owned(),
            kind: ETCD.to_owned(),
        },
        name: strategy.clone(),
    };
    tenant
        .lab
        .until("the declaration to be in force", async || {
            account.world.in_force(&known).0.from == holdfast_core::quota::DeclaredBy::Annotation
        })
        .await;
    let (name, spec, status) = of_strategy("after");
    tenant.backup_of(&name, spec, status).await;
    tenant.until_used("2Mi", "3").await;
    tenant.delete_backup("before").await;
    tenant.delete_backup("after").await;
    tenant
        .until_states(&[
            ("Retained CapabilityUnknown", 1),
            ("Retained NotPurged", 1),
            ("PendingPurge DeletionRequested", 1),
        ])
        .await;
    // One that cannot be read changes nothing.
    declare(r#"{"deletoin":"none"}"#).await;
    tenant
        .lab
        .until("the built-in row to be in force", async || {
            account.world.in_force(&known).1.is_some()
        })
        .await;
    assert_eq!(
        account.world.in_force(&known).0.from,
        holdfast_core::quota::DeclaredBy::BuiltIn
    );
    strategies
        .delete(&strategy, &DeleteParams::default())
        .await
        .expect("deleted");
    assert_eq!(tenant.lab.used("cap").await[SIZE], "2Mi");
    tenant.end().await;
}

/// Cases ledger 12 and 13: one address is one thing however many Backups name it; two addresses are two.
#[tokio::test]
async fn three_backups_of_one_address_are_charged_once_until_the_last_goes() {
    let Some(tenant) = Tenant::new("shared").await else {
        return;
    };
    tenant.quota().await;
    let uri = format!("blobstore://host/{}", tenant.namespace());
    for name in ["one", "two", "three"] {
        tenant
            .backup(name, "FoundationDB", Some(&uri), Some(7 << 20))
            .await;
    }
    tenant.until_used("7Mi", "1").await;
    for name in ["one", "two"] {
        tenant.delete_backup(name).await;
    }
    tenant
        .lab
        .until("one Backup to be left", async || {
            tenant
                .records()
                .await
                .iter()
                .any(|r| r.status.as_ref().is_some_and(|s| s.backup_count == 1))
        })
        .await;
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    tenant.delete_backup("three").await;
    tenant.until_states(&[("Retained NotPurged", 1)]).await;
    // The strategy moves to another bucket: what is in the first is there still.
    let moved = format!("blobstore://other/{}", tenant.namespace());
    tenant
        .backup("four", "FoundationDB", Some(&moved), Some(7 << 20))
        .await;
    tenant.until_used("14Mi", "2").await;
    tenant.end().await;
}

/// Case ledger 14.
#[tokio::test]
async fn a_backup_that_waits_for_a_finalizer_is_still_attributed() {
    let Some(tenant) = Tenant::new("waits").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 1).await;
    tenant.until_used("1Mi", "1").await;
    let finalizers = async |list: serde_json::Value| {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": list } }));
        tenant
            .backups()
            .patch("one", &PatchParams::default(), &patch)
            .await
            .expect("patched");
    };
    finalizers(json!(["example.org/wait"])).await;
    tenant.delete_backup("one").await;
    tenant.etcd("mark", 1).await;
    tenant.until_used("2Mi", "2").await;
    tenant.until_states(&[("Attributed BackupSeen", 2)]).await;
    finalizers(json!([])).await;
    tenant
        .until_states(&[("Attributed BackupSeen", 1), ("Retained NotPurged", 1)])
        .await;
    tenant.end().await;
}

/// A run is recorded when its BackupJob is seen, replaced by its Backup, and counted on when its job is deleted.
#[tokio::test]
async fn a_run_is_recorded_replaced_by_its_backup_and_outlives_its_job() {
    let Some(tenant) = Tenant::new("runs").await else {
        return;
    };
    tenant.quota().await;
    tenant.job("nightly").await;
    tenant.until_states(&[("InFlight Admitted", 1)]).await;
    // The gate counts runs beside what is used.
    tenant.until_used("0", "0").await;
    tenant.etcd("nightly", 5).await;
    tenant
        .job_status(
            "nightly",
            json!({ "phase": "Succeeded", "backupRef": { "name": "nightly" } }),
        )
        .await;
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    tenant.until_used("5Mi", "1").await;

    tenant.job("cut-short").await;
    tenant
        .until_states(&[("Attributed BackupSeen", 1), ("InFlight Admitted", 1)])
        .await;
    tenant
        .jobs()
        .delete("cut-short", &DeleteParams::default())
        .await
        .expect("deleted");
    tenant
        .until_states(&[("Attributed BackupSeen", 1), ("InFlight JobDeleted", 1)])
        .await;

    tenant.job("fails").await;
    tenant.job_status("fails", json!({ "phase": "Failed" })).await;
    tenant.job("succeeds-with-nothing").await;
    tenant
        .lab
        .until("it to be recorded", async || {
            tenant.states().await.get("InFlight Admitted") == Some(&1)
        })
        .await;
    tenant
        .job_status("succeeds-with-nothing", json!({ "phase": "Succeeded" }))
        .await;
    tenant
        .until_states(&[("Attributed BackupSeen", 1), ("InFlight JobDeleted", 1)])
        .await;
    tenant.end().await;
}

/// Promise 8.7: a record that somebody else deletes is written again, and nothing falls meanwhile.
#[tokio::test]
async fn a_record_that_somebody_deletes_is_written_again() {
    let Some(tenant) = Tenant::new("stolen").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 6).await;
    tenant.until_used("6Mi", "1").await;
    tenant.delete_backup("one").await;
    tenant.until_states(&[("Retained NotPurged", 1)]).await;
    let before = tenant.records().await.remove(0);
    let records: Api<holdfast_api::Artifact> = Api::all(tenant.lab.client.clone());
    let name = before.metadata.name.clone().expect("a name");
    records
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    tenant
        .lab
        .until("it to be there again", async || {
            let now = records.get_opt(&name).await.expect("read");
            now.is_some_and(|now| now.metadata.uid != before.metadata.uid && now.status == before.status)
        })
        .await;
    assert_eq!(tenant.lab.used("cap").await[SIZE], "6Mi");
    tenant.end().await;
}

/// Cases real 24 and ledger 15 and 25: a namespace that goes is let go, its records stay, and one of the same name inherits.
#[tokio::test]
async fn a_namespace_that_goes_leaves_its_records_and_one_of_the_same_name_inherits() {
    let Some(tenant) = Tenant::new("again").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 9).await;
    tenant.until_used("9Mi", "1").await;
    let namespaces: Api<Namespace> = Api::all(tenant.lab.client.clone());
    namespaces
        .delete(tenant.namespace(), &DeleteParams::default())
        .await
        .expect("deleted");
    let stranded = format!(
        "cozystack_backup_quota_stranded_bytes{{namespace=\"{}\"}}",
        tenant.namespace()
    );
    tenant
        .lab
        .until("it to be told as stranded", async || {
            tenant.office.metric(&stranded) == Some(f64::from(9 << 20))
        })
        .await;
    tenant.until_states(&[("Retained NotPurged", 1)]).await;
    let used = format!(
        "cozystack_backup_quota_used_bytes{{namespace=\"{}\"}}",
        tenant.namespace()
    );
    assert_eq!(tenant.office.metric(&used), None, "gauges go with the namespace");

    let again: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": tenant.namespace() } })).expect("a Namespace");
    let uid = namespaces
        .create(&PostParams::default(), &again)
        .await
        .expect("created")
        .metadata
        .uid;
    tenant.quota().await;
    tenant.until_used("9Mi", "1").await;
    tenant
        .lab
        .until("the record to know its new namespace", async || {
            let records = tenant.records().await;
            records
                .iter()
                .all(|r| r.status.as_ref().is_some_and(|s| s.namespace_uid == uid))
        })
        .await;
    assert_eq!(tenant.office.metric(&stranded), None);
    tenant.end().await;
}
