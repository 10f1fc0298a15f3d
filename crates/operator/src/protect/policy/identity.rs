//! Under which identity a policy's snapshots are recorded: who says it, and what an edit changes.
//!
//! **Promises.** Whoever asks (the policy's pass, a run that begins, a restore) gets the same answer from the same world.
//! Snapshots that bear an identity in the repository keep it in force until a person says that it may change, also where
//! the specs say none by now; what is recorded on them is never derived again, and never kept in another repository, nor
//! in a shared one under another namespace's host name. Two policies never write under one identity and path: the one that
//! had it first has it.
//!
//! **Assumes.** What another policy has in force stands in its status; of two that ask at once, the older one wins as soon
//! as both have it there.

use crate::world::World;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::policy::ResolvedIdentity;
use holdfast_api::shared::{Identity, Origin};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotPolicy, names};
use holdfast_core::identity::{self, About, Defaults, InForce, Named, Own};

/// The identity of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// What counts, and what is asked for where that is something else.
    pub in_force: InForce,
    /// Unique id of the repository in which it counts; none while that is not known.
    pub unique_id: Option<String>,
    /// The path that is recorded with it.
    pub source_path: Option<String>,
    /// The values of the annotations that allowed the change: they are used up.
    pub allowed_by: Option<Allowed>,
    /// What the repository's annotation says by now: a policy that gets its first name has seen it.
    pub seen_of_repository: Option<String>,
}

/// What the annotations that allow a change say, on the policy and on its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// On the policy.
    pub policy: Option<String>,
    /// On the repository.
    pub repository: Option<String>,
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

/// The same of a host name that the operator itself recorded: it does not change with what the repository says now.
#[must_use]
pub fn recorded_namespace_of<'a>(view: &'a RepositoryView, hostname: &'a str) -> &'a str {
    match &view.key {
        RepositoryKey::Repository { namespace, name: _ } => namespace,
        RepositoryKey::ClusterRepository { name: _ } => identity::recorded_namespace(hostname),
    }
}

/// Whether snapshots that the policy made in this repository bear this name: then we recorded it there, and nobody typed it.
#[must_use]
pub fn is_borne(world: &World, key: &ObjectKey, view: &RepositoryView, named: &Named) -> bool {
    bearers(world, key, view).any(|(_, borne)| borne == *named)
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
    let view = view.as_deref();
    let shared = view.is_some_and(|view| is_shared(world, view));
    let asked = asked(key, policy, view, shared);
    let borne = borne_there(world, key, policy, view);
    let allowed_by = allowed_by(policy, view);
    let changes = borne.is_some() && asked.is_ok() && asked.as_ref().ok() != borne.as_ref();
    let in_force = identity::in_force(asked, borne, allowed_by.is_some()).map_err(Refused::Invalid)?;
    let wanted = Recorded {
        named: in_force.named().clone(),
        unique_id: view.and_then(RepositoryView::unique_id).map(str::to_owned),
        source_path: path(policy),
    };
    if let Some(repository) = &repository
        && let Some(by) = taken(world, (key, policy), (repository, view), &wanted, shared)
    {
        let named = wanted.named;
        return Err(Refused::Taken { by, named });
    }
    Ok(Resolved {
        in_force,
        unique_id: wanted.unique_id,
        source_path: wanted.source_path,
        allowed_by: allowed_by.filter(|_| changes),
        seen_of_repository: view
            .and_then(|view| view.annotation(names::ALLOW_IDENTITY_CHANGE))
            .map(str::to_owned),
    })
}

/// Whether namespaces share the physical repository: a ClusterRepository is one of its objects.
fn is_shared(world: &World, view: &RepositoryView) -> bool {
    let of_cluster = |key: &RepositoryKey| matches!(key, RepositoryKey::ClusterRepository { .. });
    let lane = world.lane_of(&view.key);
    of_cluster(&view.key)
        || world
            .repositories_of(&lane)
            .iter()
            .any(|other| of_cluster(&other.key))
}

/// The identity of a policy's snapshots for a restore: what they bear does not depend on whether new ones can be made.
///
/// # Errors
/// [`Refused`]: it has none, and never had one.
pub fn for_restore(world: &World, key: &ObjectKey, policy: &SnapshotPolicy) -> Result<Named, Refused> {
    of(world, key, policy)
        .map(|resolved| resolved.in_force.named().clone())
        .or_else(|refused| {
            let repository = policy.spec.repository.as_ref();
            let repository = repository.and_then(|reference| keys::resolve(reference, &key.namespace));
            let view = repository.and_then(|key| world.repository(&key));
            let view = view.as_deref();
            borne_there(world, key, policy, view)
                .or_else(|| Some(recorded_there(policy, key, view)?.named))
                .ok_or(refused)
        })
}

fn asked(
    key: &ObjectKey,
    policy: &SnapshotPolicy,
    view: Option<&RepositoryView>,
    shared: bool,
) -> Result<Named, String> {
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
        shared,
    };
    identity::asked(own, defaults, &about)
}

/// Under which identity, where, and of which path: what only one policy may write to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    named: Named,
    unique_id: Option<String>,
    source_path: Option<String>,
}

/// What stands in a policy's status.
fn recorded(policy: &SnapshotPolicy) -> Option<Recorded> {
    let resolved = policy.status.as_ref()?.resolved.as_ref()?;
    let ResolvedIdentity { username, hostname } = resolved.identity.as_ref()?;
    Some(Recorded {
        named: Named {
            username: username.clone(),
            hostname: hostname.clone(),
        },
        unique_id: resolved.unique_id.clone(),
        source_path: resolved.source_path.clone(),
    })
}

/// The same, if it was recorded of this repository, and may be kept there: `spec.repository` may have been edited.
fn recorded_there(
    policy: &SnapshotPolicy,
    key: &ObjectKey,
    view: Option<&RepositoryView>,
) -> Option<Recorded> {
    let unique_id = view.and_then(RepositoryView::unique_id);
    recorded(policy)
        .filter(|recorded| recorded.unique_id.as_deref() == unique_id)
        .filter(|recorded| may_keep(key, view, &recorded.named))
}

/// Whether the policy may go on under this name there: in a shared repository the host name says whose a snapshot is.
fn may_keep(key: &ObjectKey, view: Option<&RepositoryView>, named: &Named) -> bool {
    view.is_none_or(|view| recorded_namespace_of(view, &named.hostname) == key.namespace)
}

/// The identity that the policy's snapshots in this repository bear, if it has any there: the recorded one, else that of
/// the newest.
fn borne_there(
    world: &World,
    key: &ObjectKey,
    policy: &SnapshotPolicy,
    view: Option<&RepositoryView>,
) -> Option<Named> {
    let bearers = bearers(world, key, view?).filter(|(_, named)| may_keep(key, view, named));
    let newest = bearers.max_by(|a, b| a.0.cmp(&b.0)).map(|(_, named)| named)?;
    let recorded = recorded_there(policy, key, view).or_else(|| {
        // The Kopia operator did not record where: there, if a snapshot there bears it.
        let recorded = recorded(policy).filter(|recorded| recorded.unique_id.is_none())?;
        let is_borne = may_keep(key, view, &recorded.named) && is_borne(world, key, view?, &recorded.named);
        is_borne.then_some(recorded)
    });
    Some(recorded.map_or(newest, |recorded| recorded.named))
}

/// What the policy's own snapshots in a repository bear, and when each was begun.
fn bearers(
    world: &World,
    key: &ObjectKey,
    view: &RepositoryView,
) -> impl Iterator<Item = (Option<jiff::Timestamp>, Named)> {
    let own = world.snapshots_of_policy(key).into_iter();
    own.filter(|snapshot| made_here(snapshot) && is_in(snapshot, view))
        .filter_map(|snapshot| Some((begun(&snapshot), bears(&snapshot)?)))
}

/// Whether the snapshot is in this repository: the physical one, or, where the Kopia operator made it and did not record
/// which that was, the object.
fn is_in(snapshot: &SnapshotView, view: &RepositoryView) -> bool {
    let resolved = snapshot.status.as_ref().and_then(|s| s.resolved.as_ref());
    match (resolved.and_then(|r| r.unique_id.as_deref()), view.unique_id()) {
        (Some(recorded), Some(unique_id)) => recorded == unique_id,
        (None, Some(_)) => snapshot.pin().as_ref() == Some(&view.key),
        (Some(_) | None, None) => false,
    }
}

fn begun(view: &SnapshotView) -> Option<jiff::Timestamp> {
    let timing = view.status.as_ref().and_then(|s| s.timing.as_ref());
    let created = view.metadata.creation_timestamp.as_ref().map(|t| t.0);
    timing.and_then(|t| t.start_time).or(created)
}

/// What is recorded with the snapshot; of a run that is under way, what its mover was told.
fn borne(view: &SnapshotView) -> Option<Identity> {
    let status = view.status.as_ref()?;
    let runs = view.phase() == Some(SnapshotPhase::Running);
    let of_snapshot = status.snapshot.as_ref().and_then(|s| s.identity.clone());
    of_snapshot.or_else(|| status.resolved.as_ref().filter(|_| runs)?.identity.clone())
}

fn bears(view: &SnapshotView) -> Option<Named> {
    borne(view).map(|identity| Named {
        username: identity.username,
        hostname: identity.hostname,
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

/// The annotations that allow one change, on the policy and on its repository, unless what each says was used up: both
/// are, together, or each would make the other's value a new one.
fn allowed_by(policy: &SnapshotPolicy, view: Option<&RepositoryView>) -> Option<Allowed> {
    let used = policy.status.as_ref().and_then(|s| s.resolved.clone());
    let used = used.unwrap_or_default();
    let own = policy.metadata.annotations.as_ref();
    let own = own.and_then(|all| all.get(names::ALLOW_IDENTITY_CHANGE).cloned());
    let of_repository = view.and_then(|view| view.annotation(names::ALLOW_IDENTITY_CHANGE));
    let of_repository = of_repository.map(str::to_owned);
    let is_new = |value: &Option<String>, used: &Option<String>| {
        value.as_ref().is_some_and(|value| !value.is_empty()) && value != used
    };
    let any = is_new(&own, &used.allowed_identity_change)
        || is_new(&of_repository, &used.allowed_identity_change_of_repository);
    any.then_some(Allowed {
        policy: own,
        repository: of_repository,
    })
}

/// The path that is recorded of a claim (`docs/design.md` 3.7).
#[must_use]
pub fn path_of(claim: &str) -> String {
    format!("/pvc/{claim}")
}

fn path(policy: &SnapshotPolicy) -> Option<String> {
    let pvc = policy.spec.sources.first()?.pvc.as_ref()?;
    Some(path_of(&pvc.name))
}

/// The policy that has this identity and path in the same physical repository. Who had all three first has them, by the
/// status or by its snapshots; where namespaces share the repository, nobody has a name of another's namespace before that.
fn taken(
    world: &World,
    (key, policy): (&ObjectKey, &SnapshotPolicy),
    (repository, view): (&RepositoryKey, Option<&RepositoryView>),
    wanted: &Recorded,
    shared: bool,
) -> Option<ObjectKey> {
    let age = |policy: &SnapshotPolicy| policy.metadata.creation_timestamp.as_ref().map(|t| t.0);
    let has = recorded(policy).as_ref() == Some(wanted) || is_borne_at(world, key, view, wanted);
    let namespace = identity::recorded_namespace(&wanted.named.hostname);
    let is_own = |key: &ObjectKey| !shared || key.namespace == namespace;
    let others = world.policies_of(&world.lane_of(repository));
    others
        .into_iter()
        .map(|other| (ObjectKey::of(other.as_ref()), other))
        .filter(|(of, other)| of != key && other.metadata.deletion_timestamp.is_none())
        .filter(|(_, other)| recorded(other).as_ref() == Some(wanted))
        .find(|(of, other)| match (is_own(key), is_own(of)) {
            (true, false) => false,
            (false, true) => true,
            (true, true) | (false, false) => !has || (age(other), of) < (age(policy), key),
        })
        .map(|(of, _)| of)
}

/// Whether the policy's own snapshots there bear this name, of this path.
fn is_borne_at(world: &World, key: &ObjectKey, view: Option<&RepositoryView>, wanted: &Recorded) -> bool {
    let Some(view) = view else {
        return false;
    };
    let own = world.snapshots_of_policy(key).into_iter();
    own.filter(|snapshot| made_here(snapshot) && is_in(snapshot, view))
        .filter_map(|snapshot| borne(&snapshot))
        .any(|identity| {
            (&identity.username, &identity.hostname) == (&wanted.named.username, &wanted.named.hostname)
                && Some(&identity.source_path) == wanted.source_path.as_ref()
        })
}
