//! What the decision on a Snapshot rests on. Reads live only for a run that is about to start or under way.

use crate::context::{Context, Error};
use crate::jobs::create::{SecretFact, claim_exists, secret};
use crate::jobs::needs::{self, Needs, Unmet};
use crate::jobs::outcome::{JobFact, backup_fact};
use crate::jobs::privileged;
use crate::jobs::projection::{self, Consent};
use crate::protect::policy;
use crate::protect::schedule::child_name;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::mover::MoverSpec;
use holdfast_api::repository::RepositoryPhase;
use holdfast_api::shared::Origin;
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{SnapshotPolicy, names};
use holdfast_core::identity::Named;
use holdfast_core::retention::again::{self, Pruned};
use jiff::Timestamp;
use kube::api::Api;
use std::sync::Arc;

/// Facts about one Snapshot.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The object.
    pub view: Arc<SnapshotView>,
    /// Where it comes from by its label; a person's when there is none.
    pub origin: Origin,
    /// The schedule is about to write its first status: the slot it recorded has this name.
    pub schedule_will_complete: bool,
    /// Retention pruned one of this name at this time, and this one was made after it by something else than a schedule.
    pub made_again: Option<Timestamp>,
    /// What a run needs; only gathered for phases that run.
    pub run: Option<Run>,
    /// The mover Job, when the status names one.
    pub job: Option<JobFact>,
}

/// What a run needs, in the order in which it is asked for.
#[derive(Debug, Clone)]
pub enum Run {
    /// Something is missing or not allowed.
    Blocked(Blocked),
    /// Everything is there.
    Possible(Box<Possible>),
}

/// Why a run does not start; the word is the reason of its conditions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// The Snapshot's spec is refused.
    InvalidSpec(String),
    /// No `policyRef`.
    NoPolicy,
    /// The policy does not exist.
    PolicyNotFound(ObjectKey),
    /// The policy is refused.
    PolicyInvalid(ObjectKey, String),
    /// The policy is suspended.
    PolicySuspended(ObjectKey),
    /// The policy is being deleted.
    PolicyDeleting(ObjectKey),
    /// The repository object does not exist.
    RepositoryNotFound(String),
    /// The namespace may not use it.
    NamespaceNotAllowed(RepositoryKey),
    /// The policy asks for a privileged mover, and the namespace did not agree.
    PrivilegedMoverNotPermitted(ObjectKey),
    /// It is not ready.
    RepositoryNotReady(RepositoryKey),
    /// The policy has no identity to record snapshots under.
    NoIdentity(ObjectKey, policy::identity::Refused),
    /// A copy of the credentials is asked for, and not everybody consents.
    NoConsent(String),
    /// The password Secret is not where the mover runs.
    MissingCredentialsSecret(String),
    /// A claim is not there.
    SourcePvcMissing(String),
    /// What the repository is reached with is not where the mover runs.
    MissingForBackend(Unmet),
}

/// Everything a run is made of.
#[derive(Debug, Clone)]
pub struct Possible {
    /// The whole object, read live.
    pub snapshot: Snapshot,
    /// The policy.
    pub policy: Arc<SnapshotPolicy>,
    /// The repository.
    pub repository: Arc<RepositoryView>,
    /// The source claim.
    pub claim: String,
    /// Who the snapshot is of.
    pub identity: Named,
    /// The mover reads a copy of the credentials.
    pub projects: bool,
    /// The mover is a privileged one, to which the namespace agreed.
    pub privileged: bool,
}

/// Gathers the facts.
pub async fn facts(ctx: &Context, view: Arc<SnapshotView>) -> Result<Facts, Error> {
    let origin = view
        .label(names::ORIGIN_LABEL)
        .map_or(Origin::Manual, Origin::parse);
    let runs = match view.phase() {
        Some(SnapshotPhase::Pending | SnapshotPhase::Running) => true,
        Some(
            SnapshotPhase::Succeeded
            | SnapshotPhase::Failed
            | SnapshotPhase::Deleting
            | SnapshotPhase::Discovered
            | SnapshotPhase::Unchanged
            | SnapshotPhase::Unknown,
        )
        | None => false,
    };
    let job = if runs {
        backup_fact(ctx, &view).await?
    } else {
        None
    };
    let run = if runs && job.is_none() && view.has_finalizer() {
        Some(run(ctx, &view).await?)
    } else {
        None
    };
    let schedule_will_complete = schedule_will_complete(ctx, &view);
    let made_again = made_again(ctx, &view);
    Ok(Facts {
        view,
        origin,
        schedule_will_complete,
        made_again,
        run,
        job,
    })
}

fn made_again(ctx: &Context, view: &SnapshotView) -> Option<Timestamp> {
    let policy = ctx.world.policy(&view.policy()?)?;
    let retention = policy.status.as_ref()?.retention.as_ref()?;
    let pruned: Vec<Pruned> = retention
        .pruned_names
        .iter()
        .map(|one| Pruned {
            name: one.name.clone(),
            at: one.at,
        })
        .collect();
    let created_at = view.metadata.creation_timestamp.as_ref()?.0;
    again::made_again(&pruned, view.metadata.name.as_deref()?, created_at)
}

fn schedule_will_complete(ctx: &Context, view: &SnapshotView) -> bool {
    let Some((uid, name)) = view.schedule_owner() else {
        return false;
    };
    let key = view.key();
    let Some(schedule) = ctx.world.schedule(&ObjectKey::new(&key.namespace, name)) else {
        return false;
    };
    let slot = schedule.status.as_ref().and_then(|s| s.next_schedule.as_ref());
    let policy = view.spec.policy_ref.as_ref().map_or("", |p| p.name.as_str());
    schedule.metadata.uid.as_deref() == Some(uid)
        && slot.is_some_and(|slot| child_name(&schedule, policy, slot.at) == key.name)
}

async fn run(ctx: &Context, view: &SnapshotView) -> Result<Run, Error> {
    let key = view.key();
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let Some(snapshot) = api
        .get_opt(&key.name)
        .await?
        // A run must not begin once the lane may have let the object go.
        .filter(|s| s.metadata.uid.as_deref() == Some(view.uid()) && s.metadata.deletion_timestamp.is_none())
    else {
        return Err(Error::Conflict);
    };
    let refusals = holdfast_api::validate::snapshot(&snapshot.spec);
    if !refusals.is_empty() {
        let text = refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        return Ok(Run::Blocked(Blocked::InvalidSpec(text)));
    }
    let Some(policy_key) = view.policy() else {
        return Ok(Run::Blocked(Blocked::NoPolicy));
    };
    let Some(policy) = ctx.world.policy(&policy_key) else {
        return Ok(Run::Blocked(Blocked::PolicyNotFound(policy_key)));
    };
    if policy.metadata.deletion_timestamp.is_some() {
        return Ok(Run::Blocked(Blocked::PolicyDeleting(policy_key)));
    }
    let refusals = holdfast_api::validate::policy(&policy.spec);
    if !refusals.is_empty() {
        let text = refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        return Ok(Run::Blocked(Blocked::PolicyInvalid(policy_key, text)));
    }
    if policy.spec.suspend {
        return Ok(Run::Blocked(Blocked::PolicySuspended(policy_key)));
    }
    let reference = policy.spec.repository.clone();
    let repository_key = reference.as_ref().and_then(|r| keys::resolve(r, &key.namespace));
    let Some(repository) = repository_key.as_ref().and_then(|k| ctx.world.repository(k)) else {
        let named = repository_key.map_or_else(|| "of an unknown kind".to_owned(), |k| k.to_string());
        return Ok(Run::Blocked(Blocked::RepositoryNotFound(named)));
    };
    // A Repository on a claim serves policies of its own namespace only; a ClusterRepository says whom.
    let allowed = match &repository.allowed {
        None => repository.key.namespace() == Some(key.namespace.as_str()),
        Some(allowed) => {
            let labels = ctx
                .world
                .namespace_view(&key.namespace)
                .map(|n| n.labels)
                .unwrap_or_default();
            allows(allowed, &key.namespace, &labels)
        }
    };
    if !allowed {
        return Ok(Run::Blocked(Blocked::NamespaceNotAllowed(repository.key.clone())));
    }
    let recipe = policy.spec.mover.as_ref();
    let privileged = recipe.is_some_and(MoverSpec::asks_for_privileges);
    if privileged && !privileged::is_agreed(ctx, &key.namespace).await? {
        return Ok(Run::Blocked(Blocked::PrivilegedMoverNotPermitted(policy_key)));
    }
    if repository.status.phase != Some(RepositoryPhase::Ready) || repository.unique_id().is_none() {
        return Ok(Run::Blocked(Blocked::RepositoryNotReady(repository.key.clone())));
    }
    let identity = match policy::identity::of(&ctx.world, &policy_key, &policy) {
        Ok(resolved) => resolved.in_force.named().clone(),
        Err(refused) => return Ok(Run::Blocked(Blocked::NoIdentity(policy_key, refused))),
    };
    let password = &repository.spec.encryption.password_secret_ref;
    let asked = policy.spec.credential_projection.as_ref();
    let asked = asked.is_some_and(|projection| projection.enabled);
    let secrets = match projection::consent(ctx.settings.credential_projection, &repository, asked) {
        Consent::NotAsked => key.namespace.as_str(),
        Consent::Given => repository.place(&ctx.settings.namespace),
        Consent::Missing(why) => return Ok(Run::Blocked(Blocked::NoConsent(why))),
    };
    match secret(ctx, secrets, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing | SecretFact::NoKey => {
            let text = format!("{secrets}/{} with key {}", password.name, password.key);
            return Ok(Run::Blocked(Blocked::MissingCredentialsSecret(text)));
        }
    }
    let claim = policy
        .spec
        .sources
        .first()
        .and_then(|s| s.pvc.as_ref())
        .map(|p| p.name.clone())
        .unwrap_or_default();
    if !claim_exists(ctx, &key.namespace, &claim).await? {
        return Ok(Run::Blocked(Blocked::SourcePvcMissing(format!(
            "{}/{claim}",
            key.namespace
        ))));
    }
    if let Needs::Unmet(unmet) = needs::backend(ctx, &key.namespace, secrets, &repository).await? {
        return Ok(Run::Blocked(Blocked::MissingForBackend(unmet)));
    }
    let projects = asked;
    Ok(Run::Possible(Box::new(Possible {
        snapshot,
        policy,
        repository,
        claim,
        identity,
        projects,
        privileged,
    })))
}

use super::allowed::allows;
