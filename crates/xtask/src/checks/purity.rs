//! `holdfast-core` and `holdfast-api` stay what they are.
//!
//! Promise: `holdfast-core` depends on no client and no runtime and reads no clock, file, network or environment;
//! `holdfast-api` has no client. Time and facts come in as arguments (`docs/design.md` section 2).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::cargo;
use crate::sh;

/// Packages that would make `holdfast-core` more than a decision.
const NOT_IN_CORE: &[&str] = &[
    "axum",
    "hyper",
    "k8s-openapi",
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "reqwest",
    "rustls",
    "tokio",
];

/// Packages that would make `holdfast-api` more than a description.
const NOT_IN_API: &[&str] = &[
    "hyper",
    "kube-client",
    "kube-runtime",
    "reqwest",
    "rustls",
    "tokio",
];

/// What reads a clock or the world. Each is looked for as a whole path.
const READS: &[&str] = &[
    "Timestamp::now",
    "Zoned::now",
    "TimeZone::system",
    "SystemTime",
    "Instant",
    "UNIX_EPOCH.elapsed",
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
];

/// Fails with a sentence if `holdfast-core` is not pure.
pub fn core_is_pure(workspace: &Path) -> Result<()> {
    no_such_dependency(workspace, "holdfast-core", NOT_IN_CORE)?;
    let folder = workspace.join("crates/core/src");
    let mut found = Vec::new();
    let mut files = Vec::new();
    sources(&folder, &mut files)?;
    if files.is_empty() {
        bail!("{} has no source to check", folder.display());
    }
    for file in files {
        let text = fs::read_to_string(&file)?;
        let shown = file.strip_prefix(workspace).unwrap_or(&file).display();
        found.extend(
            reads(&text)
                .into_iter()
                .map(|(line, what)| format!("{shown}:{line} uses {what}")),
        );
    }
    if !found.is_empty() {
        bail!(
            "holdfast-core must not read clocks, files, the network or the environment: {}; take what is needed as an argument",
            found.join(", ")
        );
    }
    Ok(())
}

/// Fails with a sentence if `holdfast-api` has a client.
pub fn api_has_no_client(workspace: &Path) -> Result<()> {
    no_such_dependency(workspace, "holdfast-api", NOT_IN_API)
}

fn no_such_dependency(workspace: &Path, package: &str, forbidden: &[&str]) -> Result<()> {
    let tree = sh::run(
        &format!("list what {package} depends on"),
        cargo()
            .args([
                "tree",
                "--package",
                package,
                "--edges=normal,build",
                "--prefix=none",
                "--format={p}",
            ])
            .current_dir(workspace),
    )?;
    let found = forbidden_in(&tree, forbidden);
    if !found.is_empty() {
        bail!(
            "{package} must not depend on {}: find the way with `cargo tree -p {package} -i {}` and move what needs it to another crate",
            found.join(", "),
            found[0]
        );
    }
    Ok(())
}

/// The forbidden packages that `cargo tree` named in `tree`.
fn forbidden_in<'a>(tree: &str, forbidden: &[&'a str]) -> Vec<&'a str> {
    let names: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    forbidden
        .iter()
        .filter(|name| names.contains(name))
        .copied()
        .collect()
}

/// Line and name of everything in `source` that reads a clock or the world, comments apart.
fn reads(source: &str) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for what in READS {
            if contains_path(code, what) {
                found.push((number + 1, *what));
            }
        }
    }
    found
}

/// Whether `what` stands in `code` as a whole name, not as part of a longer one.
fn contains_path(code: &str, what: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(what).any(|(start, _)| {
        let before = code[..start].chars().next_back();
        let after = code[start + what.len()..].chars().next();
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

/// All Rust files at or below `folder`.
fn sources(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_in_the_source_is_found_with_its_line() {
        let bad = "use jiff::Timestamp;\nfn f() -> Timestamp {\n    Timestamp::now()\n}\n\
                   let t = std::time::Instant::now();\nuse std::time::{Duration, SystemTime};\n";
        assert_eq!(
            reads(bad),
            [(3, "Timestamp::now"), (5, "Instant"), (6, "SystemTime")]
        );
    }

    #[test]
    fn words_in_comments_and_longer_names_are_not_clocks() {
        let good = "// Instant and SystemTime are not for here\nlet instantly = InstantNoodles::new();\n\
                    /// never calls Timestamp::now\nfn at(now: Timestamp) {}\n";
        assert_eq!(reads(good), []);
    }

    #[test]
    fn a_client_among_the_dependencies_is_found() {
        let tree =
            "holdfast-core v0.1.0 (/x)\ntokio v1.54.1\ntokio-util v0.7.1\nkube v5.0.0\nserde v1.0.229 (*)\n";
        assert_eq!(forbidden_in(tree, NOT_IN_CORE), ["kube", "tokio"]);
        assert_eq!(
            forbidden_in("jiff v0.2.46\ntokio-util v0.7.1\n", NOT_IN_CORE),
            [""; 0]
        );
    }

    #[test]
    fn a_folder_with_a_clock_fails_and_says_where() {
        let folder = tempfile::tempdir().expect("a folder");
        let inner = folder.path().join("deletion");
        fs::create_dir_all(&inner).expect("made");
        fs::write(inner.join("wave.rs"), "let now = Timestamp::now();").expect("written");
        let mut files = Vec::new();
        sources(folder.path(), &mut files).expect("read");
        assert_eq!(files.len(), 1);
        let text = fs::read_to_string(&files[0]).expect("read");
        assert_eq!(reads(&text), [(1, "Timestamp::now")]);
    }
}
