//! The facts about one member as the columns of the table see them.
//!
//! **Promises.** A column says one thing, and the columns do not depend on one another's order. What is not known
//! is a value of its own.
//!
//! **Assumes** the words of `docs/design.md` 3.2, 3.4 (latch, acknowledgement) and 3.7 (what a stamp counts for).

use holdfast_core::deletion::{
    Cascade, HeldCondition, Lane, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover, Owner, Place,
    Policy, RepositoryFacts, Resolution, Sharing, Stamp,
};
use jiff::{SignedDuration, Timestamp};

/// Where its own backup stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// A snapshot is recorded.
    Written,
    /// None is, and there is no mover.
    Nothing,
    /// None is yet: the mover runs.
    Running,
    /// None is yet: the mover has ended, and nobody has read its result.
    Unread,
    /// None is, and whether there is a mover is not known.
    Unclear,
}

/// What its own namespace asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// It is not known to be torn down.
    Stays,
    /// It is torn down, and nobody said that this means the data.
    TornDown,
    /// It is torn down, and the repository said that this means the data.
    OptedIn,
}

/// Whether there is a place for a Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// There is, or nobody has to ask because no repository is resolved.
    Fine,
    /// There is none and will be none.
    None,
    /// Not known now.
    Unclear,
}

/// Who asked for the deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A person or a controller; also whenever our own word does not count.
    External,
    /// Our retention or our history limit, and nothing was held before.
    Prune,
    /// The same, but it was held before.
    LatchedPrune,
    /// Our own deletion of the children of a policy.
    PolicyWent,
    /// Our own deletion of a run that was replaced.
    Replaced,
    /// Our retention, in favour of what is not there any more.
    VoidPrune,
}

/// What the owning schedule has to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// Nothing that keeps the data.
    Silent,
    /// It went, and it said that this does not mean the data.
    Keeps,
    /// Whether it went is not known.
    Unclear,
    /// It went, and what it said cannot be read.
    Unreadable,
}

/// Whether someone else needs the same snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nobody.
    None,
    /// A live object.
    Live,
    /// Not known now.
    Unclear,
}

/// Whether its repository is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    /// It is one of this lane, and the one it is pinned to.
    Here,
    /// It is gone for good.
    Gone,
    /// Not readable now.
    Unreadable,
    /// It is another one than the pin's or the lane's.
    Other,
}

/// One member's columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    /// A container that works on it may have started.
    pub riding: bool,
    /// `skip-snapshot-cleanup`.
    pub skip: bool,
    /// The CRD is being deleted.
    pub uninstall: bool,
    /// Its own backup.
    pub run: Run,
    /// Its own namespace.
    pub home: Home,
    /// The Job's namespace.
    pub room: Room,
    /// Who asked.
    pub asker: Asker,
    /// Effective policy.
    pub policy: Policy,
    /// The owning schedule.
    pub schedule: Schedule,
    /// Who else records the snapshot.
    pub others: Others,
    /// The repository.
    pub store: Store,
}

/// The repository object of the lane it resolves to.
pub fn resolved<'a>(member: &MemberFacts, lane: &'a Lane) -> Option<&'a RepositoryFacts> {
    let Resolution::Resolved(key) = &member.repository else {
        return None;
    };
    lane.repositories.iter().find(|repository| repository.key == *key)
}

/// The same, if that is also the one it is pinned to.
pub fn certain<'a>(member: &MemberFacts, lane: &'a Lane) -> Option<&'a RepositoryFacts> {
    resolved(member, lane).filter(|repository| member.pin.as_ref().is_none_or(|pin| *pin == repository.key))
}

/// Whether our stamp counts: one of ours, with a time that is within 60 s of the deletion or written by a later
/// pass.
pub fn stamp_counts(member: &MemberFacts) -> bool {
    let ours = match member.stamp {
        Stamp::Retention
        | Stamp::Unjustified
        | Stamp::FailedHistory
        | Stamp::PolicyCascade
        | Stamp::ReplacedRun => true,
        Stamp::None | Stamp::Unknown => false,
    };
    ours && member.pruned_at.is_some_and(|at| {
        let apart = at.duration_since(member.deleted_at).abs();
        member.restamped || apart <= SignedDuration::from_secs(60)
    })
}

/// Whether the member is latched: held before, by its own word or by the lane's. The lane's word is not meant for
/// our prunes, which go on while a wave is held: stamped first, deleted then.
pub fn latched(member: &MemberFacts, lane: &Lane) -> bool {
    let own_word = match member.held {
        HeldCondition::Held { .. } | HeldCondition::Unreadable => true,
        HeldCondition::NotHeld => false,
    };
    let prune = match member.stamp {
        Stamp::Retention | Stamp::FailedHistory => stamp_counts(member) && !member.restamped,
        // Where one of these is not kept anyway, it counts as external.
        Stamp::Unjustified | Stamp::PolicyCascade | Stamp::ReplacedRun | Stamp::None | Stamp::Unknown => {
            false
        }
    };
    let stamped_first = member.pruned_at.is_some_and(|at| at <= member.deleted_at);
    // Said by an object of the lane, or kept by the lane from one that went.
    let kept = lane.latch.as_ref().and_then(|latch| latch.held_through);
    let mut said = lane
        .repositories
        .iter()
        .filter_map(|r| r.held_through)
        .chain(kept);
    let lanes_word = said.any(|through| member.deleted_at <= through);
    own_word || (lanes_word && !(prune && stamped_first))
}

/// Whether `text` is `YYYY-MM-DDThh:mm:ssZ` or has an offset, and nothing beside it.
fn is_rfc3339(text: &str) -> bool {
    let offset = text.ends_with('Z') || matches!(text.as_bytes(), [.., b'+' | b'-', _, _, b':', _, _]);
    text.is_ascii() && text.as_bytes().get(10) == Some(&b'T') && offset
}

/// Whether an acknowledgement in force covers the member: the one recorded on its own repository object, as long
/// as the annotation still says what was recorded.
pub fn covered(member: &MemberFacts, lane: &Lane) -> bool {
    let Some(repository) = certain(member, lane) else {
        return false;
    };
    let (Some(written), Some(recorded)) = (&repository.acknowledgement, &repository.recorded_acknowledgement)
    else {
        return false;
    };
    is_rfc3339(written)
        && *written == recorded.value
        && member.deleted_at <= recorded.effective
        && written
            .parse::<Timestamp>()
            .is_ok_and(|value| member.deleted_at <= value)
}

/// What the namespace asks for if its state is `state`.
pub fn home(member: &MemberFacts, lane: &Lane, state: NamespaceState) -> Home {
    match state {
        NamespaceState::Live | NamespaceState::Unreadable => Home::Stays,
        NamespaceState::Terminating => {
            match resolved(member, lane).map(|repository| repository.on_namespace_delete) {
                Some(OnNamespaceDelete::Delete) => Home::OptedIn,
                Some(OnNamespaceDelete::Orphan | OnNamespaceDelete::Unknown) | None => Home::TornDown,
            }
        }
    }
}

impl Columns {
    /// The columns of `member`, if its namespace is in `state`.
    pub fn of(member: &MemberFacts, lane: &Lane, state: NamespaceState) -> Self {
        let home = home(member, lane, state);
        Self {
            riding: lane
                .live
                .as_ref()
                .is_some_and(|batch| batch.started && batch.members.contains(&member.uid)),
            skip: member.skip,
            uninstall: lane.api_going_away,
            run: match (&member.snapshot, member.mover) {
                (Some(_), _) => Run::Written,
                (None, OwnMover::None) => Run::Nothing,
                (None, OwnMover::Running) => Run::Running,
                (None, OwnMover::Unread) => Run::Unread,
                (None, OwnMover::Unknown) => Run::Unclear,
            },
            home,
            room: match (&member.repository, member.place) {
                (Resolution::Gone | Resolution::Unreadable, _) | (_, Place::Fine) => Room::Fine,
                (Resolution::Resolved(_), Place::Terminating | Place::NotSet) => Room::None,
                (Resolution::Resolved(_), Place::Unknown) => Room::Unclear,
            },
            asker: match member.stamp {
                Stamp::Retention | Stamp::FailedHistory if stamp_counts(member) => {
                    if latched(member, lane) {
                        Asker::LatchedPrune
                    } else {
                        Asker::Prune
                    }
                }
                Stamp::PolicyCascade if stamp_counts(member) && home != Home::OptedIn => Asker::PolicyWent,
                Stamp::ReplacedRun if stamp_counts(member) => Asker::Replaced,
                Stamp::Unjustified if stamp_counts(member) => Asker::VoidPrune,
                Stamp::None
                | Stamp::Unknown
                | Stamp::Retention
                | Stamp::Unjustified
                | Stamp::FailedHistory
                | Stamp::PolicyCascade
                | Stamp::ReplacedRun => Asker::External,
            },
            policy: member.policy,
            schedule: match (member.owner, member.cascade) {
                (Owner::None | Owner::Alive, _) | (_, Cascade::Delete) => Schedule::Silent,
                (Owner::Unknown, Cascade::Retain | Cascade::Unknown) => Schedule::Unclear,
                (Owner::Gone | Owner::Replaced | Owner::Terminating, Cascade::Retain) => Schedule::Keeps,
                (Owner::Gone | Owner::Replaced | Owner::Terminating, Cascade::Unknown) => {
                    Schedule::Unreadable
                }
            },
            others: match member.sharing {
                Sharing::Alone => Others::None,
                Sharing::WithLive(_) => Others::Live,
                Sharing::Unknown => Others::Unclear,
            },
            store: match member.repository {
                Resolution::Gone => Store::Gone,
                Resolution::Unreadable => Store::Unreadable,
                Resolution::Resolved(_) if certain(member, lane).is_some() => Store::Here,
                Resolution::Resolved(_) => Store::Other,
            },
        }
    }

    /// The same with every doubt resolved towards a deletion that counts.
    pub fn at_worst(self) -> Self {
        Self {
            run: match self.run {
                Run::Nothing => Run::Nothing,
                Run::Written | Run::Running | Run::Unread | Run::Unclear => Run::Written,
            },
            room: match self.room {
                Room::None => Room::None,
                Room::Fine | Room::Unclear => Room::Fine,
            },
            policy: match self.policy {
                Policy::Delete | Policy::Unknown => Policy::Delete,
                Policy::Retain => Policy::Retain,
                Policy::Orphan => Policy::Orphan,
            },
            schedule: match self.schedule {
                Schedule::Keeps => Schedule::Keeps,
                Schedule::Silent | Schedule::Unclear | Schedule::Unreadable => Schedule::Silent,
            },
            others: match self.others {
                Others::Live => Others::Live,
                Others::None | Others::Unclear => Others::None,
            },
            store: match self.store {
                Store::Gone => Store::Gone,
                Store::Here | Store::Unreadable | Store::Other => Store::Here,
            },
            ..self
        }
    }
}
