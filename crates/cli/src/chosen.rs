//! Which wave `release` and `reject` mean, and how it is shown before anyone is asked.
//!
//! **Promises.** Without a name it is the only one there is; several are listed and none is chosen.

use std::fmt::Write as _;

use anyhow::{Result, bail};
use holdfast_api::shared::RepositoryKind;
use holdfast_api::{ClusterRepository, Repository};
use holdfast_core::deletion::RepositoryKey;
use jiff::Timestamp;
use kube::Api;

use crate::connect::{Asked, Connection};
use crate::style::{Style, ago, bytes};
use crate::target::Target;
use crate::waves::{self, Found, Wave, without_commands};

/// What is found: at most one wave, and what could not be read.
pub async fn one(connection: &Connection, object: Option<&str>) -> Result<Found> {
    let found = match object {
        Some(object) => named(connection, &Target::repository(object, &connection.namespace)?).await?,
        None => waves::find(connection, Some(&connection.namespace)).await?,
    };
    only(found)
}

fn only(found: Found) -> Result<Found> {
    if found.waves.len() > 1 {
        let names: Vec<String> = found.waves.iter().map(Wave::object).collect();
        bail!(
            "several waves are held here, name one of them: {}",
            names.join(", ")
        );
    }
    Ok(found)
}

async fn named(connection: &Connection, key: &RepositoryKey) -> Result<Found> {
    let client = connection.client.clone();
    let asked = Asked {
        verb: "get",
        plural: match key {
            RepositoryKey::Repository { .. } => "repositories",
            RepositoryKey::ClusterRepository { .. } => "clusterrepositories",
        },
        name: Some(key.name()),
        namespace: key.namespace(),
    };
    let wave = match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(client, namespace);
            let found = api.get(name).await.map_err(|error| asked.failed(error))?;
            let kind = RepositoryKind::Repository;
            waves::wave(kind, &found.metadata, &found.spec, found.status.as_ref())
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(client);
            let found = api.get(name).await.map_err(|error| asked.failed(error))?;
            let kind = RepositoryKind::ClusterRepository;
            waves::wave(
                kind,
                &found.metadata,
                &found.spec.repository,
                found.status.as_ref(),
            )
        }
    };
    let mut found = Found::default();
    if let Some(mut wave) = wave {
        waves::fill(connection, &mut wave, &mut found.notes).await?;
        found.waves.push(wave);
    }
    Ok(found)
}

/// What to say when nothing is held.
pub fn nothing(object: Option<&str>, namespace: &str, notes: &[String]) -> String {
    let mut text = match object {
        Some(object) => format!("{object} holds no deletion.\n"),
        None => format!("No deletion is held in namespace {namespace}.\n"),
    };
    for note in notes {
        _ = writeln!(text, "note: {note}");
    }
    text
}

/// The wave, its namespaces, counts and bytes.
pub fn show(wave: &Wave, notes: &[String], now: Timestamp, style: Style) -> String {
    let mut text = format!(
        "{}, held since {}\n  {}\n",
        style.bad(&wave.title()),
        ago(wave.since, now),
        without_commands(&wave.message)
    );
    match &wave.held {
        Some(held) => {
            _ = writeln!(text, "  {} Snapshots, {}", held.count, bytes(held.bytes));
            for (namespace, count) in &held.namespaces {
                _ = writeln!(text, "    {namespace:<30} {count}");
            }
        }
        None => text.push_str("  The Snapshots cannot be counted.\n"),
    }
    for note in notes {
        _ = writeln!(text, "{} {note}", style.waits("note:"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waves::tests::{MESSAGE, repository, wave_of};

    #[test]
    fn of_several_none_is_chosen() {
        let wave = |name| wave_of(&repository("a", name, "True", MESSAGE)).unwrap();
        let found = Found {
            waves: vec![wave("one"), wave("two")],
            notes: Vec::new(),
        };
        let text = only(found).unwrap_err().to_string();
        assert!(
            text.contains("repository/one -n a, repository/two -n a"),
            "{text}"
        );
    }

    #[test]
    fn a_wave_is_shown_with_its_namespaces() {
        let mut wave = wave_of(&repository("a", "main", "True", MESSAGE)).unwrap();
        wave.held = Some(waves::Held {
            count: 12,
            bytes: 2_048,
            namespaces: [("a".to_owned(), 12)].into(),
            newest: None,
        });
        let now = "2026-01-02T03:10:00Z".parse().unwrap();
        let text = show(&wave, &["x".to_owned()], now, Style::PLAIN);
        assert!(
            text.starts_with("repository a/main, held since 10 min ago\n"),
            "{text}"
        );
        assert!(
            text.contains("12 Snapshots, 2.0 KiB") && text.contains("note: x"),
            "{text}"
        );
        assert!(!text.contains("kubectl"), "{text}");
    }
}
