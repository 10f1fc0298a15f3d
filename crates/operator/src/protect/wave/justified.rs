//! What prunes stand on (`docs/design.md` 3.7): the ids that retention kept, on their way to the mover and back.
//!
//! **Promises.** A prune rides only with ids that live Snapshots record now. What the mover did not find is marked
//! `Vanished` before anything is recorded about the prune, and a prune whose kept snapshots vanished is void for
//! good: its status says so, and rule 5 lets it go without deleting. One whose kept Snapshots were deleted meanwhile
//! by decisions of their own is tried again with what is kept now.
//!
//! **Assumes.** One batch at a time on a lane: nothing of ours deletes between what is judged here and the mover's
//! listing.

use super::member::{self, Written, few_at_once};
use super::observe::{BatchJob, Observed};
use crate::context::{Context, Error};
use crate::protect::policy;
use crate::world::keys::LaneKey;
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_core::deletion::{DeleteReason, Plan, RetainReason, Stamp, Verdict};
use holdfast_core::retention::justify::{Justified, Standing, justify};
use holdfast_protocol::WORK_LIMIT;
use holdfast_protocol::letters::Letter;
use holdfast_protocol::work::cut;
use jiff::Timestamp;
use kube::runtime::events::EventType;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes of a work document for what is neither a member nor a kept id.
const REST: usize = 16 * 1024;

/// Why a prune of what is pinned in the repository is void.
pub const PINNED: &str = "The repository's own record says that it is to be kept: somebody pinned it there.";

/// A prune that may not be carried out, and why.
#[derive(Debug, Clone)]
pub struct Void {
    /// The Snapshot.
    pub view: Arc<SnapshotView>,
    /// For people.
    pub why: String,
}

/// The members of a batch that ride, and what their prunes stand on.
#[derive(Debug, Default)]
pub struct Riders {
    /// UIDs, in the batch's order; others did not fit, or are void.
    pub members: Vec<String>,
    /// The groups of kept ids, cut as they travel.
    pub kept: Vec<Vec<String>>,
    /// Which group a member's prune stands on, by UID.
    pub group: BTreeMap<String, u32>,
    /// Prunes that are void.
    pub void: Vec<Void>,
    places: BTreeMap<Vec<String>, u32>,
    bytes: usize,
}

/// Who of a proven batch rides: what fits, with what its prunes stand on.
#[must_use]
pub fn riders(ctx: &Context, key: &LaneKey, observed: &Observed, plan: &Plan, members: &[String]) -> Riders {
    let mut riders = Riders::default();
    for uid in members {
        let (Some(view), Some(facts), Some(decision)) =
            (observed.views.get(uid), observed.member(uid), plan.decision(uid))
        else {
            continue;
        };
        let why = match decision.verdict {
            Verdict::Delete(why) => why,
            Verdict::InFlight
            | Verdict::Release(_)
            | Verdict::Orphan(_)
            | Verdict::Retain(_)
            | Verdict::Wait(_)
            | Verdict::Held(_) => continue,
        };
        if !riders.take(ctx, key, view, why, facts.document_bytes) {
            break;
        }
    }
    riders
}

impl Riders {
    /// Looks at the next member; false: it does not fit any more.
    fn take(
        &mut self,
        ctx: &Context,
        lane: &LaneKey,
        view: &Arc<SnapshotView>,
        why: DeleteReason,
        bytes: usize,
    ) -> bool {
        let stamp = Stamp::parse(view.annotation(names::PRUNED_BY));
        let ids = match (why, stamp) {
            (DeleteReason::OwnPrune, Stamp::Retention) => match judge(ctx, lane, view) {
                Justified::By(ids) => Some(ids.iter().map(|id| cut(id).to_owned()).collect::<Vec<_>>()),
                Justified::Void(ids) => {
                    self.void.push(Void {
                        view: Arc::clone(view),
                        why: void_because(&ids),
                    });
                    return true;
                }
            },
            // Deleted because others said so, or without data of its own: nothing was kept instead.
            (
                DeleteReason::OwnPrune
                | DeleteReason::BelowThreshold
                | DeleteReason::BreakerDisabled
                | DeleteReason::Acknowledged,
                _,
            ) => None,
        };
        let known = ids.as_ref().and_then(|ids| self.places.get(ids).copied());
        let new = match (&ids, known) {
            // Quotes and a comma each, and what a member writes to point there.
            (Some(ids), None) => ids.iter().map(|id| id.len() + 3).sum(),
            (Some(_), Some(_)) | (None, _) => 0,
        };
        let bytes = self.bytes + bytes + new + 24;
        if bytes > WORK_LIMIT - REST && !self.members.is_empty() {
            return false;
        }
        self.bytes = bytes;
        if let Some(ids) = ids {
            let place = known.unwrap_or_else(|| {
                let place = u32::try_from(self.kept.len()).unwrap_or(u32::MAX);
                self.kept.push(ids.clone());
                self.places.insert(ids, place);
                place
            });
            self.group.insert(view.uid().to_owned(), place);
        }
        self.members.push(view.uid().to_owned());
        true
    }
}

fn stamped(view: &SnapshotView) -> Vec<&str> {
    let ids = view.annotation(names::PRUNED_KEPT).unwrap_or_default();
    ids.split(',').filter(|id| !id.is_empty()).collect()
}

fn judge(ctx: &Context, lane: &LaneKey, view: &SnapshotView) -> Justified {
    let kept_now = view
        .policy()
        .map(|policy| policy::kept_now(view, &ctx.world.snapshots_of_policy(&policy), ctx.clock.now()))
        .unwrap_or_default();
    let standing = |id: &str| {
        let recorders = ctx.world.live_recorders(lane, id);
        if recorders.iter().any(|s| s.is_vanished()) {
            Standing::Vanished
        } else if recorders.is_empty() {
            Standing::Gone
        } else {
            Standing::Kept
        }
    };
    justify(&stamped(view), standing, kept_now)
}

fn void_because(ids: &[String]) -> String {
    if ids.is_empty() {
        return "No other snapshot of its source is kept any more.".to_owned();
    }
    let some: Vec<&str> = ids.iter().take(8).map(String::as_str).collect();
    let more = ids.len() - some.len();
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    format!("Not in the repository: {}{more}.", some.join(", "))
}

/// Records that prunes are void: the next pass lets them go.
///
/// # Errors
/// [`Error`].
pub async fn record(ctx: &Context, void: &[Void]) -> Result<(), Error> {
    let writes = void
        .iter()
        .map(|void| async move {
            let status = member::void(&void.view, &void.why);
            member::write(ctx, &void.view, &status).await
        })
        .collect();
    for written in few_at_once(writes).await {
        match written? {
            // Changed or refused: it does not ride, and is judged again.
            Written::Yes | Written::Changed | Written::Refused => {}
        }
    }
    Ok(())
}

/// Whether a member's prune was found void.
#[must_use]
pub fn is_void(view: &SnapshotView) -> bool {
    let deletion = view.status.as_ref().and_then(|s| s.deletion.as_ref());
    deletion.is_some_and(|d| d.outcome.as_deref() == Some(RetainReason::Unjustified.reason()))
}

/// Marks the Snapshots whose snapshots a mover did not find, and answers which of its members' prunes are void on
/// their account, by UID.
///
/// # Errors
/// [`Error`]; a conflict leaves the Job for the next pass.
pub async fn vanish<'a>(
    ctx: &Context,
    job: &BatchJob,
    unjustified: impl Iterator<Item = &'a Arc<SnapshotView>>,
    missing: &[String],
    now: Timestamp,
) -> Result<BTreeMap<String, String>, Error> {
    let lane = LaneKey::Physical(job.unique_id.clone());
    let missing: BTreeSet<&str> = missing.iter().map(String::as_str).collect();
    let mut void = BTreeMap::new();
    let mut vanished = BTreeMap::new();
    for view in unjustified {
        let now_kept;
        let mut ids = stamped(view);
        if let Some(policy) = view.policy() {
            now_kept = policy::kept_now(view, &ctx.world.snapshots_of_policy(&policy), ctx.clock.now());
            ids.extend(now_kept.iter().map(String::as_str));
        }
        let mut gone = BTreeSet::new();
        for id in ids.into_iter().filter(|id| missing.contains(cut(id))) {
            for recorder in ctx.world.live_recorders(&lane, id) {
                gone.insert(id.to_owned());
                vanished.insert(recorder.key(), recorder);
            }
        }
        if !gone.is_empty() {
            let gone: Vec<String> = gone.into_iter().collect();
            void.insert(view.uid().to_owned(), void_because(&gone));
        }
    }
    let marks = vanished
        .into_values()
        .filter(|view| !view.is_vanished())
        .map(|view| mark(ctx, view, now))
        .collect();
    for marked in few_at_once(marks).await {
        marked?;
    }
    Ok(void)
}

async fn mark(ctx: &Context, view: Arc<SnapshotView>, now: Timestamp) -> Result<(), Error> {
    let message = format!(
        "The snapshot {} is not in the repository although nobody deleted it here: it no longer counts for retention, and nothing is pruned on its account. If it is not coming back, delete this object; if the bucket was rolled back or changed by another tool, look there first.",
        view.snapshot_id().unwrap_or_default()
    );
    match member::write(ctx, &view, &member::vanished(&view, &message, now)).await? {
        Written::Yes => {}
        Written::Changed | Written::Refused => return Err(Error::Conflict),
    }
    let _ = ctx
        .event_snapshot(
            &view,
            EventType::Warning,
            "SnapshotVanished",
            &message,
            "CheckRepository",
        )
        .await;
    Ok(())
}

/// Whether a letter is about what a prune stands on.
#[must_use]
pub fn is_unjustified(letter: Letter) -> bool {
    match letter {
        Letter::Unjustified => true,
        Letter::Deleted
        | Letter::Absent
        | Letter::NeverSeen
        | Letter::Failed
        | Letter::StillThere
        | Letter::Mismatch
        | Letter::RepositoryReplaced
        | Letter::OtherCluster
        | Letter::Pinned => false,
    }
}
