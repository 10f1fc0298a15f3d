//! The indexes behind [`super::World`].

use super::views::{
    BackupView, ClassView, DriverPhase, DriverView, JobView, NamespaceView, QuotaView, RequestView,
    StrategyRef, StrategyView,
};
use crate::account::definitions::Installed;
use holdfast_api::backups::TypedRef;
use holdfast_core::quota::driver::{DriverFacts, OwnRecord, Request, RunState};
use holdfast_core::quota::record::Application;
use holdfast_core::quota::{Location, StrategyKind};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// The kinds that are watched.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// ResourceQuota.
    Quota,
    /// Namespace.
    Namespace,
    /// Our own records; what they say is in [`crate::account::book`].
    Artifact,
    /// Backup.
    Backup,
    /// BackupJob.
    Job,
    /// BackupClass.
    Class,
    /// A kind of strategy.
    Strategy(StrategyKind),
    /// Velero's Backup.
    VeleroBackup,
    /// Velero's DeleteBackupRequest.
    VeleroRequest,
    /// CNPG's Backup.
    CnpgBackup,
}

impl Kind {
    /// Every kind that is always the same; kinds of strategies come and go.
    pub(in crate::account) const FIXED: [Kind; 9] = [
        Kind::Quota,
        Kind::Namespace,
        Kind::Artifact,
        Kind::Backup,
        Kind::Job,
        Kind::Class,
        Kind::VeleroBackup,
        Kind::VeleroRequest,
        Kind::CnpgBackup,
    ];

    /// Whether nothing can be said while this kind is not installed.
    fn is_needed(&self) -> bool {
        match self {
            Self::Quota | Self::Namespace | Self::Artifact => true,
            Self::Backup
            | Self::Job
            | Self::Class
            | Self::Strategy(_)
            | Self::VeleroBackup
            | Self::VeleroRequest
            | Self::CnpgBackup => false,
        }
    }
}

/// How far the watch of a kind is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stand {
    /// Whether it is installed is not known.
    #[default]
    Unknown,
    /// It is not installed.
    Absent,
    /// Its list is on its way.
    Listing,
    /// Its list has arrived.
    Synced,
}

/// One object as a watch delivered it.
#[derive(Debug, Clone)]
pub enum Observed {
    /// A ResourceQuota.
    Quota(Box<QuotaView>),
    /// A Namespace.
    Namespace(Box<NamespaceView>),
    /// A Backup.
    Backup(Box<BackupView>),
    /// A BackupJob.
    Job(Box<JobView>),
    /// A BackupClass.
    Class(Box<ClassView>),
    /// A strategy.
    Strategy(Box<StrategyView>),
    /// A Velero Backup.
    VeleroBackup(Box<DriverView>),
    /// A DeleteBackupRequest.
    VeleroRequest(Box<RequestView>),
    /// A CNPG Backup.
    CnpgBackup(Box<DriverView>),
    /// An object of a kind that does not decode.
    Unreadable(Kind, String),
}

/// One observation.
#[derive(Debug, Clone)]
pub enum Change {
    /// Added or changed; when it was seen.
    Set(Observed),
    /// Gone.
    Gone(Observed, Timestamp),
    /// A list of this kind begins: what it does not name is gone when it ends.
    ListBegins(Kind),
    /// The list ended.
    ListEnds(Kind, Timestamp),
    /// Which of the kinds that may be missing are installed; the others are not.
    Installed(Installed),
}

/// Something that has to be looked at again.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dirty {
    /// A Backup, by UID.
    Backup(Arc<str>),
    /// A BackupJob, by UID.
    Job(Arc<str>),
    /// A namespace appeared, changed its UID, or went.
    Namespace(String),
    /// The quotas of a namespace.
    Quotas(String),
    /// The records at this location.
    Location(Location),
    /// The runs of this BackupJob, by namespace and name.
    Run(String, String),
    /// A strategy's declaration.
    Strategy(StrategyRef),
}

/// Names one object, for lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Uid(Arc<str>),
    Named(String, String),
    Strategy(StrategyRef),
}

/// See the module.
#[derive(Default)]
pub(super) struct State {
    stands: HashMap<Kind, Stand>,
    /// The kinds of strategies that are installed.
    strategy_kinds: BTreeSet<StrategyKind>,
    installed_known: bool,
    listing: HashMap<Kind, HashSet<Key>>,
    pub(super) backups: HashMap<Arc<str>, Arc<BackupView>>,
    pub(super) jobs: HashMap<Arc<str>, Arc<JobView>>,
    job_names: HashSet<(Arc<str>, Box<str>)>,
    /// When runs had begun whose BackupJobs are gone.
    pub(super) begun: HashMap<Arc<str>, Timestamp>,
    unreadable: HashMap<Kind, HashSet<Arc<str>>>,
    classes: HashMap<String, ClassView>,
    pub(super) strategies: HashMap<StrategyRef, StrategyView>,
    pub(super) namespaces: HashMap<String, NamespaceView>,
    /// Their names, for readers that need all of them.
    pub(super) namespace_names: Arc<BTreeSet<String>>,
    pub(super) quotas: HashMap<String, BTreeMap<String, Arc<QuotaView>>>,
    velero_backups: HashMap<Key, DriverView>,
    velero_requests: HashMap<Key, RequestView>,
    cnpg_backups: HashMap<Key, DriverView>,
    /// What was seen of requests, by location, also after they were swept.
    requests: HashMap<Location, Request>,
    /// Driver records that were seen and are gone.
    gone: HashMap<Location, Timestamp>,
    runs: HashMap<(String, String), BTreeMap<String, DriverPhase>>,
    common: Common,
}

/// What many objects have in common, kept once.
#[derive(Default)]
struct Common {
    texts: HashSet<Arc<str>>,
    applications: HashSet<Arc<Application>>,
    strategies: HashSet<Arc<StrategyRef>>,
    /// Forget what nothing refers to any more when there are this many.
    sweep_at: usize,
}

fn one<T: ?Sized + Eq + Hash>(all: &mut HashSet<Arc<T>>, value: &Arc<T>) -> Arc<T> {
    if let Some(known) = all.get(value) {
        return Arc::clone(known);
    }
    all.insert(Arc::clone(value));
    Arc::clone(value)
}

impl Common {
    fn sweep(&mut self) {
        let all = self.texts.len() + self.applications.len() + self.strategies.len();
        if all < self.sweep_at.max(1_024) {
            return;
        }
        self.texts.retain(|text| Arc::strong_count(text) > 1);
        self.applications.retain(|one| Arc::strong_count(one) > 1);
        self.strategies.retain(|one| Arc::strong_count(one) > 1);
        self.sweep_at = 2 * (self.texts.len() + self.applications.len() + self.strategies.len());
    }
}

/// The location that a driver's own object stands for, as identities of Backups have it.
fn location(scheme: &str, place: &str, key: &str) -> Location {
    Location {
        place: format!("{scheme}://{place}"),
        key: key.to_owned(),
    }
}

const VELERO: &str = "velero";

impl State {
    pub(super) fn stand(&self, kind: &Kind) -> Stand {
        self.stands.get(kind).copied().unwrap_or_default()
    }

    fn kinds(&self) -> impl Iterator<Item = Kind> {
        let strategies = self.strategy_kinds.iter().cloned().map(Kind::Strategy);
        Kind::FIXED.into_iter().chain(strategies)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.installed_known && self.kinds().all(|kind| self.is_known(&kind))
    }

    fn is_known(&self, kind: &Kind) -> bool {
        match self.stand(kind) {
            Stand::Synced => true,
            Stand::Absent => !kind.is_needed(),
            Stand::Unknown | Stand::Listing => false,
        }
    }

    pub(super) fn waits_for(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .kinds()
            .filter(|kind| !self.is_known(kind))
            .map(|kind| format!("{kind:?}"))
            .collect();
        if !self.installed_known {
            all.push("CustomResourceDefinition".to_owned());
        }
        all
    }

    pub(super) fn is_unreadable(&self, uid: &str) -> bool {
        self.unreadable.values().any(|uids| uids.contains(uid))
    }

    pub(super) fn strategy_kinds(&self) -> Vec<StrategyKind> {
        self.strategy_kinds.iter().cloned().collect()
    }

    pub(super) fn apply(&mut self, change: Change) -> BTreeSet<Dirty> {
        let mut dirty = BTreeSet::new();
        match change {
            Change::Set(observed) => {
                let (kind, key) = key_of(&observed);
                if let Some(seen) = self.listing.get_mut(&kind) {
                    seen.insert(key.clone());
                }
                self.set(observed, key, &mut dirty);
            }
            Change::Gone(observed, now) => {
                let (kind, key) = key_of(&observed);
                if let Observed::Job(last) = &observed {
                    // What the deletion shows may be the first that is seen of the run.
                    self.had_begun(last);
                }
                self.gone(&kind, &key, now, &mut dirty);
            }
            Change::ListBegins(kind) => {
                let stand = self.stands.entry(kind.clone()).or_default();
                // A kind that was listed before is known while it is listed again.
                if *stand != Stand::Synced {
                    *stand = Stand::Listing;
                }
                self.listing.insert(kind, HashSet::new());
            }
            Change::ListEnds(kind, now) => {
                let seen = self.listing.remove(&kind).unwrap_or_default();
                for key in self.known(&kind) {
                    if !seen.contains(&key) {
                        self.gone(&kind, &key, now, &mut dirty);
                    }
                }
                self.stands.insert(kind, Stand::Synced);
            }
            Change::Installed(installed) => self.installed(installed, &mut dirty),
        }
        dirty
    }

    /// Kinds that are not installed are known to be empty; what was known of a kind that went proves nothing.
    fn installed(&mut self, installed: Installed, dirty: &mut BTreeSet<Dirty>) {
        self.installed_known = true;
        let gone: Vec<StrategyKind> = self
            .strategy_kinds
            .difference(&installed.strategies)
            .cloned()
            .collect();
        for kind in gone {
            self.stands.remove(&Kind::Strategy(kind.clone()));
            self.strategies.retain(|strategy, _| strategy.kind != kind);
        }
        self.strategy_kinds = installed.strategies;
        for kind in Kind::FIXED {
            let always = matches!(kind, Kind::Quota | Kind::Namespace);
            let there = always || installed.kinds.contains(&kind);
            let stand = self.stands.entry(kind.clone()).or_default();
            match (there, *stand) {
                (true, Stand::Unknown | Stand::Absent) => *stand = Stand::Listing,
                (true, Stand::Listing | Stand::Synced) => {}
                (false, Stand::Absent) => {}
                (false, Stand::Unknown | Stand::Listing | Stand::Synced) => {
                    *stand = Stand::Absent;
                    self.listing.remove(&kind);
                    self.forget(&kind, dirty);
                }
            }
        }
    }

    /// Drops what was known of a kind whose definition went. Backups and BackupJobs stay known: without their
    /// definition nobody can say that they were deleted one by one, and what they stand for is charged either way.
    fn forget(&mut self, kind: &Kind, dirty: &mut BTreeSet<Dirty>) {
        match kind {
            Kind::Class => self.classes.clear(),
            Kind::VeleroBackup => {
                for view in std::mem::take(&mut self.velero_backups).into_values() {
                    self.run_changed(&view, None, dirty);
                }
            }
            Kind::VeleroRequest => self.velero_requests.clear(),
            Kind::CnpgBackup => {
                for view in std::mem::take(&mut self.cnpg_backups).into_values() {
                    self.run_changed(&view, None, dirty);
                }
            }
            Kind::Backup | Kind::Job | Kind::Artifact | Kind::Quota | Kind::Namespace | Kind::Strategy(_) => {
            }
        }
    }

    fn known(&self, kind: &Kind) -> Vec<Key> {
        let uids = |readable: Vec<&Arc<str>>| -> Vec<Key> {
            let unreadable = self.unreadable.get(kind).into_iter().flatten();
            readable
                .into_iter()
                .chain(unreadable)
                .cloned()
                .map(Key::Uid)
                .collect()
        };
        match kind {
            Kind::Backup => uids(self.backups.keys().collect()),
            Kind::Job => uids(self.jobs.keys().collect()),
            Kind::Quota => {
                let of = |(namespace, all): (&String, &BTreeMap<String, _>)| -> Vec<Key> {
                    all.keys()
                        .map(|name| Key::Named(namespace.clone(), name.clone()))
                        .collect()
                };
                self.quotas.iter().flat_map(of).collect()
            }
            Kind::Namespace => named(self.namespaces.keys()),
            Kind::Class => named(self.classes.keys()),
            Kind::Strategy(kind) => {
                let of_kind = self.strategies.keys().filter(|strategy| strategy.kind == *kind);
                of_kind.cloned().map(Key::Strategy).collect()
            }
            Kind::VeleroBackup => self.velero_backups.keys().cloned().collect(),
            Kind::VeleroRequest => self.velero_requests.keys().cloned().collect(),
            Kind::CnpgBackup => self.cnpg_backups.keys().cloned().collect(),
            Kind::Artifact => Vec::new(),
        }
    }

    fn set(&mut self, observed: Observed, key: Key, dirty: &mut BTreeSet<Dirty>) {
        match observed {
            Observed::Backup(view) => self.set_backup(*view, dirty),
            Observed::Job(view) => self.set_job(*view, dirty),
            Observed::Class(view) => {
                let name = view.name.clone();
                if self.classes.insert(name.clone(), *view.clone()).as_ref() != Some(&view) {
                    self.class_changed(&name, dirty);
                }
            }
            Observed::Strategy(view) => {
                let strategy = view.strategy.clone();
                let before = self.strategies.insert(strategy.clone(), *view.clone());
                if before.and_then(|before| before.capabilities) != view.capabilities {
                    dirty.insert(Dirty::Strategy(strategy));
                }
            }
            Observed::Namespace(view) => {
                let name = view.name.clone();
                if !self.namespaces.contains_key(&name) {
                    Arc::make_mut(&mut self.namespace_names).insert(name.clone());
                }
                if self.namespaces.insert(name.clone(), *view.clone()).as_ref() != Some(&view) {
                    dirty.insert(Dirty::Namespace(name));
                }
            }
            Observed::Quota(view) => self.set_quota(*view, dirty),
            Observed::VeleroBackup(view) => {
                let at = location(VELERO, &view.namespace, &view.name);
                self.velero_backups.insert(key, *view.clone());
                if self.gone.remove(&at).is_some() {
                    // It is there again: what was done to an earlier one of this name says nothing about it.
                    self.requests.remove(&at);
                }
                self.run_changed(&view, Some(view.phase), dirty);
                dirty.insert(Dirty::Location(at));
            }
            Observed::VeleroRequest(view) => {
                let at = location(VELERO, &view.namespace, &view.backup);
                let known = self.requests.entry(at.clone()).or_default();
                let now = known.with(view.processed);
                if *known != now {
                    *known = now;
                    dirty.insert(Dirty::Location(at));
                }
                self.velero_requests.insert(key, *view);
            }
            Observed::CnpgBackup(view) => {
                self.run_changed(&view, Some(view.phase), dirty);
                self.cnpg_backups.insert(key, *view);
            }
            Observed::Unreadable(kind, uid) => {
                self.unreadable.entry(kind).or_default().insert(uid.into());
            }
        }
    }

    fn set_backup(&mut self, mut view: BackupView, dirty: &mut BTreeSet<Dirty>) {
        self.common.sweep();
        view.namespace = one(&mut self.common.texts, &view.namespace);
        view.application = one(&mut self.common.applications, &view.application);
        view.strategy = one(&mut self.common.strategies, &view.strategy);
        self.readable(&Kind::Backup, &view.uid);
        let uid = Arc::clone(&view.uid);
        if self.backups.get(&uid).is_some_and(|known| **known == view) {
            return;
        }
        self.backups.insert(Arc::clone(&uid), Arc::new(view));
        dirty.insert(Dirty::Backup(uid));
    }

    fn set_job(&mut self, mut view: JobView, dirty: &mut BTreeSet<Dirty>) {
        self.common.sweep();
        view.namespace = one(&mut self.common.texts, &view.namespace);
        view.class = one(&mut self.common.texts, &view.class);
        view.application = one(&mut self.common.applications, &view.application);
        self.readable(&Kind::Job, &view.uid);
        let uid = Arc::clone(&view.uid);
        if self.jobs.get(&uid).is_some_and(|known| **known == view) {
            return;
        }
        self.job_names
            .insert((Arc::clone(&view.namespace), view.name.clone()));
        self.jobs.insert(Arc::clone(&uid), Arc::new(view));
        dirty.insert(Dirty::Job(uid));
    }

    fn had_begun(&mut self, job: &JobView) {
        if let Some(at) = job.started_at {
            self.begun.entry(Arc::clone(&job.uid)).or_insert(at);
        }
    }

    fn set_quota(&mut self, view: QuotaView, dirty: &mut BTreeSet<Dirty>) {
        let (namespace, name) = (view.namespace.clone(), view.quota.name.clone());
        // An answer to our own write is newer than what the watch still brings.
        let newer = |known: &QuotaView| {
            known.uid == view.uid && is_older(&view.resource_version, &known.resource_version)
        };
        if self
            .quotas
            .get(&namespace)
            .and_then(|all| all.get(&name))
            .is_some_and(|known| newer(known))
        {
            return;
        }
        // A quota that has nothing to do with backups is not kept, however often it changes.
        let quota = &view.quota;
        if quota.hard.is_empty() && quota.used.is_empty() && quota.breakdown.is_none() {
            self.drop_quota(&namespace, &name, dirty);
            return;
        }
        let of_namespace = self.quotas.entry(namespace.clone()).or_default();
        let same = of_namespace.get(&name).is_some_and(|known| {
            let version = known.resource_version.clone();
            **known
                == QuotaView {
                    resource_version: version,
                    ..view.clone()
                }
        });
        of_namespace.insert(name, Arc::new(view));
        if !same {
            dirty.insert(Dirty::Quotas(namespace));
        }
    }

    fn drop_quota(&mut self, namespace: &str, name: &str, dirty: &mut BTreeSet<Dirty>) {
        let Some(of_namespace) = self.quotas.get_mut(namespace) else {
            return;
        };
        if of_namespace.remove(name).is_some() {
            dirty.insert(Dirty::Quotas(namespace.to_owned()));
        }
        if of_namespace.is_empty() {
            self.quotas.remove(namespace);
        }
    }

    fn readable(&mut self, kind: &Kind, uid: &str) {
        if let Some(unreadable) = self.unreadable.get_mut(kind) {
            unreadable.remove(uid);
        }
    }

    fn gone(&mut self, kind: &Kind, key: &Key, now: Timestamp, dirty: &mut BTreeSet<Dirty>) {
        match (kind, key) {
            (Kind::Backup, Key::Uid(uid)) => {
                let unreadable = self.unreadable.get_mut(kind).is_some_and(|all| all.remove(uid));
                if self.backups.remove(uid).is_some() || unreadable {
                    dirty.insert(Dirty::Backup(Arc::clone(uid)));
                }
            }
            (Kind::Job, Key::Uid(uid)) => {
                let unreadable = self.unreadable.get_mut(kind).is_some_and(|all| all.remove(uid));
                let known = self.jobs.remove(uid);
                if let Some(job) = &known {
                    self.had_begun(job);
                    self.job_names
                        .remove(&(Arc::clone(&job.namespace), job.name.clone()));
                }
                if known.is_some() || unreadable {
                    dirty.insert(Dirty::Job(Arc::clone(uid)));
                }
            }
            (Kind::Quota, Key::Named(namespace, name)) => self.drop_quota(namespace, name, dirty),
            (Kind::Namespace, Key::Named(_, name)) => {
                if self.namespaces.remove(name).is_some() {
                    Arc::make_mut(&mut self.namespace_names).remove(name);
                    dirty.insert(Dirty::Namespace(name.clone()));
                }
            }
            (Kind::Class, Key::Named(_, name)) => {
                if self.classes.remove(name).is_some() {
                    self.class_changed(name, dirty);
                }
            }
            (Kind::Strategy(_), Key::Strategy(strategy)) => {
                if self.strategies.remove(strategy).is_some() {
                    dirty.insert(Dirty::Strategy(strategy.clone()));
                }
            }
            (Kind::VeleroBackup, key) => {
                if let Some(view) = self.velero_backups.remove(key) {
                    let at = location(VELERO, &view.namespace, &view.name);
                    self.gone.insert(at.clone(), now);
                    self.run_changed(&view, None, dirty);
                    dirty.insert(Dirty::Location(at));
                }
            }
            (Kind::VeleroRequest, key) => _ = self.velero_requests.remove(key),
            (Kind::CnpgBackup, key) => {
                if let Some(view) = self.cnpg_backups.remove(key) {
                    self.run_changed(&view, None, dirty);
                }
            }
            // Keys of another kind's shape do not come up.
            (
                Kind::Backup
                | Kind::Job
                | Kind::Quota
                | Kind::Namespace
                | Kind::Class
                | Kind::Strategy(_)
                | Kind::Artifact,
                _,
            ) => {}
        }
    }

    fn run_changed(&mut self, view: &DriverView, phase: Option<DriverPhase>, dirty: &mut BTreeSet<Dirty>) {
        let Some(job) = &view.job else { return };
        let known = self.runs.entry(job.clone()).or_default();
        let before = match phase {
            Some(phase) => known.insert(view.uid.clone(), phase),
            // What it said of the run is not known any more.
            None => known.remove(&view.uid),
        };
        if known.is_empty() {
            self.runs.remove(job);
        }
        if before != phase {
            dirty.insert(Dirty::Run(job.0.clone(), job.1.clone()));
        }
    }

    /// A hint: a job that was deleted and made again in one moment may be missing.
    pub(super) fn has_job_named(&self, namespace: &str, name: &str) -> bool {
        self.job_names.contains(&(namespace.into(), name.into()))
    }

    fn class_changed(&self, name: &str, dirty: &mut BTreeSet<Dirty>) {
        // Classes change rarely; an index of jobs by class would cost on every job.
        let of_class = self.jobs.values().filter(|job| *job.class == *name);
        dirty.extend(of_class.map(|job| Dirty::Job(Arc::clone(&job.uid))));
    }

    pub(super) fn strategy_of(&self, job: &JobView) -> Option<StrategyRef> {
        let application = TypedRef {
            api_group: Some(job.application.group.clone()),
            kind: job.application.kind.clone(),
            name: job.application.name.clone(),
        };
        let class = self.classes.get(&*job.class)?;
        class.spec.strategy_for(&application).map(super::wire::strategy)
    }

    pub(super) fn driver_facts(&self, at: &Location) -> Option<DriverFacts> {
        let namespace = at.place.strip_prefix("velero://")?;
        let key = Key::Named(namespace.to_owned(), at.key.clone());
        let own_record = if self.velero_backups.contains_key(&key) {
            OwnRecord::Exists
        } else {
            self.gone
                .get(at)
                .map_or(OwnRecord::NeverSeen, |since| OwnRecord::Gone(*since))
        };
        Some(DriverFacts {
            request: self.requests.get(at).copied().unwrap_or_default(),
            own_record,
        })
    }

    /// Nothing refers to the location any more.
    pub(super) fn forget_location(&mut self, at: &Location) {
        self.requests.remove(at);
        self.gone.remove(at);
    }

    pub(super) fn driver_run(&self, namespace: &str, job: &str) -> RunState {
        let known = self.runs.get(&(namespace.to_owned(), job.to_owned()));
        known
            .into_iter()
            .flat_map(BTreeMap::values)
            .fold(RunState::NotKnown, |state, phase| {
                state.with(match phase {
                    DriverPhase::Running => RunState::Running,
                    DriverPhase::Completed => RunState::Completed,
                    DriverPhase::Failed => RunState::Failed,
                })
            })
    }
}

/// Whether one version of an object is certainly older than another.
pub(in crate::account) fn is_older(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version < than,
        // Not numbers: what a watch brings counts.
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn named<'a>(names: impl Iterator<Item = &'a String>) -> Vec<Key> {
    names
        .map(|name| Key::Named(String::new(), name.clone()))
        .collect()
}

fn key_of(observed: &Observed) -> (Kind, Key) {
    let cluster = |name: &String| Key::Named(String::new(), name.clone());
    match observed {
        Observed::Quota(view) => (
            Kind::Quota,
            Key::Named(view.namespace.clone(), view.quota.name.clone()),
        ),
        Observed::Namespace(view) => (Kind::Namespace, cluster(&view.name)),
        Observed::Backup(view) => (Kind::Backup, Key::Uid(Arc::clone(&view.uid))),
        Observed::Job(view) => (Kind::Job, Key::Uid(Arc::clone(&view.uid))),
        Observed::Class(view) => (Kind::Class, cluster(&view.name)),
        Observed::Strategy(view) => (
            Kind::Strategy(view.strategy.kind.clone()),
            Key::Strategy(view.strategy.clone()),
        ),
        Observed::VeleroBackup(view) => (
            Kind::VeleroBackup,
            Key::Named(view.namespace.clone(), view.name.clone()),
        ),
        Observed::VeleroRequest(view) => (
            Kind::VeleroRequest,
            Key::Named(view.namespace.clone(), view.name.clone()),
        ),
        Observed::CnpgBackup(view) => (
            Kind::CnpgBackup,
            Key::Named(view.namespace.clone(), view.name.clone()),
        ),
        Observed::Unreadable(kind, uid) => (kind.clone(), Key::Uid(uid.as_str().into())),
    }
}
