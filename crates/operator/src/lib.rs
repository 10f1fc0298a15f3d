//! The Holdfast operator: the only crate that writes to the API server as the operator.
//!
//! **Promises.** One way through: observe (the [`world`]), decide (`holdfast_core`), act, report. Every write
//! carries the resourceVersion that was judged or a precondition; a conflict means look again.
//!
//! **Assumes.** Only the leader writes; a standby keeps its world warm (`docs/design.md` section 7).
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod account;
pub mod context;
pub mod jobs;
pub mod protect;
pub mod runtime;
pub mod settings;
pub mod world;
