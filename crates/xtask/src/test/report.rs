//! What the stages found, and how it is told.
//!
//! Promise: nothing is skipped without its name and reason, and the last line counts every test of every stage.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::progress::seconds;

/// A test or check that did not run, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Which.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What one stage found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Tests and checks that passed.
    pub passed: u64,
    /// What failed, each with what it said.
    pub failed: Vec<String>,
    /// What did not run.
    pub skipped: Vec<Skipped>,
}

impl Outcome {
    /// One check that passed.
    pub fn ok() -> Self {
        Self {
            passed: 1,
            ..Self::default()
        }
    }

    /// A stage that did not run as a whole.
    pub fn skip(name: &str, reason: impl Into<String>) -> Self {
        Self {
            skipped: vec![Skipped {
                name: name.to_owned(),
                reason: reason.into(),
            }],
            ..Self::default()
        }
    }

    /// Counts what another run of the same stage came to.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }

    /// Counts one more check.
    pub fn check(&mut self, name: &str, result: anyhow::Result<()>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(error) => self.failed.push(format!("{name}: {error:#}")),
        }
    }

    /// The stage in a word.
    fn word(&self) -> &'static str {
        match (self.failed.is_empty(), self.passed) {
            (false, _) => "FAILED",
            (true, 0) => "skipped",
            (true, _) => "ok",
        }
    }
}

/// All stages so far.
#[derive(Debug, Default)]
pub struct Report {
    stages: Vec<(String, Outcome, Duration)>,
}

impl Report {
    /// Adds a stage that has ended, and returns the line that says so.
    pub fn add(&mut self, name: &str, outcome: Outcome, time: Duration) -> String {
        let line = format!(
            "{}: {name} ({} passed, {} failed, {} skipped, {})",
            outcome.word(),
            outcome.passed,
            outcome.failed.len(),
            outcome.skipped.len(),
            seconds(time)
        );
        self.stages.push((name.to_owned(), outcome, time));
        line
    }

    /// Whether nothing failed and something ran.
    pub fn good(&self) -> bool {
        let (passed, failed, _) = self.totals();
        failed == 0 && passed > 0
    }

    /// Whether the stage `name` ran and found nothing wrong.
    pub fn passed(&self, name: &str) -> bool {
        self.stages
            .iter()
            .any(|(stage, outcome, _)| stage == name && outcome.failed.is_empty() && outcome.passed > 0)
    }

    fn totals(&self) -> (u64, usize, usize) {
        self.stages.iter().fold((0, 0, 0), |(p, f, s), (_, outcome, _)| {
            (
                p + outcome.passed,
                f + outcome.failed.len(),
                s + outcome.skipped.len(),
            )
        })
    }

    /// The table, what failed, what was skipped, and the last line.
    pub fn render(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(["stage", "result", "passed", "failed", "skipped", "time"]);
        for (name, outcome, time) in &self.stages {
            table.add_row([
                name.clone(),
                outcome.word().to_owned(),
                outcome.passed.to_string(),
                outcome.failed.len().to_string(),
                outcome.skipped.len().to_string(),
                seconds(*time),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{}\n", table.trim_fmt());
        for (name, outcome, _) in &self.stages {
            for skipped in &outcome.skipped {
                text.push_str(&format!(
                    "\nskipped: {}: {} ({name})",
                    skipped.name, skipped.reason
                ));
            }
        }
        for (name, outcome, _) in &self.stages {
            for failed in &outcome.failed {
                text.push_str(&format!("\nFAILED in {name}: {failed}"));
            }
        }
        let (passed, failed, skipped) = self.totals();
        text.push_str(&format!(
            "\n\nAll stages took {}.\n{passed} passed, {failed} failed, {skipped} skipped\n",
            seconds(self.stages.iter().map(|(_, _, time)| *time).sum())
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_everything_and_names_what_was_skipped() {
        let mut report = Report::default();
        let mut tests = Outcome {
            passed: 41,
            ..Outcome::skip("engine::kopia", "no kopia")
        };
        tests.check("lint", Err(anyhow::anyhow!("line 3 is wrong")));
        tests.check("format", Ok(()));
        report.add("tests", tests, Duration::from_secs(3));
        report.add("cluster", Outcome::skip("cluster", "--quick"), Duration::ZERO);
        let text = report.render();
        assert_eq!(text.lines().last(), Some("42 passed, 1 failed, 2 skipped"));
        assert!(
            text.contains("skipped: engine::kopia: no kopia (tests)"),
            "{text}"
        );
        assert!(text.contains("FAILED in tests: lint: line 3 is wrong"), "{text}");
        assert!(!report.good());
        assert!(!report.passed("tests") && !report.passed("cluster"));
    }

    #[test]
    fn a_run_of_nothing_is_not_good() {
        assert!(!Report::default().good());
        let mut report = Report::default();
        report.add("all", Outcome::skip("all", "asked to"), Duration::ZERO);
        assert!(!report.good());
    }
}
