//! Pins: what a repository's own record says of keeping a snapshot.
//!
//! **Promises.** What another program pinned is kept from retention and never unpinned: only our own pin is taken back, and
//! only when the object no longer asks for it. A snapshot that got another id is known again by what it is of and when it
//! was begun, where that leaves no doubt ([`known_as`]).

mod decide;
mod known_as;

pub use decide::{Facts, Hold, PinReason, Seen, Step, decide};
pub use known_as::{Found, Recorded, known_as};
