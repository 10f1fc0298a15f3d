//! Listing the stores that BackupStores describe, to measure what drivers do not report (`docs/design.md` 4.5).
//!
//! **Promises.** Never on an admission path, only by the leader, each store at its own pace. What a listing leads to
//! is decided in `holdfast_core::quota::enumerate` and written by the ledger's own writes. A listing that failed or
//! did not reach the end changes no record.
//!
//! **Assumes.** A cluster without the definition of BackupStores has none; it is asked for with backoff.

pub mod bucket;
pub mod metrics;
pub mod reason;
mod secrets;
mod status;
mod task;
pub mod walk;

use super::Account;
use futures::StreamExt as _;
use holdfast_api::ledger::{BackupStore, BackupStoreStatus};
use holdfast_core::quota::unaccounted::{Told, Unaccounted};
use kube::Api;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Bytes that no record explains, by store and namespace.
#[derive(Debug, Default)]
pub struct Stores {
    unaccounted: Mutex<BTreeMap<String, Told>>,
}

impl Stores {
    /// What the status of a store says, as long as this process has not listed it.
    fn learn(&self, account: &Account, store: &str, status: &BackupStoreStatus) {
        account.metrics.stores.stands(store, status);
        let mut all = self.unaccounted.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains_key(store) {
            return;
        }
        all.insert(store.to_owned(), told(status));
        publish(account, &all);
    }

    /// What a complete listing found.
    fn found(&self, account: &Account, store: &str, told: Told) {
        let mut all = self.unaccounted.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(store.to_owned(), told);
        publish(account, &all);
    }

    fn forget(&self, account: &Account, store: &str) {
        account.metrics.stores.forget(store);
        let mut all = self.unaccounted.lock().unwrap_or_else(PoisonError::into_inner);
        if all.remove(store).is_some() {
            publish(account, &all);
        }
    }
}

/// What the status of a store tells, which names the largest only.
fn told(status: &BackupStoreStatus) -> Told {
    let parts = status.unaccounted.iter();
    Told {
        by_namespace: parts.map(|part| (part.namespace.clone(), part.bytes)).collect(),
        names_all: status.unaccounted_elsewhere.is_none(),
    }
}

fn publish(account: &Account, all: &BTreeMap<String, Told>) {
    account.set_unaccounted(Unaccounted::of(all.values()));
}

struct Task {
    object: watch::Sender<BackupStore>,
    end: CancellationToken,
}

/// Follows every BackupStore until told to end.
pub async fn run(account: Arc<Account>, end: CancellationToken) {
    let stores = Arc::new(Stores::default());
    let api: Api<DeserializeGuard<BackupStore>> = Api::all(account.client.clone());
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    let mut tasks: HashMap<String, Task> = HashMap::new();
    let mut set = JoinSet::new();
    let mut listed = HashSet::new();
    let mut is_broken = false;
    loop {
        let event = tokio::select! {
            biased;
            () = end.cancelled() => break,
            Some(_) = set.join_next() => continue,
            event = events.next() => event,
        };
        let object = match event {
            None => break,
            Some(Err(error)) => {
                // Said once: a cluster without the definition answers the same for ever.
                if !is_broken {
                    tracing::info!(%error, "BackupStores cannot be watched; it is tried again");
                }
                is_broken = true;
                continue;
            }
            Some(Ok(watcher::Event::Init)) => {
                listed.clear();
                continue;
            }
            Some(Ok(watcher::Event::InitDone)) => {
                is_broken = false;
                let gone: Vec<String> = tasks
                    .keys()
                    .filter(|name| !listed.contains(*name))
                    .cloned()
                    .collect();
                for name in gone {
                    forget(&account, &stores, &mut tasks, &name);
                }
                continue;
            }
            Some(Ok(watcher::Event::Delete(guard))) => {
                if let Some(name) = name_of(&guard) {
                    forget(&account, &stores, &mut tasks, &name);
                }
                continue;
            }
            Some(Ok(watcher::Event::InitApply(guard) | watcher::Event::Apply(guard))) => guard,
        };
        let Some(name) = name_of(&object) else {
            continue;
        };
        listed.insert(name.clone());
        let object = match object.0 {
            Ok(object) => object,
            Err(error) => {
                tracing::warn!(store = name, %error, "a BackupStore cannot be read; correct it or update Holdfast");
                continue;
            }
        };
        if let Some(task) = tasks.get(&name) {
            task.object.send_replace(object);
            continue;
        }
        let (sender, receiver) = watch::channel(object);
        let ends = end.child_token();
        set.spawn(task::follow(
            Arc::clone(&account),
            Arc::clone(&stores),
            receiver,
            ends.clone(),
        ));
        tasks.insert(
            name,
            Task {
                object: sender,
                end: ends,
            },
        );
    }
    for task in tasks.values() {
        task.end.cancel();
    }
    // Each finishes the write it is in.
    while set.join_next().await.is_some() {}
}

fn name_of(guard: &DeserializeGuard<BackupStore>) -> Option<String> {
    match &guard.0 {
        Ok(object) => object.metadata.name.clone(),
        Err(error) => error.metadata.name.clone(),
    }
}

fn forget(account: &Account, stores: &Stores, tasks: &mut HashMap<String, Task>, name: &str) {
    if let Some(task) = tasks.remove(name) {
        task.end.cancel();
    }
    stores.forget(account, name);
}
