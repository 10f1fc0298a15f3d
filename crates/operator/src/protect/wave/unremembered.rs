//! What is let go and could not be remembered, and which maps remember the rest.
//!
//! **Promises.** That something is missing is written on the lane's Lease before anything of it goes, for nobody adopts from a
//! repository of which not everything is remembered; the Lease stays when repository objects are made again, and they show
//! it. Whoever has to wait for that says so. Nobody waits where there is nothing left to adopt by, or for an error that
//! lasts.

use super::lease::{self, Lock};
use super::let_go::Missed;
use super::mark::{self, Marks};
use super::observe::Observed;
use super::records::change;
use crate::context::{Context, Error};
use crate::runtime::events::Published;
use crate::world::NamespaceKnown;
use crate::world::keys::{LaneKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_api::repository::RepositoryStatus;
use holdfast_api::{conditions, names};
use holdfast_core::deletion::{Decision, OrphanReason, Plan, Verdict};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::events::EventType;
use std::collections::{BTreeMap, BTreeSet};

/// What is an error of a moment is tried again for so long after the deletion; then it counts as refused.
const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// Why one waits, as its condition says.
pub const NOT_WRITTEN: &str = "MemoryNotWritten";

/// Has those of a plan that are not remembered wait, or says that they are not; answers the UIDs of those that may not go, and
/// the lock as it is then.
///
/// # Errors
/// [`Error::NotLeader`], and a conflict over what the repository objects say.
pub async fn say(
    ctx: &Context,
    observed: &mut Observed,
    plan: &Plan,
    missed: &Missed,
    (key, mut lock): (&LaneKey, Option<Lock>),
    now: Timestamp,
) -> Result<(BTreeSet<String>, Option<Lock>), Error> {
    maps(ctx, observed, missed).await?;
    let mut stay = BTreeSet::new();
    let mut of: BTreeMap<String, Vec<&Decision>> = BTreeMap::new();
    for decision in &plan.decisions {
        let lasts = missed.later.contains(&decision.uid) && lasts(observed, decision, now);
        if missed.refused.contains(&decision.uid)
            || lasts
            || (missed.later.contains(&decision.uid) && ends(ctx, decision))
        {
            let unique_id = unique_id(observed, key, decision);
            of.entry(unique_id).or_default().push(decision);
        } else if missed.later.contains(&decision.uid) {
            stay.insert(decision.uid.clone());
        }
    }
    for (unique_id, those) in of {
        let said = if unique_id.is_empty() {
            // Of no repository that is known: there is no lane whose scans could ask.
            Ok(())
        } else {
            let held = lock
                .as_ref()
                .filter(|_| *key == LaneKey::Physical(unique_id.clone()));
            let is_held = held.is_some();
            match lease::say_incomplete(ctx, held, &unique_id, Some(now), now).await {
                Ok(after) if is_held => {
                    lock = Some(after);
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(error) => Err(error),
            }
        };
        match said {
            Ok(()) => {
                show(ctx, observed, now).await?;
                tell(ctx, observed, &those).await;
            }
            Err(Error::NotLeader) => return Err(Error::NotLeader),
            Err(error) => {
                tracing::warn!(unique_id, %error, "that the memory is incomplete cannot be recorded");
                let those = those.into_iter().filter(|decision| !ends(ctx, decision));
                stay.extend(those.map(|decision| decision.uid.clone()));
            }
        }
    }
    let waits = Marks::waiting(observed, &stay, NOT_WRITTEN, WAITS, now);
    mark::write(ctx, observed, waits).await?;
    Ok((stay, lock))
}

/// The physical repository whose policies could adopt it; empty: none that is known.
fn unique_id(observed: &Observed, key: &LaneKey, decision: &Decision) -> String {
    if let LaneKey::Physical(id) = key {
        return id.clone();
    }
    let view = observed.views.get(&decision.uid);
    let pinned = view.and_then(|view| view.pinned_unique_id());
    pinned.unwrap_or_default().to_owned()
}

/// Where the memory itself is going there is nothing to adopt by, and uninstalling waits for nobody.
fn ends(ctx: &Context, decision: &Decision) -> bool {
    decision.verdict == Verdict::Orphan(OrphanReason::ApiGoingAway)
        || ctx.world.namespace(&ctx.settings.namespace) != NamespaceKnown::Live
}

/// Whether it has waited for as long as an error of a moment may take.
fn lasts(observed: &Observed, decision: &Decision, now: Timestamp) -> bool {
    let view = observed.views.get(&decision.uid);
    let deleted = view.and_then(|view| view.metadata.deletion_timestamp.as_ref());
    deleted.is_some_and(|deleted| now.duration_since(deleted.0) >= PATIENCE)
}

/// The repository objects name the maps, so that one which is removed is missed.
async fn maps(ctx: &Context, observed: &mut Observed, missed: &Missed) -> Result<(), Error> {
    for (key, view) in observed.repositories.clone() {
        let Some(names) = view.unique_id().and_then(|id| missed.maps.get(id)) else {
            continue;
        };
        let known = view
            .status
            .catalog
            .as_ref()
            .map(|catalog| catalog.kept_maps.as_slice());
        if names.iter().all(|name| known.unwrap_or_default().contains(name)) {
            continue;
        }
        let written = change(ctx, &view, |status| {
            let catalog = status.catalog.get_or_insert_default();
            let all: BTreeSet<String> = catalog.kept_maps.drain(..).chain(names.iter().cloned()).collect();
            catalog.kept_maps = all.into_iter().collect();
        });
        match written.await {
            Ok(after) => _ = observed.repositories.insert(key, after),
            Err(error @ (Error::NotLeader | Error::Conflict)) => return Err(error),
            Err(error) => {
                tracing::warn!(repository = %key, %error, "the maps of what is let go cannot be named")
            }
        }
    }
    Ok(())
}

/// The repository objects show it; what counts is on the Lease.
async fn show(ctx: &Context, observed: &mut Observed, now: Timestamp) -> Result<(), Error> {
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    for (key, view) in observed.repositories.clone() {
        let written = change(ctx, &view, |status| {
            incomplete(status, &view, ("MemoryRefused", FORGOTTEN), now);
        });
        match written.await {
            Ok(after) => {
                if !conditions::is_true(&view.status.conditions, kind) {
                    ctx.warn_repository(&after, kind, FORGOTTEN, "RememberSnapshot")
                        .await;
                }
                observed.repositories.insert(key, after);
            }
            Err(Error::NotLeader) => return Err(Error::NotLeader),
            Err(error) => {
                tracing::warn!(repository = %key, %error, "that the memory is incomplete is not shown")
            }
        }
    }
    Ok(())
}

/// What a person writes to accept what is missing up to this moment.
#[must_use]
pub fn acceptance(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets the condition. Its time is that of the last one: a scan that began before says nothing about it.
pub fn incomplete(
    status: &mut RepositoryStatus,
    view: &RepositoryView,
    (reason, message): (&'static str, &str),
    at: Timestamp,
) {
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    status.conditions.retain(|one| one.type_ != kind);
    let (plural, place) = match &view.key {
        RepositoryKey::Repository { namespace, .. } => ("repository", format!("-n {namespace} ")),
        RepositoryKey::ClusterRepository { .. } => ("clusterrepository", String::new()),
    };
    let message = format!(
        "{message} If what it said does not matter, it is adopted as if it had said nothing after: kubectl {place}annotate {plural}/{} {}=\"{}\" --overwrite, and a scan.",
        view.key.name(),
        names::ACCEPT_INCOMPLETE_MEMORY,
        acceptance(at),
    );
    let generation = view.metadata.generation;
    conditions::set(
        &mut status.conditions,
        kind,
        true,
        reason,
        &message,
        generation,
        at,
    );
}

/// Where no repository object shows it, each of them does.
async fn tell(ctx: &Context, observed: &Observed, those: &[&Decision]) {
    if !observed.repositories.is_empty() {
        return;
    }
    for view in those
        .iter()
        .filter_map(|decision| observed.views.get(&decision.uid))
    {
        let kind = conditions::KEPT_MEMORY_INCOMPLETE;
        let told = ctx
            .event_snapshot(view, EventType::Warning, kind, FORGOTTEN, "RememberSnapshot")
            .await;
        match told {
            Published::Yes | Published::No => {}
            // There is nobody else to tell.
            Published::NamespaceTerminating => tracing::warn!(snapshot = %view.key(), "{FORGOTTEN}"),
        }
    }
}

/// What a repository says of which not everything is remembered.
pub const FORGOTTEN: &str = "Snapshots were let go while their data stays, and what they said of it (deletion policy, pin) could not be written into the ConfigMaps holdfast-kept-* of the operator's namespace. Nothing is adopted from this repository until a scan finds nothing in it that belongs to no object. Let the operator write these ConfigMaps (a quota or a webhook refuses them).";

/// What a repository says whose memory is gone.
pub const LOST: &str = "ConfigMaps holdfast-kept-* of the operator's namespace, in which is remembered what Snapshots that were let go said of their data (deletion policy, pin), were removed or lost their label. Nothing is adopted from this repository until a scan finds nothing in it that belongs to no object. Restore them if you can, and ask for a scan.";

const WAITS: &str = "what it says of its data (deletion policy, pin) cannot be written down in the operator's namespace, and not even that it is not: it is tried again by itself. Let the operator write ConfigMaps and Leases there (a quota or a webhook refuses them).";
