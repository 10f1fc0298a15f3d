//! The platform's manifests as they are: applied, counted, and refused where the API server has to refuse.

use super::lab::{COUNT, SIZE};
use super::office::{Tenant, define, permissive};
use holdfast_api::names;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

fn documents() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/tests/fixtures/cozystack");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the fixtures")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("read");
        for document in text.split("\n---\n") {
            all.push((name.clone(), serde_saphyr::from_str(document).expect("YAML")));
        }
    }
    all
}

fn plural(kind: &str) -> String {
    let known = holdfast_api::strategies::KINDS
        .iter()
        .find(|(known, _)| *known == kind);
    match (known, kind) {
        (Some((_, plural)), _) => (*plural).to_owned(),
        (None, "BackupClass") => "backupclasses".to_owned(),
        (None, "Postgres") => "postgreses".to_owned(),
        (None, kind) => format!("{}s", kind.to_lowercase()),
    }
}

fn api(tenant: &Tenant, value: &Value) -> Api<DynamicObject> {
    let version = value["apiVersion"].as_str().expect("a version");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = value["kind"].as_str().expect("a kind");
    // An application may be called as a strategy is.
    let plural = if group == "apps.cozystack.io" {
        format!("{}s", kind.to_lowercase())
    } else {
        plural(kind)
    };
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), &plural);
    match value["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(tenant.lab.client.clone(), namespace, &resource),
        None => Api::all_with(tenant.lab.client.clone(), &resource),
    }
}

#[tokio::test]
async fn the_manifests_of_the_platform_are_applied_as_they_are_and_counted() {
    let Some(tenant) = Tenant::new("manifests").await else {
        return;
    };
    let client = tenant.lab.client.clone();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let of_manifests = ["tenant-root", "tenant-acme", "tenant-acme-dev", "tenant-beta"];
    for name in of_manifests {
        let namespace: Namespace =
            serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a Namespace");
        namespaces
            .create(&PostParams::default(), &namespace)
            .await
            .expect("created");
    }
    for kind in ["Bucket", "MariaDB", "MongoDB", "Postgres", "Tenant"] {
        let plural = format!("{}s", kind.to_lowercase());
        define(
            &client,
            permissive("apps.cozystack.io", "v1alpha1", kind, &plural, "Namespaced"),
        )
        .await;
    }
    let (mut applied, mut refused) = (0, 0);
    for (file, value) in documents() {
        let object: DynamicObject = serde_json::from_value(value.clone()).expect("an object");
        let answer = api(&tenant, &value).create(&PostParams::default(), &object).await;
        if file.starts_with("30-") {
            let Err(kube::Error::Api(status)) = answer else {
                panic!("{file}: {} was not refused", value["metadata"]["name"]);
            };
            assert_eq!(status.code, 422, "{file}: {}", status.message);
            refused += 1;
            continue;
        }
        let created = answer.unwrap_or_else(|error| panic!("{file}: {error}"));
        applied += 1;
        // These say what state their controllers have brought them to.
        if value["kind"] == "BackupJob" && !value["status"].is_null() {
            let patch = Patch::Merge(json!({ "status": value["status"] }));
            let name = value["metadata"]["name"].as_str().expect("a name");
            let uid = created.metadata.uid.expect("a UID");
            let account = tenant.office.account();
            // A run that is over before it was seen leaves nothing: these were seen.
            let recorded = async || account.book.read(|ledger| ledger.get(&uid).is_some());
            tenant.lab.until("the run to be recorded", recorded).await;
            let jobs = api(&tenant, &value);
            jobs.patch_status(name, &PatchParams::default(), &patch)
                .await
                .expect("patched");
        }
    }
    println!("{applied} manifests applied, {refused} refused");
    assert_eq!(refused, 5);

    let used = async |namespace: &str, name: &str| -> BTreeMap<String, String> {
        let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
        let status = quotas.get(name).await.expect("read").status.unwrap_or_default();
        status
            .used
            .unwrap_or_default()
            .into_iter()
            .map(|(key, value)| (key, value.0))
            .collect()
    };
    // Two of Etcd with 48 and 49 Mi, five without a size, and what a run left that says it succeeded and has no Backup.
    tenant
        .lab
        .until("tenant-acme to be counted", async || {
            let used = used("tenant-acme", "tenant-quota").await;
            used.get(SIZE).map(String::as_str) == Some("97Mi")
                && used.get(COUNT).map(String::as_str) == Some("8")
        })
        .await;
    tenant
        .lab
        .until("tenant-acme-dev to be counted", async || {
            let used = used("tenant-acme-dev", "tenant-quota-allocated").await;
            used.get(SIZE).map(String::as_str) == Some("0")
                && used.get(COUNT).map(String::as_str) == Some("1")
        })
        .await;
    assert!(!used("tenant-beta", "besteffort-only").await.contains_key(SIZE));
    let misspelt = used("tenant-beta", "tenant-quota").await;
    assert!(
        !misspelt.contains_key("limits.backups.cozystack.io/size"),
        "{misspelt:?}"
    );
    let unreported = "cozystack_backup_quota_unreported_artifacts{namespace=\"tenant-acme\"}";
    assert_eq!(tenant.office.metric(unreported), Some(6.0));

    for name in of_manifests {
        namespaces
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }
    // Cluster-scoped ones stay until the control plane goes; another run begins with a fresh one.
    for (_, value) in documents() {
        if value["metadata"]["namespace"].is_null() && value["apiVersion"] != names::LEDGER_GROUP {
            let name = value["metadata"]["name"].as_str().expect("a name");
            let _ = api(&tenant, &value).delete(name, &DeleteParams::default()).await;
        }
    }
    tenant.end().await;
}
