//! The day's memory of what was deleted: one ConfigMap for each batch in the operator's namespace
//! (`docs/design.md` 3.6), and one for each repository with what came back. The catalog makes no row of what is in it.
//!
//! A sliding window counts what is in it.
//!
//! **Promises.** A batch is written down before its Job is created, what it proved gone before any finalizer goes, what
//! came back before anything is decided about it. All of it is kept for 24 hours.

use crate::context::{Context, Error};
use crate::jobs::{name_repository, short_hash};
use crate::runtime::write::{self, WriteError};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_api::names;
use holdfast_core::deletion::names::repository_label;
use holdfast_core::deletion::{DeleteReason, Fired};
use holdfast_protocol::work::{BatchMember, Source};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::PartialObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// How long it is kept.
pub const KEPT: SignedDuration = SignedDuration::from_hours(24);
/// Longer than a batch takes (10 min and 1 s for each of 200 members).
const LONGEST: SignedDuration = SignedDuration::from_mins(20);
/// Most rows of what came back: a ConfigMap takes 1 MiB. The next look finds the others.
const MOST_ROWS: usize = 2_000;

/// One member of a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// UID of the Snapshot object.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Id of the snapshot.
    pub snapshot: String,
    /// What the object recorded about its source.
    pub source: Source,
    /// And about its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Timestamp>,
    /// Why it was deleted: the decision's one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl Row {
    /// As the mover is told.
    #[must_use]
    pub fn member(&self) -> BatchMember {
        BatchMember {
            uid: self.uid.clone(),
            snapshot_id: self.snapshot.clone(),
            source: self.source.clone(),
            start_time: self.start_time,
            justified_by: None,
            // It was proven gone from there.
            seen_here: true,
        }
    }
}

/// What one ConfigMap says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Memory {
    /// The repository object, as [`name_repository`] writes it.
    pub repository: String,
    /// Unique id of the physical repository.
    pub unique_id: String,
    /// When it was written.
    pub written_at: Option<Timestamp>,
    /// Its members.
    pub members: Vec<Row>,
    /// When a Job proved some of them gone.
    pub confirmed_at: Option<Timestamp>,
    /// UIDs of those.
    pub confirmed: BTreeSet<String>,
    /// UIDs of the Jobs of writers that still ran then; only where the engine minds.
    pub beside: BTreeSet<String>,
    /// It is not of a batch, but names what came back.
    pub came_back: bool,
}

impl Memory {
    fn read(map: &ConfigMap) -> Self {
        let of = |key: &str| map.data.as_ref().and_then(|d| d.get(key)).map(String::as_str);
        let list = |key: &str| of(key).unwrap_or_default();
        let uids = |key| {
            list(key)
                .split(',')
                .filter(|uid| !uid.is_empty())
                .map(str::to_owned)
                .collect()
        };
        Self {
            repository: list("repository").to_owned(),
            unique_id: list("uniqueId").to_owned(),
            written_at: of("writtenAt").and_then(|t| t.parse().ok()),
            members: serde_json::from_str(list("members")).unwrap_or_default(),
            confirmed_at: of("confirmedAt").and_then(|t| t.parse().ok()),
            confirmed: uids("confirmed"),
            beside: uids("beside"),
            came_back: map
                .metadata
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with(names::REAPPEARED_PREFIX)),
        }
    }

    /// The members that were proven gone.
    pub fn gone(&self) -> impl Iterator<Item = &Row> {
        self.members
            .iter()
            .filter(|row| self.confirmed.contains(&row.uid))
    }

    /// Ids that its batch may have deleted since `since`.
    fn recent(&self, since: Timestamp) -> impl Iterator<Item = &Row> {
        let longest = since.saturating_sub(LONGEST).unwrap_or(since);
        let old = self.came_back || self.written_at.is_some_and(|at| at < longest);
        self.members.iter().filter(move |_| !old)
    }
}

fn api(ctx: &Context) -> Api<ConfigMap> {
    Api::namespaced(ctx.client.clone(), &ctx.settings.namespace)
}

fn name(job: &ObjectKey) -> String {
    format!("{}{}", names::BATCH_MEMORY_PREFIX, short_hash(&job.to_string()))
}

/// Writes the memory of one batch, and drops what is older than a day.
///
/// # Errors
/// [`Error`].
pub async fn write(
    ctx: &Context,
    repository: &RepositoryView,
    job: &ObjectKey,
    members: &[Row],
    now: Timestamp,
) -> Result<(), Error> {
    let mut data = data(repository, members, now)?;
    data["job"] = json!(job.to_string());
    put(ctx, &name(job), &repository.key, data, now).await?;
    forget(ctx, now).await
}

fn data(repository: &RepositoryView, members: &[Row], now: Timestamp) -> Result<Value, Error> {
    let members = serde_json::to_string(members).map_err(crate::jobs::build::BuildError::from)?;
    Ok(json!({
        "repository": name_repository(&repository.key),
        "uniqueId": repository.unique_id().unwrap_or_default(),
        "writtenAt": now.to_string(),
        "members": members,
        // Of an earlier Job of the same name.
        "confirmed": null,
        "confirmedAt": null,
        "beside": null,
    }))
}

async fn put(
    ctx: &Context,
    name: &str,
    repository: &RepositoryKey,
    mut data: Value,
    now: Timestamp,
) -> Result<(), Error> {
    let written = json!({ "annotations": { names::WRITTEN_AT: now.to_string() } });
    let patch = Patch::Merge(json!({ "metadata": written, "data": data }));
    if let Some(map) = data.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": ctx.settings.namespace,
            "labels": {
                names::MANAGED_BY_LABEL: names::MANAGED_BY,
                names::BATCH_MEMORY_LABEL: repository_label(repository),
            },
            "annotations": { names::WRITTEN_AT: now.to_string() },
        },
        "data": data,
    });
    let map: ConfigMap = serde_json::from_value(object).map_err(crate::jobs::build::BuildError::from)?;
    ctx.leadership.guard()?;
    match api(ctx).create(&PostParams::default(), &map).await {
        Ok(_) => {}
        // The same was written before: what it is now counts.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            api(ctx).patch(name, &PatchParams::default(), &patch).await?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Writes down which members of a batch were proven gone and which writers still run beside it, once. Answers with their
/// rows; none when nobody remembers the batch.
///
/// # Errors
/// [`Error`].
pub async fn confirm(
    ctx: &Context,
    job: &ObjectKey,
    uids: &BTreeSet<&str>,
    beside: &[String],
    now: Timestamp,
) -> Result<Vec<Row>, Error> {
    let name = name(job);
    let Some(map) = api(ctx).get_opt(&name).await? else {
        return Ok(Vec::new());
    };
    let memory = Memory::read(&map);
    if memory.confirmed_at.is_none() && !uids.is_empty() {
        let confirmed: Vec<&str> = uids.iter().copied().collect();
        let mut data = json!({ "confirmed": confirmed.join(","), "confirmedAt": now.to_string() });
        if !beside.is_empty() {
            data["beside"] = json!(beside.join(","));
        }
        ctx.leadership.guard()?;
        let patch = Patch::Merge(json!({ "data": data }));
        api(ctx).patch(&name, &PatchParams::default(), &patch).await?;
    }
    let rows = memory.members.into_iter();
    Ok(rows.filter(|row| uids.contains(row.uid.as_str())).collect())
}

/// What is remembered of a physical repository.
///
/// # Errors
/// [`Error`].
pub async fn of(ctx: &Context, unique_id: &str) -> Result<Vec<Memory>, Error> {
    let ours = ListParams::default().labels(names::BATCH_MEMORY_LABEL);
    let list = api(ctx).list(&ours).await?;
    let all = list.items.iter().map(Memory::read);
    Ok(all.filter(|memory| memory.unique_id == unique_id).collect())
}

/// External deletions that batches on this physical repository fired lately without an acknowledgement, each once. What
/// does not say why it was deleted counts.
#[must_use]
pub fn fired(memories: &[Memory]) -> Vec<Fired> {
    let exempt = [DeleteReason::OwnPrune, DeleteReason::Acknowledged].map(DeleteReason::reason);
    let mut newest: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for memory in memories.iter().filter(|memory| !memory.came_back) {
        let Some(written) = memory.written_at else {
            continue;
        };
        let counted = memory.members.iter();
        for row in counted.filter(|row| !row.why.as_deref().is_some_and(|why| exempt.contains(&why))) {
            let at = newest.entry(&row.uid).or_insert(written);
            *at = written.max(*at);
        }
    }
    newest
        .into_iter()
        .map(|(uid, at)| Fired {
            uid: uid.to_owned(),
            at,
        })
        .collect()
}

/// Ids that a batch may have deleted since `since`: whether a listing that began then has them says nothing.
#[must_use]
pub fn touched(memories: &[Memory], since: Timestamp) -> HashSet<String> {
    let rows = memories.iter().flat_map(|memory| memory.recent(since));
    rows.map(|row| row.snapshot.clone()).collect()
}

/// Ids that were proven gone, or came back: decided here, and no rows of the catalog.
#[must_use]
pub fn watched(memories: &[Memory]) -> HashSet<String> {
    let rows = memories.iter().flat_map(|memory| {
        let all = memory.members.iter().filter(|_| memory.came_back);
        all.chain(memory.gone())
    });
    rows.map(|row| row.snapshot.clone()).collect()
}

fn came_back_name(repository: &RepositoryKey) -> String {
    let hash = short_hash(&name_repository(repository));
    format!("{}{hash}", names::REAPPEARED_PREFIX)
}

/// What came back to the repository of this object; `None`: nobody remembers.
///
/// # Errors
/// [`Error`].
pub async fn came_back(ctx: &Context, repository: &RepositoryKey) -> Result<Option<Memory>, Error> {
    let found = api(ctx).get_opt(&came_back_name(repository)).await?;
    Ok(found.as_ref().map(Memory::read))
}

/// Writes down what came back; nothing: forgets it.
///
/// # Errors
/// [`Error`].
pub async fn set_came_back(
    ctx: &Context,
    repository: &RepositoryView,
    rows: &[Row],
    now: Timestamp,
) -> Result<(), Error> {
    let name = came_back_name(&repository.key);
    if rows.is_empty() {
        ctx.leadership.guard()?;
        return match api(ctx).get_opt(&name).await? {
            Some(map) => drop_map(ctx, &name, &map.metadata.uid.unwrap_or_default()).await,
            None => Ok(()),
        };
    }
    let data = data(repository, &rows[..rows.len().min(MOST_ROWS)], now)?;
    put(ctx, &name, &repository.key, data, now).await
}

async fn drop_map(ctx: &Context, name: &str, uid: &str) -> Result<(), Error> {
    ctx.leadership.guard()?;
    match write::delete(&api(ctx), name, uid, None, PropagationPolicy::Background).await {
        Ok(()) | Err(WriteError::Conflict | WriteError::Gone) => Ok(()),
        Err(error @ WriteError::Api(_)) => Err(error.into()),
    }
}

/// Drops what is older than a day.
///
/// # Errors
/// [`Error`].
pub async fn forget(ctx: &Context, now: Timestamp) -> Result<(), Error> {
    let maps: Api<PartialObjectMeta<ConfigMap>> =
        Api::namespaced(ctx.client.clone(), &ctx.settings.namespace);
    let ours = ListParams::default().labels(names::BATCH_MEMORY_LABEL);
    for map in maps.list(&ours).await?.items {
        let meta = map.metadata;
        let written = meta.annotations.as_ref().and_then(|a| a.get(names::WRITTEN_AT));
        let written = written.and_then(|text| text.parse().ok());
        let old = written
            .or(meta.creation_timestamp.as_ref().map(|t| t.0))
            .is_some_and(|at| now.duration_since(at) > KEPT);
        if let (Some(name), Some(uid), true) = (meta.name, meta.uid, old) {
            drop_map(ctx, &name, &uid).await?;
        }
    }
    Ok(())
}
