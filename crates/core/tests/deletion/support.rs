//! Builders: a lane at a fixed time, with members that would be deleted unless a test says otherwise.

use holdfast_core::deletion::{
    Cache, Cascade, Decision, HeldCondition, Lane, LiveBatch, MemberFacts, NamespaceState, OnNamespaceDelete,
    OwnMover, Owner, Place, Plan, Policy, RecordedAcknowledgement, RecordedSnapshot, RepositoryFacts,
    RepositoryKey, Resolution, Settings, Sharing, Stamp, Verdict, wave,
};
use jiff::Timestamp;

/// Second `n` of the tests' time.
pub fn t(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + n).unwrap()
}

/// Now: long after every member was first seen.
pub fn now() -> Timestamp {
    t(1000)
}

pub fn nas() -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: "backup".into(),
        name: "nas".into(),
    }
}

pub fn other() -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: "other".into(),
        name: "nas".into(),
    }
}

pub fn repository(key: RepositoryKey) -> RepositoryFacts {
    RepositoryFacts {
        key,
        threshold: None,
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

/// An external deletion of a manual Snapshot, at second `at`, old enough for the quiet window.
pub fn member(name: &str, at: i64) -> MemberFacts {
    MemberFacts {
        uid: format!("uid-{name}"),
        namespace: "app".into(),
        name: name.into(),
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
        pin: Some(nas()),
        repository: Resolution::Resolved(nas()),
        snapshot: Some(RecordedSnapshot {
            id: format!("id-{name}"),
            source: Some("p@app:/pvc/data".into()),
            start: Some(t(0)),
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

/// A fresh prune of our own retention.
pub fn prune(name: &str, at: i64) -> MemberFacts {
    MemberFacts {
        stamp: Stamp::Retention,
        pruned_at: Some(t(at)),
        ..member(name, at)
    }
}

pub fn members(count: usize, at: i64) -> Vec<MemberFacts> {
    (0..count).map(|n| member(&format!("m{n:04}"), at)).collect()
}

pub fn lane(members: Vec<MemberFacts>) -> Lane {
    Lane {
        repositories: vec![repository(nas())],
        members,
        cache: Cache::Synced,
        ..Lane::default()
    }
}

/// A lane whose one repository has this threshold.
pub fn lane_with_threshold(threshold: u32, members: Vec<MemberFacts>) -> Lane {
    let mut lane = lane(members);
    lane.repositories[0].threshold = Some(threshold);
    lane
}

/// Annotates the repository and records the acknowledgement as already seen.
pub fn acknowledge(repository: &mut RepositoryFacts, at: i64) {
    let value = t(at).to_string();
    repository.acknowledgement = Some(value.clone());
    repository.recorded_acknowledgement = Some(RecordedAcknowledgement {
        value,
        effective: t(at),
        seen_at: t(at),
    });
}

pub fn live(job: &str, members: &[&str], started: bool) -> LiveBatch {
    LiveBatch {
        job: job.into(),
        repository: nas(),
        members: members.iter().map(|name| format!("uid-{name}")).collect(),
        started,
        created_at: t(990),
    }
}

pub fn decide(lane: &Lane) -> Plan {
    wave(lane, &Settings::default(), now())
}

/// The verdict of a lane with this one member.
pub fn alone(member: MemberFacts) -> Verdict {
    verdict_of(&decide(&lane(vec![member])), 0)
}

/// The same in a namespace torn down under a repository that opted in or not.
pub fn torn_down(on_namespace_delete: OnNamespaceDelete, mut member: MemberFacts) -> Lane {
    member.namespace_state = NamespaceState::Terminating;
    let mut lane = lane(vec![member]);
    lane.repositories[0].on_namespace_delete = on_namespace_delete;
    lane
}

pub fn verdict_of(plan: &Plan, index: usize) -> Verdict {
    plan.decisions[index].verdict
}

pub fn of<'a>(plan: &'a Plan, name: &str) -> &'a Decision {
    plan.decision(&format!("uid-{name}")).unwrap()
}

/// Names of the members that fire, in order.
pub fn fired(plan: &Plan) -> Vec<String> {
    plan.fire
        .iter()
        .flat_map(|batch| batch.members.iter())
        .map(|uid| uid.strip_prefix("uid-").unwrap().to_owned())
        .collect()
}

pub fn held(plan: &Plan) -> usize {
    plan.decisions
        .iter()
        .filter(|decision| decision.verdict.is_held())
        .count()
}
