//! What policies take over of a listing.

use super::adopt::{Claimant, Facts, Held};
use super::plan::{Bounds, Plan, Scan, plan};
use super::{adopted, row, tell};
use crate::protect::policy;
use crate::protect::wave::kept::LetGo;
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::shared::DeletionPolicy;
use holdfast_api::{ClusterRepository, Repository, SnapshotPolicy, conditions};
use holdfast_core::identity::Named;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::Arc;

mod doubt;

const BEGAN: i64 = 10_000_000;
const DAY: i64 = 86_400;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn spec() -> Value {
    json!({
        "engine": "Restic",
        "backend": { "filesystem": { "volume": { "pvc": { "name": "repo" } } } },
        "encryption": { "passwordSecretRef": { "name": "s" } },
    })
}

fn repository() -> RepositoryView {
    let object: Repository = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Repository",
        "metadata": { "name": "vault", "namespace": "a", "uid": "repo-uid" },
        "spec": spec(), "status": { "uniqueId": "unique", "phase": "Ready" },
    }))
    .unwrap();
    RepositoryView::namespaced(object)
}

fn shared() -> RepositoryView {
    let mut spec = spec();
    spec["allowedNamespaces"] = json!({ "all": true });
    let object: ClusterRepository = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "ClusterRepository",
        "metadata": { "name": "vault", "uid": "repo-uid" },
        "spec": spec, "status": { "uniqueId": "unique", "phase": "Ready" },
    }))
    .unwrap();
    RepositoryView::cluster(object)
}

/// The policy `p` of the namespace `a`, made a day before the listing.
fn claimant(edit: impl FnOnce(&mut Value)) -> Claimant {
    let mut object = json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
        "metadata": {
            "name": "p", "namespace": "a", "uid": "policy-uid", "generation": 2,
            "creationTimestamp": at(BEGAN - DAY).to_string(),
        },
        "spec": { "repository": { "name": "vault" }, "sources": [{ "pvc": { "name": "data" } }] },
    });
    edit(&mut object);
    let policy: SnapshotPolicy = serde_json::from_value(object).unwrap();
    let named = Named {
        username: policy.metadata.name.clone().unwrap(),
        hostname: policy.metadata.namespace.clone().unwrap(),
    };
    let claim = policy.spec.sources[0].pvc.as_ref().unwrap();
    Claimant {
        source: policy::source_of(&named, &claim.name),
        policy: Arc::new(policy),
        has: Vec::new(),
    }
}

/// Taken so many days before the listing, by this cluster.
fn listed(id: &str, days: i64) -> ListedSnapshot {
    ListedSnapshot {
        snapshot_id: id.into(),
        source: Source {
            username: "p".into(),
            hostname: "a".into(),
            path: "/pvc/data".into(),
        },
        start_time: at(BEGAN - days * DAY),
        size_bytes: Some(7),
        cluster: Some("here".into()),
        snapshot_uid: Some(format!("gone-{id}")),
        pinned: false,
        pin_is_ours: false,
    }
}

#[derive(Default)]
struct Given {
    claimants: Vec<Claimant>,
    snapshots: Vec<Arc<SnapshotView>>,
    let_go: LetGo,
    touched: HashSet<String>,
    watched: HashSet<String>,
    bounds: Bounds,
    incomplete: bool,
}

fn planned<'a>(listing: &'a [ListedSnapshot], given: &'a Given, repository: &'a RepositoryView) -> Plan<'a> {
    let scan = Scan {
        repository,
        unique_id: "unique",
        began: at(BEGAN),
        listing,
        snapshots: &given.snapshots,
        touched: &given.touched,
        bounds: given.bounds,
        watched: &given.watched,
        adoption: Facts {
            repository,
            claimants: &given.claimants,
            let_go: &given.let_go,
            incomplete: given.incomplete,
            cluster: "here",
            now: at(BEGAN),
        },
    };
    plan(&scan, |l| Some(l.source.hostname.clone()))
}

fn ids(plan: &Plan<'_>) -> Vec<String> {
    let adopt = plan.adopt.iter();
    adopt.map(|one| one.taken.listed.snapshot_id.clone()).collect()
}

/// Which of these are adopted by `p` alone.
fn adopts(listing: &[ListedSnapshot], claimants: Vec<Claimant>) -> Vec<String> {
    let given = Given {
        claimants,
        ..Given::default()
    };
    ids(&planned(listing, &given, &repository()))
}

fn remembered(id: &str, entry: Value) -> LetGo {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "m", "labels": { "kopiur.home-operations.com/kept-memory": crate::jobs::short_hash("unique") } },
        "data": { id: entry.to_string() },
    }))
    .unwrap();
    LetGo::read(vec![map], "unique")
}

fn snapshot_of(value: Value) -> Arc<SnapshotView> {
    Arc::new(serde_json::from_value(value).unwrap())
}

/// What was adopted, as the watch delivers it.
fn settled(repository: &RepositoryView, plan: &Plan<'_>) -> Vec<Arc<SnapshotView>> {
    let adopt = plan.adopt.iter();
    adopt
        .map(|one| {
            let mut value = serde_json::to_value(adopted::object(repository, &one.taken)).unwrap();
            value["metadata"]["uid"] = json!(format!("uid-{}", one.taken.listed.snapshot_id));
            value["metadata"]["creationTimestamp"] = json!(at(BEGAN).to_string());
            value["status"] = adopted::status(repository, &one.taken, Some(1), at(BEGAN));
            snapshot_of(value)
        })
        .collect()
}

#[test]
fn what_is_of_exactly_a_policys_source_becomes_its_snapshot() {
    let other = |change: fn(&mut Source)| {
        let mut one = listed("other", 3);
        change(&mut one.source);
        one
    };
    let listing = [
        listed("mine", 3),
        other(|s| s.username = "q".into()),
        other(|s| s.hostname = "b".into()),
        other(|s| s.path = "/pvc/data/".into()),
    ];
    let repository = repository();
    let given = Given {
        claimants: vec![claimant(|_| {})],
        ..Given::default()
    };
    let plan = planned(&listing, &given, &repository);
    assert_eq!(ids(&plan), ["mine"]);
    assert_eq!(plan.create.len(), 1, "the others are of one id here, and shown");
    let object = adopted::object(&repository, &plan.adopt[0].taken);
    assert_eq!(object.spec.policy_ref.as_ref().unwrap().name, "p");
    assert_eq!(object.spec.deletion_policy, Some(DeletionPolicy::Delete));
    assert!(!object.spec.pin);
    let meta = &object.metadata;
    let labels = meta.labels.as_ref().unwrap();
    assert_eq!(labels["kopiur.home-operations.com/origin"], "adopted");
    assert_eq!(labels["kopiur.home-operations.com/config"], "p");
    assert_eq!(meta.finalizers.as_ref().unwrap().len(), 1);
    let name = meta.name.as_deref().unwrap();
    assert!(name.starts_with("p-1970") && name.len() <= 63, "{name}");
    assert_ne!(name, row::name(&repository, "mine"));
    // Retention and the wave see it as one of the policy's own.
    let view = &settled(&repository, &plan)[0];
    let counted = policy::counted(std::slice::from_ref(view), at(BEGAN));
    assert_eq!(counted.len(), 1);
    assert_eq!(counted[0].ended_at, at(BEGAN - 3 * DAY));
    assert_eq!(view.pinned_unique_id(), Some("unique"));
    assert_eq!(view.pin(), Some(repository.key.clone()));
    assert_eq!(view.policy(), Some(ObjectKey::new("a", "p")));
}

#[test]
fn another_clusters_and_what_is_decided_elsewhere_is_left_alone() {
    let mut foreign = listed("foreign", 3);
    foreign.cluster = Some("elsewhere".into());
    let mut untagged = listed("untagged", 3);
    (untagged.cluster, untagged.snapshot_uid) = (None, None);
    let listing = [
        foreign,
        untagged,
        listed("came-back", 3),
        listed("touched", 3),
        listed("recorded", 3),
        listed("going", 3),
    ];
    let object = |id: &str, going: bool| {
        let mut value = json!({
            "metadata": { "name": id, "namespace": "a", "uid": format!("u-{id}") },
            "spec": { "policyRef": { "name": "p" } },
            "status": { "phase": "Succeeded", "origin": "manual", "snapshot": { "kopiaSnapshotID": id } },
        });
        if going {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        snapshot_of(value)
    };
    let given = Given {
        claimants: vec![claimant(|_| {})],
        snapshots: vec![object("recorded", false), object("going", true)],
        touched: HashSet::from(["touched".to_owned()]),
        watched: HashSet::from(["came-back".to_owned()]),
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert_eq!(ids(&plan), ["untagged"]);
    assert_eq!(plan.uncertain, 1);
    let rows: Vec<&str> = plan.create.iter().map(|(_, l)| l.snapshot_id.as_str()).collect();
    assert_eq!(rows, ["foreign"]);
}

#[test]
fn what_was_let_go_under_a_policy_is_not_taken_back_by_it() {
    // Taken for an object here since the policy was made: that object is gone, and nobody knows why.
    let (before, since) = (listed("before", 2), listed("since", 0));
    let listing = [before, since];
    assert_eq!(adopts(&listing, vec![claimant(|_| {})]), ["before"]);
    let made_again = claimant(|p| p["metadata"]["creationTimestamp"] = json!(at(BEGAN + 1).to_string()));
    assert_eq!(adopts(&listing, vec![made_again]), ["before", "since"]);
    let of_unknown_age = claimant(|p| p["metadata"]["creationTimestamp"] = Value::Null);
    assert!(adopts(&listing, vec![of_unknown_age]).is_empty());

    // Remembered: of this policy, and of another one of the same name.
    let entry = |under: &str| json!({ "policy": "Delete", "under": under, "of": "x" });
    for (under, taken) in [("policy-uid", false), ("an-earlier-one", true)] {
        let given = Given {
            claimants: vec![claimant(|_| {})],
            let_go: remembered("before", entry(under)),
            ..Given::default()
        };
        let repository = repository();
        let plan = planned(&listing[..1], &given, &repository);
        assert_eq!(!ids(&plan).is_empty(), taken, "{under}");
    }
}

#[test]
fn where_not_everything_is_remembered_nothing_is_adopted() {
    let listing = [listed("x", 3), listed("known", 4)];
    let given = Given {
        claimants: vec![claimant(|_| {})],
        let_go: remembered("known", json!({ "policy": "Delete", "of": "x" })),
        incomplete: true,
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert!(plan.adopt.is_empty());
    assert_eq!(plan.create.len(), 2, "they are shown");
}

#[test]
fn what_a_program_that_is_still_at_work_takes_is_never_adopted() {
    let foreign = |id: &str, days| ListedSnapshot {
        cluster: None,
        snapshot_uid: None,
        ..listed(id, days)
    };
    let listing = [foreign("before", 2), foreign("at-once", 1), foreign("since", 0)];
    assert_eq!(adopts(&listing, vec![claimant(|_| {})]), ["before"]);
    let of_unknown_age = claimant(|p| p["metadata"]["creationTimestamp"] = Value::Null);
    assert!(adopts(&listing, vec![of_unknown_age]).is_empty());
}

#[test]
fn what_an_object_records_under_another_id_is_not_taken_twice() {
    let object = |change: fn(&mut Value)| {
        let mut value = json!({
            "metadata": {
                "name": "own", "namespace": "a", "uid": "own",
                "labels": { "kopiur.home-operations.com/origin": "adopted" },
            },
            "spec": { "policyRef": { "name": "p" } },
            "status": {
                "phase": "Succeeded", "origin": "adopted",
                "snapshot": {
                    "kopiaSnapshotID": "before-it-was-pinned",
                    "identity": { "username": "p", "hostname": "a", "sourcePath": "/pvc/data" },
                },
                "timing": { "startTime": at(BEGAN - 3 * DAY).to_string() },
                "resolved": { "repository": { "name": "vault", "namespace": "a" }, "uniqueId": "unique" },
            },
        });
        change(&mut value);
        snapshot_of(value)
    };
    let listing = [listed("renamed", 3)];
    for (change, taken) in [
        ((|_| {}) as fn(&mut Value), false),
        (
            |v| v["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"),
            false,
        ),
        // Of another repository, of another source, of another moment.
        (|v| v["status"]["resolved"]["uniqueId"] = json!("other"), true),
        (
            |v| v["status"]["snapshot"]["identity"]["sourcePath"] = json!("/pvc/x"),
            true,
        ),
        (
            |v| v["status"]["timing"]["startTime"] = json!(at(BEGAN - 4 * DAY).to_string()),
            true,
        ),
    ] {
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: vec![object(change)],
            ..Given::default()
        };
        let repository = repository();
        let plan = planned(&listing, &given, &repository);
        assert_eq!(!plan.adopt.is_empty(), taken);
        assert!(plan.create.is_empty(), "no row either");
    }
}

#[test]
fn what_was_retained_or_pinned_stays_so() {
    let listing = [listed("x", 3)];
    for (policy, pinned, given_policy, becomes) in [
        ("Retain", false, "Delete", DeletionPolicy::Retain),
        ("Orphan", true, "Delete", DeletionPolicy::Orphan),
        ("Delete", true, "Delete", DeletionPolicy::Delete),
        ("Delete", false, "Retain", DeletionPolicy::Retain),
    ] {
        let given = Given {
            claimants: vec![claimant(|p| {
                p["spec"]["defaultDeletionPolicy"] = json!(given_policy)
            })],
            let_go: remembered("x", json!({ "policy": policy, "pinned": pinned, "of": "x" })),
            ..Given::default()
        };
        let repository = repository();
        let plan = planned(&listing, &given, &repository);
        let object = adopted::object(&repository, &plan.adopt[0].taken);
        assert_eq!(object.spec.deletion_policy, Some(becomes), "{policy} {pinned}");
        assert_eq!(object.spec.pin, pinned);
    }
    // Pinned in the repository itself, by another program, retention never lets it go.
    let mut pinned: Vec<ListedSnapshot> = (2..6).map(|n| listed(&format!("s{n}"), n)).collect();
    pinned[3].pinned = true;
    let keeps = claimant(|p| {
        p["spec"]["retention"] = json!({ "keepLatest": 1 });
        p["spec"]["defaultDeletionPolicy"] = json!("Retain");
    });
    assert_eq!(adopts(&pinned, vec![keeps]), ["s2", "s5"]);
    let given = Given {
        claimants: vec![claimant(|_| {})],
        let_go: remembered("x", json!("what a newer release wrote")),
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    let taken = &plan.adopt[0].taken;
    assert_eq!((taken.gives, taken.pinned), (DeletionPolicy::Retain, true));
}

#[test]
fn in_a_shared_repository_a_policy_takes_nothing_of_another_namespace() {
    let mut theirs = listed("theirs", 3);
    theirs.source.hostname = "b".into();
    let listing = [listed("mine", 3), theirs.clone()];
    let given = Given {
        // As if it called itself like the other namespace.
        claimants: vec![
            claimant(|_| {}),
            Claimant {
                source: theirs.source,
                ..claimant(|p| p["metadata"]["name"] = json!("q"))
            },
        ],
        ..Given::default()
    };
    assert_eq!(ids(&planned(&listing, &given, &shared())), ["mine"]);
}

#[test]
fn what_two_policies_claim_is_adopted_by_neither_and_both_are_told_of_the_other() {
    let listing = [listed("x", 3), listed("y", 4)];
    let twin = Claimant {
        source: listing[0].source.clone(),
        ..claimant(|p| p["metadata"]["name"] = json!("twin"))
    };
    let given = Given {
        claimants: vec![claimant(|_| {}), twin],
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert!(plan.adopt.is_empty());
    assert_eq!(plan.create.len(), 2, "they stay rows");
    let others: Vec<Vec<&str>> = plan
        .told
        .iter()
        .map(|told| told.contested_with.iter().map(String::as_str).collect())
        .collect();
    assert_eq!(others, [["a/twin"], ["a/p"]]);

    // Said once, and taken back once.
    let told = &plan.told[0];
    let once = tell::said(told.policy.status.clone().unwrap_or_default(), told, at(BEGAN));
    assert!(conditions::is_true(&once.conditions, "AdoptionContested"));
    let message = &once.conditions[0].message;
    assert!(
        message.contains("a/twin") && message.contains("spec.adoption: Ignore"),
        "{message}"
    );
    assert_eq!(tell::said(once.clone(), told, at(BEGAN + 60)), once);
    let alone = Given {
        claimants: vec![claimant(|_| {})],
        ..Given::default()
    };
    let plan = planned(&listing, &alone, &repository);
    assert_eq!(plan.adopt.len(), 2);
    let over = tell::said(once, &plan.told[0], at(BEGAN + 60));
    assert!(!conditions::is_true(&over.conditions, "AdoptionContested"));
    assert_eq!(tell::said(over.clone(), &plan.told[0], at(BEGAN + 90)), over);
}

#[test]
fn what_retention_would_let_go_at_once_is_left_alone_whatever_becomes_of_its_data() {
    let listing: Vec<ListedSnapshot> = (2..12).map(|n| listed(&format!("s{n}"), n)).collect();
    let keeps = |policy: &str| {
        let policy = policy.to_owned();
        claimant(move |p| {
            p["spec"]["retention"] = json!({ "keepLatest": 3 });
            p["spec"]["defaultDeletionPolicy"] = json!(policy);
        })
    };
    for policy in ["Retain", "Orphan", "Delete"] {
        let given = Given {
            claimants: vec![keeps(policy)],
            ..Given::default()
        };
        let repository = repository();
        let plan = planned(&listing, &given, &repository);
        assert_eq!(ids(&plan), ["s2", "s3", "s4"], "{policy}");
        assert_eq!(plan.told[0].skipped, 7);
        assert_eq!(plan.create.len(), 7);
        // What retention does with the policy's own is what decides: three newer ones leave no place.
        let mut claimant = keeps(policy);
        let newer = settled(&repository, &plan).into_iter().map(|one| {
            let mut value = serde_json::to_value(one.as_ref()).unwrap();
            let id = format!("newer-{}", one.snapshot_id().unwrap());
            value["status"]["snapshot"]["kopiaSnapshotID"] = json!(id);
            value["status"]["timing"]["endTime"] = json!(at(BEGAN).to_string());
            snapshot_of(value)
        });
        claimant.has = newer.collect();
        let given = Given {
            claimants: vec![claimant],
            ..Given::default()
        };
        assert!(ids(&planned(&listing, &given, &repository)).is_empty());
    }
    // What a guard kept although it said Delete comes back as nothing that a prune takes at once.
    let given = Given {
        claimants: vec![keeps("Delete")],
        let_go: remembered("s9", json!({ "policy": "Delete", "of": "x" })),
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert_eq!((plan.adopt.len(), plan.told[0].skipped), (3, 7));
}

#[test]
fn a_row_goes_with_its_adoption_and_what_was_begun_is_completed() {
    let listing = [listed("x", 3)];
    let repository = repository();
    let key = ObjectKey::new("a", row::name(&repository, "x"));
    let mut value = serde_json::to_value(row::object(&repository, &key, &listing[0])).unwrap();
    value["metadata"]["uid"] = json!("row");
    value["metadata"]["creationTimestamp"] = json!(at(BEGAN - 100).to_string());
    let half = value.clone();
    value["status"] = row::status(&repository, &listing[0], "here", Some(1), at(BEGAN - 99));
    for row in [value, half] {
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: vec![snapshot_of(row.clone())],
            ..Given::default()
        };
        let plan = planned(&listing, &given, &repository);
        assert_eq!(plan.adopt[0].row.as_ref().unwrap().uid(), "row");
        assert!(plan.remove.is_empty() && plan.kept == 0 && plan.complete.is_empty());

        // Between the object and its status.
        let mut begun = serde_json::to_value(adopted::object(&repository, &plan.adopt[0].taken)).unwrap();
        begun["metadata"]["uid"] = json!("begun");
        begun["status"] = json!({ "conditions": [{
            "type": "StatusLost", "status": "True", "reason": "StatusLost", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] });
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: vec![snapshot_of(row.clone()), snapshot_of(begun)],
            ..Given::default()
        };
        let again = planned(&listing, &given, &repository);
        assert_eq!(again.adopt[0].begun.as_ref().unwrap().uid(), "begun");

        // Between the status and the row.
        let mut all = settled(&repository, &plan);
        all.push(snapshot_of(row));
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: all,
            ..Given::default()
        };
        let last = planned(&listing, &given, &repository);
        assert!(last.adopt.is_empty() && last.create.is_empty());
        assert_eq!(last.remove.len(), 1, "the row is not left behind");
    }
}

#[test]
fn what_is_not_shown_is_adopted_all_the_same_and_takes_no_place() {
    let mut other = listed("other", 4);
    other.source.username = "q".into();
    let listing = [listed("x", 3), other];
    let given = Given {
        claimants: vec![claimant(|_| {})],
        bounds: Bounds {
            per_identity: Some(0),
            oldest: None,
        },
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert_eq!((ids(&plan), plan.not_shown), (vec!["x".to_owned()], 1));
}
