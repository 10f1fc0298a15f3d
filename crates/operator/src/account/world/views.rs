//! Projections: what Account's decisions read of an object, in as little memory as that takes.
//!
//! **Promises.** Of 100,000 Backups only these fields stay: no managed fields, no free-form parts, and what many
//! objects have in common (namespaces, applications, strategies) is kept once.

use holdfast_api::backups::{BackupClassSpec, JobPhase};
use holdfast_core::quota::StrategyKind;
use holdfast_core::quota::gate::Quota;
use holdfast_core::quota::record::Application;
use holdfast_core::quota::runs::Phase;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The driver's notes in `spec.driverMetadata` that say where the bytes are: those that
/// [`holdfast_core::quota::identity::locate`] reads.
pub const NOTES: [&str; 7] = [
    "cnpg.io/server-name",
    "cnpg.io/backup-name",
    "velero.io/backup-namespace",
    "velero.io/backup-name",
    "k8s.mariadb.com/storage-uri",
    "psmdb.percona.com/destination",
    "apps.foundationdb.org/storage-uri",
];

/// A strategy object, as Backups and BackupClasses name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StrategyRef {
    /// Group and kind.
    pub kind: StrategyKind,
    /// Name.
    pub name: String,
}

/// A Backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupView {
    /// UID.
    pub uid: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Box<str>,
    /// When the API server created it.
    pub created_at: Timestamp,
    /// What was backed up.
    pub application: Arc<Application>,
    /// What ran.
    pub strategy: Arc<StrategyRef>,
    /// `status.artifact.uri`.
    pub uri: Option<Box<str>>,
    /// The driver's notes that say where the bytes are ([`NOTES`]).
    pub notes: Box<[(&'static str, Box<str>)]>,
    /// `status.artifact.sizeBytes`, as it is.
    pub size_bytes: Option<i64>,
}

impl BackupView {
    /// Of a driver's notes, those that say where the bytes are.
    #[must_use]
    pub fn notes(all: &BTreeMap<String, String>) -> Box<[(&'static str, Box<str>)]> {
        NOTES
            .iter()
            .filter_map(|key| Some((*key, all.get(*key)?.as_str().into())))
            .collect()
    }

    /// The notes, as decisions want them.
    #[must_use]
    pub fn driver_metadata(&self) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&'static str, Box<str>)| ((*key).to_owned(), value.to_string());
        self.notes.iter().map(owned).collect()
    }
}

/// A BackupJob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// UID.
    pub uid: Arc<str>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Box<str>,
    /// When the API server created it.
    pub created_at: Option<Timestamp>,
    /// What is backed up.
    pub application: Arc<Application>,
    /// The BackupClass.
    pub class: Arc<str>,
    /// The Plan that made it.
    pub plan: Option<Box<str>>,
    /// `status.phase`.
    pub phase: Phase,
    /// `status.startedAt`.
    pub started_at: Option<Timestamp>,
    /// `status.backupRef.name`.
    pub backup: Option<Box<str>>,
}

/// A phase as decisions read it.
#[must_use]
pub fn phase(phase: Option<JobPhase>) -> Phase {
    match phase {
        None => Phase::None,
        Some(JobPhase::Pending) => Phase::Pending,
        Some(JobPhase::Running) => Phase::Running,
        Some(JobPhase::Succeeded) => Phase::Succeeded,
        Some(JobPhase::Failed) => Phase::Failed,
        Some(JobPhase::Unknown) => Phase::Unknown,
    }
}

/// A BackupClass, parameters left out.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassView {
    /// Name.
    pub name: String,
    /// What is backed up by what.
    pub spec: BackupClassSpec,
}

/// A strategy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StrategyView {
    /// Which.
    pub strategy: StrategyRef,
    /// UID, for events.
    pub uid: String,
    /// `group/version` under which it was read, for events.
    pub api_version: String,
    /// What it declares about its driver, as written.
    pub capabilities: Option<String>,
}

/// A Namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// It is being deleted.
    pub terminating: bool,
}

/// A ResourceQuota that has to do with backups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaView {
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Version that was seen.
    pub resource_version: String,
    /// What decisions read of it: of its limits and figures those that have to do with backups.
    pub quota: Quota,
}

/// How far a driver's own backup object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriverPhase {
    /// Under way, or a word we do not know.
    Running,
    /// It is over, and wrote what it was to write or a part of it.
    Completed,
    /// It is over, and came to nothing.
    Failed,
}

/// A driver's own backup object: a Velero Backup or a CNPG Backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// How far it is.
    pub phase: DriverPhase,
    /// The BackupJob it was made for, by namespace and name.
    pub job: Option<(String, String)>,
}

/// Velero's DeleteBackupRequest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestView {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// The Velero Backup that it asks to delete.
    pub backup: String,
    /// It was processed; the number of errors.
    pub processed: Option<usize>,
}
