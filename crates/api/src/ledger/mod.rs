//! `ledger.backups.cozystack.io/v1alpha1`: our own kinds of Account, both cluster-scoped so that they outlive the
//! namespaces they are about (`docs/design.md` 4.1).
//!
//! **Promises.** Tenants need no right on them. A record that was created and never got its status still says what
//! it is for (see [`ArtifactSpec`]).

mod artifact;
pub mod convert;
pub mod scope;
mod store;

pub use artifact::{
    Artifact, ArtifactJob, ArtifactListing, ArtifactSpec, ArtifactState, ArtifactStatus, ArtifactStrategy,
    ArtifactTimes, CapabilitiesFrom, CapabilityWords, RecordedBackup, SizeSource,
};
pub use store::{
    ApprovedRelease, BackupStore, BackupStoreSpec, BackupStoreStatus, CompleteListing, ListingProgress,
    PendingRelease, StoreCaBundle, StoreCredentials, StoreLayout, UnaccountedBytes, UnaccountedElsewhere,
};
