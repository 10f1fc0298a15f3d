//! The built program, run as a Job would run it.
#![allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm, missing_docs)]

mod batch_of_200;
mod kopia;
mod listing;
mod operations;
mod pins;
mod privileged;
mod restores;
mod support;
