//! When a schedule runs: cron dialect, spread, time zones, missed slots, names.
//!
//! **Promises.** A slot is a moment in whole seconds, jitter included. Every replica computes the same slots for
//! the same schedule. Each slot runs at most once, and several missed ones are not caught up.
//!
//! **Assumes.** The next slot is pinned in the schedule's status; a Snapshot is created under the slot's name
//! before the pin moves on, so a crash in between meets the same name again. Several policies run in one slot.

pub mod cron;
pub mod decide;
pub mod naming;
pub mod timetable;

pub use cron::ScheduleError;
pub use decide::{Concurrency, MAX_POLICIES, Runs, ScheduleFacts, SchedulePlan, ScheduleWait, Turn, decide};
pub use naming::{selected_name, snapshot_name};
pub use timetable::Timetable;
