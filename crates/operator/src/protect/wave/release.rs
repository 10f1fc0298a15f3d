//! Step 2, second half: finalizers that go without deleting anything.
//!
//! **Promises.** What has to be told is told before the finalizer goes, so that a crash repeats an event and never
//! loses one. A finalizer that is gone already counts as released.

use super::member::{self, few_at_once};
use super::observe::Observed;
use super::records::WORDS;
use crate::context::{Context, Error};
use crate::runtime::events::Published;
use crate::runtime::metrics::DeletionOutcome;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::RepositoryKey;
use crate::world::views::SnapshotView;
use holdfast_core::deletion::messages::describe;
use holdfast_core::deletion::{Decision, Plan, RetainReason, Verdict};
use kube::api::Api;
use kube::runtime::events::EventType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Releases what a plan lets go without deleting, but not those in `stay`; answers whether one was refused.
///
/// # Errors
/// [`Error`]; a conflict after every other finalizer was tried.
pub async fn release(
    ctx: &Context,
    observed: &Observed,
    plan: &Plan,
    stay: &BTreeSet<String>,
) -> Result<bool, Error> {
    let going: Vec<Going> = plan
        .decisions
        .iter()
        .filter(|d| d.releases() && !stay.contains(&d.uid))
        .filter_map(|d| Going::of(observed, plan, d))
        .collect();
    let views: Vec<Arc<SnapshotView>> = going.iter().map(|g| Arc::clone(&g.view)).collect();
    let (mut conflict, mut refused) = (false, false);
    let mut untold: BTreeMap<(RepositoryKey, &'static str), usize> = BTreeMap::new();
    for done in few_at_once(going.into_iter().map(|g| one(ctx, g)).collect()).await {
        match done {
            Ok(None) => {}
            Ok(Some(what)) => *untold.entry(what).or_default() += 1,
            Err(Error::Conflict) => conflict = true,
            Err(error) if error.is_refusal() => refused = true,
            Err(error) => return Err(error),
        }
    }
    for ((repository, reason), count) in untold {
        if let Some(view) = observed.repositories.get(&repository) {
            let note = format!(
                "{count} Snapshots in namespaces that are being deleted were let go and their data was kept."
            );
            ctx.warn_repository(view, reason, &note, "KeptSnapshot").await;
        }
    }
    if refused {
        // Waiting for all of them to go would be in vain.
        return Ok(true);
    }
    seen_gone(ctx, &views).await;
    if conflict { Err(Error::Conflict) } else { Ok(false) }
}

/// Finalizers of members whose data a Job proved gone, and whose Job went before they did.
///
/// # Errors
/// [`Error`].
pub async fn finish(ctx: &Context, done: &[Arc<SnapshotView>]) -> Result<bool, Error> {
    let work = done.iter().map(|view| finalizer(ctx, view)).collect();
    let mut refused = false;
    for ended in few_at_once(work).await {
        match ended {
            Ok(()) => {}
            Err(error) if error.is_refusal() => refused = true,
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}

struct Going {
    view: Arc<SnapshotView>,
    repository: Option<RepositoryKey>,
    told: Option<(EventType, &'static str, String)>,
    counted: Option<DeletionOutcome>,
}

impl Going {
    fn of(observed: &Observed, plan: &Plan, decision: &Decision) -> Option<Self> {
        let view = observed.views.get(&decision.uid)?;
        let facts = observed.member(&decision.uid)?;
        let message = || {
            let repository = decision
                .repository
                .as_ref()
                .and_then(|key| plan.repositories.iter().find(|r| r.key == *key));
            describe(WORDS, facts, decision, repository)
        };
        let (told, counted) = match decision.verdict {
            Verdict::Release(_) => (None, None),
            Verdict::Orphan(_) if member::is_never_seen(view) => (
                Some((
                    EventType::Warning,
                    "SnapshotOrphaned",
                    format!("{} {}", last_error(view), message()),
                )),
                Some(DeletionOutcome::Orphaned),
            ),
            Verdict::Orphan(_) => (
                Some((EventType::Normal, "SnapshotOrphaned", message())),
                Some(DeletionOutcome::Orphaned),
            ),
            Verdict::Retain(RetainReason::ScheduleDelete) => (
                Some((EventType::Warning, "SnapshotRetainedOnScheduleDelete", message())),
                Some(DeletionOutcome::CascadeRetained),
            ),
            Verdict::Retain(RetainReason::PolicyDelete) => (
                Some((EventType::Warning, "SnapshotRetainedOnPolicyDelete", message())),
                Some(DeletionOutcome::PolicyCascadeRetained),
            ),
            Verdict::Retain(RetainReason::Unjustified) => {
                let note = format!("{} {}", message(), last_error(view));
                (
                    Some((EventType::Warning, "SnapshotPruneVoid", note)),
                    Some(DeletionOutcome::Retained),
                )
            }
            Verdict::Retain(
                RetainReason::Policy | RetainReason::ReplacedRun | RetainReason::SharedSnapshot,
            ) => (None, Some(DeletionOutcome::Retained)),
            // None of these releases anything.
            Verdict::InFlight | Verdict::Wait(_) | Verdict::Held(_) | Verdict::Delete(_) => return None,
        };
        Some(Self {
            view: Arc::clone(view),
            repository: decision.repository.clone(),
            told,
            counted,
        })
    }
}

fn last_error(view: &SnapshotView) -> &str {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.and_then(|d| d.last_error.as_deref()).unwrap_or_default()
}

/// Answers with what could not be told, because the namespace takes no events any more.
async fn one(ctx: &Context, going: Going) -> Result<Option<(RepositoryKey, &'static str)>, Error> {
    let view = &going.view;
    ctx.leadership.guard()?;
    let mut untold = None;
    if let Some((kind, reason, note)) = going.told {
        match ctx
            .event_snapshot(view, kind, reason, &note, "KeptSnapshot")
            .await
        {
            Published::NamespaceTerminating => untold = going.repository.map(|r| (r, reason)),
            Published::Yes | Published::No => {}
        }
    }
    finalizer(ctx, view).await?;
    if let Some(outcome) = going.counted {
        ctx.metrics.deletion(&view.key().namespace, outcome);
    }
    Ok(untold)
}

/// Takes our finalizer off one Snapshot.
///
/// # Errors
/// [`Error`].
pub async fn finalizer(ctx: &Context, view: &SnapshotView) -> Result<(), Error> {
    let api: Api<SnapshotView> = Api::namespaced(ctx.client.clone(), &view.key().namespace);
    match ctx.leadership.fence(write::release_finalizer(&api, view)).await? {
        Ok(()) | Err(WriteError::Gone) => Ok(()),
        Err(error @ (WriteError::Conflict | WriteError::Api(_))) => {
            let error = Error::from(error);
            if error.is_refusal() {
                tracing::warn!(snapshot = %view.key(), %error, "the removal of a finalizer is refused; going on with the others");
            }
            Err(error)
        }
    }
}

/// Waits until the world has seen that these were released, so that the next pass does not tell and count them a
/// second time. Only for so long: a watch that lags costs a repetition, never a mistake.
pub async fn seen_gone(ctx: &Context, views: &[Arc<SnapshotView>]) {
    for _ in 0..30 {
        let there = views.iter().any(|view| {
            ctx.world
                .snapshot(&view.key())
                .is_some_and(|seen| seen.uid() == view.uid() && seen.is_pending_deletion())
        });
        if !there {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
