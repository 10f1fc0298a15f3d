//! The rules of `docs/design.md` 3.3 as a table without an order.
//!
//! **Promises.** Each combination of columns matches exactly one alternative of exactly one row ([`the_row`]
//! insists on it), so no row takes precedence over another. What a row does not name, it does not care about.
//!
//! **Assumes** [`Columns`].

use super::columns::{Asker, Columns, Home, Others, Room, Run, Schedule, Store};
use holdfast_core::deletion::{OrphanReason, Policy, ReleaseReason, RetainReason, Rule, Verdict, Wait};

/// One demand on one column.
#[derive(Debug, Clone, Copy)]
pub enum Is {
    Riding(bool),
    Skip(bool),
    Uninstall(bool),
    Run(Run),
    Home(&'static [Home]),
    Room(Room),
    Asker(&'static [Asker]),
    Policy(Policy),
    Schedule(Schedule),
    Others(Others),
    Store(Store),
}

impl Is {
    fn true_of(self, columns: &Columns) -> bool {
        match self {
            Self::Riding(value) => columns.riding == value,
            Self::Skip(value) => columns.skip == value,
            Self::Uninstall(value) => columns.uninstall == value,
            Self::Run(value) => columns.run == value,
            Self::Home(values) => values.contains(&columns.home),
            Self::Room(value) => columns.room == value,
            Self::Asker(values) => values.contains(&columns.asker),
            Self::Policy(value) => columns.policy == value,
            Self::Schedule(value) => columns.schedule == value,
            Self::Others(value) => columns.others == value,
            Self::Store(value) => columns.store == value,
        }
    }
}

/// What a row says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// This and nothing else.
    Is(Verdict),
    /// It is ours to delete, and the breaker has no say.
    Prune,
    /// The breaker says.
    AskBreaker,
}

/// One row: the demands of every group of one alternative have to be met.
pub struct Row {
    pub rule: Rule,
    pub says: Says,
    pub when: &'static [&'static [&'static [Is]]],
}

const fn row(rule: Rule, verdict: Verdict, when: &'static [&'static [&'static [Is]]]) -> Row {
    Row {
        rule,
        says: Says::Is(verdict),
        when,
    }
}

/// Nobody works on it, and nobody said to leave it alone.
const OPEN: &[Is] = &[Is::Riding(false), Is::Skip(false), Is::Uninstall(false)];
/// There is something to delete.
const WRITTEN: &[Is] = &[Is::Run(Run::Written)];
/// The teardown of its namespace does not keep it.
const NOT_KEPT_BY_HOME: &[Is] = &[Is::Home(&[Home::Stays, Home::OptedIn])];
/// There is something to delete and a place to do it from.
const POSSIBLE: &[Is] = &[
    Is::Run(Run::Written),
    Is::Home(&[Home::Stays, Home::OptedIn]),
    Is::Room(Room::Fine),
];
const EXTERNAL: &[Is] = &[Is::Asker(&[Asker::External])];
/// What was held is as an external one, whoever asks for it now.
const AS_EXTERNAL: &[Is] = &[Is::Asker(&[Asker::External, Asker::LatchedPrune])];
/// Stamped by us, and the stamp counts.
const OURS: &[Is] = &[Is::Asker(&[
    Asker::Prune,
    Asker::LatchedPrune,
    Asker::PolicyWent,
    Asker::Replaced,
    Asker::VoidPrune,
])];
const PRUNE: &[Is] = &[Is::Asker(&[Asker::Prune])];
const DELETE: &[Is] = &[Is::Policy(Policy::Delete)];
/// An external deletion of data that its schedule could keep.
const ASK_SCHEDULE: &[Is] = &[
    Is::Asker(&[Asker::External, Asker::LatchedPrune]),
    Is::Policy(Policy::Delete),
    Is::Home(&[Home::Stays]),
];
/// An external deletion that its schedule does not keep.
const SCHEDULE_SILENT: &[Is] = &[Is::Home(&[Home::Stays]), Is::Schedule(Schedule::Silent)];
/// An external deletion of which its schedule is not asked.
const TEARDOWN: &[Is] = &[Is::Home(&[Home::OptedIn])];

/// The three ways in which a wish to delete gets as far as the repository.
macro_rules! wishes {
    ($($more:expr),+) => {
        &[
            &[OPEN, POSSIBLE, DELETE, AS_EXTERNAL, SCHEDULE_SILENT, $($more),+],
            &[OPEN, POSSIBLE, DELETE, AS_EXTERNAL, TEARDOWN, $($more),+],
            &[OPEN, POSSIBLE, DELETE, PRUNE, $($more),+],
        ]
    };
}

const NOT_SHARED: &[Is] = &[Is::Others(Others::None)];

/// The table.
pub const ROWS: &[Row] = &[
    row(Rule::InFlight, Verdict::InFlight, &[&[&[Is::Riding(true)]]]),
    row(
        Rule::Skip,
        Verdict::Orphan(OrphanReason::Skip),
        &[&[&[Is::Riding(false), Is::Skip(true)]]],
    ),
    row(
        Rule::ApiGoingAway,
        Verdict::Orphan(OrphanReason::ApiGoingAway),
        &[&[&[Is::Riding(false), Is::Skip(false), Is::Uninstall(true)]]],
    ),
    row(
        Rule::NothingRecorded,
        Verdict::Release(ReleaseReason::NothingRecorded),
        &[&[OPEN, &[Is::Run(Run::Nothing)]]],
    ),
    row(
        Rule::NothingRecorded,
        Verdict::Wait(Wait::OwnMoverRunning),
        &[&[OPEN, &[Is::Run(Run::Running)]]],
    ),
    row(
        Rule::NothingRecorded,
        Verdict::Wait(Wait::OwnResultUnread),
        &[&[OPEN, &[Is::Run(Run::Unread)]]],
    ),
    row(
        Rule::NothingRecorded,
        Verdict::Wait(Wait::OwnMoverUnknown),
        &[&[OPEN, &[Is::Run(Run::Unclear)]]],
    ),
    row(
        Rule::Namespace,
        Verdict::Orphan(OrphanReason::NamespaceTerminating),
        &[&[OPEN, WRITTEN, &[Is::Home(&[Home::TornDown])]]],
    ),
    row(
        Rule::Namespace,
        Verdict::Orphan(OrphanReason::NoPlaceToRun),
        &[&[OPEN, WRITTEN, NOT_KEPT_BY_HOME, &[Is::Room(Room::None)]]],
    ),
    row(
        Rule::Namespace,
        Verdict::Wait(Wait::PlaceUnknown),
        &[&[OPEN, WRITTEN, NOT_KEPT_BY_HOME, &[Is::Room(Room::Unclear)]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Retain(RetainReason::Policy),
        &[&[OPEN, POSSIBLE, OURS, &[Is::Policy(Policy::Retain)]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Orphan(OrphanReason::Policy),
        &[&[OPEN, POSSIBLE, OURS, &[Is::Policy(Policy::Orphan)]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Wait(Wait::PolicyUnreadable),
        &[&[OPEN, POSSIBLE, OURS, &[Is::Policy(Policy::Unknown)]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Retain(RetainReason::PolicyDelete),
        &[&[OPEN, POSSIBLE, DELETE, &[Is::Asker(&[Asker::PolicyWent])]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Retain(RetainReason::Unjustified),
        &[&[OPEN, POSSIBLE, DELETE, &[Is::Asker(&[Asker::VoidPrune])]]],
    ),
    row(
        Rule::OwnStamp,
        Verdict::Retain(RetainReason::ReplacedRun),
        &[&[OPEN, POSSIBLE, DELETE, &[Is::Asker(&[Asker::Replaced])]]],
    ),
    row(
        Rule::ScheduleGuard,
        Verdict::Retain(RetainReason::ScheduleDelete),
        &[&[OPEN, POSSIBLE, ASK_SCHEDULE, &[Is::Schedule(Schedule::Keeps)]]],
    ),
    row(
        Rule::ScheduleGuard,
        Verdict::Wait(Wait::OwnerUnknown),
        &[&[OPEN, POSSIBLE, ASK_SCHEDULE, &[Is::Schedule(Schedule::Unclear)]]],
    ),
    row(
        Rule::ScheduleGuard,
        Verdict::Wait(Wait::CascadeUnreadable),
        &[&[
            OPEN,
            POSSIBLE,
            ASK_SCHEDULE,
            &[Is::Schedule(Schedule::Unreadable)],
        ]],
    ),
    row(
        Rule::Policy,
        Verdict::Retain(RetainReason::Policy),
        &[&[OPEN, POSSIBLE, EXTERNAL, &[Is::Policy(Policy::Retain)]]],
    ),
    row(
        Rule::Policy,
        Verdict::Orphan(OrphanReason::Policy),
        &[&[OPEN, POSSIBLE, EXTERNAL, &[Is::Policy(Policy::Orphan)]]],
    ),
    row(
        Rule::Policy,
        Verdict::Wait(Wait::PolicyUnreadable),
        &[&[OPEN, POSSIBLE, EXTERNAL, &[Is::Policy(Policy::Unknown)]]],
    ),
    row(
        Rule::SharedOrUnknown,
        Verdict::Retain(RetainReason::SharedSnapshot),
        wishes!(&[Is::Others(Others::Live)]),
    ),
    row(
        Rule::SharedOrUnknown,
        Verdict::Wait(Wait::SharingUnknown),
        wishes!(&[Is::Others(Others::Unclear)]),
    ),
    row(
        Rule::SharedOrUnknown,
        Verdict::Orphan(OrphanReason::RepositoryUnknown),
        wishes!(NOT_SHARED, &[Is::Store(Store::Gone)]),
    ),
    row(
        Rule::SharedOrUnknown,
        Verdict::Wait(Wait::RepositoryUnreadable),
        wishes!(NOT_SHARED, &[Is::Store(Store::Unreadable)]),
    ),
    row(
        Rule::SharedOrUnknown,
        Verdict::Wait(Wait::RepositoryMismatch),
        wishes!(NOT_SHARED, &[Is::Store(Store::Other)]),
    ),
    Row {
        rule: Rule::OwnStamp,
        says: Says::Prune,
        when: &[&[
            OPEN,
            POSSIBLE,
            DELETE,
            PRUNE,
            NOT_SHARED,
            &[Is::Store(Store::Here)],
        ]],
    },
    Row {
        rule: Rule::Breaker,
        says: Says::AskBreaker,
        when: &[
            &[
                OPEN,
                POSSIBLE,
                DELETE,
                AS_EXTERNAL,
                SCHEDULE_SILENT,
                NOT_SHARED,
                &[Is::Store(Store::Here)],
            ],
            &[
                OPEN,
                POSSIBLE,
                DELETE,
                AS_EXTERNAL,
                TEARDOWN,
                NOT_SHARED,
                &[Is::Store(Store::Here)],
            ],
        ],
    },
];

/// The one row of `columns`.
pub fn the_row(columns: &Columns) -> &'static Row {
    let mut found = None;
    for row in ROWS {
        for alternative in row.when {
            if alternative
                .iter()
                .all(|group| group.iter().all(|is| is.true_of(columns)))
            {
                assert!(found.is_none(), "two rows match {columns:?}");
                found = Some(row);
            }
        }
    }
    found.unwrap_or_else(|| panic!("no row matches {columns:?}"))
}
