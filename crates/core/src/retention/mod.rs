//! What retention and the limit on failed runs prune (`docs/design.md` 3.7).
//!
//! **Promises.** Pinned snapshots are always kept. Without a policy, or with one that keeps nothing, nothing is
//! pruned: a retention that is empty by mistake must not empty a repository. The ids that were kept travel with a
//! prune as its justification.
//!
//! **Assumes.** Only completed snapshots that are not being deleted are passed in, none of origin discovered.

pub mod adopt;
pub mod again;
pub mod ended;
pub mod gfs;
pub mod history;
pub mod justify;
pub mod mass;
pub mod stamp;

pub use gfs::{Completed, Keep, Retained, Why, retain};
