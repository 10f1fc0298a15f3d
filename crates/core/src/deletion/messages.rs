//! The sentences people read: what is held and how to release it, what was kept, what is waited for.
//!
//! **Promises.** A hold names count, threshold, repository, the command to copy with its value, and the way out
//! for a single Snapshot. Every wait says what will end it. No sentence promises a rescan by a timer.
//!
//! **Assumes.** The literal annotation names come from the caller: they are contract and live in one place.

use super::ack::{AHEAD, parse, render};
use super::facts::{MemberFacts, Owner, RepositoryKey, Sharing};
use super::look::{Again, Reappeared};
use super::plan::{Decision, RepositoryPlan};
use super::verdict::{OrphanReason, ReleaseReason, RetainReason, Verdict, Wait, Withdraw};
use jiff::Timestamp;

/// Literal names a sentence needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Words<'a> {
    /// Annotation that acknowledges a wave, whole: `…/allow-mass-deletion`.
    pub allow_mass_deletion: &'a str,
    /// Annotation that lets one Snapshot go without touching data, whole: `…/skip-snapshot-cleanup`.
    pub skip_snapshot_cleanup: &'a str,
}

/// Most namespaces a message lists.
const LISTED_NAMESPACES: usize = 8;

/// The command that acknowledges everything up to `newest`.
#[must_use]
pub fn acknowledge_command(words: Words<'_>, repository: &RepositoryKey, newest: Timestamp) -> String {
    let (scope, object) = match repository {
        RepositoryKey::Repository { namespace, name } => {
            (format!("-n {namespace} "), format!("repository/{name}"))
        }
        RepositoryKey::ClusterRepository { name } => (String::new(), format!("clusterrepository/{name}")),
    };
    format!(
        "kubectl {scope}annotate {object} {}=\"{}\" --overwrite",
        words.allow_mass_deletion,
        render(newest)
    )
}

/// The command that lets one Snapshot go and keeps its data.
#[must_use]
pub fn skip_command(words: Words<'_>, namespace: &str, name: &str) -> String {
    format!(
        "kubectl -n {namespace} annotate snapshot/{name} {}=\"\"",
        words.skip_snapshot_cleanup
    )
}

/// The message of `DeletionHeld` and of the event `SnapshotDeletionHeld`; none when this object holds nothing.
#[must_use]
pub fn held(words: Words<'_>, repository: &RepositoryPlan, member: &MemberFacts) -> Option<String> {
    let hold = repository.hold.as_ref()?;
    Some(format!(
        "{}. Nothing is deleted until a person decides. To delete everything held so far on {}: {}. To keep the data of this Snapshot and let the object go: {}",
        why_held(repository),
        repository.key,
        acknowledge_command(words, &repository.key, hold.newest),
        skip_command(words, &member.namespace, &member.name),
    ))
}

/// The message of `MassDeletionHeld` on the repository, held or not; none while nothing is known.
#[must_use]
pub fn mass_deletion(words: Words<'_>, repository: &RepositoryPlan) -> Option<String> {
    let threshold = repository.threshold?;
    let Some(hold) = &repository.hold else {
        return Some(match threshold {
            0 => "The breaker is switched off: threshold is 0.".to_owned(),
            _ => format!(
                "{} pending deletions, threshold {threshold}; nothing is held.",
                repository.count
            ),
        });
    };
    let mut namespaces: Vec<(&str, usize)> = hold
        .namespaces
        .iter()
        .map(|(namespace, count)| (namespace.as_str(), *count))
        .collect();
    namespaces.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
    let mut list: Vec<String> = namespaces
        .iter()
        .take(LISTED_NAMESPACES)
        .map(|(namespace, count)| format!("{namespace} ({count})"))
        .collect();
    if namespaces.len() > LISTED_NAMESPACES {
        list.push(format!("{} more", namespaces.len() - LISTED_NAMESPACES));
    }
    Some(format!(
        "{}. {} held here since {}, in namespaces: {}. To delete all of them: {}. To keep the data of a Snapshot and let the object go, put the annotation {} on it.",
        why_held(repository),
        hold.held,
        render(hold.since),
        list.join(", "),
        acknowledge_command(words, &repository.key, hold.newest),
        words.skip_snapshot_cleanup,
    ))
}

fn why_held(repository: &RepositoryPlan) -> String {
    let threshold = repository.threshold.unwrap_or_default();
    if repository.is_at_threshold() {
        format!(
            "{} deletions are pending on {}, the threshold is {threshold}",
            repository.count, repository.key
        )
    } else if let Some(reached) = repository.window {
        format!(
            "{} deletions are pending on {} and {} were carried out in the last {:#} without an acknowledgement; slidingWindow.threshold is {}",
            repository.count,
            repository.key,
            reached.fired,
            reached.window.duration,
            reached.window.threshold
        )
    } else {
        format!(
            "{} deletions are pending on {}, below the threshold of {threshold}, but they belong to a wave that was held; a hold does not end because others were rescued or a repository object went",
            repository.count, repository.key
        )
    }
}

/// The message of the event `InvalidMassDeletionAck`.
#[must_use]
pub fn invalid_acknowledgement(words: Words<'_>, value: &str) -> String {
    let shown: String = value.chars().take(64).collect();
    if parse(value).is_some() {
        return format!(
            "the annotation {} has the value {shown:?}, which was more than {} minutes ahead when it was first seen: it would cover deletions that nobody has seen. It is ignored and the breaker stays armed; write the time that the message of MassDeletionHeld shows",
            words.allow_mass_deletion,
            AHEAD.as_mins()
        );
    }
    format!(
        "the annotation {} has the value {shown:?}, which is not an RFC 3339 time such as 2026-01-02T03:04:05Z; it is ignored and the breaker stays armed",
        words.allow_mass_deletion
    )
}

/// What is written about a member: condition and event message of its decision. `wave` is the plan of its
/// repository object.
#[must_use]
pub fn describe(
    words: Words<'_>,
    member: &MemberFacts,
    decision: &Decision,
    wave: Option<&RepositoryPlan>,
) -> String {
    if let Some(wait) = decision.waits_for() {
        return waiting(wait);
    }
    match decision.verdict {
        Verdict::InFlight if member.skip => format!(
            "A delete Job that may have started includes this Snapshot; {} came too late for it, the Job's result decides.",
            words.skip_snapshot_cleanup
        ),
        Verdict::InFlight => "A delete Job includes this Snapshot; its result decides.".to_owned(),
        Verdict::Release(reason) => released(reason).to_owned(),
        Verdict::Orphan(reason) => orphaned(words, reason),
        Verdict::Retain(reason) => retained(member, reason),
        Verdict::Wait(wait) => waiting(wait),
        Verdict::Held(_) => wave
            .and_then(|wave| held(words, wave, member))
            .unwrap_or_else(|| "Held by the breaker; its repository shows how to release it.".to_owned()),
        Verdict::Delete(reason) => {
            format!(
                "The snapshot is being deleted from the repository ({}).",
                reason.reason()
            )
        }
    }
}

fn released(reason: ReleaseReason) -> &'static str {
    match reason {
        ReleaseReason::NothingRecorded => {
            "No snapshot was completed for this object, so nothing was deleted and nothing is kept."
        }
    }
}

fn orphaned(words: Words<'_>, reason: OrphanReason) -> String {
    let why = match reason {
        OrphanReason::Skip => {
            return format!(
                "{} is set: the object is let go, the repository was not contacted.",
                words.skip_snapshot_cleanup
            );
        }
        OrphanReason::ApiGoingAway => {
            "the Snapshot CRD itself is being deleted, which is no wish to delete backups"
        }
        OrphanReason::NamespaceTerminating => {
            "its namespace is being deleted and the repository's onNamespaceDelete is not Delete; set onNamespaceDelete: Delete to delete data with the namespace"
        }
        OrphanReason::NoPlaceToRun => {
            "there is no namespace in which a delete Job could run: the repository's is being deleted, or the operator's is not set; delete the snapshot with the repository's own tool if it is not wanted"
        }
        OrphanReason::Policy => "deletionPolicy is Orphan",
        OrphanReason::RepositoryUnknown => {
            "the repository object it belongs to no longer exists, or nothing records which one that is; once there is one for that repository, its catalog finds the snapshot"
        }
    };
    format!("The object is let go and the data stays where it is: {why}.")
}

/// The message of a kept snapshot; for the loud ones also that of the Warning event.
#[must_use]
pub fn retained(member: &MemberFacts, reason: RetainReason) -> String {
    let again = "The next catalog scan of the repository lists it as origin: discovered";
    match reason {
        RetainReason::ScheduleDelete => {
            let schedule = match member.owner {
                Owner::Replaced => "was deleted and created anew",
                Owner::Terminating => "is being deleted",
                Owner::None | Owner::Alive | Owner::Gone | Owner::Unknown => "is gone",
            };
            format!(
                "The SnapshotSchedule that owns this Snapshot {schedule}, and onScheduleDelete is Retain: the snapshot was kept in the repository. {again}. To delete data with a schedule, set spec.deletion.onScheduleDelete: Delete on it first."
            )
        }
        RetainReason::PolicyDelete => format!(
            "The SnapshotPolicy of this Snapshot was deleted, and onPolicyDelete is Retain: the snapshot was kept in the repository. {again}. To delete data with a policy, set spec.deletion.onPolicyDelete: Delete on it first."
        ),
        RetainReason::Policy => {
            format!(
                "The snapshot was kept in the repository: its effective deletionPolicy is Retain. {again}."
            )
        }
        RetainReason::Unjustified => format!(
            "Retention had pruned this Snapshot, and the prune is void: what it kept instead is not in the repository any more (condition Vanished), or the snapshot is pinned in the repository itself. It was kept there. {again}."
        ),
        RetainReason::ReplacedRun => format!(
            "The run was cancelled by concurrencyPolicy Replace but had completed its snapshot, which was kept in the repository. {again}."
        ),
        RetainReason::SharedSnapshot => match &member.sharing {
            Sharing::WithLive(other) => format!(
                "The snapshot was kept in the repository: Snapshot {other} records the same one and now decides about it."
            ),
            Sharing::Alone | Sharing::Unknown => {
                "The snapshot was kept in the repository: another Snapshot records the same one.".to_owned()
            }
        },
    }
}

/// Why a live batch is withdrawn.
#[must_use]
pub fn withdrawn(reason: Withdraw) -> &'static str {
    match reason {
        Withdraw::NotStarted => {
            "no container of the delete Job started in time; it is withdrawn and planned anew"
        }
        Withdraw::MemberNotDeletable => {
            "a Snapshot of the delete Job may no longer be deleted and no container has started; the Job is withdrawn and planned anew"
        }
    }
}

/// The message of `DeletionBlocked`: what is waited for, and what ends it.
#[must_use]
pub fn waiting(wait: Wait) -> String {
    let text = match wait {
        Wait::ForeignManager => {
            "another manager of this API group is running; nothing is decided until it is stopped"
        }
        Wait::CacheCold => {
            "the operator has not yet read every object; ends by itself within seconds of its start"
        }
        Wait::OwnMoverRunning => {
            "the Snapshot's own backup Job is running; it is stopped first and its result is read"
        }
        Wait::OwnResultUnread => "the Snapshot's own backup Job has ended; its result is read first",
        Wait::OwnMoverUnknown => "whether the Snapshot's own backup Job runs cannot be read now; tried again",
        Wait::PlaceUnknown => {
            "the namespace in which the delete Job would run cannot be read now; tried again"
        }
        Wait::PolicyUnreadable => {
            "spec.deletionPolicy has a value this release does not know; set Delete, Retain or Orphan, or upgrade"
        }
        Wait::CascadeUnreadable => {
            "spec.onScheduleDelete has a value this release does not know; set Retain or Delete, or upgrade"
        }
        Wait::OwnerUnknown => {
            "the SnapshotSchedule that owns it cannot be read now; tried again, never guessed"
        }
        Wait::SharingUnknown => {
            "whether another Snapshot records the same snapshot cannot be read now; tried again"
        }
        Wait::SharedWithPending => {
            "another Snapshot that is held or waits records the same snapshot; ends when that one is decided"
        }
        Wait::RepositoryUnreadable => "its repository object cannot be read now; tried again",
        Wait::RepositoryMismatch => {
            "the repository it is pinned to is not the one it resolves to; ends when both agree, or with the skip annotation"
        }
        Wait::NamespaceUnreadable => "its own namespace cannot be read now; tried again",
        Wait::SourceNotRecorded => {
            "the Snapshot records no source to compare with, so nothing is deleted; ends when its status carries one, or with the skip annotation"
        }
        Wait::RepositoryNotConnected => {
            "the repository has not been connected yet; ends when its unique id is known"
        }
        Wait::RepositorySuspended => {
            "the repository is suspended; ends when spec.suspend is false on every object of it"
        }
        Wait::DeletionsPaused => {
            "deletions are paused for the whole operator; ends when deletions.paused is false"
        }
        Wait::RepositoryBackingOff(until) => {
            return format!(
                "the repository could not be reached by the last delete Job; tried again at {}",
                render(until)
            );
        }
        Wait::BackingOff(until) => {
            return format!(
                "the last try failed, see status.deletion.lastError; tried again at {}",
                render(until)
            );
        }
        Wait::MemberTooLarge => {
            "what this Snapshot records does not fit a delete Job's work document; use the skip annotation"
        }
        Wait::QuietWindow(until) => {
            return format!("waits for other deletions to arrive, until {}", render(until));
        }
        Wait::BatchLive => "another delete Job of this repository is running; ends with it",
        Wait::JobNotStarted => "its delete Job is created and no container has started yet",
        Wait::Withdrawing => "its delete Job is being withdrawn; decided anew when no pod of it is left",
        Wait::JobCapReached => {
            "as many delete Jobs as maxConcurrentDeleteJobs allows are running; tried again"
        }
        Wait::WritersRunning(until) => {
            return format!(
                "backups run on this repository and its engine deletes safely only alone; the delete Job waits for them, until {} at the latest",
                render(until)
            );
        }
        Wait::WritersFirst(until) => {
            return format!(
                "backups that the last delete Job held back go first, until {} at the latest",
                render(until)
            );
        }
        Wait::MaintenanceRunning => {
            "a maintenance Job frees space in this repository, or a Job pins a snapshot there, and no delete Job runs beside one; ends with it, or at its deadline"
        }
        Wait::NextBatch => "rides in the next delete Job of this repository",
        Wait::RidesAlone => {
            "rides alone, in one of the next delete Jobs: it has no recorded repository, or no delete Job with it ever answered"
        }
    };
    text.to_owned()
}

/// The message of `DeletedSnapshotsReappeared`.
#[must_use]
pub fn reappeared(words: Words<'_>, repository: &RepositoryKey, found: &Reappeared, again: Again) -> String {
    let what = format!(
        "{} snapshots that a delete Job had proven gone are in {repository} again, found {}",
        found.count,
        render(found.found_at)
    );
    match again {
        Again::Delete(_) | Again::Later(_) => format!("{what}. They are deleted again."),
        Again::Held => format!(
            "{what}. Someone may have rolled the bucket back, so nothing is deleted until a person decides. To delete them again, and everything else that is held on it up to that moment: {}. Without that they are forgotten a day after they were found, and the catalog lists them as origin: discovered.",
            acknowledge_command(words, repository, found.found_at)
        ),
    }
}
