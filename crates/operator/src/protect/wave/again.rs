//! Snapshots that were proven gone and came back (`docs/design.md` 3.6): found by a whole listing, decided, deleted
//! again by a batch of their own.
//!
//! **Promises.** What came back is written down before anything is decided about it. An id that an object records is
//! forgotten: it is that object's to decide. A batch of theirs fires like any other: one on the lane, through the same
//! gates, with acknowledgement, threshold and suspension read live, and who records the ids as well. What its Job
//! proves gone is watched on.
//!
//! **Assumes.** They have no Snapshot objects any more: the ConfigMap of what came back is all there is.

use super::lease::{self, Lock, Says};
use super::observe::{BatchJob, Observed};
use super::records::WORDS;
use super::{facts, fire, live, memory, records, settings, writers};
use crate::context::{Context, Error};
use crate::jobs::create::Created;
use crate::jobs::name_repository;
use crate::protect::repository::patch_status;
use crate::runtime::diff;
use crate::runtime::metrics::RepositoryKind;
use crate::runtime::queue::Next;
use crate::world::keys::{LaneKey, ObjectKey};
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::repository::{ReappearedStatus, RepositoryStatus, ScanDue};
use holdfast_api::{conditions, names};
use holdfast_core::backoff;
use holdfast_core::deletion::ack;
use holdfast_core::deletion::batch::stopped;
use holdfast_core::deletion::breaker::strictest_threshold;
use holdfast_core::deletion::look::{self, Again, Beside, Reappeared};
use holdfast_core::deletion::messages;
use holdfast_core::deletion::names::job_name;
use holdfast_protocol::letters::Letter;
use jiff::Timestamp;
use memory::{Memory, Row};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// How soon it is looked at again when no event comes.
const AGAIN: Duration = Duration::from_secs(15);

/// What a whole listing that began at `began` says about what was proven gone before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// What is there again, with what had come back before and still is.
    pub rows: Vec<Row>,
    /// How many of them are new.
    pub new: usize,
    /// When the next look is due.
    pub next: Option<Timestamp>,
}

/// Compares a listing with the memory: pure. `over` are the ends that looks count from ([`over`]), `recorded` are the ids that any Snapshot object records.
#[must_use]
pub fn compare(
    repository: &str,
    memories: &[Memory],
    over: &[Timestamp],
    listed: &HashSet<&str>,
    recorded: &HashSet<&str>,
    began: Timestamp,
) -> Seen {
    let own = || memories.iter().filter(|memory| memory.repository == repository);
    let mut seen = Seen::default();
    let mut ids = BTreeSet::new();
    let still = |row: &&Row| {
        let id = row.snapshot.as_str();
        listed.contains(id) && !recorded.contains(id)
    };
    for row in own()
        .filter(|m| m.came_back)
        .flat_map(|m| &m.members)
        .filter(still)
    {
        if ids.insert(row.snapshot.clone()) {
            seen.rows.push(row.clone());
        }
    }
    let before = own().filter(|m| m.confirmed_at.is_some_and(|at| at < began));
    for row in before.flat_map(Memory::gone).filter(still) {
        if ids.insert(row.snapshot.clone()) {
            seen.rows.push(row.clone());
            seen.new += 1;
        }
    }
    seen.next = look::next(over, Some(began));
    seen
}

/// From when the looks at the batches of a repository object count: the end of each batch, or of the last writer beside
/// it. A writer whose Job is not there any more ended long ago.
#[must_use]
pub fn over(ctx: &Context, view: &RepositoryView, memories: &[Memory], now: Timestamp) -> Vec<Timestamp> {
    let repository = named(view);
    let own = memories.iter().filter(|memory| memory.repository == repository);
    let named: HashSet<&str> = own.clone().flat_map(|m| &m.beside).map(String::as_str).collect();
    let mut writers: HashMap<String, Beside> = HashMap::new();
    if !named.is_empty() {
        for job in ctx.world.jobs(|job| named.contains(job.uid())) {
            let ended = job.is_terminal() || job.is_stopped();
            let beside = match job.ended_at().filter(|_| ended) {
                Some(at) => Beside::Ended(at),
                None => Beside::Runs,
            };
            writers.insert(job.uid().to_owned(), beside);
        }
    }
    own.filter_map(|memory| {
        let beside: Vec<Beside> = memory
            .beside
            .iter()
            .filter_map(|uid| writers.get(uid).copied())
            .collect();
        Some(look::over(memory.confirmed_at?, &beside, now))
    })
    .collect()
}

/// A look that is due although a writer beside a batch ran until a moment ago, or still does: answers with when it is
/// due, which is recorded.
///
/// # Errors
/// [`Error`].
pub async fn put_off(
    ctx: &Context,
    view: &RepositoryView,
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    let (true, Some(unique_id)) = (writers::needs_silence(ctx, view), view.unique_id()) else {
        return Ok(None);
    };
    let memories = memory::of(ctx, unique_id).await?;
    let catalog = view.status.catalog.clone().unwrap_or_default();
    let next = look::next(&over(ctx, view, &memories, now), catalog.looked_at);
    let Some(next) = next.filter(|next| *next > now) else {
        return Ok(None);
    };
    let mut status = view.status.clone();
    status.catalog.get_or_insert_default().second_look_at = Some(next);
    if let Some(patch) = diff::merge_patch(&view.status, &status) {
        let version = view.metadata.resource_version.as_deref().unwrap_or_default();
        patch_status(ctx, &view.key, version, patch).await?;
    }
    Ok(Some(next))
}

/// Writes down what a whole listing found, before the scan is recorded. Answers with what the status is to say.
///
/// # Errors
/// [`Error`].
pub async fn found(ctx: &Context, view: &RepositoryView, seen: &Seen, now: Timestamp) -> Result<(), Error> {
    if seen.rows.is_empty() {
        // What is remembered may stay until its day is over: it is compared with each listing.
        return Ok(());
    }
    memory::set_came_back(ctx, view, &seen.rows, now).await?;
    if seen.new > 0 {
        let kind = RepositoryKind::from(&view.key);
        let new = u64::try_from(seen.new).unwrap_or(u64::MAX);
        ctx.metrics.reappeared(kind, view.key.name(), new);
    }
    Ok(())
}

/// The part of a repository's status that follows from a look. The lane, which the change wakes, decides.
pub fn say(status: &mut RepositoryStatus, seen: &Seen, began: Timestamp, now: Timestamp) {
    let catalog = status.catalog.get_or_insert_default();
    catalog.second_look_at = seen.next;
    catalog.looked_at = Some(began);
    let before = status
        .deletion_protection
        .as_ref()
        .and_then(|p| p.reappeared.clone());
    let after = (!seen.rows.is_empty()).then(|| match before.clone() {
        Some(known) if seen.new == 0 => ReappearedStatus {
            count: count(&seen.rows),
            ..known
        },
        // More have come: an acknowledgement of the others does not cover them.
        other => ReappearedStatus {
            count: count(&seen.rows),
            found_at: seconds(now),
            held: other.as_ref().is_some_and(|known| known.held),
            attempts: None,
            next_attempt_at: None,
        },
    });
    if before == after {
        return;
    }
    if after.is_none() {
        let message = "What had come back is not listed any more, or is recorded by an object.";
        let list = &mut status.conditions;
        conditions::set(
            list,
            conditions::DELETED_SNAPSHOTS_REAPPEARED,
            false,
            "NotListed",
            message,
            None,
            now,
        );
    }
    status.deletion_protection.get_or_insert_default().reappeared = after;
}

fn count(rows: &[Row]) -> u32 {
    u32::try_from(rows.len()).unwrap_or(u32::MAX)
}

fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Whether anything came back to a repository of these objects.
#[must_use]
pub fn any(views: &[Arc<RepositoryView>]) -> bool {
    views.iter().any(|view| view.protection().reappeared.is_some())
}

fn told(status: &ReappearedStatus) -> Reappeared {
    Reappeared {
        count: usize::try_from(status.count).unwrap_or(usize::MAX),
        found_at: status.found_at,
        held: status.held,
        next_attempt_at: status.next_attempt_at,
    }
}

/// Decides about what came back to one repository object.
fn judge(
    ctx: &Context,
    observed: &Observed,
    view: &RepositoryView,
    found: &Reappeared,
    now: Timestamp,
) -> Again {
    let threshold = strictest_threshold(&observed.lane.repositories, &settings(ctx));
    let acknowledged = ack::read(&facts::repository(view), None, now).in_force;
    look::judge(found, threshold, acknowledged, now)
}

/// One look at what came back to a lane whose own members leave it free.
///
/// # Errors
/// [`Error`].
pub async fn pass(
    ctx: &Context,
    key: &LaneKey,
    lock: &Lock,
    observed: &mut Observed,
    now: Timestamp,
) -> Result<Option<Next>, Error> {
    let views: Vec<Arc<RepositoryView>> = observed.repositories.values().cloned().collect();
    for view in views {
        let Some(status) = view.protection().reappeared else {
            continue;
        };
        let Some(remembered) = memory::came_back(ctx, &view.key).await? else {
            forgotten(ctx, observed, &view, now).await?;
            continue;
        };
        let found = told(&status);
        let again = judge(ctx, observed, &view, &found, now);
        tell(ctx, observed, &view, &found, again, now).await?;
        match again {
            Again::Held => {}
            Again::Later(at) => {
                let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                return Ok(Some(Next::After(wait.min(AGAIN * 4))));
            }
            Again::Delete(_) => {
                return fire(ctx, key, lock, observed, &view, remembered, now)
                    .await
                    .map(Some);
            }
        }
    }
    Ok(None)
}

/// The day is over, or a person dropped the memory: what came back is kept, and the catalog shows it.
async fn forgotten(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    now: Timestamp,
) -> Result<(), Error> {
    let generation = view.metadata.generation;
    records::tell(ctx, observed, view, |status| {
        status.deletion_protection.get_or_insert_default().reappeared = None;
        let message = "What had come back is not remembered any more: it is kept, and the catalog lists it as origin: discovered.";
        let list = &mut status.conditions;
        conditions::set(
            list,
            conditions::DELETED_SNAPSHOTS_REAPPEARED,
            false,
            "Forgotten",
            message,
            generation,
            now,
        );
        status.catalog.get_or_insert_default().scan_due = Some(ScanDue { since: now, at: now });
    })
    .await
}

/// The condition, and the hold once it is one.
async fn tell(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    found: &Reappeared,
    again: Again,
    now: Timestamp,
) -> Result<(), Error> {
    let held = again == Again::Held;
    let newly = held && !found.held;
    let message = messages::reappeared(WORDS, &view.key, found, again);
    let reason = match again {
        Again::Held => "ThresholdExceeded",
        Again::Delete(why) => why.reason(),
        Again::Later(_) => "BackingOff",
    };
    let generation = view.metadata.generation;
    records::tell(ctx, observed, view, |status| {
        if let Some(reappeared) = status
            .deletion_protection
            .as_mut()
            .and_then(|p| p.reappeared.as_mut())
        {
            reappeared.held |= held;
        }
        let list = &mut status.conditions;
        conditions::set(
            list,
            conditions::DELETED_SNAPSHOTS_REAPPEARED,
            true,
            reason,
            &message,
            generation,
            now,
        );
    })
    .await?;
    if newly {
        let kind = conditions::DELETED_SNAPSHOTS_REAPPEARED;
        ctx.warn_repository(view, kind, &message, "AcknowledgeMassDeletion")
            .await;
    }
    Ok(())
}

/// Fires a batch of what came back, if it stands the live proof.
async fn fire(
    ctx: &Context,
    key: &LaneKey,
    lock: &Lock,
    observed: &mut Observed,
    view: &RepositoryView,
    remembered: Memory,
    now: Timestamp,
) -> Result<Next, Error> {
    let Some(gates) = fire::gates(ctx, key, lock, observed, now).await? else {
        return Ok(Next::After(AGAIN));
    };
    // Live: acknowledgement, threshold, suspension.
    let repositories = live::repositories(ctx, observed).await?;
    observed.see(key, &repositories);
    let Some(view) = observed.repositories.get(&view.key).cloned() else {
        return Ok(Next::After(AGAIN));
    };
    let Some(status) = view.protection().reappeared else {
        return Ok(Next::After(AGAIN));
    };
    let lane: Vec<_> = observed.lane.repositories.iter().collect();
    if stopped(&lane, &facts::repository(&view), &settings(ctx)).is_some()
        || !matches!(judge(ctx, observed, &view, &told(&status), now), Again::Delete(_))
    {
        return Ok(Next::After(AGAIN));
    }
    if gates.full(&settings(ctx), now) {
        return Ok(Next::After(AGAIN));
    }
    if let Some((reason, message)) = fire::missing(ctx, &view).await? {
        fire::failed(ctx, observed, &view, reason, &message, now).await?;
        return Ok(Next::After(AGAIN));
    }
    // An id that an object records is that object's to decide.
    let ids: HashSet<String> = remembered
        .members
        .iter()
        .map(|row| row.snapshot.clone())
        .collect();
    let recorders = live::recorders(ctx, &ids).await?;
    let recorded: HashSet<&str> = recorders.iter().filter_map(SnapshotView::snapshot_id).collect();
    let (kept, mut rows): (Vec<Row>, Vec<Row>) = remembered
        .members
        .into_iter()
        .partition(|row| recorded.contains(row.snapshot.as_str()));
    if !kept.is_empty() {
        settle_rows(ctx, observed, &view, &rows, None, now).await?;
        return Ok(Next::After(super::CATCH_UP));
    }
    rows.truncate(settings(ctx).max_members);
    rows.sort_by(|a, b| a.uid.cmp(&b.uid));
    let uids: Vec<&str> = rows.iter().map(|row| row.uid.as_str()).collect();
    let Ok(name) = job_name(&view.key, &uids) else {
        return Ok(Next::After(AGAIN));
    };
    if !writers::suspend(ctx, key, lock, gates.writers.as_ref(), now).await? {
        return Ok(Next::After(AGAIN));
    }
    let job = ObjectKey::new(view.place(&ctx.settings.namespace), name);
    lease::write(ctx, lock, Says::Job(&job), now).await?;
    if let Err(error) = memory::write(ctx, &view, &job, &rows, now).await {
        let what = "the memory of the delete Job";
        return fire::refused(ctx, observed, &view, what, error, now).await;
    }
    let members = rows.iter().map(Row::member).collect();
    let mut mover = fire::mover(ctx, &view, &job, members, Vec::new());
    mover
        .annotations
        .insert(names::DELETE_REAPPEARED.to_owned(), "true".to_owned());
    match fire::created(ctx, &mover).await {
        Ok(Created::Yes(created)) => {
            tracing::info!(lane = %key, job = %job, "a delete Job was created for what came back");
            fire::seen(ctx, &job, created.metadata.uid.as_deref()).await;
            Ok(Next::After(super::LIVE_AGAIN))
        }
        Ok(Created::Exists | Created::NoPlace) => Ok(Next::After(AGAIN)),
        Err(error) => {
            let what = format!("the delete Job {job}");
            fire::refused(ctx, observed, &view, &what, error, now).await
        }
    }
}

/// A Job that deleted again what came back was answered, letter by letter: what it proved gone has not come back any
/// more, the others are tried again later.
///
/// # Errors
/// [`Error`].
pub async fn settle(
    ctx: &Context,
    observed: &mut Observed,
    ended: &BatchJob,
    letters: &[Letter],
    now: Timestamp,
) -> Result<(), Error> {
    let Some(view) = observed.repositories.get(&ended.repository).cloned() else {
        return Ok(());
    };
    let Some(remembered) = memory::came_back(ctx, &view.key).await? else {
        return Ok(());
    };
    let gone: HashSet<&str> = ended
        .members
        .iter()
        .zip(letters)
        .filter(|(_, letter)| letter.confirms())
        .map(|(uid, _)| uid.as_str())
        .collect();
    let mut left = remembered.members;
    left.retain(|row| !gone.contains(row.uid.as_str()));
    let failed = (gone.len() < letters.len()).then(|| ended.job.uid());
    settle_rows(ctx, observed, &view, &left, failed, now).await
}

/// Writes down what is left of what came back.
async fn settle_rows(
    ctx: &Context,
    observed: &mut Observed,
    view: &RepositoryView,
    left: &[Row],
    failed: Option<&str>,
    now: Timestamp,
) -> Result<(), Error> {
    // Written down before it counts, and forgotten only after it does not count any more.
    if !left.is_empty() {
        memory::set_came_back(ctx, view, left, now).await?;
    }
    let generation = view.metadata.generation;
    records::tell(ctx, observed, view, |status| {
        let protection = status.deletion_protection.get_or_insert_default();
        let attempts = protection
            .reappeared
            .as_ref()
            .and_then(|r| r.attempts)
            .unwrap_or_default();
        if left.is_empty() {
            protection.reappeared = None;
            let message = "What had come back was deleted again, or is recorded by an object.";
            let list = &mut status.conditions;
            conditions::set(
                list,
                conditions::DELETED_SNAPSHOTS_REAPPEARED,
                false,
                "DeletedAgain",
                message,
                generation,
                now,
            );
        } else if let Some(reappeared) = &mut protection.reappeared {
            reappeared.count = count(left);
            if failed.is_some() {
                let attempts = attempts.saturating_add(1);
                reappeared.attempts = Some(attempts);
                reappeared.next_attempt_at = Some(backoff::MEMBER.next(attempts, now));
            }
        }
    })
    .await?;
    if left.is_empty() {
        memory::set_came_back(ctx, view, left, now).await?;
    }
    Ok(())
}

/// How the memory names a repository object.
#[must_use]
pub fn named(view: &RepositoryView) -> String {
    name_repository(&view.key)
}
