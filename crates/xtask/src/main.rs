//! The development commands of Holdfast: `cargo xtask <command>`.
//!
//! Each command lives in a module of its own with its arguments and one function `run`; this file
//! only names them. Everything is printed to standard error except what a command is asked for.

mod bench;
mod checks;
mod cluster;
mod demo;
mod deploy;
mod generate;
mod image;
mod mutants;
mod paths;
mod progress;
mod sh;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Development commands of Holdfast.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures what must stay fast, against the limits in dev/bench-limits.json.
    Bench(bench::Args),
    /// A real single-node Kubernetes cluster on this machine.
    Cluster(cluster::Args),
    /// Builds Holdfast, loads its images and installs the chart.
    Deploy(deploy::Args),
    /// Plays the incident that Holdfast is for, on a real cluster, and checks each step.
    Demo(demo::Args),
    /// Writes the definitions, the chart's README and the reference pages from the source.
    Generate(generate::Args),
    /// How much of the deletion rules the tests notice when it is changed; takes long, and is not part of `test`.
    Mutants(mutants::Args),
    /// Everything that is checked before a change goes in.
    Test(test::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Cluster(args) => cluster::run(args),
        Command::Deploy(args) => deploy::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        // Its own exit code, so that its last line is the last line.
        Command::Test(args) => match test::run(&args) {
            Ok(code) => return code,
            Err(error) => Err(error),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            progress::say(format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    /// What clap only asserts when a command is used is asserted of every command.
    #[test]
    fn every_command_can_be_parsed_and_has_help() {
        let mut command = Cli::command();
        command.build();
        command.clone().debug_assert();
        for name in [
            "bench", "cluster", "demo", "deploy", "generate", "mutants", "test",
        ] {
            let asked = Cli::try_parse_from(["xtask", name, "--help"]).unwrap_err();
            assert_eq!(asked.kind(), clap::error::ErrorKind::DisplayHelp, "{name}");
        }
    }
}
