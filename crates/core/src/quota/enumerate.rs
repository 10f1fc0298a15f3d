//! What a listing of a store does to records (`docs/design.md` 4.1 and 4.5).
//!
//! **Promises.** Only a complete listing counts, and only for records within the scope it covered. A record is
//! released only if an earlier complete listing found it, no Backup came to it since this one began, and two in a row
//! missed it. A release of more than ten records, or of more than half the bytes of the scope, or on the word of a
//! listing that saw nothing at all, waits for an administrator. Memory does not grow with the number of objects.
//!
//! **Assumes.** [`Fold::finish`] is called only when the listing reached its end. The same listing may be judged
//! again after a death: nothing counts twice.

use super::identity::Location;
use super::ledger::{Change, Ledger};
use super::record::{ListingEntry, Reason, Record, Size, State, Times};
use super::transitions::released;
use super::words;
use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most records that are released without asking.
pub const RELEASED_UNASKED: usize = 10;
/// Complete listings in a row that have to miss a record.
const MISSES: u32 = 2;
/// Namespaces whose unexplained bytes are told apart; keys are written by anybody who may write to the bucket.
const NAMESPACES_TOLD: usize = 10_000;
/// How old `lastSeenInListing` may become before a record is written for it alone.
const SEEN_REFRESH: SignedDuration = SignedDuration::from_hours(7 * 24);

/// How keys map to namespaces: segments, read from below the prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    segments: Vec<Segment>,
    namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Word(String),
    Namespace,
    Any,
}

/// Why a layout is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// It does not end with the rest of the key.
    #[error("spec.layout.path ends with {{artifact...}}: that is where the rest of the key goes")]
    NoEnd,
    /// A segment nobody knows.
    #[error(
        "spec.layout.path: {0:?} is no segment: use words, {{namespace}}, {{application}} or {{any}}, joined by '/'"
    )]
    BadSegment(String),
    /// The namespace is named twice, or not at all.
    #[error("spec.layout needs the namespace once: {{namespace}} in path, or the field namespace")]
    Namespace,
}

impl Layout {
    /// Reads `spec.layout` of a BackupStore.
    ///
    /// # Errors
    /// [`LayoutError`], in the cases in which the API server refuses it too.
    pub fn parse(path: &str, namespace: Option<&str>) -> Result<Self, LayoutError> {
        let before = path.strip_suffix("{artifact...}").ok_or(LayoutError::NoEnd)?;
        let mut segments = Vec::new();
        for text in before.split_terminator('/') {
            segments.push(match text {
                "{namespace}" => Segment::Namespace,
                "{application}" | "{any}" => Segment::Any,
                word if !word.is_empty() && !word.contains(['{', '}']) => Segment::Word(word.to_owned()),
                _ => return Err(LayoutError::BadSegment(text.to_owned())),
            });
        }
        if !before.is_empty() && !before.ends_with('/') {
            return Err(LayoutError::BadSegment(before.to_owned()));
        }
        let named = segments.iter().filter(|s| **s == Segment::Namespace).count();
        if named + usize::from(namespace.is_some()) != 1 {
            return Err(LayoutError::Namespace);
        }
        Ok(Self {
            segments,
            namespace: namespace.map(str::to_owned),
        })
    }

    /// The namespace of a key below the prefix; `None`: it does not fit.
    #[must_use]
    pub fn namespace_of<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        let mut rest = key;
        let mut namespace = self.namespace.as_deref();
        for segment in &self.segments {
            let (part, after) = rest.split_once('/')?;
            match segment {
                Segment::Word(word) if word != part => return None,
                Segment::Word(_) | Segment::Any => {}
                Segment::Namespace => namespace = Some(part),
            }
            rest = after;
        }
        namespace.filter(|_| !rest.is_empty())
    }
}

/// What a listing covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Name of the BackupStore.
    pub store: String,
    /// Place of the records it is about, e.g. `s3://shared-archive`.
    pub place: String,
    /// Keys begin with this.
    pub prefix: String,
    /// How keys map to namespaces.
    pub layout: Layout,
    /// Kinds of strategies; empty: all.
    pub strategy_kinds: BTreeSet<String>,
}

impl Scope {
    /// Whether the listing would have shown this record's bytes.
    #[must_use]
    pub fn covers(&self, record: &Record) -> bool {
        let Some(identity) = record.subject.identity() else {
            return false;
        };
        let kinds = &self.strategy_kinds;
        identity.location().is_some_and(|at| self.holds(at))
            && (kinds.is_empty() || kinds.contains(&identity.strategy.kind))
    }

    fn holds(&self, at: &Location) -> bool {
        at.place == self.place && at.key.starts_with(&self.prefix)
    }
}

/// Objects and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Objects.
    pub objects: i64,
    /// Bytes.
    pub bytes: i64,
}

impl Sum {
    fn add(&mut self, bytes: i64) {
        self.objects = self.objects.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes.max(0));
    }
}

/// A listing under way.
#[derive(Debug, Clone)]
pub struct Fold {
    scope: Scope,
    started_at: Timestamp,
    /// Records by their key; several namespaces may have one.
    names: HashMap<String, Vec<String>>,
    found: BTreeMap<String, Sum>,
    unaccounted: BTreeMap<String, Sum>,
    unaccounted_elsewhere: Sum,
    all: Sum,
}

impl Fold {
    /// A listing begins.
    #[must_use]
    pub fn begin(ledger: &Ledger, scope: Scope, started_at: Timestamp) -> Self {
        let mut names: HashMap<String, Vec<String>> = HashMap::new();
        // Of every kind: a record outside the scope explains bytes all the same.
        for record in ledger.records() {
            if let Some(at) = record.subject.identity().and_then(|identity| identity.location())
                && scope.holds(at)
            {
                names.entry(at.key.clone()).or_default().push(record.name.clone());
            }
        }
        Self {
            scope,
            started_at,
            names,
            found: BTreeMap::new(),
            unaccounted: BTreeMap::new(),
            unaccounted_elsewhere: Sum::default(),
            all: Sum::default(),
        }
    }

    /// One object of the listing: its whole key and its size.
    pub fn object(&mut self, key: &str, bytes: i64) {
        self.all.add(bytes);
        let mut explained = false;
        // The key itself, or a folder above it, is an artifact's.
        let mut path = key.trim_end_matches('/');
        loop {
            for name in self.names.get(path).into_iter().flatten() {
                explained = true;
                match self.found.get_mut(name) {
                    Some(sum) => sum.add(bytes),
                    None => {
                        let mut sum = Sum::default();
                        sum.add(bytes);
                        self.found.insert(name.clone(), sum);
                    }
                }
            }
            match path.rsplit_once('/') {
                Some((folder, _)) => path = folder,
                None => break,
            }
        }
        if !explained {
            let below = key.strip_prefix(&self.scope.prefix).unwrap_or(key);
            let namespace = self.scope.layout.namespace_of(below).unwrap_or_default();
            if let Some(sum) = self.unaccounted.get_mut(namespace) {
                sum.add(bytes);
            } else {
                let sum = if self.unaccounted.len() < NAMESPACES_TOLD {
                    self.unaccounted.entry(namespace.to_owned()).or_default()
                } else {
                    &mut self.unaccounted_elsewhere
                };
                sum.add(bytes);
            }
        }
    }

    /// Objects and bytes so far.
    #[must_use]
    pub fn progress(&self) -> Sum {
        self.all
    }

    /// The listing has reached its end.
    #[must_use]
    pub fn finish(self, completed_at: Timestamp) -> Complete {
        Complete {
            scope: self.scope,
            started_at: self.started_at,
            completed_at,
            found: self.found,
            unaccounted: self.unaccounted,
            unaccounted_elsewhere: self.unaccounted_elsewhere,
            all: self.all,
        }
    }
}

/// A listing that reached its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complete {
    /// What it covered.
    pub scope: Scope,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub completed_at: Timestamp,
    /// What it found of records, by their names.
    pub found: BTreeMap<String, Sum>,
    /// What no record explains, by namespace; the empty one stands for keys that fit no layout.
    pub unaccounted: BTreeMap<String, Sum>,
    /// What no record explains in namespaces that are not named any more: a listing names a bounded number.
    pub unaccounted_elsewhere: Sum,
    /// Everything it saw.
    pub all: Sum,
}

words! {
    /// Why a release waits for an administrator.
    HeldReason {
        /// More than ten records.
        ManyRecords => "ManyRecords",
        /// More than half the bytes of the scope.
        HalfTheBytes => "HalfTheBytes",
        /// The listing saw no object at all.
        EmptyListing => "EmptyListing",
    }
}

/// A release that waits for an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Why.
    pub reason: HeldReason,
    /// Stands for exactly these records.
    pub token: String,
    /// Their names, in order.
    pub names: Vec<String>,
    /// The bytes they are charged with.
    pub bytes: i64,
}

/// What a complete listing leads to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// What to write.
    pub changes: Vec<Change>,
    /// What waits.
    pub held: Option<Held>,
}

/// Judges a complete listing.
#[must_use]
pub fn judge(ledger: &Ledger, complete: &Complete, now: Timestamp) -> Outcome {
    let mut outcome = Outcome::default();
    let mut missing = Vec::new();
    let mut charged = 0_i64;
    for record in ledger.records().filter(|record| complete.scope.covers(record)) {
        if record.state.is_charged() {
            charged = charged.saturating_add(record.size.bytes.unwrap_or(0));
        }
        let next = match complete.found.get(&record.name) {
            Some(sum) => found(record, *sum, complete),
            None => missed(record, complete),
        };
        let next = next.unwrap_or_else(|| record.clone());
        if due(&next, &complete.scope) {
            missing.push(next.clone());
        }
        if next != *record {
            outcome.changes.push(Change::Write(Box::new(next)));
        }
    }
    match hold(&missing, charged, complete.all.objects == 0) {
        Some(held) => outcome.held = Some(held),
        None => {
            for record in &missing {
                let change = Change::Write(Box::new(released(record, Reason::NoLongerListed, now)));
                match outcome
                    .changes
                    .iter_mut()
                    .find(|there| there.name() == record.name)
                {
                    Some(there) => *there = change,
                    None => outcome.changes.push(change),
                }
            }
        }
    }
    outcome
}

/// The release that waits in a scope by what the records say, whenever it is asked for.
#[must_use]
pub fn waiting(ledger: &Ledger, scope: &Scope) -> Option<Held> {
    let covered = || ledger.records().filter(|record| scope.covers(record));
    let missing: Vec<Record> = covered().filter(|record| due(record, scope)).cloned().collect();
    let charged = covered()
        .filter(|record| record.state.is_charged())
        .fold(0_i64, |sum, record| {
            sum.saturating_add(record.size.bytes.unwrap_or(0))
        });
    // What was not released at once waited, whatever has changed around it since.
    hold(&missing, charged, !missing.is_empty())
}

/// An administrator allows the waiting release by its token. `None`: it is not (or no longer) what waits.
#[must_use]
pub fn approve(ledger: &Ledger, scope: &Scope, token: &str, now: Timestamp) -> Option<Vec<Change>> {
    let held = waiting(ledger, scope).filter(|held| held.token == token)?;
    let records = held.names.iter().filter_map(|name| ledger.get(name));
    Some(
        records
            .map(|record| Change::Write(Box::new(released(record, Reason::NoLongerListed, now))))
            .collect(),
    )
}

/// A record that a listing has found.
fn found(record: &Record, sum: Sum, complete: &Complete) -> Option<Record> {
    let began = complete.started_at;
    let after_release = record.times.released_at.is_none_or(|at| at < began);
    let measured = Size::measured(sum.bytes);
    // A Backup that came while the listing ran may stand for more than it saw.
    let quiet = record.times.last_backup_at.is_none_or(|at| at < began);
    let size = match record.size.bytes {
        Some(before) if !quiet && measured.bytes.is_some_and(|bytes| bytes < before) => record.size,
        Some(_) | None => measured,
    };
    let next = match record.state {
        State::InFlight | State::Unknown => return None,
        State::Attributed | State::PendingPurge | State::Retained | State::WrittenOff => record.clone(),
        State::Released if after_release => {
            let state = if record.backups.is_empty() {
                State::Retained
            } else {
                State::Attributed
            };
            Record {
                times: Times {
                    released_at: None,
                    ..record.times
                },
                ..record.moved(state, Reason::Reappeared)
            }
        }
        State::Released => return None,
    };
    let entry = ListingEntry {
        store: complete.scope.store.clone(),
        judged: began,
        missed: 0,
        found: true,
    };
    let known = record
        .listing
        .as_ref()
        .is_some_and(|there| there.store == entry.store && there.found && there.missed == 0);
    let fresh = record
        .times
        .last_seen_in_listing
        .is_some_and(|at| complete.completed_at.duration_since(at) < SEEN_REFRESH);
    // An older listing that is judged late says nothing new.
    if record.listing.as_ref().is_some_and(|there| there.judged > began) {
        return None;
    }
    if known && fresh && next.state == record.state && size == record.size {
        return None;
    }
    Some(Record {
        size,
        times: Times {
            last_seen_in_listing: Some(complete.completed_at),
            ..next.times
        },
        listing: Some(entry),
        ..next
    })
}

/// A record that a listing should have found if its bytes were there.
fn missed(record: &Record, complete: &Complete) -> Option<Record> {
    let entry = record.listing.as_ref()?;
    let began = complete.started_at;
    let settled = record.times.recorded_at.is_some_and(|at| at < began)
        && record.times.last_backup_at.is_none_or(|at| at < began);
    let counts = match record.state {
        State::Attributed | State::PendingPurge | State::Retained | State::WrittenOff => true,
        State::InFlight | State::Released | State::Unknown => false,
    };
    (counts && settled && entry.found && entry.store == complete.scope.store && entry.judged < began).then(
        || Record {
            listing: Some(ListingEntry {
                judged: began,
                missed: entry.missed.saturating_add(1),
                ..entry.clone()
            }),
            ..record.clone()
        },
    )
}

/// Whether the record is to be released by what listings of the store have seen.
fn due(record: &Record, scope: &Scope) -> bool {
    let counts = match record.state {
        State::Attributed | State::PendingPurge | State::Retained | State::WrittenOff => true,
        State::InFlight | State::Released | State::Unknown => false,
    };
    counts
        && record
            .listing
            .as_ref()
            .is_some_and(|entry| entry.store == scope.store && entry.found && entry.missed >= MISSES)
}

/// Whether a release waits. Records that are written off are not charged and weigh nothing.
fn hold(missing: &[Record], charged: i64, empty: bool) -> Option<Held> {
    if missing.is_empty() {
        return None;
    }
    let weighty = missing.iter().filter(|record| record.state.is_charged());
    let bytes = weighty.clone().fold(0_i64, |sum, record| {
        sum.saturating_add(record.size.bytes.unwrap_or(0))
    });
    let reason = if weighty.count() > RELEASED_UNASKED {
        HeldReason::ManyRecords
    } else if bytes > charged / 2 {
        HeldReason::HalfTheBytes
    } else if empty {
        HeldReason::EmptyListing
    } else {
        return None;
    };
    let mut names: Vec<String> = missing.iter().map(|record| record.name.clone()).collect();
    names.sort_unstable();
    let mut hasher = Sha256::new();
    for name in &names {
        hasher.update(name.as_bytes());
        hasher.update([0]);
    }
    let token = hasher
        .finalize()
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Some(Held {
        reason,
        token,
        names,
        bytes,
    })
}
