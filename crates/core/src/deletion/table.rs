//! The decision as tables to be read: which facts lead to which verdict, by which rule.
//!
//! **Promises.** Nothing here states a rule. Each table calls [`super::wave()`] for every combination of the values
//! of its columns and merges what does not differ, so each combination is in exactly one row.
//!
//! **Assumes.** The rules ask one after the other, so that one table can end in "goes on" where the next begins;
//! the rule that a decision names says where it ended. What is not a column of a table is as in the plain case: an
//! external deletion of one Snapshot that nobody made by schedule.

mod columns;
mod scene;

use super::verdict::{Rule, Verdict};
use scene::Scene;

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// What it is about.
    pub title: &'static str,
    /// Names of its columns. Those that made no difference to any row are left out.
    pub columns: Vec<&'static str>,
    /// Its rows, in the order of their rules.
    pub rows: Vec<Row>,
    /// For how many combinations the decision was called.
    pub combinations: usize,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// For each column the values that lead here; none: any value does.
    pub cells: Vec<Option<Vec<&'static str>>>,
    /// Where they lead.
    pub outcome: Outcome,
}

/// Where a row leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This is the verdict.
    Decided(Verdict, Rule),
    /// A later rule decides: this one asks first.
    GoesOn(u8),
}

impl Outcome {
    /// The number of the rule that a reader looks for.
    fn number(self) -> u8 {
        match self {
            Self::Decided(_, rule) => rule.number(),
            Self::GoesOn(number) => number,
        }
    }
}

/// A fact, and the values it can have.
struct Column {
    name: &'static str,
    values: &'static [Value],
}

/// One value: its words, and what it means for the lane.
type Value = (&'static str, fn(&mut Scene));

/// Which rules a table is about.
struct Part {
    title: &'static str,
    columns: &'static [&'static Column],
    /// Decisions of this rule and later ones are not told here; 10: all are.
    until: u8,
}

/// The tables, in the order in which the rules are asked.
#[must_use]
pub fn tables() -> Vec<Table> {
    columns::PARTS.iter().map(build).collect()
}

/// What keeps an allowed deletion from being carried out at once: the fact, and the word for the wait.
#[must_use]
pub fn obstacles() -> Vec<(&'static str, &'static str)> {
    columns::OBSTACLES
        .iter()
        .map(|(words, apply)| {
            let mut scene = Scene::plain();
            apply(&mut scene);
            let plan = scene.decide();
            let reason = scene
                .member()
                .and_then(|member| plan.decision(&member.uid))
                .map_or("", |decision| decision.reason());
            (*words, reason)
        })
        .collect()
}

/// A row on its way: for each column the indexes of its values.
type Raw = (Vec<Vec<usize>>, Outcome);

fn build(part: &Part) -> Table {
    let mut raw = grow(part, 0, &Scene::plain());
    merge(&mut raw);
    raw.sort_by_key(|(_, outcome)| outcome.number());
    let any = |column: usize, cell: &[usize]| cell.len() == part.columns[column].values.len();
    let shown: Vec<usize> = (0..part.columns.len())
        .filter(|column| raw.iter().any(|(cells, _)| !any(*column, &cells[*column])))
        .collect();
    let words = |column: usize, cell: &[usize]| -> Option<Vec<&'static str>> {
        let word = |value: &usize| part.columns[column].values[*value].0;
        (!any(column, cell)).then(|| cell.iter().map(word).collect())
    };
    Table {
        title: part.title,
        columns: shown.iter().map(|column| part.columns[*column].name).collect(),
        rows: raw
            .iter()
            .map(|(cells, outcome)| Row {
                cells: shown
                    .iter()
                    .map(|column| words(*column, &cells[*column]))
                    .collect(),
                outcome: *outcome,
            })
            .collect(),
        combinations: part.columns.iter().map(|column| column.values.len()).product(),
    }
}

/// The rows for the columns from `depth` on. Values of one column whose rows are the same become one value.
fn grow(part: &Part, depth: usize, scene: &Scene) -> Vec<Raw> {
    let Some(column) = part.columns.get(depth) else {
        return vec![(Vec::new(), outcome(part, scene))];
    };
    let mut groups: Vec<(Vec<usize>, Vec<Raw>)> = Vec::new();
    for (value, (_, apply)) in column.values.iter().enumerate() {
        let mut scene = scene.clone();
        apply(&mut scene);
        let rows = grow(part, depth + 1, &scene);
        match groups.iter_mut().find(|(_, known)| *known == rows) {
            Some((values, _)) => values.push(value),
            None => groups.push((vec![value], rows)),
        }
    }
    groups
        .into_iter()
        .flat_map(|(values, rows)| {
            rows.into_iter().map(move |(mut cells, outcome)| {
                cells.insert(0, values.clone());
                (cells, outcome)
            })
        })
        .collect()
}

fn outcome(part: &Part, scene: &Scene) -> Outcome {
    let plan = scene.decide();
    let decided = scene
        .member()
        .and_then(|member| plan.decision(&member.uid))
        .map(|decision| (decision.verdict, decision.rule));
    match decided {
        Some((verdict, rule)) => {
            // A prune that rule 5 lets pass is asked about by rule 8, and by the breaker if it is latched.
            let passed = rule == Rule::OwnStamp && verdict.deletes();
            if rule.number() >= part.until || (passed && part.until < 10) {
                Outcome::GoesOn(part.until)
            } else {
                Outcome::Decided(verdict, rule)
            }
        }
        None => Outcome::GoesOn(part.until),
    }
}

/// Makes one row of two that lead to the same and differ in one column, until there are none.
fn merge(rows: &mut Vec<Raw>) {
    while let Some((first, second, column)) = mergeable(rows) {
        let (cells, _) = rows.remove(second);
        if let (Some((kept, _)), Some(more)) = (rows.get_mut(first), cells.get(column)) {
            kept[column].extend(more);
            kept[column].sort_unstable();
        }
    }
}

fn mergeable(rows: &[Raw]) -> Option<(usize, usize, usize)> {
    for (second, (other, its)) in rows.iter().enumerate() {
        for (first, (cells, outcome)) in rows.iter().enumerate().take(second) {
            if outcome != its {
                continue;
            }
            let mut differ = (0..cells.len()).filter(|column| cells[*column] != other[*column]);
            if let (Some(column), None) = (differ.next(), differ.next()) {
                return Some((first, second, column));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many combinations a row stands for, given how many values each shown column has.
    fn share(row: &Row, sizes: &[usize]) -> usize {
        row.cells
            .iter()
            .zip(sizes)
            .map(|(cell, size)| cell.as_ref().map_or(*size, Vec::len))
            .product()
    }

    #[test]
    fn each_combination_is_in_exactly_one_row() {
        for (part, table) in columns::PARTS.iter().zip(tables()) {
            let sizes: Vec<usize> = table
                .columns
                .iter()
                .filter_map(|name| part.columns.iter().find(|column| column.name == *name))
                .map(|column| column.values.len())
                .collect();
            let all: usize = sizes.iter().product();
            let covered: usize = table.rows.iter().map(|row| share(row, &sizes)).sum();
            assert_eq!(covered, all, "{}", table.title);
            for (at, row) in table.rows.iter().enumerate() {
                for other in &table.rows[..at] {
                    let apart = row.cells.iter().zip(&other.cells).any(|(one, other)| {
                        matches!((one, other), (Some(one), Some(other)) if one.iter().all(|v| !other.contains(v)))
                    });
                    assert!(apart, "{}: {row:?} and {other:?}", table.title);
                }
            }
        }
    }

    #[test]
    fn every_rule_is_in_a_table_and_no_table_is_too_long_to_read() {
        let tables = tables();
        for rule in 0..=9 {
            assert!(
                tables.iter().flat_map(|table| &table.rows).any(
                    |row| matches!(row.outcome, Outcome::Decided(_, decided) if decided.number() == rule)
                ),
                "rule {rule}"
            );
        }
        for table in &tables {
            println!(
                "{}: {} rows of {}",
                table.title,
                table.rows.len(),
                table.combinations
            );
            assert!(table.rows.len() <= 40, "{}: {}", table.title, table.rows.len());
        }
    }

    #[test]
    fn every_obstacle_makes_a_deletion_wait() {
        for (fact, reason) in obstacles() {
            assert!(
                !reason.is_empty() && reason != "BelowThreshold",
                "{fact}: {reason}"
            );
        }
        let mut scene = Scene::plain();
        assert!(scene.decide().fire.is_some(), "the plain case fires");
        scene.change(|member| member.skip = true);
        assert!(scene.decide().fire.is_none());
    }
}
