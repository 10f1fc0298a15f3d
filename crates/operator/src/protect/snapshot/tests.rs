//! The decisions on a Snapshot that is not being deleted.

use super::allows;
use super::decide::{Step, decide};
use super::observe::{Blocked, Facts, Run};
use crate::jobs::outcome::JobFact;
use crate::jobs::outcome::Read;
use crate::world::views::{JobState, JobView, SnapshotView};
use holdfast_api::repository::AllowedNamespaces;
use holdfast_api::shared::{LabelSelector, Origin};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const CREATED: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn facts(origin: Origin, finalizer: bool, status: Value) -> Facts {
    let created = at(CREATED).to_string();
    let finalizers = if finalizer {
        vec!["kopiur.home-operations.com/snapshot-cleanup"]
    } else {
        vec![]
    };
    let view: SnapshotView = serde_json::from_value(json!({
        "metadata": { "name": "s", "namespace": "a", "uid": "u", "creationTimestamp": created, "finalizers": finalizers },
        "spec": { "policyRef": { "name": "p" } },
        "status": status,
    }))
    .unwrap();
    Facts {
        view: Arc::new(view),
        origin,
        schedule_will_complete: false,
        made_again: None,
        run: None,
        job: None,
    }
}

fn job(state: JobState) -> JobFact {
    let view: JobView =
        serde_json::from_value(json!({ "metadata": { "name": "s", "namespace": "a" } })).unwrap();
    JobFact {
        job: Arc::new(view),
        state,
        read: Read::Unreadable("no".into()),
    }
}

#[test]
fn the_finalizer_comes_before_everything() {
    for status in [
        json!(null),
        json!({ "phase": "Pending" }),
        json!({ "phase": "Succeeded" }),
    ] {
        assert!(matches!(
            decide(&facts(Origin::Manual, false, status), at(CREATED)),
            Step::AddFinalizer
        ));
    }
}

#[test]
fn a_persons_snapshot_begins_and_one_without_its_status_is_lost() {
    let manual = facts(Origin::Manual, true, json!(null));
    assert!(matches!(
        decide(&manual, at(CREATED)),
        Step::Begin(Origin::Manual)
    ));
    for origin in [
        Origin::Scheduled,
        Origin::Adopted,
        Origin::Replicated,
        Origin::Unknown,
    ] {
        let lost = facts(origin, true, json!(null));
        assert!(
            matches!(decide(&lost, at(CREATED + 5)), Step::Wait(_)),
            "its maker may be about to write it"
        );
        assert!(
            matches!(decide(&lost, at(CREATED + 60)), Step::StatusLost),
            "{origin:?}"
        );
    }
}

#[test]
fn what_retention_pruned_and_a_tool_makes_again_is_not_run() {
    let mut again = facts(Origin::Manual, true, json!(null));
    again.made_again = Some(at(CREATED - 60));
    let step = decide(&again, at(CREATED));
    assert!(
        matches!(step, Step::MadeAgain(when) if when == at(CREATED - 60)),
        "{step:?}"
    );
    let mut under_way = facts(Origin::Manual, true, json!({ "phase": "Pending" }));
    under_way.made_again = again.made_again;
    assert!(
        !matches!(decide(&under_way, at(CREATED)), Step::MadeAgain(_)),
        "what has begun goes on"
    );
}

#[test]
fn a_discovered_row_without_a_status_is_left_to_the_next_scan() {
    for finalizer in [false, true] {
        let row = facts(Origin::Discovered, finalizer, json!(null));
        for age in [5, 3600] {
            let step = decide(&row, at(CREATED + age));
            assert!(matches!(step, Step::Done { found_again: false }), "{step:?}");
        }
    }
}

#[test]
fn a_snapshot_of_the_recorded_slot_is_not_lost() {
    let mut young = facts(Origin::Scheduled, true, json!(null));
    young.schedule_will_complete = true;
    assert!(matches!(decide(&young, at(CREATED + 3600)), Step::Wait(_)));
}

#[test]
fn a_terminal_snapshot_never_starts_again() {
    for phase in [
        "Succeeded",
        "Failed",
        "Unchanged",
        "Discovered",
        "Deleting",
        "FromANewerRelease",
    ] {
        let mut f = facts(Origin::Scheduled, true, json!({ "phase": phase }));
        f.job = Some(job(JobState::Succeeded));
        f.run = Some(Run::Blocked(Blocked::NoPolicy));
        assert!(
            matches!(decide(&f, at(CREATED)), Step::Done { found_again: false }),
            "{phase}"
        );
    }
}

#[test]
fn a_status_that_came_back_takes_the_condition_back() {
    let status = json!({ "phase": "Succeeded", "conditions": [{
        "type": "StatusLost", "status": "True", "reason": "StatusLost", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] });
    let f = facts(Origin::Scheduled, true, status);
    assert!(matches!(
        decide(&f, at(CREATED)),
        Step::Done { found_again: true }
    ));
}

#[test]
fn the_job_decides_before_anything_that_may_be_missing() {
    for phase in ["Pending", "Running"] {
        let mut f = facts(Origin::Manual, true, json!({ "phase": phase }));
        f.run = Some(Run::Blocked(Blocked::NoPolicy));
        assert!(matches!(
            decide(&f, at(CREATED)),
            Step::Blocked(Blocked::NoPolicy)
        ));
        f.job = Some(job(JobState::Active));
        assert!(matches!(decide(&f, at(CREATED)), Step::Running(_)));
        f.job = Some(job(JobState::Failed));
        assert!(matches!(decide(&f, at(CREATED)), Step::Record(_)));
    }
}

#[test]
fn a_cluster_repository_serves_whom_it_names() {
    let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
    let none = AllowedNamespaces::default();
    assert!(!allows(&none, "x", &labels), "nothing said allows nothing");
    let list = AllowedNamespaces {
        list: Some(vec!["x".into()]),
        ..none.clone()
    };
    assert!(allows(&list, "x", &labels) && !allows(&list, "y", &labels));
    let all = AllowedNamespaces {
        all: Some(true),
        ..none.clone()
    };
    assert!(allows(&all, "y", &BTreeMap::new()));
    let selector = LabelSelector {
        match_labels: labels.clone(),
        match_expressions: Vec::new(),
    };
    let selected = AllowedNamespaces {
        selector: Some(selector),
        ..none
    };
    assert!(allows(&selected, "x", &labels) && !allows(&selected, "x", &BTreeMap::new()));
    let both = AllowedNamespaces {
        all: Some(true),
        ..list
    };
    assert!(!allows(&both, "x", &labels), "a contradiction allows nothing");
}
