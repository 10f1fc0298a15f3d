//! What is to become of each member, from the table, the breaker as a set, and a list of obstacles.
//!
//! **Promises.** [`expect`] is all that the comparison knows. Nothing of it calls the decision.
//!
//! **Assumes** `docs/design.md` 3.3 to 3.6.

use super::columns::{Asker, Columns, covered, latched, repository_of};
use super::rows::{Says, the_row};
use holdfast_core::deletion::{
    Cache, DeleteReason, HeldReason, Lane, MemberFacts, NamespaceState, Owner, Rule, Settings, Verdict, Wait,
};
use jiff::Timestamp;

/// What is expected of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Its verdict.
    pub verdict: Verdict,
    /// The rule that made it.
    pub rule: Rule,
    /// Words of everything that keeps the verdict from being acted on. Empty: it is acted on now.
    pub obstacles: Vec<&'static str>,
}

/// What is expected of `member`, one of `lane.members`.
pub fn expect(member: &MemberFacts, lane: &Lane, settings: &Settings, now: Timestamp) -> Expected {
    if let Some(wait) = nothing_is_decided(lane) {
        return Expected {
            verdict: Verdict::Wait(wait),
            rule: Rule::Lane,
            obstacles: Vec::new(),
        };
    }
    let row = the_row(&Columns::of(member, lane, member.namespace_state));
    let verdict = match row.says {
        Says::Is(verdict) => verdict,
        Says::Prune => Verdict::Delete(DeleteReason::OwnPrune),
        Says::AskBreaker => breaker(member, lane, settings),
    };
    Expected {
        verdict,
        rule: row.rule,
        obstacles: obstacles(verdict, member, lane, settings, now),
    }
}

/// Why nothing at all is decided in the lane.
fn nothing_is_decided(lane: &Lane) -> Option<Wait> {
    match (lane.foreign_manager, lane.cache) {
        (true, Cache::Synced | Cache::Cold) => Some(Wait::ForeignManager),
        (false, Cache::Cold) => Some(Wait::CacheCold),
        (false, Cache::Synced) => None,
    }
}

/// The lane's threshold: the smallest that is not 0, 0 if all are.
pub fn threshold(lane: &Lane, settings: &Settings) -> usize {
    lane.repositories
        .iter()
        .map(|repository| repository.threshold.unwrap_or(settings.default_threshold) as usize)
        .filter(|threshold| *threshold != 0)
        .min()
        .unwrap_or(0)
}

/// Whether it could turn out to be someone else's deletion of data, and no acknowledgement covers it. Asked in
/// every state in which its namespace may be, with every doubt resolved towards the deletion.
pub fn counts(member: &MemberFacts, lane: &Lane) -> bool {
    let states: &[NamespaceState] = match member.namespace_state {
        NamespaceState::Live => &[NamespaceState::Live],
        NamespaceState::Terminating => &[NamespaceState::Terminating],
        NamespaceState::Unreadable => &[NamespaceState::Live, NamespaceState::Terminating],
    };
    !covered(member, lane)
        && states.iter().any(|state| {
            let columns = Columns::of(member, lane, *state);
            if columns.riding {
                return columns.asker == Asker::External;
            }
            the_row(&columns.at_worst()).says == Says::AskBreaker
        })
}

/// The breaker's count.
pub fn count(lane: &Lane) -> usize {
    if nothing_is_decided(lane).is_some() {
        return 0;
    }
    lane.members
        .iter()
        .chain(&lane.unplaced)
        .filter(|member| counts(member, lane))
        .count()
}

fn breaker(member: &MemberFacts, lane: &Lane, settings: &Settings) -> Verdict {
    let threshold = threshold(lane, settings);
    if threshold == 0 {
        Verdict::Delete(DeleteReason::BreakerDisabled)
    } else if covered(member, lane) {
        Verdict::Delete(DeleteReason::Acknowledged)
    } else if latched(member, lane) || count(lane) >= threshold {
        Verdict::Held(HeldReason::MassDeletionBreaker)
    } else {
        Verdict::Delete(DeleteReason::BelowThreshold)
    }
}

/// One obstacle: its words (either may be used) and whether it is there.
type Obstacle = (
    &'static [&'static str],
    fn(&MemberFacts, &Lane, &Settings, Timestamp) -> bool,
);

/// What keeps a deletion that is allowed from being carried out now. Independent of one another.
const OBSTACLES: &[Obstacle] = &[
    (&["NamespaceUnreadable"], |m, _, _, _| {
        m.namespace_state == NamespaceState::Unreadable
    }),
    (&["OwnerUnknown"], |m, _, _, _| m.owner == Owner::Unknown),
    (&["SourceNotRecorded"], |m, _, _, _| {
        m.snapshot.as_ref().is_none_or(|s| s.source.is_none())
    }),
    (&["RepositoryNotConnected"], |m, lane, _, _| {
        repository_of(m, lane).is_none_or(|repository| !repository.connected)
    }),
    (&["RepositorySuspended"], |_, lane, _, _| {
        lane.repositories.iter().any(|repository| repository.suspend)
    }),
    (&["DeletionsPaused"], |_, _, settings, _| settings.paused),
    (&["RepositoryBackingOff"], |m, lane, _, now| {
        repository_of(m, lane)
            .and_then(|repository| repository.backoff_until)
            .is_some_and(|until| until > now)
    }),
    (&["BackingOff"], |m, _, _, now| {
        m.next_attempt_at.is_some_and(|at| at > now)
    }),
    (&["MemberTooLarge"], |m, _, settings, _| {
        m.document_bytes > settings.max_bytes
    }),
    (&["QuietWindow"], |m, lane, settings, now| {
        m.attempts == 0 && !covered(m, lane) && now.duration_since(m.first_seen) < settings.quiet_window
    }),
    (&["BatchLive"], |m, lane, _, _| {
        lane.live
            .as_ref()
            .is_some_and(|batch| !batch.members.contains(&m.uid))
    }),
    (&["JobCapReached"], |_, lane, settings, _| {
        settings.max_jobs > 0 && lane.live_jobs_in_cluster >= settings.max_jobs
    }),
];

/// It is bound to a Job that has not started: nothing may be done before that is settled.
fn bound(member: &MemberFacts, lane: &Lane) -> bool {
    lane.live
        .as_ref()
        .is_some_and(|batch| !batch.started && batch.members.contains(&member.uid))
}

fn obstacles(
    verdict: Verdict,
    member: &MemberFacts,
    lane: &Lane,
    settings: &Settings,
    now: Timestamp,
) -> Vec<&'static str> {
    let mut words: Vec<&'static str> = Vec::new();
    if bound(member, lane) && (verdict.deletes() || verdict.keeps_data_and_ends()) {
        words.extend(["JobNotStarted", "Withdrawing"]);
    }
    if verdict.deletes() {
        for (names, is_there) in OBSTACLES {
            if is_there(member, lane, settings, now) {
                words.extend(*names);
            }
        }
    }
    words
}
