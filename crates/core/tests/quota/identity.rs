//! Which thing in storage a Backup refers to, with the shapes that the platform's drivers write.

use crate::support::*;
use holdfast_core::quota::identity::{Identity, Location, StrategyKind, Thing, locate, of_backup};
use std::collections::{BTreeMap, BTreeSet};

fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn at(place: &str, key: &str) -> Option<Location> {
    Some(Location {
        place: place.into(),
        key: key.into(),
    })
}

#[test]
fn each_drivers_address_is_read_from_its_uri() {
    let none = BTreeMap::new();
    for (uri, place, key) in [
        (
            "s3://shared-archive/tenant-acme/control/x.db",
            "s3://shared-archive",
            "tenant-acme/control/x.db",
        ),
        (
            "cnpg://tenant-acme-billing/billing-1",
            "cnpg://tenant-acme-billing",
            "billing-1",
        ),
        (
            "velero://cozy-velero/tenant-acme.vm-web",
            "velero://cozy-velero",
            "tenant-acme.vm-web",
        ),
        (
            "s3://bucket-55aa/events/2026-08-21T00:00:31Z",
            "s3://bucket-55aa",
            "events/2026-08-21T00:00:31Z",
        ),
        (
            "blobstore://key:secret@s3.example:443/stream?bucket=b",
            "blobstore://s3.example:443",
            "stream?bucket=b",
        ),
        ("S3://b/dir/", "s3://b", "dir"),
        ("some-tape-7", "unknown://", "some-tape-7"),
    ] {
        assert_eq!(locate(Some(uri), &none), at(place, key), "{uri}");
    }
}

#[test]
fn without_a_uri_the_drivers_notes_say_the_same() {
    for (pairs, uri) in [
        (
            &[("cnpg.io/server-name", "s"), ("cnpg.io/backup-name", "b")][..],
            "cnpg://s/b",
        ),
        (
            &[
                ("velero.io/backup-namespace", "cozy-velero"),
                ("velero.io/backup-name", "b"),
            ][..],
            "velero://cozy-velero/b",
        ),
        (&[("k8s.mariadb.com/storage-uri", "s3://b/p/x")][..], "s3://b/p/x"),
        (
            &[("psmdb.percona.com/destination", "s3://b/p/y")][..],
            "s3://b/p/y",
        ),
        (
            &[("apps.foundationdb.org/storage-uri", "blobstore://b/z")][..],
            "blobstore://b/z",
        ),
    ] {
        let none = BTreeMap::new();
        assert_eq!(locate(None, &notes(pairs)), locate(Some(uri), &none), "{uri}");
        assert_eq!(locate(Some(""), &notes(pairs)), locate(Some(uri), &none), "{uri}");
    }
}

#[test]
fn a_backup_that_names_no_key_is_a_thing_of_its_own() {
    let none = BTreeMap::new();
    for uri in [
        None,
        Some(""),
        Some("s3://bucket"),
        Some("s3://bucket/"),
        Some(" "),
    ] {
        assert_eq!(locate(uri, &none), None, "a whole bucket is no artifact: {uri:?}");
    }
    let one = of_backup(NS, &strategy("Altinity"), "u1", None, &none);
    let two = of_backup(NS, &strategy("Altinity"), "u2", None, &none);
    assert_eq!(one.thing, Thing::OfBackup("u1".into()));
    assert_ne!(one.record_name(), two.record_name());
}

#[test]
fn every_part_of_an_identity_makes_another_record() {
    let make = |namespace: &str, group: &str, kind: &str, thing: Thing| {
        Identity {
            namespace: namespace.into(),
            strategy: StrategyKind {
                group: group.into(),
                kind: kind.into(),
            },
            thing,
        }
        .record_name()
    };
    let key = |place: &str, key: &str| {
        Thing::At(Location {
            place: place.into(),
            key: key.into(),
        })
    };
    let names: Vec<String> = vec![
        make("a", "g", "Etcd", key("p", "k")),
        make("b", "g", "Etcd", key("p", "k")),
        make("a", "h", "Etcd", key("p", "k")),
        make("a", "g", "Job", key("p", "k")),
        make("a", "g", "Etcd", key("q", "k")),
        make("a", "g", "Etcd", key("p", "l")),
        make("a", "g", "Etcd", key("pk", "")),
        make("a", "g", "Etcd", Thing::OfBackup("k".into())),
    ];
    let distinct: BTreeSet<&String> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}

#[test]
fn a_records_name_is_the_kind_and_16_hex_digits_and_never_changes() {
    let fact = backup("control-29790000", 1);
    let name = fact.identity().record_name();
    assert_eq!(name, "etcd-4847c5d6e0fdf13b");
    let odd = of_backup(NS, &strategy(&"Ünï".repeat(60)), "u", None, &BTreeMap::new()).record_name();
    assert!(
        odd.len() <= 63
            && odd
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
        "{odd}"
    );
}
