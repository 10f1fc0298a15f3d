//! The operator's picture of the cluster: projected objects and the indexes that decisions read.
//!
//! **Promises.** Each watch event is applied in time that does not grow with the number of objects, and names
//! the queue keys that have to look again. Everything here can be rebuilt from the API server; nothing is
//! remembered only here (`docs/design.md` section 7, State).
//!
//! **Assumes.** One watch per kind feeds it; readers take short read locks and clone `Arc`s out.

pub mod keys;
mod state;
#[cfg(test)]
mod tests;
pub mod views;

use holdfast_api::shared::LabelSelector;
use holdfast_api::{Maintenance, Restore, SnapshotPolicy, SnapshotSchedule};
use jiff::Timestamp;
use keys::{LaneKey, ObjectKey, RepositoryKey};
use state::State;
pub use state::{Change, Kind, NamespaceView, Observed};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use views::{JobView, RepositoryView, SnapshotView};

/// Something that has to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dirty {
    /// A repository object.
    Repository(RepositoryKey),
    /// A SnapshotPolicy.
    Policy(ObjectKey),
    /// A SnapshotSchedule.
    Schedule(ObjectKey),
    /// A Snapshot that is not being deleted.
    Snapshot(ObjectKey),
    /// A Restore.
    Restore(ObjectKey),
    /// A Maintenance.
    Maintenance(ObjectKey),
    /// A deletion lane.
    Lane(LaneKey),
}

/// See the module.
#[derive(Default)]
pub struct World {
    state: RwLock<State>,
}

/// The state of a namespace as the watch knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceKnown {
    /// Exists.
    Live,
    /// Is being deleted.
    Terminating,
    /// Not in the cache (or the cache is cold).
    Absent,
}

impl World {
    /// An empty, cold world.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies one observation and says what has to be looked at again.
    pub fn apply(&self, change: Change, now: Timestamp) -> BTreeSet<Dirty> {
        self.state
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .apply(change, now)
    }

    /// Whether the first list of every kind has arrived.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        Kind::ALL.iter().all(|k| self.read().synced.contains(k))
    }

    /// Everything there is, for the first look after becoming leader.
    #[must_use]
    pub fn everything(&self) -> BTreeSet<Dirty> {
        self.read().everything()
    }

    /// A repository object.
    #[must_use]
    pub fn repository(&self, key: &RepositoryKey) -> Option<Arc<RepositoryView>> {
        self.read().repositories.get(key).cloned()
    }

    /// The repository objects that `is` says yes to, in the order of their keys.
    #[must_use]
    pub fn repositories_that(&self, is: impl Fn(&RepositoryView) -> bool) -> Vec<Arc<RepositoryView>> {
        let state = self.read();
        let those = state.repositories.values().filter(|view| is(view));
        let mut those: Vec<_> = those.cloned().collect();
        those.sort_by(|a, b| a.key.cmp(&b.key));
        those
    }

    /// A policy.
    #[must_use]
    pub fn policy(&self, key: &ObjectKey) -> Option<Arc<SnapshotPolicy>> {
        self.read().policies.get(key).cloned()
    }

    /// The policies that name a repository of this lane.
    #[must_use]
    pub fn policies_of(&self, lane: &LaneKey) -> Vec<Arc<SnapshotPolicy>> {
        self.read().policies_of(lane)
    }

    /// The policies of a namespace whose labels a selector selects, by name.
    #[must_use]
    pub fn policies_selected(&self, namespace: &str, by: &LabelSelector) -> Vec<Arc<SnapshotPolicy>> {
        let state = self.read();
        let in_namespace = state
            .policies
            .iter()
            .filter(|(key, _)| key.namespace == namespace);
        let mut selected: Vec<_> = in_namespace
            .filter(|(_, policy)| by.selects(policy.metadata.labels.as_ref().unwrap_or(&BTreeMap::new())))
            .collect();
        selected.sort_by_key(|(key, _)| *key);
        selected
            .into_iter()
            .map(|(_, policy)| Arc::clone(policy))
            .collect()
    }

    /// The policies that name a repository object, by name.
    #[must_use]
    pub fn policies_naming(&self, repository: &RepositoryKey) -> Vec<Arc<SnapshotPolicy>> {
        let state = self.read();
        let keys = state.policies_by_repository.get(repository).into_iter().flatten();
        keys.filter_map(|key| state.policies.get(key).cloned()).collect()
    }

    /// A schedule.
    #[must_use]
    pub fn schedule(&self, key: &ObjectKey) -> Option<Arc<SnapshotSchedule>> {
        self.read().schedules.get(key).cloned()
    }

    /// A Snapshot.
    #[must_use]
    pub fn snapshot(&self, key: &ObjectKey) -> Option<Arc<SnapshotView>> {
        self.read().snapshots.get(key).cloned()
    }

    /// A Restore.
    #[must_use]
    pub fn restore(&self, key: &ObjectKey) -> Option<Arc<Restore>> {
        self.read().restores.get(key).cloned()
    }

    /// A Maintenance.
    #[must_use]
    pub fn maintenance(&self, key: &ObjectKey) -> Option<Arc<Maintenance>> {
        self.read().maintenances.get(key).cloned()
    }

    /// The Maintenances that satisfy a predicate, in no order.
    #[must_use]
    pub fn maintenances(&self, wanted: impl Fn(&ObjectKey, &Maintenance) -> bool) -> Vec<Arc<Maintenance>> {
        let state = self.read();
        let those = state.maintenances.iter().filter(|(key, view)| wanted(key, view));
        those.map(|(_, view)| Arc::clone(view)).collect()
    }

    /// A namespace.
    #[must_use]
    pub fn namespace(&self, name: &str) -> NamespaceKnown {
        match self.read().namespaces.get(name) {
            Some(n) if n.terminating => NamespaceKnown::Terminating,
            Some(_) => NamespaceKnown::Live,
            None => NamespaceKnown::Absent,
        }
    }

    /// Labels of a namespace, for `allowedNamespaces.selector`.
    #[must_use]
    pub fn namespace_view(&self, name: &str) -> Option<NamespaceView> {
        self.read().namespaces.get(name).cloned()
    }

    /// How many namespaces satisfy a predicate.
    #[must_use]
    pub fn count_namespaces(&self, allowed: impl Fn(&str, &NamespaceView) -> bool) -> usize {
        self.read()
            .namespaces
            .iter()
            .filter(|(name, view)| allowed(name, view))
            .count()
    }

    /// The Job of a key.
    #[must_use]
    pub fn job(&self, key: &ObjectKey) -> Option<Arc<JobView>> {
        self.read().jobs.get(key).cloned()
    }

    /// Jobs that carry the owner label with this UID.
    #[must_use]
    pub fn jobs_of(&self, owner_uid: &str) -> Vec<Arc<JobView>> {
        let state = self.read();
        state
            .jobs_by_owner
            .get(owner_uid)
            .into_iter()
            .flatten()
            .filter_map(|k| state.jobs.get(k).cloned())
            .collect()
    }

    /// Jobs that a Snapshot controls. One elsewhere, or of another, is not: a label alone holds no deletion back.
    #[must_use]
    pub fn jobs_of_snapshot(&self, view: &SnapshotView) -> Vec<Arc<JobView>> {
        let mut jobs = self.jobs_of(view.uid());
        jobs.retain(|job| job.is_of("Snapshot", &view.key(), view.uid()));
        jobs
    }

    /// The Jobs of ours that satisfy a predicate: not for what happens on each event.
    #[must_use]
    pub fn jobs(&self, wanted: impl Fn(&JobView) -> bool) -> Vec<Arc<JobView>> {
        self.read()
            .jobs
            .values()
            .filter(|job| wanted(job))
            .cloned()
            .collect()
    }

    /// Snapshots of a lane's policies that have not reached an end and are not being deleted.
    #[must_use]
    pub fn unfinished_of(&self, lane: &LaneKey) -> Vec<Arc<SnapshotView>> {
        self.read().unfinished_of(lane)
    }

    /// Batch delete Jobs of the whole cluster that are not terminal.
    #[must_use]
    pub fn live_batches(&self) -> usize {
        let state = self.read();
        state
            .batch_jobs
            .iter()
            .filter(|k| state.jobs.get(k).is_some_and(|j| !j.is_terminal()))
            .count()
    }

    /// Batch delete Jobs of the whole cluster, terminal or not.
    #[must_use]
    pub fn batch_jobs(&self) -> Vec<Arc<JobView>> {
        let state = self.read();
        state
            .batch_jobs
            .iter()
            .filter_map(|k| state.jobs.get(k).cloned())
            .collect()
    }

    /// Snapshots of a policy.
    #[must_use]
    pub fn snapshots_of_policy(&self, policy: &ObjectKey) -> Vec<Arc<SnapshotView>> {
        let state = self.read();
        state
            .by_policy
            .get(policy)
            .into_iter()
            .flatten()
            .filter_map(|k| state.snapshots.get(k).cloned())
            .collect()
    }

    /// Snapshots that a schedule of this UID owns.
    #[must_use]
    pub fn snapshots_of_schedule(&self, uid: &str) -> Vec<Arc<SnapshotView>> {
        let state = self.read();
        state
            .by_schedule
            .get(uid)
            .into_iter()
            .flatten()
            .filter_map(|k| state.snapshots.get(k).cloned())
            .collect()
    }

    /// Another Snapshot of the same lane that is not being deleted and records the same snapshot id; discovered
    /// rows apart (`docs/design.md` 3.3 rule 8).
    #[must_use]
    pub fn live_sharer(&self, lane: &LaneKey, snapshot_id: &str, but: &ObjectKey) -> Option<ObjectKey> {
        self.read().live_sharer(lane, snapshot_id, but)
    }

    /// Whether a Snapshot's data may be in the repository of a lane: unless it is known to be in another one.
    #[must_use]
    pub fn could_be_of(&self, view: &SnapshotView, lane: &LaneKey) -> bool {
        self.read().could_be_of(view, lane)
    }

    /// The Snapshots of a lane that are not being deleted and record this snapshot id; discovered rows apart.
    #[must_use]
    pub fn live_recorders(&self, lane: &LaneKey, snapshot_id: &str) -> Vec<Arc<SnapshotView>> {
        self.read().live_recorders(lane, snapshot_id).cloned().collect()
    }

    /// The lane of a repository object.
    #[must_use]
    pub fn lane_of(&self, repository: &RepositoryKey) -> LaneKey {
        self.read().lane_of(repository)
    }

    /// The repository objects of a lane.
    #[must_use]
    pub fn repositories_of(&self, lane: &LaneKey) -> Vec<Arc<RepositoryView>> {
        self.read().repositories_of(lane)
    }

    /// The pending members that a lane decides.
    #[must_use]
    pub fn pending(&self, lane: &LaneKey) -> Vec<Pending> {
        self.read().pending(lane)
    }

    /// Pending members without a pin that other lanes decide but that may still resolve to this one.
    #[must_use]
    pub fn unplaced(&self, lane: &LaneKey) -> Vec<Pending> {
        self.read().unplaced(lane)
    }

    /// The repository a Snapshot belongs to: its pin, else what its policy names now.
    #[must_use]
    pub fn resolve(&self, snapshot: &SnapshotView) -> ResolvedTo {
        self.read().resolve(snapshot)
    }

    /// The repository that this policy leads to.
    #[must_use]
    pub fn resolve_through(&self, policy: &SnapshotPolicy) -> ResolvedTo {
        self.read().resolve_through(policy)
    }

    /// Every Snapshot there is, for a scan of a repository: not for what happens on each event.
    #[must_use]
    pub fn all_snapshots(&self) -> Vec<Arc<SnapshotView>> {
        self.read().snapshots.values().cloned().collect()
    }

    /// How many Snapshots there are.
    #[must_use]
    pub fn snapshot_count(&self) -> usize {
        self.read().snapshots.len()
    }
}

/// A pending member and when this process first saw it deleting.
#[derive(Debug, Clone)]
pub struct Pending {
    /// The object.
    pub snapshot: Arc<SnapshotView>,
    /// First sight, our clock.
    pub first_seen: Timestamp,
}

/// Where a Snapshot belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResolvedTo {
    /// To this repository object.
    Repository(RepositoryKey),
    /// The pinned or named repository object does not exist, or there is no policy any more.
    Gone,
    /// Not decidable (a kind of a newer release, a cold cache).
    Unknown,
}
