//! `why`: how the deletion of one Snapshot goes, in plain words.
//!
//! **Promises.** It repeats what the operator wrote into the object's status and says what will end it. Beside that it
//! tells the facts and the rule that decides, by the operator's own code ([`explain`]); of an object that is not being
//! deleted, what would happen if it were.

mod explain;

use anyhow::Result;
use holdfast_api::shared::RepositoryKind;
use holdfast_api::snapshot::DeletionStatus;
use holdfast_api::{Snapshot, conditions, names};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;

use crate::connect::{Asked, Connection};
use crate::style::{Style, ago, bytes};
use crate::target::Target;
use crate::waves::{Output, command_in, without_commands};
use explain::Explained;

/// Arguments of `why`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The Snapshot, as snapshot/NAME.
    #[arg(value_name = "snapshot/NAME")]
    object: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Namespace of the operator.
    #[arg(long, value_name = "NAMESPACE", default_value = names::OPERATOR_NAMESPACE)]
    operator_namespace: String,
}

/// Runs `why`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let name = &Target::snapshot(&args.object, &connection.namespace)?;
    let asked = Asked {
        verb: "get",
        plural: "snapshots",
        name: Some(name),
        namespace: Some(&connection.namespace),
    };
    let api: Api<Snapshot> = Api::namespaced(connection.client.clone(), &connection.namespace);
    let snapshot = api.get(name).await.map_err(|error| asked.failed(error))?;
    let now = Timestamp::now();
    let explained = explain::read(connection, &snapshot, &args.operator_namespace, now).await?;
    match args.output {
        Output::Table => Ok(tell(&snapshot, Some(&explained), now, style)),
        Output::Json => explain::json(&snapshot, &explained),
    }
}

/// Everything there is to say about `snapshot`.
fn tell(snapshot: &Snapshot, explained: Option<&Explained>, now: Timestamp, style: Style) -> String {
    let metadata = &snapshot.metadata;
    let status = snapshot.status.clone().unwrap_or_default();
    let mut text = format!(
        "{}\n",
        style.strong(&format!(
            "Snapshot {}/{}",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default()
        ))
    );
    let mut line = |label: &str, value: String| text.push_str(&format!("  {label:<11}{value}\n"));
    if let Some(phase) = status.phase {
        line("phase", format!("{phase:?}"));
    }
    match &status.snapshot {
        Some(recorded) => {
            let size = status
                .stats
                .as_ref()
                .map_or_else(String::new, |stats| format!(", {}", bytes(stats.size_bytes)));
            line("data", format!("snapshot {}{size}", recorded.kopia_snapshot_id));
        }
        None => line("data", "none recorded".to_owned()),
    }
    if let Some(repository) = status.resolved.as_ref().and_then(|r| r.repository.as_ref()) {
        line("in", format!("{} {}", repository.kind.as_str(), repository.name));
    }
    text.push('\n');

    if let Some(lost) = true_condition(&status.conditions, conditions::STATUS_LOST) {
        text.push_str(&paragraph(style.waits("Its status is lost"), lost, now));
    }
    let Some(deleted) = metadata.deletion_timestamp.as_ref().map(|time| time.0) else {
        text.push_str("It is not being deleted.\n");
        text.push_str(&explained.map_or_else(String::new, |explained| explained.text(true, style)));
        return text;
    };
    text.push_str(&format!("It was deleted {} ({deleted}).\n\n", ago(deleted, now)));

    let finalizers = metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == names::FINALIZER) {
        text.push_str(&format!(
            "Holdfast has let it go. It is still there because of {}: whoever set that has to remove it.\n",
            if finalizers.is_empty() {
                "the API server's own work".to_owned()
            } else {
                finalizers.join(", ")
            }
        ));
        return text;
    }
    let held = true_condition(&status.conditions, conditions::DELETION_HELD);
    let blocked = true_condition(&status.conditions, conditions::DELETION_BLOCKED);
    if let Some(held) = held
        && explained.is_some_and(Explained::ends_hold)
    {
        text.push_str(&format!(
            "{} ({}, since {}), which has been decided about since.\n\n",
            style.waits("It was held by the breaker"),
            held.reason,
            ago(held.last_transition_time.0, now)
        ));
    } else if let Some(held) = held {
        // The commands of the message follow on lines of their own.
        let shown = Condition {
            message: without_commands(&held.message).to_owned(),
            ..held.clone()
        };
        text.push_str(&paragraph(style.bad("Held by the breaker"), &shown, now));
        text.push_str(&ends_hold(held, snapshot, style));
    }
    if let Some(blocked) = blocked {
        text.push_str(&paragraph(style.waits("It waits"), blocked, now));
    }
    if metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(names::SKIP_SNAPSHOT_CLEANUP))
    {
        text.push_str(&format!(
            "{} is set: it is let go and its data kept, unless a delete Job that includes it has started.\n\n",
            names::SKIP_SNAPSHOT_CLEANUP
        ));
    }
    text.push_str(&explained.map_or_else(String::new, |explained| explained.text(false, style)));
    match &status.deletion {
        Some(deletion) => text.push_str(&attempts(deletion, now)),
        None if held.is_none() && blocked.is_none() => text.push_str(
            "Nothing has been decided yet. The operator decides within seconds; if this stays, look whether it runs:\n  \
             kubectl get pods -A -l app.kubernetes.io/name=holdfast\n",
        ),
        None => {}
    }
    text
}

fn true_condition<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions::get(list, kind).filter(|condition| condition.status == "True")
}

/// What happened, the reason's word, since when, and the operator's own words.
fn paragraph(title: String, condition: &Condition, now: Timestamp) -> String {
    format!(
        "{title} ({}, since {}).\n  {}\n\n",
        condition.reason,
        ago(condition.last_transition_time.0, now),
        condition.message
    )
}

/// The two ways out of a hold, ready to copy.
fn ends_hold(held: &Condition, snapshot: &Snapshot, style: Style) -> String {
    let metadata = &snapshot.metadata;
    let mut text = "It stays so until a person decides. Either\n".to_owned();
    let release = release(snapshot).map_or_else(String::new, |command| {
        format!("\n    {}\n  which does the same as:", style.strong(&command))
    });
    match command_in(&held.message) {
        Some(command) => text.push_str(&format!(
            "  delete the data of everything held so far on this repository:{release}\n    {}\n",
            style.strong(&command)
        )),
        None => text.push_str("  acknowledge the wave: `kubectl holdfast waves` shows the command,\n"),
    }
    text.push_str(&format!(
        "  or keep the data of this one and let the object go:\n    {}\n\n",
        style.strong(&format!(
            "kubectl -n {} annotate snapshot/{} {}=\"\"",
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
            names::SKIP_SNAPSHOT_CLEANUP
        ))
    ));
    text
}

/// The command that releases the wave of the repository that `snapshot` is pinned to.
fn release(snapshot: &Snapshot) -> Option<String> {
    let pin = snapshot.status.as_ref()?.resolved.as_ref()?.repository.as_ref()?;
    let own = snapshot.metadata.namespace.as_ref();
    let scope = match pin.kind {
        RepositoryKind::Repository => format!(" -n {}", pin.namespace.as_ref().or(own)?),
        RepositoryKind::ClusterRepository => String::new(),
        RepositoryKind::Unknown => return None,
    };
    Some(format!(
        "kubectl holdfast release {}/{}{scope}",
        pin.kind.as_str().to_lowercase(),
        pin.name
    ))
}

/// What delete Jobs made of it so far.
fn attempts(deletion: &DeletionStatus, now: Timestamp) -> String {
    let mut text = String::new();
    match (&deletion.job, &deletion.outcome) {
        (Some(job), Some(outcome)) => {
            text.push_str(&format!("The delete Job {job} reported: {outcome}.\n"));
        }
        (Some(job), None) => text.push_str(&format!(
            "The delete Job {job} includes it. Its result decides; the object goes when a new listing of the repository no longer has the snapshot.\n"
        )),
        (None, Some(outcome)) => text.push_str(&format!("The last delete Job reported: {outcome}.\n")),
        (None, None) => {}
    }
    if deletion.attempts > 0 {
        text.push_str(&format!("{} tries failed", deletion.attempts));
        if let Some(error) = &deletion.last_error {
            text.push_str(&format!(", the last one said: {error}"));
        }
        text.push_str(".\n");
    }
    if let Some(next) = deletion.next_attempt_at {
        let when = if next > now {
            ago(next, now)
        } else {
            "with the next delete Job".to_owned()
        };
        text.push_str(&format!("It is tried again {when}.\n"));
    }
    text
}

#[cfg(test)]
mod tests;
