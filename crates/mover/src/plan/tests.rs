//! The sentences of the mover's plan, and that no listing makes it name what it must not.
#![allow(clippy::unwrap_used)]
use super::*;
use holdfast_engine::SourceIdentity;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CLUSTER: &str = "this-cluster";

fn member(id: &str) -> BatchMember {
    BatchMember {
        uid: format!("uid-of-{id}"),
        snapshot_id: id.to_owned(),
        source: Source {
            username: "policy".to_owned(),
            hostname: "ns".to_owned(),
            path: "/pvc/data".to_owned(),
        },
        start_time: Some(Timestamp::UNIX_EPOCH),
    }
}

fn listed(id: &str) -> SnapshotInfo {
    SnapshotInfo {
        id: id.to_owned(),
        source: SourceIdentity {
            username: "policy".to_owned(),
            hostname: "ns".to_owned(),
            path: "/pvc/data".to_owned(),
        },
        // A fraction that a Kubernetes time does not hold.
        start: Timestamp::new(0, 999_000_000).unwrap(),
        end: None,
        cluster: Some(CLUSTER.to_owned()),
        snapshot_uid: None,
        tags: BTreeMap::new(),
        sizes: None,
    }
}

fn listing(ids: &[&str]) -> Listing {
    Listing {
        snapshots: ids.iter().map(|id| listed(id)).collect(),
        unreadable: Vec::new(),
    }
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.ids.iter().map(String::as_str).collect()
}

/// Case 82: given ids a, gone, c and a listing of a and c, a and c are deleted, `gone` is already done.
#[test]
fn case_82_an_absent_id_is_already_done() {
    let members = [member("a"), member("gone"), member("c")];
    let plan = plan(&members, &listing(&["a", "c"]), CLUSTER);
    assert_eq!(ids(&plan), ["a", "c"]);
    assert_eq!(plan.fates, [Fate::Delete, Fate::AlreadyGone, Fate::Delete]);
    let letters = letters(&members, &plan, &BTreeSet::new(), &listing(&[]));
    assert_eq!(letters, [Letter::Deleted, Letter::Absent, Letter::Deleted]);
}

/// Case 83: two members on one snapshot are one id that serves both.
#[test]
fn case_83_one_id_serves_two_members() {
    let mut second = member("a");
    second.uid = "another".to_owned();
    let members = [member("a"), second];
    let plan = plan(&members, &listing(&["a"]), CLUSTER);
    assert_eq!(ids(&plan), ["a"]);
    let letters = letters(&members, &plan, &BTreeSet::new(), &listing(&[]));
    assert_eq!(letters, [Letter::Deleted, Letter::Deleted]);
}

/// Case 84 says that a stale id would be healed to a unique live match. Restic's ids never go stale, and the
/// batch is given exact ids: nothing but the id itself is ever deleted.
#[test]
fn case_84_nothing_is_deleted_under_another_id() {
    let members = [member("stale")];
    let plan = plan(&members, &listing(&["live"]), CLUSTER);
    assert_eq!(ids(&plan), [""; 0]);
    assert_eq!(plan.fates, [Fate::AlreadyGone]);
}

/// Case 85: two ids that are both there are both deleted.
#[test]
fn case_85_recorded_and_live_are_both_deleted() {
    let plan = plan(
        &[member("recorded"), member("live")],
        &listing(&["live", "recorded"]),
        CLUSTER,
    );
    assert_eq!(ids(&plan), ["recorded", "live"]);
}

/// Case 87: candidates of the same source and time are not touched for a member that names another id.
#[test]
fn case_87_two_candidates_heal_nothing() {
    let plan = plan(&[member("stale")], &listing(&["one", "two"]), CLUSTER);
    assert_eq!(ids(&plan), [""; 0]);
}

#[test]
fn another_source_or_start_is_a_mismatch() {
    type Change = fn(&mut BatchMember);
    let changes: [Change; 5] = [
        |m| m.source.username.push('x'),
        |m| m.source.hostname.push('x'),
        |m| m.source.path.push('x'),
        |m| m.start_time = Some(Timestamp::from_second(1).unwrap()),
        |m| m.start_time = Some(Timestamp::from_second(-1).unwrap()),
    ];
    for change in changes {
        let mut wrong = member("a");
        change(&mut wrong);
        let plan = plan(std::slice::from_ref(&wrong), &listing(&["a"]), CLUSTER);
        assert_eq!(plan.fates, [Fate::Keep(Letter::Mismatch)]);
        assert_eq!(ids(&plan), [""; 0]);
    }
    let mut unknown = member("a");
    unknown.start_time = None;
    assert_eq!(plan(&[unknown], &listing(&["a"]), CLUSTER).fates, [Fate::Delete]);
}

#[test]
fn another_clusters_snapshot_is_kept_and_an_untagged_one_is_not() {
    for (tag, fate) in [
        (Some("other"), Fate::Keep(Letter::OtherCluster)),
        (Some("this-cluster,other"), Fate::Keep(Letter::OtherCluster)),
        (Some(""), Fate::Keep(Letter::OtherCluster)),
        (Some(CLUSTER), Fate::Delete),
        (None, Fate::Delete),
    ] {
        let mut listing = listing(&["a"]);
        listing.snapshots[0].cluster = tag.map(str::to_owned);
        assert_eq!(plan(&[member("a")], &listing, CLUSTER).fates, [fate], "{tag:?}");
    }
}

#[test]
fn an_unreadable_record_is_neither_deleted_nor_gone() {
    let mut listing = listing(&[]);
    listing.unreadable.push("a".to_owned());
    let members = [member("a")];
    let plan = plan(&members, &listing, CLUSTER);
    assert_eq!(ids(&plan), [""; 0]);
    assert_eq!(
        letters(&members, &plan, &BTreeSet::new(), &listing),
        [Letter::Failed]
    );
}

#[test]
fn only_the_read_back_confirms() {
    let members = [member("a"), member("b"), member("gone")];
    let plan = plan(&members, &listing(&["a", "b"]), CLUSTER);
    let failed = BTreeSet::from(["b".to_owned()]);
    let mut readback = listing(&["a", "b"]);
    readback.unreadable.push("gone".to_owned());
    let still = letters(&members, &plan, &failed, &readback);
    assert_eq!(still, [Letter::StillThere, Letter::Failed, Letter::StillThere]);
    // What was said to have failed and is gone all the same is gone.
    let gone = letters(&members, &plan, &failed, &listing(&[]));
    assert_eq!(gone, [Letter::Deleted, Letter::Deleted, Letter::Absent]);
}

proptest! {
    /// Whatever is asked and listed: what is named for deletion was asked for with the right source, is not of
    /// another cluster, and is named once; and no letter confirms what the read-back still has.
    #[test]
    fn nothing_else_is_ever_named(
        asked in prop::collection::vec((0u8..6, any::<bool>()), 0..12),
        there in prop::collection::btree_map(0u8..6, (any::<bool>(), any::<bool>()), 0..6),
        left in prop::collection::btree_set(0u8..6, 0..6),
        failed in prop::collection::btree_set(0u8..6, 0..6),
    ) {
        let members: Vec<_> = asked.iter().map(|(id, right)| {
            let mut member = member(&id.to_string());
            if !right { member.source.path.push('x'); }
            member
        }).collect();
        let mut first = Listing::default();
        for (id, (ours, readable)) in &there {
            let mut snapshot = listed(&id.to_string());
            if !ours { snapshot.cluster = Some("other".to_owned()); }
            if *readable { first.snapshots.push(snapshot) } else { first.unreadable.push(snapshot.id) }
        }
        let plan = plan(&members, &first, CLUSTER);
        let mut once = BTreeSet::new();
        for id in &plan.ids {
            prop_assert!(once.insert(id));
            let number: u8 = id.parse().unwrap();
            prop_assert!(asked.contains(&(number, true)));
            prop_assert_eq!(there.get(&number), Some(&(true, true)));
        }
        let left: Vec<String> = left.iter().map(u8::to_string).collect();
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        let failed = failed.iter().map(u8::to_string).collect();
        let letters = letters(&members, &plan, &failed, &listing(&left));
        prop_assert_eq!(letters.len(), members.len());
        for (member, letter) in members.iter().zip(letters) {
            prop_assert!(!(letter.confirms() && left.contains(&member.snapshot_id.as_str())));
        }
    }
}
