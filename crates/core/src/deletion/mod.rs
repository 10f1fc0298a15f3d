//! How a deletion is decided (`docs/design.md` 3.1 to 3.6): one function, [`wave()`], for one lane.
//!
//! **Promises.** Count wide, fire narrow: doubt makes the breaker's count larger and the set that fires smaller.
//! Records come before acts: a plan never fires on an acknowledgement that is not yet recorded.
//!
//! **Assumes.** The caller applies a [`Plan`] in the order its documentation gives, and before a Job is created
//! calls [`wave()`] a second time with facts read live and fires only what [`Plan::confirm`] leaves.
//!
//! Where to look: [`guard`] has rules 1 to 8 of 3.3, [`breaker`] rule 9 and the latch, [`ack`] the
//! acknowledgement, [`batch`] what rides and when, [`silence`]
//! whose turn it is, [`split`] what follows when no answer comes, [`look`] what follows when the data comes back,
//! [`messages`] the sentences people read, [`table`] all of it as
//! rows.

pub mod ack;
pub mod batch;
pub mod breaker;
pub mod facts;
pub mod guard;
pub mod look;
pub mod messages;
pub mod names;
pub mod plan;
mod report;
pub mod settings;
pub mod silence;
pub mod split;
pub mod table;
pub mod verdict;
mod wake;
pub mod wave;

pub use facts::*;
pub use plan::*;
pub use settings::Settings;
pub use verdict::*;
pub use wave::wave;
