//! From the model's state to what the decision reads, and its answer back.
//!
//! **Promises.** The decision itself is not modelled: it is [`holdfast_core::deletion::wave()`], or the function the
//! model is given in its place.
//!
//! **Assumes.** Everything that the model leaves out is fine: namespaces live, repositories connected.

use super::world::{
    Cache, Job, Life, MEMBERS, Note, Phase, REPOSITORIES, Record, Repository, Schedule, bit, done, has,
    has_old_stamp, keeps_on_cascade, owned, pin, sharer, snapshot,
};
use super::world::{JobName, Mask};
use holdfast_core::deletion::{
    Batch, Cascade, HeldCondition, Lane, LiveBatch, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover,
    Owner, Place, Policy, RecordedAcknowledgement, RecordedSnapshot, RepositoryFacts, RepositoryKey,
    Resolution, Settings, Sharing, Stamp,
};
use holdfast_core::deletion::{Cache as CacheState, ack};
use jiff::{SignedDuration, Timestamp};

const EPOCH: i64 = 1_800_000_000;
const TICK: i64 = 10;

/// The moment of a tick.
pub fn time(tick: u8) -> Timestamp {
    Timestamp::from_second(EPOCH + TICK * i64::from(tick)).unwrap_or(Timestamp::MAX)
}

/// The tick of a moment.
pub fn tick(time: Timestamp) -> u8 {
    u8::try_from((time.as_second() - EPOCH) / TICK).unwrap_or(u8::MAX)
}

pub fn settings() -> Settings {
    Settings {
        quiet_window: SignedDuration::from_secs(TICK),
        // The model's Jobs start, or are withdrawn for another reason.
        start_within: SignedDuration::from_hours(24),
        ..Settings::default()
    }
}

pub fn uid(member: usize) -> String {
    format!("m{member}")
}

/// Members of a list of UIDs.
pub fn members<S: AsRef<str>>(uids: impl IntoIterator<Item = S>) -> Mask {
    let index = |uid: &str| uid.strip_prefix('m').and_then(|n| n.parse::<usize>().ok());
    uids.into_iter()
        .filter_map(|uid| index(uid.as_ref()))
        .fold(0, |mask, member| mask | bit(member))
}

pub fn key(repository: usize) -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: "backup".into(),
        name: format!("r{repository}"),
    }
}

pub fn index_of(key: &RepositoryKey) -> usize {
    usize::from(*key == self::key(1))
}

pub fn batch_name(batch: &Batch) -> JobName {
    JobName {
        repository: u8::from(index_of(&batch.repository) == 1),
        members: members(&batch.members),
    }
}

/// The batch of a plan, from what the pass kept of it.
pub fn batch(name: JobName) -> Batch {
    let uids = (0..MEMBERS).filter(|m| name.members >> m & 1 == 1).map(uid);
    Batch {
        repository: key(usize::from(name.repository)),
        members: uids.collect(),
        job_name: String::new(),
    }
}

/// The annotation as text.
fn note(note: Note) -> Option<String> {
    match note {
        Note::Absent => None,
        Note::Garbage => Some("yes please".into()),
        Note::At(at) => Some(ack::render(time(at))),
    }
}

pub fn record(record: &RecordedAcknowledgement) -> Record {
    Record {
        value: ack::parse(&record.value).map_or(0, tick),
        effective: tick(record.effective),
        seen: tick(record.seen_at),
    }
}

fn repository(index: usize, facts: &Repository) -> RepositoryFacts {
    RepositoryFacts {
        key: key(index),
        threshold: Some(u32::from(facts.threshold)),
        on_namespace_delete: OnNamespaceDelete::Orphan,
        suspend: false,
        connected: true,
        acknowledgement: note(facts.note),
        sliding_window: None,
        refused_acknowledgement: None,
        recorded_acknowledgement: facts.record.map(|record| RecordedAcknowledgement {
            value: ack::render(time(record.value)),
            effective: time(record.effective),
            seen_at: time(record.seen),
        }),
        held_through: facts.held_through.map(time),
        backoff_until: (facts.backoff > 0).then(|| time(facts.backoff)),
    }
}

fn member(index: usize, cache: &Cache, schedule: Schedule, at: u8) -> MemberFacts {
    let object = &cache.objects[index];
    let (stamp, pruned_at) = match (object.pruned, has_old_stamp(index)) {
        (true, _) => (Stamp::Retention, Some(time(at))),
        (false, true) => (
            Stamp::Retention,
            time(0).checked_sub(SignedDuration::from_hours(1)).ok(),
        ),
        (false, false) => (Stamp::None, None),
    };
    MemberFacts {
        uid: uid(index),
        namespace: "app".into(),
        name: uid(index),
        deleted_at: time(at),
        first_seen: time(cache.first_seen[index]),
        skip: object.skip,
        stamp,
        pruned_at,
        restamped: false,
        policy: Policy::Delete,
        cascade: if keeps_on_cascade(index) || !owned(index) {
            Cascade::Retain
        } else {
            Cascade::Delete
        },
        owner: match (owned(index), schedule) {
            (false, Schedule::Alive | Schedule::Gone | Schedule::Again) => Owner::None,
            (true, Schedule::Alive) => Owner::Alive,
            (true, Schedule::Gone) => Owner::Gone,
            (true, Schedule::Again) => Owner::Replaced,
        },
        namespace_state: NamespaceState::Live,
        pin: Some(key(pin(index))),
        repository: Resolution::Resolved(key(pin(index))),
        snapshot: Some(RecordedSnapshot {
            id: format!("s{}", snapshot(index)),
            source: Some("p@app:/pvc/data".into()),
            start: Some(time(0)),
        }),
        sharing: match sharer(index) {
            Some(other) if cache.objects[other].life == Life::Live => Sharing::WithLive(uid(other)),
            Some(_) | None => Sharing::Alone,
        },
        mover: OwnMover::None,
        held: if object.held {
            HeldCondition::Held { since: time(at) }
        } else {
            HeldCondition::NotHeld
        },
        place: Place::Fine,
        attempts: u32::from(object.tried),
        next_attempt_at: (object.next_attempt > 0).then(|| time(object.next_attempt)),
        rides_alone: false,
        document_bytes: 200,
    }
}

/// The lane as a process sees it: repository objects and schedule as given (cached, or read live), members as cached.
pub fn lane(
    cache: &Cache,
    repositories: &[Repository; REPOSITORIES],
    schedule: Schedule,
    jobs: &[Option<Job>; 2],
) -> Lane {
    let riding = jobs.iter().flatten().fold(0, |mask, job| mask | job.members);
    let done = done(&cache.objects, riding);
    let mut live: Option<LiveBatch> = None;
    for job in jobs.iter().flatten() {
        let uids = (0..MEMBERS).filter(|m| job.members >> m & 1 == 1).map(uid);
        match &mut live {
            None => {
                live = Some(LiveBatch {
                    job: String::from("job"),
                    repository: key(usize::from(job.name.repository)),
                    members: uids.collect(),
                    started: job.phase != Phase::Waiting,
                    created_at: time(0),
                });
            }
            // Several count as one that has started.
            Some(live) => {
                live.members.extend(uids);
                live.started = true;
            }
        }
    }
    Lane {
        repositories: (0..REPOSITORIES)
            .map(|index| repository(index, &repositories[index]))
            .collect(),
        members: (0..MEMBERS)
            .filter(|&index| !has(done, index))
            .filter_map(|index| {
                let at = cache.objects[index].deleting()?;
                Some(member(index, cache, schedule, at))
            })
            .collect(),
        live,
        cache: CacheState::Synced,
        ..Lane::default()
    }
}
