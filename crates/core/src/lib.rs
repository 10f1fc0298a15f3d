//! Every decision of Holdfast, as pure functions.
//!
//! **Promises.** The same facts give the same answer. Nothing here talks to a cluster, reads a clock, sleeps or
//! spawns: facts and the time come in as arguments, a plan goes out. Every decision carries a named reason, and
//! that one CamelCase word is the condition reason, the event reason, the metric label and the anchor in the docs.
//!
//! **Assumes.** The caller translates objects into facts and says *unknown* where it does not know. A value it
//! cannot read is never left out or replaced by a default.

pub mod backoff;
pub mod deletion;
mod hash;
pub mod health;
pub mod identity;
pub mod maintenance;
pub mod pins;
pub mod quota;
pub mod restore;
pub mod retention;
pub mod schedule;
