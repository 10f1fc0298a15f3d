//! Who is let in: the decision table row by row, and the sentences.

use crate::support::*;
use holdfast_core::quota::gate::*;
use holdfast_core::quota::ledger::Estimate;
use holdfast_core::quota::reservations::{Reservation, Reservations};
use holdfast_core::quota::runs::run_seen;
use holdfast_core::quota::transitions::backup_seen;
use holdfast_core::quota::{Figures, Ledger};
use std::time::Duration;

fn request() -> Request {
    Request {
        namespace: NS.into(),
        uid: "new".into(),
        application: app("billing"),
        name_exists: NameExists::NotKnown,
        operation: Operation::Create,
        dry_run: false,
    }
}

fn quota(name: &str, size: Option<&str>, count: Option<&str>) -> Quota {
    let mut quota = Quota {
        name: name.into(),
        ..Quota::default()
    };
    for (key, value) in [(DIMENSIONS.size, size), (DIMENSIONS.count, count)] {
        if let Some(value) = value {
            quota.hard.insert(key.into(), value.into());
        }
    }
    quota
}

/// Figures with this much in this many things.
fn used(size: i64, count: i64) -> Figures {
    let mut ledger = Ledger::default();
    for n in 0..count {
        let bytes = if n == 0 { size } else { 0 };
        see(&mut ledger, &backup(&format!("b{n}"), bytes), 0);
    }
    ledger.figures(NS)
}

fn running(count: usize, estimate: Estimate) -> Vec<InFlight> {
    (0..count)
        .map(|n| InFlight {
            uid: format!("run-{n}"),
            application: app(&format!("other-{n}")),
            estimate,
        })
        .collect()
}

fn ask(quotas: &[Quota], figures: Figures, in_flight: &[InFlight]) -> Decision {
    decide(
        DIMENSIONS,
        &request(),
        quotas,
        &Knowledge::Current(figures),
        in_flight,
    )
}

fn message(decision: &Decision) -> &str {
    match decision {
        Decision::Refuse { message, .. } => message,
        Decision::Admit(_) | Decision::AlreadyExists => panic!("{decision:?}"),
    }
}

/// Number in the list, limit of size, used size, limit of count, used count, runs under way, and the keys it is refused for.
type Row = (
    u32,
    Option<&'static str>,
    i64,
    Option<&'static str>,
    i64,
    usize,
    Option<&'static str>,
);

/// Cases gate 1, 2, 3, 4, 5, 7, 8, 9, 10 and 11.
#[test]
fn case_gate_the_decision_table_row_by_row() {
    let allow = None;
    let (size, count) = ("backups.cozystack.io/size", "backups.cozystack.io/count");
    let both = "backups.cozystack.io/count=1,backups.cozystack.io/size=unknown";
    let rows: &[Row] = &[
        (1, None, 50 * GI, None, 50, 7, allow),
        (2, Some("10Gi"), 9 * GI, None, 1, 0, allow),
        (3, Some("10Gi"), 10 * GI, None, 1, 0, Some(size)),
        (4, Some("10Gi"), 12 * GI, None, 1, 0, Some(size)),
        (5, Some("0"), 0, None, 0, 0, Some(size)),
        (7, None, 0, Some("5"), 4, 0, allow),
        (8, None, 0, Some("5"), 4, 1, Some(count)),
        (9, None, 0, Some("0"), 0, 0, Some(count)),
        (10, Some("10Gi"), GI, Some("5"), 5, 0, Some(count)),
        (11, Some("10Gi"), 10 * GI, Some("5"), 5, 0, Some(both)),
    ];
    for (number, hard_size, used_size, hard_count, used_count, in_flight, refused) in rows {
        let quota = quota("tenant-quota", *hard_size, *hard_count);
        let decision = ask(
            &[quota],
            used(*used_size, *used_count),
            &running(*in_flight, Estimate::OfNamespace(0)),
        );
        let row = format!(
            "row {number}: {hard_size:?} {used_size} {hard_count:?} {used_count} {in_flight}: {decision:?}"
        );
        match refused {
            None => assert!(matches!(decision, Decision::Admit(_)), "{row}"),
            Some(keys) => {
                let text = message(&decision);
                let requested = text
                    .split("requested: ")
                    .nth(1)
                    .unwrap()
                    .split(", used")
                    .next()
                    .unwrap();
                let wanted = match *keys {
                    key if key == size => format!("{size}=unknown"),
                    key if key == count => format!("{count}=1"),
                    both => both.to_owned(),
                };
                assert_eq!(requested, wanted, "{row}");
            }
        }
    }
}

/// Case gate 6: what is missing is decided by the ledger's own figure; one that is not known refuses.
#[test]
fn case_gate_an_unknown_figure_refuses_under_a_limit_and_never_without_one() {
    let limited = quota("tenant-quota", Some("10Gi"), None);
    for (knowledge, reason) in [
        (Knowledge::NotYetCounted, "NotYetCounted"),
        (Knowledge::Stale, "LedgerStale"),
        (Knowledge::TakingOver, "TakingOver"),
    ] {
        let decision = decide(
            DIMENSIONS,
            &request(),
            std::slice::from_ref(&limited),
            &knowledge,
            &[],
        );
        assert_eq!(decision.reason(), reason);
        let text = message(&decision);
        assert!(
            text.starts_with(
                "status unknown for quota: tenant-quota, resources: backups.cozystack.io/size: "
            ),
            "{text}"
        );
        assert!(text.contains("try again"), "{text}");
        let free = decide(DIMENSIONS, &request(), &[], &knowledge, &[]);
        assert_eq!(free, Decision::Admit(AdmitReason::NoLimit));
    }
}

/// Case gate 12.
#[test]
fn case_gate_of_two_quotas_the_one_that_is_exceeded_is_named() {
    let quotas = [quota("a", Some("10Gi"), None), quota("b", Some("4Gi"), None)];
    let decision = ask(&quotas, used(5 * GI, 1), &[]);
    assert_eq!(
        message(&decision),
        "exceeded quota: b, requested: backups.cozystack.io/size=unknown, used: backups.cozystack.io/size=5Gi, \
         limited: backups.cozystack.io/size=4Gi"
    );
}

/// Case gate 13.
#[test]
fn case_gate_a_scoped_quota_of_0_limits_nothing() {
    let mut scoped = quota("besteffort-only", Some("0"), Some("0"));
    scoped.scoped = true;
    assert_eq!(
        ask(&[scoped], used(GI, 1), &[]),
        Decision::Admit(AdmitReason::NoLimit)
    );
}

/// Case gate 8, its sentence.
#[test]
fn case_gate_used_is_shown_as_4_plus_1_running() {
    let decision = ask(
        &[quota("q", None, Some("5"))],
        used(0, 4),
        &running(1, Estimate::None),
    );
    assert_eq!(
        message(&decision),
        "exceeded quota: q, requested: backups.cozystack.io/count=1, used: backups.cozystack.io/count=4 (+1 running), \
         limited: backups.cozystack.io/count=5"
    );
}

#[test]
fn what_is_under_way_counts_with_its_estimate_and_the_new_one_does_not() {
    let limit = [quota("q", Some("10Gi"), None)];
    let one = |gi: i64| running(1, Estimate::OfApplication(gi * GI));
    assert!(matches!(
        ask(&limit, used(7 * GI, 1), &one(2)),
        Decision::Admit(_)
    ));
    let decision = ask(&limit, used(7 * GI, 1), &one(3));
    let text = message(&decision);
    assert!(
        text.contains("7Gi (+3Gi estimated for 1 running)"),
        "it is said to be an estimate: {text}"
    );
    assert!(
        matches!(ask(&limit, used(9 * GI, 1), &[]), Decision::Admit(_)),
        "it stops the next run, not this one"
    );
    let huge = running(3, Estimate::OfNamespace(i64::MAX));
    assert!(
        matches!(ask(&limit, used(0, 0), &huge), Decision::Refuse { .. }),
        "saturates"
    );
}

#[test]
fn without_any_known_size_one_run_of_an_application_at_a_time() {
    let limit = [quota("q", Some("10Gi"), None)];
    let mut same = running(1, Estimate::None);
    let other = ask(&limit, used(0, 0), &same);
    assert_eq!(
        other,
        Decision::Admit(AdmitReason::WithinLimit),
        "another application"
    );
    same[0].application = app("billing");
    let decision = ask(&limit, used(0, 0), &same);
    assert_eq!(decision.reason(), "SizeUnknown");
    assert!(message(&decision).contains("quota: q") && message(&decision).contains("billing"));
    let counted = ask(&[quota("q", None, Some("9"))], used(0, 0), &same);
    assert_eq!(
        counted,
        Decision::Admit(AdmitReason::WithinLimit),
        "only under a limit of size"
    );
    same[0].estimate = Estimate::OfNamespace(1);
    assert_eq!(
        ask(&limit, used(0, 0), &same),
        Decision::Admit(AdmitReason::WithinLimit)
    );
}

#[test]
fn a_name_that_exists_is_answered_409_and_reserves_nothing() {
    let mut request = request();
    request.name_exists = NameExists::Yes;
    for hard in ["0", "5"] {
        let quotas = [quota("q", None, Some(hard))];
        let decision = decide(
            DIMENSIONS,
            &request,
            &quotas,
            &Knowledge::Current(used(0, 0)),
            &[],
        );
        assert_eq!(decision, Decision::AlreadyExists, "{hard}");
        assert!(!decision.reserves(&request));
    }
}

#[test]
fn case_webhook_1_a_dry_run_is_decided_and_leaves_no_trace() {
    let mut request = request();
    let room = [quota("q", None, Some("1"))];
    for dry_run in [true, false] {
        request.dry_run = dry_run;
        let decision = decide(DIMENSIONS, &request, &room, &Knowledge::Current(used(0, 0)), &[]);
        assert_eq!(decision, Decision::Admit(AdmitReason::WithinLimit));
        assert_eq!(decision.reserves(&request), !dry_run);
        let full = decide(DIMENSIONS, &request, &room, &Knowledge::Current(used(0, 1)), &[]);
        assert!(matches!(full, Decision::Refuse { .. }));
    }
}

#[test]
fn case_webhook_2_of_parallel_creates_at_4_of_5_exactly_one_is_admitted() {
    let quotas = [quota("q", None, Some("5"))];
    let (mut ledger, mut reservations) = (Ledger::default(), Reservations::default());
    for n in 0..4 {
        see(&mut ledger, &backup(&format!("b{n}"), 0), 0);
    }
    let mut admitted = 0;
    for n in 0..5 {
        let request = Request {
            uid: format!("new-{n}"),
            ..request()
        };
        let in_flight = in_flight(&ledger, &reservations, NS);
        let decision = decide(
            DIMENSIONS,
            &request,
            &quotas,
            &Knowledge::Current(ledger.figures(NS)),
            &in_flight,
        );
        if decision.reserves(&request) {
            admitted += 1;
            reservations.reserve(Reservation {
                uid: request.uid,
                namespace: NS.into(),
                application: request.application,
                at: Duration::ZERO,
            });
        }
    }
    assert_eq!(admitted, 1);
}

#[test]
fn case_webhook_7_a_change_of_application_is_decided_anew_without_counting_itself() {
    let quotas = [quota("q", Some("10Gi"), Some("2"))];
    let mut own = running(1, Estimate::None);
    own[0].uid = "new".into();
    let mut request = request();
    request.operation = Operation::ChangeApplication;
    request.name_exists = NameExists::Yes;
    let at = |figures: Figures| decide(DIMENSIONS, &request, &quotas, &Knowledge::Current(figures), &own);
    assert_eq!(at(used(GI, 1)), Decision::Admit(AdmitReason::WithinLimit));
    assert!(matches!(at(used(10 * GI, 1)), Decision::Refuse { .. }));
    assert!(
        !at(used(GI, 1)).reserves(&request),
        "it has been reserved when it was created"
    );
}

#[test]
fn case_webhook_10_a_quota_that_appears_below_usage_refuses_from_the_next_request() {
    assert_eq!(
        ask(&[], used(5 * GI, 5), &[]),
        Decision::Admit(AdmitReason::NoLimit)
    );
    assert!(matches!(
        ask(&[quota("q", Some("1Gi"), None)], used(5 * GI, 5), &[]),
        Decision::Refuse { .. }
    ));
}

#[test]
fn case_webhook_11_the_first_quota_in_order_of_names_is_named_and_the_text_is_stable() {
    let quotas = [
        quota("z", None, Some("1")),
        quota("a", None, Some("2")),
        quota("m", None, Some("1")),
    ];
    let figures = used(0, 1);
    let first = ask(&quotas, figures, &running(1, Estimate::None));
    assert!(message(&first).starts_with("exceeded quota: a, "));
    let mut turned = quotas.clone();
    turned.reverse();
    assert_eq!(ask(&turned, figures, &running(1, Estimate::None)), first);
}

#[test]
fn case_webhook_13_who_asks_is_no_fact_of_the_decision() {
    // A Request has no user: system:masters is refused like anybody.
    let decision = ask(&[quota("q", None, Some("0"))], used(0, 0), &[]);
    assert_eq!(decision.reason(), "ExceededQuota");
}

#[test]
fn case_webhook_15_a_job_that_another_plugin_refused_stops_counting_after_90_seconds() {
    let mut reservations = Reservations::default();
    reservations.reserve(Reservation {
        uid: "x".into(),
        namespace: NS.into(),
        application: app("a"),
        at: Duration::from_secs(10),
    });
    assert!(
        reservations
            .expire(Duration::from_secs(99), Some(Duration::from_secs(99)))
            .is_empty()
    );
    assert_eq!(in_flight(&Ledger::default(), &reservations, NS).len(), 1);
    assert!(in_flight(&Ledger::default(), &reservations, "other").is_empty());
    assert_eq!(
        reservations
            .expire(Duration::from_secs(100), Some(Duration::from_secs(100)))
            .len(),
        1
    );
    assert!(reservations.is_empty());
}

#[test]
fn a_run_is_counted_once_whether_reserved_recorded_or_both_and_not_beside_its_result() {
    let (mut ledger, mut reservations) = (Ledger::default(), Reservations::default());
    let fact = run("r", "Etcd");
    reservations.reserve(Reservation {
        uid: fact.job.uid.clone(),
        namespace: NS.into(),
        application: fact.application.clone(),
        at: Duration::ZERO,
    });
    apply(&mut ledger, run_seen(PLATFORM, &Ledger::default(), &fact, t(0)));
    assert_eq!(in_flight(&ledger, &reservations, NS).len(), 1);
    assert!(reservations.settle(&fact.job.uid) && !reservations.settle(&fact.job.uid));
    assert_eq!(in_flight(&ledger, &reservations, NS).len(), 1);
    // The Backup's record is written, the run's not yet removed.
    let changes = backup_seen(&ledger, &backup("r", GI), t(1));
    ledger.apply(&changes[0]);
    assert_eq!(ledger.figures(NS).in_flight(), 1);
    assert!(in_flight(&ledger, &reservations, NS).is_empty());
}

#[test]
fn a_limit_that_cannot_be_read_refuses_and_says_so() {
    let decision = ask(&[quota("q", None, Some("many"))], used(0, 0), &[]);
    assert_eq!(decision.reason(), "LimitUnreadable");
    assert!(message(&decision).contains("\"many\""));
}

#[test]
fn the_estimate_is_the_applications_last_known_size_else_the_namespaces_largest() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.estimate(NS, &app("control")), Estimate::None);
    see(&mut ledger, &backup("old", 9 * GI), 0);
    see(&mut ledger, &backup("new", 2 * GI), 50);
    see(&mut ledger, &backup("unsized", 0), 60);
    assert_eq!(
        ledger.estimate(NS, &app("control")),
        Estimate::OfApplication(2 * GI)
    );
    assert_eq!(ledger.estimate(NS, &app("other")), Estimate::OfNamespace(9 * GI));
    assert_eq!(ledger.estimate("elsewhere", &app("control")), Estimate::None);
}
