//! What a scan answers: a whole listing is compared with what there is, and that is recorded.
//!
//! **Promises.** A row is removed only as the object that was judged. What one policy or one map refuses makes the listing void
//! for nobody else.

use super::carry::carry_out;
use super::due::{self, Request, Settled};
use super::plan::{Bounds, Scan, is_row, plan};
use super::{adopt, memory_of, news, tell, vanished};
use crate::context::{Context, Error};
use crate::protect::policy::identity;
use crate::protect::repository::patch_status;
use crate::protect::snapshot::allows;
use crate::protect::wave::kept::{LetGo, Seen};
use crate::protect::wave::{again, let_go, memory};
use crate::runtime::diff;
use crate::runtime::write::{self, WriteError};
use crate::world::NamespaceKnown;
use crate::world::keys::RepositoryKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::repository::{RepositoryStatus, StorageStats};
use holdfast_api::{ClusterRepository, Repository, conditions};
use holdfast_protocol::chunks::ListedSnapshot;
use jiff::Timestamp;
use kube::api::Api;
use std::collections::HashSet;
use std::sync::Arc;

/// How often a record is tried when others write to the same status.
const ATTEMPTS: usize = 10;

/// A whole listing: rows are brought in line with it, and the scan is recorded.
///
/// # Errors
/// [`Error`]: the scan is void then and will be repeated.
pub async fn arrived(
    ctx: &Context,
    view: &RepositoryView,
    began: Timestamp,
    request: &Request,
    listing: &[ListedSnapshot],
) -> Result<(), Error> {
    let unique_id = view.unique_id().unwrap_or_default();
    let memories = memory::of(ctx, unique_id).await?;
    let touched = memory::touched(&memories, began);
    let watched = memory::watched(&memories);
    let snapshots = ctx.world.all_snapshots();
    // After the world was looked at: whatever is gone there was written down before it went.
    let known = memory_of::read(ctx, view, unique_id).await?;
    let (let_go, incomplete) = (&known.let_go, known.is_incomplete());
    let listed: HashSet<&str> = listing.iter().map(|row| row.snapshot_id.as_str()).collect();
    let recorded: HashSet<&str> = snapshots.iter().filter_map(|s| s.snapshot_id()).collect();
    // Before rows are made, and recorded together with the scan: what came back is decided by the lane.
    let over = again::over(ctx, view, &memories, ctx.clock.now());
    let seen = again::compare(&again::named(view), &memories, &over, &listed, &recorded, began);
    again::found(ctx, view, &seen, ctx.clock.now()).await?;
    let now = ctx.clock.now();
    let claimants = adopt::claimants(&ctx.world, view);
    let claimants: Vec<_> = claimants
        .into_iter()
        .filter(|claimant| may_use(ctx, view, claimant.policy.metadata.namespace.as_deref()))
        .collect();
    let scan = Scan {
        repository: view,
        unique_id,
        began,
        listing,
        snapshots: &snapshots,
        touched: &touched,
        bounds: Bounds::of(view.spec.catalog.as_ref().and_then(|c| c.retain.as_ref()), began),
        watched: &watched,
        adoption: adopt::Facts {
            repository: view,
            claimants: &claimants,
            let_go,
            incomplete,
            cluster: &ctx.cluster,
            now,
        },
    };
    let plan = plan(&scan, |listed| place(ctx, view, listed));
    for back in &plan.seen_again {
        take_back(ctx, back).await?;
    }
    // Before a policy adopts, and so may prune again: what another program pinned is kept.
    let mut told = Vec::new();
    for (of, listed) in &plan.news {
        told.push(news::record(ctx, of, listed, began).await);
    }
    // And what is missing must not count any more when the rest is judged.
    let lacking = vanished::say(ctx, view, &vanished::lacking(&scan)).await;
    let mut done = carry_out(ctx, view, &plan).await?;
    for told in told {
        done.take(told)?;
    }
    match lacking {
        Ok(later) => done.later += later,
        Err(error) => done.take(Err(error))?,
    }
    let brief = |told: &&adopt::Told| told.held.as_ref().is_some_and(adopt::Held::is_brief);
    done.later += plan.told.iter().filter(brief).count();
    // What one policy or one map refuses does not make the listing void for everybody.
    let adopted = done.adopted.iter().map(|(key, made)| (key.clone(), made.len()));
    for told in tell::tell(ctx, &plan.told, &adopted.collect()).await {
        done.take(told)?;
    }
    done.take(forget(ctx, view, began, let_go, listing, &snapshots).await)?;
    if plan.unplaced > 0 && view.allowed.is_some() {
        let note = format!(
            "{} snapshots belong to no object and are not shown: the namespace of their hostname does not exist or may not use this repository. They are kept. Create the namespace, or add it to spec.allowedNamespaces, and ask for a scan.",
            plan.unplaced
        );
        ctx.warn_repository(view, "DiscoveredSnapshotUnplaced", &note, "PlaceSnapshot")
            .await;
    }
    let settled = Settled {
        discovered: plan.kept + done.made + done.not_removed,
        not_shown: plan.not_shown,
        unplaced: plan.unplaced,
        trouble: done.trouble(),
        again: plan.uncertain > 0 || done.later > 0,
    };
    let nothing_left = settled.is_all_recorded();
    let total = listing
        .iter()
        .filter_map(|r| r.size_bytes)
        .fold(0u64, u64::saturating_add);
    record(ctx, view, |status| {
        let now = ctx.clock.now();
        status.storage_stats = Some(StorageStats {
            snapshot_count: i64::try_from(listing.len()).ok(),
            total_size: i64::try_from(total).ok(),
            last_observed_at: Some(now),
        });
        let catalog = status.catalog.take().unwrap_or_default();
        status.catalog = Some(due::ended(catalog, request, &Ok(settled.clone()), now));
        again::say(status, &seen, began, now);
        known.say(status, view, now);
        if nothing_left {
            memory_of::complete_again(status, began, now);
        }
    })
    .await?;
    if let Some(until) = known.is_over_until(nothing_left, began) {
        known.complete(ctx, unique_id, until).await?;
    }
    Ok(())
}

/// Takes `Vanished` back: the snapshot is listed, so it counts again.
async fn take_back(ctx: &Context, view: &SnapshotView) -> Result<(), Error> {
    let before = view.status.clone().unwrap_or_default();
    let mut status = before.clone();
    conditions::set(
        &mut status.conditions,
        conditions::VANISHED,
        false,
        "Listed",
        "The snapshot is in the repository again, and counts.",
        view.metadata.generation,
        ctx.clock.now(),
    );
    let Some(patch) = diff::merge_patch(&before, &status) else {
        return Ok(());
    };
    let key = view.key();
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = view.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    match write::patch_status(&api, &key.name, version, patch).await {
        // Changed or gone in between: the next scan looks again.
        Ok(_) | Err(WriteError::Gone | WriteError::Conflict) => Ok(()),
        Err(error @ WriteError::Api(_)) => Err(error.into()),
    }
}

/// A scan without a whole listing: recorded, and nothing else changes.
///
/// # Errors
/// [`Error`].
pub async fn void(ctx: &Context, view: &RepositoryView, request: &Request, why: &str) -> Result<(), Error> {
    record(ctx, view, |status| {
        let catalog = status.catalog.take().unwrap_or_default();
        let outcome = Err(why.to_owned());
        status.catalog = Some(due::ended(catalog, request, &outcome, ctx.clock.now()));
    })
    .await
}

/// The namespace in which a snapshot is seen: the Repository's own; of a ClusterRepository the one that its
/// hostname names, if it is there and allowed.
fn place(ctx: &Context, view: &RepositoryView, listed: &ListedSnapshot) -> Option<String> {
    let hostname = &listed.source.hostname;
    let name = if listed.cluster.as_deref() == Some(ctx.cluster.as_str()) {
        identity::recorded_namespace_of(view, hostname)
    } else {
        identity::namespace_of(view, hostname)
    };
    may_use(ctx, view, Some(name)).then(|| name.to_owned())
}

/// Whether a namespace is there and may use the repository: of a Repository its own only.
fn may_use(ctx: &Context, view: &RepositoryView, namespace: Option<&str>) -> bool {
    let Some(name) = namespace else {
        return false;
    };
    match ctx.world.namespace(name) {
        NamespaceKnown::Live => {}
        NamespaceKnown::Terminating | NamespaceKnown::Absent => return false,
    }
    match &view.allowed {
        None => view.key.namespace() == Some(name),
        Some(allowed) => {
            let labels = ctx.world.namespace_view(name).map(|n| n.labels);
            allows(allowed, name, &labels.unwrap_or_default())
        }
    }
}

/// Forgets of what was let go what has not been in the repository for long, and what a live object records again.
async fn forget(
    ctx: &Context,
    view: &RepositoryView,
    began: Timestamp,
    let_go: &LetGo,
    listing: &[ListedSnapshot],
    snapshots: &[Arc<SnapshotView>],
) -> Result<(), Error> {
    let live = snapshots.iter().map(Arc::as_ref).filter(|one| {
        let here = one.pinned_unique_id() == view.unique_id();
        here && one.metadata.deletion_timestamp.is_none() && !is_row(one)
    });
    let (listed, recorded) = (Seen::listed(listing), Seen::recorded(live));
    let_go::forget(ctx, let_go, began, &listed, &recorded).await
}

/// Writes a repository's status as it is now, because the breaker writes to it while rows are made.
///
/// # Errors
/// [`Error`].
pub async fn record(
    ctx: &Context,
    view: &RepositoryView,
    change: impl Fn(&mut RepositoryStatus),
) -> Result<(), Error> {
    for _ in 0..ATTEMPTS {
        let Some(now) = read(ctx, &view.key).await?.filter(|now| now.uid() == view.uid()) else {
            return Ok(());
        };
        let mut status = now.status.clone();
        change(&mut status);
        let Some(patch) = diff::merge_patch(&now.status, &status) else {
            return Ok(());
        };
        ctx.leadership.guard()?;
        let version = now.metadata.resource_version.clone().unwrap_or_default();
        match patch_status(ctx, &view.key, &version, patch).await {
            Err(Error::Conflict) => {}
            other => return other,
        }
    }
    Err(Error::Conflict)
}

/// A repository object as the API server has it.
///
/// # Errors
/// [`Error`].
pub async fn read(ctx: &Context, key: &RepositoryKey) -> Result<Option<RepositoryView>, Error> {
    let client = ctx.client.clone();
    Ok(match key {
        RepositoryKey::Repository { namespace, name } => {
            let api: Api<Repository> = Api::namespaced(client, namespace);
            api.get_opt(name).await?.map(RepositoryView::namespaced)
        }
        RepositoryKey::ClusterRepository { name } => {
            let api: Api<ClusterRepository> = Api::all(client);
            api.get_opt(name).await?.map(RepositoryView::cluster)
        }
    })
}
