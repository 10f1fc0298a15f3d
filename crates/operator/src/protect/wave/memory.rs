//! The day's memory of what was deleted: one ConfigMap for each batch in the operator's namespace
//! (`docs/design.md` 3.6). The catalog makes no row of what is in it and may just have been deleted.
//!
//! A sliding window counts what is in it.
//!
//! **Promises.** It is written before the Job is created, and kept for 24 hours.

use crate::context::{Context, Error};
use crate::jobs::{name_repository, short_hash};
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::names;
use holdfast_core::deletion::names::repository_label;
use holdfast_core::deletion::{DeleteReason, Fired};
use holdfast_protocol::work::BatchMember;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// How long it is kept.
const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Longer than a batch takes (10 min and 1 s for each of 200 members).
const LONGEST: SignedDuration = SignedDuration::from_mins(20);

/// Writes the memory of one batch, and drops what is older than a day.
///
/// # Errors
/// [`Error`].
pub async fn write(
    ctx: &Context,
    repository: &RepositoryView,
    job: &ObjectKey,
    members: &[(BatchMember, Arc<SnapshotView>)],
    why: impl Fn(&str) -> Option<DeleteReason>,
    now: Timestamp,
) -> Result<(), Error> {
    let data = data(repository, job, members, why, now);
    let name = format!("{}{}", names::BATCH_MEMORY_PREFIX, short_hash(&job.to_string()));
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": ctx.settings.namespace,
            "labels": {
                names::MANAGED_BY_LABEL: names::MANAGED_BY,
                names::BATCH_MEMORY_LABEL: repository_label(&repository.key),
            },
            "annotations": { names::WRITTEN_AT: now.to_string() },
        },
        "data": data,
    });
    let map: ConfigMap = serde_json::from_value(object).map_err(crate::jobs::build::BuildError::from)?;
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    ctx.leadership.guard()?;
    match api.create(&PostParams::default(), &map).await {
        Ok(_) => {}
        // The same set was tried before: what it is now counts.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let written = json!({ "annotations": { names::WRITTEN_AT: now.to_string() } });
            let patch = Patch::Merge(json!({ "metadata": written, "data": data }));
            api.patch(&name, &PatchParams::default(), &patch).await?;
        }
        Err(error) => return Err(error.into()),
    }
    forget(ctx, now).await
}

fn data(
    repository: &RepositoryView,
    job: &ObjectKey,
    members: &[(BatchMember, Arc<SnapshotView>)],
    why: impl Fn(&str) -> Option<DeleteReason>,
    now: Timestamp,
) -> Value {
    let rows: Vec<Value> = members
        .iter()
        .map(|(member, view)| {
            let key = view.key();
            json!({
                "uid": member.uid,
                "namespace": key.namespace,
                "name": key.name,
                "snapshot": member.snapshot_id,
                "source": member.source,
                "startTime": member.start_time,
                "why": why(&member.uid).map(DeleteReason::reason),
            })
        })
        .collect();
    json!({
        "job": job.to_string(),
        "repository": name_repository(&repository.key),
        "uniqueId": repository.unique_id().unwrap_or_default(),
        "writtenAt": now.to_string(),
        "members": Value::from(rows).to_string(),
    })
}

/// Ids that a batch on this physical repository may have deleted since `since`.
///
/// # Errors
/// [`Error`].
pub async fn touched(ctx: &Context, unique_id: &str, since: Timestamp) -> Result<HashSet<String>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let ours = ListParams::default().labels(names::BATCH_MEMORY_LABEL);
    let mut ids = HashSet::new();
    for map in api.list(&ours).await?.items {
        ids.extend(recent(&map, unique_id, since));
    }
    Ok(ids)
}

/// External deletions that batches on this physical repository fired lately without an acknowledgement, each once. What
/// does not say why it was deleted counts.
///
/// # Errors
/// [`Error`].
pub async fn fired(ctx: &Context, unique_id: &str) -> Result<Vec<Fired>, Error> {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let ours = ListParams::default().labels(names::BATCH_MEMORY_LABEL);
    let mut newest: BTreeMap<String, Timestamp> = BTreeMap::new();
    for map in api.list(&ours).await?.items {
        for one in external(&map, unique_id) {
            let at = newest.entry(one.uid).or_insert(one.at);
            *at = one.at.max(*at);
        }
    }
    Ok(newest.into_iter().map(|(uid, at)| Fired { uid, at }).collect())
}

fn external(map: &ConfigMap, unique_id: &str) -> Vec<Fired> {
    let of = |key: &str| map.data.as_ref().and_then(|d| d.get(key)).map(String::as_str);
    let Some(at) = of("writtenAt").and_then(|t| t.parse().ok()) else {
        return Vec::new();
    };
    if of("uniqueId") != Some(unique_id) {
        return Vec::new();
    }
    let members: Vec<Value> = of("members")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let exempt = [DeleteReason::OwnPrune, DeleteReason::Acknowledged].map(DeleteReason::reason);
    members
        .iter()
        .filter(|m| !m["why"].as_str().is_some_and(|why| exempt.contains(&why)))
        .filter_map(|m| {
            let uid = m.get("uid")?.as_str()?.to_owned();
            Some(Fired { uid, at })
        })
        .collect()
}

fn recent(map: &ConfigMap, unique_id: &str, since: Timestamp) -> Vec<String> {
    let of = |key: &str| map.data.as_ref().and_then(|d| d.get(key)).map(String::as_str);
    let written: Option<Timestamp> = of("writtenAt").and_then(|t| t.parse().ok());
    let old = written.is_some_and(|at| at < since.saturating_sub(LONGEST).unwrap_or(since));
    if of("uniqueId") != Some(unique_id) || old {
        return Vec::new();
    }
    let members: Vec<Value> = of("members")
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    members
        .iter()
        .filter_map(|m| Some(m.get("snapshot")?.as_str()?.to_owned()))
        .collect()
}

async fn forget(ctx: &Context, now: Timestamp) -> Result<(), Error> {
    let api: Api<PartialObjectMeta<ConfigMap>> = Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let ours = ListParams::default().labels(names::BATCH_MEMORY_LABEL);
    for map in api.list(&ours).await?.items {
        let meta = map.metadata;
        let written = meta.annotations.as_ref().and_then(|a| a.get(names::WRITTEN_AT));
        let written = written.and_then(|text| text.parse().ok());
        let old = written
            .or(meta.creation_timestamp.as_ref().map(|t| t.0))
            .is_some_and(|at| now.duration_since(at) > KEPT);
        let (Some(name), Some(uid), true) = (meta.name, meta.uid, old) else {
            continue;
        };
        ctx.leadership.guard()?;
        match write::delete(&api, &name, &uid, None, PropagationPolicy::Background).await {
            Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => {}
            Err(error @ WriteError::Api(_)) => return Err(error.into()),
        }
    }
    Ok(())
}
