//! When a repository is scanned: pure, time and facts as arguments.
//!
//! **Promises.** Data that is kept while its objects go is looked for once, at least 30 s after the last object
//! went, however many went; a trickle does not put it off for more than ten minutes. A void scan is repeated, ever
//! later. What a scan answers is compared with what its Job was created for, never by two clocks.

use holdfast_api::repository::{CatalogStatus, ScanDue};
use holdfast_core::deletion::{OrphanReason, RetainReason, Verdict};
use jiff::{SignedDuration, Timestamp};

/// A scan comes no sooner than this after the last object went.
const QUIET: SignedDuration = SignedDuration::from_secs(30);
/// The due time is put off by this much, so that it is not written anew for each of many passes.
const AHEAD: SignedDuration = SignedDuration::from_secs(45);
/// A scan comes no later than this after the first object went.
const LATEST: SignedDuration = SignedDuration::from_secs(600);
/// When what a scan could not settle is looked at again.
const UNSETTLED: SignedDuration = SignedDuration::from_secs(600);

/// What a scan was created for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The value of the annotation that asks for it.
    pub asked: Option<String>,
    /// The due time that had passed, of what is to be found or of the interval.
    pub due: Option<String>,
}

impl Request {
    /// Whether nothing but a second look is wanted.
    #[must_use]
    pub fn is_second_look(&self, catalog: &CatalogStatus) -> bool {
        self.asked.is_none() && self.due.is_none() && catalog.last_refresh_at.is_some()
    }
}

/// Whether a scan is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// No.
    Nothing,
    /// Not before this moment.
    At(Timestamp),
    /// Now.
    Now(Request),
}

/// Whether a snapshot stays in the repository while its object goes, so that a scan has something to find.
#[must_use]
pub fn keeps_data(verdict: Verdict) -> bool {
    match verdict {
        Verdict::Retain(reason) => match reason {
            RetainReason::Policy
            | RetainReason::ScheduleDelete
            | RetainReason::PolicyDelete
            | RetainReason::Unjustified
            | RetainReason::ReplacedRun => true,
            // Another object records it.
            RetainReason::SharedSnapshot => false,
        },
        Verdict::Orphan(reason) => match reason {
            OrphanReason::Skip
            | OrphanReason::NamespaceTerminating
            | OrphanReason::NoPlaceToRun
            | OrphanReason::Policy => true,
            OrphanReason::ApiGoingAway | OrphanReason::RepositoryUnknown => false,
        },
        Verdict::InFlight
        | Verdict::Release(_)
        | Verdict::Wait(_)
        | Verdict::Held(_)
        | Verdict::Delete(_) => false,
    }
}

/// The due time after data was kept at `now`; none if the recorded one is far enough ahead, or was put off for as
/// long as it may be.
#[must_use]
pub fn put_off(recorded: Option<&ScanDue>, now: Timestamp) -> Option<ScanDue> {
    // A due time that has passed may be what a scan under way answers: it says nothing about what is kept now.
    let Some(due) = recorded.filter(|d| d.at > now) else {
        return Some(ScanDue {
            since: now,
            at: now + AHEAD,
        });
    };
    let latest = due.since + LATEST;
    if due.at >= now + QUIET || due.at >= latest {
        return None;
    }
    Some(ScanDue {
        since: due.since,
        at: (now + AHEAD).min(latest),
    })
}

/// After a connection was made: a repository with snapshots that was not listed with these `inputs` is scanned.
#[must_use]
pub fn connected(mut catalog: CatalogStatus, snapshots: u64, changed: bool, now: Timestamp) -> CatalogStatus {
    if snapshots == 0 {
        if catalog.last_refresh_at.is_none() {
            catalog.last_refresh_at = Some(now);
            catalog.discovered_backup_count = Some(0);
        }
    } else if changed {
        let since = catalog.scan_due.as_ref().map_or(now, |d| d.since);
        catalog.scan_due = Some(ScanDue { since, at: now });
    }
    catalog
}

/// Whether a connected repository is to be listed; `asked` is the annotation's value, `every` the time after a
/// listing when the next one is due without a reason of its own.
#[must_use]
pub fn wanted(
    catalog: &CatalogStatus,
    asked: Option<&str>,
    every: Option<SignedDuration>,
    now: Timestamp,
) -> Want {
    let asked = asked.filter(|a| Some(*a) != catalog.scan_request_honored.as_deref());
    let due = catalog.scan_due.as_ref().map(|d| d.at);
    let again = catalog
        .last_refresh_at
        .zip(every)
        .map(|(last, every)| last + every);
    let wanted_at = if asked.is_some() || catalog.last_refresh_at.is_none() {
        Some(now)
    } else {
        // A whole listing is a second look as well.
        [due, catalog.second_look_at, again].into_iter().flatten().min()
    };
    let Some(wanted_at) = wanted_at else {
        return Want::Nothing;
    };
    let patience = match (catalog.failures, asked) {
        (0, _) => SignedDuration::ZERO,
        (n, Some(_)) => backoff(n).min(SignedDuration::from_secs(60)),
        (n, None) => backoff(n),
    };
    let earliest = catalog
        .scan_request_attempt_at
        // An attempt in the future is a clock that was set back.
        .filter(|at| *at <= now)
        .map_or(wanted_at, |at| at + patience);
    let at = wanted_at.max(earliest);
    if at > now {
        return Want::At(at);
    }
    Want::Now(Request {
        asked: asked.map(str::to_owned),
        // What is due for a reason goes first: only a Job that answers it takes it off the record.
        due: [due, again]
            .into_iter()
            .flatten()
            .find(|at| *at <= now)
            .map(|at| at.to_string()),
    })
}

/// 10 s doubling to 10 minutes.
fn backoff(failures: u32) -> SignedDuration {
    SignedDuration::from_secs((10_i64 << failures.saturating_sub(1).min(6)).min(600))
}

/// How a scan ended whose listing was whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settled {
    /// Rows of this repository now.
    pub discovered: usize,
    /// Snapshots that would be rows too, were it not for the bounds.
    pub not_shown: usize,
    /// Snapshots that would be rows too, had they a namespace to be seen in.
    pub unplaced: usize,
    /// What could not be written, in words.
    pub trouble: Option<String>,
    /// Something was left to the next scan.
    pub again: bool,
}

impl Settled {
    /// Whether everything that was listed belongs to an object that is no row.
    #[must_use]
    pub fn is_all_recorded(&self) -> bool {
        self.discovered == 0
            && self.not_shown == 0
            && self.unplaced == 0
            && self.trouble.is_none()
            && !self.again
    }
}

/// The record of a scan that ended at `now`.
#[must_use]
pub fn ended(
    mut catalog: CatalogStatus,
    request: &Request,
    outcome: &Result<Settled, String>,
    now: Timestamp,
) -> CatalogStatus {
    catalog.progress = None;
    catalog.scan_request_attempt_at = Some(now);
    match outcome {
        Ok(settled) => {
            if request.asked.is_some() {
                catalog.scan_request_honored.clone_from(&request.asked);
            }
            catalog.last_refresh_at = Some(now);
            catalog.discovered_backup_count = i64::try_from(settled.discovered).ok();
            catalog.not_shown_count = i64::try_from(settled.not_shown).ok().filter(|n| *n > 0);
            catalog.unplaced_count = i64::try_from(settled.unplaced).ok().filter(|n| *n > 0);
            catalog.last_error.clone_from(&settled.trouble);
            catalog.failures = 0;
            // What was kept while the scan ran has moved the due time, and is not answered.
            let at = catalog.scan_due.as_ref().map(|d| d.at.to_string());
            if at == request.due {
                catalog.scan_due = None;
            }
            if settled.again || settled.trouble.is_some() {
                catalog.scan_due.get_or_insert(ScanDue {
                    since: now,
                    at: now + UNSETTLED,
                });
            }
        }
        // The request stays open and is tried again.
        Err(why) => {
            catalog.last_error = Some(why.clone());
            catalog.failures = catalog.failures.saturating_add(1);
        }
    }
    catalog
}
