//! `kubectl holdfast`: what Holdfast holds back, why, and what ends it.
//!
//! **Promises.** It uses the rights of the caller's kubeconfig and no others, changes nothing before somebody said yes
//! to it (`release`, `reject`, `quota write-off`, `quota approve`), and colours its output only on a terminal. An error says what could not be done, why,
//! and what to do next.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ask;
mod chosen;
mod cluster;
mod connect;
mod failure;
mod forecast;
mod quota;
mod read;
mod reject;
mod release;
mod style;
mod target;
mod waves;
mod why;

use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use crate::style::Style;

/// Field manager of what is written here.
const MANAGER: &str = "kubectl-holdfast";

/// What Holdfast holds back, why, what would be, and what ends it.
#[derive(Debug, Parser)]
#[command(name = "kubectl holdfast", bin_name = "kubectl holdfast", version, after_help = failure::CODES)]
struct Cli {
    #[command(flatten)]
    connection: connect::Args,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the repositories that hold deletions back, with the command that releases each wave.
    Waves(waves::Args),
    /// Tells how the deletion of a Snapshot goes, or would go: the facts, the rule that decides, what happens next.
    Why(why::Args),
    /// Tells what would be deleted, held and kept, before anyone deletes anything. Changes nothing.
    Forecast(forecast::Args),
    /// Releases a wave: the data of what is held is deleted. Needs the verb acknowledge.
    Release(release::Args),
    /// Rejects a wave: the data of what is held is kept, and the objects go.
    Reject(reject::Args),
    /// Tells what backups occupy in storage, what limits it, and what would free space.
    Quota(quota::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let style = Style::of(&std::io::stderr());
            eprintln!("{} {error:#}", style.bad("error:"));
            ExitCode::from(failure::code_of(&error))
        }
    }
}

fn run(cli: &Cli) -> Result<()> {
    // Fails only when a provider is there already, which is as good.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("this process cannot do network input and output")?;
    let style = Style::of(&std::io::stdout());
    let text = runtime.block_on(async {
        let connection = cli.connection.connect().await?;
        match &cli.command {
            Command::Waves(args) => waves::run(&connection, args, style).await,
            Command::Why(args) => why::run(&connection, args, style).await,
            Command::Forecast(args) => forecast::run(&connection, args, style).await,
            Command::Release(args) => release::run(&connection, args, style).await,
            Command::Reject(args) => reject::run(&connection, args, style).await,
            Command::Quota(args) => quota::run(&connection, args, style).await,
        }
    })?;
    print(&text)
}

/// Writes to standard output.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // Piped into `head`: who closed the pipe has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("the output cannot be written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn common_flags_stand_before_or_after_the_verb() {
        for line in [
            ["kubectl-holdfast", "-n", "a", "waves"],
            ["kubectl-holdfast", "waves", "-n", "a"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            assert_eq!(cli.connection.namespace.as_deref(), Some("a"));
        }
        assert!(Cli::try_parse_from(["kubectl-holdfast", "waves", "-n", "a", "-A"]).is_err());
    }
}
