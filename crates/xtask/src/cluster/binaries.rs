//! Programs built from pinned Go modules, cached per version outside the checkout.
//!
//! Promise: a program is either there in full or not at all (built beside, renamed into place),
//! only those that are needed are built,
//! and two builds of the same thing never run at once, across processes too. The versions are
//! those of the go.mod files under `dev/`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::progress::Step;
use crate::sh::{available, cmd, run_heard};

/// Minor versions that can be brought up; the first is the default.
pub const MINORS: [&str; 4] = ["1.37", "1.36", "1.35", "1.34"];

/// The Kubernetes programs of one version.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    /// The version, as in `1.37.2`.
    pub version: String,
    /// The folder of its programs.
    pub dir: PathBuf,
}

/// The Kubernetes programs of the minor version `minor`, built if need be; those of a node too if
/// `node`.
pub fn kubernetes(workspace: &Path, minor: &str, node: bool) -> Result<Kubernetes> {
    if !MINORS.contains(&minor) {
        bail!(
            "Kubernetes {minor} is not pinned here: use one of {}",
            MINORS.join(", ")
        );
    }
    let module = workspace.join("dev/kubernetes").join(minor);
    let version = required(&module, "k8s.io/kubernetes")?;
    let package = "k8s.io/component-base/version";
    let numbers: Vec<&str> = version.split('.').collect();
    let flags = format!(
        "-X {package}.gitVersion=v{version} -X {package}.gitMajor={} -X {package}.gitMinor={}",
        numbers.first().unwrap_or(&""),
        numbers.get(1).unwrap_or(&""),
    );
    let node: &[&str] = if node { &["kubelet", "kube-proxy"] } else { &[] };
    let programs: Vec<String> = [
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
    ]
    .iter()
    .chain(node)
    .map(|program| format!("k8s.io/kubernetes/cmd/{program}"))
    .collect();
    let dir = build("kubernetes", &version, &module, &flags, &programs)?;
    Ok(Kubernetes { version, dir })
}

/// The folder with containerd, its shim and ctr.
pub fn containerd(workspace: &Path) -> Result<PathBuf> {
    const MODULE: &str = "github.com/containerd/containerd/v2";
    let module = workspace.join("dev/containerd");
    let version = required(&module, MODULE)?;
    let programs =
        ["containerd", "containerd-shim-runc-v2", "ctr"].map(|program| format!("{MODULE}/cmd/{program}"));
    let flags = format!("-X {MODULE}/version.Version=v{version}");
    build("containerd", &version, &module, &flags, &programs)
}

/// The helm program.
pub fn helm(workspace: &Path) -> Result<PathBuf> {
    let module = workspace.join("dev/helm");
    let version = required(&module, "helm.sh/helm/v3")?;
    let flags = format!("-X helm.sh/helm/v3/internal/version.version=v{version}");
    let programs = ["helm.sh/helm/v3/cmd/helm".to_owned()];
    Ok(build("helm", &version, &module, &flags, &programs)?.join("helm"))
}

/// The pause program, which holds a pod's namespaces.
pub fn pause(workspace: &Path) -> Result<PathBuf> {
    let module = workspace.join("dev/pause");
    Ok(build("pause", "1", &module, "", &["holdfast.local/pause".to_owned()])?.join("pause"))
}

/// Where the cache keeps `version` of `component`.
pub fn component_dir(component: &str, version: &str) -> Result<PathBuf> {
    Ok(paths::cache()?.join("bin").join(component).join(version))
}

/// Makes `files` of `dir` by filling a folder beside it and renaming each into place.
///
/// Nothing happens if they are all there.
pub fn adopt(dir: &Path, files: &[&str], fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let complete = || files.iter().all(|file| dir.join(file).exists());
    if complete() {
        return Ok(());
    }
    fs::create_dir_all(dir).with_context(|| {
        format!(
            "the cache {} cannot be made: set XDG_CACHE_HOME to a folder that can",
            dir.display()
        )
    })?;
    let lock = File::create(dir.with_added_extension("lock"))?;
    lock.lock().context("the cache cannot be locked")?;
    if complete() {
        return Ok(());
    }
    let temporary = dir.with_added_extension("building");
    if temporary.exists() {
        fs::remove_dir_all(&temporary)?;
    }
    fs::create_dir_all(&temporary)?;
    fill(&temporary)?;
    for file in files {
        fs::rename(temporary.join(file), dir.join(file))
            .with_context(|| format!("{file} cannot be put into {}", dir.display()))?;
    }
    fs::remove_dir_all(&temporary)?;
    Ok(())
}

fn build(component: &str, version: &str, module: &Path, flags: &str, packages: &[String]) -> Result<PathBuf> {
    let dir = component_dir(component, version)?;
    let missing: Vec<&String> = packages
        .iter()
        .filter(|package| !dir.join(last(package)).exists())
        .collect();
    if missing.is_empty() {
        return Ok(dir);
    }
    let names: Vec<&str> = missing.iter().map(|package| last(package)).collect();
    if !available("go") {
        bail!(
            "{component} {version} is built from its Go module and there is no `go` on PATH: install Go 1.26 or newer"
        );
    }
    let step = Step::start(format!("building {component} {version}"));
    step.note("waiting for another build of it");
    adopt(&dir, &names, |temporary| {
        step.note("downloading its modules");
        go_build(&step, module, flags, &missing, temporary).with_context(|| {
            format!(
                "{component} {version} could not be built from {}; what was compiled stays in Go's cache, so running this again goes on from there",
                module.display()
            )
        })
    })?;
    step.done("built");
    Ok(dir)
}

/// The name of the program that a package becomes.
fn last(package: &str) -> &str {
    package.rsplit('/').next().unwrap_or(package)
}

fn go_build(step: &Step, module: &Path, flags: &str, packages: &[&String], out: &Path) -> Result<()> {
    // -v names each package as it is compiled: that is the progress.
    let mut command = cmd(
        "go",
        ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-v"],
    );
    command
        .arg(format!("-ldflags=-s -w {flags}"))
        .arg("-o")
        .arg(format!("{}/", out.display()))
        .args(packages)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off");
    let mut compiled = 0_usize;
    run_heard("build it", &mut command, |line| {
        if line.contains(' ') {
            step.note(line);
        } else {
            compiled += 1;
            step.note(format!("{compiled} packages compiled, now {line}"));
        }
    })?;
    Ok(())
}

/// The version of `dependency` that the go.mod in `module` requires, without the `v`.
fn required(module: &Path, dependency: &str) -> Result<String> {
    let file = module.join("go.mod");
    let text = fs::read_to_string(&file)
        .with_context(|| format!("{} cannot be read: the checkout is incomplete", file.display()))?;
    parse_required(&text, dependency)
        .with_context(|| format!("{} does not require {dependency}", file.display()))
}

fn parse_required(go_mod: &str, dependency: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .trim()
            .trim_start_matches("require ")
            .split_ascii_whitespace();
        let version = (words.next() == Some(dependency))
            .then(|| words.next())
            .flatten()?;
        version.strip_prefix('v').map(str::to_owned)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_go_mod() {
        let text = "module x\n\nrequire k8s.io/kubernetes v1.37.2\n\nrequire (\n\tk8s.io/api v0.37.2 // indirect\n)\n\nreplace (\n\tk8s.io/api => k8s.io/api v0.37.2\n)\n";
        assert_eq!(
            parse_required(text, "k8s.io/kubernetes").as_deref(),
            Some("1.37.2")
        );
        assert_eq!(parse_required(text, "k8s.io/api").as_deref(), Some("0.37.2"));
        assert_eq!(parse_required(text, "k8s.io/none"), None);
    }

    #[test]
    fn every_minor_is_pinned() {
        let root = paths::workspace().expect("tests run in the checkout");
        for minor in MINORS {
            let version =
                required(&root.join("dev/kubernetes").join(minor), "k8s.io/kubernetes").expect("pinned");
            assert!(version.starts_with(&format!("{minor}.")), "{version}");
        }
    }
}
