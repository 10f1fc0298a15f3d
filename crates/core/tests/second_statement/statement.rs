//! What is to become of each member, from the table, the breaker as a set, and a list of obstacles.
//!
//! **Promises.** [`expect`] is all that the comparison knows. Nothing of it calls the decision.
//!
//! **Assumes** `docs/design.md` 3.3 to 3.6.

use super::columns::{Asker, Columns, Home, certain, covered, latched, resolved};
use super::rows::{Says, the_row};
use holdfast_core::deletion::{
    Cache, DeleteReason, HeldReason, Lane, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover, Owner,
    RepositoryKey, Rule, Settings, Verdict, Wait,
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

/// What is expected of each of `lane.members`, and how many count.
pub fn expect(lane: &Lane, settings: &Settings, now: Timestamp) -> (Vec<Expected>, usize) {
    if let Some(wait) = nothing_is_decided(lane) {
        let undecided = Expected {
            verdict: Verdict::Wait(wait),
            rule: Rule::Lane,
            obstacles: Vec::new(),
        };
        return (vec![undecided; lane.members.len()], 0);
    }
    let count = count(lane);
    let mut all: Vec<Expected> = lane
        .members
        .iter()
        .map(|member| {
            let row = the_row(&Columns::of(member, lane, member.namespace_state));
            let verdict = match row.says {
                Says::Is(verdict) => verdict,
                Says::Prune => Verdict::Delete(DeleteReason::OwnPrune),
                Says::AskBreaker => breaker(member, lane, settings, count, now),
            };
            Expected {
                verdict,
                rule: row.rule,
                obstacles: Vec::new(),
            }
        })
        .collect();
    let doubtful: Vec<bool> = lane
        .members
        .iter()
        .zip(&all)
        .map(|(member, expected)| is_doubtful(member, expected.verdict))
        .collect();
    for (member, expected) in lane.members.iter().zip(&mut all) {
        let mut words = obstacles(expected.verdict, member, lane, settings, now);
        let twin = |other: &MemberFacts| other.uid != member.uid && same_snapshot(member, other);
        let shared = lane.members.iter().zip(&doubtful).any(|(m, d)| *d && twin(m));
        if expected.verdict.deletes() && (shared || lane.unplaced.iter().any(twin)) {
            words.push("SharedWithPending");
        }
        expected.obstacles = words;
    }
    company(&mut all, lane, settings, now);
    (all, count)
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
fn threshold(lane: &Lane, settings: &Settings) -> usize {
    lane.repositories
        .iter()
        .map(|repository| repository.threshold.unwrap_or(settings.default_threshold) as usize)
        .filter(|threshold| *threshold != 0)
        .min()
        .unwrap_or(0)
}

/// The states in which its namespace may be.
fn possible_states(member: &MemberFacts) -> &'static [NamespaceState] {
    match member.namespace_state {
        NamespaceState::Live => &[NamespaceState::Live],
        NamespaceState::Terminating => &[NamespaceState::Terminating],
        NamespaceState::Unreadable => &[NamespaceState::Live, NamespaceState::Terminating],
    }
}

/// Whether it could turn out to be someone else's deletion of data, and no acknowledgement covers it. Asked in
/// every state in which its namespace may be, with every doubt resolved towards the deletion.
fn counts(member: &MemberFacts, lane: &Lane) -> bool {
    !covered(member, lane)
        && possible_states(member).iter().any(|state| {
            let columns = Columns::of(member, lane, *state);
            if columns.riding {
                // Whatever is said now, the Job deletes it.
                return columns.asker != Asker::Prune;
            }
            the_row(&columns.at_worst()).says == Says::AskBreaker
        })
}

/// The same for one that may still resolve to any repository object of the lane.
fn counts_unplaced(member: &MemberFacts, lane: &Lane) -> bool {
    let opted_in = lane
        .repositories
        .iter()
        .any(|repository| repository.on_namespace_delete == OnNamespaceDelete::Delete);
    possible_states(member).iter().any(|state| {
        let columns = Columns::of(member, lane, *state).at_worst();
        let home = match columns.home {
            Home::TornDown | Home::OptedIn if opted_in => Home::OptedIn,
            Home::TornDown | Home::OptedIn => Home::TornDown,
            Home::Stays => Home::Stays,
        };
        the_row(&Columns { home, ..columns }).says == Says::AskBreaker
    })
}

/// The breaker's count.
fn count(lane: &Lane) -> usize {
    let placed = lane.members.iter().filter(|member| counts(member, lane));
    let unplaced = lane
        .unplaced
        .iter()
        .filter(|member| counts_unplaced(member, lane));
    placed.count() + unplaced.count()
}

/// Whether anything still says that what was held stays held: an object of the lane whose threshold is not 0, or one
/// that went since and that the lane remembers with such a threshold.
fn binds(lane: &Lane, settings: &Settings) -> bool {
    let there = |key: &RepositoryKey| lane.repositories.iter().any(|repository| repository.key == *key);
    threshold(lane, settings) != 0
        || lane.latch.iter().any(|latch| {
            let gone = latch.thresholds.iter().filter(|(key, _)| !there(key));
            gone.map(|(_, threshold)| *threshold)
                .any(|threshold| threshold != 0)
        })
}

/// Whether a trickle has become a wave: what is pending and what was fired in the window, each once.
fn window_is_full(lane: &Lane, count: usize, now: Timestamp) -> bool {
    let pending = |uid: &str| lane.members.iter().any(|member| member.uid == uid);
    lane.repositories
        .iter()
        .filter_map(|repository| repository.sliding_window)
        .any(|window| {
            let since = now.as_second() - window.duration.as_secs();
            let fired = lane
                .fired
                .iter()
                .filter(|f| f.at.as_second() > since && !pending(&f.uid));
            fired.count() + count >= window.threshold as usize
        })
}

fn breaker(member: &MemberFacts, lane: &Lane, settings: &Settings, count: usize, now: Timestamp) -> Verdict {
    let threshold = threshold(lane, settings);
    if covered(member, lane) {
        Verdict::Delete(DeleteReason::Acknowledged)
    } else if latched(member, lane) && binds(lane, settings) {
        Verdict::Held(HeldReason::MassDeletionBreaker)
    } else if threshold == 0 {
        Verdict::Delete(DeleteReason::BreakerDisabled)
    } else if count >= threshold || window_is_full(lane, count, now) {
        Verdict::Held(HeldReason::MassDeletionBreaker)
    } else {
        Verdict::Delete(DeleteReason::BelowThreshold)
    }
}

/// One obstacle: its word, and whether it is there.
type Obstacle = (
    &'static str,
    fn(&MemberFacts, &Lane, &Settings, Timestamp) -> bool,
);

/// Doubts about the member itself.
const DOUBTS: &[Obstacle] = &[
    ("NamespaceUnreadable", |m, _, _, _| {
        m.namespace_state == NamespaceState::Unreadable
    }),
    ("OwnerUnknown", |m, _, _, _| m.owner == Owner::Unknown),
    ("OwnMoverRunning", |m, _, _, _| m.mover == OwnMover::Running),
    ("OwnResultUnread", |m, _, _, _| m.mover == OwnMover::Unread),
    ("OwnMoverUnknown", |m, _, _, _| m.mover == OwnMover::Unknown),
    ("SourceNotRecorded", |m, _, _, _| {
        m.snapshot.as_ref().is_none_or(|s| s.source.is_none())
    }),
];

/// A next try that is further away than anything ever backs off was written by a wrong clock and binds nobody.
fn is_ahead(at: Timestamp, now: Timestamp, longest: i64) -> bool {
    at > now && (at.as_second() - now.as_second()) <= longest
}

/// What keeps a deletion that is allowed from being carried out now. Independent of one another.
const OBSTACLES: &[Obstacle] = &[
    ("RepositoryNotConnected", |_, lane, _, _| {
        lane.repositories.iter().any(|repository| !repository.connected)
    }),
    ("RepositorySuspended", |_, lane, _, _| {
        lane.repositories.iter().any(|repository| repository.suspend)
    }),
    ("DeletionsPaused", |_, _, settings, _| settings.paused),
    ("RepositoryBackingOff", |m, lane, _, now| {
        certain(m, lane)
            .and_then(|repository| repository.backoff_until)
            .is_some_and(|until| is_ahead(until, now, 600))
    }),
    ("BackingOff", |m, _, _, now| {
        m.next_attempt_at.is_some_and(|at| is_ahead(at, now, 3600))
    }),
    ("MemberTooLarge", |m, _, settings, _| {
        m.document_bytes > settings.max_bytes
    }),
    ("BatchLive", |m, lane, _, _| {
        lane.live
            .as_ref()
            .is_some_and(|batch| !batch.members.contains(&m.uid))
    }),
];

/// It is not certain that it may be deleted: nor then is it that what it records may be.
fn is_doubtful(member: &MemberFacts, verdict: Verdict) -> bool {
    let undecided = verdict.is_held() || verdict.wait().is_some();
    let doubt = |(_, is_there): &Obstacle| {
        // Doubts are about the member alone.
        is_there(
            member,
            &Lane::default(),
            &Settings::default(),
            Timestamp::UNIX_EPOCH,
        )
    };
    undecided || (verdict.deletes() && DOUBTS.iter().any(doubt))
}

fn same_snapshot(one: &MemberFacts, other: &MemberFacts) -> bool {
    match (&one.snapshot, &other.snapshot) {
        (Some(one), Some(other)) => one.id == other.id,
        (None, _) | (_, None) => false,
    }
}

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
        let there = DOUBTS
            .iter()
            .chain(OBSTACLES)
            .filter(|(_, is_there)| is_there(member, lane, settings, now));
        words.extend(there.map(|(word, _)| *word));
    }
    words
}

/// What depends on who else could ride: the quiet window, the cap, and who rides together.
fn company(all: &mut [Expected], lane: &Lane, settings: &Settings, now: Timestamp) {
    let ready = |all: &[Expected]| -> Vec<usize> {
        let mut ready: Vec<usize> = (0..all.len())
            .filter(|index| all[*index].verdict.deletes() && all[*index].obstacles.is_empty())
            .collect();
        ready.sort_by_key(|index| (lane.members[*index].deleted_at, &lane.members[*index].uid));
        ready
    };
    let external = |expected: &Expected| expected.verdict != Verdict::Delete(DeleteReason::OwnPrune);
    let object = |index: usize| resolved(&lane.members[index], lane).map(|r| &r.key);
    let fresh = |all: &[Expected], index: usize| {
        lane.members[index].attempts == 0 && all[index].verdict != Verdict::Delete(DeleteReason::Acknowledged)
    };
    let candidates = ready(all);
    let mut quiet = Vec::new();
    for index in candidates.iter().copied().filter(|index| fresh(all, *index)) {
        let alone = lane.members[index].pin.is_none();
        let oldest = candidates
            .iter()
            .copied()
            .filter(|other| {
                let together =
                    !alone && lane.members[*other].pin.is_some() && object(*other) == object(index);
                // A cascade that begins while a prune is about to fire is still seen as a whole.
                let same_kind = external(&all[*other]) || !external(&all[index]);
                *other == index || (together && same_kind && fresh(all, *other))
            })
            .map(|other| lane.members[other].first_seen)
            .min();
        if oldest.is_some_and(|seen| now.duration_since(seen) < settings.quiet_window) {
            quiet.push(index);
        }
    }
    for index in quiet {
        all[index].obstacles.push("QuietWindow");
    }
    let capped = settings.max_jobs > 0 && lane.live_jobs_in_cluster >= settings.max_jobs;
    let ready = ready(all);
    for index in ready.iter().copied() {
        let alone = lane.members[index].pin.is_none();
        let first = ready[0];
        if capped {
            all[index].obstacles.push("JobCapReached");
        } else if index == first {
            // The oldest always rides.
        } else if alone {
            all[index].obstacles.push("RidesAlone");
        } else if lane.members[first].pin.is_none() || object(index) != object(first) {
            all[index].obstacles.push("NextBatch");
        }
    }
}
