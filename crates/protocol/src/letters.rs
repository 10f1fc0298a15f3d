//! One letter per member of a delete batch (`docs/design.md` 3.6).
//!
//! **Promises.** A string of another length than the batch, or with an unknown letter, confirms nothing.

/// What became of one member. The letter is the wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Letter {
    /// `D`: deleted, and a fresh listing no longer has it.
    Deleted,
    /// `A`: absent from the first listing of the right repository, and from the read-back: already done.
    Absent,
    /// `N`: absent as well, but the member did not record that its snapshot was taken into this repository: it may
    /// be in another one, so its absence here proves nothing.
    NeverSeen,
    /// `F`: could not be deleted; the message's `error` says why for the first of them.
    Failed,
    /// `S`: still listed after the deletion seemed to work.
    StillThere,
    /// `M`: the listed snapshot has another source or start time than the member recorded.
    Mismatch,
    /// `R`: the repository has another unique id; nothing was touched.
    RepositoryReplaced,
    /// `C`: the snapshot carries the tag of another cluster; not touched.
    OtherCluster,
    /// `V`: pruned in favour of snapshots that are not all in the listing; not touched.
    Unjustified,
    /// `P`: retention pruned it, and the repository's own record says that it is to be kept; not touched.
    Pinned,
}

impl Letter {
    /// Every letter, for tables and tests.
    pub const ALL: [Letter; 10] = [
        Letter::Deleted,
        Letter::Absent,
        Letter::NeverSeen,
        Letter::Failed,
        Letter::StillThere,
        Letter::Mismatch,
        Letter::RepositoryReplaced,
        Letter::OtherCluster,
        Letter::Unjustified,
        Letter::Pinned,
    ];

    /// The letter as written.
    #[must_use]
    pub fn to_char(self) -> char {
        match self {
            Letter::Deleted => 'D',
            Letter::Absent => 'A',
            Letter::NeverSeen => 'N',
            Letter::Failed => 'F',
            Letter::StillThere => 'S',
            Letter::Mismatch => 'M',
            Letter::RepositoryReplaced => 'R',
            Letter::OtherCluster => 'C',
            Letter::Unjustified => 'V',
            Letter::Pinned => 'P',
        }
    }

    /// Reads one letter.
    #[must_use]
    pub fn from_char(c: char) -> Option<Self> {
        Self::ALL.into_iter().find(|l| l.to_char() == c)
    }

    /// Whether the member's snapshot is proven gone, so that its finalizer may go.
    #[must_use]
    pub fn confirms(self) -> bool {
        match self {
            Letter::Deleted | Letter::Absent => true,
            Letter::NeverSeen
            | Letter::Failed
            | Letter::StillThere
            | Letter::Mismatch
            | Letter::RepositoryReplaced
            | Letter::OtherCluster
            | Letter::Unjustified
            | Letter::Pinned => false,
        }
    }

    /// The reason word that reaches conditions, events and metrics.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Letter::Deleted => "Deleted",
            Letter::Absent => "AlreadyAbsent",
            Letter::NeverSeen => "NeverSeenHere",
            Letter::Failed => "DeleteFailed",
            Letter::StillThere => "StillListed",
            Letter::Mismatch => "SnapshotMismatch",
            Letter::RepositoryReplaced => "RepositoryReplaced",
            Letter::OtherCluster => "OtherCluster",
            Letter::Unjustified => "KeptSnapshotMissing",
            Letter::Pinned => "PinnedInRepository",
        }
    }
}

/// Writes the letters in member order.
#[must_use]
pub fn write(letters: &[Letter]) -> String {
    letters.iter().map(|l| l.to_char()).collect()
}

/// Reads the letters of a batch of `members`; `None` when the length differs or a letter is unknown.
#[must_use]
pub fn read(text: &str, members: usize) -> Option<Vec<Letter>> {
    let letters: Option<Vec<Letter>> = text.chars().map(Letter::from_char).collect();
    letters.filter(|l| l.len() == members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_of_another_length_confirms_nothing() {
        assert_eq!(read("DD", 3), None);
        assert_eq!(read("DDDD", 3), None);
        assert_eq!(read("", 1), None);
        assert_eq!(
            read("DAF", 3),
            Some(vec![Letter::Deleted, Letter::Absent, Letter::Failed])
        );
    }

    #[test]
    fn an_unknown_letter_confirms_nothing() {
        assert_eq!(read("DXD", 3), None);
    }

    #[test]
    fn every_letter_survives_the_trip() {
        assert_eq!(
            read(&write(&Letter::ALL), Letter::ALL.len()),
            Some(Letter::ALL.to_vec())
        );
    }
}
