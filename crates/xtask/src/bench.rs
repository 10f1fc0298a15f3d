//! `cargo xtask bench`: what must stay fast, measured, against limits in a file.
//!
//! Promise: figures come from optimised programs; a figure above its limit in `dev/bench-limits.json` is an error
//! that names both. It is no test: a busy machine measures the machine.

mod account;
mod data_path;
mod wave;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;

use crate::paths;

/// Arguments of `cargo xtask bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only this one; without it, those that need nothing but this machine.
    #[arg(value_enum)]
    name: Option<Name>,
    /// For `account`: this many Backups, in a hundredth as many namespaces; a multiple of 100.
    #[arg(long, value_parser = account::backups)]
    backups: Option<usize>,
    #[command(flatten)]
    data_path: data_path::Args,
}

impl Args {
    /// Those that need nothing but this machine.
    pub fn everything() -> Self {
        Self {
            name: None,
            backups: None,
            data_path: data_path::Args::default(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// A wave of 700 deletions among 10,000 and among 100,000 Snapshots.
    Wave,
    /// 100,000 Backups in 1,000 namespaces of a real API server: start, memory, writes, answers of the gate. Needs
    /// root; takes a quarter of an hour or more.
    Account,
    /// 100,000 small files and one of 5 GiB through movers that may hold 512 MiB, beside the same engine's program by
    /// hand, on a cluster of its own. Needs root and 30 GiB of disk; takes ten minutes or more.
    DataPath,
}

/// The file `dev/bench-limits.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Limits {
    wave: wave::Limits,
    account: account::Limits,
    data_path: data_path::Limits,
}

/// Runs `cargo xtask bench`.
pub fn run(args: &Args) -> Result<()> {
    let workspace = paths::workspace()?;
    let file = workspace.join("dev/bench-limits.json");
    let text = std::fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
    let limits: Limits = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not as it should be", file.display()))?;
    match args.name {
        None | Some(Name::Wave) => wave::run(&workspace, &limits.wave),
        Some(Name::Account) => {
            let backups = args.backups.unwrap_or(account::MANY);
            account::run(&workspace, &limits.account, backups)
        }
        Some(Name::DataPath) => data_path::run(&workspace, &limits.data_path, &args.data_path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_limits_file_is_as_it_should_be() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/bench-limits.json");
        let limits: Limits = serde_json::from_slice(&std::fs::read(file).expect("the file")).expect("limits");
        assert!(limits.wave.decision_median_millis <= 10.0);
        assert!(limits.account.admission_p99_millis <= 1.0);
        assert_eq!(limits.account.conflicts, 0);
        assert!(limits.data_path.mover_mebibytes <= 512);
    }
}
