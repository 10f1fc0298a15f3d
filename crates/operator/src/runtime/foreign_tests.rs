//! Tests of what counts as another manager.

use super::*;
use serde_json::json;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T00:10:00Z")
}

fn lease(version: &str, holder: &str, renewed: &str) -> Lease {
    serde_json::from_value(json!({
        "metadata": { "name": "kopiur-leader", "namespace": "kopiur", "resourceVersion": version },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed },
    }))
    .unwrap()
}

fn fields(manager: &str, written: &str) -> Vec<ManagedFieldsEntry> {
    serde_json::from_value(json!([
        { "manager": "holdfast", "operation": "Update", "time": "2026-01-01T00:09:59Z" },
        { "manager": manager, "operation": "Update", "time": written },
    ]))
    .unwrap()
}

#[test]
fn before_the_first_look_nothing_is_decided() {
    let foreign = Foreign::unknown();
    assert!(
        foreign
            .alive()
            .is_some_and(|why| why.contains("not been looked at"))
    );
    foreign.judge(&[], now(), Instant::now());
    assert_eq!(foreign.alive(), None);
}

#[test]
fn jobs_of_another_are_looked_for_once_in_a_term_and_anew_after_each_appearance() {
    let foreign = Foreign::none();
    let look = foreign.look_for_jobs(1).unwrap();
    assert!(foreign.look_for_jobs(1).is_some(), "some are left");
    foreign.has_no_jobs(look);
    assert_eq!(foreign.look_for_jobs(1), None);
    assert!(foreign.look_for_jobs(2).is_some(), "somebody else led in between");
    // One appears and goes again.
    foreign.judge(
        &[lease("1", "a", "2026-01-01T00:09:58.000000Z")],
        now(),
        Instant::now(),
    );
    foreign.judge(&[], now(), Instant::now());
    assert_eq!(foreign.alive(), None);
    let again = foreign.look_for_jobs(1).unwrap();
    foreign.has_no_jobs(look);
    assert!(
        foreign.look_for_jobs(1).is_some(),
        "a look from before says nothing"
    );
    foreign.has_no_jobs(again);
    assert_eq!(foreign.look_for_jobs(1), None);
}

#[test]
fn a_lease_that_moves_is_alive_and_one_that_does_not_is_nobodys() {
    let foreign = Foreign::unknown();
    let start = Instant::now();
    let second = Duration::from_secs(1);
    foreign.judge(&[lease("1", "a", "2026-01-01T00:09:58.000000Z")], now(), start);
    assert!(
        foreign
            .alive()
            .is_some_and(|why| why.contains("kopiur/kopiur-leader"))
    );
    foreign.judge(
        &[lease("1", "a", "2026-01-01T00:09:58.000000Z")],
        now(),
        start + second * 39,
    );
    assert!(foreign.alive().is_some(), "it may be between two renewals");
    foreign.judge(
        &[lease("2", "a", "2026-01-01T00:09:58.000000Z")],
        now(),
        start + second * 41,
    );
    assert!(foreign.alive().is_some(), "moved: whatever its clock says");
    foreign.judge(
        &[lease("2", "a", "2026-01-01T00:09:58.000000Z")],
        now(),
        start + second * 81,
    );
    assert_eq!(foreign.alive(), None);
}

#[test]
fn a_lease_that_was_given_back_or_is_long_over_stops_nobody_at_start() {
    for old in [
        lease("1", "", "2026-01-01T00:09:58.000000Z"),
        lease("1", "a", "2025-12-31T23:59:59.000000Z"),
    ] {
        let foreign = Foreign::unknown();
        foreign.judge(&[old], now(), Instant::now());
        assert_eq!(foreign.alive(), None);
    }
}

#[test]
fn a_recent_write_of_its_field_manager_counts_for_two_minutes() {
    let foreign = Foreign::none();
    foreign.look(Some(&fields("kubectl-kopiur", "2026-01-01T00:09:50Z")), now());
    foreign.look(Some(&fields("kopiur-controller", "2026-01-01T00:07:59Z")), now());
    assert_eq!(foreign.alive(), None, "a person, and an old write");
    foreign.look(Some(&fields("kopiur-controller", "2026-01-01T00:09:50Z")), now());
    assert!(
        foreign
            .alive()
            .is_some_and(|why| why.contains("kopiur-controller"))
    );
    foreign.judge(&[], at("2026-01-01T00:11:50Z"), Instant::now());
    assert!(foreign.alive().is_some());
    foreign.judge(&[], at("2026-01-01T00:11:51Z"), Instant::now());
    assert_eq!(foreign.alive(), None);
}

#[test]
fn a_snapshot_is_told_once_for_each_appearance() {
    let foreign = Foreign::none();
    foreign.look(Some(&fields("kopiur", "2026-01-01T00:09:50Z")), now());
    assert!(foreign.tells("a") && !foreign.tells("a") && foreign.tells("b"));
    foreign.judge(&[], at("2026-01-01T00:20:00Z"), Instant::now());
    foreign.look(
        Some(&fields("kopiur", "2026-01-01T00:20:01Z")),
        at("2026-01-01T00:20:01Z"),
    );
    assert!(foreign.tells("a"));
}
