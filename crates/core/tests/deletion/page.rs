//! The tables as the committed page shows them: whoever changes what they say changes the page, and is seen to.

use holdfast_core::deletion::table::{Outcome, Row, obstacles, tables};
use holdfast_core::deletion::*;

/// The rows of a section, without markup.
fn shown(page: &str, title: &str) -> Vec<Vec<String>> {
    let (_, section) = page.split_once(&format!("\n## {title}\n")).expect(title);
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter(|line| line.starts_with("| "));
    rows.map(|line| {
        let line = line.replace("\\|", "\u{1}");
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| plain(cell).replace('\u{1}', "|")).collect()
    })
    .collect()
}

/// Without emphasis and links.
fn plain(cell: &str) -> String {
    let mut text = cell.replace("**", "");
    while let Some((before, rest)) = text.split_once("](") {
        let (word, after) = (before.rsplit_once('['), rest.split_once(')'));
        let ((start, word), (_, after)) = word.zip(after).expect("a link");
        text = format!("{start}{word}{after}");
    }
    text.trim().to_owned()
}

fn told(row: &Row) -> Vec<String> {
    let values = row.cells.iter().map(|cell| match cell.as_deref() {
        None | Some([]) => String::new(),
        Some([one]) => (*one).to_owned(),
        Some([first @ .., last]) => format!("{} or {last}", first.join(", ")),
    });
    let (verdict, rule) = match row.outcome {
        Outcome::GoesOn(rule) => (format!("goes on with rule {rule}"), String::new()),
        Outcome::Decided(Verdict::InFlight, rule) => {
            ("InFlight: the Job's result decides".to_owned(), name(rule))
        }
        Outcome::Decided(verdict, rule) => (format!("{} {}", verdict.kind(), verdict.reason()), name(rule)),
    };
    values.chain([verdict, rule]).collect()
}

fn name(rule: Rule) -> String {
    match rule.number() {
        0 => rule.name().to_owned(),
        number => format!("{number} {}", rule.name()),
    }
}

#[test]
fn the_page_shows_the_tables_that_the_decision_makes() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/decision-table.md"
    );
    let page = std::fs::read_to_string(path).expect(path);
    let renew = "run `cargo xtask generate`, and read what changed on the page";
    let tables = tables();
    assert_eq!(page.matches("\n## ").count(), tables.len() + 1, "{renew}");
    for table in &tables {
        let mut rows = shown(&page, table.title);
        let head = rows.remove(0);
        let columns: Vec<&str> = table.columns.iter().copied().chain(["verdict", "rule"]).collect();
        assert_eq!(head, columns, "{}: {renew}", table.title);
        let wanted: Vec<Vec<String>> = table.rows.iter().map(told).collect();
        assert_eq!(rows, wanted, "{}: {renew}", table.title);
        let combinations: String = page
            .split_once(&format!("## {}\n\n", table.title))
            .and_then(|(_, rest)| rest.split_once(" combinations"))
            .map(|(number, _)| number.replace(',', ""))
            .unwrap_or_default();
        assert_eq!(combinations, table.combinations.to_string(), "{renew}");
    }
    let waits = shown(&page, "Why an allowed deletion waits");
    let wanted: Vec<Vec<String>> = obstacles()
        .into_iter()
        .map(|(fact, reason)| vec![fact.to_owned(), reason.to_owned()])
        .collect();
    assert_eq!(waits[1..], wanted, "{renew}");
}
