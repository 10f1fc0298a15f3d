//! `quota approve`: an administrator lets a listing release what it misses, where so much waits for a person.
//!
//! **Promises.** What is approved is the token that was shown, which stands for exactly those artifacts: if others are
//! missed meanwhile, nothing is released and it waits anew.

use anyhow::Result;
use holdfast_api::ledger::scope::scope;
use holdfast_api::ledger::{Artifact, BackupStore, PendingRelease, convert};
use holdfast_api::names;
use holdfast_core::quota::Ledger;
use holdfast_core::quota::enumerate::waiting;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

use super::rights::{self, Right};
use super::{artifacts, json, render, sums};
use crate::connect::{Asked, Connection, list};
use crate::style::{Style, ago, bytes};
use crate::waves::Output;
use crate::{MANAGER, ask};

/// Arguments of `quota approve`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The BackupStore whose listing waits.
    #[arg(value_name = "STORE")]
    store: String,
    /// Do not ask.
    #[arg(long)]
    yes: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

const RIGHTS: [Right; 2] = [
    Right {
        verb: names::WRITE_OFF_VERB,
        plural: "backupstores",
        subresource: None,
    },
    Right {
        verb: "patch",
        plural: "backupstores",
        subresource: None,
    },
];

/// What was done, for programs.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    approved: bool,
    store: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    release: Option<&'a PendingRelease>,
}

/// Runs `quota approve`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let api: Api<BackupStore> = Api::all(connection.client.clone());
    let asked = |verb| Asked {
        verb,
        plural: "backupstores",
        name: Some(&args.store),
        namespace: None,
    };
    let store = api
        .get(&args.store)
        .await
        .map_err(|error| asked("get").failed(error))?;
    let pending = store
        .status
        .as_ref()
        .and_then(|status| status.pending_release.as_ref());
    let Some(pending) = pending else {
        return match args.output {
            Output::Table => Ok(format!("Nothing waits in the store {}.\n", args.store)),
            Output::Json => json(&Answer {
                approved: false,
                store: &args.store,
                release: None,
            }),
        };
    };
    rights::need(connection, "approve this release", &args.store, &RIGHTS).await?;
    eprint!("{}", shown(connection, &store, pending).await);
    ask::confirm(&question(&args.store, pending, Timestamp::now()), args.yes)?;
    let annotations = BTreeMap::from([(names::APPROVE_RELEASE, &pending.token)]);
    let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    api.patch(&args.store, &params, &patch)
        .await
        .map_err(|error| asked("patch").failed(error))?;
    match args.output {
        Output::Json => json(&Answer {
            approved: true,
            store: &args.store,
            release: Some(pending),
        }),
        Output::Table => Ok(format!(
            "{} the release of {} ({}) in the store {}. The operator carries it out; watch it:\n    {}\n",
            style.good("Approved"),
            artifacts(pending.records),
            bytes(pending.bytes),
            args.store,
            style.strong(&format!("kubectl get backupstore {} -w", args.store)),
        )),
    }
}

/// The artifacts by name, where they may be read and are still those that wait.
async fn shown(connection: &Connection, store: &BackupStore, pending: &PendingRelease) -> String {
    let (Ok(artifacts), Ok(scope)) = (
        list::<Artifact>(&Api::all(connection.client.clone())).await,
        scope(store),
    ) else {
        return "The artifacts cannot be shown; their number and bytes are the operator's.\n".to_owned();
    };
    let ledger = Ledger::of(artifacts.iter().map(convert::record));
    match waiting(&ledger, &scope).filter(|held| held.token == pending.token) {
        Some(held) => {
            let items: Vec<sums::Item> = held
                .names
                .iter()
                .filter_map(|name| ledger.get(name))
                .map(sums::item)
                .collect();
            render::largest(&items)
        }
        None => "What waits is changing; this approves only what the operator showed last.\n".to_owned(),
    }
}

/// What a yes means.
pub fn question(store: &str, pending: &PendingRelease, now: Timestamp) -> String {
    format!(
        "The store {store} does not have these {} ({}) any more ({}, since {}). If that is right, they are not charged any more; if the store's address, prefix or rights are wrong, say no and correct those.",
        artifacts(pending.records),
        bytes(pending.bytes),
        pending.reason,
        ago(pending.since, now),
    )
}
