//! What is told of each namespace: the records added up beside the limits.
//!
//! **Promises.** The sums are the operator's own (`holdfast_core::quota`): one rule for who is charged for what a
//! namespace that is gone left behind, one for what counts.

use std::collections::BTreeSet;

use holdfast_api::ledger::BackupStore;
use holdfast_core::quota::gate::Quota;
use holdfast_core::quota::publish::{Published, warnings};
use holdfast_core::quota::tenancy::{self, nearest_living_ancestor};
use holdfast_core::quota::unaccounted::{Told as OfStore, Unaccounted};
use holdfast_core::quota::{Figures, Ledger, Record, amount};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::frees::{self, Frees};
use super::read::{Cluster, DIMENSIONS};

/// Artifacts that are named.
const LARGEST: usize = 5;

/// Everything there is to tell.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Told {
    /// In the order of names.
    pub namespaces: Vec<Namespace>,
    /// Stores that are listed.
    pub stores: Vec<Store>,
    /// What could not be read, in sentences.
    pub notes: Vec<String>,
}

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum From {
    /// The records, added up.
    Ledger,
    /// The annotation on a ResourceQuota: what the operator published last.
    Breakdown,
    /// Nothing is known.
    Nowhere,
}

/// One namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// Its name.
    pub namespace: String,
    /// It is there; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alive: Option<bool>,
    /// Where the figures come from.
    pub from: From,
    /// Bytes charged.
    pub used_bytes: i64,
    /// Things charged.
    pub used_count: i64,
    /// The smallest limit of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_bytes: Option<i64>,
    /// The smallest limit of things.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hard_count: Option<i64>,
    /// Its parts.
    #[serde(flatten)]
    pub parts: Parts,
    /// What each quota says.
    pub quotas: Vec<Limit>,
    /// The largest artifacts that are charged.
    pub largest: Vec<Item>,
    /// What would free space.
    pub frees: Vec<Frees>,
    /// What is wrong with the quotas.
    pub warnings: Vec<String>,
}

/// What the figures are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Parts {
    /// Bytes to which Backups refer.
    pub attributed: i64,
    /// Bytes to which none refers any more, pending purge included.
    pub retained: i64,
    /// Bytes whose deletion was asked for.
    pub pending_purge: i64,
    /// Things without a known size.
    pub unreported: i64,
    /// Bytes that no record explains, not charged; null: no store tells.
    pub unaccounted: Option<i64>,
    /// Bytes of namespaces that are gone, part of the above.
    pub stranded: i64,
    /// Runs under way.
    pub in_flight: i64,
    /// Bytes written off; not charged.
    pub written_off: i64,
}

/// One quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Limit {
    /// Its name.
    pub quota: String,
    /// Key, what is published, and the limit.
    pub keys: Vec<Key>,
}

/// One key of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Key {
    /// The key.
    pub key: String,
    /// What is published; absent: nothing yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<String>,
    /// The limit.
    pub hard: String,
}

/// One artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its name.
    pub name: String,
    /// The namespace whose Backup made it.
    pub namespace: String,
    /// Its bytes; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Its state.
    pub state: &'static str,
    /// Why.
    pub reason: &'static str,
    /// What was backed up.
    pub application: String,
    /// Where it is, if anybody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
}

/// One store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Store {
    /// Its name.
    pub name: String,
    /// When its last complete listing ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<Timestamp>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Bytes that no record explains, of all namespaces.
    pub unaccounted: i64,
    /// Records whose release waits for an administrator.
    pub waiting_records: u32,
    /// Their bytes.
    pub waiting_bytes: i64,
}

/// Adds everything up.
pub fn told(cluster: &Cluster, only: Option<&str>) -> Told {
    let unaccounted = unaccounted(cluster.stores.iter().flatten());
    let nothing = Ledger::default();
    let ledger = cluster.ledger.as_ref().unwrap_or(&nothing);
    // Without a list of namespaces none is taken to be gone.
    let stranded = cluster
        .live
        .as_ref()
        .map(|live| tenancy::stranded(ledger, live))
        .unwrap_or_default();
    let names: BTreeSet<&str> = ledger
        .namespaces()
        .chain(cluster.quotas.iter().map(|(namespace, _)| namespace.as_str()))
        .chain(unaccounted.namespaces())
        .chain(only)
        .filter(|name| only.is_none_or(|only| only == *name))
        .collect();
    let namespaces = names.into_iter().map(|name| {
        let inherited = stranded.by_heir.get(name).copied().unwrap_or_default();
        let unaccounted = unaccounted.of_namespace(name);
        namespace(cluster, name, inherited, unaccounted)
    });
    Told {
        namespaces: namespaces.collect(),
        stores: cluster.stores.iter().flatten().map(store).collect(),
        notes: cluster.notes.clone(),
    }
}

fn namespace(cluster: &Cluster, name: &str, stranded: Figures, unaccounted: Option<i64>) -> Namespace {
    let quotas: Vec<&Quota> = cluster
        .quotas
        .iter()
        .filter(|(namespace, _)| namespace == name)
        .map(|(_, quota)| quota)
        .collect();
    let hard = |key: &str| {
        let unscoped = quotas.iter().filter(|quota| !quota.scoped);
        unscoped
            .filter_map(|quota| amount::limit(quota.hard.get(key)?).ok())
            .min()
    };
    let mut told = Namespace {
        namespace: name.to_owned(),
        alive: cluster.live.as_ref().map(|live| live.contains(name)),
        from: From::Nowhere,
        used_bytes: 0,
        used_count: 0,
        hard_bytes: hard(DIMENSIONS.size),
        hard_count: hard(DIMENSIONS.count),
        parts: Parts::default(),
        quotas: quotas.iter().map(|quota| limit(quota)).collect(),
        largest: Vec::new(),
        frees: Vec::new(),
        warnings: quotas
            .iter()
            .flat_map(|quota| warnings(DIMENSIONS, quota))
            .map(|warning| warning.message)
            .collect(),
    };
    match &cluster.ledger {
        Some(ledger) => {
            told.count(ledger, stranded, unaccounted);
            told.detail(ledger, cluster.live.as_ref());
        }
        None => told.as_published(&quotas),
    }
    told
}

impl Namespace {
    fn count(&mut self, ledger: &Ledger, stranded: Figures, unaccounted: Option<i64>) {
        let published = Published {
            own: ledger.figures(&self.namespace),
            stranded,
            unaccounted,
        };
        let all = published.charged();
        self.from = From::Ledger;
        self.used_bytes = all.used_size();
        self.used_count = all.used_count();
        self.parts = Parts {
            attributed: all.attributed(),
            retained: all.retained(),
            pending_purge: all.pending_purge(),
            unreported: all.unreported(),
            unaccounted,
            stranded: stranded.used_size(),
            in_flight: all.in_flight(),
            written_off: all.written_off(),
        };
    }

    fn detail(&mut self, ledger: &Ledger, live: Option<&BTreeSet<String>>) {
        let heirs: BTreeSet<&str> = live
            .into_iter()
            .flat_map(|live| {
                ledger.namespaces().filter(|gone| {
                    !live.contains(*gone)
                        && nearest_living_ancestor(gone, live) == Some(self.namespace.as_str())
                })
            })
            .chain([self.namespace.as_str()])
            .collect();
        let records: Vec<&Record> = heirs
            .iter()
            .flat_map(|namespace| ledger.of_namespace(namespace))
            .filter(|record| record.state.is_charged())
            .collect();
        self.frees = frees::ways(records.iter().copied());
        let mut records = records;
        largest_first(&mut records);
        self.largest = records.iter().take(LARGEST).map(|record| item(record)).collect();
    }

    /// What the operator wrote into the quotas, for who may read nothing else.
    fn as_published(&mut self, quotas: &[&Quota]) {
        let known = |quota: &&&Quota| !quota.scoped;
        let used = |key: &str| {
            let all = quotas.iter().filter(known);
            all.filter_map(|quota| amount::units(quota.used.get(key)?).ok())
                .max()
        };
        let (size, count) = (used(DIMENSIONS.size), used(DIMENSIONS.count));
        self.used_bytes = size.unwrap_or(0);
        self.used_count = count.unwrap_or(0);
        let Some(breakdown) = quotas
            .iter()
            .filter(known)
            .find_map(|quota| serde_json::from_str::<Value>(quota.breakdown.as_deref()?).ok())
        else {
            return;
        };
        let of = |field: &str| breakdown[field].as_i64().unwrap_or(0);
        self.from = From::Breakdown;
        self.parts = Parts {
            attributed: of("attributed"),
            retained: of("retained"),
            pending_purge: of("pendingPurge"),
            unreported: of("unreported"),
            unaccounted: breakdown["unaccounted"].as_i64(),
            stranded: of("stranded"),
            in_flight: of("inFlight"),
            written_off: of("writtenOff"),
        };
    }
}

/// The largest first, those of unknown size last, then by name.
pub fn largest_first(records: &mut [&Record]) {
    records.sort_by(|a, b| b.size.bytes.cmp(&a.size.bytes).then_with(|| a.name.cmp(&b.name)));
}

fn limit(quota: &Quota) -> Limit {
    let keys = quota
        .hard
        .iter()
        .filter(|(key, _)| [DIMENSIONS.size, DIMENSIONS.count].contains(&key.as_str()) && !quota.scoped);
    Limit {
        quota: quota.name.clone(),
        keys: keys
            .map(|(key, hard)| Key {
                key: key.clone(),
                used: quota.used.get(key).cloned(),
                hard: hard.clone(),
            })
            .collect(),
    }
}

pub fn item(record: &Record) -> Item {
    let identity = record.subject.identity();
    Item {
        name: record.name.clone(),
        namespace: record.namespace().to_owned(),
        bytes: record.size.bytes,
        state: record.state.as_str(),
        reason: record.reason.as_str(),
        application: format!("{}/{}", record.application.kind, record.application.name),
        location: identity
            .and_then(|identity| identity.location())
            .map(|at| format!("{}/{}", at.place, at.key)),
    }
}

/// Bytes that no record explains, of all stores.
fn unaccounted<'a>(stores: impl Iterator<Item = &'a BackupStore>) -> Unaccounted {
    let told: Vec<OfStore> = stores
        .filter_map(|store| store.status.as_ref())
        .map(|status| OfStore {
            by_namespace: status
                .unaccounted
                .iter()
                .map(|part| (part.namespace.clone(), part.bytes))
                .collect(),
            names_all: status.unaccounted_elsewhere.is_none(),
        })
        .collect();
    Unaccounted::of(&told)
}

fn store(store: &BackupStore) -> Store {
    let status = store.status.clone().unwrap_or_default();
    let waiting = status.pending_release.as_ref();
    Store {
        name: store.metadata.name.clone().unwrap_or_default(),
        listed_at: status
            .last_complete_listing
            .as_ref()
            .map(|last| last.completed_at),
        last_error: status.last_error.clone(),
        unaccounted: status
            .unaccounted
            .iter()
            .map(|part| part.bytes)
            .chain(status.unaccounted_elsewhere.iter().map(|rest| rest.bytes))
            .fold(0, i64::saturating_add),
        waiting_records: waiting.map_or(0, |waiting| waiting.records),
        waiting_bytes: waiting.map_or(0, |waiting| waiting.bytes),
    }
}
