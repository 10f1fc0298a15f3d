//! Decisions that are wrong in one rule each.
//!
//! **Promises.** Each is the real decision over facts in which one distinction is lost: what a decision would say
//! that got this one rule wrong, and no other.
//!
//! **Assumes** [`super::compare`] goes by the rule that should have decided.

use super::compare::Decide;
use holdfast_core::deletion::{
    Cache, HeldCondition, Lane, MemberFacts, OnNamespaceDelete, OwnMover, Owner, Place, Plan, Policy,
    RecordedAcknowledgement, Resolution, Rule, Settings, Sharing, Stamp, wave,
};
use jiff::{SignedDuration, Timestamp};

/// A wrong decision: what it gets wrong, the rule that this breaks, and itself.
pub type Wrong = (&'static str, Rule, Decide);

fn with_members(lane: &Lane, settings: &Settings, now: Timestamp, change: fn(&mut MemberFacts)) -> Plan {
    let mut lane = lane.clone();
    lane.members.iter_mut().chain(&mut lane.unplaced).for_each(change);
    wave(&lane, settings, now)
}

fn with_lane(lane: &Lane, settings: &Settings, now: Timestamp, change: fn(&mut Lane)) -> Plan {
    let mut lane = lane.clone();
    change(&mut lane);
    wave(&lane, settings, now)
}

/// The wrong decisions.
pub const WRONG: &[Wrong] = &[
    ("a cold cache is taken for an empty one", Rule::Lane, |l, s, n| {
        with_lane(l, s, n, |lane| lane.cache = Cache::Synced)
    }),
    (
        "a started Job is taken for one that has not",
        Rule::InFlight,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                lane.live.iter_mut().for_each(|batch| batch.started = false);
            })
        },
    ),
    ("skip is ignored", Rule::Skip, |l, s, n| {
        with_members(l, s, n, |m| m.skip = false)
    }),
    (
        "uninstalling is a wish to delete",
        Rule::ApiGoingAway,
        |l, s, n| with_lane(l, s, n, |lane| lane.api_going_away = false),
    ),
    (
        "a mover that could still record is not waited for",
        Rule::NothingRecorded,
        |l, s, n| with_members(l, s, n, |m| m.mover = OwnMover::None),
    ),
    (
        "an unknown onNamespaceDelete is Delete",
        Rule::Namespace,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                for repository in &mut lane.repositories {
                    match repository.on_namespace_delete {
                        OnNamespaceDelete::Unknown => {
                            repository.on_namespace_delete = OnNamespaceDelete::Delete
                        }
                        OnNamespaceDelete::Orphan | OnNamespaceDelete::Delete => {}
                    }
                }
            })
        },
    ),
    (
        "a place that is torn down is waited for",
        Rule::Namespace,
        |l, s, n| {
            with_members(l, s, n, |m| match m.place {
                Place::Terminating => m.place = Place::Unknown,
                Place::Fine | Place::Unknown | Place::NotSet => {}
            })
        },
    ),
    (
        "a stamp counts however old it is",
        Rule::ScheduleGuard,
        |l, s, n| with_members(l, s, n, |m| m.pruned_at = m.pruned_at.map(|_| m.deleted_at)),
    ),
    ("a stamp ends a latch", Rule::Breaker, |l, s, n| {
        with_members(l, s, n, |m| match m.stamp {
            Stamp::Retention | Stamp::FailedHistory => m.held = HeldCondition::NotHeld,
            Stamp::None | Stamp::Unknown | Stamp::Unjustified | Stamp::PolicyCascade | Stamp::ReplacedRun => {
            }
        })
    }),
    (
        "the children of a policy that went are pruned",
        Rule::OwnStamp,
        |l, s, n| {
            with_members(l, s, n, |m| match m.stamp {
                Stamp::PolicyCascade => m.stamp = Stamp::Retention,
                Stamp::None
                | Stamp::Unknown
                | Stamp::Retention
                | Stamp::Unjustified
                | Stamp::FailedHistory
                | Stamp::ReplacedRun => {}
            })
        },
    ),
    ("an unknown owner is alive", Rule::ScheduleGuard, |l, s, n| {
        with_members(l, s, n, |m| match m.owner {
            Owner::Unknown => m.owner = Owner::Alive,
            Owner::None | Owner::Alive | Owner::Gone | Owner::Replaced | Owner::Terminating => {}
        })
    }),
    (
        "a schedule of the same name is the same schedule",
        Rule::ScheduleGuard,
        |l, s, n| {
            with_members(l, s, n, |m| match m.owner {
                Owner::Replaced => m.owner = Owner::Alive,
                Owner::None | Owner::Alive | Owner::Gone | Owner::Terminating | Owner::Unknown => {}
            })
        },
    ),
    ("an unknown policy is Delete", Rule::Policy, |l, s, n| {
        with_members(l, s, n, |m| match m.policy {
            Policy::Unknown => m.policy = Policy::Delete,
            Policy::Delete | Policy::Retain | Policy::Orphan => {}
        })
    }),
    (
        "a snapshot that others need is deleted",
        Rule::SharedOrUnknown,
        |l, s, n| with_members(l, s, n, |m| m.sharing = Sharing::Alone),
    ),
    (
        "a repository that cannot be read is gone",
        Rule::SharedOrUnknown,
        |l, s, n| {
            with_members(l, s, n, |m| match m.repository {
                Resolution::Unreadable => m.repository = Resolution::Gone,
                Resolution::Resolved(_) | Resolution::Gone => {}
            })
        },
    ),
    (
        "only more than the threshold is held",
        Rule::Breaker,
        |l, s, n| {
            let mut settings = s.clone();
            settings.default_threshold += 1;
            with_lane(l, &settings, n, |lane| {
                for repository in &mut lane.repositories {
                    repository.threshold = repository.threshold.map(|t| if t == 0 { 0 } else { t + 1 });
                }
            })
        },
    ),
    (
        "one threshold of 0 disarms the whole lane",
        Rule::Breaker,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                if lane.repositories.iter().any(|r| r.threshold == Some(0)) {
                    lane.repositories.iter_mut().for_each(|r| r.threshold = Some(0));
                }
            })
        },
    ),
    ("a hold ends when the count falls", Rule::Breaker, |l, s, n| {
        let mut lane = l.clone();
        lane.repositories.iter_mut().for_each(|r| r.held_through = None);
        with_members(&lane, s, n, |m| m.held = HeldCondition::NotHeld)
    }),
    (
        "an acknowledgement counts before it is recorded",
        Rule::Breaker,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                for repository in &mut lane.repositories {
                    if let Some(value) = &repository.acknowledgement
                        && let Ok(effective) = value.parse()
                    {
                        repository.recorded_acknowledgement = Some(RecordedAcknowledgement {
                            value: value.clone(),
                            effective,
                            seen_at: effective,
                        });
                    }
                }
            })
        },
    ),
    (
        "an acknowledgement covers a second more",
        Rule::Breaker,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                for repository in &mut lane.repositories {
                    let second = SignedDuration::from_secs(1);
                    if let (Some(value), Some(recorded)) = (
                        &mut repository.acknowledgement,
                        &mut repository.recorded_acknowledgement,
                    ) && let Ok(parsed) = value.parse::<Timestamp>()
                        && *value == recorded.value
                    {
                        *value = (parsed + second).to_string();
                        recorded.value.clone_from(value);
                        recorded.effective += second;
                    }
                }
            })
        },
    ),
    (
        "an acknowledgement of one object covers the others",
        Rule::Breaker,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                if let [own, second] = lane.repositories.as_mut_slice()
                    && own.acknowledgement.is_some()
                {
                    second.acknowledgement.clone_from(&own.acknowledgement);
                    second
                        .recorded_acknowledgement
                        .clone_from(&own.recorded_acknowledgement);
                }
            })
        },
    ),
    (
        "a suspended repository object stops only its own",
        Rule::Breaker,
        |l, s, n| {
            with_lane(l, s, n, |lane| {
                if let [_, second] = lane.repositories.as_mut_slice() {
                    second.suspend = false;
                }
            })
        },
    ),
];
