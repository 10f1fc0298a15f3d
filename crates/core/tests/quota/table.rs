//! Every state with everything that can happen to it: where it leads, and that only proof lowers what is charged.

use crate::support::*;
use holdfast_core::quota::Ledger;
use holdfast_core::quota::record::{Reason, Record, State};
use holdfast_core::quota::transitions::*;
use holdfast_core::quota::{DeclaredBy, Deletion, InForce};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    BackupSeen,
    AnotherBackupSeen,
    LastBackupGone(Left),
    Evidence(Evidence),
    WriteOff,
    NamespaceAgain,
    AWeek,
}

const HAPPENS: &[Happens] = &[
    Happens::BackupSeen,
    Happens::AnotherBackupSeen,
    Happens::LastBackupGone(Left::Deleted),
    Happens::LastBackupGone(Left::Kept),
    Happens::LastBackupGone(Left::Moved),
    Happens::Evidence(Evidence::Succeeded),
    Happens::Evidence(Evidence::DriverRecordGone),
    Happens::Evidence(Evidence::ReadBack),
    Happens::Evidence(Evidence::Failed),
    Happens::WriteOff,
    Happens::NamespaceAgain,
    Happens::AWeek,
];

/// A record in a state, with or without the Backup, of a driver that deletes in this way.
fn record(state: State, reason: Reason, deletion: Deletion, referred: bool) -> (Record, BackupFact) {
    let mut fact = backup("a", GI);
    fact.in_force = InForce {
        capabilities: deleting(deletion).capabilities,
        from: DeclaredBy::BuiltIn,
    };
    let mut record = see(&mut Ledger::default(), &fact, 0);
    record.state = state;
    record.reason = reason;
    record.times.released_at = Some(t(5));
    record.times.deleted_at = Some(t(4));
    if !referred {
        record.backups.clear();
    }
    (record, fact)
}

fn after(record: &Record, fact: &BackupFact, happens: Happens) -> Option<Record> {
    let mut ledger = Ledger::of([record.clone()]);
    let changes = match happens {
        Happens::BackupSeen => backup_seen(&ledger, fact, t(10)),
        Happens::AnotherBackupSeen => {
            let mut other = fact.clone();
            other.uid = "uid-other".into();
            other.created_at = t(9);
            backup_seen(&ledger, &other, t(10))
        }
        Happens::LastBackupGone(Left::Moved) => {
            let mut moved = fact.clone();
            moved.uri = Some("s3://elsewhere/x".into());
            let changes = backup_seen(&ledger, &moved, t(10));
            changes
                .into_iter()
                .filter(|change| change.name() == record.name)
                .collect()
        }
        Happens::LastBackupGone(left) => backup_gone(&ledger, &fact.uid, left, t(10)),
        Happens::Evidence(evidence) => purge(&ledger, &record.name, evidence, t(10))
            .into_iter()
            .collect(),
        Happens::WriteOff => match write_off(&ledger, &record.name, "jane", t(10)) {
            WriteOff::Done(change) => vec![change],
            WriteOff::Already(_) | WriteOff::Refused(_) => Vec::new(),
        },
        Happens::NamespaceAgain => namespace_seen(&ledger, NS, "ns-2"),
        Happens::AWeek => overdue(PLATFORM, &ledger, record, t(8 * 86_400)),
    };
    for change in &changes {
        ledger.apply(change);
    }
    ledger.get(&record.name).cloned()
}

/// Where it should lead, said a second time.
fn expected(
    state: State,
    reason: Reason,
    deletion: Deletion,
    referred: bool,
    happens: Happens,
) -> Option<State> {
    use State::*;
    let asked = state == PendingPurge
        || (state == Retained && [Reason::PurgeFailed, Reason::PurgeUnproven].contains(&reason));
    Some(match happens {
        _ if state == Unknown => Unknown,
        Happens::BackupSeen if [Released, WrittenOff].contains(&state) && referred => state,
        Happens::BackupSeen | Happens::AnotherBackupSeen => Attributed,
        Happens::LastBackupGone(left) if state == Attributed && referred => match (left, deletion) {
            (Left::Deleted, Deletion::Confirmed | Deletion::Requested) => PendingPurge,
            _ => Retained,
        },
        Happens::Evidence(Evidence::ReadBack) if asked => Released,
        Happens::Evidence(Evidence::Succeeded | Evidence::DriverRecordGone)
            if asked && deletion == Deletion::Requested =>
        {
            Released
        }
        Happens::Evidence(Evidence::Failed) if asked => Retained,
        Happens::WriteOff if [PendingPurge, Retained].contains(&state) => WrittenOff,
        Happens::AWeek if state == PendingPurge => Retained,
        Happens::AWeek if state == Released && !referred => return None,
        Happens::LastBackupGone(_)
        | Happens::Evidence(_)
        | Happens::WriteOff
        | Happens::NamespaceAgain
        | Happens::AWeek => state,
    })
}

#[test]
fn every_transition_leads_where_the_design_says_and_only_proof_lowers_what_is_charged() {
    let states = [
        (State::Attributed, Reason::BackupSeen),
        (State::PendingPurge, Reason::DeletionRequested),
        (State::PendingPurge, Reason::AwaitingReadBack),
        (State::Retained, Reason::NotPurged),
        (State::Retained, Reason::PurgeFailed),
        (State::Retained, Reason::PurgeUnproven),
        (State::Retained, Reason::KeptOnPurpose),
        (State::Released, Reason::ReadBack),
        (State::Released, Reason::NoLongerListed),
        (State::WrittenOff, Reason::WrittenOff),
        (State::Unknown, Reason::NewerVersion),
    ];
    let mut rows = 0;
    for (state, reason) in states {
        for deletion in Deletion::ALL {
            for referred in [true, false] {
                for happens in HAPPENS {
                    let (before, fact) = record(state, reason, *deletion, referred);
                    let now = after(&before, &fact, *happens);
                    let row = format!("{state:?}/{reason:?} {deletion:?} referred={referred} {happens:?}");
                    let wanted = expected(state, reason, *deletion, referred, *happens);
                    assert_eq!(now.as_ref().map(|record| record.state), wanted, "{row}");
                    let charged = |record: Option<&Record>| {
                        record
                            .filter(|record| record.state.is_charged())
                            .map_or(0, |record| record.size.bytes.unwrap())
                    };
                    if charged(now.as_ref()) < charged(Some(&before)) {
                        let proof = matches!(happens, Happens::Evidence(_) | Happens::WriteOff);
                        assert!(proof, "{row}: lowered without proof");
                    }
                    if let Some(now) = now {
                        // Twice is once.
                        let again = after(&now, &fact, *happens).map(|record| record.state);
                        let settled = expected(
                            now.state,
                            now.reason,
                            *deletion,
                            !now.backups.is_empty(),
                            *happens,
                        );
                        assert_eq!(again, settled, "{row}, twice");
                    }
                    rows += 1;
                }
            }
        }
    }
    assert_eq!(rows, states.len() * Deletion::ALL.len() * 2 * HAPPENS.len());
}

#[test]
fn every_reason_is_one_word_and_one_sentence() {
    let mut words = std::collections::BTreeSet::new();
    for reason in Reason::ALL {
        assert!(words.insert(reason.as_str()));
        assert!(reason.as_str().bytes().all(|b| b.is_ascii_alphanumeric()));
        assert!(reason.sentence().len() > 10);
        assert_eq!(Reason::parse(reason.as_str()), Some(*reason));
    }
}
