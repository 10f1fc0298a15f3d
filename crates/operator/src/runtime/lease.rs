//! Who leads: the decision, without clock or client.
//!
//! **Promises.** Two processes never both count themselves leader as long as their clocks *tick* at about the
//! same rate; what the clocks *show* does not matter. A candidate takes over only what it has itself watched
//! standing still for the whole lease duration, and a holder counts itself leader for the (shorter) renew deadline
//! after the moment it *sent* its last successful renewal. Times written into the Lease are for people to read.
//!
//! **Assumes.** Each write carries the resourceVersion of the record that was judged, so of two candidates one
//! meets a conflict. `Instant` does not count the time a suspended machine sleeps; what such a machine could still
//! write is caught by the resourceVersions and preconditions of its writes.

use super::leader::Takeover;
use jiff::Timestamp;
use std::time::{Duration, Instant};

/// How patient holder and candidates are. Made by [`Settings::new`], which refuses what cannot be safe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    duration: Duration,
    renew_deadline: Duration,
    renew_period: Duration,
    retry_period: Duration,
    attempt_timeout: Duration,
}

/// Why settings are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    /// A holder would believe in its lease longer than candidates wait.
    #[error("lease settings: the renew deadline must be shorter than the lease duration")]
    DeadlineNotBelowDuration,
    /// One slow request would use up the whole deadline.
    #[error(
        "lease settings: renew period and retry period must be above zero and both below half the renew deadline"
    )]
    PeriodTooLong,
}

impl Settings {
    /// Checks and takes the four figures; the time one attempt may take follows from them: two attempts and the
    /// pause between them fit into the renew deadline, so that one hung request never costs the lease.
    ///
    /// # Errors
    /// [`BadSettings`] in a sentence.
    pub fn new(
        duration: Duration,
        renew_deadline: Duration,
        renew_period: Duration,
        retry_period: Duration,
    ) -> Result<Self, BadSettings> {
        if renew_deadline >= duration {
            return Err(BadSettings::DeadlineNotBelowDuration);
        }
        let longest = renew_period.max(retry_period);
        if renew_period.is_zero() || retry_period.is_zero() || longest * 2 >= renew_deadline {
            return Err(BadSettings::PeriodTooLong);
        }
        let attempt_timeout = (renew_deadline - renew_period - retry_period) / 2;
        Ok(Self {
            duration,
            renew_deadline,
            renew_period,
            retry_period,
            attempt_timeout,
        })
    }

    /// How long candidates watch a lease standing still before they take it.
    #[must_use]
    pub fn duration(&self) -> Duration {
        self.duration
    }

    /// How long a holder counts itself leader after it sent a renewal that succeeded.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// Pause of a holder between renewals.
    #[must_use]
    pub fn renew_period(&self) -> Duration {
        self.renew_period
    }

    /// Pause after an attempt that failed, and of a candidate between looks.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// Longest time one attempt (a read and a write at most) may take.
    #[must_use]
    pub fn attempt_timeout(&self) -> Duration {
        self.attempt_timeout
    }
}

/// The Lease, reduced to what is decided on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who holds it; nobody after a release.
    pub holder: Option<String>,
    /// When the holder took it, by the holder's clock. Shown, never compared with ours.
    pub acquired: Option<Timestamp>,
    /// When it was last renewed, by the holder's clock. Only *whether it changes* matters.
    pub renewed: Option<Timestamp>,
    /// How often it changed hands.
    pub transitions: i32,
    /// The duration the holder asks candidates to wait.
    pub duration: Option<Duration>,
    /// resourceVersion that was read.
    pub version: Option<String>,
}

impl Record {
    /// Whether `other` shows no sign of life beyond this one. The resourceVersion does not count: an edit of a
    /// label is not a renewal.
    fn same_beat(&self, other: &Self) -> bool {
        self.holder == other.holder && self.renewed == other.renewed && self.transitions == other.transitions
    }
}

/// What a process has seen of the Lease, and since when it has not changed.
#[derive(Debug, Clone, Default)]
pub struct View {
    last: Option<(Option<Record>, Instant)>,
    existed: bool,
}

impl View {
    /// Takes in one successful read or write; `now` is the moment the answer arrived.
    pub fn observe(&mut self, record: Option<Record>, now: Instant) {
        self.existed |= record.is_some();
        let still = match (&self.last, &record) {
            (Some((Some(old), _)), Some(new)) => old.same_beat(new),
            (Some((None, _)), None) => true,
            (Some((Some(_), _)), None) | (Some((None, _)), Some(_)) | (None, _) => false,
        };
        let since = match &self.last {
            Some((_, since)) if still => *since,
            Some(_) | None => now,
        };
        self.last = Some((record, since));
    }

    /// How a term begins that is won by `step` on what is seen now.
    #[must_use]
    pub fn takeover(&self, me: &str, step: Step) -> Takeover {
        match (step, self.record().and_then(|record| record.holder.as_deref())) {
            // Ours all along: nobody led in between.
            (Step::Renew, Some(holder)) if holder == me => Takeover::Quiet,
            (Step::TakeOver, None | Some("")) => Takeover::Quiet,
            (Step::Create, _) if !self.existed => Takeover::Quiet,
            (Step::Create | Step::TakeOver | Step::Renew | Step::Wait(_) | Step::Read, _) => {
                Takeover::Unannounced
            }
        }
    }

    /// The record as last seen.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        self.last.as_ref().and_then(|(record, _)| record.as_ref())
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is no Lease: create it in our name.
    Create,
    /// Nobody holds it, or its holder stood still for the whole duration: take it.
    TakeOver,
    /// It is ours: renew it.
    Renew,
    /// Somebody else's for now; look again, and take it at this moment if it has not moved until then.
    Wait(Instant),
    /// Nothing was read yet.
    Read,
}

/// Decides. `valid` says whether we count ourselves leader by our own clock at `now`.
#[must_use]
pub fn decide(me: &str, view: &View, valid: bool, settings: &Settings, now: Instant) -> Step {
    let Some((record, since)) = &view.last else {
        return Step::Read;
    };
    let Some(record) = record else {
        // Somebody removed the Lease. Its holder, who may not know yet, makes it anew; the others give it the
        // time to. On a cluster that never had one there is nobody to wait for.
        let ripe = *since + settings.duration;
        return if valid || !view.existed || now >= ripe {
            Step::Create
        } else {
            Step::Wait(ripe)
        };
    };
    match record.holder.as_deref() {
        None | Some("") => Step::TakeOver,
        Some(holder) if holder == me => Step::Renew,
        Some(_) => {
            // During an upgrade the holder may have been started with a longer duration than ours.
            let patience = settings.duration.max(record.duration.unwrap_or_default());
            let ripe = *since + patience;
            if now >= ripe {
                Step::TakeOver
            } else {
                Step::Wait(ripe)
            }
        }
    }
}

/// The record to write for a step that writes.
#[must_use]
pub fn written(
    me: &str,
    step: Step,
    seen: Option<&Record>,
    settings: &Settings,
    wall: Timestamp,
) -> Option<Record> {
    let (acquired, transitions) = match (step, seen) {
        (Step::Wait(_) | Step::Read, _) => return None,
        (Step::Create, _) | (_, None) => (Some(wall), 0),
        (Step::TakeOver, Some(seen)) => (Some(wall), seen.transitions.saturating_add(1)),
        (Step::Renew, Some(seen)) => (seen.acquired, seen.transitions),
    };
    Some(Record {
        holder: Some(me.to_owned()),
        acquired,
        renewed: Some(wall),
        transitions,
        duration: Some(settings.duration),
        version: match step {
            Step::Create | Step::Wait(_) | Step::Read => None,
            Step::TakeOver | Step::Renew => seen.and_then(|seen| seen.version.clone()),
        },
    })
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
