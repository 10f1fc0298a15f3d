//! The cases of quota and accounting, in four lists: each has a test that says so.
//!
//! Promise: a case without a test, and a number that is no case, are named. A test says it in its doc comment
//! (`/// Cases real 24, ledger 15 and 25: …`) or in its name (`fn case_ledger_9_…`). Of `real`, only tests count that
//! ask a real API server.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use super::cases::each_source;

/// Against a real kube-apiserver and kube-controller-manager.
const REAL: &str = "real";

/// The lists; numbers that are absent were never given. `gate` are the rows of the decision table, from the top.
const CASES: &[(&str, &[u32])] = &[
    (
        REAL,
        &[
            1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 21, 22, 23, 24, 25, 27, 28,
        ],
    ),
    ("gate", &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
    (
        "ledger",
        &[
            1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 18, 19, 21, 22, 23, 25,
        ],
    ),
    ("webhook", &[1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 13, 14, 15]),
];
/// Where the tests are that ask a real API server.
const REAL_TESTS: &[&str] = &[
    "crates/operator/tests/account",
    "crates/operator/tests/quota_keys",
    "crates/e2e/tests",
];

/// A list and a number in it.
type Case = (&'static str, u32);

/// Every case has a test that names it.
pub fn every_quota_case_has_a_test(workspace: &Path) -> Result<()> {
    let mut named = BTreeSet::new();
    each_source(&workspace.join("crates"), &mut |path, text| {
        let is_real = REAL_TESTS
            .iter()
            .any(|folder| path.starts_with(workspace.join(folder)));
        named.extend(tested(text).into_iter().map(|case| (case, is_real)));
    })?;
    compare(&named)
}

/// `named`: each case, and whether the test that names it asks a real API server.
fn compare(named: &BTreeSet<(Case, bool)>) -> Result<()> {
    let list = |cases: Vec<Case>| {
        let words = cases.iter().map(|(of, number)| format!("{of} {number}"));
        words.collect::<Vec<_>>().join(", ")
    };
    let all: Vec<Case> = CASES
        .iter()
        .flat_map(|(of, numbers)| numbers.iter().map(|number| (*of, *number)))
        .collect();
    let is_tested =
        |case: &Case| named.contains(&(*case, true)) || (case.0 != REAL && named.contains(&(*case, false)));
    let untested: Vec<Case> = all.iter().filter(|case| !is_tested(case)).copied().collect();
    if !untested.is_empty() {
        bail!(
            "no test names the quota cases {}: write `/// Case real 7: …` above one (of `real`, in {})",
            list(untested),
            REAL_TESTS.join(", ")
        );
    }
    let strangers: BTreeSet<Case> = named
        .iter()
        .map(|(case, _)| *case)
        .filter(|case| !all.contains(case))
        .collect();
    if !strangers.is_empty() {
        bail!(
            "tests name the quota cases {}, which are none",
            list(strangers.into_iter().collect())
        );
    }
    Ok(())
}

/// The cases that the tests of a file name. A comment or a name without a test under it counts for nothing.
fn tested(text: &str) -> Vec<Case> {
    let mut found = Vec::new();
    let mut said = Vec::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            said.extend(said_in(comment));
        } else if line.starts_with("#[") {
            is_test |= ["#[test]", "#[tokio::test"]
                .iter()
                .any(|test| line.starts_with(test));
        } else {
            if let Some(name) = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")
                && is_test
            {
                found.append(&mut said);
                found.extend(said_in_name(name));
            }
            said.clear();
            is_test = false;
        }
    }
    found
}

/// `Cases real 24, ledger 15 and 25: …`
fn said_in(comment: &str) -> Vec<Case> {
    let mut words = comment.split_whitespace();
    let mut cases = Vec::new();
    if !matches!(words.next(), Some("Case" | "Cases")) {
        return cases;
    }
    let mut of = None;
    for word in words {
        let bare = word.trim_end_matches([',', ':', '.']);
        if let Some((list, _)) = CASES.iter().find(|(list, _)| *list == bare) {
            of = Some(*list);
        } else if let (Some(of), Ok(number)) = (of, bare.parse()) {
            cases.push((of, number));
        } else if bare != "and" {
            break;
        }
        if word.ends_with([':', '.']) {
            break;
        }
    }
    cases
}

/// `case_ledger_9_…`
fn said_in_name(name: &str) -> Option<Case> {
    let (list, rest) = name.strip_prefix("case_")?.split_once('_')?;
    let (list, _) = CASES.iter().find(|(known, _)| *known == list)?;
    let number = rest.split('_').next()?.parse().ok()?;
    Some((*list, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_read_from_doc_comments_and_names_of_tests_alone() {
        let text = "/// Cases real 24, ledger 15 and 25: a namespace of 7.\n/// More words about 3.\n#[tokio::test]\n\
                    async fn one() {\n/// Case real 16, and a second writer of 5.\n#[test]\nfn two() {}\n\
                    #[test]\nfn case_ledger_9_a_claim_of_4() {}\n\
                    /// Case gate 1.\nfn no_test() {}\n/// Case gate 2.\nconst X: u8 = 1;\n#[test]\nfn three() {}\n\
                    fn case_gate_3_is_no_test() {}\n/// Case 82: of another list.\n#[test]\nfn case_05_x() {}";
        assert_eq!(
            tested(text),
            [
                ("real", 24),
                ("ledger", 15),
                ("ledger", 25),
                ("real", 16),
                ("ledger", 9)
            ]
        );
    }

    fn all() -> BTreeSet<(Case, bool)> {
        let of_list = |(of, numbers): &(&'static str, &'static [u32])| {
            let of = *of;
            numbers.iter().map(move |number| ((of, *number), of == REAL))
        };
        CASES.iter().flat_map(of_list).collect()
    }

    #[test]
    fn a_case_without_a_test_is_named() {
        compare(&all()).expect("all are there");
        for missing in [("ledger", 9), ("webhook", 14), ("gate", 6), (REAL, 28)] {
            let mut named = all();
            named.retain(|(case, _)| *case != missing);
            let error = compare(&named).expect_err("it is missing").to_string();
            assert!(error.contains(&format!("{} {}", missing.0, missing.1)), "{error}");
        }
    }

    #[test]
    fn a_pure_test_of_a_real_case_is_not_enough_and_one_of_a_ledger_case_is() {
        let mut named = all();
        assert!(named.remove(&((REAL, 21), true)) && named.insert(((REAL, 21), false)));
        let error = compare(&named)
            .expect_err("nobody asked an API server")
            .to_string();
        assert!(error.contains("real 21"), "{error}");
    }

    #[test]
    fn a_number_that_is_no_case_is_named() {
        let mut named = all();
        named.insert((("ledger", 11), false));
        let error = compare(&named).expect_err("11 is none").to_string();
        assert!(error.contains("ledger 11"), "{error}");
    }
}
