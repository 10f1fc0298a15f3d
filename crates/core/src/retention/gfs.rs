//! Grandfather, father, son: which snapshots of a source are kept.
//!
//! **Promises.** `keepLatest` keeps the N newest; each period keeps the newest snapshot of each of the N newest
//! periods *that exist*, so an outage of two weeks does not empty the history. Their union is kept. Periods are
//! UTC: hour, day, ISO week, month, year.
//!
//! **Assumes.** Times are those at which snapshots ended.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use std::collections::{BTreeMap, BTreeSet};

/// `spec.retention` of a SnapshotPolicy; absent counts keep nothing of their kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Keep {
    /// `keepLatest`.
    pub latest: Option<u32>,
    /// `keepHourly`.
    pub hourly: Option<u32>,
    /// `keepDaily`.
    pub daily: Option<u32>,
    /// `keepWeekly`.
    pub weekly: Option<u32>,
    /// `keepMonthly`.
    pub monthly: Option<u32>,
    /// `keepAnnual`.
    pub annual: Option<u32>,
}

impl Keep {
    /// No count, or only zeros. Such a policy prunes nothing: keeping nothing is a wish nobody writes this way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let Self {
            latest,
            hourly,
            daily,
            weekly,
            monthly,
            annual,
        } = self;
        [latest, hourly, daily, weekly, monthly, annual]
            .into_iter()
            .all(|count| count.unwrap_or(0) == 0)
    }
}

/// A Snapshot that completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed {
    /// UID of the object.
    pub uid: String,
    /// Recorded snapshot id.
    pub id: String,
    /// Source and repository: each group has a history of its own.
    pub group: String,
    /// When the snapshot ended.
    pub ended_at: Timestamp,
    /// `spec.pin`, or a pin in the repository itself, whoever wrote it.
    pub pinned: bool,
    /// Condition `Vanished`: not in the repository any more. Neither counts nor is pruned.
    pub vanished: bool,
}

/// Why a snapshot is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The policy prunes nothing.
    NoRetention,
    /// Among the newest.
    Latest,
    /// The newest of an hour.
    Hourly,
    /// The newest of a day.
    Daily,
    /// The newest of a week.
    Weekly,
    /// The newest of a month.
    Monthly,
    /// The newest of a year.
    Annual,
    /// Pinned.
    Pinned,
    /// Another object that is kept records the same snapshot.
    SameSnapshot,
}

impl Why {
    /// The word: where a count of `spec.retention` keeps it, that count's name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::NoRetention => "noRetention",
            Self::Latest => "keepLatest",
            Self::Hourly => "keepHourly",
            Self::Daily => "keepDaily",
            Self::Weekly => "keepWeekly",
            Self::Monthly => "keepMonthly",
            Self::Annual => "keepAnnual",
            Self::Pinned => "pinned",
            Self::SameSnapshot => "sameSnapshot",
        }
    }
}

/// What becomes of the Snapshots of a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Retained {
    /// UIDs to stamp and delete, oldest first.
    pub prune: Vec<String>,
    /// For each group that something is pruned of: the ids that were kept, sorted. The mover prunes only if it
    /// finds them in the same listing.
    pub justification: BTreeMap<String, Vec<String>>,
    /// UIDs kept, newest first.
    pub keep: Vec<String>,
    /// For each UID that is kept, every reason.
    pub why: BTreeMap<String, BTreeSet<Why>>,
}

/// Applies a policy. `None` is a policy without `spec.retention`.
#[must_use]
pub fn retain(snapshots: &[Completed], policy: Option<&Keep>) -> Retained {
    let mut present: Vec<&Completed> = snapshots.iter().filter(|snapshot| !snapshot.vanished).collect();
    // Newest first; ties by id, so that every replica and every pass prunes the same ones.
    present.sort_by(|a, b| {
        b.ended_at
            .cmp(&a.ended_at)
            .then(a.id.cmp(&b.id))
            .then(a.uid.cmp(&b.uid))
    });
    let Some(policy) = policy.filter(|policy| !policy.is_empty()) else {
        return Retained {
            keep: present.iter().map(|s| s.uid.clone()).collect(),
            why: present
                .iter()
                .map(|s| (s.uid.clone(), BTreeSet::from([Why::NoRetention])))
                .collect(),
            ..Retained::default()
        };
    };
    let mut groups: BTreeMap<&str, Vec<&Completed>> = BTreeMap::new();
    for snapshot in &present {
        groups.entry(&snapshot.group).or_default().push(snapshot);
    }
    let mut kept: BTreeMap<&str, BTreeSet<Why>> = BTreeMap::new();
    for group in groups.values() {
        let chosen = choose(group, policy);
        let ids: BTreeSet<&str> = group
            .iter()
            .filter(|s| chosen.contains_key(s.uid.as_str()))
            .map(|s| s.id.as_str())
            .collect();
        for snapshot in group {
            match chosen.get(snapshot.uid.as_str()) {
                Some(why) => {
                    kept.insert(&snapshot.uid, why.clone());
                }
                // An id that is kept for one object is kept for all that record it.
                None if ids.contains(snapshot.id.as_str()) => {
                    kept.insert(&snapshot.uid, BTreeSet::from([Why::SameSnapshot]));
                }
                None => {}
            }
        }
    }

    let mut retained = Retained::default();
    for snapshot in &present {
        if kept.contains_key(snapshot.uid.as_str()) {
            retained.keep.push(snapshot.uid.clone());
        } else {
            retained.prune.push(snapshot.uid.clone());
        }
    }
    retained.prune.reverse();
    for (group, members) in groups {
        if members.iter().any(|s| !kept.contains_key(s.uid.as_str())) {
            let ids: BTreeSet<&str> = members
                .iter()
                .filter(|s| kept.contains_key(s.uid.as_str()))
                .map(|s| s.id.as_str())
                .collect();
            retained
                .justification
                .insert(group.to_owned(), ids.into_iter().map(str::to_owned).collect());
        }
    }
    retained.why = kept.into_iter().map(|(uid, why)| (uid.to_owned(), why)).collect();
    retained
}

/// The UIDs that a count or a pin keeps, with every reason, of one group sorted newest first.
fn choose<'a>(group: &[&'a Completed], policy: &Keep) -> BTreeMap<&'a str, BTreeSet<Why>> {
    let Keep {
        latest,
        hourly,
        daily,
        weekly,
        monthly,
        annual,
    } = policy;
    let mut chosen: BTreeMap<&str, BTreeSet<Why>> = BTreeMap::new();
    let mut choose = |snapshot: &'a Completed, why| {
        chosen.entry(&snapshot.uid).or_default().insert(why);
    };
    for snapshot in group.iter().filter(|s| s.pinned) {
        choose(snapshot, Why::Pinned);
    }
    for snapshot in group.iter().take(count(*latest)) {
        choose(snapshot, Why::Latest);
    }
    type Period = fn(DateTime) -> (i16, i16, i8);
    let periods: [(Why, Option<u32>, Period); 5] = [
        (Why::Hourly, *hourly, |t| (t.year(), t.day_of_year(), t.hour())),
        (Why::Daily, *daily, |t| (t.year(), t.day_of_year(), 0)),
        (Why::Weekly, *weekly, |t| {
            (
                t.date().iso_week_date().year(),
                t.date().iso_week_date().week().into(),
                0,
            )
        }),
        (Why::Monthly, *monthly, |t| (t.year(), t.month().into(), 0)),
        (Why::Annual, *annual, |t| (t.year(), 0, 0)),
    ];
    for (why, wanted, period) in periods {
        let mut seen = BTreeSet::new();
        for snapshot in group {
            if seen.len() >= count(wanted) {
                break;
            }
            if seen.insert(period(TimeZone::UTC.to_datetime(snapshot.ended_at))) {
                choose(snapshot, why);
            }
        }
    }
    chosen
}

fn count(wanted: Option<u32>) -> usize {
    usize::try_from(wanted.unwrap_or(0)).unwrap_or(usize::MAX)
}
