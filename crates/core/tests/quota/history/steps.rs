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

/// One step from two numbers: what, and its details. (A union of strategies would make a generator of random numbers
/// for every step, which took most of the time.)
pub fn step() -> impl Strategy<Value = Step> {
    (0_u8..58, any::<u32>()).prop_map(|(what, details)| {
        let mut rest = details as usize;
        let mut take = move |below: usize| {
            let taken = rest % below;
            rest /= below;
            taken
        };
        match what {
            0..=8 => Step::Create {
                namespace: take(2),
                kind: take(6),
                app: take(2),
                dry_run: take(10) == 9,
            },
            9..=12 => Step::SeeJob(take(12)),
            13..=15 => Step::Begin(take(12)),
            16..=21 => Step::Finish {
                job: take(12),
                key: take(4),
                claim: take(105) as i64 - 5,
                shown: take(2) == 1,
            },
            22 => Step::Fail(take(12)),
            23..=24 => Step::DeleteJob {
                job: take(12),
                shown: take(2) == 1,
            },
            25..=26 => Step::Claim {
                backup: take(12),
                claim: take(105) as i64 - 5,
            },
            27 => Step::Move {
                backup: take(12),
                key: take(4),
            },
            28..=31 => Step::DeleteBackup {
                backup: take(12),
                shown: take(2) == 1,
                kept: take(10) == 9,
            },
            32..=34 => Step::Evidence(take(12)),
            35..=36 => Step::Prune(take(12)),
            37..=46 => Step::List { whole: take(10) != 9 },
            47 => Step::Approve,
            48..=49 => Step::WriteOff(take(12)),
            50 => Step::Die(take(4)),
            51..=54 => Step::Wait(match take(4) {
                3 => 1000 + take(199_000) as i64,
                _ => 1 + take(89) as i64,
            }),
            _ => Step::Remake(take(2)),
        }
    })
}
