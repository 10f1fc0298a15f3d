//! What `core::deletion` promises. Names that begin with `case_` are sentences of the list of cases (their
//! numbers are only for reference); names that begin with `promise_` are those of `docs/design.md` section 8.
//!
//! Where the design wins over a sentence, the test says so:
//! * 14: an unreadable namespace counts and does not fire. 22: a future value is clamped once, to
//!   `min(value, max(now, newest pending))`. 27: a hold latches, so "9" is False only while nothing is latched.
//! * 28, 66: looked at again after at most 15 s. 49: rule 3 catches it. 51 to 58: nobody rides who is not
//!   certainly eligible; there is no trigger.
//! * 61, 62: age is by our own clock from first sight, and more members than the cap do not cut the window short.
//!
//! Not expressible here, because they are about listing objects, Jobs or the mover: 4, 5, 10, 12 (what is in
//! [`Lane::members`] at all), 59, 66, 68 to 76, 82, 84 to 87; 78 and 79 are told as far as the decision goes.

#![allow(clippy::unwrap_used)]

mod ack;
mod batch;
mod breaker;
mod guard;
mod live;
mod look;
mod names;
mod page;
mod properties;
mod silence;
mod split;
mod story;
mod support;
mod table;
mod words;

#[cfg(doc)]
use holdfast_core::deletion::Lane;
