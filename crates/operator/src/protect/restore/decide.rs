//! What is to be done about a Restore: pure, time and facts as arguments. First match wins.

use super::claims::Claim;
use super::job::{self, Answer};
use super::observe::{Facts, Populate, Target, since};
use super::source::{self, Asks, Source};
use crate::jobs::outcome::JobFact;
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{JobState, JobView, RepositoryView};
use holdfast_api::names;
use holdfast_api::restore::{OnMissingSnapshot, Resolution, ResolvedRestore, RestorePhase};
use holdfast_api::shared::duration;
use holdfast_core::backoff;
use holdfast_core::restore::{Missing, OnMissing, Reason, may_restore, may_restore_of, missing};
use holdfast_protocol::restore::{Found, NotSet};
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// How often what is missing is looked for again.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// How often a Restore that fills claims looks for one.
const CLAIMS: SignedDuration = SignedDuration::from_secs(15);

/// The next step.
#[derive(Debug, Clone)]
pub enum Step {
    /// Nothing, for so long; none is until an event comes.
    Rest(Option<SignedDuration>),
    /// Say what it waits for, and look again.
    Say(Reason, String, SignedDuration),
    /// It ends without the data.
    Fail(Reason, String),
    /// It ends well.
    Finish(Reason, String),
    /// A claim asks to be filled: begin anew for it.
    Begin(Box<Claim>),
    /// The claim that was being filled is gone: wait for another.
    Forget,
    /// These Jobs are not wanted any more: remove them, and begin nothing before they are gone.
    Remove(Vec<Arc<JobView>>),
    /// The spec was edited while it was at work: forget what was recorded for the old one.
    StartOver,
    /// Record which snapshot it is.
    Pin(Box<ResolvedRestore>),
    /// Create the Job that asks the repository.
    Ask(Box<Asks>, Arc<RepositoryView>),
    /// Make the claim.
    MakeClaim,
    /// Make the claim that is filled in the place of this one.
    MakePrime(Box<Claim>),
    /// Create the Job that writes.
    Write(Arc<RepositoryView>, String),
    /// The Job runs.
    Running(Box<JobFact>),
    /// Nothing came of the Job, and another may do better, after this time or by the backoff.
    Retry(Reason, String, Option<Timestamp>),
    /// Everything is written: record how much.
    Written(Box<Written>),
    /// Give the volume to this claim.
    HandOver(String, Box<Claim>),
}

/// What a mover wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// What could not be set, if the engine can tell.
    pub not_set: Option<NotSet>,
    /// Why that makes it fail.
    pub failed: Option<String>,
}

/// Decides.
#[must_use]
pub fn decide(facts: &Facts, now: Timestamp) -> Step {
    if facts.phase() == Some(RestorePhase::Unknown) {
        return Step::Rest(None);
    }
    let leftovers = (!facts.leftovers.is_empty()).then(|| Step::Remove(facts.leftovers.clone()));
    if facts.has_ended() {
        return leftovers.unwrap_or_else(|| after_the_end(facts));
    }
    if !facts.refusals.is_empty() {
        return Step::Fail(Reason::InvalidSpec, facts.refusals.join("; "));
    }
    if let Some(step) = leftovers {
        return step;
    }
    if is_to_start_over(facts) {
        return Step::StartOver;
    }
    if let Target::Populate(populate) = &facts.target
        && let Some(step) = choose_claim(facts, populate)
    {
        return step;
    }
    if let (Some(repository), false) = (&facts.keeps, facts.is_written()) {
        return Step::Fail(
            Reason::TargetIsRepository,
            format!(
                "{repository} keeps its repository on the claim that this Restore goes to. Nothing was written. Restore to another claim."
            ),
        );
    }
    let status = facts.view.status.clone().unwrap_or_default();
    if let Some(next) = status
        .next_attempt_at
        .filter(|next| backoff::REPOSITORY.waits(*next, now))
    {
        // The conditions say already what is waited for.
        return Step::Rest(Some(next.duration_since(now).min(AGAIN)));
    }
    match facts.resolved() {
        None => resolve(facts, now),
        Some(resolved) => match resolved.resolution {
            Resolution::Snapshot => write(facts, resolved),
            Resolution::NoSnapshot => leave_empty(facts),
            Resolution::Unknown => Step::Rest(None),
        },
    }
}

/// What was recorded and begun answers for the spec it was begun for. A volume that is filled is still handed over.
fn is_to_start_over(facts: &Facts) -> bool {
    let status = facts.view.status.as_ref();
    let begun = status.is_some_and(|s| s.resolved.is_some() || s.job.is_some() || s.attempts.is_some());
    begun && facts.is_edited() && !facts.is_written() && facts.volume().is_none()
}

/// A Restore that fills claims goes on for a claim that it has not filled.
fn after_the_end(facts: &Facts) -> Step {
    let Target::Populate(populate) = &facts.target else {
        return Step::Rest(None);
    };
    let status = facts.view.status.as_ref();
    let ended = status.map(|s| s.ended_claims.as_slice()).unwrap_or_default();
    let again = facts.phase() == Some(RestorePhase::Failed) && facts.is_edited();
    let is_done = |uid: &String| Some(uid.as_str()) == facts.filling() || ended.contains(uid);
    let fresh = |claim: &&Claim| again || !is_done(&claim.uid);
    match populate.unbound.iter().find(fresh) {
        Some(claim) => Step::Begin(Box::new(claim.clone())),
        None => Step::Rest(Some(CLAIMS)),
    }
}

/// Which claim is filled; none when the recorded one is.
fn choose_claim(facts: &Facts, populate: &Populate) -> Option<Step> {
    match facts.filling() {
        Some(uid) => match populate.find(uid) {
            Some(_) => None,
            None => Some(Step::Forget),
        },
        None => Some(match (populate.unbound.first(), populate.bound.first()) {
            (Some(claim), _) => Step::Begin(Box::new(claim.clone())),
            (None, Some(bound)) => Step::Finish(
                Reason::TargetAlreadyBound,
                format!(
                    "Claim {} was bound before it was looked at; nothing was written to it.",
                    bound.name
                ),
            ),
            (None, None) => Step::Say(
                Reason::WaitingForClaim,
                "No unbound claim of this namespace names this Restore in spec.dataSourceRef.".into(),
                CLAIMS,
            ),
        }),
    }
}

fn resolve(facts: &Facts, now: Timestamp) -> Step {
    match facts.source.clone() {
        None => Step::Rest(Some(AGAIN)),
        Some(Source::Waits((reason, message))) => Step::Say(reason, message, AGAIN),
        Some(Source::Ends((reason, message))) => Step::Fail(reason, message),
        Some(Source::Missing(what)) => none_there(facts, &what, &[], now),
        Some(Source::Known(resolved)) => Step::Pin(resolved),
        Some(Source::Asks(asks)) => match &facts.job {
            None => match &facts.repository {
                Some(Ok(repository)) => Step::Ask(asks, Arc::clone(repository)),
                Some(Err((reason, message))) => Step::Say(*reason, message.clone(), AGAIN),
                None => Step::Rest(Some(AGAIN)),
            },
            Some(job) => match job.state {
                JobState::Waiting | JobState::Active => Step::Running(Box::new(job.clone())),
                JobState::Succeeded | JobState::Failed => match job::answer(job) {
                    Answer::Resolved(found) => match other_cluster(facts, &asks, &found) {
                        Some(message) => Step::Say(Reason::OtherCluster, message, AGAIN),
                        None => Step::Pin(Box::new(job::pin(&found, asks.repository.as_ref(), job, now))),
                    },
                    Answer::Nothing { of_identity, others } => {
                        let wanted = &asks.wanted;
                        let path = wanted.path.as_deref().unwrap_or("any path");
                        let what = format!(
                            "The repository has {of_identity} snapshots of {}@{} {path}, and none fits",
                            wanted.username, wanted.hostname
                        );
                        none_there(facts, &what, &others, now)
                    }
                    Answer::Ambiguous(paths) => Step::Fail(
                        Reason::AmbiguousIdentity,
                        format!(
                            "The identity has snapshots of several paths: {}. Name one in spec.source.identity.sourcePath of a new Restore.",
                            paths.join(", ")
                        ),
                    ),
                    Answer::Unreachable(why) => Step::Retry(Reason::BackendUnreachable, why, None),
                    Answer::Failed(reason, why) => Step::Fail(reason, why),
                    Answer::Gone | Answer::Written(_) => {
                        Step::Fail(Reason::RestoreFailed, "The mover answered something else than was asked; are operator and mover of one release?".into())
                    }
                },
            },
        },
    }
}

/// Why a snapshot that was found is not restored unasked: another cluster took it.
fn other_cluster(facts: &Facts, asks: &Asks, found: &Found) -> Option<String> {
    let of_cluster = matches!(asks.repository, Some(RepositoryKey::ClusterRepository { .. }));
    let meta = &facts.view.metadata;
    let own = meta
        .annotations
        .as_ref()
        .and_then(|a| a.get(names::RESTORE_FROM_CLUSTERS));
    let repository = facts.repository.as_ref().and_then(|r| r.as_ref().ok());
    let granted = repository.and_then(|r| r.annotation(names::RESTORE_FROM_CLUSTERS));
    let asked_for: Vec<&str> = own
        .map(String::as_str)
        .into_iter()
        .chain(granted)
        .flat_map(|list| list.split(','))
        .map(str::trim)
        .collect();
    let other = found.other_cluster.as_deref();
    let by_id = asks.wanted.snapshot_id.is_some();
    if may_restore_of(of_cluster, other, by_id, &asked_for) {
        return None;
    }
    let (other, key) = (other.unwrap_or_default(), names::RESTORE_FROM_CLUSTERS);
    Some(format!(
        "The snapshot that fits, {} of {}, was taken by another cluster ({other}), and this one has none of {}@{}. The namespace of the same name there may be somebody else's, so nothing is restored unasked. If it is yours: kubectl -n {} annotate restore/{} {key}={other}. For every restore from this repository: the same annotation on the ClusterRepository.",
        found.snapshot_id,
        found.start_time,
        asks.wanted.username,
        asks.wanted.hostname,
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    ))
}

/// Nothing is there: wait, fail, or leave the target empty; `others` have snapshots of the same path.
fn none_there(facts: &Facts, what: &str, others: &[String], now: Timestamp) -> Step {
    let named = match others {
        [] => String::new(),
        _ => format!("; of the same path there are snapshots of {}", others.join(", ")),
    };
    let what = format!("{what}{named}");
    let policy = facts.view.spec.policy.clone().unwrap_or_default();
    let from_policy = facts.view.spec.source.from_policy.is_some();
    let on = match policy.on_missing_snapshot {
        Some(OnMissingSnapshot::Fail | OnMissingSnapshot::Unknown) => OnMissing::Fail,
        Some(OnMissingSnapshot::Continue) => OnMissing::Continue,
        None if from_policy => OnMissing::Continue,
        None => OnMissing::Fail,
    };
    let wait = policy
        .wait_timeout
        .as_deref()
        .and_then(duration)
        .unwrap_or_default();
    match missing(on, since(facts), wait, now, !others.is_empty()) {
        Missing::LookAgain(until) => {
            let message = format!("{what}. Looked for again until {until}.");
            let pause = AGAIN.min(until.duration_since(now));
            if facts.job.is_some() {
                let next = now.checked_add(pause).unwrap_or(until);
                Step::Retry(Reason::SnapshotNotFound, message, Some(next))
            } else {
                Step::Say(Reason::SnapshotNotFound, message, pause)
            }
        }
        Missing::Fail => Step::Fail(
            Reason::SnapshotMissing,
            format!(
                "{what}. Make a new Restore when there is one, or with spec.policy.onMissingSnapshot: Continue to go on without."
            ),
        ),
        Missing::OtherIdentity => Step::Retry(
            Reason::OtherIdentity,
            format!(
                "{what}. The name that the policy says may have been another one then, so the target is not left empty. To restore one of these, make a new Restore that says its username, hostname and sourcePath in spec.source.identity; to go on without data, one that says the policy's own there, with spec.policy.onMissingSnapshot: Continue."
            ),
            None,
        ),
        Missing::Continue => Step::Pin(Box::new(ResolvedRestore {
            resolution: Resolution::NoSnapshot,
            kopia_snapshot_id: None,
            snapshot_ref: None,
            repository: None,
            unique_id: None,
            identity: None,
            start_time: None,
            size_bytes: None,
            pinned_at: now,
        })),
    }
}

fn write(facts: &Facts, resolved: &ResolvedRestore) -> Step {
    if facts.is_written() {
        return hand_over(facts, Reason::RestoreSucceeded);
    }
    if let Some(step) = target_missing(facts) {
        return step;
    }
    let Some(job) = &facts.job else {
        return match &facts.repository {
            Some(Ok(view))
                if resolved.unique_id.is_some() && view.unique_id() != resolved.unique_id.as_deref() =>
            {
                let message = format!(
                    "{} has the unique id {}, recorded is {}: it is another repository. Nothing was written.",
                    view.key,
                    view.unique_id().unwrap_or_default(),
                    resolved.unique_id.clone().unwrap_or_default()
                );
                Step::Fail(Reason::RepositoryReplaced, message)
            }
            Some(Ok(view)) if !is_allowed(facts, resolved, view) => Step::Fail(
                Reason::IdentityNotAllowed,
                "The recorded identity is not this namespace's. Nothing was written. Make a new Restore."
                    .into(),
            ),
            Some(Ok(view)) => Step::Write(Arc::clone(view), job::target(&facts.view)),
            Some(Err((reason, message))) => Step::Say(*reason, message.clone(), AGAIN),
            None => Step::Rest(Some(AGAIN)),
        };
    };
    match job.state {
        JobState::Waiting | JobState::Active if !job::refused(job) => match &facts.target {
            // Made after its Job, which owns it: it goes with the Job.
            Target::Populate(Populate { prime: None, .. }) => {
                filled_claim(facts).map_or(Step::Forget, |claim| Step::MakePrime(Box::new(claim)))
            }
            Target::Populate(_) | Target::New(_) | Target::Existing(_) | Target::Unread => {
                Step::Running(Box::new(job.clone()))
            }
        },
        JobState::Waiting | JobState::Active | JobState::Succeeded | JobState::Failed => match job::answer(
            job,
        ) {
            Answer::Written(written) => Step::Written(Box::new(written)),
            // Going on without is for a snapshot that never was: this one was there, and its data was asked for.
            Answer::Gone => Step::Fail(
                Reason::SnapshotMissing,
                format!(
                    "Snapshot {} is not in the repository any more: it was deleted after it was recorded. Make a new Restore, of another one.",
                    resolved.kopia_snapshot_id.clone().unwrap_or_default()
                ),
            ),
            Answer::Unreachable(why) => Step::Retry(Reason::BackendUnreachable, why, None),
            Answer::Failed(reason, why) => Step::Fail(reason, why),
            Answer::Resolved(_) | Answer::Nothing { .. } | Answer::Ambiguous(_) => Step::Fail(
                Reason::RestoreFailed,
                "The mover answered something else than was asked; are operator and mover of one release?"
                    .into(),
            ),
        },
    }
}

/// What is recorded is not trusted: whose data it is was asked before it was recorded, and is asked again.
fn is_allowed(facts: &Facts, resolved: &ResolvedRestore, view: &RepositoryView) -> bool {
    let of_cluster = matches!(view.key, RepositoryKey::ClusterRepository { .. });
    let hostname = resolved.identity.as_ref().map(|i| i.hostname.as_str());
    let namespace = ObjectKey::of(facts.view.as_ref()).namespace;
    let whose = source::whose(view, hostname.unwrap_or_default(), facts.recorded_name);
    may_restore(of_cluster, whose, &namespace)
}

/// What has to be there before a mover can write.
fn target_missing(facts: &Facts) -> Option<Step> {
    let uid = facts.view.metadata.uid.as_deref();
    match &facts.target {
        Target::New(None) => Some(Step::MakeClaim),
        Target::New(Some(claim)) if claim.made_by.as_deref() != uid => Some(Step::Fail(
            Reason::TargetExists,
            format!(
                "Claim {} exists, and this Restore did not make it. Use spec.target.pvcRef on a new Restore for a claim that is there.",
                claim.name
            ),
        )),
        Target::Existing(None) => Some(Step::Say(
            Reason::TargetNotFound,
            "The claim of spec.target.pvcRef does not exist. Create it; the restore goes on then.".into(),
            AGAIN,
        )),
        Target::Populate(populate) => {
            let claim = filled_claim(facts)?;
            if claim.volume.is_some() && filled_volume(facts, populate) != claim.volume {
                return Some(hijacked(&claim));
            }
            if let Some(prime) = populate.prime.as_ref().filter(|p| p.made_by.as_deref() != uid) {
                return Some(foreign(prime));
            }
            claim.waits_for_consumer.then(|| {
                Step::Say(
                    Reason::WaitingForConsumer,
                    format!(
                        "The storage class of claim {} binds when a pod uses it, and none does yet.",
                        claim.name
                    ),
                    AGAIN,
                )
            })
        }
        Target::New(Some(_)) | Target::Existing(Some(_)) | Target::Unread => None,
    }
}

fn hijacked(claim: &Claim) -> Step {
    Step::Fail(
        Reason::PopulateHijacked,
        format!(
            "Claim {} was bound to volume {} by another, while its own was being filled: its provisioner ignores dataSourceRef. Nothing was handed over. Use a class whose provisioner heeds it, and make the claim anew.",
            claim.name,
            claim.volume.clone().unwrap_or_default()
        ),
    )
}

fn filled_claim(facts: &Facts) -> Option<Claim> {
    let Target::Populate(populate) = &facts.target else {
        return None;
    };
    populate.find(facts.filling()?).cloned()
}

/// The volume that is recorded as the filled one, else that of the claim which is filled.
fn filled_volume(facts: &Facts, populate: &Populate) -> Option<String> {
    let recorded = facts.volume().map(str::to_owned);
    recorded.or_else(|| populate.prime.as_ref().and_then(|p| p.volume.clone()))
}

fn foreign(prime: &Claim) -> Step {
    Step::Fail(
        Reason::RestoreFailed,
        format!(
            "Claim {} was not made by this Restore, and has the name of the one to be filled. Nothing was handed over. Remove it, and make the claim anew.",
            prime.name
        ),
    )
}

/// There is no snapshot and that is fine: the claim is made or bound all the same.
fn leave_empty(facts: &Facts) -> Step {
    let done = || {
        Step::Finish(
            Reason::NoSnapshot,
            "There is no snapshot, and onMissingSnapshot is Continue: the target was left as it was.".into(),
        )
    };
    match &facts.target {
        Target::Existing(_) | Target::Unread => done(),
        Target::New(_) => target_missing(facts).unwrap_or_else(done),
        Target::Populate(populate) => {
            if let Some(step) = target_missing(facts) {
                return step;
            }
            match (&populate.prime, filled_claim(facts)) {
                (None, Some(claim)) if claim.volume.is_none() && facts.volume().is_none() => {
                    Step::MakePrime(Box::new(claim))
                }
                (_, _) => hand_over(facts, Reason::NoSnapshot),
            }
        }
    }
}

/// The volume is as it is to be: it becomes the claim's.
fn hand_over(facts: &Facts, reason: Reason) -> Step {
    let message = || {
        if reason == Reason::NoSnapshot {
            "There is no snapshot, and onMissingSnapshot is Continue: the volume is empty.".to_owned()
        } else {
            done_message(facts)
        }
    };
    let Target::Populate(populate) = &facts.target else {
        return Step::Finish(reason, message());
    };
    let Some(claim) = filled_claim(facts) else {
        return Step::Forget;
    };
    let uid = facts.view.metadata.uid.as_deref();
    let prime = populate.prime.as_ref();
    match (&claim.volume, filled_volume(facts, populate)) {
        (Some(own), filled) if Some(own) != filled.as_ref() => hijacked(&claim),
        (Some(_), _) if claim.bound => Step::Finish(reason, message()),
        (Some(_), _) => waiting_for_volume(&claim),
        (None, _) if prime.is_some_and(|p| p.made_by.as_deref() != uid) => {
            prime.map_or_else(|| waiting_for_volume(&claim), foreign)
        }
        // Whether a volume whose first claim is gone was handed over in time, its own record says.
        (None, Some(filled)) => Step::HandOver(filled, Box::new(claim)),
        (None, None) if prime.is_none() => Step::Fail(
            Reason::RestoreFailed,
            format!(
                "The claim that was filled for claim {} is gone, and its volume was not handed over. Make the claim anew.",
                claim.name
            ),
        ),
        (None, None) => waiting_for_volume(&claim),
    }
}

fn waiting_for_volume(claim: &Claim) -> Step {
    Step::Say(
        Reason::WaitingForVolume,
        format!("The volume for claim {} is not bound yet.", claim.name),
        SignedDuration::from_secs(2),
    )
}

fn done_message(facts: &Facts) -> String {
    let status = facts.view.status.clone().unwrap_or_default();
    let progress = status.progress.unwrap_or_default();
    let lacks = status.not_restored.map_or_else(String::new, |n| {
        let all = n.owners + n.modes + n.times + n.xattrs + n.special_files;
        if all == 0 {
            String::new()
        } else {
            format!(" {all} things could not be set; status.notRestored has them.")
        }
    });
    format!(
        "{} files with {} bytes are restored.{lacks}",
        progress.files_restored, progress.bytes_restored
    )
}
