//! The indexes against objects fed by hand.

use super::state::{Change, Dirty, Kind, Observed};
use super::views::*;
use super::wire::{self, WireBackup, WireQuota};
use super::*;
use crate::account::definitions::Installed;
use holdfast_core::quota::driver::{DriverFacts, OwnRecord, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn backup(uid: &str, size: Value) -> Observed {
    let wire: WireBackup = serde_json::from_value(json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "Backup",
        "metadata": { "name": "b", "namespace": "a", "uid": uid, "creationTimestamp": "2026-08-22T00:00:09Z" },
        "spec": {
            "applicationRef": { "kind": "Etcd", "name": "control" },
            "strategyRef": { "apiGroup": "strategy.backups.cozystack.io", "kind": "Etcd", "name": "s" },
            "driverMetadata": { "etcd.aenix.io/bucket": "x", "velero.io/backup-name": "v", "velero.io/backup-namespace": "n" },
            "later": { "field": 1 },
        },
        "status": { "artifact": { "uri": "s3://b/k", "sizeBytes": size } },
    }))
    .unwrap();
    wire::backup(wire)
}

fn quota(version: &str, hard: Value, used: Value) -> Observed {
    let wire: WireQuota = serde_json::from_value(json!({
        "metadata": { "name": "cap", "namespace": "a", "uid": "q", "resourceVersion": version },
        "spec": { "hard": hard }, "status": { "used": used },
    }))
    .unwrap();
    wire::quota(wire)
}

fn kinds(kinds: &[Kind]) -> Installed {
    Installed {
        kinds: kinds.iter().cloned().collect(),
        ..Installed::default()
    }
}

/// A whole list of a kind.
fn list(world: &World, kind: Kind, objects: Vec<Observed>) -> BTreeSet<Dirty> {
    let mut dirty = world.apply(Change::ListBegins(kind.clone()));
    for object in objects {
        dirty.extend(world.apply(Change::Set(object)));
    }
    dirty.extend(world.apply(Change::ListEnds(kind, NOW)));
    dirty
}

fn complete() -> Arc<World> {
    let world = World::new();
    for kind in [Kind::Quota, Kind::Namespace] {
        list(&world, kind, Vec::new());
    }
    world.apply(Change::Installed(kinds(&[Kind::Artifact, Kind::Backup])));
    assert!(!world.is_complete());
    list(&world, Kind::Artifact, Vec::new());
    list(&world, Kind::Backup, Vec::new());
    world
}

#[test]
fn complete_is_when_every_list_of_an_installed_kind_has_arrived() {
    let world = complete();
    assert!(world.is_complete(), "{:?}", world.waits_for());
    // A kind that is installed later has to be listed first.
    let late = kinds(&[Kind::Artifact, Kind::Backup, Kind::VeleroBackup]);
    world.apply(Change::Installed(late));
    assert_eq!(world.waits_for(), ["VeleroBackup"]);
    list(&world, Kind::VeleroBackup, Vec::new());
    assert!(world.is_complete());
    // A list that is taken up again leaves what is known standing.
    world.apply(Change::ListBegins(Kind::Backup));
    assert!(world.is_complete());
    // Without our own records nothing can be said.
    world.apply(Change::Installed(kinds(&[Kind::Backup])));
    assert_eq!(world.waits_for(), ["Artifact"]);
}

#[test]
fn a_backup_is_dirty_when_something_that_decides_has_changed_and_gone_when_a_list_misses_it() {
    let world = complete();
    let uid: Arc<str> = "u".into();
    let own = BTreeSet::from([Dirty::Backup(Arc::clone(&uid))]);
    assert_eq!(world.apply(Change::Set(backup("u", json!(5)))), own);
    assert_eq!(world.apply(Change::Set(backup("u", json!(5)))), BTreeSet::new());
    assert_eq!(world.apply(Change::Set(backup("u", json!(6)))), own);
    let view = world.backup("u").unwrap();
    assert_eq!(
        view.notes.len(),
        2,
        "only what says where the bytes are: {:?}",
        view.notes
    );
    assert_eq!(
        list(&world, Kind::Backup, vec![backup("u", json!(6))]),
        BTreeSet::new()
    );
    assert_eq!(list(&world, Kind::Backup, Vec::new()), own);
    assert!(!world.has_backup("u"));
}

#[test]
fn an_object_that_does_not_decode_exists_all_the_same() {
    let world = complete();
    world.apply(Change::Set(backup("u", json!(5))));
    let unreadable = || Observed::Unreadable(Kind::Backup, "u".to_owned());
    assert_eq!(list(&world, Kind::Backup, vec![unreadable()]), BTreeSet::new());
    assert!(world.has_backup("u") && world.backup("u").is_some());
    let dirty = world.apply(Change::Gone(unreadable(), NOW));
    assert_eq!(dirty, BTreeSet::from([Dirty::Backup("u".into())]));
    assert!(!world.has_backup("u"));
}

#[test]
fn backups_whose_definition_went_are_not_taken_for_deleted() {
    let world = complete();
    world.apply(Change::Set(backup("u", json!(5))));
    assert_eq!(
        world.apply(Change::Installed(kinds(&[Kind::Artifact]))),
        BTreeSet::new()
    );
    assert!(world.has_backup("u") && !world.is_synced(&Kind::Backup));
    world.apply(Change::Installed(kinds(&[Kind::Artifact, Kind::Backup])));
    assert_eq!(
        list(&world, Kind::Backup, Vec::new()).len(),
        1,
        "now a list says so"
    );
}

#[test]
fn of_quotas_only_those_that_have_to_do_with_backups_are_kept_and_old_versions_are_not() {
    let world = complete();
    let touched = BTreeSet::from([Dirty::Quotas("a".to_owned())]);
    assert!(
        world
            .apply(Change::Set(quota(
                "1",
                json!({ "pods": "5" }),
                json!({ "pods": "1" })
            )))
            .is_empty()
    );
    assert!(world.quotas("a").is_empty());
    let hard = || json!({ "pods": "5", "backups.cozystack.io/size": "1Gi" });
    assert_eq!(world.apply(Change::Set(quota("2", hard(), json!({})))), touched);
    // An answer to our own write, then the watch's older event.
    let used = json!({ "backups.cozystack.io/size": "3Mi" });
    assert_eq!(
        world.apply(Change::Set(quota("4", hard(), used.clone()))),
        touched
    );
    assert!(world.apply(Change::Set(quota("3", hard(), json!({})))).is_empty());
    assert_eq!(world.quotas("a")[0].quota.used.len(), 1);
    // Pods come and go: nothing of ours changed.
    let mut pods = used;
    pods["pods"] = json!("2");
    assert!(world.apply(Change::Set(quota("5", hard(), pods))).is_empty());
    assert_eq!(
        world.apply(Change::Set(quota("6", json!({}), json!({})))),
        touched
    );
}

fn velero(name: &str, uid: &str) -> Observed {
    Observed::VeleroBackup(Box::new(DriverView {
        namespace: "velero".to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        phase: DriverPhase::Completed,
        job: None,
    }))
}

fn request(backup: &str, processed: Option<usize>) -> Observed {
    Observed::VeleroRequest(Box::new(RequestView {
        namespace: "velero".to_owned(),
        name: format!("{backup}-x"),
        uid: "r".to_owned(),
        backup: backup.to_owned(),
        processed,
    }))
}

#[test]
fn what_was_seen_of_a_request_outlives_the_request_but_not_another_backup_of_the_name() {
    let world = complete();
    let at = Location {
        place: "velero://velero".to_owned(),
        key: "v".to_owned(),
    };
    let facts = || world.driver_facts(&at).unwrap();
    assert_eq!(facts(), DriverFacts::default());
    world.apply(Change::Set(velero("v", "1")));
    world.apply(Change::Set(request("v", None)));
    assert_eq!(
        (facts().request, facts().own_record),
        (Request::Asked, OwnRecord::Exists)
    );
    world.apply(Change::Set(request("v", Some(0))));
    world.apply(Change::Gone(request("v", Some(0)), NOW));
    world.apply(Change::Gone(velero("v", "1"), NOW));
    assert_eq!(
        (facts().request, facts().own_record),
        (Request::Succeeded, OwnRecord::Gone(NOW))
    );
    world.apply(Change::Set(velero("v", "2")));
    assert_eq!(
        (facts().request, facts().own_record),
        (Request::None, OwnRecord::Exists)
    );
    world.forget_location(&at);
    let other = Location {
        place: "s3://bucket".to_owned(),
        key: "k".to_owned(),
    };
    assert_eq!(world.driver_facts(&other), None);
}

#[test]
fn a_kind_that_was_uninstalled_proves_nothing() {
    let world = complete();
    world.apply(Change::Installed(kinds(&[
        Kind::Artifact,
        Kind::Backup,
        Kind::VeleroBackup,
    ])));
    list(&world, Kind::VeleroBackup, vec![velero("v", "1")]);
    world.apply(Change::Installed(kinds(&[Kind::Artifact, Kind::Backup])));
    let at = Location {
        place: "velero://velero".to_owned(),
        key: "v".to_owned(),
    };
    assert_eq!(world.driver_facts(&at), Some(DriverFacts::default()));
}

#[test]
fn a_run_is_over_when_every_object_of_it_is() {
    let world = complete();
    let of_run = |uid: &str, phase| {
        Observed::CnpgBackup(Box::new(DriverView {
            namespace: "a".to_owned(),
            name: uid.to_owned(),
            uid: uid.to_owned(),
            phase,
            job: Some(("a".to_owned(), "j".to_owned())),
        }))
    };
    let run = || world.driver_run("a", "j");
    assert_eq!(run(), driver::RunState::NotKnown);
    let dirty = world.apply(Change::Set(of_run("1", DriverPhase::Failed)));
    assert_eq!(
        dirty,
        BTreeSet::from([Dirty::Run("a".to_owned(), "j".to_owned())])
    );
    world.apply(Change::Set(of_run("2", DriverPhase::Running)));
    assert_eq!(run(), driver::RunState::Running);
    world.apply(Change::Set(of_run("2", DriverPhase::Completed)));
    assert_eq!(run(), driver::RunState::Completed, "one of them wrote bytes");
    world.apply(Change::Gone(of_run("2", DriverPhase::Completed), NOW));
    world.apply(Change::Gone(of_run("1", DriverPhase::Failed), NOW));
    assert_eq!(run(), driver::RunState::NotKnown);
}

/// Bytes that a Backup's view keeps for itself.
fn kept(view: &BackupView) -> usize {
    let notes: usize = view.notes.iter().map(|(_, value)| value.len()).sum();
    let strings = view.uid.len() + view.name.len() + view.uri.as_ref().map_or(0, |uri| uri.len()) + notes;
    size_of::<BackupView>() + size_of_val(&*view.notes) + strings
}

/// Case ledger 16, memory: of each Backup a few hundred bytes stay, however large the object is.
#[test]
fn of_ten_thousand_large_backups_in_one_namespace_little_is_kept_and_what_they_share_once() {
    const COUNT: usize = 10_000;
    let filler = "x".repeat(8 << 10);
    let world = World::new();
    world.apply(Change::Installed(kinds(&[Kind::Backup])));
    world.apply(Change::ListBegins(Kind::Backup));
    let mut shown = 0;
    for n in 0..COUNT {
        let object = json!({
            "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "Backup",
            "metadata": {
                "name": format!("nightly-{n}"), "namespace": "tenant-acme", "uid": format!("uid-{n:032}"),
                "creationTimestamp": "2026-08-22T00:00:09Z", "annotations": { "note": filler },
                "managedFields": [{ "manager": "m", "operation": "Update", "fieldsType": "FieldsV1",
                    "fieldsV1": { "f:spec": { filler.as_str(): {} } } }],
            },
            "spec": {
                "applicationRef": { "kind": "Etcd", "name": "control" },
                "strategyRef": { "apiGroup": "strategy.backups.cozystack.io", "kind": "Etcd", "name": "s" },
                "driverMetadata": { "etcd.aenix.io/log": filler },
            },
            "status": { "artifact": { "uri": format!("s3://b/tenant-acme/control/{n}.db"), "sizeBytes": 1 },
                "underlyingResources": { "list": filler } },
        })
        .to_string();
        shown += object.len();
        let wire: WireBackup = serde_json::from_str(&object).unwrap();
        world.apply(Change::Set(wire::backup(wire)));
    }
    let all = world.backups();
    assert_eq!(all.len(), COUNT);
    let kept: usize = all.iter().map(|view| kept(view)).sum();
    assert!(
        kept < COUNT * 400 && shown > COUNT * 32_000,
        "{kept} bytes kept of {shown}"
    );
    let first = &all[0];
    for view in &all {
        assert!(Arc::ptr_eq(&view.namespace, &first.namespace));
        assert!(Arc::ptr_eq(&view.application, &first.application));
        assert!(Arc::ptr_eq(&view.strategy, &first.strategy));
    }
}
