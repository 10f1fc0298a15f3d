//! A policy that is being deleted: what becomes of its Snapshots (`onPolicyDelete`, `docs/design.md` 3.3 rule 5).
//!
//! **Promises.** `Retain`, and a value that is not known: each child is stamped `policy-cascade` with the
//! resourceVersion that was judged and deleted with it as a precondition, so that rule 5 keeps its data and says so.
//! `Delete`: each is deleted without any stamp, so that the breaker counts it like everybody's deletion; a stamp that
//! was left on it is taken off first. The policy's finalizer goes once a live listing shows no child that is not
//! being deleted: held children never keep a policy. Where the namespace is torn down, or the definitions are being
//! removed, the policy decides nothing: those have rules of their own.
//!
//! **Assumes.** Discovered and replicated rows are nobody's children.

use super::decide::is_child;
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::SnapshotView;
use holdfast_api::shared::CascadePolicy;
use holdfast_api::snapshot::Snapshot;
use holdfast_api::{SnapshotPolicy, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::api::{Api, ListParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use std::time::Duration;

/// How soon children that could not be deleted are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Whether our finalizer is on it.
#[must_use]
pub fn has_finalizer(policy: &SnapshotPolicy) -> bool {
    let finalizers = policy.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers.iter().any(|f| f == names::POLICY_FINALIZER)
}

/// Puts our finalizer on a policy, before it has children.
///
/// # Errors
/// [`Error`].
pub async fn add_finalizer(ctx: &Context, key: &ObjectKey, policy: &SnapshotPolicy) -> Result<(), Error> {
    let mut finalizers = policy.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(names::POLICY_FINALIZER.to_owned());
    let version = policy.metadata.resource_version.as_deref().unwrap_or_default();
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    let patch = json!({ "metadata": { "finalizers": finalizers } });
    write::patch(&api, &key.name, version, patch).await?;
    Ok(())
}

/// One pass over a policy that is being deleted.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey, policy: &SnapshotPolicy) -> Result<Next, Error> {
    if !has_finalizer(policy) {
        return Ok(Next::Settled);
    }
    let policies: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    // What it says now counts, not what a cache says.
    let Some(live) = policies.get_opt(&key.name).await? else {
        return Ok(Next::Settled);
    };
    if live.metadata.uid != policy.metadata.uid {
        return Err(Error::Conflict);
    }
    let policy = &live;
    if !is_torn_down(ctx, &key.namespace).await? && !is_uninstalled(ctx).await? {
        let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
        let listed = api.list(&ListParams::default()).await?.items;
        let children: Vec<&SnapshotView> = listed.iter().filter(|s| is_child(s, key)).collect();
        if !children.is_empty() {
            let mut refused = 0;
            for child in &children {
                match let_go(ctx, policy, child).await {
                    Ok(()) => {}
                    Err(Error::Conflict) => refused += 1,
                    Err(error) if error.is_refusal() => {
                        tracing::warn!(snapshot = %child.key(), %error, "a Snapshot of a policy that is being deleted cannot be deleted; going on with the others");
                        refused += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
            tracing::info!(policy = %key, children = children.len(), refused, "a policy is being deleted; so are its Snapshots");
            // What is live then is seen by the next listing.
            return Ok(Next::After(if refused > 0 {
                AGAIN
            } else {
                Duration::from_secs(1)
            }));
        }
    }
    let release = write::release(&policies, policy, names::POLICY_FINALIZER);
    match ctx.leadership.fence(release).await? {
        Ok(()) | Err(WriteError::Gone) => Ok(Next::Settled),
        Err(error @ (WriteError::Conflict | WriteError::Api(_))) => Err(error.into()),
    }
}

async fn is_torn_down(ctx: &Context, name: &str) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(ctx.client.clone());
    let found = api.get_opt(name).await?;
    Ok(found.is_none_or(|n| n.metadata.deletion_timestamp.is_some()))
}

/// Whether a definition is being removed: uninstalling is no wish to delete backups.
async fn is_uninstalled(ctx: &Context) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<CustomResourceDefinition>> = Api::all(ctx.client.clone());
    for name in [Snapshot::crd_name(), SnapshotPolicy::crd_name()] {
        let found = api.get_opt(name).await?;
        if found.is_none_or(|crd| crd.metadata.deletion_timestamp.is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is written on a child before its delete; none: nothing has to be.
#[must_use]
pub fn mark(policy: &SnapshotPolicy, child: &SnapshotView, now: Timestamp) -> Option<Value> {
    let asked = policy.spec.deletion.as_ref().map(|d| d.on_policy_delete);
    match asked {
        None | Some(CascadePolicy::Retain | CascadePolicy::Unknown) => Some(json!({
            names::PRUNED_BY: "policy-cascade",
            names::PRUNED_AT: now.to_string(),
            names::PRUNED_KEPT: null,
        })),
        Some(CascadePolicy::Delete) => child
            .annotation(names::PRUNED_BY)
            .map(|_| json!({ names::PRUNED_BY: null, names::PRUNED_AT: null, names::PRUNED_KEPT: null })),
    }
}

async fn let_go(ctx: &Context, policy: &SnapshotPolicy, child: &SnapshotView) -> Result<(), Error> {
    let key = child.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let mut version = child.metadata.resource_version.clone();
    if let Some(annotations) = mark(policy, child, ctx.clock.now()) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        ctx.leadership.guard()?;
        let judged = version.as_deref().unwrap_or_default();
        let marked = write::patch(&api, &key.name, judged, patch).await?;
        version = marked.metadata.resource_version;
    }
    ctx.leadership.guard()?;
    write::delete(
        &api,
        &key.name,
        child.uid(),
        version.as_deref(),
        PropagationPolicy::Background,
    )
    .await?;
    Ok(())
}
