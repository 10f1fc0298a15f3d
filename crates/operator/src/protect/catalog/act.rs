//! Carrying out a plan: rows are made, completed and removed a few at a time.
//!
//! **Promises.** CREATE only; a row's status follows at once, against the version that was made. A row is removed
//! only as the object that was judged. A row that cannot be written keeps no other from being written.

use super::due::{self, Request, Settled};
use super::each::{Did, complete, create, remove, take_over};
use super::plan::{Bounds, Plan, Scan, is_row, plan};
use super::{adopt, tell, under_way, vanished};
use crate::context::{Context, Error};
use crate::protect::policy::{self, identity};
use crate::protect::repository::patch_status;
use crate::protect::snapshot::allows;
use crate::protect::wave::{again, let_go, memory};
use crate::runtime::diff;
use crate::runtime::write::{self, WriteError};
use crate::world::NamespaceKnown;
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream;
use holdfast_api::repository::{RepositoryStatus, ScanProgress, StorageStats};
use holdfast_api::{ClusterRepository, Repository, SnapshotPolicy, conditions};
use holdfast_protocol::chunks::ListedSnapshot;
use jiff::Timestamp;
use kube::api::Api;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Rows written at once.
const AT_ONCE: usize = 8;
/// How often progress is recorded, in rows.
const TOLD_EVERY: usize = 500;
/// After this many failures the rest is left to the next scan: it is not about single rows.
const MOST_FAILURES: usize = 50;
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
    let let_go = let_go::of(ctx, unique_id).await?;
    let incomplete = read(ctx, &view.key)
        .await?
        .is_none_or(|now| conditions::is_true(&now.status.conditions, conditions::KEPT_MEMORY_INCOMPLETE));
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
            let_go: &let_go,
            incomplete,
            cluster: &ctx.cluster,
            now,
        },
    };
    let plan = plan(&scan, |listed| place(ctx, view, listed));
    for back in &plan.seen_again {
        take_back(ctx, back).await?;
    }
    // Before anything else: what is missing must not count any more when the rest is judged.
    let lacking = vanished::say(ctx, view, &vanished::lacking(&scan)).await;
    let mut done = carry_out(ctx, view, &plan).await?;
    match lacking {
        Ok(later) => done.later += later,
        Err(error) => done.take(Err(error))?,
    }
    // What one policy or one map refuses does not make the listing void for everybody.
    let adopted = done.adopted.iter().map(|(key, made)| (key.clone(), made.len()));
    for told in tell::tell(ctx, &plan.told, &adopted.collect()).await {
        done.take(told)?;
    }
    done.take(forget(ctx, view, began, &let_go, listing, &snapshots).await)?;
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
        if nothing_left {
            complete_again(status, began, now);
        }
    })
    .await
}

/// Nothing in the repository is without an object: whatever was not remembered is recorded again, or gone.
fn complete_again(status: &mut RepositoryStatus, began: Timestamp, now: Timestamp) {
    let kind = conditions::KEPT_MEMORY_INCOMPLETE;
    let said = conditions::get(&status.conditions, kind);
    let Some(said) = said.filter(|said| said.status == "True" && said.last_transition_time.0 < began) else {
        return;
    };
    let generation = said.observed_generation;
    let message = "Nothing in the repository belongs to no object.";
    conditions::set(
        &mut status.conditions,
        kind,
        false,
        "NothingLeft",
        message,
        generation,
        now,
    );
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

/// Forgets of what was let go what is not in the repository any more, and what a live object records again.
async fn forget(
    ctx: &Context,
    view: &RepositoryView,
    began: Timestamp,
    let_go: &let_go::LetGo,
    listing: &[ListedSnapshot],
    snapshots: &[Arc<SnapshotView>],
) -> Result<(), Error> {
    let listed: HashSet<String> = listing
        .iter()
        .map(|row| let_go::data_key(&row.snapshot_id))
        .collect();
    let live = snapshots.iter().filter(|one| {
        let here = one.pinned_unique_id() == view.unique_id();
        here && one.metadata.deletion_timestamp.is_none() && !is_row(one)
    });
    let recorded: HashSet<String> = live
        .filter_map(|one| one.snapshot_id().map(let_go::data_key))
        .collect();
    let_go::forget(ctx, let_go, began, |key| {
        !listed.contains(key) || recorded.contains(key)
    })
    .await
}

/// What became of the rows of a plan.
#[derive(Debug, Default)]
struct Done {
    made: usize,
    /// The Snapshots that each policy was given.
    adopted: BTreeMap<ObjectKey, Vec<ObjectKey>>,
    later: usize,
    not_removed: usize,
    failures: usize,
    left: usize,
    first: Option<String>,
}

impl Done {
    /// Counts what failed; only who leads no more ends the scan.
    fn take(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        match outcome {
            Ok(()) => Ok(()),
            Err(Error::NotLeader) => Err(Error::NotLeader),
            Err(error) => {
                self.failures += 1;
                self.first.get_or_insert_with(|| error.to_string());
                Ok(())
            }
        }
    }

    fn trouble(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(format!(
            "{} rows could not be written and {} were not tried; it is tried again. The first: {first}",
            self.failures, self.left
        ))
    }
}

async fn carry_out(ctx: &Context, view: &RepositoryView, plan: &Plan<'_>) -> Result<Done, Error> {
    let mut done = Done {
        not_removed: plan.remove.len(),
        ..Done::default()
    };
    let taking = begin(ctx, plan, &mut done).await?;
    let mut work: Vec<BoxFuture<'_, Result<Did, Error>>> = Vec::new();
    for row in &plan.remove {
        work.push(Box::pin(remove(ctx, row)));
    }
    for one in plan.adopt.iter().filter(|one| taking.contains(&one.policy())) {
        work.push(Box::pin(take_over(ctx, view, one)));
    }
    for (row, listed) in &plan.complete {
        work.push(Box::pin(complete(ctx, view, row, listed)));
    }
    for (key, listed) in &plan.create {
        work.push(Box::pin(create(ctx, view, key, listed)));
    }
    let of = work.len();
    let mut ended = 0;
    let mut running = stream::iter(work).buffer_unordered(AT_ONCE);
    while let Some(one) = running.next().await {
        ended += 1;
        match one {
            Ok(Did::Made) => done.made += 1,
            Ok(Did::Removed) => done.not_removed -= 1,
            Ok(Did::Adopted { by, made }) => done.adopted.entry(by).or_default().push(made),
            Ok(Did::Later) => done.later += 1,
            Err(error) => done.take(Err(error))?,
        }
        if done.failures >= MOST_FAILURES {
            break;
        }
        if of > TOLD_EVERY && ended % TOLD_EVERY == 0 {
            let progress = ScanProgress {
                done: i64::try_from(ended).unwrap_or(i64::MAX),
                of: i64::try_from(of).unwrap_or(i64::MAX),
            };
            record(ctx, view, |status| {
                status.catalog.get_or_insert_default().progress = Some(progress.clone());
            })
            .await?;
        }
    }
    done.left = of - ended;
    drop(running);
    end(ctx, view, plan, taking, &mut done).await?;
    Ok(done)
}

/// Has the retention of those wait that take something over; answers who may.
async fn begin(ctx: &Context, plan: &Plan<'_>, done: &mut Done) -> Result<BTreeSet<ObjectKey>, Error> {
    let of: BTreeMap<ObjectKey, &Arc<SnapshotPolicy>> = plan
        .adopt
        .iter()
        .map(|one| (one.policy(), &one.taken.policy))
        .collect();
    let mut taking = BTreeSet::new();
    for (key, policy) in of {
        match under_way::begin(ctx, policy).await {
            Ok(true) => {
                taking.insert(key);
            }
            // Edited or gone since it was judged.
            Ok(false) => done.later += 1,
            Err(error) => done.take(Err(error))?,
        }
    }
    Ok(taking)
}

/// Has the retention of those go on, and of whom a process that went left waiting.
async fn end(
    ctx: &Context,
    view: &RepositoryView,
    plan: &Plan<'_>,
    taking: BTreeSet<ObjectKey>,
    done: &mut Done,
) -> Result<(), Error> {
    let left = ctx.world.policies_naming(&view.key).into_iter();
    let left = left.filter(|one| policy::is_adopting(one));
    let all = left.map(|one| ObjectKey::of(one.as_ref())).chain(taking);
    for key in all.collect::<BTreeSet<_>>() {
        let made = done.adopted.get(&key).map(Vec::as_slice).unwrap_or_default();
        let planned = plan.adopt.iter().filter(|one| one.policy() == key).count();
        // Some of it alone would be judged without the rest; but nothing that is refused has it wait for ever.
        let complete = made.len() == planned || under_way::is_too_long(ctx, &key);
        if complete && under_way::seen(ctx, made).await {
            done.take(under_way::end(ctx, &key).await)?;
        } else {
            done.later += 1;
        }
    }
    Ok(())
}

/// Writes a repository's status as it is now, because the breaker writes to it while rows are made.
async fn record(
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

async fn read(ctx: &Context, key: &RepositoryKey) -> Result<Option<RepositoryView>, Error> {
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
