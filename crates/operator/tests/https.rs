//! The HTTPS server as a client sees it: a real TLS client, a real listener, no cluster.

mod client;

use client::{Client, answer};
use futures::future::BoxFuture;
use holdfast_operator::runtime::certs::{self, Certs};
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::results::Results;
use holdfast_operator::runtime::review::{Reviewer, Reviews, Unavailable, Verdict};
use holdfast_operator::runtime::server;
use holdfast_operator::runtime::tls::{Material, settle};
use holdfast_protocol::chunks::{CHUNK_LIMIT, ListedSnapshot, ScanVoid, digest, path, split};
use holdfast_protocol::work::Source;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio_util::sync::CancellationToken;

/// Stands in for the API server: three tokens are known.
#[derive(Default)]
struct Tokens(AtomicUsize);

impl Reviewer for Tokens {
    fn review<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            match token {
                "mover" => Ok(Verdict::User(
                    "system:serviceaccount:tenant:holdfast-mover".into(),
                )),
                "neighbour" => Ok(Verdict::User("system:serviceaccount:other:holdfast-mover".into())),
                "app" => Ok(Verdict::User("system:serviceaccount:tenant:default".into())),
                "outage" => Err(Unavailable("no answer".into())),
                _ => Ok(Verdict::Refused),
            }
        })
    }
}

struct Operator {
    address: SocketAddr,
    results: Results,
    tokens: Arc<Tokens>,
    leadership: Leadership,
    certs: Certs,
    end: CancellationToken,
    server: tokio::task::JoinHandle<std::io::Result<()>>,
}

fn material() -> Material {
    let (made, _) = settle(None, &certs::names("ns"), jiff::Timestamp::now()).expect("made");
    made.expect("new")
}

async fn operator(leadership: Leadership) -> Operator {
    let certs = Certs::default();
    certs.load(&material()).expect("served");
    let tokens = Arc::new(Tokens::default());
    let results = Results::new(Reviews::new(tokens.clone()), leadership.clone());
    let listener = server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bound");
    let address = listener.local_addr().expect("an address");
    let end = CancellationToken::new();
    let server = tokio::spawn(server::serve_https(
        listener,
        certs.ready().await,
        results.router(),
        leadership.clone(),
        end.clone(),
    ));
    Operator {
        address,
        results,
        tokens,
        leadership,
        certs,
        end,
        server,
    }
}

impl Operator {
    async fn client(&self) -> Client {
        let bundle = self.certs.bundle().expect("a bundle");
        Client::connect(self.address, &bundle).await.expect("connected")
    }

    async fn post(&self, token: &str, scan: &str, number: u32, body: &[u8]) -> (u16, String) {
        self.client()
            .await
            .post(&path(scan, number), token, body)
            .await
            .expect("an answer")
    }
}

fn listing(n: usize) -> Vec<ListedSnapshot> {
    (0..n)
        .map(|i| ListedSnapshot {
            snapshot_id: format!("{i:064x}"),
            source: Source {
                username: "p".into(),
                hostname: "tenant".into(),
                path: "/pvc/data".into(),
            },
            start_time: jiff::Timestamp::UNIX_EPOCH,
            size_bytes: Some(i as u64),
            cluster: None,
            snapshot_uid: None,
            pinned: false,
            pin_is_ours: false,
        })
        .collect()
}

#[tokio::test]
async fn a_listing_of_ten_thousand_arrives_complete_or_not_at_all() {
    let operator = operator(Leadership::always()).await;
    let rows = listing(10_000);
    let bodies = split(&rows, CHUNK_LIMIT).expect("json");
    assert!(bodies.len() > 3);
    let sum = digest(bodies.iter().map(Vec::as_slice));
    let chunks = bodies.len() as u32;

    operator.results.expect("whole", "tenant").expect("announced");
    let mut client = operator.client().await;
    for (number, body) in bodies.iter().enumerate() {
        let (status, text) = client
            .post(&path("whole", number as u32), "mover", body)
            .await
            .expect("an answer");
        assert_eq!((status, text.as_str()), (204, ""));
    }
    assert_eq!(operator.results.finish("whole", chunks, 10_000, &sum), Ok(rows));
    assert_eq!(
        operator.tokens.0.load(Ordering::SeqCst),
        1,
        "one review for the whole listing"
    );

    operator.results.expect("gap", "tenant").expect("announced");
    for (number, body) in bodies.iter().enumerate().filter(|(number, _)| *number != 2) {
        assert_eq!(operator.post("mover", "gap", number as u32, body).await.0, 204);
    }
    assert_eq!(
        operator.results.finish("gap", chunks, 10_000, &sum),
        Err(ScanVoid::Missing(2, chunks))
    );
    assert_eq!(
        operator.post("mover", "gap", 2, &bodies[2]).await.0,
        404,
        "the scan is over"
    );
}

#[tokio::test]
async fn only_the_mover_of_the_announced_namespace_may_post() {
    let operator = operator(Leadership::always()).await;
    operator.results.expect("scan", "tenant").expect("announced");
    for (token, status, word) in [
        ("", 401, "Bearer"),
        ("forged", 401, "audience"),
        ("app", 403, "holdfast-mover"),
        ("neighbour", 403, "namespace"),
        ("outage", 503, "again"),
    ] {
        let (found, text) = operator.post(token, "scan", 0, b"[]").await;
        assert_eq!(found, status, "{token}: {text}");
        let error = answer(&text)["error"].as_str().expect("a sentence").to_owned();
        assert!(error.contains(word), "{token}: {error}");
    }
    let (status, text) = operator.post("mover", "another", 0, b"[]").await;
    assert_eq!(status, 404);
    assert!(
        answer(&text)["error"]
            .as_str()
            .is_some_and(|error| error.contains("not expected"))
    );
    assert_eq!(
        operator.results.finish("scan", 1, 0, &digest([b"[]".as_slice()])),
        Err(ScanVoid::Missing(0, 1))
    );
}

#[tokio::test]
async fn what_is_too_large_or_makes_no_sense_is_refused_and_takes_nothing() {
    let operator = operator(Leadership::always()).await;
    operator.results.expect("scan", "tenant").expect("announced");
    let (status, text) = operator
        .post("mover", "scan", 0, &vec![b' '; CHUNK_LIMIT * 2])
        .await;
    assert_eq!(status, 413, "{text}");
    for number in ["-1", "x", "4096"] {
        let path = format!("/v1/results/scan/chunks/{number}");
        let (status, text) = operator
            .client()
            .await
            .post(&path, "mover", b"[]")
            .await
            .expect("an answer");
        assert_eq!(status, 400, "{text}");
    }
    assert_eq!(operator.post("mover", "scan", 0, b"[]").await.0, 204);
    let (status, text) = operator.post("mover", "scan", 0, b"[ ]").await;
    assert_eq!(status, 409, "{text}");
}

#[tokio::test]
async fn a_standby_answers_nothing_but_that_it_does_not_lead() {
    let operator = operator(Leadership::standby()).await;
    operator.results.expect("scan", "tenant").expect("announced");
    let (status, text) = operator.post("mover", "scan", 0, b"[]").await;
    assert_eq!(status, 503);
    assert!(
        answer(&text)["error"]
            .as_str()
            .is_some_and(|error| error.contains("does not lead"))
    );
    assert_eq!(operator.tokens.0.load(Ordering::SeqCst), 0);
}

/// The API server and movers keep a connection, and with it the replica that it leads to, for as long as it lives.
#[tokio::test]
async fn a_standby_hangs_up_after_its_answer_and_a_leader_does_not() {
    for (leadership, status) in [(Leadership::standby(), 503), (Leadership::always(), 204)] {
        let leads = leadership.is_leader();
        let operator = operator(leadership).await;
        operator.results.expect("scan", "tenant").expect("announced");
        let mut client = operator.client().await;
        let first = client.post(&path("scan", 0), "mover", b"[]").await;
        assert_eq!(first.expect("an answer, the whole of it").0, status);
        if leads {
            let second = client.post(&path("scan", 1), "mover", b"[]").await;
            assert_eq!(second.expect("an answer on the same connection").0, 204);
        } else {
            client.closed().await.expect("the connection is closed");
            let (again, _) = operator.post("mover", "scan", 1, b"[]").await;
            assert_eq!(again, 503, "the listener stays open");
        }
    }
}

#[tokio::test]
async fn losing_the_leadership_closes_every_connection_and_the_listener_goes_on() {
    let operator = operator(Leadership::always()).await;
    operator.results.expect("scan", "tenant").expect("announced");
    let mut busy = operator.client().await;
    assert_eq!(
        busy.post(&path("scan", 0), "mover", b"[]")
            .await
            .expect("an answer")
            .0,
        204
    );
    let mut idle = operator.client().await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    operator.leadership.lapse();
    busy.closed().await.expect("a connection that was used is closed");
    idle.closed()
        .await
        .expect("a connection that was never used is closed");
    assert_eq!(
        operator.post("mover", "scan", 1, b"[]").await.0,
        503,
        "new connections hear the reason"
    );
    operator.end.cancel();
    operator.server.await.expect("no panic").expect("a clean end");
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_without_cutting_connections() {
    let operator = operator(Leadership::always()).await;
    operator.results.expect("scan", "tenant").expect("announced");
    let old = operator.certs.bundle().expect("a bundle");
    let mut open = operator.client().await;
    assert_eq!(
        open.post(&path("scan", 0), "mover", b"[]")
            .await
            .expect("an answer")
            .0,
        204
    );
    operator.certs.load(&material()).expect("served");
    assert_eq!(
        open.post(&path("scan", 1), "mover", b"[]")
            .await
            .expect("an answer")
            .0,
        204
    );
    assert_eq!(
        operator.post("mover", "scan", 2, b"[]").await.0,
        204,
        "clients with the new bundle"
    );
    let stranger = Client::connect(operator.address, &old).await;
    assert!(
        stranger.is_err(),
        "an authority that never was in the bundle is not trusted"
    );
}

#[tokio::test]
async fn readiness_follows_the_world_and_metrics_follow_the_leadership() {
    use holdfast_operator::runtime::metrics::Metrics;
    let (ready, watching) = tokio::sync::watch::channel(false);
    let leadership = Leadership::always();
    let router = server::plain_router(
        watching,
        Arc::new(Metrics::new()),
        leadership.clone(),
        Foreign::none(),
    );
    let listener = server::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("bound");
    let address = listener.local_addr().expect("an address");
    let end = CancellationToken::new();
    let serving = tokio::spawn(server::serve_plain(listener, router, end.clone()));
    let get = |path: &'static str| client::get_plain(address, path);
    assert_eq!(get("/healthz").await.expect("an answer").0, 200);
    assert_eq!(get("/readyz").await.expect("an answer").0, 503);
    ready.send(true).expect("watched");
    assert_eq!(get("/readyz").await.expect("an answer").0, 200);
    assert!(
        get("/metrics")
            .await
            .expect("an answer")
            .1
            .contains("holdfast_leader 1\n")
    );
    leadership.lapse();
    assert!(
        get("/metrics")
            .await
            .expect("an answer")
            .1
            .contains("holdfast_leader 0\n")
    );
    end.cancel();
    serving.await.expect("no panic").expect("a clean end");
}
