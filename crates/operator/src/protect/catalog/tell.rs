//! What adoption comes to is told on the policies.
//!
//! **Promises.** Nothing is written or told that was said before: a scan that changes nothing leaves policies alone.

use super::adopt::{Held, Told};
use crate::context::{Context, Error};
use crate::runtime::diff;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use holdfast_api::policy::SnapshotPolicyStatus;
use holdfast_api::{SnapshotPolicy, conditions};
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::events::EventType;
use std::collections::BTreeMap;

/// How often a status is tried when others write to it.
const ATTEMPTS: usize = 10;

/// Tells the policies, and answers how each took it; `adopted` is how many Snapshots each was given.
pub async fn tell(
    ctx: &Context,
    told: &[Told],
    adopted: &BTreeMap<ObjectKey, usize>,
) -> Vec<Result<(), Error>> {
    let mut outcomes = Vec::new();
    for one in told {
        let key = ObjectKey::of(one.policy.as_ref());
        if let Some(count) = adopted.get(&key) {
            let note = format!(
                "{count} snapshots that belonged to no object, and are of exactly what this policy backs up, are Snapshots of it now."
            );
            event(ctx, &one.policy, "SnapshotsAdopted", &note, "ReviewAdoption").await;
        }
        outcomes.push(record(ctx, &key, one).await);
    }
    outcomes
}

async fn event(ctx: &Context, policy: &SnapshotPolicy, reason: &str, note: &str, action: &str) {
    ctx.event_policy(policy, EventType::Normal, reason, note, action)
        .await;
}

async fn record(ctx: &Context, key: &ObjectKey, told: &Told) -> Result<(), Error> {
    let now = ctx.clock.now();
    let known = told.policy.status.clone().unwrap_or_default();
    if diff::merge_patch(&known, &said(known.clone(), told, now)).is_none() {
        return Ok(());
    }
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    for _ in 0..ATTEMPTS {
        let live = api.get_opt(&key.name).await?;
        let Some(live) = live.filter(|live| live.metadata.uid == told.policy.metadata.uid) else {
            return Ok(());
        };
        let before = live.status.clone().unwrap_or_default();
        let after = said(before.clone(), told, now);
        let Some(patch) = diff::merge_patch(&before, &after) else {
            return Ok(());
        };
        ctx.leadership.guard()?;
        let version = live.metadata.resource_version.as_deref().unwrap_or_default();
        match write::patch_status(&api, &key.name, version, patch).await {
            Ok(_) => {
                news(ctx, &live, &before, &after).await;
                return Ok(());
            }
            Err(WriteError::Conflict) => {}
            Err(WriteError::Gone) => return Ok(()),
            Err(error @ WriteError::Api(_)) => return Err(error.into()),
        }
    }
    Err(Error::Conflict)
}

/// The status that says it: pure.
#[must_use]
pub fn said(mut status: SnapshotPolicyStatus, told: &Told, now: Timestamp) -> SnapshotPolicyStatus {
    let skipped = i64::try_from(told.skipped).ok().filter(|n| *n > 0);
    if skipped.is_some() || status.adoption.is_some() {
        status.adoption.get_or_insert_default().skipped_by_retention = skipped;
    }
    if let Some(adoption) = &mut status.adoption {
        // Nothing of it is missing any more.
        adoption.partial &= told.taken > 0;
    }
    let generation = told.policy.metadata.generation;
    let list = &mut status.conditions;
    let kind = conditions::ADOPTION_CONTESTED;
    if !told.contested_with.is_empty() {
        let others: Vec<&str> = told.contested_with.iter().map(String::as_str).collect();
        let message = format!(
            "The repository has snapshots that belong to no object and are of exactly what this policy backs up, but also of what {} backs up: neither adopts them. Set spec.adoption: Ignore on all of them but one.",
            others.join(", ")
        );
        conditions::set(list, kind, true, "IdentityShared", &message, generation, now);
    } else if conditions::is_true(list, kind) {
        let message = "No other policy claims what this one could adopt.";
        conditions::set(list, kind, false, "NotContested", message, generation, now);
    }
    let kind = conditions::ADOPTION_HELD;
    if let Some(held) = &told.held {
        let (reason, message) = why(held);
        conditions::set(list, kind, true, reason, &message, generation, now);
    } else if conditions::is_true(list, kind) {
        let message = "Nothing keeps this policy from adopting what is its.";
        conditions::set(list, kind, false, "NotHeld", message, generation, now);
    }
    status
}

/// The word and the sentence.
fn why(held: &Held) -> (&'static str, String) {
    match held {
        Held::MemoryIncomplete => (
            conditions::KEPT_MEMORY_INCOMPLETE,
            "Nothing is adopted: of what was let go in this repository not everything is remembered. See this condition on the repository.".to_owned(),
        ),
        Held::NoStatus(key, _) => (
            conditions::STATUS_LOST,
            format!("Nothing is adopted: Snapshot {key} has no status, so that nobody knows which snapshot is its, and what it says of it (deletion policy, pin) would be lost. Restore its status, or delete it with the annotation skip-snapshot-cleanup, and ask the repository for a scan."),
        ),
        Held::Renamed(key) => (
            "SnapshotNotIdentified",
            format!("Nothing is adopted: Snapshot {key} records a snapshot that is not in the repository under that id, and not when it was begun, so that what is found may be the same one under another id. Delete it if its snapshot is gone, and ask the repository for a scan."),
        ),
    }
}

/// Told once for each transition.
async fn news(
    ctx: &Context,
    policy: &SnapshotPolicy,
    before: &SnapshotPolicyStatus,
    after: &SnapshotPolicyStatus,
) {
    let skipped = |status: &SnapshotPolicyStatus| {
        let adoption = status.adoption.as_ref();
        adoption.and_then(|adoption| adoption.skipped_by_retention)
    };
    if let (None, Some(count)) = (skipped(before), skipped(after)) {
        let note = format!(
            "{count} snapshots that belong to no object are not adopted: retention would let them go at once, and their data would stay."
        );
        event(
            ctx,
            policy,
            "AdoptionSkippedByRetention",
            &note,
            "ReviewRetention",
        )
        .await;
    }
    for (kind, action) in [
        (conditions::ADOPTION_CONTESTED, "ReviewAdoption"),
        (conditions::ADOPTION_HELD, "ReviewSnapshots"),
    ] {
        let before = conditions::is_true(&before.conditions, kind);
        if let Some(now) = conditions::get(&after.conditions, kind)
            && !before
            && now.status == "True"
        {
            ctx.warn_policy(policy, kind, &now.message, action).await;
        }
    }
}
