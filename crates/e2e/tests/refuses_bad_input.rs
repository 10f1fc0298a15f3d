//! Bad input is refused by the API server, in a sentence that names the field.
//!
//! Everything is sent as a dry run: nothing is created.

use anyhow::{Context, Result};
use holdfast_api::crd::{Rule, rules};
use holdfast_api::unsupported::{self, Shape, Unsupported};
use holdfast_api::{conditions, names, written};
use holdfast_e2e::restores::restore;
use holdfast_e2e::scenario::{POLICY, Scenario, told};
use holdfast_e2e::{Lab, Look, objects, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

const NS: &str = "default";

fn cluster_repository() -> Value {
    let mut object = objects::repository(NS, "r", "claim", "secret", None);
    object["kind"] = json!("ClusterRepository");
    object["metadata"] = json!({ "name": "r" });
    object["spec"]["encryption"]["passwordSecretRef"]["namespace"] = json!(names::OPERATOR_NAMESPACE);
    object["spec"]["allowedNamespaces"] = json!({ "selector": { "matchLabels": { "a": "b" } } });
    object
}

/// A good object of each kind, and the fields and rules that are refused of it.
fn kinds() -> Vec<(Value, Vec<Unsupported>, Vec<Rule>)> {
    vec![
        (
            objects::repository(NS, "r", "claim", "secret", None),
            unsupported::REPOSITORY.to_vec(),
            [rules::REPOSITORY, rules::NAMESPACED_REPOSITORY].concat(),
        ),
        (
            cluster_repository(),
            [unsupported::REPOSITORY, unsupported::CLUSTER_REPOSITORY].concat(),
            [rules::REPOSITORY, rules::CLUSTER_REPOSITORY].concat(),
        ),
        (
            objects::policy(NS, "p", "r", "claim", Some(3)),
            unsupported::POLICY.to_vec(),
            rules::POLICY.to_vec(),
        ),
        (
            objects::schedule(NS, "s", "p", false, None),
            unsupported::SCHEDULE.to_vec(),
            rules::SCHEDULE.to_vec(),
        ),
        (
            objects::snapshot(NS, "s", "p"),
            unsupported::SNAPSHOT.to_vec(),
            rules::SNAPSHOT.to_vec(),
        ),
        (
            a_restore(),
            unsupported::RESTORE.to_vec(),
            // What an edit breaks is no object to be made.
            rules::RESTORE
                .iter()
                .filter(|r| !r.rule.contains("oldSelf"))
                .copied()
                .collect(),
        ),
        (
            a_maintenance(),
            unsupported::MAINTENANCE.to_vec(),
            rules::MAINTENANCE
                .iter()
                .filter(|r| !r.rule.contains("oldSelf"))
                .copied()
                .collect(),
        ),
    ]
}

fn a_maintenance() -> Value {
    let times = json!({ "cron": "0 3 * * 0", "jitter": "1h" });
    json!({
        "apiVersion": names::API_VERSION, "kind": "Maintenance",
        "metadata": { "name": "m", "namespace": NS },
        "spec": {
            "repository": { "name": "r" },
            "schedule": { "quick": times, "full": times, "timezone": "Europe/Oslo" },
            "ownership": { "owner": "backup/r", "takeoverPolicy": "Force" },
        },
    })
}

fn a_restore() -> Value {
    let source = json!({ "snapshotRef": { "name": "s" } });
    restore(NS, "r", source, json!({ "pvcRef": { "name": "claim" } }))
}

/// A bucket with these fields, and keys that a repository of this kind can name.
fn bucket(kind: &str, fields: Value) -> Value {
    let mut secret = json!({ "name": "secret" });
    if kind == "ClusterRepository" {
        secret["namespace"] = json!(names::OPERATOR_NAMESPACE);
    }
    let mut s3 = json!({ "bucket": "b", "auth": { "secretRef": secret } });
    for (field, value) in fields.as_object().into_iter().flatten() {
        s3[field] = value.clone();
    }
    json!({ "s3": s3 })
}

/// `object` with `value` at `path`; `[]` is the first item.
fn with(object: &Value, path: &str, value: Value) -> Value {
    let mut object = object.clone();
    let mut node = &mut object;
    for part in path.split('.') {
        node = &mut node[part.trim_end_matches("[]")];
        if part.ends_with("[]") {
            node = &mut node[0];
        }
    }
    *node = value;
    object
}

fn without(object: &Value, path: &str) -> Value {
    let (parent, field) = path.rsplit_once('.').expect("a path with a parent");
    let mut node = object;
    for part in parent.split('.') {
        node = &node[part];
    }
    let mut left = node.clone();
    left.as_object_mut().expect("an object").remove(field);
    with(object, parent, left)
}

fn sample(shape: Shape) -> Value {
    match shape {
        Shape::Object => json!({ "x": 1 }),
        Shape::Objects => json!([{ "x": 1 }]),
        Shape::Strings => json!(["x"]),
        Shape::String => json!("x"),
        Shape::Integer => json!(1),
        Shape::Boolean => json!(true),
    }
}

#[tokio::test]
async fn every_unsupported_field_is_refused_by_its_name() -> Result<()> {
    let Some(lab) = Lab::for_test("every_unsupported_field_is_refused_by_its_name").await? else {
        return Ok(());
    };
    let mut asked = 0;
    for (good, fields, _) in kinds() {
        let kind = good["kind"].clone();
        assert_eq!(
            lab.refusal(good.clone()).await?,
            None,
            "the good {kind} must be accepted"
        );
        for field in fields {
            let mut good = good.clone();
            if field.parent.starts_with("spec.backend.s3") {
                good["spec"]["backend"] = json!({ "s3": { "bucket": "b", "auth": {} } });
            }
            // A rule is asked only of what is whole otherwise.
            match field.parent {
                "spec.source.fromPolicy" => good["spec"]["source"] = json!({ "fromPolicy": { "name": "p" } }),
                "spec.target.pvc" => good["spec"]["target"] = json!({ "pvc": { "name": "c" } }),
                parent if parent.starts_with("spec.repository") => {
                    good["spec"]["repository"] = json!({ "name": "r" });
                }
                _ => {}
            }
            let bad = with(&good, &field.path(), sample(field.shape));
            let said = lab
                .refusal(bad)
                .await?
                .with_context(|| format!("{kind} {} was accepted", field.path()))?;
            assert!(said.contains(&field.message()), "{kind} {}: {said}", field.path());
            asked += 1;
        }
    }
    assert!(asked > 80, "only {asked} fields were asked for");
    Ok(())
}

fn window(duration: &str, threshold: Option<u32>) -> Value {
    let mut protection = json!({ "slidingWindow": { "duration": duration, "threshold": 3 } });
    if let Some(threshold) = threshold {
        protection["threshold"] = json!(threshold);
    }
    protection
}

/// What breaks each rule: kind, path, and a value (none takes the field away).
fn breaches() -> Vec<(&'static str, &'static str, Option<Value>)> {
    let claim = || json!({ "pvc": { "name": "claim" } });
    let mut list = Vec::new();
    for kind in ["Repository", "ClusterRepository"] {
        list.extend([
            (kind, "spec.mode", Some(json!("ReadOnly"))),
            (
                kind,
                "spec.health",
                Some(json!({ "probe": { "interval": "29s" } })),
            ),
            (kind, "spec.deletionProtection", Some(window("24h1s", None))),
            (kind, "spec.deletionProtection", Some(window("1h", Some(0)))),
            (
                kind,
                "spec.catalog",
                Some(json!({ "periodicRefresh": true, "refreshInterval": "5s" })),
            ),
            (kind, "spec.catalog", Some(json!({ "refreshInterval": "5m" }))),
            (kind, "spec.identityDefaults", Some(json!({ "cluster": "La.b" }))),
            (kind, "spec.backend.filesystem", None),
            (kind, "spec.backend.filesystem.volume.pvc", None),
        ]);
        for fields in [
            json!({ "auth": {} }),
            json!({ "endpoint": "https://s3.example.org" }),
            json!({ "prefix": "a/../b/" }),
            json!({ "tls": { "disableTls": true, "insecureSkipVerify": true } }),
        ] {
            list.push((kind, "spec.backend", Some(bucket(kind, fields))));
        }
        let mut kopia = match kind {
            "ClusterRepository" => cluster_repository(),
            _ => objects::repository(NS, "r", "claim", "secret", None),
        };
        kopia["spec"]["engine"] = json!("Kopia");
        kopia["spec"]["backend"] = bucket(kind, json!({ "prefix": "prod" }));
        list.push((kind, "spec", Some(kopia["spec"].clone())));
        // The Secret's namespace, there where it has no place and absent where it has one.
        let other = match kind {
            "ClusterRepository" => bucket("Repository", json!({})),
            _ => bucket("ClusterRepository", json!({})),
        };
        list.push((kind, "spec.backend", Some(other)));
    }
    let of_restore = |path, value| ("Restore", path, Some(value));
    list.extend([
        of_restore("spec.source.fromPolicy", json!({ "name": "p" })),
        of_restore("spec.target.populator", json!({})),
        of_restore(
            "spec.source",
            json!({ "identity": { "username": "u", "hostname": "h" } }),
        ),
        of_restore("spec.repository", json!({ "name": "r" })),
        of_restore(
            "spec.repository",
            json!({ "kind": "ClusterRepository", "name": "r", "namespace": "x" }),
        ),
        of_restore(
            "spec.source",
            json!({ "identity": { "username": "u", "hostname": "h", "snapshotID": "k1", "offset": 1 } }),
        ),
        of_restore(
            "spec.options",
            json!({ "skipExisting": true, "overwriteFiles": true }),
        ),
        of_restore(
            "spec.options",
            json!({ "writeSparseFiles": true, "skipExisting": true }),
        ),
        of_restore("spec.policy", json!({ "waitTimeout": "soon" })),
        of_restore(
            "spec.target",
            json!({ "pvc": { "name": "c", "capacity": "large" } }),
        ),
        of_restore(
            "spec.target",
            json!({ "pvc": { "name": "c", "accessModes": ["ReadOnlyMany"] } }),
        ),
    ]);
    list.extend([
        (
            "Repository",
            "spec.encryption.passwordSecretRef.namespace",
            Some(json!("elsewhere")),
        ),
        (
            "ClusterRepository",
            "spec.encryption.passwordSecretRef.namespace",
            None,
        ),
        ("ClusterRepository", "spec.allowedNamespaces.selector", None),
        (
            "ClusterRepository",
            "spec.allowedNamespaces.selector.matchExpressions",
            Some(json!([{ "key": "tier", "operator": "Exists", "values": ["gold"] }])),
        ),
        (
            "Repository",
            "spec.scheduleDefaults",
            Some(json!({ "jitter": "25h" })),
        ),
        (
            "Repository",
            "spec.moverDefaults",
            Some(json!({ "securityContext": { "runAsUser": 0 } })),
        ),
        (
            "Repository",
            "spec.moverDefaults",
            Some(json!({ "podSecurityContext": { "fsGroup": 0 } })),
        ),
        (
            "ClusterRepository",
            "spec.moverDefaults",
            Some(json!({ "securityContext": { "runAsGroup": 0 } })),
        ),
        (
            "ClusterRepository",
            "spec.moverDefaults",
            Some(json!({ "podSecurityContext": { "supplementalGroups": [0] } })),
        ),
        (
            "SnapshotPolicy",
            "spec.mover",
            Some(json!({ "securityContext": { "runAsGroup": 0 } })),
        ),
        (
            "SnapshotPolicy",
            "spec.mover",
            Some(json!({ "podSecurityContext": { "fsGroup": 0 } })),
        ),
        (
            "Restore",
            "spec.mover",
            Some(json!({ "securityContext": { "runAsGroup": 0 } })),
        ),
        (
            "Restore",
            "spec.mover",
            Some(json!({ "podSecurityContext": { "fsGroup": 0 } })),
        ),
        (
            "ClusterRepository",
            "spec.scheduleDefaults",
            Some(json!({ "jitter": "soon" })),
        ),
        (
            "ClusterRepository",
            "spec.allowedNamespaces",
            Some(json!({ "all": false })),
        ),
        ("SnapshotPolicy", "spec.repository", None),
        (
            "SnapshotPolicy",
            "spec.identity",
            Some(json!({ "username": "a@b" })),
        ),
        (
            "SnapshotPolicy",
            "spec.identity",
            Some(json!({ "hostname": "-a" })),
        ),
        (
            "SnapshotPolicy",
            "spec.credentialProjection",
            Some(json!({ "enabled": true })),
        ),
        (
            "SnapshotPolicy",
            "spec.repository",
            Some(json!({ "kind": "ClusterRepository", "name": "r", "namespace": "x" })),
        ),
        ("SnapshotPolicy", "spec.sources", Some(json!([claim(), claim()]))),
        ("SnapshotPolicy", "spec.copyMethod", Some(json!("Snapshot"))),
        ("SnapshotPolicy", "spec.sources", Some(json!([{}]))),
        ("SnapshotPolicy", "spec.sources[].readOnly", Some(json!(false))),
        (
            "SnapshotPolicy",
            "spec.retention",
            Some(json!({ "keepLatest": 0, "keepAnnual": 0 })),
        ),
        ("SnapshotSchedule", "spec.policyRef", None),
        (
            "SnapshotSchedule",
            "spec",
            Some(json!({
                "policySelector": { "matchExpressions": [{ "key": "tier", "operator": "In" }] },
                "schedule": { "cron": "0 3 * * *" },
            })),
        ),
        ("SnapshotSchedule", "spec.schedule.cron", Some(json!("0 3 * *"))),
        ("SnapshotSchedule", "spec.schedule.jitter", Some(json!("soon"))),
        ("Snapshot", "spec.tags", Some(json!({ "a:b": "c" }))),
        (
            "Maintenance",
            "spec.repository",
            Some(json!({ "kind": "ClusterRepository", "name": "r", "namespace": "x" })),
        ),
        ("Maintenance", "spec.schedule.quick.cron", Some(json!("0 3 * *"))),
        ("Maintenance", "spec.schedule.full.cron", Some(json!("0 3 * *"))),
        ("Maintenance", "spec.schedule.quick.jitter", Some(json!("soon"))),
        ("Maintenance", "spec.schedule.full.jitter", Some(json!("soon"))),
        ("Maintenance", "spec.ownership.owner", Some(json!("me"))),
    ]);
    list
}

#[tokio::test]
async fn every_rule_is_in_force_and_says_its_sentence() -> Result<()> {
    let Some(lab) = Lab::for_test("every_rule_is_in_force_and_says_its_sentence").await? else {
        return Ok(());
    };
    for (good, _, rules) in kinds() {
        let kind = good["kind"].as_str().unwrap_or_default().to_owned();
        let mut unbroken: BTreeSet<&str> = rules.iter().map(|r| r.message).collect();
        for (_, path, value) in breaches().into_iter().filter(|(of, ..)| *of == kind) {
            let bad = match value {
                Some(value) => with(&good, path, value),
                None => without(&good, path),
            };
            let said = lab
                .refusal(bad)
                .await?
                .with_context(|| format!("{kind} {path} was accepted"))?;
            let hit: Vec<&str> = unbroken.iter().copied().filter(|m| said.contains(*m)).collect();
            assert!(
                !hit.is_empty(),
                "{kind} {path} was refused by no rule of its own: {said}"
            );
            for message in hit {
                unbroken.remove(message);
            }
        }
        assert_eq!(
            unbroken,
            BTreeSet::new(),
            "{kind}: rules that no breach was refused by"
        );
    }
    Ok(())
}

#[tokio::test]
async fn values_out_of_range_are_refused_by_their_field() -> Result<()> {
    let Some(lab) = Lab::for_test("values_out_of_range_are_refused_by_their_field").await? else {
        return Ok(());
    };
    let repository = objects::repository(NS, "r", "claim", "secret", None);
    let policy = objects::policy(NS, "p", "r", "claim", Some(3));
    let schedule = objects::schedule(NS, "s", "p", false, None);
    let snapshot = objects::snapshot(NS, "s", "p");
    // Without an engine it is Kopia.
    let said = lab.refusal(without(&repository, "spec.engine")).await?;
    assert!(said.is_none(), "{said:?}");
    // A backend that no release knows is pruned; what is left is none.
    let said = lab
        .refusal(with(
            &repository,
            "spec.backend",
            json!({ "ftp": { "host": "h" } }),
        ))
        .await?;
    assert!(
        said.context("accepted")?
            .contains("spec.backend needs exactly one key")
    );
    for (good, path, value) in [
        (&repository, "spec.deletionProtection.threshold", json!(-1)),
        (
            &repository,
            "spec.deletionProtection.slidingWindow",
            json!({ "duration": "1h", "threshold": 0 }),
        ),
        (
            &repository,
            "spec.deletionProtection.slidingWindow",
            json!({ "duration": "2d", "threshold": 3 }),
        ),
        (
            &repository,
            "spec.deletionProtection.slidingWindow",
            json!({ "duration": "0s", "threshold": 3 }),
        ),
        (&schedule, "spec.failedJobsHistoryLimit", json!(-1)),
        (&repository, "spec.engine", json!("Borg")),
        (&repository, "spec.onNamespaceDelete", json!("Maybe")),
        (&repository, "spec.backend.filesystem.path", json!("relative")),
        (
            &repository,
            "spec.backend.filesystem.volume",
            json!({ "pvc": { "name": "claim" }, "nfs": { "server": "nas", "path": "/tank" } }),
        ),
        (
            &repository,
            "spec.backend.filesystem.volume",
            json!({ "nfs": { "server": "nas", "path": "relative" } }),
        ),
        (&policy, "spec.retention.keepDaily", json!(-1)),
        (
            &policy,
            "spec.retention",
            json!({ "keepLatest": 0, "keepAnnual": 0 }),
        ),
        (&policy, "spec.defaultDeletionPolicy", json!("Shred")),
        (&schedule, "spec.schedule.startingDeadlineSeconds", json!(-5)),
        (&schedule, "spec.deletion.onScheduleDelete", json!("Orphan")),
        (&snapshot, "spec.deletionPolicy", json!("Shred")),
        (&snapshot, "spec.failurePolicy.backoffLimit", json!(-1)),
    ] {
        let said = lab.refusal(with(good, path, value.clone())).await?;
        let said = said.with_context(|| format!("{path}: {value} was accepted"))?;
        assert!(said.contains(path), "{path}: {said}");
    }
    Ok(())
}

/// The page `docs/reference/manifests.md` is made of the same sentences.
#[tokio::test]
async fn manifests_as_people_write_them_are_accepted_or_refused_in_these_words() -> Result<()> {
    let test = "manifests_as_people_write_them_are_accepted_or_refused_in_these_words";
    let Some(lab) = Lab::for_test(test).await? else {
        return Ok(());
    };
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../api/tests/fixtures/kopia");
    let (mut accepted, mut refused) = (0, 0);
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        for document in std::fs::read_to_string(&path)?.split("\n---\n") {
            let mut object: Value = serde_saphyr::from_str(document)?;
            if !written::is_ours(&object) {
                continue;
            }
            if object["metadata"]["namespace"].is_string() {
                // Whether its namespace is there is not what is asked.
                object["metadata"]["namespace"] = json!(NS);
            }
            let foreseen = match written::refusals(&object) {
                Ok(refusals) => refusals,
                Err(written::Unreadable::NoSuchKind(_)) => {
                    assert!(lab.refusal(object).await?.is_some(), "{}", path.display());
                    continue;
                }
                Err(other) => anyhow::bail!("{}: {other}", path.display()),
            };
            let said = lab.refusal(object).await?;
            let Some(said) = said else {
                assert_eq!(foreseen, [], "{} was accepted", path.display());
                accepted += 1;
                continue;
            };
            assert!(!foreseen.is_empty(), "{} was refused: {said}", path.display());
            for sentence in foreseen {
                assert!(
                    said.contains(&sentence.0),
                    "{}: {sentence} is not in: {said}",
                    path.display()
                );
            }
            refused += 1;
        }
    }
    assert!(accepted + refused >= 10, "{accepted} accepted, {refused} refused");
    Ok(())
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_is_stalled_and_says_why() -> Result<()> {
    let Some(lab) = Lab::for_test("a_schedule_that_cannot_be_read_is_stalled_and_says_why").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "bad-cron", None).await?;
    let ns = &scenario.namespace;
    for (name, field, value) in [
        ("minute", "cron", "61 * * * *"),
        ("never", "cron", "0 0 30 2 *"),
        ("zone", "timezone", "Europe/Atlantis"),
    ] {
        let good = objects::schedule(ns, name, POLICY, false, None);
        lab.create(with(&good, &format!("spec.schedule.{field}"), json!(value)))
            .await?;
        let api: kube::Api<holdfast_api::SnapshotSchedule> = lab.api(ns);
        let said = until(
            &format!("schedule {name} to be Stalled"),
            Duration::from_secs(30),
            || async {
                let status = api.get(name).await?.status.unwrap_or_default();
                let condition = conditions::get(&status.conditions, conditions::STALLED).cloned();
                Ok(match condition.filter(|c| c.status == "True") {
                    Some(condition) => Look::Done(condition),
                    None => Look::Not(told(&status.conditions, conditions::READY)),
                })
            },
        )
        .await?;
        assert_eq!(said.reason, "InvalidSchedule");
        assert!(
            said.message.contains(&format!("spec.schedule.{field}")),
            "{}",
            said.message
        );
    }
    assert!(
        scenario.snapshots().await?.is_empty(),
        "an unreadable schedule made a Snapshot"
    );
    scenario.end().await
}
