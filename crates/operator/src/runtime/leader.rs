//! Leader election on a Lease: the standby knows, only the leader writes.
//!
//! **Promises.** [`Leadership::is_leader`] is true only while the last renewal that succeeded was *sent* less than
//! the renew deadline ago by our own monotonic clock, whatever the rest of the process is doing; it does not wait
//! for a task to notice. Writers ask [`Leadership::guard`] before each write. On loss the process goes on as a
//! standby with its world warm, and may lead again in a later [`Standing::Leader`] term. A graceful end clears the
//! holder, so that the next one takes over at its next look.
//!
//! **Assumes.** A write that was guarded arrives within the time between renew deadline and lease duration (5 s
//! unless set otherwise); what comes later meets its resourceVersion or precondition, and what has none is given up
//! in time ([`Leadership::fence`]). One identity per process ([`identity`]). The token given to [`run`] is cancelled only after the writers have stopped.

use super::lease::{BadSettings, Record, Settings, Step, View, decide, written};
use super::lease_store::{LeaseStore, StoreError};
use jiff::Timestamp;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Settings of the election, each a flag and an environment variable.
#[derive(Debug, Clone, clap::Args)]
pub struct LeaderArgs {
    /// Name of the Lease that all replicas share.
    #[arg(long, env = "KOPIUR_LEASE_NAME", default_value = holdfast_api::names::LEADER_LEASE)]
    pub lease_name: String,
    /// Seconds a candidate watches a lease that does not move before it takes it.
    #[arg(long, env = "KOPIUR_LEASE_DURATION_SECONDS", default_value_t = 15)]
    pub lease_duration_seconds: u32,
    /// Seconds a leader counts itself leader after the last renewal that succeeded.
    #[arg(long, env = "KOPIUR_RENEW_DEADLINE_SECONDS", default_value_t = 10)]
    pub renew_deadline_seconds: u32,
    /// Seconds between a leader's renewals.
    #[arg(long, env = "KOPIUR_RENEW_PERIOD_SECONDS", default_value_t = 2)]
    pub renew_period_seconds: u32,
    /// Seconds between a candidate's looks, and after an attempt that failed.
    #[arg(long, env = "KOPIUR_RETRY_PERIOD_SECONDS", default_value_t = 2)]
    pub retry_period_seconds: u32,
}

impl LeaderArgs {
    /// The checked settings.
    ///
    /// # Errors
    /// [`BadSettings`] when they cannot be safe.
    pub fn settings(&self) -> Result<Settings, BadSettings> {
        let seconds = |n: u32| Duration::from_secs(u64::from(n));
        Settings::new(
            seconds(self.lease_duration_seconds),
            seconds(self.renew_deadline_seconds),
            seconds(self.renew_period_seconds),
            seconds(self.retry_period_seconds),
        )
    }
}

/// Whether this process leads. A regained leadership is a new term: what was written down under the old one
/// must be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Somebody else leads, or nobody.
    Standby,
    /// We lead; terms count up from 1 within the process.
    Leader {
        /// Number of the term.
        term: u64,
    },
}

/// How a term of leadership began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeover {
    /// Nobody held the Lease: there was none yet, or its holder gave it back in good order.
    Quiet,
    /// Its holder fell silent, or the Lease was removed under it: what it did last is not known.
    Unannounced,
}

/// A term of leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Its number.
    pub number: u64,
    /// Since when, by our own clock.
    pub since: Instant,
    /// How it began.
    pub takeover: Takeover,
}

/// This process does not lead: nothing may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this replica does not lead (any more): nothing was written; the leader does it")]
pub struct NotLeader;

/// Handle on our own leadership; cheap to clone.
#[derive(Debug, Clone)]
pub struct Leadership(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    until: Mutex<Option<Instant>>,
    standing: watch::Sender<Standing>,
    term: Mutex<Option<Term>>,
    /// At the end the Lease is left to grow old instead of being given back.
    keep: AtomicBool,
}

impl Leadership {
    fn new(until: Option<Instant>, standing: Standing) -> Self {
        Self(Arc::new(Inner {
            until: Mutex::new(until),
            term: Mutex::new(match standing {
                Standing::Standby => None,
                Standing::Leader { term } => Some(Term {
                    number: term,
                    since: Instant::now(),
                    takeover: Takeover::Quiet,
                }),
            }),
            standing: watch::Sender::new(standing),
            keep: AtomicBool::new(false),
        }))
    }

    /// A process that has not led yet.
    #[must_use]
    pub fn standby() -> Self {
        Self::new(None, Standing::Standby)
    }

    /// Leads for a day without a Lease: for tests.
    #[must_use]
    pub fn always() -> Self {
        let day = Instant::now() + Duration::from_secs(86_400);
        Self::new(Some(day), Standing::Leader { term: 1 })
    }

    /// Whether we lead, by our own clock, now.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.until().is_some_and(|until| Instant::now() < until)
    }

    /// The term we lead in, if we lead now.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        let term = *self.0.term.lock().unwrap_or_else(PoisonError::into_inner);
        term.filter(|_| self.is_leader())
    }

    /// At the end the Lease is not given back, so that the next leader knows that something was left undone.
    pub fn keep_lease(&self) {
        self.0.keep.store(true, Ordering::Release);
    }

    /// To be asked before each write.
    ///
    /// # Errors
    /// [`NotLeader`] when the lease is not certainly ours now.
    pub fn guard(&self) -> Result<(), NotLeader> {
        if self.is_leader() { Ok(()) } else { Err(NotLeader) }
    }

    /// Carries out a write that no resourceVersion protects, and gives it up when the lease as it is now runs out:
    /// a request that waits for a connection that long would otherwise be sent while somebody else leads.
    ///
    /// # Errors
    /// [`NotLeader`] before, or when time is up; then whether it arrived is not known.
    pub async fn fence<T>(&self, write: impl Future<Output = T>) -> Result<T, NotLeader> {
        self.guard()?;
        let until = self.until().ok_or(NotLeader)?;
        tokio::time::timeout_at(until.into(), write)
            .await
            .map_err(|_| NotLeader)
    }

    /// Changes of standing. A receiver that was slow may miss a short loss, but then sees another term.
    #[must_use]
    pub fn changed(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Steps down now, by our own decision; the election goes on.
    pub fn lapse(&self) {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.0.standing.send_if_modified(|standing| {
            let led = *standing != Standing::Standby;
            *standing = Standing::Standby;
            led
        });
    }

    fn until(&self) -> Option<Instant> {
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hold(&self, until: Instant, takeover: Takeover, terms: &mut u64) {
        let fresh = *self.0.standing.borrow() == Standing::Standby;
        if fresh {
            // Before the lease counts: whoever sees us lead sees how it began.
            *self.0.term.lock().unwrap_or_else(PoisonError::into_inner) = Some(Term {
                number: *terms + 1,
                since: Instant::now(),
                takeover,
            });
        }
        *self.0.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        self.0.standing.send_if_modified(|standing| match standing {
            Standing::Leader { .. } => false,
            Standing::Standby => {
                *terms += 1;
                *standing = Standing::Leader { term: *terms };
                true
            }
        });
    }

    /// Resolves when our own clock says that the lease ran out; never while we are a standby.
    async fn run_out(&self) {
        loop {
            match self.until() {
                None => std::future::pending::<()>().await,
                Some(until) if Instant::now() >= until => return,
                Some(until) => tokio::time::sleep_until(until.into()).await,
            }
        }
    }
}

/// An identity no other process has: the pod's name and random digits.
#[must_use]
pub fn identity(pod: &str) -> String {
    let random = std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish();
    format!("{pod}_{random:016x}")
}

/// Takes part in the election until `end` is cancelled, then releases what it holds.
pub async fn run<S: LeaseStore>(
    store: S,
    me: String,
    settings: Settings,
    leadership: Leadership,
    end: CancellationToken,
) {
    let mut candidate = Candidate {
        store,
        me,
        settings,
        leadership,
        view: View::default(),
        terms: 0,
    };
    loop {
        let pause = tokio::select! {
            biased;
            () = end.cancelled() => break,
            pause = candidate.attempt() => pause,
        };
        let leadership = candidate.leadership.clone();
        tokio::select! {
            biased;
            () = end.cancelled() => break,
            () = leadership.run_out() => candidate.lost("its renewals failed for the whole renew deadline"),
            () = tokio::time::sleep(pause) => {}
        }
    }
    candidate.release().await;
}

struct Candidate<S> {
    store: S,
    me: String,
    settings: Settings,
    leadership: Leadership,
    view: View,
    terms: u64,
}

impl<S: LeaseStore> Candidate<S> {
    /// One attempt within its own time limit, while our own clock is watched; answers how long to pause.
    async fn attempt(&mut self) -> Duration {
        let limit = self.settings.attempt_timeout();
        let leadership = self.leadership.clone();
        let outcome = {
            let attempt = tokio::time::timeout(limit, self.act());
            tokio::pin!(attempt);
            let mut ran_out = false;
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut attempt => break outcome,
                    () = leadership.run_out(), if !ran_out => {
                        ran_out = true;
                        leadership.lapse();
                        tracing::warn!("lost the leadership: its renewals failed for the whole renew deadline");
                    }
                }
            }
        };
        match outcome {
            Ok(Ok(pause)) => pause,
            Ok(Err(StoreError::Conflict)) => self.settings.retry_period() / 4,
            Ok(Err(StoreError::Other(error))) => {
                tracing::warn!(error, "cannot read or write the leader Lease; trying again");
                self.settings.retry_period()
            }
            Err(_) => {
                tracing::warn!(
                    seconds = limit.as_secs_f32(),
                    "an attempt on the leader Lease timed out"
                );
                self.settings.retry_period()
            }
        }
    }

    async fn act(&mut self) -> Result<Duration, StoreError> {
        // A leader renews what it wrote last without reading first; a conflict makes it read.
        let ours = self.leadership.is_leader()
            && self
                .view
                .record()
                .is_some_and(|record| record.holder.as_deref() == Some(self.me.as_str()));
        if !ours {
            self.read().await?;
        }
        let now = Instant::now();
        let step = decide(
            &self.me,
            &self.view,
            self.leadership.is_leader(),
            &self.settings,
            now,
        );
        let Some(record) = written(
            &self.me,
            step,
            self.view.record(),
            &self.settings,
            Timestamp::now(),
        ) else {
            let Step::Wait(ripe) = step else {
                return Ok(self.settings.retry_period());
            };
            return Ok(self
                .settings
                .retry_period()
                .min(ripe.saturating_duration_since(now)));
        };
        let takeover = self.view.takeover(&self.me, step);
        match self.store.put(&record).await {
            Ok(stored) => {
                self.view.observe(Some(stored), Instant::now());
                self.won(now, step, takeover);
                Ok(self.settings.renew_period())
            }
            Err(StoreError::Conflict) => {
                self.read().await?;
                Err(StoreError::Conflict)
            }
            Err(other) => Err(other),
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let record = self.store.get().await?;
        self.view.observe(record, Instant::now());
        let other = self
            .view
            .record()
            .and_then(|record| record.holder.clone())
            .filter(|holder| *holder != self.me);
        if let (Some(other), true) = (other, self.leadership.until().is_some()) {
            self.lost(&format!("{other} holds the Lease"));
        }
        Ok(())
    }

    fn won(&mut self, sent: Instant, step: Step, takeover: Takeover) {
        let until = sent + self.settings.renew_deadline();
        if Instant::now() >= until {
            return; // The answer came too late to mean anything; the next renewal decides.
        }
        let led = self.leadership.is_leader();
        if !led {
            self.leadership.lapse(); // A lapse nobody announced yet must not hide behind the new term.
        }
        self.leadership.hold(until, takeover, &mut self.terms);
        if !led {
            tracing::info!(identity = self.me, term = self.terms, step = ?step, "leading");
        }
    }

    fn lost(&self, why: &str) {
        self.leadership.lapse();
        tracing::warn!(why, "lost the leadership; going on as a standby");
    }

    /// Hands the Lease back, so that the next leader need not wait for it to grow old.
    async fn release(&mut self) {
        self.leadership.lapse();
        if self.leadership.0.keep.load(Ordering::Acquire) {
            tracing::warn!("the leader Lease is left to grow old: the next leader is to be careful");
            return;
        }
        for _ in 0..2 {
            let Some(record) = self
                .view
                .record()
                .filter(|r| r.holder.as_deref() == Some(self.me.as_str()))
            else {
                return;
            };
            let free = Record {
                holder: None,
                renewed: Some(Timestamp::now()),
                ..record.clone()
            };
            let limit = self.settings.attempt_timeout();
            match tokio::time::timeout(limit, self.store.put(&free)).await {
                Ok(Ok(_)) => {
                    tracing::info!("released the leader Lease");
                    return;
                }
                Ok(Err(StoreError::Conflict)) => {
                    if !matches!(tokio::time::timeout(limit, self.read()).await, Ok(Ok(()))) {
                        break;
                    }
                }
                Ok(Err(StoreError::Other(_))) | Err(_) => break,
            }
        }
        tracing::warn!("could not release the leader Lease; the next leader waits for the lease duration");
    }
}

#[cfg(test)]
#[path = "leader_tests.rs"]
mod tests;
