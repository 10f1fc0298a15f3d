//! The wave controller: one pass over one lane decides and carries out what becomes of every Snapshot that is being
//! deleted from one physical repository (`docs/design.md` 3.1 to 3.6).
//!
//! **Promises.** The decision is `holdfast_core::deletion::wave`, called once for a pass and once more with what was
//! read live before a Job is created; its plan is applied in the order that it documents. Nothing is decided from a
//! cold world. A pass may end anywhere: the next one finds what was recorded and comes to the same end. State is
//! the lane's Lease, the repository's status, the Snapshots' status, and the Job; nothing is remembered here.
//!
//! **Assumes.** The queue never runs two passes over one lane at once. Every write asks the leadership first.
//!
//! Where to look: [`observe`], [`proven`] and [`facts`] gather, [`records`], [`mark`] and [`release`] are steps 1, 2 and 4,
//! [`fire`], [`justified`] and [`live`] step 3, [`settle`] and [`judge`] the end of a Job, [`lease`] the lock;
//! [`foresee`] is for those who ask what a pass would decide.

pub mod again;
mod beside;
mod facts;
mod fire;
pub mod foresee;
mod judge;
mod justified;
pub mod kept;
mod kept_maps;
pub mod lease;
mod legacy;
pub mod let_go;
mod live;
mod mark;
mod member;
pub mod memory;
mod observe;
mod proven;
mod records;
mod release;
mod settle;
#[cfg(test)]
mod tests;
pub mod tidy;
pub mod unremembered;
pub mod writers;

use crate::context::{Context, Error};
use crate::runtime::metrics::RepositoryKind;
use crate::runtime::queue::Next;
use crate::world::keys::{LaneKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_api::names;
use holdfast_core::deletion::{LaneLatchChange, Plan, Settings, silence, wave};
use jiff::Timestamp;
use lease::Says;
use live::Live;
use std::time::Duration;

/// How soon a lane with a live Job is looked at again when no event comes.
const LIVE_AGAIN: Duration = Duration::from_secs(15);
/// How soon a write that was refused is tried again when no event comes.
const REFUSED_AGAIN: Duration = Duration::from_secs(30);
/// How soon the definition of Snapshot is looked for again when it is not there.
const NO_DEFINITION_AGAIN: Duration = Duration::from_secs(30);
/// How soon the world is asked again for what was just written.
const CATCH_UP: Duration = Duration::from_millis(500);

/// One pass over one lane.
///
/// # Errors
/// [`Error`].
pub async fn pass(ctx: &Context, key: &LaneKey) -> Result<Next, Error> {
    ctx.leadership.guard()?;
    if !ctx.world.is_synced() {
        // Cold is unknown, never zero. Every lane is looked at when the last kind has arrived.
        return Ok(Next::After(Duration::from_secs(15)));
    }
    let now = ctx.clock.now();
    if let Some(who) = ctx.foreign.alive() {
        return beside::pass(ctx, key, &who, now).await;
    }
    let pending = ctx.world.pending(key);
    let objects = ctx.world.repositories_of(key);
    let latched = objects.iter().any(|r| r.protection().held_through.is_some());
    let came_back = again::any(&objects);
    let idle = pending.is_empty() && ctx.world.batch_jobs().is_empty() && !latched && !came_back;
    // Before anything of the lane is touched: a former leader's write ends in a conflict from here on.
    let mut lock = match key {
        LaneKey::Physical(id) if !idle => Some(lease::hold(ctx, id, now).await?),
        LaneKey::Physical(_) | LaneKey::Unconnected(_) | LaneKey::Unresolved => None,
    };
    let jobs = observe::jobs(ctx, key, lock.as_ref(), &pending).await?;
    let mut proven = proven::prove(ctx, &pending).await?;
    if proven.api_gone {
        // Without their definition the objects are gone as well, whatever the world still shows; should it come
        // back, the watch says so.
        return Ok(Next::After(NO_DEFINITION_AGAIN));
    }
    proven.latch = lock.as_ref().and_then(lease::Lock::latch);
    if let LaneKey::Physical(id) = key
        && objects.iter().any(|r| has_window(r))
    {
        proven.fired = memory::fired(&memory::of(ctx, id).await?);
    }
    let (world, home) = (&ctx.world, &ctx.settings.namespace);
    if let Some(held) = &lock
        && let Some(named) = held.job()
        && !jobs.iter().any(|j| j.job.key() == named)
    {
        // Looked for live: never created, reaped, withdrawn or removed by hand.
        lock = Some(lease::write(ctx, held, settle::free(ctx, key, now), now).await?);
        writers::wake(ctx, key);
    }
    let asks = !pending.is_empty() || came_back;
    let known = if asks {
        writers::known(ctx, key, lock.as_ref()).await?
    } else {
        None
    };
    let known = Live::of_writers(known);
    let mut observed = observe::lane(world, home, key, &jobs, &proven, &known);
    let ended: Vec<_> = jobs
        .iter()
        // Of another lane's object (it is gone): that lane settles it, this one only waits.
        .filter(|j| j.job.is_terminal() && ctx.world.lane_of(&j.repository) == *key)
        .collect();
    if !ended.is_empty() {
        for job in ended {
            settle::settle(ctx, &mut observed, lock.as_ref(), job, now).await?;
        }
        return Ok(Next::After(CATCH_UP));
    }

    let mut refused = release::finish(ctx, &observed.done).await?;
    refused |= writers::forget_suspended(ctx, key).await?;
    let plan = wave(&observed.lane, &settings(ctx), now);
    if let (LaneLatchChange::Write(latch), Some(held)) = (&plan.latch, &lock) {
        lock = Some(lease::remember(ctx, held, Some(latch), now).await?);
    }
    records::before(ctx, &mut observed, &plan).await?;
    lock = match lock {
        Some(held) => Some(wait(ctx, held, &plan, came_back, now).await?),
        None => None,
    };
    let mut marks = mark::marks(ctx, &observed, &plan, &proven, now).await?;
    let mut later = marks.split_off();
    let left = (!jobs.is_empty() || plan.fire.is_some()) && later.cut();
    let mut marked = mark::write(ctx, &observed, marks).await?;
    records::kept(ctx, &mut observed, &plan, now).await?;
    let missed = let_go::remember(ctx, &observed, &plan).await?;
    let said = unremembered::say(ctx, &mut observed, &plan, &missed, (key, lock), now).await?;
    let stay = said.0;
    lock = said.1;
    refused |= !stay.is_empty() || !missed.refused.is_empty();
    refused |= release::release(ctx, &observed, &plan, &stay).await?;
    let mut next = next(&plan, !jobs.is_empty(), now);
    let fired = match (plan.withdraw, &plan.fire, &lock) {
        (Some(why), _, _) => {
            next = sooner(next, Duration::from_secs(5));
            settle::withdraw(ctx, &mut observed, why, now)
                .await
                .map(|()| None)
        }
        (None, Some(batch), Some(lock)) => {
            let fired = fire::fire(ctx, key, lock, &mut observed, &proven, batch, now).await;
            fired.map(Some)
        }
        // Without a lock (no unique id) nothing fires; the decision says so too.
        (None, Some(_), None) | (None, None, _) => Ok(None),
    };
    if silence::go_on(!jobs.is_empty(), plan.fire.is_some()) {
        refused |= writers::resume(ctx, key, lock.as_ref()).await?;
    }
    // What came back has its turn when nothing of the lane's own is under way.
    let free = plan.withdraw.is_none() && plan.fire.is_none() && jobs.is_empty();
    if let (true, true, Some(held), Some(_)) = (came_back, free, &lock, plan.threshold())
        && let Some(again) = again::pass(ctx, key, held, &mut observed, now).await?
        && let Next::After(delay) = again
    {
        next = sooner(next, delay);
    }
    // What went wrong there keeps nobody from being told.
    marked = marked.and(mark::write(ctx, &observed, later).await?);
    match fired? {
        Some(Next::After(delay)) => next = sooner(next, delay),
        Some(Next::Settled | Next::Failed) | None => {}
    }
    refused |= marked.refused;
    if marked.changed || left {
        next = sooner(next, CATCH_UP);
    }
    records::nothing_unknown_is_pending(ctx, &plan).await?;
    if let (LaneLatchChange::Forget, None, Some(held)) = (&plan.latch, &plan.fire, &lock) {
        lease::remember(ctx, held, None, now).await?;
    }
    records::after(ctx, &mut observed, &plan, now).await?;
    count(ctx, key, &plan);
    // What was refused to one member kept no other waiting.
    Ok(if refused {
        sooner(next, REFUSED_AGAIN)
    } else {
        next
    })
}

/// Records since when a batch waits for writers, so that it waits no longer for a restart. One of what came back waits
/// without a plan.
async fn wait(
    ctx: &Context,
    lock: lease::Lock,
    plan: &Plan,
    came_back: bool,
    now: Timestamp,
) -> Result<lease::Lock, Error> {
    let says = match (plan.waits_for_writers(), lock.waiting_since()) {
        (true, None) => Says::Waits(Some(now)),
        (false, Some(_)) if plan.fire.is_none() && !came_back => Says::Waits(None),
        (true, Some(_)) | (false, _) => return Ok(lock),
    };
    lease::write(ctx, &lock, says, now).await
}

/// Whether a delete Job of a physical repository is live, or waits for its turn: read live, under the gate at which
/// batches and maintenance meet.
///
/// # Errors
/// [`Error`].
pub async fn is_deleting(ctx: &Context, unique_id: &str) -> Result<bool, Error> {
    if writers::batch_is_live(ctx, unique_id).await? {
        return Ok(true);
    }
    // What nobody waits for any more is forgotten by the next pass that finds something pending.
    let lane = LaneKey::Physical(unique_id.to_owned());
    let wanted = !ctx.world.pending(&lane).is_empty() || again::any(&ctx.world.repositories_of(&lane));
    Ok(wanted && lease::waits(ctx, unique_id).await?.is_some())
}

/// What a pass would decide from the world alone: facts and decision, nothing read live, nothing written. For the
/// bench, which measures it.
#[must_use]
pub fn preview(ctx: &Context, key: &LaneKey, now: Timestamp) -> Plan {
    let observed = facts_of(ctx, key, &Live::default());
    wave(&observed.lane, &settings(ctx), now)
}

/// A lane as the world alone tells it.
fn facts_of(ctx: &Context, key: &LaneKey, live: &Live) -> observe::Observed {
    let home = &ctx.settings.namespace;
    observe::lane(&ctx.world, home, key, &[], &proven::Proven::default(), live)
}

fn has_window(repository: &RepositoryView) -> bool {
    let protection = repository.spec.deletion_protection.as_ref();
    protection.is_some_and(|p| p.sliding_window.is_some())
}

fn settings(ctx: &Context) -> Settings {
    Settings {
        max_jobs: ctx.settings.max_concurrent_delete_jobs,
        paused: ctx.settings.deletions_paused,
        default_threshold: names::DEFAULT_THRESHOLD,
        ..Settings::default()
    }
}

/// When time alone could change the answer.
fn next(plan: &Plan, live: bool, now: Timestamp) -> Next {
    let wake = plan.wake_at.map(|at| {
        Duration::try_from(at.duration_since(now))
            .unwrap_or_default()
            // A window that ends within this second is not over before it ends.
            .saturating_add(Duration::from_millis(50))
    });
    match (wake, live) {
        (Some(wake), true) => Next::After(wake.min(LIVE_AGAIN)),
        (Some(wake), false) => Next::After(wake),
        (None, true) => Next::After(LIVE_AGAIN),
        (None, false) => Next::Settled,
    }
}

fn sooner(next: Next, delay: Duration) -> Next {
    match next {
        Next::After(planned) => Next::After(planned.min(delay)),
        Next::Settled => Next::After(delay),
        Next::Failed => Next::Failed,
    }
}

/// The gauges of a lane's repository objects; Snapshots that belong to none are counted as unknown.
fn count(ctx: &Context, key: &LaneKey, plan: &Plan) {
    let figures = |of: Option<&RepositoryKey>| {
        let own = plan.decisions.iter().filter(|d| d.repository.as_ref() == of);
        let held = own.clone().filter(|d| d.verdict.is_held()).count();
        (own.count(), held)
    };
    for repository in &plan.repositories {
        let kind = RepositoryKind::from(&repository.key);
        let (pending, held) = figures(Some(&repository.key));
        ctx.metrics.wave(kind, repository.key.name(), pending, held);
    }
    match key {
        LaneKey::Unresolved => {
            let (pending, held) = figures(None);
            ctx.metrics
                .wave(RepositoryKind::Unknown, "unknown", pending, held);
        }
        LaneKey::Physical(_) | LaneKey::Unconnected(_) => {}
    }
}
