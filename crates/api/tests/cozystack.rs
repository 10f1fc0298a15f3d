//! The manifests of the platform decode as they are, the odd shapes included.

#![allow(clippy::unwrap_used)]

use holdfast_api::backups::{Backup, BackupClass, BackupJob, BackupPhase, JobPhase, Plan, RestoreJob};
use holdfast_api::strategies::{self, Altinity, CNPG, Etcd, FoundationDB, Job, MariaDB, MongoDB, Velero};
use holdfast_api::{crd, names};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

fn documents() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/cozystack");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        for text in std::fs::read_to_string(&file).unwrap().split("\n---\n") {
            all.push((name.clone(), serde_saphyr::from_str(text).unwrap()));
        }
    }
    all
}

/// Decodes, writes again, and finds in it all that the manifest says.
fn whole<K: DeserializeOwned + Serialize>(value: &Value) -> K {
    let typed: K = serde_json::from_value(value.clone()).unwrap();
    let again = serde_json::to_value(&typed).unwrap();
    for part in ["spec", "status"] {
        assert_within(&value[part], &again[part], part);
    }
    typed
}

fn assert_within(wanted: &Value, found: &Value, path: &str) {
    match (wanted, found) {
        (Value::Object(wanted), Value::Object(found)) => {
            for (key, value) in wanted {
                let path = format!("{path}.{key}");
                let found = found.get(key).unwrap_or_else(|| panic!("{path} is lost"));
                assert_within(value, found, &path);
            }
        }
        (Value::Null, _) => {}
        (wanted, found) => assert_eq!(wanted, found, "{path}"),
    }
}

#[test]
fn every_manifest_of_a_kind_of_ours_decodes_without_loss() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (file, value) in documents() {
        let version = value["apiVersion"].as_str().unwrap();
        let (group, _) = version.split_once('/').unwrap_or(("", version));
        let kind = value["kind"].as_str().unwrap();
        match (group, kind) {
            (names::BACKUPS_GROUP, "Plan") => drop(whole::<Plan>(&value)),
            (names::BACKUPS_GROUP, "BackupJob") => drop(whole::<BackupJob>(&value)),
            (names::BACKUPS_GROUP, "Backup") => drop(whole::<Backup>(&value)),
            (names::BACKUPS_GROUP, "BackupClass") => drop(whole::<BackupClass>(&value)),
            (names::BACKUPS_GROUP, "RestoreJob") => drop(whole::<RestoreJob>(&value)),
            (names::STRATEGY_GROUP, "Altinity") => drop(whole::<Altinity>(&value)),
            (names::STRATEGY_GROUP, "CNPG") => drop(whole::<CNPG>(&value)),
            (names::STRATEGY_GROUP, "Etcd") => drop(whole::<Etcd>(&value)),
            (names::STRATEGY_GROUP, "FoundationDB") => drop(whole::<FoundationDB>(&value)),
            (names::STRATEGY_GROUP, "Job") => drop(whole::<Job>(&value)),
            (names::STRATEGY_GROUP, "MariaDB") => drop(whole::<MariaDB>(&value)),
            (names::STRATEGY_GROUP, "MongoDB") => drop(whole::<MongoDB>(&value)),
            (names::STRATEGY_GROUP, "Velero") => drop(whole::<Velero>(&value)),
            ("apps.cozystack.io", _) | ("", "ResourceQuota") => continue,
            (group, kind) => panic!("{file}: nobody reads {group} {kind}"),
        }
        *seen.entry(kind.to_owned()).or_default() += 1;
    }
    for (kind, _) in strategies::KINDS {
        assert!(seen.contains_key(kind), "no manifest of {kind}");
    }
    assert_eq!(seen["BackupJob"], 8);
    assert_eq!(seen["Backup"], 8);
    assert_eq!(seen["Plan"], 3);
    assert_eq!(seen["RestoreJob"], 4);
    assert_eq!(seen["BackupClass"], 2);
}

#[test]
fn absent_status_an_empty_phase_and_unknown_words_decode() {
    let job = |status: Value| -> BackupJob {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupJob", "metadata": { "name": "j" },
            "spec": { "applicationRef": { "kind": "K", "name": "n", "later": 1 }, "backupClassName": "c", "later": {} },
            "status": status,
        }))
        .unwrap()
    };
    let phase = |status| job(status).status.and_then(|status| status.phase);
    assert_eq!(job(Value::Null).status, None);
    assert_eq!(phase(serde_json::json!({})), None);
    assert_eq!(phase(serde_json::json!({ "phase": "" })), None);
    assert_eq!(phase(serde_json::json!({ "phase": null })), None);
    assert_eq!(
        phase(serde_json::json!({ "phase": "weird", "x": [] })),
        Some(JobPhase::Unknown)
    );
    for (word, meant) in [
        ("Pending", JobPhase::Pending),
        ("Running", JobPhase::Running),
        ("Succeeded", JobPhase::Succeeded),
        ("Failed", JobPhase::Failed),
    ] {
        assert_eq!(phase(serde_json::json!({ "phase": word })), Some(meant));
    }
    assert_eq!(
        job(Value::Null).spec.application_ref.application_group(),
        "apps.cozystack.io"
    );

    let backup: Backup = serde_json::from_value(serde_json::json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "Backup", "metadata": { "name": "b" },
        "spec": { "applicationRef": { "kind": "K", "name": "n" }, "strategyRef": { "kind": "S", "name": "s" } },
        "status": { "phase": "Odd", "artifact": { "uri": "s3://b/k", "sizeBytes": -7, "later": true } },
    }))
    .unwrap();
    let status = backup.status.unwrap();
    assert_eq!(status.phase, Some(BackupPhase::Unknown));
    assert_eq!(
        status.artifact.unwrap().size_bytes,
        Some(-7),
        "as it is: the ledger judges it"
    );
}

#[test]
fn the_first_matching_entry_of_a_class_counts_and_an_absent_group_is_the_platforms() {
    let (_, value) = documents()
        .into_iter()
        .find(|(_, value)| value["metadata"]["name"] == "acme-standard")
        .unwrap();
    let class: BackupClass = serde_json::from_value(value).unwrap();
    let app = |group: Option<&str>, kind: &str| holdfast_api::backups::TypedRef {
        api_group: group.map(str::to_owned),
        kind: kind.to_owned(),
        name: "x".to_owned(),
    };
    let kind = |app| class.spec.strategy_for(&app).map(|s| s.kind.clone());
    assert_eq!(kind(app(None, "Postgres")).as_deref(), Some("CNPG"));
    assert_eq!(
        kind(app(Some("apps.cozystack.io"), "NATS")).as_deref(),
        Some("Job")
    );
    assert_eq!(kind(app(Some("other.example"), "NATS")), None);
    assert_eq!(kind(app(None, "Tape")), None);
}

#[test]
fn a_backup_has_no_status_subresource_and_the_ledgers_kinds_have_one() {
    for definition in crd::platform() {
        let has = definition.spec.versions[0].subresources.is_some();
        assert_eq!(
            has,
            definition.spec.names.kind != "Backup",
            "{}",
            definition.spec.names.kind
        );
    }
    for kind in ["Artifact", "BackupStore"] {
        let definition = crd::all()
            .into_iter()
            .find(|c| c.spec.names.kind == kind)
            .unwrap();
        assert!(definition.spec.versions[0].subresources.is_some(), "{kind}");
        assert_eq!(definition.spec.scope, "Cluster", "{kind}");
        assert_eq!(definition.spec.group, names::LEDGER_GROUP, "{kind}");
    }
    let plurals: Vec<String> = crd::platform()
        .into_iter()
        .filter(|c| c.spec.group == names::STRATEGY_GROUP)
        .map(|c| c.spec.names.plural)
        .collect();
    assert_eq!(plurals, strategies::KINDS.map(|(_, plural)| plural));
}

#[test]
fn what_the_api_server_refuses_in_a_definition_is_not_in_ours() {
    // Tried: a path of a selectable field begins with a dot, and a default is one of the words.
    fn walk(node: &Value, path: &str) {
        if let (Some(default), Some(words)) = (node.get("default"), node["enum"].as_array()) {
            assert!(words.contains(default), "{path}: {default} is none of {words:?}");
        }
        for (name, child) in node["properties"].as_object().into_iter().flatten() {
            walk(child, &format!("{path}.{name}"));
            walk(&child["items"], &format!("{path}.{name}[]"));
        }
    }
    for definition in crd::all().iter().chain(&crd::platform()) {
        let value = serde_json::to_value(definition).unwrap();
        let version = &value["spec"]["versions"][0];
        walk(&version["schema"]["openAPIV3Schema"], &definition.spec.names.kind);
        for field in version["selectableFields"].as_array().into_iter().flatten() {
            assert!(field["jsonPath"].as_str().unwrap().starts_with('.'), "{field}");
        }
    }
}
