//! What was seen and is not in the ledger yet.
//!
//! **Promises.** A namespace counts as added up when the first look after taking over is done and everything it found
//! in the namespace is written. What is owed for longer than [`PATIENCE`] makes the namespace's figures stale.

use super::Item;
use jiff::Timestamp;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A write that takes longer than this is not merely on its way.
pub const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
struct Debt {
    namespace: String,
    since: Instant,
    last: Instant,
}

#[derive(Default)]
struct Inner {
    looked: bool,
    /// When the first look began, by the clock of objects.
    since: Option<Timestamp>,
    debts: HashMap<Item, Debt>,
    oldest: HashMap<String, BTreeSet<(Instant, Item)>>,
    /// What the first look found, by namespace.
    first: HashMap<String, HashSet<Item>>,
}

/// See the module.
#[derive(Default)]
pub struct Arrears {
    inner: Mutex<Inner>,
}

impl Arrears {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new term, or a list that has to be added up anew; nobody looks yet.
    pub fn begin(&self) {
        *self.lock() = Inner::default();
    }

    /// The first look begins.
    pub fn looks(&self, now: Timestamp) {
        *self.lock() = Inner {
            since: Some(now),
            ..Inner::default()
        };
    }

    /// Whether an object of this age was made while somebody looked.
    #[must_use]
    pub fn is_new(&self, created_at: Option<Timestamp>) -> bool {
        let since = self.lock().since;
        matches!((since, created_at), (Some(since), Some(created)) if created >= since)
    }

    /// The first look is done.
    pub fn looked(&self) {
        self.lock().looked = true;
    }

    /// Whether the first look is done.
    #[must_use]
    pub fn has_looked(&self) -> bool {
        self.lock().looked
    }

    /// Something was seen. Of no known namespace, it concerns every one.
    pub fn owe(&self, item: &Item, namespace: Option<String>) {
        self.lock().owe(item, namespace.unwrap_or_default());
    }

    /// The first look found something.
    pub fn owe_first(&self, item: &Item, namespace: Option<String>) {
        let namespace = namespace.unwrap_or_default();
        let mut inner = self.lock();
        inner.owe(item, namespace.clone());
        inner.first.entry(namespace).or_default().insert(item.clone());
    }

    /// It is in the ledger, as far as it had been seen when the work on it began. Returns the namespace if it is
    /// added up from now on.
    pub fn settle(&self, item: &Item, began: Instant) -> Option<String> {
        let mut inner = self.lock();
        let debt = inner.debts.get(item)?.clone();
        let of_namespace = inner.oldest.entry(debt.namespace.clone()).or_default();
        of_namespace.remove(&(debt.since, item.clone()));
        if debt.last > began {
            of_namespace.insert((debt.last, item.clone()));
            let since = debt.last;
            inner.debts.insert(item.clone(), Debt { since, ..debt });
            return None;
        }
        if of_namespace.is_empty() {
            inner.oldest.remove(&debt.namespace);
        }
        inner.debts.remove(item);
        let first = inner.first.get_mut(&debt.namespace)?;
        first.remove(item);
        if !first.is_empty() {
            return None;
        }
        inner.first.remove(&debt.namespace);
        Some(debt.namespace)
    }

    /// Whether the figures of a namespace rest on everything there was at the first look.
    #[must_use]
    pub fn is_added_up(&self, namespace: &str) -> bool {
        let inner = self.lock();
        inner.looked && !inner.first.contains_key(namespace) && !inner.first.contains_key("")
    }

    /// Whether something of the namespace has been owed for too long.
    #[must_use]
    pub fn is_stale(&self, namespace: &str) -> bool {
        let inner = self.lock();
        let old = |namespace: &str| {
            let oldest = inner.oldest.get(namespace).and_then(BTreeSet::first);
            oldest.is_some_and(|(since, _)| since.elapsed() >= PATIENCE)
        };
        old(namespace) || old("")
    }

    /// Whether this is owed.
    #[must_use]
    pub fn owes(&self, item: &Item) -> bool {
        self.lock().debts.contains_key(item)
    }

    /// How much is owed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().debts.len()
    }

    /// Whether nothing is owed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    fn owe(&mut self, item: &Item, namespace: String) {
        let now = Instant::now();
        if let Some(debt) = self.debts.get_mut(item) {
            debt.last = now;
            return;
        }
        self.oldest
            .entry(namespace.clone())
            .or_default()
            .insert((now, item.clone()));
        self.debts.insert(
            item.clone(),
            Debt {
                namespace,
                since: now,
                last: now,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(uid: &str) -> Item {
        Item::Backup(uid.into())
    }

    #[test]
    fn a_namespace_is_added_up_when_all_that_the_first_look_found_in_it_is_written() {
        let arrears = Arrears::default();
        assert!(!arrears.is_added_up("a"), "nobody has looked");
        arrears.owe_first(&item("1"), Some("a".to_owned()));
        arrears.owe_first(&item("2"), Some("a".to_owned()));
        arrears.looked();
        arrears.owe(&item("3"), Some("a".to_owned()));
        assert!(!arrears.is_added_up("a"));
        assert!(arrears.is_added_up("b"));
        let now = Instant::now();
        assert_eq!(arrears.settle(&item("1"), now), None);
        assert_eq!(arrears.settle(&item("2"), now), Some("a".to_owned()));
        assert!(arrears.is_added_up("a"), "what came later is merely on its way");
        assert_eq!(arrears.len(), 1);
    }

    #[test]
    fn only_what_was_made_after_the_look_began_is_new() {
        let arrears = Arrears::default();
        let at = |second| Some(Timestamp::from_second(second).unwrap());
        assert!(!arrears.is_new(at(5)), "nobody has looked");
        arrears.looks(Timestamp::from_second(5).unwrap());
        assert!(arrears.is_new(at(5)) && !arrears.is_new(at(4)) && !arrears.is_new(None));
        arrears.begin();
        assert!(!arrears.is_new(at(5)), "nobody looks any more");
    }

    #[test]
    fn what_was_seen_again_during_the_work_is_still_owed() {
        let arrears = Arrears::default();
        arrears.owe(&item("1"), None);
        let began = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        arrears.owe(&item("1"), None);
        arrears.settle(&item("1"), began);
        assert_eq!(arrears.len(), 1);
        arrears.settle(&item("1"), Instant::now());
        assert!(arrears.is_empty());
    }
}
