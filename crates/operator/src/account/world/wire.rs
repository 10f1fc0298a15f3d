//! How objects are decoded from a watch: the fields that decisions read and no others.
//!
//! **Promises.** What the API server stores of these kinds decodes, whatever else it carries. An object that does not
//! decode is still known to exist ([`super::Observed::Unreadable`]): it is never taken for a deleted one.

use super::Observed;
use super::views::{
    BackupView, ClassView, DriverPhase, DriverView, JobView, NamespaceView, QuotaView, RequestView,
    StrategyRef, StrategyView, phase,
};
use holdfast_api::backups::{BackupClass, BackupJobStatus, NameRef, TypedRef};
use holdfast_api::{Backup, BackupJob, names};
use holdfast_core::quota::StrategyKind;
use holdfast_core::quota::gate::Quota;
use holdfast_core::quota::record::Application;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota, ScopeSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{Object, PartialObjectMeta};
use kube::{Resource, ResourceExt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A Backup on the wire.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = Backup)]
pub struct WireBackup {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireBackupSpec,
    #[serde(default)]
    status: Option<WireBackupStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireBackupSpec {
    application_ref: TypedRef,
    strategy_ref: TypedRef,
    driver_metadata: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireBackupStatus {
    artifact: Option<WireArtifact>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireArtifact {
    uri: Option<String>,
    size_bytes: Option<i64>,
}

fn created(meta: &ObjectMeta) -> Option<Timestamp> {
    meta.creation_timestamp.as_ref().map(|time| time.0)
}

fn shared(text: Option<String>) -> Arc<str> {
    text.unwrap_or_default().into()
}

fn application(reference: TypedRef) -> Arc<Application> {
    Arc::new(Application::from(&reference))
}

/// A strategy as an object names it.
#[must_use]
pub fn strategy(reference: &TypedRef) -> StrategyRef {
    StrategyRef {
        kind: StrategyKind {
            group: reference.api_group.clone().unwrap_or_default(),
            kind: reference.kind.clone(),
        },
        name: reference.name.clone(),
    }
}

/// What is kept of a Backup.
#[must_use]
pub fn backup(wire: WireBackup) -> Observed {
    let artifact = wire.status.and_then(|status| status.artifact).unwrap_or_default();
    let created_at = created(&wire.metadata).unwrap_or(Timestamp::UNIX_EPOCH);
    Observed::Backup(Box::new(BackupView {
        uid: shared(wire.metadata.uid),
        namespace: shared(wire.metadata.namespace),
        name: wire.metadata.name.unwrap_or_default().into(),
        created_at,
        application: application(wire.spec.application_ref),
        strategy: Arc::new(strategy(&wire.spec.strategy_ref)),
        uri: artifact.uri.filter(|uri| !uri.is_empty()).map(Into::into),
        notes: BackupView::notes(&wire.spec.driver_metadata),
        size_bytes: artifact.size_bytes,
    }))
}

/// A BackupJob on the wire.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = BackupJob)]
pub struct WireJob {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireJobSpec,
    #[serde(default)]
    status: Option<BackupJobStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireJobSpec {
    plan_ref: Option<NameRef>,
    application_ref: TypedRef,
    backup_class_name: String,
}

/// What is kept of a BackupJob.
#[must_use]
pub fn job(wire: WireJob) -> Observed {
    let status = wire.status.unwrap_or_default();
    let named = |reference: Option<NameRef>| reference.map(|r| r.name).filter(|name| !name.is_empty());
    Observed::Job(Box::new(JobView {
        created_at: created(&wire.metadata),
        uid: shared(wire.metadata.uid),
        namespace: shared(wire.metadata.namespace),
        name: wire.metadata.name.unwrap_or_default().into(),
        application: application(wire.spec.application_ref),
        class: wire.spec.backup_class_name.into(),
        plan: named(wire.spec.plan_ref).map(Into::into),
        phase: phase(status.phase),
        started_at: status.started_at,
        backup: named(status.backup_ref).map(Into::into),
    }))
}

/// What is kept of a BackupClass.
#[must_use]
pub fn class(mut class: BackupClass) -> Observed {
    for entry in &mut class.spec.strategies {
        entry.parameters.clear();
    }
    Observed::Class(Box::new(ClassView {
        name: class.metadata.name.unwrap_or_default(),
        spec: class.spec,
    }))
}

/// A ResourceQuota on the wire.
#[derive(Debug, Clone, Resource, Serialize, Deserialize)]
#[resource(inherit = ResourceQuota)]
pub struct WireQuota {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: WireQuotaSpec,
    #[serde(default)]
    status: WireQuotaStatus,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireQuotaSpec {
    hard: BTreeMap<String, Quantity>,
    scopes: Vec<String>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct WireQuotaStatus {
    used: BTreeMap<String, Quantity>,
}

/// What is kept of a ResourceQuota: whatever names backups, and that there is one.
#[must_use]
pub fn quota(wire: WireQuota) -> Observed {
    let ours = |amounts: BTreeMap<String, Quantity>| -> BTreeMap<String, String> {
        amounts
            .into_iter()
            .filter(|(key, _)| key.contains(names::BACKUPS_GROUP))
            .map(|(key, amount)| (key, amount.0))
            .collect()
    };
    let breakdown = |all: &BTreeMap<String, String>| all.get(names::BREAKDOWN).cloned();
    Observed::Quota(Box::new(QuotaView {
        namespace: wire.metadata.namespace.unwrap_or_default(),
        uid: wire.metadata.uid.unwrap_or_default(),
        resource_version: wire.metadata.resource_version.unwrap_or_default(),
        quota: Quota {
            breakdown: wire.metadata.annotations.as_ref().and_then(breakdown),
            name: wire.metadata.name.unwrap_or_default(),
            scoped: !wire.spec.scopes.is_empty() || wire.spec.scope_selector.is_some(),
            hard: ours(wire.spec.hard),
            used: ours(wire.status.used),
        },
    }))
}

/// What is kept of a Namespace.
#[must_use]
pub fn namespace(wire: PartialObjectMeta<Namespace>) -> Observed {
    Observed::Namespace(Box::new(NamespaceView {
        name: wire.metadata.name.unwrap_or_default(),
        uid: wire.metadata.uid.unwrap_or_default(),
        terminating: wire.metadata.deletion_timestamp.is_some(),
    }))
}

/// What is kept of a strategy of this group, version and kind.
#[must_use]
pub fn strategy_object<K: Resource>(
    group: &str,
    version: &str,
    kind: &str,
    wire: &PartialObjectMeta<K>,
) -> Observed {
    Observed::Strategy(Box::new(StrategyView {
        strategy: StrategyRef {
            kind: StrategyKind {
                group: group.to_owned(),
                kind: kind.to_owned(),
            },
            name: wire.metadata.name.clone().unwrap_or_default(),
        },
        uid: wire.metadata.uid.clone().unwrap_or_default(),
        api_version: format!("{group}/{version}"),
        capabilities: wire
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(names::CAPABILITIES).cloned()),
    }))
}

/// Status of a driver's own backup object: both drivers call it `phase`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WirePhase {
    phase: String,
}

/// Nothing of a spec.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct WireNothing {}

/// A driver's own backup object on the wire.
pub type WireDriver = Object<WireNothing, WirePhase>;

/// Velero's words for a run that is over; those for one that is not (`New`, `InProgress`, `Finalizing`, …) go on. A
/// backup that failed in part is in the bucket.
fn velero_phase(word: &str) -> DriverPhase {
    match word {
        "Completed" | "PartiallyFailed" => DriverPhase::Completed,
        "Failed" | "FailedValidation" => DriverPhase::Failed,
        _ => DriverPhase::Running,
    }
}

/// CNPG's.
fn cnpg_phase(word: &str) -> DriverPhase {
    match word {
        "completed" => DriverPhase::Completed,
        "failed" => DriverPhase::Failed,
        _ => DriverPhase::Running,
    }
}

fn driver(wire: WireDriver, of_word: fn(&str) -> DriverPhase) -> DriverView {
    let phase = wire
        .status
        .as_ref()
        .map(|status| status.phase.clone())
        .unwrap_or_default();
    let label = |key: &str| wire.metadata.labels.as_ref()?.get(key).cloned();
    let job = label(names::OWNED_BY_JOB).and_then(|name| {
        let own = wire.metadata.namespace.clone();
        Some((label(names::OWNED_BY_JOB_NAMESPACE).or(own)?, name))
    });
    DriverView {
        namespace: wire.metadata.namespace.clone().unwrap_or_default(),
        name: wire.name_any(),
        uid: wire.metadata.uid.clone().unwrap_or_default(),
        phase: of_word(&phase),
        job,
    }
}

/// What is kept of a Velero Backup.
#[must_use]
pub fn velero_backup(wire: WireDriver) -> Observed {
    Observed::VeleroBackup(Box::new(driver(wire, velero_phase)))
}

/// What is kept of a CNPG Backup.
#[must_use]
pub fn cnpg_backup(wire: WireDriver) -> Observed {
    Observed::CnpgBackup(Box::new(driver(wire, cnpg_phase)))
}

/// A DeleteBackupRequest on the wire.
pub type WireRequest = Object<WireRequestSpec, WireRequestStatus>;

/// Its spec.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WireRequestSpec {
    backup_name: String,
}

/// Its status.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WireRequestStatus {
    phase: String,
    errors: Vec<String>,
}

/// What is kept of a DeleteBackupRequest.
#[must_use]
pub fn velero_request(wire: WireRequest) -> Observed {
    let status = wire.status.unwrap_or_default();
    Observed::VeleroRequest(Box::new(RequestView {
        namespace: wire.metadata.namespace.unwrap_or_default(),
        name: wire.metadata.name.unwrap_or_default(),
        uid: wire.metadata.uid.unwrap_or_default(),
        backup: wire.spec.backup_name,
        processed: (status.phase == "Processed").then_some(status.errors.len()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn seen(observe: fn(WireDriver) -> Observed, api_version: &str, status: Value) -> DriverView {
        let object = json!({
            "apiVersion": api_version, "kind": "Backup",
            "metadata": { "name": "db-29790000", "namespace": "tenant-acme", "uid": "u-1", "labels": {
                names::OWNED_BY_JOB: "db-29790000", names::OWNED_BY_JOB_NAMESPACE: "tenant-acme",
            } },
            "spec": { "anything": ["that", { "is": "not read" }] },
            "status": status,
        });
        let seen = observe(serde_json::from_value(object).expect("it decodes"));
        let (Observed::CnpgBackup(view) | Observed::VeleroBackup(view)) = seen else {
            panic!("{seen:?}");
        };
        *view
    }

    #[test]
    fn each_word_of_cnpg_says_whether_a_run_goes_on_and_whether_it_wrote_bytes() {
        let cnpg = |status| seen(cnpg_backup, "postgresql.cnpg.io/v1", status);
        for (word, phase) in [
            ("completed", DriverPhase::Completed),
            ("failed", DriverPhase::Failed),
            ("pending", DriverPhase::Running),
            ("started", DriverPhase::Running),
            ("running", DriverPhase::Running),
            ("finalizing", DriverPhase::Running),
            ("walArchivingFailing", DriverPhase::Running),
            ("a word of a later version", DriverPhase::Running),
        ] {
            let status =
                json!({ "phase": word, "backupName": "b", "destinationPath": "s3://b", "stoppedAt": null });
            assert_eq!(cnpg(status).phase, phase, "{word}");
        }
        let view = cnpg(Value::Null);
        assert_eq!(view.phase, DriverPhase::Running, "no status yet");
        let of = ("tenant-acme".to_owned(), "db-29790000".to_owned());
        assert_eq!((view.job, view.uid.as_str()), (Some(of), "u-1"));
    }

    #[test]
    fn each_word_of_velero_says_whether_a_run_goes_on_and_whether_it_wrote_bytes() {
        for (word, phase) in [
            ("Completed", DriverPhase::Completed),
            ("PartiallyFailed", DriverPhase::Completed),
            ("Failed", DriverPhase::Failed),
            ("FailedValidation", DriverPhase::Failed),
            ("New", DriverPhase::Running),
            ("InProgress", DriverPhase::Running),
            ("WaitingForPluginOperationsPartiallyFailed", DriverPhase::Running),
            ("FinalizingPartiallyFailed", DriverPhase::Running),
            ("Deleting", DriverPhase::Running),
        ] {
            let view = seen(
                velero_backup,
                "velero.io/v1",
                json!({ "phase": word, "errors": 1 }),
            );
            assert_eq!(view.phase, phase, "{word}");
        }
    }
}
