//! What happens while nobody looks is found, and a ledger that was lost is said to be.

use super::lab::SIZE;
use super::office::Tenant;
use holdfast_api::ledger::CapabilitiesFrom;
use holdfast_api::{Artifact, names};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use std::time::Duration;

/// Case ledger 7.
#[tokio::test]
async fn what_was_deleted_and_created_while_nobody_looked_is_found() {
    let Some(tenant) = Tenant::alone("down").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("stays", 1).await;
    tenant.etcd("goes", 2).await;
    tenant.job("run").await;
    tenant
        .until_states(&[("Attributed BackupSeen", 2), ("InFlight Admitted", 1)])
        .await;
    tenant.until_used("3Mi", "2").await;
    tenant.office.stop();
    tenant.delete_backup("goes").await;
    tenant.etcd("comes", 4).await;
    tenant
        .jobs()
        .delete("run", &DeleteParams::default())
        .await
        .expect("deleted");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(tenant.lab.used("cap").await[SIZE], "3Mi");
    tenant.office.start();
    tenant
        .until_states(&[
            ("Attributed BackupSeen", 2),
            ("InFlight JobDeleted", 1),
            ("Retained NotPurged", 1),
        ])
        .await;
    tenant.until_used("7Mi", "3").await;
    tenant.end().await;
}

/// A leader that died between the two writes of a record leaves one that says nothing of its driver.
#[tokio::test]
async fn a_record_whose_status_was_never_written_gets_it_from_its_backup() {
    let Some(tenant) = Tenant::alone("halfway").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 3).await;
    tenant.until_used("3Mi", "1").await;
    tenant.office.stop();
    let records: Api<Artifact> = Api::all(tenant.lab.client.clone());
    let mut record = tenant.records().await.remove(0);
    let name = record.metadata.name.clone().expect("a name");
    records
        .delete(&name, &DeleteParams::default())
        .await
        .expect("deleted");
    record.metadata = ObjectMeta {
        name: Some(name),
        labels: record.metadata.labels,
        ..ObjectMeta::default()
    };
    record.status = None;
    records
        .create(&PostParams::default(), &record)
        .await
        .expect("created");
    tenant.office.start();
    tenant
        .lab
        .until("its status to be written", async || {
            tenant.records().await.iter().any(|record| {
                record.status.as_ref().is_some_and(|status| {
                    status.capabilities_from == CapabilitiesFrom::BuiltIn
                        && status.size_bytes == Some(3 << 20)
                })
            })
        })
        .await;
    tenant.delete_backup("one").await;
    tenant.until_states(&[("Retained NotPurged", 1)]).await;
    tenant.end().await;
}

/// Case ledger 8: live Backups are recorded anew, what was retained is not known any more, and both are said.
#[tokio::test]
async fn a_ledger_that_was_lost_is_rebuilt_from_what_lives_and_said_to_be() {
    let Some(tenant) = Tenant::alone("lost").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("lives", 1).await;
    tenant.etcd("retained", 2).await;
    tenant.until_used("3Mi", "2").await;
    tenant.delete_backup("retained").await;
    tenant
        .until_states(&[("Attributed BackupSeen", 1), ("Retained NotPurged", 1)])
        .await;
    let markers: Api<ConfigMap> = Api::namespaced(tenant.lab.client.clone(), names::OPERATOR_NAMESPACE);
    tenant
        .lab
        .until("the marker to know of records", async || {
            let marker = markers.get_opt(names::LEDGER_MARKER).await.expect("read");
            marker
                .and_then(|marker| marker.data)
                .is_some_and(|data| data["records"] != "0")
        })
        .await;
    tenant.office.stop();
    let records: Api<Artifact> = Api::all(tenant.lab.client.clone());
    records
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .expect("deleted");
    tenant
        .lab
        .until("them to be gone", async || tenant.records().await.is_empty())
        .await;
    tenant.office.start();
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    tenant.until_used("1Mi", "1").await;
    assert_eq!(
        tenant
            .office
            .metric("cozystack_backup_quota_ledger_rebuilt_total"),
        Some(1.0)
    );
    let marker = markers
        .get(names::LEDGER_MARKER)
        .await
        .expect("read")
        .data
        .unwrap_or_default();
    assert!(marker.contains_key("ledgerRebuiltAt"), "{marker:?}");
    let events: Api<k8s_openapi::api::events::v1::Event> =
        Api::namespaced(tenant.lab.client.clone(), names::OPERATOR_NAMESPACE);
    let told = events.list(&ListParams::default()).await.expect("listed");
    assert!(
        told.items
            .iter()
            .any(|event| event.reason.as_deref() == Some("LedgerRebuilt"))
    );
    tenant.end().await;
}
