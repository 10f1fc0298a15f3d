//! Rules 1 to 8 of `docs/design.md` 3.3: what becomes of a member before the breaker is asked.
//!
//! **Promises.** Each rule is a function of its own; they are tried in the design's order and the first that
//! matches wins. A fact that is unknown leads to waiting or to keeping the data, never to deleting.
//!
//! **Assumes.** Members of a Job whose container may have started do not get here.

use super::facts::{
    Cascade, MemberFacts, NamespaceState, OnNamespaceDelete, OwnMover, Owner, Place, Policy, Resolution,
    Sharing, Stamp,
};
use super::verdict::{OrphanReason, ReleaseReason, RetainReason, Rule, Verdict, Wait};
use jiff::SignedDuration;

/// How far a stamp's time and the deletion may be apart, in either direction (`docs/design.md` 3.7).
pub const STAMP_FRESH: SignedDuration = SignedDuration::from_secs(60);

/// What the rules need to know beside the member itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The CRD of Snapshot is being deleted.
    pub api_going_away: bool,
    /// Of the repository object the member belongs to; Unknown when there is none in the lane.
    pub on_namespace_delete: OnNamespaceDelete,
    /// The repository object the member belongs to is one of the lane's.
    pub in_lane: bool,
    /// The member is latched ([`super::breaker::is_latched`]).
    pub latched: bool,
}

/// What rules 1 to 8 leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// A rule decided.
    Decided(Verdict, Rule),
    /// Stamped by us and to be deleted without the breaker.
    Prune,
    /// External and destructive: rule 9 decides.
    External,
}

/// Applies rules 1 to 8 in order.
#[must_use]
pub fn judge(member: &MemberFacts, context: &Context) -> Guarded {
    if let Some((verdict, rule)) = skip(member)
        .or_else(|| api_going_away(context))
        .or_else(|| nothing_recorded(member))
        .or_else(|| namespace(member, context))
    {
        return Guarded::Decided(verdict, rule);
    }
    match own_stamp(member, context) {
        Stamped::Decided(verdict, rule) => Guarded::Decided(verdict, rule),
        Stamped::Prune => match shared_or_unknown(member, context) {
            Some((verdict, rule)) => Guarded::Decided(verdict, rule),
            None => Guarded::Prune,
        },
        Stamped::External => {
            match schedule_guard(member, context)
                .or_else(|| policy(member))
                .or_else(|| shared_or_unknown(member, context))
            {
                Some((verdict, rule)) => Guarded::Decided(verdict, rule),
                None => Guarded::External,
            }
        }
    }
}

/// Rule 1: the annotation is absolute.
fn skip(member: &MemberFacts) -> Option<(Verdict, Rule)> {
    member
        .skip
        .then_some((Verdict::Orphan(OrphanReason::Skip), Rule::Skip))
}

/// Rule 2: uninstalling is not a wish to delete backups.
fn api_going_away(context: &Context) -> Option<(Verdict, Rule)> {
    context
        .api_going_away
        .then_some((Verdict::Orphan(OrphanReason::ApiGoingAway), Rule::ApiGoingAway))
}

/// Rule 3: without a recorded id there is nothing to delete, unless a mover could still record one.
fn nothing_recorded(member: &MemberFacts) -> Option<(Verdict, Rule)> {
    if member.snapshot.is_some() {
        return None;
    }
    let verdict = match own_mover(member) {
        None => Verdict::Release(ReleaseReason::NothingRecorded),
        Some(wait) => Verdict::Wait(wait),
    };
    Some((verdict, Rule::NothingRecorded))
}

/// Why a member's own mover stands in the way, if it does.
pub(crate) fn own_mover(member: &MemberFacts) -> Option<Wait> {
    match member.mover {
        OwnMover::None => None,
        OwnMover::Running => Some(Wait::OwnMoverRunning),
        OwnMover::Unread => Some(Wait::OwnResultUnread),
        OwnMover::Unknown => Some(Wait::OwnMoverUnknown),
    }
}

/// Rule 4: teardown of the member's namespace, and the place where the Job would run.
fn namespace(member: &MemberFacts, context: &Context) -> Option<(Verdict, Rule)> {
    match (member.namespace_state, context.on_namespace_delete) {
        (NamespaceState::Terminating, OnNamespaceDelete::Orphan | OnNamespaceDelete::Unknown) => {
            return Some((
                Verdict::Orphan(OrphanReason::NamespaceTerminating),
                Rule::Namespace,
            ));
        }
        (NamespaceState::Terminating, OnNamespaceDelete::Delete)
        | (NamespaceState::Live | NamespaceState::Unreadable, _) => {}
    }
    match &member.repository {
        // Without a repository there is no place; rule 8 has the answer.
        Resolution::Gone | Resolution::Unreadable => None,
        Resolution::Resolved(_) => match member.place {
            Place::Fine => None,
            Place::Terminating | Place::NotSet => {
                Some((Verdict::Orphan(OrphanReason::NoPlaceToRun), Rule::Namespace))
            }
            Place::Unknown => Some((Verdict::Wait(Wait::PlaceUnknown), Rule::Namespace)),
        },
    }
}

/// The member's namespace is torn down and the repository opted into deleting then.
fn opted_in_teardown(member: &MemberFacts, context: &Context) -> bool {
    member.namespace_state == NamespaceState::Terminating
        && context.on_namespace_delete == OnNamespaceDelete::Delete
}

enum Stamped {
    Decided(Verdict, Rule),
    Prune,
    External,
}

/// Rule 5: our own prunes. A latched member was judged external before; a stamp does not undo that, so it goes
/// through every rule an external one goes through.
fn own_stamp(member: &MemberFacts, context: &Context) -> Stamped {
    if !stamp_is_fresh(member) {
        return Stamped::External;
    }
    let by_policy = match member.policy {
        Policy::Delete => None,
        Policy::Retain => Some(Verdict::Retain(RetainReason::Policy)),
        Policy::Orphan => Some(Verdict::Orphan(OrphanReason::Policy)),
        Policy::Unknown => Some(Verdict::Wait(Wait::PolicyUnreadable)),
    };
    match member.stamp {
        Stamp::None | Stamp::Unknown => Stamped::External,
        Stamp::Retention | Stamp::FailedHistory => match by_policy {
            Some(verdict) => Stamped::Decided(verdict, Rule::OwnStamp),
            None if context.latched => Stamped::External,
            None => Stamped::Prune,
        },
        // Nothing is pruned on account of what vanished, held before or not.
        Stamp::Unjustified => Stamped::Decided(
            by_policy.unwrap_or(Verdict::Retain(RetainReason::Unjustified)),
            Rule::OwnStamp,
        ),
        Stamp::PolicyCascade if opted_in_teardown(member, context) => Stamped::External,
        Stamp::PolicyCascade => Stamped::Decided(
            by_policy.unwrap_or(Verdict::Retain(RetainReason::PolicyDelete)),
            Rule::OwnStamp,
        ),
        Stamp::ReplacedRun => Stamped::Decided(
            by_policy.unwrap_or(Verdict::Retain(RetainReason::ReplacedRun)),
            Rule::OwnStamp,
        ),
    }
}

/// Rule 6: a schedule that went does not take the data with it unless that was asked for.
fn schedule_guard(member: &MemberFacts, context: &Context) -> Option<(Verdict, Rule)> {
    if member.policy != Policy::Delete || opted_in_teardown(member, context) {
        return None;
    }
    let verdict = match (member.owner, member.cascade) {
        (Owner::None | Owner::Alive, Cascade::Retain | Cascade::Delete | Cascade::Unknown)
        | (Owner::Gone | Owner::Replaced | Owner::Terminating | Owner::Unknown, Cascade::Delete) => {
            return None;
        }
        (Owner::Gone | Owner::Replaced | Owner::Terminating, Cascade::Retain) => {
            Verdict::Retain(RetainReason::ScheduleDelete)
        }
        (Owner::Gone | Owner::Replaced | Owner::Terminating, Cascade::Unknown) => {
            Verdict::Wait(Wait::CascadeUnreadable)
        }
        (Owner::Unknown, Cascade::Retain | Cascade::Unknown) => Verdict::Wait(Wait::OwnerUnknown),
    };
    Some((verdict, Rule::ScheduleGuard))
}

/// Rule 7: the policy keeps the data.
fn policy(member: &MemberFacts) -> Option<(Verdict, Rule)> {
    let verdict = match member.policy {
        Policy::Delete => return None,
        Policy::Retain => Verdict::Retain(RetainReason::Policy),
        Policy::Orphan => Verdict::Orphan(OrphanReason::Policy),
        Policy::Unknown => Verdict::Wait(Wait::PolicyUnreadable),
    };
    Some((verdict, Rule::Policy))
}

/// Rule 8: somebody else still needs the snapshot, or there is nowhere to delete it from.
fn shared_or_unknown(member: &MemberFacts, context: &Context) -> Option<(Verdict, Rule)> {
    let verdict = match &member.sharing {
        Sharing::WithLive(_) => Verdict::Retain(RetainReason::SharedSnapshot),
        Sharing::Unknown => Verdict::Wait(Wait::SharingUnknown),
        Sharing::Alone => match &member.repository {
            Resolution::Gone => Verdict::Orphan(OrphanReason::RepositoryUnknown),
            Resolution::Unreadable => Verdict::Wait(Wait::RepositoryUnreadable),
            Resolution::Resolved(key)
                if !context.in_lane || member.pin.as_ref().is_some_and(|pin| pin != key) =>
            {
                Verdict::Wait(Wait::RepositoryMismatch)
            }
            Resolution::Resolved(_) => return None,
        },
    };
    Some((verdict, Rule::SharedOrUnknown))
}

/// Whether a member could still turn out external and destructive, whatever is unknown about it now: then it
/// counts (`docs/design.md` 3.4). Those that a rule is certain to keep do not.
#[must_use]
pub fn could_be_destructive(member: &MemberFacts, context: &Context) -> bool {
    let certain = member.skip
        || context.api_going_away
        || (member.snapshot.is_none() && member.mover == OwnMover::None)
        || matches!(member.policy, Policy::Retain | Policy::Orphan)
        || matches!(member.sharing, Sharing::WithLive(_))
        || member.repository == Resolution::Gone
        || (matches!(member.repository, Resolution::Resolved(_))
            && matches!(member.place, Place::Terminating | Place::NotSet));
    if certain {
        return false;
    }
    let torn_down =
        context.on_namespace_delete == OnNamespaceDelete::Delete && !stamp_decides(member, context, true);
    let kept_by_schedule = matches!(member.owner, Owner::Gone | Owner::Replaced | Owner::Terminating)
        && member.cascade == Cascade::Retain;
    let stays = !kept_by_schedule && !stamp_decides(member, context, false);
    match member.namespace_state {
        NamespaceState::Live => stays,
        NamespaceState::Terminating => torn_down,
        NamespaceState::Unreadable => stays || torn_down,
    }
}

/// Whether our own stamp takes the member out of the breaker's sight.
fn stamp_decides(member: &MemberFacts, context: &Context, torn_down: bool) -> bool {
    stamp_is_fresh(member)
        && match member.stamp {
            Stamp::None | Stamp::Unknown => false,
            Stamp::Retention | Stamp::FailedHistory => !context.latched,
            Stamp::PolicyCascade => !torn_down,
            Stamp::Unjustified | Stamp::ReplacedRun => true,
        }
}

/// Freshly stamped by retention or the history limit, and never part of a hold.
#[must_use]
pub fn is_own_prune(member: &MemberFacts, latched: bool) -> bool {
    !latched && stamp_is_fresh(member) && matches!(member.stamp, Stamp::Retention | Stamp::FailedHistory)
}

/// A stamp counts only near the deletion it was written for (`docs/design.md` 3.7): a live object that still
/// carries an old one must not smuggle a later deletion past the breaker.
#[must_use]
pub fn stamp_is_fresh(member: &MemberFacts) -> bool {
    let Some(pruned_at) = member.pruned_at else {
        return false;
    };
    match member.stamp {
        Stamp::None | Stamp::Unknown => false,
        Stamp::Retention
        | Stamp::Unjustified
        | Stamp::FailedHistory
        | Stamp::PolicyCascade
        | Stamp::ReplacedRun => {
            member.restamped || member.deleted_at.duration_since(pruned_at).abs() <= STAMP_FRESH
        }
    }
}

/// The cascade that counts (`docs/design.md` 3.2): the stricter of what the Snapshot carries and of what its schedule
/// says, so that an edit which has not reached its Snapshots yet keeps their data all the same. `schedule` is none
/// where there is no schedule of the recorded UID to ask. Absent on the Snapshot is Retain.
#[must_use]
pub fn effective_cascade(own: Option<Cascade>, schedule: Option<Cascade>) -> Cascade {
    match (own.unwrap_or(Cascade::Retain), schedule) {
        (Cascade::Retain, _) | (_, Some(Cascade::Retain)) => Cascade::Retain,
        (Cascade::Unknown, _) | (_, Some(Cascade::Unknown)) => Cascade::Unknown,
        (Cascade::Delete, None | Some(Cascade::Delete)) => Cascade::Delete,
    }
}

/// Where a Snapshot came from: the label `…/origin` and `status.origin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// Created by a schedule.
    Scheduled,
    /// Created by a person.
    Manual,
    /// Found in the repository.
    Discovered,
    /// Found, and taken over by a policy.
    Adopted,
    /// Copied from another repository.
    Replicated,
    /// A value this build does not know.
    Unreadable,
}

impl Origin {
    /// Reads a marker; none when there is none.
    #[must_use]
    pub fn parse(value: Option<&str>) -> Option<Self> {
        value.map(|text| match text {
            "scheduled" => Self::Scheduled,
            "manual" => Self::Manual,
            "discovered" => Self::Discovered,
            "adopted" => Self::Adopted,
            "replicated" => Self::Replicated,
            _ => Self::Unreadable,
        })
    }
}

/// The policy that counts (`docs/design.md` 3.2): a discovered row, markers that differ, or one that cannot be
/// read force Retain; without `spec.deletionPolicy` it is Delete.
#[must_use]
pub fn effective_policy(spec: Option<Policy>, label: Option<Origin>, status: Option<Origin>) -> Policy {
    let forced = |origin: Option<Origin>| match origin {
        Some(Origin::Discovered | Origin::Unreadable) => true,
        Some(Origin::Scheduled | Origin::Manual | Origin::Adopted | Origin::Replicated) | None => false,
    };
    let differ = match (label, status) {
        (Some(label), Some(status)) => label != status,
        (None, _) | (_, None) => false,
    };
    if forced(label) || forced(status) || differ {
        Policy::Retain
    } else {
        spec.unwrap_or(Policy::Delete)
    }
}
