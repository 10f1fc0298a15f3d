//! The page of the decision table, from the decision itself.
//!
//! Promise: no rule is written down here. Every row comes from calling the decision for all combinations of the
//! facts named by the columns.

use std::path::PathBuf;
use std::sync::OnceLock;

use holdfast_core::deletion::table::{Outcome, Row, Table, obstacles, tables};
use holdfast_core::deletion::{Rule, Verdict};

use super::{Generated, MARKDOWN_HEAD, cell};

/// `docs/reference/decision-table.md`.
pub fn page() -> Generated {
    static PAGE: OnceLock<String> = OnceLock::new();
    Generated {
        path: PathBuf::from("docs/reference/decision-table.md"),
        content: PAGE.get_or_init(text).clone(),
    }
}

fn text() -> String {
    let tables = tables();
    let combinations: usize = tables.iter().map(|table| table.combinations).sum();
    let mut text = format!(
        "{MARKDOWN_HEAD}# The decision table

What becomes of a Snapshot that is being deleted. Made by asking the decision itself, {} times: each table goes
through every combination of its facts, and each combination is in exactly one of its rows. A row that goes on leads
to the next table. An empty cell means that the fact makes no difference there. The words are explained in
[conditions and reasons](conditions-and-reasons.md), and how deletion works as a whole in
[protect.md](../protect.md).
",
        grouped(combinations)
    );
    for table in &tables {
        text.push_str(&of(table));
    }
    text.push_str(
        "
## Why an allowed deletion waits

Each of these alone keeps a deletion with the verdict Delete from being carried out now. A release without deleting
waits only for a Job that has not started.

| fact | reason |
|---|---|
",
    );
    for (fact, reason) in obstacles() {
        text.push_str(&format!("| {} | {} |\n", cell(fact), linked(reason)));
    }
    text
}

fn of(table: &Table) -> String {
    let mut text = format!(
        "\n## {}\n\n{} combinations, {} rows.\n\n",
        table.title,
        grouped(table.combinations),
        table.rows.len()
    );
    text.push_str(&format!("| {} | verdict | rule |\n", table.columns.join(" | ")));
    text.push_str(&format!("|{}\n", "---|".repeat(table.columns.len() + 2)));
    for row in &table.rows {
        text.push_str(&line(row));
    }
    text
}

fn line(row: &Row) -> String {
    let cells = row.cells.iter().map(|values| {
        values
            .as_ref()
            .map_or(String::new(), |values| cell(&either(values)))
    });
    let (verdict, rule) = match row.outcome {
        Outcome::Decided(verdict, rule) => (decided(verdict), named(rule)),
        Outcome::GoesOn(rule) => (format!("goes on with rule {rule}"), String::new()),
    };
    let cells: Vec<String> = cells.chain([verdict, rule]).collect();
    format!("| {} |\n", cells.join(" | "))
}

fn decided(verdict: Verdict) -> String {
    match verdict {
        Verdict::InFlight => "**InFlight**: the Job's result decides".to_owned(),
        Verdict::Release(_)
        | Verdict::Orphan(_)
        | Verdict::Retain(_)
        | Verdict::Wait(_)
        | Verdict::Held(_)
        | Verdict::Delete(_) => format!("**{}** {}", verdict.kind(), linked(verdict.reason())),
    }
}

fn named(rule: Rule) -> String {
    match rule.number() {
        0 => rule.name().to_owned(),
        number => format!("{number} {}", rule.name()),
    }
}

/// A reason's word, with its heading on the page of reasons.
fn linked(word: &str) -> String {
    format!("[{word}](conditions-and-reasons.md#{})", word.to_lowercase())
}

fn either(values: &[&str]) -> String {
    match values {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// 108864 as `108,864`.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_table_has_a_heading_on_the_page_of_reasons() {
        let reasons = super::super::reasons::page().content;
        let headings: Vec<String> = reasons
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .map(str::to_lowercase)
            .collect();
        let page = page().content;
        let links: Vec<&str> = page
            .split("conditions-and-reasons.md#")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .collect();
        assert!(links.len() > 50, "{links:?}");
        for link in links {
            assert!(headings.iter().any(|heading| heading == link), "{link}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_values_joined() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(108_864), "108,864");
        assert_eq!(either(&["a", "b", "c"]), "a, b or c");
    }
}
