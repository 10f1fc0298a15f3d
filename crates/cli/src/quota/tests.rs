use super::capabilities::{Found, Strategy, table};
use super::frees::{Way, ways};
use super::read::{Cluster, quota};
use super::sums::{From, told};
use super::{approve, render, rights, write_off};
use crate::style::Style;
use holdfast_api::ledger::{Artifact, BackupStore, PendingRelease, convert};
use holdfast_api::names;
use holdfast_core::quota::{Ledger, Record, State};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ResourceQuota;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MIB: i64 = 1 << 20;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn artifact(name: &str, namespace: &str, state: &str, reason: &str, bytes: Option<i64>) -> Artifact {
    let mut value = json!({
        "apiVersion": "ledger.backups.cozystack.io/v1alpha1", "kind": "Artifact",
        "metadata": { "name": name, "resourceVersion": "7" },
        "spec": {
            "namespace": namespace,
            "strategy": { "apiGroup": names::STRATEGY_GROUP, "kind": "Etcd" },
            "place": "s3://shared", "key": format!("{namespace}/{name}"),
            "applicationRef": { "kind": "Etcd", "name": "control" },
        },
        "status": {
            "state": state, "reason": reason,
            "sizeSource": if bytes.is_some() { "measured" } else { "unknown" },
            "capabilities": { "deletion": "none" },
            "times": { "recordedAt": "2026-01-01T00:00:00Z" },
            "backups": if state == "Attributed" { json!([{ "uid": "u", "name": "b" }]) } else { json!([]) },
        },
    });
    if let Some(bytes) = bytes {
        value["status"]["sizeBytes"] = json!(bytes);
    }
    serde_json::from_value(value).unwrap()
}

fn ledger(artifacts: &[Artifact]) -> Ledger {
    Ledger::of(artifacts.iter().map(convert::record))
}

fn resource_quota(hard: Value, used: Value, breakdown: Option<&str>) -> ResourceQuota {
    let mut value = json!({
        "metadata": { "name": "cap", "namespace": "tenant-a" },
        "spec": { "hard": hard }, "status": { "used": used },
    });
    if let Some(breakdown) = breakdown {
        value["metadata"]["annotations"] = json!({ names::BREAKDOWN: breakdown });
    }
    serde_json::from_value(value).unwrap()
}

fn records() -> Vec<Artifact> {
    vec![
        artifact("etcd-1", "tenant-a", "Attributed", "BackupSeen", Some(10 * MIB)),
        artifact("etcd-2", "tenant-a", "Retained", "NotPurged", Some(30 * MIB)),
        artifact("etcd-3", "tenant-a", "Retained", "NotPurged", None),
        artifact("etcd-4", "tenant-a", "Released", "NoLongerListed", Some(99 * MIB)),
        artifact("etcd-5", "tenant-a-gone", "Retained", "NotPurged", Some(5 * MIB)),
        artifact("etcd-6", "elsewhere", "Retained", "PurgeFailed", Some(MIB)),
    ]
}

fn cluster() -> Cluster {
    let quotas = [resource_quota(
        json!({ names::QUOTA_SIZE: "40Mi", names::QUOTA_COUNT: "9", "pods": "3" }),
        json!({ names::QUOTA_SIZE: "45Mi", names::QUOTA_COUNT: "4" }),
        None,
    )];
    let store: BackupStore = serde_json::from_value(json!({
        "apiVersion": "ledger.backups.cozystack.io/v1alpha1", "kind": "BackupStore",
        "metadata": { "name": "shared" },
        "spec": {
            "bucket": "shared", "endpoint": "http://s3", "credentials": { "name": "keys" },
            "layout": { "path": "{namespace}/{artifact...}" },
        },
        "status": {
            "unaccounted": [{ "namespace": "tenant-a", "objects": 1, "bytes": 7 }],
            "pendingRelease": {
                "token": "t", "records": 12, "bytes": 2048, "since": "2026-01-01T00:00:00Z", "reason": "ManyRecords",
            },
        },
    }))
    .unwrap();
    Cluster {
        ledger: Some(ledger(&records())),
        quotas: quotas.iter().filter_map(quota).collect(),
        live: Some(BTreeSet::from(["tenant-a".to_owned(), "elsewhere".to_owned()])),
        stores: Some(vec![store]),
        notes: Vec::new(),
    }
}

#[test]
fn a_namespace_is_told_with_its_parts_its_limits_and_what_it_inherited() {
    let told = told(&cluster(), Some("tenant-a"));
    let [one] = told.namespaces.as_slice() else {
        panic!("{:?}", told.namespaces);
    };
    assert_eq!(one.from, From::Ledger);
    assert_eq!(one.used_bytes, 45 * MIB);
    assert_eq!(one.used_count, 4);
    assert_eq!((one.hard_bytes, one.hard_count), (Some(40 * MIB), Some(9)));
    assert_eq!(one.parts.attributed, 10 * MIB);
    assert_eq!(one.parts.retained, 35 * MIB);
    assert_eq!(one.parts.stranded, 5 * MIB);
    assert_eq!(one.parts.unreported, 1);
    assert_eq!(one.parts.unaccounted, Some(7));
    let largest: Vec<&str> = one.largest.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(largest, ["etcd-2", "etcd-1", "etcd-5", "etcd-3"]);
    let text = render::text(&told, Some("tenant-a"), at(0), Style::PLAIN);
    for part in [
        "45.0 MiB",
        "The limit is reached",
        "kubectl holdfast quota write-off etcd-2 etcd-5 etcd-3\n",
        "deleting those alone frees nothing",
        "kubectl holdfast quota approve shared",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_namespace_that_a_store_does_not_name_is_not_told_as_zero() {
    let mut cluster = cluster();
    let store = &mut cluster.stores.as_mut().unwrap()[0];
    store.status.as_mut().unwrap().unaccounted_elsewhere = Some(holdfast_api::ledger::UnaccountedElsewhere {
        objects: 3,
        bytes: 30,
    });
    let told = told(&cluster, None);
    let of = |name: &str| {
        let one = told.namespaces.iter().find(|one| one.namespace == name).unwrap();
        one.parts.unaccounted
    };
    assert_eq!((of("tenant-a"), of("elsewhere")), (Some(7), None));
    assert_eq!(told.stores[0].unaccounted, 37, "the sum has them all");
    let json: Value = serde_json::from_str(&super::json(&told).unwrap()).unwrap();
    assert!(json["namespaces"][0]["unaccounted"].is_null(), "{json}");
    let text = render::text(
        &super::sums::told(&cluster, Some("elsewhere")),
        Some("elsewhere"),
        at(0),
        Style::PLAIN,
    );
    assert!(text.contains("not told"), "{text}");
}

#[test]
fn all_namespaces_are_a_table_with_the_stores() {
    let told = told(&cluster(), None);
    let names: Vec<&str> = told.namespaces.iter().map(|one| one.namespace.as_str()).collect();
    assert_eq!(names, ["elsewhere", "tenant-a", "tenant-a-gone"]);
    let text = render::text(&told, None, at(0), Style::PLAIN);
    assert!(text.contains("tenant-a-gone (gone)"), "{text}");
    assert!(text.contains("STORE"), "{text}");
    let json: Value = serde_json::from_str(&super::json(&told).unwrap()).unwrap();
    assert_eq!(json["namespaces"][1]["retained"], 35 * MIB);
    assert_eq!(json["namespaces"][1]["frees"][0]["way"], "DeleteBytes");
    assert_eq!(json["stores"][0]["waitingRecords"], 12);
}

#[test]
fn who_may_not_read_records_sees_what_is_published() {
    let breakdown = r#"{"attributed":10,"retained":20,"pendingPurge":5,"unreported":2,"unaccounted":1}"#;
    let published = resource_quota(
        json!({ names::QUOTA_SIZE: "40" }),
        json!({ names::QUOTA_SIZE: "30" }),
        Some(breakdown),
    );
    let cluster = Cluster {
        quotas: vec![quota(&published).unwrap()],
        ..Cluster::default()
    };
    let told = told(&cluster, Some("tenant-a"));
    let one = &told.namespaces[0];
    assert_eq!(one.from, From::Breakdown);
    assert_eq!((one.used_bytes, one.hard_bytes), (30, Some(40)));
    assert_eq!((one.parts.retained, one.parts.unreported), (20, 2));
    assert!(one.largest.is_empty() && one.frees.is_empty());
}

#[test]
fn nothing_published_is_not_told_as_nothing_used() {
    let fresh = resource_quota(json!({ names::QUOTA_SIZE: "40" }), json!({}), None);
    let cluster = Cluster {
        quotas: vec![quota(&fresh).unwrap()],
        ..Cluster::default()
    };
    let told = told(&cluster, Some("tenant-a"));
    assert_eq!(told.namespaces[0].from, From::Nowhere);
    let text = render::text(&told, Some("tenant-a"), at(0), Style::PLAIN);
    assert!(text.contains("Nothing is published yet"), "{text}");
    assert!(text.contains('?'), "{text}");
}

#[test]
fn keys_that_do_not_do_what_they_look_like_are_told() {
    let odd = resource_quota(
        json!({ format!("requests.{}", names::QUOTA_SIZE): "40" }),
        json!({}),
        None,
    );
    assert!(quota(&resource_quota(json!({ "pods": "3" }), json!({}), None)).is_none());
    let cluster = Cluster {
        ledger: Some(Ledger::default()),
        quotas: vec![quota(&odd).unwrap()],
        ..Cluster::default()
    };
    let told = told(&cluster, None);
    assert_eq!(told.namespaces[0].warnings.len(), 1);
    assert!(render::text(&told, None, at(0), Style::PLAIN).contains("warning: tenant-a:"));
}

#[test]
fn deleting_backups_is_a_way_only_where_the_driver_deletes_bytes() {
    let of = |state: &str, reason: &str, deletion: &str| {
        let mut artifact = artifact("x", "a", state, reason, Some(1));
        let status = artifact.status.as_mut().unwrap();
        status.capabilities.as_mut().unwrap().deletion = deletion.to_owned();
        Way::of(&convert::record(&artifact))
    };
    for (deletion, way) in [
        ("none", Way::DeleteBackupsAndBytes),
        ("recordOnly", Way::DeleteBackupsAndBytes),
        ("unheard of", Way::DeleteBackupsAndBytes),
        ("requested", Way::DeleteBackups),
        ("confirmed", Way::DeleteBackups),
    ] {
        assert_eq!(of("Attributed", "BackupSeen", deletion), Some(way), "{deletion}");
    }
    assert_eq!(
        of("PendingPurge", "DeletionRequested", "requested"),
        Some(Way::WaitForDriver)
    );
    assert_eq!(
        of("Retained", "PurgeUnproven", "requested"),
        Some(Way::LookAtDriver)
    );
    assert_eq!(of("Retained", "NotPurged", "none"), Some(Way::DeleteBytes));
    for (state, reason) in [
        ("Released", "ReadBack"),
        ("WrittenOff", "WrittenOff"),
        ("InFlight", "Admitted"),
    ] {
        assert_eq!(of(state, reason, "none"), None, "{state}");
    }
}

#[test]
fn ways_name_the_largest_and_count_what_has_no_size() {
    let all: Vec<Record> = records().iter().map(convert::record).collect();
    let ways = ways(all.iter().filter(|record| record.namespace() == "tenant-a"));
    let bytes = ways.iter().find(|one| one.way == Way::DeleteBytes).unwrap();
    assert_eq!((bytes.artifacts, bytes.bytes, bytes.unreported), (2, 30 * MIB, 1));
    assert_eq!(bytes.names, ["etcd-2", "etcd-3"]);
}

#[test]
fn writing_off_takes_what_no_backup_refers_to_and_refuses_the_rest_by_name() {
    let all = ledger(&records());
    let ask = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        write_off::plan(&all, &names, "ada", at(9))
    };
    let plan = ask(&["etcd-2", "etcd-2", "etcd-3", "etcd-4"]);
    assert!(plan.refused.is_empty(), "{:?}", plan.refused);
    assert_eq!(plan.write.len(), 2);
    assert_eq!(plan.already, [("etcd-4".to_owned(), State::Released)]);
    let question = write_off::question(&plan.write);
    for part in [
        "2 artifacts",
        "30.0 MiB and 1 of unknown size",
        "tenant-a",
        "not deleted",
    ] {
        assert!(question.contains(part), "{question}");
    }
    let plan = ask(&["etcd-1", "etcd-9"]);
    assert!(plan.write.is_empty());
    assert!(
        plan.refused[0].contains("delete the Backup first"),
        "{:?}",
        plan.refused
    );
    assert!(
        plan.refused[1].contains("there is no artifact etcd-9"),
        "{:?}",
        plan.refused
    );
}

#[test]
fn the_decision_changes_five_fields_of_the_status_and_no_other() {
    let before = records()[1].clone();
    let all = ledger(std::slice::from_ref(&before));
    let plan = write_off::plan(&all, &["etcd-2".to_owned()], "ada", at(9));
    let status = before.status.unwrap();
    let after = write_off::decided(&status, &plan.write[0]);
    let patch = holdfast_operator::runtime::diff::merge_patch(&status, &after).unwrap();
    assert_eq!(
        patch,
        json!({
            "state": "WrittenOff", "reason": "WrittenOff", "writtenOffBy": "ada",
            "message": "an administrator decided that it is not charged",
            "times": { "releasedAt": "1970-01-01T00:00:09Z" },
        })
    );
}

#[test]
fn a_missing_right_names_verb_resource_and_role() {
    let right = rights::Right {
        verb: "patch",
        plural: "artifacts",
        subresource: Some("status"),
    };
    let text = rights::missing("write this off", "etcd-2", right);
    assert!(
        text.contains("the verb patch on artifacts.ledger.backups.cozystack.io/status etcd-2"),
        "{text}"
    );
    assert!(text.contains("--clusterrole=holdfast-accountant"), "{text}");
}

#[test]
fn approving_tells_what_a_yes_means() {
    let pending = PendingRelease {
        token: "t".to_owned(),
        records: 12,
        bytes: 2048,
        since: at(0),
        reason: "ManyRecords".to_owned(),
    };
    let text = approve::question("shared", &pending, at(60));
    for part in ["12 artifacts (2.0 KiB)", "ManyRecords, since 60 s ago", "say no"] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn capabilities_say_who_says_so_and_what_is_wrong() {
    let found = Found {
        strategies: vec![
            Strategy::of(names::STRATEGY_GROUP, "Etcd", Some("daily"), None),
            Strategy::of(
                names::STRATEGY_GROUP,
                "Etcd",
                Some("good"),
                Some(r#"{"deletion":"confirmed"}"#),
            ),
            Strategy::of(
                names::STRATEGY_GROUP,
                "Etcd",
                Some("bad"),
                Some(r#"{"deletion":"always"}"#),
            ),
            Strategy::of("example.org", "Mine", None, None),
        ],
        notes: Vec::new(),
    };
    let words: Vec<(&str, &str)> = found
        .strategies
        .iter()
        .map(|one| (one.deletion, one.from))
        .collect();
    assert_eq!(
        words,
        [
            ("none", "builtIn"),
            ("confirmed", "annotation"),
            ("none", "builtIn"),
            ("unknown", "unknown")
        ]
    );
    let text = table(&found, Style::PLAIN);
    assert!(
        text.contains(
            "error: Etcd bad: the annotation ledger.backups.cozystack.io/capabilities is not in force"
        ),
        "{text}"
    );
    assert!(
        text.contains("no figure depends on them"),
        "which columns decide is not said: {text}"
    );
    let json: Value = serde_json::from_str(&super::json(&found).unwrap()).unwrap();
    assert_eq!(json["strategies"][1]["growsAfterReady"], false);
}
