//! Stamping, deleting, reporting.

use super::decide::{Decision, Facts};
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::policy::RetentionStatus;
use holdfast_api::snapshot::Snapshot;
use holdfast_api::{SnapshotPolicy, conditions, names};
use jiff::Timestamp;
use kube::api::{Api, PropagationPolicy};
use serde_json::json;
use std::time::Duration;

/// Carries out a decision.
pub async fn carry_out(
    ctx: &Context,
    key: &ObjectKey,
    facts: &Facts,
    decision: Decision,
    now: Timestamp,
) -> Result<Next, Error> {
    let mut conflicts = false;
    for view in &decision.unstamp {
        if decision.prune.iter().any(|p| p.uid() == view.uid()) {
            continue;
        }
        let patch =
            json!({ "metadata": { "annotations": { names::PRUNED_BY: null, names::PRUNED_AT: null } } });
        ctx.leadership.guard()?;
        let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let version = view.metadata.resource_version.as_deref().unwrap_or_default();
        match write::patch(&api, &view.key().name, version, patch).await {
            Ok(_) => {}
            Err(WriteError::Conflict | WriteError::Gone) => conflicts = true,
            Err(error) => return Err(error.into()),
        }
    }
    let mut pruned = 0;
    for view in &decision.prune {
        match prune(ctx, view).await {
            Ok(()) => pruned += 1,
            // Somebody changed it since it was judged: the next pass judges it again.
            Err(Error::Conflict) => conflicts = true,
            Err(error) => return Err(error),
        }
    }
    report(ctx, key, facts, &decision, pruned, now).await?;
    Ok(if conflicts {
        Next::After(Duration::from_secs(1))
    } else {
        Next::Settled
    })
}

/// Stamps with the judged resourceVersion, then deletes with UID and the stamped version as preconditions.
async fn prune(ctx: &Context, view: &SnapshotView) -> Result<(), Error> {
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    let stamp = json!({ "metadata": { "annotations": {
        names::PRUNED_BY: "retention",
        // The time of this stamp, not of the pass: a long pass must not make the last stamps old.
        names::PRUNED_AT: Timestamp::now().to_string(),
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

async fn report(
    ctx: &Context,
    key: &ObjectKey,
    facts: &Facts,
    decision: &Decision,
    pruned: usize,
    now: Timestamp,
) -> Result<(), Error> {
    let before = facts.policy.status.clone().unwrap_or_default();
    let mut status = before.clone();
    let generation = facts.policy.metadata.generation;
    let last = before.retention.clone().unwrap_or_default();
    status.observed_generation = generation;
    status.last_successful_snapshot = decision.last_success.or(before.last_successful_snapshot);
    status.retention = Some(RetentionStatus {
        active_snapshot_count: i64::try_from(decision.active - pruned).ok(),
        last_prune_at: if pruned > 0 { Some(now) } else { last.last_prune_at },
        last_prune_deleted: if pruned > 0 {
            i64::try_from(pruned).ok()
        } else {
            last.last_prune_deleted
        },
    });
    let list = &mut status.conditions;
    let (reason, message) = (decision.reason, decision.message.as_str());
    let reconciling = !decision.ready && !decision.stalled && reason != "Suspended";
    conditions::Kstatus {
        ready: decision.ready,
        reconciling,
        stalled: decision.stalled,
    }
    .set(list, reason, message, generation, now);
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
    Ok(())
}
