//! Starting, watching and ending the cluster's programs.
//!
//! Promise: a process is only ever signalled through a handle that was checked against the start
//! time on record, so a process id that was used again is never hit.
//! Assumes Linux 5.4 or newer (process handles) and a mounted /proc.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use super::down;
use crate::paths::ClusterPaths;
use crate::sh;

/// A process, named so that no other can be taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// What it is, as in `kubelet`.
    pub name: String,
    /// Its id.
    pub pid: i32,
    /// When it was started, in clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_time: u64,
}

impl Process {
    /// The process that has the id `pid` now.
    pub fn observe(name: impl Into<String>, pid: i32) -> Option<Self> {
        let (_, start_time) = stat(pid)?;
        Some(Self {
            name: name.into(),
            pid,
            start_time,
        })
    }

    /// Whether it still runs (a process that ended and was not collected does not).
    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, start)| start == self.start_time && !ended(state))
    }

    /// Sends `signal`; nothing happens if the process is gone.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // The handle is taken first and checked after: it cannot move to another process.
        if let Ok(handle) = pidfd_open(pid, PidfdFlags::empty())
            && self.alive()
        {
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

fn ended(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// State and start time out of `/proc/<pid>/stat`.
fn stat(pid: i32) -> Option<(char, u64)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_stat(text: &str) -> Option<(char, u64)> {
    // The program's name is in parentheses and may hold anything, spaces and parentheses too.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// Where a program is to run.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// In this network namespace and the host's mounts.
    Net(&'a str),
    /// In the network and mount namespaces of this process.
    Of(&'a Process),
}

/// The command that runs `program` at `place`.
pub fn at(place: Place<'_>, program: &Path) -> Command {
    match place {
        Place::Net(name) => {
            // Not `ip netns exec`: it mounts /sys anew, and the kubelet finds no cgroups then.
            let mut command = Command::new("nsenter");
            command.arg(format!("--net=/run/netns/{name}")).arg("--");
            command.arg(program);
            command
        }
        Place::Of(keeper) => {
            let mut command = Command::new("nsenter");
            command
                .arg(format!("--net=/proc/{}/ns/net", keeper.pid))
                .arg(format!("--mount=/proc/{}/ns/mnt", keeper.pid))
                .arg("--");
            command.arg(program);
            command
        }
    }
}

/// Starts a program that outlives this command; its output goes to `<logs>/<name>.log`.
pub fn spawn(
    paths: &ClusterPaths,
    place: Place<'_>,
    name: &str,
    program: &Path,
    args: &[String],
) -> Result<Process> {
    let log = log_file(paths, name);
    let out = File::options()
        .create(true)
        .append(true)
        .open(&log)
        .with_context(|| format!("the log {} cannot be opened", log.display()))?;
    let inner = at(place, program);
    // setsid and nsenter replace themselves, so the child's id stays that of the program.
    let mut command = Command::new("setsid");
    command.arg(inner.get_program()).args(inner.get_args()).args(args);
    let mut child = command
        .env("PATH", sh::path())
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("{name} could not be started"))?;
    let pid = i32::try_from(child.id()).context("a process id is out of range")?;
    let process = Process::observe(name, pid)
        .with_context(|| format!("{name} ended at once: see {}", log.display()))?;
    // Collected by a thread of its own, so that it does not linger as a zombie of this command.
    std::thread::spawn(move || child.wait());
    Ok(process)
}

/// The log of the program `name`.
pub fn log_file(paths: &ClusterPaths, name: &str) -> PathBuf {
    paths.logs().join(format!("{name}.log"))
}

/// Waits until `ready` says yes; fails early if one of `needed` ends.
pub fn wait_until(
    paths: &ClusterPaths,
    what: &str,
    limit: Duration,
    needed: &[&Process],
    mut ready: impl FnMut() -> bool,
) -> Result<()> {
    let started = Instant::now();
    loop {
        if ready() {
            return Ok(());
        }
        let explain = |name: &str| sh::tail_of_file(&log_file(paths, name), 15);
        if let Some(dead) = needed.iter().find(|process| !process.alive()) {
            bail!(
                "{} ended while {what} was awaited; its log ends with:\n{}",
                dead.name,
                explain(&dead.name)
            );
        }
        if started.elapsed() > limit {
            let last = needed
                .last()
                .map(|process| explain(&process.name))
                .unwrap_or_default();
            bail!(
                "{what} did not come within {} s; the log of what was started last ends with:\n{last}",
                limit.as_secs(),
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Asks `processes` to end and makes those end that have not after `grace`.
///
/// Returns those that are still there after that.
pub fn end(processes: &[Process], grace: Duration) -> Vec<Process> {
    for process in processes {
        process.signal(Signal::TERM);
    }
    wait_gone(processes, grace);
    for process in processes {
        process.signal(Signal::KILL);
    }
    wait_gone(processes, Duration::from_secs(10));
    processes
        .iter()
        .filter(|process| process.alive())
        .cloned()
        .collect()
}

fn wait_gone(processes: &[Process], limit: Duration) {
    let started = Instant::now();
    while started.elapsed() < limit && processes.iter().any(Process::alive) {
        std::thread::sleep(Duration::from_millis(30));
    }
}

/// The programs a cluster is made of, as far as they carry its folders in their arguments.
const PROGRAMS: [&str; 9] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "containerd",
    "containerd-shim-runc-v2",
    "xtask",
];

/// Shims, containers and whatever else of this cluster runs without being in its state file.
///
/// Found by what only this cluster's processes have: one of [`PROGRAMS`] with a folder of the
/// cluster among its arguments, or a cgroup named after one of the cluster's containers.
pub fn strays(paths: &ClusterPaths) -> Vec<Process> {
    let folders = [
        format!("{}/", paths.data.display()),
        format!("{}/", paths.run.display()),
    ];
    let containers = down::container_ids(paths);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&read("cmdline")).into_owned();
        let cgroups = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let name = program_name(&arguments);
        let program = PROGRAMS.contains(&name.as_str())
            && folders.iter().any(|folder| arguments.contains(folder.as_str()));
        let ours = program || containers.iter().any(|id| cgroups.contains(id.as_str()));
        if ours && let Some(process) = Process::observe(name, pid) {
            found.push(process);
        }
    }
    found.retain(Process::alive);
    found
}

fn program_name(arguments: &str) -> String {
    let first = arguments.split('\0').next().unwrap_or_default();
    first.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Makes `link` point to `target`, whatever it was before.
pub fn link(target: &Path, link: &Path) -> Result<()> {
    if fs::symlink_metadata(link).is_ok() {
        fs::remove_file(link).with_context(|| format!("{} cannot be replaced", link.display()))?;
    }
    symlink(target, link).with_context(|| format!("{} cannot be created", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_does_not_confuse() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 9 9";
        assert_eq!(parse_stat(line), Some(('S', 777)));
        assert_eq!(parse_stat("nonsense"), None);
    }

    #[test]
    fn a_process_id_that_was_used_again_is_not_signalled() {
        let mut child = Command::new("sleep").arg("30").spawn().expect("sleep runs");
        let pid = i32::try_from(child.id()).expect("small");
        let real = Process::observe("sleep", pid).expect("it runs");
        let stale = Process {
            start_time: real.start_time.wrapping_sub(1),
            ..real.clone()
        };
        assert!(!stale.alive());
        stale.signal(Signal::KILL);
        std::thread::sleep(Duration::from_millis(50));
        assert!(real.alive(), "the other process was hit");
        assert!(end(std::slice::from_ref(&real), Duration::from_secs(5)).is_empty());
        child.wait().expect("collected");
    }
}
