//! Ids that were rewritten: what is healed, and what never is.
use super::*;

/// The start of `listed`, whole.
fn start() -> Timestamp {
    listed("any").start
}

fn stale(id: &str) -> BatchMember {
    BatchMember {
        start_time: Some(start()),
        ..member(id)
    }
}

fn of(id: &str, uid: Option<&str>) -> SnapshotInfo {
    SnapshotInfo {
        snapshot_uid: uid.map(str::to_owned),
        pinned: false,
        pin_is_ours: false,
        ..listed(id)
    }
}

fn there(snapshots: Vec<SnapshotInfo>) -> Listing {
    Listing {
        snapshots,
        unreadable: Vec::new(),
    }
}

fn healing(members: &[BatchMember], listing: &Listing) -> Plan {
    super::super::plan(members, &[], listing, CLUSTER, Ids::MayChange)
}

#[test]
fn case_84_a_stale_id_is_healed_to_the_unique_live_match() {
    let members = [stale("stale")];
    let plan = healing(&members, &there(vec![of("live", Some("uid-of-stale"))]));
    assert_eq!(ids(&plan), ["live"]);
    assert_eq!(plan.healed, BTreeMap::from([(0, "live".to_owned())]));
    let judged = |left: &[&str]| letters(&members, &plan, &BTreeSet::new(), &listing(left))[0];
    assert_eq!(judged(&[]), Letter::Deleted);
    assert_eq!(
        judged(&["live"]),
        Letter::StillThere,
        "the absent old id confirms nothing"
    );
    let failed = BTreeSet::from(["live".to_owned()]);
    assert_eq!(
        letters(&members, &plan, &failed, &listing(&["live"])),
        [Letter::Failed]
    );
}

#[test]
fn case_85_recorded_and_live_are_both_deleted() {
    let members = [stale("recorded")];
    let plan = healing(&members, &there(vec![of("live", None), of("recorded", None)]));
    assert_eq!(ids(&plan), ["recorded", "live"]);
    for left in ["live", "recorded"] {
        let letter = letters(&members, &plan, &BTreeSet::new(), &listing(&[left]))[0];
        assert_eq!(letter, Letter::StillThere);
    }
}

#[test]
fn a_copy_that_a_person_repaired_is_another_snapshot() {
    let other_files = |root: Option<&str>| SnapshotInfo {
        root: root.map(str::to_owned),
        ..of("repaired", Some("uid-of-recorded"))
    };
    let recorded = of("recorded", Some("uid-of-recorded"));
    let unknown = SnapshotInfo {
        root: None,
        ..recorded.clone()
    };
    for (recorded, copy) in [
        (recorded.clone(), other_files(Some("others"))),
        (recorded, other_files(None)),
        (unknown, other_files(None)),
    ] {
        let plan = healing(&[stale("recorded")], &there(vec![recorded, copy]));
        assert_eq!((ids(&plan), plan.healed.len()), (vec!["recorded"], 0));
    }
}

#[test]
fn both_records_of_an_adopted_snapshot_go_whoever_it_was_tagged_for() {
    let both = |former: &str| {
        vec![
            of("recorded", Some("uid-of-the-object-before")),
            of("written-anew", Some(former)),
        ]
    };
    let plan = healing(&[stale("recorded")], &there(both("uid-of-the-object-before")));
    assert_eq!(ids(&plan), ["recorded", "written-anew"]);
    let plan = healing(&[stale("recorded")], &there(both("uid-of-another")));
    assert_eq!(ids(&plan), ["recorded"]);
}

#[test]
fn case_87_two_candidates_heal_nothing() {
    let plan = healing(&[stale("stale")], &listing(&["one", "two"]));
    assert_eq!(ids(&plan), [""; 0]);
    assert_eq!((plan.fates, plan.healed.len()), (vec![Fate::AlreadyGone], 0));
}

#[test]
fn what_is_not_surely_the_same_snapshot_is_not_touched() {
    type Change = fn(&mut SnapshotInfo);
    let changes: [Change; 6] = [
        |s| s.source.path = "/pvc/other".to_owned(),
        |s| s.source.hostname = "other".to_owned(),
        |s| s.source.username = "other".to_owned(),
        |s| s.start = Timestamp::new(0, 999_000_001).unwrap(),
        |s| s.cluster = Some("other-cluster".to_owned()),
        |s| s.snapshot_uid = Some("uid-of-another".to_owned()),
    ];
    for change in changes {
        let mut live = of("live", Some("uid-of-stale"));
        assert_eq!(
            ids(&healing(&[stale("stale")], &there(vec![live.clone()]))),
            ["live"]
        );
        change(&mut live);
        let plan = healing(&[stale("stale")], &there(vec![live]));
        assert_eq!((ids(&plan).len(), plan.fates), (0, vec![Fate::AlreadyGone]));
    }
}

#[test]
fn whole_seconds_heal_only_with_the_members_own_tag_and_no_start_heals_nothing() {
    let tagged = there(vec![of("live", Some("uid-of-stale"))]);
    let untagged = there(vec![of("live", None)]);
    assert_eq!(ids(&healing(&[member("stale")], &tagged)), ["live"]);
    assert_eq!(ids(&healing(&[member("stale")], &untagged)), [""; 0]);
    assert_eq!(ids(&healing(&[stale("stale")], &untagged)), ["live"]);
    let mut timeless = stale("stale");
    timeless.start_time = None;
    assert_eq!(ids(&healing(&[timeless], &tagged)), [""; 0]);
}

#[test]
fn what_another_member_records_is_that_members() {
    let mut other = stale("live");
    other.uid = "uid-of-stale".to_owned();
    let plan = healing(&[stale("stale"), other], &there(vec![of("live", None)]));
    assert_eq!(plan.healed.len(), 0);
    assert_eq!(plan.fates, [Fate::AlreadyGone, Fate::Delete]);
}

#[test]
fn a_healed_prune_needs_its_justification_too() {
    let mut pruned = stale("stale");
    pruned.justified_by = Some(0);
    let listing = there(vec![of("live", None)]);
    let kept = [vec!["vanished".to_owned()]];
    let plan = super::super::plan(&[pruned], &kept, &listing, CLUSTER, Ids::MayChange);
    assert_eq!((ids(&plan).len(), plan.healed.len()), (0, 0));
    assert_eq!(plan.fates, [Fate::Keep(Letter::Unjustified)]);
}
