//! Ending a cluster and removing what it left.
//!
//! Promise: only processes of this cluster's state file, its shims and its containers are ended;
//! no folder is removed while anything is still mounted from it, because a recursive removal
//! through a bind mount would delete what the mount shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::processes::{self, Process};
use super::state::State;
use super::{netns, sysctls, up};
use crate::paths::ClusterPaths;
use crate::sh::{cmd, succeeds};

/// Ends everything of the cluster at `paths` and removes its files; safe if there is nothing.
///
/// Data of the cluster, volumes included, is gone after this.
pub fn clean(paths: &ClusterPaths) -> Result<()> {
    let state = State::load(paths)?;
    let mut ours: Vec<Process> = Vec::new();
    if let Some(state) = &state {
        ours.extend(state.processes.iter().rev().cloned());
    }
    let mut left = processes::end(&ours, Duration::from_secs(1));
    // Ending one may start another (a shim's last container), so look until nothing is found.
    for _ in 0..5 {
        let strays = processes::strays(paths);
        if strays.is_empty() {
            break;
        }
        left.extend(processes::end(&strays, Duration::ZERO));
    }
    if let Some(keeper) = state.and_then(|state| state.keeper) {
        left.extend(processes::end(&[keeper], Duration::ZERO));
    }
    left.retain(Process::alive);
    if !left.is_empty() {
        let list: Vec<String> = left.iter().map(|p| format!("{} ({})", p.name, p.pid)).collect();
        bail!(
            "these processes of the cluster could not be ended: {}; nothing was removed; look at them, then run `cargo xtask cluster down` again",
            list.join(", ")
        );
    }
    netns::remove(paths);
    remove_cgroups(&container_ids(paths));
    unmount(paths)?;
    for dir in [&paths.run, &paths.data] {
        remove_dir(dir)?;
    }
    for name in ["kubeconfig", "kubectl", "helm", "logs"] {
        let _ = fs::remove_file(paths.out.join(name));
    }
    let _ = fs::remove_dir(&paths.out);
    let _machine = up::machine_lock()?;
    sysctls::restore();
    Ok(())
}

fn remove_dir(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} could not be removed: remove it by hand", dir.display()))
        }
        _ => Ok(()),
    }
}

/// The ids of the containers that the cluster's containerd has, or had when it ended.
pub fn container_ids(paths: &ClusterPaths) -> BTreeSet<String> {
    let tasks = paths.run.join("containerd/io.containerd.runtime.v2.task/k8s.io");
    fs::read_dir(tasks)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        // A short name could be part of another cgroup's path.
        .filter(|id| id.len() == 64)
        .collect()
}

/// Removes the cgroups of `containers`, in whichever hierarchies there are.
fn remove_cgroups(containers: &BTreeSet<String>) {
    for hierarchy in cgroup_hierarchies() {
        let parent = hierarchy.join("k8s.io");
        for id in containers {
            remove_cgroup(&parent.join(id));
        }
        // Not removed while another cluster's containers are in it: the kernel refuses.
        let _ = fs::remove_dir(parent);
    }
}

fn remove_cgroup(dir: &Path) {
    for child in fs::read_dir(dir).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&child.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

fn cgroup_hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    if root.join("cgroup.procs").exists() {
        return vec![root];
    }
    fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect()
}

/// The cgroups of this cluster's containers that are still there.
pub fn cgroups_left(containers: &BTreeSet<String>) -> Vec<PathBuf> {
    cgroup_hierarchies()
        .into_iter()
        .flat_map(|hierarchy| containers.iter().map(move |id| hierarchy.join("k8s.io").join(id)))
        .filter(|path| path.exists())
        .collect()
}

/// Unmounts what is mounted from or onto the cluster's folders, and waits for other namespaces
/// to let go of them.
fn unmount(paths: &ClusterPaths) -> Result<()> {
    let started = Instant::now();
    loop {
        let mut own = mounts_of("self", paths);
        own.sort_by_key(|target| std::cmp::Reverse(target.len()));
        for target in &own {
            succeeds(&mut cmd("umount", ["--lazy", target]));
        }
        let left = mounts(paths);
        if left.is_empty() {
            return Ok(());
        }
        if started.elapsed() > Duration::from_secs(10) {
            bail!(
                "still mounted: {}; the folders {} and {} were left alone, because removing them would reach through the mounts; unmount these, then run `cargo xtask cluster down` again",
                left.join(", "),
                paths.data.display(),
                paths.run.display()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Every mount of any process that shows a folder of the cluster, as `<process>:<target>`.
pub fn mounts(paths: &ClusterPaths) -> Vec<String> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().map(str::to_owned) else {
            continue;
        };
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let Ok(namespace) = fs::read_link(entry.path().join("ns/mnt")) else {
            continue;
        };
        if seen.insert(namespace) {
            found.extend(
                mounts_of(&pid, paths)
                    .into_iter()
                    .map(|target| format!("{pid}:{target}")),
            );
        }
    }
    found
}

fn mounts_of(process: &str, paths: &ClusterPaths) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let roots = [format!("/{}", paths.id)];
    text.lines()
        .filter(|line| roots.iter().any(|root| line.contains(&format!("holdfast{root}"))))
        .filter_map(|line| line.split(' ').nth(4))
        .map(str::to_owned)
        .collect()
}
