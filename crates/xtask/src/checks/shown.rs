//! What `docs/reference/manifests.md` names as what shows a verdict: a test, or the stored objects of a manifest.
//!
//! Promise: one that is not there is named, and so is a stored object that no manifest names.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::fields::exists;
use crate::generate::manifests::{SHOWN, STORED, Shown};

/// What the names of the stored objects of manifests begin with.
const OF_MANIFESTS: &str = "wave__manifests__";

/// Everything that is named is there, and everything stored is named.
pub fn manifests_are_shown(workspace: &Path) -> Result<()> {
    compare(workspace, SHOWN.iter().map(|(_, shown)| *shown))
}

fn compare(workspace: &Path, shown: impl Iterator<Item = Shown>) -> Result<()> {
    let folder = workspace.join(STORED);
    let mut stored = BTreeSet::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("{STORED} cannot be read"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(OF_MANIFESTS) {
            stored.insert(name);
        }
    }
    let mut named = BTreeSet::new();
    for shown in shown {
        match shown {
            Shown::OnCluster(test) => exists(workspace, test)?,
            Shown::Stored(file) => {
                if !stored.contains(file) {
                    bail!(
                        "{STORED}/{file} is not there: run the tests of the operator, and review what they store"
                    );
                }
                named.insert(file.to_owned());
            }
        }
    }
    let strays: Vec<&String> = stored.difference(&named).collect();
    if !strays.is_empty() {
        bail!("{STORED} has {strays:?}, which no manifest names");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_and_what_is_not_named_is_told() {
        let place = tempfile::tempdir().expect("a folder");
        let stored = place.path().join(STORED);
        fs::create_dir_all(&stored).expect("made");
        for file in ["wave__manifests__1.snap", "wave__others__1.snap"] {
            fs::write(stored.join(file), "").expect("written");
        }
        let told = |shown: &[Shown]| compare(place.path(), shown.iter().copied()).map_err(|e| e.to_string());
        assert_eq!(told(&[Shown::Stored("wave__manifests__1.snap")]), Ok(()));
        let error = told(&[
            Shown::Stored("wave__manifests__1.snap"),
            Shown::Stored("wave__manifests__2.snap"),
        ])
        .expect_err("two is not there");
        assert!(error.contains("manifests__2.snap"), "{error}");
        let error = told(&[]).expect_err("one is not named");
        assert!(error.contains("wave__manifests__1.snap"), "{error}");
        assert!(
            told(&[
                Shown::Stored("wave__manifests__1.snap"),
                Shown::OnCluster("none.rs::test")
            ])
            .is_err()
        );
    }
}
