//! What a policy prunes.

use super::decide::{Facts, decide};
use super::identity::{Refused, Resolved};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::SnapshotView;
use holdfast_api::names;
use holdfast_core::identity::{InForce, Named};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

fn now() -> Timestamp {
    Timestamp::from_second(10_000_000).unwrap()
}

fn snapshot(n: i64, change: impl FnOnce(&mut Value)) -> Arc<SnapshotView> {
    let end = Timestamp::from_second(1_000_000 + n).unwrap().to_string();
    let mut object = json!({
        "metadata": {
            "name": format!("s{n}"), "namespace": "a", "uid": format!("u{n}"),
            "labels": { "kopiur.home-operations.com/origin": "scheduled" },
        },
        "spec": { "policyRef": { "name": "p" } },
        "status": {
            "phase": "Succeeded",
            "snapshot": { "kopiaSnapshotID": format!("id{n}") },
            "timing": { "endTime": end },
            "resolved": { "repository": { "name": "r", "namespace": "a" } },
        },
    });
    change(&mut object);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn facts(spec: Value, snapshots: Vec<Arc<SnapshotView>>) -> Facts {
    let mut full = json!({ "repository": { "name": "r" }, "sources": [{ "pvc": { "name": "data" } }] });
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let policy = serde_json::from_value(json!({
        "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
        "metadata": { "name": "p", "namespace": "a", "generation": 3 }, "spec": full,
    }))
    .unwrap();
    Facts {
        policy: Arc::new(policy),
        repository: Some(RepositoryKey::Repository {
            namespace: "a".into(),
            name: "r".into(),
        }),
        repository_exists: true,
        identity: Ok(Resolved {
            in_force: InForce::Asked(Named {
                username: "p".into(),
                hostname: "a".into(),
            }),
            unique_id: None,
            source_path: None,
            allowed_by: None,
            seen_of_repository: None,
        }),
        threshold: 10,
        snapshots,
    }
}

fn pruned(facts: &Facts) -> Vec<String> {
    decide(facts, now())
        .prune
        .iter()
        .map(|p| p.view.key().name)
        .collect()
}

fn five() -> Vec<Arc<SnapshotView>> {
    (0..5).map(|n| snapshot(n, |_| {})).collect()
}

#[test]
fn the_newest_are_kept_and_a_policy_without_retention_prunes_nothing() {
    assert_eq!(
        pruned(&facts(json!({ "retention": { "keepLatest": 2 } }), five())),
        ["s0", "s1", "s2"]
    );
    assert!(pruned(&facts(json!({}), five())).is_empty());
    assert!(pruned(&facts(json!({ "retention": {} }), five())).is_empty());
}

#[test]
fn a_suspended_or_refused_policy_prunes_nothing() {
    let keep = json!({ "keepLatest": 1 });
    assert!(pruned(&facts(json!({ "retention": keep, "suspend": true }), five())).is_empty());
    assert!(pruned(&facts(json!({ "retention": keep, "hooks": {} }), five())).is_empty());
}

#[test]
fn a_policy_without_an_identity_is_stalled_and_prunes_nothing() {
    let mut facts = facts(json!({ "retention": { "keepLatest": 1 } }), five());
    facts.identity = Err(Refused::Invalid(
        "spec.identityDefaults.usernameExpr is empty".into(),
    ));
    let decision = decide(&facts, now());
    assert!(decision.stalled && !decision.ready && decision.prune.is_empty());
    assert_eq!(decision.reason, "IdentityInvalid");
    assert!(decision.message.contains("spec.identityDefaults.usernameExpr"));
}

#[test]
fn a_policy_whose_name_is_taken_is_stalled_and_its_retention_goes_on() {
    let mut facts = facts(json!({ "retention": { "keepLatest": 2 } }), five());
    facts.identity = Err(Refused::Taken {
        by: ObjectKey::new("a", "other"),
        named: Named {
            username: "p".into(),
            hostname: "a".into(),
        },
    });
    let decision = decide(&facts, now());
    assert!(decision.stalled && !decision.ready && decision.asked);
    assert_eq!((decision.reason, decision.prune.len()), ("IdentityTaken", 3));
}

#[test]
fn what_is_deleting_failed_discovered_or_without_an_id_neither_counts_nor_is_pruned() {
    let mut all = five();
    all.push(snapshot(10, |o| {
        o["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z")
    }));
    all.push(snapshot(11, |o| o["status"]["phase"] = json!("Failed")));
    all.push(snapshot(12, |o| o["status"]["snapshot"] = json!(null)));
    all.push(snapshot(13, |o| {
        o["metadata"]["labels"]["kopiur.home-operations.com/origin"] = json!("discovered");
    }));
    all.push(snapshot(14, |o| {
        o["metadata"]["labels"]["kopiur.home-operations.com/origin"] = json!("from-a-newer-release");
    }));
    assert_eq!(
        pruned(&facts(json!({ "retention": { "keepLatest": 4 } }), all)),
        ["s0"]
    );
}

#[test]
fn a_policy_that_moved_does_not_prune_what_it_left_behind_by_what_it_has_now() {
    let mut all = five();
    for n in 20..22 {
        all.push(snapshot(n, |o| {
            o["status"]["resolved"]["repository"]["name"] = json!("new")
        }));
    }
    let left = pruned(&facts(json!({ "retention": { "keepLatest": 2 } }), all));
    assert_eq!(
        left,
        ["s0", "s1", "s2"],
        "each repository has a history of its own"
    );
}

#[test]
fn a_repository_object_made_anew_over_another_repository_has_a_history_of_its_own() {
    let mut all = five();
    for n in 20..22 {
        all.push(snapshot(n, |o| {
            o["status"]["resolved"]["uniqueId"] = json!("the new one")
        }));
    }
    let left = pruned(&facts(json!({ "retention": { "keepLatest": 2 } }), all));
    assert_eq!(left, ["s0", "s1", "s2"]);
}

#[test]
fn a_live_object_loses_an_old_stamp_and_keeps_a_fresh_one() {
    let stamp = |time: &str| {
        let time = time.to_owned();
        move |o: &mut Value| {
            o["metadata"]["annotations"] = json!({
                "kopiur.home-operations.com/pruned-by": "retention",
                "kopiur.home-operations.com/pruned-at": time,
            });
        }
    };
    let fresh = now().to_string();
    let all = vec![
        snapshot(0, stamp("2026-01-01T00:00:00Z")),
        snapshot(1, stamp(&fresh)),
        snapshot(2, stamp("rubbish")),
    ];
    let decision = decide(&facts(json!({}), all), now());
    let names: Vec<String> = decision.unstamp.iter().map(|s| s.key().name).collect();
    assert_eq!(names, ["s0", "s2"]);
}

#[test]
fn a_prune_takes_the_ids_along_that_were_kept_instead_in_its_own_repository() {
    let mut all = five();
    all.push(snapshot(20, |o| {
        o["status"]["resolved"]["repository"]["name"] = json!("new")
    }));
    let decision = decide(&facts(json!({ "retention": { "keepLatest": 2 } }), all), now());
    let kept: Vec<&str> = decision.prune.iter().map(|p| p.kept.as_str()).collect();
    assert_eq!(kept, ["id4,id3"; 3]);
}

#[test]
fn what_vanished_neither_counts_nor_is_pruned_nor_justifies() {
    let mut all = five();
    all[4] = snapshot(4, |o| {
        o["status"]["conditions"] = json!([{
            "type": "Vanished", "status": "True", "reason": "NotListed", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
    let decision = decide(
        &facts(json!({ "retention": { "keepLatest": 2 } }), all.clone()),
        now(),
    );
    let pruned: Vec<String> = decision.prune.iter().map(|p| p.view.key().name).collect();
    assert_eq!(pruned, ["s0", "s1"]);
    assert_eq!(decision.prune[0].kept, "id3,id2");
    assert_eq!(
        super::kept_now(&all[0], &all, now()),
        ["id3", "id2", "id1", "id0"]
    );
}

#[test]
fn an_edit_that_would_prune_as_many_as_the_threshold_waits_and_says_the_command() {
    let mut facts = facts(
        json!({ "retention": { "keepLatest": 1 } }),
        (0..11).map(|n| snapshot(n, |_| {})).collect(),
    );
    let held = decide(&facts, now());
    assert!(held.prune.is_empty() && held.asked);
    let message = held.held.unwrap();
    assert!(
        message.contains(
            "kubectl -n a annotate snapshotpolicy/p kopiur.home-operations.com/allow-mass-prune=\"3\" --overwrite"
        ),
        "{message}"
    );
    assert!(
        message.contains("10 Snapshots") && message.contains("threshold is 10"),
        "{message}"
    );
    facts.threshold = 0;
    assert_eq!(pruned(&facts).len(), 10);
    facts.threshold = 10;
    let mut policy = facts.policy.as_ref().clone();
    policy.metadata.annotations = Some([(names::ALLOW_MASS_PRUNE.to_owned(), "3".to_owned())].into());
    facts.policy = Arc::new(policy.clone());
    assert_eq!(pruned(&facts).len(), 10);
    policy.metadata.generation = Some(4);
    facts.policy = Arc::new(policy.clone());
    assert!(pruned(&facts).is_empty(), "for one generation only");
    policy.status =
        Some(serde_json::from_value(json!({ "retention": { "completedGeneration": 4 } })).unwrap());
    facts.policy = Arc::new(policy);
    assert_eq!(pruned(&facts).len(), 10, "routine");
}

#[test]
fn every_count_of_retention_is_acted_on() {
    // One an hour for sixty days.
    let all: Vec<Arc<SnapshotView>> = (0..60 * 24).map(|n| snapshot(n * 3600, |_| {})).collect();
    let kept = |retention: Value| {
        let mut facts = facts(json!({ "retention": retention }), all.clone());
        facts.threshold = 0;
        all.len() - pruned(&facts).len()
    };
    assert_eq!(kept(json!({ "keepLatest": 5 })), 5);
    assert_eq!(kept(json!({ "keepHourly": 48 })), 48);
    assert_eq!(kept(json!({ "keepDaily": 14 })), 14);
    assert_eq!(kept(json!({ "keepWeekly": 4 })), 4);
    // The sixty days touch three months, of one year.
    assert_eq!(kept(json!({ "keepMonthly": 12 })), 3);
    assert_eq!(kept(json!({ "keepAnnual": 12 })), 1);
    assert_eq!(kept(json!({ "keepLatest": 0, "keepDaily": 2 })), 2);
    assert_eq!(kept(json!({})), all.len());
}

#[test]
fn a_machine_that_was_off_for_twenty_days_loses_nothing_to_keep_daily() {
    let day = 24 * 3600;
    let keep = json!({ "retention": { "keepDaily": 14 } });
    let before: Vec<Arc<SnapshotView>> = (0..14).map(|n| snapshot(n * day, |_| {})).collect();
    let mut all = before.clone();
    for n in 0..4 {
        // Each new day takes the place of one old day, none goes for having grown old.
        all.push(snapshot((14 + 20 + n) * day, |_| {}));
        let gone = usize::try_from(n).unwrap() + 1;
        let expected: Vec<String> = before[..gone].iter().map(|s| s.key().name).collect();
        assert_eq!(pruned(&facts(keep.clone(), all.clone())), expected);
    }
}

#[test]
fn a_pinned_snapshot_is_never_pruned() {
    let mut all = five();
    all[0] = snapshot(0, |o| o["spec"]["pin"] = json!(true));
    let keep = json!({ "retention": { "keepLatest": 2 } });
    assert_eq!(pruned(&facts(keep, all)), ["s1", "s2"]);
}

#[test]
fn what_is_pinned_in_the_repository_itself_is_never_pruned() {
    let mut all = five();
    all[0] = snapshot(0, |o| o["status"]["pinned"] = json!(true));
    let keep = json!({ "retention": { "keepLatest": 2 } });
    assert_eq!(pruned(&facts(keep, all)), ["s1", "s2"]);
}

#[test]
fn an_edit_of_any_count_that_would_prune_as_many_as_the_threshold_waits() {
    let day = 24 * 3600;
    let all: Vec<Arc<SnapshotView>> = (0..30).map(|n| snapshot(n * day, |_| {})).collect();
    for (keep, count) in [
        (json!({ "keepDaily": 14 }), 16),
        (json!({ "keepDaily": 7, "keepWeekly": 4 }), 21),
        (json!({ "keepAnnual": 1 }), 29),
    ] {
        let mut facts = facts(json!({ "retention": keep }), all.clone());
        let held = decide(&facts, now());
        assert!(held.prune.is_empty(), "{keep}");
        assert_eq!(held.retained.prune.len(), count, "{keep}");
        let message = held.held.unwrap();
        assert!(
            message.contains(&format!("would prune {count} Snapshots at once"))
                && message.contains("allow-mass-prune=\"3\""),
            "{message}"
        );
        let mut policy = facts.policy.as_ref().clone();
        policy.status =
            Some(serde_json::from_value(json!({ "retention": { "completedGeneration": 3 } })).unwrap());
        facts.policy = Arc::new(policy);
        assert_eq!(pruned(&facts).len(), count, "ordinary pruning is never held");
    }
}

#[test]
fn a_snapshot_that_says_it_ended_in_the_future_ended_when_it_was_recorded_or_now() {
    let year = 366 * 24 * 3600;
    let mut all = five();
    all.extend((1..4).map(|n| snapshot(n * year, |_| {})));
    let keep = json!({ "retention": { "keepAnnual": 3 } });
    let decision = decide(&facts(keep, all), now());
    assert_eq!(decision.last_success, Some(now()));
    assert_eq!(
        decision.retained.keep.len(),
        1,
        "no year after this one has begun"
    );

    // It was recorded before the others were taken, so it is older than they are.
    let mut all = five();
    all.push(snapshot(year, |s| {
        s["status"]["conditions"] = json!([{
            "type": "Ready", "status": "True", "reason": "SnapshotCreated", "message": "",
            "lastTransitionTime": "1970-01-02T00:00:00Z",
        }]);
    }));
    let keep = json!({ "retention": { "keepLatest": 5 } });
    let ahead = format!("s{year}");
    assert_eq!(pruned(&facts(keep, all)), [ahead]);
}
