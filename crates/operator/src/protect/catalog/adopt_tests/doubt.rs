//! What is kept by a word of a person, and what is not known.

use super::*;

/// The row of a snapshot, made before the listing.
fn row_of(repository: &RepositoryView, id: &str, edit: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
    let one = listed(id, 3);
    let key = ObjectKey::new("a", row::name(repository, id));
    let mut value = serde_json::to_value(row::object(repository, &key, &one)).unwrap();
    value["metadata"]["uid"] = json!(format!("row-{id}"));
    value["metadata"]["creationTimestamp"] = json!(at(BEGAN - DAY).to_string());
    value["status"] = row::status(repository, &one, "here", Some(1), at(BEGAN - DAY));
    edit(&mut value);
    snapshot_of(value)
}

const SKIP: &str = "kopiur.home-operations.com/skip-snapshot-cleanup";

#[test]
fn what_a_person_wrote_on_a_row_goes_along() {
    let repository = repository();
    for (edit, says) in [
        ((|_| {}) as fn(&mut Value), (DeletionPolicy::Delete, false)),
        (|r| r["spec"]["pin"] = json!(true), (DeletionPolicy::Delete, true)),
        (
            |r| r["metadata"]["annotations"] = json!({ SKIP: "" }),
            (DeletionPolicy::Retain, false),
        ),
        // Its first status was never written.
        (
            |r| {
                r["spec"]["pin"] = json!(true);
                r.as_object_mut().unwrap().remove("status");
            },
            (DeletionPolicy::Delete, true),
        ),
    ] {
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: vec![row_of(&repository, "x", edit)],
            ..Given::default()
        };
        let listing = [listed("x", 3)];
        let plan = planned(&listing, &given, &repository);
        let taken = &plan.adopt[0].taken;
        assert_eq!((taken.gives, taken.pinned), says);
    }
    // Retention would let it go at once, were it not pinned.
    let given = Given {
        claimants: vec![claimant(|p| p["spec"]["retention"] = json!({ "keepLatest": 1 }))],
        snapshots: vec![row_of(&repository, "old", |r| r["spec"]["pin"] = json!(true))],
        ..Given::default()
    };
    let listing = [listed("new", 2), listed("old", 3), listed("older", 4)];
    assert_eq!(ids(&planned(&listing, &given, &repository)), ["new", "old"]);
}

/// An object of the policy that records another id, edited.
fn object(edit: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
    let mut value = json!({
        "metadata": {
            "name": "own", "namespace": "a", "uid": "own",
            "labels": { "kopiur.home-operations.com/origin": "scheduled" },
        },
        "spec": { "policyRef": { "name": "p" }, "deletionPolicy": "Retain", "pin": true },
        "status": {
            "phase": "Succeeded", "origin": "scheduled",
            "snapshot": {
                "kopiaSnapshotID": "before-it-was-pinned",
                "identity": { "username": "p", "hostname": "a", "sourcePath": "/pvc/data" },
            },
            "timing": { "startTime": at(BEGAN - 3 * DAY).to_string() },
            "resolved": { "repository": { "name": "vault", "namespace": "a" }, "uniqueId": "unique" },
        },
    });
    edit(&mut value);
    snapshot_of(value)
}

#[test]
fn what_an_object_records_in_whole_seconds_is_not_taken_twice() {
    let mut renamed = listed("renamed", 3);
    renamed.start_time = at(BEGAN - 3 * DAY) + jiff::SignedDuration::from_millis(123);
    let listing = [renamed];
    let given = Given {
        claimants: vec![claimant(|_| {})],
        snapshots: vec![object(|_| {})],
        ..Given::default()
    };
    let repository = repository();
    let plan = planned(&listing, &given, &repository);
    assert!(plan.adopt.is_empty() && plan.create.is_empty());
    assert_eq!(plan.told[0].held, None, "it is known whose it is");
}

#[test]
fn while_it_is_not_known_which_snapshot_is_an_objects_its_policy_adopts_nothing() {
    let key = ObjectKey::new("a", "own");
    let listing = [listed("x", 5), listed("y", 6)];
    let repository = repository();
    let lost = json!([{
        "type": "StatusLost", "status": "True", "reason": "StatusLost", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]);
    for (edit, held) in [
        (Box::new(|_: &mut Value| {}) as Box<dyn Fn(&mut Value)>, None),
        // Restored without a status.
        (
            Box::new(|v| _ = v.as_object_mut().unwrap().remove("status")),
            Some(Held::NoStatus(key.clone(), false)),
        ),
        (
            Box::new(|v| v["status"] = json!({ "conditions": lost.clone() })),
            Some(Held::NoStatus(key.clone(), true)),
        ),
        // Of an operator that did not record when it was begun.
        (
            Box::new(|v| v["status"]["timing"] = Value::Null),
            Some(Held::Renamed(key.clone())),
        ),
        // It names no policy any more, but says what it is of.
        (
            Box::new(|v| {
                v["status"]["timing"] = Value::Null;
                v["spec"] = json!({});
            }),
            Some(Held::Renamed(key.clone())),
        ),
        // Its snapshot is there.
        (
            Box::new(|v| {
                v["status"]["timing"] = Value::Null;
                v["status"]["snapshot"]["kopiaSnapshotID"] = json!("x");
            }),
            None,
        ),
        // Of another repository.
        (
            Box::new(|v| {
                v["status"]["timing"] = Value::Null;
                v["status"]["resolved"]["uniqueId"] = json!("other");
            }),
            None,
        ),
    ] {
        let given = Given {
            claimants: vec![claimant(|_| {})],
            snapshots: vec![object(&edit)],
            ..Given::default()
        };
        let plan = planned(&listing, &given, &repository);
        assert_eq!(plan.told[0].held, held);
        assert_eq!(plan.adopt.is_empty(), held.is_some());
        let status = tell::said(Default::default(), &plan.told[0], at(BEGAN));
        let said = conditions::is_true(&status.conditions, conditions::ADOPTION_HELD);
        assert_eq!(said, held.is_some());
        if held.is_some() {
            assert_eq!(plan.create.len(), 2, "they are shown");
            let over = Given {
                claimants: vec![claimant(|_| {})],
                ..Given::default()
            };
            let over = planned(&listing, &over, &repository);
            let status = tell::said(status, &over.told[0], at(BEGAN));
            assert!(!conditions::is_true(
                &status.conditions,
                conditions::ADOPTION_HELD
            ));
        }
    }
    // Nothing is told where there is nothing to adopt.
    let given = Given {
        claimants: vec![claimant(|_| {})],
        snapshots: vec![object(|v| v["status"] = Value::Null)],
        ..Given::default()
    };
    assert_eq!(planned(&[], &given, &repository).told[0].held, None);
}
