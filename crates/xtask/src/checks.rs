//! Checks of the source that no compiler makes.
//!
//! Promise: `holdfast-core` depends on no client and no runtime and reads no clock, file, network or environment;
//! `holdfast-api` has no client (`docs/design.md` section 2). The examples are accepted by the validators,
//! and the links of the documentation lead somewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use holdfast_api::{
    ClusterRepository, Repository, Snapshot, SnapshotPolicy, SnapshotSchedule, names, validate,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

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

/// Fails with a sentence unless every object of ours in `examples/` is what this release accepts; returns how many.
pub fn examples_are_accepted(workspace: &Path) -> Result<usize> {
    let folder = workspace.join("examples");
    let mut number = 0;
    for entry in fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        for document in text.split("\n---\n") {
            let object: Value = serde_saphyr::from_str(document)
                .with_context(|| format!("{} is not YAML", path.display()))?;
            if object["apiVersion"] == names::API_VERSION {
                accepted(&object).with_context(|| path.display().to_string())?;
                number += 1;
            }
        }
    }
    if number == 0 {
        bail!("{} has no object of ours", folder.display());
    }
    Ok(number)
}

fn accepted(object: &Value) -> Result<()> {
    let refusals = match object["kind"].as_str().unwrap_or_default() {
        "Repository" => validate::repository(&read::<Repository>(object)?.spec),
        "ClusterRepository" => validate::cluster_repository(&read::<ClusterRepository>(object)?.spec),
        "SnapshotPolicy" => validate::policy(&read::<SnapshotPolicy>(object)?.spec),
        "SnapshotSchedule" => validate::schedule(&read::<SnapshotSchedule>(object)?.spec),
        "Snapshot" => validate::snapshot(&read::<Snapshot>(object)?.spec),
        other => bail!("there is no kind {other}"),
    };
    if !refusals.is_empty() {
        let sentences: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        bail!("it would be refused: {}", sentences.join("; "));
    }
    Ok(())
}

/// `object` as its type, if no field of its spec is lost on the way: a misspelt one would be.
fn read<K: DeserializeOwned + serde::Serialize>(object: &Value) -> Result<K> {
    let typed: K = serde_json::from_value(object.clone())?;
    let again = serde_json::to_value(&typed)?;
    if let Some(path) = lost(&object["spec"], &again["spec"], "spec") {
        bail!("{path} is not a field of {}", object["kind"]);
    }
    Ok(typed)
}

/// The first path that `wanted` has and `there` has not.
fn lost(wanted: &Value, there: &Value, path: &str) -> Option<String> {
    match wanted {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let path = format!("{path}.{key}");
            match there.get(key) {
                Some(child) => lost(value, child, &path),
                None => Some(path),
            }
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(n, value)| lost(value, &there[n], &format!("{path}[{n}]"))),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            (wanted != there).then(|| path.to_owned())
        }
    }
}

/// Fails with a sentence if a relative link of a Markdown file of the checkout leads nowhere.
pub fn links_lead_somewhere(workspace: &Path) -> Result<()> {
    let mut files = Vec::new();
    for place in ["README.md", "CONTRIBUTING.md", "docs", "examples", "charts"] {
        markdown(&workspace.join(place), &mut files)?;
    }
    let mut broken = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file)?;
        for link in relative_links(&text) {
            if !leads_somewhere(&file, link) {
                let shown = file.strip_prefix(workspace).unwrap_or(&file).display();
                broken.push(format!("{link} in {shown}"));
            }
        }
    }
    if !broken.is_empty() {
        bail!(
            "links that lead nowhere: {}; correct or remove them",
            broken.join(", ")
        );
    }
    Ok(())
}

/// All Markdown files at or below `place`.
fn markdown(place: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if place.is_dir() {
        for entry in fs::read_dir(place)? {
            markdown(&entry?.path(), files)?;
        }
    } else if place.extension().is_some_and(|extension| extension == "md") {
        files.push(place.to_path_buf());
    }
    Ok(())
}

/// The targets of inline links that are neither addresses nor mail.
fn relative_links(text: &str) -> Vec<&str> {
    text.match_indices("](")
        .filter_map(|(start, open)| text[start + open.len()..].split([')', '\n']).next())
        .filter(|link| !link.contains(':') && !link.is_empty())
        .collect()
}

fn leads_somewhere(file: &Path, link: &str) -> bool {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => file.to_path_buf(),
        path => file.parent().unwrap_or(file).join(path),
    };
    if anchor.is_empty() {
        return target.exists();
    }
    fs::read_to_string(target).is_ok_and(|text| {
        text.lines()
            .filter_map(|line| line.strip_prefix('#'))
            .any(|heading| anchor_of(heading) == anchor)
    })
}

/// The anchor that a heading gets.
fn anchor_of(heading: &str) -> String {
    heading
        .trim_start_matches('#')
        .trim()
        .to_lowercase()
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// The cargo that started this program.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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

    #[test]
    fn a_refused_and_a_misspelt_field_are_found() {
        let policy = |spec: Value| {
            accepted(
                &serde_json::json!({ "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
                "metadata": { "name": "x" }, "spec": spec }),
            )
        };
        let good =
            serde_json::json!({ "repository": { "name": "r" }, "sources": [{ "pvc": { "name": "p" } }] });
        policy(good.clone()).expect("accepted");
        let mut bad = good.clone();
        bad["hooks"] = serde_json::json!([]);
        let error = policy(bad).expect_err("refused").to_string();
        assert!(error.contains("spec.hooks is not supported"), "{error}");
        let mut bad = good;
        bad["sources"][0]["pvx"] = serde_json::json!({});
        let error = policy(bad).expect_err("misspelt").to_string();
        assert!(error.contains("spec.sources[0].pvx is not a field"), "{error}");
    }

    #[test]
    fn a_link_that_leads_nowhere_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("docs/page.md");
        fs::create_dir_all(folder.path().join("docs")).expect("made");
        let good = "# The `page`: one\n[a](page.md) [b](../docs/page.md#the-page-one) [c](#the-page-one) [d](https://x.y)";
        fs::write(&page, good).expect("written");
        for other in ["README.md", "CONTRIBUTING.md", "examples.md", "charts.md"] {
            fs::write(folder.path().join(other), "").expect("written");
        }
        links_lead_somewhere(folder.path()).expect("all lead somewhere");
        fs::write(&page, format!("{good} [e](gone.md) [f](#gone)")).expect("written");
        let error = links_lead_somewhere(folder.path())
            .expect_err("two lead nowhere")
            .to_string();
        assert!(
            error.contains("gone.md in docs/page.md, #gone in docs/page.md"),
            "{error}"
        );
    }

    #[test]
    fn this_checkout_is_pure() {
        let workspace = crate::paths::workspace().expect("a checkout");
        links_lead_somewhere(&workspace).expect("links");
        assert!(examples_are_accepted(&workspace).expect("examples") >= 4);
        core_is_pure(&workspace).expect("core");
        api_has_no_client(&workspace).expect("api");
    }
}
