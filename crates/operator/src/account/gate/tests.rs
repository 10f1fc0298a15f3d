//! The gate over books of its own: what is asked at once, what is reserved, what is answered.

use super::answer::answer;
use super::*;
use crate::runtime::leader::Leadership;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use futures::future::join_all;
use holdfast_api::names;
use holdfast_core::quota::gate::{AdmitReason, RefuseReason, in_flight};
use holdfast_core::quota::{Application, Figures, Ledger};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Books with a ledger that is always empty of records and figures that a test sets.
#[derive(Default)]
struct Fake {
    hard: Mutex<BTreeMap<String, String>>,
    jobs: Mutex<BTreeMap<String, JobSeen>>,
    seen_names: Mutex<BTreeSet<String>>,
    /// When the watch of jobs fell silent.
    silent_since: Mutex<Option<Instant>>,
}

impl Books for Fake {
    fn moment(&self, namespace: &str, reservations: &Reservations) -> Moment {
        Moment {
            quotas: vec![Quota {
                name: "cap".into(),
                hard: self.hard.lock().unwrap().clone(),
                ..Quota::default()
            }],
            knowledge: Knowledge::Current(Figures::default()),
            in_flight: in_flight(&Ledger::default(), reservations, namespace),
        }
    }

    fn has_job_named(&self, _: &str, name: &str) -> bool {
        self.seen_names.lock().unwrap().contains(name)
    }

    fn job(&self, uid: &str) -> JobSeen {
        self.jobs
            .lock()
            .unwrap()
            .get(uid)
            .copied()
            .unwrap_or(JobSeen::Not)
    }

    fn jobs_silent_for(&self) -> Option<Duration> {
        let since = *self.silent_since.lock().unwrap();
        Some(since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

/// The API server: which names exist, and how often it was asked.
#[derive(Default)]
struct Server {
    exist: BTreeSet<String>,
    down: bool,
    asked: Mutex<usize>,
}

impl Names for Server {
    fn exists<'a>(&'a self, namespace: &'a str, name: &'a str) -> super::live::Looked<'a> {
        *self.asked.lock().unwrap() += 1;
        let answer = if self.down {
            Err(NameError {
                namespace: namespace.into(),
                name: name.into(),
                why: "no answer".into(),
            })
        } else {
            Ok(self.exist.contains(name))
        };
        Box::pin(async move { answer })
    }
}

#[derive(Default)]
struct Counted(Mutex<Vec<&'static str>>);

impl Count for Counted {
    fn answered(&self, reason: &'static str, _: Duration) {
        self.0.lock().unwrap().push(reason);
    }
    fn reserved(&self, _: usize) {}
}

struct Scene {
    books: Arc<Fake>,
    server: Arc<Server>,
    gate: Arc<Gate>,
    refusals: tokio::sync::mpsc::Receiver<Refused>,
}

fn scene(count: &str, server: Server) -> Scene {
    scene_with(count, server, Leadership::always())
}

fn scene_with(count: &str, server: Server, leadership: Leadership) -> Scene {
    let books = Arc::new(Fake::default());
    if !count.is_empty() {
        let limit = (names::QUOTA_COUNT.to_owned(), count.to_owned());
        books.hard.lock().unwrap().extend([limit]);
    }
    let server = Arc::new(server);
    let (plans, refusals) = Plans::new();
    let gate = Gate::new(
        books.clone(),
        server.clone(),
        leadership,
        Arc::new(Counted::default()),
        plans,
    );
    gate.taken_over(1, []);
    Scene {
        books,
        server,
        gate,
        refusals,
    }
}

fn application(name: &str) -> Application {
    Application {
        group: "apps.cozystack.io".into(),
        kind: "Postgres".into(),
        name: name.into(),
    }
}

fn request(uid: &str) -> Request {
    Request {
        namespace: "tenant-acme".into(),
        uid: uid.into(),
        application: application(uid),
        name_exists: NameExists::NotKnown,
        operation: Operation::Create,
        dry_run: false,
    }
}

fn admitted(decision: &Decision) -> bool {
    match decision {
        Decision::Admit(_) => true,
        Decision::AlreadyExists | Decision::Refuse { .. } => false,
    }
}

/// Case webhook 2: exactly one, whatever comes at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_at_once_with_room_for_one_exactly_one_is_admitted() {
    for _ in 0..20 {
        let scene = scene("1", Server::default());
        let asked = (0..50).map(|n| {
            let gate = Arc::clone(&scene.gate);
            tokio::spawn(async move {
                let name = format!("job-{n}");
                gate.ask(request(&name), &name).await.expect("an answer")
            })
        });
        let answers = join_all(asked).await;
        let count = answers
            .iter()
            .filter(|a| admitted(a.as_ref().expect("no panic")))
            .count();
        assert_eq!(count, 1);
    }
}

/// Case webhook 1.
#[tokio::test]
async fn a_dry_run_is_decided_and_leaves_no_trace() {
    let scene = scene("1", Server::default());
    let dry = Request {
        dry_run: true,
        ..request("dry")
    };
    assert!(admitted(
        &scene.gate.ask(dry.clone(), "dry").await.expect("an answer")
    ));
    assert_eq!(scene.gate.settle_recorded(), 0, "something was reserved");
    assert!(admitted(
        &scene.gate.ask(request("real"), "real").await.expect("an answer")
    ));
    assert!(!admitted(&scene.gate.ask(dry, "dry").await.expect("an answer")));
}

#[tokio::test]
async fn a_name_that_exists_is_answered_409_at_the_limit_and_below_it() {
    let server = Server {
        exist: ["there".to_owned()].into(),
        ..Server::default()
    };
    let scene = scene("0", server);
    let answer = scene.gate.ask(request("new"), "there").await.expect("an answer");
    assert_eq!(answer, Decision::AlreadyExists);
    scene.books.hard.lock().unwrap().clear();
    scene.books.seen_names.lock().unwrap().insert("there".into());
    let answer = scene.gate.ask(request("new"), "there").await.expect("an answer");
    assert_eq!(answer, Decision::AlreadyExists);
    assert_eq!(
        scene.gate.settle_recorded(),
        0,
        "an object that is not made was reserved"
    );
}

/// What the cache has not seen is not asked about: an admission costs no request.
#[tokio::test]
async fn an_admission_asks_the_api_server_nothing_and_a_stale_name_is_looked_up() {
    let scene = scene("5", Server::default());
    assert!(admitted(
        &scene.gate.ask(request("a"), "fresh").await.expect("an answer")
    ));
    assert_eq!(*scene.server.asked.lock().unwrap(), 0);
    // The cache still shows one that is gone: it may be made again.
    scene.books.seen_names.lock().unwrap().insert("gone".into());
    assert!(admitted(
        &scene.gate.ask(request("b"), "gone").await.expect("an answer")
    ));
    assert_eq!(*scene.server.asked.lock().unwrap(), 1);
}

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_decides_nothing() {
    let scene = scene(
        "0",
        Server {
            down: true,
            ..Server::default()
        },
    );
    let error = scene.gate.ask(request("a"), "a").await.expect_err("no decision");
    assert!(error.to_string().contains("try again"), "{error}");
}

/// Promise 8.9: absence from a watch that may be dead proves nothing.
#[tokio::test(start_paused = true)]
async fn a_reservation_outlives_a_watch_that_is_silent_and_ends_when_it_speaks_again() {
    let scene = scene("1", Server::default());
    assert!(admitted(
        &scene.gate.ask(request("one"), "one").await.expect("an answer")
    ));
    *scene.books.silent_since.lock().unwrap() = Some(Instant::now());
    tokio::time::advance(Duration::from_secs(3_600)).await;
    scene.gate.expire();
    assert!(!admitted(
        &scene.gate.ask(request("two"), "two").await.expect("an answer")
    ));
    *scene.books.silent_since.lock().unwrap() = None;
    scene.gate.expire();
    assert!(admitted(
        &scene.gate.ask(request("two"), "two").await.expect("an answer")
    ));
}

/// Case webhook 15: what something after the gate refused ends by itself.
#[tokio::test(start_paused = true)]
async fn a_reservation_whose_job_never_comes_ends_after_ninety_seconds_and_one_that_was_seen_goes_on() {
    let scene = scene("2", Server::default());
    assert!(admitted(
        &scene.gate.ask(request("lost"), "lost").await.expect("an answer")
    ));
    assert!(admitted(
        &scene.gate.ask(request("seen"), "seen").await.expect("an answer")
    ));
    scene
        .books
        .jobs
        .lock()
        .unwrap()
        .insert("seen".into(), JobSeen::Seen);
    tokio::time::advance(Duration::from_secs(89)).await;
    scene.gate.expire();
    assert!(!admitted(
        &scene
            .gate
            .ask(request("third"), "third")
            .await
            .expect("an answer")
    ));
    tokio::time::advance(Duration::from_secs(2)).await;
    scene.gate.expire();
    assert!(admitted(
        &scene
            .gate
            .ask(request("third"), "third")
            .await
            .expect("an answer")
    ));
    assert!(!admitted(
        &scene
            .gate
            .ask(request("fourth"), "fourth")
            .await
            .expect("an answer")
    ));
    scene
        .books
        .jobs
        .lock()
        .unwrap()
        .insert("seen".into(), JobSeen::Recorded);
    assert_eq!(scene.gate.settle_recorded(), 1, "only the third is left");
}

#[tokio::test]
async fn at_a_takeover_what_was_read_live_counts_unless_the_ledger_has_it() {
    let scene = scene("3", Server::default());
    scene.books.jobs.lock().unwrap().extend([
        ("recorded".to_owned(), JobSeen::Recorded),
        ("over".to_owned(), JobSeen::Recorded),
        ("running".to_owned(), JobSeen::Seen),
    ]);
    let listed = |uid: &str| Listed {
        uid: uid.into(),
        namespace: "tenant-acme".into(),
        application: application(uid),
    };
    let all = [
        listed("recorded"),
        listed("over"),
        listed("running"),
        listed("unseen"),
    ];
    scene.gate.taken_over(1, all);
    assert_eq!(
        scene
            .books
            .moment("tenant-acme", &scene.gate.desk())
            .in_flight
            .len(),
        2
    );
    assert!(admitted(
        &scene.gate.ask(request("a"), "a").await.expect("an answer")
    ));
    assert!(!admitted(
        &scene.gate.ask(request("b"), "b").await.expect("an answer")
    ));
}

#[tokio::test]
async fn before_the_jobs_were_read_in_this_term_a_limited_namespace_is_refused_and_another_is_not() {
    let scene = scene("3", Server::default());
    scene.gate.taken_over(0, []);
    let answer = scene.gate.ask(request("a"), "a").await.expect("an answer");
    let Decision::Refuse { reason, message, .. } = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(reason, RefuseReason::TakingOver);
    assert!(message.contains("try again"), "{message}");
    scene.books.hard.lock().unwrap().clear();
    let answer = scene.gate.ask(request("a"), "a").await.expect("an answer");
    assert_eq!(answer, Decision::Admit(AdmitReason::NoLimit));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_ends_answers_nothing_and_waits_for_what_it_admitted() {
    let scene = scene("3", Server::default());
    assert!(admitted(
        &scene.gate.ask(request("a"), "a").await.expect("an answer")
    ));
    assert!(
        !scene.gate.close(Duration::from_secs(3)).await,
        "it was not recorded"
    );
    assert!(!scene.gate.is_open());
    scene
        .books
        .jobs
        .lock()
        .unwrap()
        .insert("a".into(), JobSeen::Recorded);
    assert!(scene.gate.close(Duration::from_secs(3)).await);
}

fn job(application: &str) -> Value {
    json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupJob",
        "metadata": { "name": "db-29790000", "namespace": "tenant-acme", "uid": "uid-1" },
        "spec": {
            "planRef": { "name": "db" },
            "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": "Postgres", "name": application },
            "backupClassName": "standard",
        },
    })
}

fn review(operation: &str, object: Value, old: Value, dry_run: bool) -> Value {
    let version = |kind: &str| json!({ "group": "backups.cozystack.io", "version": "v1alpha1", kind: kind });
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "call-1",
            "kind": { "group": "backups.cozystack.io", "version": "v1alpha1", "kind": "BackupJob" },
            "resource": { "group": "backups.cozystack.io", "version": "v1alpha1", "resource": "backupjobs" },
            "requestKind": version("kind"),
            "name": "db-29790000", "namespace": "tenant-acme",
            "operation": operation, "userInfo": { "groups": ["system:masters"] },
            "object": object, "oldObject": old, "dryRun": dry_run,
        },
    })
}

async fn post(gate: &Arc<Gate>, review: Value) -> (StatusCode, Value) {
    let review = serde_json::from_value(review).expect("a review");
    let response = answer(State(Arc::clone(gate)), Json(review)).await;
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .expect("a body");
    let value = serde_json::from_slice(&body)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&body).into_owned()));
    (status, value)
}

/// Cases webhook 11 and 13: the sentence of the API server's own quota, for administrators too.
#[tokio::test]
async fn a_refusal_reads_like_the_api_servers_own_and_is_told_to_the_plan_once_asked_for_real() {
    let mut scene = scene("0", Server::default());
    let (_, dry) = post(&scene.gate, review("CREATE", job("db"), Value::Null, true)).await;
    assert_eq!(dry["response"]["allowed"], false);
    let (status, answer) = post(&scene.gate, review("CREATE", job("db"), Value::Null, false)).await;
    assert_eq!(status, StatusCode::OK);
    let response = &answer["response"];
    assert_eq!(response["uid"], "call-1");
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 403);
    assert_eq!(response["status"]["reason"], "Forbidden");
    assert_eq!(
        response["status"]["message"],
        "backupjobs.backups.cozystack.io \"db-29790000\" is forbidden: exceeded quota: cap, requested: \
         backups.cozystack.io/count=1, used: backups.cozystack.io/count=0, limited: backups.cozystack.io/count=0"
    );
    let told = scene.refusals.try_recv().expect("told");
    assert_eq!((told.plan.as_str(), told.reason), ("db", "ExceededQuota"));
    assert!(scene.refusals.try_recv().is_err(), "the dry run was told too");
}

#[tokio::test]
async fn an_existing_name_is_told_with_the_code_that_clients_treat_as_done() {
    let server = Server {
        exist: ["db-29790000".to_owned()].into(),
        ..Server::default()
    };
    let scene = scene("0", server);
    let (_, answer) = post(&scene.gate, review("CREATE", job("db"), Value::Null, false)).await;
    assert_eq!(answer["response"]["status"]["code"], 409);
    assert_eq!(answer["response"]["status"]["reason"], "AlreadyExists");
}

/// Case webhook 7.
#[tokio::test]
async fn a_change_of_the_application_is_decided_as_if_it_were_new_and_any_other_update_passes() {
    let scene = scene("0", Server::default());
    let labelled = {
        let mut job = job("db");
        job["metadata"]["labels"] = json!({ "a": "b" });
        job
    };
    let (_, same) = post(&scene.gate, review("UPDATE", labelled, job("db"), false)).await;
    assert_eq!(same["response"]["allowed"], true);
    let (_, other) = post(&scene.gate, review("UPDATE", job("larger"), job("db"), false)).await;
    assert_eq!(other["response"]["allowed"], false);
    let mut ended = job("db");
    ended["status"] = json!({ "phase": "Succeeded" });
    let (_, over) = post(&scene.gate, review("UPDATE", job("larger"), ended, false)).await;
    assert_eq!(
        over["response"]["allowed"], true,
        "its run is over: nothing begins"
    );
    let (_, deleted) = post(&scene.gate, review("DELETE", Value::Null, job("db"), false)).await;
    assert_eq!(deleted["response"]["allowed"], true);
}

#[tokio::test]
async fn a_replica_that_does_not_lead_answers_nothing() {
    let scene = scene_with("", Server::default(), Leadership::standby());
    let (status, why) = post(&scene.gate, review("CREATE", job("db"), Value::Null, false)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        why.as_str().is_some_and(|why| why.contains("does not lead")),
        "{why}"
    );
}
