//! How quotas are shown to people.

use comfy_table::{CellAlignment, Table, presets};
use jiff::Timestamp;

use super::artifacts;
use super::frees::{Frees, Way};
use super::sums::{From, Item, Namespace, Store, Told};
use crate::style::{Style, ago, bytes};

/// A table for each namespace together; for one that was asked for, what it is made of too.
pub fn text(told: &Told, only: Option<&str>, now: Timestamp, style: Style) -> String {
    let mut text = String::new();
    if told.namespaces.is_empty() {
        text.push_str("No backup storage is recorded or limited in any namespace.\n");
    } else {
        text.push_str(&overview(&told.namespaces));
    }
    for namespace in &told.namespaces {
        if only.is_some() {
            text.push_str(&details(namespace, style));
        }
        for warning in &namespace.warnings {
            text.push_str(&format!(
                "\n{} {}: {warning}\n",
                style.waits("warning:"),
                namespace.namespace
            ));
        }
    }
    if only.is_none() {
        text.push_str(&stores(&told.stores, now, style));
    }
    for store in told.stores.iter().filter(|store| store.waiting_records > 0) {
        text.push_str(&format!(
            "\n{} the store {} does not have {} ({}) any more, and so large a release waits for an administrator:\n    {}\n",
            style.waits("waiting:"),
            store.name,
            artifacts(store.waiting_records),
            bytes(store.waiting_bytes),
            style.strong(&format!("kubectl holdfast quota approve {}", store.name)),
        ));
    }
    for note in &told.notes {
        text.push_str(&format!("\n{} {note}\n", style.waits("note:")));
    }
    text
}

fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.to_vec());
    table
}

fn overview(namespaces: &[Namespace]) -> String {
    let mut table = plain(&[
        "NAMESPACE",
        "SIZE",
        "LIMIT",
        "COUNT",
        "LIMIT",
        "RETAINED",
        "PENDING PURGE",
        "UNREPORTED",
        "UNACCOUNTED",
    ]);
    for namespace in namespaces {
        let gone = if namespace.alive == Some(false) {
            " (gone)"
        } else {
            ""
        };
        let known = |value: String| match namespace.from {
            From::Ledger | From::Breakdown => value,
            From::Nowhere => "?".to_owned(),
        };
        let parts = &namespace.parts;
        table.add_row([
            format!("{}{gone}", namespace.namespace),
            known(bytes(namespace.used_bytes)),
            namespace.hard_bytes.map_or_else(|| "-".to_owned(), bytes),
            known(namespace.used_count.to_string()),
            namespace
                .hard_count
                .map_or_else(|| "-".to_owned(), |hard| hard.to_string()),
            known(bytes(parts.retained)),
            known(bytes(parts.pending_purge)),
            known(parts.unreported.to_string()),
            known(parts.unaccounted.map_or_else(|| "?".to_owned(), bytes)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}

fn details(namespace: &Namespace, style: Style) -> String {
    let mut text = String::new();
    let (size, count) = (
        namespace.hard_bytes.map(|hard| namespace.used_bytes >= hard),
        namespace.hard_count.map(|hard| namespace.used_count >= hard),
    );
    if size == Some(true) || count == Some(true) {
        text.push_str(&format!(
            "\n{}\n",
            style.bad("The limit is reached: where it is enforced, no new BackupJob is admitted.")
        ));
    }
    match namespace.from {
        From::Nowhere => {
            text.push_str("\nNothing is published yet.\n");
            return text;
        }
        From::Ledger | From::Breakdown => {}
    }
    let parts = &namespace.parts;
    text.push_str(&format!("\n{}\n", style.strong("What is charged")));
    let mut table = plain(&["", ""]);
    for (what, value) in [
        ("attributed: Backups refer to it", bytes(parts.attributed)),
        ("retained: no Backup refers to it any more", bytes(parts.retained)),
        ("  of it pending purge", bytes(parts.pending_purge)),
        (
            "  of it or of the above stranded, from namespaces that are gone",
            bytes(parts.stranded),
        ),
        ("artifacts of unknown size", parts.unreported.to_string()),
        ("runs under way (not in used)", parts.in_flight.to_string()),
        (
            "unaccounted: no record explains it (not charged)",
            parts.unaccounted.map_or_else(|| "not told".to_owned(), bytes),
        ),
        ("written off (not charged)", bytes(parts.written_off)),
    ] {
        table.add_row([format!("  {what}"), value]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    // The empty header is no line of its own.
    let shown = table.trim_fmt();
    text.push_str(&format!("{}\n", shown.trim_start_matches('\n')));
    if !namespace.largest.is_empty() {
        text.push_str(&format!(
            "\n{}\n{}",
            style.strong("The largest artifacts"),
            largest(&namespace.largest)
        ));
    }
    if !namespace.frees.is_empty() {
        text.push_str(&format!("\n{}\n", style.strong("What would free space")));
        for one in &namespace.frees {
            text.push_str(&frees(one, style));
        }
    }
    text
}

fn size(item: &Item) -> String {
    item.bytes.map_or_else(|| "unknown".to_owned(), bytes)
}

/// Artifacts with their sizes, states and places.
pub fn largest(items: &[Item]) -> String {
    let mut table = plain(&[
        "ARTIFACT",
        "NAMESPACE",
        "SIZE",
        "STATE",
        "REASON",
        "APPLICATION",
        "WHERE",
    ]);
    for item in items {
        table.add_row([
            item.name.clone(),
            item.namespace.clone(),
            size(item),
            item.state.to_owned(),
            item.reason.to_owned(),
            item.application.clone(),
            item.location.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}

fn frees(one: &Frees, style: Style) -> String {
    let unknown = if one.unreported > 0 {
        format!(" and {} of unknown size", one.unreported)
    } else {
        String::new()
    };
    let mut text = format!(
        "  {}{unknown}, {}: {}\n",
        bytes(one.bytes),
        artifacts(one.artifacts),
        one.how
    );
    match one.way {
        Way::DeleteBytes | Way::LookAtDriver => text.push_str(&format!(
            "    {}\n",
            style.strong(&format!(
                "kubectl holdfast quota write-off {}{}",
                one.names.join(" "),
                if one.artifacts > u64::try_from(one.names.len()).unwrap_or(u64::MAX) {
                    " ..."
                } else {
                    ""
                }
            ))
        )),
        Way::WaitForDriver | Way::DeleteBackups | Way::DeleteBackupsAndBytes => {}
    }
    text
}

fn stores(stores: &[Store], now: Timestamp, style: Style) -> String {
    if stores.is_empty() {
        return String::new();
    }
    let mut table = plain(&["STORE", "LISTED", "UNACCOUNTED", "LAST ERROR"]);
    for store in stores {
        table.add_row([
            store.name.clone(),
            store
                .listed_at
                .map_or_else(|| "never".to_owned(), |at| ago(at, now)),
            bytes(store.unaccounted),
            store.last_error.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    format!(
        "\n{}\n{}\n",
        style.strong("Stores that are listed"),
        table.trim_fmt()
    )
}
