//! What can happen.

use proptest::prelude::*;

#[derive(Debug, Clone)]
pub enum Step {
    /// Somebody asks for a backup.
    Create {
        namespace: usize,
        kind: usize,
        app: usize,
        dry_run: bool,
    },
    /// The watch shows a job.
    SeeJob(usize),
    /// A run begins.
    Begin(usize),
    /// A run ends well: bytes, then a Backup, then `Succeeded`.
    Finish {
        job: usize,
        key: usize,
        claim: i64,
        shown: bool,
    },
    /// A run fails.
    Fail(usize),
    /// A BackupJob is deleted; the watch may miss it.
    DeleteJob { job: usize, shown: bool },
    /// A Backup's size changes.
    Claim { backup: usize, claim: i64 },
    /// A Backup names another place.
    Move { backup: usize, key: usize },
    /// A Backup is deleted; the watch may miss it.
    DeleteBackup { backup: usize, shown: bool, kept: bool },
    /// A driver speaks about a deletion; what it says is true.
    Evidence(usize),
    /// A driver, or somebody, deletes bytes behind our back.
    Prune(usize),
    /// The store is listed.
    List { whole: bool },
    /// An administrator allows what waits.
    Approve,
    /// An administrator writes a record off.
    WriteOff(usize),
    /// The operator dies after this many writes of the next step, and starts again.
    Die(usize),
    /// Time passes.
    Wait(i64),
    /// A namespace is made again under its name.
    Remake(usize),
}

pub fn step() -> impl Strategy<Value = Step> {
    let index = 0_usize..12;
    let key = 0_usize..4;
    prop_oneof![
        9 => (0_usize..2, 0_usize..6, 0_usize..2, prop::bool::weighted(0.1))
            .prop_map(|(namespace, kind, app, dry_run)| Step::Create { namespace, kind, app, dry_run }),
        4 => index.clone().prop_map(Step::SeeJob),
        3 => index.clone().prop_map(Step::Begin),
        6 => (index.clone(), key.clone(), -5_i64..100, any::<bool>())
            .prop_map(|(job, key, claim, shown)| Step::Finish { job, key, claim, shown }),
        1 => index.clone().prop_map(Step::Fail),
        2 => (index.clone(), any::<bool>()).prop_map(|(job, shown)| Step::DeleteJob { job, shown }),
        2 => (index.clone(), -5_i64..100).prop_map(|(backup, claim)| Step::Claim { backup, claim }),
        1 => (index.clone(), key.clone()).prop_map(|(backup, key)| Step::Move { backup, key }),
        4 => (index.clone(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(backup, shown, kept)| Step::DeleteBackup { backup, shown, kept }),
        3 => index.clone().prop_map(Step::Evidence),
        2 => index.clone().prop_map(Step::Prune),
        9 => prop::bool::weighted(0.9).prop_map(|whole| Step::List { whole }),
        1 => Just(Step::Approve),
        2 => index.prop_map(Step::WriteOff),
        1 => (0_usize..4).prop_map(Step::Die),
        2 => prop_oneof![3 => 1_i64..90, 1 => 1000_i64..200_000].prop_map(Step::Wait),
        1 => (0_usize..2).prop_map(Step::Remake),
    ]
}
