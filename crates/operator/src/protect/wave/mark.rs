//! Step 2, first half: what is written about members that stay.
//!
//! **Promises.** A held member is written once, when it becomes held, with one event after it. A wait is written
//! when it begins and when its reason changes; a wait that ends within seconds is written only where few members
//! have it or once it has lasted, so that a wave of 700 costs no thousands of writes. One member that changed keeps no
//! other from being marked, nor what may fire from firing.
//!
//! **Assumes.** The latch is recorded before.

use super::member::{self, Written, few_at_once};
use super::observe::Observed;
use super::proven::{Proven, own_jobs};
use super::records::WORDS;
use crate::context::{Context, Error};
use crate::jobs::outcome;
use crate::protect::snapshot::result;
use crate::runtime::events::Published;
use crate::world::keys::RepositoryKey;
use crate::world::views::{SnapshotStatusView, SnapshotView};
use holdfast_api::conditions;
use holdfast_core::deletion::messages::describe;
use holdfast_core::deletion::{Decision, HeldChange, Plan, Verdict, Wait};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::events::EventType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Up to this many members with a brief wait, each is told at once.
const FEW: usize = 10;
/// A brief wait that has lasted this long is told to all.
const LASTING: SignedDuration = SignedDuration::from_secs(20);

/// Most members that are marked before what may fire fires: prunes beside a large wave wait for so many writes and no
/// more. The others are marked afterwards; the latch binds them already.
const MARKS_BEFORE: usize = 100;

/// Most that are marked after it while a Job of the lane is live: one that ends meanwhile waits for so many writes and no
/// more. The others are marked by the next pass.
const MARKS_BESIDE: usize = 200;

/// What became of the marks of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marked {
    /// A mark was refused.
    pub refused: bool,
    /// A member changed since it was judged: the next pass judges it again.
    pub changed: bool,
}

impl Marked {
    /// Both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            refused: self.refused || other.refused,
            changed: self.changed || other.changed,
        }
    }
}

/// What is to be written about the members that stay.
pub struct Marks(Vec<Mark>);

/// Looks after the movers of members and gathers the marks of a plan.
///
/// # Errors
/// [`Error`].
pub async fn marks(
    ctx: &Context,
    observed: &Observed,
    plan: &Plan,
    proven: &Proven,
    now: Timestamp,
) -> Result<Marks, Error> {
    let touched = look_after_movers(ctx, observed, plan, proven, now).await?;
    let patience = Patience::new(observed, plan, now);
    let firing: BTreeSet<&str> = plan
        .fire
        .iter()
        .flat_map(|b| b.members.iter().map(String::as_str))
        .collect();
    let mut marks = Vec::new();
    for decision in &plan.decisions {
        if decision.releases()
            || firing.contains(decision.uid.as_str())
            || touched.contains(decision.uid.as_str())
        {
            continue;
        }
        marks.extend(Mark::of(observed, plan, decision, &patience, now));
    }
    Ok(Marks(marks))
}

impl Marks {
    /// These members wait with their release, and for what.
    pub fn waiting(
        observed: &Observed,
        uids: &BTreeSet<String>,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Self {
        let mark = |uid: &String| {
            let view = observed.views.get(uid)?;
            let status = member::blocked(view, reason, message, now);
            let before = view.status.clone().unwrap_or_default();
            crate::runtime::diff::merge_patch(&before, &status).map(|_| Mark {
                view: Arc::clone(view),
                status,
                event: None,
            })
        };
        Self(uids.iter().filter_map(mark).collect())
    }

    /// Takes those that are left to the time after the firing.
    pub fn split_off(&mut self) -> Self {
        Self(self.0.split_off(self.0.len().min(MARKS_BEFORE)))
    }

    /// Leaves to the next pass what a live Job should not have to wait for. Answers whether anything is left.
    pub fn cut(&mut self) -> bool {
        let left = self.0.len() > MARKS_BESIDE;
        self.0.truncate(MARKS_BESIDE);
        left
    }
}

/// Writes marks.
///
/// # Errors
/// [`Error`].
pub async fn write(ctx: &Context, observed: &Observed, marks: Marks) -> Result<Marked, Error> {
    let writes = marks.0.into_iter().map(|mark| one(ctx, mark)).collect();
    let mut marked = Marked::default();
    let mut untold: BTreeMap<RepositoryKey, usize> = BTreeMap::new();
    for written in few_at_once(writes).await {
        match written? {
            Done::Written => {}
            Done::Changed => marked.changed = true,
            Done::Refused => marked.refused = true,
            Done::NoEvent(repository) => *untold.entry(repository).or_default() += 1,
        }
    }
    for (repository, count) in untold {
        if let Some(view) = observed.repositories.get(&repository) {
            let note = format!(
                "{count} Snapshots in namespaces that are being deleted are held by the breaker; see the condition {}.",
                conditions::MASS_DELETION_HELD
            );
            ctx.warn_repository(view, "SnapshotDeletionHeld", &note, "AcknowledgeMassDeletion")
                .await;
        }
    }
    Ok(marked)
}

enum Done {
    Written,
    Changed,
    Refused,
    NoEvent(RepositoryKey),
}

struct Mark {
    view: Arc<SnapshotView>,
    status: SnapshotStatusView,
    /// Message of the event that goes with it, and the repository that is told if its namespace takes none.
    event: Option<(String, Option<RepositoryKey>)>,
}

impl Mark {
    fn of(
        observed: &Observed,
        plan: &Plan,
        decision: &Decision,
        patience: &Patience,
        now: Timestamp,
    ) -> Option<Self> {
        let view = observed.views.get(&decision.uid)?;
        let facts = observed.member(&decision.uid)?;
        let repository = decision
            .repository
            .as_ref()
            .and_then(|key| plan.repositories.iter().find(|r| r.key == *key));
        let message = || describe(WORDS, facts, decision, repository);
        let mut event = None;
        let mut status = match (decision.held_change, decision.waits_for()) {
            (HeldChange::Set, _) => {
                let message = message();
                event = Some((message.clone(), decision.repository.clone()));
                member::held(view, decision.verdict.reason(), &message, now)
            }
            (HeldChange::Keep | HeldChange::Clear(_), Some(wait)) if patience.tells(wait, view) => {
                let text = patience.text(wait, message());
                member::blocked(view, wait.reason(), &text, now)
            }
            (HeldChange::Keep | HeldChange::Clear(_), Some(_)) => view.status.clone().unwrap_or_default(),
            (HeldChange::Keep | HeldChange::Clear(_), None)
                if facts.skip && decision.verdict == Verdict::InFlight =>
            {
                member::too_late(view, decision.reason(), &message(), now)
            }
            (HeldChange::Keep | HeldChange::Clear(_), None) => {
                member::unblocked(view, decision.reason(), &message(), now)
            }
        };
        // A claim that names no Job: the pass ended between claim and CREATE, or the Job was withdrawn.
        if !observed.rides(&decision.uid) && member::claim(view).is_some() {
            status = member::unclaimed(status);
        }
        let same = crate::runtime::diff::merge_patch(&view.status.clone().unwrap_or_default(), &status);
        same.is_some().then(|| Self {
            view: Arc::clone(view),
            status,
            event,
        })
    }
}

async fn one(ctx: &Context, mark: Mark) -> Result<Done, Error> {
    match member::write(ctx, &mark.view, &mark.status).await? {
        Written::Yes => {}
        Written::Changed => return Ok(Done::Changed),
        Written::Refused => return Ok(Done::Refused),
    }
    let Some((note, repository)) = mark.event else {
        return Ok(Done::Written);
    };
    let published = ctx
        .event_snapshot(
            &mark.view,
            EventType::Warning,
            "SnapshotDeletionHeld",
            &note,
            "AcknowledgeMassDeletion",
        )
        .await;
    Ok(match (published, repository) {
        (Published::NamespaceTerminating, Some(repository)) => Done::NoEvent(repository),
        (Published::NamespaceTerminating, None) | (Published::Yes | Published::No, _) => Done::Written,
    })
}

/// Whose brief waits are told.
struct Patience {
    few: bool,
    lasting: bool,
    why_not: String,
}

impl Patience {
    fn new(observed: &Observed, plan: &Plan, now: Timestamp) -> Self {
        let brief = plan
            .decisions
            .iter()
            .filter(|d| d.waits_for().is_some_and(is_brief))
            .count();
        let live = observed.jobs.first();
        let created = live.and_then(|j| j.job.metadata.creation_timestamp.as_ref());
        Self {
            few: brief <= FEW,
            lasting: created.is_some_and(|t| now.duration_since(t.0) > LASTING),
            why_not: live.map(|j| j.why_not.clone()).unwrap_or_default(),
        }
    }

    fn tells(&self, wait: Wait, view: &SnapshotView) -> bool {
        if !is_brief(wait) {
            return true;
        }
        let list = view.status.as_ref().map(|s| s.conditions.as_slice());
        let told = conditions::get(list.unwrap_or_default(), conditions::DELETION_BLOCKED)
            .filter(|c| c.status == "True");
        // One word for the whole time in the queue: its turns are not worth a write each.
        let same = told.is_some_and(|c| {
            c.reason == wait.reason()
                || (is_queue(wait) && QUEUE.iter().any(|queue| c.reason == queue.reason()))
        });
        !same && (self.few || self.lasting || wait == Wait::JobCapReached)
    }

    /// What is written: the sentence, but for what is the same for all members and changes often.
    fn text(&self, wait: Wait, sentence: String) -> String {
        if wait == Wait::JobNotStarted && self.lasting && !self.why_not.is_empty() {
            return format!("{sentence}: {}", self.why_not);
        }
        if matches!(wait, Wait::RepositoryBackingOff(_)) {
            return format!(
                "the last delete Job could not work on the repository; tried again by itself, see the repository's condition {}",
                conditions::DELETION_JOBS_FAILING
            );
        }
        sentence
    }
}

/// Eligible, and not yet its turn.
const QUEUE: [Wait; 4] = [
    Wait::BatchLive,
    Wait::NextBatch,
    Wait::RidesAlone,
    Wait::JobCapReached,
];

fn is_queue(wait: Wait) -> bool {
    QUEUE.contains(&wait)
}

/// Waits that end within seconds by themselves.
fn is_brief(wait: Wait) -> bool {
    match wait {
        Wait::CacheCold
        | Wait::QuietWindow(_)
        | Wait::BatchLive
        | Wait::JobNotStarted
        | Wait::Withdrawing
        | Wait::NextBatch
        | Wait::RidesAlone
        | Wait::JobCapReached => true,
        Wait::ForeignManager
        | Wait::OwnMoverRunning
        | Wait::OwnResultUnread
        | Wait::OwnMoverUnknown
        | Wait::PlaceUnknown
        | Wait::PolicyUnreadable
        | Wait::CascadeUnreadable
        | Wait::OwnerUnknown
        | Wait::SharingUnknown
        | Wait::SharedWithPending
        | Wait::RepositoryUnreadable
        | Wait::RepositoryMismatch
        | Wait::NamespaceUnreadable
        | Wait::SourceNotRecorded
        | Wait::RepositoryNotConnected
        | Wait::RepositorySuspended
        | Wait::DeletionsPaused
        | Wait::RepositoryBackingOff(_)
        | Wait::BackingOff(_)
        | Wait::WritersRunning(_)
        | Wait::WritersFirst(_)
        | Wait::MaintenanceRunning
        | Wait::MemberTooLarge => false,
    }
}

/// Stops backup Jobs of members and reads the results of those that ended. Answers with the UIDs whose status was
/// written, so that it is not written again from what was judged before.
async fn look_after_movers(
    ctx: &Context,
    observed: &Observed,
    plan: &Plan,
    proven: &Proven,
    now: Timestamp,
) -> Result<BTreeSet<String>, Error> {
    let mut touched = BTreeSet::new();
    for decision in &plan.decisions {
        let wait = match decision.verdict {
            Verdict::Wait(wait) => Some(wait),
            Verdict::Delete(_) => decision.not_yet,
            Verdict::InFlight
            | Verdict::Release(_)
            | Verdict::Orphan(_)
            | Verdict::Retain(_)
            | Verdict::Held(_) => None,
        };
        let Some(view) = observed.views.get(&decision.uid) else {
            continue;
        };
        if wait == Some(Wait::OwnMoverRunning) {
            let jobs = own_jobs(ctx, proven, view);
            for job in jobs
                .iter()
                .filter(|j| !j.is_terminal() && (j.spec.suspend != Some(true) || j.is_suspended_for_batch()))
            {
                result::stop(ctx, job).await?;
            }
        }
        if wait == Some(Wait::OwnResultUnread) {
            let unread = own_jobs(ctx, proven, view)
                .into_iter()
                .find(|j| j.is_terminal() && j.spec.ttl_seconds_after_finished.is_none());
            if let Some(job) = unread {
                let read = outcome::read(&ctx.client, &job).await?;
                match result::record(ctx, view, &job, &read, now).await {
                    Ok(()) => {}
                    Err(Error::NotLeader) => return Err(Error::NotLeader),
                    // It waits by itself: what one Snapshot's result meets holds up nobody else's deletion.
                    Err(error) => {
                        tracing::warn!(snapshot = %view.key(), "the result of its run could not be recorded: {error}");
                    }
                }
                touched.insert(decision.uid.clone());
            }
        }
    }
    Ok(touched)
}
