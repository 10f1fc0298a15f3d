//! What rides, and when (`docs/design.md` 3.5, 3.6): eligibility, the quiet window, the cut.
//!
//! **Promises.** Only what is certainly eligible now rides. Members never tried nor acknowledged wait for others
//! to arrive; an external member waits for external ones, so that a cascade which begins while an older prune is
//! about to fire is still counted as a whole. Oldest deletion first, ties by UID.
//!
//! **Assumes.** Candidates come in that order, each once. First sights are by our own clock; one in the future
//! (the clock was set back) only makes the wait longer.

use super::facts::{MemberFacts, NamespaceState, Owner, RepositoryFacts, RepositoryKey};
use super::guard;
use super::names::job_name;
use super::plan::{Batch, Plan};
use super::settings::Settings;
use super::verdict::{DeleteReason, Wait};
use crate::backoff::{self, Backoff};
use jiff::{SignedDuration, Timestamp};
use std::collections::BTreeMap;

/// Why a member whose verdict is Delete does not ride although nothing but its own facts is looked at.
#[must_use]
pub fn not_certain(member: &MemberFacts) -> Option<Wait> {
    let namespace = match member.namespace_state {
        // Terminating under Orphan never gets the verdict Delete.
        NamespaceState::Live | NamespaceState::Terminating => None,
        NamespaceState::Unreadable => Some(Wait::NamespaceUnreadable),
    };
    let owner = match member.owner {
        Owner::None | Owner::Alive | Owner::Gone | Owner::Replaced | Owner::Terminating => None,
        Owner::Unknown => Some(Wait::OwnerUnknown),
    };
    let source = match &member.snapshot {
        Some(snapshot) if snapshot.source.is_some() => None,
        Some(_) | None => Some(Wait::SourceNotRecorded),
    };
    namespace
        .or(owner)
        .or_else(|| guard::own_mover(member))
        .or(source)
}

/// Why nothing of the whole lane fires, or nothing of this repository object.
#[must_use]
pub fn stopped(lane: &[&RepositoryFacts], own: &RepositoryFacts, settings: &Settings) -> Option<Wait> {
    if lane.iter().any(|repository| !repository.connected) {
        Some(Wait::RepositoryNotConnected)
    } else if lane.iter().any(|repository| repository.suspend) || own.suspend {
        Some(Wait::RepositorySuspended)
    } else if settings.paused {
        Some(Wait::DeletionsPaused)
    } else {
        None
    }
}

/// Why a member has to wait for its next try.
#[must_use]
pub fn backing_off(
    member: &MemberFacts,
    own: &RepositoryFacts,
    settings: &Settings,
    now: Timestamp,
) -> Option<Wait> {
    let until = |backoff: Backoff, time: Option<Timestamp>| time.filter(|t| backoff.waits(*t, now));
    if let Some(until) = until(backoff::REPOSITORY, own.backoff_until) {
        Some(Wait::RepositoryBackingOff(until))
    } else if let Some(until) = until(backoff::MEMBER, member.next_attempt_at) {
        Some(Wait::BackingOff(until))
    } else if member.document_bytes > settings.max_bytes {
        Some(Wait::MemberTooLarge)
    } else {
        None
    }
}

/// A member that is eligible but for the quiet window and the room in a batch.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The member.
    pub member: &'a MemberFacts,
    /// The repository object it belongs to.
    pub repository: &'a RepositoryKey,
    /// Why it may be deleted.
    pub reason: DeleteReason,
}

impl Candidate<'_> {
    /// Acknowledged and tried members do not wait for others.
    fn waits(&self) -> bool {
        self.member.attempts == 0 && self.reason != DeleteReason::Acknowledged
    }

    fn is_external(&self) -> bool {
        match self.reason {
            DeleteReason::OwnPrune => false,
            DeleteReason::BelowThreshold | DeleteReason::BreakerDisabled | DeleteReason::Acknowledged => true,
        }
    }

    /// Without a pin it rides alone, through its own live resolution; so does one that no mover survives.
    fn rides_alone(&self) -> bool {
        self.member.pin.is_none() || self.member.rides_alone
    }
}

/// For each candidate, until when it still waits for others; none: it is ready.
#[must_use]
pub fn quiet_window(
    candidates: &[Candidate<'_>],
    settings: &Settings,
    now: Timestamp,
) -> Vec<Option<Timestamp>> {
    // Oldest first sight for each repository object, of externals and of all. Unpinned ones ride alone and so
    // wait alone.
    let mut oldest: BTreeMap<(&RepositoryKey, bool), Timestamp> = BTreeMap::new();
    for candidate in candidates
        .iter()
        .filter(|candidate| candidate.waits() && !candidate.rides_alone())
    {
        let classes: &[bool] = if candidate.is_external() {
            &[true, false]
        } else {
            &[false]
        };
        for class in classes {
            let seen = oldest
                .entry((candidate.repository, *class))
                .or_insert(candidate.member.first_seen);
            *seen = candidate.member.first_seen.min(*seen);
        }
    }
    candidates
        .iter()
        .map(|candidate| {
            if !candidate.waits() {
                return None;
            }
            let since = if candidate.rides_alone() {
                candidate.member.first_seen
            } else {
                *oldest
                    .get(&(candidate.repository, candidate.is_external()))
                    .unwrap_or(&candidate.member.first_seen)
            };
            let until = after(since, settings.quiet_window);
            (until > now).then_some(until)
        })
        .collect()
}

/// The batch that fires first: the oldest ready candidate, and what may ride with it. `most`: no more than so many.
#[must_use]
pub fn cut(ready: &[Candidate<'_>], settings: &Settings, most: Option<usize>) -> Option<Batch> {
    let most = most.unwrap_or(usize::MAX).min(settings.max_members).max(1);
    let first = ready.first()?;
    let mut members = Vec::new();
    let mut bytes = 0_usize;
    for candidate in ready {
        let together = !candidate.rides_alone() && candidate.repository == first.repository;
        if first.rides_alone() && members.len() == 1 {
            break;
        }
        if !first.rides_alone() && !together {
            continue;
        }
        bytes = bytes.saturating_add(candidate.member.document_bytes);
        if members.len() >= most || bytes > settings.max_bytes {
            break;
        }
        members.push(candidate.member.uid.clone());
    }
    let job_name = job_name(first.repository, &members).ok()?;
    Some(Batch {
        repository: first.repository.clone(),
        members,
        job_name,
    })
}

/// Why an eligible, ready member does not ride in the batch that fires.
#[must_use]
pub(crate) fn left_behind(candidate: &Candidate<'_>) -> Wait {
    if candidate.rides_alone() {
        Wait::RidesAlone
    } else {
        Wait::NextBatch
    }
}

/// A moment later, at most the end of time.
pub(crate) fn after(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

impl Plan {
    /// What is left of an earlier plan's batch, this plan having been made from the same lane with the batch's
    /// repository, owners, namespaces and members read live (the others as cached): only members that this plan would also delete now from the same repository object. The Job's name is that of what is
    /// left. `None`: fire nothing.
    #[must_use]
    pub fn confirm(&self, batch: &Batch) -> Option<Batch> {
        let still: BTreeMap<&str, _> = self.decisions.iter().map(|d| (d.uid.as_str(), d)).collect();
        let alone = batch.members.len() == 1;
        let members: Vec<String> = batch
            .members
            .iter()
            .filter(|uid| {
                still.get(uid.as_str()).is_some_and(|decision| {
                    // Being left for a later batch is no doubt about the member: the live plan may cut elsewhere.
                    let eligible = match decision.not_yet {
                        None => alone || decision.pinned,
                        Some(Wait::NextBatch) => true,
                        Some(Wait::RidesAlone) => alone,
                        Some(_) => false,
                    };
                    decision.verdict.deletes()
                        && eligible
                        && decision.repository.as_ref() == Some(&batch.repository)
                })
            })
            .cloned()
            .collect();
        let job_name = job_name(&batch.repository, &members).ok()?;
        Some(Batch {
            repository: batch.repository.clone(),
            members,
            job_name,
        })
    }
}
