//! The page of conditions and reasons, from the enums in which the deletion decision is told.
//!
//! Promise: every reason has a heading of its own, so that its word is an anchor. The matches have no catch-all: a
//! new reason does not compile until the page can say what it means.

use std::path::PathBuf;

use holdfast_api::conditions;
use holdfast_core::deletion::messages::waiting;
use holdfast_core::deletion::verdict::{
    DeleteReason, HeldReason, OrphanReason, ReleaseReason, RetainReason, Wait, Withdraw,
};
use jiff::Timestamp;

use super::{Generated, MARKDOWN_HEAD, cell};

/// `docs/reference/conditions-and-reasons.md`.
pub fn page() -> Generated {
    let mut text = format!(
        "{MARKDOWN_HEAD}# Conditions and reasons

One word for each reason. The same word is the condition's reason, the event's reason, the metric's label and a
heading on this page; those of a Restore and of a Maintenance are on pages of their own ([Restore](restore-reasons.md),
[Maintenance](maintenance-reasons.md)). How deletion works as a whole is in
[protect.md](../protect.md).

## Conditions

| condition | on | what `True` means |
|---|---|---|
"
    );
    for (name, kinds, meaning) in CONDITIONS {
        text.push_str(&format!("| `{name}` | {kinds} | {} |\n", cell(meaning)));
    }
    section(
        &mut text,
        "Held: a person has to look first",
        "Reason of `DeletionHeld`. Nothing is deleted, and it stays so until someone decides.",
        HeldReason::ALL.iter().map(|r| (r.reason(), held(*r))),
    );
    section(
        &mut text,
        "Waiting: `DeletionBlocked`",
        "The deletion has not ended and the breaker is not why. Each says what ends it.",
        every_wait().into_iter().map(|w| (w.reason(), wait(w))),
    );
    section(
        &mut text,
        "Ended: there was nothing to delete",
        "The finalizer is released.",
        ReleaseReason::ALL.iter().map(|r| (r.reason(), release(*r))),
    );
    section(
        &mut text,
        "Ended: the repository was not contacted",
        "The finalizer is released and the data stays where it is.",
        OrphanReason::ALL.iter().map(|r| (r.reason(), orphan(*r))),
    );
    section(
        &mut text,
        "Ended: the data was kept",
        "The finalizer is released; a scan of the repository finds the snapshot again.",
        RetainReason::ALL.iter().map(|r| (r.reason(), retain(*r))),
    );
    section(
        &mut text,
        "Deleted: why that was allowed",
        "The snapshot is deleted from the repository, and the finalizer is released when a new listing no longer has it.",
        DeleteReason::ALL.iter().map(|r| (r.reason(), delete(*r))),
    );
    section(
        &mut text,
        "A delete Job was withdrawn",
        "No container of it had started. Its members are decided anew.",
        Withdraw::ALL.iter().map(|r| (r.reason(), withdraw(*r))),
    );
    Generated {
        path: PathBuf::from("docs/reference/conditions-and-reasons.md"),
        content: text,
    }
}

fn section(
    text: &mut String,
    title: &str,
    intro: &str,
    reasons: impl IntoIterator<Item = (&'static str, String)>,
) {
    text.push_str(&format!("\n## {title}\n\n{intro}\n"));
    for (word, meaning) in reasons {
        text.push_str(&format!("\n### {word}\n\n{meaning}\n"));
    }
}

const REPOSITORIES: &str = "Repository, ClusterRepository";

const CONDITIONS: [(&str, &str, &str); 27] = [
    (
        conditions::READY,
        "all kinds",
        "The object does what its spec asks for.",
    ),
    (conditions::RECONCILING, "all kinds", "Work is under way."),
    (
        conditions::STALLED,
        "all kinds",
        "Nothing will change until a person acts.",
    ),
    (
        conditions::BOOTSTRAPPED,
        REPOSITORIES,
        "The repository was connected or created, and its unique id is known.",
    ),
    (
        conditions::MASS_DELETION_HELD,
        REPOSITORIES,
        "A wave of deletions is held: as many as the threshold are pending (ThresholdExceeded), or with those carried out lately as many as slidingWindow.threshold (SlidingWindowExceeded). The message carries the command that releases it. It never makes the repository unready.",
    ),
    (
        conditions::DELETED_SNAPSHOTS_REAPPEARED,
        REPOSITORIES,
        "Snapshots that a delete Job had proven gone are in the repository again. Fewer than the threshold are deleted again; as many or more are held until a person acknowledges them, because the bucket may have been rolled back. The message says how many, and the command.",
    ),
    (
        conditions::DELETION_JOBS_FAILING,
        REPOSITORIES,
        "Delete Jobs cannot start or connect, for the reason given. They are tried again by themselves; it counts against no Snapshot.",
    ),
    (
        conditions::KEPT_MEMORY_INCOMPLETE,
        REPOSITORIES,
        "Snapshots were let go while their data stays, and what they said of it could not be remembered (MemoryRefused), or the ConfigMaps that remember it were removed (MemoryLost). Nothing is adopted from the repository until a scan finds nothing in it that belongs to no object, or a person accepts it with the command in the message.",
    ),
    (
        conditions::SHARED_REPOSITORY,
        REPOSITORIES,
        "Other objects point to the same physical repository and share its wave (SamePhysicalRepository), or lie below the prefix of a Kopia repository, whose maintenance would delete what is theirs (OverlappingPrefix).",
    ),
    (
        conditions::DELETION_HELD,
        "Snapshot",
        "The breaker holds its deletion, and nothing else does.",
    ),
    (
        conditions::DELETION_BLOCKED,
        "Snapshot",
        "Its deletion waits, for the reason given and until what the message names. One whose data stays waits for that to be written down (MemoryNotWritten).",
    ),
    (
        conditions::MASS_PRUNE_HELD,
        "SnapshotPolicy",
        "Retention would prune as many as the threshold at once because the policy was edited, or as many adopted ones, and waits. The message carries the command that lets it.",
    ),
    (
        conditions::IDENTITY_CHANGE_HELD,
        "SnapshotPolicy",
        "The specs ask for another identity than the policy's snapshots bear. It goes on under that one; the message carries the command that lets the change.",
    ),
    (
        conditions::ADOPTION_CONTESTED,
        "SnapshotPolicy",
        "Another policy claims the same identity, and the repository has snapshots of it that belong to no object: neither policy adopts them (IdentityShared). The message names the other one.",
    ),
    (
        conditions::ADOPTION_HELD,
        "SnapshotPolicy",
        "The repository has snapshots that belong to no object and are of what the policy backs up, and it adopts none of them: not everything that was let go is remembered (KeptMemoryIncomplete), an object has no status (StatusLost), or records a snapshot that is not there under its id (SnapshotNotIdentified). The message says what to do.",
    ),
    (
        conditions::TIMEZONE_DEFAULT_AMBIGUOUS,
        "SnapshotSchedule",
        "The repositories of the policies it selects disagree about `scheduleDefaults`: UTC without jitter counts where the schedule says nothing itself.",
    ),
    (
        conditions::FANOUT_CAPPED,
        "SnapshotSchedule",
        "It selects more policies than one schedule runs: its slots are passed over until it selects fewer.",
    ),
    (
        conditions::PINNED,
        "Snapshot",
        "Its record in the repository says that it is to be kept: we wrote that (Pinned), or somebody else did (PinnedInRepository, which is never taken back here). Unknown while a Job is at it (PinJobRunning). False: nobody did (NotPinned), the last Job failed and the message says when it is tried again (PinJobFailed), another Snapshot records the same snapshot (SharedSnapshot), another pin Job runs on the repository (WaitingForPinJob), a delete Job does (DeletionsRunning), the repository is suspended (RepositorySuspended), or something that a mover needs is missing, in the words of a backup. Absent where nobody asked for a pin.",
    ),
    (
        conditions::VANISHED,
        "Snapshot",
        "Its snapshot is not in the repository although nobody deleted it here. It no longer counts for retention.",
    ),
    (
        conditions::STATUS_LOST,
        "Snapshot",
        "It was brought back without its status, so it is not run and nothing is deleted on its account until it has one.",
    ),
    (
        conditions::CREDENTIALS_AVAILABLE,
        "Snapshot",
        "The Secret and the ServiceAccount of its mover are there.",
    ),
    (
        conditions::SOURCE_PVC_AVAILABLE,
        "Snapshot",
        "The claim it backs up exists.",
    ),
    (
        conditions::MOVER_PERMITTED,
        "Snapshot, Restore",
        "The namespace agreed to the privileged mover that is asked for. False (PrivilegedMoverNotPermitted): it did not, and the message has the command by which it does. Absent where none is asked for.",
    ),
    (
        conditions::RESTORE_REFERENT_AVAILABLE,
        "Restore",
        "What its source and its target name is there.",
    ),
    (
        conditions::BACKEND_REACHABLE,
        REPOSITORIES,
        "The last probe reached the repository. False: it did not (BackendUnreachable), took longer than it may (ProbeDeadlineExceeded), or failed otherwise; status.health counts. As many failures in a row as spec.health.probe.failureThreshold make the repository Degraded, and one that succeeds ends that.",
    ),
    (
        conditions::MAINTENANCE_CONFIGURED,
        REPOSITORIES,
        "A Maintenance is of the repository. Without one, what deletions leave is never freed (MaintenanceNotConfigured).",
    ),
    (
        conditions::LEASE_OWNED,
        "Maintenance",
        "The repository says that this Maintenance maintains it. False: another does, and it is left to them. Absent where the format has no such record.",
    ),
];

fn held(reason: HeldReason) -> String {
    match reason {
        HeldReason::MassDeletionBreaker => {
            "As many deletions as `spec.deletionProtection.threshold` are pending on the repository, or were when this \
             one was judged. Ends when a person acknowledges the wave with the command in the message, when the \
             Snapshot gets the annotation `kopiur.home-operations.com/skip-snapshot-cleanup`, when its policy no \
             longer deletes, or with `threshold: 0` on every repository object concerned. Raising the threshold does \
             not end it."
        }
    }
    .to_owned()
}

fn wait(wait: Wait) -> String {
    let sentence = waiting(wait).replace(&Timestamp::UNIX_EPOCH.to_string(), "the time the message names");
    // A field's name keeps its spelling.
    if let Some((field, rest)) = sentence.split_once(' ').filter(|(first, _)| first.contains('.')) {
        return format!("`{field}` {rest}.");
    }
    let mut letters = sentence.chars();
    let first = letters
        .next()
        .map(|c| c.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn release(reason: ReleaseReason) -> String {
    match reason {
        ReleaseReason::NothingRecorded => {
            "No snapshot id was ever recorded for the object, and no mover of it could still record one."
        }
    }
    .to_owned()
}

fn orphan(reason: OrphanReason) -> String {
    match reason {
        OrphanReason::Skip => "The annotation `kopiur.home-operations.com/skip-snapshot-cleanup` is present.",
        OrphanReason::ApiGoingAway => {
            "The definition of Snapshot itself is being deleted. Uninstalling is no wish to delete backups."
        }
        OrphanReason::NamespaceTerminating => {
            "Its namespace is being deleted, and the repository's `spec.onNamespaceDelete` is not Delete."
        }
        OrphanReason::NoPlaceToRun => {
            "The namespace in which the delete Job would run is being deleted, or the operator's is not set."
        }
        OrphanReason::Policy => "`spec.deletionPolicy` is Orphan.",
        OrphanReason::RepositoryUnknown => "The repository object it belongs to does not exist any more, or the snapshot is not where its policy leads to and nothing recorded another place.",
    }
    .to_owned()
}

fn retain(reason: RetainReason) -> String {
    match reason {
        RetainReason::Policy => "The effective deletion policy is Retain.",
        RetainReason::ScheduleDelete => {
            "The schedule that owns it is gone, was replaced or is being deleted, and `onScheduleDelete` is Retain, \
             which is the default. Comes with the Warning event `SnapshotRetainedOnScheduleDelete`."
        }
        RetainReason::PolicyDelete => {
            "Its policy was deleted, and `onPolicyDelete` is Retain. Comes with a Warning event."
        }
        RetainReason::Unjustified => {
            "Retention pruned it in favour of snapshots that are not in the repository any more, or it is pinned in the \
             repository itself, so the prune is void. Comes with the Warning event `SnapshotPruneVoid`."
        }
        RetainReason::ReplacedRun => {
            "A run that `concurrencyPolicy: Replace` cancelled had finished all the same."
        }
        RetainReason::SharedSnapshot => {
            "Another live Snapshot records the same snapshot; the last one decides."
        }
    }
    .to_owned()
}

fn delete(reason: DeleteReason) -> String {
    match reason {
        DeleteReason::OwnPrune => "Freshly stamped by the operator's own retention or history limit.",
        DeleteReason::BelowThreshold => "Fewer deletions were pending than the threshold.",
        DeleteReason::BreakerDisabled => "`threshold: 0` on every repository object concerned.",
        DeleteReason::Acknowledged => "A person acknowledged the wave, and the acknowledgement covers it.",
    }
    .to_owned()
}

fn withdraw(reason: Withdraw) -> String {
    match reason {
        Withdraw::NotStarted => "It did not start in time.",
        Withdraw::MemberNotDeletable => "A member of it may no longer be deleted.",
    }
    .to_owned()
}

/// Every reason to wait, in the order of their enum.
fn every_wait() -> Vec<Wait> {
    let then = Timestamp::UNIX_EPOCH;
    let mut all = vec![Wait::ForeignManager];
    while let Some(next) = all.last().and_then(|last| after(*last, then)) {
        all.push(next);
    }
    all
}

/// The variant after `wait`; a chain, so that a new variant does not compile until it has its place.
fn after(wait: Wait, then: Timestamp) -> Option<Wait> {
    Some(match wait {
        Wait::ForeignManager => Wait::CacheCold,
        Wait::CacheCold => Wait::OwnMoverRunning,
        Wait::OwnMoverRunning => Wait::OwnResultUnread,
        Wait::OwnResultUnread => Wait::OwnMoverUnknown,
        Wait::OwnMoverUnknown => Wait::PlaceUnknown,
        Wait::PlaceUnknown => Wait::PolicyUnreadable,
        Wait::PolicyUnreadable => Wait::CascadeUnreadable,
        Wait::CascadeUnreadable => Wait::OwnerUnknown,
        Wait::OwnerUnknown => Wait::SharingUnknown,
        Wait::SharingUnknown => Wait::SharedWithPending,
        Wait::SharedWithPending => Wait::RepositoryUnreadable,
        Wait::RepositoryUnreadable => Wait::RepositoryMismatch,
        Wait::RepositoryMismatch => Wait::NamespaceUnreadable,
        Wait::NamespaceUnreadable => Wait::SourceNotRecorded,
        Wait::SourceNotRecorded => Wait::RepositoryNotConnected,
        Wait::RepositoryNotConnected => Wait::RepositorySuspended,
        Wait::RepositorySuspended => Wait::DeletionsPaused,
        Wait::DeletionsPaused => Wait::RepositoryBackingOff(then),
        Wait::RepositoryBackingOff(_) => Wait::BackingOff(then),
        Wait::BackingOff(_) => Wait::MemberTooLarge,
        Wait::MemberTooLarge => Wait::QuietWindow(then),
        Wait::QuietWindow(_) => Wait::BatchLive,
        Wait::BatchLive => Wait::JobNotStarted,
        Wait::JobNotStarted => Wait::Withdrawing,
        Wait::Withdrawing => Wait::JobCapReached,
        Wait::JobCapReached => Wait::WritersRunning(then),
        Wait::WritersRunning(_) => Wait::WritersFirst(then),
        Wait::WritersFirst(_) => Wait::MaintenanceRunning,
        Wait::MaintenanceRunning => Wait::NextBatch,
        Wait::NextBatch => Wait::RidesAlone,
        Wait::RidesAlone => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_one_heading() {
        let page = page().content;
        let headings: Vec<&str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("### "))
            .collect();
        let distinct: BTreeSet<&str> = headings.iter().copied().collect();
        assert_eq!(
            headings.len(),
            distinct.len(),
            "a word stands for two reasons: {headings:?}"
        );
        for wait in every_wait() {
            assert!(distinct.contains(wait.reason()), "{}", wait.reason());
        }
        assert!(!page.contains("1970"), "a moment that stands for any moment");
    }
}
