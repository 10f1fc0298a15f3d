//! Which snapshot a restore is of, and what happens when there is none.

use holdfast_core::restore::{
    Candidate, Choice, Means, Missing, OnMissing, Reason, Wanted, Whose, choose, may_restore, missing,
    other_names, room_for,
};
use jiff::{SignedDuration, Timestamp};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn candidate(id: &str, path: &str, start: i64, cluster: Option<&str>) -> Candidate {
    Candidate {
        id: id.into(),
        username: "p".into(),
        hostname: "n".into(),
        path: path.into(),
        start: at(start),
        cluster: cluster.map(str::to_owned),
    }
}

fn wanted(offset: u32, as_of: Option<i64>) -> Wanted {
    Wanted {
        username: "p".into(),
        hostname: "n".into(),
        path: Some("/pvc/a".into()),
        offset,
        as_of: as_of.map(at),
        cluster: "here".into(),
    }
}

fn id<'a>(choice: &'a Choice<'a>) -> &'a str {
    match choice {
        Choice::Found(found) => &found.id,
        Choice::Nothing { .. } => "nothing",
        Choice::Ambiguous(_) => "ambiguous",
    }
}

#[test]
fn offset_and_as_of_go_back_from_the_newest() {
    let all = [
        candidate("b", "/pvc/a", 20, Some("here")),
        candidate("c", "/pvc/a", 30, Some("here")),
        candidate("a", "/pvc/a", 10, Some("here")),
        candidate("x", "/pvc/other", 40, Some("here")),
    ];
    for (offset, as_of, expected) in [
        (0, None, "c"),
        (1, None, "b"),
        (2, None, "a"),
        (3, None, "nothing"),
        (0, Some(30), "c"),
        (0, Some(29), "b"),
        (1, Some(29), "a"),
        (0, Some(9), "nothing"),
    ] {
        assert_eq!(
            id(&choose(&all, &wanted(offset, as_of))),
            expected,
            "{offset} {as_of:?}"
        );
    }
    let mut any = wanted(0, None);
    any.path = None;
    assert_eq!(
        choose(&all, &any),
        Choice::Ambiguous(vec!["/pvc/a".into(), "/pvc/other".into()])
    );
}

#[test]
fn snapshots_of_another_cluster_count_only_where_this_one_has_none() {
    let theirs = candidate("t", "/pvc/a", 90, Some("there"));
    let ours = candidate("o", "/pvc/a", 10, Some("here"));
    assert_eq!(
        id(&choose(&[theirs.clone(), ours.clone()], &wanted(0, None))),
        "o"
    );
    assert_eq!(id(&choose(std::slice::from_ref(&theirs), &wanted(0, None))), "t");
    // Ours are too young: theirs are still of another volume.
    assert_eq!(id(&choose(&[theirs, ours], &wanted(0, Some(5)))), "nothing");
}

#[test]
fn a_namespace_restores_its_own_and_a_repository_is_all_its_own() {
    assert!(may_restore(false, "anything", "n"));
    assert!(may_restore(true, "n", "n"));
    assert!(!may_restore(true, "other", "n"));
}

#[test]
fn every_reason_has_a_word_of_its_own() {
    let words: BTreeSet<&str> = Reason::ALL.iter().map(|r| r.as_str()).collect();
    assert_eq!(words.len(), Reason::ALL.len());
    for reason in Reason::ALL {
        assert!(reason.meaning().ends_with('.'), "{reason:?}");
        assert_eq!(format!("{reason:?}"), reason.as_str());
    }
    assert!(Reason::ALL.iter().any(|r| r.means() == Means::Done));
}

prop_compose! {
    fn some_candidate()(
        id in "[a-c]{1,2}", user in "[pq]", host in "[nm]", path in "/pvc/[ab]", start in 0i64..6,
        cluster in option::of("here|there"),
    ) -> Candidate {
        Candidate { id, username: user, hostname: host, path, start: at(start), cluster }
    }
}

prop_compose! {
    fn something_wanted()(
        path in option::of("/pvc/[ab]"), offset in 0u32..4, as_of in option::of(0i64..6),
    ) -> Wanted {
        let mut wanted = wanted(offset, as_of);
        wanted.path = path;
        wanted
    }
}

#[test]
fn another_name_of_the_same_path_is_told_only_of_this_namespace_and_where_the_asked_one_has_none() {
    let of = |username: &str, hostname: &str, path: &str, cluster: Option<&str>| Candidate {
        username: username.into(),
        hostname: hostname.into(),
        ..candidate("i", path, 1, cluster)
    };
    let own = Whose {
        namespace: None,
        cluster: None,
    };
    let shared = |cluster: Option<&str>| Whose {
        namespace: Some("n".into()),
        cluster: cluster.map(str::to_owned),
    };
    let told = |all: &[Candidate], whose: &Whose| -> Vec<String> {
        other_names(all, &wanted(0, None), whose).into_iter().collect()
    };
    let all = [
        of("q", "n", "/pvc/a", Some("here")),
        of("q", "n", "/pvc/a", Some("there")),
        of("p", "n.lab", "/pvc/a", Some("here")),
        of("r", "n.lab", "/pvc/a", Some("there")),
        of("p", "m", "/pvc/a", Some("here")),
        of("p", "m", "/pvc/b", Some("here")),
        of("p", "n", "/pvc/b", Some("here")),
    ];
    assert_eq!(told(&all, &own), ["p@m", "p@n.lab", "q@n", "r@n.lab"]);
    assert_eq!(told(&all, &shared(None)), ["p@n.lab", "q@n"]);
    assert_eq!(told(&all, &shared(Some("lab"))), ["p@n.lab", "q@n", "r@n.lab"]);
    let elsewhere = Whose {
        namespace: Some("x".into()),
        cluster: None,
    };
    assert_eq!(told(&all, &elsewhere), ["q@n"], "of the host that is asked for");
    let mut with_its_own = all.to_vec();
    with_its_own.push(candidate("i", "/pvc/a", 0, Some("there")));
    assert!(told(&with_its_own, &own).is_empty(), "the name has snapshots");
    let any_path = Wanted {
        path: None,
        ..wanted(0, None)
    };
    assert!(other_names(&all, &any_path, &own).is_empty());
}

proptest! {
    #[test]
    fn what_is_chosen_fits_and_exactly_offset_others_are_newer(
        all in vec(some_candidate(), 0..12), wanted in something_wanted(),
    ) {
        let fits = |c: &Candidate| {
            c.username == wanted.username
                && c.hostname == wanted.hostname
                && wanted.path.as_ref().is_none_or(|p| *p == c.path)
        };
        let ours = all.iter().any(|c| fits(c) && c.cluster.as_deref() == Some("here"));
        let counts = |c: &&Candidate| {
            fits(c)
                && (!ours || c.cluster.as_deref() == Some("here"))
                && wanted.as_of.is_none_or(|t| c.start <= t)
        };
        match choose(&all, &wanted) {
            Choice::Found(found) => {
                prop_assert!(counts(&found));
                let newer = all.iter().filter(counts).filter(|c| (c.start, &c.id) > (found.start, &found.id));
                prop_assert!(newer.count() <= wanted.offset as usize);
                let not_older =
                    all.iter().filter(counts).filter(|c| (c.start, &c.id) >= (found.start, &found.id));
                prop_assert!(not_older.count() > wanted.offset as usize);
            }
            Choice::Nothing { of_identity } => {
                prop_assert!(all.iter().filter(counts).count() <= wanted.offset as usize);
                prop_assert_eq!(of_identity, all.iter().filter(|c| fits(c)).count());
            }
            Choice::Ambiguous(paths) => {
                prop_assert!(wanted.path.is_none() && paths.len() > 1);
            }
        }
    }

    #[test]
    fn the_order_of_a_listing_makes_no_difference(
        all in vec(some_candidate(), 0..12).prop_shuffle(), wanted in something_wanted(),
    ) {
        let mut sorted = all.clone();
        sorted.sort_by(|a, b| a.id.cmp(&b.id));
        let told = |choice: Choice<'_>| match choice {
            Choice::Found(found) => (found.id.clone(), Some(found.start)),
            Choice::Nothing { of_identity } => (format!("nothing of {of_identity}"), None),
            Choice::Ambiguous(paths) => (paths.join(","), None),
        };
        prop_assert_eq!(told(choose(&all, &wanted)), told(choose(&sorted, &wanted)));
    }

    #[test]
    fn nothing_is_given_up_before_its_time(since in 0i64..100, wait in 0i64..100, now in 0i64..300) {
        for (on, others, end) in [
            (OnMissing::Fail, false, Missing::Fail),
            (OnMissing::Fail, true, Missing::Fail),
            (OnMissing::Continue, false, Missing::Continue),
            (OnMissing::Continue, true, Missing::OtherIdentity),
        ] {
            let decided = missing(on, at(since), SignedDuration::from_secs(wait), at(now), others);
            if now < since + wait {
                prop_assert_eq!(decided, Missing::LookAgain(at(since + wait)));
            } else {
                prop_assert_eq!(decided, end);
            }
        }
    }

    #[test]
    fn a_claim_has_room_for_what_goes_into_it(bytes in any::<u64>()) {
        prop_assert!(room_for(bytes) >= bytes && room_for(bytes) >= 1 << 30);
    }
}
