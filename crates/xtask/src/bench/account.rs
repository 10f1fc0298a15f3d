//! `cargo xtask bench account`: an operator beside a real etcd and API server that hold many Backups.
//!
//! Promise: a control plane of its own, ended whatever happens; the operator is a process of its own, so its memory
//! is its own. What does not depend on the machine (writes for each change, conflicts) is judged at every size.

use std::path::Path;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

use crate::progress::{Step, say};
use crate::{checks, cluster, sh};

/// Backups of the named bench.
pub const MANY: usize = 100_000;
/// Backups of each namespace.
const EACH: usize = 100;
/// Name of the control plane.
const CLUSTER: &str = "bench-account";

/// What is too slow or too much.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// From the start of the operator to the last published figure when every record is there, for each 1,000 Backups,
    start_millis_per_thousand: f64,
    /// plus this, which goes by before the first one is read.
    start_base_seconds: f64,
    /// The same for the very first start, which writes every record.
    first_start_seconds_per_thousand: f64,
    /// The most memory that it ever held, for each 1,000 Backups, in MiB,
    memory_mebibytes_per_thousand: f64,
    /// plus this.
    memory_base_mebibytes: f64,
    /// Writes for each changed Backup when each is in a namespace of its own: a record and a figure.
    writes_per_change: f64,
    /// The same when all are in one namespace: the figure is written once in a while.
    writes_per_change_in_one_namespace: f64,
    /// An answer of the gate inside the operator, at the 99th percentile.
    pub admission_p99_millis: f64,
    /// Conflicts of ordinary creates beside figures that change every second.
    pub conflicts: u64,
}

/// What the measuring program says.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    backups: usize,
    namespaces: usize,
    first_start_seconds: f64,
    start_seconds: f64,
    first_memory: Memory,
    memory: Memory,
    last_memory: Memory,
    writes_per_change: Writes,
    admission: Admission,
    conflicts: Conflicts,
}

/// In MiB.
#[derive(Debug, Clone, Deserialize)]
struct Memory {
    now: f64,
    peak: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct Writes {
    spread: f64,
    burst: f64,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Admission {
    answers: f64,
    per_second: f64,
    mean_millis: f64,
    within_one_milli: f64,
    p99_at_most_millis: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Conflicts {
    creates: u64,
    conflicts: u64,
    figure_changes: u64,
    seconds: f64,
}

/// A number of Backups that can be spread evenly.
pub fn backups(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if number > 0 && usize::is_multiple_of(number, EACH) => Ok(number),
        Ok(_) | Err(_) => Err(format!("has to be a multiple of {EACH}")),
    }
}

/// Builds, measures, shows and judges.
pub fn run(workspace: &Path, limits: &Limits, backups: usize) -> Result<()> {
    let step = Step::start("building the operator and the bench, optimised");
    let mut build = checks::cargo();
    build.current_dir(workspace).args([
        "build",
        "--release",
        "--package=holdfast-operator",
        "--bin=holdfast-operator",
        "--package=holdfast-bench",
        "--bin=bench_account",
    ]);
    sh::run_heard("build the bench", &mut build, |line| step.note(line.trim()))?;
    step.done("built");
    // What an interrupted run left is full already.
    let end = || cluster::Ended {
        workspace,
        name: CLUSTER,
    };
    drop(end());
    let _down = end();
    let running = cluster::up(&cluster::Options {
        workspace: workspace.to_owned(),
        name: CLUSTER.to_owned(),
        minor: None,
        control_plane_only: true,
    })?;
    let log = workspace.join("target/bench-account.log");
    let _ = std::fs::remove_file(&log);
    let step = Step::start(format!("measuring among {backups} Backups"));
    let mut command = checks::cargo();
    command
        .current_dir(workspace)
        .args(["run", "--quiet", "--release", "--package=holdfast-bench"])
        .args(["--bin=bench_account", "--"])
        .arg(format!("--kubeconfig={}", running.kubeconfig().display()))
        .arg(format!("--log={}", log.display()))
        .arg(format!("--backups={backups}"))
        .arg(format!("--namespaces={}", backups / EACH));
    let said = sh::run_heard("measure Account", &mut command, |line| step.note(line.trim()))
        .with_context(|| format!("the operator's log is {}", log.display()))?;
    step.done("measured");
    let measured: Measured =
        serde_json::from_str(said.trim()).with_context(|| format!("the bench said {said:?}"))?;
    show(&measured, limits);
    judge(&measured, limits)
}

/// One figure that has a limit.
struct Figure {
    what: &'static str,
    value: f64,
    limit: f64,
    unit: &'static str,
}

fn figures(of: &Measured, limits: &Limits) -> Vec<Figure> {
    let thousands = of.backups as f64 / 1_000.0;
    let peak = [&of.first_memory, &of.memory, &of.last_memory].map(|memory| memory.peak);
    let figure = |what, value, limit, unit| Figure {
        what,
        value,
        limit,
        unit,
    };
    vec![
        figure(
            "first start to all figures published (every record is written)",
            of.first_start_seconds,
            limits.start_base_seconds + limits.first_start_seconds_per_thousand * thousands,
            "s",
        ),
        figure(
            "start to all figures published",
            of.start_seconds,
            limits.start_base_seconds + limits.start_millis_per_thousand * thousands / 1_000.0,
            "s",
        ),
        figure(
            "memory of the operator, at most",
            peak.into_iter().fold(0.0, f64::max),
            limits.memory_base_mebibytes + limits.memory_mebibytes_per_thousand * thousands,
            "MiB",
        ),
        figure(
            "writes for each changed Backup, one in each namespace",
            of.writes_per_change.spread,
            limits.writes_per_change,
            "",
        ),
        figure(
            "writes for each changed Backup, all in one namespace",
            of.writes_per_change.burst,
            limits.writes_per_change_in_one_namespace,
            "",
        ),
        figure(
            "answer of the gate inside the operator, 99 of 100 within",
            of.admission.p99_at_most_millis.unwrap_or(f64::INFINITY),
            limits.admission_p99_millis,
            "ms",
        ),
        figure(
            "conflicts (409) of ordinary creates beside a busy ledger",
            of.conflicts.conflicts as f64,
            limits.conflicts as f64,
            "",
        ),
    ]
}

fn show(of: &Measured, limits: &Limits) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header([
        format!("{} Backups in {} namespaces", of.backups, of.namespaces),
        "measured".to_owned(),
        "limit".to_owned(),
    ]);
    let number = |value: f64, unit: &str| format!("{value:.2} {unit}").trim_end().to_owned();
    for one in figures(of, limits) {
        table.add_row([
            one.what.to_owned(),
            number(one.value, one.unit),
            number(one.limit, one.unit),
        ]);
    }
    for (what, memory) in [
        ("memory after the first start", &of.first_memory),
        ("memory after a start", &of.memory),
        ("memory at the end", &of.last_memory),
    ] {
        table.add_row([
            what.to_owned(),
            format!("{:.0} MiB (peak {:.0})", memory.now, memory.peak),
            String::new(),
        ]);
    }
    let (gate, creates) = (&of.admission, &of.conflicts);
    table.add_row([
        format!(
            "{:.0} answers of the gate, {:.0} a second",
            gate.answers, gate.per_second
        ),
        format!(
            "mean {:.3} ms, {:.2} % within 1 ms",
            gate.mean_millis,
            gate.within_one_milli * 100.0
        ),
        String::new(),
    ]);
    table.add_row([
        format!("{} Secrets and Pods created, 50 at once", creates.creates),
        format!(
            "{} changes of the figures in {:.0} s",
            creates.figure_changes, creates.seconds
        ),
        String::new(),
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    say(format!("\n{table}"));
}

fn judge(of: &Measured, limits: &Limits) -> Result<()> {
    // Figures that stand still would make no conflicts.
    if (of.conflicts.figure_changes as f64) < of.conflicts.seconds / 2.0 {
        bail!(
            "figures changed {} times in {:.0} s: the ledger was not busy, so that there was no conflict says nothing",
            of.conflicts.figure_changes,
            of.conflicts.seconds
        );
    }
    let above: Vec<String> = figures(of, limits)
        .into_iter()
        .filter(|one| one.value > one.limit)
        .map(|one| {
            format!(
                "{}: {:.2} {u}, the limit is {:.2} {u}",
                one.what,
                one.value,
                one.limit,
                u = one.unit
            )
        })
        .collect();
    if !above.is_empty() {
        bail!(
            "above the limits among {} Backups: {}",
            of.backups,
            above.join("; ")
        );
    }
    say(format!("within the limits among {} Backups", of.backups));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            start_millis_per_thousand: 100.0,
            start_base_seconds: 10.0,
            first_start_seconds_per_thousand: 5.0,
            memory_mebibytes_per_thousand: 5.0,
            memory_base_mebibytes: 50.0,
            writes_per_change: 2.1,
            writes_per_change_in_one_namespace: 1.2,
            admission_p99_millis: 1.0,
            conflicts: 0,
        }
    }

    fn measured() -> Measured {
        let memory = Memory {
            now: 100.0,
            peak: 120.0,
        };
        Measured {
            backups: 100_000,
            namespaces: 1_000,
            first_start_seconds: 300.0,
            start_seconds: 15.0,
            first_memory: memory.clone(),
            memory: memory.clone(),
            last_memory: memory,
            writes_per_change: Writes {
                spread: 2.0,
                burst: 1.05,
            },
            admission: Admission {
                answers: 20_000.0,
                per_second: 1_000.0,
                mean_millis: 0.1,
                within_one_milli: 0.999,
                p99_at_most_millis: Some(0.5),
            },
            conflicts: Conflicts {
                creates: 1_000,
                conflicts: 0,
                figure_changes: 20,
                seconds: 20.0,
            },
        }
    }

    fn said(change: impl FnOnce(&mut Measured)) -> String {
        let mut of = measured();
        change(&mut of);
        judge(&of, &limits()).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_is_above_its_limit_is_named() {
        assert_eq!(said(|_| {}), "");
        assert!(said(|of| of.start_seconds = 20.5).contains("20.50 s, the limit is 20.00 s"));
        assert!(said(|of| of.first_start_seconds = 511.0).contains("the limit is 510.00 s"));
        assert!(said(|of| of.last_memory.peak = 551.0).contains("551.00 MiB, the limit is 550.00 MiB"));
        assert!(said(|of| of.writes_per_change.spread = 3.0).contains("one in each namespace: 3.00"));
        assert!(said(|of| of.writes_per_change.burst = 2.0).contains("all in one namespace: 2.00"));
        assert!(said(|of| of.admission.p99_at_most_millis = Some(2.5)).contains("2.50 ms"));
        assert!(said(|of| of.admission.p99_at_most_millis = None).contains("inf ms"));
        assert!(said(|of| of.conflicts.conflicts = 1).contains("conflicts (409)"));
    }

    #[test]
    fn that_there_was_no_conflict_counts_only_beside_a_busy_ledger() {
        assert!(said(|of| of.conflicts.figure_changes = 5).contains("was not busy"));
    }

    #[test]
    fn only_what_can_be_spread_evenly_is_asked_for() {
        assert_eq!(backups("5000"), Ok(5_000));
        for wrong in ["0", "150", "x", ""] {
            assert!(backups(wrong).is_err(), "{wrong}");
        }
    }
}
