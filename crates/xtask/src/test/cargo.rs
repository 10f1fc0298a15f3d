//! Running `cargo test` and reading what came of it.
//!
//! Promise: a run in which no test ran, a test program that died and a build that failed are failures. A test that
//! passes but prints a line `skipped: <reason>` counts as skipped, with that reason. What failed is named with the
//! first thing it said of why. The whole output is kept in a log, and shown where something failed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::report::{Outcome, Skipped};
use crate::progress::{Step, say};

/// Runs `command`, a `cargo test` whose tests get `--show-output`; `name` is for the progress and the log.
pub fn run(name: &str, log: &Path, command: &mut Command) -> Result<Outcome> {
    let mut reader = Reading::default();
    let status = stream(name, log, command, |line| reader.line(line))?;
    let mut outcome = reader.finish(status);
    if !outcome.failed.is_empty() {
        show_failures(log);
    }
    if outcome.passed == 0 && outcome.failed.is_empty() {
        outcome
            .failed
            .push("no test ran: a run of nothing proves nothing".to_owned());
    }
    Ok(outcome)
}

/// Runs `command` to its end, feeds each line of its output to `each` and keeps all of it in `log`.
pub fn stream(name: &str, log: &Path, command: &mut Command, mut each: impl FnMut(&str)) -> Result<bool> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut file = File::create(log).with_context(|| format!("{} cannot be written", log.display()))?;
    let step = Step::start(name);
    let (reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .spawn()
        .with_context(|| format!("{name} could not be started"))?;
    // The command keeps its ends of the pipe open: without this the reading would not end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        writeln!(file, "{line}")?;
        let note = line.trim();
        if note.starts_with("Compiling") || note.starts_with("Running") || note.starts_with("Checking") {
            step.note(note.chars().take(100).collect::<String>());
        }
        each(&line);
    }
    Ok(child.wait()?.success())
}

/// Shows the part of a log that says what went wrong.
pub fn show_failures(log: &Path) {
    const MOST: usize = 120;
    let Ok(text) = fs::read_to_string(log) else { return };
    let lines: Vec<&str> = text.lines().collect();
    let wrong =
        |line: &&str| line.starts_with("error") || line.starts_with("---- ") || line.contains("panicked at");
    let from = lines
        .iter()
        .position(|line| wrong(line) && !line.starts_with("---- "))
        .or_else(|| lines.iter().position(|line| line.starts_with("failures:")))
        .unwrap_or_else(|| lines.len().saturating_sub(MOST));
    let from = from.saturating_sub(3);
    for line in lines.iter().skip(from).take(MOST) {
        say(line);
    }
    say(format!("the whole output is in {}", log.display()));
}

/// What has been read so far.
#[derive(Debug, Default)]
struct Reading {
    suite: String,
    outcome: Outcome,
    passed: u64,
    section: Section,
    current: String,
    seen: BTreeSet<(String, String)>,
    /// The words that follow `panicked at`, or nothing: they stand in the line after it.
    panicked: bool,
    /// The first thing that each failed test said of why.
    why: BTreeMap<String, String>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Tests,
    Successes,
    Failures,
}

impl Reading {
    fn line(&mut self, line: &str) {
        let text = line.trim();
        if let Some(suite) = text
            .strip_prefix("Running ")
            .or_else(|| text.strip_prefix("Doc-tests "))
        {
            self.suite = suite_name(suite);
            self.section = Section::Tests;
        } else if let Some(result) = text.strip_prefix("test result: ") {
            self.passed += number_before(result, " passed");
            self.section = Section::Tests;
        } else if text == "successes:" {
            self.section = Section::Successes;
        } else if text == "failures:" {
            self.section = Section::Failures;
        } else if let Some(name) = text
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.current = name.to_owned();
        } else if self.section == Section::Tests
            && let Some((name, state)) = text
                .strip_prefix("test ")
                .and_then(|rest| rest.rsplit_once(" ... "))
        {
            self.test(name, state);
        } else if self.section == Section::Successes
            && let Some(reason) = text.strip_prefix("skipped: ")
            && self.seen.insert((self.suite.clone(), self.current.clone()))
        {
            let skipped = Skipped {
                name: self.name(&self.current),
                reason: reason.to_owned(),
            };
            self.outcome.skipped.push(skipped);
        } else if self.section == Section::Failures {
            self.failure(text);
        }
    }

    /// A line of what a failed test said.
    fn failure(&mut self, text: &str) {
        let why = if std::mem::take(&mut self.panicked) {
            Some(text)
        } else {
            self.panicked = text.starts_with("thread '") && text.contains("panicked at");
            text.strip_prefix("Error: ")
        };
        if let Some(why) = why {
            let why = why.chars().take(400).collect();
            let name = self.name(&self.current);
            self.why.entry(name).or_insert(why);
        }
    }

    fn test(&mut self, name: &str, state: &str) {
        if let Some(reason) = state.strip_prefix("ignored") {
            let reason = reason.trim_start_matches([',', ' ']);
            let reason = if reason.is_empty() { "ignored" } else { reason };
            let skipped = Skipped {
                name: self.name(name),
                reason: reason.to_owned(),
            };
            self.outcome.skipped.push(skipped);
        } else if state.starts_with("FAILED") {
            self.outcome.failed.push(self.name(name));
        }
    }

    fn name(&self, test: &str) -> String {
        format!("{} {test}", self.suite).trim().to_owned()
    }

    fn finish(self, success: bool) -> Outcome {
        let mut outcome = self.outcome;
        for failed in &mut outcome.failed {
            if let Some(why) = self.why.get(failed) {
                *failed = format!("{failed}: {why}");
            }
        }
        let told = u64::try_from(self.seen.len()).unwrap_or(u64::MAX);
        outcome.passed = self.passed.saturating_sub(told);
        if !success && outcome.failed.is_empty() {
            outcome.failed.push(format!(
                "cargo test did not end well, last at {}: it did not build, or a test program died",
                if self.suite.is_empty() {
                    "the build"
                } else {
                    &self.suite
                }
            ));
        }
        outcome
    }
}

/// `unittests src/lib.rs (target/debug/deps/holdfast_api-0123)` → `holdfast_api`.
fn suite_name(text: &str) -> String {
    let Some((_, path)) = text.rsplit_once('(') else {
        return text.to_owned();
    };
    let file = path.trim_end_matches(')').rsplit('/').next().unwrap_or(path);
    file.rsplit_once('-').map_or(file, |(name, _)| name).to_owned()
}

fn number_before(text: &str, word: &str) -> u64 {
    text.split(word)
        .next()
        .and_then(|before| before.rsplit(' ').next())
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "   Compiling holdfast-api v0.1.0
     Running unittests src/lib.rs (target/debug/deps/holdfast_api-0123abcd)

running 4 tests
test a::works ... ok
test a::needs_kopia ... ok
test a::breaks ... FAILED
test a::slow ... ignored, takes an hour

successes:

---- a::needs_kopia stdout ----
looking for kopia
skipped: no kopia
skipped: no kopia

successes:
    a::needs_kopia
    a::works

failures:

---- a::breaks stdout ----
skipped: this is only what a failing test said
test x ... ok

failures:
    a::breaks

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

   Doc-tests holdfast_api
test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

    fn read(output: &str, success: bool) -> Outcome {
        let mut reading = Reading::default();
        output.lines().for_each(|line| reading.line(line));
        reading.finish(success)
    }

    #[test]
    fn counts_and_names_are_read_and_a_test_that_skips_itself_has_not_passed() {
        let outcome = read(OUTPUT, false);
        assert_eq!(outcome.passed, 4);
        assert_eq!(outcome.failed, ["holdfast_api a::breaks"]);
        let skipped: Vec<(&str, &str)> = outcome
            .skipped
            .iter()
            .map(|s| (s.name.as_str(), s.reason.as_str()))
            .collect();
        assert_eq!(
            skipped,
            [
                ("holdfast_api a::slow", "takes an hour"),
                ("holdfast_api a::needs_kopia", "no kopia")
            ]
        );
    }

    #[test]
    fn what_failed_is_named_with_why() {
        let outcome = read(
            "     Running tests/a.rs (target/debug/deps/a-0123abcd)
test panics ... FAILED
test errs ... FAILED
test is_silent ... FAILED

failures:

---- panics stdout ----

thread 'panics' (7) panicked at crates/a/tests/a.rs:3:5:
assertion failed: one is two
note: run with RUST_BACKTRACE=1

---- errs stdout ----
Error: no answer

Caused by:
    Error: refused

---- is_silent stdout ----

failures:
    panics
",
            false,
        );
        assert_eq!(
            outcome.failed,
            [
                "a panics: assertion failed: one is two",
                "a errs: no answer",
                "a is_silent"
            ]
        );
    }

    #[test]
    fn a_build_that_fails_is_a_failure() {
        let outcome = read("error[E0308]: mismatched types\n", false);
        assert_eq!(outcome.failed.len(), 1);
        assert!(outcome.failed[0].contains("the build"), "{outcome:?}");
    }

    #[test]
    fn a_run_without_tests_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log");
        let mut nothing = Command::new("sh");
        nothing.args(["-c", "echo 'test result: ok. 0 passed; 0 failed; 0 ignored;'"]);
        let outcome = run("nothing", &log, &mut nothing).expect("ran");
        assert_eq!(outcome.failed.len(), 1);
        assert!(outcome.failed[0].contains("no test ran"), "{outcome:?}");
    }
}
