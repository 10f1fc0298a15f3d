//! All records, found by what decisions ask for, with their sums kept up to date.
//!
//! **Promises.** Applying a change costs time that does not grow with the number of records. Everything here can be
//! built again from the records alone, and is then the same.
//!
//! **Assumes.** One ledger holds every record there is; one writer applies changes.

use super::figures::Figures;
use super::identity::{Location, StrategyKind};
use super::record::{Application, BackupEntry, Record, RemoveReason, State};
use super::words;
use jiff::{SignedDuration, Timestamp};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// One write to the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Create the record, or replace what it says.
    Write(Box<Record>),
    /// Delete the record.
    Remove {
        /// Its name.
        name: String,
        /// Why.
        reason: RemoveReason,
    },
}

impl Change {
    /// The record it is about.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Write(record) => &record.name,
            Self::Remove { name, .. } => name,
        }
    }
}

type Name = Arc<str>;
type Found = BTreeSet<Name>;

words! {
    /// What the ledger is when an operator begins to lead.
    Start {
        /// There never was one here: what was deleted before is not counted.
        First => "LedgerFirstStart",
        /// The records are there.
        Resumed => "LedgerResumed",
        /// There was one and its records are lost: live Backups are counted anew, retained begins at zero. A person
        /// is told.
        Rebuilt => "LedgerRebuilt",
    }
}

/// What the installation marker, which outlives the records, says beside them.
#[must_use]
pub fn start(marker_says_records: Option<bool>, there_are_records: bool) -> Start {
    match (marker_says_records, there_are_records) {
        (_, true) | (Some(false), false) => Start::Resumed,
        (Some(true), false) => Start::Rebuilt,
        (None, false) => Start::First,
    }
}

/// The size of an application's next run, as far as earlier ones tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Estimate {
    /// The last known size of the same application.
    OfApplication(i64),
    /// The largest known size in the namespace.
    OfNamespace(i64),
    /// No size is known in the namespace.
    None,
}

impl Estimate {
    /// The bytes; nothing known counts nothing here, the gate has a rule of its own for that.
    #[must_use]
    pub fn bytes(self) -> i64 {
        match self {
            Self::OfApplication(bytes) | Self::OfNamespace(bytes) => bytes,
            Self::None => 0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Namespace {
    records: Found,
    figures: Figures,
    in_flight: Found,
    /// Known sizes, for the largest.
    sizes: BTreeSet<(i64, Name)>,
    /// Known sizes of each application, by when they were attributed.
    by_application: BTreeMap<Application, BTreeMap<(Option<Timestamp>, Name), i64>>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ledger {
    records: BTreeMap<Name, Arc<Record>>,
    namespaces: BTreeMap<String, Namespace>,
    by_backup: HashMap<String, Found>,
    by_backup_name: HashMap<(String, String), Found>,
    runs_by_job_name: HashMap<(String, String), Found>,
    by_location: HashMap<(StrategyKind, Location), Found>,
    /// Records that time alone can end.
    timed: Found,
    results: Results,
}

/// The newest Backup of each name that this ledger has recorded. One that is gone by now was the result of its run all
/// the same, and the run is not charged once more for the lack of it. Kept by the process, not by records: what was
/// recorded and went before it began is told from the age of the job.
#[derive(Debug, Clone, Default)]
struct Results {
    newest: HashMap<(String, String), Option<Timestamp>>,
    /// So many lead to a look for old ones.
    look_at: usize,
}

/// Two ledgers are the same if their records are: what a process remembers beside them is no part of it.
impl PartialEq for Results {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Results {}

impl Results {
    /// After this long no run waits for its result any more.
    const KEPT: SignedDuration = SignedDuration::from_hours(48);
    /// Fewer are not worth a look.
    const FEW: usize = 10_000;

    fn note(&mut self, namespace: &str, backup: &BackupEntry) {
        let key = (namespace.to_owned(), backup.name.clone());
        let known = self.newest.entry(key).or_default();
        *known = (*known).max(backup.created_at);
        if self.newest.len() > self.look_at.max(Self::FEW) {
            let last = self.newest.values().flatten().max().copied();
            self.newest.retain(|_, at| {
                at.zip(last)
                    .is_some_and(|(at, last)| last.duration_since(at) < Self::KEPT)
            });
            self.look_at = self.newest.len().saturating_mul(2);
        }
    }
}

impl Ledger {
    /// Of these records.
    pub fn of(records: impl IntoIterator<Item = Record>) -> Self {
        let mut ledger = Self::default();
        for record in records {
            ledger.apply(&Change::Write(Box::new(record)));
        }
        ledger
    }

    /// Applies a change that was written.
    pub fn apply(&mut self, change: &Change) {
        let name = change.name();
        if let Some((name, old)) = self.records.remove_entry(name) {
            self.index(&name, &old, false);
        }
        match change {
            Change::Write(record) => {
                let name: Name = Arc::from(name);
                let record = Arc::new((**record).clone());
                for backup in record.backups.values() {
                    self.results.note(record.namespace(), backup);
                }
                self.index(&name, &record, true);
                self.records.insert(name, record);
            }
            Change::Remove { .. } => {}
        }
    }

    fn index(&mut self, name: &Name, record: &Record, add: bool) {
        let namespace = record.namespace().to_owned();
        for (uid, backup) in &record.backups {
            put(&mut self.by_backup, uid.clone(), name, add);
            put(
                &mut self.by_backup_name,
                (namespace.clone(), backup.name.clone()),
                name,
                add,
            );
        }
        if let Some(identity) = record.subject.identity()
            && let Some(location) = identity.location()
        {
            let key = (identity.strategy.clone(), location.clone());
            put(&mut self.by_location, key, name, add);
        }
        if let (State::InFlight, Some(job)) = (record.state, &record.job) {
            put(
                &mut self.runs_by_job_name,
                (namespace.clone(), job.name.clone()),
                name,
                add,
            );
        }
        let timed = match record.state {
            State::InFlight | State::PendingPurge | State::Released => true,
            State::Attributed | State::Retained | State::WrittenOff | State::Unknown => false,
        };
        if timed {
            set(&mut self.timed, name, add);
        }
        let known = self.namespaces.entry(namespace.clone()).or_default();
        known.change(name, record, add);
        if known.records.is_empty() {
            self.namespaces.remove(&namespace);
        }
    }

    /// A record by its name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Record> {
        self.records.get(name).map(AsRef::as_ref)
    }

    /// Every record, in the order of names.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.records.values().map(AsRef::as_ref)
    }

    /// How many records there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// How many of them stand for something in storage, or did: such a record is removed only a week after its bytes
    /// were released, others come and go with runs.
    #[must_use]
    pub fn artifacts(&self) -> usize {
        let runs = self.timed().filter(|record| record.state == State::InFlight);
        self.len().saturating_sub(runs.count())
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Namespaces that have a record, in order.
    pub fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(String::as_str)
    }

    /// Records of a namespace, in the order of names.
    pub fn of_namespace<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Record> {
        self.found(self.namespaces.get(namespace).map(|known| &known.records))
    }

    /// What a namespace's records add up to.
    #[must_use]
    pub fn figures(&self, namespace: &str) -> Figures {
        self.namespaces
            .get(namespace)
            .map(|known| known.figures)
            .unwrap_or_default()
    }

    /// The same, counted from scratch.
    #[must_use]
    pub fn recount(&self, namespace: &str) -> Figures {
        Figures::count_all(self.records().filter(|record| record.namespace() == namespace))
    }

    /// Runs under way in a namespace.
    pub fn in_flight<'a>(&'a self, namespace: &str) -> impl Iterator<Item = &'a Record> {
        self.found(self.namespaces.get(namespace).map(|known| &known.in_flight))
    }

    /// Records to which a Backup refers: one, unless a death came between two writes.
    pub fn of_backup<'a>(&'a self, uid: &str) -> impl Iterator<Item = &'a Record> {
        self.found(self.by_backup.get(uid))
    }

    /// UIDs of all Backups that records refer to.
    pub fn backup_uids(&self) -> impl Iterator<Item = &str> {
        self.by_backup.keys().map(String::as_str)
    }

    /// Runs under way whose BackupJob has this name.
    pub fn runs_named<'a>(&'a self, namespace: &str, job: &str) -> impl Iterator<Item = &'a Record> {
        self.found(self.runs_by_job_name.get(&(namespace.to_owned(), job.to_owned())))
    }

    /// Whether a Backup that can be the result of this run is recorded, or was: of the job's name, and not older than it.
    #[must_use]
    pub fn has_result_of(&self, namespace: &str, job: &str, created_at: Option<Timestamp>) -> bool {
        // Not known when: one run is charged once rather than twice for ever.
        let not_older =
            |backup: Option<Timestamp>| backup.zip(created_at).is_none_or(|(backup, job)| backup >= job);
        let key = (namespace.to_owned(), job.to_owned());
        let records = self.found(self.by_backup_name.get(&key));
        let recorded = records
            .flat_map(|record| record.backups.values())
            .any(|backup| backup.name == job && not_older(backup.created_at));
        recorded || self.results.newest.get(&key).copied().is_some_and(not_older)
    }

    /// Records of one place and key, whatever their namespace.
    pub fn at<'a>(
        &'a self,
        strategy: &StrategyKind,
        location: &Location,
    ) -> impl Iterator<Item = &'a Record> {
        self.found(self.by_location.get(&(strategy.clone(), location.clone())))
    }

    /// Records that time alone can end.
    pub fn timed(&self) -> impl Iterator<Item = &Record> {
        self.found(Some(&self.timed))
    }

    /// How large an application's next run may be.
    #[must_use]
    pub fn estimate(&self, namespace: &str, application: &Application) -> Estimate {
        let Some(known) = self.namespaces.get(namespace) else {
            return Estimate::None;
        };
        let own = known
            .by_application
            .get(application)
            .and_then(|sizes| sizes.last_key_value());
        match (own, known.sizes.last()) {
            (Some((_, bytes)), _) => Estimate::OfApplication(*bytes),
            (None, Some((bytes, _))) => Estimate::OfNamespace(*bytes),
            (None, None) => Estimate::None,
        }
    }

    fn found<'a>(&'a self, names: Option<&'a Found>) -> impl Iterator<Item = &'a Record> {
        names
            .into_iter()
            .flatten()
            .filter_map(|name| self.records.get(name).map(AsRef::as_ref))
    }
}

impl Namespace {
    fn change(&mut self, name: &Name, record: &Record, add: bool) {
        set(&mut self.records, name, add);
        if add {
            self.figures.add(record);
        } else {
            self.figures.remove(record);
        }
        if record.state == State::InFlight {
            set(&mut self.in_flight, name, add);
        }
        let Some(bytes) = record.size.bytes else {
            return;
        };
        let at = (record.times.attributed_at, name.clone());
        if add {
            self.sizes.insert((bytes, name.clone()));
            self.by_application
                .entry(record.application.clone())
                .or_default()
                .insert(at, bytes);
        } else {
            self.sizes.remove(&(bytes, name.clone()));
            if let Some(sizes) = self.by_application.get_mut(&record.application) {
                sizes.remove(&at);
                if sizes.is_empty() {
                    self.by_application.remove(&record.application);
                }
            }
        }
    }
}

fn set(names: &mut Found, name: &Name, add: bool) {
    if add {
        names.insert(name.clone());
    } else {
        names.remove(name);
    }
}

fn put<K: std::hash::Hash + Eq>(index: &mut HashMap<K, Found>, key: K, name: &Name, add: bool) {
    if add {
        index.entry(key).or_default().insert(name.clone());
    } else if let Some(names) = index.get_mut(&key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(&key);
        }
    }
}
