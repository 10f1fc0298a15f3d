//! Tests of the translations and of what is written into a member's status.

use super::{facts, member};
use crate::world::NamespaceKnown;
use crate::world::keys::LaneKey;
use crate::world::views::{JobView, SnapshotView};
use holdfast_api::conditions;
use holdfast_core::deletion::{
    Cascade, DeleteReason, HeldChange, HeldCondition, MemberFacts, NamespaceState, OwnMover, Owner, Place,
    Policy, Resolution, Sharing, Stamp,
};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn view(change: impl FnOnce(&mut Value)) -> SnapshotView {
    let mut object = json!({
        "metadata": {
            "name": "s", "namespace": "app", "uid": "u", "resourceVersion": "7", "annotations": {}, "labels": {},
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["kopiur.home-operations.com/snapshot-cleanup"],
        },
        "spec": {},
        "status": {
            "phase": "Succeeded",
            "snapshot": {
                "kopiaSnapshotID": "id",
                "identity": { "username": "p", "hostname": "app", "sourcePath": "/pvc/data" },
            },
            "timing": { "startTime": "2025-12-31T00:00:00Z" },
            "resolved": { "repository": { "name": "nas" }, "uniqueId": "one" },
        },
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

fn facts_of(view: &SnapshotView) -> MemberFacts {
    let around = facts::Around {
        first_seen: now(),
        owner: Owner::None,
        schedule_says: None,
        namespace: NamespaceState::Live,
        repository: Resolution::Unreadable,
        sharing: Sharing::Alone,
        mover: OwnMover::None,
        place: Place::Fine,
    };
    facts::member(view, around)
}

fn job(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = json!({
        "metadata": {
            "name": "j", "namespace": "app", "uid": "j-uid",
            "labels": { "kopiur.home-operations.com/op": "snapshot-backup" },
        },
        "spec": {},
        "status": {},
    });
    change(&mut object);
    serde_json::from_value(object).unwrap()
}

#[test]
fn a_snapshot_is_read_as_it_stands() {
    let plain = facts_of(&view(|_| {}));
    assert_eq!(
        (plain.policy, plain.cascade, plain.stamp),
        (Policy::Delete, Cascade::Retain, Stamp::None)
    );
    assert_eq!(plain.held, HeldCondition::NotHeld);
    assert_eq!(plain.deleted_at, now());
    let snapshot = plain.snapshot.unwrap();
    assert_eq!(snapshot.source.as_deref(), Some("p@app:/pvc/data"));
    assert!(snapshot.start.is_some());
    assert!(plain.document_bytes > 50);
}

#[test]
fn words_of_a_newer_release_are_unknown_and_never_delete() {
    let newer = facts_of(&view(|s| {
        s["spec"] = json!({ "deletionPolicy": "Shred", "onScheduleDelete": "Ask" });
        s["metadata"]["annotations"]["kopiur.home-operations.com/pruned-by"] = json!("somebody");
    }));
    assert_eq!(
        (newer.policy, newer.cascade, newer.stamp),
        (Policy::Unknown, Cascade::Unknown, Stamp::Unknown)
    );
}

#[test]
fn origins_that_differ_force_retain() {
    let differ = facts_of(&view(|s| {
        s["metadata"]["labels"]["kopiur.home-operations.com/origin"] = json!("scheduled");
        s["status"]["origin"] = json!("manual");
    }));
    assert_eq!(differ.policy, Policy::Retain);
    let discovered = facts_of(&view(|s| s["status"]["origin"] = json!("discovered")));
    assert_eq!(discovered.policy, Policy::Retain);
}

#[test]
fn a_hold_is_true_false_or_unreadable() {
    let held = |status: &str| {
        let status = status.to_owned();
        facts_of(&view(|s| {
            s["status"]["conditions"] = json!([{
                "type": "DeletionHeld", "status": status, "reason": "X", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }]);
        }))
        .held
    };
    assert_eq!(held("True"), HeldCondition::Held { since: now() });
    assert_eq!(held("False"), HeldCondition::NotHeld);
    assert_eq!(held("Unknown"), HeldCondition::Unreadable);
}

#[test]
fn an_owner_is_told_apart_by_its_uid() {
    let meta = |uid: &str, going: bool| ObjectMeta {
        uid: Some(uid.to_owned()),
        deletion_timestamp: going.then(|| k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now())),
        ..ObjectMeta::default()
    };
    assert_eq!(facts::owner(None, None), Owner::None);
    assert_eq!(facts::owner(Some("a"), None), Owner::Gone);
    assert_eq!(facts::owner(Some("a"), Some(&meta("b", false))), Owner::Replaced);
    assert_eq!(
        facts::owner(Some("a"), Some(&meta("a", true))),
        Owner::Terminating
    );
    assert_eq!(facts::owner(Some("a"), Some(&meta("a", false))), Owner::Alive);
}

#[test]
fn a_namespace_that_is_not_known_is_unreadable_and_no_place() {
    assert_eq!(
        facts::namespace(NamespaceKnown::Absent),
        NamespaceState::Unreadable
    );
    assert_eq!(facts::place("ns", NamespaceKnown::Absent), Place::Unknown);
    assert_eq!(facts::place("", NamespaceKnown::Live), Place::NotSet);
    assert_eq!(
        facts::place("ns", NamespaceKnown::Terminating),
        Place::Terminating
    );
}

#[test]
fn a_snapshot_of_another_physical_repository_is_elsewhere() {
    let taken = view(|_| {});
    assert_eq!(
        facts::elsewhere(&taken, &LaneKey::Physical("two".into())),
        Some("one")
    );
    assert_eq!(facts::elsewhere(&taken, &LaneKey::Physical("one".into())), None);
    let silent = view(|s| s["status"]["resolved"]["uniqueId"] = Value::Null);
    assert_eq!(facts::elsewhere(&silent, &LaneKey::Physical("two".into())), None);
}

#[test]
fn an_own_mover_runs_until_it_is_stopped_and_read() {
    let of = |job: JobView, has_id| facts::own_mover(&[Arc::new(job)], has_id, false);
    assert_eq!(
        of(job(|j| j["status"] = json!({ "active": 1 })), false),
        OwnMover::Running
    );
    let suspended = |status: Value| {
        job(|j| {
            j["spec"]["suspend"] = json!(true);
            j["status"] = status;
        })
    };
    assert_eq!(of(suspended(json!({ "active": 1 })), false), OwnMover::Running);
    assert_eq!(
        of(suspended(json!({ "terminating": 1 })), false),
        OwnMover::Running
    );
    assert_eq!(
        of(suspended(json!({})), false),
        OwnMover::Running,
        "the Job controller has not seen it yet and may be creating a pod"
    );
    let seen = json!([{ "type": "Suspended", "status": "True" }]);
    assert_eq!(
        of(suspended(json!({ "terminating": 1, "conditions": seen })), false),
        OwnMover::Running
    );
    assert_eq!(
        of(suspended(json!({ "conditions": seen })), false),
        OwnMover::None
    );
    let complete = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
    let ended = job(|j| j["status"] = complete.clone());
    assert_eq!(of(ended.clone(), false), OwnMover::Unread);
    assert_eq!(of(ended, true), OwnMover::None);
    let read = job(|j| {
        j["status"] = complete.clone();
        j["spec"]["ttlSecondsAfterFinished"] = json!(3600);
    });
    assert_eq!(of(read, false), OwnMover::None);
    assert_eq!(facts::own_mover(&[], false, true), OwnMover::Unknown);
    assert_eq!(facts::own_mover(&[], true, true), OwnMover::None);
}

#[test]
fn a_container_has_started_unless_it_surely_has_not() {
    let pod = |status: Value| -> Pod { serde_json::from_value(json!({ "status": status })).unwrap() };
    let idle = job(|_| {});
    let active = job(|j| j["status"] = json!({ "active": 1 }));
    assert!(!facts::started(&idle, &[]));
    assert!(
        facts::started(&active, &[]),
        "a pod that was counted and is not there"
    );
    assert!(!facts::started(&active, &[pod(json!({ "phase": "Pending" }))]));
    let waiting = json!({ "phase": "Pending", "containerStatuses": [{
        "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "waiting": { "reason": "ImagePullBackOff" } },
    }] });
    assert!(!facts::started(&active, &[pod(waiting)]));
    assert!(facts::started(&active, &[pod(json!({ "phase": "Running" }))]));
    assert!(facts::started(&active, &[pod(json!({ "phase": "Unknown" }))]));
}

#[test]
fn a_claim_ends_a_hold_and_a_wait() {
    let mut marked = view(|_| {});
    marked.status = Some(member::held(&marked, "MassDeletionBreaker", "held", now()));
    assert!(conditions::is_true(
        &marked.status.clone().unwrap().conditions,
        conditions::DELETION_HELD
    ));
    let why = DeleteReason::Acknowledged;
    let status = member::claimed(&marked, "job", why, HeldChange::Clear(why), now());
    assert!(!conditions::is_true(
        &status.conditions,
        conditions::DELETION_HELD
    ));
    assert_eq!(status.deletion.unwrap().job.as_deref(), Some("job"));
}

#[test]
fn a_failed_attempt_gives_up_the_claim_and_counts() {
    let mut tried = view(|_| {});
    let why = DeleteReason::BelowThreshold;
    tried.status = Some(member::claimed(&tried, "job", why, HeldChange::Keep, now()));
    let status = member::failed(&tried, "StillListed", "still there", now());
    let deletion = status.deletion.unwrap();
    assert_eq!((deletion.job, deletion.attempts), (None, 1));
    let cleared = member::unclaimed(tried.status.clone().unwrap());
    assert_eq!(cleared.deletion, None);
}
