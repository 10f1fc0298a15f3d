//! A job whose first state that anybody sees is its last.

use super::*;
use crate::account::definitions::Installed;
use crate::account::gate::{Books as _, JobSeen};
use crate::account::ledger::{Item, backup_fact, first_look, pass};
use crate::account::settings::AccountSettings;
use crate::account::world::views::BackupView;
use crate::account::world::{Change, Observed};
use crate::runtime::clock::Clock;
use crate::runtime::events::Events;
use crate::runtime::leader::Leadership;
use crate::runtime::metrics::Metrics;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use holdfast_api::names;
use holdfast_core::quota::transitions::backup_seen;
use holdfast_core::quota::{Application, Reason, StrategyKind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const NAMESPACE: &str = "tenant-acme";
const UID: &str = "job-uid";

/// An API server that has one Backup or none, and takes every record.
#[derive(Default)]
struct Server {
    has_backup: AtomicBool,
    written: Mutex<Vec<Value>>,
}

impl Server {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let missing = (
            404,
            json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": "" }),
        );
        if path.ends_with("/backups/db") {
            return match self.has_backup.load(Ordering::SeqCst) {
                true => (
                    200,
                    json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
                        "name": "db", "namespace": NAMESPACE, "creationTimestamp": Timestamp::now().to_string() } }),
                ),
                false => missing,
            };
        }
        if !path.contains("/artifacts") || *method == Method::GET {
            return missing;
        }
        let mut object: Value = serde_json::from_slice(body).unwrap_or_default();
        object["metadata"]["uid"] = json!("record-uid");
        object["metadata"]["resourceVersion"] = json!("7");
        if object["spec"].is_null() {
            let written = self.written.lock().expect("no panic");
            object["spec"] = written
                .last()
                .map(|last| last["spec"].clone())
                .unwrap_or_default();
        }
        self.written.lock().expect("no panic").push(object.clone());
        (201, object)
    }
}

/// An account that has looked at an empty cluster.
fn scene(server: &Arc<Server>) -> Arc<Account> {
    let serving = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = Arc::clone(&serving);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let (code, told) = server.answer(&head.method, head.uri.path(), &body);
            let response = Response::builder()
                .status(code)
                .body(Body::from(told.to_string()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    let client = kube::Client::new(service, "default");
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
    let kinds = [Kind::Artifact, Kind::Backup, Kind::Job, Kind::Class];
    account.observe(Change::Installed(Installed {
        kinds: kinds.clone().into(),
        strategies: BTreeSet::new(),
    }));
    for kind in kinds.into_iter().chain([Kind::Quota, Kind::Namespace]) {
        account.observe(Change::ListBegins(kind.clone()));
        account.observe(Change::ListEnds(kind, Timestamp::now()));
    }
    first_look(&account);
    account
}

fn application() -> Arc<Application> {
    Arc::new(Application {
        group: "apps.cozystack.io".to_owned(),
        kind: "Etcd".to_owned(),
        name: "control".to_owned(),
    })
}

fn etcd() -> StrategyRef {
    StrategyRef {
        kind: StrategyKind {
            group: names::STRATEGY_GROUP.to_owned(),
            kind: "Etcd".to_owned(),
        },
        name: "any".to_owned(),
    }
}

/// A BackupJob that says it succeeded, created as long ago.
fn succeeded(ago: SignedDuration) -> Change {
    Change::Set(Observed::Job(Box::new(JobView {
        uid: UID.into(),
        namespace: NAMESPACE.into(),
        name: "db".into(),
        created_at: Some(Timestamp::now() - ago),
        application: application(),
        class: "etcd".into(),
        plan: None,
        phase: Phase::Succeeded,
        started_at: Some(Timestamp::now() - ago),
        backup: Some("db".into()),
    })))
}

fn class() -> Change {
    let class = json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupClass", "metadata": { "name": "etcd" },
        "spec": { "strategies": [{
            "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": "Etcd", "name": "any" },
            "application": { "kind": "Etcd" },
        }] },
    });
    let class = serde_json::from_value(class).expect("a BackupClass");
    Change::Set(crate::account::world::wire::class(class))
}

#[tokio::test]
async fn a_job_first_seen_as_succeeded_is_settled_only_when_its_backup_is_recorded() {
    let server = Arc::new(Server::default());
    server.has_backup.store(true, Ordering::SeqCst);
    let account = scene(&server);
    account.observe(succeeded(SignedDuration::ZERO));
    assert_eq!(account.job(UID), JobSeen::Seen, "nobody has looked at it");
    let item = Item::Job(UID.into());
    assert_eq!(
        pass(&account, &item).await.expect("a pass"),
        Next::After(RESULT_AGAIN)
    );
    assert_eq!(
        account.job(UID),
        JobSeen::Seen,
        "its Backup exists and is not recorded"
    );
    let view = BackupView {
        uid: "backup-uid".into(),
        namespace: NAMESPACE.into(),
        name: "db".into(),
        created_at: Timestamp::now(),
        application: application(),
        strategy: Arc::new(etcd()),
        uri: None,
        notes: Box::default(),
        size_bytes: Some(7),
    };
    let fact = backup_fact(&account, &view);
    let recorded = account
        .book
        .read(|ledger| backup_seen(ledger, &fact, Timestamp::now()));
    let version = crate::account::book::Version {
        uid: "r".to_owned(),
        resource_version: "1".to_owned(),
        is_told: true,
    };
    account.book.wrote(&recorded[0], Some(version));
    assert_eq!(pass(&account, &item).await.expect("a pass"), Next::Settled);
    assert_eq!(account.job(UID), JobSeen::Recorded);
}

#[tokio::test]
async fn one_whose_backup_is_gone_already_is_charged_and_one_that_is_older_than_the_ledger_is_not() {
    for (ago, written) in [
        (SignedDuration::ZERO, true),
        (SignedDuration::from_mins(5), false),
    ] {
        let server = Arc::new(Server::default());
        let account = scene(&server);
        account.observe(class());
        // Made after the look began, by the clock of the API server.
        tokio::time::sleep(Duration::from_millis(5)).await;
        account.observe(succeeded(ago));
        let next = pass(&account, &Item::Job(UID.into())).await.expect("a pass");
        assert_eq!(next, Next::Settled);
        let left: Vec<Reason> = account
            .book
            .read(|ledger| ledger.records().map(|record| record.reason).collect());
        let wanted: &[Reason] = if written { &[Reason::NoBackupRecorded] } else { &[] };
        assert_eq!(left, wanted, "created {ago:?} ago");
        assert_eq!(!server.written.lock().expect("no panic").is_empty(), written);
    }
}
