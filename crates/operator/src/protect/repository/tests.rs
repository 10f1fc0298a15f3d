//! The decisions on a repository.

use super::decide::{Reason, Step, decide};
use super::observe::{Facts, overlap};
use crate::jobs::create::SecretFact;
use crate::jobs::needs::{Needs, Unmet};
use crate::jobs::outcome::JobFact;
use crate::jobs::outcome::Read;
use crate::world::views::{JobState, JobView, RepositoryView};
use holdfast_api::Repository;
use holdfast_protocol::outcome::{Failure, FailureClass, OperationResult, Outcome};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> Timestamp {
    Timestamp::from_second(1_000_000).unwrap()
}

fn facts(spec: Value, status: Value) -> Facts {
    let mut full = json!({
        "engine": "Restic",
        "backend": { "filesystem": { "path": "/repo", "volume": { "pvc": { "name": "repo" } } } },
        "encryption": { "passwordSecretRef": { "name": "pw" } },
        "create": { "enabled": true },
    });
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let object: Repository = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Repository",
        "metadata": { "name": "r", "namespace": "a", "uid": "u", "generation": 1 },
        "spec": full, "status": status,
    }))
    .unwrap();
    Facts {
        view: Arc::new(RepositoryView::namespaced(object)),
        place: "a".into(),
        secret: SecretFact::Usable("1".into()),
        needs: Needs::Met(String::new()),
        inputs: "in".into(),
        bootstrap: None,
        list: None,
        shared_with: Vec::new(),
        overlaps: Vec::new(),
        maintenance: None,
        allowed_namespaces: None,
    }
}

fn job(state: JobState, inputs: &str, read: Read) -> JobFact {
    let view: JobView = serde_json::from_value(json!({ "metadata": {
        "name": "r-bootstrap", "namespace": "a", "uid": "j",
        "annotations": { "kopiur.home-operations.com/connection-inputs": inputs },
    } }))
    .unwrap();
    JobFact {
        job: Arc::new(view),
        state,
        read,
    }
}

fn outcome(unique_id: Option<&str>, error: Option<FailureClass>) -> Read {
    let result = match error {
        None => OperationResult::Bootstrapped {
            created: true,
            snapshots: 3,
        },
        Some(_) => OperationResult::None,
    };
    Read::Outcome {
        exited_well: error.is_none(),
        outcome: Box::new(Outcome {
            version: 1,
            unique_id: unique_id.map(str::to_owned),
            error: error.map(|class| Failure {
                class,
                message: "why".into(),
            }),
            result,
        }),
    }
}

fn settles(step: &Step) -> Option<Reason> {
    match step {
        Step::Settle(reason, message, _) => {
            assert!(!message.is_empty());
            Some(*reason)
        }
        Step::Connect { .. }
        | Step::Recycle(_)
        | Step::Record { .. }
        | Step::Failed(..)
        | Step::List(_)
        | Step::Listed(_) => None,
    }
}

#[test]
fn an_absent_repository_is_created_only_before_a_unique_id_was_recorded() {
    let fresh = decide(&facts(json!({}), json!({})), now());
    assert!(matches!(fresh, Step::Connect { create: true }), "{fresh:?}");
    let known = decide(&facts(json!({}), json!({ "uniqueId": "u1" })), now());
    assert!(
        matches!(known, Step::Connect { create: false }),
        "never created again: {known:?}"
    );
    let not_asked = decide(&facts(json!({ "create": null }), json!({})), now());
    assert!(
        matches!(not_asked, Step::Connect { create: false }),
        "{not_asked:?}"
    );
}

#[test]
fn what_is_missing_is_named_and_looked_for_again() {
    let mut missing = facts(json!({}), json!({}));
    missing.secret = SecretFact::Missing;
    let step = decide(&missing, now());
    assert_eq!(settles(&step), Some(Reason::MissingCredentialsSecret));
    assert!(
        matches!(step, Step::Settle(_, _, Some(_))),
        "looked for again without an event"
    );
    missing.secret = SecretFact::NoKey;
    assert_eq!(
        settles(&decide(&missing, now())),
        Some(Reason::MissingCredentialsKey)
    );
    missing.secret = SecretFact::Usable("1".into());
    missing.needs = Needs::Unmet(Unmet::Claim("a/repo".into()));
    assert_eq!(
        settles(&decide(&missing, now())),
        Some(Reason::MissingRepositoryClaim)
    );
}

#[test]
fn a_refused_spec_and_a_suspended_one_do_nothing() {
    let refused = facts(json!({ "server": {} }), json!({}));
    assert_eq!(settles(&decide(&refused, now())), Some(Reason::InvalidSpec));
    let suspended = facts(json!({ "suspend": true }), json!({}));
    assert_eq!(settles(&decide(&suspended, now())), Some(Reason::Suspended));
}

#[test]
fn another_unique_id_than_the_recorded_one_is_a_replaced_repository() {
    let mut f = facts(json!({}), json!({ "uniqueId": "u1" }));
    f.bootstrap = Some(job(JobState::Succeeded, "in", outcome(Some("u2"), None)));
    let step = decide(&f, now());
    assert!(
        matches!(step, Step::Failed(Reason::RepositoryReplaced, _, _)),
        "{step:?}"
    );
    f.bootstrap = Some(job(JobState::Succeeded, "in", outcome(Some("u1"), None)));
    assert!(matches!(decide(&f, now()), Step::Record { .. }));
}

#[test]
fn a_job_of_other_inputs_is_recycled_whatever_it_says() {
    let mut f = facts(json!({}), json!({}));
    for state in [
        JobState::Waiting,
        JobState::Active,
        JobState::Succeeded,
        JobState::Failed,
    ] {
        f.bootstrap = Some(job(state, "older", outcome(Some("u1"), None)));
        assert!(matches!(decide(&f, now()), Step::Recycle(_)));
    }
}

#[test]
fn each_class_of_failure_has_its_word_and_a_later_try() {
    let classes = [
        (FailureClass::InvalidPassword, Reason::InvalidPassword),
        (
            FailureClass::RepositoryNotInitialized,
            Reason::RepositoryNotInitialized,
        ),
        (FailureClass::BackendUnreachable, Reason::BackendUnreachable),
        (FailureClass::Unknown, Reason::BootstrapJobFailed),
    ];
    for (class, expected) in classes {
        let mut f = facts(json!({}), json!({}));
        f.bootstrap = Some(job(JobState::Failed, "in", outcome(None, Some(class))));
        let step = decide(&f, now());
        let Step::Failed(reason, _, at) = step else {
            panic!("{step:?}")
        };
        assert_eq!(reason, expected);
        assert!(at > now());
    }
}

#[test]
fn a_failed_connection_waits_and_a_changed_secret_is_tried_at_once() {
    let status = json!({ "connection": {
        "failures": 3, "inputs": "in", "nextAttemptAt": "1970-01-12T13:47:40Z",
    } });
    let waiting = decide(&facts(json!({}), status.clone()), now());
    assert!(
        matches!(waiting, Step::Settle(Reason::BootstrapJobFailed, _, Some(_)))
            || settles(&waiting).is_some()
    );
    let mut changed = facts(json!({}), status);
    changed.inputs = "other".into();
    assert!(matches!(decide(&changed, now()), Step::Connect { .. }));
}

#[test]
fn a_next_attempt_by_a_clock_that_was_wrong_is_not_waited_for() {
    let status = json!({ "connection": {
        "failures": 3, "inputs": "in", "nextAttemptAt": "2050-01-01T00:00:00Z",
    } });
    assert!(matches!(
        decide(&facts(json!({}), status), now()),
        Step::Connect { .. }
    ));
}

#[test]
fn an_unreadable_result_connects_nothing() {
    let mut f = facts(json!({}), json!({}));
    f.bootstrap = Some(job(JobState::Succeeded, "in", Read::Unreadable("gone".into())));
    assert!(matches!(
        decide(&f, now()),
        Step::Failed(Reason::BootstrapJobFailed, _, _)
    ));
}

#[test]
fn one_listing_per_request() {
    let mut connected = json!({
        "uniqueId": "u1", "connection": { "failures": 0, "inputs": "in" },
        "health": { "lastProbeAt": "1970-01-12T13:46:39Z" },
    });
    let first = decide(&facts(json!({}), connected.clone()), now());
    assert!(
        matches!(first, Step::List(_)),
        "what was never listed is: {first:?}"
    );
    connected["catalog"] = json!({ "lastRefreshAt": "1970-01-01T00:00:00Z" });
    let mut f = facts(json!({}), connected);
    assert_eq!(settles(&decide(&f, now())), Some(Reason::Connected));
    let mut view = (*f.view).clone();
    view.metadata.annotations = Some(
        [(
            "kopiur.home-operations.com/catalog-scan-requested-at".to_owned(),
            "t1".to_owned(),
        )]
        .into(),
    );
    f.view = Arc::new(view.clone());
    assert!(matches!(decide(&f, now()), Step::List(request) if request.asked.as_deref() == Some("t1")));
    view.status.catalog = Some(holdfast_api::repository::CatalogStatus {
        scan_request_honored: Some("t1".into()),
        last_refresh_at: Some(now()),
        ..Default::default()
    });
    f.view = Arc::new(view);
    assert_eq!(
        settles(&decide(&f, now())),
        Some(Reason::Connected),
        "answered once"
    );
}

#[test]
fn kopia_prefixes_that_lie_below_one_another_overlap_and_nothing_new_is_connected_there() {
    let spec = |engine: &str, bucket: &str, prefix: &str| {
        let s3 =
            json!({ "s3": { "bucket": bucket, "prefix": prefix, "auth": { "secretRef": { "name": "k" } } } });
        let spec = json!({ "engine": engine, "backend": s3 });
        facts(spec, json!({})).view.spec.clone()
    };
    for (outer, inner, overlaps) in [
        ("", "prod/", true),
        ("a/", "a/prod/", true),
        ("prod", "prod-2/", true),
        ("a/", "b/", false),
        ("a/", "ab/", false),
        ("a/", "a/", false),
    ] {
        let (one, two) = (spec("Kopia", "b", outer), spec("Kopia", "b", inner));
        assert_eq!(overlap(&one, &two), overlaps, "{outer} {inner}");
        assert_eq!(overlap(&two, &one), overlaps, "{inner} {outer}");
        assert!(!overlap(&one, &spec("Kopia", "other", inner)), "{outer} {inner}");
        assert!(!overlap(&spec("Restic", "b", outer), &two), "{outer} {inner}");
        assert_eq!(overlap(&one, &spec("Restic", "b", inner)), overlaps, "{inner}");
    }
    let mut known = facts(json!({}), json!({ "uniqueId": "u1" }));
    known.overlaps = vec!["Repository b/other".into()];
    assert!(matches!(decide(&known, now()), Step::Connect { create: false }));
    let mut fresh = facts(json!({}), json!({}));
    fresh.overlaps = known.overlaps;
    let step = decide(&fresh, now());
    assert_eq!(settles(&step), Some(Reason::InvalidSpec));
    let Step::Settle(_, message, _) = step else {
        panic!()
    };
    assert!(message.contains("b/other"), "{message}");
}

/// A repository that was connected with these inputs, and asked a second ago.
fn connected(health: Value) -> Facts {
    let mut f = facts(
        json!({ "health": { "probe": health } }),
        json!({
            "uniqueId": "u1", "phase": "Ready",
            "connection": { "failures": 0, "inputs": "in" },
            "catalog": { "lastRefreshAt": "1970-01-01T00:00:00Z" },
            "health": { "lastProbeAt": "1970-01-12T13:46:39Z" },
            "conditions": [{
                "type": "Bootstrapped", "status": "False", "reason": "BootstrapJobFailed", "message": "why",
                "lastTransitionTime": "1970-01-12T13:46:39Z",
            }],
        }),
    );
    f.inputs = "in".into();
    f
}

fn with_failures(mut f: Facts, failures: u32) -> Facts {
    let mut view = (*f.view).clone();
    let connection = view.status.connection.as_mut().unwrap();
    connection.failures = failures;
    connection.next_attempt_at = Some(Timestamp::from_second(1_000_020).unwrap());
    f.view = Arc::new(view);
    f
}

/// A Job that its deadline ended.
fn cut_off() -> JobFact {
    let mut fact = job(JobState::Failed, "in", Read::Silent("killed".into()));
    let mut view = (*fact.job).clone();
    let status =
        json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "DeadlineExceeded" }] });
    view.status = Some(serde_json::from_value(status).unwrap());
    fact.job = Arc::new(view);
    fact
}

#[test]
fn a_connected_repository_is_probed_once_in_an_interval() {
    let f = connected(json!({ "interval": "30s" }));
    let Step::Settle(Reason::Connected, _, Some(again)) = decide(&f, now()) else {
        panic!("settled until the probe");
    };
    assert_eq!(again.as_secs(), 29);
    let later = Timestamp::from_second(1_000_029).unwrap();
    assert!(matches!(decide(&f, later), Step::Connect { create: false }));
    let off = connected(json!({ "enabled": false }));
    let much_later = Timestamp::from_second(9_000_000).unwrap();
    assert!(matches!(
        decide(&off, much_later),
        Step::Settle(Reason::Connected, _, None)
    ));
}

#[test]
fn a_failed_backup_asks_for_one_probe() {
    let mut f = connected(json!({}));
    let mut view = (*f.view).clone();
    let asked = (
        "kopiur.home-operations.com/reverify-requested-at".to_owned(),
        "t".to_owned(),
    );
    view.metadata.annotations = Some([asked].into());
    f.view = Arc::new(view.clone());
    let soon = Timestamp::from_second(1_000_040).unwrap();
    assert!(matches!(decide(&f, soon), Step::Connect { create: false }));
    view.status.health.as_mut().unwrap().reverify_honored = Some("t".into());
    f.view = Arc::new(view);
    assert!(
        matches!(decide(&f, soon), Step::Settle(Reason::Connected, ..)),
        "once"
    );
}

#[test]
fn a_repository_stays_usable_below_the_threshold_and_while_it_is_probed() {
    for (failures, reason) in [
        (0, Reason::Connected),
        (2, Reason::Connected),
        (3, Reason::BootstrapJobFailed),
    ] {
        let mut f = with_failures(connected(json!({})), failures);
        if failures > 0 {
            assert_eq!(settles(&decide(&f, now())), Some(reason), "{failures}");
        }
        f.bootstrap = Some(job(JobState::Active, "in", Read::Unreadable("runs".into())));
        let step = decide(&f, now());
        let Step::Settle(said, ..) = step else {
            panic!("{step:?}")
        };
        assert_eq!(said, reason, "{failures}");
    }
    let alert = with_failures(connected(json!({ "onFailure": "Alert" })), 30);
    assert_eq!(settles(&decide(&alert, now())), Some(Reason::Connected));
}

#[test]
fn what_heals_is_seen_within_one_probe() {
    let mut f = with_failures(connected(json!({ "interval": "30s" })), 20);
    f.bootstrap = Some(job(
        JobState::Failed,
        "in",
        outcome(None, Some(FailureClass::BackendUnreachable)),
    ));
    let Step::Failed(Reason::BackendUnreachable, _, at) = decide(&f, now()) else {
        panic!("a failure");
    };
    assert!(at.duration_since(now()).as_secs() <= 30, "{at}");
}

#[test]
fn a_first_connection_that_takes_minutes_is_waited_for_and_never_declared_dead() {
    let mut f = facts(json!({}), json!({}));
    f.bootstrap = Some(job(JobState::Active, "in", Read::Unreadable("runs".into())));
    assert_eq!(settles(&decide(&f, now())), Some(Reason::Connecting));
    f.bootstrap = Some(cut_off());
    let Step::Failed(reason, message, _) = decide(&f, now()) else {
        panic!("cut off");
    };
    assert_eq!(reason, Reason::BootstrapDeadlineExceeded);
    assert!(
        message.contains("120 s") && message.contains("240 s"),
        "{message}"
    );
    assert!(!reason.is_stalled());
    assert_eq!(
        reason.phase(false),
        holdfast_api::repository::RepositoryPhase::Initializing
    );
    // What is slow is told from what is away.
    let mut known = connected(json!({}));
    known.bootstrap = Some(cut_off());
    let step = decide(&known, now());
    assert!(
        matches!(step, Step::Failed(Reason::ProbeDeadlineExceeded, ..)),
        "{step:?}"
    );
}

#[test]
fn a_threshold_of_probes_that_is_set_counts() {
    for (threshold, reason) in [(3, Reason::BootstrapJobFailed), (5, Reason::Connected)] {
        let failing = with_failures(connected(json!({ "failureThreshold": threshold })), 3);
        assert_eq!(settles(&decide(&failing, now())), Some(reason), "{threshold}");
    }
}

#[test]
fn the_secrets_of_a_cluster_repository_are_where_its_movers_run_or_that_is_said() {
    let of = |password: &str, keys: &str| {
        let object = serde_json::from_value(json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "ClusterRepository",
            "metadata": { "name": "r", "uid": "u", "generation": 1 },
            "spec": {
                "engine": "Restic",
                "allowedNamespaces": { "all": true },
                "backend": { "s3": {
                    "bucket": "b", "auth": { "secretRef": { "name": "keys", "namespace": keys } },
                } },
                "encryption": { "passwordSecretRef": { "name": "pw", "namespace": password } },
                "create": { "enabled": true },
            },
        }));
        let mut f = facts(json!({}), json!({}));
        f.view = Arc::new(RepositoryView::cluster(object.unwrap()));
        decide(&f, now())
    };
    assert!(matches!(of("a", "a"), Step::Connect { create: true }));
    for (step, field) in [
        (of("b", "a"), "spec.encryption.passwordSecretRef.namespace is b"),
        (of("a", "b"), "spec.backend.s3.auth.secretRef.namespace is b"),
    ] {
        let Step::Settle(Reason::InvalidSpec, message, _) = step else {
            panic!("{step:?}")
        };
        assert!(message.starts_with(field), "{message}");
    }
}
