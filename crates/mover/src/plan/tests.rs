//! The sentences of the mover's plan, and that no listing makes it name what it must not.
#![allow(clippy::unwrap_used)]
use super::*;
use holdfast_engine::SourceIdentity;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use proptest::prelude::*;
use std::collections::BTreeMap;

mod heal;

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
        justified_by: None,
        seen_here: true,
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
        pinned: false,
        pin_is_ours: false,
        root: Some("files".to_owned()),
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

/// Where ids are for ever; `heal` has the rest.
fn plan(members: &[BatchMember], kept: &[Vec<String>], listing: &Listing, cluster: &str) -> Plan {
    super::plan(members, kept, listing, cluster, Ids::Fixed)
}

fn ids(plan: &Plan) -> Vec<&str> {
    plan.ids.iter().map(String::as_str).collect()
}

/// Case 82: given ids a, gone, c and a listing of a and c, a and c are deleted, `gone` is already done.
#[test]
fn case_82_an_absent_id_is_already_done() {
    let members = [member("a"), member("gone"), member("c")];
    let plan = plan(&members, &[], &listing(&["a", "c"]), CLUSTER);
    assert_eq!(ids(&plan), ["a", "c"]);
    assert_eq!(plan.fates, [Fate::Delete, Fate::AlreadyGone, Fate::Delete]);
    let letters = letters(&members, &plan, &BTreeSet::new(), &listing(&[]));
    assert_eq!(letters, [Letter::Deleted, Letter::Absent, Letter::Deleted]);
}

/// An id that was never recorded to be here may be in another repository: its absence proves nothing.
#[test]
fn an_absent_id_that_was_never_seen_here_is_no_confirmation() {
    let unpinned = |id: &str| BatchMember {
        seen_here: false,
        ..member(id)
    };
    let members = [unpinned("a"), unpinned("elsewhere"), member("gone")];
    let plan = plan(&members, &[], &listing(&["a"]), CLUSTER);
    assert_eq!(ids(&plan), ["a"], "what is there is deleted all the same");
    let told = |left: &[&str]| letters(&members, &plan, &BTreeSet::new(), &listing(left));
    let here = [Letter::Deleted, Letter::NeverSeen, Letter::Absent];
    assert_eq!(told(&[]), here);
    assert!(!Letter::NeverSeen.confirms());
    assert_eq!(told(&["elsewhere"])[1], Letter::StillThere);
}

/// Case 83: two members on one snapshot are one id that serves both.
#[test]
fn case_83_one_id_serves_two_members() {
    let mut second = member("a");
    second.uid = "another".to_owned();
    let members = [member("a"), second];
    let plan = plan(&members, &[], &listing(&["a"]), CLUSTER);
    assert_eq!(ids(&plan), ["a"]);
    let letters = letters(&members, &plan, &BTreeSet::new(), &listing(&[]));
    assert_eq!(letters, [Letter::Deleted, Letter::Deleted]);
}

/// Case 84 says that a stale id is healed to a unique live match. Restic's ids never go stale: nothing but the id
/// itself is ever deleted there.
#[test]
fn case_84_nothing_is_deleted_under_another_id() {
    let members = [member("stale")];
    let plan = plan(&members, &[], &listing(&["live"]), CLUSTER);
    assert_eq!(ids(&plan), [""; 0]);
    assert_eq!(plan.fates, [Fate::AlreadyGone]);
}

/// Case 85: two ids that are both there are both deleted.
#[test]
fn case_85_recorded_and_live_are_both_deleted() {
    let plan = plan(
        &[member("recorded"), member("live")],
        &[],
        &listing(&["live", "recorded"]),
        CLUSTER,
    );
    assert_eq!(ids(&plan), ["recorded", "live"]);
}

/// Case 87: candidates of the same source and time are not touched for a member that names another id.
#[test]
fn case_87_two_candidates_heal_nothing() {
    let plan = plan(&[member("stale")], &[], &listing(&["one", "two"]), CLUSTER);
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
        let plan = plan(std::slice::from_ref(&wrong), &[], &listing(&["a"]), CLUSTER);
        assert_eq!(plan.fates, [Fate::Keep(Letter::Mismatch)]);
        assert_eq!(ids(&plan), [""; 0]);
    }
    let mut unknown = member("a");
    unknown.start_time = None;
    assert_eq!(
        plan(&[unknown], &[], &listing(&["a"]), CLUSTER).fates,
        [Fate::Delete]
    );
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
        assert_eq!(
            plan(&[member("a")], &[], &listing, CLUSTER).fates,
            [fate],
            "{tag:?}"
        );
    }
}

#[test]
fn an_unreadable_record_is_neither_deleted_nor_gone() {
    let mut listing = listing(&[]);
    listing.unreadable.push("a".to_owned());
    let members = [member("a")];
    let plan = plan(&members, &[], &listing, CLUSTER);
    assert_eq!(ids(&plan), [""; 0]);
    assert_eq!(
        letters(&members, &plan, &BTreeSet::new(), &listing),
        [Letter::Failed]
    );
}

#[test]
fn only_the_read_back_confirms() {
    let members = [member("a"), member("b"), member("gone")];
    let plan = plan(&members, &[], &listing(&["a", "b"]), CLUSTER);
    let failed = BTreeSet::from(["b".to_owned()]);
    let mut readback = listing(&["a", "b"]);
    readback.unreadable.push("gone".to_owned());
    let still = letters(&members, &plan, &failed, &readback);
    assert_eq!(still, [Letter::StillThere, Letter::Failed, Letter::StillThere]);
    // What was said to have failed and is gone all the same is gone.
    let gone = letters(&members, &plan, &failed, &listing(&[]));
    assert_eq!(gone, [Letter::Deleted, Letter::Deleted, Letter::Absent]);
}

fn pruned(id: &str, group: u32) -> BatchMember {
    let mut member = member(id);
    member.justified_by = Some(group);
    member
}

fn groups(ids: &[&[&str]]) -> Vec<Vec<String>> {
    ids.iter()
        .map(|group| group.iter().map(|id| (*id).to_owned()).collect())
        .collect()
}

#[test]
fn a_prune_stands_only_on_what_is_in_the_same_listing() {
    let kept = groups(&[&["k1", "k2"], &["k1", "gone", "lost"], &["gone"]]);
    let members = [
        pruned("a", 0),
        pruned("b", 1),
        member("c"),
        pruned("d", 1),
        pruned("e", 2),
    ];
    let plan = plan(
        &members,
        &kept,
        &listing(&["a", "b", "c", "d", "e", "k1", "k2"]),
        CLUSTER,
    );
    assert_eq!(ids(&plan), ["a", "c"]);
    assert_eq!(plan.fates[1], Fate::Keep(Letter::Unjustified));
    assert_eq!(plan.missing, ["gone", "lost"], "each once");
    let left = listing(&["b", "d", "e", "k1", "k2"]);
    assert_eq!(
        letters(&members, &plan, &BTreeSet::new(), &left),
        [
            Letter::Deleted,
            Letter::Unjustified,
            Letter::Deleted,
            Letter::Unjustified,
            Letter::Unjustified
        ]
    );
}

#[test]
fn what_is_pinned_in_the_repository_is_not_pruned_and_is_deleted_when_asked_for() {
    let kept = groups(&[&["k1"]]);
    let later = Timestamp::new(7, 1).unwrap();
    let pinned = |id: &str| SnapshotInfo {
        pinned: true,
        start: later,
        snapshot_uid: Some("uid-of-b".to_owned()),
        ..listed(id)
    };
    let mut there = listing(&["a", "k1"]);
    there.snapshots[0].pinned = true;
    there.snapshots[1].start = Timestamp::new(9, 1).unwrap();
    // Its record was written anew when it was pinned.
    there.snapshots.insert(1, pinned("b-anew"));
    let renamed = BatchMember {
        start_time: Some(later),
        ..pruned("b", 0)
    };
    let asked = |justified_by| {
        let of = |member: BatchMember| BatchMember {
            justified_by,
            ..member
        };
        super::plan(
            &[of(pruned("a", 0)), of(renamed.clone())],
            &kept,
            &there,
            CLUSTER,
            Ids::MayChange,
        )
    };
    let prunes = asked(Some(0));
    assert_eq!(prunes.fates, [Fate::Keep(Letter::Pinned); 2]);
    assert!(prunes.ids.is_empty() && prunes.healed.is_empty());
    assert_eq!(ids(&asked(None)), ["a", "b-anew"]);
}

#[test]
fn a_group_that_is_not_sent_or_empty_justifies_nothing() {
    for (group, kept) in [
        (1, groups(&[&["k1"]])),
        (0, groups(&[&[]])),
        (0, groups(&[&[""]])),
    ] {
        let plan = plan(&[pruned("a", group)], &kept, &listing(&["a", "k1"]), CLUSTER);
        assert_eq!(plan.fates, [Fate::Keep(Letter::Unjustified)], "{kept:?}");
        assert_eq!(ids(&plan), [""; 0]);
    }
}

#[test]
fn a_kept_id_is_found_by_its_beginning_and_by_nothing_else() {
    let there = listing(&["a", "aaaa-1", "bbbb-1"]);
    let fate = |kept: &str| plan(&[pruned("a", 0)], &groups(&[&[kept]]), &there, CLUSTER).fates[0];
    assert_eq!(fate("aaaa"), Fate::Delete);
    assert_eq!(fate("bbbb-1"), Fate::Delete);
    assert_eq!(fate("bbbb-2"), Fate::Keep(Letter::Unjustified));
    assert_eq!(fate("bbb0"), Fate::Keep(Letter::Unjustified));
    assert_eq!(fate("cccc"), Fate::Keep(Letter::Unjustified));
}

#[test]
fn a_kept_snapshot_that_cannot_be_read_is_not_missing_and_justifies_nothing() {
    let mut there = listing(&["a"]);
    there.unreadable.push("kept-1".to_owned());
    let plan = plan(&[pruned("a", 0)], &groups(&[&["kept"]]), &there, CLUSTER);
    assert_eq!(plan.fates, [Fate::Keep(Letter::Failed)]);
    assert_eq!(plan.missing, [""; 0]);
}

#[test]
fn what_is_gone_already_needs_no_justification() {
    let plan = plan(&[pruned("a", 0)], &groups(&[&["gone"]]), &listing(&[]), CLUSTER);
    assert_eq!(plan.fates, [Fate::AlreadyGone]);
    assert_eq!(plan.missing, [""; 0]);
}

proptest! {
    /// Whatever is kept and listed: a prune is named only if each kept id begins the id of a readable snapshot.
    #[test]
    fn no_prune_without_all_that_was_kept(
        kept in prop::collection::vec("[ab]{1,3}", 0..4),
        there in prop::collection::btree_set("[ab]{1,4}", 0..6),
    ) {
        let mut first = listing(&[]);
        first.snapshots = there.iter().map(|id| listed(id)).collect();
        first.snapshots.push(listed("x"));
        let plan = plan(&[pruned("x", 0)], std::slice::from_ref(&kept), &first, CLUSTER);
        let whole = !kept.is_empty() && kept.iter().all(|k| there.iter().any(|id| id.starts_with(k)));
        prop_assert_eq!(plan.ids.len(), usize::from(whole));
        prop_assert_eq!(plan.missing.is_empty(), whole || kept.is_empty());
    }

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
        let plan = plan(&members, &[], &first, CLUSTER);
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
