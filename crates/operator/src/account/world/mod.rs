//! Account's picture of the cluster: projected objects and the indexes that decisions read.
//!
//! **Promises.** Each watch event is applied in time that does not grow with the number of objects, and names what
//! has to be looked at again. A kind that is not installed is no error. [`World::is_complete`] says whether every list
//! that a figure rests on has arrived; until then nothing is published and nothing is taken for deleted.
//!
//! **Assumes.** One watch per kind feeds it. Records are not here but in [`super::book`].

mod state;
#[cfg(test)]
mod tests;
pub mod views;
pub mod wire;

use holdfast_core::quota::driver::{self, DriverFacts};
use holdfast_core::quota::{InForce, Location, StrategyKind, capability};
pub(super) use state::is_older;
pub use state::{Change, Dirty, Kind, Observed};
use state::{Stand, State};
use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use views::{BackupView, JobView, NamespaceView, QuotaView, StrategyRef, StrategyView};

/// See the module.
pub struct World {
    state: RwLock<State>,
    complete: watch::Sender<bool>,
}

impl World {
    /// An empty, cold world.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            state: RwLock::new(State::default()),
            complete: watch::channel(false).0,
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies one observation and says what has to be looked at again.
    pub fn apply(&self, change: Change) -> BTreeSet<Dirty> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let dirty = state.apply(change);
        let complete = state.is_complete();
        drop(state);
        self.complete.send_if_modified(|known| {
            let changed = *known != complete;
            *known = complete;
            changed
        });
        dirty
    }

    /// Whether every list that a figure rests on has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        *self.complete.borrow()
    }

    /// Tells when [`Self::is_complete`] changes.
    #[must_use]
    pub fn completeness(&self) -> watch::Receiver<bool> {
        self.complete.subscribe()
    }

    /// What is still waited for, for the log and for people.
    #[must_use]
    pub fn waits_for(&self) -> Vec<String> {
        self.read().waits_for()
    }

    /// Whether the kind's list has arrived and its watch goes on.
    #[must_use]
    pub fn is_synced(&self, kind: &Kind) -> bool {
        self.read().stand(kind) == Stand::Synced
    }

    /// A Backup by its UID.
    #[must_use]
    pub fn backup(&self, uid: &str) -> Option<Arc<BackupView>> {
        self.read().backups.get(uid).cloned()
    }

    /// Whether a Backup of this UID exists, readable or not.
    #[must_use]
    pub fn has_backup(&self, uid: &str) -> bool {
        let state = self.read();
        state.backups.contains_key(uid) || state.is_unreadable(uid)
    }

    /// Every Backup.
    #[must_use]
    pub fn backups(&self) -> Vec<Arc<BackupView>> {
        self.read().backups.values().cloned().collect()
    }

    /// A BackupJob by its UID.
    #[must_use]
    pub fn job(&self, uid: &str) -> Option<Arc<JobView>> {
        self.read().jobs.get(uid).cloned()
    }

    /// Whether a BackupJob of this UID exists, readable or not.
    #[must_use]
    pub fn has_job(&self, uid: &str) -> bool {
        let state = self.read();
        state.jobs.contains_key(uid) || state.is_unreadable(uid)
    }

    /// When the run of a BackupJob that is gone had begun, as its last state said.
    #[must_use]
    pub fn begun(&self, uid: &str) -> Option<jiff::Timestamp> {
        self.read().begun.get(uid).copied()
    }

    /// That is in the ledger.
    pub fn forget_begun(&self, uid: &str) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.begun.remove(uid);
    }

    /// Nobody here writes it down.
    pub fn forget_all_begun(&self) {
        if !self.read().begun.is_empty() {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.begun.clear();
        }
    }

    /// Whether a BackupJob of this name has been seen; a hint only.
    #[must_use]
    pub fn has_job_named(&self, namespace: &str, name: &str) -> bool {
        self.read().has_job_named(namespace, name)
    }

    /// Every BackupJob.
    #[must_use]
    pub fn jobs(&self) -> Vec<Arc<JobView>> {
        self.read().jobs.values().cloned().collect()
    }

    /// The strategy that a BackupJob's class names for its application; `None` while the class is missing or has
    /// no entry for it.
    #[must_use]
    pub fn strategy_of(&self, job: &JobView) -> Option<StrategyRef> {
        self.read().strategy_of(job)
    }

    /// What a strategy's driver does, and why its declaration was not believed.
    #[must_use]
    pub fn in_force(&self, strategy: &StrategyRef) -> (InForce, Option<capability::DeclarationError>) {
        let state = self.read();
        let view = state.strategies.get(strategy);
        let declared = view.and_then(|view| view.capabilities.as_deref());
        capability::in_force(
            holdfast_api::names::STRATEGY_GROUP,
            &strategy.kind.group,
            &strategy.kind.kind,
            declared,
        )
    }

    /// Strategies whose declaration cannot be read.
    #[must_use]
    pub fn bad_declarations(&self) -> BTreeSet<StrategyRef> {
        let declared: Vec<StrategyRef> = {
            let state = self.read();
            let with = state
                .strategies
                .values()
                .filter(|view| view.capabilities.is_some());
            with.map(|view| view.strategy.clone()).collect()
        };
        declared
            .into_iter()
            .filter(|strategy| self.in_force(strategy).1.is_some())
            .collect()
    }

    /// A strategy.
    #[must_use]
    pub fn strategy(&self, strategy: &StrategyRef) -> Option<StrategyView> {
        self.read().strategies.get(strategy).cloned()
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> Option<NamespaceView> {
        self.read().namespaces.get(name).cloned()
    }

    /// Names of all namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.read().namespace_names)
    }

    /// The quotas of a namespace that have to do with backups, in the order of names.
    #[must_use]
    pub fn quotas(&self, namespace: &str) -> Vec<Arc<QuotaView>> {
        let state = self.read();
        let of_namespace = state.quotas.get(namespace);
        of_namespace
            .into_iter()
            .flat_map(|all| all.values().cloned())
            .collect()
    }

    /// Namespaces with a quota that has to do with backups.
    #[must_use]
    pub fn namespaces_with_quotas(&self) -> Vec<String> {
        self.read().quotas.keys().cloned().collect()
    }

    /// What a driver's own objects say about the bytes at a location, for [`driver::evidence`].
    #[must_use]
    pub fn driver_facts(&self, location: &Location) -> Option<DriverFacts> {
        self.read().driver_facts(location)
    }

    /// What was seen at a location that no record refers to is not remembered.
    pub fn forget_location(&self, location: &Location) {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .forget_location(location);
    }

    /// What a driver's own object says about the run of a BackupJob.
    #[must_use]
    pub fn driver_run(&self, namespace: &str, job: &str) -> driver::RunState {
        self.read().driver_run(namespace, job)
    }

    /// Kinds of strategies that are installed.
    #[must_use]
    pub fn strategy_kinds(&self) -> Vec<StrategyKind> {
        self.read().strategy_kinds()
    }
}
