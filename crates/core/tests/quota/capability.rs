//! What drivers do: the built-in table, declarations, and doubt.

use crate::support::GROUP;
use holdfast_core::quota::capability::*;

#[test]
fn only_velero_and_rabbitmq_ask_for_deletion_and_nobody_built_in_proves_it() {
    for row in TABLE {
        let asks = ["Velero", "RabbitMQ"].contains(&row.kind);
        assert_eq!(
            row.capabilities.deletion == Deletion::Requested,
            asks,
            "{}",
            row.kind
        );
        assert_ne!(row.capabilities.deletion, Deletion::Confirmed, "{}", row.kind);
        assert_eq!(
            row.capabilities.size == SizeReport::Driver,
            row.kind == "Etcd",
            "{}",
            row.kind
        );
        assert!(!row.evidence.is_empty());
    }
}

#[test]
fn the_platforms_eight_strategies_are_in_the_table_once() {
    for kind in [
        "Altinity",
        "CNPG",
        "Etcd",
        "FoundationDB",
        "Job",
        "MariaDB",
        "MongoDB",
        "Velero",
    ] {
        assert_eq!(TABLE.iter().filter(|row| row.kind == kind).count(), 1, "{kind}");
    }
}

#[test]
fn case_ledger_10_an_unknown_kind_and_a_known_kind_of_a_foreign_group_get_the_careful_values() {
    for (group, kind) in [
        (GROUP, "TapeLibrary"),
        ("strategies.vendor.example", "Velero"),
        ("", "Velero"),
    ] {
        let (known, error) = in_force(GROUP, group, kind, None);
        assert_eq!(known.capabilities, CAREFUL);
        assert!(known.capabilities.grows_after_ready);
        assert_eq!(known.from, DeclaredBy::Unknown);
        assert_eq!(error, None);
    }
}

#[test]
fn a_declaration_overrides_what_it_names_and_leaves_the_rest() {
    let (known, error) = in_force(
        GROUP,
        GROUP,
        "MongoDB",
        Some(r#"{"deletion":"confirmed","growsAfterReady":false}"#),
    );
    assert_eq!(error, None);
    assert_eq!(known.from, DeclaredBy::Annotation);
    assert_eq!(known.capabilities.deletion, Deletion::Confirmed);
    assert!(!known.capabilities.grows_after_ready);
    assert_eq!(known.capabilities.enumerable, Enumerable::OperatorCr, "built in");
}

#[test]
fn a_third_party_declares_itself() {
    let all = r#"{"deletion":"requested","size":"measured","pruning":"driverOnNextRun","identity":"shared",
                  "growsAfterReady":true,"enumerable":"listing"}"#;
    let (known, error) = in_force(GROUP, "strategies.vendor.example", "TapeLibrary", Some(all));
    assert_eq!(error, None);
    assert_eq!(
        known.capabilities,
        Capabilities {
            deletion: Deletion::Requested,
            size: SizeReport::Measured,
            pruning: Pruning::DriverOnNextRun,
            identity: IdentityKind::Shared,
            grows_after_ready: true,
            enumerable: Enumerable::Listing,
        }
    );
}

#[test]
fn a_declaration_that_cannot_be_read_whole_changes_nothing_and_names_the_field() {
    for (text, word) in [
        ("", "JSON"),
        ("[]", "JSON"),
        ("\"confirmed\"", "JSON"),
        (r#"{"deletion":"confirmed","delete":"x"}"#, "delete is no field"),
        (r#"{"deletion":"Confirmed"}"#, "deletion cannot be \"Confirmed\""),
        (r#"{"deletion":true}"#, "deletion cannot be true"),
        (r#"{"size":"estimable"}"#, "size cannot be"),
        (r#"{"pruning":"window"}"#, "pruning cannot be"),
        (r#"{"identity":"one"}"#, "identity cannot be"),
        (r#"{"enumerable":"yes"}"#, "enumerable cannot be"),
        (r#"{"growsAfterReady":"no"}"#, "growsAfterReady cannot be"),
        (r#"{"deletion":"confirmed","size":"x"}"#, "size cannot be"),
    ] {
        let (known, error) = in_force(GROUP, GROUP, "Etcd", Some(text));
        let error = error.unwrap().to_string();
        assert!(error.contains(word), "{text}: {error}");
        assert_eq!(known, in_force(GROUP, GROUP, "Etcd", None).0, "{text}");
    }
    let error = declared(r#"{"deletion":"x"}"#, CAREFUL).unwrap_err().to_string();
    for word in Deletion::ALL {
        assert!(
            error.contains(word.as_str()),
            "it says what may be written: {error}"
        );
    }
}

#[test]
fn every_word_is_read_back_as_its_variant() {
    for word in Deletion::ALL {
        assert_eq!(Deletion::parse(word.as_str()), Some(*word));
    }
    for word in Pruning::ALL {
        assert_eq!(Pruning::parse(word.as_str()), Some(*word));
    }
    assert_eq!(Deletion::parse("purged"), None);
}
