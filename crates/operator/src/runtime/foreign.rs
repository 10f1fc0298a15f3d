//! Another manager of this API group (`docs/design.md` 3.8): the Kopia operator, or Holdfast installed a second time.
//!
//! **Promises.** Until the first look has come back nothing is known, and that counts as another manager. Afterwards
//! one is alive while its Lease is renewed, or while it has written to one of our objects within the last two
//! minutes. Both ends of it are told once. A look that fails leaves the answer as it was.
//!
//! **Assumes.** Those who decide ask [`Foreign::alive`] and decide nothing beside it. A Lease that nobody renews for
//! twice its duration is nobody's: clocks of others are only asked for what is long over.

use crate::runtime::clock::Clock;
use holdfast_api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The one word for it: condition reason, event reason, log.
pub const REASON: &str = "ForeignManager";
/// How often the Leases are looked at.
const EVERY: Duration = Duration::from_secs(10);
/// How long a Lease that does not move counts, at least.
const PATIENCE: Duration = Duration::from_secs(40);
/// A Lease renewed longer ago than this was not renewed while we looked, whichever clock is wrong.
const LONG_OVER: SignedDuration = SignedDuration::from_mins(10);
/// How long a write counts.
const RECENT: SignedDuration = SignedDuration::from_mins(2);
/// Field managers of the Kopia operator begin with this; its command line's begin with `kubectl`.
const MANAGER_PREFIX: &str = "kopiur";

/// Handle on what is known of other managers; cheap to clone.
#[derive(Debug, Clone)]
pub struct Foreign(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    answer: watch::Sender<Answer>,
    /// The newest write of another manager, with its name.
    wrote: Mutex<Option<(Timestamp, String)>>,
    /// Leases of others as they were when they last moved.
    moved: Mutex<HashMap<String, (Option<String>, Instant)>>,
    /// Snapshots that were told during this appearance.
    told: Mutex<HashSet<String>>,
    /// How often one has appeared.
    appearances: AtomicU64,
    /// The appearance and our own term in which it was seen that none of its Jobs is left.
    without_jobs: Mutex<Option<JobsLook>>,
}

/// Since when Jobs of another manager are looked for: our own term, and how often one has appeared until then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobsLook {
    term: u64,
    appearances: u64,
}

/// What is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Nobody has looked yet.
    Unknown,
    /// There is none.
    None,
    /// There is this one.
    Alive(String),
}

impl Foreign {
    fn new(answer: Answer) -> Self {
        Self(Arc::new(Inner {
            answer: watch::Sender::new(answer),
            wrote: Mutex::default(),
            moved: Mutex::default(),
            told: Mutex::default(),
            appearances: AtomicU64::default(),
            without_jobs: Mutex::default(),
        }))
    }

    /// Before the first look.
    #[must_use]
    pub fn unknown() -> Self {
        Self::new(Answer::Unknown)
    }

    /// Known to be alone: for tests.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Answer::None)
    }

    /// Another manager that is alive, in words; none: there is none, and that is known.
    #[must_use]
    pub fn alive(&self) -> Option<String> {
        match &*self.0.answer.borrow() {
            Answer::None => None,
            Answer::Unknown => Some(
                "whether another manager of this API group is alive has not been looked at yet".to_owned(),
            ),
            Answer::Alive(who) => Some(format!("another manager of this API group is alive: {who}")),
        }
    }

    /// Told of each change of the answer.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<Answer> {
        self.0.answer.subscribe()
    }

    /// Whether Jobs that another manager left have to be looked for in this term of ours; what is found is told to
    /// [`Foreign::has_no_jobs`]. Once none was left there is none until another one appears: the operator makes none.
    #[must_use]
    pub fn look_for_jobs(&self, term: u64) -> Option<JobsLook> {
        let look = JobsLook {
            term,
            appearances: self.0.appearances.load(Ordering::Acquire),
        };
        let seen = *self.0.without_jobs.lock().unwrap_or_else(PoisonError::into_inner);
        (seen != Some(look)).then_some(look)
    }

    /// The look that was begun so found no Job that has not ended.
    pub fn has_no_jobs(&self, look: JobsLook) {
        *self.0.without_jobs.lock().unwrap_or_else(PoisonError::into_inner) = Some(look);
    }

    /// Whether a Snapshot is to be told: once for each appearance, or two managers would write in turns for ever.
    #[must_use]
    pub fn tells(&self, uid: &str) -> bool {
        self.told().insert(uid.to_owned())
    }

    fn told(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.0.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes who wrote an object, as its managed fields say.
    pub fn look(&self, fields: Option<&[ManagedFieldsEntry]>, now: Timestamp) {
        let newest = fields
            .unwrap_or_default()
            .iter()
            .filter_map(|entry| {
                let manager = entry.manager.as_deref()?;
                let at = entry.time.as_ref()?.0;
                let recent = now.duration_since(at).abs() <= RECENT;
                (manager.starts_with(MANAGER_PREFIX) && recent).then(|| (at, manager.to_owned()))
            })
            .max();
        let Some(newest) = newest else {
            return;
        };
        let mut wrote = self.0.wrote.lock().unwrap_or_else(PoisonError::into_inner);
        if wrote.as_ref().is_none_or(|known| *known < newest) {
            let who = format!("the field manager {} wrote at {}", newest.1, newest.0);
            *wrote = Some(newest);
            drop(wrote);
            // Not only at the next look: what is decided now rests on it.
            self.answer(Answer::Alive(who));
        }
    }

    /// Draws the answer from the Leases that others hold.
    fn judge(&self, leases: &[Lease], now: Timestamp, clock: Instant) {
        let mut moved = self.0.moved.lock().unwrap_or_else(PoisonError::into_inner);
        let mut alive = Vec::new();
        for lease in leases {
            let name = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
            let version = lease.resource_version();
            let since = match moved.get(&name) {
                Some((known, since)) if *known == version => *since,
                Some(_) | None => clock,
            };
            moved.insert(name.clone(), (version, since));
            if is_renewed(lease, clock.duration_since(since), now) {
                alive.push(format!("the Lease {name} is being renewed"));
            }
        }
        drop(moved);
        let wrote = self.0.wrote.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, manager)) = wrote.as_ref()
            && now.duration_since(*at).abs() <= RECENT
        {
            alive.push(format!("the field manager {manager} wrote at {at}"));
        }
        drop(wrote);
        self.answer(match alive.into_iter().next() {
            Some(who) => Answer::Alive(who),
            None => Answer::None,
        });
    }

    fn answer(&self, new: Answer) {
        let is_alive = |answer: &Answer| matches!(answer, Answer::Alive(_));
        let before = self.0.answer.borrow().clone();
        // The same appearance in other words is no news.
        if before == new || (is_alive(&before) && is_alive(&new)) {
            return;
        }
        match &new {
            Answer::Alive(who) => tracing::warn!(
                reason = REASON,
                who,
                "another manager of this API group is alive; nothing is decided until it is stopped"
            ),
            Answer::None if is_alive(&before) => {
                tracing::info!(
                    reason = REASON,
                    "the other manager of this API group is gone; going on"
                );
            }
            Answer::None | Answer::Unknown => {}
        }
        self.told().clear();
        if is_alive(&new) {
            self.0.appearances.fetch_add(1, Ordering::AcqRel);
        }
        self.0.answer.send_replace(new);
    }
}

/// Whether somebody holds a Lease now, that has not moved for so long while we looked.
fn is_renewed(lease: &Lease, unmoved: Duration, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else {
        return false;
    };
    let held = spec
        .holder_identity
        .as_deref()
        .is_some_and(|holder| !holder.is_empty());
    let seconds = spec.lease_duration_seconds.and_then(|n| u64::try_from(n).ok());
    let patience = Duration::from_secs(seconds.unwrap_or_default().saturating_mul(2)).max(PATIENCE);
    let long_over = spec
        .renew_time
        .as_ref()
        .is_some_and(|at| now.duration_since(at.0) > LONG_OVER);
    held && !long_over && unmoved < patience
}

/// Looks at the Leases of others until `end`. Ours is the one of this name in this namespace.
pub async fn run(
    client: Client,
    foreign: Foreign,
    own: (String, String),
    clock: Clock,
    end: CancellationToken,
) {
    loop {
        match leases(&client, &own).await {
            Ok(found) => foreign.judge(&found, clock.now(), Instant::now()),
            Err(error) => tracing::warn!(
                reason = REASON,
                %error,
                "whether another manager of this API group is alive cannot be read; is the chart's ClusterRole in place?"
            ),
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn leases(client: &Client, (namespace, name): &(String, String)) -> Result<Vec<Lease>, kube::Error> {
    let api: Api<Lease> = Api::all(client.clone());
    let mut found = Vec::new();
    for known in [names::FOREIGN_LEASE, names::LEADER_LEASE] {
        let one = ListParams::default().fields(&format!("metadata.name={known}"));
        found.extend(api.list(&one).await?.items);
    }
    found.retain(|lease| !(lease.namespace().as_deref() == Some(namespace) && lease.name_any() == *name));
    Ok(found)
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
