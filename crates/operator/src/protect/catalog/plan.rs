//! Which rows a listing asks for, and what policies adopt instead: pure.
//!
//! **Promises.** A row is made only for a listed snapshot that no Snapshot object records and that no run whose
//! result is unread may still record. A row is removed only on the proof of this one listing: it was there before
//! the listing began, is of the same object and the same physical repository, and its snapshot is not listed or is
//! recorded by a live object. Nothing here touches data.
//!
//! **Assumes.** The listing is whole. Snapshots that the day's delete Jobs may have deleted meanwhile are named.

use super::adopt::{self, Taken, Told};
use super::{adopted, news, row};
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::names;
use holdfast_api::repository::CatalogRetain;
use holdfast_api::shared::Origin;
use holdfast_api::snapshot::SnapshotPhase;
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
    fn beyond<'a>(self, candidates: impl Iterator<Item = &'a ListedSnapshot>) -> HashSet<&'a str> {
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
    pub remove: Vec<Arc<SnapshotView>>,
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
    let (taken, told) = adopt::decide(&scan.adoption, &certain);
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
            plan.remove.push(Arc::clone(row));
        } else if row.status.is_some() {
            plan.kept += 1;
        }
    }
    plan
}

/// What its snapshot is of, and when it was begun.
fn taken_of(view: &SnapshotView) -> Option<(Source, Timestamp)> {
    let status = view.status.as_ref()?;
    let identity = status.snapshot.as_ref()?.identity.as_ref()?;
    let source = Source {
        username: identity.username.clone(),
        hostname: identity.hostname.clone(),
        path: identity.source_path.clone(),
    };
    Some((source, status.timing.as_ref()?.start_time?))
}

/// Whether it is the snapshot that its own object records, under another id.
fn is_another_record(view: &SnapshotView, listed: &ListedSnapshot) -> bool {
    view.snapshot_id() != Some(listed.snapshot_id.as_str())
        && !is_row(view)
        && taken_of(view).is_some_and(|(source, start)| source == listed.source && start == listed.start_time)
}

/// Whether it was made to be adopted and its first status was never written.
fn is_begun_adoption(view: &SnapshotView) -> bool {
    view.label(names::ORIGIN_LABEL) == Some(Origin::Adopted.as_str())
        && view.phase().is_none()
        && view.snapshot_id().is_none()
}

struct Known<'a> {
    listed: HashSet<&'a str>,
    labels: HashSet<String>,
    /// Ids recorded by any object, with whether one of them is live and no row.
    recorded: HashMap<&'a str, bool>,
    /// Ids recorded by an object that is no row, live or being deleted.
    by_object: HashSet<&'a str>,
    /// Adopted Snapshots of this repository object without a status. Their name says of what; their label is cut.
    begun_adopted: HashMap<ObjectKey, Arc<SnapshotView>>,
    /// Ids that are not shown.
    beyond: HashSet<&'a str>,
    by_uid: HashMap<&'a str, &'a SnapshotView>,
    /// What objects of this physical repository record, by what it is of and when it was begun: where that is exact, and
    /// where the recorded id is not listed.
    renamed: HashSet<(Source, Timestamp)>,
    /// Rows of this repository object that are not being deleted.
    rows: Vec<Arc<SnapshotView>>,
    /// Those of them with a status, by the id that they record.
    row_of: HashMap<&'a str, Arc<SnapshotView>>,
    /// Those of them without a status, by their label.
    begun: HashMap<&'a str, Arc<SnapshotView>>,
    seen_again: Vec<Arc<SnapshotView>>,
}

impl<'a> Known<'a> {
    fn of(scan: &Scan<'a>) -> Self {
        let ids = || scan.listing.iter().map(|l| l.snapshot_id.as_str());
        let mut known = Self {
            listed: ids().collect(),
            labels: ids().map(row::label).collect(),
            recorded: HashMap::new(),
            by_object: HashSet::new(),
            begun_adopted: HashMap::new(),
            beyond: HashSet::new(),
            by_uid: HashMap::new(),
            renamed: HashSet::new(),
            rows: Vec::new(),
            row_of: HashMap::new(),
            begun: HashMap::new(),
            seen_again: Vec::new(),
        };
        for view in scan.snapshots {
            known.by_uid.insert(view.uid(), view.as_ref());
            let row = is_row(view);
            let live = view.metadata.deletion_timestamp.is_none();
            if let Some(id) = view.snapshot_id()
                && view.pinned_unique_id().is_none_or(|u| u == scan.unique_id)
            {
                *known.recorded.entry(id).or_default() |= live && !row;
                if !row {
                    known.by_object.insert(id);
                    // A begin of whole seconds may be that of two runs.
                    let exact = |(_, start): &(Source, Timestamp)| start.subsec_nanosecond() != 0;
                    let listed = known.listed.contains(id);
                    known
                        .renamed
                        .extend(taken_of(view).filter(|taken| !listed || exact(taken)));
                }
                // Only where it is certain that it is this repository's snapshot that is listed.
                let certain = view.pinned_unique_id() == Some(scan.unique_id);
                if live && !row && certain && known.listed.contains(id) && view.is_vanished() {
                    known.seen_again.push(Arc::clone(view));
                }
            }
            let of_this_object = view.label(names::REPOSITORY_UID_LABEL) == Some(scan.repository.uid());
            if live && of_this_object && is_begun_adoption(view) {
                known.begun_adopted.insert(view.key(), Arc::clone(view));
            }
            if !row || !live {
                continue;
            }
            if view.status.is_some() {
                let pinned = view.pin().as_ref() == Some(&scan.repository.key);
                if pinned && view.pinned_unique_id() == Some(scan.unique_id) {
                    known.rows.push(Arc::clone(view));
                    if let Some(id) = view.snapshot_id() {
                        known.row_of.insert(id, Arc::clone(view));
                    }
                }
            } else if of_this_object && let Some(label) = view.label(names::SNAPSHOT_ID_LABEL) {
                known.rows.push(Arc::clone(view));
                known.begun.insert(label, Arc::clone(view));
            }
        }
        known
    }

    /// Decides what is not shown: not of what a live object records or will.
    fn hide(&mut self, scan: &Scan<'a>, adopted: &HashSet<&str>) {
        let candidates = scan.listing.iter().filter(|listed| {
            let id = listed.snapshot_id.as_str();
            self.recorded.get(id) != Some(&true) && !adopted.contains(id)
        });
        self.beyond = scan.bounds.beyond(candidates);
    }

    /// What is there of the object and of the row of one that is taken over.
    fn adopting(&self, repository: &RepositoryView, taken: Taken<'a>) -> Adopting<'a> {
        let id = taken.listed.snapshot_id.as_str();
        let begun = self.begun_adopted.get(&adopted::key(repository, &taken));
        let row = self
            .row_of
            .get(id)
            .or_else(|| self.begun.get(row::label(id).as_str()));
        Adopting {
            begun: begun.cloned(),
            row: row.cloned(),
            taken,
        }
    }

    /// By an object that is no row, be it live or being deleted.
    fn has_object(&self, id: &str) -> bool {
        self.by_object.contains(id)
    }

    /// By an object that is live or being deleted, a row included.
    fn is_recorded(&self, id: &str) -> bool {
        self.recorded.contains_key(id)
    }

    /// By the object it was taken for: one whose result is unread, or that records an id which is not in the
    /// listing (an engine may give a snapshot a new one: Kopia does so when it is pinned there). An object knows what it is
    /// of without its tag too, as one that was adopted does.
    fn may_be_recorded(&self, listed: &ListedSnapshot) -> bool {
        if self.renamed.contains(&(listed.source.clone(), listed.start_time)) {
            return true;
        }
        let uid = listed.snapshot_uid.as_deref();
        let Some(view) = uid.and_then(|uid| self.by_uid.get(uid)) else {
            return false;
        };
        match view.snapshot_id() {
            // One record of a snapshot that pinning wrote anew, and the other one of it: a crash, or a program that brings
            // back what another one deletes, left both.
            Some(id) => !self.listed.contains(id) || is_another_record(view, listed),
            None => match view.phase() {
                None
                | Some(
                    SnapshotPhase::Pending
                    | SnapshotPhase::Running
                    | SnapshotPhase::Deleting
                    | SnapshotPhase::Unknown,
                ) => true,
                Some(
                    SnapshotPhase::Succeeded
                    | SnapshotPhase::Failed
                    | SnapshotPhase::Discovered
                    | SnapshotPhase::Unchanged,
                ) => false,
            },
        }
    }

    /// A row of a snapshot that is not shown any more.
    fn is_beyond(&self, row: &SnapshotView) -> bool {
        row.snapshot_id().is_some_and(|id| self.beyond.contains(id))
    }

    /// By a live object that is no row; few rows are asked about.
    fn is_recorded_as(&self, label: &str) -> bool {
        let live = self.recorded.iter().filter(|(_, live)| **live);
        live.into_iter().any(|(id, _)| row::label(id) == label)
    }

    fn is_obsolete(&self, row: &SnapshotView) -> bool {
        match row.snapshot_id() {
            Some(id) => !self.listed.contains(id) || self.recorded.get(id) == Some(&true),
            None if row.status.is_none() => row
                .label(names::SNAPSHOT_ID_LABEL)
                .is_none_or(|label| !self.labels.contains(label) || self.is_recorded_as(label)),
            None => false,
        }
    }
}
