//! A work queue of keys: each key once, at its due time, never two workers on one key.
//!
//! **Promises.** A key that is added while its worker runs is taken up again afterwards, so no event is lost.
//! Adding a key for later never delays an earlier due time. Memory is bounded by the number of distinct keys.
//!
//! **Assumes.** Workers are async tasks of one runtime; order between keys carries no meaning.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

struct Inner<K> {
    due: HashMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
    running: HashSet<K>,
    failures: HashMap<K, u32>,
}

/// See the module.
pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    notify: Notify,
}

/// What a worker says when it is done with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until an event comes.
    Settled,
    /// Look again after this long.
    After(Duration),
    /// It failed: look again with exponential backoff, 1 s doubling to 60 s.
    Failed,
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let inner = Inner {
            due: HashMap::new(),
            order: BTreeSet::new(),
            running: HashSet::new(),
            failures: HashMap::new(),
        };
        Arc::new(Self {
            inner: Mutex::new(inner),
            notify: Notify::new(),
        })
    }

    /// Adds a key, due now.
    pub fn add(&self, key: K) {
        self.add_after(key, Duration::ZERO);
    }

    /// Adds a key, due after `delay`; an earlier due time stays.
    pub fn add_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Self::insert(&mut inner, key, at);
        drop(inner);
        self.notify.notify_one();
    }

    fn insert(inner: &mut Inner<K>, key: K, at: Instant) {
        if let Some(known) = inner.due.get(&key).copied() {
            if known <= at {
                return;
            }
            inner.order.remove(&(known, key.clone()));
        }
        inner.due.insert(key.clone(), at);
        inner.order.insert((at, key));
    }

    /// Waits for a key that is due and that no worker holds.
    pub async fn take(&self) -> K {
        loop {
            let wait = {
                let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
                let now = Instant::now();
                let ready = inner
                    .order
                    .iter()
                    .take_while(|(at, _)| *at <= now)
                    .find(|(_, k)| !inner.running.contains(k));
                if let Some((at, key)) = ready.cloned() {
                    inner.order.remove(&(at, key.clone()));
                    inner.due.remove(&key);
                    inner.running.insert(key.clone());
                    // Another worker may sleep while more is due.
                    if !inner.order.is_empty() {
                        self.notify.notify_one();
                    }
                    return key;
                }
                inner
                    .order
                    .iter()
                    .find(|(_, k)| !inner.running.contains(k))
                    .map(|(at, _)| *at)
            };
            match wait {
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at) => {}
                        () = self.notify.notified() => {}
                    }
                }
                None => self.notify.notified().await,
            }
        }
    }

    /// Gives a key back.
    pub fn done(&self, key: K, next: Next) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.running.remove(&key);
        match next {
            Next::Settled => {
                inner.failures.remove(&key);
            }
            Next::After(delay) => {
                inner.failures.remove(&key);
                Self::insert(&mut inner, key, Instant::now() + delay);
            }
            Next::Failed => {
                let failures = inner.failures.entry(key.clone()).or_insert(0);
                *failures += 1;
                let delay = Duration::from_secs(1 << (*failures - 1).min(6)).min(Duration::from_secs(60));
                Self::insert(&mut inner, key, Instant::now() + delay);
            }
        }
        drop(inner);
        self.notify.notify_one();
    }

    /// How many keys wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .due
            .len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_added_while_it_runs_is_taken_again() {
        let queue = Queue::new();
        queue.add("a");
        assert_eq!(queue.take().await, "a");
        queue.add("a");
        queue.add("a");
        let second = tokio::time::timeout(Duration::from_secs(1), queue.take()).await;
        assert!(second.is_err(), "never two workers on one key");
        queue.done("a", Next::Settled);
        assert_eq!(queue.take().await, "a");
        queue.done("a", Next::Settled);
        assert!(queue.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_request_never_delays_an_earlier_one() {
        let queue = Queue::new();
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(50));
        let begin = Instant::now();
        assert_eq!(queue.take().await, "a");
        assert_eq!(begin.elapsed().as_secs(), 5);
        queue.done("a", Next::Failed);
        assert_eq!(queue.take().await, "a");
        assert_eq!(begin.elapsed().as_secs(), 6, "first failure waits a second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_sleeping_worker_wakes_for_an_earlier_key() {
        let queue = Queue::new();
        queue.add_after("late", Duration::from_secs(60));
        let other = Arc::clone(&queue);
        let worker = tokio::spawn(async move { other.take().await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        queue.add("now");
        assert_eq!(worker.await.ok(), Some("now"));
    }
}
