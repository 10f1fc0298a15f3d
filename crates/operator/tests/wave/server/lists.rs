//! LIST and WATCH: label selectors, pages, bookmarks, versions that are too old.
//!
//! **Promises.** A list is ordered by namespace and name and says at which version it was taken. A watch tells every later event
//! once and in order, and no event before it is due: after so many further requests, or after so much time when nobody
//! asks anything. A version that is forgotten is answered 410.

use super::objects::{Event, Happened, Objects};
use super::path::Place;
use super::refusal::Refusal;
use super::{Lag, Server};
use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

/// The query of a request, decoded.
pub struct Query(BTreeMap<String, String>);

impl Query {
    pub fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(key, value)| (key.to_owned(), decoded(value)))
                .collect(),
        )
    }

    pub fn get(&self, key: &str) -> &str {
        self.0.get(key).map(String::as_str).unwrap_or_default()
    }

    pub fn is_watch(&self) -> bool {
        ["true", "1"].contains(&self.get("watch"))
    }

    pub fn is_dry(&self) -> bool {
        self.get("dryRun") == "All"
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let hex: Vec<u8> = rest.by_ref().take(2).collect();
                let hex = String::from_utf8_lossy(&hex).into_owned();
                bytes.push(u8::from_str_radix(&hex, 16).unwrap_or(b'%'));
            }
            other => bytes.push(other),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Whether an object has the labels. Equality, inequality, existence and absence.
fn selected(object: &Value, selector: &str) -> bool {
    selector.split(',').filter(|s| !s.is_empty()).all(|term| {
        let labels = &object["metadata"]["labels"];
        if let Some((key, value)) = term.split_once("!=") {
            return labels[key] != value;
        }
        match (term.split_once('='), term.strip_prefix('!')) {
            (Some((key, value)), _) => labels[key.trim_end_matches('=')] == value.trim_start_matches('='),
            (None, Some(key)) => labels[key].is_null(),
            (None, None) => !labels[term].is_null(),
        }
    })
}

impl Objects {
    /// What a collection holds, in order.
    pub fn members(&self, place: &Place<'_>, selector: &str) -> Vec<(&str, &Value)> {
        let found = self.by_path.iter().filter(|(path, object)| {
            Place::parse(path).is_some_and(|p| place.holds(&p)) && selected(object, selector)
        });
        let mut found: Vec<(&str, &Value)> = found.map(|(path, object)| (path.as_str(), object)).collect();
        found.sort_by_key(|(path, _)| Place::parse(path).map(|p| (p.namespace, p.name)));
        found
    }

    pub fn list(&self, place: &Place<'_>, query: &Query) -> Result<Value, Refusal> {
        let found = self.members(place, query.get("labelSelector"));
        let limit = query.get("limit").parse().unwrap_or(0);
        // The token says the version of the first page and how many were told.
        let (version, skip) = match query.get("continue").split_once('.') {
            Some((version, skip)) => (
                version.parse().unwrap_or_default(),
                skip.parse().unwrap_or_default(),
            ),
            None => (self.version, 0),
        };
        if version < self.compacted {
            return Err(Refusal::expired(
                "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.",
            ));
        }
        let mut meta = json!({ "resourceVersion": version.to_string() });
        let rest = found.len().saturating_sub(skip);
        let page = if limit == 0 { rest } else { limit.min(rest) };
        if page < rest {
            meta["continue"] = json!(format!("{version}.{}", skip + page));
            if query.get("labelSelector").is_empty() {
                meta["remainingItemCount"] = json!(rest - page);
            }
        }
        let items = found.iter().skip(skip).take(page).map(|(_, object)| {
            let mut object = (*object).clone();
            if let (false, Some(map)) = (place.is_custom(), object.as_object_mut()) {
                map.remove("kind");
                map.remove("apiVersion");
            }
            object
        });
        let version = if place.group.is_empty() {
            place.version.to_owned()
        } else {
            format!("{}/{}", place.group, place.version)
        };
        Ok(json!({
            "apiVersion": version, "kind": list_kind(place.plural), "metadata": meta, "items": items.collect::<Vec<_>>(),
        }))
    }
}

fn list_kind(plural: &str) -> String {
    let kind = match plural {
        "repositories" => "Repository",
        "clusterrepositories" => "ClusterRepository",
        "snapshotpolicies" => "SnapshotPolicy",
        "snapshotschedules" => "SnapshotSchedule",
        "restores" => "Restore",
        "maintenances" => "Maintenance",
        "snapshots" => "Snapshot",
        "configmaps" => "ConfigMap",
        "namespaces" => "Namespace",
        "leases" => "Lease",
        "jobs" => "Job",
        "pods" => "Pod",
        _ => "",
    };
    format!("{kind}List")
}

/// A watch that is being told.
struct Told {
    server: Server,
    path: String,
    selector: String,
    /// The version that was told last.
    version: u64,
    bookmarks: bool,
    ends: tokio::time::Instant,
    over: bool,
}

impl Server {
    pub(super) fn watch(&self, path: &str, query: &Query) -> Response {
        let seconds = query.get("timeoutSeconds").parse().unwrap_or(1_800);
        let told = Told {
            server: self.clone(),
            path: path.to_owned(),
            selector: query.get("labelSelector").to_owned(),
            version: query.get("resourceVersion").parse().unwrap_or_default(),
            bookmarks: query.get("allowWatchBookmarks") == "true",
            ends: tokio::time::Instant::now() + Duration::from_secs(seconds),
            over: false,
        };
        let lines = stream::unfold(told, |mut told| async move {
            let line = told.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(format!("{line}\n"))), told))
        });
        (StatusCode::OK, Body::from_stream(lines)).into_response()
    }
}

impl Told {
    async fn next(&mut self) -> Option<Value> {
        while !self.over {
            let (line, wait) = self.look();
            if line.is_some() {
                return line;
            }
            let changed = self.server.changed();
            // Something may have happened between the look and the wait: never longer than the lag is long.
            let _ = tokio::time::timeout_at(self.ends.min(wait), changed).await;
            if tokio::time::Instant::now() >= self.ends {
                self.over = true;
                if self.bookmarks {
                    return Some(self.bookmark());
                }
            }
        }
        None
    }

    fn bookmark(&self) -> Value {
        json!({ "type": "BOOKMARK", "object": {
            "kind": "", "apiVersion": "", "metadata": { "resourceVersion": self.version.to_string() },
        }})
    }

    /// What is to be told now, and until when there is nothing else.
    fn look(&mut self) -> (Option<Value>, tokio::time::Instant) {
        let never = self.ends;
        let server = self.server.clone();
        let objects = server.objects();
        if self.version < objects.compacted {
            self.over = true;
            let message = format!(
                "too old resource version: {} ({})",
                self.version, objects.compacted
            );
            let error = Refusal::expired(&message).body();
            return (Some(json!({ "type": "ERROR", "object": error })), never);
        }
        let Some(place) = Place::parse(&self.path) else {
            return (None, never);
        };
        let first = objects.events.partition_point(|e| e.version <= self.version);
        for event in &objects.events[first..] {
            let ours = Place::parse(&event.path).is_some_and(|p| place.holds(&p));
            if ours && selected(&event.object, &self.selector) {
                match server.due(event, objects.answered) {
                    Lag::Due => {}
                    Lag::Until(at) => return (None, at),
                }
                self.version = event.version;
                return (Some(line(event)), never);
            }
            if server.due(event, objects.answered) == Lag::Due {
                self.version = event.version;
            }
        }
        (None, never)
    }
}

fn line(event: &Event) -> Value {
    let happened = match event.happened {
        Happened::Added => "ADDED",
        Happened::Modified => "MODIFIED",
        Happened::Deleted => "DELETED",
    };
    json!({ "type": happened, "object": event.object })
}
