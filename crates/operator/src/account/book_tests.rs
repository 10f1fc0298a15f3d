use super::*;
use holdfast_core::quota::transitions::{self, BackupFact};
use holdfast_core::quota::{Application, RemoveReason, State, StrategyKind, capability};
use jiff::Timestamp;
use std::collections::BTreeMap;

fn fact(uid: &str, size: i64) -> BackupFact {
    let group = holdfast_api::names::STRATEGY_GROUP;
    BackupFact {
        uid: uid.to_owned(),
        name: uid.to_owned(),
        namespace: "a".to_owned(),
        namespace_uid: None,
        created_at: Timestamp::UNIX_EPOCH,
        strategy: StrategyKind {
            group: group.to_owned(),
            kind: "Etcd".to_owned(),
        },
        in_force: capability::in_force(group, group, "Etcd", None).0,
        application: Application::default(),
        uri: Some(format!("s3://bucket/{uid}")),
        driver_metadata: BTreeMap::new(),
        size_bytes: Some(size),
    }
}

/// The object of a record, as the API server would answer it.
fn object(record: &Record, uid: &str, version: u64) -> Artifact {
    let mut object = convert::artifact(record);
    object.metadata.uid = Some(uid.to_owned());
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn seen(book: &Book, uid: &str, size: i64) -> Step {
    let fact = fact(uid, size);
    let mut steps = book.decide(|ledger| transitions::backup_seen(ledger, &fact, Timestamp::UNIX_EPOCH));
    assert_eq!(steps.len(), 1, "{steps:?}");
    steps.remove(0)
}

fn record(step: &Step) -> Record {
    match &step.change {
        Change::Write(record) => (**record).clone(),
        Change::Remove { .. } => panic!("not a write"),
    }
}

/// Writes one record and returns its name.
fn written(book: &Book, uid: &str, version: u64) -> String {
    let step = seen(book, uid, 7);
    let object = object(&record(&step), "object", version);
    book.wrote(&step.change, Some(Version::of(&object)));
    record(&step).name
}

fn used(book: &Book) -> i64 {
    book.read(|ledger| {
        assert_eq!(ledger.figures("a"), ledger.recount("a"));
        ledger.figures("a").used_size()
    })
}

#[test]
fn an_older_event_does_not_bring_a_former_state_back() {
    let book = Book::default();
    let first = seen(&book, "b", 7);
    let old = object(&record(&first), "object", 10);
    book.wrote(&first.change, Some(Version::of(&old)));
    let second = seen(&book, "b", 9);
    assert_eq!(
        second.version.as_ref().map(|v| v.resource_version.as_str()),
        Some("10")
    );
    let new = object(&record(&second), "object", 12);
    assert_eq!(book.wrote(&second.change, Some(Version::of(&new))).len(), 1);
    assert_eq!(
        book.seen(&old),
        Touched::default(),
        "it is older than what we wrote"
    );
    assert_eq!(used(&book), 9);
    // What somebody else wrote after us counts.
    let mut off = record(&second);
    off.state = State::WrittenOff;
    off.reason = holdfast_core::quota::Reason::WrittenOff;
    assert_eq!(book.seen(&object(&off, "object", 13)).namespaces.len(), 1);
    assert_eq!(used(&book), 0);
    // And an answer to our own write that comes later than that does not undo it.
    book.wrote(&second.change, Some(Version::of(&new)));
    assert_eq!(used(&book), 0);
}

#[test]
fn a_record_that_somebody_else_deletes_stays_with_the_leader_and_leaves_a_standby() {
    for leads in [true, false] {
        let book = Book::default();
        let name = written(&book, "b", 10);
        let there = book.read(|ledger| ledger.get(&name).cloned()).unwrap();
        let touched = book.deleted(&object(&there, "object", 11), leads);
        assert_eq!(touched.lost, if leads { vec![name.clone()] } else { Vec::new() });
        assert_eq!(used(&book), if leads { 7 } else { 0 });
        assert_eq!(book.lost(&name).is_some(), leads);
        // Decided anew, it is created, not patched.
        if leads {
            book.wrote(
                &Change::Write(Box::new(there.clone())),
                Some(Version::of(&object(&there, "second", 20))),
            );
            assert_eq!((book.lost(&name), used(&book)), (None, 7));
            // The event of the first one's end comes late.
            assert_eq!(
                book.deleted(&object(&there, "object", 11), true),
                Touched::default()
            );
        }
    }
}

#[test]
fn what_we_delete_ourselves_is_not_lost_whichever_comes_first() {
    for event_first in [true, false] {
        let book = Book::default();
        let name = written(&book, "b", 10);
        let there = book.read(|ledger| ledger.get(&name).cloned()).unwrap();
        let gone = object(&there, "object", 11);
        let change = Change::Remove {
            name: name.clone(),
            reason: RemoveReason::Forgotten,
        };
        book.removing("object");
        if event_first {
            assert_eq!(book.deleted(&gone, true).lost, Vec::<String>::new());
            book.wrote(&change, None);
        } else {
            book.wrote(&change, None);
            assert_eq!(book.deleted(&gone, true), Touched::default());
        }
        assert_eq!((used(&book), book.lost(&name)), (0, None));
    }
}

#[test]
fn a_list_that_does_not_name_a_record_loses_it_and_one_that_does_keeps_it() {
    let book = Book::default();
    let kept = written(&book, "kept", 10);
    let lost = written(&book, "lost", 11);
    let there = book.read(|ledger| ledger.get(&kept).cloned()).unwrap();
    book.list_begins();
    book.seen(&object(&there, "object", 10));
    let touched = book.list_ends(true);
    assert_eq!(touched.lost, vec![lost]);
    assert_eq!(used(&book), 14, "nothing falls because an object is missing");
}

#[test]
fn an_object_without_a_status_is_written_whole() {
    let book = Book::default();
    let step = seen(&book, "b", 7);
    let mut bare = object(&record(&step), "object", 10);
    bare.status = None;
    book.seen(&bare);
    let again = seen(&book, "b", 7);
    assert_eq!(
        record(&again).size.bytes,
        Some(7),
        "what it claims counts, although it is named in the spec"
    );
    assert!(again.version.is_some_and(|version| !version.is_told));
}
