//! Listings against a small HTTPS server with a certificate of its own, as the operator's port has.

use crate::support::{Bench, source};
use holdfast_protocol::chunks::Assembly;
use holdfast_protocol::outcome::{FailureClass, OperationResult};
use holdfast_protocol::work::{Operation, ResultsEndpoint};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const NAME: &str = "holdfast.holdfast-system.svc";

struct Request {
    line: String,
    authorization: String,
    body: Vec<u8>,
}

/// A server that answers with the given statuses in turn, then with 204.
struct Server {
    address: SocketAddr,
    ca: String,
    requests: Receiver<Request>,
}

impl Server {
    fn start(statuses: &[u16]) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![NAME.to_owned()])
            .unwrap()
            .signed_by(&key, &ca)
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let statuses = Arc::new(Mutex::new(statuses.to_vec()));
        let (sender, requests) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                let stream = StreamOwned::new(connection, stream.unwrap());
                let (statuses, sender) = (Arc::clone(&statuses), sender.clone());
                std::thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Some(request) = read(&mut stream) {
                        let mut statuses = statuses.lock().unwrap();
                        let status = if statuses.is_empty() {
                            204
                        } else {
                            statuses.remove(0)
                        };
                        drop(statuses);
                        let _ = sender.send(request);
                        let head = format!("HTTP/1.1 {status} x\r\nlocation: https://elsewhere/\r\n");
                        let _ = stream
                            .get_mut()
                            .write_all(format!("{head}content-length: 0\r\n\r\n").as_bytes());
                    }
                });
            }
        });
        Self {
            address,
            ca: ca.as_ref().pem(),
            requests,
        }
    }

    fn endpoint(&self) -> ResultsEndpoint {
        ResultsEndpoint {
            address: self.address.to_string(),
            server_name: NAME.to_owned(),
            ca: self.ca.clone(),
            scan: "scan-1".to_owned(),
        }
    }
}

fn read(stream: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    if stream.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let (mut authorization, mut length) = (String::new(), 0);
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).ok()?;
        let header = header.trim();
        match header.split_once(": ").map(|(k, v)| (k.to_lowercase(), v)) {
            Some((key, value)) if key == "authorization" => authorization = value.to_owned(),
            Some((key, value)) if key == "content-length" => length = value.parse().unwrap(),
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some(Request {
        line: line.trim().to_owned(),
        authorization,
        body,
    })
}

#[test]
fn a_listing_arrives_whole() {
    let bench = Bench::new();
    let taken = bench.back_up(0..3);
    let server = Server::start(&[]);
    let run = bench.run_document(&bench.with_results(Operation::List {}, server.endpoint()));
    assert_eq!(run.code, Some(0), "{}", run.message);
    let mut assembly = Assembly::default();
    let request = server.requests.try_recv().unwrap();
    assert_eq!(request.line, "POST /v1/results/scan-1/chunks/0 HTTP/1.1");
    assert_eq!(request.authorization, "Bearer secret-token");
    assembly.push(0, request.body).unwrap();
    let OperationResult::Listed {
        snapshots,
        chunks,
        digest,
    } = &run.outcome().result
    else {
        panic!("{}", run.message)
    };
    assert_eq!((*snapshots, *chunks), (3, 1));
    let mut rows = assembly.finish(*chunks, *snapshots, digest).unwrap();
    rows.sort_by_key(|r| r.start_time);
    for (row, taken) in rows.iter().zip(&taken) {
        assert_eq!(
            (&row.snapshot_id, &row.start_time),
            (&taken.snapshot_id, &taken.start_time)
        );
        assert_eq!(row.source, source());
        assert_eq!(row.size_bytes, Some(1500));
        assert_eq!(row.snapshot_uid.as_ref(), Some(&taken.uid));
        assert_eq!(row.cluster.as_deref(), Some(crate::support::CLUSTER));
    }
}

#[test]
fn an_empty_repository_is_one_empty_chunk() {
    let bench = Bench::new();
    let server = Server::start(&[]);
    let run = bench.run_document(&bench.with_results(Operation::List {}, server.endpoint()));
    assert!(matches!(
        run.outcome().result,
        OperationResult::Listed {
            snapshots: 0,
            chunks: 1,
            ..
        }
    ));
    assert_eq!(server.requests.try_recv().unwrap().body, b"[]");
}

#[test]
fn what_may_yet_succeed_is_tried_again_with_a_fresh_token() {
    let bench = Bench::new();
    let server = Server::start(&[503, 401]);
    let document = bench.with_results(Operation::List {}, server.endpoint());
    let mut child = bench.command(&document).stdout(Stdio::null()).spawn().unwrap();
    let first = server.requests.recv_timeout(Duration::from_secs(30)).unwrap();
    fs::write(bench.path("token"), "renewed").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(first.authorization, "Bearer secret-token");
    let later: Vec<_> = server.requests.try_iter().map(|r| r.authorization).collect();
    assert_eq!(later.len(), 2);
    assert_eq!(later.last().map(String::as_str), Some("Bearer renewed"));
}

#[test]
fn a_refusal_for_good_ends_it() {
    let bench = Bench::new();
    let server = Server::start(&[409]);
    let run = bench.run_document(&bench.with_results(Operation::List {}, server.endpoint()));
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::OperationFailed))
    );
    assert!(run.message.contains("409"), "{}", run.message);
    assert_eq!(server.requests.try_iter().count(), 1);
}

#[test]
fn nobody_else_is_told() {
    let bench = Bench::new();
    let (server, other) = (Server::start(&[307]), Server::start(&[]));
    let run = |endpoint: ResultsEndpoint| {
        let run = bench.run_document(&bench.with_results(Operation::List {}, endpoint));
        assert_eq!(
            (run.code, run.class()),
            (Some(1), Some(FailureClass::OperationFailed))
        );
        assert_eq!(run.outcome().result, OperationResult::None);
        run.message
    };
    // Another CA, another name, nobody there, nonsense.
    let wrong_ca = run(ResultsEndpoint {
        ca: other.ca.clone(),
        ..server.endpoint()
    });
    assert!(wrong_ca.contains("within 2 s"), "{wrong_ca}");
    run(ResultsEndpoint {
        server_name: "elsewhere.svc".to_owned(),
        ..server.endpoint()
    });
    run(ResultsEndpoint {
        address: "127.0.0.1:1".to_owned(),
        ..server.endpoint()
    });
    assert!(
        run(ResultsEndpoint {
            address: "operator".to_owned(),
            ..server.endpoint()
        })
        .contains("address")
    );
    assert!(
        run(ResultsEndpoint {
            ca: String::new(),
            ..server.endpoint()
        })
        .contains("ca")
    );
    assert_eq!(
        server.requests.try_iter().count() + other.requests.try_iter().count(),
        0
    );
}

#[test]
fn a_redirect_is_not_followed() {
    let bench = Bench::new();
    let server = Server::start(&[307, 307]);
    let run = bench.run_document(&bench.with_results(Operation::List {}, server.endpoint()));
    assert_eq!(run.code, Some(0), "tried again until taken: {}", run.message);
    let lines: Vec<_> = server.requests.try_iter().map(|r| r.line).collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines
            .iter()
            .all(|l| l.starts_with("POST /v1/results/scan-1/chunks/0 "))
    );
}

#[test]
fn an_unreadable_record_makes_no_listing() {
    let bench = Bench::new();
    let taken = bench.back_up(0..2);
    fs::write(
        bench.path("repository/snapshots").join(&taken[0].snapshot_id),
        "damaged",
    )
    .unwrap();
    let server = Server::start(&[]);
    let run = bench.run_document(&bench.with_results(Operation::List {}, server.endpoint()));
    assert_eq!(
        (run.code, run.class()),
        (Some(1), Some(FailureClass::OperationFailed))
    );
    assert!(run.message.contains(&taken[0].snapshot_id));
    assert_eq!(server.requests.try_iter().count(), 0);
}

#[test]
fn sigterm_ends_it_at_once() {
    let bench = Bench::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = ResultsEndpoint {
        address: silent.local_addr().unwrap().to_string(),
        ..Server::start(&[]).endpoint()
    };
    let document = bench.with_results(Operation::List {}, endpoint);
    let mut child = bench.command(&document).stdout(Stdio::null()).spawn().unwrap();
    let (_held, _) = silent.accept().unwrap();
    let begun = Instant::now();
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(!bench.path("termination").exists(), "nothing is confirmed");
}
