//! What is counted of stores.

use super::reason::StoreReason;
use holdfast_api::ledger::BackupStoreStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStore {
    store: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    store: String,
    reason: &'static str,
}

/// Every figure of stores.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    listings: Family<ByOutcome, Counter>,
    listed_at: Family<ByStore, Gauge>,
    objects: Family<ByStore, Gauge>,
    bytes: Family<ByStore, Gauge>,
    unaccounted: Family<ByStore, Gauge>,
    waiting: Family<ByStore, Gauge>,
}

impl StoreMetrics {
    /// Registers every figure.
    pub fn register(&self, r: &mut Registry) {
        r.register(
            "cozystack_backup_store_listings",
            "Attempts to list the store, by how they ended",
            self.listings.clone(),
        );
        for (name, help, family) in [
            (
                "listed_timestamp_seconds",
                "When the last complete listing ended",
                &self.listed_at,
            ),
            (
                "objects",
                "Objects that the last complete listing saw",
                &self.objects,
            ),
            ("bytes", "Bytes that the last complete listing saw", &self.bytes),
            (
                "unaccounted_bytes",
                "Bytes in the store that no record explains",
                &self.unaccounted,
            ),
            (
                "waiting_records",
                "Records whose release waits for an administrator",
                &self.waiting,
            ),
        ] {
            r.register(format!("cozystack_backup_store_{name}"), help, family.clone());
        }
    }

    /// An attempt ended.
    pub fn attempted(&self, store: &str, reason: StoreReason) {
        self.listings
            .get_or_create(&ByOutcome {
                store: store.to_owned(),
                reason: reason.as_str(),
            })
            .inc();
    }

    /// What the store's status says.
    pub fn stands(&self, store: &str, status: &BackupStoreStatus) {
        let at = ByStore {
            store: store.to_owned(),
        };
        if let Some(last) = &status.last_complete_listing {
            self.listed_at
                .get_or_create(&at)
                .set(last.completed_at.as_second());
            self.objects.get_or_create(&at).set(last.objects);
            self.bytes.get_or_create(&at).set(last.bytes);
            let elsewhere = status.unaccounted_elsewhere.iter().map(|rest| rest.bytes);
            let unaccounted = status.unaccounted.iter().map(|part| part.bytes).chain(elsewhere);
            self.unaccounted
                .get_or_create(&at)
                .set(unaccounted.fold(0, i64::saturating_add));
        }
        let waiting = status.pending_release.as_ref();
        self.waiting
            .get_or_create(&at)
            .set(waiting.map_or(0, |waiting| i64::from(waiting.records)));
    }

    /// The store is gone, or another replica tells of it.
    pub fn forget(&self, store: &str) {
        let at = ByStore {
            store: store.to_owned(),
        };
        for family in [
            &self.listed_at,
            &self.objects,
            &self.bytes,
            &self.unaccounted,
            &self.waiting,
        ] {
            family.remove(&at);
        }
    }
}
