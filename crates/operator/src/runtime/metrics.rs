//! What is counted, under the names that dashboards and alerts already use.
//!
//! **Promises.** One typed method per figure; where the set of label values is closed, it is an enum. Counters end
//! in `_total`. Nothing is labelled with the name of a single Snapshot.
//!
//! **Assumes.** Gauges per repository are set by the lane controller from its index and removed when the
//! repository goes ([`Metrics::forget_repository`]) or this process stops leading: then they are the leader's to say.

pub use super::labels::{
    BackupResult, BatchOutcome, DeletionOutcome, ErrorClass, Kind, MaintenanceMode, MaintenanceResult,
    MemberOutcome, ProbeOutcome, RepositoryKind,
};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKind {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByKindAndClass {
    kind: Kind,
    class: ErrorClass,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByNamespace {
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Deletion {
    namespace: String,
    outcome: DeletionOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByBatchOutcome {
    outcome: BatchOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByMemberOutcome {
    outcome: MemberOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRepository {
    repo_kind: RepositoryKind,
    repo_name: String,
}

impl ByRepository {
    fn of(kind: RepositoryKind, name: &str) -> Self {
        Self {
            repo_kind: kind,
            repo_name: name.to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Completed {
    result: BackupResult,
    namespace: String,
    policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByResult {
    result: BackupResult,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByProbeOutcome {
    outcome: ProbeOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MaintenanceRun {
    repo_kind: RepositoryKind,
    repo_name: String,
    mode: MaintenanceMode,
    result: MaintenanceResult,
}

/// Upper bounds of a restore's duration in seconds.
const RESTORE_SECONDS: [f64; 8] = [5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0];

fn restore_durations() -> Histogram {
    Histogram::new(RESTORE_SECONDS)
}

/// Upper bounds of a reconciliation's duration in seconds.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

fn durations() -> Histogram {
    Histogram::new(SECONDS)
}

/// Every figure of the operator.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reconciliations: Family<ByKind, Counter>,
    reconcile_errors: Family<ByKindAndClass, Counter>,
    reconcile_seconds: Family<ByKind, Histogram, fn() -> Histogram>,
    deletions: Family<Deletion, Counter>,
    cascade_retained: Family<ByNamespace, Counter>,
    policy_cascade_retained: Family<ByNamespace, Counter>,
    deletion_failures: Family<ByNamespace, Counter>,
    orphaned: Family<ByNamespace, Counter>,
    batch_jobs: Family<ByBatchOutcome, Counter>,
    batch_members: Family<ByMemberOutcome, Counter>,
    reappeared: Family<ByRepository, Counter>,
    pending: Family<ByRepository, Gauge>,
    held: Family<ByRepository, Gauge>,
    completed: Family<Completed, Counter>,
    restores: Family<ByResult, Histogram, fn() -> Histogram>,
    scheduled: Counter,
    probe_failures: Family<ByProbeOutcome, Counter>,
    backend_failures: Family<ByRepository, Gauge>,
    backend_away: Family<ByRepository, Gauge>,
    maintenance_runs: Family<MaintenanceRun, Counter>,
    maintenance_reclaimed: Family<ByRepository, Gauge>,
    maintenance_configured: Family<ByRepository, Gauge>,
    leader: Gauge,
    /// Figures of Account.
    pub quota: crate::account::metrics::QuotaMetrics,
    /// Figures of stores that are listed.
    pub stores: crate::account::enumerate::metrics::StoreMetrics,
    foreign: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All figures at zero, registered.
    #[must_use]
    pub fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            reconciliations: Family::default(),
            reconcile_errors: Family::default(),
            reconcile_seconds: Family::new_with_constructor(durations),
            deletions: Family::default(),
            cascade_retained: Family::default(),
            policy_cascade_retained: Family::default(),
            deletion_failures: Family::default(),
            orphaned: Family::default(),
            batch_jobs: Family::default(),
            batch_members: Family::default(),
            reappeared: Family::default(),
            pending: Family::default(),
            held: Family::default(),
            completed: Family::default(),
            restores: Family::new_with_constructor(restore_durations),
            scheduled: Counter::default(),
            probe_failures: Family::default(),
            backend_failures: Family::default(),
            backend_away: Family::default(),
            maintenance_runs: Family::default(),
            maintenance_reclaimed: Family::default(),
            maintenance_configured: Family::default(),
            leader: Gauge::default(),
            quota: crate::account::metrics::QuotaMetrics::default(),
            stores: crate::account::enumerate::metrics::StoreMetrics::default(),
            foreign: Gauge::default(),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        // The encoder adds `_total` to counters and a full stop to each sentence.
        let r = &mut self.registry;
        self.quota.register(r);
        self.stores.register(r);
        r.register(
            "kopiur_controller_reconciliations",
            "Reconciliations",
            self.reconciliations.clone(),
        );
        r.register(
            "kopiur_controller_reconcile_errors",
            "Reconciliations that failed, by who ends the failure",
            self.reconcile_errors.clone(),
        );
        r.register(
            "kopiur_controller_reconcile_duration_seconds",
            "How long a reconciliation took",
            self.reconcile_seconds.clone(),
        );
        r.register(
            "kopiur_snapshot_deletions",
            "Snapshot objects let go, by what became of the data",
            self.deletions.clone(),
        );
        r.register(
            "kopiur_snapshots_cascade_retained",
            "Snapshots kept in the repository although their schedule was deleted",
            self.cascade_retained.clone(),
        );
        r.register(
            "kopiur_snapshots_policy_cascade_retained",
            "Snapshots kept in the repository although their policy was deleted",
            self.policy_cascade_retained.clone(),
        );
        r.register(
            "kopiur_snapshot_deletion_failures",
            "Attempts to delete a snapshot that were not confirmed",
            self.deletion_failures.clone(),
        );
        r.register(
            "kopiur_orphaned_snapshots",
            "Snapshot objects let go without contact to the repository",
            self.orphaned.clone(),
        );
        r.register(
            "kopiur_snapshot_delete_batch_jobs",
            "Batch delete Jobs reaped",
            self.batch_jobs.clone(),
        );
        r.register(
            "kopiur_snapshot_delete_batch_members",
            "Members of batch delete Jobs",
            self.batch_members.clone(),
        );
        r.register(
            "kopiur_deleted_snapshots_reappeared",
            "Snapshots that were proven gone and were found in the repository again",
            self.reappeared.clone(),
        );
        r.register(
            "kopiur_snapshot_deletions_pending_external",
            "Snapshots being deleted that wait for a decision or a batch",
            self.pending.clone(),
        );
        r.register(
            "kopiur_snapshot_deletions_held",
            "Snapshots whose deletion the breaker holds",
            self.held.clone(),
        );
        r.register(
            "kopiur_snapshots_completed",
            "Backup runs that ended",
            self.completed.clone(),
        );
        r.register(
            "kopiur_restore_duration_seconds",
            "How long a restore took, by how it ended",
            self.restores.clone(),
        );
        r.register(
            "kopiur_schedule_snapshots_created",
            "Snapshots created by schedules",
            self.scheduled.clone(),
        );
        r.register(
            "kopiur_repository_health_probe_failures",
            "Connections to repositories that failed",
            self.probe_failures.clone(),
        );
        r.register(
            "kopiur_repository_consecutive_backend_failures",
            "Connections in a row that failed",
            self.backend_failures.clone(),
        );
        r.register(
            "kopiur_repository_breaker_open",
            "1 while a repository that was connected is degraded or failed",
            self.backend_away.clone(),
        );
        r.register(
            "kopiur_maintenance_runs",
            "Maintenance runs that ended",
            self.maintenance_runs.clone(),
        );
        r.register(
            "kopiur_maintenance_last_reclaimed_bytes",
            "Bytes of storage that the last maintenance run freed",
            self.maintenance_reclaimed.clone(),
        );
        r.register(
            "kopiur_repository_maintenance_configured",
            "1 where a Maintenance is of the repository",
            self.maintenance_configured.clone(),
        );
        r.register(
            "holdfast_leader",
            "1 on the replica that leads",
            self.leader.clone(),
        );
        r.register(
            "holdfast_foreign_manager",
            "1 while another manager of the API group is alive, or may be: nothing is decided",
            self.foreign.clone(),
        );
    }

    /// One reconciliation that ended well, or with a failure of a class.
    pub fn reconciled(&self, kind: Kind, took: Duration, failure: Option<ErrorClass>) {
        self.reconciliations.get_or_create(&ByKind { kind }).inc();
        self.reconcile_seconds
            .get_or_create(&ByKind { kind })
            .observe(took.as_secs_f64());
        if let Some(class) = failure {
            self.reconcile_errors
                .get_or_create(&ByKindAndClass { kind, class })
                .inc();
        }
    }

    /// A finalizer was resolved; the narrower twins are counted with it.
    pub fn deletion(&self, namespace: &str, outcome: DeletionOutcome) {
        let place = ByNamespace {
            namespace: namespace.to_owned(),
        };
        match outcome {
            DeletionOutcome::Deleted | DeletionOutcome::Retained => {}
            DeletionOutcome::Orphaned => _ = self.orphaned.get_or_create(&place).inc(),
            DeletionOutcome::CascadeRetained => _ = self.cascade_retained.get_or_create(&place).inc(),
            DeletionOutcome::PolicyCascadeRetained => {
                _ = self.policy_cascade_retained.get_or_create(&place).inc();
            }
        }
        self.deletions
            .get_or_create(&Deletion {
                namespace: place.namespace,
                outcome,
            })
            .inc();
    }

    /// A member's deletion was tried and not confirmed.
    pub fn deletion_failed(&self, namespace: &str) {
        self.deletion_failures
            .get_or_create(&ByNamespace {
                namespace: namespace.to_owned(),
            })
            .inc();
    }

    /// A batch Job was reaped.
    pub fn batch_job(&self, outcome: BatchOutcome) {
        self.batch_jobs.get_or_create(&ByBatchOutcome { outcome }).inc();
    }

    /// Members of a batch got their outcome.
    pub fn batch_members(&self, outcome: MemberOutcome, members: u64) {
        self.batch_members
            .get_or_create(&ByMemberOutcome { outcome })
            .inc_by(members);
    }

    /// Snapshots that were proven gone were found again.
    pub fn reappeared(&self, kind: RepositoryKind, name: &str, snapshots: u64) {
        let labels = ByRepository::of(kind, name);
        self.reappeared.get_or_create(&labels).inc_by(snapshots);
    }

    /// What waits and what is held in one repository object (`Unknown`, `unknown` for unpinned Snapshots).
    pub fn wave(&self, kind: RepositoryKind, name: &str, pending: usize, held: usize) {
        let labels = ByRepository::of(kind, name);
        let figure = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.pending.get_or_create(&labels).set(figure(pending));
        self.held.get_or_create(&labels).set(figure(held));
    }

    /// The repository object is gone: its gauges go with it.
    pub fn forget_repository(&self, kind: RepositoryKind, name: &str) {
        let labels = ByRepository::of(kind, name);
        self.pending.remove(&labels);
        self.held.remove(&labels);
        self.backend_failures.remove(&labels);
        self.backend_away.remove(&labels);
        self.maintenance_reclaimed.remove(&labels);
        self.maintenance_configured.remove(&labels);
    }

    /// A connection failed: so many in a row, and whether the repository is degraded or failed by that.
    pub fn probe_failed(
        &self,
        kind: RepositoryKind,
        name: &str,
        outcome: ProbeOutcome,
        failures: u32,
        open: bool,
    ) {
        self.probe_failures
            .get_or_create(&ByProbeOutcome { outcome })
            .inc();
        self.backend(kind, name, failures, open);
    }

    /// A connection was made.
    pub fn probe_succeeded(&self, kind: RepositoryKind, name: &str) {
        self.backend(kind, name, 0, false);
    }

    fn backend(&self, kind: RepositoryKind, name: &str, failures: u32, open: bool) {
        let labels = ByRepository::of(kind, name);
        self.backend_failures
            .get_or_create(&labels)
            .set(i64::from(failures));
        self.backend_away.get_or_create(&labels).set(i64::from(open));
    }

    /// A maintenance run ended; `freed` are bytes of storage, of one that was made.
    pub fn maintained(
        &self,
        kind: RepositoryKind,
        name: &str,
        mode: MaintenanceMode,
        result: MaintenanceResult,
        freed: Option<u64>,
    ) {
        let run = MaintenanceRun {
            repo_kind: kind,
            repo_name: name.to_owned(),
            mode,
            result,
        };
        self.maintenance_runs.get_or_create(&run).inc();
        if let Some(freed) = freed {
            let labels = ByRepository::of(kind, name);
            let bytes = i64::try_from(freed).unwrap_or(i64::MAX);
            self.maintenance_reclaimed.get_or_create(&labels).set(bytes);
        }
    }

    /// Whether a Maintenance is of the repository object.
    pub fn maintenance_configured(&self, kind: RepositoryKind, name: &str, is: bool) {
        let labels = ByRepository::of(kind, name);
        self.maintenance_configured
            .get_or_create(&labels)
            .set(i64::from(is));
    }

    /// A backup run ended.
    pub fn backup(&self, result: BackupResult, namespace: &str, policy: &str) {
        self.completed
            .get_or_create(&Completed {
                result,
                namespace: namespace.to_owned(),
                policy: policy.to_owned(),
            })
            .inc();
    }

    /// A restore ended, after so many seconds.
    pub fn restored(&self, result: BackupResult, seconds: f64) {
        self.restores.get_or_create(&ByResult { result }).observe(seconds);
    }

    /// A schedule created a Snapshot.
    pub fn scheduled(&self) {
        self.scheduled.inc();
    }

    /// Whether another manager is alive.
    pub fn foreign(&self, alive: bool) {
        self.foreign.set(i64::from(alive));
    }

    /// Whether this replica leads.
    pub fn leader(&self, leads: bool) {
        self.leader.set(i64::from(leads));
        if !leads {
            self.pending.clear();
            self.held.clear();
            self.backend_failures.clear();
            self.backend_away.clear();
            self.maintenance_reclaimed.clear();
            self.maintenance_configured.clear();
        }
    }

    /// Everything in the text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        if text::encode(&mut out, &self.registry).is_err() {
            tracing::error!("metrics could not be written");
        }
        out
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
