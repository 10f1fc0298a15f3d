//! What was let go while its data stayed: ConfigMaps in the operator's namespace (`docs/design.md` 3.7).
//!
//! **Promises.** It is written down before any finalizer goes, with the policy and the pin of its object and with the
//! SnapshotPolicy that was there, so that nobody who adopts it later makes it worth less. It is forgotten only when a
//! whole listing lacks it or a live object records it, and only as it was read: what is let go meanwhile stays.
//!
//! **Assumes.** One entry is about 200 bytes; each physical repository has sixteen maps, so that 80,000 fit.

use super::observe::Observed;
use crate::context::{Context, Error};
use crate::jobs::short_hash;
use crate::protect::catalog::due;
use crate::runtime::write::{self, WriteError};
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_api::shared::DeletionPolicy;
use holdfast_core::deletion::{Decision, OrphanReason, Plan, Policy, RetainReason, Verdict};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};

/// What is remembered of one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// What its object said about the data; stricter where a person or a void prune said so.
    pub policy: DeletionPolicy,
    /// It was pinned.
    #[serde(default)]
    pub pinned: bool,
    /// UID of the SnapshotPolicy that was there then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub under: Option<String>,
    /// UID of its object: what is let go a second time is another entry.
    pub of: String,
}

impl Entry {
    /// One that cannot be read keeps the most.
    fn read(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or(Self {
            policy: DeletionPolicy::Retain,
            pinned: true,
            under: None,
            of: String::new(),
        })
    }
}

/// Everything that is remembered of a physical repository.
#[derive(Debug, Default)]
pub struct LetGo {
    /// Of this repository; what is in the other maps may be of another one.
    maps: Vec<ConfigMap>,
    entries: HashMap<String, Entry>,
}

impl LetGo {
    /// Reads the maps of a physical repository.
    pub(in crate::protect) fn read(mut maps: Vec<ConfigMap>, unique_id: &str) -> Self {
        let of = |map: &ConfigMap| {
            map.metadata
                .labels
                .as_ref()?
                .get(names::KEPT_MEMORY_LABEL)
                .cloned()
        };
        let (own, unknown) = (short_hash(unique_id), short_hash(""));
        maps.retain(|map| of(map).is_some_and(|value| value == own || value == unknown));
        let data = maps.iter().filter_map(|map| map.data.as_ref()).flatten();
        let entries = data.map(|(id, text)| (id.clone(), Entry::read(text))).collect();
        maps.retain(|map| of(map).is_some_and(|value| value == own));
        Self { maps, entries }
    }

    /// What is remembered of a snapshot.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(data_key(id).as_str())
    }
}

fn api(ctx: &Context) -> Api<ConfigMap> {
    Api::namespaced(ctx.client.clone(), &ctx.settings.namespace)
}

/// The id as a key of a ConfigMap's data.
#[must_use]
pub fn data_key(id: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if !id.is_empty() && id.len() <= 253 && id.chars().all(fits) {
        return id.to_owned();
    }
    Sha256::digest(id).iter().map(|b| format!("{b:02x}")).collect()
}

/// The map that an entry belongs to.
fn map_name(unique_id: &str, key: &str) -> String {
    let shard = Sha256::digest(key).first().map_or(0, |byte| byte >> 4);
    format!("{}{}-{shard:x}", names::KEPT_MEMORY_PREFIX, short_hash(unique_id))
}

/// What is remembered of a physical repository, and of what recorded none.
///
/// # Errors
/// [`Error`].
pub async fn of(ctx: &Context, unique_id: &str) -> Result<LetGo, Error> {
    let ours = ListParams::default().labels(names::KEPT_MEMORY_LABEL);
    let maps = api(ctx).list(&ours).await?.items;
    Ok(LetGo::read(maps, unique_id))
}

/// Writes down what a plan lets go while its data stays.
///
/// # Errors
/// [`Error`].
pub async fn remember(ctx: &Context, observed: &Observed, plan: &Plan) -> Result<(), Error> {
    let mut maps: BTreeMap<String, (String, BTreeMap<String, String>)> = BTreeMap::new();
    for decision in plan.decisions.iter().filter(|d| due::keeps_data(d.verdict)) {
        let Some((view, id, entry)) = entry(ctx, observed, decision) else {
            continue;
        };
        let unique_id = view.pinned_unique_id().map(str::to_owned).or_else(|| {
            let repository = observed.repositories.get(decision.repository.as_ref()?)?;
            repository.unique_id().map(str::to_owned)
        });
        let unique_id = unique_id.unwrap_or_default();
        let text = serde_json::to_string(&entry).map_err(crate::jobs::build::BuildError::from)?;
        let (_, data) = maps
            .entry(map_name(&unique_id, &id))
            .or_insert_with(|| (unique_id, BTreeMap::new()));
        data.insert(id, text);
    }
    for (name, (unique_id, data)) in maps {
        put(ctx, &name, &unique_id, data).await?;
    }
    Ok(())
}

fn entry<'a>(
    ctx: &Context,
    observed: &'a Observed,
    decision: &Decision,
) -> Option<(&'a SnapshotView, String, Entry)> {
    let view = observed.views.get(&decision.uid)?;
    let facts = observed.member(&decision.uid)?;
    if view.is_discovered() {
        return None;
    }
    let under = view.policy().and_then(|key| ctx.world.policy(&key));
    let entry = Entry {
        policy: word(facts.policy, decision.verdict),
        pinned: view.spec.pin,
        under: under.and_then(|policy| policy.metadata.uid.clone()),
        of: view.uid().to_owned(),
    };
    Some((view, data_key(view.snapshot_id()?), entry))
}

/// Its own word, unless a person said that it stays, or nothing justified its prune.
fn word(policy: Policy, verdict: Verdict) -> DeletionPolicy {
    match verdict {
        Verdict::Orphan(OrphanReason::Skip) | Verdict::Retain(RetainReason::Unjustified) => {
            DeletionPolicy::Retain
        }
        Verdict::Orphan(_)
        | Verdict::Retain(_)
        | Verdict::InFlight
        | Verdict::Release(_)
        | Verdict::Wait(_)
        | Verdict::Held(_)
        | Verdict::Delete(_) => match policy {
            Policy::Delete => DeletionPolicy::Delete,
            Policy::Orphan => DeletionPolicy::Orphan,
            Policy::Retain | Policy::Unknown => DeletionPolicy::Retain,
        },
    }
}

async fn put(
    ctx: &Context,
    name: &str,
    unique_id: &str,
    data: BTreeMap<String, String>,
) -> Result<(), Error> {
    let patch = Patch::Merge(json!({ "data": data }));
    ctx.leadership.guard()?;
    match api(ctx).patch(name, &PatchParams::default(), &patch).await {
        Ok(_) => return Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => return Err(error.into()),
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": ctx.settings.namespace,
            "labels": {
                names::MANAGED_BY_LABEL: names::MANAGED_BY,
                names::KEPT_MEMORY_LABEL: short_hash(unique_id),
            },
        },
        "data": data,
    });
    let map: ConfigMap = serde_json::from_value(object).map_err(crate::jobs::build::BuildError::from)?;
    ctx.leadership.guard()?;
    // One that was made meanwhile is a conflict: the next pass writes into it.
    api(ctx).create(&PostParams::default(), &map).await?;
    Ok(())
}

/// Forgets what `is_over` says yes to, by the key of its id, as it was read; what was written meanwhile stays.
///
/// # Errors
/// [`Error`].
pub async fn forget(ctx: &Context, memory: &LetGo, is_over: impl Fn(&str) -> bool) -> Result<(), Error> {
    for map in &memory.maps {
        let keys = map.data.iter().flat_map(BTreeMap::keys);
        let over: BTreeMap<&String, Option<&str>> =
            keys.filter(|key| is_over(key)).map(|key| (key, None)).collect();
        if over.is_empty() {
            continue;
        }
        let name = map.metadata.name.as_deref().unwrap_or_default();
        let version = map.metadata.resource_version.as_deref().unwrap_or_default();
        ctx.leadership.guard()?;
        match write::patch(&api(ctx), name, version, json!({ "data": over })).await {
            // The next listing forgets it.
            Ok(_) | Err(WriteError::Conflict | WriteError::Gone) => {}
            Err(error @ WriteError::Api(_)) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_keeps_the_most() {
        let kept = Entry::read("{}");
        assert_eq!((kept.policy, kept.pinned), (DeletionPolicy::Retain, true));
        let entry = Entry {
            policy: DeletionPolicy::Orphan,
            pinned: false,
            under: Some("p".into()),
            of: "s".into(),
        };
        assert_eq!(Entry::read(&serde_json::to_string(&entry).unwrap()), entry);
    }

    #[test]
    fn every_id_has_a_key_that_a_configmap_takes() {
        assert_eq!(data_key("0a1b"), "0a1b");
        for odd in ["", "a/b", "ä", &"x".repeat(300)] {
            let key = data_key(odd);
            assert_eq!(key.len(), 64, "{odd}");
            assert!(key.chars().all(|c| c.is_ascii_hexdigit()));
        }
        let names: std::collections::BTreeSet<String> =
            (0..500).map(|n| map_name("id", &format!("{n:064x}"))).collect();
        assert_eq!(names.len(), 16);
    }

    #[test]
    fn who_was_told_to_stay_stays_whatever_its_policy_was() {
        let skip = Verdict::Orphan(OrphanReason::Skip);
        assert_eq!(word(Policy::Delete, skip), DeletionPolicy::Retain);
        let void = Verdict::Retain(RetainReason::Unjustified);
        assert_eq!(word(Policy::Delete, void), DeletionPolicy::Retain);
        let cascade = Verdict::Retain(RetainReason::ScheduleDelete);
        assert_eq!(word(Policy::Delete, cascade), DeletionPolicy::Delete);
        assert_eq!(word(Policy::Orphan, cascade), DeletionPolicy::Orphan);
        assert_eq!(word(Policy::Unknown, cascade), DeletionPolicy::Retain);
    }
}
