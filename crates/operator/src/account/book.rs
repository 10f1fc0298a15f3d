//! The ledger as this process knows it: what the watch of records shows, with what we wrote ourselves on top.
//!
//! **Promises.** A decision and the versions it rests on are taken under one lock, so a write that another one
//! overtook is refused by the API server, never carried out. What we wrote counts at once; an older event of the
//! watch does not bring the former state back. A record that somebody else deletes stays in the ledger of the leader,
//! who writes it again: what is used never falls because an object was deleted (`docs/design.md` 8, promise 7).
//!
//! **Assumes.** Resource versions of one kind grow; one that is no number is taken for new.

use super::world::is_older;
use holdfast_api::Artifact;
use holdfast_api::ledger::convert;
use holdfast_core::quota::{Change, Ledger, Record};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which object, in which version, a decision rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// UID of the object.
    pub uid: String,
    /// Its resource version.
    pub resource_version: String,
    /// It has got its status.
    pub is_told: bool,
}

impl Version {
    /// Of an object as the API server answered it.
    #[must_use]
    pub fn of(artifact: &Artifact) -> Self {
        Self {
            uid: artifact.metadata.uid.clone().unwrap_or_default(),
            resource_version: artifact.metadata.resource_version.clone().unwrap_or_default(),
            is_told: artifact.status.is_some(),
        }
    }
}

/// One change, with what it rests on.
#[derive(Debug, Clone)]
pub struct Step {
    /// The change.
    pub change: Change,
    /// The object as it was when this was decided; `None`: there was none.
    pub version: Option<Version>,
    /// The record as it was.
    pub before: Option<Record>,
}

#[derive(Default)]
struct Inner {
    ledger: Ledger,
    versions: HashMap<String, Version>,
    /// Names that the list under way has shown.
    listing: Option<HashSet<String>>,
    /// UIDs of objects that we are deleting.
    removing: HashSet<String>,
    /// Records whose object somebody else deleted.
    lost: BTreeSet<String>,
}

/// See the module.
#[derive(Default)]
pub struct Book {
    inner: Mutex<Inner>,
}

/// What an event of the watch of records changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Touched {
    /// Namespaces whose figures may be others now.
    pub namespaces: BTreeSet<String>,
    /// Records that have to be written again.
    pub lost: Vec<String>,
}

impl Book {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the ledger. Short: everything else waits.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.lock().ledger)
    }

    /// Decides, and takes note of what that rests on.
    pub fn decide(&self, decide: impl FnOnce(&Ledger) -> Vec<Change>) -> Vec<Step> {
        let inner = self.lock();
        let steps = decide(&inner.ledger).into_iter().map(|change| Step {
            version: inner.versions.get(change.name()).cloned(),
            before: inner.ledger.get(change.name()).cloned(),
            change,
        });
        steps.collect()
    }

    /// The list of records begins.
    pub fn list_begins(&self) {
        self.lock().listing = Some(HashSet::new());
    }

    /// The list ended; what it did not name is gone. `keep`: this process leads.
    pub fn list_ends(&self, keep: bool) -> Touched {
        let mut inner = self.lock();
        let listed = inner.listing.take().unwrap_or_default();
        let gone: Vec<String> = inner
            .versions
            .keys()
            .filter(|name| !listed.contains(*name))
            .cloned()
            .collect();
        let mut touched = Touched::default();
        for name in gone {
            inner.gone(&name, keep, &mut touched);
        }
        // The events of deletions that fell into the gap never come.
        let there: HashSet<String> = inner
            .versions
            .values()
            .map(|version| version.uid.clone())
            .collect();
        inner.removing.retain(|uid| there.contains(uid));
        touched
    }

    /// A record's object was seen.
    pub fn seen(&self, artifact: &Artifact) -> Touched {
        let mut inner = self.lock();
        let mut touched = Touched::default();
        let name = artifact.metadata.name.clone().unwrap_or_default();
        if let Some(listing) = &mut inner.listing {
            listing.insert(name.clone());
        }
        let version = Version::of(artifact);
        let known = inner.versions.get(&name);
        let stale = known.is_some_and(|known| {
            known.resource_version == version.resource_version
                || is_older(&version.resource_version, &known.resource_version)
        });
        if stale || inner.removing.contains(&version.uid) {
            return touched;
        }
        let record = convert::record(artifact);
        inner.set(record, version, &mut touched);
        touched
    }

    /// A record's object was deleted. `keep`: this process leads.
    pub fn deleted(&self, artifact: &Artifact, keep: bool) -> Touched {
        let mut inner = self.lock();
        let mut touched = Touched::default();
        let name = artifact.metadata.name.clone().unwrap_or_default();
        let uid = artifact.metadata.uid.as_deref().unwrap_or_default();
        // An older object of the name went; the one we know is another.
        if inner.versions.get(&name).is_some_and(|known| known.uid == uid) {
            inner.gone(&name, keep, &mut touched);
        }
        inner.removing.remove(uid);
        touched
    }

    /// We are about to delete this object.
    pub fn removing(&self, uid: &str) {
        self.lock().removing.insert(uid.to_owned());
    }

    /// It was not deleted.
    pub fn not_removed(&self, uid: &str) {
        self.lock().removing.remove(uid);
    }

    /// A change was written; `version` is what the API server answered. Returns the namespaces that it touches.
    pub fn wrote(&self, change: &Change, version: Option<Version>) -> BTreeSet<String> {
        let mut inner = self.lock();
        let mut touched = Touched::default();
        match (change, version) {
            (Change::Write(record), Some(version)) => {
                let overtaken = inner.versions.get(&record.name).is_some_and(|known| {
                    known.uid == version.uid && is_older(&version.resource_version, &known.resource_version)
                });
                if !overtaken {
                    inner.set((**record).clone(), version, &mut touched);
                }
            }
            // Nothing to write: the object says the same already.
            (Change::Write(record), None) => {
                touched.namespaces.insert(record.namespace().to_owned());
                inner.ledger.apply(change);
            }
            (Change::Remove { name, .. }, _) => {
                inner.versions.remove(name);
                inner.drop_record(name, &mut touched);
            }
        }
        touched.namespaces
    }

    /// A record that somebody else deleted, to be written again.
    pub fn lost(&self, name: &str) -> Option<Record> {
        let inner = self.lock();
        inner
            .lost
            .contains(name)
            .then(|| inner.ledger.get(name).cloned())
            .flatten()
    }
}

impl Inner {
    fn set(&mut self, record: Record, version: Version, touched: &mut Touched) {
        self.versions.insert(record.name.clone(), version);
        self.lost.remove(&record.name);
        if self.ledger.get(&record.name) == Some(&record) {
            return;
        }
        touched.namespaces.insert(record.namespace().to_owned());
        self.ledger.apply(&Change::Write(Box::new(record)));
    }

    fn drop_record(&mut self, name: &str, touched: &mut Touched) {
        if let Some(record) = self.ledger.get(name) {
            touched.namespaces.insert(record.namespace().to_owned());
            self.ledger.apply(&Change::Remove {
                name: name.to_owned(),
                // Nobody reads it: the object is gone.
                reason: holdfast_core::quota::RemoveReason::Forgotten,
            });
        }
        self.lost.remove(name);
    }

    fn gone(&mut self, name: &str, keep: bool, touched: &mut Touched) {
        let ours = self
            .versions
            .remove(name)
            .is_some_and(|known| self.removing.contains(&known.uid));
        if ours || !keep {
            self.drop_record(name, touched);
        } else if self.ledger.get(name).is_some() {
            self.lost.insert(name.to_owned());
            touched.lost.push(name.to_owned());
        }
    }
}

#[cfg(test)]
#[path = "book_tests.rs"]
mod tests;
