//! `cargo xtask deploy`: Holdfast built from this checkout and installed as a user would.
//!
//! Promise: the images of the programs as they are now run in the cluster when this ends, or the
//! error says what does not and shows what the cluster says about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::{self, Running};
use crate::image::{self, Content, Image};
use crate::paths::{self, DEFAULT_CLUSTER};
use crate::progress::{Step, say};
use crate::sh::{self, cmd};

/// The namespace of the operator.
pub const NAMESPACE: &str = "holdfast-system";

/// Arguments of `cargo xtask deploy`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Name of the local cluster.
    #[arg(long, default_value = DEFAULT_CLUSTER, conflicts_with = "kubeconfig")]
    pub name: String,
    /// Another cluster than a local one.
    #[arg(long, requires = "image_prefix")]
    pub kubeconfig: Option<PathBuf>,
    /// Registry and path of the images for another cluster, as in registry.example/team.
    #[arg(long, requires = "kubeconfig")]
    pub image_prefix: Option<String>,
    /// More settings for the chart, as in deletions.paused=true.
    #[arg(long = "set")]
    pub set: Vec<String>,
}

/// The images of Holdfast's two programs.
#[derive(Clone, Debug)]
pub struct Images {
    /// The operator.
    pub operator: Image,
    /// The mover, which alone carries engines.
    pub mover: Image,
}

/// Runs `cargo xtask deploy`.
pub fn run(args: &Args) -> Result<()> {
    let workspace = paths::workspace()?;
    let prefix = args.image_prefix.as_deref().unwrap_or("localhost");
    // Looked at first: a missing cluster should not be found after minutes of building.
    let local = match &args.kubeconfig {
        Some(_) => None,
        None => Some(Running::open(&workspace, &args.name)?),
    };
    let images = build_images(&workspace, prefix)?;
    let kubeconfig = match (&local, &args.kubeconfig) {
        (Some(running), _) => {
            load(running, &images)?;
            running.kubeconfig()
        }
        (None, Some(kubeconfig)) => {
            say(format!(
                "push these images, for example with skopeo, if the cluster does not have them:\n  {} from {}\n  {} from {}",
                images.operator.reference,
                images.operator.archive.display(),
                images.mover.reference,
                images.mover.archive.display(),
            ));
            kubeconfig.clone()
        }
        (None, None) => bail!("neither a local cluster nor a kubeconfig was given"),
    };
    install(&workspace, &kubeconfig, &images, &args.set)
}

/// Builds operator and mover and puts each into an image named `<prefix>/holdfast-…`.
///
/// The mover's carries the kopia program that `KOPIA_BIN` names, if it names one.
pub fn build_images(workspace: &Path, prefix: &str) -> Result<Images> {
    build_images_as(workspace, prefix, &[])
}

/// The same, built with these arguments of cargo besides.
pub fn build_images_as(workspace: &Path, prefix: &str, how: &[&str]) -> Result<Images> {
    let step = Step::start("building operator and mover");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--package=holdfast-operator", "--package=holdfast-mover"])
        .args(how)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace);
    let messages = sh::run_heard("build operator and mover", &mut command, |line| {
        step.note(line.trim())
    })?;
    let folder = workspace.join("target/images");
    let mut images = Vec::new();
    for package in ["holdfast-operator", "holdfast-mover"] {
        step.note(format!("image {package}"));
        let program =
            executable(&messages, package).with_context(|| format!("cargo built no program {package}"))?;
        let mut content = Content::program(&program)?;
        if package == "holdfast-mover"
            && let Some(kopia) = std::env::var_os("KOPIA_BIN").filter(|program| !program.is_empty())
        {
            content.add_program(Path::new(&kopia), "usr/bin/kopia")?;
        }
        images.push(image::build(
            &folder,
            &format!("{prefix}/{package}"),
            None,
            &content,
        )?);
    }
    let [operator, mover]: [Image; 2] = images
        .try_into()
        .map_err(|_| anyhow::anyhow!("two images were expected"))?;
    step.done(format!("{} and {}", operator.reference, mover.reference));
    Ok(Images { operator, mover })
}

/// Builds what stands in for the systems around Account in tests and in the demo: `<prefix>/holdfast-standin:dev`.
pub fn build_standin(workspace: &Path, prefix: &str) -> Result<Image> {
    const PACKAGE: &str = "holdfast-standin";
    let step = Step::start("building the standins");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--package", PACKAGE])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(workspace);
    let messages = sh::run_heard("build the standins", &mut command, |line| step.note(line.trim()))?;
    let program =
        executable(&messages, PACKAGE).with_context(|| format!("cargo built no program {PACKAGE}"))?;
    let image = image::build(
        &workspace.join("target/images"),
        &format!("{prefix}/{PACKAGE}"),
        Some("dev"),
        &Content::program(&program)?,
    )?;
    step.done(&image.reference);
    Ok(image)
}

/// The path of the program `name` in cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// Loads the images into the node of `running`.
pub fn load(running: &Running, images: &Images) -> Result<()> {
    let step = Step::start("loading images");
    if !running.has_node() {
        bail!(
            "cluster {} has no node to load images into: bring it up without --control-plane-only",
            running.paths.name
        );
    }
    image::load(&running.paths, &images.operator)?;
    image::load(&running.paths, &images.mover)?;
    step.done("loaded");
    Ok(())
}

/// Installs or upgrades the chart and waits until the operator is ready.
pub fn install(workspace: &Path, kubeconfig: &Path, images: &Images, set: &[String]) -> Result<()> {
    let helm = cluster::helm(workspace)?;
    let step = Step::start("installing the chart");
    let mut command = cmd(&helm, ["upgrade", "--install", "holdfast"]);
    command
        .arg(workspace.join("charts/holdfast"))
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(["--namespace", NAMESPACE, "--create-namespace"])
        .arg(format!(
            "--set-string=image.operator={}",
            images.operator.reference
        ))
        .arg(format!("--set-string=image.mover={}", images.mover.reference))
        .arg("--set-string=image.pullPolicy=IfNotPresent")
        .args(["--wait", "--timeout=180s"]);
    for setting in set {
        command.arg("--set").arg(setting);
    }
    sh::run("install the chart holdfast", &mut command).with_context(|| {
        format!(
            "look at the operator with `kubectl --kubeconfig={} -n {NAMESPACE} get pods,events`",
            kubeconfig.display()
        )
    })?;
    step.done(format!("Holdfast runs in {NAMESPACE}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/x/other"}
{"reason":"compiler-artifact","target":{"name":"holdfast-mover"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"holdfast-mover"},"executable":"/x/holdfast-mover"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages, "holdfast-mover"),
            Some(PathBuf::from("/x/holdfast-mover"))
        );
        assert_eq!(executable(messages, "holdfast-operator"), None);
    }
}
