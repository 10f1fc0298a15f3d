//! Account: what backups occupy, in a ledger that deleting objects cannot game (`docs/design.md` section 4).
//!
//! **Promises.** Data goes one way: [`watch`] shows objects to the [`world`] and records to the [`book`]; [`ledger`]
//! decides with `holdfast_core::quota` and writes records; [`publish`] writes what they add up to into ResourceQuotas.
//! Only the leader writes. Nothing is published, and [`Account::knowledge`] tells the gate that nothing is known,
//! until every list has been added up once. Switched off, nothing of this is started.
//!
//! **Assumes.** One process leads at a time; a write that another leader overtook is refused by its version.

pub mod book;
pub mod definitions;
pub mod enumerate;
pub mod gate;
pub mod ledger;
mod marker;
pub mod metrics;
mod moment;
pub mod publish;
pub mod pulse;
pub mod settings;
pub mod watch;
pub mod work;
pub mod world;

use crate::runtime::clock::Clock;
use crate::runtime::events::Events;
use crate::runtime::leader::Leadership;
use crate::runtime::metrics::Metrics;
use crate::runtime::queue::Queue;
use book::{Book, Touched};
use holdfast_api::{Artifact, names};
use holdfast_core::quota::gate::Knowledge;
use holdfast_core::quota::unaccounted::Unaccounted;
use holdfast_core::quota::{Dimensions, Figures};
use ledger::Item;
use ledger::arrears::Arrears;
use pulse::Pulse;
use settings::AccountSettings;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use world::{Change, Dirty, Kind, Observed, World};

/// The names of the two dimensions.
pub const DIMENSIONS: Dimensions<'static> = Dimensions {
    size: names::QUOTA_SIZE,
    count: names::QUOTA_COUNT,
};

/// What every part of Account is handed.
pub struct Account {
    /// Client with the operator's rights.
    pub client: kube::Client,
    /// What it was told.
    pub settings: AccountSettings,
    /// What time it is.
    pub clock: Clock,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Tells people what happened.
    pub events: Events,
    /// Tells machines how much happened.
    pub metrics: Arc<Metrics>,
    /// What is observed.
    pub world: Arc<World>,
    /// Whether the watches still tell what happens.
    pub pulse: Arc<Pulse>,
    /// The ledger.
    pub book: Book,
    /// What was seen and is not in the ledger yet.
    pub arrears: Arrears,
    /// Objects and records that have to be looked at.
    pub items: Arc<Queue<Item>>,
    /// Namespaces whose quotas have to be looked at.
    pub namespaces: Arc<Queue<String>>,
    /// What was published, to whom not, and what was warned of.
    desk: Mutex<publish::Desk>,
    /// Bytes that no record explains, by namespace, as listings of stores found them.
    unaccounted: Mutex<Unaccounted>,
}

impl Account {
    /// Nothing is watched until [`start`].
    #[must_use]
    pub fn new(
        client: kube::Client,
        settings: AccountSettings,
        clock: Clock,
        leadership: Leadership,
        events: Events,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            client,
            settings,
            clock,
            leadership,
            events,
            metrics,
            world: World::new(),
            pulse: Arc::default(),
            book: Book::default(),
            arrears: Arrears::default(),
            items: Queue::new(),
            namespaces: Queue::new(),
            desk: Mutex::default(),
            unaccounted: Mutex::default(),
        })
    }

    /// Applies one observation and queues what it concerns.
    pub fn observe(&self, change: Change) {
        // A standby looks at everything when it takes over.
        if !self.leadership.is_leader() {
            self.world.apply(change);
            self.world.forget_all_begun();
            return;
        }
        // A job that is seen and not owed is in the ledger: there is no moment in between.
        if let Change::Set(Observed::Job(view)) = &change
            && !self.world.has_job(&view.uid)
        {
            let namespace = view.namespace.to_string();
            self.arrears
                .owe(&Item::Job(Arc::clone(&view.uid)), Some(namespace));
        }
        for one in self.world.apply(change) {
            self.distribute(one);
        }
    }

    fn distribute(&self, dirty: Dirty) {
        match dirty {
            Dirty::Backup(uid) => self.owe(Item::Backup(uid)),
            Dirty::Job(uid) => self.owe(Item::Job(uid)),
            Dirty::Namespace(name) => {
                self.touch_family(&name);
                self.owe(Item::Namespace(name));
            }
            Dirty::Quotas(namespace) => self.touch(namespace),
            Dirty::Location(at) => {
                let names = self.book.read(|ledger| ledger::at_location(ledger, &at));
                if names.is_empty() {
                    self.world.forget_location(&at);
                }
                names
                    .into_iter()
                    .for_each(|name| self.items.add(Item::Record(name)));
            }
            Dirty::Run(namespace, job) => {
                let uids: Vec<Arc<str>> = self.book.read(|ledger| {
                    ledger
                        .runs_named(&namespace, &job)
                        .map(|run| run.name.as_str().into())
                        .collect()
                });
                uids.into_iter().for_each(|uid| self.items.add(Item::Job(uid)));
            }
            Dirty::Strategy(strategy) => self.items.add(Item::Strategy(strategy)),
        }
    }

    /// Queues something that the ledger does not have yet.
    fn owe(&self, item: Item) {
        self.arrears.owe(&item, self.namespace_of(&item));
        self.items.add(item);
    }

    fn namespace_of(&self, item: &Item) -> Option<String> {
        let recorded = |uid: &str| {
            self.book.read(|ledger| {
                ledger
                    .of_backup(uid)
                    .next()
                    .map(|record| record.namespace().to_owned())
            })
        };
        let named = |name: &str| {
            self.book
                .read(|ledger| ledger.get(name).map(|record| record.namespace().to_owned()))
        };
        match item {
            Item::Backup(uid) => match self.world.backup(uid) {
                Some(view) => Some(view.namespace.to_string()),
                None => recorded(uid),
            },
            Item::Job(uid) => match self.world.job(uid) {
                Some(view) => Some(view.namespace.to_string()),
                None => named(uid),
            },
            Item::Record(name) => named(name),
            Item::Namespace(name) => Some(name.clone()),
            Item::Strategy(_) => None,
        }
    }

    /// The figures of a namespace may be others now: its quotas are looked at when the window ends.
    pub fn touch(&self, namespace: String) {
        self.namespaces.add_after(namespace, self.settings.debounce);
    }

    /// The same for whoever is charged with what the namespace leaves behind.
    fn touch_family(&self, namespace: &str) {
        let live = self.world.namespaces();
        if let Some(heir) = holdfast_core::quota::tenancy::nearest_living_ancestor(namespace, &live) {
            self.touch(heir.to_owned());
        }
        self.touch(namespace.to_owned());
    }

    fn touched(&self, touched: Touched) {
        if !self.leadership.is_leader() {
            return;
        }
        for namespace in touched.namespaces {
            if self.world.namespace(&namespace).is_some() {
                self.touch(namespace);
            } else {
                self.touch_family(&namespace);
            }
        }
        for name in touched.lost {
            tracing::warn!(name, "somebody else deleted a record; it is written again");
            self.owe(Item::Record(name.into()));
        }
    }

    /// The list of records begins.
    pub fn records_list_begins(&self) {
        self.book.list_begins();
    }

    /// The list of records ended.
    pub fn records_list_ends(&self) {
        let touched = self.book.list_ends(self.leadership.is_leader());
        self.touched(touched);
    }

    /// A record's object was seen.
    pub fn record_seen(&self, artifact: &Artifact) {
        let touched = self.book.seen(artifact);
        self.touched(touched);
    }

    /// A record's object was deleted.
    pub fn record_gone(&self, artifact: &Artifact) {
        let touched = self.book.deleted(artifact, self.leadership.is_leader());
        self.touched(touched);
    }

    /// Bytes that no record explains, as a listing of a store found them.
    pub fn set_unaccounted(&self, all: Unaccounted) {
        let before = {
            let mut known = self.unaccounted.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *known, all.clone())
        };
        // One that is named no more, or again, is told another way too.
        let quotas = self.world.namespaces_with_quotas();
        let named = before.namespaces().chain(all.namespaces()).map(str::to_owned);
        let all_of_them: BTreeSet<String> = named.chain(quotas).collect();
        let is_other = |namespace: &String| before.of_namespace(namespace) != all.of_namespace(namespace);
        let concerned = all_of_them.into_iter().filter(is_other);
        concerned.for_each(|namespace| self.touch(namespace));
    }

    fn unaccounted(&self, namespace: &str) -> Option<i64> {
        let known = self.unaccounted.lock().unwrap_or_else(PoisonError::into_inner);
        known.of_namespace(namespace)
    }

    /// Kinds that a figure rests on and whose watch is silent: refused, failing, or dead.
    #[must_use]
    pub fn silent_kinds(&self) -> Vec<Kind> {
        let watched = Kind::FIXED.into_iter().filter(|kind| self.world.is_synced(kind));
        watched.filter(|kind| self.pulse.is_silent(kind)).collect()
    }

    /// How far the figures of a namespace can be trusted: a ledger that is not complete knows nothing; one whose
    /// watches are silent, or with old arrears in this namespace, is stale.
    #[must_use]
    pub fn knowledge(&self, namespace: &str, figures: Figures) -> Knowledge {
        if !self.world.is_complete() || !self.arrears.is_added_up(namespace) {
            return Knowledge::NotYetCounted;
        }
        if self.arrears.is_stale(namespace) || !self.silent_kinds().is_empty() {
            return Knowledge::Stale;
        }
        Knowledge::Current(figures)
    }

    /// What a namespace is charged with.
    #[must_use]
    pub fn figures(&self, namespace: &str) -> Figures {
        self.published(namespace).charged()
    }
}

pub use work::start;
