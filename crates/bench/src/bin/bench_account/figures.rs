//! What quotas show, by a watch of our own.

use super::cluster::{Cluster, SIZE};
use anyhow::{Result, bail};
use futures::StreamExt as _;
use holdfast_api::names;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The longest that figures are waited for.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// Size and count as written, and how often they changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shown {
    size: Option<String>,
    count: Option<String>,
    changes: usize,
}

/// See the module.
#[derive(Clone, Default)]
pub struct Figures(Arc<Mutex<HashMap<String, Shown>>>);

impl Figures {
    /// Begins to watch.
    pub fn watch(client: &Client) -> Self {
        let this = Self::default();
        let api: Api<ResourceQuota> = Api::all(client.clone());
        let sees = this.clone();
        tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::InitApply(quota) | Event::Apply(quota)) => sees.see(quota),
                    Ok(Event::Init | Event::InitDone | Event::Delete(_)) => {}
                    Err(error) => eprintln!("the watch of quotas broke: {error}"),
                }
            }
        });
        this
    }

    fn see(&self, quota: ResourceQuota) {
        let used = quota.status.and_then(|status| status.used).unwrap_or_default();
        let value = |key: &str| used.get(key).map(|value| value.0.clone());
        let (size, count) = (value(names::QUOTA_SIZE), value(names::QUOTA_COUNT));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = all
            .entry(quota.metadata.namespace.unwrap_or_default())
            .or_default();
        if shown.size != size || shown.count != count {
            let changes = shown.changes + 1;
            *shown = Shown { size, count, changes };
        }
    }

    /// How often the figures of a namespace changed.
    pub fn changes(&self, namespace: &str) -> usize {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(namespace).map_or(0, |shown| shown.changes)
    }

    /// Whether a namespace shows this size.
    pub fn shows(&self, namespace: &str, size: i64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = all.get(namespace).and_then(|shown| shown.size.as_deref());
        shown.is_some_and(|shown| holdfast_core::quota::amount::same(shown, &size.to_string()))
    }

    /// Waits until every namespace shows all its Backups; returns how long that took.
    pub async fn until_right(&self, cluster: &Cluster, what: &str) -> Result<Duration> {
        let count = cluster.each().to_string();
        let size = cluster.each() as i64 * SIZE;
        self.until(cluster, what, |namespace, shown| {
            shown.count.as_ref() == Some(&count) && self.shows(namespace, size)
        })
        .await
    }

    /// Waits until no namespace shows anything.
    pub async fn until_wiped(&self, cluster: &Cluster) -> Result<Duration> {
        self.until(cluster, "empty quotas", |_, shown| {
            shown.count.is_none() && shown.size.is_none()
        })
        .await
    }

    /// Waits until every namespace shows one more byte than this many in each.
    pub async fn until_sizes(&self, cluster: &Cluster, size: i64) -> Result<Duration> {
        self.until(cluster, "changed figures", |namespace, _| {
            self.shows(namespace, size)
        })
        .await
    }

    async fn until(
        &self,
        cluster: &Cluster,
        what: &str,
        is: impl Fn(&str, &Shown) -> bool,
    ) -> Result<Duration> {
        let began = Instant::now();
        let mut said = began;
        loop {
            let missing = (0..cluster.namespaces)
                .map(Cluster::namespace)
                .filter(|namespace| {
                    let shown = {
                        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                        all.get(namespace).cloned().unwrap_or_default()
                    };
                    !is(namespace, &shown)
                })
                .count();
            if missing == 0 {
                return Ok(began.elapsed());
            }
            if said.elapsed() > Duration::from_secs(2) {
                eprintln!(
                    "waiting for {what}: {missing} of {} namespaces",
                    cluster.namespaces
                );
                said = Instant::now();
            }
            if began.elapsed() > PATIENCE {
                bail!(
                    "waited {} s for {what}; {missing} namespaces lack it",
                    PATIENCE.as_secs()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
