//! `cargo xtask test`: everything that is checked before a change goes in, in stages.
//!
//! Promise: a stage that fails does not keep the others from running, the cluster is taken down whatever happens,
//! everything skipped is named with its reason, and the last line of standard output is
//! `N passed, N failed, N skipped`. The exit code is 0 only if something ran and nothing failed.
//!
//! To add a stage, add a line to [`STAGES`] and the function it names.

mod cargo;
mod chart;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::report::{Outcome, Report};
use crate::cluster;
use crate::progress::say;
use crate::sh;
use crate::{checks, deploy, generate, paths};

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only what needs no cluster.
    #[arg(long)]
    quick: bool,
    /// Only these stages, by name.
    #[arg(long = "only", value_name = "STAGE")]
    only: Vec<String>,
}

/// The cluster of the tests; a developer's own has another name.
const CLUSTER: &str = "test";

/// One stage.
struct Stage {
    name: &'static str,
    needs: Needs,
    run: fn(&Context) -> Result<Outcome>,
}

/// What a stage needs beside the checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: runs with `--quick` too.
    Nothing,
    /// To bring up clusters of its own.
    Clusters,
    /// Holdfast running in the cluster of the tests.
    Holdfast,
}

const INSTALLED: &str = "cluster and install";

const STAGES: &[Stage] = &[
    Stage {
        name: "format",
        needs: Needs::Nothing,
        run: format,
    },
    Stage {
        name: "clippy",
        needs: Needs::Nothing,
        run: clippy,
    },
    Stage {
        name: "source",
        needs: Needs::Nothing,
        run: source,
    },
    Stage {
        name: "generated files",
        needs: Needs::Nothing,
        run: generated,
    },
    Stage {
        name: "crates alone",
        needs: Needs::Nothing,
        run: crates_alone,
    },
    Stage {
        name: "unit and integration tests",
        needs: Needs::Nothing,
        run: unit_tests,
    },
    Stage {
        name: "chart",
        needs: Needs::Nothing,
        run: the_chart,
    },
    Stage {
        name: "two clusters",
        needs: Needs::Clusters,
        run: two_clusters,
    },
    Stage {
        name: INSTALLED,
        needs: Needs::Clusters,
        run: install,
    },
    Stage {
        name: "end to end",
        needs: Needs::Holdfast,
        run: end_to_end,
    },
];

/// What the stages share.
struct Context {
    workspace: PathBuf,
    logs: PathBuf,
    quick: bool,
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
    };
    let mut report = Report::default();
    // Taken down when this function ends, however it does.
    let _cluster = Down(&context.workspace);
    for stage in STAGES {
        let wanted = args.only.is_empty()
            || args.only.iter().any(|name| name == stage.name)
            || (stage.name == INSTALLED && wants_holdfast(&args.only));
        if !wanted {
            continue;
        }
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
    drop(_cluster);
    print!("\n{}", report.render());
    Ok(if report.good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn wants_holdfast(only: &[String]) -> bool {
    STAGES
        .iter()
        .any(|stage| stage.needs == Needs::Holdfast && only.iter().any(|name| name == stage.name))
}

fn why_not(stage: &Stage, context: &Context, report: &Report) -> Option<&'static str> {
    match stage.needs {
        Needs::Nothing => None,
        Needs::Clusters | Needs::Holdfast if context.quick => Some("--quick: no cluster"),
        Needs::Clusters => None,
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

fn format(context: &Context) -> Result<Outcome> {
    if let Some(reason) = context.missing("fmt") {
        return Ok(Outcome::skip("cargo fmt", reason));
    }
    context.works("format", context.cargo().args(["fmt", "--all", "--", "--check"]))
}

fn clippy(context: &Context) -> Result<Outcome> {
    if let Some(reason) = context.missing("clippy") {
        return Ok(Outcome::skip("cargo clippy", reason));
    }
    let mut command = context.cargo();
    command.args(["clippy", "--workspace", "--all-targets", "--", "--deny=warnings"]);
    context.works("clippy", &mut command)
}

fn source(context: &Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.check("holdfast-core", checks::core_is_pure(&context.workspace));
    outcome.check("holdfast-api", checks::api_has_no_client(&context.workspace));
    outcome.check(
        "examples",
        checks::examples_are_accepted(&context.workspace).map(drop),
    );
    outcome.check("links", checks::links_lead_somewhere(&context.workspace));
    Ok(outcome)
}

fn generated(context: &Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    outcome.check("generate --check", generate::check(&context.workspace).map(drop));
    Ok(outcome)
}

/// A crate that only compiles because another one switches a feature on is found here.
fn crates_alone(context: &Context) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    for package in packages(context)? {
        let name = format!("check-{package}");
        let result = context.works(&name, context.cargo().args(["check", "--package", &package]));
        outcome.check(&package, result.map(drop));
    }
    Ok(outcome)
}

fn packages(context: &Context) -> Result<Vec<String>> {
    let text = sh::run(
        "list the workspace's crates",
        context
            .cargo()
            .args(["metadata", "--format-version=1", "--no-deps"]),
    )?;
    let metadata: serde_json::Value = serde_json::from_str(&text).context("cargo metadata is not JSON")?;
    let names: Vec<String> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|package| package["name"].as_str().map(str::to_owned))
        .collect();
    if names.is_empty() {
        bail!("cargo metadata names no crate");
    }
    Ok(names)
}

fn unit_tests(context: &Context) -> Result<Outcome> {
    let mut command = context.cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]);
    if !context.quick {
        // They have a stage of their own.
        command.args(["--exclude", "holdfast-e2e"]);
    }
    command.args(["--", "--show-output"]);
    cargo::run("unit and integration tests", &context.log("tests"), &mut command)
}

fn the_chart(context: &Context) -> Result<Outcome> {
    let helm = if context.quick {
        helm_at_hand()
    } else {
        Some(cluster::helm(&context.workspace)?)
    };
    Ok(match helm {
        Some(helm) => chart::check(&context.workspace, helm),
        None => Outcome::skip("chart", "--quick: helm is neither on the path nor built yet"),
    })
}

/// A helm program that needs no building: from the cache, or from the path.
fn helm_at_hand() -> Option<PathBuf> {
    let cached = paths::cache()
        .ok()
        .and_then(|cache| std::fs::read_dir(cache.join("bin/helm")).ok())
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("helm")))
        .find(|path| path.is_file());
    cached.or_else(|| sh::available("helm").then(|| PathBuf::from("helm")))
}

fn two_clusters(context: &Context) -> Result<Outcome> {
    cluster::selftest(&context.workspace)?;
    Ok(Outcome::ok())
}

fn install(context: &Context) -> Result<Outcome> {
    // What an interrupted run left would hide a cluster that cannot be brought up.
    drop(Down(&context.workspace));
    cluster::up(&cluster::Options {
        workspace: context.workspace.clone(),
        name: CLUSTER.to_owned(),
        minor: None,
        control_plane_only: false,
    })?;
    deploy::run(&deploy::Args {
        name: CLUSTER.to_owned(),
        kubeconfig: None,
        image_prefix: None,
        set: Vec::new(),
    })?;
    Ok(Outcome::ok())
}

fn end_to_end(context: &Context) -> Result<Outcome> {
    let kubeconfig = paths::ClusterPaths::new(&context.workspace, CLUSTER)?.kubeconfig();
    let mut command = context.cargo();
    command
        .args(["test", "--package=holdfast-e2e", "--no-fail-fast"])
        .args(["--", "--include-ignored", "--show-output"])
        .env("HOLDFAST_E2E_KUBECONFIG", kubeconfig);
    cargo::run("end to end", &context.log("end-to-end"), &mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_needs_no_cluster_and_says_what_it_leaves_out() {
        let context = Context {
            workspace: PathBuf::new(),
            logs: PathBuf::new(),
            quick: true,
        };
        for stage in STAGES {
            let why = why_not(stage, &context, &Report::default());
            assert_eq!(why.is_some(), stage.needs != Needs::Nothing, "{}", stage.name);
        }
    }

    #[test]
    fn without_holdfast_its_stages_say_so() {
        let context = Context {
            workspace: PathBuf::new(),
            logs: PathBuf::new(),
            quick: false,
        };
        let stage = STAGES
            .iter()
            .find(|stage| stage.needs == Needs::Holdfast)
            .expect("one");
        assert_eq!(
            why_not(stage, &context, &Report::default()),
            Some("Holdfast could not be installed")
        );
    }
}
