//! The same refusals as in the API server, for objects that got past it (older definitions, a restored etcd).
//!
//! **Promises.** Specs are taken apart without `..`, so a new field does not compile unseen. An empty answer
//! means the operator acts on every field that is set.

use crate::maintenance::{CronSpec, MaintenanceSchedule, MaintenanceSpec, Ownership, TakeoverPolicy};
use crate::mover::{
    FsGroupChange, MoverDefaults, MoverPodSecurity, MoverResources, MoverSecurity, MoverSpec,
};
use crate::policy::{CopyMethod, PolicyDeletion, PolicyIdentity, PolicySource, SnapshotPolicySpec};
use crate::repository::{
    AllowedNamespaces, Backend, Catalog, CatalogRetain, ClusterRepositorySpec, Create, DeletionProtection,
    Encryption, Engine, FilesystemBackend, Health, IdentityDefaults, Mode, OnProbeFailure, Probe,
    ProjectionGrant, RepositorySpec, RepositoryVolume, S3Auth, S3Backend, S3Tls, ScheduleDefaults,
    SlidingWindow,
};
use crate::restore::{
    ClaimRef, FromIdentity, FromPolicy, NewClaim, OnMissingSnapshot, Populator, RestoreOptions,
    RestorePolicy, RestoreSource, RestoreSpec, RestoreTarget, SnapshotRef,
};
use crate::schedule::{ConcurrencyPolicy, ScheduleTimes, SnapshotScheduleSpec};
use crate::shared::{
    AdoptionMode, CascadePolicy, LabelOperator, LabelRequirement, LabelSelector, NamespaceDeletePolicy,
    NotYet, PolicyRef, ProjectionUse, RepositoryKind, RepositoryRef, SecretKeyRef, duration,
};
use crate::snapshot::{FailurePolicy, SnapshotSpec};
use crate::unsupported::{self, Unsupported};
use holdfast_core::identity;
use jiff::SignedDuration;

/// One refusal: begins with the field's path, ends with what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal(pub String);

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Default)]
struct Refusals(Vec<Refusal>);

impl Refusals {
    fn say(&mut self, text: impl Into<String>) {
        self.0.push(Refusal(text.into()));
    }

    /// Refuses a field of the table when it is set.
    fn not_yet(&mut self, table: &[Unsupported], path: &str, value: Option<&NotYet>) {
        if value.is_some() {
            match table.iter().find(|u| u.path() == path) {
                Some(row) => self.say(row.message()),
                None => self.say(format!(
                    "{path} is not supported by this release: remove the field"
                )),
            }
        }
    }
}

/// Refusals of a Repository's spec.
#[must_use]
pub fn repository(spec: &RepositorySpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    repository_into(&mut no, spec);
    if s3_secret_namespace(&spec.backend).is_some() {
        no.say("spec.backend.s3.auth.secretRef.namespace is only for a ClusterRepository: the Secret of a Repository is in its own namespace");
    }
    if spec.encryption.password_secret_ref.namespace.is_some() {
        no.say("spec.encryption.passwordSecretRef.namespace is only for a ClusterRepository: the Secret of a Repository is in its own namespace");
    }
    // In a ClusterRepository it also says which host names are a namespace's.
    if spec.identity_defaults.as_ref().is_some_and(names_no_cluster) {
        no.say("spec.identityDefaults.cluster has no effect: spec.identityDefaults.hostnameExpr says the host name, and neither expression names cluster. Remove it, or name cluster in an expression");
    }
    no.0
}

/// Refusals of a ClusterRepository's spec.
#[must_use]
pub fn cluster_repository(spec: &ClusterRepositorySpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let ClusterRepositorySpec {
        repository,
        allowed_namespaces,
        credential_projection,
    } = spec;
    repository_into(&mut no, repository);
    if let Some(ProjectionGrant { allowed: _ }) = credential_projection {}
    let keys = repository
        .backend
        .s3
        .as_ref()
        .and_then(|s3| s3.auth.secret_ref.as_ref());
    if keys.is_some()
        && s3_secret_namespace(&repository.backend)
            .unwrap_or_default()
            .is_empty()
    {
        no.say("spec.backend.s3.auth.secretRef.namespace is required on a ClusterRepository: name the operator's namespace");
    }
    if repository
        .encryption
        .password_secret_ref
        .namespace
        .as_deref()
        .unwrap_or_default()
        .is_empty()
    {
        no.say("spec.encryption.passwordSecretRef.namespace is required on a ClusterRepository: name the operator's namespace");
    }
    let AllowedNamespaces { list, selector, all } = allowed_namespaces;
    if usize::from(list.is_some()) + usize::from(selector.is_some()) + usize::from(all.is_some()) != 1 {
        no.say("spec.allowedNamespaces needs exactly one of list, selector, all");
    }
    if *all == Some(false) {
        no.say("spec.allowedNamespaces.all: false is refused: use list: [] to allow no namespace");
    }
    if let Some(selector) = selector {
        selector_into(&mut no, "spec.allowedNamespaces.selector", selector);
    }
    no.0
}

fn selector_into(no: &mut Refusals, path: &str, selector: &LabelSelector) {
    let LabelSelector {
        match_labels: _,
        match_expressions,
    } = selector;
    for LabelRequirement {
        key: _,
        operator,
        values,
    } in match_expressions
    {
        let needs = match operator {
            LabelOperator::In | LabelOperator::NotIn => true,
            LabelOperator::Exists | LabelOperator::DoesNotExist => false,
            LabelOperator::Unknown => {
                no.say(format!(
                    "{path}.matchExpressions[].operator has a value of a newer release: update Holdfast"
                ));
                continue;
            }
        };
        if needs == values.is_empty() {
            no.say(format!(
                "{path}.matchExpressions[].values is for operators In and NotIn, which need it"
            ));
        }
    }
}

fn repository_into(no: &mut Refusals, spec: &RepositorySpec) {
    let RepositorySpec {
        engine,
        backend,
        encryption:
            Encryption {
                password_secret_ref:
                    SecretKeyRef {
                        name: _,
                        namespace: _,
                        key: _,
                    },
            },
        create,
        on_namespace_delete,
        deletion_protection,
        mode,
        suspend: _,
        mover_defaults,
        schedule_defaults,
        catalog,
        maintenance,
        identity_defaults,
        server,
        health,
        bootstrap,
        concurrency,
        parameters,
        seed,
    } = spec;
    let table = unsupported::REPOSITORY;
    match engine {
        Engine::Kopia | Engine::Restic => {}
        Engine::Unknown => no.say("spec.engine has a value of a newer release: update Holdfast"),
    }
    match mode {
        Mode::ReadWrite => {}
        Mode::ReadOnly => no.say("spec.mode: ReadOnly is not supported by this release: remove the field"),
        Mode::Unknown => no.say("spec.mode has a value of a newer release: update Holdfast"),
    }
    match on_namespace_delete {
        NamespaceDeletePolicy::Orphan | NamespaceDeletePolicy::Delete => {}
        NamespaceDeletePolicy::Unknown => {
            no.say("spec.onNamespaceDelete has a value of a newer release: update Holdfast");
        }
    }
    backend_into(no, backend);
    let prefix = backend.s3.as_ref().map_or("", |s3| s3.prefix.as_str());
    if *engine == Engine::Kopia && !prefix.is_empty() && !prefix.ends_with('/') {
        no.say(crate::crd::rules::KOPIA_PREFIX);
    }
    if let Some(Create {
        enabled: _,
        encryption,
        splitter,
        hash,
        ecc,
    }) = create
    {
        no.not_yet(table, "spec.create.encryption", encryption.as_ref());
        no.not_yet(table, "spec.create.splitter", splitter.as_ref());
        no.not_yet(table, "spec.create.hash", hash.as_ref());
        no.not_yet(table, "spec.create.ecc", ecc.as_ref());
    }
    if let Some(health) = health {
        health_into(no, health);
    }
    if let Some(DeletionProtection {
        threshold,
        sliding_window,
    }) = deletion_protection
    {
        sliding_window_into(no, *threshold, sliding_window.as_ref());
    }
    if let Some(defaults) = mover_defaults {
        mover_into(no, table, "spec.moverDefaults", defaults);
        let context = defaults.security_context.clone().unwrap_or_default();
        let ids = [context.run_as_user, context.run_as_group];
        if ids.into_iter().flatten().any(|id| id <= 0) {
            no.say(crate::crd::rules::REPOSITORY_IS_NOT_ROOTS);
        }
    }
    if let Some(ScheduleDefaults { timezone: _, jitter }) = schedule_defaults
        && jitter
            .as_deref()
            .is_some_and(|text| duration(text).is_none_or(|d| d > SignedDuration::from_hours(24)))
    {
        no.say("spec.scheduleDefaults.jitter is a duration such as 90s, 5m or 1h30m, at most 24h");
    }
    if let Some(catalog) = catalog {
        catalog_into(no, catalog);
    }
    if let Some(defaults) = identity_defaults {
        identity_defaults_into(no, defaults);
    }
    for (field, value) in [
        ("maintenance", maintenance),
        ("server", server),
        ("bootstrap", bootstrap),
        ("concurrency", concurrency),
        ("parameters", parameters),
        ("seed", seed),
    ] {
        no.not_yet(table, &format!("spec.{field}"), value.as_ref());
    }
}

/// The host name is said by an expression, and what cluster says is in none.
fn names_no_cluster(defaults: &IdentityDefaults) -> bool {
    let IdentityDefaults {
        hostname_expr,
        username_expr,
        cluster,
    } = defaults;
    let mut expressions = [hostname_expr, username_expr].into_iter().flatten();
    cluster.is_some()
        && hostname_expr.is_some()
        && !expressions.any(|text| identity::expression::names(text, "cluster"))
}

fn identity_defaults_into(no: &mut Refusals, defaults: &IdentityDefaults) {
    let IdentityDefaults {
        hostname_expr,
        username_expr,
        cluster,
    } = defaults;
    for (field, expression) in [("hostnameExpr", hostname_expr), ("usernameExpr", username_expr)] {
        let why = expression.as_deref().map(identity::expression::check);
        if let Some(Err(why)) = why {
            no.say(format!("spec.identityDefaults.{field} {why}"));
        }
    }
    if cluster.as_deref().is_some_and(|name| !identity::is_cluster(name)) {
        no.say(crate::crd::rules::CLUSTER);
    }
}

fn health_into(no: &mut Refusals, health: &Health) {
    let Health {
        probe,
        index_blob_warn_threshold,
    } = health;
    no.not_yet(
        unsupported::REPOSITORY,
        "spec.health.indexBlobWarnThreshold",
        index_blob_warn_threshold.as_ref(),
    );
    let Some(Probe {
        enabled: _,
        interval,
        failure_threshold,
        on_failure,
    }) = probe
    else {
        return;
    };
    let interval = interval.as_deref().map(duration);
    if interval.is_some_and(|i| i.is_none_or(|d| d < SignedDuration::from_secs(30))) {
        no.say("spec.health.probe.interval is a duration such as 90s, 5m or 2h, at least 30s");
    }
    if *failure_threshold == Some(0) {
        no.say("spec.health.probe.failureThreshold is at least 1: use onFailure: Alert to be only told");
    }
    match on_failure {
        OnProbeFailure::Degrade | OnProbeFailure::Alert => {}
        OnProbeFailure::Unknown => {
            no.say("spec.health.probe.onFailure has a value of a newer release: update Holdfast");
        }
    }
}

fn sliding_window_into(no: &mut Refusals, threshold: Option<u32>, window: Option<&SlidingWindow>) {
    let Some(SlidingWindow {
        duration: length,
        threshold: own,
    }) = window
    else {
        return;
    };
    if duration(length).is_none_or(|d| d.is_zero() || d > SignedDuration::from_hours(24)) {
        no.say(
            "spec.deletionProtection.slidingWindow.duration is a duration such as 90m or 12h, at most 24h",
        );
    }
    if *own == 0 {
        no.say("spec.deletionProtection.slidingWindow.threshold is at least 1: remove slidingWindow to switch it off");
    }
    if threshold == Some(0) {
        no.say("spec.deletionProtection.slidingWindow has no effect with threshold: 0, which is no breaker: remove one of them");
    }
}

fn catalog_into(no: &mut Refusals, catalog: &Catalog) {
    let Catalog {
        periodic_refresh,
        refresh_interval,
        retain,
        fallback_namespace,
        adoption,
        foreign_snapshots,
    } = catalog;
    let table = unsupported::REPOSITORY;
    for (field, value) in [
        ("fallbackNamespace", fallback_namespace),
        ("foreignSnapshots", foreign_snapshots),
    ] {
        no.not_yet(table, &format!("spec.catalog.{field}"), value.as_ref());
    }
    adoption_into(no, "spec.catalog.adoption", *adoption);
    if let Some(every) = refresh_interval {
        if duration(every).is_none_or(|d| d < Catalog::SHORTEST) {
            no.say(crate::crd::rules::REFRESH_INTERVAL);
        }
        if !periodic_refresh {
            no.say(crate::crd::rules::REFRESH_UNUSED);
        }
    }
    if let Some(CatalogRetain {
        per_identity: _,
        max_age_days,
    }) = retain
        && *max_age_days == Some(0)
    {
        no.say("spec.catalog.retain.maxAgeDays is at least 1: set perIdentity: 0 to show none");
    }
}

fn adoption_into(no: &mut Refusals, at: &str, mode: Option<AdoptionMode>) {
    match mode {
        None | Some(AdoptionMode::Adopt | AdoptionMode::Ignore) => {}
        Some(AdoptionMode::Unknown) => {
            no.say(format!("{at} has a value of a newer release: update Holdfast"))
        }
    }
}

fn backend_into(no: &mut Refusals, backend: &Backend) {
    let Backend {
        filesystem,
        s3,
        azure,
        gcs,
        b2,
        sftp,
        web_dav,
        rclone,
        gdrive,
    } = backend;
    let table = unsupported::REPOSITORY;
    for (field, value) in [
        ("azure", azure),
        ("gcs", gcs),
        ("b2", b2),
        ("sftp", sftp),
        ("webDav", web_dav),
        ("rclone", rclone),
        ("gdrive", gdrive),
    ] {
        no.not_yet(table, &format!("spec.backend.{field}"), value.as_ref());
    }
    match (filesystem, s3) {
        (Some(filesystem), None) => filesystem_into(no, filesystem),
        (None, Some(s3)) => s3_into(no, s3),
        (None, None) | (Some(_), Some(_)) => {
            no.say("spec.backend needs exactly one key: set spec.backend.filesystem or spec.backend.s3");
        }
    }
}

fn filesystem_into(no: &mut Refusals, backend: &FilesystemBackend) {
    let FilesystemBackend {
        path,
        volume: RepositoryVolume { pvc, nfs },
    } = backend;
    if pvc.is_some() == nfs.is_some() {
        no.say("spec.backend.filesystem.volume needs exactly one key: set volume.pvc.name or volume.nfs");
    }
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        no.say("spec.backend.filesystem.path must be absolute and without '..'");
    }
}

fn s3_secret_namespace(backend: &Backend) -> Option<&str> {
    backend
        .s3
        .as_ref()?
        .auth
        .secret_ref
        .as_ref()?
        .namespace
        .as_deref()
}

fn s3_into(no: &mut Refusals, backend: &S3Backend) {
    let S3Backend {
        bucket: _,
        prefix,
        endpoint,
        region: _,
        tls,
        auth: S3Auth {
            secret_ref,
            workload_identity,
        },
    } = backend;
    no.not_yet(
        unsupported::REPOSITORY,
        "spec.backend.s3.auth.workloadIdentity",
        workload_identity.as_ref(),
    );
    if secret_ref.is_none() && workload_identity.is_none() {
        no.say("spec.backend.s3.auth.secretRef is required: name the Secret with the keys");
    }
    if endpoint.as_ref().is_some_and(|endpoint| endpoint.contains('/')) {
        no.say("spec.backend.s3.endpoint is host or host:port, without a scheme and without a path");
    }
    let crooked = prefix.split('/').any(|part| part == "." || part == "..");
    if prefix.starts_with('/') || prefix.contains("//") || crooked {
        no.say("spec.backend.s3.prefix does not begin with '/' and has no part that is empty, '.' or '..'");
    }
    if let Some(S3Tls {
        disable_tls,
        insecure_skip_verify,
        ca_bundle_ref,
    }) = tls
        && u8::from(*disable_tls) + u8::from(*insecure_skip_verify) + u8::from(ca_bundle_ref.is_some()) > 1
    {
        no.say("spec.backend.s3.tls takes one of disableTls, insecureSkipVerify and caBundleRef: beside each the others have no effect");
    }
}

/// Refusals of a SnapshotPolicy's spec.
#[must_use]
pub fn policy(spec: &SnapshotPolicySpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let SnapshotPolicySpec {
        repository,
        sources,
        copy_method,
        retention,
        default_deletion_policy: _,
        deletion,
        suspend: _,
        repositories,
        identity: own_identity,
        volume_snapshot_class_name,
        staging,
        group_by,
        adoption,
        compression,
        files,
        error_handling,
        upload,
        verification,
        preflight,
        hooks,
        mover,
        credential_projection,
        extra_args,
    } = spec;
    let table = unsupported::POLICY;
    match repository {
        None => no.say("spec.repository is required: name the repository"),
        Some(RepositoryRef {
            kind,
            name: _,
            namespace,
        }) => match kind {
            RepositoryKind::Repository => {}
            RepositoryKind::ClusterRepository => {
                if namespace.is_some() {
                    no.say("spec.repository.namespace is not allowed with kind ClusterRepository: remove it");
                }
            }
            RepositoryKind::Unknown => {
                no.say("spec.repository.kind has a value of a newer release: update Holdfast")
            }
        },
    }
    if sources.len() != 1 {
        no.say("spec.sources: more than one source is not supported by this release: make a policy for each");
    }
    for source in sources {
        source_into(&mut no, source);
    }
    match copy_method {
        CopyMethod::Direct => {}
        CopyMethod::Snapshot | CopyMethod::Clone => {
            no.say("spec.copyMethod: Snapshot and Clone are not supported by this release: use Direct");
        }
        CopyMethod::Unknown => no.say("spec.copyMethod has a value of a newer release: update Holdfast"),
    }
    adoption_into(&mut no, "spec.adoption", *adoption);
    if let Some(PolicyDeletion { on_policy_delete }) = deletion {
        match on_policy_delete {
            CascadePolicy::Retain | CascadePolicy::Delete => {}
            CascadePolicy::Unknown => {
                no.say("spec.deletion.onPolicyDelete has a value of a newer release: update Holdfast");
            }
        }
    }
    if let Some(retention) = retention {
        let mut counts = retention
            .counts()
            .into_iter()
            .filter_map(|(_, count)| count)
            .peekable();
        if counts.peek().is_some() && counts.all(|count| count == 0) {
            no.say("spec.retention keeps nothing: set one of its counts to 1 or more, or remove retention to keep everything");
        }
    }
    if let Some(mover) = mover {
        mover_spec_into(&mut no, table, mover);
    }
    let shared = repository
        .as_ref()
        .is_some_and(|reference| reference.kind == RepositoryKind::ClusterRepository);
    if let Some(ProjectionUse { enabled: true }) = credential_projection
        && !shared
    {
        no.say(crate::crd::rules::PROJECTION);
    }
    if let Some(PolicyIdentity { username, hostname }) = own_identity {
        for (name, sentence) in [
            (username, crate::crd::rules::USERNAME),
            (hostname, crate::crd::rules::HOSTNAME),
        ] {
            if name
                .as_deref()
                .is_some_and(|name| identity::check_name(name).is_err())
            {
                no.say(sentence);
            }
        }
    }
    for (field, value) in [
        ("repositories", repositories),
        ("volumeSnapshotClassName", volume_snapshot_class_name),
        ("staging", staging),
        ("groupBy", group_by),
        ("compression", compression),
        ("files", files),
        ("errorHandling", error_handling),
        ("upload", upload),
        ("verification", verification),
        ("preflight", preflight),
        ("hooks", hooks),
        ("extraArgs", extra_args),
    ] {
        no.not_yet(table, &format!("spec.{field}"), value.as_ref());
    }
    no.0
}

/// The settings of the movers of a policy or of a restore.
fn mover_spec_into(no: &mut Refusals, table: &[Unsupported], mover: &MoverSpec) {
    let MoverSpec {
        own,
        privileged_mode: _,
        inherit_security_context_from,
    } = mover;
    no.not_yet(
        table,
        "spec.mover.inheritSecurityContextFrom",
        inherit_security_context_from.as_ref(),
    );
    mover_into(no, table, "spec.mover", own);
    let context = own.security_context.clone().unwrap_or_default();
    let ids = [context.run_as_user, context.run_as_group];
    let least = if mover.asks_for_privileges() { 0 } else { 1 };
    if ids.into_iter().flatten().any(|id| id < least) {
        no.say(crate::crd::rules::ROOT_IS_ASKED_FOR);
    }
}

/// The settings of movers at this place.
fn mover_into(no: &mut Refusals, table: &[Unsupported], at: &str, settings: &MoverDefaults) {
    let MoverDefaults {
        security_context,
        pod_security_context,
        resources,
        node_selector: _,
        tolerations: _,
        cache,
        scratch,
        affinity,
        source_colocation,
        ttl_seconds_after_finished,
        throttle,
        pod_labels,
        pod_annotations,
    } = settings;
    for (field, value) in [
        ("cache", cache),
        ("scratch", scratch),
        ("affinity", affinity),
        ("sourceColocation", source_colocation),
        ("ttlSecondsAfterFinished", ttl_seconds_after_finished),
        ("throttle", throttle),
        ("podLabels", pod_labels),
        ("podAnnotations", pod_annotations),
    ] {
        no.not_yet(table, &format!("{at}.{field}"), value.as_ref());
    }
    if let Some(context) = security_context {
        mover_security_into(no, table, &format!("{at}.securityContext"), context);
    }
    if let Some(context) = pod_security_context {
        mover_pod_security_into(no, table, &format!("{at}.podSecurityContext"), context);
    }
    if let Some(MoverResources {
        limits: _,
        requests: _,
        claims,
    }) = resources
    {
        no.not_yet(table, &format!("{at}.resources.claims"), claims.as_ref());
    }
}

fn mover_security_into(no: &mut Refusals, table: &[Unsupported], at: &str, context: &MoverSecurity) {
    let MoverSecurity {
        run_as_user: _,
        run_as_group: _,
        allow_privilege_escalation,
        app_armor_profile,
        capabilities,
        privileged,
        proc_mount,
        read_only_root_filesystem,
        run_as_non_root,
        se_linux_options,
        seccomp_profile,
        windows_options,
    } = context;
    for (field, value) in [
        ("allowPrivilegeEscalation", allow_privilege_escalation),
        ("appArmorProfile", app_armor_profile),
        ("capabilities", capabilities),
        ("privileged", privileged),
        ("procMount", proc_mount),
        ("readOnlyRootFilesystem", read_only_root_filesystem),
        ("runAsNonRoot", run_as_non_root),
        ("seLinuxOptions", se_linux_options),
        ("seccompProfile", seccomp_profile),
        ("windowsOptions", windows_options),
    ] {
        no.not_yet(table, &format!("{at}.{field}"), value.as_ref());
    }
}

fn mover_pod_security_into(no: &mut Refusals, table: &[Unsupported], at: &str, context: &MoverPodSecurity) {
    let MoverPodSecurity {
        fs_group,
        fs_group_change_policy,
        supplemental_groups,
        app_armor_profile,
        run_as_group,
        run_as_non_root,
        run_as_user,
        se_linux_change_policy,
        se_linux_options,
        seccomp_profile,
        supplemental_groups_policy,
        sysctls,
        windows_options,
    } = context;
    for (field, value) in [
        ("appArmorProfile", app_armor_profile),
        ("runAsGroup", run_as_group),
        ("runAsNonRoot", run_as_non_root),
        ("runAsUser", run_as_user),
        ("seLinuxChangePolicy", se_linux_change_policy),
        ("seLinuxOptions", se_linux_options),
        ("seccompProfile", seccomp_profile),
        ("supplementalGroupsPolicy", supplemental_groups_policy),
        ("sysctls", sysctls),
        ("windowsOptions", windows_options),
    ] {
        no.not_yet(table, &format!("{at}.{field}"), value.as_ref());
    }
    match fs_group_change_policy {
        None | Some(FsGroupChange::OnRootMismatch | FsGroupChange::Always) => {}
        Some(FsGroupChange::Unknown) => no.say(format!(
            "{at}.fsGroupChangePolicy has a value of a newer release: update Holdfast"
        )),
    }
    let groups = supplemental_groups.iter().flatten().chain(fs_group);
    if groups.into_iter().any(|group| *group <= 0) {
        no.say(format!(
            "{at}: fsGroup and supplementalGroups are above 0, no mover is of root's group by them"
        ));
    }
}

fn source_into(no: &mut Refusals, source: &PolicySource) {
    let PolicySource {
        pvc,
        pvc_selector,
        nfs,
        stream,
        source_path_override,
        source_path_strategy,
        read_only,
        acknowledge_live_mutation,
    } = source;
    for (field, value) in [
        ("pvcSelector", pvc_selector),
        ("nfs", nfs),
        ("stream", stream),
        ("sourcePathOverride", source_path_override),
        ("sourcePathStrategy", source_path_strategy),
        ("acknowledgeLiveMutation", acknowledge_live_mutation),
    ] {
        no.not_yet(
            unsupported::POLICY,
            &format!("spec.sources[].{field}"),
            value.as_ref(),
        );
    }
    if pvc.is_none() {
        no.say("spec.sources[].pvc is required: name a claim of this namespace");
    }
    if !read_only {
        no.say(
            "spec.sources[].readOnly: false is not supported by this release: sources are mounted read-only",
        );
    }
}

/// Refusals of a SnapshotSchedule's spec that need no clock (the cron dialect is `core`'s).
#[must_use]
pub fn schedule(spec: &SnapshotScheduleSpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let SnapshotScheduleSpec {
        policy_ref,
        policy_selector,
        schedule,
        failed_jobs_history_limit: _,
        deletion: _,
    } = spec;
    let ScheduleTimes {
        cron: _,
        jitter: _,
        timezone: _,
        run_on_create: _,
        suspend: _,
        concurrency_policy,
        starting_deadline_seconds,
    } = schedule;
    let table = unsupported::SCHEDULE;
    if policy_ref.is_some() == policy_selector.is_some() {
        no.say("spec needs exactly one of policyRef and policySelector");
    }
    if let Some(PolicyRef { name: _, namespace }) = policy_ref {
        no.not_yet(table, "spec.policyRef.namespace", namespace.as_ref());
    }
    if let Some(selector) = policy_selector {
        selector_into(&mut no, "spec.policySelector", selector);
    }
    match concurrency_policy {
        ConcurrencyPolicy::Forbid | ConcurrencyPolicy::Allow | ConcurrencyPolicy::Replace => {}
        ConcurrencyPolicy::Unknown => {
            no.say("spec.schedule.concurrencyPolicy has a value of a newer release: update Holdfast");
        }
    }
    if starting_deadline_seconds.is_some_and(|s| s < 0) {
        no.say("spec.schedule.startingDeadlineSeconds must not be negative");
    }
    no.0
}

/// Refusals of a Snapshot's spec.
#[must_use]
pub fn snapshot(spec: &SnapshotSpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let SnapshotSpec {
        policy_ref,
        tags,
        failure_policy,
        deletion_policy: _,
        on_schedule_delete: _,
        pin: _,
        description,
        repository,
    } = spec;
    let table = unsupported::SNAPSHOT;
    no.not_yet(table, "spec.description", description.as_ref());
    no.not_yet(table, "spec.repository", repository.as_ref());
    if let Some(PolicyRef { name: _, namespace }) = policy_ref {
        no.not_yet(table, "spec.policyRef.namespace", namespace.as_ref());
    }
    failure_policy_into(&mut no, table, failure_policy.as_ref());
    let bad_key = |k: &String| {
        k.is_empty()
            || k.len() > 63
            || k.contains([':', '='])
            || k.starts_with("kopiur")
            || k.starts_with("holdfast")
    };
    if tags.len() > 10 || tags.iter().any(|(k, v)| bad_key(k) || v.len() > 256) {
        no.say("spec.tags: at most 10, keys of 1 to 63 bytes without ':' or '=' that do not begin with kopiur or holdfast, values of at most 256 bytes");
    }
    no.0
}

/// Refusals of a Restore's spec.
#[must_use]
pub fn restore(spec: &RestoreSpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let RestoreSpec {
        source,
        target,
        repository,
        options,
        policy,
        failure_policy,
        mover,
        credential_projection,
    } = spec;
    let table = unsupported::RESTORE;
    if let Some(ProjectionUse { enabled: _ }) = credential_projection {}
    if let Some(mover) = mover {
        mover_spec_into(&mut no, table, mover);
    }
    restore_source_into(&mut no, source, repository.as_ref());
    restore_target_into(&mut no, target);
    if let Some(options) = options {
        restore_options_into(&mut no, options);
    }
    if let Some(RestorePolicy {
        on_missing_snapshot,
        wait_timeout,
    }) = policy
    {
        match on_missing_snapshot {
            None | Some(OnMissingSnapshot::Fail | OnMissingSnapshot::Continue) => {}
            Some(OnMissingSnapshot::Unknown) => {
                no.say("spec.policy.onMissingSnapshot has a value of a newer release: update Holdfast");
            }
        }
        if wait_timeout.as_deref().is_some_and(|t| duration(t).is_none()) {
            no.say("spec.policy.waitTimeout is a duration such as 90s, 5m or 1h30m");
        }
    }
    failure_policy_into(&mut no, table, failure_policy.as_ref());
    no.0
}

fn failure_policy_into(no: &mut Refusals, table: &[Unsupported], policy: Option<&FailurePolicy>) {
    let Some(FailurePolicy {
        backoff_limit: _,
        active_deadline_seconds: _,
        pod_startup_deadline_seconds,
    }) = policy
    else {
        return;
    };
    let path = "spec.failurePolicy.podStartupDeadlineSeconds";
    no.not_yet(table, path, pod_startup_deadline_seconds.as_ref());
}

fn restore_source_into(no: &mut Refusals, source: &RestoreSource, repository: Option<&RepositoryRef>) {
    let table = unsupported::RESTORE;
    let RestoreSource {
        snapshot_ref,
        from_policy,
        identity,
    } = source;
    let set = [snapshot_ref.is_some(), from_policy.is_some(), identity.is_some()];
    if set.into_iter().filter(|is| *is).count() != 1 {
        no.say("spec.source needs exactly one of snapshotRef, fromPolicy, identity");
    }
    if let Some(SnapshotRef { name: _, namespace }) = snapshot_ref {
        no.not_yet(table, "spec.source.snapshotRef.namespace", namespace.as_ref());
        if repository.is_some() {
            no.say("spec.repository is not used with source.snapshotRef, whose Snapshot names it: remove it");
        }
    }
    if let Some(FromPolicy {
        name: _,
        offset: _,
        as_of: _,
        namespace,
    }) = from_policy
    {
        no.not_yet(table, "spec.source.fromPolicy.namespace", namespace.as_ref());
    }
    if let Some(FromIdentity {
        username: _,
        hostname: _,
        source_path: _,
        snapshot_id,
        as_of,
        offset,
    }) = identity
    {
        if repository.is_none() {
            no.say("spec.repository is required with source.identity: name the repository");
        }
        if snapshot_id.is_some() && (as_of.is_some() || *offset != 0) {
            no.say("spec.source.identity.snapshotID names one snapshot: remove asOf and offset");
        }
    }
    if let Some(RepositoryRef {
        kind,
        name: _,
        namespace,
    }) = repository
    {
        match kind {
            RepositoryKind::Repository => {}
            RepositoryKind::ClusterRepository => {
                if namespace.is_some() {
                    no.say("spec.repository.namespace is not allowed with kind ClusterRepository: remove it");
                }
            }
            RepositoryKind::Unknown => {
                no.say("spec.repository.kind has a value of a newer release: update Holdfast");
            }
        }
    }
}

/// Access modes that a restore can write through.
const WRITABLE: [&str; 3] = ["ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"];

fn restore_target_into(no: &mut Refusals, target: &RestoreTarget) {
    let table = unsupported::RESTORE;
    let RestoreTarget {
        pvc,
        pvc_ref,
        populator,
        stream,
    } = target;
    no.not_yet(table, "spec.target.stream", stream.as_ref());
    let set = [pvc.is_some(), pvc_ref.is_some(), populator.is_some()];
    if set.into_iter().filter(|is| *is).count() != 1 {
        no.say("spec.target needs exactly one of pvc, pvcRef, populator");
    }
    if let Some(NewClaim {
        name: _,
        storage_class_name: _,
        capacity,
        access_modes,
    }) = pvc
    {
        if capacity.as_deref().is_some_and(|c| !is_size(c)) {
            no.say("spec.target.pvc.capacity is a size such as 5Gi");
        }
        if access_modes.iter().any(|m| !WRITABLE.contains(&m.as_str())) {
            no.say("spec.target.pvc.accessModes are of ReadWriteOnce, ReadWriteMany and ReadWriteOncePod: a restore writes");
        }
    }
    if let Some(ClaimRef { name: _, namespace }) = pvc_ref {
        no.not_yet(table, "spec.target.pvcRef.namespace", namespace.as_ref());
    }
    if let Some(Populator {}) = populator {}
}

/// A whole number above zero with a suffix that Kubernetes knows, or none.
fn is_size(text: &str) -> bool {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[digits.len()..];
    let known = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "k", "M", "G", "T", "P"];
    known.contains(&suffix)
        && !digits.is_empty()
        && !digits.starts_with('0')
        && digits.bytes().all(|b| b.is_ascii_digit())
}

fn restore_options_into(no: &mut Refusals, options: &RestoreOptions) {
    let RestoreOptions {
        enable_file_deletion,
        overwrite_files,
        skip_existing,
        ignore_permission_errors: _,
        skip_owners: _,
        write_sparse_files,
        write_files_atomically,
        parallel,
        skip_permissions,
        skip_times,
        overwrite_directories,
        overwrite_symlinks,
        ignore_errors,
    } = options;
    for (field, value) in [
        ("writeFilesAtomically", write_files_atomically),
        ("parallel", parallel),
        ("skipPermissions", skip_permissions),
        ("skipTimes", skip_times),
        ("overwriteDirectories", overwrite_directories),
        ("overwriteSymlinks", overwrite_symlinks),
        ("ignoreErrors", ignore_errors),
    ] {
        no.not_yet(
            unsupported::RESTORE,
            &format!("spec.options.{field}"),
            value.as_ref(),
        );
    }
    let overwrites = *overwrite_files == Some(true);
    if *skip_existing == Some(true) && (overwrites || *enable_file_deletion) {
        no.say("spec.options.skipExisting keeps what is there: remove it, or overwriteFiles and enableFileDeletion");
    }
    if *write_sparse_files == Some(true)
        && (overwrites || *skip_existing == Some(true) || *enable_file_deletion)
    {
        no.say("spec.options.writeSparseFiles needs an empty target: remove it, or overwriteFiles, skipExisting and enableFileDeletion");
    }
}

/// Refusals of a Maintenance's spec.
#[must_use]
pub fn maintenance(spec: &MaintenanceSpec) -> Vec<Refusal> {
    let mut no = Refusals::default();
    let MaintenanceSpec {
        repository: RepositoryRef {
            kind,
            name: _,
            namespace,
        },
        schedule,
        ownership,
        failure_policy,
        mover,
        credential_projection,
    } = spec;
    let table = unsupported::MAINTENANCE;
    no.not_yet(table, "spec.mover", mover.as_ref());
    no.not_yet(table, "spec.credentialProjection", credential_projection.as_ref());
    match kind {
        RepositoryKind::Repository => {}
        RepositoryKind::ClusterRepository => {
            if namespace.is_some() {
                no.say("spec.repository.namespace is not allowed with kind ClusterRepository: remove it");
            }
        }
        RepositoryKind::Unknown => {
            no.say("spec.repository.kind has a value of a newer release: update Holdfast");
        }
    }
    if let Some(MaintenanceSchedule {
        quick,
        full,
        timezone: _,
    }) = schedule
    {
        for (name, times) in [("quick", quick), ("full", full)] {
            if let Some(CronSpec { cron, jitter }) = times {
                if cron.split_whitespace().count() != 5 {
                    no.say(format!(
                        "spec.schedule.{name}.cron needs five fields: minute hour day month weekday"
                    ));
                }
                let jitter = jitter.as_deref().map(duration);
                if jitter.is_some_and(|j| j.is_none_or(|d| d > SignedDuration::from_hours(24))) {
                    no.say(format!(
                        "spec.schedule.{name}.jitter is a duration such as 90s, 5m or 1h30m, at most 24h"
                    ));
                }
            }
        }
    }
    if let Some(Ownership {
        owner,
        takeover_policy,
    }) = ownership
    {
        match takeover_policy {
            TakeoverPolicy::Never | TakeoverPolicy::PromptCondition | TakeoverPolicy::Force => {}
            TakeoverPolicy::Unknown => {
                no.say("spec.ownership.takeoverPolicy has a value of a newer release: update Holdfast");
            }
        }
        let of_a_name = |c: char| c.is_ascii_alphanumeric() || "._@/:-".contains(c);
        if owner
            .as_ref()
            .is_some_and(|name| name.is_empty() || name == "me" || !name.chars().all(of_a_name))
        {
            no.say("spec.ownership.owner is a name of letters, digits and . _ @ / : - and not 'me', which Kopia takes for whoever asks");
        }
    }
    failure_policy_into(&mut no, table, failure_policy.as_ref());
    no.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Sets `path` in a valid object and returns what the validator says.
    fn with(base: &Value, path: &str, value: Value) -> Value {
        let mut object = base.clone();
        let mut node = &mut object;
        for part in path.split('.').skip(1) {
            let (name, item) = (part.trim_end_matches("[]"), part.ends_with("[]"));
            if node.get(name).is_none() || node[name].is_null() {
                node[name] = json!({});
            }
            node = &mut node[name];
            if item {
                node = &mut node[0];
            }
        }
        *node = value;
        object
    }

    #[test]
    fn identities_and_copies_of_credentials_are_judged_by_their_words() {
        let said = |spec: Value| -> Vec<String> {
            let spec: SnapshotPolicySpec = serde_json::from_value(spec).expect("decodes");
            policy(&spec).into_iter().map(|refusal| refusal.0).collect()
        };
        let base = json!({
            "repository": { "kind": "ClusterRepository", "name": "r" }, "sources": [{ "pvc": { "name": "c" } }],
            "credentialProjection": { "enabled": true }, "identity": { "username": "Ops Team", "hostname": "shop.lab" },
        });
        assert_eq!(said(base.clone()), Vec::<String>::new());
        for (path, value, sentence) in [
            (
                "spec.identity.username",
                json!("a@b"),
                crate::crd::rules::USERNAME,
            ),
            (
                "spec.identity.hostname",
                json!("a\tb"),
                crate::crd::rules::HOSTNAME,
            ),
            (
                "spec.repository.kind",
                json!("Repository"),
                crate::crd::rules::PROJECTION,
            ),
        ] {
            assert_eq!(said(with(&base, path, value)), [sentence]);
        }
        let repository = |defaults: Value| -> Vec<String> {
            let spec = json!({
                "backend": { "filesystem": { "volume": { "pvc": { "name": "c" } } } },
                "encryption": { "passwordSecretRef": { "name": "s" } }, "identityDefaults": defaults,
            });
            let spec: RepositorySpec = serde_json::from_value(spec).expect("decodes");
            super::repository(&spec)
                .into_iter()
                .map(|refusal| refusal.0)
                .collect()
        };
        let good = json!({ "usernameExpr": "namespace + '-' + policyName", "hostnameExpr": "namespace" });
        assert_eq!(repository(good), Vec::<String>::new());
        // Where it does nothing it is refused: a host name is said by an expression, and none names it.
        for (username, hostname, does) in [
            (None, None, true),
            (Some("policyName"), None, true),
            (None, Some("namespace + '.' + cluster"), true),
            (Some("policyName + cluster"), Some("namespace"), true),
            (None, Some("namespace"), false),
            (Some("labels.cluster"), Some("'cluster'"), false),
        ] {
            let defaults = json!({ "usernameExpr": username, "hostnameExpr": hostname, "cluster": "lab" });
            let said = repository(defaults.clone());
            let refused = said
                .iter()
                .any(|no| no.starts_with("spec.identityDefaults.cluster has no effect"));
            assert_eq!(
                (said.len(), refused),
                if does { (0, false) } else { (1, true) },
                "{said:?}"
            );
            let cluster: ClusterRepositorySpec = serde_json::from_value(json!({
                "backend": { "filesystem": { "volume": { "pvc": { "name": "c" } } } },
                "encryption": { "passwordSecretRef": { "name": "s", "namespace": "n" } },
                "identityDefaults": defaults, "allowedNamespaces": { "list": ["a"] },
            }))
            .expect("decodes");
            assert_eq!(
                super::cluster_repository(&cluster),
                [],
                "there it says which host names are a namespace's"
            );
        }
        assert_eq!(
            repository(json!({ "cluster": "Lab.one" })),
            [crate::crd::rules::CLUSTER]
        );
        let bad = repository(json!({ "usernameExpr": "namespace +", "hostnameExpr": "host" }));
        assert!(
            bad[0].starts_with("spec.identityDefaults.hostnameExpr names host"),
            "{bad:?}"
        );
        assert!(
            bad[1].starts_with("spec.identityDefaults.usernameExpr is not CEL"),
            "{bad:?}"
        );
    }

    fn check<T: serde::de::DeserializeOwned>(
        base: &Value,
        table: &[Unsupported],
        validate: impl Fn(&T) -> Vec<Refusal>,
    ) {
        let good: T = serde_json::from_value(base.clone()).expect("valid");
        assert_eq!(validate(&good), vec![], "the base object must be accepted");
        for row in table {
            let mut base = base.clone();
            if row.parent.starts_with("spec.backend.s3") {
                base["backend"] = json!({ "s3": { "bucket": "b", "auth": {} } });
            }
            let bad: T = serde_json::from_value(with(&base, &row.path(), json!({"x": 1}))).expect("decodes");
            assert_eq!(validate(&bad), vec![Refusal(row.message())], "{}", row.path());
        }
    }

    #[test]
    fn every_row_of_the_table_is_refused_by_its_name() {
        let repo = json!({
            "engine": "Restic",
            "backend": {"filesystem": {"path": "/", "volume": {"pvc": {"name": "repo"}}}},
            "encryption": {"passwordSecretRef": {"name": "s"}},
        });
        check(&repo, unsupported::REPOSITORY, repository);
        let mut cluster = repo;
        cluster["encryption"]["passwordSecretRef"]["namespace"] = json!("holdfast-system");
        cluster["allowedNamespaces"] = json!({"selector": {"matchLabels": {"a": "b"}}});
        check(&cluster, unsupported::REPOSITORY, cluster_repository);
        check(&cluster, unsupported::CLUSTER_REPOSITORY, cluster_repository);
        let p = json!({"repository": {"name": "r"}, "sources": [{"pvc": {"name": "data"}}]});
        check(&p, unsupported::POLICY, policy);
        let s = json!({"policyRef": {"name": "p"}, "schedule": {"cron": "0 * * * *"}});
        check(&s, unsupported::SCHEDULE, schedule);
        check(
            &json!({"policyRef": {"name": "p"}}),
            unsupported::SNAPSHOT,
            snapshot,
        );
        let m = json!({ "repository": { "name": "r" } });
        check(&m, unsupported::MAINTENANCE, maintenance);
        for (base, other) in [
            (restore_from("snapshotRef", "pvcRef"), ["fromPolicy", "pvcRef"]),
            (restore_from("fromPolicy", "pvcRef"), ["snapshotRef", "pvcRef"]),
            (restore_from("identity", "populator"), ["Ref", "fromPolicy"]),
        ] {
            let rows = unsupported::RESTORE.iter().copied();
            let rows = rows.filter(|row| {
                let in_other = other.iter().any(|o| row.parent.contains(o));
                !in_other || row.parent == "spec.target.pvcRef" && base["target"]["pvcRef"].is_object()
            });
            let rows: Vec<Unsupported> = rows.collect();
            check(&base, &rows, restore);
        }
    }

    /// A Restore that is accepted.
    fn restore_from(source: &str, target: &str) -> Value {
        let mut spec = match source {
            "snapshotRef" => json!({ "source": { "snapshotRef": { "name": "s" } } }),
            "fromPolicy" => json!({ "source": { "fromPolicy": { "name": "p" } } }),
            _ => json!({
                "source": { "identity": { "username": "p", "hostname": "n" } },
                "repository": { "name": "r" },
            }),
        };
        spec["target"] = match target {
            "pvc" => json!({ "pvc": { "name": "c" } }),
            "pvcRef" => json!({ "pvcRef": { "name": "c" } }),
            _ => json!({ "populator": {} }),
        };
        spec
    }

    #[test]
    fn a_restore_has_one_source_and_one_target() {
        let said = |spec: &Value| -> Vec<String> {
            let spec: RestoreSpec = serde_json::from_value(spec.clone()).expect("decodes");
            restore(&spec).into_iter().map(|r| r.0).collect()
        };
        for source in ["snapshotRef", "fromPolicy", "identity"] {
            for target in ["pvc", "pvcRef", "populator"] {
                assert_eq!(said(&restore_from(source, target)), [""; 0], "{source} {target}");
            }
        }
        let base = restore_from("identity", "pvc");
        for (path, value, word) in [
            ("spec.source", json!({}), "spec.source needs exactly one"),
            (
                "spec.source.fromPolicy",
                json!({ "name": "p" }),
                "spec.source needs exactly one",
            ),
            ("spec.target", json!({}), "spec.target needs exactly one"),
            (
                "spec.target.populator",
                json!({}),
                "spec.target needs exactly one",
            ),
            ("spec.repository", Value::Null, "spec.repository is required"),
            ("spec.repository.kind", json!("Other"), "newer release"),
            (
                "spec.repository",
                json!({ "kind": "ClusterRepository", "name": "r", "namespace": "n" }),
                "spec.repository.namespace is not allowed",
            ),
            (
                "spec.source.identity",
                json!({ "username": "p", "hostname": "n", "snapshotID": "x", "offset": 1 }),
                "snapshotID names one snapshot",
            ),
            (
                "spec.policy",
                json!({ "waitTimeout": "5" }),
                "spec.policy.waitTimeout",
            ),
            (
                "spec.policy",
                json!({ "onMissingSnapshot": "Ask" }),
                "newer release",
            ),
            ("spec.target.pvc.capacity", json!("0"), "capacity is a size"),
            ("spec.target.pvc.capacity", json!("5 Gi"), "capacity is a size"),
            (
                "spec.target.pvc.accessModes",
                json!(["ReadOnlyMany"]),
                "accessModes",
            ),
            (
                "spec.options",
                json!({ "overwriteFiles": true, "skipExisting": true }),
                "skipExisting keeps what is there",
            ),
            (
                "spec.options",
                json!({ "enableFileDeletion": true, "skipExisting": true }),
                "skipExisting keeps what is there",
            ),
            (
                "spec.options",
                json!({ "writeSparseFiles": true, "enableFileDeletion": true }),
                "writeSparseFiles needs an empty target",
            ),
            (
                "spec.options",
                json!({ "writeSparseFiles": true, "skipExisting": true }),
                "writeSparseFiles needs an empty target",
            ),
        ] {
            let found = said(&with(&base, path, value));
            assert!(found.iter().any(|said| said.contains(word)), "{path}: {found:?}");
        }
        let with_repository = with(
            &restore_from("snapshotRef", "pvc"),
            "spec.repository",
            json!({ "name": "r" }),
        );
        assert!(said(&with_repository)[0].contains("whose Snapshot names it"));
    }

    #[test]
    fn movers_are_root_only_where_it_is_asked_for() {
        let said = |mover: Value| {
            let spec = json!({
                "repository": {"name": "r"}, "sources": [{"pvc": {"name": "data"}}], "mover": mover,
            });
            policy(&serde_json::from_value(spec).expect("decodes"))
        };
        let good = json!({
            "securityContext": { "runAsUser": 1000, "runAsGroup": 1000 },
            "podSecurityContext": { "fsGroup": 1000, "fsGroupChangePolicy": "Always", "supplementalGroups": [5] },
            "resources": { "limits": { "memory": "1Gi", "cpu": 2 } },
            "nodeSelector": { "disk": "fast" },
            "tolerations": [{ "operator": "Exists" }],
        });
        assert_eq!(said(good), []);
        for bad in [
            json!({ "securityContext": { "runAsGroup": 0 } }),
            json!({ "securityContext": { "runAsUser": -1 } }),
            json!({ "securityContext": { "runAsUser": 0 }, "privilegedMode": false }),
            json!({ "securityContext": { "runAsUser": -1 }, "privilegedMode": true }),
        ] {
            assert_eq!(said(bad)[0].0, crate::crd::rules::ROOT_IS_ASKED_FOR);
        }
        for bad in [
            json!({ "podSecurityContext": { "fsGroup": 0 } }),
            json!({ "podSecurityContext": { "supplementalGroups": [5, 0] }, "privilegedMode": true }),
        ] {
            assert!(said(bad)[0].0.ends_with("root's group by them"));
        }
        for asked in [
            json!({ "privilegedMode": true }),
            json!({ "securityContext": { "runAsUser": 0, "runAsGroup": 0 } }),
            json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 0 }, "privilegedMode": true }),
        ] {
            assert_eq!(said(asked), []);
        }
        let defaults = json!({
            "backend": { "filesystem": { "volume": { "pvc": { "name": "v" } } } },
            "encryption": { "passwordSecretRef": { "name": "s" } },
            "moverDefaults": { "securityContext": { "runAsUser": 0 } },
        });
        let refused = repository(&serde_json::from_value(defaults).expect("decodes"));
        assert_eq!(refused[0].0, crate::crd::rules::REPOSITORY_IS_NOT_ROOTS);
    }

    #[test]
    fn a_schedule_names_a_policy_or_selects_some() {
        let said = |spec: Value| {
            let spec: SnapshotScheduleSpec = serde_json::from_value(spec).expect("decodes");
            schedule(&spec)
        };
        let times = json!({ "cron": "0 3 * * *" });
        let one = "spec needs exactly one of policyRef and policySelector";
        let selector = json!({ "matchLabels": { "tier": "gold" } });
        assert_eq!(
            said(json!({ "schedule": times, "policyRef": { "name": "p" } })),
            []
        );
        assert_eq!(said(json!({ "schedule": times, "policySelector": selector })), []);
        assert_eq!(said(json!({ "schedule": times }))[0].0, one);
        let both = json!({ "schedule": times, "policyRef": { "name": "p" }, "policySelector": selector });
        assert_eq!(said(both)[0].0, one);
        for (operator, values, word) in [
            ("In", json!([]), "which need it"),
            ("Exists", json!(["a"]), "which need it"),
            ("Near", json!([]), "newer release"),
        ] {
            let expression = json!({ "key": "tier", "operator": operator, "values": values });
            let spec = json!({ "schedule": times, "policySelector": { "matchExpressions": [expression] } });
            let refused = said(spec);
            assert!(
                refused[0].0.starts_with("spec.policySelector.matchExpressions[]")
                    && refused[0].0.contains(word),
                "{refused:?}"
            );
        }
        for policy in ["Forbid", "Allow", "Replace"] {
            let times = json!({ "cron": "0 3 * * *", "concurrencyPolicy": policy });
            assert_eq!(
                said(json!({ "schedule": times, "policyRef": { "name": "p" } })),
                []
            );
        }
    }

    #[test]
    fn any_count_of_retention_is_accepted_but_not_zeros_alone() {
        let said = |retention: Value| {
            let spec = json!({
                "repository": {"name": "r"}, "sources": [{"pvc": {"name": "data"}}], "retention": retention,
            });
            policy(&serde_json::from_value(spec).expect("decodes"))
        };
        assert_eq!(said(json!({})), [], "which prunes nothing");
        for count in [
            "keepLatest",
            "keepHourly",
            "keepDaily",
            "keepWeekly",
            "keepMonthly",
            "keepAnnual",
        ] {
            assert_eq!(said(json!({ count: 1 })), [], "{count}");
            assert!(
                said(json!({ count: 0 }))[0]
                    .0
                    .starts_with("spec.retention keeps nothing"),
                "{count}"
            );
        }
        assert_eq!(said(json!({ "keepLatest": 0, "keepDaily": 7 })), []);
    }

    #[test]
    fn a_bucket_is_accepted_as_it_is_described_and_what_has_no_effect_is_refused() {
        let said = |change: &dyn Fn(&mut Value)| {
            let mut s3 = json!({
                "bucket": "b", "prefix": "cluster-a/", "endpoint": "s3.example.org:9000", "region": "r",
                "tls": { "caBundleRef": { "configMapName": "ca" } }, "auth": { "secretRef": { "name": "keys" } },
            });
            change(&mut s3);
            let spec = json!({
                "backend": { "s3": s3 }, "encryption": { "passwordSecretRef": { "name": "s" } },
            });
            let spec: RepositorySpec = serde_json::from_value(spec).expect("decodes");
            assert_eq!(
                spec.backend
                    .s3
                    .as_ref()
                    .and_then(|s3| Some(s3.tls.as_ref()?.ca_bundle_ref.as_ref()?.key.clone())),
                Some("ca.crt".to_owned())
            );
            repository(&spec)
                .into_iter()
                .map(|refusal| refusal.0)
                .collect::<Vec<_>>()
                .join("; ")
        };
        assert_eq!(said(&|_| {}), "");
        for (path, change) in [
            (
                "spec.backend.s3.endpoint",
                json!({ "endpoint": "https://s3.example.org" }),
            ),
            ("spec.backend.s3.prefix", json!({ "prefix": "/a" })),
            ("spec.backend.s3.prefix", json!({ "prefix": "a//b" })),
            ("spec.backend.s3.prefix", json!({ "prefix": "a/../b" })),
            (
                "spec.backend.s3.prefix ends with '/' with engine Kopia",
                json!({ "prefix": "prod" }),
            ),
            (
                "spec.backend.s3.auth.secretRef is required",
                json!({ "auth": {} }),
            ),
            (
                "spec.backend.s3.auth.secretRef.namespace is only",
                json!({ "auth": { "secretRef": { "name": "keys", "namespace": "x" } } }),
            ),
            (
                "spec.backend.s3.tls takes one",
                json!({ "tls": { "disableTls": true, "caBundleRef": { "configMapName": "ca" } } }),
            ),
        ] {
            let said = said(&|s3| {
                for (key, value) in change.as_object().into_iter().flatten() {
                    s3[key] = value.clone();
                }
            });
            assert!(said.starts_with(path), "{path}: {said}");
        }
    }

    #[test]
    fn both_engines_are_accepted_and_a_newer_one_is_refused_by_name() {
        let mut spec: RepositorySpec = serde_json::from_value(json!({
            "backend": {"filesystem": {"volume": {"pvc": {"name": "repo"}}}},
            "encryption": {"passwordSecretRef": {"name": "s"}},
        }))
        .expect("valid");
        assert_eq!(spec.engine, Engine::Kopia, "the default");
        assert_eq!(repository(&spec), []);
        spec.engine = Engine::Restic;
        assert_eq!(repository(&spec), []);
        spec.engine = Engine::Unknown;
        assert!(
            repository(&spec)[0]
                .0
                .starts_with("spec.engine has a value of a newer release")
        );
    }
}
