//! `cargo xtask bench data-path`: 100,000 small files and one of 5 GiB through movers that may hold 512 MiB, beside the
//! same engine's program by hand.
//!
//! Promise: a cluster of its own unless one is named, ended whatever happens; movers are optimised. A mover that holds more
//! than it may is ended by the kernel, and the bench with it. How long it takes is judged as a multiple of the program's
//! time on the same machine.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

use crate::progress::{Step, say};
use crate::{checks, cluster, deploy, sh};

/// Name of its own cluster.
const CLUSTER: &str = "bench-data-path";

/// What is too slow or too much.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// What a mover's container may hold, in MiB: the limit that the kernel enforces.
    pub mover_mebibytes: u32,
    /// A mover may take so many times as long as the program by hand,
    seconds_ratio: f64,
    /// plus this, which is what connecting and looking for earlier snapshots takes.
    seconds_floor: f64,
}

/// What is measured with.
#[derive(Clone, Debug, clap::Args)]
// The command's own arguments are a group of this name already.
#[group(id = "data-path")]
pub struct Args {
    /// For `data-path`: a running cluster of this checkout instead of one of its own.
    #[arg(long)]
    cluster: Option<String>,
    /// For `data-path`: Restic, or Kopia with the program that `KOPIA_BIN` names.
    #[arg(long, default_value = "Restic")]
    engine: String,
    /// For `data-path`: so many small files.
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// For `data-path`: MiB of the large file.
    #[arg(long, default_value_t = 5 * 1024)]
    large: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            cluster: None,
            engine: "Restic".to_owned(),
            files: 100_000,
            large: 5 * 1024,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    engine: String,
    limit_mebibytes: u32,
    runs: Vec<Run>,
}

#[derive(Debug, Deserialize)]
struct Run {
    what: String,
    mover: Peak,
    hand: Peak,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peak {
    seconds: f64,
    peak_mebibytes: f64,
}

/// Builds, measures, shows and judges.
pub fn run(workspace: &Path, limits: &Limits, args: &Args) -> Result<()> {
    let images = deploy::build_images_as(workspace, "localhost", &["--release"])?;
    let (running, _down) = match &args.cluster {
        Some(name) => (cluster::Running::open(workspace, name)?, None),
        None => {
            let options = cluster::Options {
                workspace: workspace.to_owned(),
                name: CLUSTER.to_owned(),
                minor: None,
                control_plane_only: false,
            };
            (
                cluster::up(&options)?,
                Some(cluster::Ended {
                    workspace,
                    name: CLUSTER,
                }),
            )
        }
    };
    deploy::load(&running, &images)?;
    deploy::install(workspace, &running.kubeconfig(), &images, &[])?;
    let step = Step::start("measuring the data path");
    let mut command = checks::cargo();
    command
        .current_dir(workspace)
        .args([
            "run",
            "--quiet",
            "--package=holdfast-e2e",
            "--bin=bench_data_path",
            "--",
        ])
        .arg(format!("--kubeconfig={}", running.kubeconfig().display()))
        .arg(format!("--folder={}", folder(workspace).display()))
        .arg(format!("--engine={}", args.engine))
        .arg(format!("--files={}", args.files))
        .arg(format!("--bytes={}", args.large << 20))
        .arg(format!("--mebibytes={}", limits.mover_mebibytes));
    let said = sh::run_heard("measure the data path", &mut command, |line| {
        step.note(line.trim())
    });
    let _ = std::fs::remove_dir_all(folder(workspace));
    let said = said?;
    step.done("measured; what came back is what was there, byte by byte");
    let measured: Measured =
        serde_json::from_str(said.trim()).with_context(|| format!("the bench said {said:?}"))?;
    show(&measured);
    judge(&measured, limits)
}

fn folder(workspace: &Path) -> PathBuf {
    workspace.join("target/bench-data-path")
}

fn show(of: &Measured) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        format!("{}, movers with {} MiB", of.engine, of.limit_mebibytes),
        "mover".to_owned(),
        "by hand".to_owned(),
    ]);
    let cell = |peak: Peak| format!("{:.1} s, {:.0} MiB", peak.seconds, peak.peak_mebibytes);
    for run in &of.runs {
        table.add_row([run.what.clone(), cell(run.mover), cell(run.hand)]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    say(format!("\n{table}"));
}

fn judge(of: &Measured, limits: &Limits) -> Result<()> {
    let above: Vec<String> = of
        .runs
        .iter()
        .filter_map(|run| {
            let most = run.hand.seconds * limits.seconds_ratio + limits.seconds_floor;
            (run.mover.seconds > most).then(|| {
                format!(
                    "{}: {:.1} s, the limit is {most:.1} s",
                    run.what, run.mover.seconds
                )
            })
        })
        .collect();
    if !above.is_empty() {
        bail!("above the limits: {}", above.join("; "));
    }
    say("within the limits");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_that_takes_much_longer_than_the_program_is_named() {
        let peak = |seconds| Peak {
            seconds,
            peak_mebibytes: 100.0,
        };
        let of = |mover| Measured {
            engine: "Restic".to_owned(),
            limit_mebibytes: 512,
            runs: vec![Run {
                what: "restore one file".to_owned(),
                mover: peak(mover),
                hand: peak(10.0),
            }],
        };
        let limits = Limits {
            mover_mebibytes: 512,
            seconds_ratio: 2.0,
            seconds_floor: 5.0,
        };
        assert!(judge(&of(25.0), &limits).is_ok());
        let error = judge(&of(26.0), &limits).expect_err("too slow").to_string();
        assert!(error.contains("restore one file"), "{error}");
    }
}
