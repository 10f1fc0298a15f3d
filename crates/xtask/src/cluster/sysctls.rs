//! Settings of the kernel that a kubelet changes for the whole machine.
//!
//! Promise: the first cluster with a node notes them, the last one that goes puts them back.
//! The caller holds the machine's lock.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::state;
use crate::paths::RUN_ROOT;

/// What the kubelet sets (its `protectKernelDefaults` off, as it is by default).
const CHANGED: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

fn note() -> PathBuf {
    // Gone after a reboot, like the settings themselves.
    Path::new(RUN_ROOT).join("sysctls.json")
}

/// Notes the settings, unless another cluster's start did so.
pub fn remember() -> Result<()> {
    if note().exists() {
        return Ok(());
    }
    let values: BTreeMap<&str, String> = CHANGED
        .iter()
        .filter_map(|name| Some((*name, fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?)))
        .collect();
    fs::write(note(), serde_json::to_vec(&values)?)
        .with_context(|| format!("{} cannot be written", note().display()))
}

/// Puts the settings back if no cluster is left.
pub fn restore() {
    if !state::all().is_empty() {
        return;
    }
    let Ok(bytes) = fs::read(note()) else {
        return;
    };
    let values: BTreeMap<String, String> = serde_json::from_slice(&bytes).unwrap_or_default();
    for name in CHANGED {
        if let Some(value) = values.get(name) {
            let _ = fs::write(Path::new("/proc/sys").join(name), value);
        }
    }
    let _ = fs::remove_file(note());
}
