//! What is written to quotas, and what is worth a warning.

use crate::support::*;
use holdfast_core::quota::gate::Quota;
use holdfast_core::quota::publish::*;
use holdfast_core::quota::{Figures, Ledger};
use std::collections::BTreeMap;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn quota(hard: &[(&str, &str)], used: &[(&str, &str)]) -> Quota {
    Quota {
        name: "tenant-quota".into(),
        scoped: false,
        hard: map(hard),
        used: map(used),
        breakdown: None,
    }
}

fn published(size: i64) -> Published {
    let mut ledger = Ledger::default();
    see(&mut ledger, &backup("a", size), 0);
    Published {
        own: ledger.figures(NS),
        stranded: Figures::default(),
        unaccounted: Some(0),
    }
}

const BOTH: &[(&str, &str)] = &[
    ("backups.cozystack.io/size", "10Gi"),
    ("backups.cozystack.io/count", "5"),
];

#[test]
fn only_our_keys_that_are_in_spec_hard_are_written_and_all_of_them_at_once() {
    for (hard, used) in [
        (
            BOTH,
            map(&[
                ("backups.cozystack.io/size", "1Gi"),
                ("backups.cozystack.io/count", "1"),
            ]),
        ),
        (&BOTH[..1], map(&[("backups.cozystack.io/size", "1Gi")])),
        (&BOTH[1..], map(&[("backups.cozystack.io/count", "1")])),
    ] {
        let mut quota = quota(hard, &[("pods", "3")]);
        quota.hard.insert("pods".into(), "10".into());
        let all = writes(DIMENSIONS, &[quota], &published(GI), None);
        assert_eq!(
            (all.len(), &all[0].used, all[0].reason),
            (1, &used, WriteReason::Missing)
        );
    }
    assert!(writes(DIMENSIONS, &[quota(&[("pods", "10")], &[])], &published(GI), None).is_empty());
}

#[test]
fn case_real_8_a_key_that_left_spec_hard_is_not_brought_back() {
    let gone = quota(&[], &[("backups.cozystack.io/size", "1Gi")]);
    assert!(writes(DIMENSIONS, &[gone], &published(2 * GI), None).is_empty());
}

#[test]
fn case_real_11_every_quota_with_the_key_gets_the_same() {
    let mut second = quota(BOTH, &[]);
    second.name = "tenant-quota-allocated".into();
    let all = writes(DIMENSIONS, &[quota(BOTH, &[]), second], &published(5 * GI), None);
    assert_eq!(all.len(), 2);
    assert_eq!(all[0].used, all[1].used);
}

#[test]
fn case_real_12_a_scoped_quota_gets_nothing() {
    let mut scoped = quota(BOTH, &[]);
    scoped.scoped = true;
    assert!(writes(DIMENSIONS, &[scoped], &published(GI), None).is_empty());
}

#[test]
fn case_real_21_the_same_amount_written_another_way_is_not_written_again() {
    let due = published(GI);
    let mut there = quota(
        BOTH,
        &[
            ("backups.cozystack.io/size", "1073741824"),
            ("backups.cozystack.io/count", "1.0"),
        ],
    );
    there.breakdown = Some(due.breakdown());
    assert!(writes(DIMENSIONS, std::slice::from_ref(&there), &due, None).is_empty());
    there.breakdown = None;
    assert_eq!(
        writes(DIMENSIONS, &[there], &due, None)[0].reason,
        WriteReason::Breakdown
    );
}

#[test]
fn case_real_27_what_somebody_else_changed_is_told_apart_from_what_changed() {
    let there = |size: &str| {
        quota(
            BOTH,
            &[
                ("backups.cozystack.io/size", size),
                ("backups.cozystack.io/count", "1"),
            ],
        )
    };
    let reason = |size: &str, before: Option<&Published>| {
        writes(DIMENSIONS, &[there(size)], &published(2 * GI), before)[0].reason
    };
    assert_eq!(reason("1Gi", Some(&published(GI))), WriteReason::Changed);
    assert_eq!(reason("7Gi", Some(&published(GI))), WriteReason::Drifted);
    assert_eq!(reason("7Gi", Some(&published(2 * GI))), WriteReason::Drifted);
    assert_eq!(
        reason("7Gi", None),
        WriteReason::Changed,
        "a new leader cannot tell"
    );
}

#[test]
fn the_breakdown_says_what_the_figures_are_made_of() {
    let mut ledger = Ledger::default();
    let (a, b) = (backup("a", 3 * GI), backup("b", 2 * GI));
    for fact in [&a, &b, &backup("c", 0)] {
        see(&mut ledger, fact, 0);
    }
    delete(&mut ledger, &b, 1);
    let mut elsewhere = Ledger::default();
    see(&mut elsewhere, &backup("x", GI), 0);
    let all = Published {
        own: ledger.figures(NS),
        stranded: elsewhere.figures(NS),
        unaccounted: Some(7),
    };
    let read: serde_json::Value = serde_json::from_str(&all.breakdown()).unwrap();
    for (field, value) in [
        ("attributed", 4 * GI),
        ("retained", 2 * GI),
        ("pendingPurge", 0),
        ("unreported", 1),
        ("unaccounted", 7),
        ("stranded", GI),
        ("inFlight", 0),
        ("writtenOff", 0),
    ] {
        assert_eq!(read[field], value, "{field}");
    }
    assert_eq!(read["clamped"], false);
    let not_told = Published {
        unaccounted: None,
        ..all
    };
    let read: serde_json::Value = serde_json::from_str(&not_told.breakdown()).unwrap();
    assert!(
        read["unaccounted"].is_null(),
        "what is not known is not zero: {read}"
    );
    assert_eq!(all.charged().used_size(), 6 * GI);
}

#[test]
fn more_than_a_quota_can_hold_is_clamped_and_said() {
    let mut ledger = Ledger::default();
    for n in 0..3 {
        see(&mut ledger, &backup(&format!("b{n}"), i64::MAX), 0);
    }
    let all = Published {
        own: ledger.figures(NS),
        ..Published::default()
    };
    let write = &writes(DIMENSIONS, &[quota(BOTH, &[])], &all, None)[0];
    assert_eq!(write.used["backups.cozystack.io/size"], "8Pi");
    assert!(write.breakdown.contains("\"clamped\":true"));
}

#[test]
fn misspelt_keys_are_worth_a_warning_that_names_the_key_and_the_right_one() {
    let hard = [
        (
            "requests.backups.cozystack.io/size",
            WarningReason::RequestsPrefix,
        ),
        ("limits.backups.cozystack.io/size", WarningReason::LimitsPrefix),
        (
            "count/backups.backups.cozystack.io",
            WarningReason::NativeBackupCount,
        ),
        ("backups.cozystack.io/bytes", WarningReason::UnknownKey),
    ];
    for (key, reason) in hard {
        let all = warnings(DIMENSIONS, &quota(&[(key, "1")], &[]));
        assert_eq!((all.len(), all[0].reason), (1, reason), "{key}");
        assert!(
            all[0].message.contains(key) && all[0].message.contains("backups.cozystack.io/"),
            "{}",
            all[0].message
        );
    }
    let fine = [
        ("count/backupjobs.backups.cozystack.io", "50"),
        ("pods", "1"),
        ("requests.cpu", "1"),
    ];
    assert!(warnings(DIMENSIONS, &quota(&fine, &[])).is_empty());
    assert!(warnings(DIMENSIONS, &quota(BOTH, &[])).is_empty());
    let mut scoped = quota(BOTH, &[]);
    scoped.scoped = true;
    assert!(
        warnings(DIMENSIONS, &scoped)
            .iter()
            .all(|w| w.reason == WarningReason::ScopedQuota)
    );
    assert_eq!(warnings(DIMENSIONS, &scoped).len(), 2);
}
