//! Starting Account, and its workers.
//!
//! **Promises.** Only the leader works. Every new term, and every time the lists have become complete, begins with a
//! look at everything; until that is done nothing is published. Told to end, a worker finishes the pass it is in.

use super::ledger::{self, first_look};
use super::{Account, definitions, enumerate, marker, publish, watch};
use crate::protect::work;
use crate::runtime::leader::Standing;
use crate::runtime::metrics::Kind;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How often what only time ends is looked for.
const TICK: Duration = Duration::from_secs(5);
/// How often records are compared with what exists, whatever events said.
const COMPARE: Duration = Duration::from_secs(15);
/// How often the marker is brought up to date.
const MARK: Duration = Duration::from_secs(60);

/// Starts the watches and the workers of Account; they have ended when the set is empty.
#[must_use = "the Lease is released only after the workers have ended"]
pub fn start(account: &Arc<Account>, end: &CancellationToken) -> JoinSet<()> {
    let mut set = JoinSet::new();
    for watches in [true, false] {
        let (account, end) = (Arc::clone(account), end.clone());
        set.spawn(async move {
            // Dropping the future ends the watches.
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = async {
                    if watches {
                        watch::follow_builtin(account).await;
                    } else {
                        definitions::run(account).await;
                    }
                } => {}
            }
        });
    }
    for _ in 0..account.settings.concurrency {
        let (worker, ends) = (Arc::clone(account), end.clone());
        set.spawn(async move {
            let (leadership, metrics) = (&worker.leadership, &worker.metrics);
            let pass = |item| {
                let account = Arc::clone(&worker);
                async move { ledger::pass(&account, &item).await }
            };
            work(leadership, metrics, Kind::Artifact, &worker.items, pass, &ends).await;
        });
        let (worker, end) = (Arc::clone(account), end.clone());
        set.spawn(async move {
            let (leadership, metrics) = (&worker.leadership, &worker.metrics);
            let pass = |namespace: String| {
                let account = Arc::clone(&worker);
                async move { publish::pass(&account, &namespace).await }
            };
            work(
                leadership,
                metrics,
                Kind::ResourceQuota,
                &worker.namespaces,
                pass,
                &end,
            )
            .await;
        });
    }
    set.spawn(look_first(Arc::clone(account), end.clone()));
    set.spawn(enumerate::run(Arc::clone(account), end.clone()));
    set.spawn(keep_time(Arc::clone(account), end.clone()));
    set
}

/// Looks at everything when this process has begun to lead and the lists are complete.
async fn look_first(account: Arc<Account>, end: CancellationToken) {
    let mut standing = account.leadership.changed();
    let mut complete = account.world.completeness();
    let mut looked_in = None;
    let mut failed = false;
    loop {
        let now = *standing.borrow_and_update();
        let is_complete = *complete.borrow_and_update();
        match now {
            Standing::Standby => {
                if looked_in.take().is_some() {
                    account.arrears.begin();
                    account.leave_desk();
                }
            }
            Standing::Leader { .. } if is_complete && looked_in != Some(now) => {
                match marker::compare(&account).await {
                    Ok(found) => {
                        let began = Instant::now();
                        let owed = first_look(&account);
                        let records = account.book.read(|ledger| ledger.len());
                        tracing::info!(?found, records, owed, took = ?began.elapsed(), "every list is added up");
                        looked_in = Some(now);
                        failed = false;
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the marker of the ledger cannot be read or written; nothing is decided before it is");
                        failed = true;
                    }
                }
            }
            // A kind was installed: what it says counts only from its whole list on.
            Standing::Leader { .. } if !is_complete => looked_in = None,
            Standing::Leader { .. } => {}
        }
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            changed = standing.changed() => if changed.is_err() { return },
            changed = complete.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(Duration::from_secs(2)), if failed => {}
        }
    }
}

/// Queues what only time ends, tells how the ledger stands, and keeps the marker.
async fn keep_time(account: Arc<Account>, end: CancellationToken) {
    let mut marked: Option<marker::Counted> = None;
    let mut last_mark = Instant::now();
    let mut bad = BTreeSet::new();
    let mut waited_for = Vec::new();
    let mut silent = Vec::new();
    let (mut last_compare, mut missed) = (Instant::now(), BTreeSet::new());
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(TICK) => {}
        }
        if !account.leadership.is_leader() {
            marked = None;
            continue;
        }
        let records = account.book.read(|ledger| ledger.len());
        let looked = account.world.is_complete() && account.arrears.has_looked();
        let silent_now = account.silent_kinds();
        account
            .metrics
            .quota
            .ledger(records, account.arrears.len(), looked && silent_now.is_empty());
        if silent_now != silent {
            if silent_now.is_empty() {
                tracing::info!("every watch tells again");
            } else {
                tracing::warn!(silent = ?silent_now, "watches tell nothing: the count is stale until they do");
            }
            silent = silent_now;
        }
        if !looked {
            let waits_for = account.world.waits_for();
            if waits_for != waited_for {
                tracing::info!(?waits_for, "the ledger is not complete yet");
                waited_for = waits_for;
            }
            continue;
        }
        for name in ledger::due(&account) {
            account.items.add(ledger::Item::Record(name));
        }
        if last_compare.elapsed() >= COMPARE {
            missed = compare(&account, &missed);
            last_compare = Instant::now();
        }
        declarations(&account, &mut bad);
        let counted = marker::Counted::of(&account);
        if counted.is_urgent(marked) || (marked != Some(counted) && last_mark.elapsed() >= MARK) {
            match marker::note_counted(&account, counted).await {
                Ok(()) => (marked, last_mark) = (Some(counted), Instant::now()),
                Err(error) => {
                    tracing::warn!(%error, "the marker of the ledger cannot be written; trying again")
                }
            }
        }
    }
}

/// Queues Backups that records refer to and that are gone, if that was so at the last comparison already: an event alone
/// is not relied upon. Returns those that are gone now.
fn compare(account: &Account, before: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
    let gone = ledger::gone_backups(account);
    for uid in gone.intersection(before) {
        tracing::warn!(%uid, "a Backup is gone and its record did not follow; it is looked at again");
        account.items.add(ledger::Item::Backup(Arc::clone(uid)));
    }
    gone
}

/// Tells of declarations that cannot be read, those that were there before we began included.
fn declarations(account: &Account, known: &mut BTreeSet<super::world::views::StrategyRef>) {
    let bad = account.world.bad_declarations();
    if bad == *known {
        return;
    }
    account.metrics.quota.bad_declarations(bad.len());
    for strategy in bad.difference(known) {
        account.items.add(ledger::Item::Strategy(strategy.clone()));
    }
    *known = bad;
}
