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
    /// `spec.pin`, or pinned in the repository.
    pub pinned: bool,
    /// Condition `Vanished`: not in the repository any more. Neither counts nor is pruned.
    pub vanished: bool,
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
            ..Retained::default()
        };
    };
    let mut groups: BTreeMap<&str, Vec<&Completed>> = BTreeMap::new();
    for snapshot in &present {
        groups.entry(&snapshot.group).or_default().push(snapshot);
    }
    let kept: BTreeSet<&str> = groups
        .values()
        .flat_map(|group| {
            let chosen = choose(group, policy);
            // An id that is kept for one object is kept for all that record it.
            let ids: BTreeSet<&str> = group
                .iter()
                .filter(|s| chosen.contains(s.uid.as_str()) || s.pinned)
                .map(|s| s.id.as_str())
                .collect();
            group
                .iter()
                .filter(|s| ids.contains(s.id.as_str()))
                .map(|s| s.uid.as_str())
                .collect::<Vec<_>>()
        })
        .collect();

    let mut retained = Retained::default();
    for snapshot in &present {
        if kept.contains(snapshot.uid.as_str()) {
            retained.keep.push(snapshot.uid.clone());
        } else {
            retained.prune.push(snapshot.uid.clone());
        }
    }
    retained.prune.reverse();
    for (group, members) in groups {
        if members.iter().any(|s| !kept.contains(s.uid.as_str())) {
            let ids: BTreeSet<&str> = members
                .iter()
                .filter(|s| kept.contains(s.uid.as_str()))
                .map(|s| s.id.as_str())
                .collect();
            retained
                .justification
                .insert(group.to_owned(), ids.into_iter().map(str::to_owned).collect());
        }
    }
    retained
}

/// The UIDs that a count keeps, of one group sorted newest first.
fn choose<'a>(group: &[&'a Completed], policy: &Keep) -> BTreeSet<&'a str> {
    let Keep {
        latest,
        hourly,
        daily,
        weekly,
        monthly,
        annual,
    } = policy;
    let mut chosen: BTreeSet<&str> = group
        .iter()
        .take(count(*latest))
        .map(|s| s.uid.as_str())
        .collect();
    type Period = fn(DateTime) -> (i16, i16, i8);
    let periods: [(Option<u32>, Period); 5] = [
        (*hourly, |t| (t.year(), t.day_of_year(), t.hour())),
        (*daily, |t| (t.year(), t.day_of_year(), 0)),
        (*weekly, |t| {
            (
                t.date().iso_week_date().year(),
                t.date().iso_week_date().week().into(),
                0,
            )
        }),
        (*monthly, |t| (t.year(), t.month().into(), 0)),
        (*annual, |t| (t.year(), 0, 0)),
    ];
    for (wanted, period) in periods {
        let mut seen = BTreeSet::new();
        for snapshot in group {
            if seen.len() >= count(wanted) {
                break;
            }
            if seen.insert(period(TimeZone::UTC.to_datetime(snapshot.ended_at))) {
                chosen.insert(&snapshot.uid);
            }
        }
    }
    chosen
}

fn count(wanted: Option<u32>) -> usize {
    usize::try_from(wanted.unwrap_or(0)).unwrap_or(usize::MAX)
}
