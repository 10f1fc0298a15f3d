//! The stages of `cargo xtask test`, one function each.
//!
//! An error, too, is a failed stage; an [`Outcome`] counts several checks.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::report::Outcome;
use super::{CLUSTER, Context, Down, cargo, chart, control_planes};
use crate::progress::say;
use crate::{bench, checks, cluster, demo, deploy, generate, image, paths, sh};

/// One stage.
pub struct Stage {
    /// What it is called.
    pub name: &'static str,
    /// What it needs.
    pub needs: Needs,
    /// Runs it.
    pub run: fn(&Context) -> Result<Outcome>,
}

/// What a stage needs beside the checkout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: runs with `--quick` too.
    Nothing,
    /// To bring up clusters of its own.
    Clusters,
    /// A cluster to install Holdfast in.
    Installing,
    /// Holdfast running in the cluster of the tests.
    Holdfast,
}

/// The stage after which Holdfast runs in the cluster of the tests.
pub const INSTALLED: &str = "cluster and install";

/// Every stage, in the order in which they run.
pub const STAGES: &[Stage] = &[
    stage("format", Needs::Nothing, format),
    stage("clippy", Needs::Nothing, clippy),
    stage("source", Needs::Nothing, source),
    stage("generated files", Needs::Nothing, generated),
    stage("crates alone", Needs::Nothing, crates_alone),
    stage("unit and integration tests", Needs::Nothing, unit_tests),
    stage("chart", Needs::Nothing, the_chart),
    stage("bench", Needs::Clusters, bench),
    stage("two clusters", Needs::Clusters, two_clusters),
    stage("control planes", Needs::Clusters, control_planes::run),
    stage(INSTALLED, Needs::Installing, install),
    stage("operator and API server", Needs::Holdfast, api_server),
    stage("end to end", Needs::Holdfast, end_to_end),
    stage("end to end on Kopia", Needs::Holdfast, end_to_end_on_kopia),
    stage("demo", Needs::Holdfast, demo),
    stage("demo on Kopia", Needs::Holdfast, demo_on_kopia),
];

const fn stage(name: &'static str, needs: Needs, run: fn(&Context) -> Result<Outcome>) -> Stage {
    Stage { name, needs, run }
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
    outcome.check("cases", checks::every_case_has_a_test(&context.workspace));
    outcome.check(
        "quota cases",
        checks::every_quota_case_has_a_test(&context.workspace),
    );
    outcome.check("fields", checks::every_field_has_a_test(&context.workspace));
    outcome.check("manifests", checks::manifests_are_shown(&context.workspace));
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
    let mut to = deploy::Args {
        name: CLUSTER.to_owned(),
        kubeconfig: None,
        image_prefix: None,
        // The gate, and copies of credentials, are part of what is tested.
        set: vec![
            "quota.enforcement=true".to_owned(),
            "features.credentialProjection.enabled=true".to_owned(),
        ],
    };
    if let Some((kubeconfig, image_prefix)) = &context.other {
        to.kubeconfig = Some(kubeconfig.clone());
        to.image_prefix = Some(image_prefix.clone());
        let tools = image::tools(&context.workspace.join("target/images"), image_prefix)?;
        say(format!(
            "the scenarios need this image too: {} from {}",
            tools.reference,
            tools.archive.display()
        ));
        let standin = deploy::build_standin(&context.workspace, image_prefix)?;
        say(format!(
            "and this one: {} from {}",
            standin.reference,
            standin.archive.display()
        ));
        deploy::run(&to)?;
        return Ok(Outcome::ok());
    }
    // What an interrupted run left would hide a cluster that cannot be brought up.
    drop(Down(&context.workspace));
    let running = cluster::up(&cluster::Options {
        workspace: context.workspace.clone(),
        name: CLUSTER.to_owned(),
        minor: None,
        control_plane_only: false,
    })?;
    image::load(
        &running.paths,
        &deploy::build_standin(&context.workspace, "localhost")?,
    )?;
    deploy::run(&to)?;
    Ok(Outcome::ok())
}

/// The kubeconfig of the cluster of the tests.
fn kubeconfig(context: &Context) -> Result<PathBuf> {
    Ok(match &context.other {
        Some((kubeconfig, _)) => std::path::absolute(kubeconfig)?,
        None => paths::ClusterPaths::new(&context.workspace, CLUSTER)?.kubeconfig(),
    })
}

/// What no cluster is needed for, but too long for `--quick`: an optimised build and its measurements.
fn bench(_: &Context) -> Result<Outcome> {
    bench::run(&bench::Args::everything())?;
    Ok(Outcome::ok())
}

/// The operator's own tests that ask an API server beside a running Holdfast.
fn api_server(context: &Context) -> Result<Outcome> {
    let mut command = context.cargo();
    command
        .args(["test", "--package=holdfast-operator", "--test=api_server"])
        .args(["--", "--show-output"])
        .env("HOLDFAST_E2E_KUBECONFIG", kubeconfig(context)?);
    cargo::run(
        "operator and API server",
        &context.log("api-server"),
        &mut command,
    )
}

/// The story of the README, on the cluster of the tests.
fn demo(context: &Context) -> Result<Outcome> {
    demo::run(&demo_args(context))?;
    Ok(Outcome::ok())
}

/// Its first act once more, with smaller sets, since each snapshot takes two processes of kopia; the second asks no engine.
fn demo_on_kopia(context: &Context) -> Result<Outcome> {
    if !demo::has_kopia() {
        return Ok(Outcome::skip("demo on Kopia", NO_KOPIA));
    }
    demo::run(&demo_args(context).first_act_on(demo::EngineName::Kopia, 250))?;
    Ok(Outcome::ok())
}

fn demo_args(context: &Context) -> demo::Args {
    match &context.other {
        Some((kubeconfig, image_prefix)) => demo::Args::elsewhere(kubeconfig.clone(), image_prefix.clone()),
        None => demo::Args::here(CLUSTER),
    }
}

const NO_KOPIA: &str = "no kopia: KOPIA_BIN names no program";

fn end_to_end(context: &Context) -> Result<Outcome> {
    scenarios("end to end", context, &[], "Restic")
}

/// What depends on the engine once more, on the kopia program that the mover image was built with.
fn end_to_end_on_kopia(context: &Context) -> Result<Outcome> {
    const NAME: &str = "end to end on Kopia";
    if !demo::has_kopia() {
        return Ok(Outcome::skip(NAME, NO_KOPIA));
    }
    let tests = [
        "--test=backs_up",
        "--test=caps_delete_jobs",
        "--test=keeps_in_a_bucket",
        "--test=loses_no_deletion",
        "--test=maintains",
        "--test=privileged_movers",
        "--test=protects",
        "--test=restores",
        "--test=runs_on_schedule",
        "--test=survives_kill",
        "--test=waits_and_recovers",
        "--test=what_a_person_does",
    ];
    scenarios(NAME, context, &tests, "Kopia")
}

/// Scenarios of some programs, or of all.
fn scenarios(name: &str, context: &Context, programs: &[&str], engine: &str) -> Result<Outcome> {
    let kubeconfig = kubeconfig(context)?;
    let mut command = context.cargo();
    command
        .args(["test", "--package=holdfast-e2e", "--no-fail-fast"])
        .args(programs)
        .args(["--", "--include-ignored", "--show-output"])
        .env("HOLDFAST_E2E_ENGINE", engine)
        // Scenarios of one program wait for the cluster most of the time. Programs run one after another: what
        // changes something for all has one of its own.
        .env("RUST_TEST_THREADS", "10")
        .env("HOLDFAST_E2E_KUBECONFIG", kubeconfig);
    if let Some((_, prefix)) = &context.other {
        command
            .env("HOLDFAST_E2E_TOOLS_IMAGE", image::tools_reference(prefix))
            .env(
                "HOLDFAST_E2E_STANDIN_IMAGE",
                format!("{prefix}/holdfast-standin:dev"),
            );
    }
    cargo::run(name, &context.log(&name.replace(' ', "-")), &mut command)
}
