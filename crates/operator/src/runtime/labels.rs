//! Closed sets of label values.
//!
//! **Promises.** Each value is spelt in one place; a new one cannot be exported without a spelling.

use crate::world::keys::RepositoryKey;
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use std::fmt::Write;

/// An enum whose variants are label values.
macro_rules! label {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// The value as exported.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }

        impl EncodeLabelValue for $name {
            fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
                encoder.write_str(self.as_str())
            }
        }
    };
}

label! {
    /// What is reconciled.
    Kind {
        /// A Repository.
        Repository = "Repository",
        /// A ClusterRepository.
        ClusterRepository = "ClusterRepository",
        /// A SnapshotPolicy.
        SnapshotPolicy = "SnapshotPolicy",
        /// A SnapshotSchedule.
        SnapshotSchedule = "SnapshotSchedule",
        /// A Snapshot.
        Snapshot = "Snapshot",
        /// A Restore.
        Restore = "Restore",
        /// A Maintenance.
        Maintenance = "Maintenance",
        /// The lane of a physical repository.
        Lane = "Lane",
        /// A record of the ledger of backup storage.
        Artifact = "Artifact",
        /// The ResourceQuotas of a namespace.
        ResourceQuota = "ResourceQuota",
    }
}

label! {
    /// Who ends a failure.
    ErrorClass {
        /// It is tried again and goes by itself: a conflict, a timeout, an API server that restarts.
        Transient = "transient",
        /// It waits for another object to appear or change.
        Structural = "structural",
        /// It waits for this object's spec to change.
        Terminal = "terminal",
    }
}

label! {
    /// How a Snapshot's finalizer was resolved.
    DeletionOutcome {
        /// The data is gone, read back.
        Deleted = "deleted",
        /// The policy keeps the data.
        Retained = "retained",
        /// Released without contact to the repository.
        Orphaned = "orphaned",
        /// Kept because its schedule went.
        CascadeRetained = "cascade_retained",
        /// Kept because its policy went.
        PolicyCascadeRetained = "policy_cascade_retained",
    }
}

label! {
    /// How a batch Job ended.
    BatchOutcome {
        /// Every member was confirmed.
        Succeeded = "succeeded",
        /// At least one was not.
        Failed = "failed",
    }
}

label! {
    /// How one member of a batch ended.
    MemberOutcome {
        /// Confirmed gone.
        Deleted = "deleted",
        /// Not confirmed; it backs off and is tried again.
        Failed = "failed",
    }
}

label! {
    /// How a backup ended.
    BackupResult {
        /// A snapshot was taken.
        Succeeded = "succeeded",
        /// None was.
        Failed = "failed",
    }
}

label! {
    /// How much a maintenance run does.
    MaintenanceMode {
        /// What is cheap.
        Quick = "quick",
        /// Everything.
        Full = "full",
    }
}

label! {
    /// How a maintenance run ended.
    MaintenanceResult {
        /// It was made.
        Succeeded = "succeeded",
        /// It failed.
        Failed = "failed",
        /// The repository is another's to maintain.
        LeftToOwner = "left_to_owner",
    }
}

label! {
    /// Why a probe did not reach a repository.
    ProbeOutcome {
        /// The backend is away.
        Unreachable = "unreachable",
        /// It took longer than it may.
        Slow = "slow",
        /// The password does not open it.
        Credentials = "credentials",
        /// There is none, or another one.
        Vanished = "vanished",
        /// Anything else.
        Failed = "failed",
    }
}

label! {
    /// Kind of a repository object.
    RepositoryKind {
        /// Namespaced.
        Repository = "Repository",
        /// Cluster-scoped.
        ClusterRepository = "ClusterRepository",
        /// For Snapshots that are pinned to none.
        Unknown = "unknown",
    }
}

impl From<&RepositoryKey> for RepositoryKind {
    fn from(key: &RepositoryKey) -> Self {
        match key {
            RepositoryKey::Repository { .. } => Self::Repository,
            RepositoryKey::ClusterRepository { .. } => Self::ClusterRepository,
        }
    }
}
