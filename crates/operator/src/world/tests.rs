//! The indexes against objects fed by hand.

use super::keys::{LaneKey, ObjectKey, RepositoryKey};
use super::views::{RepositoryView, SnapshotView};
use super::{Change, Dirty, Kind, Observed, ResolvedTo, World};
use holdfast_api::shared::LabelSelector;
use holdfast_api::{Repository, SnapshotPolicy, SnapshotSchedule};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn repository(name: &str, unique_id: Option<&str>) -> Observed {
    let object: Repository = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Repository",
        "metadata": { "name": name, "namespace": "a", "uid": format!("repo-{name}") },
        "spec": {
            "engine": "Restic",
            "backend": { "filesystem": { "volume": { "pvc": { "name": "repo" } } } },
            "encryption": { "passwordSecretRef": { "name": "s" } },
        },
        "status": { "uniqueId": unique_id, "phase": "Ready" },
    }))
    .unwrap();
    Observed::Repository(Box::new(RepositoryView::namespaced(object)))
}

fn policy(repository: &str) -> Observed {
    let object: SnapshotPolicy = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
        "metadata": { "name": "p", "namespace": "a" },
        "spec": { "repository": { "name": repository }, "sources": [{ "pvc": { "name": "data" } }] },
    }))
    .unwrap();
    Observed::Policy(Box::new(object))
}

fn schedule(uid: &str) -> Observed {
    let object: SnapshotSchedule = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
        "metadata": { "name": "sched", "namespace": "a", "uid": uid },
        "spec": { "policyRef": { "name": "p" }, "schedule": { "cron": "0 * * * *" } },
    }))
    .unwrap();
    Observed::Schedule(Box::new(object))
}

struct Snap<'a> {
    name: &'a str,
    pin: Option<&'a str>,
    id: Option<&'a str>,
    deleting: bool,
    origin: &'a str,
    /// As the status says.
    recorded: &'a str,
}

impl Default for Snap<'_> {
    fn default() -> Self {
        Self {
            name: "s",
            pin: Some("r"),
            id: Some("id"),
            deleting: true,
            origin: "scheduled",
            recorded: "scheduled",
        }
    }
}

fn snapshot(s: &Snap<'_>) -> Observed {
    let mut object: Value = json!({
        "metadata": {
            "name": s.name, "namespace": "a", "uid": format!("uid-{}", s.name),
            "finalizers": ["kopiur.home-operations.com/snapshot-cleanup"],
            "labels": { "kopiur.home-operations.com/origin": s.origin },
            "ownerReferences": [{
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotSchedule",
                "name": "sched", "uid": "sched-1",
            }],
        },
        "spec": { "policyRef": { "name": "p" } },
        "status": { "phase": "Succeeded", "origin": s.recorded },
    });
    if s.deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    }
    if let Some(pin) = s.pin {
        object["status"]["resolved"] =
            json!({ "repository": { "kind": "Repository", "name": pin, "namespace": "a" } });
    }
    if let Some(id) = s.id {
        object["status"]["snapshot"] = json!({ "kopiaSnapshotID": id });
    }
    Observed::Snapshot(Box::new(serde_json::from_value::<SnapshotView>(object).unwrap()))
}

fn key(name: &str) -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: "a".into(),
        name: name.into(),
    }
}

fn lane(id: &str) -> LaneKey {
    LaneKey::Physical(id.into())
}

/// A synced world with repository `r` (unique id `u`) and policy `p`.
fn world() -> std::sync::Arc<World> {
    let world = World::new();
    for kind in Kind::ALL {
        world.apply(Change::ListBegins(kind), at(0));
        let object = match kind {
            Kind::Repository => Some(repository("r", Some("u"))),
            Kind::Policy => Some(policy("r")),
            Kind::Schedule => Some(schedule("sched-1")),
            Kind::ClusterRepository
            | Kind::Snapshot
            | Kind::Restore
            | Kind::Maintenance
            | Kind::Job
            | Kind::Namespace => None,
        };
        if let Some(object) = object {
            world.apply(Change::Set(object), at(0));
        }
        world.apply(Change::ListEnds(kind), at(0));
    }
    assert!(world.is_synced());
    world
}

fn names(world: &World, key: &LaneKey) -> Vec<String> {
    let mut names: Vec<String> = world
        .pending(key)
        .into_iter()
        .map(|p| p.snapshot.metadata.name.clone().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_world_without_every_first_list_is_cold() {
    let world = World::new();
    for kind in Kind::ALL {
        assert!(!world.is_synced(), "cold before the list of {kind:?} ended");
        world.apply(Change::ListBegins(kind), at(0));
        world.apply(Change::ListEnds(kind), at(0));
    }
    assert!(world.is_synced());
}

#[test]
fn a_deleting_snapshot_is_pending_in_the_lane_of_its_pin_and_dirties_it() {
    let world = world();
    let dirty = world.apply(Change::Set(snapshot(&Snap::default())), at(7));
    assert!(dirty.contains(&Dirty::Lane(lane("u"))), "{dirty:?}");
    assert_eq!(names(&world, &lane("u")), ["s"]);
    assert_eq!(world.pending(&lane("u"))[0].first_seen, at(7));
    world.apply(Change::Set(snapshot(&Snap::default())), at(9));
    assert_eq!(
        world.pending(&lane("u"))[0].first_seen,
        at(7),
        "first sight is kept"
    );
}

#[test]
fn a_live_snapshot_is_not_pending() {
    let world = world();
    world.apply(
        Change::Set(snapshot(&Snap {
            deleting: false,
            ..Snap::default()
        })),
        at(1),
    );
    assert!(names(&world, &lane("u")).is_empty());
}

#[test]
fn two_repository_objects_over_one_unique_id_share_a_lane() {
    let world = world();
    world.apply(Change::Set(repository("twin", Some("u"))), at(1));
    world.apply(Change::Set(snapshot(&Snap::default())), at(1));
    world.apply(
        Change::Set(snapshot(&Snap {
            name: "t",
            pin: Some("twin"),
            ..Snap::default()
        })),
        at(1),
    );
    assert_eq!(names(&world, &lane("u")), ["s", "t"]);
    assert_eq!(world.repositories_of(&lane("u")).len(), 2);
}

#[test]
fn objects_over_one_unique_id_are_told_of_each_other_when_it_is_learnt_and_when_one_goes() {
    let world = world();
    world.apply(Change::Set(repository("one", Some("x"))), at(0));
    world.apply(Change::Set(repository("two", None)), at(0));
    let told = |change| {
        world
            .apply(change, at(1))
            .contains(&Dirty::Repository(key("one")))
    };
    assert!(told(Change::Set(repository("two", Some("x")))), "it joins");
    assert!(!told(Change::Set(repository("two", Some("x")))), "no news");
    assert!(told(Change::Set(repository("two", Some("y")))), "it leaves");
}

#[test]
fn pending_members_move_with_the_unique_id_of_their_repository() {
    let world = world();
    world.apply(Change::Set(repository("new", None)), at(1));
    world.apply(
        Change::Set(snapshot(&Snap {
            pin: Some("new"),
            ..Snap::default()
        })),
        at(1),
    );
    assert_eq!(names(&world, &LaneKey::Unconnected(key("new"))), ["s"]);
    let dirty = world.apply(Change::Set(repository("new", Some("v"))), at(2));
    assert!(dirty.contains(&Dirty::Lane(lane("v"))));
    assert_eq!(names(&world, &lane("v")), ["s"]);
    // A pass over the lane it came from would judge by a part of the wave, and clear the latch of the whole.
    assert!(names(&world, &LaneKey::Unconnected(key("new"))).is_empty());
    assert!(
        world
            .repositories_of(&LaneKey::Unconnected(key("new")))
            .is_empty()
    );
}

#[test]
fn an_unpinned_member_is_decided_in_one_lane_and_counts_in_the_others() {
    let world = world();
    world.apply(Change::Set(repository("other", Some("v"))), at(1));
    world.apply(
        Change::Set(snapshot(&Snap {
            pin: None,
            ..Snap::default()
        })),
        at(1),
    );
    assert_eq!(names(&world, &lane("u")), ["s"], "resolved through its policy");
    assert!(world.unplaced(&lane("u")).is_empty());
    assert!(names(&world, &lane("v")).is_empty());
    assert_eq!(world.unplaced(&lane("v")).len(), 1, "it may still resolve there");
}

#[test]
fn a_member_whose_repository_object_is_gone_is_unresolved_once_the_list_is_known() {
    let world = world();
    world.apply(
        Change::Set(snapshot(&Snap {
            pin: Some("gone"),
            ..Snap::default()
        })),
        at(1),
    );
    assert_eq!(names(&world, &LaneKey::Unresolved), ["s"]);
    let cold = World::new();
    cold.apply(
        Change::Set(snapshot(&Snap {
            pin: Some("gone"),
            ..Snap::default()
        })),
        at(1),
    );
    let view = cold.snapshot(&ObjectKey::new("a", "s")).unwrap();
    assert_eq!(
        cold.resolve(&view),
        ResolvedTo::Unknown,
        "absence in a cold cache proves nothing"
    );
}

#[test]
fn a_relist_removes_what_it_does_not_name() {
    let world = world();
    world.apply(Change::Set(snapshot(&Snap::default())), at(1));
    world.apply(
        Change::Set(snapshot(&Snap {
            name: "t",
            ..Snap::default()
        })),
        at(1),
    );
    world.apply(Change::ListBegins(Kind::Snapshot), at(2));
    world.apply(
        Change::Set(snapshot(&Snap {
            name: "t",
            ..Snap::default()
        })),
        at(2),
    );
    let dirty = world.apply(Change::ListEnds(Kind::Snapshot), at(2));
    assert_eq!(names(&world, &lane("u")), ["t"]);
    assert!(dirty.contains(&Dirty::Lane(lane("u"))));
}

#[test]
fn a_schedule_that_goes_dirties_the_lanes_of_its_pending_children() {
    let world = world();
    world.apply(Change::Set(snapshot(&Snap::default())), at(1));
    let dirty = world.apply(Change::Gone(schedule("sched-1")), at(2));
    assert!(dirty.contains(&Dirty::Lane(lane("u"))), "{dirty:?}");
    let replaced = world.apply(Change::Set(schedule("sched-2")), at(3));
    assert!(replaced.contains(&Dirty::Schedule(ObjectKey::new("a", "sched"))));
}

#[test]
fn a_schedule_that_selects_looks_again_when_labels_or_defaults_change() {
    let world = world();
    let Observed::Schedule(mut selecting) = schedule("sched-1") else {
        panic!("a schedule");
    };
    selecting.spec.policy_ref = None;
    selecting.spec.policy_selector = Some(LabelSelector::default());
    world.apply(Change::Set(Observed::Schedule(selecting)), at(1));
    let looks = |dirty: BTreeSet<Dirty>| dirty.contains(&Dirty::Schedule(ObjectKey::new("a", "sched")));
    world.apply(Change::Set(policy("r")), at(2));
    assert_eq!(world.policies_selected("a", &LabelSelector::default()).len(), 1);
    let Observed::Policy(mut labelled) = policy("r") else {
        panic!("a policy");
    };
    labelled.metadata.labels = Some(BTreeMap::from([("tier".to_owned(), "gold".to_owned())]));
    assert!(
        looks(world.apply(Change::Set(Observed::Policy(labelled.clone())), at(3))),
        "labels have no generation"
    );
    assert!(!looks(
        world.apply(Change::Set(Observed::Policy(labelled)), at(4))
    ));
    let Observed::Repository(mut edited) = repository("r", Some("u")) else {
        panic!("a repository");
    };
    edited.metadata.generation = Some(7);
    assert!(looks(
        world.apply(Change::Set(Observed::Repository(edited)), at(5))
    ));
    assert!(looks(world.apply(Change::Gone(policy("r")), at(6))));
    assert!(world.policies_selected("b", &LabelSelector::default()).is_empty());
}

#[test]
fn only_a_live_object_of_the_same_lane_that_was_not_discovered_shares() {
    let world = world();
    let me = ObjectKey::new("a", "s");
    world.apply(Change::Set(snapshot(&Snap::default())), at(1));
    assert_eq!(world.live_sharer(&lane("u"), "id", &me), None);
    // A label is anybody's who may edit Snapshots: on doubt it shares.
    for (origin, recorded) in [("discovered", "manual"), ("manual", "discovered")] {
        let twin = Snap {
            name: "row",
            deleting: false,
            origin,
            recorded,
            ..Snap::default()
        };
        world.apply(Change::Set(snapshot(&twin)), at(1));
        let sharer = world.live_sharer(&lane("u"), "id", &me);
        assert_eq!(sharer, Some(ObjectKey::new("a", "row")), "{origin} {recorded}");
    }
    let row = Snap {
        name: "row",
        deleting: false,
        origin: "discovered",
        recorded: "discovered",
        ..Snap::default()
    };
    world.apply(Change::Set(snapshot(&row)), at(1));
    assert_eq!(
        world.live_sharer(&lane("u"), "id", &me),
        None,
        "a discovered row does not count"
    );
    let dying = Snap {
        name: "dying",
        ..Snap::default()
    };
    world.apply(Change::Set(snapshot(&dying)), at(1));
    assert_eq!(
        world.live_sharer(&lane("u"), "id", &me),
        None,
        "one that is being deleted does not count"
    );
    let twin = Snap {
        name: "twin",
        deleting: false,
        ..Snap::default()
    };
    world.apply(Change::Set(snapshot(&twin)), at(1));
    assert_eq!(
        world.live_sharer(&lane("u"), "id", &me),
        Some(ObjectKey::new("a", "twin"))
    );
}

#[test]
fn one_whose_repository_object_is_gone_or_is_another_one_now_still_shares() {
    let sharer = |unique_id: Option<&str>, repositories: Vec<Observed>| {
        let world = world();
        for object in repositories {
            world.apply(Change::Set(object), at(1));
        }
        world.apply(Change::Set(snapshot(&Snap::default())), at(1));
        let twin = snapshot(&Snap {
            name: "twin",
            pin: Some("second"),
            deleting: false,
            ..Snap::default()
        });
        let Observed::Snapshot(mut twin) = twin else {
            unreachable!()
        };
        if let Some(resolved) = twin.status.as_mut().and_then(|s| s.resolved.as_mut()) {
            resolved.unique_id = unique_id.map(str::to_owned);
        }
        world.apply(Change::Set(Observed::Snapshot(twin)), at(1));
        world.live_sharer(&lane("u"), "id", &ObjectKey::new("a", "s"))
    };
    let twin = Some(ObjectKey::new("a", "twin"));
    assert_eq!(sharer(None, vec![]), twin, "its object is gone");
    assert_eq!(
        sharer(None, vec![repository("second", None)]),
        twin,
        "not connected"
    );
    let other = || vec![repository("second", Some("v"))];
    assert_eq!(sharer(None, other()), None, "known to be elsewhere");
    assert_eq!(
        sharer(Some("u"), other()),
        twin,
        "recorded here; its object is another one since"
    );
    assert_eq!(sharer(Some("v"), vec![]), None, "recorded elsewhere");
}

#[test]
fn a_pending_one_that_is_made_anew_dirties_the_lane_it_was_in() {
    let world = world();
    world.apply(Change::Set(snapshot(&Snap::default())), at(1));
    let live = Snap {
        deleting: false,
        ..Snap::default()
    };
    let dirty = world.apply(Change::Set(snapshot(&live)), at(2));
    assert!(dirty.contains(&Dirty::Lane(lane("u"))), "{dirty:?}");
}

#[test]
fn the_owning_schedule_is_one_of_any_version() {
    let Observed::Snapshot(mut view) = snapshot(&Snap::default()) else {
        unreachable!()
    };
    for (version, ours) in [
        ("kopiur.home-operations.com/v1", true),
        ("kopiur.home-operations.com.evil/v1", false),
        ("v1", false),
    ] {
        if let Some(owner) = view
            .metadata
            .owner_references
            .as_mut()
            .and_then(|o| o.first_mut())
        {
            owner.api_version = version.to_owned();
        }
        assert_eq!(view.schedule_owner().is_some(), ours, "{version}");
    }
}

#[test]
fn the_indexes_equal_a_world_built_from_scratch_after_any_history() {
    // Deterministic pseudo-random history: every object changes pin, id, deletion and existence many times.
    let world = world();
    let mut seed = 42u64;
    let mut next = |n: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let names_of = ["s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7"];
    let mut truth: std::collections::BTreeMap<&str, Observed> = std::collections::BTreeMap::new();
    for step in 0..2000 {
        let name = names_of[next(8) as usize];
        let made = snapshot(&Snap {
            name,
            pin: [None, Some("r"), Some("gone")][next(3) as usize],
            id: [None, Some("x"), Some("y")][next(3) as usize],
            deleting: next(2) == 0,
            origin: ["scheduled", "discovered"][next(2) as usize],
            recorded: ["scheduled", "discovered"][next(2) as usize],
        });
        if next(4) == 0 {
            if let Some(old) = truth.remove(name) {
                world.apply(Change::Gone(old), at(step));
            }
        } else {
            world.apply(Change::Set(made.clone()), at(step));
            truth.insert(name, made);
        }
    }
    let fresh = self::world();
    for object in truth.values() {
        fresh.apply(Change::Set(object.clone()), at(0));
    }
    for lane in [lane("u"), LaneKey::Unresolved] {
        assert_eq!(names(&world, &lane), names(&fresh, &lane));
    }
    let policy = ObjectKey::new("a", "p");
    let of = |w: &World| {
        w.snapshots_of_policy(&policy)
            .iter()
            .map(|s| s.key())
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(of(&world), of(&fresh));
    assert_eq!(of(&world).len(), truth.len());
    let children = |w: &World| w.snapshots_of_schedule("sched-1").len();
    assert_eq!(children(&world), children(&fresh));
}
