//! The state file of a cluster: what was started, so that it can be found and ended.
//!
//! Promise: it is written before the next thing is started, and replaced in one step, so a crash
//! leaves a file that `down` can read.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::processes::Process;
use crate::paths::{ClusterPaths, DATA_ROOT};

/// What is known about a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    /// The name within its checkout.
    pub name: String,
    /// The checkout it was started from.
    pub workspace: PathBuf,
    /// The Kubernetes version, as in `1.37.2`.
    pub kubernetes: String,
    /// Whether it has no node.
    pub control_plane_only: bool,
    /// Where the API server listens: the inner end of the pair.
    pub address: Ipv4Addr,
    /// The host's end of the pair.
    pub host_address: Ipv4Addr,
    /// When it was started.
    pub started_at: jiff::Timestamp,
    /// Set once everything was ready.
    pub ready: bool,
    /// The process whose mount namespace the node lives in.
    pub keeper: Option<Process>,
    /// The programs of the cluster, in the order in which they were started.
    pub processes: Vec<Process>,
}

impl State {
    /// Reads the state file; none if the cluster was never started.
    pub fn load(paths: &ClusterPaths) -> Result<Option<Self>> {
        let file = paths.state();
        match fs::read(&file) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes).with_context(|| {
                format!(
                    "the state file {} cannot be read: end what it names by hand, then remove it",
                    file.display()
                )
            })?)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("{} cannot be read", file.display())),
        }
    }

    /// Writes the state file, in one step.
    pub fn save(&self, paths: &ClusterPaths) -> Result<()> {
        let file = paths.state();
        let temporary = file.with_extension("json.new");
        fs::write(&temporary, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&temporary, &file))
            .with_context(|| format!("the state file {} cannot be written", file.display()))
    }

    /// The places of the cluster that this is the state of.
    pub fn paths(&self) -> Result<ClusterPaths> {
        ClusterPaths::new(&self.workspace, &self.name)
    }

    /// The programs that are no longer running.
    pub fn dead(&self) -> Vec<&Process> {
        self.keeper
            .iter()
            .chain(&self.processes)
            .filter(|process| !process.alive())
            .collect()
    }
}

/// The state of every cluster of this machine, other checkouts' included.
pub fn all() -> Vec<State> {
    let mut states: Vec<State> = fs::read_dir(DATA_ROOT)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read(entry.path().join("state.json")).ok())
        .filter_map(|bytes| serde_json::from_slice(&bytes).ok())
        .collect();
    states.sort_by_key(|state| state.started_at);
    states
}
