//! `quota write-off`: an administrator decides that bytes are not charged any more.
//!
//! **Promises.** Nothing is written before somebody said yes, nor while one of the names is refused. Each write rests
//! on the version that was shown: what changed meanwhile is not written over. Run again, it changes nothing. No byte
//! is deleted.

use anyhow::{Result, anyhow};
use holdfast_api::ledger::{Artifact, ArtifactStatus, convert};
use holdfast_api::names;
use holdfast_core::quota::transitions::{WriteOff, write_off};
use holdfast_core::quota::{Change, Ledger, Record, State};
use holdfast_operator::runtime::diff::merge_patch;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeSet;

use super::frees::count;
use super::rights::{self, Right};
use super::{artifacts, json, render, sums};
use crate::connect::{Asked, Connection};
use crate::failure::{Code, failure};
use crate::style::{Style, bytes};
use crate::waves::Output;
use crate::{MANAGER, ask};

/// Arguments of `quota write-off`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The artifacts, as `kubectl get artifacts` names them.
    #[arg(required = true, value_name = "ARTIFACT")]
    artifacts: Vec<String>,
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
        plural: "artifacts",
        subresource: None,
    },
    Right {
        verb: "patch",
        plural: "artifacts",
        subresource: Some("status"),
    },
];

/// What is to be done.
#[derive(Debug, Default)]
pub struct Plan {
    /// Records as they would be.
    pub write: Vec<Record>,
    /// Names that need nothing, and why.
    pub already: Vec<(String, State)>,
    /// Sentences.
    pub refused: Vec<String>,
}

/// Decides about each name once.
pub fn plan(ledger: &Ledger, asked: &[String], who: &str, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let mut known = BTreeSet::new();
    for name in asked.iter().filter(|name| known.insert(name.as_str())) {
        match write_off(ledger, name, who, now) {
            WriteOff::Done(Change::Write(record)) => plan.write.push(*record),
            // Writing off deletes no record.
            WriteOff::Done(Change::Remove { name, .. }) => plan
                .refused
                .push(format!("{name} would be removed, which writing off must not do")),
            WriteOff::Already(state) => plan.already.push((name.clone(), state)),
            WriteOff::Refused(why) => plan.refused.push(why),
        }
    }
    plan
}

/// What was done, for programs.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    written_off: Vec<sums::Item>,
    already: Vec<String>,
    failed: Vec<String>,
    bytes: i64,
}

/// Runs `quota write-off`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let api: Api<Artifact> = Api::all(connection.client.clone());
    let objects = read(&api, &args.artifacts).await?;
    let who = rights::who(connection).await?;
    let ledger = Ledger::of(objects.iter().map(convert::record));
    let mut plan = plan(&ledger, &args.artifacts, &who, Timestamp::now());
    let untold = objects.iter().filter(|object| object.status.is_none());
    plan.refused.extend(untold.map(|object| {
        format!(
            "{} was created just now and says nothing yet: wait a moment",
            object.metadata.name.as_deref().unwrap_or_default()
        )
    }));
    if !plan.refused.is_empty() {
        return Err(anyhow!("nothing was written off: {}", plan.refused.join("; ")));
    }
    let mut answer = Answer {
        already: plan.already.iter().map(|(name, _)| name.clone()).collect(),
        ..Answer::default()
    };
    if !plan.write.is_empty() {
        for record in &plan.write {
            rights::need(connection, "write this off", &record.name, &RIGHTS).await?;
        }
        eprint!("{}", shown(&plan, &ledger));
        ask::confirm(&question(&plan.write), args.yes)?;
    }
    for record in &plan.write {
        let object = objects
            .iter()
            .find(|object| object.metadata.name.as_ref() == Some(&record.name));
        match write(&api, object, record).await {
            Ok(()) => {
                answer.bytes = answer.bytes.saturating_add(record.size.bytes.unwrap_or(0));
                answer.written_off.push(sums::item(record));
            }
            Err(error) => answer.failed.push(format!("{}: {error:#}", record.name)),
        }
    }
    if !answer.failed.is_empty() {
        let code = if answer.written_off.is_empty() {
            return Err(anyhow!("nothing was written off: {}", answer.failed.join("; ")));
        } else {
            Code::Partly
        };
        let done: Vec<&str> = answer.written_off.iter().map(|item| item.name.as_str()).collect();
        return Err(failure(
            code,
            format!(
                "written off: {}; not written off: {}",
                done.join(", "),
                answer.failed.join("; ")
            ),
        ));
    }
    match args.output {
        Output::Json => json(&answer),
        Output::Table => Ok(after(&answer, style)),
    }
}

async fn read(api: &Api<Artifact>, asked: &[String]) -> Result<Vec<Artifact>> {
    let mut objects = Vec::new();
    for name in asked.iter().collect::<BTreeSet<_>>() {
        let one = Asked {
            verb: "get",
            plural: "artifacts",
            name: Some(name),
            namespace: None,
        };
        // A name that is not there is refused by the decision, together with all others.
        if let Some(object) = api.get_opt(name).await.map_err(|error| one.failed(error))? {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// What is about to be written off: as it is now.
fn shown(plan: &Plan, ledger: &Ledger) -> String {
    let items: Vec<sums::Item> = plan
        .write
        .iter()
        .filter_map(|record| ledger.get(&record.name))
        .map(sums::item)
        .collect();
    render::largest(&items)
}

/// Namespaces and bytes, and what is not done.
pub fn question(records: &[Record]) -> String {
    let namespaces: BTreeSet<&str> = records.iter().map(Record::namespace).collect();
    let known: i64 = records
        .iter()
        .filter_map(|record| record.size.bytes)
        .fold(0, i64::saturating_add);
    let unknown = records
        .iter()
        .filter(|record| record.size.bytes.is_none())
        .count();
    let unknown = if unknown > 0 {
        format!(" and {unknown} of unknown size")
    } else {
        String::new()
    };
    format!(
        "{}, {}{unknown}: not charged to {} any more. The bytes are not deleted.",
        artifacts(count(records.len())),
        bytes(known),
        namespaces.into_iter().collect::<Vec<_>>().join(", ")
    )
}

/// The status with the decision in it, and everything else as it was.
pub fn decided(before: &ArtifactStatus, record: &Record) -> ArtifactStatus {
    let told = convert::status(record);
    let mut after = before.clone();
    after.state = told.state;
    after.reason = told.reason;
    after.message = told.message;
    after.written_off_by = told.written_off_by;
    after.times.released_at = told.times.released_at;
    after
}

async fn write(api: &Api<Artifact>, object: Option<&Artifact>, record: &Record) -> Result<()> {
    let (Some(version), Some(before)) = (
        object.and_then(|object| object.metadata.resource_version.as_deref()),
        object.and_then(|object| object.status.as_ref()),
    ) else {
        return Err(anyhow!("it was not read"));
    };
    let Some(status) = merge_patch(before, &decided(before, record)) else {
        return Ok(());
    };
    let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
    let params = PatchParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let asked = Asked {
        verb: "patch",
        plural: "artifacts",
        name: Some(&record.name),
        namespace: None,
    };
    match api
        .patch_status(&record.name, &params, &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Err(anyhow!(
            "it changed while you were asked; look at it and run the command again"
        )),
        Err(error) => Err(asked.failed(error)),
    }
}

fn after(answer: &Answer, style: Style) -> String {
    let mut text = String::new();
    if !answer.written_off.is_empty() {
        text.push_str(&format!(
            "{} {}, {}. The bytes are where they were.\n",
            style.good("Written off:"),
            artifacts(count(answer.written_off.len())),
            bytes(answer.bytes)
        ));
    }
    if !answer.already.is_empty() {
        text.push_str(&format!(
            "Not charged before, nothing to do: {}.\n",
            answer.already.join(", ")
        ));
    }
    text
}
