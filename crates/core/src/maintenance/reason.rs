//! Why a Maintenance is where it is. The word is the reason of its conditions and events, and the anchor in the docs.

/// What a reason means for the Maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// It runs, or runs when it is due.
    Ready,
    /// What it needs is not there, or a run is put off; it goes on by itself.
    Reconciling,
    /// A person has to act.
    Stalled,
}

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// The next runs are in the status.
    Scheduled,
    /// Another maintains the repository, and is left to it.
    LeftToOwner,
    /// A run is under way.
    MaintenanceRunning,
    /// The repository object does not exist.
    RepositoryNotFound,
    /// The repository is not connected.
    RepositoryNotReady,
    /// `spec.suspend` of the repository.
    RepositorySuspended,
    /// The backend is away.
    BackendUnreachable,
    /// The password Secret is not where the mover runs.
    MissingCredentialsSecret,
    /// It lacks the key.
    MissingCredentialsKey,
    /// The repository's claim is not where the mover runs.
    MissingRepositoryClaim,
    /// The authorities that a bucket's server is checked by are not where the mover runs.
    MissingCaBundle,
    /// The namespace takes no Jobs.
    NoPlaceToRun,
    /// A Job of its name exists.
    JobNameTaken,
    /// The API server refuses the Job.
    JobRefused,
    /// The last run failed and is tried again.
    MaintenanceFailed,
    /// All deletions are paused.
    DeletionsPaused,
    /// A wave is held.
    MassDeletionHeld,
    /// Deleted snapshots are there again.
    DeletedSnapshotsReappeared,
    /// It is about to be looked whether deleted snapshots stayed away.
    SecondLookDue,
    /// A delete Job runs or waits.
    DeletionsRunning,
    /// A maintenance Job of another object has not ended.
    OtherMaintenanceRunning,
    /// The spec is refused.
    InvalidSpec,
    /// A schedule cannot be read.
    InvalidSchedule,
    /// It is not in the namespace of the repository's movers.
    NamespaceNotAllowed,
    /// An older Maintenance is of the same repository.
    AnotherMaintenance,
    /// Another maintains the repository, and a person is asked.
    TakeoverNeeded,
    /// Another repository is in its place.
    RepositoryReplaced,
}

impl Reason {
    /// Every reason, in the order of the docs.
    pub const ALL: [Self; 27] = [
        Self::Scheduled,
        Self::LeftToOwner,
        Self::MaintenanceRunning,
        Self::RepositoryNotFound,
        Self::RepositoryNotReady,
        Self::RepositorySuspended,
        Self::BackendUnreachable,
        Self::MissingCredentialsSecret,
        Self::MissingCredentialsKey,
        Self::MissingRepositoryClaim,
        Self::MissingCaBundle,
        Self::NoPlaceToRun,
        Self::JobNameTaken,
        Self::JobRefused,
        Self::MaintenanceFailed,
        Self::DeletionsPaused,
        Self::MassDeletionHeld,
        Self::DeletedSnapshotsReappeared,
        Self::SecondLookDue,
        Self::DeletionsRunning,
        Self::OtherMaintenanceRunning,
        Self::InvalidSpec,
        Self::InvalidSchedule,
        Self::NamespaceNotAllowed,
        Self::AnotherMaintenance,
        Self::TakeoverNeeded,
        Self::RepositoryReplaced,
    ];

    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "Scheduled",
            Self::LeftToOwner => "LeftToOwner",
            Self::MaintenanceRunning => "MaintenanceRunning",
            Self::RepositoryNotFound => "RepositoryNotFound",
            Self::RepositoryNotReady => "RepositoryNotReady",
            Self::RepositorySuspended => "RepositorySuspended",
            Self::BackendUnreachable => "BackendUnreachable",
            Self::MissingCredentialsSecret => "MissingCredentialsSecret",
            Self::MissingCredentialsKey => "MissingCredentialsKey",
            Self::MissingRepositoryClaim => "MissingRepositoryClaim",
            Self::MissingCaBundle => "MissingCaBundle",
            Self::NoPlaceToRun => "NoPlaceToRun",
            Self::JobNameTaken => "JobNameTaken",
            Self::JobRefused => "JobRefused",
            Self::MaintenanceFailed => "MaintenanceFailed",
            Self::DeletionsPaused => "DeletionsPaused",
            Self::MassDeletionHeld => "MassDeletionHeld",
            Self::DeletedSnapshotsReappeared => "DeletedSnapshotsReappeared",
            Self::SecondLookDue => "SecondLookDue",
            Self::DeletionsRunning => "DeletionsRunning",
            Self::OtherMaintenanceRunning => "OtherMaintenanceRunning",
            Self::InvalidSpec => "InvalidSpec",
            Self::InvalidSchedule => "InvalidSchedule",
            Self::NamespaceNotAllowed => "NamespaceNotAllowed",
            Self::AnotherMaintenance => "AnotherMaintenance",
            Self::TakeoverNeeded => "TakeoverNeeded",
            Self::RepositoryReplaced => "RepositoryReplaced",
        }
    }

    /// What it means.
    #[must_use]
    pub fn means(self) -> Means {
        match self {
            // What is over soon is what a schedule is for.
            Self::Scheduled
            | Self::LeftToOwner
            | Self::MaintenanceRunning
            | Self::SecondLookDue
            | Self::DeletionsRunning
            | Self::OtherMaintenanceRunning => Means::Ready,
            Self::RepositoryNotFound
            | Self::RepositoryNotReady
            | Self::RepositorySuspended
            | Self::BackendUnreachable
            | Self::MissingCredentialsSecret
            | Self::MissingCredentialsKey
            | Self::MissingRepositoryClaim
            | Self::MissingCaBundle
            | Self::NoPlaceToRun
            | Self::JobNameTaken
            | Self::JobRefused
            | Self::MaintenanceFailed
            | Self::DeletionsPaused
            | Self::MassDeletionHeld
            | Self::DeletedSnapshotsReappeared => Means::Reconciling,
            Self::InvalidSpec
            | Self::InvalidSchedule
            | Self::NamespaceNotAllowed
            | Self::AnotherMaintenance
            | Self::TakeoverNeeded
            | Self::RepositoryReplaced => Means::Stalled,
        }
    }

    /// What happened and what ends it, for the docs and as the sentence where nothing is known beyond it.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Scheduled => {
                "The next runs are in status.quick.nextScheduledAt and status.full.nextScheduledAt."
            }
            Self::LeftToOwner => {
                "The repository says that another maintains it, and with ownership.takeoverPolicy Never it is left to them. Who stands in the condition LeaseOwned. It is asked again at each slot; nothing is freed from here."
            }
            Self::MaintenanceRunning => {
                "A maintenance Job runs. Delete Jobs of the repository wait until it has ended."
            }
            Self::RepositoryNotFound => {
                "The repository that spec.repository names does not exist. Create it, or correct the name by making the Maintenance anew."
            }
            Self::RepositoryNotReady => {
                "The repository was never connected, or a person has to act on it; its conditions say why. Due runs are made when it is."
            }
            Self::RepositorySuspended => {
                "spec.suspend of the repository is set. Due runs are made when it is not."
            }
            Self::BackendUnreachable => {
                "The repository's backend cannot be reached. A due run is made as soon as a probe reaches it."
            }
            Self::MissingCredentialsSecret => {
                "The password Secret of the repository, or the one with the keys of its bucket, is not where the mover runs. Create it."
            }
            Self::MissingCredentialsKey => "A Secret of the repository lacks a key. Add it.",
            Self::MissingRepositoryClaim => {
                "The claim that holds the repository is not where the mover runs. Create it."
            }
            Self::MissingCaBundle => {
                "The ConfigMap with the authorities to trust is not there, or lacks the key. Create it."
            }
            Self::NoPlaceToRun => "The namespace takes no new Jobs: it is missing or being deleted.",
            Self::JobNameTaken => "A Job of the run's name exists and is not of this Maintenance. Remove it.",
            Self::JobRefused => {
                "The API server does not take the Job; the message has its words. It is tried again."
            }
            Self::MaintenanceFailed => {
                "The last run failed; the message says why. It is tried again, after ten minutes and then twice as long each time, at most six hours."
            }
            Self::DeletionsPaused => {
                "The chart's deletions.paused is set, so nothing is freed either. Due runs are made when it is not."
            }
            Self::MassDeletionHeld => {
                "A wave of deletions is held on the repository. What was deleted by the same accident can be brought back for as long as nothing is freed, so a run that frees bytes waits until the wave is released or rejected."
            }
            Self::DeletedSnapshotsReappeared => {
                "Snapshots that were proven gone are in the repository again: someone may have rolled the bucket back. A run that frees bytes waits until that is decided; the repository's condition has the command."
            }
            Self::SecondLookDue => {
                "It is about to be looked whether snapshots that were deleted a short while ago stayed away. A run that frees bytes waits for that, some minutes."
            }
            Self::DeletionsRunning => {
                "A delete Job runs on the repository or waits for its turn. The run begins when it has ended."
            }
            Self::OtherMaintenanceRunning => {
                "A maintenance Job of another object runs on the same physical repository. The run begins when it has ended."
            }
            Self::InvalidSpec => "The spec is refused; the message names the field.",
            Self::InvalidSchedule => "A schedule cannot be read; the message names the field.",
            Self::NamespaceNotAllowed => {
                "A Maintenance is in the namespace where the repository's movers run: that of the Repository, or the operator's for a ClusterRepository. Make it there."
            }
            Self::AnotherMaintenance => {
                "An older Maintenance is of the same physical repository, and there is one for each. Delete one of them."
            }
            Self::TakeoverNeeded => {
                "The repository says that another maintains it, and ownership.takeoverPolicy is PromptCondition. If they are gone for good, set it to Force; if not, delete this Maintenance."
            }
            Self::RepositoryReplaced => {
                "Another repository is where the recorded one was. Nothing was touched. Put it back, or make a new object for the new one."
            }
        }
    }
}
