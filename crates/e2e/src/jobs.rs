//! Every batch delete Job that ever exists, seen by a watch of our own.
//!
//! **Promises.** From [`Watch::start`] on, each Job labelled `op=snapshot-delete-batch` of the namespace is
//! recorded with its members, and how many were alive at once is counted at each event.
//!
//! **Assumes.** A Job lives longer than the watch needs to come back after an interruption (a second); its
//! interruptions are counted, so that a report can tell.

use anyhow::Result;
use futures::StreamExt;
use holdfast_api::names;
use k8s_openapi::api::batch::v1::Job;
use kube::Client;
use kube::api::Api;
use kube::runtime::watcher::{self, Event};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::task::JoinHandle;

/// One batch delete Job.
#[derive(Debug, Clone)]
pub struct Batch {
    /// Its name.
    pub name: String,
    /// UIDs of the Snapshots it is about.
    pub members: BTreeSet<String>,
    /// When the watch saw it first.
    pub seen: Instant,
    /// When the watch saw it ended.
    pub ended: Option<Instant>,
    /// Whether it ended well.
    pub succeeded: bool,
    /// When the watch saw it removed.
    pub removed: Option<Instant>,
    /// A pod of it was seen.
    pub started: bool,
}

impl Batch {
    /// Neither ended nor removed.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.ended.is_none() && self.removed.is_none()
    }
}

#[derive(Debug, Default)]
struct Seen {
    batches: BTreeMap<String, Batch>,
    most: usize,
    most_since: usize,
    interruptions: usize,
    ready: bool,
}

/// The watch; ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watch {
    /// Starts to watch the namespace and returns once the first list has arrived.
    ///
    /// # Errors
    /// When no list arrives.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        Self::follow(Api::namespaced(client.clone(), namespace), names::OP_DELETE_BATCH).await
    }

    /// The same for the whole cluster.
    ///
    /// # Errors
    /// When no list arrives.
    pub async fn everywhere(client: &Client) -> Result<Self> {
        Self::follow(Api::all(client.clone()), names::OP_DELETE_BATCH).await
    }

    /// Watches the listing Jobs of the namespace instead: they have no members.
    ///
    /// # Errors
    /// When no list arrives.
    pub async fn listings(client: &Client, namespace: &str) -> Result<Self> {
        Self::follow(Api::namespaced(client.clone(), namespace), names::OP_LIST).await
    }

    async fn follow(api: Api<Job>, op: &str) -> Result<Self> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let config = watcher::Config::default().labels(&format!("{}={op}", names::OP_LABEL));
        let shared = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(api, config));
            let mut listed = BTreeSet::new();
            while let Some(event) = events.next().await {
                let mut seen = lock(&shared);
                match event {
                    Ok(Event::Init) => listed.clear(),
                    Ok(Event::InitApply(job)) => {
                        listed.insert(job.metadata.uid.clone().unwrap_or_default());
                        seen.apply(&job);
                    }
                    Ok(Event::InitDone) => {
                        let now = Instant::now();
                        for (uid, batch) in &mut seen.batches {
                            if !listed.contains(uid) {
                                batch.removed.get_or_insert(now);
                            }
                        }
                        seen.ready = true;
                    }
                    Ok(Event::Apply(job)) => seen.apply(&job),
                    Ok(Event::Delete(job)) => {
                        seen.apply(&job);
                        let uid = job.metadata.uid.clone().unwrap_or_default();
                        if let Some(batch) = seen.batches.get_mut(&uid) {
                            batch.removed.get_or_insert_with(Instant::now);
                        }
                    }
                    Err(_) => seen.interruptions += 1,
                }
                seen.count();
            }
        });
        let watch = Self { seen, task };
        let ready = || async {
            let ready = lock(&watch.seen).ready;
            Ok(if ready {
                crate::Look::Done(())
            } else {
                crate::Look::Not("no list yet".into())
            })
        };
        crate::until("the watch on Jobs", std::time::Duration::from_secs(30), ready).await?;
        Ok(watch)
    }

    /// Every Job seen so far, oldest first.
    #[must_use]
    pub fn all(&self) -> Vec<Batch> {
        let mut all: Vec<Batch> = lock(&self.seen).batches.values().cloned().collect();
        all.sort_by_key(|b| b.seen);
        all
    }

    /// Those that have a member among `uids`.
    #[must_use]
    pub fn with_member_of(&self, uids: &BTreeSet<String>) -> Vec<Batch> {
        let all = self.all();
        all.into_iter().filter(|b| !b.members.is_disjoint(uids)).collect()
    }

    /// Most Jobs alive at once, ever.
    #[must_use]
    pub fn most(&self) -> usize {
        lock(&self.seen).most
    }

    /// From here on [`Watch::most_since_mark`] counts anew.
    pub fn mark(&self) {
        let mut seen = lock(&self.seen);
        seen.most_since = 0;
        seen.count();
    }

    /// Most Jobs alive at once since the mark.
    #[must_use]
    pub fn most_since_mark(&self) -> usize {
        lock(&self.seen).most_since
    }

    /// How often the watch had to start again.
    #[must_use]
    pub fn interruptions(&self) -> usize {
        lock(&self.seen).interruptions
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Seen {
    fn apply(&mut self, job: &Job) {
        let metadata = &job.metadata;
        let members = metadata
            .annotations
            .as_ref()
            .and_then(|a| a.get(names::DELETE_MEMBERS));
        let status = job.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let has = |kind: &str| conditions.iter().any(|c| c.type_ == kind && c.status == "True");
        let batch = self
            .batches
            .entry(metadata.uid.clone().unwrap_or_default())
            .or_insert_with(|| Batch {
                name: metadata.name.clone().unwrap_or_default(),
                members: members
                    .map(|m| {
                        m.split(',')
                            .filter(|u| !u.is_empty())
                            .map(str::to_owned)
                            .collect()
                    })
                    .unwrap_or_default(),
                seen: Instant::now(),
                ended: None,
                succeeded: false,
                removed: None,
                started: false,
            });
        if has("Complete") || has("Failed") {
            batch.ended.get_or_insert_with(Instant::now);
            batch.succeeded = has("Complete");
        }
        let pods = status.active.unwrap_or(0) + status.succeeded.unwrap_or(0) + status.failed.unwrap_or(0);
        batch.started |= pods > 0;
    }

    fn count(&mut self) {
        let alive = self.batches.values().filter(|b| b.is_alive()).count();
        self.most = self.most.max(alive);
        self.most_since = self.most_since.max(alive);
    }
}
