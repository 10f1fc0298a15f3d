//! Every combination of the small facts has exactly one verdict with a named rule, and none deletes where a guard
//! applies. The guards are stated here a second time, each by itself and without their order.

use crate::support::*;
use holdfast_core::deletion::guard::{Context, Guarded, could_be_destructive, judge};
use holdfast_core::deletion::*;

const STAMPS: [Stamp; 6] = [
    Stamp::None,
    Stamp::Retention,
    Stamp::FailedHistory,
    Stamp::PolicyCascade,
    Stamp::ReplacedRun,
    Stamp::Unknown,
];
const POLICIES: [Policy; 4] = [Policy::Delete, Policy::Retain, Policy::Orphan, Policy::Unknown];
const CASCADES: [Cascade; 3] = [Cascade::Retain, Cascade::Delete, Cascade::Unknown];
const OWNERS: [Owner; 6] = [
    Owner::None,
    Owner::Alive,
    Owner::Gone,
    Owner::Replaced,
    Owner::Terminating,
    Owner::Unknown,
];
const NAMESPACES: [NamespaceState; 3] = [
    NamespaceState::Live,
    NamespaceState::Terminating,
    NamespaceState::Unreadable,
];
const ON_NAMESPACE_DELETE: [OnNamespaceDelete; 3] = [
    OnNamespaceDelete::Orphan,
    OnNamespaceDelete::Delete,
    OnNamespaceDelete::Unknown,
];
const PLACES: [Place; 4] = [Place::Fine, Place::Terminating, Place::Unknown, Place::NotSet];
const MOVERS: [OwnMover; 4] = [
    OwnMover::None,
    OwnMover::Running,
    OwnMover::Unread,
    OwnMover::Unknown,
];

fn sharings() -> [Sharing; 3] {
    [
        Sharing::Alone,
        Sharing::WithLive("app/b".into()),
        Sharing::Unknown,
    ]
}

fn repositories() -> [Resolution; 3] {
    [
        Resolution::Resolved(nas()),
        Resolution::Gone,
        Resolution::Unreadable,
    ]
}

/// Calls `check` with every combination of what rules 1 to 8 read.
fn every_combination(skips: &[bool], owners: &[Owner], mut check: impl FnMut(&MemberFacts, &Context)) {
    let recorded = member("a", 100).snapshot;
    let snapshots = [
        (recorded.clone(), OwnMover::None),
        (recorded, OwnMover::Running),
        (None, OwnMover::None),
        (None, OwnMover::Running),
        (None, OwnMover::Unread),
        (None, OwnMover::Unknown),
    ];
    let mut m = member("a", 100);
    for &skip in skips {
        m.skip = skip;
        for (stamp, pruned_at) in STAMPS.iter().flat_map(|s| [(s, Some(t(90))), (s, Some(t(-900)))]) {
            (m.stamp, m.pruned_at) = (*stamp, pruned_at);
            for (snapshot, mover) in &snapshots {
                (m.snapshot, m.mover) = (snapshot.clone(), *mover);
                for sharing in sharings() {
                    m.sharing = sharing;
                    for repository in repositories() {
                        m.repository = repository;
                        for policy in POLICIES {
                            m.policy = policy;
                            small(&mut m, owners, &mut check);
                        }
                    }
                }
            }
        }
    }
}

fn small(m: &mut MemberFacts, owners: &[Owner], check: &mut impl FnMut(&MemberFacts, &Context)) {
    for cascade in CASCADES {
        for &owner in owners {
            for place in PLACES {
                for namespace_state in NAMESPACES {
                    (m.cascade, m.owner, m.place, m.namespace_state) =
                        (cascade, owner, place, namespace_state);
                    for on_namespace_delete in ON_NAMESPACE_DELETE {
                        for latched in [false, true] {
                            let in_lane = matches!(m.repository, Resolution::Resolved(_));
                            let context = Context {
                                api_going_away: false,
                                on_namespace_delete,
                                in_lane,
                                latched,
                            };
                            check(m, &context);
                        }
                    }
                }
            }
        }
    }
}

/// Every reason not to delete, each by itself.
fn a_guard_applies(m: &MemberFacts, c: &Context) -> bool {
    let torn_down = m.namespace_state == NamespaceState::Terminating;
    let opted_in = torn_down && c.on_namespace_delete == OnNamespaceDelete::Delete;
    let fresh = m.pruned_at == Some(t(90));
    let ours = fresh && matches!(m.stamp, Stamp::Retention | Stamp::FailedHistory) && !c.latched;
    let guards = [
        m.skip,
        m.snapshot.is_none(),
        torn_down && !opted_in,
        m.place != Place::Fine,
        m.policy != Policy::Delete,
        fresh && m.stamp == Stamp::ReplacedRun,
        fresh && m.stamp == Stamp::PolicyCascade && !opted_in,
        !ours
            && !opted_in
            && matches!(m.owner, Owner::Gone | Owner::Replaced | Owner::Terminating)
            && m.cascade != Cascade::Delete,
        !ours && !opted_in && m.owner == Owner::Unknown && m.cascade != Cascade::Delete,
        m.sharing != Sharing::Alone,
        m.repository != Resolution::Resolved(nas()),
    ];
    guards.into_iter().any(|guard| guard)
}

#[test]
fn no_combination_passes_a_guard_and_none_is_stopped_without_one() {
    let mut passed = [0_u32; 2];
    // Gone, replaced and terminating are one in this table; the next one tells them apart.
    every_combination(&[false], &[Owner::None, Owner::Gone, Owner::Unknown], |m, c| {
        let guarded = judge(m, c);
        let free = matches!(guarded, Guarded::Prune | Guarded::External);
        assert_eq!(free, !a_guard_applies(m, c), "{m:?} {c:?} {guarded:?}");
        match guarded {
            Guarded::Decided(verdict, rule) => {
                assert!((1..=8).contains(&rule.number()));
                assert!(verdict.keeps_data_and_ends() || verdict.wait().is_some());
                if verdict.keeps_data_and_ends() {
                    // What is let go now can no longer turn out destructive: unless its namespace is unreadable.
                    let counts = could_be_destructive(m, c);
                    assert!(
                        !counts || m.namespace_state == NamespaceState::Unreadable,
                        "{m:?} {c:?} {guarded:?}"
                    );
                }
            }
            Guarded::Prune => {
                assert!(!c.latched && !could_be_destructive(m, c));
                passed[0] += 1;
            }
            Guarded::External => {
                assert!(could_be_destructive(m, c), "count wide: {m:?} {c:?}");
                passed[1] += 1;
            }
        }
    });
    assert!(passed[0] > 0 && passed[1] > 0);
}

#[test]
fn the_skip_annotation_is_absolute_in_every_combination() {
    every_combination(&[true], &[Owner::None, Owner::Gone], |m, c| {
        assert_eq!(
            judge(m, c),
            Guarded::Decided(Verdict::Orphan(OrphanReason::Skip), Rule::Skip)
        );
        assert!(!could_be_destructive(m, c));
    });
}

#[test]
fn a_crd_that_goes_orphans_every_combination_without_the_skip_annotation() {
    every_combination(&[false], &[Owner::None, Owner::Gone], |m, c| {
        let context = Context {
            api_going_away: true,
            ..*c
        };
        let expected = Guarded::Decided(Verdict::Orphan(OrphanReason::ApiGoingAway), Rule::ApiGoingAway);
        assert_eq!(judge(m, &context), expected);
    });
}

/// The same through `wave`, with what only it reads: pin, source, hold, threshold, live batch.
#[test]
fn through_the_whole_decision_every_combination_has_one_verdict_and_fires_only_what_is_certain() {
    let (mut fired_some, mut held_some) = (false, false);
    let base = member("a", 100);
    for owner in OWNERS {
        for mover in MOVERS {
            for namespace_state in NAMESPACES {
                for cascade in CASCADES {
                    for stamp in STAMPS {
                        let m = MemberFacts {
                            owner,
                            mover,
                            namespace_state,
                            cascade,
                            stamp,
                            ..base.clone()
                        };
                        for m in rest(&m) {
                            for (on_namespace_delete, threshold) in ON_NAMESPACE_DELETE
                                .into_iter()
                                .flat_map(|o| [(o, 0), (o, 1), (o, 2)])
                            {
                                let mut lane = lane_with_threshold(threshold, vec![m.clone()]);
                                lane.repositories[0].on_namespace_delete = on_namespace_delete;
                                let plan = decide(&lane);
                                check_alone(&m, &lane, &plan);
                                fired_some |= plan.fire.is_some();
                                held_some |= held(&plan) == 1;
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(fired_some && held_some);
}

fn rest(base: &MemberFacts) -> Vec<MemberFacts> {
    let mut all = Vec::new();
    for pin in [Some(nas()), None] {
        for held in [HeldCondition::NotHeld, HeldCondition::Held { since: t(200) }] {
            for pruned_at in [Some(t(90)), None] {
                for snapshot in [
                    base.snapshot.clone(),
                    None,
                    Some(RecordedSnapshot {
                        id: "x".into(),
                        source: None,
                        start: None,
                    }),
                ] {
                    all.push(MemberFacts {
                        pin: pin.clone(),
                        held,
                        pruned_at,
                        snapshot,
                        ..base.clone()
                    });
                }
            }
        }
    }
    all
}

fn check_alone(m: &MemberFacts, lane: &Lane, plan: &Plan) {
    let repository = &lane.repositories[0];
    assert_eq!(plan.decisions.len(), 1);
    let decision = &plan.decisions[0];
    assert!(decision.rule.number() >= 1);
    assert_eq!(
        plan.fire.is_some(),
        decision.verdict.deletes() && decision.not_yet.is_none()
    );
    if plan.fire.is_some() {
        let latched = m.held != HeldCondition::NotHeld;
        let context = Context {
            api_going_away: false,
            on_namespace_delete: repository.on_namespace_delete,
            in_lane: true,
            latched,
        };
        assert!(!a_guard_applies(m, &context), "{m:?}");
        assert_eq!(m.mover, OwnMover::None);
        assert_ne!(m.namespace_state, NamespaceState::Unreadable);
        assert_ne!(m.owner, Owner::Unknown);
        assert!(m.snapshot.as_ref().unwrap().source.is_some());
        let prune =
            matches!(m.stamp, Stamp::Retention | Stamp::FailedHistory) && m.pruned_at.is_some() && !latched;
        let threshold = repository.threshold.unwrap();
        assert!(
            prune || threshold == 0 || (threshold == 2 && !latched),
            "{m:?} {threshold}"
        );
    }
    if decision.verdict.is_held() {
        assert_eq!(decision.rule, Rule::Breaker);
        assert_eq!(plan.repositories[0].held_through, LatchChange::Raise(t(100)));
    }
}
