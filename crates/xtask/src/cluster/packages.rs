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
const NODE: [(&str, &str); 4] = [
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("iptables", "/usr/sbin/iptables"),
    ("conntrack", "/usr/sbin/conntrack"),
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
pub fn etcd() -> Result<PathBuf> {
    unpacked(
        "etcd-server",
        "usr/bin/etcd",
        &["/usr/local/bin/etcd", "/usr/bin/etcd"],
    )
}

/// The busybox program of Debian's package `busybox`.
pub fn busybox() -> Result<PathBuf> {
    unpacked("busybox", "bin/busybox", &["/bin/busybox"])
}

/// The program at `file` of a Debian package; one of `installed` where there is no apt-get.
///
/// The package is unpacked into the cache, not installed: an installed one may bring a service,
/// or push another package out.
fn unpacked(package: &str, file: &str, installed: &[&str]) -> Result<PathBuf> {
    let dir = component_dir(package, "debian")?;
    let name = file.rsplit('/').next().unwrap_or(file);
    let program = dir.join(name);
    if program.exists() {
        return Ok(program);
    }
    if !available("apt-get") {
        return installed.iter().map(PathBuf::from).find(|path| path.exists()).with_context(|| {
            format!(
                "{name} comes from the Debian package {package}, and there is no apt-get: put a program {name} at {}",
                installed[0]
            )
        });
    }
    let _one = APT.lock();
    let step = Step::start(name);
    adopt(&dir, &[name], |temporary| {
        let download = || {
            let mut command = cmd(
                "apt-get",
                ["download", "-qq", "-o=APT::Sandbox::User=root", package],
            );
            run(
                &format!("download Debian's {package}"),
                command.current_dir(temporary),
            )
        };
        if download().is_err() {
            run("read the package lists", &mut cmd("apt-get", ["update", "-qq"]))?;
            download().with_context(|| {
                format!("the cluster needs {name}: make apt-get reach a mirror that has {package}")
            })?;
        }
        let archive = fs::read_dir(temporary)?
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get download left no package")?;
        let tree = temporary.join("tree");
        run(
            &format!("unpack {package}"),
            cmd("dpkg-deb", ["-x"]).arg(&archive).arg(&tree),
        )?;
        fs::rename(tree.join(file), temporary.join(name))
            .with_context(|| format!("Debian's {package} has no {file}"))
    })?;
    step.done(format!("unpacked from Debian's {package}"));
    Ok(program)
}
