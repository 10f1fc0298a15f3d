//! How waves are shown.

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use holdfast_api::names;
use jiff::Timestamp;

use super::{Found, Held, Wave, without_commands};
use crate::style::{Style, ago, bytes};

/// Most namespaces named in a row.
const NAMED: usize = 4;

/// For programs: an object with `waves` and `notes`.
pub fn json(found: &Found) -> Result<String> {
    let text = serde_json::to_string_pretty(found).context("the waves cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

/// For people.
pub fn table(found: &Found, namespace: Option<&str>, now: Timestamp, style: Style) -> String {
    let mut text = String::new();
    if found.waves.is_empty() {
        let place = namespace.map_or_else(
            || "in any namespace".to_owned(),
            |namespace| format!("in namespace {namespace} (-A asks for all)"),
        );
        text.push_str(&format!("{} {place}.\n", style.good("No deletion is held")));
    } else {
        text.push_str(&rows(&found.waves, now));
        for wave in &found.waves {
            text.push_str(&details(wave, style));
        }
        text.push_str(&format!(
            "\nTo keep the data of one Snapshot alone and let its object go:\n    {}\n",
            style.strong(&format!(
                "kubectl -n NAMESPACE annotate snapshot/NAME {}=\"\"",
                names::SKIP_SNAPSHOT_CLEANUP
            ))
        ));
    }
    for note in &found.notes {
        text.push_str(&format!("\n{} {note}\n", style.waits("note:")));
    }
    text
}

fn rows(waves: &[Wave], now: Timestamp) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header([
        "REPOSITORY",
        "HELD",
        "THRESHOLD",
        "SIZE",
        "SINCE",
        "NAMESPACES",
    ]);
    for wave in waves {
        let (count, size, namespaces) = match &wave.held {
            Some(held) => (held.count.to_string(), bytes(held.bytes), namespaces(held)),
            None => ("?".to_owned(), "?".to_owned(), "?".to_owned()),
        };
        table.add_row([
            wave.title(),
            count,
            wave.threshold.to_string(),
            size,
            ago(wave.since, now),
            namespaces,
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}

/// The namespaces with the most first.
fn namespaces(held: &Held) -> String {
    let mut list: Vec<(&String, &u64)> = held.namespaces.iter().collect();
    list.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let mut shown: Vec<String> = list
        .iter()
        .take(NAMED)
        .map(|(namespace, count)| format!("{namespace} ({count})"))
        .collect();
    if list.len() > NAMED {
        shown.push(format!("{} more", list.len() - NAMED));
    }
    shown.join(", ")
}

fn details(wave: &Wave, style: Style) -> String {
    let title = style.bad(&wave.title());
    match &wave.command {
        Some(command) => format!(
            "\n{title}\n  {}\n  To delete all that is held here, run:\n    {}\n  which does the same as:\n    {}\n  To keep the data of all of them and let the objects go, run:\n    {}\n",
            without_commands(&wave.message),
            style.strong(&format!("kubectl holdfast release {}", wave.object())),
            style.strong(command),
            style.strong(&format!("kubectl holdfast reject {}", wave.object()))
        ),
        None => format!("\n{title}\n  {}\n", wave.message),
    }
}
