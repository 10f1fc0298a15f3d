//! The CustomResourceDefinitions, as generated into the chart.
//!
//! **Promises.** Schemas come from the types; every refused field ([`crate::unsupported`]) and every rule over
//! one object ([`rules`]) stands beside its parent as a CEL validation whose message names the field. Each
//! definition stays under 60 KB.

use crate::strategies::{Altinity, CNPG, Etcd, FoundationDB, Job, MariaDB, MongoDB, Velero};
use crate::unsupported::{self, Shape, Unsupported};
use crate::{
    Artifact, Backup, BackupClass, BackupJob, BackupStore, ClusterRepository, Maintenance, Plan, Repository,
    Restore, RestoreJob, Snapshot, SnapshotPolicy, SnapshotSchedule,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

/// A rule over one object, beside the refused fields.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// Where it stands, e.g. `spec.backend`; `[]` for list items.
    pub at: &'static str,
    /// CEL over `self`.
    pub rule: &'static str,
    /// The sentence with which an object is refused; begins with the field.
    pub message: &'static str,
}

const fn rule(at: &'static str, rule: &'static str, message: &'static str) -> Rule {
    Rule { at, rule, message }
}

/// Rules over one object, the same that [`crate::validate`] checks.
pub mod rules {
    use super::{Rule, rule};

    /// A prefix that Kopia would read as the beginning of other names.
    pub const KOPIA_PREFIX: &str = "spec.backend.s3.prefix ends with '/' with engine Kopia, or is empty: without it the objects of every prefix that begins alike are taken for this repository's, and its maintenance deletes them; add the '/', and copy what is there already below the new prefix";

    /// An interval that cannot be read, or is too short.
    pub const REFRESH_INTERVAL: &str =
        "spec.catalog.refreshInterval is a duration such as 45m or 6h, at least 30s";
    /// An interval without effect.
    pub const REFRESH_UNUSED: &str = "spec.catalog.refreshInterval has no effect without periodicRefresh: true: set it, or remove the interval";
    /// A requirement on a label that says nothing, or nothing that can be met.
    const VALUES: &str = "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)";

    /// A repository whose movers are to be root.
    pub const REPOSITORY_IS_NOT_ROOTS: &str = "spec.moverDefaults.securityContext: runAsUser and runAsGroup are above 0, a repository's own movers never run as root: for what only root may read or set, set spec.mover.privilegedMode of the SnapshotPolicy or Restore";
    /// Root that is not asked for.
    pub const ROOT_IS_ASKED_FOR: &str = "spec.mover.securityContext: runAsUser and runAsGroup are above 0; 0 is for privilegedMode: true, to which the namespace has to agree";
    /// `privilegedMode`, or `runAsUser: 0` without it.
    const ROOT_BY_NAME: &str = "!has(self.securityContext) || [has(self.securityContext.runAsUser) ? self.securityContext.runAsUser : 1, has(self.securityContext.runAsGroup) ? self.securityContext.runAsGroup : 1].all(id, id > 0 || (id == 0 && (has(self.privilegedMode) ? self.privilegedMode : has(self.securityContext.runAsUser) && self.securityContext.runAsUser == 0)))";
    const NO_ROOT_GROUP_SAID: &str = "spec.mover.podSecurityContext: fsGroup and supplementalGroups are above 0, no mover is of root's group by them";

    const NOT_ROOT: &str =
        "(!has(self.runAsUser) || self.runAsUser > 0) && (!has(self.runAsGroup) || self.runAsGroup > 0)";
    const NO_ROOT_GROUP: &str = "(!has(self.fsGroup) || self.fsGroup > 0) && (!has(self.supplementalGroups) || self.supplementalGroups.all(g, g > 0))";

    /// Of both repository kinds.
    pub const REPOSITORY: &[Rule] = &[
        rule(
            "spec.deletionProtection.slidingWindow",
            r"self.duration.matches('^([0-9]+(h|m|s))+$') && duration(self.duration) > duration('0s') && duration(self.duration) <= duration('24h')",
            "spec.deletionProtection.slidingWindow.duration is a duration such as 90m or 12h, at most 24h",
        ),
        rule(
            "spec.deletionProtection",
            "!has(self.slidingWindow) || !has(self.threshold) || self.threshold != 0",
            "spec.deletionProtection.slidingWindow has no effect with threshold: 0, which is no breaker: remove one of them",
        ),
        rule(
            "spec.catalog",
            r"!has(self.refreshInterval) || (self.refreshInterval.matches('^([0-9]+(h|m|s))+$') && duration(self.refreshInterval) >= duration('30s'))",
            REFRESH_INTERVAL,
        ),
        rule(
            "spec.catalog",
            "!has(self.refreshInterval) || (has(self.periodicRefresh) && self.periodicRefresh)",
            REFRESH_UNUSED,
        ),
        rule(
            "spec.moverDefaults.securityContext",
            NOT_ROOT,
            REPOSITORY_IS_NOT_ROOTS,
        ),
        rule(
            "spec.moverDefaults.podSecurityContext",
            NO_ROOT_GROUP,
            "spec.moverDefaults.podSecurityContext: fsGroup and supplementalGroups are above 0, no mover is of root's group by them",
        ),
        rule(
            "spec.scheduleDefaults",
            r"!has(self.jitter) || (self.jitter.matches('^([0-9]+(s|m|h))+$') && duration(self.jitter) <= duration('24h'))",
            "spec.scheduleDefaults.jitter is a duration such as 90s, 5m or 1h30m, at most 24h",
        ),
        rule(
            "spec.health.probe",
            r"!has(self.interval) || (self.interval.matches('^([0-9]+(h|m|s))+$') && duration(self.interval) >= duration('30s'))",
            "spec.health.probe.interval is a duration such as 90s, 5m or 2h, at least 30s",
        ),
        rule(
            "spec",
            "self.mode == 'ReadWrite'",
            "spec.mode: ReadOnly is not supported by this release: remove the field",
        ),
        rule(
            "spec.backend",
            "has(self.filesystem) != has(self.s3)",
            "spec.backend needs exactly one key: set spec.backend.filesystem or spec.backend.s3",
        ),
        rule(
            "spec.backend.s3.auth",
            "has(self.secretRef) || has(self.workloadIdentity)",
            "spec.backend.s3.auth.secretRef is required: name the Secret with the keys",
        ),
        rule(
            "spec.backend.s3",
            "!has(self.endpoint) || !self.endpoint.contains('/')",
            "spec.backend.s3.endpoint is host or host:port, without a scheme and without a path",
        ),
        rule(
            "spec.backend.s3",
            "!has(self.prefix) || !(self.prefix.startsWith('/') || self.prefix.contains('//') || self.prefix.split('/').exists(part, part == '.' || part == '..'))",
            "spec.backend.s3.prefix does not begin with '/' and has no part that is empty, '.' or '..'",
        ),
        rule(
            "spec",
            "self.engine != 'Kopia' || !has(self.backend.s3) || !has(self.backend.s3.prefix) || self.backend.s3.prefix == '' || self.backend.s3.prefix.endsWith('/')",
            KOPIA_PREFIX,
        ),
        rule(
            "spec.backend.s3.tls",
            "(has(self.disableTls) && self.disableTls ? 1 : 0) + (has(self.insecureSkipVerify) && self.insecureSkipVerify ? 1 : 0) + (has(self.caBundleRef) ? 1 : 0) <= 1",
            "spec.backend.s3.tls takes one of disableTls, insecureSkipVerify and caBundleRef: beside each the others have no effect",
        ),
        rule(
            "spec.backend.filesystem.volume",
            "has(self.pvc) != has(self.nfs)",
            "spec.backend.filesystem.volume needs exactly one key: set volume.pvc.name or volume.nfs",
        ),
    ];

    /// Of the namespaced kind alone.
    pub const NAMESPACED_REPOSITORY: &[Rule] = &[
        rule(
            "spec.encryption.passwordSecretRef",
            "!has(self.__namespace__)",
            "spec.encryption.passwordSecretRef.namespace is only for a ClusterRepository: the Secret of a Repository is in its own namespace",
        ),
        rule(
            "spec.backend.s3.auth.secretRef",
            "!has(self.__namespace__)",
            "spec.backend.s3.auth.secretRef.namespace is only for a ClusterRepository: the Secret of a Repository is in its own namespace",
        ),
    ];

    /// Of the cluster-scoped kind alone.
    pub const CLUSTER_REPOSITORY: &[Rule] = &[
        rule(
            "spec.encryption.passwordSecretRef",
            "has(self.__namespace__) && self.__namespace__ != ''",
            "spec.encryption.passwordSecretRef.namespace is required on a ClusterRepository: name the operator's namespace",
        ),
        rule(
            "spec.backend.s3.auth.secretRef",
            "has(self.__namespace__) && self.__namespace__ != ''",
            "spec.backend.s3.auth.secretRef.namespace is required on a ClusterRepository: name the operator's namespace",
        ),
        rule(
            "spec.allowedNamespaces",
            "(has(self.list) ? 1 : 0) + (has(self.selector) ? 1 : 0) + (has(self.all) ? 1 : 0) == 1",
            "spec.allowedNamespaces needs exactly one of list, selector, all",
        ),
        rule(
            "spec.allowedNamespaces",
            "!has(self.all) || self.all",
            "spec.allowedNamespaces.all: false is refused: use list: [] to allow no namespace",
        ),
        rule(
            "spec.allowedNamespaces.selector.matchExpressions[]",
            VALUES,
            "spec.allowedNamespaces.selector.matchExpressions[].values is for operators In and NotIn, which need it",
        ),
    ];

    /// Without any count nothing is pruned: only zeros say what nobody means.
    const KEEPS_SOMETHING: &str = "(!has(self.keepLatest) && !has(self.keepHourly) && !has(self.keepDaily) && !has(self.keepWeekly) && !has(self.keepMonthly) && !has(self.keepAnnual)) || (has(self.keepLatest) && self.keepLatest > 0) || (has(self.keepHourly) && self.keepHourly > 0) || (has(self.keepDaily) && self.keepDaily > 0) || (has(self.keepWeekly) && self.keepWeekly > 0) || (has(self.keepMonthly) && self.keepMonthly > 0) || (has(self.keepAnnual) && self.keepAnnual > 0)";

    /// Of a SnapshotPolicy.
    pub const POLICY: &[Rule] = &[
        rule(
            "spec",
            "has(self.repository)",
            "spec.repository is required: name the repository",
        ),
        rule(
            "spec.repository",
            "self.kind != 'ClusterRepository' || !has(self.__namespace__)",
            "spec.repository.namespace is not allowed with kind ClusterRepository: remove it",
        ),
        rule(
            "spec",
            "size(self.sources) == 1",
            "spec.sources: more than one source is not supported by this release: make a policy for each",
        ),
        rule(
            "spec",
            "self.copyMethod == 'Direct'",
            "spec.copyMethod: Snapshot and Clone are not supported by this release: use Direct",
        ),
        rule(
            "spec.retention",
            KEEPS_SOMETHING,
            "spec.retention keeps nothing: set one of its counts to 1 or more, or remove retention to keep everything",
        ),
        rule("spec.mover", ROOT_BY_NAME, ROOT_IS_ASKED_FOR),
        rule("spec.mover.podSecurityContext", NO_ROOT_GROUP, NO_ROOT_GROUP_SAID),
        rule(
            "spec.sources[]",
            "has(self.pvc)",
            "spec.sources[].pvc is required: name a claim of this namespace",
        ),
        rule(
            "spec.sources[]",
            "self.readOnly",
            "spec.sources[].readOnly: false is not supported by this release: sources are mounted read-only",
        ),
    ];

    /// Of a SnapshotSchedule.
    pub const SCHEDULE: &[Rule] = &[
        rule(
            "spec",
            "has(self.policyRef) != has(self.policySelector)",
            "spec needs exactly one of policyRef and policySelector",
        ),
        rule(
            "spec.policySelector.matchExpressions[]",
            VALUES,
            "spec.policySelector.matchExpressions[].values is for operators In and NotIn, which need it",
        ),
        rule(
            "spec.schedule",
            r"self.cron.matches('^\\S+( +\\S+){4}$')",
            "spec.schedule.cron needs five fields: minute hour day month weekday",
        ),
        rule(
            "spec.schedule",
            r"!has(self.jitter) || self.jitter.matches('^([0-9]+(s|m|h))+$')",
            "spec.schedule.jitter is a duration such as 90s, 5m or 1h30m, at most 24h",
        ),
    ];

    /// Of an Artifact.
    pub const ARTIFACT: &[Rule] = &[
        rule(
            "spec",
            "self == oldSelf",
            "spec never changes: what a record says now is in its status",
        ),
        rule(
            "spec",
            "(has(self.key) ? 1 : 0) + (has(self.backupUid) ? 1 : 0) <= 1 && (has(self.key) || has(self.backupUid) || has(self.job))",
            "spec needs what it is for: exactly one of key and backupUid, or job",
        ),
        rule(
            "spec",
            "has(self.place) == has(self.key)",
            "spec.place and spec.key go together",
        ),
        rule(
            "spec",
            "has(self.strategy) || !(has(self.key) || has(self.backupUid))",
            "spec.strategy is required with spec.key and spec.backupUid",
        ),
    ];

    /// Of a BackupStore.
    pub const STORE: &[Rule] = &[
        rule(
            "spec.layout",
            "self.path.matches('^(([A-Za-z0-9._-]+|[{]namespace[}]|[{]application[}]|[{]any[}])/)*[{]artifact[.][.][.][}]$')",
            "spec.layout.path is made of words, {namespace}, {application} and {any}, joined by '/', and ends with {artifact...}",
        ),
        rule(
            "spec.layout",
            "self.path.split('{namespace}').size() == (has(self.__namespace__) ? 1 : 2)",
            "spec.layout needs the namespace once: {namespace} in path, or the field namespace",
        ),
        rule(
            "spec.layout",
            "self.path.split('{application}').size() <= 2",
            "spec.layout.path has {application} more than once",
        ),
        rule(
            "spec",
            "!has(self.prefix) || self.prefix == '' || (self.prefix.endsWith('/') && !self.prefix.startsWith('/'))",
            "spec.prefix ends with '/' and does not begin with it, or is empty",
        ),
        rule(
            "spec",
            "self.endpoint.matches('^https?://[^/]+/?$')",
            "spec.endpoint is a URL without a path, such as https://s3.example.org",
        ),
        rule(
            "spec",
            "self.interval.matches('^([0-9]+(s|m|h))+$') && duration(self.interval) >= duration('1m') && duration(self.interval) <= duration('168h')",
            "spec.interval is a duration such as 30m or 6h, from 1m to 168h",
        ),
    ];

    /// Of a BackupJob, as the platform has it.
    pub const BACKUP_JOB: &[Rule] = &[rule(
        "spec",
        "self.backupClassName == oldSelf.backupClassName",
        "backupClassName is immutable",
    )];

    /// Of a Restore.
    pub const RESTORE: &[Rule] = &[
        rule("spec.mover", ROOT_BY_NAME, ROOT_IS_ASKED_FOR),
        rule("spec.mover.podSecurityContext", NO_ROOT_GROUP, NO_ROOT_GROUP_SAID),
        rule(
            "spec.source",
            "(has(self.snapshotRef) ? 1 : 0) + (has(self.fromPolicy) ? 1 : 0) + (has(self.identity) ? 1 : 0) == 1",
            "spec.source needs exactly one of snapshotRef, fromPolicy, identity",
        ),
        rule(
            "spec.target",
            "(has(self.pvc) ? 1 : 0) + (has(self.pvcRef) ? 1 : 0) + (has(self.populator) ? 1 : 0) == 1",
            "spec.target needs exactly one of pvc, pvcRef, populator",
        ),
        rule(
            "spec",
            "!has(self.source.identity) || has(self.repository)",
            "spec.repository is required with source.identity: name the repository",
        ),
        rule(
            "spec",
            "!has(self.source.snapshotRef) || !has(self.repository)",
            "spec.repository is not used with source.snapshotRef, whose Snapshot names it: remove it",
        ),
        rule(
            "spec.repository",
            "self.kind != 'ClusterRepository' || !has(self.__namespace__)",
            "spec.repository.namespace is not allowed with kind ClusterRepository: remove it",
        ),
        rule(
            "spec.source.identity",
            "!has(self.snapshotID) || (!has(self.asOf) && self.offset == 0)",
            "spec.source.identity.snapshotID names one snapshot: remove asOf and offset",
        ),
        rule(
            "spec.options",
            "!(has(self.skipExisting) && self.skipExisting && ((has(self.overwriteFiles) && self.overwriteFiles) || self.enableFileDeletion))",
            "spec.options.skipExisting keeps what is there: remove it, or overwriteFiles and enableFileDeletion",
        ),
        rule(
            "spec.options",
            "!(has(self.writeSparseFiles) && self.writeSparseFiles && ((has(self.overwriteFiles) && self.overwriteFiles) || (has(self.skipExisting) && self.skipExisting) || self.enableFileDeletion))",
            "spec.options.writeSparseFiles needs an empty target: remove it, or overwriteFiles, skipExisting and enableFileDeletion",
        ),
        rule(
            "spec.policy",
            r"!has(self.waitTimeout) || self.waitTimeout.matches('^([0-9]+(s|m|h))+$')",
            "spec.policy.waitTimeout is a duration such as 90s, 5m or 1h30m",
        ),
        rule(
            "spec.target.pvc",
            r"!has(self.capacity) || self.capacity.matches('^[1-9][0-9]*(Ki|Mi|Gi|Ti|Pi|k|M|G|T|P)?$')",
            "spec.target.pvc.capacity is a size such as 5Gi",
        ),
        rule(
            "spec.target.pvc",
            "!has(self.accessModes) || self.accessModes.all(m, m in ['ReadWriteOnce', 'ReadWriteMany', 'ReadWriteOncePod'])",
            "spec.target.pvc.accessModes are of ReadWriteOnce, ReadWriteMany and ReadWriteOncePod: a restore writes",
        ),
        rule(
            "spec",
            "self == oldSelf || (has(self.target.populator) && has(oldSelf.target.populator))",
            "spec never changes unless the target is populator: a Restore is one restore. Make a new one",
        ),
    ];

    /// Of a Maintenance.
    pub const MAINTENANCE: &[Rule] = &[
        rule(
            "spec.repository",
            "self == oldSelf",
            "spec.repository never changes: a Maintenance is of one repository. Make a new one",
        ),
        rule(
            "spec.repository",
            "self.kind != 'ClusterRepository' || !has(self.__namespace__)",
            "spec.repository.namespace is not allowed with kind ClusterRepository: remove it",
        ),
        rule(
            "spec.schedule.quick",
            r"self.cron.matches('^\\S+( +\\S+){4}$')",
            "spec.schedule.quick.cron needs five fields: minute hour day month weekday",
        ),
        rule(
            "spec.schedule.full",
            r"self.cron.matches('^\\S+( +\\S+){4}$')",
            "spec.schedule.full.cron needs five fields: minute hour day month weekday",
        ),
        rule(
            "spec.schedule.quick",
            r"!has(self.jitter) || self.jitter.matches('^([0-9]+(s|m|h))+$')",
            "spec.schedule.quick.jitter is a duration such as 90s, 5m or 1h30m, at most 24h",
        ),
        rule(
            "spec.schedule.full",
            r"!has(self.jitter) || self.jitter.matches('^([0-9]+(s|m|h))+$')",
            "spec.schedule.full.jitter is a duration such as 90s, 5m or 1h30m, at most 24h",
        ),
        rule(
            "spec.ownership",
            r"!has(self.owner) || (self.owner.matches('^[A-Za-z0-9._@/:-]+$') && self.owner != 'me')",
            "spec.ownership.owner is a name of letters, digits and . _ @ / : - and not 'me', which Kopia takes for whoever asks",
        ),
    ];

    /// Of a Snapshot.
    pub const SNAPSHOT: &[Rule] = &[rule(
        "spec",
        "!has(self.tags) || (size(self.tags) <= 10 && self.tags.all(k, size(k) > 0 && size(k) <= 63 && !k.contains(':') && !k.contains('=') && !k.startsWith('kopiur') && !k.startsWith('holdfast') && size(self.tags[k]) <= 256))",
        "spec.tags: at most 10, keys of 1 to 63 bytes without ':' or '=' that do not begin with kopiur or holdfast, values of at most 256 bytes",
    )];
}

/// Every definition, in the order of the docs.
///
/// # Panics
/// Never with the tables of this crate: a test walks every path.
#[must_use]
pub fn all() -> Vec<CustomResourceDefinition> {
    let cluster_only = [rules::REPOSITORY, rules::CLUSTER_REPOSITORY].concat();
    let namespaced = [rules::REPOSITORY, rules::NAMESPACED_REPOSITORY].concat();
    let cluster_fields = [unsupported::REPOSITORY, unsupported::CLUSTER_REPOSITORY].concat();
    vec![
        finish(Repository::crd(), unsupported::REPOSITORY, &namespaced),
        finish(ClusterRepository::crd(), &cluster_fields, &cluster_only),
        finish(SnapshotPolicy::crd(), unsupported::POLICY, rules::POLICY),
        finish(SnapshotSchedule::crd(), unsupported::SCHEDULE, rules::SCHEDULE),
        finish(Snapshot::crd(), unsupported::SNAPSHOT, rules::SNAPSHOT),
        finish(Restore::crd(), unsupported::RESTORE, rules::RESTORE),
        finish(Maintenance::crd(), unsupported::MAINTENANCE, rules::MAINTENANCE),
        finish(Artifact::crd(), &[], rules::ARTIFACT),
        finish(BackupStore::crd(), &[], rules::STORE),
    ]
}

/// The platform's kinds, for development and for clusters without the platform. Never installed over its own.
///
/// # Panics
/// Never: a test walks every path.
#[must_use]
pub fn platform() -> Vec<CustomResourceDefinition> {
    vec![
        finish(Plan::crd(), &[], &[]),
        finish(BackupJob::crd(), &[], rules::BACKUP_JOB),
        without_status_subresource(finish(Backup::crd(), &[], &[])),
        finish(BackupClass::crd(), &[], &[]),
        finish(RestoreJob::crd(), &[], &[]),
        strategy(Altinity::crd()),
        strategy(CNPG::crd()),
        strategy(Etcd::crd()),
        strategy(FoundationDB::crd()),
        strategy(Job::crd()),
        strategy(MariaDB::crd()),
        strategy(MongoDB::crd()),
        strategy(Velero::crd()),
    ]
}

/// A Backup's status is stored by a plain create or update, as the platform has it.
fn without_status_subresource(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
    }
    crd
}

/// Of a strategy's spec only the driver knows what belongs there.
fn strategy(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(finish(crd, &[], &[])).expect("a definition is JSON");
    for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    }
    serde_json::from_value(value).expect("still a definition")
}

/// CEL keywords that a field name must be escaped for.
const CEL_RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

fn cel_name(field: &str) -> String {
    if CEL_RESERVED.contains(&field) {
        format!("__{field}__")
    } else {
        field.to_owned()
    }
}

fn finish(
    crd: CustomResourceDefinition,
    refused: &[Unsupported],
    rules: &[Rule],
) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(&crd).expect("a definition is JSON");
    for version in value["spec"]["versions"].as_array_mut().into_iter().flatten() {
        let schema = &mut version["schema"]["openAPIV3Schema"];
        for field in refused {
            if let Some(node) = node(schema, &field.path()) {
                *node = shape(field.shape);
            }
            let rule = json!({ "rule": format!("!has(self.{})", cel_name(field.field)), "message": field.message() });
            push(schema, field.parent, rule);
        }
        for r in rules {
            push(schema, r.at, json!({ "rule": r.rule, "message": r.message }));
        }
        bound_maps(schema);
        drop_unknown_formats(schema);
    }
    serde_json::from_value(value).expect("still a definition")
}

fn shape(shape: Shape) -> Value {
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    match shape {
        Shape::Object => any,
        Shape::Objects => json!({ "type": "array", "items": any }),
        Shape::Strings => json!({ "type": "array", "items": { "type": "string" } }),
        Shape::String => json!({ "type": "string" }),
        Shape::Integer => json!({ "type": "integer" }),
        Shape::Boolean => json!({ "type": "boolean" }),
    }
}

fn push(schema: &mut Value, path: &str, rule: Value) {
    let node = node(schema, path).unwrap_or_else(|| panic!("the schema has no {path}"));
    let list = node
        .as_object_mut()
        .expect("a schema node")
        .entry("x-kubernetes-validations")
        .or_insert_with(|| json!([]));
    list.as_array_mut().expect("a list").push(rule);
}

fn node<'a>(schema: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    let mut node = schema;
    for part in path.split('.') {
        let name = part.trim_end_matches("[]");
        node = node.get_mut("properties")?.get_mut(name)?;
        if part.ends_with("[]") {
            node = node.get_mut("items")?;
        }
    }
    Some(node)
}

/// The API server warns of formats it does not know; the bounds say the same.
fn drop_unknown_formats(node: &mut Value) {
    match node {
        Value::Object(map) => {
            if map
                .get("format")
                .and_then(Value::as_str)
                .is_some_and(|f| f.starts_with("uint"))
            {
                map.remove("format");
            }
            map.values_mut().for_each(drop_unknown_formats);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_unknown_formats),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The API server weighs a CEL rule by the largest object it could meet: string maps get a bound.
fn bound_maps(schema: &mut Value) {
    if let Some(tags) = node(schema, "spec.tags").and_then(Value::as_object_mut) {
        tags.insert("maxProperties".into(), json!(10));
        if let Some(values) = tags
            .get_mut("additionalProperties")
            .and_then(Value::as_object_mut)
        {
            values.insert("maxLength".into(), json!(256));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_definition_stays_under_60_kb() {
        for crd in all() {
            let bytes = serde_json::to_string(&crd).unwrap().len();
            assert!(
                bytes < 60_000,
                "{} has {bytes} bytes",
                crd.metadata.name.unwrap_or_default()
            );
        }
    }

    #[test]
    fn every_refused_field_is_in_the_schema() {
        let tables: [(&str, Vec<Unsupported>); 9] = [
            ("repositories", unsupported::REPOSITORY.to_vec()),
            (
                "clusterrepositories",
                [unsupported::REPOSITORY, unsupported::CLUSTER_REPOSITORY].concat(),
            ),
            ("snapshotpolicies", unsupported::POLICY.to_vec()),
            ("snapshotschedules", unsupported::SCHEDULE.to_vec()),
            ("snapshots", unsupported::SNAPSHOT.to_vec()),
            ("restores", unsupported::RESTORE.to_vec()),
            ("maintenances", unsupported::MAINTENANCE.to_vec()),
            ("artifacts", Vec::new()),
            ("backupstores", Vec::new()),
        ];
        for (crd, (plural, fields)) in all().into_iter().zip(tables) {
            assert_eq!(crd.spec.names.plural, plural);
            let mut value = serde_json::to_value(&crd).unwrap();
            let schema = &mut value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            for f in fields {
                assert!(node(schema, &f.path()).is_some(), "{plural} has no {}", f.path());
            }
        }
    }

    #[test]
    fn every_free_form_field_is_refused() {
        // A field typed NotYet without a row in the table would be accepted and ignored. NotYet's own schema has
        // no type, and the table replaces it: what is left without one has no row.
        fn walk(node: &Value, path: &str) {
            for (name, child) in node["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                let untyped =
                    child["type"].is_null() && child["x-kubernetes-preserve-unknown-fields"] == json!(true);
                assert!(
                    !untyped,
                    "{path} would be ignored silently: give it a row in `unsupported`"
                );
                walk(child, &path);
                walk(&child["items"], &format!("{path}[]"));
            }
        }
        let untyped = serde_json::to_value(SnapshotPolicy::crd()).unwrap();
        let untyped =
            untyped["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].clone();
        assert!(
            untyped["properties"]["hooks"]["type"].is_null(),
            "the walk would find nothing"
        );
        for crd in all() {
            let value = serde_json::to_value(&crd).unwrap();
            walk(&value["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "");
        }
    }
}
