//! One lane at one moment, of which a table changes one fact at a time.
//!
//! **Promises.** The plain scene fires: one external deletion below the threshold that nothing keeps.
//!
//! **Assumes.** The first member is the one the tables are about; the others are only there to be counted.

use crate::deletion::{
    Cache, Cascade, HeldCondition, Lane, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover, Owner,
    Place, Plan, Policy, RecordedSnapshot, RepositoryFacts, RepositoryKey, Resolution, Settings, Sharing,
    Stamp, wave,
};
use jiff::Timestamp;

/// The moment of the decision.
pub(super) const NOW: Timestamp = Timestamp::constant(1_800_001_000, 0);
/// When the Snapshot was deleted.
pub(super) const DELETED: Timestamp = Timestamp::constant(1_800_000_000, 0);
/// The same as it is written in an annotation.
pub(super) const DELETED_TEXT: &str = "2027-01-15T08:00:00Z";
/// A second before it.
pub(super) const BEFORE: Timestamp = Timestamp::constant(1_799_999_999, 0);
/// The same as it is written in an annotation.
pub(super) const BEFORE_TEXT: &str = "2027-01-15T07:59:59Z";
/// After the decision.
pub(super) const LATER: Timestamp = Timestamp::constant(1_800_001_500, 0);
/// The threshold of the scene.
pub(super) const THRESHOLD: u32 = 3;

/// A lane, and the settings under which it is decided.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) lane: Lane,
    pub(super) settings: Settings,
}

impl Scene {
    pub(super) fn plain() -> Self {
        Self {
            lane: Lane {
                repositories: vec![repository()],
                members: vec![snapshot("a")],
                cache: Cache::Synced,
                ..Lane::default()
            },
            settings: Settings::default(),
        }
    }

    pub(super) fn decide(&self) -> Plan {
        wave(&self.lane, &self.settings, NOW)
    }

    /// The Snapshot the tables are about.
    pub(super) fn member(&self) -> Option<&MemberFacts> {
        self.lane.members.first()
    }

    /// Changes a fact about it.
    pub(super) fn change(&mut self, change: impl Fn(&mut MemberFacts)) {
        self.lane.members.iter_mut().take(1).for_each(change);
    }

    /// Changes a fact about its repository.
    pub(super) fn repository(&mut self, change: impl Fn(&mut RepositoryFacts)) {
        self.lane.repositories.iter_mut().for_each(change);
    }

    /// Lets as many others be pending as make the threshold.
    pub(super) fn reach_threshold(&mut self) {
        for uid in ["b", "c"] {
            self.lane.members.push(MemberFacts {
                deleted_at: LATER,
                ..snapshot(uid)
            });
        }
    }
}

/// The repository object.
pub(super) fn key() -> RepositoryKey {
    RepositoryKey::Repository {
        namespace: "backup".into(),
        name: "nas".into(),
    }
}

fn repository() -> RepositoryFacts {
    RepositoryFacts {
        key: key(),
        threshold: Some(THRESHOLD),
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

fn snapshot(uid: &str) -> MemberFacts {
    MemberFacts {
        uid: uid.into(),
        namespace: "app".into(),
        name: uid.into(),
        deleted_at: DELETED,
        first_seen: DELETED,
        skip: false,
        stamp: Stamp::None,
        pruned_at: None,
        restamped: false,
        policy: Policy::Delete,
        cascade: Cascade::Retain,
        owner: Owner::None,
        namespace_state: NamespaceState::Live,
        pin: Some(key()),
        repository: Resolution::Resolved(key()),
        snapshot: Some(RecordedSnapshot {
            id: uid.into(),
            source: Some("app@app:/data".into()),
            start: None,
        }),
        sharing: Sharing::Alone,
        mover: OwnMover::None,
        held: HeldCondition::NotHeld,
        place: Place::Fine,
        attempts: 0,
        next_attempt_at: None,
        rides_alone: false,
        document_bytes: 0,
    }
}
