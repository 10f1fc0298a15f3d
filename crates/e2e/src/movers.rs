//! When the containers of movers ran, seen by a watch of our own: who wrote beside whom.
//!
//! **Promises.** From [`Movers::start`] on, each pod of a mover in the namespace whose container started is recorded with
//! the kubelet's own times, which are whole seconds: what ran at once for less than one may go unseen.
//!
//! **Assumes.** A pod that ended lives longer than the watch needs to come back after an interruption.

use crate::wait::{Look, until};
use anyhow::Result;
use futures::StreamExt;
use holdfast_api::names;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// A mover's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Name of its Job.
    pub job: String,
    /// What it did: value of the label [`names::OP_LABEL`].
    pub op: String,
    /// When it started.
    pub from: Timestamp,
    /// When it ended; none while it runs.
    pub to: Option<Timestamp>,
}

impl Ran {
    /// Whether both ran at one moment. One that has not ended runs on.
    #[must_use]
    pub fn beside(&self, other: &Self) -> bool {
        let starts_before_the_end = |a: &Self, b: &Self| b.to.is_none_or(|end| a.from < end);
        starts_before_the_end(self, other) && starts_before_the_end(other, self)
    }

    fn of(pod: &Pod) -> Option<Self> {
        let label = |key: &str| pod.metadata.labels.as_ref()?.get(key).cloned();
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let state = statuses.first()?.state.as_ref()?;
        let (from, to) = match (&state.running, &state.terminated) {
            (Some(running), _) => (running.started_at.as_ref()?, None),
            (None, Some(ended)) => (ended.started_at.as_ref()?, ended.finished_at.as_ref()),
            (None, None) => return None,
        };
        Some(Self {
            job: label("batch.kubernetes.io/job-name")?,
            op: label(names::OP_LABEL)?,
            from: from.0,
            to: to.map(|t| t.0),
        })
    }
}

#[derive(Debug, Default)]
struct Seen {
    ran: BTreeMap<String, Ran>,
    ready: bool,
}

/// The watch; ends when it is dropped.
#[derive(Debug)]
pub struct Movers {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Movers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Movers {
    /// Starts to watch the namespace and returns once the first list has arrived.
    ///
    /// # Errors
    /// When no list arrives.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<Pod> = Api::namespaced(client.clone(), namespace);
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let config = watcher::Config::default().labels(names::OP_LABEL);
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, config));
            while let Some(event) = events.next().await {
                let mut seen = lock(&shared);
                match event {
                    Ok(Event::InitApply(pod) | Event::Apply(pod) | Event::Delete(pod)) => {
                        if let Some(ran) = Ran::of(&pod) {
                            seen.ran.insert(pod.metadata.uid.unwrap_or_default(), ran);
                        }
                    }
                    Ok(Event::InitDone) => seen.ready = true,
                    Ok(Event::Init) | Err(_) => {}
                }
            }
        });
        let movers = Self { seen, task };
        until("the watch on pods", Duration::from_secs(30), || async {
            Ok(if lock(&movers.seen).ready {
                Look::Done(())
            } else {
                Look::Not("no list yet".into())
            })
        })
        .await?;
        Ok(movers)
    }

    /// Those that did this, in the order in which they started.
    #[must_use]
    pub fn that_did(&self, op: &str) -> Vec<Ran> {
        let mut all: Vec<Ran> = lock(&self.seen).ran.values().cloned().collect();
        all.retain(|ran| ran.op == op);
        all.sort_by_key(|ran| ran.from);
        all
    }

    /// Backups that ran beside a delete Job, each with that.
    #[must_use]
    pub fn backups_beside_deletions(&self) -> Vec<(Ran, Ran)> {
        let batches = self.that_did(names::OP_DELETE_BATCH);
        let backups = self.that_did(names::OP_BACKUP);
        let pairs = backups.iter().flat_map(|backup| {
            let beside = batches.iter().filter(|batch| backup.beside(batch));
            beside.map(|batch| (backup.clone(), batch.clone()))
        });
        pairs.collect()
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(from: i64, to: Option<i64>) -> Ran {
        let at = |second| Timestamp::from_second(second).expect("a time");
        Ran {
            job: "j".into(),
            op: "o".into(),
            from: at(from),
            to: to.map(at),
        }
    }

    #[test]
    fn what_ends_before_another_starts_is_not_beside_it() {
        let one = ran(10, Some(12));
        for (other, beside) in [
            (ran(11, Some(13)), true),
            (ran(9, Some(11)), true),
            (ran(11, Some(11)), true),
            (ran(8, None), true),
            (ran(12, Some(14)), false),
            (ran(13, None), false),
            (ran(8, Some(10)), false),
        ] {
            assert_eq!(one.beside(&other), beside, "{other:?}");
            assert_eq!(other.beside(&one), beside, "{other:?}");
        }
    }
}
