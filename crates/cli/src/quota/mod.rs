//! `quota`: what backups occupy, what limits it, what would free it, and what an administrator may decide.
//!
//! **Promises.** Figures come from the ledger's records; who may not read those sees what is published in the
//! namespace's own ResourceQuotas, and is told so. What cannot be read is said, never counted as nothing.

mod approve;
mod capabilities;
mod frees;
mod read;
mod render;
mod rights;
mod sums;
mod write_off;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use jiff::Timestamp;
use serde::Serialize;

use crate::connect::Connection;
use crate::style::Style;
use crate::waves::Output;

/// Arguments of `quota`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tells what each installed strategy's driver is taken to do with bytes, and who says so.
    Capabilities(capabilities::Args),
    /// Stops charging for artifacts that no Backup refers to. Deletes no bytes. Needs the verb write-off.
    WriteOff(write_off::Args),
    /// Lets a listing release what it misses, where that waits for an administrator. Needs the verb write-off.
    Approve(approve::Args),
}

/// Runs `quota` and what is below it.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    match &args.command {
        Some(Command::Capabilities(args)) => capabilities::run(connection, args, style).await,
        Some(Command::WriteOff(args)) => write_off::run(connection, args, style).await,
        Some(Command::Approve(args)) => approve::run(connection, args, style).await,
        None => {
            let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
            let cluster = read::read(connection, namespace).await?;
            let told = sums::told(&cluster, namespace);
            match args.output {
                Output::Table => Ok(render::text(&told, namespace, Timestamp::now(), style)),
                Output::Json => json(&told),
            }
        }
    }
}

/// `1 artifact`, `2 artifacts`.
fn artifacts(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 artifact".to_owned(),
        count => format!("{count} artifacts"),
    }
}

/// For programs.
fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).context("the answer cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

#[cfg(test)]
mod tests;
