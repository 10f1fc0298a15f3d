//! Storage: objects by path with the semantics of the API server's registry.
//!
//! **Promises.** One counter of resourceVersions over everything; a write that changes nothing keeps the version. Status and the
//! rest are written apart where the kind has a status subresource. Names, times and the like cannot be written. A
//! deletion with finalizers sets the time and waits; the write that removes the last one removes the object. Each
//! change is an event with its version.
//!
//! **Assumes.** Bodies are well formed: nothing is defaulted, pruned or checked against a schema. A caller that puts or edits
//! directly is the test itself, which may write anything.

use super::parts::{changed, desired, drop_key, keep_apart, kind, parsed, text, tidy};
use super::path::Place;
use super::refusal::Refusal;
use axum::http::StatusCode;
use holdfast_operator::runtime::clock::Clock;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    Added,
    Modified,
    Deleted,
}

/// One event: what a watch tells.
#[derive(Debug, Clone)]
pub struct Event {
    pub version: u64,
    pub happened: Happened,
    pub path: String,
    pub object: Value,
    /// Requests that were answered before it.
    pub after: usize,
}

/// See the module.
pub struct Objects {
    pub by_path: BTreeMap<String, Value>,
    pub version: u64,
    /// UIDs given so far, dry runs too.
    uids: u64,
    pub events: Vec<Event>,
    /// Events up to here are forgotten.
    pub compacted: u64,
    /// Requests answered so far.
    pub answered: usize,
    /// A Foreground deletion ends at once, as if nothing were below the object.
    pub nothing_below: bool,
    pub clock: Clock,
}

/// How an object is written.
pub enum Change<'a> {
    Replace(&'a Value),
    Merge(&'a Value),
    Json(&'a Value),
}

impl Objects {
    pub fn new(clock: Clock) -> Self {
        Self {
            by_path: BTreeMap::new(),
            version: 0,
            uids: 0,
            events: Vec::new(),
            compacted: 0,
            answered: 0,
            nothing_below: false,
            clock,
        }
    }

    /// Now, as the API writes times.
    pub fn time(&self) -> String {
        self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn new_uid(&mut self) -> Value {
        self.uids += 1;
        json!(format!("00000000-0000-4000-8000-{:012}", self.uids))
    }

    /// Gives an object a new version, without an event.
    pub fn bump(&mut self, path: &str) {
        self.version += 1;
        if let Some(object) = self.by_path.get_mut(path) {
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        }
    }

    /// Writes an object as it is.
    fn store(&mut self, path: &str, mut object: Value, happened: Happened) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if happened == Happened::Deleted {
            self.by_path.remove(path);
        } else {
            self.by_path.insert(path.to_owned(), object.clone());
        }
        self.events.push(Event {
            version: self.version,
            happened,
            path: path.to_owned(),
            object: object.clone(),
            after: self.answered,
        });
        object
    }

    /// Puts an object there, whatever was there, status and all.
    pub fn put(&mut self, path: &str, mut object: Value) {
        let before = self.by_path.get(path);
        let happened = if before.is_some() {
            Happened::Modified
        } else {
            Happened::Added
        };
        let time = self.time();
        let uid = self.new_uid();
        let meta = &mut object["metadata"];
        if meta["uid"].is_null() {
            meta["uid"] = uid;
        }
        if meta["creationTimestamp"].is_null() {
            meta["creationTimestamp"] = json!(time);
        }
        self.store(path, object, happened);
    }

    /// Removes an object, finalizers or not.
    pub fn remove(&mut self, path: &str) -> Option<Value> {
        let object = self.by_path.get(path).cloned()?;
        Some(self.store(path, object, Happened::Deleted))
    }

    /// Changes an object as somebody else would.
    pub fn edit(&mut self, path: &str, change: impl FnOnce(&mut Value)) {
        if let Some(mut object) = self.by_path.get(path).cloned() {
            change(&mut object);
            self.store(path, object, Happened::Modified);
        }
    }

    pub fn create(&mut self, collection: &str, body: &Value, dry: bool) -> Result<Value, Refusal> {
        let place = parsed(collection)?;
        let mut object = body.clone();
        let version = self.version + 1;
        if let (None, Some(prefix)) = (
            object["metadata"]["name"].as_str(),
            object["metadata"]["generateName"].as_str(),
        ) {
            object["metadata"]["name"] = json!(format!("{prefix}{version:05}"));
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if object["metadata"]["resourceVersion"]
            .as_str()
            .is_some_and(|v| !v.is_empty())
        {
            return Err(Refusal::plain(
                StatusCode::INTERNAL_SERVER_ERROR,
                "",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(namespace) = place.namespace {
            let place_of_namespaces = Place {
                group: "",
                plural: "namespaces",
                ..place
            };
            match self.by_path.get(&format!("/api/v1/namespaces/{namespace}")) {
                None => return Err(Refusal::not_found(&place_of_namespaces, namespace)),
                Some(n) if !n["metadata"]["deletionTimestamp"].is_null() => {
                    return Err(Refusal::terminating(&place, &name, namespace));
                }
                Some(_) => object["metadata"]["namespace"] = json!(namespace),
            }
        }
        let path = format!("{collection}/{name}");
        if self.by_path.contains_key(&path) {
            return Err(Refusal::exists(&place, &name));
        }
        if place.plural == "namespaces" && place.group.is_empty() {
            object["spec"] = json!({ "finalizers": ["kubernetes"] });
            object["status"] = json!({ "phase": "Active" });
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
        } else if place.is_custom() {
            drop_key(&mut object, "status");
        } else if place.has_status() {
            object["status"] = json!({});
        }
        let time = self.time();
        let uid = self.new_uid();
        let meta = &mut object["metadata"];
        meta["uid"] = uid;
        meta["creationTimestamp"] = json!(time);
        drop_key(meta, "deletionTimestamp");
        if place.has_generation() {
            meta["generation"] = json!(1);
        }
        tidy(&mut object);
        if dry {
            return Ok(object);
        }
        Ok(self.store(&path, object, Happened::Added))
    }

    pub fn update(&mut self, path: &str, change: &Change<'_>, dry: bool) -> Result<Value, Refusal> {
        let place = parsed(path)?;
        let name = place.name.unwrap_or_default();
        let of_status = place.sub == Some("status");
        let own = if of_status {
            path.trim_end_matches("/status")
        } else {
            path
        };
        if let Change::Replace(body) = change
            && body["metadata"]["name"] != name
        {
            let named = text(&body["metadata"]["name"]);
            let message =
                format!("the name of the object ({named}) does not match the name on the URL ({name})");
            return Err(Refusal::plain(StatusCode::BAD_REQUEST, "BadRequest", &message));
        }
        let old = self.by_path.get(own).cloned();
        let old = old.ok_or_else(|| Refusal::not_found(&place, name))?;
        let mut new = changed(&old, change)?;
        let version = new["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if version.is_empty() && matches!(change, Change::Replace(_)) && place.is_custom() {
            let why = "Invalid value: 0: must be specified for an update";
            let field = "metadata.resourceVersion";
            return Err(Refusal::invalid(
                place.plural,
                &place,
                name,
                field,
                "FieldValueInvalid",
                why,
            ));
        }
        if !version.is_empty() && new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
            return Err(Refusal::modified(&place, name));
        }
        let uid = &new["metadata"]["uid"];
        if !uid.is_null() && *uid != old["metadata"]["uid"] {
            let why = format!("Invalid value: {uid}: field is immutable");
            let (field, word) = ("metadata.uid", "FieldValueInvalid");
            return Err(Refusal::invalid(kind(&old), &place, name, field, word, &why));
        }
        keep_apart(&place, of_status, &old, &mut new);
        tidy(&mut new);
        let finalizers = |o: &Value| {
            o["metadata"]["finalizers"]
                .as_array()
                .cloned()
                .unwrap_or_default()
        };
        let deleting = !old["metadata"]["deletionTimestamp"].is_null();
        let added: Vec<Value> = finalizers(&new)
            .into_iter()
            .filter(|f| !finalizers(&old).contains(f))
            .collect();
        if deleting && !added.is_empty() {
            let list: Vec<String> = added.iter().map(ToString::to_string).collect();
            let why = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                list.join(", ")
            );
            let field = "metadata.finalizers";
            return Err(Refusal::invalid(
                kind(&old),
                &place,
                name,
                field,
                "FieldValueForbidden",
                &why,
            ));
        }
        if place.has_generation() && !of_status && desired(&old) != desired(&new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        if new == old || dry {
            return Ok(new);
        }
        if deleting && finalizers(&new).is_empty() {
            // The event has a version of its own, the answer has the last one of the object.
            self.store(own, new.clone(), Happened::Deleted);
            return Ok(new);
        }
        Ok(self.store(own, new, Happened::Modified))
    }

    pub fn delete(&mut self, path: &str, options: &Value, dry: bool) -> Result<Value, Refusal> {
        let place = parsed(path)?;
        let name = place.name.unwrap_or_default();
        let old = self.by_path.get(path).cloned();
        let mut object = old.ok_or_else(|| Refusal::not_found(&place, name))?;
        for (key, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let wanted = &options["preconditions"][key];
            let found = &object["metadata"][key];
            if !wanted.is_null() && wanted != found {
                let (wanted, found) = (text(wanted), text(found));
                return Err(Refusal::precondition(
                    kind(&object),
                    &place,
                    name,
                    word,
                    wanted,
                    found,
                ));
            }
        }
        let before = object.clone();
        let foreground = options["propagationPolicy"] == "Foreground" && !self.nothing_below;
        let meta = &mut object["metadata"];
        if foreground {
            let list = meta["finalizers"].as_array().cloned().unwrap_or_default();
            if !list.contains(&json!("foregroundDeletion")) {
                meta["finalizers"] = Value::from([list, vec![json!("foregroundDeletion")]].concat());
            }
        }
        let waits = meta["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            || (place.plural == "namespaces" && place.group.is_empty());
        if !waits {
            if !dry {
                self.store(path, before.clone(), Happened::Deleted);
            }
            let mut details = json!({ "name": name, "kind": place.plural, "uid": before["metadata"]["uid"] });
            if !place.group.is_empty() {
                details["group"] = json!(place.group);
            }
            return Ok(json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
            }));
        }
        if meta["deletionTimestamp"].is_null() {
            meta["deletionTimestamp"] = json!(self.time());
            meta["deletionGracePeriodSeconds"] = json!(0);
            if let Some(generation) = meta["generation"].as_i64() {
                meta["generation"] = json!(generation + 1);
            }
        }
        if place.plural == "namespaces" {
            drop_key(&mut object["metadata"], "deletionGracePeriodSeconds");
            object["status"]["phase"] = json!("Terminating");
        }
        if object == before || dry {
            return Ok(object);
        }
        Ok(self.store(path, object, Happened::Modified))
    }
}
