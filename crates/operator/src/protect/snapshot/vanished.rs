//! What a backup mover found gone while it ran.
//!
//! **Promises.** A snapshot that a mover saw before its run and not after it is reported on the Snapshot that records it,
//! as `Vanished` (`docs/design.md` 3.7), before the run's own result is recorded: a crash in between repeats it. What is
//! being deleted here is no news. Nothing is deleted or guessed on its account.
//!
//! **Assumes.** The catalog takes the condition back when the snapshot is listed again.

use super::act::write_status;
use crate::context::{Context, Error};
use crate::jobs::outcome::Read;
use crate::world::views::SnapshotView;
use holdfast_api::conditions;
use holdfast_protocol::outcome::OperationResult;
use holdfast_protocol::work::cut;
use jiff::Timestamp;
use kube::runtime::events::EventType;
use std::sync::Arc;

/// Marks the Snapshots of the same policy whose snapshots the run of `view` found gone.
///
/// # Errors
/// [`Error`]; a conflict leaves the result for the next pass.
pub async fn report(ctx: &Context, view: &SnapshotView, read: &Read, now: Timestamp) -> Result<(), Error> {
    let Some(policy) = view.policy() else {
        return Ok(());
    };
    for gone in gone(view, read, &ctx.world.snapshots_of_policy(&policy)) {
        let message = format!(
            "The snapshot {} went away while Snapshot {} was being taken, and nobody deleted it here: it no longer counts for retention. Look for another program that deletes in this repository, or for retention of its own. If it is not coming back, delete this object.",
            gone.snapshot_id().unwrap_or_default(),
            view.key().name,
        );
        mark(ctx, &gone, &message, true, now).await?;
    }
    Ok(())
}

/// Says on a Snapshot that its snapshot is not in the repository; with an event, unless somebody else tells it.
///
/// # Errors
/// [`Error`]; a conflict when it was changed or went in between.
pub async fn mark(
    ctx: &Context,
    gone: &SnapshotView,
    message: &str,
    tell: bool,
    now: Timestamp,
) -> Result<(), Error> {
    write_status(ctx, gone, |status| {
        conditions::set(
            &mut status.conditions,
            conditions::VANISHED,
            true,
            "NotListed",
            message,
            gone.metadata.generation,
            now,
        );
    })
    .await?;
    if tell {
        let warning = ctx.event_snapshot(
            gone,
            EventType::Warning,
            "SnapshotVanished",
            message,
            "CheckRepository",
        );
        let _ = warning.await;
    }
    Ok(())
}

/// Which of these record what went away, in the repository that the run wrote to.
fn gone(view: &SnapshotView, read: &Read, others: &[Arc<SnapshotView>]) -> Vec<Arc<SnapshotView>> {
    let Read::Outcome { outcome, .. } = read else {
        return Vec::new();
    };
    let OperationResult::BackedUp { vanished, .. } = &outcome.result else {
        return Vec::new();
    };
    let here = view.pinned_unique_id();
    others
        .iter()
        .filter(|other| other.metadata.deletion_timestamp.is_none() && other.uid() != view.uid())
        .filter(|other| here.is_some() && other.pinned_unique_id() == here)
        .filter(|other| {
            let id = other.snapshot_id().map(cut);
            id.is_some_and(|id| vanished.iter().any(|gone| gone == id))
        })
        .filter(|other| !other.is_vanished())
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_protocol::outcome::Outcome;
    use serde_json::{Value, json};

    fn snapshot(name: &str, change: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
        let mut object = json!({
            "metadata": { "name": name, "namespace": "a", "uid": name },
            "spec": { "policyRef": { "name": "p" } },
            "status": {
                "snapshot": { "kopiaSnapshotID": format!("{name}-0123456789abcdef") },
                "resolved": { "uniqueId": "here" },
            },
        });
        change(&mut object);
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn read(vanished: &[&str]) -> Read {
        Read::Outcome {
            outcome: Box::new(Outcome {
                version: holdfast_protocol::VERSION,
                unique_id: Some("here".to_owned()),
                error: None,
                result: OperationResult::BackedUp {
                    taken: 1,
                    first: None,
                    vanished: vanished.iter().map(|id| (*id).to_owned()).collect(),
                },
            }),
            exited_well: true,
        }
    }

    #[test]
    fn only_live_snapshots_of_this_repository_that_record_what_went_away_are_marked() {
        let run = snapshot("run", |_| {});
        let vanished = json!([{
            "type": "Vanished", "status": "True", "reason": "NotListed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        let all = [
            snapshot("lost", |_| {}),
            snapshot("kept", |_| {}),
            snapshot("deleted", |o| {
                o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }),
            snapshot("elsewhere", |o| {
                o["status"]["resolved"]["uniqueId"] = json!("there")
            }),
            snapshot("known", |o| o["status"]["conditions"] = vanished),
            Arc::clone(&run),
        ];
        let ids: Vec<String> = ["lost", "deleted", "elsewhere", "known", "run", "nobody"]
            .iter()
            .map(|name| cut(&format!("{name}-0123456789abcdef")).to_owned())
            .collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        let names = |read: &Read| -> Vec<String> {
            gone(&run, read, &all)
                .iter()
                .map(|view| view.key().name)
                .collect()
        };
        assert_eq!(names(&read(&ids)), ["lost"]);
        assert!(names(&read(&[])).is_empty());
        assert!(names(&Read::Silent("no".to_owned())).is_empty());
    }
}
