//! What is asked of real API servers and controller managers of several minor versions, on which no operator runs: the
//! release gate for published figures, and whether the scripted API server answers as a real one does.
//!
//! Promise: each version gets a control plane of its own, which is ended whatever happens; a version that cannot be
//! built or started is a failure, not a skip.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::report::Outcome;
use super::{Context, cargo};
use crate::cluster;
use crate::progress::say;

/// Which control planes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Versions {
    /// The oldest and the newest supported.
    Ends,
    /// Every supported one.
    All,
    /// This one.
    One(String),
}

impl Versions {
    /// Reads the value of `--kubernetes`.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "ends" => Ok(Self::Ends),
            "all" => Ok(Self::All),
            minor if cluster::MINORS.contains(&minor) => Ok(Self::One(minor.to_owned())),
            other => bail!(
                "{other:?} is not supported: use `ends`, `all` or one of {}",
                cluster::MINORS.join(", ")
            ),
        }
    }

    /// The minor versions, the oldest first: if Kubernetes changed its mind, the newest tells.
    fn minors(&self) -> Vec<String> {
        let all = cluster::MINORS.iter().rev().map(|minor| (*minor).to_owned());
        match self {
            Self::All => all.collect(),
            Self::Ends => {
                let all: Vec<String> = all.collect();
                let ends = [all.first(), all.last()];
                ends.into_iter().flatten().cloned().collect()
            }
            Self::One(minor) => vec![minor.clone()],
        }
    }
}

/// The stage.
pub fn run(context: &Context) -> Result<Outcome> {
    let mut whole = Outcome::default();
    for minor in context.versions.minors() {
        let outcome = on(context, &minor).unwrap_or_else(|error| Outcome {
            failed: vec![format!("Kubernetes {minor}: {error:#}")],
            ..Outcome::default()
        });
        say(format!(
            "control plane of Kubernetes {minor}: {} passed, {} failed",
            outcome.passed,
            outcome.failed.len()
        ));
        whole.add(outcome);
    }
    Ok(whole)
}

fn on(context: &Context, minor: &str) -> Result<Outcome> {
    let name = format!("control-plane-{}", minor.replace('.', "-"));
    let _down = Ended(&context.workspace, &name);
    let running = cluster::up(&cluster::Options {
        workspace: context.workspace.clone(),
        name: name.clone(),
        minor: Some(minor.to_owned()),
        control_plane_only: true,
    })?;
    let program = std::env::current_exe().context("the program that runs the tests has no path")?;
    let program = format!("'{}' cluster program --name {name}", program.display());
    let asked = |what: &str, arguments: &[&str]| {
        let mut command = context.cargo();
        command
            .args(["test", "--no-fail-fast"])
            .args(arguments)
            .env("HOLDFAST_E2E_CONTROL_PLANE", running.kubeconfig())
            .env("HOLDFAST_E2E_PROGRAM", &program);
        let log = format!("{}-{}", what.replace(' ', "-"), minor.replace('.', "-"));
        cargo::run(
            &format!("{what} on Kubernetes {minor}"),
            &context.log(&log),
            &mut command,
        )
    };
    // The ground first, then what stands on it.
    let operator = "--package=holdfast-operator";
    let account = [
        operator,
        "--test=quota_keys",
        "--test=account",
        "--",
        "--show-output",
    ];
    let mut outcome = asked("quota keys", &account)?;
    // Beside no operator: it makes records by hand.
    let commands = [
        "--package=kubectl-holdfast",
        "--test=quota",
        "--",
        "--show-output",
    ];
    outcome.add(asked("quota commands", &commands)?);
    let conformance = [operator, "--test=wave", "--", "--show-output", "conformance"];
    outcome.add(asked("scripted and real API server", &conformance)?);
    Ok(outcome)
}

/// Takes the control plane down when dropped.
struct Ended<'a>(&'a Path, &'a str);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Err(error) = cluster::down(self.0, self.1) {
            say(format!(
                "the control plane {name} is still there: {error:#}; try `cargo xtask cluster down --name {name}`",
                name = self.1
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_are_the_oldest_and_the_newest() {
        assert_eq!(Versions::Ends.minors(), ["1.34", "1.37"]);
        assert_eq!(Versions::All.minors().len(), cluster::MINORS.len());
        assert_eq!(Versions::parse("1.36").expect("supported").minors(), ["1.36"]);
        assert!(Versions::parse("1.33").is_err());
    }
}
