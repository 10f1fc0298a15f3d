//! Names that are part of the contract (`docs/design.md` sections 1 and 7).
//!
//! **Promises.** Each literal that people's manifests, alerts and dashboards use stands here and nowhere else.

/// API group of Protect.
pub const GROUP: &str = "kopiur.home-operations.com";
/// Version of Protect's kinds.
pub const VERSION: &str = "v1alpha1";
/// `group/version` of Protect's kinds.
pub const API_VERSION: &str = "kopiur.home-operations.com/v1alpha1";

/// Annotation: who pruned a Snapshot (`retention`, `failed-history`). Absent or unknown means external.
pub const PRUNED_BY: &str = "kopiur.home-operations.com/pruned-by";
/// Annotation: when the stamp was written, RFC 3339 (`docs/design.md` 3.7).
pub const PRUNED_AT: &str = "kopiur.home-operations.com/pruned-at";
/// Annotation beside the stamp of retention: the snapshot ids that it kept instead, joined by commas
/// (`docs/design.md` 3.7).
pub const PRUNED_KEPT: &str = "kopiur.home-operations.com/pruned-kept";
/// Annotation on a SnapshotPolicy: the `metadata.generation` for which retention may prune as many as the threshold
/// at once (`docs/design.md` 3.7).
pub const ALLOW_MASS_PRUNE: &str = "kopiur.home-operations.com/allow-mass-prune";
/// Annotation on a SnapshotPolicy or its repository: any value allows one change of the identity that snapshots bear;
/// another value allows another one.
pub const ALLOW_IDENTITY_CHANGE: &str = "kopiur.home-operations.com/allow-identity-change";
/// Annotation on repositories: acknowledgement of a held wave, RFC 3339 (`docs/design.md` 3.4).
pub const ALLOW_MASS_DELETION: &str = "kopiur.home-operations.com/allow-mass-deletion";
/// Annotation on repositories: what was let go and is not remembered may be adopted as if it had said nothing; the time that
/// the condition KeptMemoryIncomplete shows.
pub const ACCEPT_INCOMPLETE_MEMORY: &str = "kopiur.home-operations.com/accept-incomplete-memory";
/// Annotation on a Snapshot: release the finalizer and never contact the repository.
pub const SKIP_SNAPSHOT_CLEANUP: &str = "kopiur.home-operations.com/skip-snapshot-cleanup";
/// Annotation on a batch Job: sorted, comma-joined UIDs of its members.
pub const DELETE_MEMBERS: &str = "kopiur.home-operations.com/delete-members";
/// Annotation on a batch Job: unique id of the physical repository it deletes from.
pub const DELETE_UNIQUE_ID: &str = "kopiur.home-operations.com/delete-unique-id";
/// Annotation on a batch Job: it deletes again what came back, members without Snapshot objects.
pub const DELETE_REAPPEARED: &str = "kopiur.home-operations.com/delete-reappeared";
/// Annotation on a lane's Lease: the batch Job it names, `<namespace>/<name>`.
pub const LANE_JOB: &str = "kopiur.home-operations.com/lane-job";
/// Annotation on a lane's Lease while something in the lane is held: how far the hold goes, and the threshold of each
/// repository object, gone ones included (JSON).
pub const LANE_LATCH: &str = "kopiur.home-operations.com/lane-latch";
/// Annotation on a lane's Lease: when something of the lane was last let go that could not be remembered, RFC 3339.
pub const LANE_KEPT_INCOMPLETE: &str = "kopiur.home-operations.com/kept-memory-incomplete";
/// Annotation on the memory of a batch: when it was written, RFC 3339.
pub const WRITTEN_AT: &str = "kopiur.home-operations.com/written-at";
/// Annotation on a lane's Lease: since when a batch waits for writers, RFC 3339 (`docs/design.md` 3.6).
pub const LANE_WAITING_SINCE: &str = "kopiur.home-operations.com/lane-waiting-since";
/// Annotation on a lane's Lease: when its last batch ended, RFC 3339 (`docs/design.md` 3.6).
pub const LANE_BATCH_ENDED: &str = "kopiur.home-operations.com/lane-batch-ended";
/// Annotation on a backup Job: unique id of the physical repository it writes to.
pub const WRITES_TO: &str = "kopiur.home-operations.com/writes-to";
/// Annotation on a backup Job that is suspended because a batch needs the repository to itself: since when, RFC 3339. It
/// goes with the suspension (`docs/design.md` 3.6).
pub const SUSPENDED_AT: &str = "kopiur.home-operations.com/suspended-for-deletions-at";
/// Annotation on a bootstrap Job: hash of what the connection is made with; a Job of other inputs is recycled.
pub const CONNECTION_INPUTS: &str = "kopiur.home-operations.com/connection-inputs";
/// Annotation on a listing Job: the request it answers.
pub const SCAN_REQUEST: &str = "kopiur.home-operations.com/scan-request";
/// Annotation on a listing Job: the due time (`status.catalog.scanDue.at`) it answers.
pub const SCAN_DUE: &str = "kopiur.home-operations.com/scan-due";
/// Annotation on repositories: a backup could not reach it, so it is probed soon; any new value is a new request.
pub const REVERIFY_REQUESTED_AT: &str = "kopiur.home-operations.com/reverify-requested-at";
/// Annotation on repositories: asks for one listing of the repository; any new value is a new request.
pub const SCAN_REQUESTED_AT: &str = "kopiur.home-operations.com/catalog-scan-requested-at";
/// Annotation on a mover Job: the object it works for (`<name>`, or `<Kind>/<namespace>/<name>` of a repository).
pub const WORKS_FOR: &str = "kopiur.home-operations.com/works-for";

/// Finalizer on every Snapshot, added before any work starts.
pub const FINALIZER: &str = "kopiur.home-operations.com/snapshot-cleanup";

/// Finalizer on every SnapshotPolicy, added before it has children: what becomes of them is decided first.
pub const POLICY_FINALIZER: &str = "kopiur.home-operations.com/policy-cleanup";

/// Finalizer on every SnapshotSchedule, added before it has children: what it says at its end reaches them first.
pub const SCHEDULE_FINALIZER: &str = "kopiur.home-operations.com/schedule-cleanup";

/// Label: where a Snapshot comes from (`scheduled`, `manual`, `discovered`, `adopted`, `replicated`).
pub const ORIGIN_LABEL: &str = "kopiur.home-operations.com/origin";
/// Label: the SnapshotSchedule that produced a Snapshot.
pub const SCHEDULE_LABEL: &str = "kopiur.home-operations.com/schedule";
/// Label: the SnapshotPolicy of a Snapshot.
pub const CONFIG_LABEL: &str = "kopiur.home-operations.com/config";
/// Label on a discovered or adopted Snapshot: its id in the repository, cut to what a label takes.
pub const SNAPSHOT_ID_LABEL: &str = "kopiur.home-operations.com/snapshot-id";
/// Label on a discovered or adopted Snapshot: UID of the repository object through which it was found.
pub const REPOSITORY_UID_LABEL: &str = "kopiur.home-operations.com/repository-uid";
/// Label: what a Job does.
pub const OP_LABEL: &str = "kopiur.home-operations.com/op";
/// Value of [`OP_LABEL`] on batch delete Jobs.
pub const OP_DELETE_BATCH: &str = "snapshot-delete-batch";
/// Value of [`OP_LABEL`] on backup Jobs.
pub const OP_BACKUP: &str = "snapshot-backup";
/// Value of [`OP_LABEL`] on Jobs that pin or unpin a snapshot.
pub const OP_PIN: &str = "snapshot-pin";
/// Annotation on such a Job: `true` where it pins, `false` where it takes our pin back.
pub const PIN_TARGET: &str = "kopiur.home-operations.com/pin-target";
/// Annotation on such a Job: unique id of the physical repository that it writes to.
pub const PINS_IN: &str = "kopiur.home-operations.com/pins-in";
/// Value of [`OP_LABEL`] on bootstrap Jobs.
pub const OP_BOOTSTRAP: &str = "repository-bootstrap";
/// Value of [`OP_LABEL`] on listing Jobs.
pub const OP_LIST: &str = "repository-list";
/// Value of [`OP_LABEL`] on restore Jobs.
pub const OP_RESTORE: &str = "restore";
/// Value of [`OP_LABEL`] on Jobs that look up which snapshot a restore is of.
pub const OP_RESOLVE: &str = "restore-resolve";
/// Value of [`OP_LABEL`] on maintenance Jobs.
pub const OP_MAINTENANCE: &str = "repository-maintenance";
/// Annotation on a maintenance Job: unique id of the physical repository it maintains.
pub const MAINTAINS: &str = "kopiur.home-operations.com/maintains";
/// Label on maintenance Jobs and their pods: repository name cut to 40 characters and a hash of its full key.
pub const MAINTENANCE_REPO_LABEL: &str = "kopiur.home-operations.com/maintenance";
/// Annotation on a maintenance Job: the slot it is for, RFC 3339.
pub const MAINTENANCE_SLOT: &str = "kopiur.home-operations.com/maintenance-slot";
/// Annotation on a maintenance Job: `quick` or `full`.
pub const MAINTENANCE_MODE: &str = "kopiur.home-operations.com/maintenance-mode";
/// Annotation on a maintenance Job that a person asked for: the value of [`RUN_REQUESTED`].
pub const MAINTENANCE_REQUEST: &str = "kopiur.home-operations.com/maintenance-request";
/// Annotation on a Maintenance: asks for one run; any new RFC 3339 time is a new run.
pub const RUN_REQUESTED: &str = "kopiur.home-operations.com/run-requested";
/// Annotation beside [`RUN_REQUESTED`]: `quick` or `full` (the default).
pub const RUN_MODE: &str = "kopiur.home-operations.com/run-mode";
/// Annotation on a claim that a Restore made: its UID.
pub const MADE_BY_RESTORE: &str = "kopiur.home-operations.com/made-by-restore";
/// Annotation on a Restore or a ClusterRepository: UIDs of other clusters (of their namespace `kube-system`), separated by
/// commas, whose snapshots may be restored here.
pub const RESTORE_FROM_CLUSTERS: &str = "kopiur.home-operations.com/restore-from-clusters";
/// Annotation on a Namespace, `"true"`: who may change the namespace agrees that movers in it run as root, where a policy or
/// a Restore asks for it. Nothing else is read as an agreement, least of all anything on those objects themselves.
pub const PRIVILEGED_MOVERS: &str = "kopiur.home-operations.com/privileged-movers";
/// Prefix of the claims that are filled in the place of another (with its UID after it).
pub const PRIME_PREFIX: &str = "holdfast-prime-";
/// Label on batch Jobs: repository name cut to 40 characters and a hash of its full key.
pub const DELETE_REPO_LABEL: &str = "kopiur.home-operations.com/delete-repo";
/// Label on a mover Job: UID of the object it works for.
pub const OWNER_UID_LABEL: &str = "kopiur.home-operations.com/owner-uid";
/// Label on a copy of a Secret: what it lives as long as (`cr`: one Job of one object).
pub const CREDS_SCOPE_LABEL: &str = "kopiur.home-operations.com/creds-scope";
/// Value of [`CREDS_SCOPE_LABEL`].
pub const CREDS_SCOPE: &str = "cr";
/// Label on a copy of a Secret: UID of the ClusterRepository whose Secrets it is of.
pub const CLUSTER_REPOSITORY_UID_LABEL: &str = "kopiur.home-operations.com/cluster-repository-uid";
/// Annotation on a copy of a Secret: what it was copied from (`<namespace>/<name>`, separated by commas).
pub const PROJECTED_FROM: &str = "kopiur.home-operations.com/projected-from";
/// Annotation on a copy of a Secret: when it was last written, RFC 3339.
pub const PROJECTED_AT: &str = "kopiur.home-operations.com/projected-at";
/// Annotation on a mover Job, for people: the copy of the credentials that it reads, in its namespace.
pub const PROJECTED_CREDENTIALS: &str = "kopiur.home-operations.com/projected-credentials";
/// Standard label: what an object is for.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Standard label that tells our objects from another manager's.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`].
pub const MANAGED_BY: &str = "holdfast";

/// Value of [`MANAGED_BY_LABEL`] on what the Kopia operator made.
pub const FOREIGN_MANAGED_BY: &str = "kopiur";

/// Tag in a repository: UID of the namespace `kube-system`.
pub const TAG_CLUSTER: &str = "holdfast-cluster";
/// Tag in a repository: UID of the Snapshot object.
pub const TAG_SNAPSHOT: &str = "holdfast-snapshot";

/// Field manager of specs and metadata.
pub const FIELD_MANAGER: &str = "holdfast";
/// Field manager of statuses.
pub const STATUS_MANAGER: &str = "holdfast-status";

/// The operator's namespace, as the chart installs it.
pub const OPERATOR_NAMESPACE: &str = "holdfast-system";
/// Name of the leader Lease of the Kopia operator, which manages the same API group.
pub const FOREIGN_LEASE: &str = "kopiur-leader";
/// Name of the leader Lease.
pub const LEADER_LEASE: &str = "holdfast-leader";
/// Prefix of the lane Leases (`docs/design.md` 3.6).
pub const LANE_LEASE_PREFIX: &str = "holdfast-lane-";
/// Prefix of the ConfigMaps that remember for a day what was deleted (`docs/design.md` 3.6).
pub const BATCH_MEMORY_PREFIX: &str = "holdfast-batch-";
/// Prefix of the ConfigMaps that name what came back (`docs/design.md` 3.6).
pub const REAPPEARED_PREFIX: &str = "holdfast-reappeared-";
/// Prefix of the ConfigMaps that remember what was let go while its data stayed (`docs/design.md` 3.7).
pub const KEPT_MEMORY_PREFIX: &str = "holdfast-kept-";
/// Label on those ConfigMaps; the value stands for the physical repository.
pub const KEPT_MEMORY_LABEL: &str = "kopiur.home-operations.com/kept-memory";
/// Label on the ConfigMaps of batches; the value is that of [`DELETE_REPO_LABEL`].
pub const BATCH_MEMORY_LABEL: &str = "kopiur.home-operations.com/batch-memory";
/// ServiceAccount of movers, one per namespace, without rights.
pub const MOVER_SERVICE_ACCOUNT: &str = "holdfast-mover";
/// Key of the password in `passwordSecretRef` when none is named.
pub const PASSWORD_KEY: &str = "KOPIA_PASSWORD";

/// Threshold of the breaker when `deletionProtection.threshold` is absent.
pub const DEFAULT_THRESHOLD: u32 = 10;

/// API group of the platform's backup kinds.
pub const BACKUPS_GROUP: &str = "backups.cozystack.io";
/// API group of the platform's strategies, which are read only.
pub const STRATEGY_GROUP: &str = "strategy.backups.cozystack.io";
/// API group of the ledger's kinds.
pub const LEDGER_GROUP: &str = "ledger.backups.cozystack.io";
/// Version of all three groups.
pub const BACKUPS_VERSION: &str = "v1alpha1";
/// API group of applications when a reference names none.
pub const APPLICATION_GROUP: &str = "apps.cozystack.io";

/// Quota dimension: bytes that backups occupy.
pub const QUOTA_SIZE: &str = "backups.cozystack.io/size";
/// Quota dimension: things in storage.
pub const QUOTA_COUNT: &str = "backups.cozystack.io/count";
/// Quota dimension of the API server that is a trap: it refuses the record of a run that has ended
/// (`docs/design.md` section 4).
pub const NATIVE_BACKUP_COUNT: &str = "count/backups.backups.cozystack.io";
/// Annotation on a strategy: what its driver can do, JSON (`docs/design.md` 4.2).
pub const CAPABILITIES: &str = "ledger.backups.cozystack.io/capabilities";
/// Annotation on a ResourceQuota: what the published figures are made of, JSON.
pub const BREAKDOWN: &str = "ledger.backups.cozystack.io/breakdown";
/// Annotation on a BackupStore: the token of the pending release that an administrator allows.
pub const APPROVE_RELEASE: &str = "ledger.backups.cozystack.io/approve-release";
/// Annotation on a BackupStore: asks for a listing that begins after this time (RFC 3339).
pub const LIST_REQUESTED_AT: &str = "ledger.backups.cozystack.io/list-requested-at";
/// Annotation on a Plan: written when room appeared for a run that was refused, so that its controller looks again.
pub const ROOM_APPEARED_AT: &str = "ledger.backups.cozystack.io/room-appeared-at";
/// Label of the platform on a driver's own objects: the BackupJob they were made for.
pub const OWNED_BY_JOB: &str = "backups.cozystack.io/owned-by.BackupJobName";
/// The same: the namespace of that BackupJob.
pub const OWNED_BY_JOB_NAMESPACE: &str = "backups.cozystack.io/owned-by.BackupJobNamespace";
/// ConfigMap in the operator's namespace that tells a first start from a lost ledger (`docs/design.md` 4.1).
pub const LEDGER_MARKER: &str = "holdfast-ledger";
/// The ValidatingWebhookConfiguration of the gate.
pub const GATE_CONFIGURATION: &str = "holdfast-quota";
/// Label on an Artifact: the namespace it is charged to.
pub const ARTIFACT_NAMESPACE_LABEL: &str = "ledger.backups.cozystack.io/namespace";
/// Field manager of the published figures.
pub const QUOTA_MANAGER: &str = "holdfast-quota";
/// Verb on `artifacts` and `backupstores` that writing off a record and approving a release need.
pub const WRITE_OFF_VERB: &str = "write-off";
