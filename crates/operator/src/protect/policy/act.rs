//! Stamping, deleting, reporting.

use super::decide::{Decision, Facts, Prune, is_adopting};
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::policy::{PolicyResolved, PrunedName, ResolvedIdentity, RetentionStatus};
use holdfast_api::snapshot::Snapshot;
use holdfast_api::{SnapshotPolicy, conditions, names};
use holdfast_core::retention::again::{self, Pruned};
use jiff::Timestamp;
use kube::api::{Api, PropagationPolicy};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// After so many it is asked again whether the policy still is what was judged.
const ASK_AGAIN: usize = 50;
/// How soon a write that was refused is tried again when no event comes.
const REFUSED_AGAIN: Duration = Duration::from_secs(60);
/// How soon a policy that takes over is looked at again when no event comes.
const ADOPTING_AGAIN: Duration = Duration::from_secs(600);

/// Carries out a decision.
pub async fn carry_out(
    ctx: &Context,
    key: &ObjectKey,
    facts: &Facts,
    decision: Decision,
    now: Timestamp,
) -> Result<Next, Error> {
    let (mut conflicts, mut refused) = (false, false);
    for view in &decision.unstamp {
        if decision.prune.iter().any(|p| p.view.uid() == view.uid()) {
            continue;
        }
        let patch = json!({ "metadata": { "annotations": {
            names::PRUNED_BY: null, names::PRUNED_AT: null, names::PRUNED_KEPT: null,
        } } });
        ctx.leadership.guard()?;
        let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let version = view.metadata.resource_version.as_deref().unwrap_or_default();
        match write::patch(&api, &view.key().name, version, patch).await {
            Ok(_) => {}
            Err(WriteError::Conflict | WriteError::Gone) => conflicts = true,
            Err(error @ WriteError::Api(_)) => refused |= passed_over(view, error.into())?,
        }
    }
    let prunes = !decision.prune.is_empty() || !decision.restamp.is_empty();
    if prunes && !still_so(ctx, key, facts).await? {
        // Edited or deleted since: what it says now counts.
        return Ok(Next::After(Duration::from_secs(1)));
    }
    let facts = &remember_names(ctx, key, facts, &decision).await?;
    let mut pruned = 0;
    let mut edited = false;
    for (number, pruned_one) in decision.prune.iter().enumerate() {
        // Thousands take minutes: an edit meanwhile counts for the rest.
        if number > 0 && number % ASK_AGAIN == 0 && !still_so(ctx, key, facts).await? {
            edited = true;
            break;
        }
        match prune(ctx, pruned_one).await {
            Ok(()) => pruned += 1,
            // Somebody changed it since it was judged: the next pass judges it again.
            Err(Error::Conflict) => conflicts = true,
            Err(error) => refused |= passed_over(&pruned_one.view, error)?,
        }
    }
    for (number, begun) in decision.restamp.iter().enumerate() {
        if edited || number % ASK_AGAIN == 0 && !still_so(ctx, key, facts).await? {
            edited = true;
            break;
        }
        match restamp(ctx, begun).await {
            Ok(()) => {}
            Err(Error::Conflict) => conflicts = true,
            Err(error) => refused |= passed_over(&begun.view, error)?,
        }
    }
    conflicts |= edited;
    let completed = decision.asked && decision.held.is_none() && !conflicts && !refused;
    report(ctx, key, facts, &decision, (pruned, completed), now).await?;
    Ok(if conflicts {
        Next::After(Duration::from_secs(1))
    } else if refused || facts.identity.is_err() || decision.identity_kept.is_some() {
        // What it waits for may be said on another object.
        Next::After(REFUSED_AGAIN)
    } else if is_adopting(&facts.policy) {
        Next::After(ADOPTING_AGAIN)
    } else {
        Next::Settled
    })
}

/// One that the API server does not let us write keeps no other waiting, and is tried again. Any other error ends the
/// pass.
fn passed_over(view: &SnapshotView, error: Error) -> Result<bool, Error> {
    if !error.is_refusal() {
        return Err(error);
    }
    tracing::warn!(snapshot = %view.key(), %error, "a Snapshot cannot be pruned; going on with the others");
    Ok(true)
}

fn known_names(facts: &Facts) -> Vec<Pruned> {
    let retention = facts.policy.status.as_ref().and_then(|s| s.retention.as_ref());
    let known = retention.iter().flat_map(|r| &r.pruned_names);
    known
        .map(|one| Pruned {
            name: one.name.clone(),
            at: one.at,
        })
        .collect()
}

/// Records the names of what is about to be pruned and that something else than a schedule made; the policy as it is
/// then.
async fn remember_names(
    ctx: &Context,
    key: &ObjectKey,
    facts: &Facts,
    decision: &Decision,
) -> Result<Facts, Error> {
    let by_hand = decision
        .prune
        .iter()
        .filter(|p| p.view.schedule_owner().is_none());
    let names: Vec<String> = by_hand.map(|p| p.view.key().name).collect();
    let known = known_names(facts);
    let wanted = again::remember(&known, &names, ctx.clock.now());
    if names.is_empty() || wanted == known {
        return Ok(facts.clone());
    }
    let wanted: Vec<PrunedName> = wanted
        .into_iter()
        .map(|Pruned { name, at }| PrunedName { name, at })
        .collect();
    ctx.leadership.guard()?;
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = facts.policy.metadata.resource_version.as_deref();
    let patch = json!({ "retention": { "prunedNames": wanted } });
    let policy = write::patch_status(&api, &key.name, version.unwrap_or_default(), patch).await?;
    Ok(Facts {
        policy: Arc::new(policy),
        ..facts.clone()
    })
}

/// Whether the policy is live what was judged, for pruning rests on its spec, and takes over nothing and took nothing over
/// since; and nobody else manages it by now. A watch of policies may lag behind that of Snapshots: what came by an adoption
/// that is over would be judged as if it were the ordinary course.
async fn still_so(ctx: &Context, key: &ObjectKey, facts: &Facts) -> Result<bool, Error> {
    if ctx.foreign.alive().is_some() {
        return Ok(false);
    }
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let judged = &facts.policy.metadata;
    Ok(api.get_opt(&key.name).await?.is_some_and(|policy| {
        let live = &policy.metadata;
        live.uid == judged.uid
            && live.generation == judged.generation
            && live.deletion_timestamp.is_none()
            && !is_adopting(&policy)
            && taken_over(&policy) == taken_over(&facts.policy)
    }))
}

/// What was taken over, and what retention completed since.
fn taken_over(policy: &SnapshotPolicy) -> (Option<Timestamp>, Option<i64>) {
    let status = policy.status.as_ref();
    let adoption = status.and_then(|status| status.adoption.as_ref());
    let retention = status.and_then(|status| status.retention.as_ref());
    (
        adoption.and_then(|adoption| adoption.last_adopted_at),
        retention.and_then(|retention| retention.completed_generation),
    )
}

/// Stamps with the judged resourceVersion, then deletes with UID and the stamped version as preconditions.
async fn prune(ctx: &Context, Prune { view, kept }: &Prune) -> Result<(), Error> {
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    let stamp = json!({ "metadata": { "annotations": {
        names::PRUNED_BY: "retention",
        // The time of this stamp, not of the pass: a long pass must not make the last stamps old.
        names::PRUNED_AT: ctx.clock.now().to_string(),
        names::PRUNED_KEPT: kept,
    } } });
    ctx.leadership.guard()?;
    let stamped: Snapshot = write::patch(&api, &key.name, version, stamp).await?;
    let stamped_version = stamped.metadata.resource_version.as_deref();
    ctx.leadership.guard()?;
    write::delete(
        &api,
        &key.name,
        view.uid(),
        stamped_version,
        PropagationPolicy::Background,
    )
    .await?;
    Ok(())
}

/// Stamps one that is being deleted already: first where only the operator writes, then beside it, with one time.
async fn restamp(ctx: &Context, Prune { view, kept }: &Prune) -> Result<(), Error> {
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    let at = ctx.clock.now().to_string();
    ctx.leadership.guard()?;
    let noted = json!({ "deletion": { "restampedAt": at } });
    let noted = write::patch_status(&api, &key.name, version, noted).await?;
    let version = noted.metadata.resource_version.unwrap_or_default();
    let stamp = json!({ "metadata": { "annotations": {
        names::PRUNED_BY: "retention",
        names::PRUNED_AT: at,
        names::PRUNED_KEPT: kept,
    } } });
    ctx.leadership.guard()?;
    write::patch(&api, &key.name, &version, stamp).await?;
    Ok(())
}

async fn report(
    ctx: &Context,
    key: &ObjectKey,
    facts: &Facts,
    decision: &Decision,
    (pruned, completed): (usize, bool),
    now: Timestamp,
) -> Result<(), Error> {
    let before = facts.policy.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let generation = facts.policy.metadata.generation;
    let last = before.retention.clone().unwrap_or_default();
    status.observed_generation = generation;
    // Each of thousands that are taken over is an event: the figures come when all of them are there.
    let waits = is_adopting(&facts.policy);
    status.last_successful_snapshot = decision
        .last_success
        .filter(|_| !waits)
        .or(before.last_successful_snapshot);
    status.retention = Some(RetentionStatus {
        active_snapshot_count: if waits {
            last.active_snapshot_count
        } else {
            i64::try_from(decision.active - pruned).ok()
        },
        last_prune_at: if pruned > 0 { Some(now) } else { last.last_prune_at },
        completed_generation: if completed {
            generation
        } else {
            last.completed_generation
        },
        last_prune_deleted: if pruned > 0 {
            i64::try_from(pruned).ok()
        } else {
            last.last_prune_deleted
        },
        pruned_names: last.pruned_names,
    });
    // While nobody knows which repository it is, what was recorded of it stays.
    let known = facts
        .identity
        .as_ref()
        .ok()
        .filter(|resolved| resolved.unique_id.is_some());
    if let Some(resolved) = known {
        let named = resolved.in_force.named();
        let before = status.resolved.take().unwrap_or_default();
        let used = resolved.allowed_by.as_ref();
        // What stood on the repository when the policy got its first name allows it no change later.
        let first = before.identity.is_none();
        let seen = resolved.seen_of_repository.clone().filter(|_| first);
        status.resolved = Some(PolicyResolved {
            identity: Some(ResolvedIdentity {
                username: named.username.clone(),
                hostname: named.hostname.clone(),
            }),
            unique_id: resolved.unique_id.clone(),
            source_path: resolved.source_path.clone(),
            allowed_identity_change: used
                .and_then(|used| used.policy.clone())
                .or(before.allowed_identity_change),
            allowed_identity_change_of_repository: used
                .and_then(|used| used.repository.clone())
                .or(seen)
                .or(before.allowed_identity_change_of_repository),
        });
    }
    let list = &mut status.conditions;
    let (reason, message) = (decision.reason, decision.message.as_str());
    let reconciling = !decision.ready && !decision.stalled && reason != "Suspended";
    conditions::Kstatus {
        ready: decision.ready,
        reconciling,
        stalled: decision.stalled,
    }
    .set(list, reason, message, generation, now);
    let was_held = conditions::is_true(&before.conditions, conditions::MASS_PRUNE_HELD);
    if let Some(message) = &decision.held {
        conditions::set(
            &mut status.conditions,
            conditions::MASS_PRUNE_HELD,
            true,
            "ThresholdExceeded",
            message,
            generation,
            now,
        );
    } else if was_held && decision.asked {
        conditions::set(
            &mut status.conditions,
            conditions::MASS_PRUNE_HELD,
            false,
            "NotHeld",
            "Retention goes on.",
            generation,
            now,
        );
    }
    let was_kept = conditions::is_true(&before.conditions, conditions::IDENTITY_CHANGE_HELD);
    if let Some(message) = &decision.identity_kept {
        let kind = conditions::IDENTITY_CHANGE_HELD;
        conditions::set(
            &mut status.conditions,
            kind,
            true,
            "IdentityInUse",
            message,
            generation,
            now,
        );
    } else if was_kept && known.is_some() {
        let message = "The identity that the specs ask for is in force.";
        let kind = conditions::IDENTITY_CHANGE_HELD;
        conditions::set(
            &mut status.conditions,
            kind,
            false,
            "InForce",
            message,
            generation,
            now,
        );
    }
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(());
    };
    ctx.leadership.guard()?;
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = facts
        .policy
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default();
    write::patch_status(&api, &key.name, version, patch).await?;
    if let Some(message) = decision.identity_kept.as_ref().filter(|_| !was_kept) {
        let action = "AllowIdentityChange";
        ctx.warn_policy(&facts.policy, conditions::IDENTITY_CHANGE_HELD, message, action)
            .await;
    }
    if let Some(message) = decision.held.as_ref().filter(|_| !was_held) {
        ctx.warn_policy(
            &facts.policy,
            conditions::MASS_PRUNE_HELD,
            message,
            "AllowMassPrune",
        )
        .await;
    }
    Ok(())
}
