//! What `core::quota` promises. Names that begin with `case_` are sentences of the list of cases (`real` against a
//! real API server, `gate`, `ledger`, `webhook`; their numbers are only for reference); names that begin with
//! `promise_` are those of `docs/design.md` section 8.
//!
//! Where the design wins over a sentence, the test says so: ledger 6 goes through PendingPurge and is read back; 8 has
//! no single ledger object; 9 and 23: a claim that shrinks does not lower the charge; 15 and 25: stranded, and
//! inherited under the same name; webhook 2: exactly one.
//!
//! What is about an API server, a controller manager, sockets or memory stands in the operator's tests; that every
//! case has a test somewhere is checked (`xtask/src/checks/quota_cases.rs`).

#![allow(clippy::unwrap_used)]

mod amount;
mod capability;
mod enumerate;
mod gate;
mod history;
mod identity;
mod ledger;
mod publish;
mod runs;
mod support;
mod table;
mod tenancy;
