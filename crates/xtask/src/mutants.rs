//! `cargo xtask mutants`: how much of `core::deletion` the tests of `core` notice when it is changed.
//!
//! Promise: `dev/mutants.json` holds what really ran, file by file, and a word on each change that no test noticed;
//! the page `docs/reference/mutants.md` is made of it. Fewer than nine of ten noticed, or a survivor without a word,
//! is an error. It is no test: it takes the better part of an hour.
//!
//! Assumes that a test which fails noticed the change; so does one that no longer ends.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::progress::{Step, say};
use crate::{checks, paths, sh};

/// The release of cargo-mutants.
const VERSION: &str = "27.1.0";
/// What is changed.
const SOURCE: &str = "crates/core/src/deletion/";
/// The results and the words.
const RECORD: &str = "dev/mutants.json";
/// Of how many combinations the second statement compares one, and of how many random cases one is made.
const EVERY: &str = "40";
/// Of a hundred, how many have to be noticed.
const WANTED: usize = 90;

/// Arguments of `cargo xtask mutants`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only this file below crates/core/src/deletion, such as guard.rs; may be repeated.
    #[arg(long = "file")]
    files: Vec<String>,
    /// Take the results of a run that was made before: a folder with outcomes.json.
    #[arg(long, value_name = "FOLDER")]
    from: Option<PathBuf>,
}

/// The file [`RECORD`].
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    tool: String,
    /// Files of which no run is recorded.
    #[serde(default)]
    without_result: Vec<String>,
    files: BTreeMap<String, Figures>,
}

/// What became of the changes of one file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Figures {
    /// A test failed.
    caught: usize,
    /// The tests did not end any more.
    timeout: usize,
    /// It did not compile.
    unviable: usize,
    survived: Vec<Survivor>,
}

/// A change that no test noticed.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Survivor {
    /// Line and change.
    mutant: String,
    /// Why that does no harm.
    why: String,
}

impl Survivor {
    /// The change without its line, which moves.
    fn change(&self) -> &str {
        self.mutant
            .split_once(": ")
            .map_or(&self.mutant, |(_, rest)| rest)
    }
}

#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    scenario: serde_json::Value,
    summary: String,
}

/// Runs `cargo xtask mutants`.
pub fn run(args: &Args) -> Result<()> {
    let workspace = paths::workspace()?;
    let folder = match &args.from {
        Some(folder) => folder.clone(),
        None => mutate(&workspace, &args.files)?,
    };
    let text = std::fs::read(folder.join("outcomes.json"))
        .with_context(|| format!("{} has no outcomes.json", folder.display()))?;
    let mut found = read(&serde_json::from_slice::<Outcomes>(&text)?)?;
    if !args.files.is_empty() {
        found.retain(|file, _| args.files.contains(file));
    }
    let mut record = load(&workspace)?;
    record.tool = format!("cargo-mutants {VERSION}");
    for (file, figures) in found {
        let known = record.files.remove(&file).unwrap_or_default();
        record.files.insert(file, carry_over(figures, &known));
    }
    // Files that are not there any more.
    record
        .files
        .retain(|file, _| workspace.join(SOURCE).join(file).is_file());
    record.without_result = without_result(&workspace, &record)?;
    let mut text = serde_json::to_string_pretty(&record)?;
    text.push('\n');
    std::fs::write(workspace.join(RECORD), text)?;
    say(format!(
        "wrote {RECORD}; `cargo xtask generate` makes the page of it"
    ));
    good(&record)
}

/// Runs cargo-mutants and answers with its folder.
fn mutate(workspace: &Path, files: &[String]) -> Result<PathBuf> {
    let version = sh::run(
        "ask for cargo-mutants",
        checks::cargo().args(["mutants", "--version"]),
    );
    if !version.is_ok_and(|said| said.trim().ends_with(VERSION)) {
        let step = Step::start("installing cargo-mutants");
        let mut install = checks::cargo();
        install.args(["install", "cargo-mutants", "--locked", "--version", VERSION]);
        sh::run_heard("install cargo-mutants", &mut install, |line| {
            step.note(line.trim())
        })?;
        step.done("installed cargo-mutants");
    }
    let out = workspace.join("target/mutants");
    let mut command = Command::new("nice");
    command
        .current_dir(workspace)
        .args(["-n", "19", "cargo", "mutants"]);
    command.args([
        "--package=holdfast-core",
        "--profile=mutants",
        "--no-shuffle",
        "--colors=never",
    ]);
    if files.is_empty() {
        command.args(["--file", &format!("{SOURCE}**")]);
    }
    for file in files {
        command.args(["--file", &format!("{SOURCE}{file}")]);
    }
    // What goes through millions of combinations is asked for a share of them; the comparison's own test is left out.
    for target in ["--lib", "--test=deletion", "--test=second_statement"] {
        command.arg(format!("--cargo-arg={target}"));
    }
    command.arg("--output").arg(&out);
    command.args(["--minimum-test-timeout=30", "--", "--", "--skip=ten_wrong"]);
    command.env("HOLDFAST_EVERY", EVERY);
    command.env("CARGO_TARGET_DIR", out.join("build"));
    let step = Step::start("changing core::deletion, one change at a time");
    let shown = format!("{command:?}");
    let status = command
        .status()
        .with_context(|| format!("{shown} could not be started"))?;
    // 2: some were not noticed; 3: some did not end.
    if !matches!(status.code(), Some(0 | 2 | 3)) {
        bail!("could not change core::deletion: {shown} ended with {status}");
    }
    step.done("all changes are tried");
    Ok(out.join("mutants.out"))
}

fn load(workspace: &Path) -> Result<Record> {
    let path = workspace.join(RECORD);
    if !path.is_file() {
        return Ok(Record::default());
    }
    let text = std::fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("{} is not as it should be", path.display()))
}

fn read(outcomes: &Outcomes) -> Result<BTreeMap<String, Figures>> {
    let mut files: BTreeMap<String, Figures> = BTreeMap::new();
    for outcome in &outcomes.outcomes {
        let mutant = &outcome.scenario["Mutant"];
        let (Some(name), Some(file)) = (mutant["name"].as_str(), mutant["file"].as_str()) else {
            // The baseline.
            continue;
        };
        let file = file
            .strip_prefix(SOURCE)
            .with_context(|| format!("{file} is not in {SOURCE}"))?;
        let figures = files.entry(file.to_owned()).or_default();
        match outcome.summary.as_str() {
            "CaughtMutant" => figures.caught += 1,
            "Timeout" => figures.timeout += 1,
            "Unviable" => figures.unviable += 1,
            "MissedMutant" => {
                // crates/…/ack.rs:112:28: replace || with && in parse
                let mut parts = name.splitn(4, ':').skip(1);
                let (line, change) = (parts.next(), parts.nth(1));
                figures.survived.push(Survivor {
                    mutant: format!("{}:{}", line.unwrap_or("?"), change.unwrap_or(name)),
                    why: String::new(),
                });
            }
            other => bail!("{name} came to {other:?}, which this command does not know"),
        }
    }
    if files.is_empty() {
        bail!("the run changed nothing");
    }
    Ok(files)
}

/// The words of survivors that are still there.
fn carry_over(mut figures: Figures, known: &Figures) -> Figures {
    for survivor in &mut figures.survived {
        let same = known
            .survived
            .iter()
            .find(|old| old.change() == survivor.change());
        if let Some(old) = same {
            survivor.why.clone_from(&old.why);
        }
    }
    figures
}

/// Fails when too few were noticed, or when a survivor has no word.
fn good(record: &Record) -> Result<()> {
    let silent: BTreeSet<String> = record
        .files
        .iter()
        .flat_map(|(file, figures)| figures.survived.iter().map(move |survivor| (file, survivor)))
        .filter(|(_, survivor)| survivor.why.trim().is_empty())
        .map(|(file, survivor)| format!("{file}:{}", survivor.mutant))
        .collect();
    let (noticed, all) = record.files.values().fold((0, 0), |(noticed, all), figures| {
        (noticed + figures.noticed(), all + figures.all())
    });
    say(format!("{noticed} of {all} changes were noticed"));
    if all == 0 || noticed * 100 < all * WANTED {
        bail!(
            "{noticed} of {all} changes were noticed, fewer than {WANTED} of 100: write tests for the others"
        );
    }
    if !silent.is_empty() {
        let list: Vec<String> = silent.into_iter().collect();
        bail!(
            "say in {RECORD} why it does no harm, or write a test:\n  {}",
            list.join("\n  ")
        );
    }
    Ok(())
}

impl Figures {
    fn noticed(&self) -> usize {
        self.caught + self.timeout
    }

    fn all(&self) -> usize {
        self.noticed() + self.survived.len()
    }
}

/// The page, for `cargo xtask generate`.
pub fn page(workspace: &Path) -> Result<String> {
    let record = load(workspace)?;
    let share = |figures: &[&Figures]| {
        let (noticed, all) = figures
            .iter()
            .fold((0, 0), |(noticed, all), f| (noticed + f.noticed(), all + f.all()));
        format!(
            "{noticed} of {all} ({:.1} %)",
            100.0 * noticed as f64 / (all.max(1)) as f64
        )
    };
    let mut text = String::from(
        "# Changes that the tests notice\n\n`cargo xtask mutants` changes `core::deletion` in one place at a time and runs the tests of `holdfast-core` that\ndecide about deletions. This is the last run of each file, by ",
    );
    let everything: Vec<&Figures> = record.files.values().collect();
    let _ = write!(text, "{}: {} noticed.\n\n", record.tool, share(&everything));
    text.push_str("| file | noticed | not noticed | does not compile |\n|---|---|---|---|\n");
    for (file, figures) in &record.files {
        let _ = writeln!(
            text,
            "| `{file}` | {} | {} | {} |",
            share(&[figures]),
            figures.survived.len(),
            figures.unviable
        );
    }
    text.push_str("\nA change that does not compile is not counted.");
    if !record.without_result.is_empty() {
        let _ = write!(
            text,
            " Files without a result: {}.",
            record.without_result.join(", ")
        );
    }
    text.push_str("\n\n## What was not noticed, and why that does no harm\n\n| file | line and change | why |\n|---|---|---|\n");
    for (file, figures) in &record.files {
        for survivor in &figures.survived {
            let cell = |text: &str| text.replace('|', "\\|");
            let _ = writeln!(
                text,
                "| `{file}` | `{}` | {} |",
                cell(&survivor.mutant),
                cell(&survivor.why)
            );
        }
    }
    Ok(text)
}

/// Files of which no run is recorded.
fn without_result(workspace: &Path, record: &Record) -> Result<Vec<String>> {
    let root = workspace.join(SOURCE);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            // Nothing in these can be changed: they only name modules, or values.
            if !record.files.contains_key(&name) && !["mod.rs", "settings.rs"].contains(&name.as_str()) {
                found.push(format!("`{name}`"));
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcomes(summaries: &[&str]) -> Outcomes {
        let one = |summary: &&str| {
            json!({
                "summary": summary,
                "scenario": { "Mutant": {
                    "name": format!("{SOURCE}ack.rs:112:28: replace || with && in parse"),
                    "file": format!("{SOURCE}ack.rs"),
                } },
            })
        };
        let mut all = vec![json!({ "summary": "Success", "scenario": "Baseline" })];
        all.extend(summaries.iter().map(one));
        serde_json::from_value(json!({ "outcomes": all })).expect("outcomes")
    }

    #[test]
    fn a_run_is_read_file_by_file_and_survivors_keep_their_word() {
        let found = read(&outcomes(&[
            "CaughtMutant",
            "Timeout",
            "Unviable",
            "MissedMutant",
        ]))
        .expect("read");
        let figures = &found["ack.rs"];
        assert_eq!((figures.noticed(), figures.all(), figures.unviable), (2, 3, 1));
        assert_eq!(figures.survived[0].mutant, "112: replace || with && in parse");
        let known = Figures {
            survived: vec![Survivor {
                mutant: "90: replace || with && in parse".to_owned(),
                why: "the parser refuses it".to_owned(),
            }],
            ..Figures::default()
        };
        let found = read(&outcomes(&["MissedMutant"])).expect("read");
        let figures = found.into_values().next().expect("one file");
        assert_eq!(
            carry_over(figures, &known).survived[0].why,
            "the parser refuses it"
        );
        assert!(read(&outcomes(&[])).is_err(), "nothing ran");
        assert!(read(&outcomes(&["SomethingNew"])).is_err());
    }

    #[test]
    fn too_few_or_a_survivor_without_a_word_is_an_error() {
        let record = |caught: usize, why: &str| {
            let survived = vec![Survivor {
                mutant: "1: x".to_owned(),
                why: why.to_owned(),
            }];
            let figures = Figures {
                caught,
                survived,
                ..Figures::default()
            };
            Record {
                tool: String::new(),
                without_result: Vec::new(),
                files: [("a.rs".to_owned(), figures)].into(),
            }
        };
        assert!(good(&record(9, "harmless")).is_ok());
        assert!(good(&record(8, "harmless")).is_err());
        assert!(good(&record(9, " ")).is_err());
        assert!(good(&Record::default()).is_err());
    }

    #[test]
    fn the_record_is_good() {
        let workspace = paths::workspace().expect("a checkout");
        let record = load(&workspace).expect("the record");
        good(&record).expect("good");
        let listed: BTreeSet<String> = record.files.into_keys().collect();
        assert!(
            listed.contains("guard.rs") && listed.contains("wave.rs"),
            "{listed:?}"
        );
    }
}
