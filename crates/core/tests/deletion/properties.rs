//! Promises of `docs/design.md` section 8, on random lanes.

use crate::support::*;
use holdfast_core::deletion::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn stamp() -> impl Strategy<Value = Stamp> {
    select(vec![
        Stamp::None,
        Stamp::None,
        Stamp::None,
        Stamp::Retention,
        Stamp::Retention,
        Stamp::FailedHistory,
        Stamp::PolicyCascade,
        Stamp::ReplacedRun,
        Stamp::Unknown,
    ])
}

/// Mostly what would be deleted; each fact is odd now and then.
fn odd<T: Clone + std::fmt::Debug + 'static>(usual: T, odd: Vec<T>) -> impl Strategy<Value = T> {
    (0_u8..8, select(odd)).prop_map(move |(n, odd)| if n == 0 { odd } else { usual.clone() })
}

fn any_member() -> impl Strategy<Value = MemberFacts> {
    let who = (
        0_i64..30,
        prop::bool::weighted(0.05),
        stamp(),
        -80_i64..80,
        any::<bool>(),
        0_u8..8,
    );
    let what = (
        odd(
            Policy::Delete,
            vec![Policy::Retain, Policy::Orphan, Policy::Unknown],
        ),
        odd(Cascade::Retain, vec![Cascade::Delete, Cascade::Unknown]),
        odd(
            Owner::None,
            vec![
                Owner::Alive,
                Owner::Gone,
                Owner::Replaced,
                Owner::Terminating,
                Owner::Unknown,
            ],
        ),
        odd(
            NamespaceState::Live,
            vec![NamespaceState::Terminating, NamespaceState::Unreadable],
        ),
        odd(Some(nas()), vec![None, Some(other())]),
        odd(
            OwnMover::None,
            vec![OwnMover::Running, OwnMover::Unread, OwnMover::Unknown],
        ),
        odd(
            Place::Fine,
            vec![Place::Terminating, Place::Unknown, Place::NotSet],
        ),
        odd(
            Sharing::Alone,
            vec![Sharing::WithLive("app/l".into()), Sharing::Unknown],
        ),
    );
    let state = (
        odd(
            HeldCondition::NotHeld,
            vec![HeldCondition::Held { since: t(200) }, HeldCondition::Unreadable],
        ),
        odd(0_u8, vec![1, 2]),
        odd(0_u32, vec![1, 5]),
        odd(None, vec![Some(t(900)), Some(t(1100))]),
        0_u8..12,
        900_i64..1001,
    );
    (who, what, state).prop_map(|(who, what, state)| {
        let (at, skip, stamp, skew, restamped, id) = who;
        let (policy, cascade, owner, namespace_state, pin, mover, place, sharing) = what;
        let (held, resolution, attempts, next_attempt_at, snapshot, first_seen) = state;
        let resolved = pin.clone().unwrap_or_else(nas);
        MemberFacts {
            deleted_at: t(500 + at),
            first_seen: t(first_seen),
            skip,
            stamp,
            pruned_at: (stamp != Stamp::None).then(|| t(500 + at + skew)),
            restamped: restamped && skew > 60,
            policy,
            cascade,
            owner,
            namespace_state,
            pin,
            repository: match resolution {
                0 => Resolution::Resolved(resolved),
                1 => Resolution::Gone,
                _ => Resolution::Unreadable,
            },
            snapshot: (snapshot != 0).then(|| RecordedSnapshot {
                id: if id == 0 {
                    "shared".into()
                } else {
                    format!("id-{at}-{snapshot}-{first_seen}")
                },
                source: (snapshot != 1).then(|| "p@app:/pvc/data".into()),
                start: None,
            }),
            sharing,
            mover,
            held,
            place,
            attempts,
            next_attempt_at,
            ..member("x", 0)
        }
    })
}

fn any_repository(key: RepositoryKey) -> impl Strategy<Value = RepositoryFacts> {
    (
        select(vec![None, Some(0), Some(1), Some(3), Some(8), Some(40)]),
        select(vec![
            OnNamespaceDelete::Orphan,
            OnNamespaceDelete::Delete,
            OnNamespaceDelete::Unknown,
        ]),
        prop::bool::weighted(0.05),
        prop::bool::weighted(0.95),
        select(vec![
            None,
            None,
            Some("nonsense".to_owned()),
            Some(t(515).to_string()),
            Some(t(9999).to_string()),
        ]),
        any::<bool>(),
        select(vec![None, None, Some(t(510)), Some(t(530))]),
        select(vec![None, None, None, Some(t(1200))]),
        prop::option::weighted(0.2, 1_u32..12),
    )
        .prop_map(
            move |(
                threshold,
                on_namespace_delete,
                suspend,
                connected,
                ack,
                recorded,
                through,
                backoff,
                window,
            )| {
                let recorded = ack
                    .as_ref()
                    .filter(|_| recorded)
                    .map(|value| RecordedAcknowledgement {
                        value: value.clone(),
                        effective: t(520),
                        seen_at: t(600),
                    });
                RepositoryFacts {
                    key: key.clone(),
                    threshold,
                    on_namespace_delete,
                    suspend,
                    connected,
                    acknowledgement: ack,
                    sliding_window: window.map(|threshold| SlidingWindow {
                        duration: jiff::SignedDuration::from_secs(300),
                        threshold,
                    }),
                    refused_acknowledgement: None,
                    recorded_acknowledgement: recorded,
                    held_through: through,
                    backoff_until: backoff,
                }
            },
        )
}

/// An object that went during a hold.
fn gone() -> RepositoryKey {
    RepositoryKey::ClusterRepository { name: "gone".into() }
}

fn any_lane() -> impl Strategy<Value = Lane> {
    (
        any_repository(nas()),
        prop::option::weighted(0.3, any_repository(other())),
        prop_oneof![8 => vec(any_member(), 0..8), 1 => vec(any_member(), 0..40)],
        vec(any_member(), 0..3),
        prop::option::weighted(0.3, (any::<bool>(), 1_usize..6)),
        prop::bool::weighted(0.02),
        prop::bool::weighted(0.02),
        prop::option::weighted(0.15, (select(vec![None, Some(t(515))]), 0_u32..9)),
        vec(0_i64..600, 0..6),
    )
        .prop_map(
            |(first, second, mut members, mut unplaced, live_batch, cold, foreign, latch, fired)| {
                for (n, member) in members.iter_mut().enumerate() {
                    member.uid = format!("uid-m{n}");
                    member.name = format!("m{n}");
                }
                for (n, member) in unplaced.iter_mut().enumerate() {
                    member.uid = format!("uid-u{n}");
                    (member.pin, member.repository) = (None, Resolution::Unreadable);
                }
                let live = live_batch.map(|(started, count)| LiveBatch {
                    members: members.iter().take(count).map(|m| m.uid.clone()).collect(),
                    ..live("snapdel-nas-0", &[], started)
                });
                Lane {
                    latch: latch.map(|(held_through, threshold)| LaneLatch {
                        held_through,
                        thresholds: [(gone(), threshold)].into(),
                    }),
                    fired: fired
                        .into_iter()
                        .enumerate()
                        .map(|(n, ago)| Fired {
                            uid: format!("uid-f{n}"),
                            at: t(1000 - ago),
                        })
                        .collect(),
                    repositories: std::iter::once(first).chain(second).collect(),
                    members,
                    unplaced,
                    live,
                    cache: if cold { Cache::Cold } else { Cache::Synced },
                    foreign_manager: foreign,
                    ..Lane::default()
                }
            },
        )
}

fn find<'a>(lane: &'a Lane, uid: &str) -> &'a MemberFacts {
    lane.members.iter().find(|m| m.uid == uid).unwrap()
}

fn is_latched(lane: &Lane, m: &MemberFacts) -> bool {
    let kept = lane.latch.as_ref().and_then(|latch| latch.held_through);
    let through = lane
        .repositories
        .iter()
        .filter_map(|r| r.held_through)
        .chain(kept)
        .max();
    let stamped_before = !m.restamped
        && !matches!(m.stamp, Stamp::None | Stamp::Unknown)
        && m.pruned_at
            .is_some_and(|p| p <= m.deleted_at && p >= m.deleted_at - jiff::SignedDuration::from_mins(1));
    m.held != HeldCondition::NotHeld || (!stamped_before && through.is_some_and(|time| m.deleted_at <= time))
}

fn is_covered(lane: &Lane, m: &MemberFacts) -> bool {
    let Resolution::Resolved(key) = &m.repository else {
        return false;
    };
    lane.repositories.iter().filter(|r| r.key == *key).any(|r| {
        r.recorded_acknowledgement
            .as_ref()
            .is_some_and(|a| r.acknowledgement.as_ref() == Some(&a.value) && m.deleted_at <= a.effective)
    })
}

fn breaker_is_off(lane: &Lane) -> bool {
    lane.repositories.iter().all(|r| r.threshold == Some(0))
}

/// Off also for what was held: no object that went during the hold says otherwise.
fn latch_is_off(lane: &Lane) -> bool {
    let remembered = lane.latch.iter().flat_map(|latch| &latch.thresholds);
    breaker_is_off(lane)
        && remembered
            .filter(|(key, _)| **key == gone())
            .all(|(_, n)| *n == 0)
}

fn fired_lately(lane: &Lane) -> usize {
    let since = now() - jiff::SignedDuration::from_secs(300);
    lane.fired.iter().filter(|f| f.at > since).count()
}

/// What a controller would have done when the plan is applied and its Job has deleted everything.
fn apply(lane: &mut Lane, plan: &Plan) {
    for (key, plan) in plan.repositories.iter().map(|p| (&p.key, p)) {
        let facts = lane.repositories.iter_mut().find(|r| r.key == *key).unwrap();
        match &plan.acknowledgement {
            AcknowledgementChange::Keep => {}
            AcknowledgementChange::Record(record) => facts.recorded_acknowledgement = Some(record.clone()),
            AcknowledgementChange::Forget => facts.recorded_acknowledgement = None,
        }
        match plan.held_through {
            LatchChange::Keep => {}
            LatchChange::Raise(time) => facts.held_through = Some(time),
            LatchChange::Clear => facts.held_through = None,
        }
    }
    match &plan.latch {
        LaneLatchChange::Keep => {}
        LaneLatchChange::Write(latch) => lane.latch = Some(latch.clone()),
        LaneLatchChange::Forget => lane.latch = None,
    }
    let riding: Vec<&str> = plan
        .fire
        .iter()
        .flat_map(|b| b.members.iter().map(String::as_str))
        .collect();
    lane.members.retain(|m| {
        let decision = plan.decision(&m.uid).unwrap();
        !decision.releases() && !riding.contains(&m.uid.as_str())
    });
    for member in &mut lane.members {
        if plan.decision(&member.uid).unwrap().held_change == HeldChange::Set {
            member.held = HeldCondition::Held { since: now() };
        }
    }
    if plan.withdraw.is_some() {
        lane.live = None;
    }
}

/// Cases of each property.
const CASES: u32 = 9_200;

/// `HOLDFAST_EVERY`, as in the second statement: fewer can only find less.
fn cases() -> u32 {
    let every = std::env::var("HOLDFAST_EVERY").ok().and_then(|n| n.parse().ok());
    CASES / every.unwrap_or(1)
}

#[test]
fn there_are_a_hundred_thousand_cases() {
    let (_, properties) = include_str!("properties.rs")
        .rsplit_once("\nproptest! {")
        .unwrap();
    let properties = properties.matches("#[test]").count();
    println!("{properties} properties, {CASES} cases each");
    assert!(properties * CASES as usize >= 100_000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn promise_1_what_fires_had_every_right_to(lane in any_lane()) {
        let plan = decide(&lane);
        let Some(batch) = &plan.fire else { return Ok(()) };
        prop_assert!(lane.live.is_none() && lane.cache == Cache::Synced && !lane.foreign_manager);
        prop_assert!(lane.repositories.iter().all(|r| r.connected && !r.suspend));
        prop_assert!(!batch.members.is_empty() && batch.members.len() <= 200 && batch.job_name.len() <= 63);
        for uid in &batch.members {
            let m = find(&lane, uid);
            prop_assert!(!m.skip && m.policy == Policy::Delete && m.mover == OwnMover::None);
            prop_assert_eq!(&m.sharing, &Sharing::Alone);
            prop_assert_eq!(&m.repository, &Resolution::Resolved(batch.repository.clone()));
            prop_assert!(m.pin.is_some() || batch.members.len() == 1);
            prop_assert!(m.namespace_state != NamespaceState::Unreadable && m.owner != Owner::Unknown);
            prop_assert!(m.snapshot.as_ref().unwrap().source.is_some() && m.place == Place::Fine);
            prop_assert!(m.next_attempt_at.is_none_or(|at| at <= now()));
            let fresh = m.restamped
                || m.pruned_at.is_some_and(|p| (p.as_second() - m.deleted_at.as_second()).abs() <= 60);
            let prune = matches!(m.stamp, Stamp::Retention | Stamp::FailedHistory) && fresh && !is_latched(&lane, m);
            let below = plan.repositories[0].count < plan.repositories[0].threshold.unwrap() as usize;
            let off = if is_latched(&lane, m) { latch_is_off(&lane) } else { breaker_is_off(&lane) };
            prop_assert!(prune || off || is_covered(&lane, m) || (below && !is_latched(&lane, m)));
            if !prune && !off && !is_covered(&lane, m) {
                for window in lane.repositories.iter().filter_map(|r| r.sliding_window) {
                    let all = plan.repositories[0].count + fired_lately(&lane);
                    prop_assert!(all < window.threshold as usize, "the slow trickle");
                }
            }
        }
    }

    #[test]
    fn promise_2_a_latched_member_fires_only_by_acknowledgement_or_threshold_zero(lane in any_lane()) {
        let plan = decide(&lane);
        for uid in plan.fire.iter().flat_map(|b| &b.members) {
            let m = find(&lane, uid);
            prop_assert!(!is_latched(&lane, m) || is_covered(&lane, m) || latch_is_off(&lane));
        }
    }

    #[test]
    fn a_repository_object_that_goes_releases_nothing_of_the_others(lane in any_lane(), second in any_repository(other())) {
        let mut lane = lane;
        lane.repositories.truncate(1);
        lane.repositories.push(second);
        let before = decide(&lane);
        let members = lane.members.clone();
        apply(&mut lane, &before);
        lane.members = members;
        lane.repositories.pop();
        let after = decide(&lane);
        for uid in after.fire.iter().flat_map(|b| &b.members) {
            prop_assert!(!before.decision(uid).unwrap().verdict.is_held() || is_covered(&lane, find(&lane, uid)));
        }
    }

    #[test]
    fn held_members_never_fire_and_held_ones_are_latched_before_they_are_marked(lane in any_lane()) {
        let plan = decide(&lane);
        for decision in plan.decisions.iter().filter(|d| d.verdict.is_held()) {
            prop_assert!(plan.fire.iter().all(|b| !b.members.contains(&decision.uid)));
            let m = find(&lane, &decision.uid);
            let mut latched = lane.clone();
            let still: Vec<MemberFacts> = latched.members.clone();
            apply(&mut latched, &plan);
            latched.members = still;
            prop_assert!(latched.repositories.iter().any(|r| r.held_through.is_some_and(|t| m.deleted_at <= t)));
        }
    }

    #[test]
    fn the_breaker_counts_every_external_member_that_is_held_or_may_be_deleted(lane in any_lane()) {
        let plan = decide(&lane);
        let destructive = plan.decisions.iter().filter(|d| match d.verdict {
            Verdict::Held(_) => true,
            Verdict::Delete(reason) => reason == DeleteReason::BelowThreshold,
            Verdict::InFlight | Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) | Verdict::Wait(_) => false,
        }).count();
        prop_assert!(plan.repositories[0].count >= destructive, "count wide, fire narrow");
    }

    #[test]
    fn more_doubt_never_fires_more_external_members(lane in any_lane(), which in 0_usize..40, fact in 0_u8..6) {
        let before = decide(&lane);
        let mut doubtful = lane.clone();
        let Some(m) = doubtful.members.get_mut(which) else { return Ok(()) };
        let uid = m.uid.clone();
        match fact {
            0 => m.namespace_state = NamespaceState::Unreadable,
            1 => m.owner = Owner::Unknown,
            2 => m.mover = OwnMover::Unknown,
            3 => m.sharing = Sharing::Unknown,
            4 => m.place = Place::Unknown,
            _ => m.policy = Policy::Unknown,
        }
        let after = decide(&doubtful);
        prop_assert!(after.fire.iter().all(|b| !b.members.contains(&uid)));
        // Doubt about one never lets another external one go that was held before.
        for decision in before.decisions.iter().filter(|d| d.verdict.is_held() && d.uid != uid) {
            let counted_less = after.repositories[0].count < before.repositories[0].count;
            prop_assert!(!counted_less || after.decision(&decision.uid).unwrap().verdict.is_held());
        }
    }

    #[test]
    fn a_plan_is_a_pure_function_and_the_order_of_the_facts_does_not_matter(lane in any_lane(), turn in 0_usize..40) {
        let plan = decide(&lane);
        prop_assert_eq!(&plan, &decide(&lane));
        let mut shuffled = lane.clone();
        shuffled.repositories.reverse();
        shuffled.members.reverse();
        let len = shuffled.members.len();
        if len > 0 {
            shuffled.members.rotate_left(turn % len);
            let twice = shuffled.members[0].clone();
            shuffled.members.push(twice);
        }
        prop_assert_eq!(&plan, &decide(&shuffled));
    }

    #[test]
    fn promise_6_a_held_wave_of_any_size_does_not_hold_prunes(wave_size in 10_usize..120, prunes in 1_usize..50) {
        let mut pending = members(wave_size, 100);
        pending.extend((0..prunes).map(|n| prune(&format!("p{n}"), 300)));
        let plan = decide(&lane(pending));
        prop_assert_eq!(held(&plan), wave_size);
        prop_assert_eq!(fired(&plan).len(), prunes);
    }

    #[test]
    fn one_decision_for_each_member_in_order_and_every_wait_has_a_moment_or_an_event(lane in any_lane()) {
        let plan = decide(&lane);
        prop_assert_eq!(plan.decisions.len(), lane.members.len());
        prop_assert!(plan.wake_at.is_none_or(|at| at > now()));
        for decision in &plan.decisions {
            prop_assert!(!decision.reason().is_empty());
            let ends = decision.releases();
            let rides = plan.fire.iter().any(|b| b.members.contains(&decision.uid));
            let told = decision.waits_for().is_some() || decision.verdict.is_held() || decision.verdict == Verdict::InFlight;
            prop_assert!(u8::from(ends) + u8::from(rides) + u8::from(told) == 1, "{:?}", decision);
        }
    }

    #[test]
    fn promise_5_decide_apply_decide_reaches_a_fixed_point_and_never_frees_what_was_held(lane in any_lane()) {
        let mut lane = lane;
        let mut ever_held: Vec<String> = Vec::new();
        for round in 0.. {
            prop_assert!(round < 60, "no fixed point: {:?}", decide(&lane));
            let plan = decide(&lane);
            for uid in plan.fire.iter().flat_map(|b| &b.members) {
                let m = find(&lane, uid);
                prop_assert!(!ever_held.contains(uid) || is_covered(&lane, m) || latch_is_off(&lane));
            }
            ever_held.extend(plan.decisions.iter().filter(|d| d.verdict.is_held()).map(|d| d.uid.clone()));
            apply(&mut lane, &plan);
            if plan.is_settled() {
                break;
            }
        }
        let last = decide(&lane);
        prop_assert!(last.fire.is_none() && last.withdraw.is_none());
    }

    #[test]
    fn the_live_plan_never_confirms_what_it_does_not_delete(cached in any_lane(), live in any_lane()) {
        let Some(batch) = decide(&cached).fire else { return Ok(()) };
        let plan = decide(&live);
        if let Some(confirmed) = plan.confirm(&batch) {
            for uid in &confirmed.members {
                prop_assert!(batch.members.contains(uid));
                prop_assert!(plan.decision(uid).unwrap().verdict.deletes());
            }
        }
    }
}
