//! `waves`: the repositories that hold deletions back.
//!
//! **Promises.** What cannot be read is said, never counted as nothing. The command to copy is the one of the
//! repository's own condition, to the letter, where that has one.

mod render;

use std::collections::BTreeMap;

use anyhow::Result;
use holdfast_api::repository::RepositoryStatus;
use holdfast_api::shared::RepositoryKind;
use holdfast_api::{ClusterRepository, Repository, RepositorySpec, Snapshot, conditions, names};
use jiff::Timestamp;
use kube::Api;
use serde::Serialize;

use crate::connect::{Asked, Connection, list, scoped};
use crate::style::Style;

/// Arguments of `waves`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Forms of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs.
    Json,
}

/// One repository object with a held wave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wave {
    /// `Repository` or `ClusterRepository`.
    pub kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// None for a ClusterRepository.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Pending external deletions at which this object holds a wave.
    pub threshold: u32,
    /// When the condition became True.
    pub since: Timestamp,
    /// The held Snapshots; none when they could not be read.
    pub held: Option<Held>,
    /// What to run to delete all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// What the operator says.
    pub message: String,
}

/// The Snapshots that a wave holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Held {
    /// How many.
    pub count: u64,
    /// Logical bytes of their sources.
    pub bytes: i64,
    /// How many in each namespace.
    pub namespaces: BTreeMap<String, u64>,
    /// Newest deletion among them.
    pub newest: Option<Timestamp>,
}

/// Everything there is to tell.
#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// What is held.
    pub waves: Vec<Wave>,
    /// What could not be read, in sentences.
    pub notes: Vec<String>,
}

/// Runs `waves`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let namespace = (!args.all_namespaces).then_some(connection.namespace.as_str());
    let found = find(connection, namespace).await?;
    Ok(match args.output {
        Output::Table => render::table(&found, namespace, Timestamp::now(), style),
        Output::Json => render::json(&found)?,
    })
}

/// Every wave in `namespace` (none: everywhere) and of every ClusterRepository.
pub async fn find(connection: &Connection, namespace: Option<&str>) -> Result<Found> {
    let mut found = Found::default();
    let asked = Asked {
        verb: "list",
        plural: "repositories",
        name: None,
        namespace,
    };
    let repositories: Vec<Repository> = list(&scoped(connection, namespace))
        .await
        .map_err(|error| asked.failed(error))?;
    for repository in repositories {
        let status = repository.status.as_ref();
        found.notes.extend(reappeared(
            RepositoryKind::Repository,
            &repository.metadata,
            status,
        ));
        let Some(mut wave) = wave(
            RepositoryKind::Repository,
            &repository.metadata,
            &repository.spec,
            repository.status.as_ref(),
        ) else {
            continue;
        };
        fill(connection, &mut wave, &mut found.notes).await?;
        found.waves.push(wave);
    }
    let asked = Asked {
        plural: "clusterrepositories",
        namespace: None,
        ..asked
    };
    let cluster: Vec<ClusterRepository> = match list(&Api::all(connection.client.clone())).await {
        Ok(list) => list,
        // Not a right of everyone; what is held in them is left out, and that is said.
        Err(error) if Asked::forbidden(&error) => {
            found.notes.push(format!(
                "ClusterRepositories are left out: {:#}",
                asked.failed(error)
            ));
            Vec::new()
        }
        Err(error) => return Err(asked.failed(error)),
    };
    for repository in cluster {
        let status = repository.status.as_ref();
        found.notes.extend(reappeared(
            RepositoryKind::ClusterRepository,
            &repository.metadata,
            status,
        ));
        let Some(mut wave) = wave(
            RepositoryKind::ClusterRepository,
            &repository.metadata,
            &repository.spec.repository,
            repository.status.as_ref(),
        ) else {
            continue;
        };
        fill(connection, &mut wave, &mut found.notes).await?;
        found.waves.push(wave);
    }
    Ok(found)
}

/// What a repository says of snapshots that were proven gone and are in it again.
pub fn reappeared(
    kind: RepositoryKind,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    status: Option<&RepositoryStatus>,
) -> Option<String> {
    let said = conditions::get(&status?.conditions, conditions::DELETED_SNAPSHOTS_REAPPEARED)
        .filter(|condition| condition.status == "True")?;
    let name = metadata.name.as_deref().unwrap_or_default();
    Some(format!(
        "{} {}{name} ({}): {}",
        kind.as_str(),
        metadata
            .namespace
            .as_ref()
            .map(|n| format!("{n}/"))
            .unwrap_or_default(),
        said.reason,
        said.message
    ))
}

/// Counts the held Snapshots of `wave`.
pub async fn fill(connection: &Connection, wave: &mut Wave, notes: &mut Vec<String>) -> Result<()> {
    // A Repository serves its own namespace only.
    let namespace = wave.namespace.clone();
    let asked = Asked {
        verb: "list",
        plural: "snapshots",
        name: None,
        namespace: namespace.as_deref(),
    };
    match list::<Snapshot>(&scoped(connection, namespace.as_deref())).await {
        Ok(snapshots) => wave.count(&snapshots),
        Err(error) if Asked::forbidden(&error) => notes.push(format!(
            "the Snapshots held by {} are not counted: {:#}",
            wave.title(),
            asked.failed(error)
        )),
        Err(error) => return Err(asked.failed(error)),
    }
    Ok(())
}

/// The wave of one repository object, if it holds one.
pub fn wave(
    kind: RepositoryKind,
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
    spec: &RepositorySpec,
    status: Option<&RepositoryStatus>,
) -> Option<Wave> {
    let held = conditions::get(&status?.conditions, conditions::MASS_DELETION_HELD)
        .filter(|condition| condition.status == "True")?;
    Some(Wave {
        kind: kind.as_str(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone().unwrap_or_default(),
        threshold: spec
            .deletion_protection
            .as_ref()
            .and_then(|protection| protection.threshold)
            .unwrap_or(names::DEFAULT_THRESHOLD),
        since: held.last_transition_time.0,
        held: None,
        command: command_in(&held.message),
        message: held.message.clone(),
    })
}

/// The command that a condition's message carries, to the letter.
pub fn command_in(message: &str) -> Option<String> {
    const END: &str = "--overwrite";
    let start = message.find("kubectl ")?;
    let length = message[start..].find(END)?;
    Some(message[start..start + length + END.len()].to_owned())
}

/// A condition's message without its commands, for where they are shown on lines of their own.
pub fn without_commands(message: &str) -> &str {
    let Some(command) = message.find("kubectl ") else {
        return message;
    };
    message[..command]
        .rfind(". ")
        .map_or(message, |end| &message[..=end])
}

impl Wave {
    /// The plural of its kind.
    pub fn plural(&self) -> &'static str {
        match self.namespace {
            Some(_) => "repositories",
            None => "clusterrepositories",
        }
    }

    /// ` -n NAMESPACE`, where there is one.
    pub fn scope(&self) -> String {
        self.namespace
            .as_ref()
            .map(|namespace| format!(" -n {namespace}"))
            .unwrap_or_default()
    }

    /// As on the command line of `release` and `reject`.
    pub fn object(&self) -> String {
        format!("{}/{}{}", self.kind.to_lowercase(), self.name, self.scope())
    }

    /// As in sentences.
    pub fn title(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("repository {namespace}/{}", self.name),
            None => format!("clusterrepository {}", self.name),
        }
    }

    /// Counts those of `snapshots` that it holds.
    pub fn count(&mut self, snapshots: &[Snapshot]) {
        let mut held = Held::default();
        for snapshot in snapshots.iter().filter(|snapshot| self.holds(snapshot)) {
            held.count += 1;
            let status = snapshot.status.as_ref();
            let bytes = status
                .and_then(|s| s.stats.as_ref())
                .map_or(0, |stats| stats.size_bytes);
            held.bytes = held.bytes.saturating_add(bytes.max(0));
            let namespace = snapshot.metadata.namespace.clone().unwrap_or_default();
            *held.namespaces.entry(namespace).or_default() += 1;
            held.newest = held
                .newest
                .max(snapshot.metadata.deletion_timestamp.as_ref().map(|time| time.0));
        }
        if self.command.is_none() {
            self.command = held.newest.map(|newest| self.command_for(newest));
        }
        self.held = Some(held);
    }

    /// Whether `snapshot` is held and pinned to this object.
    pub fn holds(&self, snapshot: &Snapshot) -> bool {
        let Some(status) = &snapshot.status else {
            return false;
        };
        if !conditions::is_true(&status.conditions, conditions::DELETION_HELD) {
            return false;
        }
        let Some(pin) = status.resolved.as_ref().and_then(|r| r.repository.as_ref()) else {
            return false;
        };
        let namespace = match pin.kind {
            RepositoryKind::Repository => pin.namespace.as_ref().or(snapshot.metadata.namespace.as_ref()),
            RepositoryKind::ClusterRepository | RepositoryKind::Unknown => None,
        };
        pin.kind.as_str() == self.kind && pin.name == self.name && namespace == self.namespace.as_ref()
    }

    fn command_for(&self, newest: Timestamp) -> String {
        let scope = self
            .namespace
            .as_ref()
            .map(|namespace| format!("-n {namespace} "))
            .unwrap_or_default();
        format!(
            "kubectl {scope}annotate {}/{} {}=\"{}\" --overwrite",
            self.kind.to_lowercase(),
            self.name,
            names::ALLOW_MASS_DELETION,
            newest.strftime("%Y-%m-%dT%H:%M:%SZ")
        )
    }
}

#[cfg(test)]
pub mod tests;
