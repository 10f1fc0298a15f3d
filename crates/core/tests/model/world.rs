//! The state of the model: what the API server, the physical repository, the mover Jobs and the operator's
//! processes hold. Everything is small and `Copy`, so that a state is one block of memory.
//!
//! **Promises.** A resourceVersion is modelled by what it decides: each copy of an object knows whether it is still
//! the stored one, and every write makes all copies but the writer's old.
//!
//! **Assumes.** One tick of the clock is the quiet window (10 s); all times are whole ticks.

/// Members of the lane.
pub const MEMBERS: usize = 4;
/// Repository objects of the lane.
pub const REPOSITORIES: usize = 2;

/// One bit for each member, repository object or snapshot.
pub type Mask = u8;

/// The repository object a member is pinned to: 0 and 1 to the first, 2 and 3 to the second.
pub fn pin(member: usize) -> usize {
    member / 2
}

/// The snapshot a member records: 2 and 3 record the same one.
pub fn snapshot(member: usize) -> usize {
    member.min(2)
}

/// Members 1 and 2 are owned by the schedule.
pub fn owned(member: usize) -> bool {
    matches!(member, 1 | 2)
}

/// Member 1 keeps its data when the schedule goes, member 2 does not.
pub fn keeps_on_cascade(member: usize) -> bool {
    member == 1
}

/// Member 3 was stamped long ago and never pruned.
pub fn has_old_stamp(member: usize) -> bool {
    member == 3
}

/// The member that records the same snapshot.
pub fn sharer(member: usize) -> Option<usize> {
    match member {
        2 => Some(3),
        3 => Some(2),
        _ => None,
    }
}

pub fn has(mask: Mask, index: usize) -> bool {
    mask >> index & 1 == 1
}

pub fn bit(index: usize) -> Mask {
    1 << index
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Life {
    Live,
    Deleting(u8),
    Gone,
}

/// A Snapshot object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Object {
    pub life: Life,
    pub skip: bool,
    /// Freshly stamped by retention when it was deleted.
    pub pruned: bool,
    /// `DeletionHeld`.
    pub held: bool,
    /// `status.deletion.job`.
    pub claim: Option<JobName>,
    /// `status.deletion.outcome` says that a Job proved the data gone.
    pub confirmed: bool,
    /// `status.deletion.attempts` is not 0.
    pub tried: bool,
    pub next_attempt: u8,
}

impl Object {
    /// Only to be released: proven gone by the Job it names.
    pub fn done(&self) -> bool {
        self.confirmed && self.claim.is_some()
    }

    pub fn deleting(&self) -> Option<u8> {
        match self.life {
            Life::Deleting(at) => Some(at),
            Life::Live | Life::Gone => None,
        }
    }
}

/// Pending members that are only to be released: proven gone, and no Job includes them any more.
pub fn done(objects: &[Object; MEMBERS], riding: Mask) -> Mask {
    (0..MEMBERS)
        .filter(|&m| objects[m].deleting().is_some() && objects[m].done() && !has(riding, m))
        .fold(0, |mask, m| mask | bit(m))
}

/// The annotation `allow-mass-deletion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Note {
    Absent,
    Garbage,
    At(u8),
}

/// The record of an acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Record {
    pub value: u8,
    pub effective: u8,
    pub seen: u8,
}

/// A repository object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Repository {
    pub threshold: u8,
    pub note: Note,
    pub record: Option<Record>,
    pub held_through: Option<u8>,
    pub backoff: u8,
    /// The last Job whose failure was counted.
    pub counted: u8,
    /// A scan is due, for what was kept.
    pub scan_due: bool,
}

/// The schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Schedule {
    Alive,
    Gone,
    /// Created again under the same name.
    Again,
}

/// A Job's name: of the set that was proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct JobName {
    pub repository: u8,
    pub members: Mask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// No container has started.
    Waiting,
    Running,
    /// With the members whose data was read back as gone; none: without an answer.
    Ended(Option<Mask>),
}

/// A batch Job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Job {
    pub name: JobName,
    /// Members that were claimed.
    pub members: Mask,
    /// Its UID.
    pub serial: u8,
    pub phase: Phase,
    /// Members whose data was not there any more when it ended, whatever it answers.
    pub gone: Mask,
    /// Being deleted in the foreground.
    pub leaving: bool,
    /// Members that promise 1 forbids to delete, as the oracle saw it at the live proof.
    pub unjustified: Mask,
    /// The same for promise 2.
    pub unreleased: Mask,
}

/// The lane's lock. Holder 0: it does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    pub holder: u8,
    pub job: Option<JobName>,
}

/// What a process knows from its watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cache {
    pub objects: [Object; MEMBERS],
    /// Whose copy is the stored one.
    pub current: Mask,
    /// When a deletion was first seen, by member.
    pub first_seen: [u8; MEMBERS],
    pub repositories: [Repository; REPOSITORIES],
    pub repositories_current: Mask,
    pub schedule: Schedule,
}

/// A process that leads, or thinks so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    pub term: u8,
    pub cache: Cache,
    pub pass: Option<Pass>,
}

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recording {
    Keep,
    Write(Record),
    Forget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Act {
    Nothing,
    /// The Job of this UID.
    Withdraw(u8),
    Fire(JobName),
}

/// The next request of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Finish(usize),
    Record(usize),
    Mark(usize),
    Kept(usize),
    Release(usize),
    Act,
    Lock,
    Claim(usize),
    Create,
    After(usize),
    SettleRepository,
    SettleMember(usize),
    SettleRelease(usize),
    Reap,
    Unlock,
}

/// A pass that has begun: what it decided and what it still has to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pass {
    pub step: Step,
    pub now: u8,
    /// The copy of the lock is the stored one.
    pub lock_current: bool,
    /// The copies of the repository objects, with what this pass wrote, are the stored ones.
    pub repositories_current: Mask,
    pub recordings: [Recording; REPOSITORIES],
    pub raise: [Option<u8>; REPOSITORIES],
    pub clear: Mask,
    /// Every member judged held.
    pub judged_held: Mask,
    pub mark: Mask,
    pub unclaim: Mask,
    pub release: Mask,
    /// Members that are only to be released.
    pub finish: Mask,
    pub act: Act,
    pub claimed: Mask,
    pub unjustified: Mask,
    pub unreleased: Mask,
    /// The Job that is settled, as it was read.
    pub settles: Option<Job>,
    /// The lock names that Job.
    pub unlock: bool,
    /// Somebody wrote in between: ends without what comes last.
    pub conflict: bool,
}

/// How much more may go wrong on this path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Deeds of people: skip, acknowledgement, threshold, schedule.
    pub deeds: u8,
    /// Crashes and changes of the leader.
    pub crashes: u8,
    /// Movers killed half-way, deletions lost at once or later.
    pub faults: u8,
    /// Passes from an old view.
    pub stale: u8,
}

/// The promises of `docs/design.md` section 8 that a path broke, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Broken(pub u8);

impl Broken {
    pub fn note(&mut self, promise: usize) {
        self.0 |= 1 << promise;
    }

    pub fn is(self, promise: usize) -> bool {
        has(self.0, promise)
    }
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub clock: u8,
    pub objects: [Object; MEMBERS],
    pub repositories: [Repository; REPOSITORIES],
    pub schedule: Schedule,
    /// Snapshots that are in the physical repository.
    pub bytes: Mask,
    pub jobs: [Option<Job>; 2],
    pub lease: Lease,
    pub leader: Process,
    /// The leader before, in the middle of its pass.
    pub former: Option<Process>,
    /// Members that were ever judged held, once that was recorded.
    pub was_held: Mask,
    pub serial: u8,
    pub budget: Budget,
    pub broken: Broken,
}

impl State {
    pub fn job(&self, serial: u8) -> Option<Job> {
        self.jobs
            .iter()
            .flatten()
            .find(|job| job.serial == serial)
            .copied()
    }

    pub fn job_mut(&mut self, serial: u8) -> Option<&mut Job> {
        self.jobs.iter_mut().flatten().find(|job| job.serial == serial)
    }

    pub fn remove_job(&mut self, serial: u8) {
        for slot in &mut self.jobs {
            if slot.is_some_and(|job| job.serial == serial) {
                *slot = None;
            }
        }
    }

    /// A process by its role.
    pub fn process(&mut self, former: bool) -> Option<&mut Process> {
        if former {
            self.former.as_mut()
        } else {
            Some(&mut self.leader)
        }
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        std::iter::once(&mut self.leader).chain(self.former.as_mut())
    }

    /// Changes a Snapshot: every copy is old from here on.
    pub fn change_object(&mut self, member: usize, change: impl FnOnce(&mut Object)) {
        let before = self.objects[member];
        change(&mut self.objects[member]);
        if self.objects[member] != before {
            for process in self.processes() {
                process.cache.current &= !bit(member);
            }
        }
        if self.objects[member].life == Life::Gone {
            self.was_held &= !bit(member);
        }
    }

    /// Changes a repository object: every copy is old from here on.
    pub fn change_repository(&mut self, index: usize, change: impl FnOnce(&mut Repository)) {
        let before = self.repositories[index];
        change(&mut self.repositories[index]);
        if self.repositories[index] != before {
            for process in self.processes() {
                process.cache.repositories_current &= !bit(index);
                if let Some(pass) = &mut process.pass {
                    pass.repositories_current &= !bit(index);
                }
            }
        }
    }

    /// Writes the lock: a pass that read it before meets a conflict.
    pub fn write_lease(&mut self, lease: Lease) {
        self.lease = lease;
        for process in self.processes() {
            if let Some(pass) = &mut process.pass {
                pass.lock_current = false;
            }
        }
    }
}
