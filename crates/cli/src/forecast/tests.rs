//! Forecasts over clusters built by hand.

use super::*;
use crate::cluster::Cluster;
use holdfast_api::{ClusterRepository, Repository, SnapshotPolicy, SnapshotSchedule, names};
use holdfast_operator::world::keys::{ObjectKey, RepositoryKey};
use holdfast_operator::world::views::RepositoryView;
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T03:04:05Z";

pub fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A namespace `a` with policy `p` and repository `main` (threshold 10) in it.
pub fn cluster() -> Cluster {
    let policy: SnapshotPolicy = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
        "metadata": { "namespace": "a", "name": "p", "uid": "policy" },
        "spec": { "repository": { "name": "main" }, "sources": [{ "pvc": { "name": "data" } }] },
    }))
    .unwrap();
    Cluster {
        repositories: vec![repository("main", |_| {})],
        policies: vec![policy],
        namespaces: [("a", false), ("holdfast-system", false)]
            .map(|(name, going)| (name.to_owned(), going))
            .into(),
        home: "holdfast-system".into(),
        paused: Some(false),
        ..Cluster::default()
    }
}

fn spec() -> Value {
    json!({
        "engine": "Restic",
        "backend": { "filesystem": { "volume": { "pvc": { "name": "x" } } } },
        "encryption": { "passwordSecretRef": { "name": "x" } },
    })
}

fn repository(name: &str, change: impl FnOnce(&mut Value)) -> RepositoryView {
    let mut object = json!({
        "apiVersion": names::API_VERSION, "kind": "Repository",
        "metadata": { "namespace": "a", "name": name, "uid": format!("repository-{name}"), "annotations": {} },
        "spec": spec(),
        "status": { "uniqueId": format!("id-{name}") },
    });
    change(&mut object);
    RepositoryView::namespaced(serde_json::from_value::<Repository>(object).unwrap())
}

/// A ClusterRepository `shared`.
fn shared(on_namespace_delete: &str) -> RepositoryView {
    let mut spec = spec();
    spec["onNamespaceDelete"] = json!(on_namespace_delete);
    spec["encryption"]["passwordSecretRef"]["namespace"] = json!("holdfast-system");
    spec["allowedNamespaces"] = json!({ "all": true });
    let object: ClusterRepository = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "ClusterRepository",
        "metadata": { "name": "shared", "uid": "repository-shared" },
        "spec": spec,
        "status": { "uniqueId": "id-shared" },
    }))
    .unwrap();
    let mut view = RepositoryView::cluster(object);
    view.refusals.clear();
    view
}

fn schedule(name: &str, on_delete: &str) -> SnapshotSchedule {
    serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotSchedule",
        "metadata": { "namespace": "a", "name": name, "uid": name },
        "spec": {
            "policyRef": { "name": "p" }, "schedule": { "cron": "0 * * * *" },
            "deletion": { "onScheduleDelete": on_delete },
        },
    }))
    .unwrap()
}

/// A Snapshot of repository `main` with 1 KiB.
pub fn snapshot(name: &str, change: impl FnOnce(&mut Value)) -> holdfast_api::Snapshot {
    let mut object = json!({
        "apiVersion": names::API_VERSION, "kind": "Snapshot",
        "metadata": {
            "namespace": "a", "name": name, "uid": format!("uid-{name}"), "finalizers": [names::FINALIZER],
            "annotations": {}, "labels": {},
        },
        "spec": { "policyRef": { "name": "p" } },
        "status": {
            "phase": "Succeeded",
            "snapshot": {
                "kopiaSnapshotID": format!("id-{name}"),
                "identity": { "username": "p", "hostname": "a", "sourcePath": "/data" },
            },
            "timing": { "startTime": "2026-01-01T00:00:00Z" },
            "stats": { "sizeBytes": 1024 },
            "resolved": { "repository": { "kind": "Repository", "name": "main", "namespace": "a" }, "uniqueId": "id-main" },
        },
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

fn owned(by: &str, on_delete: &str) -> impl FnOnce(&mut Value) {
    let owner = json!([{ "apiVersion": names::API_VERSION, "kind": "SnapshotSchedule", "name": by, "uid": by,
        "controller": true, "blockOwnerDeletion": false }]);
    let on_delete = on_delete.to_owned();
    move |object| {
        object["metadata"]["ownerReferences"] = owner;
        object["spec"]["onScheduleDelete"] = json!(on_delete);
    }
}

fn pinned_to_shared(object: &mut Value) {
    object["status"]["resolved"] =
        json!({ "repository": { "kind": "ClusterRepository", "name": "shared" }, "uniqueId": "id-shared" });
}

pub fn nightly(count: usize, on_delete: &str) -> Cluster {
    let mut all = cluster();
    all.schedules.push(schedule("nightly", on_delete));
    all.snapshots = (0..count)
        .map(|n| snapshot(&format!("s{n:02}"), owned("nightly", on_delete)))
        .collect();
    all
}

fn of(cluster: Cluster, what: &str) -> Forecast {
    forecast(cluster, &Target::parse(what, "a").unwrap(), now()).unwrap()
}

/// `(outcome, count, reason, rule)` of everything that the deletion deletes.
fn rows(found: &Forecast) -> Vec<(Outcome, usize, &str, u8)> {
    let all = found.repositories.iter().flat_map(|part| &part.asked);
    all.map(|row| (row.outcome, row.count, row.reason, row.rule))
        .collect()
}

#[test]
fn a_schedule_with_retain_keeps_everything() {
    let found = of(nightly(12, "Retain"), "snapshotschedule/nightly");
    assert_eq!(found.snapshots, 12);
    assert_eq!(rows(&found), [(Outcome::Kept, 12, "RetainOnScheduleDelete", 6)]);
    let row = &found.repositories[0].asked[0];
    assert_eq!((row.bytes, row.unknown_size), (12 * 1024, 0));
    assert!(
        row.message.contains("is gone, and onScheduleDelete is Retain"),
        "{}",
        row.message
    );
    assert_eq!(found.repositories[0].to_release, None);
}

#[test]
fn a_schedule_with_delete_is_held_at_the_threshold_and_deleted_below() {
    let found = of(nightly(10, "Delete"), "kopiasched/nightly");
    assert_eq!(rows(&found), [(Outcome::Held, 10, "MassDeletionBreaker", 9)]);
    let part = &found.repositories[0];
    assert_eq!((part.threshold, part.pending), (Some(10), 10));
    let release = part.to_release.clone().unwrap();
    assert!(
        release.contains("kubectl holdfast release repository/main -n a"),
        "{release}"
    );
    assert!(
        !part.asked[0].message.contains("kubectl"),
        "no command with a time that never was"
    );

    let found = of(nightly(9, "Delete"), "kopiasched/nightly");
    assert_eq!(rows(&found), [(Outcome::Deleted, 9, "BelowThreshold", 9)]);
}

#[test]
fn a_snapshot_by_hand_is_deleted_and_those_pending_count_with_it() {
    let found = of(nightly(12, "Delete"), "snapshot/s00");
    assert_eq!(rows(&found), [(Outcome::Deleted, 1, "BelowThreshold", 9)]);
    assert_eq!(found.totals["deleted"], 1);

    let mut busy = nightly(12, "Delete");
    for pending in &mut busy.snapshots[1..10] {
        pending.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    }
    let found = of(busy, "snapshot/s00");
    assert_eq!(rows(&found), [(Outcome::Held, 1, "MassDeletionBreaker", 9)]);
    let already = &found.repositories[0].already;
    assert_eq!((already[0].outcome, already[0].count), (Outcome::Held, 9));
}

#[test]
fn a_namespace_under_orphan_keeps_everything_and_under_delete_meets_the_breaker() {
    let with = |on_namespace_delete: &str| {
        let mut all = cluster();
        all.repositories.push(shared(on_namespace_delete));
        all.snapshots = (0..12)
            .map(|n| snapshot(&format!("s{n:02}"), pinned_to_shared))
            .collect();
        all
    };
    let found = of(with("Orphan"), "namespace/a");
    assert_eq!(rows(&found), [(Outcome::Kept, 12, "NamespaceTerminating", 4)]);
    let found = of(with("Delete"), "namespace/a");
    assert_eq!(rows(&found), [(Outcome::Held, 12, "MassDeletionBreaker", 9)]);
    // A repository in the same namespace goes with it.
    let found = of(nightly(12, "Delete"), "ns/a");
    assert_eq!(rows(&found), [(Outcome::Kept, 12, "NamespaceTerminating", 4)]);
    let volume = |note: &String| note.contains("lies on the claim x of this namespace");
    assert!(found.notes.iter().any(volume), "{:?}", found.notes);
}

#[test]
fn every_snapshot_has_its_own_reason() {
    let mut all = nightly(3, "Delete");
    all.snapshots.extend([
        snapshot("skip", |s| {
            s["metadata"]["annotations"][names::SKIP_SNAPSHOT_CLEANUP] = json!("");
            owned("nightly", "Delete")(s);
        }),
        snapshot("retain", |s| {
            s["spec"]["deletionPolicy"] = json!("Retain");
            owned("nightly", "Delete")(s);
        }),
        snapshot("cascade", owned("nightly", "Retain")),
        snapshot("empty", |s| {
            s["status"] = json!({ "phase": "Failed" });
            owned("nightly", "Delete")(s);
        }),
        snapshot("naked", |s| {
            s["metadata"]["finalizers"] = json!([]);
            owned("nightly", "Delete")(s);
        }),
        snapshot("other", owned("weekly", "Delete")),
    ]);
    let found = of(all, "snapshotschedule/nightly");
    assert_eq!(found.snapshots, 8);
    let mut found_rows = rows(&found);
    found_rows.sort_unstable();
    let mut wanted = vec![
        // The one that still carries Retain is told what the schedule says before it goes.
        (Outcome::Deleted, 4, "BelowThreshold", 9),
        (Outcome::Kept, 1, "SkipSnapshotCleanup", 1),
        (Outcome::Kept, 1, "RetainPolicy", 7),
        (Outcome::Kept, 1, "NothingRecorded", 3),
    ];
    wanted.sort_unstable();
    assert_eq!(found_rows, wanted);
    assert!(
        found
            .notes
            .iter()
            .any(|note| note.starts_with("1 Snapshots do not carry")),
        "{:?}",
        found.notes
    );
}

#[test]
fn a_policy_takes_its_snapshots_with_it_but_not_their_data_and_a_repository_neither() {
    let found = of(nightly(3, "Delete"), "snapshotpolicy/p");
    assert_eq!(found.snapshots, 3);
    assert_eq!(rows(&found), [(Outcome::Kept, 3, "RetainOnPolicyDelete", 5)]);
    let mut all = nightly(3, "Delete");
    all.snapshots[0].metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let found = of(all, "repository/main");
    assert_eq!(found.snapshots, 0);
    let already = &found.repositories[0].already;
    assert_eq!(
        (already[0].outcome, already[0].reason),
        (Outcome::Kept, "RepositoryUnknown")
    );
    assert!(
        found.notes[0].contains("2 Snapshots that are not being deleted"),
        "{:?}",
        found.notes
    );
}

#[test]
fn what_cannot_be_read_is_unknown_never_absent() {
    let mut all = nightly(2, "Retain");
    all.schedules.clear();
    all.unread.schedules.insert(ObjectKey::new("a", "nightly"));
    let found = of(all, "snapshot/s00");
    assert_eq!(rows(&found), [(Outcome::Unknown, 1, "OwnerUnknown", 6)]);

    let mut all = nightly(2, "Delete");
    let main = all.repositories.pop().unwrap();
    all.unread.repositories.insert(main.key);
    let found = of(all, "snapshotschedule/nightly");
    assert_eq!(rows(&found), [(Outcome::Unknown, 2, "RepositoryUnreadable", 8)]);

    let mut all = nightly(2, "Delete");
    all.namespaces.remove("a");
    let found = of(all, "snapshotschedule/nightly");
    assert!(found.totals["unknown"] == 2, "{found:?}");
}

#[test]
fn a_wave_that_cannot_be_seen_whole_is_held_for_certain_or_unknown() {
    let seen_in_part = |count: usize| {
        let mut all = cluster();
        all.repositories.push(shared("Orphan"));
        all.schedules.push(schedule("nightly", "Delete"));
        all.snapshots = (0..count)
            .map(|n| {
                snapshot(&format!("s{n:02}"), |s| {
                    owned("nightly", "Delete")(s);
                    pinned_to_shared(s);
                })
            })
            .collect();
        all.only = Some(["a".to_owned()].into());
        of(all, "snapshotschedule/nightly")
    };
    let found = seen_in_part(4);
    assert_eq!(rows(&found), [(Outcome::Unknown, 4, "BelowThreshold", 9)]);
    let part = &found.repositories[0];
    assert!(part.at_least, "{part:?}");
    assert!(
        part.asked[0].message.contains("fewer than 6 others"),
        "{}",
        part.asked[0].message
    );
    assert_eq!(rows(&seen_in_part(10))[0].0, Outcome::Held);
}

#[test]
fn what_stops_deletions_is_told_as_waiting() {
    let mut paused = nightly(2, "Delete");
    paused.paused = Some(true);
    assert_eq!(
        rows(&of(paused, "snapshotschedule/nightly")),
        [(Outcome::Waits, 2, "DeletionsPaused", 9)]
    );
    let mut suspended = nightly(2, "Delete");
    suspended.repositories[0].spec.suspend = true;
    assert_eq!(
        rows(&of(suspended, "snapshotschedule/nightly"))[0].2,
        "RepositorySuspended"
    );
}

#[test]
fn an_acknowledgement_of_before_does_not_cover_what_comes_after() {
    for written in ["2026-01-02T03:04:04Z", "2030-01-01T00:00:00Z"] {
        let mut all = nightly(12, "Delete");
        all.repositories = vec![repository("main", |r| {
            r["metadata"]["annotations"][names::ALLOW_MASS_DELETION] = json!(written);
        })];
        // Seen a second before the deletion.
        let target = Target::parse("snapshotschedule/nightly", "a").unwrap();
        all.record("2026-01-02T03:04:03Z".parse().unwrap()).unwrap();
        let found = forecast(all, &target, now()).unwrap();
        assert_eq!(rows(&found)[0].0, Outcome::Held, "{written}");
    }
}

#[test]
fn only_what_is_there_can_be_deleted() {
    let target = |what| Target::parse(what, "a").unwrap();
    for what in [
        "snapshot/none",
        "namespace/none",
        "clusterrepository/none",
        "snapshotpolicy/none",
    ] {
        let error = forecast(cluster(), &target(what), now()).unwrap_err();
        assert!(error.to_string().contains("there is no"), "{error}");
    }
    let mut all = nightly(1, "Delete");
    all.snapshots[0].metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let error = forecast(all, &target("snapshot/s00"), now()).unwrap_err();
    assert!(error.to_string().contains("already being deleted"), "{error}");
    assert_eq!(
        cluster().repositories[0].key,
        RepositoryKey::Repository {
            namespace: "a".into(),
            name: "main".into()
        }
    );
}

#[test]
fn people_and_programs_are_told_the_same() {
    let found = of(nightly(12, "Delete"), "snapshotschedule/nightly");
    let text = render::table(&found, Style::PLAIN);
    for part in [
        "If snapshotschedule a/nightly were deleted now, 12 Snapshots would be deleted with it: 12 held.\n",
        "repository a/main: threshold 10, 12 pending deletions would count\n",
        "12.0 KiB",
        "9 MassDeletionBreaker",
        "MassDeletionBreaker: 12 deletions are pending on repository a/main, the threshold is 10.",
        "Somebody with the verb acknowledge on repository a/main would have to run",
        "Nothing was changed.",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    let json: Value = serde_json::from_str(&render::json(&found).unwrap()).unwrap();
    assert_eq!(json["totals"]["held"], 12);
    assert_eq!(
        json["repositories"][0]["asked"][0]["reason"],
        "MassDeletionBreaker"
    );
    assert_eq!(json["repositories"][0]["asked"][0]["snapshots"][0], "a/s00");
}
