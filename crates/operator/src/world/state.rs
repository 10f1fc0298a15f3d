//! The indexes behind [`super::World`].

use super::keys::{self, LaneKey, ObjectKey, RepositoryKey};
use super::views::{JobView, RepositoryView, SnapshotView};
use super::{Dirty, Pending, ResolvedTo};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{Maintenance, Restore, SnapshotPolicy, SnapshotSchedule, names};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// The kinds that are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Repository.
    Repository,
    /// ClusterRepository.
    ClusterRepository,
    /// SnapshotPolicy.
    Policy,
    /// SnapshotSchedule.
    Schedule,
    /// Snapshot.
    Snapshot,
    /// Restore.
    Restore,
    /// Maintenance.
    Maintenance,
    /// Job with our label.
    Job,
    /// Namespace.
    Namespace,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 9] = [
        Kind::Repository,
        Kind::ClusterRepository,
        Kind::Policy,
        Kind::Schedule,
        Kind::Snapshot,
        Kind::Restore,
        Kind::Maintenance,
        Kind::Job,
        Kind::Namespace,
    ];
}

/// One object as a watch delivered it.
#[derive(Debug, Clone)]
pub enum Observed {
    /// Either repository kind.
    Repository(Box<RepositoryView>),
    /// A policy.
    Policy(Box<SnapshotPolicy>),
    /// A schedule.
    Schedule(Box<SnapshotSchedule>),
    /// A Snapshot.
    Snapshot(Box<SnapshotView>),
    /// A Restore.
    Restore(Box<Restore>),
    /// A Maintenance.
    Maintenance(Box<Maintenance>),
    /// A Job of ours.
    Job(Box<JobView>),
    /// A namespace by name.
    Namespace(String, NamespaceView),
}

/// What is known of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceView {
    /// It is being deleted.
    pub terminating: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// One observation.
#[derive(Debug, Clone)]
pub enum Change {
    /// Added or changed.
    Set(Observed),
    /// Gone.
    Gone(Observed),
    /// There, but it cannot be read: what is known of it stays.
    Unreadable(Kind, ObjectKey),
    /// Gone, and what it was at last could not be read. Cluster-scoped kinds have an empty namespace.
    GoneUnreadable(Kind, ObjectKey),
    /// A list of this kind begins: what it does not name is gone when it ends.
    ListBegins(Kind),
    /// The list ended.
    ListEnds(Kind),
}

/// Names one object of any kind, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum AnyKey {
    Repository(RepositoryKey),
    Policy(ObjectKey),
    Schedule(ObjectKey),
    Snapshot(ObjectKey),
    Restore(ObjectKey),
    Maintenance(ObjectKey),
    Job(ObjectKey),
    Namespace(String),
}

/// See the module.
#[derive(Default)]
pub struct State {
    pub(super) synced: HashSet<Kind>,
    listing: HashMap<Kind, HashSet<AnyKey>>,
    pub(super) repositories: HashMap<RepositoryKey, Arc<RepositoryView>>,
    pub(super) policies: HashMap<ObjectKey, Arc<SnapshotPolicy>>,
    pub(super) schedules: HashMap<ObjectKey, Arc<SnapshotSchedule>>,
    pub(super) snapshots: HashMap<ObjectKey, Arc<SnapshotView>>,
    pub(super) restores: HashMap<ObjectKey, Arc<Restore>>,
    pub(super) maintenances: HashMap<ObjectKey, Arc<Maintenance>>,
    pub(super) namespaces: HashMap<String, NamespaceView>,
    pub(super) jobs: HashMap<ObjectKey, Arc<JobView>>,
    pub(super) jobs_by_owner: HashMap<String, BTreeSet<ObjectKey>>,
    pub(super) batch_jobs: BTreeSet<ObjectKey>,
    pub(super) by_policy: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    pub(super) by_schedule: HashMap<String, BTreeSet<ObjectKey>>,
    by_snapshot_id: HashMap<String, BTreeSet<ObjectKey>>,
    /// Snapshots that have not reached an end, by policy: those that wait for something else than their own event.
    unfinished: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    by_unique_id: HashMap<String, BTreeSet<RepositoryKey>>,
    pub(super) policies_by_repository: HashMap<RepositoryKey, BTreeSet<ObjectKey>>,
    schedules_by_policy: HashMap<ObjectKey, BTreeSet<ObjectKey>>,
    /// Schedules that select their policies, by namespace.
    selecting_schedules: HashMap<String, BTreeSet<ObjectKey>>,
    /// Deleting Snapshots that carry our finalizer, by pin; `None` for those without.
    pending: HashMap<Option<RepositoryKey>, BTreeSet<ObjectKey>>,
    pending_by_namespace: HashMap<String, BTreeSet<ObjectKey>>,
    pending_by_schedule: HashMap<String, BTreeSet<ObjectKey>>,
    first_seen: HashMap<String, Timestamp>,
}

fn link<K: Eq + Hash, V: Ord>(map: &mut HashMap<K, BTreeSet<V>>, key: K, value: V) {
    map.entry(key).or_default().insert(value);
}

fn unlink<K: Eq + Hash, V: Ord>(map: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

impl State {
    pub(super) fn apply(&mut self, change: Change, now: Timestamp) -> BTreeSet<Dirty> {
        let mut dirty = BTreeSet::new();
        match change {
            Change::Set(observed) => {
                if let Some((kind, key)) = Self::any_key(&observed)
                    && let Some(seen) = self.listing.get_mut(&kind)
                {
                    seen.insert(key);
                }
                self.set(observed, now, &mut dirty);
            }
            Change::Gone(observed) => {
                if let Some((_, key)) = Self::any_key(&observed) {
                    self.gone(&key, &mut dirty);
                }
            }
            Change::Unreadable(kind, key) => {
                if let Some(seen) = self.listing.get_mut(&kind) {
                    seen.insert(Self::key_of(kind, key));
                }
            }
            Change::GoneUnreadable(kind, key) => self.gone(&Self::key_of(kind, key), &mut dirty),
            Change::ListBegins(kind) => {
                self.listing.insert(kind, HashSet::new());
            }
            Change::ListEnds(kind) => {
                let seen = self.listing.remove(&kind).unwrap_or_default();
                for key in self.known(kind) {
                    if !seen.contains(&key) {
                        self.gone(&key, &mut dirty);
                    }
                }
                // Whatever was decided while this kind was cold may be decided differently now.
                if self.synced.insert(kind) {
                    dirty.extend(self.everything());
                }
            }
        }
        dirty
    }

    fn any_key(observed: &Observed) -> Option<(Kind, AnyKey)> {
        Some(match observed {
            Observed::Repository(r) => {
                let kind = match r.key {
                    RepositoryKey::Repository { .. } => Kind::Repository,
                    RepositoryKey::ClusterRepository { .. } => Kind::ClusterRepository,
                };
                (kind, AnyKey::Repository(r.key.clone()))
            }
            Observed::Policy(p) => (Kind::Policy, AnyKey::Policy(ObjectKey::of(p.as_ref()))),
            Observed::Schedule(s) => (Kind::Schedule, AnyKey::Schedule(ObjectKey::of(s.as_ref()))),
            Observed::Snapshot(s) => (Kind::Snapshot, AnyKey::Snapshot(s.key())),
            Observed::Restore(r) => (Kind::Restore, AnyKey::Restore(ObjectKey::of(r.as_ref()))),
            Observed::Maintenance(m) => (Kind::Maintenance, AnyKey::Maintenance(ObjectKey::of(m.as_ref()))),
            Observed::Job(j) => (Kind::Job, AnyKey::Job(j.key())),
            Observed::Namespace(name, _) => (Kind::Namespace, AnyKey::Namespace(name.clone())),
        })
    }

    fn key_of(kind: Kind, key: ObjectKey) -> AnyKey {
        let ObjectKey { namespace, name } = key.clone();
        match kind {
            Kind::Repository => AnyKey::Repository(RepositoryKey::Repository { namespace, name }),
            Kind::ClusterRepository => AnyKey::Repository(RepositoryKey::ClusterRepository { name }),
            Kind::Policy => AnyKey::Policy(key),
            Kind::Schedule => AnyKey::Schedule(key),
            Kind::Snapshot => AnyKey::Snapshot(key),
            Kind::Restore => AnyKey::Restore(key),
            Kind::Maintenance => AnyKey::Maintenance(key),
            Kind::Job => AnyKey::Job(key),
            Kind::Namespace => AnyKey::Namespace(name),
        }
    }

    fn known(&self, kind: Kind) -> Vec<AnyKey> {
        let repositories = |cluster: bool| {
            let of_kind =
                move |k: &&RepositoryKey| matches!(k, RepositoryKey::ClusterRepository { .. }) == cluster;
            self.repositories
                .keys()
                .filter(of_kind)
                .cloned()
                .map(AnyKey::Repository)
                .collect()
        };
        match kind {
            Kind::Repository => repositories(false),
            Kind::ClusterRepository => repositories(true),
            Kind::Policy => self.policies.keys().cloned().map(AnyKey::Policy).collect(),
            Kind::Schedule => self.schedules.keys().cloned().map(AnyKey::Schedule).collect(),
            Kind::Snapshot => self.snapshots.keys().cloned().map(AnyKey::Snapshot).collect(),
            Kind::Restore => self.restores.keys().cloned().map(AnyKey::Restore).collect(),
            Kind::Maintenance => self
                .maintenances
                .keys()
                .cloned()
                .map(AnyKey::Maintenance)
                .collect(),
            Kind::Job => self.jobs.keys().cloned().map(AnyKey::Job).collect(),
            Kind::Namespace => self.namespaces.keys().cloned().map(AnyKey::Namespace).collect(),
        }
    }

    fn set(&mut self, observed: Observed, now: Timestamp, dirty: &mut BTreeSet<Dirty>) {
        match observed {
            Observed::Repository(new) => self.set_repository(Arc::new(*new), dirty),
            Observed::Policy(new) => self.set_policy(Arc::new(*new), dirty),
            Observed::Schedule(new) => self.set_schedule(Arc::new(*new), dirty),
            Observed::Snapshot(new) => self.set_snapshot(Arc::new(*new), now, dirty),
            Observed::Restore(new) => {
                let key = ObjectKey::of(new.as_ref());
                self.restores.insert(key.clone(), Arc::new(*new));
                dirty.insert(Dirty::Restore(key));
            }
            Observed::Maintenance(new) => self.set_maintenance(Arc::new(*new), dirty),
            Observed::Job(new) => self.set_job(Arc::new(*new), dirty),
            Observed::Namespace(name, view) => {
                let before = self.namespaces.insert(name.clone(), view.clone());
                if before.as_ref() != Some(&view) {
                    self.namespace_changed(&name, dirty);
                }
            }
        }
    }

    fn gone(&mut self, key: &AnyKey, dirty: &mut BTreeSet<Dirty>) {
        match key {
            AnyKey::Repository(key) => {
                if let Some(old) = self.repositories.remove(key) {
                    self.unlink_repository(&old);
                    self.repository_changed(key, Some(&old), dirty);
                }
            }
            AnyKey::Policy(key) => {
                if let Some(old) = self.policies.remove(key) {
                    self.unlink_policy(key, &old);
                    self.policy_changed(key, dirty);
                }
            }
            AnyKey::Schedule(key) => {
                if let Some(old) = self.schedules.remove(key) {
                    self.unlink_schedule(key, &old);
                    self.schedule_changed(key, old.metadata.uid.as_deref(), dirty);
                }
            }
            AnyKey::Snapshot(key) => {
                if let Some(old) = self.snapshots.remove(key) {
                    self.snapshot_dirties(&old, dirty);
                    self.unlink_snapshot(&old);
                    self.first_seen.remove(old.uid());
                }
            }
            AnyKey::Restore(key) => {
                self.restores.remove(key);
            }
            AnyKey::Maintenance(key) => {
                if let Some(old) = self.maintenances.remove(key) {
                    self.maintenance_changed(key, &old, dirty);
                }
            }
            AnyKey::Job(key) => {
                if let Some(old) = self.jobs.remove(key) {
                    self.unlink_job(&old);
                    self.job_changed(&old, dirty);
                }
            }
            AnyKey::Namespace(name) => {
                if self.namespaces.remove(name).is_some() {
                    self.namespace_changed(name, dirty);
                }
            }
        }
    }

    // --- repositories

    fn set_repository(&mut self, new: Arc<RepositoryView>, dirty: &mut BTreeSet<Dirty>) {
        let key = new.key.clone();
        let old = self.repositories.insert(key.clone(), Arc::clone(&new));
        if let Some(old) = &old {
            self.unlink_repository(old);
        }
        if let Some(id) = new.unique_id() {
            link(&mut self.by_unique_id, id.to_owned(), key.clone());
        }
        self.repository_changed(&key, old.as_deref(), dirty);
    }

    fn unlink_repository(&mut self, old: &RepositoryView) {
        if let Some(id) = old.unique_id() {
            unlink(&mut self.by_unique_id, &id.to_owned(), &old.key);
        }
    }

    fn repository_changed(
        &self,
        key: &RepositoryKey,
        old: Option<&RepositoryView>,
        dirty: &mut BTreeSet<Dirty>,
    ) {
        dirty.insert(Dirty::Repository(key.clone()));
        dirty.insert(Dirty::Lane(self.lane_of(key)));
        dirty.insert(Dirty::Lane(LaneKey::Unresolved));
        let known = |r: &RepositoryView| (r.status.clone(), r.metadata.generation);
        if old.map(known) != self.repositories.get(key).map(|r| known(r)) {
            self.wake_maintenances(&self.lane_of(key), dirty);
        }
        if let Some(id) = old.and_then(RepositoryView::unique_id) {
            dirty.insert(Dirty::Lane(LaneKey::Physical(id.to_owned())));
        }
        if old.is_none() || old.is_some_and(|o| o.unique_id().is_none()) {
            dirty.insert(Dirty::Lane(LaneKey::Unconnected(key.clone())));
        }
        // Objects over one physical repository name each other.
        let now = self.repositories.get(key).and_then(|r| r.unique_id());
        let before = old.and_then(RepositoryView::unique_id);
        if now != before {
            let ids = now.into_iter().chain(before);
            let others = ids.filter_map(|id| self.by_unique_id.get(id)).flatten();
            dirty.extend(others.cloned().map(Dirty::Repository));
        }
        // Runs that wait for the repository look again only when what they wait for could have changed.
        let usable = |r: &RepositoryView| (r.status.phase, r.spec.suspend, r.metadata.generation);
        if old.map(usable) != self.repositories.get(key).map(|r| usable(r)) {
            for policy in self.policies_by_repository.get(key).into_iter().flatten() {
                dirty.insert(Dirty::Policy(policy.clone()));
                dirty.extend(self.schedules_of(policy));
                for snapshot in self.unfinished.get(policy).into_iter().flatten() {
                    dirty.insert(Dirty::Snapshot(snapshot.clone()));
                }
            }
        }
    }

    // --- maintenance: there is about one for each repository, so they are looked through

    fn set_maintenance(&mut self, new: Arc<Maintenance>, dirty: &mut BTreeSet<Dirty>) {
        let key = ObjectKey::of(new.as_ref());
        let old = self.maintenances.insert(key.clone(), Arc::clone(&new));
        if old.is_none_or(|old| old.metadata.generation != new.metadata.generation) {
            self.maintenance_changed(&key, &new, dirty);
        }
        dirty.insert(Dirty::Maintenance(key));
    }

    /// It and those of the same repository: one of them has its turn.
    fn maintenance_changed(&self, key: &ObjectKey, changed: &Maintenance, dirty: &mut BTreeSet<Dirty>) {
        if let Some(repository) = keys::resolve(&changed.spec.repository, &key.namespace) {
            self.wake_maintenances(&self.lane_of(&repository), dirty);
            dirty.insert(Dirty::Repository(repository));
        }
    }

    fn wake_maintenances(&self, lane: &LaneKey, dirty: &mut BTreeSet<Dirty>) {
        let those = self.maintenances.iter().filter(|(key, view)| {
            keys::resolve(&view.spec.repository, &key.namespace)
                .is_some_and(|repository| self.lane_of(&repository) == *lane)
        });
        dirty.extend(those.map(|(key, _)| Dirty::Maintenance(key.clone())));
    }

    // --- policies and schedules

    fn policy_repository(key: &ObjectKey, policy: &SnapshotPolicy) -> Option<RepositoryKey> {
        keys::resolve(policy.spec.repository.as_ref()?, &key.namespace)
    }

    fn set_policy(&mut self, new: Arc<SnapshotPolicy>, dirty: &mut BTreeSet<Dirty>) {
        let key = ObjectKey::of(new.as_ref());
        let old = self.policies.insert(key.clone(), Arc::clone(&new));
        if let Some(old) = &old {
            self.unlink_policy(&key, old);
        }
        if let Some(repository) = Self::policy_repository(&key, &new) {
            link(&mut self.policies_by_repository, repository, key.clone());
        }
        dirty.insert(Dirty::Policy(key.clone()));
        let judged = |p: &SnapshotPolicy| (p.metadata.generation, p.metadata.labels.clone());
        if old.is_none_or(|o| judged(&o) != judged(&new)) {
            self.policy_changed(&key, dirty);
        }
    }

    fn unlink_policy(&mut self, key: &ObjectKey, old: &SnapshotPolicy) {
        if let Some(repository) = Self::policy_repository(key, old) {
            unlink(&mut self.policies_by_repository, &repository, key);
        }
    }

    fn policy_changed(&self, key: &ObjectKey, dirty: &mut BTreeSet<Dirty>) {
        dirty.insert(Dirty::Policy(key.clone()));
        dirty.extend(self.schedules_of(key));
        for snapshot in self.unfinished.get(key).into_iter().flatten() {
            dirty.insert(Dirty::Snapshot(snapshot.clone()));
        }
        // Unpinned pending Snapshots resolve through their policy.
        if self.pending.get(&None).is_some_and(|set| !set.is_empty()) {
            dirty.insert(Dirty::Lane(LaneKey::Unresolved));
            if let Some(repository) = self
                .policies
                .get(key)
                .and_then(|p| Self::policy_repository(key, p))
            {
                dirty.insert(Dirty::Lane(self.lane_of(&repository)));
            }
        }
    }

    /// The schedules that name a policy, and those that may select it.
    fn schedules_of<'a>(&'a self, policy: &ObjectKey) -> impl Iterator<Item = Dirty> + 'a {
        let naming = self.schedules_by_policy.get(policy).into_iter().flatten();
        let selecting = self.selecting_schedules.get(&policy.namespace);
        let all = naming.chain(selecting.into_iter().flatten());
        all.cloned().map(Dirty::Schedule)
    }

    fn schedule_policy(key: &ObjectKey, schedule: &SnapshotSchedule) -> Option<ObjectKey> {
        Some(ObjectKey::new(
            &key.namespace,
            &schedule.spec.policy_ref.as_ref()?.name,
        ))
    }

    fn set_schedule(&mut self, new: Arc<SnapshotSchedule>, dirty: &mut BTreeSet<Dirty>) {
        let key = ObjectKey::of(new.as_ref());
        let old = self.schedules.insert(key.clone(), Arc::clone(&new));
        if let Some(old) = &old {
            self.unlink_schedule(&key, old);
            if old.metadata.uid != new.metadata.uid {
                self.schedule_changed(&key, old.metadata.uid.as_deref(), dirty);
            }
        }
        if let Some(policy) = Self::schedule_policy(&key, &new) {
            link(&mut self.schedules_by_policy, policy, key.clone());
        }
        if new.spec.policy_selector.is_some() {
            link(&mut self.selecting_schedules, key.namespace.clone(), key.clone());
        }
        self.schedule_changed(&key, new.metadata.uid.as_deref(), dirty);
    }

    fn unlink_schedule(&mut self, key: &ObjectKey, old: &SnapshotSchedule) {
        if let Some(policy) = Self::schedule_policy(key, old) {
            unlink(&mut self.schedules_by_policy, &policy, key);
        }
        unlink(&mut self.selecting_schedules, &key.namespace, key);
    }

    fn schedule_changed(&self, key: &ObjectKey, uid: Option<&str>, dirty: &mut BTreeSet<Dirty>) {
        dirty.insert(Dirty::Schedule(key.clone()));
        for snapshot in uid
            .and_then(|uid| self.pending_by_schedule.get(uid))
            .into_iter()
            .flatten()
        {
            if let Some(view) = self.snapshots.get(snapshot) {
                dirty.insert(Dirty::Lane(self.lane_of_snapshot(view)));
            }
        }
    }

    fn namespace_changed(&self, name: &str, dirty: &mut BTreeSet<Dirty>) {
        for snapshot in self.pending_by_namespace.get(name).into_iter().flatten() {
            if let Some(view) = self.snapshots.get(snapshot) {
                dirty.insert(Dirty::Lane(self.lane_of_snapshot(view)));
            }
        }
        for key in self
            .repositories
            .keys()
            .filter(|k| k.namespace().is_none_or(|n| n == name))
        {
            dirty.insert(Dirty::Repository(key.clone()));
        }
    }

    // --- Snapshots

    fn set_snapshot(&mut self, new: Arc<SnapshotView>, now: Timestamp, dirty: &mut BTreeSet<Dirty>) {
        let key = new.key();
        if let Some(old) = self.snapshots.insert(key.clone(), Arc::clone(&new)) {
            self.unlink_snapshot(&old);
            if old.uid() != new.uid() {
                self.first_seen.remove(old.uid());
            }
            // Not pending any more (made anew under the name, or restored) also changes the lane it was in.
            if old.pin() != new.pin() || (old.is_pending_deletion() && !new.is_pending_deletion()) {
                self.snapshot_dirties(&old, dirty);
            }
        }
        if let Some(policy) = new.policy() {
            if !is_finished(&new) {
                link(&mut self.unfinished, policy.clone(), key.clone());
            }
            link(&mut self.by_policy, policy, key.clone());
        }
        if let Some((uid, _)) = new.schedule_owner() {
            link(&mut self.by_schedule, uid.to_owned(), key.clone());
        }
        if let Some(id) = new.snapshot_id() {
            link(&mut self.by_snapshot_id, id.to_owned(), key.clone());
        }
        if new.is_pending_deletion() {
            self.first_seen.entry(new.uid().to_owned()).or_insert(now);
            link(&mut self.pending, new.pin(), key.clone());
            link(&mut self.pending_by_namespace, key.namespace.clone(), key.clone());
            if let Some((uid, _)) = new.schedule_owner() {
                link(&mut self.pending_by_schedule, uid.to_owned(), key);
            }
        }
        self.snapshot_dirties(&new, dirty);
    }

    fn unlink_snapshot(&mut self, old: &SnapshotView) {
        let key = old.key();
        if let Some(policy) = old.policy() {
            unlink(&mut self.by_policy, &policy, &key);
            unlink(&mut self.unfinished, &policy, &key);
        }
        if let Some((uid, _)) = old.schedule_owner() {
            unlink(&mut self.by_schedule, &uid.to_owned(), &key);
            unlink(&mut self.pending_by_schedule, &uid.to_owned(), &key);
        }
        if let Some(id) = old.snapshot_id() {
            unlink(&mut self.by_snapshot_id, &id.to_owned(), &key);
        }
        unlink(&mut self.pending, &old.pin(), &key);
        unlink(&mut self.pending_by_namespace, &key.namespace, &key);
    }

    fn snapshot_dirties(&self, view: &SnapshotView, dirty: &mut BTreeSet<Dirty>) {
        if view.metadata.deletion_timestamp.is_some() {
            dirty.insert(Dirty::Lane(self.lane_of_snapshot(view)));
        } else {
            dirty.insert(Dirty::Snapshot(view.key()));
        }
        if let Some(policy) = view.policy() {
            dirty.insert(Dirty::Policy(policy));
        }
        if let Some((_, name)) = view.schedule_owner() {
            dirty.insert(Dirty::Schedule(ObjectKey::new(view.key().namespace, name)));
        }
    }

    // --- Jobs

    fn set_job(&mut self, new: Arc<JobView>, dirty: &mut BTreeSet<Dirty>) {
        let key = new.key();
        if let Some(old) = self.jobs.insert(key.clone(), Arc::clone(&new)) {
            self.unlink_job(&old);
        }
        if let Some(owner) = new.label(names::OWNER_UID_LABEL) {
            link(&mut self.jobs_by_owner, owner.to_owned(), key.clone());
        }
        if new.label(names::OP_LABEL) == Some(names::OP_DELETE_BATCH) {
            self.batch_jobs.insert(key);
        }
        self.job_changed(&new, dirty);
    }

    fn unlink_job(&mut self, old: &JobView) {
        let key = old.key();
        if let Some(owner) = old.label(names::OWNER_UID_LABEL) {
            unlink(&mut self.jobs_by_owner, &owner.to_owned(), &key);
        }
        self.batch_jobs.remove(&key);
    }

    /// A Job wakes the object that its annotations name.
    fn job_changed(&self, job: &JobView, dirty: &mut BTreeSet<Dirty>) {
        let key = job.key();
        let named = job.annotation(names::WORKS_FOR).unwrap_or_default();
        match job.label(names::OP_LABEL) {
            Some(names::OP_BACKUP) => {
                let snapshot = ObjectKey::new(&key.namespace, named);
                match self.snapshots.get(&snapshot) {
                    Some(view) => self.snapshot_dirties(view, dirty),
                    None => {
                        dirty.insert(Dirty::Snapshot(snapshot));
                    }
                }
            }
            Some(names::OP_PIN) => {
                dirty.insert(Dirty::Snapshot(ObjectKey::new(&key.namespace, named)));
                // A delete Job that waits for it.
                if let Some(id) = job.annotation(names::PINS_IN).filter(|_| job.is_terminal()) {
                    dirty.insert(Dirty::Lane(LaneKey::Physical(id.to_owned())));
                }
            }
            Some(names::OP_RESTORE | names::OP_RESOLVE) => {
                dirty.insert(Dirty::Restore(ObjectKey::new(&key.namespace, named)));
            }
            Some(names::OP_BOOTSTRAP | names::OP_LIST) => {
                if let Some(repository) = crate::jobs::parse_repository(named) {
                    dirty.insert(Dirty::Repository(repository));
                }
            }
            Some(names::OP_MAINTENANCE) => {
                dirty.insert(Dirty::Maintenance(ObjectKey::new(&key.namespace, named)));
                // A delete Job that waits for it, and other objects over the same repository.
                if let Some(id) = job.annotation(names::MAINTAINS).filter(|_| job.is_terminal()) {
                    let lane = LaneKey::Physical(id.to_owned());
                    self.wake_maintenances(&lane, dirty);
                    dirty.insert(Dirty::Lane(lane));
                }
            }
            Some(names::OP_DELETE_BATCH) => {
                if let Some(repository) = crate::jobs::parse_repository(named) {
                    dirty.insert(Dirty::Lane(self.lane_of(&repository)));
                    self.wake_maintenances(&self.lane_of(&repository), dirty);
                }
            }
            _ => {}
        }
    }

    // --- lanes

    pub(super) fn lane_of(&self, repository: &RepositoryKey) -> LaneKey {
        match self.repositories.get(repository) {
            Some(view) => match view.unique_id() {
                Some(id) => LaneKey::Physical(id.to_owned()),
                None => LaneKey::Unconnected(repository.clone()),
            },
            None => LaneKey::Unresolved,
        }
    }

    fn lane_of_snapshot(&self, view: &SnapshotView) -> LaneKey {
        match self.resolve(view) {
            ResolvedTo::Repository(key) => self.lane_of(&key),
            ResolvedTo::Gone | ResolvedTo::Unknown => LaneKey::Unresolved,
        }
    }

    pub(super) fn repositories_of(&self, lane: &LaneKey) -> Vec<Arc<RepositoryView>> {
        match lane {
            LaneKey::Physical(id) => {
                let keys = self.by_unique_id.get(id).into_iter().flatten();
                keys.filter_map(|k| self.repositories.get(k).cloned()).collect()
            }
            // Once connected it belongs to its physical lane: this one is empty, whoever still asks for it.
            LaneKey::Unconnected(key) => self
                .repositories
                .get(key)
                .filter(|r| r.unique_id().is_none())
                .cloned()
                .into_iter()
                .collect(),
            LaneKey::Unresolved => Vec::new(),
        }
    }

    pub(super) fn policies_of(&self, lane: &LaneKey) -> Vec<Arc<SnapshotPolicy>> {
        let repositories = self.repositories_of(lane);
        let keys = repositories
            .iter()
            .filter_map(|r| self.policies_by_repository.get(&r.key));
        keys.flatten()
            .filter_map(|key| self.policies.get(key).cloned())
            .collect()
    }

    pub(super) fn unfinished_of(&self, lane: &LaneKey) -> Vec<Arc<SnapshotView>> {
        let repositories = self.repositories_of(lane);
        let policies = repositories
            .iter()
            .filter_map(|r| self.policies_by_repository.get(&r.key))
            .flatten();
        policies
            .filter_map(|policy| self.unfinished.get(policy))
            .flatten()
            .filter_map(|key| self.snapshots.get(key))
            .filter(|view| view.metadata.deletion_timestamp.is_none())
            .cloned()
            .collect()
    }

    fn member(&self, key: &ObjectKey) -> Option<Pending> {
        let snapshot = self.snapshots.get(key)?;
        let first_seen = *self.first_seen.get(snapshot.uid())?;
        Some(Pending {
            snapshot: Arc::clone(snapshot),
            first_seen,
        })
    }

    pub(super) fn pending(&self, lane: &LaneKey) -> Vec<Pending> {
        let mut out = Vec::new();
        let pins: Vec<Option<RepositoryKey>> = match lane {
            LaneKey::Physical(_) | LaneKey::Unconnected(_) => self
                .repositories_of(lane)
                .iter()
                .map(|r| Some(r.key.clone()))
                .collect(),
            // Pins to objects that do not exist: few keys, each a repository that went.
            LaneKey::Unresolved => self
                .pending
                .keys()
                .filter(|p| p.as_ref().is_some_and(|k| !self.repositories.contains_key(k)))
                .cloned()
                .collect(),
        };
        for pin in &pins {
            out.extend(
                self.pending
                    .get(pin)
                    .into_iter()
                    .flatten()
                    .filter_map(|k| self.member(k)),
            );
        }
        let unpinned = self
            .pending
            .get(&None)
            .into_iter()
            .flatten()
            .filter_map(|k| self.member(k));
        out.extend(unpinned.filter(|m| self.lane_of_snapshot(&m.snapshot) == *lane));
        out
    }

    pub(super) fn unplaced(&self, lane: &LaneKey) -> Vec<Pending> {
        let unpinned = self
            .pending
            .get(&None)
            .into_iter()
            .flatten()
            .filter_map(|k| self.member(k));
        unpinned
            .filter(|m| self.lane_of_snapshot(&m.snapshot) != *lane)
            .collect()
    }

    pub(super) fn resolve(&self, snapshot: &SnapshotView) -> ResolvedTo {
        if let Some(status) = &snapshot.status
            && let Some(reference) = status.resolved.as_ref().and_then(|r| r.repository.as_ref())
        {
            return match keys::resolve(reference, &snapshot.key().namespace) {
                Some(key) => self.exists(key),
                None => ResolvedTo::Unknown,
            };
        }
        let Some(policy) = snapshot.policy() else {
            return ResolvedTo::Gone;
        };
        match self.policies.get(&policy) {
            Some(found) => self.resolve_through(found),
            None if self.synced.contains(&Kind::Policy) => ResolvedTo::Gone,
            None => ResolvedTo::Unknown,
        }
    }

    pub(super) fn resolve_through(&self, policy: &SnapshotPolicy) -> ResolvedTo {
        let namespace = policy.metadata.namespace.as_deref().unwrap_or_default();
        let named = policy.spec.repository.as_ref();
        match named.map(|r| keys::resolve(r, namespace)) {
            Some(Some(key)) => self.exists(key),
            Some(None) => ResolvedTo::Unknown,
            None => ResolvedTo::Gone,
        }
    }

    fn exists(&self, key: RepositoryKey) -> ResolvedTo {
        let synced =
            self.synced.contains(&Kind::Repository) && self.synced.contains(&Kind::ClusterRepository);
        if self.repositories.contains_key(&key) {
            ResolvedTo::Repository(key)
        } else if synced {
            ResolvedTo::Gone
        } else {
            ResolvedTo::Unknown
        }
    }

    pub(super) fn live_sharer(&self, lane: &LaneKey, id: &str, but: &ObjectKey) -> Option<ObjectKey> {
        self.live_recorders(lane, id)
            .map(|s| s.key())
            .find(|key| key != but)
    }

    pub(super) fn live_recorders<'a>(
        &'a self,
        lane: &'a LaneKey,
        id: &str,
    ) -> impl Iterator<Item = &'a Arc<SnapshotView>> {
        let recorders = self.by_snapshot_id.get(id).into_iter().flatten();
        recorders.filter_map(|k| self.snapshots.get(k)).filter(move |s| {
            s.metadata.deletion_timestamp.is_none() && !s.is_discovered() && self.could_be_of(s, lane)
        })
    }

    /// Whether a Snapshot's data may be in the repository of a lane: unless it is known to be in another one. Its
    /// repository object may be gone, not connected, or connected to something else since.
    pub(super) fn could_be_of(&self, view: &SnapshotView, lane: &LaneKey) -> bool {
        let resolved = view.status.as_ref().and_then(|s| s.resolved.as_ref());
        match (resolved.and_then(|r| r.unique_id.as_ref()), lane) {
            (Some(recorded), LaneKey::Physical(id)) => recorded == id,
            (Some(_) | None, _) => match self.lane_of_snapshot(view) {
                LaneKey::Unresolved | LaneKey::Unconnected(_) => true,
                physical @ LaneKey::Physical(_) => physical == *lane,
            },
        }
    }

    pub(super) fn everything(&self) -> BTreeSet<Dirty> {
        let mut dirty = BTreeSet::new();
        dirty.extend(self.repositories.keys().cloned().map(Dirty::Repository));
        dirty.extend(self.repositories.keys().map(|k| Dirty::Lane(self.lane_of(k))));
        dirty.insert(Dirty::Lane(LaneKey::Unresolved));
        dirty.extend(self.policies.keys().cloned().map(Dirty::Policy));
        dirty.extend(self.schedules.keys().cloned().map(Dirty::Schedule));
        let live = self
            .snapshots
            .values()
            .filter(|s| s.metadata.deletion_timestamp.is_none());
        dirty.extend(live.map(|s| Dirty::Snapshot(s.key())));
        dirty.extend(self.restores.keys().cloned().map(Dirty::Restore));
        dirty.extend(self.maintenances.keys().cloned().map(Dirty::Maintenance));
        dirty
    }
}

/// Whether a Snapshot has reached an end and nothing but its own deletion can change it.
fn is_finished(view: &SnapshotView) -> bool {
    match view.phase() {
        Some(
            SnapshotPhase::Succeeded
            | SnapshotPhase::Failed
            | SnapshotPhase::Unchanged
            | SnapshotPhase::Discovered
            | SnapshotPhase::Deleting,
        ) => true,
        Some(SnapshotPhase::Pending | SnapshotPhase::Running | SnapshotPhase::Unknown) | None => false,
    }
}
