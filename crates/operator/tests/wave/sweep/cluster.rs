//! What goes on in the cluster beside the operator: Jobs get pods, pods run movers, what is deleted is collected, and people do
//! what the story says.
//!
//! **Promises.** A pod waits a second, starts, works after two, and its Job ends a second later. A Job that is deleted in the
//! Foreground goes after its pods; one that is deleted otherwise goes at once, and its pod works on for as long as it
//! had left. A person acts as soon as the stored objects are as the story says, so that what a crash delays is not overtaken.

use super::model::{Left, Model, Trouble};
use super::rules::Rules;
use super::scene::{OP, at};
use crate::server::objects::Objects;
use crate::server::path::Place;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// What a person does, and when.
pub struct Step {
    pub when: Box<dyn Fn(&Objects) -> bool + Send>,
    pub then: Box<dyn Fn(&mut Objects) + Send>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    New,
    Waiting,
    Running,
    Worked,
    Ended,
}

struct Run {
    job: String,
    body: Value,
    pod: String,
    stage: Stage,
    due: Instant,
    trouble: Option<Trouble>,
    /// The Job is gone or going: what is left is to collect its pod.
    orphan: bool,
}

/// See the module.
#[derive(Default)]
pub struct Cluster {
    pub model: Model,
    pub rules: Rules,
    pub steps: VecDeque<Step>,
    runs: BTreeMap<String, Run>,
    /// The version that was looked at last.
    seen: u64,
    /// A foreign hand changes each Snapshot right before so many of the operator's writes to it.
    pub storm: usize,
    /// How long a container waits until it starts.
    pub starts_after: Duration,
}

fn pods(job: &str) -> String {
    let place = Place::parse(job).unwrap();
    format!("/api/v1/namespaces/{}/pods", place.namespace.unwrap())
}

fn second() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

impl Cluster {
    /// After every change; answers when it wants to be asked again.
    pub fn act(&mut self, objects: &mut Objects, by_operator: bool) -> Option<Instant> {
        let mut by_operator = by_operator;
        loop {
            if objects.version != self.seen {
                self.seen = objects.version;
                self.rules.check(objects, &self.model, by_operator);
                by_operator = false;
                while self.steps.front().is_some_and(|step| (step.when)(objects)) {
                    let step = self.steps.pop_front().unwrap();
                    (step.then)(objects);
                    self.rules.check(objects, &self.model, false);
                }
                self.adopt(objects);
                continue;
            }
            let now = Instant::now();
            let due = self.runs.iter().find(|(_, run)| run.due <= now);
            let Some(uid) = due.map(|(uid, _)| uid.clone()) else {
                break;
            };
            if let Some(mut run) = self.runs.remove(&uid)
                && self.advance(objects, &uid, &mut run)
            {
                self.runs.insert(uid, run);
            }
        }
        self.runs.values().map(|run| run.due).min()
    }

    /// New Jobs get a run, and those that are being deleted are noticed.
    fn adopt(&mut self, objects: &Objects) {
        for (path, job) in &objects.by_path {
            let batch = Place::parse(path).is_some_and(|p| p.plural == "jobs")
                && job["metadata"]["labels"][OP] == "snapshot-delete-batch";
            let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
            if batch && !self.runs.contains_key(uid) && job["status"]["conditions"].is_null() {
                let run = Run {
                    job: path.clone(),
                    body: job.clone(),
                    pod: format!("{}/{uid}", pods(path)),
                    stage: Stage::New,
                    due: second(),
                    trouble: None,
                    orphan: false,
                };
                self.runs.insert(uid.to_owned(), run);
            }
        }
        for (uid, run) in &mut self.runs {
            let job = objects
                .by_path
                .get(&run.job)
                .filter(|j| j["metadata"]["uid"] == *uid);
            let going = job.is_none_or(|j| !j["metadata"]["deletionTimestamp"].is_null());
            if going && !run.orphan {
                run.orphan = true;
                // A container that has not started never will; one that runs has its grace.
                if run.stage != Stage::Running {
                    run.due = second();
                }
            }
        }
    }

    /// The next thing that happens to a Job; answers whether more will.
    fn advance(&mut self, objects: &mut Objects, uid: &str, run: &mut Run) -> bool {
        run.due = second();
        match (run.stage, run.orphan) {
            (Stage::Running, _) => {
                let left = self.model.work(&run.body, run.trouble);
                end_pod(objects, run, &left);
                run.stage = Stage::Worked;
                true
            }
            (Stage::New | Stage::Waiting | Stage::Worked | Stage::Ended, true) => {
                objects.remove(&run.pod);
                let job = objects.by_path.get(&run.job);
                if job.is_some_and(|j| j["metadata"]["uid"] == *uid) {
                    objects.remove(&run.job);
                }
                false
            }
            (Stage::New, false) => {
                run.trouble = self.model.begin();
                run.due = Instant::now() + self.starts_after;
                objects.put(&run.pod.clone(), pod(uid, run));
                objects.edit(&run.job, |job| job["status"]["active"] = json!(1));
                if run.trouble == Some(Trouble::NeverStarts) {
                    run.due = Instant::now() + Duration::from_secs(3_600);
                }
                run.stage = Stage::Waiting;
                true
            }
            (Stage::Waiting, false) => {
                objects.edit(&run.pod, |pod| {
                    pod["status"] = json!({ "phase": "Running", "containerStatuses": [container(json!({ "running": {} }))] });
                });
                run.stage = Stage::Running;
                run.due = Instant::now() + Duration::from_secs(2);
                true
            }
            (Stage::Worked, false) => {
                let well = objects.by_path[&run.pod]["status"]["phase"] == "Succeeded";
                let ended = if well { "Complete" } else { "Failed" };
                objects.edit(&run.job, |job| {
                    job["status"] = json!({ "conditions": [{ "type": ended, "status": "True" }] });
                });
                run.stage = Stage::Ended;
                run.due = Instant::now() + Duration::from_secs(3_600);
                true
            }
            (Stage::Ended, false) => {
                run.due = Instant::now() + Duration::from_secs(3_600);
                true
            }
        }
    }

    /// Before a write of the operator: the foreign hand.
    pub fn meddle(&mut self, objects: &mut Objects, path: &str) {
        if self.storm > 0
            && let Some(own) = path.strip_suffix("/status").filter(|p| p.contains("/snapshots/"))
            && objects.by_path.contains_key(own)
        {
            self.storm -= 1;
            let count = self.storm.to_string();
            objects.edit(own, |s| s["metadata"]["labels"]["meddled"] = json!(count));
        }
    }
}

fn container(state: Value) -> Value {
    json!({ "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
}

fn pod(uid: &str, run: &Run) -> Value {
    let place = Place::parse(&run.job).unwrap();
    let mut labels = run.body["spec"]["template"]["metadata"]["labels"].clone();
    labels["batch.kubernetes.io/job-name"] = run.body["metadata"]["name"].clone();
    labels["batch.kubernetes.io/controller-uid"] = json!(uid);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": uid, "namespace": place.namespace, "labels": labels, "creationTimestamp": at(0),
            "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": run.body["metadata"]["name"], "uid": uid, "controller": true }],
        },
        "status": { "phase": "Pending", "containerStatuses": [container(json!({ "waiting": { "reason": "ContainerCreating" } }))] },
    })
}

fn end_pod(objects: &mut Objects, run: &Run, left: &Left) {
    let code = i32::from(!left.well);
    let state = json!({ "terminated": { "exitCode": code, "message": left.message } });
    objects.edit(&run.pod, |pod| {
        pod["status"] = json!({
            "phase": if left.well { "Succeeded" } else { "Failed" },
            "containerStatuses": [container(state)],
        });
    });
}
