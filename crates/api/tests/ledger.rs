//! Records survive being written and read, and doubt in what is read never frees anything.

#![allow(clippy::unwrap_used)]

use holdfast_api::ledger::convert::{artifact, record};
use holdfast_api::ledger::{Artifact, ArtifactState, ArtifactStatus, BackupStoreSpec};
use holdfast_core::quota::capability::{CAREFUL, in_force};
use holdfast_core::quota::record::{
    Application, BackupEntry, JobEntry, ListingEntry, Reason, Record, Size, SizeSource, State, Subject, Times,
};
use holdfast_core::quota::{DeclaredBy, Identity, Location, StrategyKind, Thing};
use jiff::Timestamp;
use std::collections::BTreeMap;

const GROUP: &str = "strategy.backups.cozystack.io";

fn t(n: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + n).unwrap()
}

fn identity(thing: Thing) -> Identity {
    Identity {
        namespace: "tenant-acme".into(),
        strategy: StrategyKind {
            group: GROUP.into(),
            kind: "Etcd".into(),
        },
        thing,
    }
}

fn keyed() -> Identity {
    identity(Thing::At(Location {
        place: "s3://shared-archive".into(),
        key: "tenant-acme/control/a.db".into(),
    }))
}

/// A record in which every field says something.
fn full(subject: Subject, state: State, reason: Reason) -> Record {
    Record {
        name: match &subject {
            Subject::Artifact(identity) => identity.record_name(),
            Subject::Run { .. } => "job-uid".into(),
        },
        subject,
        state,
        reason,
        size: Size {
            bytes: Some(48 << 20),
            source: SizeSource::Measured,
        },
        in_force: in_force(GROUP, GROUP, "Etcd", Some(r#"{"deletion":"confirmed"}"#)).0,
        backups: BTreeMap::from([(
            "uid-a".into(),
            BackupEntry {
                name: "a".into(),
                created_at: Some(t(1)),
                claimed: Some(50 << 20),
            },
        )]),
        application: Application {
            group: "apps.cozystack.io".into(),
            kind: "Etcd".into(),
            name: "control".into(),
        },
        job: Some(JobEntry {
            uid: "job-uid".into(),
            name: "a".into(),
            created_at: Some(t(0)),
        }),
        namespace_uid: Some("ns".into()),
        shared_across_namespaces: true,
        written_off_by: Some("jane".into()),
        times: Times {
            recorded_at: Some(t(1)),
            admitted_at: Some(t(2)),
            started_at: Some(t(3)),
            attributed_at: Some(t(4)),
            last_backup_at: Some(t(5)),
            deleted_at: Some(t(6)),
            released_at: Some(t(7)),
            last_seen_in_listing: Some(t(8)),
        },
        listing: Some(ListingEntry {
            store: "s".into(),
            judged: t(9),
            missed: 1,
            found: true,
        }),
    }
}

/// Through JSON, as the API server keeps it.
fn through(artifact: &Artifact) -> Artifact {
    serde_json::from_value(serde_json::to_value(artifact).unwrap()).unwrap()
}

#[test]
fn every_state_and_reason_is_read_back_as_it_was_written() {
    let subjects = [
        Subject::Artifact(keyed()),
        Subject::Artifact(identity(Thing::OfBackup("uid-a".into()))),
        Subject::Run {
            namespace: "tenant-acme".into(),
            strategy: None,
        },
    ];
    for subject in subjects {
        for state in State::ALL.iter().filter(|state| **state != State::Unknown) {
            for reason in Reason::ALL {
                let before = full(subject.clone(), *state, *reason);
                assert_eq!(record(&through(&artifact(&before))), before);
            }
        }
    }
}

#[test]
fn what_a_person_reads_is_there() {
    let object = artifact(&full(
        Subject::Artifact(keyed()),
        State::Retained,
        Reason::NotPurged,
    ));
    let status = object.status.unwrap();
    assert_eq!(status.size.as_deref(), Some("48Mi"));
    assert_eq!(status.reason.as_deref(), Some("NotPurged"));
    assert!(status.message.unwrap().contains("deletes no bytes"));
    let mut unknown = full(Subject::Artifact(keyed()), State::Attributed, Reason::BackupSeen);
    unknown.size = Size::UNKNOWN;
    let status = artifact(&unknown).status.unwrap();
    assert_eq!(
        (status.size.as_deref(), status.size_bytes),
        (Some("unknown"), None)
    );
}

#[test]
fn of_many_backups_the_newest_hundred_are_named_and_all_are_counted() {
    let mut before = full(Subject::Artifact(keyed()), State::Attributed, Reason::BackupSeen);
    before.backups = (0..250)
        .map(|n| {
            let entry = BackupEntry {
                name: format!("b{n}"),
                created_at: Some(t(n)),
                claimed: None,
            };
            (format!("uid-{n}"), entry)
        })
        .collect();
    let object = through(&artifact(&before));
    let status = object.status.as_ref().unwrap();
    assert_eq!((status.backups.len(), status.backup_count), (100, 250));
    assert!(
        record(&object).backups.contains_key("uid-249") && !record(&object).backups.contains_key("uid-149")
    );
}

#[test]
fn a_record_whose_status_was_never_written_is_charged_or_in_flight() {
    let state = |subject: Subject, backups: bool| {
        let mut before = full(subject, State::Released, Reason::ReadBack);
        if !backups {
            before.backups.clear();
        }
        let mut object = artifact(&before);
        object.status = None;
        let read = record(&through(&object));
        assert_eq!(read.size, Size::UNKNOWN, "never zero");
        assert_eq!(read.in_force.capabilities, CAREFUL);
        assert_eq!(read.in_force.from, DeclaredBy::Unwritten);
        assert_eq!(read.backups.len(), usize::from(backups));
        read.state
    };
    assert_eq!(state(Subject::Artifact(keyed()), true), State::Attributed);
    assert_eq!(state(Subject::Artifact(keyed()), false), State::Retained);
    let run = Subject::Run {
        namespace: "n".into(),
        strategy: None,
    };
    assert_eq!(state(run, false), State::InFlight);
}

#[test]
fn words_of_a_newer_version_make_a_record_that_is_charged_and_left_alone() {
    let object = artifact(&full(
        Subject::Artifact(keyed()),
        State::Released,
        Reason::ReadBack,
    ));
    for (field, word) in [("state", "Compressed"), ("reason", "BecauseOfTheMoon")] {
        let mut value = serde_json::to_value(&object).unwrap();
        value["status"][field] = word.into();
        let read = record(&serde_json::from_value(value).unwrap());
        assert_eq!(
            (read.state, read.reason),
            (State::Unknown, Reason::NewerVersion),
            "{field}"
        );
        assert!(read.state.is_charged());
    }
    let mut value = serde_json::to_value(&object).unwrap();
    for field in ["deletion", "size", "pruning", "identity", "enumerable"] {
        value["status"]["capabilities"][field] = "telepathy".into();
    }
    let read = record(&serde_json::from_value(value).unwrap())
        .in_force
        .capabilities;
    assert_eq!(read.deletion, CAREFUL.deletion);
    assert_eq!(read.enumerable, CAREFUL.enumerable);
}

#[test]
fn an_empty_status_decodes_to_a_state_nobody_wrote() {
    let status: ArtifactStatus = serde_json::from_str("{}").unwrap();
    assert_eq!(status.state, ArtifactState::Unknown);
    assert_eq!(status, ArtifactStatus::default());
}

#[test]
fn a_store_has_defaults_that_suit_a_server_of_ones_own() {
    let spec: BackupStoreSpec = serde_json::from_str(
        r#"{"bucket":"shared-archive","endpoint":"https://s3.example","credentials":{"name":"creds"},
            "layout":{"path":"{namespace}/{application}/{artifact...}"}}"#,
    )
    .unwrap();
    assert!(spec.force_path_style && !spec.suspend);
    assert_eq!((spec.interval.as_str(), spec.prefix.as_str()), ("6h", ""));
    assert_eq!(spec.credentials.access_key_id_key, "AWS_ACCESS_KEY_ID");
    assert_eq!(spec.credentials.secret_access_key_key, "AWS_SECRET_ACCESS_KEY");
}
