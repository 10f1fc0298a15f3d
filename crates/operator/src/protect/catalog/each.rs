//! Writing one row, or what a policy has instead.
//!
//! **Promises.** CREATE only; a status follows at once, against the version that was made. What was made a moment ago and
//! is not seen yet is left to the next scan.

use super::adopt::Taken;
use super::known::Word;
use super::plan::{Adopting, Removing};
use super::{adopted, row, under_way};
use crate::context::{Context, Error};
use crate::protect::wave::kept::stricter;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::shared::{DeletionPolicy, Origin};
use holdfast_api::{Snapshot, SnapshotPolicy, names};
use holdfast_protocol::chunks::ListedSnapshot;
use kube::api::{Api, ObjectMeta, PostParams, PropagationPolicy};
use serde_json::json;

/// What became of one.
pub enum Did {
    /// A row is there.
    Made,
    /// A row is gone.
    Removed,
    /// A policy has it.
    Adopted {
        /// The policy.
        by: ObjectKey,
        /// Its Snapshot.
        made: ObjectKey,
        /// Its row was changed meanwhile, and is still there.
        row_left: bool,
    },
    /// It is there and was not seen yet, or its policy is not what was judged: the next scan's.
    Later,
}

/// Makes a row and completes it.
///
/// # Errors
/// [`Error`].
pub async fn create(
    ctx: &Context,
    view: &RepositoryView,
    key: &ObjectKey,
    listed: &ListedSnapshot,
) -> Result<Did, Error> {
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    ctx.leadership.guard()?;
    let made = match api.create(&params, &row::object(view, key, listed)).await {
        Ok(made) => made,
        // Made a moment ago and not seen yet; without a status it is the next scan's.
        Err(kube::Error::Api(status)) if status.code == 409 => return Ok(Did::Made),
        Err(error) => return Err(error.into()),
    };
    let version = made.metadata.resource_version.unwrap_or_default();
    write_status(ctx, view, key, &version, made.metadata.generation, listed).await?;
    Ok(Did::Made)
}

/// Completes a row whose first status was never written.
///
/// # Errors
/// [`Error`].
pub async fn complete(
    ctx: &Context,
    view: &RepositoryView,
    row: &SnapshotView,
    listed: &ListedSnapshot,
) -> Result<Did, Error> {
    let version = row.metadata.resource_version.clone().unwrap_or_default();
    write_status(ctx, view, &row.key(), &version, row.metadata.generation, listed).await?;
    Ok(Did::Made)
}

async fn write_status(
    ctx: &Context,
    view: &RepositoryView,
    key: &ObjectKey,
    version: &str,
    generation: Option<i64>,
    listed: &ListedSnapshot,
) -> Result<(), Error> {
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let status = row::status(view, listed, &ctx.cluster, generation, ctx.clock.now());
    ctx.leadership.guard()?;
    match write::patch_status(&api, &key.name, version, status).await {
        // Removed in between: it is made again by the next scan.
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Makes the policy's object, then takes the row away: what is between the two is found by the next scan.
///
/// # Errors
/// [`Error`].
pub async fn take_over(ctx: &Context, view: &RepositoryView, one: &Adopting<'_>) -> Result<Did, Error> {
    let key = match &one.begun {
        Some(begun) => begun.key(),
        None => adopted::key(view, &one.taken),
    };
    let by = ObjectKey::of(one.taken.policy.as_ref());
    // It was judged minutes ago when there are many: what the policy says now counts.
    let same = |now: &SnapshotPolicy| under_way::is_same(&one.taken.policy, now);
    if !ctx.world.policy(&by).is_some_and(|now| same(&now)) {
        return Ok(Did::Later);
    }
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    let meta = match &one.begun {
        Some(begun) => keep_strict(ctx, begun, &one.taken).await?,
        None => {
            let params = PostParams {
                field_manager: Some(names::FIELD_MANAGER.to_owned()),
                ..PostParams::default()
            };
            match api.create(&params, &adopted::object(view, &one.taken)).await {
                Ok(made) => made.metadata,
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    return is_ours(ctx, &key, &one.taken).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let version = meta.resource_version.unwrap_or_default();
    let status = adopted::status(view, &one.taken, meta.generation, ctx.clock.now());
    ctx.leadership.guard()?;
    write::patch_status(&api, &key.name, &version, status).await?;
    let mut row_left = false;
    if let Some(row) = &one.row {
        match take_away(ctx, row).await {
            Ok(()) => {}
            // What was written on it meanwhile is inherited by the next scan; retention waits until then.
            Err(Error::Conflict) => row_left = true,
            Err(error) => return Err(error),
        }
    }
    let made = key;
    Ok(Did::Adopted { by, made, row_left })
}

/// Has what was begun keep as much as is known now, and never less than it says by itself; its metadata then.
async fn keep_strict(ctx: &Context, begun: &SnapshotView, taken: &Taken<'_>) -> Result<ObjectMeta, Error> {
    let says = begun.spec.deletion_policy;
    let keeps = says.map_or(taken.gives, |says| stricter(says, taken.gives));
    let pin = begun.spec.pin || taken.pinned;
    if says == Some(keeps) && begun.spec.pin == pin {
        return Ok(begun.metadata.clone());
    }
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &begun.key().namespace);
    let version = begun.metadata.resource_version.as_deref().unwrap_or_default();
    let patch = json!({ "spec": { "deletionPolicy": keeps, "pin": pin } });
    let written = write::patch(&api, &begun.key().name, version, patch).await?;
    Ok(written.metadata)
}

/// Of one whose name is taken: made a moment ago and not seen yet, so that it is the next scan's; or somebody else's.
async fn is_ours(ctx: &Context, key: &ObjectKey, taken: &Taken<'_>) -> Result<Did, Error> {
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let Some(there) = api.get_opt(&key.name).await? else {
        return Ok(Did::Later);
    };
    let label = |name: &str| there.metadata.labels.as_ref().and_then(|l| l.get(name).cloned());
    let same = label(names::SNAPSHOT_ID_LABEL) == Some(row::label(&taken.listed.snapshot_id));
    if same && label(names::ORIGIN_LABEL).as_deref() == Some(Origin::Adopted.as_str()) {
        return Ok(Did::Later);
    }
    let why = format!(
        "Snapshot {key} is there and is not the one that a policy would adopt under this name: it was made or relabelled by somebody else. Remove it, or leave the snapshot as it is with spec.adoption: Ignore"
    );
    let taken = kube::core::Status::failure(&why, "AlreadyExists").with_code(422);
    Err(kube::Error::Api(taken.boxed()).into())
}

/// Removes a row, as the object that was judged; what was written on it is written on its heir first.
///
/// # Errors
/// [`Error`].
pub async fn remove(ctx: &Context, one: &Removing) -> Result<Did, Error> {
    if let Some(heir) = &one.heir {
        inherit(ctx, heir, Word::of(&one.row)).await?;
    }
    take_away(ctx, &one.row).await?;
    Ok(Did::Removed)
}

/// Has an object keep as much as a row did.
async fn inherit(ctx: &Context, heir: &SnapshotView, word: Word) -> Result<(), Error> {
    let mut spec = serde_json::Map::new();
    if word.pin && !heir.spec.pin {
        spec.insert("pin".to_owned(), json!(true));
    }
    let says = heir.spec.deletion_policy;
    let keeps = word.with(says.unwrap_or(DeletionPolicy::Delete));
    if word.stays && says != Some(keeps) {
        spec.insert("deletionPolicy".to_owned(), json!(keeps));
    }
    if spec.is_empty() {
        return Ok(());
    }
    let key = heir.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    let version = heir.metadata.resource_version.as_deref().unwrap_or_default();
    write::patch(&api, &key.name, version, json!({ "spec": spec })).await?;
    Ok(())
}

/// Removes a row. One that is gone already is no mistake.
async fn take_away(ctx: &Context, row: &SnapshotView) -> Result<(), Error> {
    let key = row.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    ctx.leadership.guard()?;
    let version = row.metadata.resource_version.as_deref();
    write::delete(&api, &key.name, row.uid(), version, PropagationPolicy::Background).await?;
    Ok(())
}
