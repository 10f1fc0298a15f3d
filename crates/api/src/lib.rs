//! The kinds of Holdfast, one file each, with their names, conditions, definitions and validators.
//!
//! **Promises.** Every field of the compatible interface is in a schema; what this release does not support is
//! refused by a rule that names the field, in the API server and again in the reconcilers
//! ([`unsupported`], [`validate`]). A value written by a newer version decodes to a variant named `Unknown`,
//! which means *hold, touch nothing*. Kinds of other projects ([`backups`], [`strategies`]) are read with the fields
//! that decisions need; whatever else they carry is left alone.
//!
//! **Assumes.** No client and no clock: this crate only describes.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod backups;
pub mod catalog;
pub mod conditions;
pub mod crd;
pub mod ledger;
pub mod maintenance;
pub mod mover;
pub mod names;
pub mod policy;
pub mod repository;
pub mod restore;
pub mod schedule;
pub mod shared;
pub mod snapshot;
pub mod strategies;
pub mod unsupported;
pub mod validate;
pub mod written;

pub use backups::{Backup, BackupClass, BackupJob, Plan, RestoreJob};
pub use ledger::{Artifact, BackupStore};
pub use maintenance::{Maintenance, MaintenanceSpec};
pub use policy::{SnapshotPolicy, SnapshotPolicySpec};
pub use repository::{ClusterRepository, ClusterRepositorySpec, Repository, RepositorySpec};
pub use restore::{Restore, RestoreSpec};
pub use schedule::{SnapshotSchedule, SnapshotScheduleSpec};
pub use snapshot::{Snapshot, SnapshotSpec};
