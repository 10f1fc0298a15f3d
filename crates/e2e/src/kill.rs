//! Killing the operator that leads, at a moment that is known.
//!
//! **Promises.** On the local cluster the process itself gets SIGKILL: it is found by its container's id, in
//! `/proc`, and no other process is touched. Elsewhere its pod is deleted without grace, which the kubelet turns
//! into a signal and, two seconds later, SIGKILL; [`How`] says which it was. After a kill the pod is removed, so
//! that the next start does not wait for the kubelet's growing pauses.

use crate::lab::{DEPLOYMENT, Lab};
use crate::wait::{Look, until};
use anyhow::{Context, Result, bail};
use holdfast_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The replica that leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// Its pod.
    pub pod: String,
    /// Its identity in the Lease.
    pub identity: String,
    /// Its process on this machine, if it runs here.
    pub process: Option<i32>,
}

/// How a leader was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// SIGKILL to its process.
    Sigkill,
    /// Its pod was deleted without grace.
    PodDeleted,
}

/// Knows at any time who leads.
#[derive(Debug)]
pub struct Leaders {
    now: Arc<Mutex<Option<Leader>>>,
    task: JoinHandle<()>,
}

impl Drop for Leaders {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Leaders {
    /// Starts to watch the Lease.
    #[must_use]
    pub fn start(lab: &Lab) -> Self {
        let now: Arc<Mutex<Option<Leader>>> = Arc::default();
        let (shared, lab) = (Arc::clone(&now), lab.clone());
        let task = tokio::spawn(async move {
            loop {
                if let Ok(identity) = holder(&lab).await {
                    let known = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    if known.as_ref().map(|l| l.identity.as_str()) != Some(identity.as_str()) {
                        let found = find(&lab, &identity).await.ok();
                        *shared.lock().unwrap_or_else(PoisonError::into_inner) = found;
                    }
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        Self { now, task }
    }

    /// The one that leads now, if somebody does.
    #[must_use]
    pub fn now(&self) -> Option<Leader> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until another one than `old` leads.
    ///
    /// # Errors
    /// When nobody does in time.
    pub async fn other_than(&self, old: Option<&Leader>) -> Result<Leader> {
        until("another replica to lead", Duration::from_secs(90), || async {
            Ok(match self.now() {
                Some(leader) if Some(&leader.identity) != old.map(|l| &l.identity) => Look::Done(leader),
                Some(leader) => Look::Not(format!("{} leads", leader.pod)),
                None => Look::Not("nobody leads".into()),
            })
        })
        .await
    }
}

async fn holder(lab: &Lab) -> Result<String> {
    let lease = lab
        .api::<Lease>(names::OPERATOR_NAMESPACE)
        .get(names::LEADER_LEASE)
        .await?;
    let holder = lease
        .spec
        .and_then(|s| s.holder_identity)
        .filter(|h| !h.is_empty());
    holder.context("nobody leads")
}

async fn find(lab: &Lab, identity: &str) -> Result<Leader> {
    let pod = identity.split('_').next().unwrap_or_default().to_owned();
    let status = lab
        .api::<Pod>(names::OPERATOR_NAMESPACE)
        .get(&pod)
        .await?
        .status
        .unwrap_or_default();
    let container = status
        .container_statuses
        .unwrap_or_default()
        .into_iter()
        .find_map(|c| c.container_id)
        .context("its container has no id")?;
    let id = container.rsplit('/').next().unwrap_or_default();
    Ok(Leader {
        pod,
        identity: identity.to_owned(),
        process: process_of(id),
    })
}

/// The operator's process in a container of this id, if it runs on this machine.
fn process_of(container: &str) -> Option<i32> {
    if container.len() < 32 {
        return None;
    }
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let groups = fs::read_to_string(entry.path().join("cgroup")).ok()?;
        let program = fs::read_to_string(entry.path().join("comm")).ok()?;
        (groups.contains(container) && program.starts_with("holdfast-operat")).then_some(pid)
    })
}

impl Leader {
    /// Kills it.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub async fn kill(&self, lab: &Lab) -> Result<How> {
        let pods: Api<Pod> = lab.api(names::OPERATOR_NAMESPACE);
        let now = DeleteParams::default().grace_period(0);
        let Some(pid) = self.process else {
            pods.delete(&self.pod, &now).await?;
            return Ok(How::PodDeleted);
        };
        let Some(target) = Pid::from_raw(pid) else {
            bail!("{pid} is no process");
        };
        kill_process(target, Signal::KILL).with_context(|| format!("process {pid} of {}", self.pod))?;
        Ok(How::Sigkill)
    }

    /// Removes its pod, so that the ReplicaSet makes a new one at once.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub async fn replace(&self, lab: &Lab) -> Result<()> {
        let pods: Api<Pod> = lab.api(names::OPERATOR_NAMESPACE);
        match pods
            .delete(&self.pod, &DeleteParams::default().grace_period(0))
            .await
        {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Sets environment variables of the operator (none takes one away), waits until every replica runs with them,
/// and returns what they were.
///
/// # Errors
/// When the replicas do not become ready.
pub async fn operator_environment(
    lab: &Lab,
    set: &[(String, Option<String>)],
) -> Result<Vec<(String, Option<String>)>> {
    let api: Api<Deployment> = lab.api(names::OPERATOR_NAMESPACE);
    let deployment = api.get(DEPLOYMENT).await?;
    let had = deployment
        .spec
        .and_then(|s| s.template.spec)
        .and_then(|s| s.containers.into_iter().next())
        .and_then(|c| c.env)
        .unwrap_or_default();
    let before = set
        .iter()
        .map(|(name, _)| {
            let value = had.iter().find(|v| v.name == *name).and_then(|v| v.value.clone());
            (name.clone(), value)
        })
        .collect();
    let env: Vec<Value> = set
        .iter()
        .map(|(name, value)| match value {
            Some(value) => json!({ "name": name, "value": value }),
            None => json!({ "name": name, "$patch": "delete" }),
        })
        .collect();
    let patch =
        json!({ "spec": { "template": { "spec": { "containers": [{ "name": "operator", "env": env }] } } } });
    api.patch(DEPLOYMENT, &PatchParams::default(), &Patch::Strategic(patch))
        .await?;
    rolled_out(lab).await?;
    Ok(before)
}

/// Waits until every replica is the newest and ready.
///
/// # Errors
/// When they do not become so.
pub async fn rolled_out(lab: &Lab) -> Result<()> {
    let api: Api<Deployment> = lab.api(names::OPERATOR_NAMESPACE);
    until(
        "the operator's replicas to be ready",
        Duration::from_secs(180),
        || async {
            let deployment = api.get(DEPLOYMENT).await?;
            let wanted = deployment.spec.and_then(|s| s.replicas).unwrap_or(1);
            let status = deployment.status.unwrap_or_default();
            let seen = status.observed_generation == deployment.metadata.generation;
            let (updated, ready, all) = (
                status.updated_replicas.unwrap_or(0),
                status.ready_replicas.unwrap_or(0),
                status.replicas.unwrap_or(0),
            );
            let done = seen && updated == wanted && ready == wanted && all == wanted;
            Ok(if done {
                Look::Done(())
            } else {
                Look::Not(format!("{updated} updated, {ready} ready of {all}"))
            })
        },
    )
    .await
}
