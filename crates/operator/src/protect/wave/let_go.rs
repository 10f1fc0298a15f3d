//! What was let go while its data stayed: ConfigMaps in the operator's namespace (`docs/design.md` 3.7).
//!
//! **Promises.** It is written down before any finalizer goes, with the policy and the pin of its object and with the
//! SnapshotPolicy that was there, so that nobody who adopts it later makes it worth less. It is forgotten only as [`kept::fate`]
//! says, and only as it was read: what is let go meanwhile stays. What cannot be written stops nobody: it is answered, and
//! the pass goes on.
//!
//! **Assumes.** One entry is about 250 bytes; each physical repository has sixteen maps of 800 KiB, and more when they are
//! full ([`super::kept_maps`]).

use super::kept::{self, Entry, Fate, LetGo, Seen, data_key, moment_of};
use super::kept_maps;
use super::member::few_at_once;
use super::observe::Observed;
use crate::context::{Context, Error};
use crate::jobs::short_hash;
use crate::runtime::write::{self, WriteError};
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_api::shared::DeletionPolicy;
use holdfast_core::deletion::{Decision, OrphanReason, Plan, Policy, RetainReason, Verdict};
use jiff::Timestamp;
use kube::api::ListParams;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

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
    let mut maps = Vec::new();
    for whose in [unique_id, ""] {
        let label = format!("{}={}", names::KEPT_MEMORY_LABEL, short_hash(whose));
        let those = ListParams::default().labels(&label);
        maps.extend(kept_maps::api(ctx).list(&those).await?.items);
    }
    Ok(LetGo::read(maps, unique_id))
}

/// What of a plan could not be written down.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// UIDs of those that the API server refuses, for good as far as one can tell.
    pub refused: BTreeSet<String>,
    /// UIDs of those that are tried again in a moment: they are not let go before.
    pub later: BTreeSet<String>,
    /// The maps that say the others, by the unique id of their repository.
    pub maps: BTreeMap<String, BTreeSet<String>>,
}

/// Whether its data stays while the object goes, so that its word is to be remembered. That its repository's object or the
/// whole interface is going does not matter: both may come back.
#[must_use]
pub fn remembers(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Retain(reason) => match reason {
            RetainReason::Policy
            | RetainReason::ScheduleDelete
            | RetainReason::PolicyDelete
            | RetainReason::Unjustified
            | RetainReason::ReplacedRun => true,
            // Another object records it, and says what becomes of it.
            RetainReason::SharedSnapshot => false,
        },
        Verdict::Orphan(reason) => match reason {
            OrphanReason::Skip
            | OrphanReason::NamespaceTerminating
            | OrphanReason::NoPlaceToRun
            | OrphanReason::Policy
            | OrphanReason::ApiGoingAway
            | OrphanReason::RepositoryUnknown => true,
        },
        Verdict::InFlight
        | Verdict::Release(_)
        | Verdict::Wait(_)
        | Verdict::Held(_)
        | Verdict::Delete(_) => false,
    }
}

/// The entries of one map and of those that follow it.
#[derive(Default)]
struct Shard {
    unique_id: String,
    entries: BTreeMap<String, Entry>,
    uids: BTreeSet<String>,
}

/// Writes down what a plan lets go while its data stays; answers what could not be.
///
/// # Errors
/// [`Error::NotLeader`] alone: whatever else goes wrong with it keeps nothing of the lane waiting.
pub async fn remember(ctx: &Context, observed: &Observed, plan: &Plan) -> Result<Missed, Error> {
    let mut shards: BTreeMap<String, Shard> = BTreeMap::new();
    for decision in plan.decisions.iter().filter(|d| remembers(d.verdict)) {
        let Some((view, id, entry)) = entry(ctx, observed, decision) else {
            continue;
        };
        let unique_id = view.pinned_unique_id().map(str::to_owned).or_else(|| {
            let repository = observed.repositories.get(decision.repository.as_ref()?)?;
            repository.unique_id().map(str::to_owned)
        });
        let unique_id = unique_id.unwrap_or_default();
        let shard = shards.entry(map_name(&unique_id, &id)).or_default();
        shard.unique_id = unique_id;
        shard.uids.insert(decision.uid.clone());
        let entry = match shard.entries.remove(&id) {
            None => entry,
            Some(other) => other.with(entry),
        };
        shard.entries.insert(id, entry);
    }
    let write = |(name, shard): (String, Shard)| async move {
        let done = kept_maps::put(ctx, &name, &shard.unique_id, &shard.entries).await;
        (shard, done)
    };
    let mut missed = Missed::default();
    for (shard, done) in few_at_once(shards.into_iter().map(write).collect()).await {
        let uids = shard.uids;
        let error = match done {
            Ok(names) => {
                missed.maps.entry(shard.unique_id).or_default().extend(names);
                continue;
            }
            Err(error) => error,
        };
        tracing::warn!(members = uids.len(), %error, "what is let go cannot be remembered; the lane goes on");
        match error {
            Error::NotLeader => return Err(Error::NotLeader),
            error if error.is_refusal() => missed.refused.extend(uids),
            Error::Conflict | Error::Api(_) | Error::Build(_) => missed.later.extend(uids),
        }
    }
    Ok(missed)
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
    let deleted = view.metadata.deletion_timestamp.as_ref();
    let under = view
        .policy()
        .and_then(|key| ctx.world.policy(&key))
        .filter(|policy| {
            // One that was made since is another one: nothing was let go under it.
            let made = policy.metadata.creation_timestamp.as_ref();
            made.zip(deleted)
                .is_none_or(|(made, deleted)| made.0 <= deleted.0)
        });
    let entry = Entry {
        policy: word(facts.policy, decision.verdict),
        pinned: view.spec.pin,
        under: under.and_then(|policy| policy.metadata.uid.clone()),
        of: view.uid().to_owned(),
        at: Some(ctx.clock.now()),
        taken: moment_of(view),
        missing_since: None,
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

/// Forgets of what is remembered what [`kept::fate`] says after the listing that began then, as it was read; what was written
/// meanwhile stays.
///
/// # Errors
/// [`Error`].
pub async fn forget(
    ctx: &Context,
    memory: &LetGo,
    began: Timestamp,
    listed: &Seen,
    recorded: &Seen,
) -> Result<(), Error> {
    // Of what is of no repository that is known only a live object's word counts, never that it is not listed here.
    let elsewhere = Seen::elsewhere(&memory.unknown);
    let own = memory.maps.iter().map(|map| (map, listed));
    let unknown = memory.unknown.iter().map(|map| (map, &elsewhere));
    for (map, listed) in own.chain(unknown) {
        let mut changes: BTreeMap<&String, Option<String>> = BTreeMap::new();
        for (key, text) in map.data.iter().flatten() {
            match kept::fate(key, &Entry::read(text), listed, recorded, began) {
                Fate::Stays => {}
                Fate::Goes => _ = changes.insert(key, None),
                Fate::Says(entry) => {
                    let text = serde_json::to_string(&entry).map_err(crate::jobs::build::BuildError::from)?;
                    changes.insert(key, Some(text));
                }
            }
        }
        if changes.is_empty() {
            continue;
        }
        let name = map.metadata.name.as_deref().unwrap_or_default();
        let version = map.metadata.resource_version.as_deref().unwrap_or_default();
        ctx.leadership.guard()?;
        match write::patch(&kept_maps::api(ctx), name, version, json!({ "data": changes })).await {
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
    fn whatever_leaves_data_behind_is_remembered() {
        for reason in RetainReason::ALL {
            let expected = *reason != RetainReason::SharedSnapshot;
            assert_eq!(remembers(Verdict::Retain(*reason)), expected, "{reason:?}");
        }
        for reason in OrphanReason::ALL {
            assert!(remembers(Verdict::Orphan(*reason)), "{reason:?}");
        }
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
