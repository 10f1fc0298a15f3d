//! An API server in memory: what [`objects`] stores, answered over HTTP; a log of every write.
//!
//! **Promises.** Every request that a [`kube::Client`] of this server makes is answered here: read, list, watch, create, update,
//! patch, delete. A client's requests can be refused, lost or cut off ([`Fate`]). With a world given, that sees each write at
//! once, as with a watch that never lags; without, a process watches as in a cluster.

pub mod lists;
pub mod objects;
mod parts;
pub mod path;
pub mod refusal;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_operator::world::{Change as Seen, Kind, NamespaceView, Observed, World};
use jiff::{SignedDuration, Timestamp};
use lists::Query;
use objects::{Change, Event, Objects};
use path::Place;
use refusal::Refusal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// One write: method, path, body.
#[derive(Debug, Clone)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is carried out and answered.
    Answered,
    /// It is answered with this code and not carried out.
    Refused(StatusCode),
    /// It is carried out, and the answer does not arrive: this code comes instead.
    Lost(StatusCode),
    /// It is carried out, and nobody is there any more to read the answer.
    Last,
    /// Nobody asks: the process is dead.
    Unasked,
}

/// Decides on each request of one client before it is carried out.
pub type Judge = Arc<dyn Fn(&Method, &str, &Query) -> Fate + Send + Sync>;

type Hook = Box<dyn FnMut(&Write, &mut Objects) -> Option<StatusCode> + Send>;
type After = Box<dyn FnMut(&Write, &mut Objects) + Send>;

/// When an event is due.
#[derive(Debug, PartialEq, Eq)]
pub enum Lag {
    Due,
    Until(Instant),
}

/// See the module.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    objects: Mutex<Objects>,
    log: Mutex<Vec<Write>>,
    /// Paths that were read, lists included, watches apart.
    reads: Mutex<Vec<String>>,
    hook: Mutex<Option<Hook>>,
    after: Mutex<Option<After>>,
    world: Option<Arc<World>>,
    changed: watch::Sender<()>,
    /// Watches tell an event after so many further requests.
    lag: usize,
    /// When events were first looked at, for those that no request makes due.
    noticed: Mutex<BTreeMap<u64, Instant>>,
}

/// When nobody asks anything, an event is due after this long for each request of lag.
const LAG_TIME: Duration = Duration::from_millis(100);

impl Server {
    /// A server whose writes a world sees at once.
    pub fn new(world: Arc<World>) -> Self {
        for kind in Kind::ALL {
            world.apply(Seen::ListBegins(kind), Timestamp::now());
            world.apply(Seen::ListEnds(kind), Timestamp::now());
        }
        let server = Self::with(Some(world), Clock::system(), 0);
        server.objects().nothing_below = true;
        server
    }

    /// A server that is watched, with this lag in requests.
    pub fn watched(clock: Clock, lag: usize) -> Self {
        Self::with(None, clock, lag)
    }

    fn with(world: Option<Arc<World>>, clock: Clock, lag: usize) -> Self {
        Self(Arc::new(Inner {
            objects: Mutex::new(Objects::new(clock)),
            log: Mutex::default(),
            reads: Mutex::default(),
            hook: Mutex::default(),
            after: Mutex::default(),
            world,
            changed: watch::Sender::new(()),
            lag,
            noticed: Mutex::default(),
        }))
    }

    pub fn client(&self) -> kube::Client {
        self.client_with(Arc::new(|_, _, _| Fate::Answered))
    }

    /// A client whose requests are judged.
    pub fn client_with(&self, judge: Judge) -> kube::Client {
        let server = self.clone();
        let router = axum::Router::new().fallback(move |request: Request<Body>| {
            let (server, judge) = (server.clone(), Arc::clone(&judge));
            async move { server.judged(request, &judge).await }
        });
        kube::Client::new(router, "default")
    }

    pub fn objects(&self) -> MutexGuard<'_, Objects> {
        self.0.objects.lock().unwrap()
    }

    /// Called before each write; may change objects, or refuse with a status.
    pub fn on_write(&self, hook: impl FnMut(&Write, &mut Objects) -> Option<StatusCode> + Send + 'static) {
        *self.0.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Called after each write that was carried out.
    pub fn after_write(&self, after: impl FnMut(&Write, &mut Objects) + Send + 'static) {
        *self.0.after.lock().unwrap() = Some(Box::new(after));
    }

    /// Ends when something changed.
    pub async fn changed(&self) {
        let mut changed = self.0.changed.subscribe();
        let _ = changed.changed().await;
    }

    pub fn notify(&self) {
        self.0.changed.send_replace(());
    }

    pub(self) fn due(&self, event: &Event, answered: usize) -> Lag {
        let lag = self.0.lag;
        if lag == 0 || answered >= event.after + lag {
            return Lag::Due;
        }
        let mut noticed = self.0.noticed.lock().unwrap();
        let since = *noticed.entry(event.version).or_insert_with(Instant::now);
        let at = since + LAG_TIME * u32::try_from(lag).unwrap_or(u32::MAX);
        if Instant::now() >= at {
            Lag::Due
        } else {
            Lag::Until(at)
        }
    }

    /// Writes that begin like this.
    pub fn writes(&self, method: &Method, part: &str) -> Vec<Write> {
        let log = self.0.log.lock().unwrap();
        log.iter()
            .filter(|w| w.method == *method && w.path.contains(part))
            .cloned()
            .collect()
    }

    /// How often exactly this path was read.
    pub fn reads(&self, path: &str) -> usize {
        self.0.reads.lock().unwrap().iter().filter(|p| *p == path).count()
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects().by_path.get(path).cloned()
    }

    /// Objects right below a path.
    pub fn under(&self, path: &str) -> Vec<(String, Value)> {
        let objects = self.objects();
        let below = format!("{path}/");
        let found = objects.by_path.iter().filter(|(key, _)| key.starts_with(&below));
        found.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Removes an object without the world seeing it.
    pub fn remove_unseen(&self, path: &str) {
        self.objects().by_path.remove(path);
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        let object = self.objects().remove(path);
        if let Some(object) = object {
            self.tell(path, &object, true);
        }
    }

    /// Changes an object without the world seeing it.
    pub fn edit_unseen(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut objects = self.objects();
        change(objects.by_path.get_mut(path).unwrap());
        objects.bump(path);
    }

    /// Sets when an object was created.
    pub fn set_created(&self, path: &str, at: Timestamp) {
        let time = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        self.edit_unseen(path, |object| {
            object["metadata"]["creationTimestamp"] = json!(time);
        });
        let object = self.get(path).unwrap();
        self.tell(path, &object, false);
    }

    /// Puts an object there, seen by the world a minute ago.
    pub fn put(&self, path: &str, object: Value) {
        self.objects().put(path, object);
        let object = self.get(path).unwrap();
        self.tell(path, &object, false);
    }

    /// Changes an object as somebody else would.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).unwrap();
        change(&mut object);
        self.put(path, object);
    }

    fn tell(&self, path: &str, object: &Value, gone: bool) {
        self.notify();
        let Some(world) = &self.0.world else {
            return;
        };
        let Some(observed) = observe(path, object) else {
            return;
        };
        let change = if gone {
            Seen::Gone(observed)
        } else {
            Seen::Set(observed)
        };
        let seen = Timestamp::now() - SignedDuration::from_secs(60);
        world.apply(change, seen);
    }

    async fn judged(&self, request: Request<Body>, judge: &Judge) -> Response {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        match judge(request.method(), request.uri().path(), &query) {
            Fate::Answered => self.answer(request, &query).await,
            Fate::Refused(code) => Refusal::scripted(code).into_response(),
            Fate::Lost(code) => {
                self.answer(request, &query).await;
                Refusal::scripted(code).into_response()
            }
            Fate::Last => {
                self.answer(request, &query).await;
                std::future::pending().await
            }
            Fate::Unasked => std::future::pending().await,
        }
    }

    async fn answer(&self, request: Request<Body>, query: &Query) -> Response {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if head.method == Method::GET {
            if query.is_watch() {
                return self.watch(&path, query);
            }
            self.0.reads.lock().unwrap().push(path.clone());
            let answer = self.read(&path, query);
            self.answered();
            return respond(StatusCode::OK, answer);
        }
        let bytes = to_bytes(body, 10_000_000).await.unwrap();
        let write = Write {
            method: head.method.clone(),
            path,
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        };
        if let Some(hook) = self.0.hook.lock().unwrap().as_mut() {
            let refused = hook(&write, &mut self.objects());
            if let Some(status) = refused {
                return Refusal::scripted(status).into_response();
            }
        }
        self.0.log.lock().unwrap().push(write.clone());
        let kind = head
            .headers
            .get("content-type")
            .and_then(|t| t.to_str().ok())
            .unwrap_or_default();
        let (code, answer) = self.write(&write, kind, query.is_dry());
        if answer.is_ok()
            && !query.is_dry()
            && let Some(after) = self.0.after.lock().unwrap().as_mut()
        {
            after(&write, &mut self.objects());
        }
        self.answered();
        respond(code, answer)
    }

    fn answered(&self) {
        self.objects().answered += 1;
        if self.0.lag > 0 {
            self.notify();
        }
    }

    fn read(&self, path: &str, query: &Query) -> Result<Value, Refusal> {
        let objects = self.objects();
        let place = Place::parse(path)
            .ok_or_else(|| Refusal::plain(StatusCode::NOT_FOUND, "NotFound", "404 page not found"))?;
        match (place.name, place.sub) {
            (None, _) => objects.list(&place, query),
            (Some(name), sub) => {
                let own = sub.map_or(path, |sub| path.trim_end_matches(&format!("/{sub}")));
                let found = objects.by_path.get(own).cloned();
                found.ok_or_else(|| Refusal::not_found(&place, name))
            }
        }
    }

    fn write(&self, write: &Write, kind: &str, dry: bool) -> (StatusCode, Result<Value, Refusal>) {
        let path = write.path.as_str();
        let body = &write.body;
        let own = path.trim_end_matches("/status");
        let before = self.get(own);
        let mut objects = self.objects();
        let (code, answer) = match write.method {
            // Events are for people: they are not kept.
            Method::POST if path.ends_with("/events") => {
                (StatusCode::CREATED, objects.create(path, body, true))
            }
            Method::POST => (StatusCode::CREATED, objects.create(path, body, dry)),
            Method::DELETE => (StatusCode::OK, objects.delete(path, body, dry)),
            Method::PUT => (StatusCode::OK, objects.update(path, &Change::Replace(body), dry)),
            Method::PATCH if kind.contains("json-patch") => {
                (StatusCode::OK, objects.update(path, &Change::Json(body), dry))
            }
            Method::PATCH if kind.contains("apply-patch") => {
                let no = Refusal::plain(
                    StatusCode::UNSUPPORTED_MEDIA_TYPE,
                    "UnsupportedMediaType",
                    "Protect never applies",
                );
                (no.code, Err(no))
            }
            Method::PATCH => (StatusCode::OK, objects.update(path, &Change::Merge(body), dry)),
            _ => {
                let no = Refusal::plain(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "no");
                (no.code, Err(no))
            }
        };
        let created = answer.as_ref().ok().and_then(|o| o["metadata"]["name"].as_str());
        let own = match (&write.method, created) {
            (&Method::POST, Some(name)) => format!("{path}/{name}"),
            _ => own.to_owned(),
        };
        let now = objects.by_path.get(&own).cloned();
        drop(objects);
        match (now, before) {
            (Some(now), _) => self.tell(&own, &now, false),
            (None, Some(before)) => self.tell(&own, &before, true),
            (None, None) => {}
        }
        (code, answer)
    }
}

fn respond(code: StatusCode, answer: Result<Value, Refusal>) -> Response {
    match answer {
        Ok(body) => (code, axum::Json(body)).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

fn observe(path: &str, object: &Value) -> Option<Observed> {
    let object = object.clone();
    let parts: Vec<&str> = path.split('/').collect();
    let plural = parts[parts.len() - 2];
    Some(match plural {
        "snapshots" => Observed::Snapshot(Box::new(serde_json::from_value::<SnapshotView>(object).unwrap())),
        "repositories" => Observed::Repository(Box::new(RepositoryView::namespaced(
            serde_json::from_value(object).unwrap(),
        ))),
        "clusterrepositories" => Observed::Repository(Box::new(RepositoryView::cluster(
            serde_json::from_value(object).unwrap(),
        ))),
        "snapshotschedules" => Observed::Schedule(Box::new(serde_json::from_value(object).unwrap())),
        "restores" => Observed::Restore(Box::new(serde_json::from_value(object).unwrap())),
        "maintenances" => Observed::Maintenance(Box::new(serde_json::from_value(object).unwrap())),
        "snapshotpolicies" => Observed::Policy(Box::new(serde_json::from_value(object).unwrap())),
        "jobs" => Observed::Job(Box::new(serde_json::from_value::<JobView>(object).unwrap())),
        "namespaces" => Observed::Namespace(
            parts[parts.len() - 1].to_owned(),
            NamespaceView {
                terminating: !object["metadata"]["deletionTimestamp"].is_null(),
                labels: serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default(),
            },
        ),
        _ => return None,
    })
}
