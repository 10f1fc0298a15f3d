//! What listings do to records.

use crate::support::*;
use holdfast_core::quota::Ledger;
use holdfast_core::quota::enumerate::*;
use holdfast_core::quota::record::{Reason, SizeSource, State};
use holdfast_core::quota::transitions::{WriteOff, write_off};
use std::collections::BTreeSet;

fn scope() -> Scope {
    Scope {
        store: "shared".into(),
        place: "s3://shared-archive".into(),
        prefix: String::new(),
        layout: Layout::parse("{namespace}/{application}/{artifact...}", None).unwrap(),
        strategy_kinds: BTreeSet::new(),
    }
}

/// A complete listing of these objects, begun at second `at`, judged and written.
fn listing(ledger: &mut Ledger, objects: &[(&str, i64)], at: i64) -> (Complete, Outcome) {
    listing_of(ledger, scope(), objects, at)
}

fn listing_of(ledger: &mut Ledger, scope: Scope, objects: &[(&str, i64)], at: i64) -> (Complete, Outcome) {
    let mut fold = Fold::begin(ledger, scope, t(at));
    for (key, bytes) in objects {
        fold.object(key, *bytes);
    }
    let complete = fold.finish(t(at + 1));
    let outcome = judge(ledger, &complete, t(at + 2));
    apply(ledger, outcome.changes.clone());
    (complete, outcome)
}

fn key(name: &str) -> String {
    format!("{NS}/control/{name}.db")
}

/// `count` artifacts of `size` each, all found by a first listing at second 100.
fn listed(count: usize, size: i64) -> (Ledger, Vec<String>) {
    let mut ledger = Ledger::default();
    let keys: Vec<String> = (0..count).map(|n| format!("b{n:03}")).collect();
    for name in &keys {
        see(&mut ledger, &backup(name, 0), 0);
    }
    let objects: Vec<(String, i64)> = keys.iter().map(|name| (key(name), size)).collect();
    let objects: Vec<(&str, i64)> = objects.iter().map(|(k, s)| (k.as_str(), *s)).collect();
    listing(&mut ledger, &objects, 100);
    (ledger, keys)
}

fn without<'a>(keys: &'a [String], gone: usize, size: i64) -> Vec<(String, i64)> {
    keys[gone..]
        .iter()
        .map(|name: &'a String| (key(name), size))
        .collect()
}

fn list_without(ledger: &mut Ledger, keys: &[String], gone: usize, size: i64, at: i64) -> Outcome {
    let objects = without(keys, gone, size);
    let objects: Vec<(&str, i64)> = objects.iter().map(|(k, s)| (k.as_str(), *s)).collect();
    listing(ledger, &objects, at).1
}

#[test]
fn what_drivers_left_unsized_is_measured() {
    let (ledger, keys) = listed(3, GI);
    assert_eq!(figures(&ledger), (3 * GI, 0, 3));
    assert_eq!(ledger.figures(NS).unreported(), 0);
    assert_eq!(
        of(&ledger, &backup(&keys[0], 0)).size.source,
        SizeSource::Measured
    );
}

#[test]
fn a_measurement_counts_in_both_directions_and_an_old_claim_does_not_bounce_back() {
    let mut ledger = Ledger::default();
    let fact = backup("a", 10 * GI);
    see(&mut ledger, &fact, 0);
    listing(&mut ledger, &[(&key("a"), 4 * GI)], 100);
    assert_eq!(figures(&ledger), (4 * GI, 0, 1));
    see(&mut ledger, &fact, 200);
    assert_eq!(
        figures(&ledger),
        (4 * GI, 0, 1),
        "the claim is the one that was measured"
    );
    see(&mut ledger, &backup("a", 11 * GI), 201);
    assert_eq!(figures(&ledger), (11 * GI, 0, 1), "a larger claim counts at once");
    listing(&mut ledger, &[(&key("a"), 5 * GI)], 300);
    assert_eq!(figures(&ledger), (5 * GI, 0, 1));
}

#[test]
fn an_artifact_that_is_a_folder_is_all_that_is_in_it() {
    let mut ledger = Ledger::default();
    let mut fact = backup("a", 0);
    fact.uri = Some(format!("s3://shared-archive/{NS}/mongo/2026-01-01"));
    see(&mut ledger, &fact, 0);
    let (complete, _) = listing(
        &mut ledger,
        &[
            (&format!("{NS}/mongo/2026-01-01/a"), 3),
            (&format!("{NS}/mongo/2026-01-01/deep/b"), 4),
            (&format!("{NS}/mongo/2026-01-011/c"), 100),
        ],
        100,
    );
    assert_eq!(figures(&ledger), (7, 0, 1));
    assert_eq!(
        complete.unaccounted[NS],
        Sum {
            objects: 1,
            bytes: 100
        },
        "a name that only begins alike is another"
    );
}

#[test]
fn two_complete_listings_in_a_row_have_to_miss_what_an_earlier_one_found() {
    let (mut ledger, keys) = listed(5, GI);
    list_without(&mut ledger, &keys, 1, GI, 200);
    assert_eq!(figures(&ledger), (5 * GI, 0, 5), "one is not enough");
    list_without(&mut ledger, &keys, 0, GI, 300);
    list_without(&mut ledger, &keys, 1, GI, 400);
    assert_eq!(figures(&ledger), (5 * GI, 0, 5), "nor two that are not in a row");
    list_without(&mut ledger, &keys, 1, GI, 500);
    assert_eq!(figures(&ledger), (4 * GI, 0, 4));
    let gone = of(&ledger, &backup(&keys[0], 0));
    assert_eq!(
        (gone.state, gone.reason),
        (State::Released, Reason::NoLongerListed)
    );
    see(&mut ledger, &backup(&keys[0], GI), 600);
    assert_eq!(
        figures(&ledger),
        (4 * GI, 0, 4),
        "its Backup is still there and charges nothing"
    );
}

#[test]
fn the_same_listing_judged_twice_counts_once() {
    let (mut ledger, keys) = listed(5, GI);
    let objects = without(&keys, 1, GI);
    let objects: Vec<(&str, i64)> = objects.iter().map(|(k, s)| (k.as_str(), *s)).collect();
    let (complete, _) = listing(&mut ledger, &objects, 200);
    let again = judge(&ledger, &complete, t(250));
    assert_eq!(
        again,
        Outcome::default(),
        "as after a death between judging and remembering"
    );
    assert_eq!(figures(&ledger), (5 * GI, 0, 5));
}

#[test]
fn what_no_listing_ever_found_is_never_released() {
    let (mut ledger, keys) = listed(5, GI);
    see(&mut ledger, &backup("elsewhere", GI), 110);
    for at in [200, 300, 400] {
        list_without(&mut ledger, &keys, 0, GI, at);
    }
    assert_eq!(figures(&ledger), (6 * GI, 0, 6));
}

#[test]
fn what_was_recorded_after_the_listing_began_is_not_missed_by_it() {
    let (mut ledger, keys) = listed(5, GI);
    list_without(&mut ledger, &keys, 1, GI, 200);
    // A new run writes the key again while the next listing is under way.
    let objects = without(&keys, 1, GI);
    let mut fold = Fold::begin(&ledger, scope(), t(300));
    for (key, bytes) in &objects {
        fold.object(key, *bytes);
    }
    let mut again = backup(&keys[0], GI);
    again.uid = "uid-again".into();
    again.created_at = t(301);
    see(&mut ledger, &again, 302);
    let outcome = judge(&ledger, &fold.finish(t(303)), t(304));
    assert_eq!(outcome, Outcome::default());
    list_without(&mut ledger, &keys, 1, GI, 400);
    list_without(&mut ledger, &keys, 1, GI, 500);
    assert_eq!(
        figures(&ledger),
        (5 * GI, 0, 5),
        "no listing has found the new bytes yet"
    );
}

#[test]
fn more_than_ten_records_wait_for_an_administrator() {
    let (mut ledger, keys) = listed(30, GI);
    for (at, gone) in [(200, 10), (300, 10)] {
        assert_eq!(list_without(&mut ledger, &keys, gone, GI, at).held, None);
    }
    assert_eq!(figures(&ledger).2, 20, "ten go by themselves");
    let (mut ledger, keys) = listed(30, GI);
    list_without(&mut ledger, &keys, 11, GI, 200);
    let held = list_without(&mut ledger, &keys, 11, GI, 300).held.unwrap();
    assert_eq!(
        (held.reason, held.names.len(), held.bytes),
        (HeldReason::ManyRecords, 11, 11 * GI)
    );
    assert_eq!(figures(&ledger).2, 30);
    assert_eq!(approve(&ledger, &scope(), "another", t(400)), None);
    let changes = approve(&ledger, &scope(), &held.token, t(400)).unwrap();
    apply(&mut ledger, changes);
    assert_eq!(figures(&ledger), (19 * GI, 0, 19));
    assert_eq!(waiting(&ledger, &scope()), None);
    assert_eq!(approve(&ledger, &scope(), &held.token, t(500)), None, "once");
}

#[test]
fn a_token_stands_for_exactly_its_records() {
    let (mut ledger, keys) = listed(30, GI);
    list_without(&mut ledger, &keys, 11, GI, 200);
    let first = list_without(&mut ledger, &keys, 11, GI, 300).held.unwrap();
    list_without(&mut ledger, &keys, 12, GI, 400);
    let second = list_without(&mut ledger, &keys, 12, GI, 500).held.unwrap();
    assert_ne!(first.token, second.token);
    assert_eq!(approve(&ledger, &scope(), &first.token, t(600)), None);
    assert_eq!(
        waiting(&ledger, &scope()).unwrap().token,
        second.token,
        "asked for at any time"
    );
}

#[test]
fn more_than_half_the_bytes_wait_and_half_do_not() {
    for (count, gone, waits) in [(2, 1, false), (4, 2, false), (5, 3, true), (1, 1, true)] {
        let (mut ledger, keys) = listed(count, GI);
        list_without(&mut ledger, &keys, gone, GI, 200);
        let held = list_without(&mut ledger, &keys, gone, GI, 300).held;
        assert_eq!(held.is_some(), waits, "{gone} of {count}");
        if let Some(held) = held {
            assert_eq!(held.reason, HeldReason::HalfTheBytes);
        }
    }
}

#[test]
fn a_listing_that_saw_nothing_at_all_releases_nothing_by_itself() {
    let (mut ledger, _) = listed(3, 0);
    for at in [200, 300] {
        let outcome = listing(&mut ledger, &[], at).1;
        if at == 300 {
            assert_eq!(outcome.held.unwrap().reason, HeldReason::EmptyListing);
        }
    }
    assert_eq!(figures(&ledger).2, 3);
}

#[test]
fn case_ledger_21_a_listing_that_breaks_off_changes_nothing() {
    let (ledger, _) = listed(3, GI);
    let before = ledger.clone();
    let mut fold = Fold::begin(&ledger, scope(), t(200));
    fold.object("x", 1);
    assert_eq!(fold.progress(), Sum { objects: 1, bytes: 1 });
    drop(fold);
    assert_eq!(ledger, before, "only a complete listing can be judged");
}

#[test]
fn case_ledger_22_what_no_record_explains_is_told_as_unaccounted_and_not_charged() {
    let (mut ledger, keys) = listed(2, GI);
    let (complete, _) = listing(
        &mut ledger,
        &[
            (&key(&keys[0]), GI),
            (&key(&keys[1]), GI),
            (&format!("{NS}/control/orphan"), 7),
            ("tenant-beta/x/y", 8),
            ("stray", 9),
        ],
        200,
    );
    assert_eq!(complete.unaccounted[NS].bytes, 7);
    assert_eq!(complete.unaccounted["tenant-beta"].bytes, 8);
    assert_eq!(complete.unaccounted[""].bytes, 9, "fits no layout");
    assert_eq!(figures(&ledger), (2 * GI, 0, 2));
}

#[test]
fn namespaces_that_only_keys_name_do_not_grow_without_bound() {
    let ledger = Ledger::default();
    let mut fold = Fold::begin(&ledger, scope(), t(0));
    for n in 0..20_000 {
        fold.object(&format!("made-up-{n}/a/b"), 1);
    }
    let complete = fold.finish(t(1));
    assert_eq!(complete.unaccounted.len(), 10_000);
    assert_eq!(complete.unaccounted_elsewhere.bytes, 10_000, "none is lost");
    assert!(!complete.unaccounted.contains_key(""), "they fit the layout");
}

#[test]
fn what_counted_as_gone_and_is_found_again_is_charged_again() {
    let (mut ledger, keys) = listed(5, GI);
    delete(&mut ledger, &backup(&keys[0], 0), 150);
    list_without(&mut ledger, &keys, 2, GI, 200);
    list_without(&mut ledger, &keys, 2, GI, 300);
    assert_eq!(figures(&ledger), (3 * GI, 0, 3));
    list_without(&mut ledger, &keys, 0, GI, 400);
    assert_eq!(figures(&ledger), (4 * GI, GI, 5), "to its Backup, or to nobody's");
    assert_eq!(of(&ledger, &backup(&keys[0], 0)).reason, Reason::Reappeared);
}

#[test]
fn a_written_off_record_is_not_charged_again_by_the_next_listing_and_explains_its_bytes() {
    let (mut ledger, keys) = listed(3, GI);
    let name = delete(&mut ledger, &backup(&keys[0], 0), 150).name;
    let WriteOff::Done(change) = write_off(&ledger, &name, "jane", t(160)) else {
        panic!()
    };
    ledger.apply(&change);
    let objects = without(&keys, 0, 2 * GI);
    let objects: Vec<(&str, i64)> = objects.iter().map(|(k, s)| (k.as_str(), *s)).collect();
    let (complete, _) = listing(&mut ledger, &objects, 200);
    assert_eq!(figures(&ledger), (4 * GI, 0, 2));
    assert!(complete.unaccounted.is_empty());
    list_without(&mut ledger, &keys, 1, 2 * GI, 300);
    list_without(&mut ledger, &keys, 1, 2 * GI, 400);
    assert_eq!(
        of(&ledger, &backup(&keys[0], 0)).state,
        State::Released,
        "gone for good"
    );
}

#[test]
fn only_the_scope_that_was_covered_is_released() {
    let (mut ledger, keys) = listed(6, GI);
    let mut narrow = scope();
    narrow.prefix = "tenant-beta/".into();
    let mut kinds = scope();
    kinds.strategy_kinds = BTreeSet::from(["MariaDB".to_owned()]);
    let mut elsewhere = scope();
    elsewhere.place = "s3://another".into();
    let mut other_store = scope();
    other_store.store = "second".into();
    for scope in [narrow, kinds, elsewhere, other_store] {
        for at in [200, 300, 400] {
            let outcome = listing_of(&mut ledger, scope.clone(), &[("x/y/z", 1)], at).1;
            assert_eq!(outcome, Outcome::default(), "{scope:?}");
        }
    }
    assert_eq!(figures(&ledger), (6 * GI, 0, 6));
    assert_eq!(keys.len(), 6);
}

#[test]
fn a_listing_that_finds_what_the_last_one_found_writes_nothing() {
    let (mut ledger, keys) = listed(5, GI);
    assert_eq!(list_without(&mut ledger, &keys, 0, GI, 200), Outcome::default());
}

#[test]
fn layouts_name_the_namespace_once_and_end_with_the_artifact() {
    for (path, namespace) in [
        ("{namespace}/{application}/{artifact...}", None),
        ("velero/{any}/{namespace}/{artifact...}", None),
        ("{artifact...}", Some("tenant-acme")),
    ] {
        assert!(Layout::parse(path, namespace).is_ok(), "{path}");
    }
    for (path, namespace, word) in [
        ("{namespace}/{application}", None, "ends with"),
        ("{artifact...}", None, "needs the namespace once"),
        ("{namespace}/{artifact...}", Some("x"), "needs the namespace once"),
        (
            "{namespace}/{namespace}/{artifact...}",
            None,
            "needs the namespace once",
        ),
        ("{namespace}/{app}/{artifact...}", None, "{app}"),
        ("{namespace}//{artifact...}", None, "no segment"),
        ("{namespace}-{artifact...}", None, "no segment"),
    ] {
        let error = Layout::parse(path, namespace).unwrap_err().to_string();
        assert!(error.contains(word), "{path}: {error}");
    }
    let layout = Layout::parse("v/{any}/{namespace}/{artifact...}", None).unwrap();
    assert_eq!(layout.namespace_of("v/x/ns/a/b"), Some("ns"));
    assert_eq!(layout.namespace_of("w/x/ns/a"), None);
    assert_eq!(layout.namespace_of("v/x/ns"), None);
    assert_eq!(layout.namespace_of("v/x/ns/"), None);
    assert_eq!(
        Layout::parse("{artifact...}", Some("n"))
            .unwrap()
            .namespace_of("k"),
        Some("n")
    );
}

#[test]
fn a_backup_that_is_seen_only_after_its_bytes_were_missed_is_not_charged_then_or_later() {
    let (mut ledger, keys) = listed(5, GI);
    for at in [200, 300] {
        list_without(&mut ledger, &keys, 1, GI, at);
    }
    let mut late = backup(&keys[0], GI);
    late.uid = "uid-late".into();
    late.created_at = t(150);
    see(&mut ledger, &late, 400);
    assert_eq!(figures(&ledger), (4 * GI, 0, 4));
    delete(&mut ledger, &backup(&keys[0], 0), 410);
    let record = of(&ledger, &late);
    assert_eq!(
        holdfast_core::quota::transitions::overdue(PLATFORM, &ledger, &record, t(400 * 86_400)),
        [],
        "remembered as long as the Backup lives, or it would be charged when the record is forgotten"
    );
    let mut new = late.clone();
    new.uid = "uid-new".into();
    new.created_at = t(500);
    see(&mut ledger, &new, 501);
    assert_eq!(
        figures(&ledger),
        (5 * GI, 0, 5),
        "another one stands for new bytes"
    );
}
