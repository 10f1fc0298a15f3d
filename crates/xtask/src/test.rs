//! `cargo xtask test`: everything that is checked before a change goes in, in stages.
//!
//! Promise: a stage that fails does not keep the others from running, the cluster is taken down whatever happens,
//! everything skipped is named with its reason, and the last line of standard output is
//! `N passed, N failed, N skipped`. The exit code is 0 only if something ran and nothing failed.
//!
//! To add a stage, add a line to [`stages::STAGES`] and the function it names.

mod cargo;
mod chart;
mod control_planes;
mod interrupt;
mod report;
mod stages;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Result, bail};

use self::report::{Outcome, Report};
use self::stages::{INSTALLED, Needs, STAGES, Stage};
use crate::progress::say;
use crate::{checks, cluster, paths, sh};

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only what needs no cluster.
    #[arg(long)]
    quick: bool,
    /// Only these stages, by name.
    #[arg(long = "only", value_name = "STAGE")]
    only: Vec<String>,
    /// Use this cluster instead of bringing one up; Holdfast is installed in it and stays.
    #[arg(long, requires = "image_prefix", conflicts_with = "quick")]
    kubeconfig: Option<PathBuf>,
    /// Which control planes the stage `control planes` runs on: `ends` (the oldest and the newest supported),
    /// `all`, or one minor version as in 1.36.
    #[arg(long, default_value = "ends", value_parser = control_planes::Versions::parse, conflicts_with = "quick")]
    kubernetes: control_planes::Versions,
    /// Registry and path of the images for that cluster, as in registry.example/team.
    #[arg(long, requires = "kubeconfig")]
    image_prefix: Option<String>,
}

/// The cluster of the tests; a developer's own has another name.
const CLUSTER: &str = "test";

/// What the stages share.
struct Context {
    workspace: PathBuf,
    logs: PathBuf,
    quick: bool,
    /// What the stage `control planes` runs on.
    versions: control_planes::Versions,
    /// The cluster of someone else to use, and its images' prefix.
    other: Option<(PathBuf, String)>,
}

/// Runs `cargo xtask test`.
pub fn run(args: &Args) -> Result<ExitCode> {
    for name in &args.only {
        if !STAGES.iter().any(|stage| stage.name == name) {
            let names: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
            bail!("there is no stage {name:?}: use one of {}", names.join(", "));
        }
    }
    let workspace = paths::workspace()?;
    let context = Context {
        logs: workspace.join("target/test"),
        workspace,
        quick: args.quick,
        versions: args.kubernetes.clone(),
        other: args.kubeconfig.clone().zip(args.image_prefix.clone()),
    };
    let mut report = Report::default();
    let stages: Vec<&Stage> = STAGES
        .iter()
        .filter(|stage| is_wanted(stage, &args.only))
        .collect();
    // Taken down when this function ends, however it does, and when the program is told to end. A run without it leaves it
    // alone: it is another run's, beside this one.
    let installs =
        stages.iter().any(|stage| stage.name == INSTALLED) && !args.quick && context.other.is_none();
    let cluster = installs.then(|| Down(&context.workspace));
    if installs {
        interrupt::watch(context.workspace.clone());
    }
    for stage in stages {
        let started = Instant::now();
        let outcome = match why_not(stage, &context, &report) {
            Some(reason) => Outcome::skip(stage.name, reason),
            None => {
                say(format!("== {}", stage.name));
                (stage.run)(&context).unwrap_or_else(|error| {
                    say(format!("{error:#}"));
                    Outcome {
                        failed: vec![format!("{error:#}")],
                        ..Outcome::default()
                    }
                })
            }
        };
        let line = report.add(stage.name, outcome, started.elapsed());
        say(line);
    }
    drop(cluster);
    print!("\n{}", report.render());
    Ok(if report.good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether a stage runs: all do, or those that are named, and what these need.
fn is_wanted(stage: &Stage, only: &[String]) -> bool {
    only.is_empty()
        || only.iter().any(|name| name == stage.name)
        || (stage.name == INSTALLED && wants_holdfast(only))
}

fn wants_holdfast(only: &[String]) -> bool {
    STAGES
        .iter()
        .any(|stage| stage.needs == Needs::Holdfast && only.iter().any(|name| name == stage.name))
}

fn why_not(stage: &Stage, context: &Context, report: &Report) -> Option<&'static str> {
    match stage.needs {
        Needs::Nothing => None,
        Needs::Clusters | Needs::Installing | Needs::Holdfast if context.quick => Some("--quick: no cluster"),
        Needs::Clusters if context.other.is_some() => Some("--kubeconfig: another cluster is used"),
        Needs::Clusters | Needs::Installing => None,
        Needs::Holdfast if report.passed(INSTALLED) => None,
        Needs::Holdfast => Some("Holdfast could not be installed"),
    }
}

/// Takes the cluster of the tests down when dropped.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        // Nothing to do without a cluster, and nothing said either.
        if paths::ClusterPaths::new(self.0, CLUSTER).is_ok_and(|paths| paths.data.exists())
            && let Err(error) = cluster::down(self.0, CLUSTER)
        {
            say(format!(
                "the cluster of the tests is still there: {error:#}; try `cargo xtask cluster down --name {CLUSTER}`"
            ));
        }
    }
}

impl Context {
    fn cargo(&self) -> Command {
        let mut command = checks::cargo();
        command.current_dir(&self.workspace);
        command
    }

    fn log(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.log"))
    }

    /// Runs a cargo command that either works or does not, and shows its output if not.
    fn works(&self, name: &str, command: &mut Command) -> Result<Outcome> {
        let log = self.log(name);
        if cargo::stream(name, &log, command, |_| {})? {
            return Ok(Outcome::ok());
        }
        cargo::show_failures(&log);
        bail!("{name} failed, see {}", log.display())
    }

    /// Why the cargo subcommand `name` cannot be run, if so.
    fn missing(&self, name: &str) -> Option<String> {
        let there = sh::succeeds(self.cargo().args([name, "--version"]));
        (!there).then(|| format!("cargo {name} is not installed: get it with `rustup component add`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(quick: bool, other: bool) -> Context {
        Context {
            workspace: PathBuf::new(),
            logs: PathBuf::new(),
            quick,
            versions: control_planes::Versions::Ends,
            other: other.then(|| (PathBuf::new(), String::new())),
        }
    }

    /// Stages that say why they do not run, in a run in which nothing has passed yet.
    fn left_out(context: &Context) -> Vec<(&'static str, &'static str)> {
        let report = Report::default();
        STAGES
            .iter()
            .filter_map(|stage| Some((stage.name, why_not(stage, context, &report)?)))
            .collect()
    }

    #[test]
    fn quick_needs_no_cluster_and_says_what_it_leaves_out() {
        let left_out = left_out(&context(true, false));
        let needing: Vec<&str> = STAGES
            .iter()
            .filter(|stage| stage.needs != Needs::Nothing)
            .map(|stage| stage.name)
            .collect();
        assert_eq!(
            left_out.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            needing
        );
        assert!(left_out.iter().all(|(_, why)| why.contains("--quick")));
    }

    #[test]
    fn another_cluster_is_installed_into_and_nothing_is_brought_up_beside_it() {
        let left_out = left_out(&context(false, true));
        assert!(left_out.contains(&("two clusters", "--kubeconfig: another cluster is used")));
        assert!(left_out.iter().all(|(name, _)| *name != INSTALLED));
    }

    #[test]
    fn without_holdfast_its_stages_say_so() {
        let left_out = left_out(&context(false, false));
        assert!(left_out.contains(&("end to end", "Holdfast could not be installed")));
    }
}
