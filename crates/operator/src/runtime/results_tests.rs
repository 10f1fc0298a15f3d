use super::*;
use crate::runtime::review::{Reviewer, Unavailable};
use futures::future::BoxFuture;
use holdfast_protocol::chunks::digest;

struct Nobody;

impl Reviewer for Nobody {
    fn review<'a>(&'a self, _token: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
        Box::pin(async { Ok(Verdict::Refused) })
    }
}

fn results() -> Results {
    Results::new(Reviews::new(Arc::new(Nobody)), Leadership::always())
}

fn refused(outcome: Result<(), Refusal>) -> StatusCode {
    outcome.expect_err("refused").0
}

#[test]
fn only_movers_are_movers() {
    assert_eq!(
        mover_namespace("system:serviceaccount:a:holdfast-mover"),
        Some("a")
    );
    for other in [
        "system:serviceaccount:a:default",
        "system:serviceaccount::holdfast-mover",
        "system:serviceaccount:a:holdfast-mover:x",
        "system:serviceaccount:holdfast-mover",
        "holdfast-mover",
        "a:holdfast-mover",
        "",
    ] {
        assert_eq!(mover_namespace(other), None, "{other}");
    }
}

#[test]
fn scans_that_were_not_announced_or_are_of_another_namespace_take_nothing() {
    let results = results();
    results.expect("scan", "a").expect("announced");
    let now = Instant::now();
    assert_eq!(refused(results.check("other", "a", now)), StatusCode::NOT_FOUND);
    assert_eq!(refused(results.check("scan", "b", now)), StatusCode::FORBIDDEN);
    assert_eq!(
        refused(results.push("scan", "b", 0, b"[]".to_vec())),
        StatusCode::NOT_FOUND
    );
    assert!(results.check("scan", "a", now).is_ok());
    assert_eq!(results.scans().bytes, 0);
}

#[test]
fn scans_expire_and_are_forgotten_with_their_bytes() {
    let results = results();
    let start = Instant::now();
    results.expect_at("old", "a", start).expect("announced");
    results.push("old", "a", 0, vec![b' '; 100]).expect("taken");
    results
        .push("old", "a", 0, vec![b' '; 100])
        .expect("twice is harmless");
    assert_eq!(results.scans().bytes, 100);
    results
        .expect_at("old", "a", start + SCAN_LIFE / 2)
        .expect("announced again");
    assert_eq!(
        results.scans().bytes,
        100,
        "announcing again keeps what has arrived"
    );
    results
        .expect_at("new", "a", start + SCAN_LIFE + SCAN_LIFE / 2)
        .expect("announced");
    assert_eq!(results.scans().bytes, 0);
    assert_eq!(results.finish("old", 1, 0, ""), Err(ScanVoid::Missing(0, 1)));
    results.push("new", "a", 0, vec![b' '; 7]).expect("taken");
    results.forget("new");
    assert_eq!(results.scans().bytes, 0);
}

#[test]
fn the_number_of_scans_is_bounded() {
    let results = results();
    for n in 0..MOST_SCANS {
        results.expect(&n.to_string(), "a").expect("announced");
    }
    assert_eq!(results.expect("one more", "a"), Err(TooManyScans));
    assert!(results.expect("0", "a").is_ok(), "known ones stay");
    assert!(
        results.finish("0", 1, 0, "").is_err(),
        "and the place of one that is over is free"
    );
    assert!(results.expect("one more", "a").is_ok());
}

#[test]
fn the_bytes_of_all_scans_together_are_bounded() {
    let results = results();
    let body = vec![b' '; 16 * 1024 * 1024];
    let mut taken = 0;
    for scan in 0..6 {
        let scan = scan.to_string();
        results.expect(&scan, "a").expect("announced");
        for number in 0..4 {
            match results.push(&scan, "a", number, body.clone()) {
                Ok(()) => taken += body.len(),
                Err(Refusal(status, _)) => assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE),
            }
        }
    }
    assert_eq!(taken, TOTAL_LIMIT);
    assert_eq!(results.scans().bytes, TOTAL_LIMIT);
}

#[test]
fn a_contradiction_voids_the_scan_and_frees_its_memory() {
    let results = results();
    results.expect("scan", "a").expect("announced");
    results.push("scan", "a", 0, b"[]".to_vec()).expect("taken");
    assert_eq!(
        refused(results.push("scan", "a", 0, b"[ ]".to_vec())),
        StatusCode::CONFLICT
    );
    assert_eq!(results.scans().bytes, 0);
    let sum = digest([b"[]".as_slice()]);
    assert_eq!(results.finish("scan", 1, 0, &sum), Err(ScanVoid::Conflict(0)));
}
