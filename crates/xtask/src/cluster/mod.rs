//! `cargo xtask cluster`: a real single-node Kubernetes cluster on this machine.
//!
//! Promise: `up` gives a cluster whose node is Ready, with Services and dynamic volumes, and is
//! safe to call again; `down` leaves nothing behind; clusters of other names and other checkouts
//! are not disturbed, each lives in a network namespace of its own.
//! Assumes Linux, root, a Go toolchain, and Debian (or what [`packages`] names already there).

mod addons;
mod binaries;
mod certs;
mod control_plane;
mod dns;
mod down;
mod netns;
mod node;
mod packages;
mod processes;
mod programs;
mod provisioner;
mod selftest;
mod state;
mod status;
mod sysctls;
mod up;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Subcommand;

use self::processes::Place;
pub use self::selftest::selftest;
use self::state::State;
pub use self::up::{Options, up};
use crate::paths::{self, ClusterPaths, DEFAULT_CLUSTER};
use crate::progress::{Step, say, seconds};

/// The name of every cluster's node.
pub const NODE: &str = "holdfast";

/// Arguments of `cargo xtask cluster`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Brings the cluster up; says so if it runs already.
    Up {
        /// Kubernetes minor version: 1.37 (the default), 1.36, 1.35 or 1.34.
        #[arg(long)]
        kubernetes: Option<String>,
        /// Only etcd, API server, controller manager and scheduler: no node, no pods.
        #[arg(long)]
        control_plane_only: bool,
        /// Name of the cluster within this checkout.
        #[arg(long, default_value = DEFAULT_CLUSTER)]
        name: String,
    },
    /// Ends the cluster and removes all of it, volumes included.
    Down {
        /// Name of the cluster within this checkout.
        #[arg(long, default_value = DEFAULT_CLUSTER)]
        name: String,
        /// Any cluster of this machine instead, by the id that `status` shows: for one whose
        /// checkout is gone.
        #[arg(long, conflicts_with = "name")]
        id: Option<String>,
    },
    /// Pauses, resumes or restarts one program of the control plane, as tests need it.
    Program {
        /// Its name, as in `kube-controller-manager`.
        program: String,
        /// What is done to it.
        what: programs::What,
        /// Name of the cluster within this checkout.
        #[arg(long, default_value = DEFAULT_CLUSTER)]
        name: String,
    },
    /// Shows the clusters of this machine.
    Status,
    /// Brings up two clusters at once, uses both, and checks that nothing is left of them.
    Selftest,
    /// Serves volumes and names in a cluster (started by `up`).
    #[command(hide = true)]
    Addons(addons::Args),
}

/// Runs `cargo xtask cluster …`.
pub fn run(args: Args) -> Result<()> {
    let workspace = paths::workspace;
    match args.action {
        Action::Up {
            kubernetes,
            control_plane_only,
            name,
        } => up(&Options {
            workspace: workspace()?,
            name,
            minor: kubernetes,
            control_plane_only,
        })
        .map(drop),
        Action::Down { name, id: None } => down(&workspace()?, &name),
        Action::Down { id: Some(id), .. } => down_id(&id),
        Action::Program { program, what, name } => programs::act(&workspace()?, &name, &program, what),
        Action::Status => {
            status::print(&workspace()?);
            Ok(())
        }
        Action::Selftest => selftest(&workspace()?),
        Action::Addons(args) => addons::run(&args),
    }
}

/// The supported minor versions of Kubernetes, the newest first.
pub const MINORS: [&str; 4] = binaries::MINORS;

/// Ends the cluster `name` of the checkout at `workspace`; says so if there is none.
pub fn down(workspace: &Path, name: &str) -> Result<()> {
    require_root()?;
    let paths = ClusterPaths::new(workspace, name)?;
    let _lock = up::lock(&paths)?;
    if !paths.data.exists() && !netns::exists(&paths) {
        say(format!("cluster {name} is not running"));
        return Ok(());
    }
    let started = Instant::now();
    down::clean(&paths)?;
    say(format!("cluster {name} is gone ({})", seconds(started.elapsed())));
    Ok(())
}

/// Takes a cluster down when dropped, and says so if that cannot be done.
pub struct Ended<'a> {
    /// The checkout.
    pub workspace: &'a Path,
    /// The cluster.
    pub name: &'a str,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let name = self.name;
        if let Err(error) = down(self.workspace, name) {
            say(format!(
                "the cluster {name} is still there: {error:#}; try `cargo xtask cluster down --name {name}`"
            ));
        }
    }
}

fn down_id(id: &str) -> Result<()> {
    for state in state::all() {
        if state.paths()?.id == id {
            return down(&state.workspace, &state.name);
        }
    }
    bail!("no cluster of this machine has the id {id}: `cargo xtask cluster status` shows them")
}

/// A cluster of this machine that was brought up, or is being brought up.
#[derive(Clone, Debug)]
pub struct Running {
    /// Where its things are.
    pub paths: ClusterPaths,
    state: State,
    programs: PathBuf,
}

impl Running {
    /// The running cluster `name` of the checkout at `workspace`.
    pub fn open(workspace: &Path, name: &str) -> Result<Self> {
        let paths = ClusterPaths::new(workspace, name)?;
        let running = State::load(&paths)?.filter(|state| state.ready && state.dead().is_empty());
        let Some(state) = running else {
            let named = if name == DEFAULT_CLUSTER {
                String::new()
            } else {
                format!(" --name {name}")
            };
            bail!("cluster {name} is not running: run `cargo xtask cluster up{named}` first");
        };
        Ok(Self {
            programs: binaries::component_dir("kubernetes", &state.kubernetes)?,
            paths,
            state,
        })
    }

    /// The kubeconfig of its administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.paths.kubeconfig()
    }

    /// Its Kubernetes version, as in `1.37.2`.
    pub fn version(&self) -> &str {
        &self.state.kubernetes
    }

    /// Whether it has a node to run pods on.
    pub fn has_node(&self) -> bool {
        !self.state.control_plane_only
    }

    /// A kubectl command for it.
    pub fn kubectl<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(self.kubernetes("kubectl"));
        command
            .arg(format!("--kubeconfig={}", self.kubeconfig().display()))
            .args(args);
        command
    }

    /// Feeds `manifest` to `kubectl apply`.
    pub fn apply(&self, what: &str, manifest: &str) -> Result<()> {
        let file = self.paths.data.join("apply.yaml");
        std::fs::write(&file, manifest)?;
        crate::sh::run(what, self.kubectl(["apply", "-f"]).arg(&file)).map(drop)
    }

    /// A command that runs `program` in the cluster's network, where 127.0.0.1 is the node.
    pub fn inside(&self, program: &Path) -> Command {
        processes::at(Place::Net(&self.paths.netns()), program)
    }

    /// Shows the work `what` on this cluster.
    fn step(&self, what: &str) -> Step {
        if self.paths.name == DEFAULT_CLUSTER {
            return Step::start(what);
        }
        Step::start(format!("{}: {what}", self.paths.name))
    }

    fn kubernetes(&self, program: &str) -> PathBuf {
        self.programs.join(program)
    }

    fn start_in_net(&mut self, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
        let netns = self.paths.netns();
        let process = processes::spawn(&self.paths, Place::Net(&netns), name, program, &args)?;
        self.started(process)
    }

    fn start_on_node(&mut self, name: &str, program: &Path, args: Vec<String>) -> Result<()> {
        let keeper = self
            .state
            .keeper
            .clone()
            .context("the node has no namespace yet")?;
        let process = processes::spawn(&self.paths, Place::Of(&keeper), name, program, &args)?;
        self.started(process)
    }

    fn started(&mut self, process: processes::Process) -> Result<()> {
        self.state.processes.push(process);
        self.state.save(&self.paths)
    }
}

/// The ctr program, which loads images.
pub fn ctr(workspace: &Path) -> Result<PathBuf> {
    Ok(binaries::containerd(workspace)?.join("ctr"))
}

/// The pause program, which holds a pod's namespaces.
pub fn pause(workspace: &Path) -> Result<PathBuf> {
    binaries::pause(workspace)
}

/// The busybox program, for the tests' image.
pub fn busybox() -> Result<PathBuf> {
    packages::busybox()
}

/// The helm program.
pub fn helm(workspace: &Path) -> Result<PathBuf> {
    binaries::helm(workspace)
}

fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!(
            "a cluster needs root (namespaces, mounts, containers): run it as root, or point the other commands at a cluster you have with --kubeconfig"
        );
    }
    Ok(())
}
