//! Which rows a listing asks for, and what policies adopt instead: pure.
//!
//! **Promises.** A row is made only for a listed snapshot that no Snapshot object records and that no run whose
//! result is unread may still record. A row is removed only on the proof of this one listing: it was there before
//! the listing began, is of the same object and the same physical repository, and its snapshot is not listed or is
//! recorded by a live object. Nothing here touches data.
//!
//! **Assumes.** The listing is whole. Snapshots that the day's delete Jobs may have deleted meanwhile are named.

use super::adopt::{self, Taken, Told};
use super::known::Known;
use super::{news, row};
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::names;
use holdfast_api::repository::CatalogRetain;
use holdfast_api::shared::Origin;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is known when a listing has arrived.
pub struct Scan<'a> {
    /// The repository object.
    pub repository: &'a RepositoryView,
    /// Its unique id.
    pub unique_id: &'a str,
    /// When the listing Job was created.
    pub began: Timestamp,
    /// The listing.
    pub listing: &'a [ListedSnapshot],
    /// Every Snapshot object of the cluster.
    pub snapshots: &'a [Arc<SnapshotView>],
    /// Ids that a delete Job may have deleted since the listing was made.
    pub touched: &'a HashSet<String>,
    /// How much is shown.
    pub bounds: Bounds,
    /// Ids that were proven gone within the day: if they are here again, the lane decides about them.
    pub watched: &'a HashSet<String>,
    /// Who adopts, and what was let go before.
    pub adoption: adopt::Facts<'a>,
}

/// How much of what belongs to no object is shown (`spec.catalog.retain`). What is not shown is kept all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bounds {
    /// The newest so many of each user, host and path.
    pub per_identity: Option<usize>,
    /// Those that were begun at this moment or later.
    pub oldest: Option<Timestamp>,
}

impl Bounds {
    /// Of a repository's spec, for a listing that began at `began`.
    #[must_use]
    pub fn of(retain: Option<&CatalogRetain>, began: Timestamp) -> Self {
        let Some(CatalogRetain {
            per_identity,
            max_age_days,
        }) = retain
        else {
            return Self::default();
        };
        let age = |days: u32| SignedDuration::from_hours(24 * i64::from(days));
        Self {
            per_identity: per_identity.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            // Before all time there is nothing to leave out.
            oldest: max_age_days.and_then(|days| began.checked_sub(age(days)).ok()),
        }
    }

    /// Those of `candidates` that are not shown.
    pub(super) fn beyond<'a>(self, candidates: impl Iterator<Item = &'a ListedSnapshot>) -> HashSet<&'a str> {
        let mut of: HashMap<&Source, Vec<&ListedSnapshot>> = HashMap::new();
        for listed in candidates {
            of.entry(&listed.source).or_default().push(listed);
        }
        let mut beyond = HashSet::new();
        for mut same in of.into_values() {
            // The id decides between two of one moment, so that the next listing does not decide otherwise.
            same.sort_by(|a, b| (b.start_time, &a.snapshot_id).cmp(&(a.start_time, &b.snapshot_id)));
            for (n, listed) in same.into_iter().enumerate() {
                let one_too_many = self.per_identity.is_some_and(|most| n >= most);
                let too_old = self.oldest.is_some_and(|oldest| listed.start_time < oldest);
                if one_too_many || too_old {
                    beyond.insert(listed.snapshot_id.as_str());
                }
            }
        }
        beyond
    }
}

/// What to do with the rows.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Rows to make.
    pub create: Vec<(ObjectKey, &'a ListedSnapshot)>,
    /// Rows whose first status was never written.
    pub complete: Vec<(Arc<SnapshotView>, &'a ListedSnapshot)>,
    /// Snapshots that policies take over.
    pub adopt: Vec<Adopting<'a>>,
    /// What adoption comes to for each policy.
    pub told: Vec<Told>,
    /// Rows to remove.
    pub remove: Vec<Removing>,
    /// Live Snapshots that were said to have vanished and are listed.
    pub seen_again: Vec<Arc<SnapshotView>>,
    /// Live Snapshots of whose snapshots the listing says something new: their pins, or their ids.
    pub news: Vec<(Arc<SnapshotView>, &'a ListedSnapshot)>,
    /// Rows that stay.
    pub kept: usize,
    /// Snapshots that are beyond the bounds.
    pub not_shown: usize,
    /// Snapshots that have no namespace to be seen in.
    pub unplaced: usize,
    /// Snapshots that are left to the next scan.
    pub uncertain: usize,
}

/// One snapshot to take over.
#[derive(Debug)]
pub struct Adopting<'a> {
    /// What, by whom, as what.
    pub taken: Taken<'a>,
    /// Its object, whose first status was never written.
    pub begun: Option<Arc<SnapshotView>>,
    /// Its row, which goes then.
    pub row: Option<Arc<SnapshotView>>,
}

impl Adopting<'_> {
    /// Key of the policy.
    #[must_use]
    pub fn policy(&self) -> ObjectKey {
        ObjectKey::of(self.taken.policy.as_ref())
    }
}

/// One row to remove.
#[derive(Debug)]
pub struct Removing {
    /// It.
    pub row: Arc<SnapshotView>,
    /// The live object that records its snapshot and says from then on what was written on the row.
    pub heir: Option<Arc<SnapshotView>>,
}

/// Whether an object is a row: by its label, and by its status once it has one.
#[must_use]
pub fn is_row(view: &SnapshotView) -> bool {
    let origin = view.status.as_ref().and_then(|s| s.origin);
    view.label(names::ORIGIN_LABEL) == Some(Origin::Discovered.as_str())
        && matches!(origin, None | Some(Origin::Discovered))
}

/// Plans; `place` says in which namespace a snapshot is seen.
#[must_use]
pub fn plan<'a>(scan: &Scan<'a>, place: impl Fn(&ListedSnapshot) -> Option<String>) -> Plan<'a> {
    let mut known = Known::of(scan);
    let mut plan = Plan::default();
    let mut seen = HashSet::new();
    let free = |listed: &&ListedSnapshot| {
        let id = listed.snapshot_id.as_str();
        let decided_elsewhere = scan.watched.contains(id) && !scan.touched.contains(id);
        !decided_elsewhere && !known.has_object(id) && !known.may_be_recorded(listed)
    };
    let free: Vec<&ListedSnapshot> = scan
        .listing
        .iter()
        .filter(|listed| seen.insert(listed.snapshot_id.as_str()))
        .filter(free)
        .collect();
    let certain: Vec<&ListedSnapshot> = free
        .iter()
        .copied()
        .filter(|listed| !scan.touched.contains(&listed.snapshot_id))
        .collect();
    let (taken, told) = adopt::decide(&scan.adoption, &certain, |id| known.word(id), &known.doubt);
    plan.told = told;
    plan.adopt = taken
        .into_iter()
        .map(|taken| known.adopting(scan.repository, taken))
        .collect();
    let adopted: HashSet<&str> = plan
        .adopt
        .iter()
        .map(|one| one.taken.listed.snapshot_id.as_str())
        .collect();
    known.hide(scan, &adopted);
    for listed in free {
        let id = listed.snapshot_id.as_str();
        if adopted.contains(id) || known.is_recorded(id) {
            continue;
        }
        if known.beyond.contains(id) {
            plan.not_shown += 1;
        } else if scan.touched.contains(id) {
            plan.uncertain += 1;
        } else if let Some(row) = known.begun.get(row::label(id).as_str()) {
            plan.complete.push((Arc::clone(row), listed));
        } else if let Some(namespace) = place(listed) {
            let name = row::name(scan.repository, id);
            plan.create.push((ObjectKey::new(namespace, name), listed));
        } else {
            plan.unplaced += 1;
        }
    }
    plan.news = news::of(scan);
    // What has news is taken back with it.
    plan.seen_again.clone_from(&known.seen_again);
    let told: HashSet<&str> = plan.news.iter().map(|(view, _)| view.uid()).collect();
    plan.seen_again.retain(|view| !told.contains(view.uid()));
    for row in &known.rows {
        if row.snapshot_id().is_some_and(|id| adopted.contains(id)) {
            // It goes when its object is there.
            continue;
        }
        let before = row.metadata.creation_timestamp.as_ref();
        let hidden = known.is_beyond(row);
        let goes = before.is_some_and(|t| t.0 < scan.began) && (hidden || known.is_obsolete(row));
        if goes {
            plan.not_shown += usize::from(hidden && !known.is_obsolete(row));
            plan.remove.push(known.removing(row));
        } else if row.status.is_some() {
            plan.kept += 1;
        }
    }
    plan
}
