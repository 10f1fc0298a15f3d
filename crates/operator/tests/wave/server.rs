//! An API server in memory: objects, resourceVersions, merge and JSON patches, finalizers, preconditions; a log of
//! every write; and a world that sees each write at once, as with a watch that never lags.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use holdfast_operator::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_operator::world::{Change, Kind, NamespaceView, Observed, World};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// One write: method, path, body.
#[derive(Debug, Clone)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

type Hook = Box<dyn FnMut(&Write, &mut Objects) -> Option<StatusCode> + Send>;

/// Objects by path.
#[derive(Default)]
pub struct Objects {
    pub by_path: BTreeMap<String, Value>,
    version: u64,
}

impl Objects {
    pub fn bump(&mut self, path: &str) {
        self.version += 1;
        if let Some(object) = self.by_path.get_mut(path) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
    }
}

/// See the module.
#[derive(Clone)]
pub struct Server {
    objects: Arc<Mutex<Objects>>,
    log: Arc<Mutex<Vec<Write>>>,
    hook: Arc<Mutex<Option<Hook>>>,
    world: Arc<World>,
}

impl Server {
    pub fn new(world: Arc<World>) -> Self {
        for kind in Kind::ALL {
            world.apply(Change::ListBegins(kind), Timestamp::now());
            world.apply(Change::ListEnds(kind), Timestamp::now());
        }
        Self {
            objects: Arc::default(),
            log: Arc::default(),
            hook: Arc::default(),
            world,
        }
    }

    pub fn client(&self) -> kube::Client {
        let server = self.clone();
        let router = axum::Router::new().fallback(move |request: Request<Body>| {
            let server = server.clone();
            async move { server.answer(request).await }
        });
        kube::Client::new(router, "default")
    }

    /// Called before each write; may change objects, or refuse with a status.
    pub fn on_write(&self, hook: impl FnMut(&Write, &mut Objects) -> Option<StatusCode> + Send + 'static) {
        *self.hook.lock().unwrap() = Some(Box::new(hook));
    }

    /// Writes that begin like this.
    pub fn writes(&self, method: &Method, part: &str) -> Vec<Write> {
        let log = self.log.lock().unwrap();
        log.iter()
            .filter(|w| w.method == *method && w.path.contains(part))
            .cloned()
            .collect()
    }

    pub fn get(&self, path: &str) -> Option<Value> {
        self.objects.lock().unwrap().by_path.get(path).cloned()
    }

    /// Objects right below a path.
    pub fn under(&self, path: &str) -> Vec<(String, Value)> {
        let objects = self.objects.lock().unwrap();
        let below = format!("{path}/");
        let found = objects.by_path.iter().filter(|(key, _)| key.starts_with(&below));
        found.map(|(key, object)| (key.clone(), object.clone())).collect()
    }

    /// Removes an object without the world seeing it.
    pub fn remove_unseen(&self, path: &str) {
        self.objects.lock().unwrap().by_path.remove(path);
    }

    /// Removes an object.
    pub fn remove(&self, path: &str) {
        let object = self.objects.lock().unwrap().by_path.remove(path);
        if let Some(object) = object {
            self.tell(path, &object, true);
        }
    }

    /// Changes an object without the world seeing it.
    pub fn edit_unseen(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut objects = self.objects.lock().unwrap();
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
    pub fn put(&self, path: &str, mut object: Value) {
        let mut objects = self.objects.lock().unwrap();
        objects.version += 1;
        let version = objects.version;
        let meta = &mut object["metadata"];
        meta["resourceVersion"] = json!(version.to_string());
        if meta["uid"].is_null() {
            meta["uid"] = json!(format!("uid-{version}"));
        }
        meta["creationTimestamp"] = json!(Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        objects.by_path.insert(path.to_owned(), object.clone());
        drop(objects);
        self.tell(path, &object, false);
    }

    /// Changes an object as somebody else would.
    pub fn edit(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.get(path).unwrap();
        change(&mut object);
        self.put(path, object);
    }

    fn tell(&self, path: &str, object: &Value, gone: bool) {
        let Some(observed) = observe(path, object) else {
            return;
        };
        let change = if gone {
            Change::Gone(observed)
        } else {
            Change::Set(observed)
        };
        let seen = Timestamp::now() - SignedDuration::from_secs(60);
        self.world.apply(change, seen);
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        let bytes = to_bytes(body, 10_000_000).await.unwrap();
        let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        if head.method == Method::GET {
            return self.read(&path, head.uri.query().unwrap_or_default());
        }
        let write = Write {
            method: head.method.clone(),
            path: path.clone(),
            body,
        };
        if let Some(hook) = self.hook.lock().unwrap().as_mut() {
            let refused = hook(&write, &mut self.objects.lock().unwrap());
            if let Some(status) = refused {
                return failure(status, "refused by the test");
            }
        }
        self.log.lock().unwrap().push(write.clone());
        let json_patch = head
            .headers
            .get("content-type")
            .is_some_and(|t| t.to_str().unwrap().contains("json-patch"));
        match head.method {
            Method::POST => self.create(&write),
            Method::DELETE => self.delete(&write),
            Method::PUT | Method::PATCH => self.update(&write, json_patch),
            _ => failure(StatusCode::METHOD_NOT_ALLOWED, "no"),
        }
    }

    fn read(&self, path: &str, query: &str) -> Response {
        if let Some(object) = self.get(path) {
            return axum::Json(object).into_response();
        }
        let plural = path.rsplit('/').next().unwrap_or_default();
        if !["jobs", "pods", "configmaps", "snapshots"].contains(&plural) {
            return failure(StatusCode::NOT_FOUND, "not found");
        }
        let selector = query
            .split('&')
            .find_map(|p| p.strip_prefix("labelSelector="))
            .unwrap_or_default();
        let selector = selector
            .replace("%3D", "=")
            .replace("%2C", ",")
            .replace("%2F", "/");
        let items: Vec<Value> = self
            .objects
            .lock()
            .unwrap()
            .by_path
            .iter()
            .filter(|(key, object)| key.contains(&format!("/{plural}/")) && selected(object, &selector))
            .map(|(_, object)| object.clone())
            .collect();
        axum::Json(json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items }))
            .into_response()
    }

    fn create(&self, write: &Write) -> Response {
        let name = write.body["metadata"]["name"]
            .as_str()
            .unwrap_or("event")
            .to_owned();
        let path = format!("{}/{name}", write.path);
        if write.path.ends_with("/events") {
            return axum::Json(write.body.clone()).into_response();
        }
        if self.get(&path).is_some() {
            return failure(StatusCode::CONFLICT, "already exists");
        }
        self.put(&path, write.body.clone());
        axum::Json(self.get(&path)).into_response()
    }

    fn update(&self, write: &Write, json_patch: bool) -> Response {
        let path = write.path.trim_end_matches("/status").to_owned();
        let mut objects = self.objects.lock().unwrap();
        let Some(mut object) = objects.by_path.get(&path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "not found");
        };
        if json_patch {
            let patch: json_patch::Patch = serde_json::from_value(write.body.clone()).unwrap();
            if json_patch::patch(&mut object, &patch).is_err() {
                return failure(
                    StatusCode::UNPROCESSABLE_ENTITY,
                    "the server rejected our request due to an error in our request",
                );
            }
        } else {
            let version = &write.body["metadata"]["resourceVersion"];
            if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
                return failure(StatusCode::CONFLICT, "the object has been modified");
            }
            if write.method == Method::PUT {
                let uid = object["metadata"]["uid"].clone();
                object = write.body.clone();
                object["metadata"]["uid"] = uid;
            } else {
                json_patch::merge(&mut object, &write.body);
            }
        }
        objects.by_path.insert(path.clone(), object);
        objects.bump(&path);
        let object = objects.by_path[&path].clone();
        let meta = &object["metadata"];
        let ends =
            !meta["deletionTimestamp"].is_null() && meta["finalizers"].as_array().is_none_or(Vec::is_empty);
        if ends {
            objects.by_path.remove(&path);
        }
        drop(objects);
        self.tell(&path, &object, ends);
        axum::Json(object).into_response()
    }

    fn delete(&self, write: &Write) -> Response {
        let mut objects = self.objects.lock().unwrap();
        let Some(object) = objects.by_path.get(&write.path).cloned() else {
            return failure(StatusCode::NOT_FOUND, "not found");
        };
        let uid = &write.body["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            return failure(StatusCode::CONFLICT, "the UID in the precondition does not match");
        }
        let version = &write.body["preconditions"]["resourceVersion"];
        if !version.is_null() && *version != object["metadata"]["resourceVersion"] {
            return failure(StatusCode::CONFLICT, "the object has been modified");
        }
        if object["metadata"]["finalizers"]
            .as_array()
            .is_some_and(|f| !f.is_empty())
        {
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let meta = &mut objects.by_path.get_mut(&write.path).unwrap()["metadata"];
            if meta["deletionTimestamp"].is_null() {
                meta["deletionTimestamp"] = json!(now);
            }
            objects.bump(&write.path);
            let object = objects.by_path[&write.path].clone();
            drop(objects);
            self.tell(&write.path, &object, false);
            return axum::Json(object).into_response();
        }
        objects.by_path.remove(&write.path);
        drop(objects);
        self.tell(&write.path, &object, true);
        axum::Json(object).into_response()
    }
}

fn selected(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|s| !s.is_empty()).all(|term| {
        let labels = &object["metadata"]["labels"];
        match term.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => !labels[term].is_null(),
        }
    })
}

fn failure(status: StatusCode, message: &str) -> Response {
    let reason = match status {
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::CONFLICT => "Conflict",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        _ => "InternalError",
    };
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "code": status.as_u16(), "reason": reason, "message": message,
    });
    (status, axum::Json(body)).into_response()
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
        "snapshotschedules" => Observed::Schedule(Box::new(serde_json::from_value(object).unwrap())),
        "snapshotpolicies" => Observed::Policy(Box::new(serde_json::from_value(object).unwrap())),
        "jobs" => Observed::Job(Box::new(serde_json::from_value::<JobView>(object).unwrap())),
        "namespaces" => Observed::Namespace(
            parts[parts.len() - 1].to_owned(),
            NamespaceView {
                terminating: !object["metadata"]["deletionTimestamp"].is_null(),
                labels: BTreeMap::new(),
            },
        ),
        _ => return None,
    })
}
