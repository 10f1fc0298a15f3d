//! What `core::quota` promises. Names that begin with `case_` are sentences of the list of cases (`real` against a
//! real API server, `gate`, `ledger`, `webhook`; their numbers are only for reference); names that begin with
//! `promise_` are those of `docs/design.md` section 8.
//!
//! Where the design wins over a sentence, the test says so: ledger 6 goes through PendingPurge and is read back; 8 has
//! no single ledger object; 9 and 23: a claim that shrinks does not lower the charge; 15 and 25: stranded, and
//! inherited under the same name; webhook 2: exactly one.
//!
//! Not expressible here, because they are about an API server, a controller manager or sockets: real 1 to 7, 16 to
//! 19, 22 to 28; webhook 8 and 9; ledger 16 as far as memory goes.

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
