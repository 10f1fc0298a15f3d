//! `cargo xtask generate`: what is made from the types and tables of the source.
//!
//! Promise: the definitions, dashboards and alerts in the chart, the chart's README and the pages of `docs/reference/`
//! say what the source says; `--check` changes nothing and fails when one of them does not. RBAC is not made, it is written by hand.

mod account;
mod crds;
mod fields;
mod maintenance;
pub mod manifests;
pub mod monitoring;
mod reasons;
mod restore;
mod rules;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::progress::say;
use crate::{mutants, paths};

/// Arguments of `cargo xtask generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Change nothing; fail if something would change.
    #[arg(long)]
    check: bool,
}

/// Where the definitions are in the chart. Nothing else is in there.
const CRDS: &str = "charts/holdfast/templates/crds";

/// Where the platform's definitions are in the chart, behind a switch. Nothing else is in there.
const PLATFORM_CRDS: &str = "charts/holdfast/templates/platform-crds";
/// The same as plain files, for development. Nothing else is in there.
const PLATFORM_DEV: &str = "dev/cozystack/crds";

/// One file, relative to the checkout, and what it has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    path: PathBuf,
    content: String,
}

/// Runs `cargo xtask generate`.
pub fn run(args: &Args) -> Result<()> {
    let workspace = paths::workspace()?;
    if args.check {
        let number = check(&workspace)?;
        say(format!("{number} generated files are up to date"));
        return Ok(());
    }
    let mut written = 0;
    for file in all(&workspace)? {
        let path = workspace.join(&file.path);
        if fs::read_to_string(&path).is_ok_and(|there| there == file.content) {
            continue;
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, &file.content).with_context(|| format!("{} cannot be written", path.display()))?;
        say(format!("wrote {}", file.path.display()));
        written += 1;
    }
    for stray in strays(&workspace)? {
        fs::remove_file(workspace.join(&stray))?;
        say(format!("removed {}", stray.display()));
        written += 1;
    }
    if written == 0 {
        say("everything generated is up to date");
    }
    Ok(())
}

/// Fails if a generated file differs from what it would be made to; returns how many there are.
pub fn check(workspace: &Path) -> Result<usize> {
    let files = all(workspace)?;
    let number = files.len();
    let mut wrong: Vec<String> = files
        .into_iter()
        .filter(|file| {
            fs::read_to_string(workspace.join(&file.path)).map_or(true, |there| there != file.content)
        })
        .map(|file| file.path.display().to_string())
        .collect();
    wrong.extend(strays(workspace)?.iter().map(|path| path.display().to_string()));
    if !wrong.is_empty() {
        bail!(
            "generated files do not match the source: {}; run `cargo xtask generate` and commit what it writes",
            wrong.join(", ")
        );
    }
    Ok(number)
}

fn all(workspace: &Path) -> Result<Vec<Generated>> {
    let mut files = crds::files()?;
    files.push(values::readme(workspace)?);
    files.push(fields::page());
    files.push(manifests::page(workspace)?);
    files.push(reasons::page());
    files.push(restore::page());
    files.push(maintenance::page());
    files.push(rules::page());
    files.push(account::page());
    files.extend(monitoring::files()?);
    files.push(Generated {
        path: "docs/reference/mutants.md".into(),
        content: format!("{MARKDOWN_HEAD}{}", mutants::page(workspace)?),
    });
    Ok(files)
}

/// Files in the folders of what is generated that nothing makes any more.
fn strays(workspace: &Path) -> Result<Vec<PathBuf>> {
    let made = crds::files()?.into_iter().chain(monitoring::files()?);
    let wanted: Vec<PathBuf> = made.map(|file| file.path).collect();
    let mut strays = Vec::new();
    for folder in [
        CRDS,
        PLATFORM_CRDS,
        PLATFORM_DEV,
        monitoring::ALERTS,
        monitoring::DASHBOARDS,
    ] {
        let Ok(entries) = fs::read_dir(workspace.join(folder)) else {
            continue;
        };
        for entry in entries {
            let path = Path::new(folder).join(entry?.file_name());
            if !wanted.contains(&path) {
                strays.push(path);
            }
        }
    }
    Ok(strays)
}

/// The line with which a generated Markdown page begins.
const MARKDOWN_HEAD: &str = "<!-- Made by `cargo xtask generate`. Do not edit. -->\n\n";

/// `text` for a cell of a Markdown table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy_of(workspace: &Path, to: &Path) {
        for file in all(workspace).expect("generated") {
            let path = to.join(&file.path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, file.content).expect("written");
        }
        for input in [
            "charts/holdfast/values.yaml",
            "charts/holdfast/values.schema.json",
            "dev/mutants.json",
        ]
        .map(PathBuf::from)
        .into_iter()
        .chain(manifests::files(workspace).expect("manifests"))
        {
            let input = input.strip_prefix(workspace).unwrap_or(&input);
            fs::create_dir_all(to.join(input).parent().expect("a folder")).expect("made");
            fs::copy(workspace.join(input), to.join(input)).expect("copied");
        }
    }

    #[test]
    fn a_difference_a_missing_and_a_stray_file_are_found_and_say_what_to_run() {
        let workspace = paths::workspace().expect("a checkout");
        let copy = tempfile::tempdir().expect("a folder");
        copy_of(&workspace, copy.path());
        check(copy.path()).expect("just written");

        let page = copy.path().join("docs/reference/unsupported-fields.md");
        let before = fs::read_to_string(&page).expect("read");
        fs::write(&page, format!("{before}edited by hand\n")).expect("written");
        let error = check(copy.path()).expect_err("edited").to_string();
        assert!(error.contains("docs/reference/unsupported-fields.md"), "{error}");
        assert!(error.contains("run `cargo xtask generate`"), "{error}");
        fs::remove_file(&page).expect("removed");
        check(copy.path()).expect_err("missing");
        fs::write(&page, before).expect("written");

        fs::write(copy.path().join(CRDS).join("old.yaml"), "").expect("written");
        let error = check(copy.path()).expect_err("stray").to_string();
        assert!(error.contains("crds/old.yaml"), "{error}");
    }
}
