//! What a Restore names as its source, as far as objects say it.

use super::access::Why;
use crate::context::{Context, Error};
use crate::protect::policy;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use crate::world::{ResolvedTo, World};
use holdfast_api::restore::{Resolution, ResolvedRestore};
use holdfast_api::shared::{Identity, LocalRef};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{Restore, names};
use holdfast_core::identity::Named;
use holdfast_core::restore::{Reason, may_restore};
use holdfast_protocol::restore::{Others, Wanted};
use jiff::Timestamp;
use kube::api::Api;

/// What the source is.
#[derive(Debug, Clone)]
pub enum Source {
    /// Something that is named does not exist, or is not done: it goes on by itself.
    Waits(Why),
    /// Nothing will come of it.
    Ends(Why),
    /// There is no snapshot.
    Missing(String),
    /// It is known which snapshot it is.
    Known(Box<ResolvedRestore>),
    /// The repository has to be asked.
    Asks(Box<Asks>),
}

/// What the repository is asked.
#[derive(Debug, Clone)]
pub struct Asks {
    /// Which.
    pub repository: Option<RepositoryKey>,
    /// For what.
    pub wanted: Wanted,
}

/// Which key of `spec.source` is set, for the column.
#[must_use]
pub fn kind(restore: &Restore) -> &'static str {
    let source = &restore.spec.source;
    if source.snapshot_ref.is_some() {
        "snapshotRef"
    } else if source.from_policy.is_some() {
        "fromPolicy"
    } else {
        "identity"
    }
}

/// Reads the source; a Snapshot that is named live.
pub async fn source(ctx: &Context, restore: &Restore, now: Timestamp) -> Result<Source, Error> {
    let namespace = ObjectKey::of(restore).namespace;
    let source = &restore.spec.source;
    if let Some(named) = &source.snapshot_ref {
        return snapshot(ctx, &ObjectKey::new(&namespace, &named.name), now).await;
    }
    let given = restore
        .spec
        .repository
        .as_ref()
        .map(|r| keys::resolve(r, &namespace));
    let asks = if let Some(named) = &source.from_policy {
        let key = ObjectKey::new(&namespace, &named.name);
        let Some(policy) = ctx.world.policy(&key) else {
            let message =
                format!("SnapshotPolicy {key} does not exist. Create it; the restore goes on then.");
            return Ok(Source::Waits((Reason::PolicyNotFound, message)));
        };
        let refusals = holdfast_api::validate::policy(&policy.spec);
        let claim = policy.spec.sources.first().and_then(|s| s.pvc.as_ref());
        let (Some(claim), true) = (claim, refusals.is_empty()) else {
            let text: Vec<String> = refusals.iter().map(ToString::to_string).collect();
            let message = format!("SnapshotPolicy {key} is refused: {}", text.join("; "));
            return Ok(Source::Waits((Reason::PolicyInvalid, message)));
        };
        let own = policy
            .spec
            .repository
            .as_ref()
            .map(|r| keys::resolve(r, &namespace));
        let identity = match policy::identity::for_restore(&ctx.world, &key, &policy) {
            Ok(identity) => identity,
            Err(refused) => {
                let message = format!("SnapshotPolicy {key}: {}", refused.message());
                return Ok(Source::Waits((Reason::PolicyInvalid, message)));
            }
        };
        let repository = given.or(own).flatten();
        Asks {
            wanted: Wanted {
                username: identity.username,
                hostname: identity.hostname,
                path: Some(format!("/pvc/{}", claim.name)),
                snapshot_id: None,
                offset: named.offset,
                as_of: named.as_of,
                // The policy's name may have been another one: an empty volume is no answer where that has snapshots.
                others: Some(others(ctx, repository.as_ref(), &namespace)),
            },
            repository,
        }
    } else if let Some(named) = &source.identity {
        Asks {
            repository: given.flatten(),
            wanted: Wanted {
                username: named.username.clone(),
                hostname: named.hostname.clone(),
                path: named.source_path.clone(),
                snapshot_id: named.snapshot_id.clone(),
                offset: named.offset,
                as_of: named.as_of,
                others: None,
            },
        }
    } else {
        let message = "spec.source needs exactly one of snapshotRef, fromPolicy, identity".to_owned();
        return Ok(Source::Ends((Reason::InvalidSpec, message)));
    };
    let view = asks.repository.as_ref().and_then(|key| ctx.world.repository(key));
    let view = match (&asks.repository, view) {
        // Whose a host name is, is read with what the repository says: without that nothing is refused for good.
        (Some(key @ RepositoryKey::ClusterRepository { .. }), None) => {
            let message = format!("The {key} does not exist. Create it; the restore goes on then.");
            return Ok(Source::Waits((Reason::RepositoryNotFound, message)));
        }
        (_, view) => view,
    };
    let named = Named {
        username: asks.wanted.username.clone(),
        hostname: asks.wanted.hostname.clone(),
    };
    let refused = view.and_then(|view| {
        let recorded = is_recorded(&ctx.world, restore, &view, &named);
        foreign(&view, &named.hostname, &namespace, recorded)
    });
    Ok(match refused {
        Some(why) => Source::Ends(why),
        None => Source::Asks(Box::new(asks)),
    })
}

/// Whether the operator itself recorded this name in that repository; else somebody typed it, on the Restore or, by its
/// specs, on the policy.
#[must_use]
pub fn is_recorded(world: &World, restore: &Restore, view: &RepositoryView, named: &Named) -> bool {
    let source = &restore.spec.source;
    match (&source.snapshot_ref, &source.from_policy) {
        (Some(_), _) => true,
        (None, Some(policy)) => {
            let key = ObjectKey::new(ObjectKey::of(restore).namespace, &policy.name);
            policy::identity::is_borne(world, &key, view, named)
        }
        (None, None) => false,
    }
}

/// Whose snapshots of a path may be a policy's under another name: this namespace's, whatever repository object it has over
/// the bucket. Another namespace's claim of the same name is none.
fn others(ctx: &Context, repository: Option<&RepositoryKey>, namespace: &str) -> Others {
    let view = repository.and_then(|key| ctx.world.repository(key));
    let said = view
        .as_ref()
        .and_then(|view| view.spec.identity_defaults.as_ref());
    Others {
        namespace: Some(namespace.to_owned()),
        cluster: said.and_then(|said| said.cluster.clone()),
    }
}

/// The namespace that a host name names in a repository: one that we recorded there, or one that was typed.
#[must_use]
pub fn whose<'a>(view: &'a RepositoryView, hostname: &'a str, recorded: bool) -> &'a str {
    if recorded {
        policy::identity::recorded_namespace_of(view, hostname)
    } else {
        policy::identity::namespace_of(view, hostname)
    }
}

fn foreign(view: &RepositoryView, hostname: &str, namespace: &str, recorded: bool) -> Option<Why> {
    let of_cluster = matches!(view.key, RepositoryKey::ClusterRepository { .. });
    let whose = whose(view, hostname, recorded);
    (!may_restore(of_cluster, whose, namespace)).then(|| {
        // A namespace has no dot: nobody can make a Restore there.
        let message = if whose.contains('.') {
            format!(
                "In a ClusterRepository the host name says whose a snapshot is, and {hostname} names no namespace: what is after the dot is not spec.identityDefaults.cluster of the repository, by now. For a snapshot that this cluster took, name its Snapshot (source.snapshotRef) or its policy (source.fromPolicy) in a new Restore; for another, set spec.identityDefaults.cluster to what it was."
            )
        } else {
            format!(
            "In a ClusterRepository snapshots of the host name {hostname} belong to the namespace {whose}, and this is {namespace}. Make the Restore there."
            )
        };
        (Reason::IdentityNotAllowed, message)
    })
}

async fn snapshot(ctx: &Context, key: &ObjectKey, now: Timestamp) -> Result<Source, Error> {
    let Some(view) = ctx.world.snapshot(key) else {
        return Ok(Source::Missing(format!("Snapshot {key} does not exist")));
    };
    let Some(id) = view.snapshot_id() else {
        return Ok(match view.phase() {
            Some(SnapshotPhase::Pending | SnapshotPhase::Running) | None => Source::Waits((
                Reason::SnapshotNotReady,
                format!("Snapshot {key} is not taken yet. The restore goes on when it is."),
            )),
            Some(
                SnapshotPhase::Succeeded
                | SnapshotPhase::Failed
                | SnapshotPhase::Deleting
                | SnapshotPhase::Discovered
                | SnapshotPhase::Unchanged
                | SnapshotPhase::Unknown,
            ) => Source::Missing(format!("Snapshot {key} records no snapshot in a repository")),
        });
    };
    let ResolvedTo::Repository(repository) = ctx.world.resolve(&view) else {
        let message =
            format!("The repository of Snapshot {key} does not exist. Create it; the restore goes on then.");
        return Ok(Source::Waits((Reason::RepositoryNotFound, message)));
    };
    let identity = identity(&view);
    let there = ctx.world.repository(&repository);
    if let (Some(identity), Some(there)) = (&identity, &there)
        && let Some(why) = foreign(there, &identity.hostname, &key.namespace, true)
    {
        return Ok(Source::Ends(why));
    }
    // How large it is is not kept from the watch.
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let whole = api.get_opt(&key.name).await?;
    let status = view.status.as_ref();
    Ok(Source::Known(Box::new(ResolvedRestore {
        resolution: Resolution::Snapshot,
        kopia_snapshot_id: Some(id.to_owned()),
        snapshot_ref: Some(LocalRef {
            name: key.name.clone(),
        }),
        repository: Some(keys::pin_to(&repository)),
        unique_id: status
            .and_then(|s| s.resolved.as_ref())
            .and_then(|r| r.unique_id.clone())
            .or_else(|| there?.unique_id().map(str::to_owned)),
        identity,
        start_time: status.and_then(|s| s.timing.as_ref()).and_then(|t| t.start_time),
        size_bytes: whole.and_then(|s| s.status?.stats).map(|stats| stats.size_bytes),
        pinned_at: now,
    })))
}

/// What the Snapshot recorded, else what it would have recorded.
fn identity(view: &SnapshotView) -> Option<Identity> {
    let status = view.status.as_ref()?;
    let recorded = status.snapshot.as_ref().and_then(|s| s.identity.clone());
    recorded.or_else(|| {
        let resolved = status.resolved.as_ref()?;
        if let Some(identity) = &resolved.identity {
            return Some(identity.clone());
        }
        let source = resolved.sources.first()?;
        let policy = view
            .spec
            .policy_ref
            .as_ref()
            .map(|p| p.name.as_str())
            .or(view.label(names::CONFIG_LABEL))?;
        Some(Identity {
            username: policy.to_owned(),
            hostname: view.key().namespace,
            source_path: source.source_path.clone(),
        })
    })
}
