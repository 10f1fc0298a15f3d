//! The repository to itself (`docs/design.md` 3.6): whose turn it is, a batch's or a writer's.
//!
//! **Promises.** Only for engines whose deletions need silence. A batch waits at most ten minutes for writers that
//! run, then it runs beside them. A writer that has not begun does not begin while a batch runs: it gets no Job, or the
//! Job that it has is suspended. Those that were held back go first for five minutes after it. Neither waits for ever
//! for the other.
//!
//! **Assumes.** A batch and a writer of one physical repository are never let through at the same time: the caller
//! asks under one gate, with facts read there. Times are our own clock's; one in the future counts as now.

use super::batch::after;
use jiff::{SignedDuration, Timestamp};

/// How long a batch waits for writers that run.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// How long writers that were held back go first after a batch.
pub const WRITERS_FIRST: SignedDuration = SignedDuration::from_mins(5);

/// The writers of one physical repository whose engine needs silence for deletions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writers {
    /// Backup (and later pin) Jobs that have not ended and of which a container may have started.
    pub running: usize,
    /// Those of which none has: they are suspended right before a batch fires, and go first after it.
    pub not_started: usize,
    /// Those that a batch suspended, and of which no pod is left.
    pub suspended: usize,
    /// Runs that were held back by a batch and have no Job yet.
    pub queued: usize,
    /// Since when a batch waits; recorded in the lane's Lease.
    pub waiting_since: Option<Timestamp>,
    /// When the last batch ended; recorded in the lane's Lease.
    pub batch_ended: Option<Timestamp>,
}

/// Whether a batch may fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Turn {
    /// Nobody writes.
    Alone,
    /// Writers still run, and it has waited long enough.
    BesideWriters,
    /// It waits for writers that run, until then at the latest.
    AfterWriters(Timestamp),
    /// Writers that it held back go first, until then at the latest.
    WritersFirst(Timestamp),
}

/// A batch asks.
#[must_use]
pub fn turn(writers: &Writers, now: Timestamp) -> Turn {
    let ended = writers.batch_ended.map(|at| after(at.min(now), WRITERS_FIRST));
    let held_back = writers.queued + writers.not_started + writers.suspended;
    if let Some(until) = ended.filter(|until| *until > now && held_back > 0) {
        return Turn::WritersFirst(until);
    }
    if writers.running == 0 {
        return Turn::Alone;
    }
    let since = writers.waiting_since.map_or(now, |since| since.min(now));
    let until = after(since, PATIENCE);
    if until <= now {
        Turn::BesideWriters
    } else {
        Turn::AfterWriters(until)
    }
}

/// Whether writers that a batch suspended go on: as soon as none is live and none is about to fire.
#[must_use]
pub fn go_on(batch_live: bool, batch_fires: bool) -> bool {
    !batch_live && !batch_fires
}

/// Whether a writer may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Begin {
    /// Yes.
    Now,
    /// A batch is live: it waits until that has ended.
    AfterBatch,
}

/// A writer asks. `batch_live`: the lane's lock names a delete Job that exists, or one is seen.
#[must_use]
pub fn begin(needs_silence: bool, batch_live: bool) -> Begin {
    if needs_silence && batch_live {
        Begin::AfterBatch
    } else {
        Begin::Now
    }
}
