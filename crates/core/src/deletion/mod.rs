//! How a deletion is decided (`docs/design.md` 3.1 to 3.6): one function, [`wave()`], for one lane.
//!
//! **Promises.** Count wide, fire narrow: doubt makes the breaker's count larger and the set that fires smaller.
//! Records come before acts: a plan never fires on an acknowledgement that is not yet recorded.
//!
//! **Assumes.** The caller applies a [`Plan`] in the order its documentation gives, and before a Job is created
//! calls [`wave()`] a second time with facts read live and fires only what [`Plan::confirm`] leaves.

pub mod facts;
pub mod plan;
pub mod wave;

pub use facts::*;
pub use plan::*;
pub use wave::wave;
