//! What a policy prunes and says: pure, time and facts as arguments.

use super::identity::{Refused, Resolved};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::SnapshotView;
use holdfast_api::policy::Retention;
use holdfast_api::shared::Origin;
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{SnapshotPolicy, conditions, names};
use holdfast_core::identity::InForce;
use holdfast_core::retention::{self, Completed, Keep, Retained, ended, justify, mass, stamp};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about one policy.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The policy.
    pub policy: Arc<SnapshotPolicy>,
    /// The repository it names.
    pub repository: Option<RepositoryKey>,
    /// Whether that object exists.
    pub repository_exists: bool,
    /// Under which identity it makes snapshots.
    pub identity: Result<Resolved, Refused>,
    /// The strictest threshold of the repositories concerned; 0: off.
    pub threshold: u32,
    /// Every Snapshot that names this policy.
    pub snapshots: Vec<Arc<SnapshotView>>,
}

/// What is to be done.
#[derive(Debug, Clone)]
pub struct Decision {
    /// Whether the policy can work; the word and the sentence of its conditions.
    pub ready: bool,
    /// Whether a person has to act.
    pub stalled: bool,
    /// The word.
    pub reason: &'static str,
    /// The sentence.
    pub message: String,
    /// Successful Snapshots that count.
    pub active: usize,
    /// End of the newest successful run.
    pub last_success: Option<Timestamp>,
    /// To stamp and delete.
    pub prune: Vec<Prune>,
    /// Deleting already, by another operator's retention that wrote no time: to stamp anew.
    pub restamp: Vec<Prune>,
    /// Retention was asked; without that nothing is recorded as completed.
    pub asked: bool,
    /// Why the identity that the specs ask for is not in force: the message of `IdentityChangeHeld`.
    pub identity_kept: Option<String>,
    /// Why nothing of what retention would prune is pruned: the message of `MassPruneHeld`.
    pub held: Option<String>,
    /// What retention says of each Snapshot that counts, held or not.
    pub retained: Retained,
    /// Live objects whose stamp is old: they lose it.
    pub unstamp: Vec<Arc<SnapshotView>>,
}

/// One Snapshot to stamp and delete.
#[derive(Debug, Clone)]
pub struct Prune {
    /// It.
    pub view: Arc<SnapshotView>,
    /// The ids that were kept instead, joined by commas: they travel with the stamp.
    pub kept: String,
}

/// Decides.
#[must_use]
pub fn decide(facts: &Facts, now: Timestamp) -> Decision {
    let policy = &facts.policy;
    let active: Vec<&Arc<SnapshotView>> = facts.snapshots.iter().filter(|s| counts(s)).collect();
    let mut decision = Decision {
        ready: true,
        stalled: false,
        reason: "PolicyReady",
        message: "The policy is in force.".into(),
        active: active.len(),
        last_success: active.iter().filter_map(|s| ended_at(s, now)).max(),
        prune: Vec::new(),
        restamp: Vec::new(),
        asked: false,
        identity_kept: None,
        held: None,
        retained: Retained::default(),
        unstamp: facts
            .snapshots
            .iter()
            .filter(|s| has_old_stamp(s, now))
            .cloned()
            .collect(),
    };
    let refusals = holdfast_api::validate::policy(&policy.spec);
    if !refusals.is_empty() {
        decision.ready = false;
        decision.stalled = true;
        decision.reason = "InvalidSpec";
        decision.message = refusals
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        return decision;
    }
    if policy.spec.suspend {
        decision.ready = false;
        decision.reason = "Suspended";
        decision.message = "spec.suspend is set: no backups and no pruning. Set it to false to go on.".into();
        return decision;
    }
    if !facts.repository_exists {
        decision.ready = false;
        decision.reason = "RepositoryNotFound";
        let named = facts
            .repository
            .as_ref()
            .map_or_else(|| "repository".to_owned(), ToString::to_string);
        decision.message = format!("The {named} does not exist. Create it, or name another one.");
        return decision;
    }
    match &facts.identity {
        Ok(resolved) => decision.identity_kept = identity_kept(policy, resolved),
        Err(refused) => {
            decision.ready = false;
            decision.stalled = true;
            decision.reason = refused.reason();
            decision.message = refused.message();
            match refused {
                Refused::Invalid(_) => return decision,
                // What is kept of its snapshots does not depend on the name of new ones.
                Refused::Taken { by: _, named: _ } => {}
            }
        }
    }
    let keep = policy.spec.retention.as_ref().map(keep);
    let completed: Vec<Completed> = active.iter().filter_map(|s| completed(s, now)).collect();
    let retained = retention::retain(&completed, keep.as_ref());
    let kept = justify::kept_ids(&completed, &retained);
    let by_uid: BTreeMap<&str, &Arc<SnapshotView>> = active.iter().map(|s| (s.uid(), *s)).collect();
    decision.prune = retained
        .prune
        .iter()
        .filter_map(|uid| by_uid.get(uid.as_str()))
        .filter_map(|view| {
            let kept = kept.get(&group(view)?)?.join(",");
            let view = Arc::clone(view);
            Some(Prune { view, kept })
        })
        .collect();
    decision.restamp = restamp(facts, &completed, keep.as_ref(), now);
    let all: Vec<Prune> = decision.prune.iter().chain(&decision.restamp).cloned().collect();
    let waits = is_adopting(policy);
    decision.asked = !waits;
    if waits {
        // What comes to it a few at a time is judged when all of it is there.
        decision.message =
            "The policy is in force. Snapshots are being adopted: retention waits until all of them are there.".into();
    } else {
        decision.held = held(facts, &all);
    }
    if waits || decision.held.is_some() {
        decision.prune.clear();
        decision.restamp.clear();
    }
    decision.retained = retained;
    decision
}

fn identity_kept(policy: &SnapshotPolicy, resolved: &Resolved) -> Option<String> {
    let InForce::Kept { named, asked } = &resolved.in_force else {
        return None;
    };
    let asked = match asked {
        Ok(asked) => asked,
        Err(why) => {
            return Some(format!(
                "{why}. The snapshots of this policy bear {}@{}, and new ones go on under that. Correct it, or set spec.identity to what they bear.",
                named.username, named.hostname
            ));
        }
    };
    Some(format!(
        "The specs ask for the identity {}@{}, and the snapshots of this policy bear {}@{}. They go on under that one: under another they would be another history, which restores of this policy and its adoption do not look into, and the first backup would read everything. To change it: kubectl -n {} annotate snapshotpolicy/{} {}=\"$(date -u +%FT%TZ)\" --overwrite. To keep it, set spec.identity to what it is.",
        asked.username,
        asked.hostname,
        named.username,
        named.hostname,
        policy.metadata.namespace.as_deref().unwrap_or_default(),
        policy.metadata.name.as_deref().unwrap_or_default(),
        names::ALLOW_IDENTITY_CHANGE,
    ))
}

/// Whether something is being taken over, so that nothing of it is pruned.
#[must_use]
pub fn is_adopting(policy: &SnapshotPolicy) -> bool {
    let adoption = policy.status.as_ref().and_then(|s| s.adoption.as_ref());
    adoption.is_some_and(|adoption| adoption.under_way.is_some())
}

/// `spec.retention` in the words of the decision.
#[must_use]
pub fn keep(retention: &Retention) -> Keep {
    let Retention {
        keep_latest,
        keep_hourly,
        keep_daily,
        keep_weekly,
        keep_monthly,
        keep_annual,
    } = retention;
    Keep {
        latest: *keep_latest,
        hourly: *keep_hourly,
        daily: *keep_daily,
        weekly: *keep_weekly,
        monthly: *keep_monthly,
        annual: *keep_annual,
    }
}

/// Upgrade (`docs/design.md` 3.7): what another operator's retention had begun to delete, and this pass would have
/// pruned too. Not what the breaker holds, and only in favour of what is there.
fn restamp(facts: &Facts, live: &[Completed], keep: Option<&Keep>, now: Timestamp) -> Vec<Prune> {
    let begun: Vec<&Arc<SnapshotView>> = facts.snapshots.iter().filter(|s| begun_elsewhere(s)).collect();
    if begun.is_empty() {
        return Vec::new();
    }
    let mut all = live.to_vec();
    all.extend(begun.iter().filter_map(|s| completed(s, now)));
    let retained = retention::retain(&all, keep);
    let kept = justify::kept_ids(&all, &retained);
    let is_live = |id: &&String| live.iter().any(|one| one.id == **id);
    begun
        .into_iter()
        .filter(|s| retained.prune.iter().any(|uid| uid == s.uid()))
        .filter_map(|view| {
            let ids: Vec<&str> = kept
                .get(&group(view)?)?
                .iter()
                .filter(is_live)
                .map(String::as_str)
                .collect();
            (!ids.is_empty()).then(|| Prune {
                view: Arc::clone(view),
                kept: ids.join(","),
            })
        })
        .collect()
}

/// Whether it is being deleted with the stamp of a retention that wrote no time, as ours always does.
fn begun_elsewhere(view: &SnapshotView) -> bool {
    let list = view.status.as_ref().map(|s| s.conditions.as_slice());
    let held = conditions::get(list.unwrap_or_default(), conditions::DELETION_HELD);
    is_ours(view)
        && view.is_pending_deletion()
        && view.annotation(names::PRUNED_BY) == Some("retention")
        && view.annotation(names::PRUNED_AT).is_none()
        && held.is_none_or(|held| held.status == "False")
}

/// Why so many may not be pruned at once, if they may not.
fn held(facts: &Facts, prune: &[Prune]) -> Option<String> {
    let policy = &facts.policy;
    let retention = policy.status.as_ref().and_then(|s| s.retention.as_ref());
    let annotations = policy.metadata.annotations.as_ref();
    let adopted: Vec<&str> = prune
        .iter()
        .filter(|p| p.view.label(names::ORIGIN_LABEL) == Some(Origin::Adopted.as_str()))
        .map(|p| p.view.uid())
        .collect();
    let status = policy.status.as_ref();
    let held = status.and_then(|s| conditions::get(&s.conditions, conditions::MASS_PRUNE_HELD));
    let pass = mass::Pass {
        prunes: prune.len(),
        adopted: &adopted,
        threshold: facts.threshold,
        generation: policy.metadata.generation,
        completed: retention.and_then(|r| r.completed_generation),
        taken_over: status
            .and_then(|s| s.adoption.as_ref())
            .and_then(|adoption| adoption.last_adopted_at),
        partial: status
            .and_then(|s| s.adoption.as_ref())
            .is_some_and(|adoption| adoption.partial),
        held: held.is_some_and(|held| {
            held.status == "True" && held.observed_generation == policy.metadata.generation
        }),
        acknowledged: annotations.and_then(|a| a.get(names::ALLOW_MASS_PRUNE).map(String::as_str)),
    };
    let generation = policy.metadata.generation.unwrap_or_default();
    let (why, value) = match mass::judge(&pass) {
        mass::Mass::Goes => return None,
        mass::Mass::HeldForEdit(value) => (
            format!(
                "Retention would prune {} Snapshots at once, and the policy was edited (generation {generation}) or adopted Snapshots since retention last ran to its end",
                prune.len()
            ),
            value,
        ),
        mass::Mass::HeldForAdopted(value) => (
            format!(
                "Retention would prune {} adopted Snapshots at once (generation {generation})",
                adopted.len()
            ),
            value,
        ),
    };
    Some(format!(
        "{why}; the threshold is {}, and what is held once stays so when it becomes fewer. Nothing of this policy is pruned until a person decides. To prune them: kubectl -n {} annotate snapshotpolicy/{} {}=\"{value}\" --overwrite. To keep them, set spec.retention so that it keeps them.",
        facts.threshold,
        policy.metadata.namespace.as_deref().unwrap_or_default(),
        policy.metadata.name.as_deref().unwrap_or_default(),
        names::ALLOW_MASS_PRUNE,
    ))
}

/// The ids that retention keeps now of the group that a Snapshot belongs to, newest first, among these.
#[must_use]
pub fn kept_now(of: &SnapshotView, snapshots: &[Arc<SnapshotView>], now: Timestamp) -> Vec<String> {
    let Some(own) = group(of) else {
        return Vec::new();
    };
    let mut there: Vec<Completed> = snapshots
        .iter()
        .filter(|s| counts(s))
        .filter_map(|s| completed(s, now))
        .filter(|s| s.group == own)
        .collect();
    there.sort_by(|a, b| b.ended_at.cmp(&a.ended_at).then(a.id.cmp(&b.id)));
    there.dedup_by(|a, b| a.id == b.id);
    there.into_iter().map(|s| s.id).collect()
}

/// Each repository has a history of its own: a policy that moved does not prune what it left behind by what it has
/// now.
fn group(view: &SnapshotView) -> Option<String> {
    let status = view.status.as_ref()?;
    let source = status
        .snapshot
        .as_ref()?
        .identity
        .as_ref()
        .map(|i| i.source_path.clone());
    let repository = view.pin().map(|k| k.to_string()).unwrap_or_default();
    // An object made anew over another repository has another history under the same name.
    let unique_id = status.resolved.as_ref().and_then(|r| r.unique_id.clone());
    let unique_id = unique_id.unwrap_or_default();
    Some(format!("{repository}|{unique_id}|{}", source.unwrap_or_default()))
}

/// A Snapshot as retention sees it at this moment; none: it has not come to an end that is recorded.
#[must_use]
pub fn completed(view: &SnapshotView, now: Timestamp) -> Option<Completed> {
    Some(Completed {
        uid: view.uid().to_owned(),
        id: view.snapshot_id()?.to_owned(),
        group: group(view)?,
        ended_at: ended_at(view, now)?,
        pinned: view.is_kept_by_pin(),
        vanished: view.is_vanished(),
    })
}

/// Those of these Snapshots that count, as retention sees them at this moment.
#[must_use]
pub fn counted(snapshots: &[Arc<SnapshotView>], now: Timestamp) -> Vec<Completed> {
    let those = snapshots.iter().filter(|view| counts(view));
    those.filter_map(|view| completed(view, now)).collect()
}

/// Its end. What was recorded before now had ended when it was recorded.
fn ended_at(view: &SnapshotView, now: Timestamp) -> Option<Timestamp> {
    let status = view.status.as_ref()?;
    let recorded = conditions::get(&status.conditions, conditions::READY)
        .filter(|ready| ready.status == "True" && ready.reason == "SnapshotCreated")
        .map_or(now, |ready| ready.last_transition_time.0.min(now));
    Some(ended::known(status.timing.as_ref()?.end_time?, recorded))
}

/// Whether retention counts it: not vanished, succeeded, with a recorded snapshot, not being deleted, ours by origin.
fn counts(view: &SnapshotView) -> bool {
    is_ours(view)
        && view.metadata.deletion_timestamp.is_none()
        && view.phase() == Some(SnapshotPhase::Succeeded)
        && view.snapshot_id().is_some()
        && !view.is_vanished()
}

fn is_ours(view: &SnapshotView) -> bool {
    let origin = view
        .label(names::ORIGIN_LABEL)
        .map_or(Origin::Manual, Origin::parse);
    match origin {
        Origin::Scheduled | Origin::Manual | Origin::Adopted => true,
        Origin::Discovered | Origin::Replicated | Origin::Unknown => false,
    }
}

/// Whether it goes with its policy: ours by origin, naming the policy, and not being deleted already.
#[must_use]
pub fn is_child(view: &SnapshotView, policy: &ObjectKey) -> bool {
    is_ours(view)
        && view.metadata.deletion_timestamp.is_none()
        && view.policy().is_some_and(|named| named == *policy)
}

/// A live object whose stamp's delete never happened: a later deletion by a person must not be taken for a prune.
fn has_old_stamp(view: &SnapshotView, now: Timestamp) -> bool {
    if view.metadata.deletion_timestamp.is_some() || view.annotation(names::PRUNED_BY).is_none() {
        return false;
    }
    stamp::is_left_over(
        view.annotation(names::PRUNED_AT).and_then(|t| t.parse().ok()),
        now,
    )
}
