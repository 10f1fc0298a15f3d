//! What a Restore says about itself.

use super::observe::Facts;
use super::{job, source};
use crate::context::{Context, Error};
use crate::runtime::{diff, write};
use crate::world::keys::ObjectKey;
use holdfast_api::restore::{RestorePhase, RestoreStatus};
use holdfast_api::{Restore, conditions, names};
use holdfast_core::restore::{Means, Reason};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Api;
use kube::runtime::events::EventType;

/// Writes the status if it changes, against the judged resourceVersion. True when something was written.
pub async fn write(
    ctx: &Context,
    facts: &Facts,
    change: impl FnOnce(&mut RestoreStatus),
) -> Result<bool, Error> {
    let view = &facts.view;
    let before = view.status.clone().unwrap_or_default();
    let mut status = before.clone();
    status.source_kind = Some(source::kind(view).to_owned());
    change(&mut status);
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(false);
    };
    ctx.leadership.guard()?;
    let key = ObjectKey::of(view.as_ref());
    let api: Api<Restore> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    write::patch_status(&api, &key.name, version, patch).await?;
    Ok(true)
}

/// Sets phase and conditions for a reason.
pub fn say(status: &mut RestoreStatus, facts: &Facts, reason: Reason, message: &str, now: Timestamp) {
    let generation = facts.view.metadata.generation;
    let pinned = status.resolved.is_some();
    status.observed_generation = generation;
    status.phase = Some(match reason.means() {
        Means::Waits | Means::Runs if reason == Reason::Restoring || reason == Reason::WaitingForVolume => {
            RestorePhase::Restoring
        }
        Means::Runs => RestorePhase::Resolving,
        // A wait in the middle of things does not look like one before they began.
        Means::Waits if pinned && status.job.is_some() => RestorePhase::Restoring,
        Means::Waits => RestorePhase::Pending,
        Means::Done => RestorePhase::Completed,
        Means::Failed => RestorePhase::Failed,
    });
    let all = conditions::Kstatus {
        ready: reason.means() == Means::Done,
        reconciling: matches!(reason.means(), Means::Waits | Means::Runs),
        stalled: reason.means() == Means::Failed,
    };
    let list = &mut status.conditions;
    all.set(list, reason.as_str(), message, generation, now);
    let referent = match reason {
        Reason::SnapshotNotFound
        | Reason::PolicyNotFound
        | Reason::RepositoryNotFound
        | Reason::MissingCredentialsSecret
        | Reason::CredentialProjectionNotAllowed
        | Reason::ProjectedSecretTaken
        | Reason::MissingRepositoryClaim
        | Reason::MissingCaBundle
        | Reason::TargetNotFound
        | Reason::SnapshotMissing => Some(false),
        Reason::Resolving | Reason::Restoring | Reason::RestoreSucceeded => Some(true),
        Reason::SnapshotNotReady
        | Reason::PolicyInvalid
        | Reason::RepositoryNotReady
        | Reason::NamespaceNotAllowed
        | Reason::OtherCluster
        | Reason::OtherIdentity
        | Reason::PrivilegedMoverNotPermitted
        | Reason::WaitingForClaim
        | Reason::WaitingForConsumer
        | Reason::WaitingForVolume
        | Reason::BackendUnreachable
        | Reason::NoPlaceToRun
        | Reason::JobNameTaken
        | Reason::JobRefused
        | Reason::NoSnapshot
        | Reason::TargetAlreadyBound
        | Reason::InvalidSpec
        | Reason::AmbiguousIdentity
        | Reason::IdentityNotAllowed
        | Reason::TargetExists
        | Reason::TargetNotEmpty
        | Reason::TargetIsRepository
        | Reason::RepositoryReplaced
        | Reason::NotAllSet
        | Reason::RestoreFailed
        | Reason::PopulateHijacked => None,
    };
    let permitted = conditions::MOVER_PERMITTED;
    if reason == Reason::PrivilegedMoverNotPermitted {
        conditions::set(list, permitted, false, reason.as_str(), message, generation, now);
    } else if !job::is_privileged(&facts.view) {
        conditions::clear(list, permitted);
    } else if status.job.is_some() {
        let agreed = "The namespace agreed to privileged movers.";
        conditions::set(list, permitted, true, "Permitted", agreed, generation, now);
    }
    if let Some(there) = referent {
        let (word, sentence) = if there {
            ("Available", "Everything the restore names is there.")
        } else {
            (reason.as_str(), message)
        };
        let kind = conditions::RESTORE_REFERENT_AVAILABLE;
        conditions::set(list, kind, there, word, sentence, generation, now);
    }
}

/// An event on the Restore.
pub async fn event(ctx: &Context, facts: &Facts, kind: EventType, reason: &str, note: &str, action: &str) {
    let meta = &facts.view.metadata;
    let about = ObjectReference {
        api_version: Some(names::API_VERSION.to_owned()),
        kind: Some("Restore".to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
    };
    let _ = ctx.events.publish(&about, kind, reason, note, action).await;
}
