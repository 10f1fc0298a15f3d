//! The alerts. Words of reasons are those of conditions, events and metrics.
//!
//! Figures are the leader's: every other replica exports none, or zero. So each expression takes the largest.

/// One alert.
pub struct Alert {
    /// Its name.
    pub name: &'static str,
    /// When it fires, in PromQL.
    pub expr: &'static str,
    /// The same for people.
    pub when: &'static str,
    /// For how long before it fires.
    pub lasting: &'static str,
    /// `info`, `warning` or `critical`.
    pub severity: &'static str,
    /// One line; may name labels.
    pub summary: &'static str,
    /// What it means; may name labels.
    pub description: &'static str,
    /// Name of the page in `docs/runbooks`.
    pub runbook: &'static str,
}

/// Alerts of one part of Holdfast.
pub struct Group {
    /// Name of the file and of the group.
    pub name: &'static str,
    /// Heading of the page.
    pub title: &'static str,
    /// In the order of the page.
    pub alerts: &'static [Alert],
}

/// All of them.
pub const GROUPS: &[Group] = &[
    Group {
        name: "operator",
        title: "The operator",
        alerts: OPERATOR,
    },
    Group {
        name: "protect",
        title: "Protect",
        alerts: PROTECT,
    },
    Group {
        name: "account",
        title: "Account",
        alerts: ACCOUNT,
    },
];

const OPERATOR: &[Alert] = &[
    Alert {
        name: "HoldfastNoLeader",
        expr: "(max(holdfast_leader) or vector(0)) == 0",
        when: "no replica leads, or none is scraped",
        lasting: "5m",
        severity: "critical",
        summary: "No replica of Holdfast leads",
        description: "Nothing is backed up, deleted, pruned or counted. With quota.failurePolicy Fail every BackupJob is refused.",
        runbook: "no-leader",
    },
    Alert {
        name: "HoldfastForeignManager",
        expr: "max(holdfast_foreign_manager) == 1",
        when: "another manager of the API group is alive, or may be",
        lasting: "5m",
        severity: "critical",
        summary: "Another manager works on the same objects",
        description: "Holdfast decides nothing while another manager of kopiur.home-operations.com is alive, or may be (ForeignManager).",
        runbook: "foreign-manager",
    },
];

const PROTECT: &[Alert] = &[
    Alert {
        name: "SnapshotDeletionsHeld",
        expr: "max by (repo_kind, repo_name) (kopiur_snapshot_deletions_held) > 0",
        when: "the breaker holds deletions (MassDeletionBreaker)",
        lasting: "1m",
        severity: "warning",
        summary: "{{ $value }} deletions are held in {{ $labels.repo_kind }} {{ $labels.repo_name }}",
        description: "As many deletions as the threshold, or more, were asked for at about the same time (MassDeletionBreaker). None of them has been carried out; the hold does not run out.",
        runbook: "held-wave",
    },
    Alert {
        name: "SnapshotDeletionsStuck",
        expr: "max by (repo_kind, repo_name) (kopiur_snapshot_deletions_pending_external) - max by (repo_kind, repo_name) (kopiur_snapshot_deletions_held) > 0",
        when: "deletions wait that nobody holds",
        lasting: "6h",
        severity: "warning",
        summary: "{{ $value }} deletions wait in {{ $labels.repo_kind }} {{ $labels.repo_name }} and are not held",
        description: "They are neither held by the breaker nor carried out; each Snapshot's condition says what it waits for.",
        runbook: "deletions-stuck",
    },
    Alert {
        name: "SnapshotDeletionBatchesFailing",
        expr: "sum(increase(kopiur_snapshot_delete_batch_jobs_total{outcome=\"failed\"}[1h])) >= 3",
        when: "three or more batch delete Jobs failed within an hour",
        lasting: "0s",
        severity: "warning",
        summary: "Batch delete Jobs fail",
        description: "Members that were not confirmed back off and are tried again. Nothing is let go unless it is proven gone.",
        runbook: "batches-failing",
    },
    Alert {
        name: "SnapshotReappeared",
        expr: "sum by (repo_kind, repo_name) (increase(kopiur_deleted_snapshots_reappeared_total[1h])) > 0",
        when: "snapshots that were proven gone are in the repository again",
        lasting: "0s",
        severity: "critical",
        summary: "Deleted snapshots are back in {{ $labels.repo_kind }} {{ $labels.repo_name }}",
        description: "A snapshot that was read back as gone was found again: the storage was restored to an earlier state, or it answers from an old copy.",
        runbook: "snapshot-reappeared",
    },
    Alert {
        name: "SnapshotsFailing",
        expr: "sum by (namespace, policy) (increase(kopiur_snapshots_completed_total{result=\"failed\"}[1d])) > 0 unless sum by (namespace, policy) (increase(kopiur_snapshots_completed_total{result=\"succeeded\"}[1d])) > 0",
        when: "a policy had failed runs and no good one within a day",
        lasting: "1h",
        severity: "warning",
        summary: "SnapshotPolicy {{ $labels.namespace }}/{{ $labels.policy }} has failed for a day",
        description: "Runs failed and none succeeded within a day. What is kept grows old.",
        runbook: "snapshots-failing",
    },
];

const ACCOUNT: &[Alert] = &[
    Alert {
        name: "BackupStorageNearLimit",
        expr: "max by (namespace) (cozystack_backup_quota_used_bytes) >= 0.8 * max by (namespace) (cozystack_backup_quota_limit_bytes) and max by (namespace) (cozystack_backup_quota_used_bytes) < max by (namespace) (cozystack_backup_quota_limit_bytes)",
        when: "a namespace uses 80 % of its bytes",
        lasting: "15m",
        severity: "info",
        summary: "Backups of {{ $labels.namespace }} occupy more than 80 % of their bytes",
        description: "At the limit of backups.cozystack.io/size the next BackupJob is refused (ExceededQuota), if the gate is on.",
        runbook: "storage-near-limit",
    },
    Alert {
        name: "BackupStorageNearLimit",
        expr: "max by (namespace) (cozystack_backup_quota_used_artifacts) >= 0.8 * max by (namespace) (cozystack_backup_quota_limit_artifacts) and max by (namespace) (cozystack_backup_quota_used_artifacts) < max by (namespace) (cozystack_backup_quota_limit_artifacts)",
        when: "a namespace uses 80 % of its count",
        lasting: "15m",
        severity: "info",
        summary: "Backups of {{ $labels.namespace }} are more than 80 % of their count",
        description: "At the limit of backups.cozystack.io/count the next BackupJob is refused (ExceededQuota), if the gate is on.",
        runbook: "storage-near-limit",
    },
    Alert {
        name: "BackupStorageOverLimit",
        expr: "(max by (namespace) (cozystack_backup_quota_used_bytes) >= max by (namespace) (cozystack_backup_quota_limit_bytes)) > 0",
        when: "a namespace has reached its limit of bytes",
        lasting: "5m",
        severity: "warning",
        summary: "Backups of {{ $labels.namespace }} have reached their limit of bytes",
        description: "With the gate on every further BackupJob is refused (ExceededQuota); scheduled runs do not happen. Restores and deletes go on.",
        runbook: "storage-over-limit",
    },
    Alert {
        name: "BackupStorageOverLimit",
        expr: "(max by (namespace) (cozystack_backup_quota_used_artifacts) >= max by (namespace) (cozystack_backup_quota_limit_artifacts)) > 0",
        when: "a namespace has reached its limit of things",
        lasting: "5m",
        severity: "warning",
        summary: "Backups of {{ $labels.namespace }} have reached their limit of things",
        description: "With the gate on every further BackupJob is refused (ExceededQuota); scheduled runs do not happen. Restores and deletes go on.",
        runbook: "storage-over-limit",
    },
    Alert {
        name: "BackupLedgerRebuilt",
        expr: "sum(cozystack_backup_quota_ledger_rebuilt_total) > 0 or sum(cozystack_backup_quota_records_missing_total) > 0",
        when: "every record was gone (LedgerRebuilt), or some were (RecordsMissing); until the operator is restarted",
        lasting: "0s",
        severity: "critical",
        summary: "The ledger of backup storage was lost, or a part of it",
        description: "Records were gone while the operator was down (LedgerRebuilt: every one, RecordsMissing: some). What deleted Backups left behind is not known any more, so figures are too low.",
        runbook: "ledger-rebuilt",
    },
    Alert {
        name: "BackupLedgerNotComplete",
        expr: "max(cozystack_backup_quota_ledger_complete) == 0",
        when: "not every list has been added up (NotYetCounted)",
        lasting: "15m",
        severity: "warning",
        summary: "The ledger of backup storage is not complete",
        description: "A list has not arrived or is not added up, or a watch tells nothing any more. The gate refuses under a limit (NotYetCounted, LedgerStale).",
        runbook: "ledger-not-current",
    },
    Alert {
        name: "BackupLedgerBehind",
        expr: "min_over_time((max(cozystack_backup_quota_ledger_behind))[10m:1m]) > 0",
        when: "something seen is not recorded for ten minutes",
        lasting: "5m",
        severity: "warning",
        summary: "The ledger of backup storage does not catch up",
        description: "Objects that were seen are not in the ledger. After a while the gate refuses in their namespaces (LedgerStale).",
        runbook: "ledger-not-current",
    },
    Alert {
        name: "BackupGateNotSure",
        expr: "sum by (reason) (increase(cozystack_backup_quota_admissions_total{reason=~\"NotYetCounted|LedgerStale|LimitUnreadable\"}[15m])) > 0",
        when: "BackupJobs are refused because figures or limits are not known",
        lasting: "15m",
        severity: "warning",
        summary: "BackupJobs are refused: {{ $labels.reason }}",
        description: "They are refused because figures or limits are not known, not because a limit is reached.",
        runbook: "ledger-not-current",
    },
    Alert {
        name: "BackupFigureRefused",
        expr: "max by (namespace, quota) (cozystack_backup_quota_write_refused) == 1",
        when: "somebody forbids that figures are written (FigureRefused)",
        lasting: "5m",
        severity: "warning",
        summary: "Figures cannot be written to ResourceQuota {{ $labels.namespace }}/{{ $labels.quota }}",
        description: "A webhook, a policy or RBAC forbids it (FigureRefused). What the tenant sees is old; the gate still decides by what is right.",
        runbook: "figure-refused",
    },
    Alert {
        name: "BackupBytesUnaccounted",
        expr: "max by (namespace) (cozystack_backup_quota_unaccounted_bytes) > 1073741824",
        when: "more than 1 Gi in the stores that no record explains",
        lasting: "1d",
        severity: "info",
        summary: "{{ $value | humanize1024 }}B of {{ $labels.namespace }} are explained by no record",
        description: "Leftovers of failed runs, copies made by hand, or archives of a driver that never names its objects. They are told and not charged.",
        runbook: "bytes-unaccounted",
    },
    Alert {
        name: "BackupReleaseWaits",
        expr: "max by (store) (cozystack_backup_store_waiting_records) > 0",
        when: "a large release waits for an administrator (ReleaseWaits)",
        lasting: "10m",
        severity: "warning",
        summary: "{{ $value }} records of BackupStore {{ $labels.store }} wait to be released",
        description: "A listing misses so much that it may be wrong (ReleaseWaits). Nothing is released before an administrator says so.",
        runbook: "release-waits",
    },
    Alert {
        name: "BackupStoreNotListed",
        expr: "sum by (store) (increase(cozystack_backup_store_listings_total{reason=~\"ListingFailed|SecretUnusable|BadSpec\"}[2d])) > 0 unless sum by (store) (increase(cozystack_backup_store_listings_total{reason=~\"Listed|ReleaseWaits\"}[2d])) > 0",
        when: "listings of a store fail, and none ended well for two days or since the start",
        lasting: "6h",
        severity: "warning",
        summary: "BackupStore {{ $labels.store }} cannot be listed",
        description: "Attempts end with ListingFailed, SecretUnusable or BadSpec. Sizes and what was pruned behind our back are not noticed.",
        runbook: "store-not-listed",
    },
];
