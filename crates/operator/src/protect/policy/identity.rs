//! Under which identity a policy's snapshots are recorded: who says it, and what an edit changes.
//!
//! **Promises.** Whoever asks (the policy's pass, a run that begins, a restore) gets the same answer from the same world.
//! Snapshots that bear an identity keep it in force until a person says that it may change; what is recorded on them is
//! never derived again. Two policies never write under one identity and path: the one that had it first has it.
//!
//! **Assumes.** What another policy has in force stands in its status; of two that ask at once, the older one wins as soon
//! as both have it there.

use crate::world::World;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::policy::ResolvedIdentity;
use holdfast_api::shared::Origin;
use holdfast_api::{SnapshotPolicy, names};
use holdfast_core::identity::{self, About, Defaults, InForce, Named, Own};
use std::sync::Arc;

/// The identity of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What counts, and what is asked for where that is something else.
    pub in_force: InForce,
    /// The value of the annotation that allowed the change.
    pub allowed_by: Option<String>,
}

/// Why a policy has none: it makes no snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The specs say no identity, in a sentence.
    Invalid(String),
    /// Another policy has it.
    Taken {
        /// Which.
        by: ObjectKey,
        /// What is asked for.
        named: Named,
    },
}

impl Refused {
    /// The word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "IdentityInvalid",
            Self::Taken { by: _, named: _ } => "IdentityTaken",
        }
    }

    /// What happened, and what to do.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Invalid(sentence) => {
                format!("{sentence}. Nothing is backed up until that is corrected.")
            }
            Self::Taken { by, named } => format!(
                "SnapshotPolicy {by} writes to the same repository as {}@{} from the same path: the snapshots of both would be one history. Nothing is backed up until spec.identity of one of them says another name.",
                named.username, named.hostname
            ),
        }
    }
}

/// The namespace that a host name is of in a repository; of a Repository its own.
#[must_use]
pub fn namespace_of<'a>(view: &'a RepositoryView, hostname: &'a str) -> &'a str {
    match &view.key {
        RepositoryKey::Repository { namespace, name: _ } => namespace,
        RepositoryKey::ClusterRepository { name: _ } => identity::namespace_of(hostname, cluster(view)),
    }
}

fn cluster(view: &RepositoryView) -> Option<&str> {
    view.spec.identity_defaults.as_ref()?.cluster.as_deref()
}

/// The identity of a policy's snapshots.
///
/// # Errors
/// [`Refused`].
pub fn of(world: &World, key: &ObjectKey, policy: &SnapshotPolicy) -> Result<Resolved, Refused> {
    let repository = policy.spec.repository.as_ref();
    let repository = repository.and_then(|reference| keys::resolve(reference, &key.namespace));
    let view = repository.as_ref().and_then(|key| world.repository(key));
    let asked = asked(key, policy, view.as_deref()).map_err(Refused::Invalid)?;
    let recorded = recorded(policy);
    let borne = borne(&world.snapshots_of_policy(key), recorded.as_ref());
    let allowed_by = allowed_by(policy, view.as_deref());
    let changes = borne.as_ref().is_some_and(|borne| *borne != asked);
    let in_force = identity::in_force(asked, borne, allowed_by.is_some());
    if let Some(repository) = &repository
        && let Some(by) = taken(
            world,
            key,
            policy,
            repository,
            in_force.named(),
            recorded.as_ref(),
        )
    {
        let named = in_force.named().clone();
        return Err(Refused::Taken { by, named });
    }
    Ok(Resolved {
        in_force,
        allowed_by: allowed_by.filter(|_| changes),
    })
}

/// The identity of a policy's snapshots for a restore: what they bear does not depend on whether new ones can be made.
///
/// # Errors
/// [`Refused`]: it has none, and never had one.
pub fn for_restore(world: &World, key: &ObjectKey, policy: &SnapshotPolicy) -> Result<Named, Refused> {
    of(world, key, policy)
        .map(|resolved| resolved.in_force.named().clone())
        .or_else(|refused| {
            let recorded = recorded(policy);
            borne(&world.snapshots_of_policy(key), recorded.as_ref())
                .or(recorded)
                .ok_or(refused)
        })
}

fn asked(key: &ObjectKey, policy: &SnapshotPolicy, view: Option<&RepositoryView>) -> Result<Named, String> {
    let own = policy.spec.identity.as_ref();
    let own = Own {
        username: own.and_then(|own| own.username.as_deref()),
        hostname: own.and_then(|own| own.hostname.as_deref()),
    };
    let said = view.and_then(|view| view.spec.identity_defaults.as_ref());
    let defaults = Defaults {
        username: said.and_then(|said| said.username_expr.as_deref()),
        hostname: said.and_then(|said| said.hostname_expr.as_deref()),
    };
    let about = About {
        namespace: &key.namespace,
        policy: &key.name,
        labels: policy.metadata.labels.as_ref(),
        annotations: policy.metadata.annotations.as_ref(),
        cluster: view.and_then(cluster),
        shared: view.is_some_and(|view| view.key.namespace().is_none()),
    };
    identity::asked(own, defaults, &about)
}

/// What stands in a policy's status.
fn recorded(policy: &SnapshotPolicy) -> Option<Named> {
    let resolved = policy.status.as_ref()?.resolved.as_ref()?;
    let ResolvedIdentity { username, hostname } = resolved.identity.as_ref()?;
    Some(Named {
        username: username.clone(),
        hostname: hostname.clone(),
    })
}

/// The identity that the policy's snapshots bear, if it has any: the recorded one, else that of the newest.
fn borne(snapshots: &[Arc<SnapshotView>], recorded: Option<&Named>) -> Option<Named> {
    let own: Vec<&Arc<SnapshotView>> = snapshots.iter().filter(|view| made_here(view)).collect();
    let bearers = own.iter().filter_map(|view| Some((started(view), bears(view)?)));
    let newest = bearers.max_by(|a, b| a.0.cmp(&b.0)).map(|(_, named)| named)?;
    Some(recorded.cloned().unwrap_or(newest))
}

fn started(view: &SnapshotView) -> Option<jiff::Timestamp> {
    view.status.as_ref()?.timing.as_ref()?.start_time
}

fn bears(view: &SnapshotView) -> Option<Named> {
    let status = view.status.as_ref()?;
    let of_snapshot = status.snapshot.as_ref().and_then(|s| s.identity.as_ref());
    let identity = of_snapshot.or_else(|| status.resolved.as_ref()?.identity.as_ref())?;
    Some(Named {
        username: identity.username.clone(),
        hostname: identity.hostname.clone(),
    })
}

fn made_here(view: &SnapshotView) -> bool {
    match view
        .label(names::ORIGIN_LABEL)
        .map_or(Origin::Manual, Origin::parse)
    {
        Origin::Scheduled | Origin::Manual | Origin::Adopted => true,
        Origin::Discovered | Origin::Replicated | Origin::Unknown => false,
    }
}

/// The annotation that allows one change, on the policy or on its repository, unless that value was used up.
fn allowed_by(policy: &SnapshotPolicy, view: Option<&RepositoryView>) -> Option<String> {
    let resolved = policy.status.as_ref().and_then(|s| s.resolved.as_ref());
    let used = resolved.and_then(|r| r.allowed_identity_change.as_deref());
    let own = policy.metadata.annotations.as_ref();
    let own = own.and_then(|all| all.get(names::ALLOW_IDENTITY_CHANGE).map(String::as_str));
    let of_repository = view.and_then(|view| view.annotation(names::ALLOW_IDENTITY_CHANGE));
    [own, of_repository]
        .into_iter()
        .flatten()
        .find(|value| !value.is_empty() && Some(*value) != used)
        .map(str::to_owned)
}

fn path(policy: &SnapshotPolicy) -> Option<&str> {
    let pvc = policy.spec.sources.first()?.pvc.as_ref()?;
    Some(pvc.name.as_str())
}

/// The policy that has this identity and path in the same physical repository.
fn taken(
    world: &World,
    key: &ObjectKey,
    policy: &SnapshotPolicy,
    repository: &RepositoryKey,
    named: &Named,
    has: Option<&Named>,
) -> Option<ObjectKey> {
    let age = |policy: &SnapshotPolicy| policy.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let others = world.policies_of(&world.lane_of(repository));
    others
        .into_iter()
        .map(|other| (ObjectKey::of(other.as_ref()), other))
        .filter(|(of, other)| of != key && other.metadata.deletion_timestamp.is_none())
        .filter(|(_, other)| path(other) == path(policy) && recorded(other).as_ref() == Some(named))
        .find(|(of, other)| has != Some(named) || (age(other), of) < (age(policy), key))
        .map(|(of, _)| of)
}
