//! What must hold after every request, judged from the stored objects alone and not by the code under test.
//!
//! **Promises.** (`docs/design.md` section 8.) 3: never two live batches over one physical repository, as Jobs or as pods.
//! 1: a Job is created only with members that may be deleted then, and the model loses nothing else. 2: what was ever
//! held rides only with an acknowledgement that covers it or with threshold 0. 4: a finalizer goes only over data
//! that a mover proved gone, or where a rule keeps the data.

use super::model::Model;
use super::scene::{
    AGAIN, ALLOW, FINALIZER, GROUP, MEMBERS, OP, ORIGIN, PRUNED_AT, PRUNED_BY, PRUNED_KEPT, SKIP, UNIQUE_ID,
    is_true, repository_path, schedule_path,
};
use crate::server::objects::Objects;
use crate::server::path::Place;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub struct Rules {
    pub broken: Vec<String>,
    held: BTreeSet<String>,
    /// Jobs that were judged, with the repository they delete from.
    jobs: BTreeMap<String, String>,
    /// Snapshots as they were.
    snapshots: BTreeMap<String, Value>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

fn of<'a>(objects: &'a Objects, plural: &'a str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    objects
        .by_path
        .iter()
        .filter(move |(path, _)| Place::parse(path).is_some_and(|p| p.plural == plural))
}

fn deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn id(snapshot: &Value) -> &str {
    text(&snapshot["status"]["snapshot"]["kopiaSnapshotID"])
}

fn repository<'a>(objects: &'a Objects, snapshot: &Value) -> Option<&'a Value> {
    let name = text(&snapshot["status"]["resolved"]["repository"]["name"]);
    // Without a pin: what the policy names.
    let name = if name.is_empty() { "nas" } else { name };
    objects.by_path.get(&repository_path(name))
}

fn annotated<'a>(object: &'a Value, key: &str) -> &'a Value {
    &object["metadata"]["annotations"][key]
}

fn is_discovered(snapshot: &Value) -> bool {
    snapshot["metadata"]["labels"][ORIGIN] == "discovered" && snapshot["status"]["origin"] == "discovered"
}

fn keeps_by_policy(snapshot: &Value) -> bool {
    ["Retain", "Orphan"].contains(&text(&snapshot["spec"]["deletionPolicy"])) || is_discovered(snapshot)
}

/// Its namespace goes, and with it the wish to keep or delete what the repository says.
fn torn_down(objects: &Objects, snapshot: &Value) -> bool {
    let namespace = text(&snapshot["metadata"]["namespace"]);
    let found = objects.by_path.get(&format!("/api/v1/namespaces/{namespace}"));
    found.is_some_and(deleting)
}

fn orphaned_by_teardown(objects: &Objects, snapshot: &Value) -> bool {
    torn_down(objects, snapshot)
        && repository(objects, snapshot).is_none_or(|r| r["spec"]["onNamespaceDelete"] != "Delete")
}

/// The namespace where its Job would run goes.
fn no_place(objects: &Objects, snapshot: &Value) -> bool {
    repository(objects, snapshot).is_some_and(|r| torn_down(objects, r))
}

fn is_fresh_prune(snapshot: &Value) -> bool {
    let stamp = ["retention", "failed-history"].contains(&text(annotated(snapshot, PRUNED_BY)));
    let (Some(pruned), Some(deleted)) = (
        time(annotated(snapshot, PRUNED_AT)),
        time(&snapshot["metadata"]["deletionTimestamp"]),
    ) else {
        return false;
    };
    stamp && deleted.duration_since(pruned).abs() <= SignedDuration::from_secs(60)
}

fn kept_by_cascade(objects: &Objects, snapshot: &Value) -> bool {
    let owner = &snapshot["metadata"]["ownerReferences"][0];
    if owner.is_null() || snapshot["spec"]["onScheduleDelete"] == "Delete" || torn_down(objects, snapshot) {
        return false;
    }
    let schedule = objects.by_path.get(&schedule_path(text(&owner["name"])));
    !schedule.is_some_and(|s| s["metadata"]["uid"] == owner["uid"] && !deleting(s))
}

fn shared_with_live(objects: &Objects, snapshot: &Value) -> bool {
    of(objects, "snapshots").any(|(_, other)| {
        other["metadata"]["uid"] != snapshot["metadata"]["uid"]
            && !deleting(other)
            && !is_discovered(other)
            && id(other) == id(snapshot)
    })
}

/// Why its data stays, whatever the breaker says.
fn kept(objects: &Objects, snapshot: &Value) -> Option<&'static str> {
    let definition =
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/snapshots.kopiur.home-operations.com";
    let fresh = is_fresh_prune(snapshot);
    let reasons = [
        (!annotated(snapshot, SKIP).is_null(), "skip"),
        (
            objects.by_path.get(definition).is_some_and(deleting),
            "the API goes away",
        ),
        (id(snapshot).is_empty(), "no id"),
        (orphaned_by_teardown(objects, snapshot), "teardown"),
        (no_place(objects, snapshot), "no place to run"),
        (!fresh && kept_by_cascade(objects, snapshot), "cascade"),
        (keeps_by_policy(snapshot), "policy"),
        (
            fresh && annotated(snapshot, PRUNED_KEPT).is_null(),
            "a prune that stands on nothing",
        ),
        (shared_with_live(objects, snapshot), "shared"),
        (repository(objects, snapshot).is_none(), "no repository"),
    ];
    reasons.iter().find(|(is, _)| *is).map(|(_, why)| *why)
}

fn is_covered(objects: &Objects, snapshot: &Value) -> bool {
    let Some(repository) = repository(objects, snapshot) else {
        return false;
    };
    let record = &repository["status"]["deletionProtection"]["acknowledgement"];
    let effective = time(&record["effective"]);
    *annotated(repository, ALLOW) == record["value"]
        && effective.is_some_and(|e| time(&snapshot["metadata"]["deletionTimestamp"]).is_some_and(|d| d <= e))
}

impl Rules {
    /// The strictest threshold of a repository; `None` when each object says 0.
    fn threshold(objects: &Objects, unique_id: &str) -> Option<u64> {
        of(objects, "repositories")
            .filter(|(_, r)| r["status"]["uniqueId"] == unique_id)
            .map(|(_, r)| {
                r["spec"]["deletionProtection"]["threshold"]
                    .as_u64()
                    .unwrap_or(10)
            })
            .filter(|threshold| *threshold > 0)
            .min()
    }

    fn break_(&mut self, what: String) {
        self.broken.push(what);
    }

    /// After every change.
    pub fn check(&mut self, objects: &Objects, model: &Model, by_operator: bool) {
        for (_, snapshot) in of(objects, "snapshots") {
            if is_true(snapshot, "DeletionHeld") {
                self.held.insert(text(&snapshot["metadata"]["uid"]).to_owned());
            }
        }
        self.new_jobs(objects);
        self.one_live_batch(objects);
        let now: BTreeMap<String, Value> = of(objects, "snapshots")
            .map(|(path, object)| (path.clone(), object.clone()))
            .collect();
        let before = std::mem::replace(&mut self.snapshots, now);
        for (path, snapshot) in before {
            let ours = |s: &Value| {
                s["metadata"]["finalizers"]
                    .as_array()
                    .is_some_and(|l| l.contains(&FINALIZER.into()))
            };
            let released = ours(&snapshot) && !self.snapshots.get(&path).is_some_and(ours);
            if released && by_operator {
                self.released(objects, model, &path, &snapshot);
            }
        }
    }

    fn released(&mut self, objects: &Objects, model: &Model, path: &str, snapshot: &Value) {
        let id = id(snapshot);
        let kept = kept(objects, snapshot);
        let uid = text(&snapshot["metadata"]["uid"]);
        let riding = of(objects, "jobs").any(|(_, job)| {
            let running = job["status"]["active"].as_i64() > Some(0);
            running && text(annotated(job, MEMBERS)).split(',').any(|m| m == uid)
        });
        if riding {
            self.break_(format!("{path} was released while a Job deletes its data"));
        }
        if model.has(id) && kept.is_none() {
            self.break_(format!(
                "{path} was released over data that is there, and no rule keeps it"
            ));
        }
        if !model.has(id) && !model.proven.contains(id) && kept.is_none() {
            self.break_(format!("{path} was released before anybody proved its data gone"));
        }
    }

    fn one_live_batch(&mut self, objects: &Objects) {
        let mut live: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (_, job) in
            of(objects, "jobs").filter(|(_, j)| j["metadata"]["labels"][OP] == "snapshot-delete-batch")
        {
            if !is_true(job, "Complete") && !is_true(job, "Failed") {
                let lane = text(annotated(job, UNIQUE_ID));
                live.entry(lane)
                    .or_default()
                    .insert(text(&job["metadata"]["uid"]));
            }
        }
        for (_, pod) in of(objects, "pods") {
            let job = text(&pod["metadata"]["labels"]["batch.kubernetes.io/controller-uid"]);
            let ended = ["Succeeded", "Failed"].contains(&text(&pod["status"]["phase"]));
            if let (false, Some(lane)) = (ended, self.jobs.get(job)) {
                live.entry(lane).or_default().insert(job);
            }
        }
        for (lane, jobs) in live {
            if jobs.len() > 1 {
                self.broken
                    .push(format!("two live batches over {lane}: {jobs:?}"));
            }
        }
    }

    fn new_jobs(&mut self, objects: &Objects) {
        for (path, job) in
            of(objects, "jobs").filter(|(_, j)| j["metadata"]["labels"][OP] == "snapshot-delete-batch")
        {
            let uid = text(&job["metadata"]["uid"]).to_owned();
            if self.jobs.contains_key(&uid) {
                continue;
            }
            let lane = text(annotated(job, UNIQUE_ID)).to_owned();
            self.jobs.insert(uid, lane.clone());
            if !annotated(job, AGAIN).is_null() {
                self.again(objects, path, job);
                continue;
            }
            let members: Vec<&str> = text(annotated(job, MEMBERS)).split(',').collect();
            for member in &members {
                if let Err(why) = self.may_ride(objects, &lane, member) {
                    self.break_(format!("{path} was created with {member}: {why}"));
                }
            }
        }
    }

    /// What came back is deleted again only while fewer than the threshold did, or with an acknowledgement, and never
    /// where an object records it.
    fn again(&mut self, objects: &Objects, path: &str, job: &Value) {
        let repository = &objects.by_path[&repository_path("nas")];
        let protection = &repository["status"]["deletionProtection"];
        let record = &protection["acknowledgement"];
        let found = time(&protection["reappeared"]["foundAt"]);
        let covered = *annotated(repository, ALLOW) == record["value"]
            && time(&record["effective"]).is_some_and(|e| found.is_some_and(|f| f <= e));
        let threshold = repository["spec"]["deletionProtection"]["threshold"].as_u64();
        let fewer = protection["reappeared"]["count"].as_u64() < threshold
            && protection["reappeared"]["held"] != true;
        if !fewer && !covered {
            self.break_(format!("{path} deletes again what is held"));
        }
        let document =
            text(&job["spec"]["template"]["metadata"]["annotations"][holdfast_protocol::WORK_ANNOTATION]);
        for (_, snapshot) in of(objects, "snapshots") {
            if !id(snapshot).is_empty() && document.contains(&format!("\"{}\"", id(snapshot))) {
                self.break_(format!("{path} deletes again what an object records"));
            }
        }
    }

    /// Promises 1 and 2, at the moment of CREATE.
    fn may_ride(&self, objects: &Objects, lane: &str, uid: &str) -> Result<(), String> {
        let found = of(objects, "snapshots").find(|(_, s)| s["metadata"]["uid"] == uid);
        let (_, snapshot) = found.ok_or("there is no such Snapshot")?;
        if !deleting(snapshot) {
            return Err("nobody deleted it".to_owned());
        }
        if let Some(why) = kept(objects, snapshot) {
            return Err(format!("its data is kept: {why}"));
        }
        let Some(threshold) = Self::threshold(objects, lane) else {
            return Ok(());
        };
        if is_covered(objects, snapshot) {
            return Ok(());
        }
        if self.held.contains(uid) {
            return Err("it was held, and no acknowledgement covers it".to_owned());
        }
        if is_fresh_prune(snapshot) {
            return Ok(());
        }
        let wave = of(objects, "snapshots")
            .filter(|(path, s)| path.starts_with(GROUP) && deleting(s) && !is_fresh_prune(s))
            .filter(|(_, s)| kept(objects, s).is_none() && !is_covered(objects, s))
            .filter(|(_, s)| repository(objects, s).is_some_and(|r| r["status"]["uniqueId"] == lane))
            .count();
        if u64::try_from(wave).unwrap_or(u64::MAX) >= threshold {
            return Err(format!("a wave of {wave} at a threshold of {threshold}"));
        }
        Ok(())
    }
}
