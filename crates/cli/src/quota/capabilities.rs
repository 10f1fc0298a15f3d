//! `quota capabilities`: what is in force for each installed strategy, and who says so.

use anyhow::Result;
use comfy_table::{Table, presets};
use holdfast_api::names;
use holdfast_core::quota::capability::{Capabilities, built_in, in_force};
use kube::api::{Api, ListParams};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::discovery::{ApiResource, Scope};
use serde::Serialize;

use super::json;
use crate::connect::{Asked, Connection};
use crate::style::Style;
use crate::waves::Output;

/// Arguments of `quota capabilities`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Another group of strategies, besides the platform's; may be repeated.
    #[arg(long = "group", value_name = "API GROUP")]
    groups: Vec<String>,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
}

/// Everything there is to tell.
#[derive(Debug, Default, Serialize)]
pub struct Found {
    /// Each strategy.
    pub strategies: Vec<Strategy>,
    /// What could not be read, in sentences.
    pub notes: Vec<String>,
}

/// One strategy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    /// API group.
    pub group: String,
    /// Kind.
    pub kind: String,
    /// Name; absent: the kind is installed and has no object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What deleting a Backup does to the bytes.
    pub deletion: &'static str,
    /// Who says how large an artifact is.
    pub size: &'static str,
    /// Whether the driver deletes artifacts by itself.
    pub pruning: &'static str,
    /// Whether each Backup has an artifact of its own.
    pub identity: &'static str,
    /// Whether bytes are added after the Backup is there.
    pub grows_after_ready: bool,
    /// Whether artifacts can be listed.
    pub enumerable: &'static str,
    /// `builtIn`, `annotation` or `unknown`.
    pub from: &'static str,
    /// Why the annotation is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the built-in row rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence: Option<&'static str>,
}

impl Strategy {
    /// What is in force for a strategy with this annotation.
    pub fn of(group: &str, kind: &str, name: Option<&str>, annotation: Option<&str>) -> Self {
        let (in_force, error) = in_force(names::STRATEGY_GROUP, group, kind, annotation);
        let Capabilities {
            deletion,
            size,
            pruning,
            identity,
            grows_after_ready,
            enumerable,
        } = in_force.capabilities;
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: name.map(str::to_owned),
            deletion: deletion.as_str(),
            size: size.as_str(),
            pruning: pruning.as_str(),
            identity: identity.as_str(),
            grows_after_ready,
            enumerable: enumerable.as_str(),
            from: in_force.from.as_str(),
            error: error.map(|error| error.to_string()),
            evidence: built_in(names::STRATEGY_GROUP, group, kind).map(|row| row.evidence),
        }
    }
}

/// Runs `quota capabilities`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let mut found = Found::default();
    let groups = std::iter::once(names::STRATEGY_GROUP).chain(args.groups.iter().map(String::as_str));
    for group in groups {
        of_group(connection, group, &mut found).await?;
    }
    match args.output {
        Output::Json => json(&found),
        Output::Table => Ok(table(&found, style)),
    }
}

/// Every kind of a group and its objects.
async fn of_group(connection: &Connection, group: &str, found: &mut Found) -> Result<()> {
    let asked = Asked {
        verb: "get",
        plural: "API groups",
        name: None,
        namespace: None,
    };
    let discovered = match kube::discovery::group(&connection.client, group).await {
        Ok(discovered) => discovered,
        Err(kube::Error::Api(status)) if status.code == 404 => {
            found.notes.push(format!("no kind of {group} is installed"));
            return Ok(());
        }
        Err(kube::Error::Discovery(_)) => {
            found.notes.push(format!("no kind of {group} is installed"));
            return Ok(());
        }
        Err(error) => return Err(asked.failed(error)),
    };
    let mut kinds = discovered.recommended_resources();
    kinds.sort_by(|(a, _), (b, _)| a.kind.cmp(&b.kind));
    for (resource, reach) in kinds {
        match reach.scope {
            Scope::Cluster => objects(connection, group, &resource, found).await?,
            // Strategies are of the cluster; anything else in the group is none.
            Scope::Namespaced => {}
        }
    }
    Ok(())
}

async fn objects(
    connection: &Connection,
    group: &str,
    resource: &ApiResource,
    found: &mut Found,
) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(connection.client.clone(), resource);
    let asked = Asked {
        verb: "list",
        plural: &resource.plural,
        name: None,
        namespace: None,
    };
    let mut params = ListParams::default().limit(500);
    let mut any = false;
    loop {
        let page = match api.list_metadata(&params).await {
            Ok(page) => page,
            Err(error) if Asked::forbidden(&error) => {
                found.notes.push(format!(
                    "you may not list {}.{group}: whether an annotation overrides what is built in is not known",
                    resource.plural
                ));
                break;
            }
            Err(error) => return Err(asked.failed(error)),
        };
        any |= !page.items.is_empty();
        found.strategies.extend(
            page.items
                .iter()
                .map(|object| strategy(group, &resource.kind, object)),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => break,
        }
    }
    if !any {
        found
            .strategies
            .push(Strategy::of(group, &resource.kind, None, None));
    }
    Ok(())
}

fn strategy(group: &str, kind: &str, object: &PartialObjectMeta<DynamicObject>) -> Strategy {
    let annotations = object.metadata.annotations.as_ref();
    Strategy::of(
        group,
        kind,
        object.metadata.name.as_deref(),
        annotations
            .and_then(|all| all.get(names::CAPABILITIES))
            .map(String::as_str),
    )
}

/// What follows from which column.
const INFORMS: &str = "DELETION decides what happens to the figure when a Backup goes, IDENTITY whether a run without a \
Backup may have written over what is charged already. The other columns inform people: no figure depends on them.";

/// For people.
pub fn table(found: &Found, style: Style) -> String {
    let mut text = String::new();
    if !found.strategies.is_empty() {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([
            "STRATEGY",
            "NAME",
            "DELETION",
            "SIZE",
            "PRUNING",
            "IDENTITY",
            "GROWS",
            "LISTED BY",
            "FROM",
        ]);
        for one in &found.strategies {
            table.add_row([
                one.kind.as_str(),
                one.name.as_deref().unwrap_or("-"),
                one.deletion,
                one.size,
                one.pruning,
                one.identity,
                if one.grows_after_ready { "yes" } else { "no" },
                one.enumerable,
                one.from,
            ]);
        }
        text.push_str(&format!("{}\n\n{INFORMS}\n", table.trim_fmt()));
    }
    for one in &found.strategies {
        if let Some(error) = &one.error {
            text.push_str(&format!(
                "\n{} {} {}: the annotation {} is not in force: {error}\n",
                style.bad("error:"),
                one.kind,
                one.name.as_deref().unwrap_or_default(),
                names::CAPABILITIES
            ));
        }
    }
    for note in &found.notes {
        text.push_str(&format!("\n{} {note}\n", style.waits("note:")));
    }
    text
}
