//! Asks an API server and writes down the answer in a form that two servers can be compared by.
//!
//! **Promises.** Everything that an answer says is compared but what has to differ: UIDs become `uid 1`, `uid 2`, … in the
//! order of their first sight, a resourceVersion becomes `same` or `new` beside the one last seen of that object, times
//! become `time`, the namespace becomes `NS`; managed fields are left out.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Bodies and how they are named.
#[derive(Debug, Clone, Copy)]
enum As {
    Json,
    Merge,
    Patch,
}

impl As {
    fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Merge => "application/merge-patch+json",
            Self::Patch => "application/json-patch+json",
        }
    }
}

/// See the module.
pub struct Runner {
    client: Client,
    pub namespace: String,
    uids: Vec<String>,
    versions: BTreeMap<String, String>,
    /// What was asked and what was answered.
    pub log: Vec<(String, Value)>,
}

impl Runner {
    pub fn new(client: Client, namespace: &str) -> Self {
        Self {
            client,
            namespace: namespace.to_owned(),
            uids: Vec::new(),
            versions: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// One operation; `path` may have a query. Answers with the body as it came.
    async fn ask(&mut self, name: &str, method: Method, path: &str, body: Option<(As, Value)>) -> Value {
        let (code, text) = self.send(method, path, body).await;
        let raw: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({ "text": text }));
        let told = self.told(&raw);
        self.log
            .push((name.to_owned(), json!({ "code": code, "answer": told })));
        raw
    }

    pub async fn get(&mut self, name: &str, path: &str) -> Value {
        self.ask(name, Method::GET, path, None).await
    }

    pub async fn post(&mut self, name: &str, path: &str, body: Value) -> Value {
        self.ask(name, Method::POST, path, Some((As::Json, body))).await
    }

    pub async fn put(&mut self, name: &str, path: &str, body: Value) -> Value {
        self.ask(name, Method::PUT, path, Some((As::Json, body))).await
    }

    pub async fn merge(&mut self, name: &str, path: &str, body: Value) -> Value {
        self.ask(name, Method::PATCH, path, Some((As::Merge, body))).await
    }

    pub async fn patch(&mut self, name: &str, path: &str, body: Value) -> Value {
        self.ask(name, Method::PATCH, path, Some((As::Patch, body))).await
    }

    pub async fn delete(&mut self, name: &str, path: &str, options: Value) -> Value {
        self.ask(name, Method::DELETE, path, Some((As::Json, options)))
            .await
    }

    /// Watches for a second: which events come for which objects.
    pub async fn watch(&mut self, name: &str, path: &str) {
        let (code, text) = self.send(Method::GET, path, None).await;
        let events = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let events: Vec<Value> = events
            .filter(|e| e["type"] != "BOOKMARK")
            .map(|e| json!({ "type": e["type"], "name": e["object"]["metadata"]["name"], "kind": e["object"]["kind"] }))
            .collect();
        self.log
            .push((name.to_owned(), json!({ "code": code, "events": events })));
    }

    async fn send(&self, method: Method, path: &str, body: Option<(As, Value)>) -> (u16, String) {
        let mut request = Request::builder().method(method).uri(path);
        let mut bytes = Vec::new();
        if let Some((form, body)) = body {
            request = request.header("content-type", form.content_type());
            bytes = serde_json::to_vec(&body).unwrap();
        }
        let request = request.body(kube::client::Body::from(bytes)).unwrap();
        let answer = self.client.send(request).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = to_bytes(Body::new(answer.into_body()), 10_000_000).await.unwrap();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }

    fn told(&mut self, raw: &Value) -> Value {
        let mut told = raw.clone();
        if let Some(items) = told["items"].as_array() {
            let rows: Vec<Value> = items
                .iter()
                .map(|item| item["metadata"]["name"].clone())
                .collect();
            let meta = &raw["metadata"];
            return json!({
                "kind": raw["kind"], "apiVersion": raw["apiVersion"], "names": rows,
                "more": meta["continue"].is_string(), "left": meta["remainingItemCount"],
                "version": meta["resourceVersion"].is_string(),
            });
        }
        let of_object = told["metadata"]["uid"].as_str().map(str::to_owned);
        if let Some(uid) = &of_object {
            let version = told["metadata"]["resourceVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            let before = self.versions.insert(uid.clone(), version.clone());
            told["metadata"]["resourceVersion"] = json!(if before.as_ref() == Some(&version) {
                "same"
            } else {
                "new"
            });
        }
        if let Some(meta) = told["metadata"].as_object_mut() {
            meta.remove("managedFields");
        }
        // What is defaulted in a Job is none of our business.
        if told["kind"] == "Job" {
            told["spec"] = Value::Null;
            for key in ["labels", "annotations"] {
                told["metadata"][key] = Value::Null;
            }
        }
        self.plain(&mut told);
        told
    }

    /// Without what has to differ.
    fn plain(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    if key == "uid"
                        && let Some(uid) = value.as_str().map(str::to_owned)
                        && !self.uids.contains(&uid)
                    {
                        self.uids.push(uid);
                    }
                    if key.ends_with("Timestamp") && value.is_string() {
                        *value = json!("time");
                    }
                    self.plain(value);
                }
                map.retain(|_, v| !v.is_null());
            }
            Value::Array(list) => list.iter_mut().for_each(|v| self.plain(v)),
            Value::String(text) => {
                for (n, uid) in self.uids.iter().enumerate() {
                    *text = text.replace(uid.as_str(), &format!("uid {n}"));
                }
                *text = text.replace(&self.namespace, "NS");
                // Versions stand in sentences about preconditions.
                let sentence = "does not match the ResourceVersion in record (";
                if let Some((before, after)) = text.split_once(sentence) {
                    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
                    *text = format!("{before}{sentence}{after}");
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}
