//! What every part of the operator stands on: leases, events, certificates, the HTTPS server, metrics.

pub mod certs;
pub mod clock;
pub mod diff;
pub mod endpoints;
pub mod events;
pub mod foreign;
pub mod labels;
pub mod leader;
pub mod lease;
pub mod lease_store;
pub mod metrics;
pub mod progress;
pub mod queue;
pub mod read;
pub mod results;
pub mod review;
pub mod server;
pub mod shutdown;
pub mod tls;
pub mod watch;
pub mod write;
