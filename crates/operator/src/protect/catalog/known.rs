//! What the objects of the cluster say about a listing: pure.
//!
//! **Promises.** An object speaks for a snapshot of its own repository only. What a person wrote on a row is known, so that
//! whatever takes the row's place says it too.

use super::adopt::{Held, Taken};
use super::plan::{Adopting, Removing, Scan, is_row};
use super::{adopted, row};
use crate::protect::wave::kept::{moment, moment_of, stricter};
use crate::world::keys::ObjectKey;
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::shared::{DeletionPolicy, Origin};
use holdfast_api::snapshot::SnapshotPhase;
use holdfast_api::{conditions, names};
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Whether it was made to be adopted and its first status was never written.
fn is_begun_adoption(view: &SnapshotView) -> bool {
    view.label(names::ORIGIN_LABEL) == Some(Origin::Adopted.as_str())
        && view.phase().is_none()
        && view.snapshot_id().is_none()
}

/// What its snapshot is of and when it was begun, to less than a second.
fn exactly(view: &SnapshotView) -> Option<(Source, Timestamp)> {
    let start = view.status.as_ref()?.timing.as_ref()?.start_time?;
    let exact = start.subsec_nanosecond() != 0;
    exact
        .then(|| view.source())
        .flatten()
        .map(|source| (source, start))
}

/// Whether it is the snapshot that its own object records, under another id.
fn is_another_record(view: &SnapshotView, listed: &ListedSnapshot) -> bool {
    view.snapshot_id() != Some(listed.snapshot_id.as_str())
        && !is_row(view)
        && moment_of(view).is_some_and(|own| own == moment(&listed.source, listed.start_time))
}

/// What a person wrote on a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Word {
    /// `spec.pin`.
    pub pin: bool,
    /// The annotation that keeps its data whatever becomes of the object.
    pub stays: bool,
}

impl Word {
    /// Of one object.
    #[must_use]
    pub fn of(view: &SnapshotView) -> Self {
        Self {
            pin: view.spec.pin,
            stays: view.annotation(names::SKIP_SNAPSHOT_CLEANUP).is_some(),
        }
    }

    fn add(&mut self, other: Self) {
        self.pin |= other.pin;
        self.stays |= other.stays;
    }

    /// The deletion policy of an object that would say this one.
    #[must_use]
    pub fn with(self, policy: DeletionPolicy) -> DeletionPolicy {
        if self.stays {
            stricter(policy, DeletionPolicy::Retain)
        } else {
            policy
        }
    }
}

/// Objects of which is not known which snapshot is theirs.
#[derive(Debug, Default)]
pub struct Doubt {
    /// What they are of, as far as they say so.
    sources: HashMap<Source, Held>,
    /// The policies that they name.
    policies: HashMap<ObjectKey, Held>,
}

impl Doubt {
    fn add(&mut self, unique_id: &str, view: &SnapshotView, is_listed: impl Fn(&str) -> bool) {
        let elsewhere = view.pinned_unique_id().is_some_and(|u| u != unique_id);
        if elsewhere || is_row(view) || is_begun_adoption(view) {
            return;
        }
        let held = match view.snapshot_id() {
            // An engine may have given it another id, and when it was begun is not known.
            Some(id) if !is_listed(id) && moment_of(view).is_none() => Held::Renamed(view.key()),
            Some(_) => return,
            // What it had is not known: it may have been restored without a status.
            None if view.phase().is_none() && view.metadata.deletion_timestamp.is_none() => {
                let list = view.status.as_ref().map(|status| status.conditions.as_slice());
                let lost = list.is_some_and(|list| conditions::is_true(list, conditions::STATUS_LOST));
                Held::NoStatus(view.key(), lost)
            }
            None => return,
        };
        if let Some(source) = view.source() {
            self.sources.insert(source, held.clone());
        }
        if let Some(policy) = view.policy() {
            self.policies.insert(policy, held);
        }
    }

    /// Why a policy that backs up this may not adopt.
    #[must_use]
    pub fn about(&self, policy: &ObjectKey, source: &Source) -> Option<&Held> {
        self.policies.get(policy).or_else(|| self.sources.get(source))
    }
}

/// What is known about the ids of a listing.
pub struct Known<'a> {
    listed: HashSet<&'a str>,
    labels: HashSet<String>,
    /// Ids recorded by any object, with whether one of them is live and no row.
    recorded: HashMap<&'a str, bool>,
    /// Ids recorded by an object that is no row, live or being deleted.
    by_object: HashSet<&'a str>,
    /// Adopted Snapshots of this repository object without a status. Their name says of what; their label is cut.
    begun_adopted: HashMap<ObjectKey, Arc<SnapshotView>>,
    /// Ids that are not shown.
    pub beyond: HashSet<&'a str>,
    by_uid: HashMap<&'a str, &'a SnapshotView>,
    /// What objects of this physical repository record that is not listed, by what it is of and when it was begun.
    renamed: HashSet<String>,
    /// What they record, listed or not, where its begin is exact: a begin of whole seconds may be that of two runs.
    exact: HashSet<(Source, Timestamp)>,
    /// What is not known of an object, so that a listed snapshot may be its.
    pub doubt: Doubt,
    /// Rows of this repository object that are not being deleted.
    pub rows: Vec<Arc<SnapshotView>>,
    /// Those of them with a status, by the id that they record.
    row_of: HashMap<&'a str, Arc<SnapshotView>>,
    /// Those of them without a status, by their label.
    pub begun: HashMap<&'a str, Arc<SnapshotView>>,
    /// What people wrote on rows of this physical repository, by the id, or by its label where no status says it.
    words: HashMap<String, Word>,
    /// The live objects that are no rows, by the id that they record and by its label.
    heirs: HashMap<String, Arc<SnapshotView>>,
    /// Live objects that were said to have vanished and are listed.
    pub seen_again: Vec<Arc<SnapshotView>>,
}

impl<'a> Known<'a> {
    /// Gathers.
    pub fn of(scan: &Scan<'a>) -> Self {
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
            exact: HashSet::new(),
            doubt: Doubt::default(),
            rows: Vec::new(),
            row_of: HashMap::new(),
            begun: HashMap::new(),
            words: HashMap::new(),
            heirs: HashMap::new(),
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
                if live && !row {
                    known
                        .heirs
                        .entry(row::label(id))
                        .or_insert_with(|| Arc::clone(view));
                    known.heirs.insert(id.to_owned(), Arc::clone(view));
                } else if live {
                    known.words.entry(id.to_owned()).or_default().add(Word::of(view));
                }
                if !row {
                    known.by_object.insert(id);
                    if !known.listed.contains(id) {
                        known.renamed.extend(moment_of(view));
                    }
                    known.exact.extend(exactly(view));
                }
                // Only where it is certain that it is this repository's snapshot that is listed.
                let certain = view.pinned_unique_id() == Some(scan.unique_id);
                if live && !row && certain && known.listed.contains(id) && view.is_vanished() {
                    known.seen_again.push(Arc::clone(view));
                }
            }
            known
                .doubt
                .add(scan.unique_id, view, |id| known.listed.contains(id));
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
                known
                    .words
                    .entry(label.to_owned())
                    .or_default()
                    .add(Word::of(view));
                known.rows.push(Arc::clone(view));
                known.begun.insert(label, Arc::clone(view));
            }
        }
        known
    }

    /// Decides what is not shown: not of what a live object records or will.
    pub fn hide(&mut self, scan: &Scan<'a>, adopted: &HashSet<&str>) {
        let candidates = scan.listing.iter().filter(|listed| {
            let id = listed.snapshot_id.as_str();
            self.recorded.get(id) != Some(&true) && !adopted.contains(id)
        });
        self.beyond = scan.bounds.beyond(candidates);
    }

    /// What is there of the object and of the row of one that is taken over.
    pub fn adopting(&self, repository: &RepositoryView, taken: Taken<'a>) -> Adopting<'a> {
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
    pub fn has_object(&self, id: &str) -> bool {
        self.by_object.contains(id)
    }

    /// By an object that is live or being deleted, a row included.
    pub fn is_recorded(&self, id: &str) -> bool {
        self.recorded.contains_key(id)
    }

    /// By the object it was taken for: one whose result is unread, or that records an id which is not in the
    /// listing (an engine may give a snapshot a new one: Kopia does so when it is pinned there). An object knows what it is
    /// of without its tag too, as one that was adopted does.
    pub fn may_be_recorded(&self, listed: &ListedSnapshot) -> bool {
        let exactly = (listed.source.clone(), listed.start_time);
        if self.exact.contains(&exactly) || self.renamed.contains(&moment(&listed.source, listed.start_time))
        {
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
    pub fn is_beyond(&self, row: &SnapshotView) -> bool {
        row.snapshot_id().is_some_and(|id| self.beyond.contains(id))
    }

    /// What people wrote on the rows of a snapshot.
    pub fn word(&self, id: &str) -> Word {
        let mut word = Word::default();
        for key in [id, row::label(id).as_str()] {
            word.add(self.words.get(key).copied().unwrap_or_default());
        }
        word
    }

    /// The removal of a row; where a live object records its snapshot that one inherits what was written on the row.
    pub fn removing(&self, row: &Arc<SnapshotView>) -> Removing {
        let key = row.snapshot_id().or_else(|| row.label(names::SNAPSHOT_ID_LABEL));
        Removing {
            row: Arc::clone(row),
            heir: key.and_then(|key| self.heirs.get(key).cloned()),
        }
    }

    /// A row that is not to be there: its snapshot is not listed, or a live object records it.
    pub fn is_obsolete(&self, row: &SnapshotView) -> bool {
        match row.snapshot_id() {
            Some(id) => !self.listed.contains(id) || self.recorded.get(id) == Some(&true),
            None if row.status.is_none() => row
                .label(names::SNAPSHOT_ID_LABEL)
                .is_none_or(|label| !self.labels.contains(label) || self.heirs.contains_key(label)),
            None => false,
        }
    }
}
