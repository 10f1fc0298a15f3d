//! What every part of the operator stands on: leases, events, certificates, the HTTPS server, metrics.

pub mod diff;
pub mod queue;
pub mod watch;
pub mod write;
