//! How a forecast is shown.

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};

use super::{Forecast, Outcome};
use crate::forecast::judge::{Part, Row};
use crate::style::{Style, bytes};

/// For programs.
pub fn json(found: &Forecast) -> Result<String> {
    let text = serde_json::to_string_pretty(found).context("the forecast cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

/// For people.
pub fn table(found: &Forecast, style: Style) -> String {
    let totals: Vec<String> = Outcome::ALL
        .iter()
        .map(|outcome| {
            (
                outcome,
                found.totals.get(outcome.word()).copied().unwrap_or_default(),
            )
        })
        .filter(|(_, count)| *count > 0)
        .map(|(outcome, count)| paint(style, *outcome, &format!("{count} {}", said(*outcome))))
        .collect();
    let mut text = format!(
        "If {} were deleted now, {}\n",
        style.strong(&found.delete),
        match found.snapshots {
            0 => "no Snapshot would be deleted with it.".to_owned(),
            count => format!(
                "{count} Snapshot{} would be deleted with it: {}.",
                if count == 1 { "" } else { "s" },
                if totals.is_empty() {
                    "none of them is guarded".to_owned()
                } else {
                    totals.join(", ")
                }
            ),
        }
    );
    for part in &found.repositories {
        text.push_str(&tell(part, style));
    }
    for note in &found.notes {
        text.push_str(&format!("\n{} {note}\n", style.waits("note:")));
    }
    text.push_str("\nNothing was changed.\n");
    text
}

fn said(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Deleted => "with data deleted",
        Outcome::Held => "held",
        Outcome::Kept => "with data kept",
        Outcome::Waits => "waiting",
        Outcome::Unknown => "unknown",
    }
}

fn paint(style: Style, outcome: Outcome, text: &str) -> String {
    match outcome {
        Outcome::Deleted => style.bad(text),
        Outcome::Held | Outcome::Waits | Outcome::Unknown => style.waits(text),
        Outcome::Kept => style.good(text),
    }
}

fn tell(part: &Part, style: Style) -> String {
    let title = part
        .repository
        .clone()
        .unwrap_or_else(|| "no repository object that is known".to_owned());
    let at_least = if part.at_least { "at least " } else { "" };
    let counted = match part.threshold {
        None => String::new(),
        Some(0) => ": threshold 0, the breaker is switched off".to_owned(),
        Some(threshold) => format!(
            ": threshold {threshold}, {at_least}{} pending deletions would count",
            part.pending
        ),
    };
    let mut text = format!("\n{}{counted}\n", style.strong(&title));
    if !part.asked.is_empty() {
        text.push_str(&rows(&part.asked));
    }
    if !part.already.is_empty() {
        text.push_str("being deleted already:\n");
        text.push_str(&rows(&part.already));
    }
    for row in part.asked.iter().chain(&part.already) {
        text.push_str(&format!(
            "  {}: {}\n",
            paint(style, row.outcome, row.reason),
            row.message
        ));
    }
    if let Some(release) = &part.to_release {
        text.push_str(&format!("  {release}\n"));
    }
    text
}

fn rows(rows: &[Row]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["OUTCOME", "SNAPSHOTS", "SIZE", "RULE", "REASON"]);
    for row in rows {
        let size = match row.unknown_size {
            0 => bytes(row.bytes),
            unknown if unknown == row.count => "?".to_owned(),
            unknown => format!("{} + {unknown} unknown", bytes(row.bytes)),
        };
        table.add_row([
            row.outcome.word().to_owned(),
            row.count.to_string(),
            size,
            format!("{} {}", row.rule, row.rule_name),
            row.reason.to_owned(),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}
