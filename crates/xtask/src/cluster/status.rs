//! `cargo xtask cluster status`.

use std::path::Path;

use comfy_table::Table;

use super::state::{self, State};
use crate::progress::say;

/// Prints the clusters of this machine, those of other checkouts too.
pub fn print(workspace: &Path) {
    let states = state::all();
    if states.is_empty() {
        say("no cluster is running: `cargo xtask cluster up` brings one up");
        return;
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "NAME",
        "KUBERNETES",
        "STATE",
        "SINCE",
        "API SERVER",
        "ID",
        "CHECKOUT",
    ]);
    for state in &states {
        let checkout = if state.workspace == workspace {
            "this one".to_owned()
        } else {
            state.workspace.display().to_string()
        };
        table.add_row([
            state.name.clone(),
            state.kubernetes.clone(),
            condition(state),
            state.started_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            format!("https://{}:6443", state.address),
            state.paths().map(|paths| paths.id).unwrap_or_default(),
            checkout,
        ]);
    }
    println!("{table}");
}

fn condition(state: &State) -> String {
    let dead: Vec<&str> = state.dead().iter().map(|process| process.name.as_str()).collect();
    if !dead.is_empty() {
        return format!("broken: {} ended", dead.join(", "));
    }
    match (state.ready, state.control_plane_only) {
        (false, _) => "starting".to_owned(),
        (true, true) => "up, control plane only".to_owned(),
        (true, false) => "up".to_owned(),
    }
}
