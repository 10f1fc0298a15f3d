//! The first look after taking over, and whenever the lists have become complete: what happened while nobody looked.
//!
//! **Promises.** Every Backup and BackupJob is compared with the records, and every record with them. What is in order
//! costs no request. Objects that exist are shown before any is taken for gone.

use super::jobs::{is_unexplained, run_fact};
use super::{Item, PLATFORM, backup_fact, due};
use crate::account::Account;
use crate::account::world::Kind;
use holdfast_core::quota::State;
use holdfast_core::quota::runs::{self, Phase, ResultLookup};
use holdfast_core::quota::tenancy::nearest_living_ancestor;
use holdfast_core::quota::transitions;
use std::collections::BTreeSet;
use std::sync::Arc;

/// UIDs of Backups that records refer to and that do not exist; none while their list is not whole.
pub fn gone_backups(account: &Account) -> BTreeSet<Arc<str>> {
    if !account.world.is_synced(&Kind::Backup) {
        return BTreeSet::new();
    }
    account.book.read(|ledger| {
        let gone = ledger.backup_uids().filter(|uid| !account.world.has_backup(uid));
        gone.map(Arc::from).collect()
    })
}

/// Looks, and queues what is not in order. Returns how much that is.
pub fn first_look(account: &Account) -> usize {
    let now = account.clock.now();
    account.arrears.looks(now);
    let mut owed = 0;
    let mut owe = |item: Item| {
        let namespace = account.namespace_of(&item);
        account.arrears.owe_first(&item, namespace);
        account.items.add(item);
        owed += 1;
    };
    for view in account.world.backups() {
        let fact = backup_fact(account, &view);
        if account
            .book
            .read(|ledger| !transitions::backup_seen(ledger, &fact, now).is_empty())
        {
            owe(Item::Backup(Arc::clone(&view.uid)));
        }
    }
    for view in account.world.jobs() {
        let fact = run_fact(account, &view, ResultLookup::NotLooked);
        let (changes, in_flight) = account.book.read(|ledger| {
            let recorded = ledger
                .get(&view.uid)
                .is_some_and(|run| run.state == State::InFlight);
            (!runs::run_seen(PLATFORM, ledger, &fact, now).is_empty(), recorded)
        });
        let unexplained = fact.phase == Phase::Succeeded && is_unexplained(account, &view, now);
        if changes || (in_flight && fact.phase == Phase::Succeeded) || unexplained {
            owe(Item::Job(Arc::clone(&view.uid)));
        }
    }
    for uid in gone_backups(account) {
        owe(Item::Backup(uid));
    }
    if account.world.is_synced(&Kind::Job) {
        for uid in account.book.read(|ledger| {
            let in_flight = ledger.timed().filter(|record| record.state == State::InFlight);
            let gone = in_flight.filter(|run| !account.world.has_job(&run.name));
            let changed = gone.filter(|run| runs::run_gone(PLATFORM, ledger, &run.name, None, now).is_some());
            changed.map(|run| run.name.clone()).collect::<Vec<_>>()
        }) {
            owe(Item::Job(uid.into()));
        }
    }
    let with_records: BTreeSet<String> = account
        .book
        .read(|ledger| ledger.namespaces().map(str::to_owned).collect());
    for name in &with_records {
        let Some(view) = account.world.namespace(name) else {
            continue;
        };
        if account
            .book
            .read(|ledger| !transitions::namespace_seen(ledger, name, &view.uid).is_empty())
        {
            owe(Item::Namespace(name.clone()));
        }
    }
    due(account).into_iter().for_each(|name| owe(Item::Record(name)));
    account.arrears.looked();
    let live = account.world.namespaces();
    for namespace in with_records
        .into_iter()
        .chain(account.world.namespaces_with_quotas())
    {
        if !live.contains(&namespace)
            && let Some(heir) = nearest_living_ancestor(&namespace, &live)
        {
            account.touch(heir.to_owned());
        }
        account.touch(namespace);
    }
    owed
}
