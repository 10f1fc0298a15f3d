//! The decisions on a Restore.

use super::claims::{self, Claim};
use super::decide::{Step, decide};
use super::job;
use super::observe::{Facts, Populate, Target};
use super::source::{Asks, Source};
use crate::jobs::outcome::{JobFact, Read};

use crate::world::keys::RepositoryKey;
use crate::world::views::{JobState, JobView, RepositoryView};
use holdfast_api::Restore;
use holdfast_api::restore::{Resolution, RestoreOptions};
use holdfast_core::restore::Reason;
use holdfast_protocol::outcome::{Failure, FailureClass, OperationResult, Outcome};
use holdfast_protocol::restore::{Existing, Found, Refused, RestoreAnswer, Wanted};
use holdfast_protocol::work::Source as Named;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

const CREATED: i64 = 1_000_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(CREATED + second).unwrap()
}

fn view(spec: Value, status: Value) -> Arc<Restore> {
    let mut whole = json!({
        "metadata": { "name": "r", "namespace": "a", "uid": "u", "generation": 1, "creationTimestamp": at(0).to_string() },
        "spec": {
            "source": { "fromPolicy": { "name": "p" } },
            "target": { "pvcRef": { "name": "c" } },
        },
        "status": status,
    });
    for (key, value) in spec.as_object().unwrap() {
        whole["spec"][key] = value.clone();
    }
    Arc::new(serde_json::from_value(whole).unwrap())
}

fn claim(name: &str, uid: &str, volume: Option<&str>) -> Claim {
    let object = json!({
        "metadata": { "name": name, "namespace": "a", "uid": uid, "creationTimestamp": at(5).to_string() },
        "spec": { "volumeName": volume },
        "status": { "phase": if volume.is_some() { "Bound" } else { "Pending" } },
    });
    Claim::from(serde_json::from_value::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(object).unwrap())
}

fn repository(unique_id: &str) -> Arc<RepositoryView> {
    Arc::new(RepositoryView::namespaced(
        serde_json::from_value(json!({
            "metadata": { "name": "r", "namespace": "a", "uid": "ru" },
            "spec": {
                "engine": "Restic",
                "backend": { "filesystem": { "volume": { "pvc": { "name": "v" } } } },
                "encryption": { "passwordSecretRef": { "name": "s" } },
            },
            "status": { "phase": "Ready", "uniqueId": unique_id },
        }))
        .unwrap(),
    ))
}

fn asks() -> Source {
    Source::Asks(Box::new(Asks {
        repository: Some(RepositoryKey::Repository {
            namespace: "a".into(),
            name: "r".into(),
        }),
        wanted: Wanted {
            username: "p".into(),
            hostname: "a".into(),
            path: Some("/pvc/c".into()),
            snapshot_id: None,
            offset: 0,
            as_of: None,
            others: None,
        },
    }))
}

fn facts(spec: Value, status: Value) -> Facts {
    Facts {
        view: view(spec, status),
        refusals: Vec::new(),
        target: Target::Existing(Some(claim("c", "cu", Some("pv")))),
        source: Some(asks()),
        repository: Some(Ok(repository("id"))),
        recorded_name: true,
        job: None,
        leftovers: Vec::new(),
        keeps: None,
    }
}

fn ended(result: OperationResult, error: Option<FailureClass>) -> JobFact {
    let outcome = Outcome {
        version: holdfast_protocol::VERSION,
        unique_id: Some("id".into()),
        error: error.map(|class| Failure {
            class,
            message: "why".into(),
        }),
        result,
    };
    let exited_well = outcome.error.is_none();
    let job: JobView =
        serde_json::from_value(json!({ "metadata": { "name": "j", "namespace": "a", "uid": "ju" } }))
            .unwrap();
    JobFact {
        job: Arc::new(job),
        state: if exited_well {
            JobState::Succeeded
        } else {
            JobState::Failed
        },
        read: Read::Outcome {
            outcome: Box::new(outcome),
            exited_well,
        },
    }
}

fn pinned() -> Value {
    json!({
        "phase": "Restoring",
        "resolved": {
            "resolution": "Snapshot", "kopiaSnapshotID": "s", "uniqueId": "id", "pinnedAt": at(1).to_string(),
        },
    })
}

fn failed(step: Step) -> Reason {
    let shown = format!("{step:?}");
    let Step::Fail(reason, _) = step else {
        panic!("no failure: {shown}");
    };
    reason
}

#[test]
fn what_has_ended_never_runs_again() {
    for phase in ["Completed", "Failed", "ofANewerRelease"] {
        let facts = facts(json!({}), json!({ "phase": phase }));
        assert!(matches!(decide(&facts, at(9)), Step::Rest(None)), "{phase}");
    }
}

#[test]
fn which_snapshot_it_is_is_recorded_before_anything_is_written() {
    let fresh = facts(json!({}), json!(null));
    assert!(matches!(decide(&fresh, at(1)), Step::Ask(..)));
    let mut found = fresh.clone();
    found.job = Some(ended(
        OperationResult::Restore(RestoreAnswer::Resolved {
            found: Some(Found {
                snapshot_id: "s".into(),
                source: Named {
                    username: "p".into(),
                    hostname: "a".into(),
                    path: "/pvc/c".into(),
                },
                start_time: at(0),
                size_bytes: Some(7),
                other_cluster: None,
            }),
            of_identity: 1,
            paths: Vec::new(),
            others: Vec::new(),
        }),
        None,
    ));
    let Step::Pin(resolved) = decide(&found, at(2)) else {
        panic!("no pin");
    };
    assert_eq!(
        (
            resolved.kopia_snapshot_id.as_deref(),
            resolved.unique_id.as_deref(),
            resolved.size_bytes
        ),
        (Some("s"), Some("id"), Some(7))
    );
    let pinned = facts(json!({}), pinned());
    let Step::Write(_, target) = decide(&pinned, at(3)) else {
        panic!("no write");
    };
    assert_eq!(target, "c");
    assert_ne!(
        job::name(&fresh.view),
        job::name(&pinned.view),
        "a Job for each stage"
    );
}

#[test]
fn what_another_cluster_put_into_a_shared_repository_is_restored_only_when_asked_for() {
    let answer = |other: Option<&str>| {
        ended(
            OperationResult::Restore(RestoreAnswer::Resolved {
                found: Some(Found {
                    snapshot_id: "s".into(),
                    source: Named {
                        username: "p".into(),
                        hostname: "a".into(),
                        path: "/pvc/c".into(),
                    },
                    start_time: at(0),
                    size_bytes: None,
                    other_cluster: other.map(str::to_owned),
                }),
                of_identity: 1,
                paths: Vec::new(),
                others: Vec::new(),
            }),
            None,
        )
    };
    let shared = || RepositoryKey::ClusterRepository { name: "lake".into() };
    let asking = |key: RepositoryKey, id: Option<&str>, other: Option<&str>| {
        let mut facts = facts(json!({}), json!(null));
        let Some(Source::Asks(asks)) = &mut facts.source else {
            panic!("asks");
        };
        asks.repository = Some(key);
        asks.wanted.snapshot_id = id.map(str::to_owned);
        facts.job = Some(answer(other));
        facts
    };
    let Step::Say(Reason::OtherCluster, message, _) = decide(&asking(shared(), None, Some("theirs")), at(2))
    else {
        panic!("not held");
    };
    assert!(
        message.contains("kopiur.home-operations.com/restore-from-clusters=theirs"),
        "{message}"
    );
    let pins = |facts: &Facts| matches!(decide(facts, at(2)), Step::Pin(_));
    assert!(
        pins(&asking(shared(), None, None)),
        "of this cluster, or of nobody's"
    );
    assert!(
        pins(&asking(shared(), Some("s"), Some("theirs"))),
        "asked for by its id"
    );
    let own = RepositoryKey::Repository {
        namespace: "a".into(),
        name: "r".into(),
    };
    assert!(
        pins(&asking(own, None, Some("theirs"))),
        "a Repository is its namespace's own"
    );
    for (value, goes) in [("theirs", true), ("x, theirs", true), ("x", false)] {
        let annotations = || {
            let key = "kopiur.home-operations.com/restore-from-clusters".to_owned();
            Some(std::collections::BTreeMap::from([(key, value.to_owned())]))
        };
        let mut on_restore = asking(shared(), None, Some("theirs"));
        Arc::make_mut(&mut on_restore.view).metadata.annotations = annotations();
        assert_eq!(pins(&on_restore), goes, "{value}");
        let mut on_repository = asking(shared(), None, Some("theirs"));
        let mut view = repository("id");
        Arc::make_mut(&mut view).metadata.annotations = annotations();
        on_repository.repository = Some(Ok(view));
        assert_eq!(pins(&on_repository), goes, "{value}");
    }
}

#[test]
fn another_repository_than_the_recorded_one_is_not_restored_from() {
    let mut facts = facts(json!({}), pinned());
    facts.repository = Some(Ok(repository("another")));
    assert_eq!(failed(decide(&facts, at(3))), Reason::RepositoryReplaced);
}

#[test]
fn without_a_snapshot_the_policy_decides_when_the_wait_is_over() {
    let nothing = OperationResult::Restore(RestoreAnswer::Resolved {
        found: None,
        of_identity: 3,
        paths: Vec::new(),
        others: Vec::new(),
    });
    let with = |policy: Value, now: i64| {
        let mut facts = facts(json!({ "policy": policy }), json!({ "phase": "Resolving" }));
        facts.job = Some(ended(nothing.clone(), None));
        decide(&facts, at(now))
    };
    let Step::Pin(resolved) = with(json!({}), 0) else {
        panic!("a policy goes on without");
    };
    assert_eq!(resolved.resolution, Resolution::NoSnapshot);
    assert_eq!(
        failed(with(json!({ "onMissingSnapshot": "Fail" }), 0)),
        Reason::SnapshotMissing
    );
    let waits = json!({ "onMissingSnapshot": "Fail", "waitTimeout": "1m" });
    let Step::Retry(Reason::SnapshotNotFound, _, Some(next)) = with(waits.clone(), 59) else {
        panic!("it still waits");
    };
    assert_eq!(next, at(60), "and looks once more at the end");
    assert_eq!(failed(with(waits, 60)), Reason::SnapshotMissing);
    let mut named = facts(
        json!({ "source": { "snapshotRef": { "name": "s" } } }),
        json!(null),
    );
    named.source = Some(Source::Missing("Snapshot a/s does not exist".into()));
    assert_eq!(
        failed(decide(&named, at(0))),
        Reason::SnapshotMissing,
        "a named one fails"
    );
}

#[test]
fn data_of_the_same_path_under_another_name_is_no_reason_for_an_empty_volume() {
    let with = |others: &[&str], policy: Value, now: i64| {
        let mut facts = facts(json!({ "policy": policy }), json!({ "phase": "Resolving" }));
        let nothing = OperationResult::Restore(RestoreAnswer::Resolved {
            found: None,
            of_identity: 0,
            paths: Vec::new(),
            others: others.iter().map(|&name| name.to_owned()).collect(),
        });
        facts.job = Some(ended(nothing, None));
        decide(&facts, at(now))
    };
    for policy in [json!({}), json!({ "onMissingSnapshot": "Continue" })] {
        let Step::Retry(Reason::OtherIdentity, message, None) = with(&["q@a", "p@b"], policy, 0) else {
            panic!("an empty volume");
        };
        assert!(message.contains("q@a, p@b"), "{message}");
        assert!(message.contains("spec.source.identity"), "{message}");
    }
    assert!(matches!(with(&[], json!({}), 0), Step::Pin(_)));
    let fails = json!({ "onMissingSnapshot": "Fail" });
    let Step::Fail(Reason::SnapshotMissing, message) = with(&["q@a"], fails, 0) else {
        panic!("it was to fail");
    };
    assert!(message.contains("q@a"), "{message}");
}

#[test]
fn the_ends_of_a_writing_mover_are_told_apart() {
    let end = |result: OperationResult, class: Option<FailureClass>| {
        let mut facts = facts(json!({}), pinned());
        facts.job = Some(ended(result, class));
        decide(&facts, at(5))
    };
    let restored = OperationResult::Restore(RestoreAnswer::Restored {
        snapshot_id: "s".into(),
        files: 2,
        bytes: 3,
        not_set: None,
    });
    let Step::Written(written) = end(restored.clone(), None) else {
        panic!("written");
    };
    assert_eq!((written.files, written.bytes, written.failed), (2, 3, None));
    let Step::Written(written) = end(restored, Some(FailureClass::OperationFailed)) else {
        panic!("written, and failed");
    };
    assert_eq!(written.failed.as_deref(), Some("why"));
    let refused = |why| OperationResult::Restore(RestoreAnswer::Refused { why });
    let class = Some(FailureClass::OperationFailed);
    assert_eq!(
        failed(end(refused(Refused::TargetNotEmpty), class)),
        Reason::TargetNotEmpty
    );
    assert_eq!(
        failed(end(refused(Refused::TargetIsRepository), class)),
        Reason::TargetIsRepository
    );
    assert_eq!(
        failed(end(refused(Refused::SnapshotNotFound), class)),
        Reason::SnapshotMissing,
        "a policy goes on without one that never was, not without one that was recorded"
    );
    let mut trying = facts(json!({}), pinned());
    let mut job = ended(refused(Refused::TargetNotEmpty), class);
    job.state = JobState::Active;
    trying.job = Some(job);
    assert_eq!(
        failed(decide(&trying, at(5))),
        Reason::TargetNotEmpty,
        "without the Job's other tries"
    );
    assert!(matches!(
        end(OperationResult::None, Some(FailureClass::BackendUnreachable)),
        Step::Retry(Reason::BackendUnreachable, _, None)
    ));
    for (class, reason) in [
        (FailureClass::RepositoryReplaced, Reason::RepositoryReplaced),
        (FailureClass::InvalidPassword, Reason::RestoreFailed),
        (FailureClass::OperationFailed, Reason::RestoreFailed),
    ] {
        assert_eq!(failed(end(OperationResult::None, Some(class))), reason);
    }
}

#[test]
fn a_repository_that_was_away_is_tried_again_at_its_time() {
    let mut status = pinned();
    status["attempts"] = json!(2);
    status["nextAttemptAt"] = json!(at(100).to_string());
    let facts = facts(json!({}), status);
    assert!(matches!(decide(&facts, at(50)), Step::Rest(Some(_))));
    assert!(matches!(decide(&facts, at(100)), Step::Write(..)));
    assert!(job::name(&facts.view).ends_with("-2"), "by a Job of its own");
}

#[test]
fn a_claim_of_somebody_elses_is_not_taken_for_one_that_was_made() {
    let spec = json!({ "target": { "pvc": { "name": "c" } } });
    let mut facts = facts(spec, pinned());
    facts.target = Target::New(None);
    assert!(matches!(decide(&facts, at(3)), Step::MakeClaim));
    facts.target = Target::New(Some(claim("c", "cu", None)));
    assert_eq!(failed(decide(&facts, at(3))), Reason::TargetExists);
    let mut own = claim("c", "cu", None);
    own.made_by = Some("u".into());
    facts.target = Target::New(Some(own));
    assert!(matches!(decide(&facts, at(3)), Step::Write(..)));
}

fn populating(status: Value, populate: Populate) -> Facts {
    let mut facts = facts(json!({ "target": { "populator": {} } }), status);
    facts.target = Target::Populate(populate);
    facts
}

#[test]
fn a_claim_that_asks_is_filled_once() {
    let none = populating(json!(null), Populate::default());
    assert!(matches!(
        decide(&none, at(1)),
        Step::Say(Reason::WaitingForClaim, ..)
    ));
    let bound = Populate {
        bound: vec![claim("app", "1", Some("pv"))],
        ..Populate::default()
    };
    let before = populating(json!(null), bound.clone());
    assert!(matches!(
        decide(&before, at(1)),
        Step::Finish(Reason::TargetAlreadyBound, _)
    ));
    let asking = Populate {
        unbound: vec![claim("app", "1", None)],
        ..Populate::default()
    };
    let first = populating(json!(null), asking.clone());
    assert!(matches!(decide(&first, at(1)), Step::Begin(claim) if claim.uid == "1"));
    let done = json!({ "phase": "Completed", "observedGeneration": 1, "target": { "pvcRef": { "name": "app", "uid": "1" } } });
    assert!(matches!(
        decide(&populating(done.clone(), bound), at(9)),
        Step::Rest(Some(_))
    ));
    assert!(matches!(
        decide(&populating(done.clone(), asking), at(9)),
        Step::Rest(Some(_))
    ));
    let again = Populate {
        unbound: vec![claim("app", "2", None)],
        ..Populate::default()
    };
    assert!(matches!(decide(&populating(done, again), at(9)), Step::Begin(claim) if claim.uid == "2"));
}

#[test]
fn a_filled_volume_is_handed_over_and_a_hijacked_claim_is_not_touched() {
    let mut status = pinned();
    status["target"] = json!({ "pvcRef": { "name": "app", "uid": "1" }, "pvcPrime": "holdfast-prime-1" });
    let with = |claim: Claim, prime: Option<Claim>, written: bool| {
        let mut status = status.clone();
        if written {
            status["timing"] = json!({ "startTime": at(1).to_string(), "endTime": at(2).to_string() });
        }
        let bound = claim.volume.is_some();
        let populate = Populate {
            unbound: if bound { vec![] } else { vec![claim.clone()] },
            bound: if bound { vec![claim] } else { vec![] },
            prime,
        };
        decide(&populating(status, populate), at(9))
    };
    let mut prime = claim("holdfast-prime-1", "p", Some("pv-1"));
    prime.made_by = Some("u".into());
    assert!(matches!(
        with(claim("app", "1", None), Some(prime.clone()), true),
        Step::HandOver(volume, _) if volume == "pv-1"
    ));
    assert!(matches!(
        with(claim("app", "1", Some("pv-1")), Some(prime.clone()), true),
        Step::Finish(Reason::RestoreSucceeded, _)
    ));
    for written in [false, true] {
        let step = with(claim("app", "1", Some("pv-9")), Some(prime.clone()), written);
        assert_eq!(failed(step), Reason::PopulateHijacked);
    }
    let gone = with(claim("other", "2", None), Some(prime), true);
    assert!(matches!(gone, Step::Forget), "{gone:?}");
}

#[test]
fn nothing_is_overwritten_or_deleted_unless_it_is_asked_for() {
    let options = |value: Value| job::how(Some(&serde_json::from_value::<RestoreOptions>(value).unwrap()));
    for how in [job::how(None), options(json!({}))] {
        assert_eq!((how.existing, how.delete_others), (Existing::Refuse, false));
        assert!(how.owners && how.sparse && !how.all_or_fail);
    }
    assert_eq!(
        options(json!({ "overwriteFiles": true })).existing,
        Existing::Replace
    );
    assert_eq!(options(json!({ "skipExisting": true })).existing, Existing::Keep);
    let exact = options(json!({ "enableFileDeletion": true }));
    assert_eq!((exact.existing, exact.delete_others), (Existing::Replace, true));
    assert!(options(json!({ "ignorePermissionErrors": false })).all_or_fail);
    assert!(!options(json!({ "skipOwners": true })).owners);
}

#[test]
fn a_claim_that_keeps_a_repository_is_no_target() {
    let named = RepositoryKey::Repository {
        namespace: "a".into(),
        name: "r".into(),
    };
    for target in [
        json!({ "pvcRef": { "name": "v" } }),
        json!({ "pvc": { "name": "v" } }),
    ] {
        for status in [json!(null), pinned()] {
            let mut facts = facts(json!({ "target": target }), status);
            facts.keeps = Some(named.clone());
            let Step::Fail(Reason::TargetIsRepository, message) = decide(&facts, at(1)) else {
                panic!("a mover would write there");
            };
            assert!(message.contains("a/r"), "{message}");
        }
    }
    let view = repository("id");
    assert!(claims::keeps(&view, "a", "v"));
    assert!(!claims::keeps(&view, "a", "c") && !claims::keeps(&view, "b", "v"));
    let mut everywhere = RepositoryView::clone(&view);
    everywhere.key = RepositoryKey::ClusterRepository { name: "r".into() };
    assert!(
        claims::keeps(&everywhere, "b", "v"),
        "its claim is one of the name in any namespace"
    );
}

fn running_job(name: &str, state: Value) -> Arc<JobView> {
    let metadata = json!({ "name": name, "namespace": "a", "uid": "ju" });
    Arc::new(serde_json::from_value(json!({ "metadata": metadata, "status": state })).unwrap())
}

#[test]
fn what_was_begun_for_another_spec_answers_nothing() {
    let mut status = pinned();
    status["observedGeneration"] = json!(1);
    let same = facts(json!({}), status.clone());
    assert!(matches!(decide(&same, at(3)), Step::Write(..)));
    let edit = |facts: &Facts| {
        let mut view = Restore::clone(&facts.view);
        view.metadata.generation = Some(2);
        Facts {
            view: Arc::new(view),
            ..facts.clone()
        }
    };
    let mut edited = edit(&same);
    assert_ne!(job::name(&same.view), job::name(&edited.view));
    assert_ne!(job::prime(&same.view), job::prime(&edited.view));
    let active = running_job(&job::name(&same.view), json!({ "active": 1 }));
    assert!(!job::is_left_over(&active, Some(&job::current(&same.view))));
    assert!(job::is_left_over(&active, Some(&job::current(&edited.view))));
    edited.leftovers = vec![active];
    assert!(matches!(decide(&edited, at(3)), Step::Remove(jobs) if jobs.len() == 1));
    edited.leftovers.clear();
    assert!(matches!(decide(&edited, at(3)), Step::StartOver));
    status["timing"] = json!({ "endTime": at(2).to_string() });
    status["job"] = json!({ "name": "did-it" });
    let written = edit(&facts(json!({}), status));
    assert!(matches!(
        decide(&written, at(3)),
        Step::Finish(Reason::RestoreSucceeded, _)
    ));
    assert_eq!(job::current(&written.view), "did-it");
}

#[test]
fn what_is_half_written_of_one_snapshot_is_not_gone_on_with_from_another() {
    let of = |id: &str| {
        let mut status = pinned();
        status["resolved"]["kopiaSnapshotID"] = json!(id);
        let facts = facts(json!({}), status);
        job::item(&facts.view, facts.resolved().unwrap()).uid
    };
    assert_eq!(of("s"), of("s"));
    assert_ne!(of("s"), of("t"));
}

#[test]
fn a_job_that_outlived_its_restore_is_removed() {
    let mut ended = facts(json!({}), json!({ "phase": "Failed" }));
    let job = running_job("j", json!({ "active": 1 }));
    assert!(job::is_left_over(&job, None));
    let done = json!({ "conditions": [{ "type": "Failed", "status": "True" }] });
    assert!(
        !job::is_left_over(&running_job("j", done), None),
        "its log is kept"
    );
    ended.leftovers = vec![job];
    assert!(matches!(decide(&ended, at(9)), Step::Remove(_)));
}

#[test]
fn each_claim_is_tried_once_for_each_generation() {
    let both = Populate {
        unbound: vec![claim("one", "1", None), claim("two", "2", None)],
        ..Populate::default()
    };
    let status = |phase: &str, filling: &str, ended: &[&str]| {
        json!({
            "phase": phase, "observedGeneration": 1, "endedClaims": ended,
            "target": { "pvcRef": { "name": "c", "uid": filling } },
        })
    };
    let first = populating(status("Restoring", "1", &[]), both.clone());
    let mut after = holdfast_api::restore::RestoreStatus::default();
    super::finish::remember_claim(&mut after, &first);
    assert_eq!(after.ended_claims, ["1"]);
    let failed = populating(status("Failed", "1", &["1"]), both.clone());
    assert!(matches!(decide(&failed, at(9)), Step::Begin(claim) if claim.uid == "2"));
    super::act::begin_anew(&mut after, &failed);
    assert_eq!(
        after.ended_claims,
        ["1"],
        "it is remembered while the other is filled"
    );
    let second = populating(status("Restoring", "2", &["1"]), both.clone());
    super::finish::remember_claim(&mut after, &second);
    assert_eq!(after.ended_claims, ["1", "2"]);
    let mut all = populating(status("Failed", "2", &["1", "2"]), both.clone());
    assert!(
        matches!(decide(&all, at(9)), Step::Rest(Some(_))),
        "no claim is left to try"
    );
    let mut view = Restore::clone(&all.view);
    view.metadata.generation = Some(2);
    all.view = Arc::new(view);
    assert!(matches!(decide(&all, at(9)), Step::Begin(claim) if claim.uid == "1"));
    super::act::begin_anew(&mut after, &all);
    assert!(after.ended_claims.is_empty(), "an edit tries all of them again");
    after.ended_claims = vec!["gone".into(), "1".into()];
    super::finish::remember_claim(&mut after, &second);
    assert_eq!(
        after.ended_claims,
        ["1", "2"],
        "those that are gone are forgotten"
    );
}

#[test]
fn only_the_volume_that_was_filled_is_a_success() {
    let with = |resolved: Value, volume: Value, bound: Option<&str>, prime: Option<Claim>| {
        let mut status = pinned();
        status["resolved"]["resolution"] = resolved;
        status["timing"] = json!({ "endTime": at(2).to_string() });
        status["target"] =
            json!({ "pvcRef": { "name": "app", "uid": "1" }, "pvcPrime": "p", "volume": volume });
        let claim = claim("app", "1", bound);
        let mut populate = Populate {
            prime,
            ..Populate::default()
        };
        match bound {
            Some(_) => populate.bound.push(claim),
            None => populate.unbound.push(claim),
        }
        decide(&populating(status, populate), at(9))
    };
    let snapshot = || json!("Snapshot");
    assert_eq!(
        failed(with(snapshot(), json!(null), None, None)),
        Reason::RestoreFailed,
        "what was filled is gone"
    );
    assert_eq!(
        failed(with(snapshot(), json!(null), Some("pv-9"), None)),
        Reason::PopulateHijacked,
        "nothing says that it is the filled one"
    );
    for resolved in ["Snapshot", "NoSnapshot"] {
        let end = |bound| with(json!(resolved), json!("pv-1"), bound, None);
        assert!(matches!(end(Some("pv-1")), Step::Finish(..)), "{resolved}");
        assert_eq!(failed(end(Some("pv-9"))), Reason::PopulateHijacked, "{resolved}");
        assert!(
            matches!(end(None), Step::HandOver(volume, _) if volume == "pv-1"),
            "{resolved}"
        );
    }
    let foreign = claim("p", "pu", Some("pv-2"));
    for resolved in ["Snapshot", "NoSnapshot"] {
        let step = with(json!(resolved), json!(null), None, Some(foreign.clone()));
        assert_eq!(failed(step), Reason::RestoreFailed, "of somebody else's claim");
    }
}

#[test]
fn whose_data_it_is_is_asked_again_before_anything_is_written() {
    for (hostname, allowed) in [("a", true), ("another", false)] {
        let mut status = pinned();
        status["resolved"]["identity"] =
            json!({ "username": "p", "hostname": hostname, "sourcePath": "/pvc/c" });
        let mut facts = facts(json!({}), status);
        let mut view = RepositoryView::clone(&repository("id"));
        view.key = RepositoryKey::ClusterRepository { name: "r".into() };
        facts.repository = Some(Ok(Arc::new(view)));
        let step = decide(&facts, at(3));
        if allowed {
            assert!(matches!(step, Step::Write(..)), "{step:?}");
        } else {
            assert_eq!(failed(step), Reason::IdentityNotAllowed);
        }
    }
}
