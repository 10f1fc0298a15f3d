//! The facts that can be enumerated, one axis each, and the lane that a choice of all of them makes.
//!
//! **Promises.** Value 0 of each axis is the plain case: an external deletion of one manual Snapshot that fires.
//! [`SIZES`] is complete for every enum of the facts; times are taken at and beside each boundary.
//!
//! **Assumes.** The member looked at is [`MEMBER`]; the others are there to be counted or to share its snapshot.

use holdfast_core::deletion::{
    Cache, Cascade, Fired, HeldCondition, Lane, LaneLatch, LiveBatch, MemberFacts, NamespaceState,
    OnNamespaceDelete, OwnMover, Owner, Place, Policy, RecordedAcknowledgement, RecordedSnapshot,
    RepositoryFacts, RepositoryKey, Resolution, Settings, Sharing, SlidingWindow, Stamp,
};
use jiff::{SignedDuration, Timestamp};

/// UID of the member all axes are about.
pub const MEMBER: &str = "uid-a";

/// One value for each axis.
pub type Point = [u8; AXES];

macro_rules! axes {
    ($($(#[$doc:meta])* $name:ident: $size:literal,)*) => {
        /// Indexes of the axes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Axis { $($(#[$doc])* $name,)* }
        /// How many axes there are.
        pub const AXES: usize = [$($size),*].len();
        /// How many values each has.
        pub const SIZES: Point = [$($size),*];
        /// Their names.
        pub const NAMES: [&str; AXES] = [$(stringify!($name)),*];
    };
}

axes! {
    Skip: 2,
    Uninstall: 2,
    /// Recorded with a source; none; without a source.
    Snapshot: 3,
    Mover: 4,
    Namespace: 3,
    OnNamespaceDelete: 3,
    Place: 4,
    Stamp: 7,
    /// When it was stamped: with the deletion, 60 or 61 s before, 60 or 61 s after, never, again a day later.
    StampTime: 8,
    Policy: 4,
    Cascade: 3,
    Owner: 6,
    Sharing: 3,
    Resolution: 9,
    Held: 3,
    /// Nothing; up to the deletion, until just before it; the same on the lane's other object.
    HeldThrough: 5,
    /// 3, 0, absent (4), 1.
    Threshold: 4,
    /// The lane's other object: none, threshold 0, 2, absent; or the lane has no object at all.
    Second: 5,
    /// How many others are pending that count.
    Others: 4,
    Acknowledgement: 10,
    /// On the lane's other object: none, or one that would cover.
    OtherAcknowledgement: 2,
    /// None; its own Job not started, started; another Job not started, started.
    Live: 5,
    /// Decided; caches cold; another manager; both.
    Lane: 4,
    /// No object, its own, the other one.
    Suspend: 3,
    Connected: 2,
    RepositoryBackoff: 2,
    /// Never tried, tried and due, tried and not due.
    Tries: 3,
    /// Seen long ago, as long ago as the quiet window, a second less.
    FirstSeen: 3,
    Paused: 2,
    /// No cap, below it, at it.
    Cap: 3,
    Bytes: 2,
    /// Another pending member that records the same snapshot: none, one that waits, one that is deleted too.
    Twin: 3,
    /// What the lane itself remembers: nothing; a hold up to the deletion, until just before it; the first of them with
    /// the threshold of an object that went; with another threshold of its own object.
    Memory: 5,
    /// A sliding window: none; not reached; reached by fired ones; by one fired just now; they are too old; the only one
    /// that was fired is pending again; reached on the other object.
    Window: 7,
    /// A member that may still resolve to this lane: none, one that counts, one in a torn down namespace.
    Unplaced: 3,
}

/// Second `n` of the tests' time.
pub fn t(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + n).unwrap()
}

/// The moment of the decision.
pub fn now() -> Timestamp {
    t(1000)
}

const DELETED: i64 = 100;

fn key(namespace: &str) -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: namespace.into(),
        name: "nas".into(),
    }
}

fn plain(uid: &str, at: i64) -> MemberFacts {
    MemberFacts {
        uid: uid.into(),
        namespace: "app".into(),
        name: uid.into(),
        deleted_at: t(at),
        first_seen: t(at),
        skip: false,
        stamp: Stamp::None,
        pruned_at: None,
        restamped: false,
        policy: Policy::Delete,
        cascade: Cascade::Retain,
        owner: Owner::None,
        namespace_state: NamespaceState::Live,
        pin: Some(key("own")),
        repository: Resolution::Resolved(key("own")),
        snapshot: Some(RecordedSnapshot {
            id: uid.into(),
            source: Some("p@app:/data".into()),
            start: None,
        }),
        sharing: Sharing::Alone,
        mover: OwnMover::None,
        held: HeldCondition::NotHeld,
        place: Place::Fine,
        attempts: 0,
        next_attempt_at: None,
        rides_alone: false,
        document_bytes: 200,
    }
}

/// One that counts and does not ride.
fn counted(uid: &str) -> MemberFacts {
    MemberFacts {
        attempts: 1,
        next_attempt_at: Some(t(3000)),
        ..plain(uid, DELETED + 100)
    }
}

fn acknowledge(repository: &mut RepositoryFacts, value: &str, recorded: &str, effective: i64) {
    repository.acknowledgement = Some(value.into());
    repository.recorded_acknowledgement = Some(RecordedAcknowledgement {
        value: recorded.into(),
        effective: t(effective),
        seen_at: t(effective),
    });
}

fn acknowledgement(repository: &mut RepositoryFacts, choice: u8) {
    let at = |n: i64| t(n).to_string();
    let exact = at(DELETED);
    match choice {
        0 => {}
        1 => acknowledge(repository, &exact, &exact, DELETED),
        // One second too early.
        2 => acknowledge(repository, &at(DELETED - 1), &at(DELETED - 1), DELETED - 1),
        // Not recorded yet.
        3 => repository.acknowledgement = Some(exact),
        // Another value is recorded.
        4 => acknowledge(repository, &exact, &at(DELETED + 1), DELETED + 1),
        // Not a time at all.
        5 => acknowledge(repository, "yes", "yes", DELETED),
        // Taken back.
        6 => {
            acknowledge(repository, &exact, &exact, DELETED);
            repository.acknowledgement = None;
        }
        // A time, but not as RFC 3339 has it.
        7 => {
            let loose = exact.replace('T', " ");
            acknowledge(repository, &loose, &loose, DELETED);
        }
        // In the future, and clamped to before the deletion.
        8 => acknowledge(repository, &at(5000), &at(5000), DELETED - 1),
        // A record that says more than the value.
        9 => acknowledge(repository, &at(DELETED - 1), &at(DELETED - 1), 5000),
        more => panic!("no acknowledgement {more}"),
    }
}

fn repository(namespace: &str, threshold: Option<u32>) -> RepositoryFacts {
    RepositoryFacts {
        key: key(namespace),
        threshold,
        on_namespace_delete: OnNamespaceDelete::Orphan,
        suspend: false,
        connected: true,
        acknowledgement: None,
        sliding_window: None,
        recorded_acknowledgement: None,
        refused_acknowledgement: None,
        held_through: None,
        backoff_until: None,
    }
}

fn member(at: impl Fn(Axis) -> usize) -> MemberFacts {
    let stamp = [
        Stamp::None,
        Stamp::Unknown,
        Stamp::Retention,
        Stamp::FailedHistory,
        Stamp::PolicyCascade,
        Stamp::ReplacedRun,
        Stamp::Unjustified,
    ][at(Axis::Stamp)];
    let stamped = match stamp {
        Stamp::None => [None; 8],
        Stamp::Unknown
        | Stamp::Retention
        | Stamp::Unjustified
        | Stamp::FailedHistory
        | Stamp::PolicyCascade
        | Stamp::ReplacedRun => [
            Some(0),
            Some(-60),
            Some(-61),
            Some(60),
            Some(61),
            None,
            Some(86_400),
            None,
        ],
    };
    let mut facts = MemberFacts {
        skip: at(Axis::Skip) == 1,
        stamp,
        pruned_at: stamped[at(Axis::StampTime)].map(|apart| t(DELETED + apart)),
        restamped: at(Axis::StampTime) >= 6 && stamp != Stamp::None,
        policy: [Policy::Delete, Policy::Retain, Policy::Orphan, Policy::Unknown][at(Axis::Policy)],
        cascade: [Cascade::Retain, Cascade::Delete, Cascade::Unknown][at(Axis::Cascade)],
        owner: [
            Owner::None,
            Owner::Alive,
            Owner::Gone,
            Owner::Replaced,
            Owner::Terminating,
            Owner::Unknown,
        ][at(Axis::Owner)],
        namespace_state: [
            NamespaceState::Live,
            NamespaceState::Terminating,
            NamespaceState::Unreadable,
        ][at(Axis::Namespace)],
        sharing: [
            Sharing::Alone,
            Sharing::WithLive("app/b".into()),
            Sharing::Unknown,
        ][at(Axis::Sharing)]
        .clone(),
        mover: [
            OwnMover::None,
            OwnMover::Running,
            OwnMover::Unread,
            OwnMover::Unknown,
        ][at(Axis::Mover)],
        held: [
            HeldCondition::NotHeld,
            HeldCondition::Held { since: t(DELETED) },
            HeldCondition::Unreadable,
        ][at(Axis::Held)],
        place: [Place::Fine, Place::Terminating, Place::Unknown, Place::NotSet][at(Axis::Place)],
        attempts: u32::from(at(Axis::Tries) > 0),
        next_attempt_at: [None, Some(t(999)), Some(t(1001))][at(Axis::Tries)],
        first_seen: [t(DELETED), t(990), t(991)][at(Axis::FirstSeen)],
        rides_alone: false,
        document_bytes: [200, usize::MAX][at(Axis::Bytes)],
        ..plain(MEMBER, DELETED)
    };
    match at(Axis::Snapshot) {
        0 => {}
        1 => facts.snapshot = None,
        _ => facts
            .snapshot
            .iter_mut()
            .for_each(|snapshot| snapshot.source = None),
    }
    let (pin, resolution) = match at(Axis::Resolution) {
        0 => (Some("own"), Resolution::Resolved(key("own"))),
        1 => (None, Resolution::Resolved(key("own"))),
        2 => (Some("own"), Resolution::Gone),
        3 => (None, Resolution::Gone),
        4 => (Some("own"), Resolution::Unreadable),
        5 => (None, Resolution::Unreadable),
        6 => (Some("second"), Resolution::Resolved(key("own"))),
        7 => (Some("far"), Resolution::Resolved(key("far"))),
        _ => (Some("second"), Resolution::Resolved(key("second"))),
    };
    facts.pin = pin.map(key);
    facts.repository = resolution;
    facts
}

fn repositories(at: impl Fn(Axis) -> usize) -> Vec<RepositoryFacts> {
    let mut own = repository("own", [Some(3), Some(0), None, Some(1)][at(Axis::Threshold)]);
    own.on_namespace_delete = [
        OnNamespaceDelete::Orphan,
        OnNamespaceDelete::Delete,
        OnNamespaceDelete::Unknown,
    ][at(Axis::OnNamespaceDelete)];
    own.held_through = [None, Some(t(DELETED)), Some(t(DELETED - 1)), None, None][at(Axis::HeldThrough)];
    own.suspend = at(Axis::Suspend) == 1;
    own.connected = at(Axis::Connected) == 0;
    own.backoff_until = [None, Some(t(1001))][at(Axis::RepositoryBackoff)];
    acknowledgement(&mut own, at(Axis::Acknowledgement).try_into().unwrap());
    let mut second = match at(Axis::Second) {
        0 => return vec![own],
        4 => return Vec::new(),
        choice => repository("second", [Some(0), Some(2), None][choice - 1]),
    };
    second.held_through = [None, None, None, Some(t(DELETED)), Some(t(DELETED - 1))][at(Axis::HeldThrough)];
    // So that it matters which of the two is asked.
    second.on_namespace_delete = [
        OnNamespaceDelete::Delete,
        OnNamespaceDelete::Orphan,
        OnNamespaceDelete::Orphan,
    ][at(Axis::OnNamespaceDelete)];
    second.suspend = at(Axis::Suspend) == 2;
    acknowledgement(&mut second, at(Axis::OtherAcknowledgement).try_into().unwrap());
    vec![own, second]
}

/// The lane and the settings of `point`.
pub fn build(point: &Point) -> (Lane, Settings) {
    let at = |axis: Axis| usize::from(point[axis as usize]);
    let mut members = vec![member(at)];
    for n in 0..at(Axis::Others) {
        members.push(counted(["uid-b", "uid-c", "uid-d"][n]));
    }
    let twin = |owner| MemberFacts {
        owner,
        snapshot: members[0].snapshot.clone(),
        ..plain("uid-e", DELETED)
    };
    match at(Axis::Twin) {
        0 => {}
        1 => members.push(twin(Owner::Unknown)),
        _ => members.push(twin(Owner::None)),
    }
    let unplaced = MemberFacts {
        pin: None,
        repository: Resolution::Unreadable,
        ..counted("uid-f")
    };
    let live = |own: bool, started| LiveBatch {
        job: "snapdel-nas-0".into(),
        repository: key("own"),
        members: vec![if own { MEMBER.into() } else { "uid-b".into() }],
        started,
        created_at: t(990),
    };
    let mut repositories = repositories(at);
    let window = |threshold| {
        Some(SlidingWindow {
            duration: SignedDuration::from_secs(100),
            threshold,
        })
    };
    let fired = |uid: &str, seconds_ago: i64| Fired {
        uid: uid.into(),
        at: t(1000 - seconds_ago),
    };
    let mut fired_lately = Vec::new();
    match at(Axis::Window) {
        0 => {}
        choice => {
            let object = usize::from(choice == 6).min(repositories.len().saturating_sub(1));
            if let Some(repository) = repositories.get_mut(object) {
                repository.sliding_window = window(if choice == 1 { 9 } else { 2 });
            }
            fired_lately = match choice {
                1 | 2 | 6 => vec![fired("uid-x", 50), fired("uid-y", 60)],
                3 => vec![fired("uid-x", 99)],
                4 => vec![fired("uid-x", 100), fired("uid-y", 101)],
                _ => vec![fired(MEMBER, 50)],
            };
        }
    }
    let remember = |through: i64, thresholds: &[(&str, u32)]| LaneLatch {
        held_through: Some(t(through)),
        thresholds: thresholds.iter().map(|(name, n)| (key(name), *n)).collect(),
    };
    let lane = Lane {
        most_members: None,
        writers: None,
        maintenance: false,
        repositories,
        latch: match at(Axis::Memory) {
            0 => None,
            1 => Some(remember(DELETED, &[])),
            2 => Some(remember(DELETED - 1, &[])),
            3 => Some(remember(DELETED, &[("own", 0), ("gone", 2)])),
            _ => Some(remember(DELETED, &[("own", 2)])),
        },
        fired: fired_lately,
        members,
        unplaced: match at(Axis::Unplaced) {
            0 => Vec::new(),
            1 => vec![unplaced],
            _ => vec![MemberFacts {
                namespace_state: NamespaceState::Terminating,
                ..unplaced
            }],
        },
        live: match at(Axis::Live) {
            0 => None,
            1 => Some(live(true, false)),
            2 => Some(live(true, true)),
            3 => Some(live(false, false)),
            _ => Some(live(false, true)),
        },
        cache: [Cache::Synced, Cache::Cold, Cache::Synced, Cache::Cold][at(Axis::Lane)],
        foreign_manager: at(Axis::Lane) >= 2,
        api_going_away: at(Axis::Uninstall) == 1,
        live_jobs_in_cluster: [9, 2, 3][at(Axis::Cap)],
    };
    let settings = Settings {
        quiet_window: SignedDuration::from_secs(10),
        max_jobs: [0, 3, 3][at(Axis::Cap)],
        paused: at(Axis::Paused) == 1,
        default_threshold: 4,
        ..Settings::default()
    };
    (lane, settings)
}
