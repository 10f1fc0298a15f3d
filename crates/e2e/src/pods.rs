//! Jobs of our own: run, waited for, read, removed.

use crate::lab::Lab;
use crate::wait::{Look, until};
use anyhow::{Context, Result, bail};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, LogParams};
use serde_json::Value;
use std::time::Duration;

/// How a Job of ours ended.
#[derive(Debug)]
pub struct Ended {
    /// The newest pod's termination message.
    pub message: String,
    /// Its log.
    pub log: String,
}

/// Creates the Job, waits until it succeeded, reads message and log, and removes it.
///
/// # Errors
/// When it cannot be created, fails, or takes longer than `limit`.
pub async fn run(lab: &Lab, job: Value, limit: Duration) -> Result<Ended> {
    let made = lab.create(job).await.context("a Job could not be created")?;
    let name = made.metadata.name.unwrap_or_default();
    let namespace = made.metadata.namespace.unwrap_or_default();
    let jobs: Api<Job> = lab.api(&namespace);
    let pods: Api<Pod> = lab.api(&namespace);
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={name}"));
    let succeeded = until(&format!("the Job {namespace}/{name}"), limit, || async {
        let status = jobs.get(&name).await?.status.unwrap_or_default();
        let has = |kind: &str| {
            let conditions = status.conditions.as_deref().unwrap_or_default();
            conditions.iter().any(|c| c.type_ == kind && c.status == "True")
        };
        if has("Complete") || has("Failed") {
            return Ok(Look::Done(has("Complete")));
        }
        let (active, failed) = (status.active.unwrap_or(0), status.failed.unwrap_or(0));
        Ok(Look::Not(format!("{active} pods active, {failed} failed")))
    })
    .await?;
    let mut found = pods.list(&of_job).await?.items;
    found.sort_by(|a, b| b.metadata.creation_timestamp.cmp(&a.metadata.creation_timestamp));
    let pod = found.first().context("the Job's pod is gone")?;
    let pod_name = pod.metadata.name.clone().unwrap_or_default();
    let log = pods
        .logs(&pod_name, &LogParams::default())
        .await
        .unwrap_or_default();
    let message = message(pod);
    if !succeeded {
        let tail: Vec<&str> = log.lines().rev().take(5).collect();
        bail!(
            "the Job {namespace}/{name} failed: {message} {}",
            tail.join(" | ")
        );
    }
    jobs.delete(&name, &DeleteParams::background()).await?;
    Ok(Ended { message, log })
}

/// The termination message of a pod's container.
#[must_use]
pub fn message(pod: &Pod) -> String {
    pod.status
        .iter()
        .flat_map(|s| s.container_statuses.as_deref().unwrap_or_default())
        .find_map(|c| c.state.as_ref()?.terminated.as_ref()?.message.clone())
        .unwrap_or_default()
}
