//! A delete Job that ends without an answer (`docs/design.md` 3.6): one Snapshot that no mover survives is found by
//! halving, so that it does not keep the others of its batch waiting for ever.
//!
//! **Promises.** After two silent ends in a row at one size the next batches are half as large, until two of them in a
//! row were answered: the one that is looked for is among the oldest, so it is in the first or in the second of them.
//! A Snapshot that was alone in a batch twice answers for itself from then on: it rides alone, and its failure is its
//! own.
//!
//! **Assumes.** Only Jobs whose container ran and left nothing to read are told here; one that could not start says
//! nothing about its members. An answer is an answer, whatever it says.

/// Silent ends in a row at one size, after which the size is halved.
const PATIENCE: u32 = 2;

/// What is remembered of silent ends: `status.deletionProtection.jobs {unanswered, mostMembers}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Silent {
    /// In a row, at the present size.
    pub times: u32,
    /// Most members of the next batch; none: as many as the settings allow.
    pub most_members: Option<u32>,
}

/// What follows from a silent end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Follows {
    /// The same size is tried again.
    Again(Silent),
    /// Smaller batches are tried.
    Halved(Silent),
    /// It was one member alone: the failure is that member's as well.
    Alone(Silent),
}

impl Follows {
    /// What is to be remembered.
    #[must_use]
    pub fn record(self) -> Silent {
        match self {
            Self::Again(silent) | Self::Halved(silent) | Self::Alone(silent) => silent,
        }
    }
}

/// A Job of so many members ended silently. `known` says that its one member is known to ride alone.
#[must_use]
pub fn silent(before: Silent, members: usize, known: bool) -> Follows {
    let times = before.times.saturating_add(1);
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    if members <= 1 {
        return if known || times >= PATIENCE {
            // Found: the others need no small batches any more.
            Follows::Alone(Silent::default())
        } else {
            Follows::Again(Silent { times, ..before })
        };
    }
    if times < PATIENCE {
        return Follows::Again(Silent { times, ..before });
    }
    Follows::Halved(Silent {
        times: 0,
        // Two of them cover the whole.
        most_members: Some(members.div_ceil(2)),
    })
}

/// A Job was answered; `first`: the first since a silent end.
#[must_use]
pub fn answered(before: Silent, first: bool) -> Silent {
    if first {
        Silent { times: 0, ..before }
    } else {
        Silent::default()
    }
}
