//! One operator process: its client, its world, its watches, its workers, and its death.
//!
//! **Promises.** The code that runs is the operator's own: `runtime::watch` feeds the world, `protect::start` takes
//! keys from the queues. Only lanes and policies get keys; the other controllers have nothing to do in these
//! stories. A process that is dead asks nothing any more, and nothing of it is left to the next.

use super::shapes::Shape;
use crate::server::lists::Query;
use crate::server::{Fate, Judge, Server};
use axum::http::{Method, StatusCode};
use clap::Parser;
use futures::future::BoxFuture;
use holdfast_operator::context::{Context, Gates, Queues};
use holdfast_operator::protect;
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::events::Events;
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::metrics::Metrics;
use holdfast_operator::runtime::results::Results;
use holdfast_operator::runtime::review::{Reviewer, Reviews, Unavailable, Verdict};
use holdfast_operator::runtime::watch;
use holdfast_operator::settings::Settings;
use holdfast_operator::world::{Dirty, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What goes wrong at one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// The process dies right after request k was carried out.
    DiesAfter(usize),
    /// Request k is carried out, and the answer is lost.
    AnswerLost(usize),
    /// Request k is not carried out.
    Refused(usize),
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
    pub write: bool,
    /// What was stored, and when, as it was asked.
    pub stored: (u64, Instant),
}

/// What all processes of a story asked for, in order.
#[derive(Default)]
pub struct Trace {
    asked: Mutex<Vec<Asked>>,
    died: Notify,
}

impl Trace {
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Ends when a process has died.
    pub async fn death(&self) {
        self.died.notified().await;
    }
}

/// The lists and watches that feed the world are not counted: nothing is decided before they are there.
fn feeds_the_world(method: &Method, query: &Query) -> bool {
    method == Method::GET && (query.is_watch() || !query.get("limit").is_empty())
}

fn judge(server: &Server, trace: &Arc<Trace>, fault: Fault) -> Judge {
    let server = server.clone();
    let (trace, dead) = (Arc::clone(trace), AtomicBool::new(false));
    Arc::new(move |method, _, query| {
        if dead.load(Ordering::SeqCst) {
            return Fate::Unasked;
        }
        if feeds_the_world(method, query) {
            return Fate::Answered;
        }
        let mut asked = trace.asked.lock().unwrap();
        let number = asked.len();
        asked.push(Asked {
            write: method != Method::GET,
            stored: (server.objects().version, Instant::now()),
        });
        match fault {
            Fault::DiesAfter(k) if k == number => {
                dead.store(true, Ordering::SeqCst);
                trace.died.notify_one();
                Fate::Last
            }
            Fault::AnswerLost(k) if k == number => Fate::Lost(StatusCode::GATEWAY_TIMEOUT),
            Fault::Refused(k) if k == number => Fate::Refused(StatusCode::INTERNAL_SERVER_ERROR),
            Fault::Nothing | Fault::DiesAfter(_) | Fault::AnswerLost(_) | Fault::Refused(_) => Fate::Answered,
        }
    })
}

struct Nobody;

impl Reviewer for Nobody {
    fn review<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Verdict, Unavailable>> {
        unreachable!("no mover posts here")
    }
}

/// See the module.
pub struct Process([JoinSet<()>; 2]);

impl Process {
    pub fn start(
        server: &Server,
        trace: &Arc<Trace>,
        fault: Fault,
        clock: &Clock,
        number: usize,
        shape: &Shape,
    ) -> Self {
        let client = server.client_with(judge(server, trace, fault));
        let world = World::new();
        let leadership = Leadership::always();
        let mut settings = Settings::parse_from(["holdfast-operator", "--namespace", "holdfast-system"]);
        settings.max_concurrent_delete_jobs = shape.cap;
        settings.needs_silence = shape.silence;
        settings.reconcile_concurrency = 2;
        let ctx = Arc::new(Context {
            client: client.clone(),
            world: Arc::clone(&world),
            settings,
            clock: clock.clone(),
            leadership: leadership.clone(),
            events: Events::new(client.clone(), "test"),
            metrics: Arc::new(Metrics::new()),
            results: Results::new(Reviews::new(Arc::new(Nobody)), leadership),
            endpoint: RwLock::new(None),
            cluster: "cluster".to_owned(),
            identity: format!("process-{number}"),
            queues: Queues::new(),
            foreign: Foreign::none(),
            gates: Gates::default(),
        });
        let queues = Arc::clone(&ctx);
        let sink: watch::Sink = Arc::new(move |mut dirty| {
            dirty.retain(|d| matches!(d, Dirty::Lane(_) | Dirty::Policy(_)));
            queues.queues.add(dirty);
        });
        let watches = watch::start(&client, &world, &sink, false, clock, &Foreign::none());
        Self([watches, protect::start(&ctx, &CancellationToken::new())])
    }

    /// Ends it, whatever it was doing.
    pub async fn end(mut self) {
        for tasks in &mut self.0 {
            tasks.shutdown().await;
        }
    }
}
