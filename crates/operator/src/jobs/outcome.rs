//! Reading what a mover left: the termination message of its pod.
//!
//! **Promises.** Only a message that decodes whole is an answer; everything else is [`Read::Unreadable`] with a
//! sentence, and confirms nothing.

use crate::context::{Context, Error};
use crate::jobs::job_name;
use crate::world::keys::ObjectKey;
use crate::world::views::{JobState, JobView, SnapshotView};
use holdfast_api::names;
use holdfast_protocol::outcome::Outcome;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::Client;
use kube::api::{Api, ListParams};
use std::sync::Arc;

/// What a Job's pods left.
#[derive(Debug, Clone, PartialEq)]
pub enum Read {
    /// A whole outcome; `exited_well` is whether its container ended with 0.
    Outcome {
        /// The message.
        outcome: Box<Outcome>,
        /// Exit code 0.
        exited_well: bool,
    },
    /// No pod ended with a readable message; why, for people.
    Unreadable(String),
    /// The same, and a container did run: what it was doing may be the reason.
    Silent(String),
}

/// A Job and, when it ended, what it left.
#[derive(Debug, Clone)]
pub struct JobFact {
    /// The Job.
    pub job: Arc<JobView>,
    /// How far it is.
    pub state: JobState,
    /// What it left, or why its container has not started.
    pub read: Read,
}

/// The Job that works for the object of this UID and does `op`, if there is one, with its outcome read live.
///
/// # Errors
/// When the pods cannot be listed.
pub async fn job_fact(ctx: &Context, owner_uid: &str, op: &str) -> Result<Option<JobFact>, Error> {
    let jobs = ctx.world.jobs_of(owner_uid);
    let found = jobs.into_iter().find(|j| j.label(names::OP_LABEL) == Some(op));
    fact(ctx, found).await
}

/// The backup Job of a Snapshot, if there is one, with its outcome read live: of the name that it is to have, and
/// controlled by the Snapshot.
///
/// # Errors
/// When the pods cannot be listed.
pub async fn backup_fact(ctx: &Context, view: &SnapshotView) -> Result<Option<JobFact>, Error> {
    let name = job_name(&view.key().name);
    let mut jobs = ctx.world.jobs_of_snapshot(view);
    jobs.retain(|job| job.label(names::OP_LABEL) == Some(names::OP_BACKUP) && job.key().name == name);
    fact(ctx, jobs.pop()).await
}

async fn fact(ctx: &Context, found: Option<Arc<JobView>>) -> Result<Option<JobFact>, Error> {
    let Some(job) = found else {
        return Ok(None);
    };
    let read = read(&ctx.client, &job).await?;
    Ok(Some(JobFact {
        state: job.state(),
        job,
        read,
    }))
}

/// Reads the newest readable outcome of a Job's pods, live.
///
/// # Errors
/// When the pods cannot be listed.
pub async fn read(client: &Client, job: &JobView) -> Result<Read, kube::Error> {
    Ok(judge(pods(client, job).await?))
}

/// The pods of exactly this Job, live: those that it controls. Of an earlier Job of the same name none is among them,
/// and a label alone makes no pod one of them, or whoever may create pods could answer in the mover's place.
///
/// # Errors
/// When they cannot be listed.
pub async fn pods(client: &Client, job: &JobView) -> Result<Vec<Pod>, kube::Error> {
    let api: Api<Pod> = Api::namespaced(client.clone(), &job.key().namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/controller-uid={}", job.uid()));
    let mut pods = api.list(&of_job).await?.items;
    pods.retain(|pod| is_of(pod, job));
    Ok(pods)
}

/// Whether the Job controls the pod.
fn is_of(pod: &Pod, job: &JobView) -> bool {
    let owners = pod.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| {
        owner.controller == Some(true)
            && owner.kind == "Job"
            && owner.api_version.starts_with("batch/")
            && owner.uid == job.uid()
    })
}

/// What is said of a Job without any pod.
const NO_POD: &str = "its pod is gone and left no result";

/// Why the API server takes no pod of a Job that has none, in its own words, and what to do: what its controller told
/// last.
///
/// # Errors
/// When its events cannot be listed.
pub async fn refused_pod(client: &Client, job: &JobFact) -> Result<Option<String>, kube::Error> {
    match &job.read {
        Read::Unreadable(why) if why == NO_POD => {}
        Read::Unreadable(_) | Read::Silent(_) | Read::Outcome { .. } => return Ok(None),
    }
    let key = job.job.key();
    let api: Api<Event> = Api::namespaced(client.clone(), &key.namespace);
    let told = ListParams::default().fields(&format!(
        "involvedObject.uid={},reason=FailedCreate",
        job.job.uid()
    ));
    let events = api.list(&told).await?.items;
    let newest = events.into_iter().max_by_key(|event| {
        let time = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref());
        time.map(|time| time.0)
    });
    Ok(newest
        .and_then(|event| event.message)
        .map(|why| said_of_pods(&key, &why)))
}

fn said_of_pods(job: &ObjectKey, why: &str) -> String {
    let what_to_do = if why.contains("PodSecurity") {
        format!(
            " Namespace {namespace} does not admit it. A mover with spec.mover.privilegedMode, and one of a repository on NFS, needs the level baseline there: whoever may change the namespace labels it by: kubectl label namespace {namespace} --overwrite pod-security.kubernetes.io/enforce=baseline. Or change the policy or Restore, and delete the Job, which is as it was made.",
            namespace = job.namespace
        )
    } else {
        String::new()
    };
    let why = why.trim_start_matches("Error creating: ").trim_end_matches('.');
    format!("The API server takes no pod of Job {job}: {why}.{what_to_do} Tried again by itself.")
}

/// The pure part of [`read`].
#[must_use]
pub fn judge(mut pods: Vec<Pod>) -> Read {
    if pods.is_empty() {
        return Read::Unreadable(NO_POD.to_owned());
    }
    pods.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let mut why = String::new();
    let mut ran = false;
    for pod in &pods {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_deref())
            .unwrap_or_default();
        let ended = statuses
            .iter()
            .find_map(|c| c.state.as_ref()?.terminated.as_ref());
        match ended {
            Some(ended) => match Outcome::decode(ended.message.as_deref().unwrap_or_default()) {
                Err(_) if ended.message.as_deref().unwrap_or_default().trim().is_empty() && !ran => {
                    ran = true;
                    let reason = ended.reason.as_deref().unwrap_or("Error");
                    why = format!(
                        "its container ended with {} ({reason}) and left no result",
                        ended.exit_code
                    );
                }
                Ok(outcome) => {
                    return Read::Outcome {
                        outcome: Box::new(outcome),
                        exited_well: ended.exit_code == 0,
                    };
                }
                Err(error) if why.is_empty() => {
                    let reason = ended.reason.as_deref().unwrap_or("Error");
                    why = format!("its container ended with {} ({reason}): {error}", ended.exit_code);
                }
                Err(_) => {}
            },
            None if why.is_empty() => why = not_started(pod),
            None => {}
        }
    }
    if ran {
        Read::Silent(why)
    } else {
        Read::Unreadable(why)
    }
}

/// Why a container has not ended: the kubelet's or the scheduler's own words.
fn not_started(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let waiting = status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .find_map(|c| c.state?.waiting);
    if let Some(waiting) = waiting {
        let reason = waiting.reason.unwrap_or_default();
        return format!(
            "its container has not started: {reason} {}",
            waiting.message.unwrap_or_default()
        );
    }
    let unscheduled = status
        .conditions
        .unwrap_or_default()
        .into_iter()
        .find(|c| c.status == "False");
    match unscheduled {
        Some(c) => format!(
            "its pod has not started: {} {}",
            c.reason.unwrap_or_default(),
            c.message.unwrap_or_default()
        ),
        None => "its pod has not ended".to_owned(),
    }
}
