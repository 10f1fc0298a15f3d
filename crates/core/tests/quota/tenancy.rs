//! Who is charged for namespaces that are gone.

use crate::support::*;
use holdfast_core::quota::Ledger;
use holdfast_core::quota::tenancy::{nearest_living_ancestor, stranded};
use std::collections::BTreeSet;

fn live(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn the_nearest_living_ancestor_is_read_from_the_name() {
    let all = live(&["tenant-root", "tenant-acme", "tenant-acme-dev"]);
    for (gone, heir) in [
        ("tenant-acme-dev-x", Some("tenant-acme-dev")),
        ("tenant-acme-qa", Some("tenant-acme")),
        ("tenant-beta-qa-x", Some("tenant-root")),
        ("tenant-beta", Some("tenant-root")),
        ("tenant-root", None),
        ("tenant-", None),
        ("cozy-velero", None),
        ("acme", None),
    ] {
        assert_eq!(nearest_living_ancestor(gone, &all), heir, "{gone}");
    }
    assert_eq!(
        nearest_living_ancestor("tenant-beta-qa", &live(&["tenant-acme"])),
        None
    );
}

#[test]
fn case_ledger_15_records_of_a_namespace_that_is_gone_are_charged_to_its_ancestor_or_told_as_stranded() {
    let mut ledger = Ledger::default();
    for (namespace, size) in [
        ("tenant-acme-qa", 3),
        ("tenant-acme-qb", 4),
        ("apart", 5),
        ("tenant-acme", 7),
    ] {
        let mut fact = backup(namespace, size);
        fact.namespace = namespace.into();
        see(&mut ledger, &fact, 0);
        if namespace != "tenant-acme" {
            delete(&mut ledger, &fact, 1);
        }
    }
    let told = stranded(&ledger, &live(&["tenant-acme"]));
    assert_eq!(
        told.by_heir["tenant-acme"].used_size(),
        7,
        "3 and 4 of the children that are gone"
    );
    assert_eq!(told.by_heir["tenant-acme"].used_count(), 2);
    assert_eq!(told.without_heir["apart"].used_size(), 5);
    assert_eq!(
        told.by_heir.len() + told.without_heir.len(),
        2,
        "the living is no stranded one"
    );
}
