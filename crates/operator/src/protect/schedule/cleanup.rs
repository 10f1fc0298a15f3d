//! A schedule that is being deleted: what it says about the data of its Snapshots reaches them before it goes
//! (`onScheduleDelete`, `docs/design.md` 3.3 rule 6).
//!
//! **Promises.** The schedule's finalizer goes only when a live listing shows no Snapshot of it that says something
//! else than the schedule did last; so an edit that is followed by a deletion at once, or that was made while no
//! operator ran, counts. Children that are being deleted already are told too. A child that refuses to be told keeps
//! the schedule only where the edit would keep its data.
//!
//! **Assumes.** Who deletes the children is the cluster's garbage collector; with `--cascade=orphan` nobody does.

use super::act;
use crate::context::{Context, Error};
use crate::runtime::queue::Next;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::{ScheduleView, SnapshotView};
use holdfast_api::names;
use holdfast_api::shared::CascadePolicy;
use kube::api::{Api, ListParams};
use serde_json::json;
use std::time::Duration;

/// How soon children that could not be told are tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// Whether our finalizer is among these.
#[must_use]
pub fn has_finalizer(finalizers: Option<&[String]>) -> bool {
    let finalizers = finalizers.unwrap_or_default();
    finalizers.iter().any(|f| f == names::SCHEDULE_FINALIZER)
}

fn api(ctx: &Context, key: &ObjectKey) -> Api<ScheduleView> {
    Api::namespaced(ctx.client.clone(), &key.namespace)
}

/// Puts our finalizer on a schedule, before it has children.
///
/// # Errors
/// [`Error`].
pub async fn add_finalizer(
    ctx: &Context,
    key: &ObjectKey,
    finalizers: Option<&[String]>,
    version: &str,
) -> Result<(), Error> {
    let mut finalizers = finalizers.unwrap_or_default().to_vec();
    finalizers.push(names::SCHEDULE_FINALIZER.to_owned());
    ctx.leadership.guard()?;
    let patch = json!({ "metadata": { "finalizers": finalizers } });
    write::patch(&api(ctx, key), &key.name, version, patch).await?;
    Ok(())
}

/// One pass over a schedule that is being deleted.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &ObjectKey) -> Result<Next, Error> {
    // What it says now counts, not what a cache says.
    let Some(schedule) = api(ctx, key).get_opt(&key.name).await? else {
        return Ok(Next::Settled);
    };
    if schedule.metadata.deletion_timestamp.is_none()
        || !has_finalizer(schedule.metadata.finalizers.as_deref())
    {
        return Ok(Next::Settled);
    }
    let uid = schedule.metadata.uid.as_deref().unwrap_or_default();
    let mut untold = 0;
    for child in children(ctx, key, uid).await? {
        match tell(ctx, &child, schedule.cascade()).await {
            Ok(()) => {}
            Err(Error::Conflict) => untold += 1,
            Err(error) if error.is_refusal() => {
                tracing::warn!(snapshot = %child.key(), %error, "a Snapshot cannot be told what becomes of its data; going on with the others");
                untold += usize::from(schedule.cascade() != CascadePolicy::Delete);
            }
            Err(error) => return Err(error),
        }
    }
    if untold > 0 {
        return Ok(Next::After(AGAIN));
    }
    let api = api(ctx, key);
    let release = write::release(&api, &schedule, names::SCHEDULE_FINALIZER);
    match ctx.leadership.fence(release).await? {
        Ok(()) | Err(WriteError::Gone) => Ok(Next::Settled),
        Err(error @ (WriteError::Conflict | WriteError::Api(_))) => Err(error.into()),
    }
}

/// The Snapshots that a schedule of this UID owns, live. Where the kind is gone there are none.
async fn children(ctx: &Context, key: &ObjectKey, uid: &str) -> Result<Vec<SnapshotView>, Error> {
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let mut listed = match api.list(&ListParams::default()).await {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    listed.retain(|child| child.schedule_owner().is_some_and(|(owner, _)| owner == uid));
    Ok(listed)
}

/// Writes on a child what the schedule says, if it says something else. A word of a newer release keeps the data: once
/// the schedule is gone there is nobody left to ask what it meant.
async fn tell(ctx: &Context, child: &SnapshotView, says: CascadePolicy) -> Result<(), Error> {
    let says = match says {
        CascadePolicy::Retain | CascadePolicy::Unknown => CascadePolicy::Retain,
        CascadePolicy::Delete => CascadePolicy::Delete,
    };
    if child.spec.on_schedule_delete.unwrap_or_default() == says {
        return Ok(());
    }
    let key = child.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = child.metadata.resource_version.as_deref().unwrap_or_default();
    act::write_cascade(ctx, &api, &key, version, says).await
}
