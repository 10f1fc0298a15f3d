//! `release`: yes, delete what is held.
//!
//! **Promises.** The value that is written is the one that the repository's condition shows: it covers what was held
//! when that was written, and nothing that is deleted later. Nothing is written unless somebody said yes.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, anyhow};
use holdfast_api::shared::RepositoryKind;
use holdfast_api::{ClusterRepository, Repository, names};
use jiff::Timestamp;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;

use crate::connect::{Asked, Connection};
use crate::style::Style;
use crate::waves::{Output, Wave};
use crate::{MANAGER, ask, chosen};

/// Arguments of `release`.
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
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Released<'a> {
    released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    repository: Option<String>,
    /// The value of the acknowledgement.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wave: Option<&'a Wave>,
    notes: &'a [String],
}

/// Runs `release`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let found = chosen::one(connection, args.object.as_deref()).await?;
    let Some(wave) = found.waves.first() else {
        return match args.output {
            Output::Table => Ok(chosen::nothing(
                args.object.as_deref(),
                &connection.namespace,
                &found.notes,
            )),
            Output::Json => told(&Released {
                released: false,
                repository: None,
                value: None,
                wave: None,
                notes: &found.notes,
            }),
        };
    };
    let value = value_of(wave)?;
    may(connection, wave).await?;
    eprint!(
        "{}",
        chosen::show(
            wave,
            &found.notes,
            Timestamp::now(),
            Style::of(&std::io::stderr())
        )
    );
    ask::confirm(&question(wave, &value), args.yes)?;
    write(connection, wave, &value).await?;
    match args.output {
        Output::Table => Ok(after(wave, &value, style)),
        Output::Json => told(&Released {
            released: true,
            repository: Some(wave.title()),
            value: Some(&value),
            wave: Some(wave),
            notes: &found.notes,
        }),
    }
}

fn told(released: &Released<'_>) -> Result<String> {
    let text = serde_json::to_string_pretty(released).context("the answer cannot be written as JSON")?;
    Ok(format!("{text}\n"))
}

/// The value in the condition's command, to the letter.
fn value_of(wave: &Wave) -> Result<String> {
    let command = wave.command.as_deref().unwrap_or_default();
    let start = format!("{}=\"", names::ALLOW_MASS_DELETION);
    command
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(value, _)| value.to_owned())
        .ok_or_else(|| {
            anyhow!(
                "the condition MassDeletionHeld of {} shows no value to acknowledge: the plugin and the operator are of different releases, look at the condition's message",
                wave.title()
            )
        })
}

fn question(wave: &Wave, value: &str) -> String {
    let count = wave.held.as_ref().map_or_else(
        || "everything held so far".to_owned(),
        |held| format!("{} Snapshots", held.count),
    );
    format!("Their data is deleted for good: {count}, deleted up to {value}.")
}

/// Asks the API server first, to name the missing right kindly.
async fn may(connection: &Connection, wave: &Wave) -> Result<()> {
    let rights = ["acknowledge", "patch"].map(|verb| {
        let attributes = ResourceAttributes {
            group: Some(names::GROUP.to_owned()),
            resource: Some(wave.plural().to_owned()),
            name: Some(wave.name.clone()),
            namespace: wave.namespace.clone(),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        (attributes, missing(wave, verb))
    });
    connection.need(rights).await
}

fn missing(wave: &Wave, verb: &str) -> String {
    let binding = match &wave.namespace {
        Some(namespace) => format!("kubectl -n {namespace} create rolebinding"),
        None => "kubectl create clusterrolebinding".to_owned(),
    };
    format!(
        "you may not release this wave: you lack the verb {verb} on {}.{}/{}{}. The ClusterRole holdfast-approver carries it; somebody who administers the cluster can release the wave or give you the role:\n  {binding} backup-approvers --clusterrole=holdfast-approver --user=YOU\nTo keep the data instead you need no such right: kubectl holdfast reject {}",
        wave.plural(),
        names::GROUP,
        wave.name,
        wave.namespace
            .as_ref()
            .map(|namespace| format!(" in namespace {namespace}"))
            .unwrap_or_default(),
        wave.object(),
    )
}

async fn write(connection: &Connection, wave: &Wave, value: &str) -> Result<()> {
    let annotations = BTreeMap::from([(names::ALLOW_MASS_DELETION, value)]);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let client = connection.client.clone();
    let (kind, namespace) = (wave.kind, wave.namespace.as_deref().unwrap_or_default());
    let done = if kind == RepositoryKind::ClusterRepository.as_str() {
        let api: Api<ClusterRepository> = Api::all(client);
        api.patch(&wave.name, &params, &patch).await.map(drop)
    } else {
        let api: Api<Repository> = Api::namespaced(client, namespace);
        api.patch(&wave.name, &params, &patch).await.map(drop)
    };
    let asked = Asked {
        verb: "patch",
        plural: wave.plural(),
        name: Some(&wave.name),
        namespace: wave.namespace.as_deref(),
    };
    done.map_err(|error| asked.failed(error))
}

fn after(wave: &Wave, value: &str, style: Style) -> String {
    // The delete Jobs of a ClusterRepository run in the operator's namespace.
    let place = wave.namespace.as_deref().unwrap_or(names::OPERATOR_NAMESPACE);
    format!(
        "{} {}: what was deleted up to {value} is being deleted from the repository.\nWatch it drain:\n    {}\n    {}\n",
        style.good("Released"),
        wave.title(),
        style.strong(&format!("kubectl holdfast waves{}", wave.scope())),
        style.strong(&format!(
            "kubectl -n {place} get jobs -l {}={} -w",
            names::OP_LABEL,
            names::OP_DELETE_BATCH
        )),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waves::tests::{MESSAGE, repository, wave_of};

    fn wave() -> Wave {
        wave_of(&repository("a", "main", "True", MESSAGE)).unwrap()
    }

    #[test]
    fn the_value_is_the_conditions_to_the_letter() {
        assert_eq!(value_of(&wave()).unwrap(), "2026-01-02T03:04:05Z");
        let other = wave_of(&repository("a", "main", "True", "nothing to copy")).unwrap();
        assert!(
            value_of(&other)
                .unwrap_err()
                .to_string()
                .contains("different releases")
        );
    }

    #[test]
    fn a_missing_right_names_verb_object_and_role() {
        let text = missing(&wave(), "acknowledge");
        for part in [
            "the verb acknowledge on repositories.kopiur.home-operations.com/main in namespace a",
            "--clusterrole=holdfast-approver",
            "kubectl holdfast reject repository/main -n a",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn the_answer_says_how_to_watch() {
        let text = after(&wave(), "T", Style::PLAIN);
        assert!(text.contains("kubectl holdfast waves -n a\n"), "{text}");
        assert!(
            text.contains("kubectl -n a get jobs -l kopiur.home-operations.com/op=snapshot-delete-batch -w"),
            "{text}"
        );
    }
}
