//! Why a Restore is where it is. The word is the reason of its conditions and events, and the anchor in the docs.

/// What a reason means for the Restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// It goes on by itself.
    Waits,
    /// Work is under way.
    Runs,
    /// It is done.
    Done,
    /// It ended without the data; a person has to act.
    Failed,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The snapshot is not there (yet).
    SnapshotNotFound,
    /// The Snapshot is being taken.
    SnapshotNotReady,
    /// The policy does not exist.
    PolicyNotFound,
    /// The policy is refused.
    PolicyInvalid,
    /// The repository object does not exist.
    RepositoryNotFound,
    /// The repository was never connected, or a person has to act on it.
    RepositoryNotReady,
    /// The namespace may not use it.
    NamespaceNotAllowed,
    /// The newest snapshot that fits was taken by another cluster.
    OtherCluster,
    /// The policy's name has no snapshots, and another name has some of the same path.
    OtherIdentity,
    /// A privileged mover is asked for, and the namespace did not agree to any.
    PrivilegedMoverNotPermitted,
    /// The password Secret is not where the mover runs.
    MissingCredentialsSecret,
    /// A copy of the credentials is asked for, and not everybody consents.
    CredentialProjectionNotAllowed,
    /// A Secret of the copy's name is somebody else's.
    ProjectedSecretTaken,
    /// The repository's claim is not where the mover runs.
    MissingRepositoryClaim,
    /// The authorities that a bucket's server is checked by are not where the mover runs.
    MissingCaBundle,
    /// The claim to restore to does not exist.
    TargetNotFound,
    /// No claim asks for it.
    WaitingForClaim,
    /// The claim's class binds when a pod uses it, and none does.
    WaitingForConsumer,
    /// The filled volume is being handed over.
    WaitingForVolume,
    /// The repository could not be reached.
    BackendUnreachable,
    /// The namespace takes no Jobs.
    NoPlaceToRun,
    /// A Job of its name exists.
    JobNameTaken,
    /// The API server refuses the Job, or its pods.
    JobRefused,
    /// Which snapshot it is is being looked up.
    Resolving,
    /// Files are being written.
    Restoring,
    /// Everything of the snapshot is in the target.
    RestoreSucceeded,
    /// There is no snapshot, and that is no failure.
    NoSnapshot,
    /// The claim was bound before, so there is nothing to fill.
    TargetAlreadyBound,
    /// The spec is refused.
    InvalidSpec,
    /// There is no snapshot.
    SnapshotMissing,
    /// The identity has snapshots of several paths.
    AmbiguousIdentity,
    /// The identity belongs to another namespace.
    IdentityNotAllowed,
    /// A claim of the name of the one to be made exists.
    TargetExists,
    /// The target holds files.
    TargetNotEmpty,
    /// The target is where a repository is kept.
    TargetIsRepository,
    /// The repository is another one than was recorded.
    RepositoryReplaced,
    /// Something could not be set that had to be.
    NotAllSet,
    /// The run failed.
    RestoreFailed,
    /// The claim was bound to another volume meanwhile.
    PopulateHijacked,
}

impl Reason {
    /// Every reason, in the order of the docs.
    pub const ALL: [Self; 39] = [
        Self::SnapshotNotFound,
        Self::SnapshotNotReady,
        Self::PolicyNotFound,
        Self::PolicyInvalid,
        Self::RepositoryNotFound,
        Self::RepositoryNotReady,
        Self::NamespaceNotAllowed,
        Self::OtherCluster,
        Self::OtherIdentity,
        Self::PrivilegedMoverNotPermitted,
        Self::MissingCredentialsSecret,
        Self::CredentialProjectionNotAllowed,
        Self::ProjectedSecretTaken,
        Self::MissingRepositoryClaim,
        Self::MissingCaBundle,
        Self::TargetNotFound,
        Self::WaitingForClaim,
        Self::WaitingForConsumer,
        Self::WaitingForVolume,
        Self::BackendUnreachable,
        Self::NoPlaceToRun,
        Self::JobNameTaken,
        Self::JobRefused,
        Self::Resolving,
        Self::Restoring,
        Self::RestoreSucceeded,
        Self::NoSnapshot,
        Self::TargetAlreadyBound,
        Self::InvalidSpec,
        Self::SnapshotMissing,
        Self::AmbiguousIdentity,
        Self::IdentityNotAllowed,
        Self::TargetExists,
        Self::TargetNotEmpty,
        Self::TargetIsRepository,
        Self::RepositoryReplaced,
        Self::NotAllSet,
        Self::RestoreFailed,
        Self::PopulateHijacked,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.words().0
    }

    /// What it means, and what ends it, for the docs.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        self.words().2
    }

    /// What it means for the Restore.
    #[must_use]
    pub fn means(self) -> Means {
        self.words().1
    }

    fn words(self) -> (&'static str, Means, &'static str) {
        use Means::{Done, Failed, Runs, Waits};
        match self {
            Self::SnapshotNotFound => (
                "SnapshotNotFound",
                Waits,
                "There is no such snapshot yet, and `spec.policy.waitTimeout` is not over. Looked for again every ten seconds.",
            ),
            Self::SnapshotNotReady => (
                "SnapshotNotReady",
                Waits,
                "The Snapshot that is named is still being taken.",
            ),
            Self::PolicyNotFound => (
                "PolicyNotFound",
                Waits,
                "The SnapshotPolicy that is named does not exist. Ends when it is created.",
            ),
            Self::PolicyInvalid => (
                "PolicyInvalid",
                Waits,
                "The SnapshotPolicy that is named is refused, so it does not say what it backs up. Ends when it is corrected.",
            ),
            Self::RepositoryNotFound => (
                "RepositoryNotFound",
                Waits,
                "The repository object does not exist. Ends when it is created.",
            ),
            Self::RepositoryNotReady => (
                "RepositoryNotReady",
                Waits,
                "The repository was never connected, or a person has to act on it; its own conditions say why. One that is degraded or suspended still restores.",
            ),
            Self::NamespaceNotAllowed => (
                "NamespaceNotAllowed",
                Waits,
                "A Repository serves its own namespace, a ClusterRepository those of `spec.allowedNamespaces`.",
            ),
            Self::OtherCluster => (
                "OtherCluster",
                Waits,
                "This cluster has no snapshot of the identity in the ClusterRepository, and another cluster that shares it has: its namespace of the same name may be somebody else's. Ends when the other cluster is named in the annotation that the message shows.",
            ),
            Self::OtherIdentity => (
                "OtherIdentity",
                Waits,
                "The policy's name has no snapshots in the repository, and other names, which the message shows, have some of the same path: the name may have been another one when they were taken, so the target is not left empty. Ends when the policy says that name again, or with a new Restore that says a name (`source.identity`).",
            ),
            Self::PrivilegedMoverNotPermitted => (
                "PrivilegedMoverNotPermitted",
                Waits,
                "`spec.mover` asks for a privileged mover, and the namespace did not agree to any. Ends when whoever may change the namespace annotates it with the command of the message, or for a new Restore that does not ask for it.",
            ),
            Self::MissingCredentialsSecret => (
                "MissingCredentialsSecret",
                Waits,
                "A Secret of the repository (its password, the keys of its bucket) is not in the Restore's namespace, or lacks a key. Ends when it is there.",
            ),
            Self::CredentialProjectionNotAllowed => (
                "CredentialProjectionNotAllowed",
                Waits,
                "`spec.credentialProjection.enabled` asks for a copy of the ClusterRepository's credentials, and one of the three consents is missing: the message says which, and what to set. Ends when it is given, or not asked for any more.",
            ),
            Self::ProjectedSecretTaken => (
                "ProjectedSecretTaken",
                Waits,
                "A Secret of the name of the copy exists and is not ours. It is left as it is. Ends when it is gone.",
            ),
            Self::MissingRepositoryClaim => (
                "MissingRepositoryClaim",
                Waits,
                "The repository's claim is not in the Restore's namespace. Ends when it is there.",
            ),
            Self::MissingCaBundle => (
                "MissingCaBundle",
                Waits,
                "The ConfigMap with the authorities that the bucket's server is checked by is not in the Restore's namespace, or lacks the key. Ends when it is there.",
            ),
            Self::TargetNotFound => (
                "TargetNotFound",
                Waits,
                "The claim of `spec.target.pvcRef` does not exist. Ends when it is created.",
            ),
            Self::WaitingForClaim => (
                "WaitingForClaim",
                Waits,
                "No unbound claim of the namespace names this Restore in `spec.dataSourceRef`. Ends when one does.",
            ),
            Self::WaitingForConsumer => (
                "WaitingForConsumer",
                Waits,
                "The claim's storage class binds when a pod uses the claim, and none does yet.",
            ),
            Self::WaitingForVolume => (
                "WaitingForVolume",
                Waits,
                "The volume is filled and handed over to the claim, which is not bound to it yet; or the volume to fill is not there yet.",
            ),
            Self::BackendUnreachable => (
                "BackendUnreachable",
                Waits,
                "The repository could not be reached. Tried again by itself, after 15 seconds at first and 10 minutes at most.",
            ),
            Self::NoPlaceToRun => (
                "NoPlaceToRun",
                Waits,
                "The namespace takes no new Jobs: it is being deleted.",
            ),
            Self::JobNameTaken => (
                "JobNameTaken",
                Waits,
                "A Job of the name exists that is not of this Restore. Ends when it is gone.",
            ),
            Self::JobRefused => (
                "JobRefused",
                Waits,
                "The API server does not take the Job, or no pod of it, for the reason in the message. Tried again by itself.",
            ),
            Self::Resolving => ("Resolving", Runs, "A Job looks up which snapshot it is."),
            Self::Restoring => ("Restoring", Runs, "A Job writes the files."),
            Self::RestoreSucceeded => (
                "RestoreSucceeded",
                Done,
                "Every file of the snapshot is in the target. What could not be set (owners, modes, times, extended attributes, devices) is in `status.notRestored`.",
            ),
            Self::NoSnapshot => (
                "NoSnapshot",
                Done,
                "There is no snapshot, and `onMissingSnapshot` is Continue: the target was left as it was.",
            ),
            Self::TargetAlreadyBound => (
                "TargetAlreadyBound",
                Done,
                "The claim that names this Restore was bound before it was looked at; nothing was written to it.",
            ),
            Self::InvalidSpec => (
                "InvalidSpec",
                Failed,
                "The spec is refused, in the words of the message.",
            ),
            Self::SnapshotMissing => (
                "SnapshotMissing",
                Failed,
                "There is no such snapshot, and `onMissingSnapshot` is Fail; or the one that was recorded is not in the repository any more.",
            ),
            Self::AmbiguousIdentity => (
                "AmbiguousIdentity",
                Failed,
                "The identity has snapshots of several paths. Name one in `spec.source.identity.sourcePath`.",
            ),
            Self::IdentityNotAllowed => (
                "IdentityNotAllowed",
                Failed,
                "In a ClusterRepository the host name of an identity is the namespace it belongs to, and it is not this one.",
            ),
            Self::TargetExists => (
                "TargetExists",
                Failed,
                "A claim of the name in `spec.target.pvc` exists, and this Restore did not make it. Use `spec.target.pvcRef` for a claim that is there.",
            ),
            Self::TargetNotEmpty => (
                "TargetNotEmpty",
                Failed,
                "The target holds files, and none of `spec.options.overwriteFiles`, `skipExisting` and `enableFileDeletion` says what is to become of them. Nothing was written.",
            ),
            Self::TargetIsRepository => (
                "TargetIsRepository",
                Failed,
                "A Repository of the namespace or a ClusterRepository keeps its repository on the target's claim, or the target holds a repository. Nothing was written. Restore to another claim.",
            ),
            Self::RepositoryReplaced => (
                "RepositoryReplaced",
                Failed,
                "The repository has another unique id than the one recorded. Nothing was written.",
            ),
            Self::NotAllSet => (
                "NotAllSet",
                Failed,
                "The files are there, and something could not be set as the snapshot has it while `ignorePermissionErrors` is false.",
            ),
            Self::RestoreFailed => (
                "RestoreFailed",
                Failed,
                "The run failed, for the reason in the message. The target may hold part of the files.",
            ),
            Self::PopulateHijacked => (
                "PopulateHijacked",
                Failed,
                "While its volume was being filled the claim was bound to another one, by a provisioner that ignores `dataSourceRef`. Nothing was handed over.",
            ),
        }
    }
}
