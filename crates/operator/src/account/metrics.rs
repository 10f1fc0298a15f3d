//! What is counted of backup storage, under names that dashboards and alerts use.
//!
//! **Promises.** Figures of a namespace are set together and go together, when the namespace has neither a record nor
//! a limit any more. Nothing is labelled with the name of a single Backup.
//!
//! **Assumes.** Figures are the leader's to say; a replica that stops leading takes them back ([`QuotaMetrics::clear`]).

use holdfast_core::quota::Record;
use holdfast_core::quota::RemoveReason;
use holdfast_core::quota::publish::{Published, WarningReason, WriteReason};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByNamespace {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQuota {
    namespace: String,
    quota: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByQuotaAndReason {
    namespace: String,
    quota: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTransition {
    state: &'static str,
    reason: &'static str,
}

type PerNamespace = Family<ByNamespace, Gauge>;

/// Every figure of Account.
#[derive(Debug, Default)]
pub struct QuotaMetrics {
    attributed: PerNamespace,
    retained: PerNamespace,
    pending_purge: PerNamespace,
    written_off: PerNamespace,
    unaccounted: PerNamespace,
    used_bytes: PerNamespace,
    used_count: PerNamespace,
    unreported: PerNamespace,
    in_flight: PerNamespace,
    limit_bytes: PerNamespace,
    limit_count: PerNamespace,
    stranded: PerNamespace,
    writes: Family<ByReason, Counter>,
    refused: Family<ByQuota, Gauge>,
    misspelt: Family<ByQuotaAndReason, Gauge>,
    transitions: Family<ByTransition, Counter>,
    removed: Family<ByReason, Counter>,
    records: Gauge,
    behind: Gauge,
    complete: Gauge,
    rebuilt: Counter,
    missing: Counter,
    restored: Counter,
    bad_declarations: Gauge,
    answers: Family<ByReason, Counter>,
    answer_seconds: AnswerSeconds,
    reservations: Gauge,
}

/// How long the gate took for an answer, inside the operator.
#[derive(Debug)]
struct AnswerSeconds(Histogram);

impl Default for AnswerSeconds {
    fn default() -> Self {
        Self(Histogram::new([
            0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.0025, 0.01, 0.1, 1.0,
        ]))
    }
}

/// The smallest limits of a namespace's quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Bytes.
    pub size: Option<i64>,
    /// Things.
    pub count: Option<i64>,
}

impl QuotaMetrics {
    /// Registers every figure.
    pub fn register(&self, r: &mut Registry) {
        let per_namespace = [
            (
                "attributed_bytes",
                "Bytes to which Backups refer",
                &self.attributed,
            ),
            (
                "retained_bytes",
                "Bytes charged to which no Backup refers any more, pending purge included",
                &self.retained,
            ),
            (
                "pending_purge_bytes",
                "Bytes whose deletion was asked for and is not proven",
                &self.pending_purge,
            ),
            (
                "written_off_bytes",
                "Bytes that an administrator wrote off, not charged",
                &self.written_off,
            ),
            (
                "unaccounted_bytes",
                "Bytes in the stores that no record explains, not charged",
                &self.unaccounted,
            ),
            ("used_bytes", "Bytes charged, as published", &self.used_bytes),
            (
                "used_artifacts",
                "Things in storage that are charged",
                &self.used_count,
            ),
            (
                "unreported_artifacts",
                "Things charged whose size nobody knows",
                &self.unreported,
            ),
            ("in_flight", "Runs under way", &self.in_flight),
            ("limit_bytes", "The smallest limit of bytes", &self.limit_bytes),
            (
                "limit_artifacts",
                "The smallest limit of things in storage",
                &self.limit_count,
            ),
            (
                "stranded_bytes",
                "Bytes of namespaces that are gone and nobody is charged with, by their name",
                &self.stranded,
            ),
        ];
        for (name, help, family) in per_namespace {
            r.register(format!("cozystack_backup_quota_{name}"), help, family.clone());
        }
        r.register(
            "cozystack_backup_quota_writes",
            "Figures written to ResourceQuotas, by why",
            self.writes.clone(),
        );
        r.register(
            "cozystack_backup_quota_write_refused",
            "1 while somebody forbids that figures are written to the quota",
            self.refused.clone(),
        );
        r.register(
            "cozystack_backup_quota_misspelt_keys",
            "Keys of the quota that do not do what they look like, by why",
            self.misspelt.clone(),
        );
        r.register(
            "cozystack_backup_quota_transitions",
            "Records that came into a state, by why",
            self.transitions.clone(),
        );
        r.register(
            "cozystack_backup_quota_records",
            "Records of the ledger",
            self.records.clone(),
        );
        r.register(
            "cozystack_backup_quota_ledger_behind",
            "Objects that were seen and are not in the ledger yet",
            self.behind.clone(),
        );
        r.register(
            "cozystack_backup_quota_ledger_complete",
            "1 when every list has been added up",
            self.complete.clone(),
        );
        r.register(
            "cozystack_backup_quota_ledger_rebuilt",
            "Times the records were found to be lost and were made again from the Backups that live",
            self.rebuilt.clone(),
        );
        r.register(
            "cozystack_backup_quota_records_removed",
            "Records that went, by reason: how runs ended, and what was forgotten",
            self.removed.clone(),
        );
        r.register(
            "cozystack_backup_quota_records_missing",
            "Records that were noted and that were not there when an operator began to lead",
            self.missing.clone(),
        );
        r.register(
            "cozystack_backup_quota_records_restored",
            "Records that somebody else deleted and that were written again",
            self.restored.clone(),
        );
        r.register(
            "cozystack_backup_quota_bad_declarations",
            "Strategies whose declaration of capabilities cannot be read",
            self.bad_declarations.clone(),
        );
        r.register(
            "cozystack_backup_quota_admissions",
            "Answers of the gate, by the decision's one word",
            self.answers.clone(),
        );
        r.register(
            "cozystack_backup_quota_admission_seconds",
            "How long an answer of the gate took inside the operator",
            self.answer_seconds.0.clone(),
        );
        r.register(
            "cozystack_backup_quota_reservations",
            "BackupJobs that were admitted and have no record yet",
            self.reservations.clone(),
        );
    }

    /// The gate answered.
    pub fn answered(&self, reason: &'static str, took: Duration) {
        self.answers.get_or_create(&ByReason { reason }).inc();
        self.answer_seconds.0.observe(took.as_secs_f64());
    }

    /// How many BackupJobs are reserved.
    pub fn reserved(&self, reservations: usize) {
        self.reservations.set(figure(reservations));
    }

    /// What a namespace is charged with and limited to.
    pub fn figures(&self, namespace: &str, published: &Published, limits: Limits) {
        let at = ByNamespace {
            namespace: namespace.to_owned(),
        };
        let all = published.charged();
        for (family, value) in [
            (&self.attributed, all.attributed()),
            (&self.retained, all.retained()),
            (&self.pending_purge, all.pending_purge()),
            (&self.written_off, all.written_off()),
            (&self.used_bytes, all.published_size()),
            (&self.used_count, all.used_count()),
            (&self.unreported, all.unreported()),
            (&self.in_flight, all.in_flight()),
        ] {
            family.get_or_create(&at).set(value);
        }
        for (family, known) in [
            (&self.unaccounted, published.unaccounted),
            (&self.limit_bytes, limits.size),
            (&self.limit_count, limits.count),
        ] {
            match known {
                Some(known) => _ = family.get_or_create(&at).set(known),
                None => _ = family.remove(&at),
            }
        }
    }

    /// The namespace has neither a record nor a limit any more.
    pub fn forget(&self, namespace: &str) {
        let at = ByNamespace {
            namespace: namespace.to_owned(),
        };
        for family in self.per_namespace() {
            family.remove(&at);
        }
    }

    fn per_namespace(&self) -> [&PerNamespace; 12] {
        [
            &self.attributed,
            &self.retained,
            &self.pending_purge,
            &self.written_off,
            &self.unaccounted,
            &self.used_bytes,
            &self.used_count,
            &self.unreported,
            &self.in_flight,
            &self.limit_bytes,
            &self.limit_count,
            &self.stranded,
        ]
    }

    /// Bytes of a namespace that is gone and that nobody is charged with; `None`: there are none.
    pub fn stranded(&self, namespace: &str, bytes: Option<i64>) {
        let at = ByNamespace {
            namespace: namespace.to_owned(),
        };
        match bytes {
            Some(bytes) => _ = self.stranded.get_or_create(&at).set(bytes),
            None => _ = self.stranded.remove(&at),
        }
    }

    /// A quota was written.
    pub fn written(&self, reason: WriteReason) {
        let reason = reason.as_str();
        self.writes.get_or_create(&ByReason { reason }).inc();
    }

    /// Whether somebody forbids that a quota is written; `None`: it is gone.
    pub fn refused(&self, namespace: &str, quota: &str, refused: Option<bool>) {
        let at = ByQuota {
            namespace: namespace.to_owned(),
            quota: quota.to_owned(),
        };
        match refused {
            Some(refused) => _ = self.refused.get_or_create(&at).set(i64::from(refused)),
            None => _ = self.refused.remove(&at),
        }
    }

    /// A key of a quota that does not do what it looks like appeared or went.
    pub fn misspelt(&self, namespace: &str, quota: &str, reason: WarningReason, keys: usize) {
        let at = ByQuotaAndReason {
            namespace: namespace.to_owned(),
            quota: quota.to_owned(),
            reason: reason.as_str(),
        };
        if keys == 0 {
            self.misspelt.remove(&at);
        } else {
            self.misspelt.get_or_create(&at).set(figure(keys));
        }
    }

    /// A record was written in a state that it was not in before.
    pub fn transition(&self, record: &Record) {
        self.transitions
            .get_or_create(&ByTransition {
                state: record.state.as_str(),
                reason: record.reason.as_str(),
            })
            .inc();
    }

    /// A record went, for this reason.
    pub fn removed(&self, reason: RemoveReason) {
        let reason = reason.as_str();
        self.removed.get_or_create(&ByReason { reason }).inc();
    }

    /// How the ledger stands.
    pub fn ledger(&self, records: usize, behind: usize, complete: bool) {
        self.records.set(figure(records));
        self.behind.set(figure(behind));
        self.complete.set(i64::from(complete));
    }

    /// The records were lost.
    pub fn rebuilt(&self) {
        self.rebuilt.inc();
    }

    /// Some records were deleted while nobody led.
    pub fn missing(&self, records: u64) {
        self.missing.inc_by(records);
    }

    /// A record that somebody else deleted was written again.
    pub fn restored(&self) {
        self.restored.inc();
    }

    /// Strategies whose declaration cannot be read.
    pub fn bad_declarations(&self, strategies: usize) {
        self.bad_declarations.set(figure(strategies));
    }

    /// This replica does not lead any more: what it said is another's to say.
    pub fn clear(&self) {
        for family in self.per_namespace() {
            family.clear();
        }
        self.refused.clear();
        self.misspelt.clear();
        self.complete.set(0);
    }
}

fn figure(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
