//! `reject`: no, keep the data and let the objects go.
//!
//! **Promises.** Running it again does no harm and does what is left. An error stops nothing else, and is listed at
//! the end. No data is deleted by it.

use std::io::IsTerminal as _;

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use holdfast_api::{Snapshot, names};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use crate::connect::{Asked, Connection, list, scoped};
use crate::failure::{Code, failure};
use crate::style::{Style, bytes};
use crate::waves::{Output, Wave};
use crate::{MANAGER, ask, chosen};

/// How many are written at once.
const AT_ONCE: usize = 8;
/// Most errors shown to people.
const SHOWN: usize = 10;

/// Arguments of `reject`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The repository; otherwise the only one that holds something.
    #[arg(value_name = "repository/NAME|clusterrepository/NAME")]
    object: Option<String>,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// What was done.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rejected {
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    /// Marked by this run.
    marked: usize,
    /// Marked before.
    already: usize,
    /// Gone in the meantime.
    gone: usize,
    /// Logical bytes kept.
    bytes: i64,
    failed: Vec<Failed>,
    notes: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Failed {
    snapshot: String,
    error: String,
}

/// Runs `reject`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let found = chosen::one(connection, args.object.as_deref()).await?;
    let Some(mut wave) = found.waves.into_iter().next() else {
        return match args.output {
            Output::Table => Ok(chosen::nothing(
                args.object.as_deref(),
                &connection.namespace,
                &found.notes,
            )),
            Output::Json => json_of(&Rejected {
                notes: found.notes,
                ..Rejected::default()
            }),
        };
    };
    let (snapshots, notes) = held(connection, &wave).await?;
    wave.count(&snapshots);
    let mut done = Rejected {
        repository: Some(wave.title()),
        notes,
        ..Rejected::default()
    };
    let (before, todo): (Vec<&Snapshot>, Vec<&Snapshot>) = snapshots
        .iter()
        .filter(|s| wave.holds(s))
        .partition(|s| is_marked(s));
    done.already = before.len();
    done.bytes = before.iter().map(|s| size(s)).sum();
    eprint!(
        "{}",
        chosen::show(
            &wave,
            &done.notes,
            Timestamp::now(),
            Style::of(&std::io::stderr())
        )
    );
    if !todo.is_empty() {
        let question = format!(
            "The data of {} Snapshots is kept and their objects go, which cannot be undone.",
            todo.len()
        );
        ask::confirm(&question, args.yes)?;
        mark_all(connection, &todo, &mut done).await;
    }
    let text = match args.output {
        Output::Table => tell(&done, &wave, style),
        Output::Json => json_of(&done)?,
    };
    if done.failed.is_empty() {
        return Ok(text);
    }
    crate::print(&text)?;
    Err(failure(
        Code::Partly,
        format!(
            "{} Snapshots could not be marked and stay held; run it again for them",
            done.failed.len()
        ),
    ))
}

/// The held Snapshots of a wave, as far as the caller may see.
async fn held(connection: &Connection, wave: &Wave) -> Result<(Vec<Snapshot>, Vec<String>)> {
    let asked = |namespace| Asked {
        verb: "list",
        plural: "snapshots",
        name: None,
        namespace,
    };
    let place = wave.namespace.as_deref();
    match list::<Snapshot>(&scoped(connection, place)).await {
        Ok(found) => Ok((found, Vec::new())),
        Err(error) if Asked::forbidden(&error) && place.is_none() => {
            let here = connection.namespace.as_str();
            let note = format!(
                "only the Snapshots of namespace {here} are rejected: {}",
                asked(None).failed(error)
            );
            let found = list::<Snapshot>(&scoped(connection, Some(here))).await;
            Ok((
                found.map_err(|error| asked(Some(here)).failed(error))?,
                vec![note],
            ))
        }
        Err(error) => Err(asked(place).failed(error)),
    }
}

fn is_marked(snapshot: &Snapshot) -> bool {
    let annotations = snapshot.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(names::SKIP_SNAPSHOT_CLEANUP))
}

/// Its logical bytes, as far as known.
fn size(snapshot: &Snapshot) -> i64 {
    let stats = snapshot.status.as_ref().and_then(|s| s.stats.as_ref());
    stats.map_or(0, |stats| stats.size_bytes.max(0))
}

async fn mark_all(connection: &Connection, todo: &[&Snapshot], done: &mut Rejected) {
    let progress = std::io::stderr().is_terminal();
    let writes = todo.iter().map(|snapshot| {
        let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
        let name = snapshot.metadata.name.clone().unwrap_or_default();
        async move {
            let result = mark(connection, &namespace, &name).await;
            (format!("{namespace}/{name}"), size(snapshot), result)
        }
    });
    let mut results = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
    let mut count = 0;
    while let Some((snapshot, bytes, result)) = results.next().await {
        count += 1;
        match result {
            Ok(Marked::Now) => {
                done.marked += 1;
                done.bytes = done.bytes.saturating_add(bytes);
            }
            Ok(Marked::Gone) => done.gone += 1,
            Err(error) => done.failed.push(Failed {
                snapshot,
                error: error.to_string(),
            }),
        }
        if progress {
            eprint!("\r{count} of {} ", todo.len());
        }
    }
    if progress {
        eprintln!();
    }
    done.failed.sort_by(|a, b| a.snapshot.cmp(&b.snapshot));
}

enum Marked {
    Now,
    Gone,
}

async fn mark(connection: &Connection, namespace: &str, name: &str) -> Result<Marked> {
    let api: Api<Snapshot> = Api::namespaced(connection.client.clone(), namespace);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { names::SKIP_SNAPSHOT_CLEANUP: "" } } }));
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match api.patch(name, &params, &patch).await {
        Ok(_) => Ok(Marked::Now),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Marked::Gone),
        Err(error) => {
            let asked = Asked {
                verb: "patch",
                plural: "snapshots",
                name: Some(name),
                namespace: Some(namespace),
            };
            Err(asked.failed(error))
        }
    }
}

fn json_of(done: &Rejected) -> Result<String> {
    let text = serde_json::to_string_pretty(done).context("the answer cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

fn tell(done: &Rejected, wave: &Wave, style: Style) -> String {
    let verdict = match (done.failed.is_empty(), done.marked + done.already) {
        (true, _) => style.good("Rejected"),
        (false, 0) => style.bad("Not rejected:"),
        (false, _) => style.waits("Rejected in part:"),
    };
    let mut text = format!(
        "{verdict} {}: {} Snapshots marked now, {} marked before",
        wave.title(),
        done.marked,
        done.already
    );
    if done.gone > 0 {
        text.push_str(&format!(", {} gone in the meantime", done.gone));
    }
    text.push_str(".\n");
    if done.marked + done.already > 0 {
        text.push_str(&format!(
            "{} of data stay in the repository; the objects go within seconds.\n",
            bytes(done.bytes)
        ));
    }
    for failed in done.failed.iter().take(SHOWN) {
        text.push_str(&format!(
            "  {} {}: {}\n",
            style.bad("failed:"),
            failed.snapshot,
            failed.error
        ));
    }
    if done.failed.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", done.failed.len() - SHOWN));
    }
    text.push_str(&format!(
        "Look what is left:\n    {}\n",
        style.strong(&format!("kubectl holdfast waves{}", wave.scope()))
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waves::tests::{MESSAGE, repository, wave_of};

    #[test]
    fn what_failed_is_listed_and_counted() {
        let wave = wave_of(&repository("a", "main", "True", MESSAGE)).unwrap();
        let failed = |n: usize| Failed {
            snapshot: format!("a/s{n:02}"),
            error: "you may not patch snapshots in namespace a".into(),
        };
        let done = Rejected {
            marked: 3,
            already: 1,
            gone: 2,
            bytes: 2_048,
            failed: (0..12).map(failed).collect(),
            ..Rejected::default()
        };
        let text = tell(&done, &wave, Style::PLAIN);
        assert!(
            text.contains("3 Snapshots marked now, 1 marked before, 2 gone in the meantime.\n2.0 KiB"),
            "{text}"
        );
        assert!(
            text.contains("failed: a/s00: you may not patch") && text.contains("and 2 more"),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&json_of(&done).unwrap()).unwrap();
        assert_eq!(json["failed"][11]["snapshot"], "a/s11");
    }
}
