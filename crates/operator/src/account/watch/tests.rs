//! Watches over an API server that refuses, fails and falls silent: what the gate is told of them, and when.

use super::*;
use crate::account::ledger::first_look;
use crate::account::settings::AccountSettings;
use crate::runtime::clock::Clock;
use crate::runtime::events::Events;
use crate::runtime::leader::Leadership;
use crate::runtime::metrics::Metrics;
use axum::body::{Body as Sent, Bytes};
use axum::http::{Request, Response};
use holdfast_api::backups::{Backup, BackupJob};
use holdfast_api::names;
use holdfast_core::quota::Figures;
use holdfast_core::quota::gate::Knowledge;
use kube::client::Body;
use serde_json::json;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Mutex;
use tokio::time::Instant;

/// What the API server does with requests about one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    /// Lists and watches.
    Well,
    /// The status code of every answer; watches that are open end.
    Refuses(u16),
    /// Its connections are dead: nothing comes, and nothing ends.
    Dead,
}

/// An API server with no objects, and kinds that are not well.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Vec<(&'static str, Mood)>>>);

impl Server {
    fn set(&self, plural: &'static str, mood: Mood) {
        let mut moods = self.0.lock().expect("no panic");
        moods.retain(|(known, _)| *known != plural);
        moods.push((plural, mood));
    }

    fn mood(&self, path: &str) -> Mood {
        let moods = self.0.lock().expect("no panic");
        let plural = path.rsplit('/').next().unwrap_or_default();
        let of = moods.iter().find(|(known, _)| *known == plural);
        of.map_or(Mood::Well, |(_, mood)| *mood)
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<Sent>, Infallible> {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default().to_owned();
        let told = |code: u16, told: serde_json::Value| {
            let response = Response::builder()
                .status(code)
                .body(Sent::from(told.to_string()));
            response.expect("a response")
        };
        Ok(match self.mood(&path) {
            Mood::Dead => std::future::pending().await,
            Mood::Refuses(code) => told(
                code,
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "reason": "Refused", "message": "not now" }),
            ),
            Mood::Well if query.contains("watch=true") => Response::new(self.events(path, length(&query))),
            Mood::Well => told(
                200,
                json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": [] }),
            ),
        })
    }

    /// A watch in which nothing happens: it ends when it was asked to, unless its connection dies.
    fn events(self, path: String, length: Duration) -> Sent {
        let quiet = async move {
            let until = Instant::now() + length;
            while Instant::now() < until {
                tokio::time::sleep(Duration::from_secs(1)).await;
                match self.mood(&path) {
                    Mood::Well => {}
                    Mood::Refuses(_) => return,
                    Mood::Dead => std::future::pending().await,
                }
            }
        };
        let nothing =
            futures::stream::once(quiet).filter_map(|()| async { None::<Result<Bytes, Infallible>> });
        Sent::from_stream(nothing)
    }
}

fn length(query: &str) -> Duration {
    let asked = query
        .split('&')
        .find_map(|part| part.strip_prefix("timeoutSeconds="));
    Duration::from_secs(asked.expect("a watch with an end").parse().expect("a number"))
}

/// An account whose watches run, and which has looked at everything.
async fn scene() -> (Server, Arc<Account>) {
    let server = Server::default();
    let serving = server.clone();
    let client = kube::Client::new(
        tower::service_fn(move |request| serving.clone().answer(request)),
        "default",
    );
    let settings = AccountSettings {
        namespace: names::OPERATOR_NAMESPACE.to_owned(),
        pod_name: "test".to_owned(),
        concurrency: 1,
        streaming_lists: false,
        strategy_groups: BTreeSet::new(),
        debounce: Duration::from_secs(1),
    };
    let account = Account::new(
        client.clone(),
        settings,
        Clock::system(),
        Leadership::always(),
        Events::new(client, "test"),
        Arc::new(Metrics::new()),
    );
    let kinds = [Kind::Artifact, Kind::Backup, Kind::Job];
    account.observe(Change::Installed(crate::account::definitions::Installed {
        kinds: kinds.into(),
        strategies: BTreeSet::new(),
    }));
    tokio::spawn(follow_builtin(Arc::clone(&account)));
    for (kind, resource) in [
        (Kind::Artifact, ApiResource::erase::<Artifact>(&())),
        (Kind::Backup, ApiResource::erase::<Backup>(&())),
        (Kind::Job, ApiResource::erase::<BackupJob>(&())),
    ] {
        tokio::spawn(follow(Arc::clone(&account), Watched { kind, resource }));
    }
    while !account.world.is_complete() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    first_look(&account);
    (server, account)
}

fn knowledge(account: &Account) -> Knowledge {
    account.knowledge("tenant-acme", Figures::default())
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Quiet is not silence: each watch ends by itself, and the answer to the next one tells that nothing was missed.
#[tokio::test(start_paused = true)]
async fn a_cluster_in_which_nothing_happens_is_current() {
    let (_, account) = scene().await;
    for minute in 0..30 {
        assert_eq!(
            knowledge(&account),
            Knowledge::Current(Figures::default()),
            "after {minute} minutes: {:?}",
            account.silent_kinds(),
        );
        after(60).await;
    }
}

/// Rights that were taken away, errors on one kind, a connection that is half open.
#[tokio::test(start_paused = true)]
async fn a_kind_whose_watch_is_refused_fails_or_dies_makes_the_count_stale_and_again_current() {
    for mood in [Mood::Refuses(403), Mood::Refuses(500), Mood::Dead] {
        for (plural, kind) in [
            ("backupjobs", Kind::Job),
            ("backups", Kind::Backup),
            ("artifacts", Kind::Artifact),
            ("resourcequotas", Kind::Quota),
        ] {
            let (server, account) = scene().await;
            after(200).await;
            server.set(plural, mood);
            after(40).await;
            assert!(
                matches!(knowledge(&account), Knowledge::Current(_)),
                "{plural} {mood:?}: one watch may take as long"
            );
            after(55).await;
            assert_eq!(knowledge(&account), Knowledge::Stale, "{plural} {mood:?}");
            assert_eq!(account.silent_kinds(), [kind]);
            server.set(plural, Mood::Well);
            // A request that waits on a dead connection, and the longest pause between two.
            after(90).await;
            assert!(
                matches!(knowledge(&account), Knowledge::Current(_)),
                "{plural} {mood:?}: it is well again"
            );
        }
    }
}

/// What a list tells is as of its beginning, and a list that never ends tells nothing.
#[tokio::test(start_paused = true)]
async fn while_a_kind_is_listed_again_only_the_end_of_the_list_counts() {
    let (_, account) = scene().await;
    account.pulse.list_begins(&Kind::Backup);
    after(100).await;
    assert_eq!(knowledge(&account), Knowledge::Stale);
    account.pulse.list_ends(&Kind::Backup);
    assert_eq!(knowledge(&account), Knowledge::Stale, "it began too long ago");
    after(60).await;
    assert!(matches!(knowledge(&account), Knowledge::Current(_)));
}
