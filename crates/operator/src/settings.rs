//! What the operator is told at start: each flag is also an environment variable (flag before environment
//! before default).

use clap::{Parser, ValueEnum};
use std::net::IpAddr;

/// The Holdfast operator.
#[derive(Debug, Clone, Parser)]
#[command(name = "holdfast-operator", version, about)]
pub struct Settings {
    /// Namespace the operator runs in.
    #[arg(long, env = "HOLDFAST_NAMESPACE", default_value = holdfast_api::names::OPERATOR_NAMESPACE)]
    pub namespace: String,
    /// Name of this pod; part of the leader's identity.
    #[arg(long, env = "POD_NAME", default_value = "holdfast")]
    pub pod_name: String,
    /// Address of this pod; the leader writes it into the EndpointSlice of its Service.
    #[arg(long, env = "POD_IP")]
    pub pod_ip: Option<IpAddr>,
    /// Image of the mover.
    #[arg(long, env = "HOLDFAST_MOVER_IMAGE", default_value = "holdfast-mover:dev")]
    pub mover_image: String,
    /// Pull policy of the mover's image.
    #[arg(long, env = "HOLDFAST_MOVER_PULL_POLICY", default_value = "IfNotPresent")]
    pub mover_pull_policy: String,
    /// Most batch delete Jobs alive in the cluster at once; 0 is no cap.
    #[arg(long, env = "KOPIUR_MAX_CONCURRENT_DELETE_JOBS", default_value_t = 0)]
    pub max_concurrent_delete_jobs: u32,
    /// Stops every deletion from every repository (for use after restoring etcd or a bucket).
    #[arg(long, env = "HOLDFAST_DELETIONS_PAUSED", default_value_t = false, action = clap::ArgAction::Set)]
    pub deletions_paused: bool,
    /// Whether the chart gave the operator the right to copy Secrets to where movers run.
    #[arg(long, env = "HOLDFAST_CREDENTIAL_PROJECTION", default_value_t = false, action = clap::ArgAction::Set)]
    pub credential_projection: bool,
    /// For tests: treats every engine as one whose deletions need silence (`docs/design.md` 3.6).
    #[arg(long, env = "HOLDFAST_TEST_NEEDS_SILENCE", default_value_t = false, action = clap::ArgAction::Set, hide = true)]
    pub needs_silence: bool,
    /// For tests: seconds that each mover waits before it connects.
    #[arg(long, env = holdfast_protocol::TEST_CONNECT_DELAY, default_value_t = 0, hide = true)]
    pub connect_delay_seconds: u32,
    /// Objects of one kind worked on at once.
    #[arg(long, env = "KOPIUR_RECONCILE_CONCURRENCY", default_value_t = 8)]
    pub reconcile_concurrency: usize,
    /// Reads first lists as streams: less memory on the API server, which needs etcd 3.4.31, 3.5.13 or newer.
    #[arg(long, env = "KOPIUR_STREAMING_LISTS", default_value_t = false, action = clap::ArgAction::Set)]
    pub streaming_lists: bool,
    /// Format of the log.
    #[arg(long, env = "KOPIUR_LOG_FORMAT", value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
    /// Backup storage quota.
    #[command(flatten)]
    pub quota: crate::account::settings::QuotaArgs,
    /// Where it listens.
    #[command(flatten)]
    pub server: crate::runtime::server::ServerArgs,
    /// Leader election.
    #[command(flatten)]
    pub leader: crate::runtime::leader::LeaderArgs,
}

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// For machines.
    Json,
}
