//! One program of a running cluster, paused, resumed or started anew: what tests need to see a figure survive it.
//!
//! Promise: only a program on record in the cluster's state is touched, through a handle that cannot move to another
//! process; a restarted one gets the arguments it had.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use rustix::process::Signal;

use super::{Running, up};
use crate::progress::say;

/// What is done to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// Stopped where it stands (SIGSTOP).
    Pause,
    /// Goes on after a pause.
    Resume,
    /// Killed without warning and started with the same arguments.
    Restart,
}

/// How long a killed program may take to be gone.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// Does `what` to the program `name` of the cluster `cluster`.
pub fn act(workspace: &Path, cluster: &str, name: &str, what: What) -> Result<()> {
    let mut running = Running::open(workspace, cluster)?;
    let _lock = up::lock(&running.paths)?;
    let Some(at) = running
        .state
        .processes
        .iter()
        .position(|process| process.name == name)
    else {
        let names: Vec<&str> = running.state.processes.iter().map(|p| p.name.as_str()).collect();
        bail!(
            "cluster {cluster} has no program {name}: use one of {}",
            names.join(", ")
        );
    };
    let process = running.state.processes[at].clone();
    match what {
        What::Pause => process.signal(Signal::STOP),
        What::Resume => process.signal(Signal::CONT),
        What::Restart => {
            if Path::new(&format!("/proc/{}/ns/mnt", process.pid)).read_link()?
                != Path::new("/proc/self/ns/mnt").read_link()?
            {
                bail!(
                    "{name} runs on the node, in mounts of its own: only programs of the control plane are restarted"
                );
            }
            let (program, args) = command_line(process.pid)?;
            process.signal(Signal::KILL);
            let killed = Instant::now();
            while process.alive() {
                if killed.elapsed() > GONE_WITHIN {
                    bail!(
                        "{name} is still there {} s after it was killed",
                        GONE_WITHIN.as_secs()
                    );
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            running.state.processes.remove(at);
            running.start_in_net(name, &program, args)?;
        }
    }
    say(format!("cluster {cluster}: {name}: {what:?}").to_lowercase());
    Ok(())
}

/// Program and arguments of a process; the programs that started it have replaced themselves with it.
fn command_line(pid: i32) -> Result<(PathBuf, Vec<String>)> {
    let path = format!("/proc/{pid}/cmdline");
    let bytes = std::fs::read(&path).with_context(|| format!("{path} cannot be read"))?;
    let mut words = bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| String::from_utf8_lossy(word).into_owned());
    let program = words.next().with_context(|| format!("{path} is empty"))?;
    Ok((program.into(), words.collect()))
}
