//! The numbered cases of how deletions are decided: each has a test that carries its number.
//!
//! Promise: a case without a test, or a test with a number that is no case, is named.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The cases; numbers that are absent were never given. 75 and 76 need a cluster with nodes: they are scenarios.
const CASES: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 24, 25, 26, 27, 28, 29, 30,
    31, 32, 33, 34, 35, 36, 38, 39, 40, 41, 43, 44, 45, 47, 48, 49, 50, 51, 53, 54, 55, 56, 58, 59, 60, 61,
    62, 64, 65, 66, 67, 68, 69, 70, 72, 73, 74, 75, 76, 77, 78, 79, 80, 82, 83, 84, 85, 87,
];
/// Those of them that only a cluster with nodes can show.
const SCENARIOS: &[u32] = &[75, 76];

/// Every case has a test named `case_NN_…` (several numbers may stand in one name).
pub fn every_case_has_a_test(workspace: &Path) -> Result<()> {
    let mut named = BTreeSet::new();
    each_source(&workspace.join("crates"), &mut |_, text| {
        named.extend(numbers(text))
    })?;
    compare(&named)
}

/// Shows every Rust file below a folder.
pub fn each_source(folder: &Path, each: &mut impl FnMut(&Path, &str)) -> Result<()> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries =
            fs::read_dir(&folder).with_context(|| format!("{} cannot be read", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("{} cannot be read", path.display()))?;
                each(&path, &text);
            }
        }
    }
    Ok(())
}

fn compare(named: &BTreeSet<u32>) -> Result<()> {
    let list = |numbers: Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let untested = CASES
        .iter()
        .filter(|n| !SCENARIOS.contains(n) && !named.contains(n));
    let untested: Vec<u32> = untested.copied().collect();
    if !untested.is_empty() {
        bail!(
            "no test is named after the cases {}: write `fn case_NN_…`",
            list(untested)
        );
    }
    let strangers: Vec<u32> = named.iter().filter(|n| !CASES.contains(n)).copied().collect();
    if !strangers.is_empty() {
        bail!("tests are named after {}, which are no cases", list(strangers));
    }
    Ok(())
}

/// The numbers in the names of functions: `case_05_…`, `case_29_30_…`.
fn numbers(text: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.trim_start();
        let name = line
            .strip_prefix("async ")
            .unwrap_or(line)
            .strip_prefix("fn case_");
        let parts = name.into_iter().flat_map(|name| name.split('_'));
        found.extend(parts.map_while(|part| part.parse::<u32>().ok()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_names_of_tests_alone() {
        let text = "fn case_05_x() {}\n    async fn case_29_30_y_7() {}\n// fn case_99_z\nlet case_4_a = 1;";
        assert_eq!(numbers(text), [5, 29, 30]);
    }

    #[test]
    fn a_case_without_a_test_and_a_number_without_a_case_are_named() {
        let mut all: BTreeSet<u32> = CASES.iter().copied().filter(|n| !SCENARIOS.contains(n)).collect();
        compare(&all).expect("all are there");
        all.remove(&17);
        let error = compare(&all).expect_err("17 is missing").to_string();
        assert!(error.contains("17"), "{error}");
        all.extend([17, 13]);
        let error = compare(&all).expect_err("13 is none").to_string();
        assert!(error.contains("13"), "{error}");
    }
}
