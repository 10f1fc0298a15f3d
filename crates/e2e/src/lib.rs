//! What the scenarios and the demo stand on: a cluster with Holdfast in it, real data, and eyes of their own.
//!
//! **Promises.** What is measured here is measured beside the operator: Jobs by a watch of our own ([`jobs`]),
//! the repository's snapshots by looking at its volume ([`count`]). Every wait has a limit, and says what it saw
//! last when the limit is reached ([`wait`]).
//!
//! **Assumes.** Holdfast is installed in the cluster of the kubeconfig, and nobody else works in the namespaces
//! that are made here.

pub mod count;
pub mod deletions;
pub mod jobs;
pub mod kill;
pub mod lab;
pub mod movers;
pub mod objects;
pub mod platform;
pub mod pods;
pub mod progress;
pub mod restores;
pub mod scenario;
pub mod seed;
pub mod standin;
pub mod wait;

pub use lab::Lab;
pub use scenario::Scenario;
pub use wait::{Look, none_left, until, until_every};
