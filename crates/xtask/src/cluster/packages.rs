//! Debian packages that the cluster needs.
//!
//! Promise: what is missing is installed with apt-get, and none of it starts a service; where that
//! is not possible, the error names the packages and the command.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};

use super::binaries::{adopt, component_dir};
use crate::progress::Step;
use crate::sh::{available, cmd, run};

/// Packages and a file that each brings.
const NODE: [(&str, &str); 5] = [
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iptables", "/usr/sbin/iptables"),
    ("conntrack", "/usr/sbin/conntrack"),
    ("busybox-static", "/bin/busybox"),
];
const ALWAYS: [(&str, &str); 2] = [("iproute2", "/sbin/ip"), ("util-linux", "/usr/bin/nsenter")];

/// One apt-get at a time in this process; across processes dpkg's own lock is waited for.
static APT: Mutex<()> = Mutex::new(());

/// Makes sure that the packages are there.
pub fn ensure(node: bool) -> Result<()> {
    let _one = APT.lock();
    let wanted = ALWAYS.iter().chain(if node { NODE.as_slice() } else { &[] });
    let missing: Vec<&str> = wanted
        .filter(|(_, file)| !Path::new(file).exists())
        .map(|(package, _)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !available("apt-get") {
        bail!(
            "these Debian packages are needed and there is no apt-get to install them: {list}; install what corresponds to them on this system"
        );
    }
    let step = Step::start(format!("Debian packages {list}"));
    let install = || {
        let mut command = cmd(
            "apt-get",
            [
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
                "-o=DPkg::Lock::Timeout=120",
            ],
        );
        command.args(&missing).env("DEBIAN_FRONTEND", "noninteractive");
        run(&format!("install the Debian packages {list}"), &mut command)
    };
    if install().is_err() {
        step.note("apt-get update");
        run("read the package lists", &mut cmd("apt-get", ["update", "-qq"]))?;
        install().with_context(|| {
            format!("the cluster needs them: `apt-get install {list}` by hand shows more")
        })?;
    }
    step.done("installed");
    Ok(())
}

/// The etcd program of Debian's package `etcd-server`.
///
/// The package is unpacked into the cache, not installed: an installed one brings a service.
pub fn etcd() -> Result<PathBuf> {
    let dir = component_dir("etcd", "debian")?;
    let program = dir.join("etcd");
    if program.exists() {
        return Ok(program);
    }
    let _one = APT.lock();
    if program.exists() {
        return Ok(program);
    }
    if let Some(installed) = ["/usr/bin/etcd", "/usr/local/bin/etcd"]
        .map(PathBuf::from)
        .into_iter()
        .find(|path| path.exists())
        && !available("apt-get")
    {
        return Ok(installed);
    }
    let step = Step::start("etcd");
    adopt(&dir, |temporary| {
        let download = || {
            let mut command = cmd(
                "apt-get",
                ["download", "-qq", "-o=APT::Sandbox::User=root", "etcd-server"],
            );
            run("download Debian's etcd-server", command.current_dir(temporary))
        };
        if download().is_err() {
            run("read the package lists", &mut cmd("apt-get", ["update", "-qq"]))?;
            download().context(
                "etcd comes from the Debian package etcd-server: make apt-get reach a mirror, or put a program etcd (3.4 or newer) at /usr/local/bin/etcd",
            )?;
        }
        let package = fs::read_dir(temporary)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|ext| ext == "deb"))
            .context("apt-get download left no package")?;
        let tree = temporary.join("tree");
        run(
            "unpack etcd-server",
            cmd("dpkg-deb", ["-x"]).arg(&package).arg(&tree),
        )?;
        fs::rename(tree.join("usr/bin/etcd"), temporary.join("etcd"))?;
        fs::remove_dir_all(tree)?;
        fs::remove_file(package)?;
        Ok(())
    })?;
    step.done("unpacked from Debian's etcd-server");
    Ok(program)
}
