//! One decision for one lane.

use super::facts::{Lane, Settings};
use super::plan::{Batch, Plan};
use jiff::Timestamp;

/// Decides what becomes of every member of a lane, and whether a batch fires.
#[must_use]
pub fn wave(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let _ = (lane, settings, now);
    Plan {
        decisions: Vec::new(),
        repositories: Vec::new(),
        fire: None,
        withdraw: None,
        wake_at: None,
    }
}

impl Plan {
    /// What is left of an earlier plan's batch, this plan having been made from facts read live: only members
    /// that this plan would also delete now. The Job's name is that of what is left. `None`: fire nothing.
    #[must_use]
    pub fn confirm(&self, batch: &Batch) -> Option<Batch> {
        let _ = batch;
        None
    }
}
