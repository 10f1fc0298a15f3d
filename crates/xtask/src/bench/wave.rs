//! `cargo xtask bench wave`: a wave of 700 deletions among 10,000 and among 100,000 Snapshots.
//!
//! Promise: what an event costs must not grow with the number of Snapshots; what a decision costs has a limit.

use std::path::Path;

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use serde::Deserialize;

use crate::progress::{Step, say};
use crate::{checks, sh};

/// The sizes that are compared.
const SIZES: [usize; 2] = [10_000, 100_000];

/// What is too slow.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Limits {
    /// Longest median time of the decision about 700 pending, at each size.
    pub decision_median_millis: f64,
    /// An event among 100,000 Snapshots may cost this many times what it costs among 10,000 …
    pub event_median_ratio: f64,
    /// … plus this much, which is what a clock can tell apart.
    pub event_floor_micros: f64,
}

/// One line of the measuring program.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    snapshots: usize,
    wave: usize,
    event_micros: Figures,
    decision_millis: Figures,
}

#[derive(Debug, Deserialize)]
struct Figures {
    count: usize,
    min: f64,
    median: f64,
    p99: f64,
    max: f64,
}

/// Builds, measures, shows and judges.
pub fn run(workspace: &Path, limits: &Limits) -> Result<()> {
    let step = Step::start("building the bench, optimised");
    let of = ["--release", "--package=holdfast-bench", "--bin=bench_wave"];
    let mut build = checks::cargo();
    build.current_dir(workspace).arg("build").args(of);
    sh::run_heard("build the bench", &mut build, |line| step.note(line.trim()))?;
    step.done("built");
    let step = Step::start("measuring");
    let mut command = checks::cargo();
    command
        .current_dir(workspace)
        .args(["run", "--quiet"])
        .args(of)
        .arg("--")
        .args(SIZES.map(|n| n.to_string()));
    let lines = sh::run("measure the wave", &mut command)?;
    step.done("measured");
    let all: Vec<Measured> = lines
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the bench said {line:?}")))
        .collect::<Result<_>>()?;
    let [small, large] = &all[..] else {
        bail!("the bench measured {} sizes, not {}", all.len(), SIZES.len());
    };
    show(&all);
    judge(small, large, limits)
}

fn show(all: &[Measured]) {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_header(["", "Snapshots", "measured", "min", "median", "p99", "max"]);
    let row = |what: String, unit: &str, of: &Measured, f: &Figures| {
        let time = |t: f64| format!("{t:.2} {unit}");
        [
            what,
            of.snapshots.to_string(),
            f.count.to_string(),
            time(f.min),
            time(f.median),
            time(f.p99),
            time(f.max),
        ]
    };
    for one in all {
        table.add_row(row(
            format!("decision about {} pending", one.wave),
            "ms",
            one,
            &one.decision_millis,
        ));
    }
    for one in all {
        table.add_row(row("one deletion event".to_owned(), "µs", one, &one.event_micros));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    say(format!("\n{table}"));
}

fn judge(small: &Measured, large: &Measured, limits: &Limits) -> Result<()> {
    for one in [small, large] {
        let (took, limit) = (one.decision_millis.median, limits.decision_median_millis);
        if took > limit {
            bail!(
                "the decision about {} pending among {} Snapshots takes {took:.2} ms (median), the limit is {limit} ms",
                one.wave,
                one.snapshots
            );
        }
    }
    let (few, many) = (small.event_micros.median, large.event_micros.median);
    let limit = few * limits.event_median_ratio + limits.event_floor_micros;
    if many > limit {
        bail!(
            "a deletion event costs {many:.2} µs among {} Snapshots and {few:.2} µs among {} (medians); the limit is {} times as much plus {} µs",
            large.snapshots,
            small.snapshots,
            limits.event_median_ratio,
            limits.event_floor_micros
        );
    }
    say(format!(
        "within the limits: decision at most {} ms, an event among {} at most {} times one among {} plus {} µs (medians)",
        limits.decision_median_millis,
        large.snapshots,
        limits.event_median_ratio,
        small.snapshots,
        limits.event_floor_micros
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(snapshots: usize, event: f64, decision: f64) -> Measured {
        let figures = |median| Figures {
            count: 1,
            min: median,
            median,
            p99: median,
            max: median,
        };
        Measured {
            snapshots,
            wave: 700,
            event_micros: figures(event),
            decision_millis: figures(decision),
        }
    }

    #[test]
    fn what_is_above_its_limit_is_named() {
        let limits = Limits {
            decision_median_millis: 10.0,
            event_median_ratio: 3.0,
            event_floor_micros: 5.0,
        };
        let judge = |few, many, decision| {
            judge(
                &measured(10_000, few, 1.0),
                &measured(100_000, many, decision),
                &limits,
            )
            .map_err(|e| e.to_string())
        };
        assert_eq!(judge(2.0, 10.0, 9.9), Ok(()));
        assert!(judge(2.0, 11.5, 9.9).is_err_and(|e| e.contains("a deletion event costs 11.50")));
        assert!(judge(2.0, 3.0, 10.1).is_err_and(|e| e.contains("among 100000 Snapshots takes 10.10 ms")));
    }
}
