//! `forecast retention`: what a policy would prune and keep, and which count keeps it.
//!
//! **Promises.** The operator's own code decides. Nothing is changed in the cluster. With counts on the command line the
//! policy is taken as if it had been edited to have these and no others, so that the stop for an edit
//! (`docs/design.md` 3.7) shows before the edit is made.
//!
//! **Assumes.** No backup ends meanwhile: a new one moves what a count keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use comfy_table::{CellAlignment, Table, presets};
use holdfast_api::SnapshotPolicy;
use holdfast_api::policy::Retention;
use holdfast_core::retention::Why;
use holdfast_operator::protect::policy::{completed, decide, observe};
use holdfast_operator::world::keys::ObjectKey;
use jiff::Timestamp;
use serde::Serialize;

use crate::cluster::Cluster;
use crate::connect::Connection;
use crate::read;
use crate::style::{Style, bytes};
use crate::target::Target;
use crate::waves::{Output, without_commands};

/// Arguments of `forecast retention`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The policy, as NAME or snapshotpolicy/NAME.
    #[arg(value_name = "POLICY")]
    policy: String,
    #[command(flatten)]
    edit: Edit,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Namespace of the operator.
    #[arg(long, value_name = "NAMESPACE", default_value = holdfast_api::names::OPERATOR_NAMESPACE)]
    operator_namespace: String,
}

/// Counts to try instead of those of the policy.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "As if spec.retention were edited to these counts and no others")]
pub struct Edit {
    #[arg(long, value_name = "N")]
    keep_latest: Option<u32>,
    #[arg(long, value_name = "N")]
    keep_hourly: Option<u32>,
    #[arg(long, value_name = "N")]
    keep_daily: Option<u32>,
    #[arg(long, value_name = "N")]
    keep_weekly: Option<u32>,
    #[arg(long, value_name = "N")]
    keep_monthly: Option<u32>,
    #[arg(long, value_name = "N")]
    keep_annual: Option<u32>,
}

impl Edit {
    /// The retention that it asks about; none: the policy's own.
    fn retention(&self) -> Option<Retention> {
        let asked = Retention {
            keep_latest: self.keep_latest,
            keep_hourly: self.keep_hourly,
            keep_daily: self.keep_daily,
            keep_weekly: self.keep_weekly,
            keep_monthly: self.keep_monthly,
            keep_annual: self.keep_annual,
        };
        (asked != Retention::default()).then_some(asked)
    }
}

/// What becomes of a Snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// Stays.
    Kept,
    /// Is pruned.
    Pruned,
    /// Would be pruned, and waits for a person.
    Held,
}

impl Fate {
    fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Pruned => "pruned",
            Self::Held => "held",
        }
    }
}

/// One Snapshot that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub snapshot: String,
    /// When it ended.
    pub ended_at: Timestamp,
    /// Logical bytes, if recorded.
    pub size_bytes: Option<i64>,
    /// What becomes of it.
    pub outcome: Fate,
    /// Which counts keep it, or why else it stays.
    pub because: Vec<&'static str>,
}

/// Everything there is to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The policy, as namespace/name.
    pub policy: String,
    /// Its retention, as it is or as it was asked about; none: nothing is ever pruned.
    pub retention: Option<Retention>,
    /// The counts are from the command line.
    pub as_if_edited: bool,
    /// The strictest threshold of the repositories concerned; 0: off.
    pub threshold: u32,
    /// How many stay.
    pub kept: usize,
    /// How many are pruned at once.
    pub pruned: usize,
    /// How many would be, and wait for a person.
    pub held: usize,
    /// What a person has to do for those to be pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_prune: Option<String>,
    /// Why nothing is pruned although the policy is there: it is suspended, refused, or has no repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Source by source, the newest first; each has a history of its own.
    pub histories: Vec<Vec<Row>>,
    /// What could not be read.
    pub notes: Vec<String>,
}

/// Runs `forecast retention`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let name = Target::policy(&args.policy, &connection.namespace)?;
    let cluster = read::cluster(connection, &connection.namespace, &args.operator_namespace).await?;
    let key = ObjectKey::new(&connection.namespace, &name);
    let found = forecast(&cluster, &key, args.edit.retention(), Timestamp::now())?;
    match args.output {
        Output::Table => Ok(table(&found, style)),
        Output::Json => {
            let text =
                serde_json::to_string_pretty(&found).context("the forecast cannot be written as JSON")?;
            Ok(format!("{text}\n"))
        }
    }
}

/// What retention would do now, with `edited` in the place of the policy's own counts.
pub fn forecast(
    cluster: &Cluster,
    key: &ObjectKey,
    edited: Option<Retention>,
    now: Timestamp,
) -> Result<Forecast> {
    let world = cluster.world(now)?;
    let policy = world.policy(key).with_context(|| {
        format!(
            "there is no SnapshotPolicy {} in namespace {}: list them with kubectl -n {} get snapshotpolicies",
            key.name, key.namespace, key.namespace
        )
    })?;
    let policy = match &edited {
        Some(retention) => Arc::new(edit(&policy, retention)),
        None => policy,
    };
    let facts = observe(&world, key, policy);
    let decision = decide(&facts, now);
    let sizes: BTreeMap<&str, i64> = cluster
        .snapshots
        .iter()
        .filter_map(|s| {
            Some((
                s.metadata.uid.as_deref()?,
                s.status.as_ref()?.stats.as_ref()?.size_bytes,
            ))
        })
        .collect();
    let mut histories: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    for view in &facts.snapshots {
        let Some(snapshot) = completed(view, now) else {
            continue;
        };
        let why = decision.retained.why.get(view.uid());
        let outcome = match (why, decision.retained.prune.iter().any(|uid| uid == view.uid())) {
            (Some(_), _) => Fate::Kept,
            (None, true) if decision.held.is_some() => Fate::Held,
            (None, true) => Fate::Pruned,
            // It does not count: it is being deleted, failed, or only discovered.
            (None, false) => continue,
        };
        histories.entry(snapshot.group).or_default().push(Row {
            snapshot: view.key().name,
            ended_at: snapshot.ended_at,
            size_bytes: sizes.get(view.uid()).copied(),
            outcome,
            because: why.into_iter().flatten().copied().map(Why::word).collect(),
        });
    }
    let mut histories: Vec<Vec<Row>> = histories.into_values().collect();
    for history in &mut histories {
        history.sort_by(|a, b| b.ended_at.cmp(&a.ended_at).then(a.snapshot.cmp(&b.snapshot)));
    }
    let count = |fate| {
        let rows = histories.iter().flatten();
        rows.filter(|row| row.outcome == fate).count()
    };
    Ok(Forecast {
        policy: format!("{}/{}", key.namespace, key.name),
        retention: facts.policy.spec.retention.clone(),
        as_if_edited: edited.is_some(),
        threshold: facts.threshold,
        kept: count(Fate::Kept),
        pruned: count(Fate::Pruned),
        held: count(Fate::Held),
        to_prune: decision.held.clone(),
        stopped: (!decision.asked).then(|| decision.message.clone()),
        histories,
        notes: cluster.notes.clone(),
    })
}

/// The policy as the API server would have it after the edit.
fn edit(policy: &SnapshotPolicy, retention: &Retention) -> SnapshotPolicy {
    let mut edited = policy.clone();
    if edited.spec.retention.as_ref() != Some(retention) {
        edited.spec.retention = Some(retention.clone());
        edited.metadata.generation = edited.metadata.generation.map(|generation| generation + 1);
    }
    edited
}

/// For people.
fn table(found: &Forecast, style: Style) -> String {
    let edited = if found.as_if_edited { "edited to " } else { "" };
    let mut text = format!(
        "Retention of snapshotpolicy {}, {edited}{}:\n",
        style.strong(&found.policy),
        found
            .retention
            .as_ref()
            .map_or_else(|| "no counts, which never prunes".to_owned(), counts)
    );
    if let Some(why) = &found.stopped {
        text.push_str(&format!("{} {why}\n", style.waits("nothing is pruned:")));
    } else {
        text.push_str(&format!(
            "if it ran now, {} would stay and {} would be pruned",
            style.good(&found.kept.to_string()),
            style.bad(&found.pruned.to_string())
        ));
        text.push_str(&match found.held {
            0 => ".\n".to_owned(),
            held => format!("; {}.\n", style.waits(&format!("{held} more would be held"))),
        });
    }
    for history in &found.histories {
        text.push('\n');
        text.push_str(&rows(history));
    }
    if let Some(why) = &found.to_prune {
        // Before the edit is made, its command would say yes to nothing.
        let why = if found.as_if_edited {
            without_commands(why)
        } else {
            why
        };
        text.push_str(&format!("\n{} {why}\n", style.waits("held:")));
    }
    for note in &found.notes {
        text.push_str(&format!("\n{} {note}\n", style.waits("note:")));
    }
    text.push_str("\nNothing was changed.\n");
    text
}

/// The counts that are set, by their names.
fn counts(retention: &Retention) -> String {
    let said: Vec<String> = retention
        .counts()
        .into_iter()
        .filter_map(|(name, count)| Some(format!("{name}: {}", count?)))
        .collect();
    if said.is_empty() {
        "no counts, which never prunes".to_owned()
    } else {
        said.join(", ")
    }
}

fn rows(history: &[Row]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["SNAPSHOT", "ENDED", "SIZE", "OUTCOME", "BECAUSE"]);
    for row in history {
        table.add_row([
            row.snapshot.clone(),
            row.ended_at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
            row.size_bytes.map_or_else(|| "?".to_owned(), bytes),
            row.outcome.word().to_owned(),
            row.because.join(", "),
        ]);
    }
    if let Some(column) = table.column_mut(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forecast::tests::{cluster, now};
    use serde_json::json;

    const DAY: i64 = 24 * 3600;

    fn key() -> ObjectKey {
        ObjectKey::new("a", "p")
    }

    /// `count` daily Snapshots of policy `p`, one of them pinned.
    fn dailies(count: i64, retention: Option<Retention>) -> Cluster {
        let mut all = cluster();
        all.policies[0].spec.retention = retention;
        all.policies[0].metadata.generation = Some(4);
        all.policies[0].status =
            Some(serde_json::from_value(json!({ "retention": { "completedGeneration": 4 } })).unwrap());
        all.snapshots = (0..count)
            .map(|n| {
                let end = Timestamp::from_second(now().as_second() - n * DAY).unwrap();
                serde_json::from_value(json!({
                    "apiVersion": holdfast_api::names::API_VERSION, "kind": "Snapshot",
                    "metadata": {
                        "namespace": "a", "name": format!("s{n:02}"), "uid": format!("u{n:02}"),
                        "labels": { "kopiur.home-operations.com/origin": "scheduled" },
                    },
                    "spec": { "policyRef": { "name": "p" }, "pin": n == 20 },
                    "status": {
                        "phase": "Succeeded", "snapshot": { "kopiaSnapshotID": format!("id{n}") },
                        "timing": { "endTime": end.to_string() },
                        "stats": { "sizeBytes": 1024 },
                        "resolved": { "repository": { "name": "main", "namespace": "a" } },
                    },
                }))
                .unwrap()
            })
            .collect();
        all
    }

    fn keep(daily: u32) -> Retention {
        Retention {
            keep_daily: Some(daily),
            keep_latest: Some(1),
            ..Retention::default()
        }
    }

    #[test]
    fn each_snapshot_is_told_with_what_keeps_it() {
        let found = forecast(&dailies(30, Some(keep(14))), &key(), None, now()).unwrap();
        assert_eq!((found.kept, found.pruned, found.held), (15, 15, 0));
        let rows = &found.histories[0];
        assert_eq!(rows[0].because, ["keepLatest", "keepDaily"]);
        assert_eq!(rows[20].because, ["pinned"]);
        assert_eq!(
            (rows[29].outcome, rows[29].size_bytes),
            (Fate::Pruned, Some(1024))
        );
        let text = table(&found, Style::PLAIN);
        for part in [
            "Retention of snapshotpolicy a/p, keepLatest: 1, keepDaily: 14:\n",
            "if it ran now, 15 would stay and 15 would be pruned.\n",
            "2026-01-02 03:04:05Z",
            "1.0 KiB",
            "keepLatest, keepDaily",
            "Nothing was changed.",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn an_edit_is_tried_with_the_stop_that_it_would_meet() {
        let all = dailies(30, Some(keep(30)));
        assert_eq!(forecast(&all, &key(), None, now()).unwrap().pruned, 0);
        let found = forecast(&all, &key(), Some(keep(14)), now()).unwrap();
        assert_eq!((found.kept, found.pruned, found.held), (15, 0, 15));
        let text = table(&found, Style::PLAIN);
        assert!(text.contains("15 more would be held"), "{text}");
        assert!(text.contains("the threshold is 10"), "{text}");
        // The same counts are no edit.
        let same = forecast(&all, &key(), Some(keep(30)), now()).unwrap();
        assert_eq!((same.held, same.kept), (0, 30));
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["asIfEdited"], true);
        assert_eq!(json["histories"][0][29]["outcome"], "held");
        assert_eq!(json["retention"]["keepDaily"], 14);
    }

    #[test]
    fn why_nothing_is_pruned_is_told() {
        let none = forecast(&dailies(3, None), &key(), None, now()).unwrap();
        assert_eq!(none.histories[0][0].because, ["noRetention"]);
        assert!(table(&none, Style::PLAIN).contains("no counts, which never prunes"));
        let mut all = dailies(3, Some(keep(1)));
        all.policies[0].spec.suspend = true;
        let found = forecast(&all, &key(), None, now()).unwrap();
        assert!(found.histories.is_empty());
        assert!(table(&found, Style::PLAIN).contains("nothing is pruned: spec.suspend"));
        let missing = forecast(&all, &ObjectKey::new("a", "other"), None, now()).unwrap_err();
        assert!(
            missing.to_string().contains("there is no SnapshotPolicy other"),
            "{missing}"
        );
    }
}
