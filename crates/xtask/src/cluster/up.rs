//! Bringing a cluster up, step by step.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::certs::Pki;
use super::state::State;
use super::{
    Running, addons, binaries, control_plane, down, netns, node, packages, processes, require_root, sysctls,
};
use crate::paths::{ClusterPaths, DEFAULT_CLUSTER, RUN_ROOT};
use crate::progress::{say, seconds};

/// What to bring up.
#[derive(Clone, Debug)]
pub struct Options {
    /// The checkout.
    pub workspace: PathBuf,
    /// The name within the checkout.
    pub name: String,
    /// The Kubernetes minor version; none is the newest, or whatever runs already.
    pub minor: Option<String>,
    /// Whether to leave out the node.
    pub control_plane_only: bool,
}

/// Brings the cluster up and waits until it can be used; returns it as it is if it runs already.
pub fn up(options: &Options) -> Result<Running> {
    require_root()?;
    let paths = ClusterPaths::new(&options.workspace, &options.name)?;
    let started = Instant::now();
    let _lock = lock(&paths)?;
    if let Some(running) = already(options, &paths)? {
        say(format!(
            "cluster {} runs already: Kubernetes {}, kubeconfig {}",
            paths.name,
            running.version(),
            paths.kubeconfig().display()
        ));
        return Ok(running);
    }
    if paths.data.exists() || netns::exists(&paths) {
        say("an earlier start of this cluster did not end well: cleaning up what it left");
        down::clean(&paths)?;
    }
    let node = !options.control_plane_only;
    packages::ensure(node)?;
    let etcd = packages::etcd()?;
    let minor = options.minor.as_deref().unwrap_or(binaries::MINORS[0]);
    let kubernetes = binaries::kubernetes(&options.workspace, minor, node)?;
    let containerd = if node {
        packages::busybox()?;
        binaries::pause(&options.workspace)?;
        Some(binaries::containerd(&options.workspace)?)
    } else {
        None
    };
    let built = started.elapsed();

    fs::create_dir_all(paths.logs())?;
    let outcome = assemble(options, &paths, kubernetes, &etcd, containerd.as_deref());
    let running = match outcome {
        Ok(running) => running,
        Err(error) => {
            keep_logs(&paths);
            down::clean(&paths).context("cleaning up after a failed start failed too")?;
            return Err(error.context(format!(
                "the cluster did not start; everything of it was ended; its logs are in {}",
                failed_logs(&paths).display()
            )));
        }
    };
    say(format!(
        "cluster {} is up: Kubernetes {}, {} ({} for packages and builds)
  export KUBECONFIG={}
  {}",
        paths.name,
        running.version(),
        seconds(started.elapsed()),
        seconds(built),
        paths.kubeconfig().display(),
        paths.out.join("kubectl").display(),
    ));
    Ok(running)
}

/// One command at a time works on a cluster.
pub fn lock(paths: &ClusterPaths) -> Result<File> {
    locked(&lock_name(paths))
}

/// The name of the cluster's lock among all clusters' sockets.
pub fn lock_name(paths: &ClusterPaths) -> String {
    format!("{}.lock", paths.id)
}

/// One command at a time changes what clusters share.
pub fn machine_lock() -> Result<File> {
    locked("machine.lock")
}

fn locked(name: &str) -> Result<File> {
    fs::create_dir_all(RUN_ROOT).with_context(|| format!("{RUN_ROOT} cannot be made"))?;
    let file = File::create(PathBuf::from(RUN_ROOT).join(name))?;
    if file.try_lock().is_err() {
        say("waiting for another command that works on a cluster");
        file.lock().context("the cluster's lock cannot be taken")?;
    }
    Ok(file)
}

fn already(options: &Options, paths: &ClusterPaths) -> Result<Option<Running>> {
    let Ok(running) = Running::open(&options.workspace, &options.name) else {
        return Ok(None);
    };
    let name = &options.name;
    if let Some(minor) = &options.minor
        && !running.version().starts_with(&format!("{minor}."))
    {
        bail!(
            "cluster {name} runs with Kubernetes {}, not {minor}: end it first with `cargo xtask cluster down --name {name}`, or choose another --name",
            running.version()
        );
    }
    if !options.control_plane_only && !running.has_node() {
        bail!(
            "cluster {name} runs without a node: end it first with `cargo xtask cluster down --name {name}`, or choose another --name"
        );
    }
    publish(&running)?;
    debug_assert_eq!(paths.id, running.paths.id);
    Ok(Some(running))
}

fn assemble(
    options: &Options,
    paths: &ClusterPaths,
    kubernetes: binaries::Kubernetes,
    etcd: &std::path::Path,
    containerd: Option<&std::path::Path>,
) -> Result<Running> {
    let pair = {
        let _machine = machine_lock()?;
        if containerd.is_some() {
            sysctls::remember()?;
        }
        netns::create(paths)?
    };
    let pki = Pki::create(paths, pair.inner)?;
    let mut running = Running {
        paths: paths.clone(),
        programs: kubernetes.dir,
        state: State {
            name: paths.name.clone(),
            workspace: options.workspace.clone(),
            kubernetes: kubernetes.version,
            control_plane_only: options.control_plane_only,
            address: pair.inner,
            host_address: pair.host,
            started_at: jiff::Timestamp::now(),
            ready: false,
            keeper: None,
            processes: Vec::new(),
        },
    };
    running.state.save(paths)?;
    control_plane::start(&mut running, &pki, etcd)?;
    if let Some(containerd) = containerd {
        addons::start(&mut running)?;
        node::start(&mut running, &pki, containerd)?;
    }
    running.state.ready = true;
    running.state.save(paths)?;
    publish(&running)?;
    Ok(running)
}

/// Puts what people use into the checkout's target folder.
fn publish(running: &Running) -> Result<()> {
    let paths = &running.paths;
    fs::create_dir_all(&paths.out)?;
    if !paths.kubeconfig().exists() {
        fs::copy(paths.data.join("pki/admin.kubeconfig"), paths.kubeconfig())?;
    }
    processes::link(&running.kubernetes("kubectl"), &paths.out.join("kubectl"))?;
    processes::link(&paths.logs(), &paths.out.join("logs"))
}

fn failed_logs(paths: &ClusterPaths) -> PathBuf {
    let suffix = if paths.name == DEFAULT_CLUSTER {
        String::new()
    } else {
        format!("-{}", paths.name)
    };
    paths.workspace.join(format!("target/failed-start{suffix}"))
}

fn keep_logs(paths: &ClusterPaths) {
    let keep = failed_logs(paths);
    let _ = fs::remove_dir_all(&keep);
    let _ = fs::create_dir_all(&keep);
    for entry in fs::read_dir(paths.logs()).into_iter().flatten().flatten() {
        let _ = fs::copy(entry.path(), keep.join(entry.file_name()));
    }
}
