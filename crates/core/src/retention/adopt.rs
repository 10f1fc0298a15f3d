//! Which snapshot of a repository a policy may adopt, and what it becomes (`docs/design.md` 3.7).
//!
//! **Promises.** Never one of another cluster, one that an object records, or one that is another's by its identity.
//! What carries nobody's tag is adopted only if it was taken before the policy was made: what came later is of a program
//! that is still at work. What was released without deleting keeps its word: retained or pinned before, it stays so, as does what
//! the repository itself says is pinned; and a policy under which
//! it was let go does not take it back. Where two policies claim one identity neither adopts. A fact that is unknown
//! adopts nothing. The first rule that matches decides.
//!
//! **Assumes.** The listing is whole and of the policy's repository. No repository can opt into the snapshots of another
//! cluster: there is no such field, so there is no such rule.

use crate::deletion::Policy;
use crate::identity::recorded_namespace;

/// Whose tag `holdfast-cluster` a snapshot carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tagged {
    /// This cluster's.
    Ours,
    /// Another one's.
    Another,
    /// None: another tool took it, or a release without tags. That tool may still be at work and keep what it takes.
    Nobody,
}

/// Whether an object records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// None does, or only a row of the catalog.
    Free,
    /// One does, or may (its result is unread), be it live or being deleted.
    ByObject,
    /// It was proven gone and came back: decided as a wave of its own.
    CameBack,
    /// The caches do not tell.
    Unknown,
}

/// What is remembered of its object that was released without deleting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Remembered {
    /// There never was one, as far as is known.
    Nothing,
    /// With this effective policy, pinned or not.
    Released {
        /// Its policy then.
        policy: Policy,
        /// It was pinned.
        pinned: bool,
    },
    /// The memory cannot be read now.
    Unreadable,
}

/// Who took a snapshot, as the repository records it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity<'a> {
    /// User.
    pub username: &'a str,
    /// Host.
    pub hostname: &'a str,
    /// Path of the source.
    pub path: &'a str,
}

/// A snapshot that was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<'a> {
    /// Whose it is by its tag.
    pub tagged: Tagged,
    /// Who records it.
    pub recorded: Recorded,
    /// Who took it.
    pub identity: Identity<'a>,
    /// What is remembered.
    pub remembered: Remembered,
    /// The repository's own record says that it is to be kept.
    pub pinned: bool,
    /// Its object went while the policy that would adopt it was there: taking it back would undo what was done then, and
    /// have retention decide about data that was kept on purpose.
    pub let_go: bool,
    /// It was taken since the policy that would adopt it was made, or nobody knows.
    pub taken_since: bool,
}

/// The policy that would adopt it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adopter<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// The identity of one of its sources.
    pub identity: Identity<'a>,
    /// The repository is a ClusterRepository.
    pub shared: bool,
    /// It grants the policy's namespace other hostnames.
    pub grants_hostname: bool,
    /// What the policy gives to its Snapshots.
    pub policy: Policy,
    /// Another policy claims the same identity.
    pub contested: bool,
}

/// What becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Adoption {
    /// The policy takes it over.
    Adopt {
        /// `spec.deletionPolicy` of its object.
        policy: Policy,
        /// It stays out of retention.
        pinned: bool,
    },
    /// It stays a row of the catalog.
    Leave(Why),
}

/// Why it is not adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Why {
    /// It carries the tag of another cluster.
    OtherCluster,
    /// An object records it.
    AlreadyRecorded,
    /// It was deleted and came back.
    CameBack,
    /// Another source took it.
    OtherIdentity,
    /// In a ClusterRepository a hostname is a namespace: it is another tenant's.
    OtherNamespace,
    /// More than one policy claims its identity.
    Contested,
    /// It was let go under this very policy.
    LetGo,
    /// Another program took it while the policy was there: it is that one's, and that one may still be at work.
    OfAnotherProgram,
    /// Not everything is known: looked at again.
    Unknown,
}

impl Why {
    /// Every one, for tests and the docs.
    pub const ALL: [Self; 9] = [
        Self::OtherCluster,
        Self::AlreadyRecorded,
        Self::CameBack,
        Self::OtherIdentity,
        Self::OtherNamespace,
        Self::Contested,
        Self::LetGo,
        Self::OfAnotherProgram,
        Self::Unknown,
    ];

    /// Its one word.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::OtherCluster => "OtherCluster",
            Self::AlreadyRecorded => "AlreadyRecorded",
            Self::CameBack => "DeletedSnapshotsReappeared",
            Self::OtherIdentity => "OtherIdentity",
            Self::OtherNamespace => "OtherNamespace",
            Self::Contested => "AdoptionContested",
            Self::LetGo => "LetGoUnderPolicy",
            Self::OfAnotherProgram => "OfAnotherProgram",
            Self::Unknown => "AdoptionUnknown",
        }
    }
}

/// Decides about one snapshot and one policy.
#[must_use]
pub fn adopt(found: &Found<'_>, adopter: &Adopter<'_>) -> Adoption {
    not_ours(found)
        .or_else(|| not_free(found))
        .or_else(|| not_its_own(found, adopter))
        .or_else(|| not_to_be_taken_back(found, adopter))
        .map_or_else(|| taken_over(found, adopter.policy), Adoption::Leave)
}

fn not_ours(found: &Found<'_>) -> Option<Why> {
    match found.tagged {
        Tagged::Another => Some(Why::OtherCluster),
        Tagged::Ours | Tagged::Nobody => None,
    }
}

fn not_free(found: &Found<'_>) -> Option<Why> {
    match found.recorded {
        Recorded::Free => None,
        Recorded::ByObject => Some(Why::AlreadyRecorded),
        Recorded::CameBack => Some(Why::CameBack),
        Recorded::Unknown => Some(Why::Unknown),
    }
}

fn not_its_own(found: &Found<'_>, adopter: &Adopter<'_>) -> Option<Why> {
    // What is after a dot is refused below unless the adopter, whose own was asked for, is called so too.
    let whose = recorded_namespace(found.identity.hostname);
    if adopter.shared && !adopter.grants_hostname && whose != adopter.namespace {
        return Some(Why::OtherNamespace);
    }
    (found.identity != adopter.identity).then_some(Why::OtherIdentity)
}

fn not_to_be_taken_back(found: &Found<'_>, adopter: &Adopter<'_>) -> Option<Why> {
    if adopter.contested {
        return Some(Why::Contested);
    }
    if found.let_go {
        return Some(Why::LetGo);
    }
    match found.tagged {
        Tagged::Nobody => found.taken_since.then_some(Why::OfAnotherProgram),
        Tagged::Ours | Tagged::Another => None,
    }
}

/// The stricter of what it was and of what the policy gives; pinned by anybody it stays pinned.
fn taken_over(found: &Found<'_>, given: Policy) -> Adoption {
    match found.remembered {
        Remembered::Unreadable => Adoption::Leave(Why::Unknown),
        Remembered::Nothing => Adoption::Adopt {
            policy: readable(given),
            pinned: found.pinned,
        },
        Remembered::Released { policy, pinned } => Adoption::Adopt {
            policy: match policy {
                Policy::Delete => readable(given),
                Policy::Orphan => Policy::Orphan,
                Policy::Retain | Policy::Unknown => Policy::Retain,
            },
            pinned: pinned || found.pinned,
        },
    }
}

/// A word of a newer release keeps the data.
fn readable(policy: Policy) -> Policy {
    match policy {
        Policy::Unknown => Policy::Retain,
        Policy::Delete | Policy::Retain | Policy::Orphan => policy,
    }
}
