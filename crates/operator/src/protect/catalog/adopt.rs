//! Which policy takes over what belongs to no object: pure.
//!
//! **Promises.** The rule is `holdfast_core::retention::adopt`, asked for each snapshot and the policy that backs up
//! exactly what it is of. What retention would let go at once is left alone, whatever its deletion policy: taking over
//! makes nothing a candidate for deletion, and what would stay in the repository is not found and adopted for ever.
//!
//! **Assumes.** What is asked about belongs to no object but a row, and no delete Job may have deleted it meanwhile.

use super::adopted;
use super::known::{Doubt, Word};
use crate::protect::policy;
use crate::protect::wave::kept::LetGo;
use crate::world::World;
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use holdfast_api::SnapshotPolicy;
use holdfast_api::shared::{AdoptionMode, DeletionPolicy};
use holdfast_core::deletion::Policy;
use holdfast_core::retention::adopt::{
    Adopter, Adoption, Found, Identity, Recorded, Remembered, Tagged, Why, adopt,
};
use holdfast_core::retention::retain;
use holdfast_protocol::chunks::ListedSnapshot;
use holdfast_protocol::work::Source;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Whether a policy adopts from a repository: its own word, else the repository's, else yes.
#[must_use]
pub fn adoption_mode(policy: &SnapshotPolicy, repository: &RepositoryView) -> AdoptionMode {
    let catalog = repository.spec.catalog.as_ref();
    let theirs = || catalog.and_then(|catalog| catalog.adoption);
    let said = policy.spec.adoption.or_else(theirs);
    said.unwrap_or(AdoptionMode::Adopt)
}

/// A policy that adopts.
#[derive(Debug, Clone)]
pub struct Claimant {
    /// It.
    pub policy: Arc<SnapshotPolicy>,
    /// What it backs up.
    pub source: Source,
    /// Its Snapshots.
    pub has: Vec<Arc<SnapshotView>>,
}

impl Claimant {
    fn key(&self) -> ObjectKey {
        ObjectKey::of(self.policy.as_ref())
    }

    fn uid(&self) -> Option<&str> {
        self.policy.metadata.uid.as_deref()
    }
}

/// The policies of a repository object that adopt from it.
#[must_use]
pub fn claimants(world: &World, repository: &RepositoryView) -> Vec<Claimant> {
    let policies = world.policies_naming(&repository.key).into_iter();
    let those = policies.filter(|policy| {
        policy.metadata.deletion_timestamp.is_none()
            && holdfast_api::validate::policy(&policy.spec).is_empty()
            && adoption_mode(policy, repository) == AdoptionMode::Adopt
    });
    those
        .filter_map(|policy| {
            let key = ObjectKey::of(policy.as_ref());
            let source = policy::source(world, &key, &policy)?;
            Some(Claimant {
                source,
                has: world.snapshots_of_policy(&key),
                policy,
            })
        })
        .collect()
}

/// One snapshot that a policy takes over.
#[derive(Debug, Clone)]
pub struct Taken<'a> {
    /// The snapshot.
    pub listed: &'a ListedSnapshot,
    /// The policy.
    pub policy: Arc<SnapshotPolicy>,
    /// `spec.deletionPolicy` of its object.
    pub gives: DeletionPolicy,
    /// `spec.pin` of its object.
    pub pinned: bool,
}

/// What adoption comes to for one policy.
#[derive(Debug, Clone)]
pub struct Told {
    /// The policy.
    pub policy: Arc<SnapshotPolicy>,
    /// Snapshots that it takes over now.
    pub taken: usize,
    /// Snapshots that are left alone because retention would let them go at once.
    pub skipped: usize,
    /// The other policies that claim the same identity, where there is something to adopt.
    pub contested_with: BTreeSet<String>,
    /// Why nothing is adopted for now, where there is something to adopt.
    pub held: Option<Held>,
}

/// Why a policy adopts nothing for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// Something that was let go is not remembered.
    MemoryIncomplete,
    /// This object has no status (true: for good, as it seems), so that what is found may be what it had.
    NoStatus(ObjectKey, bool),
    /// This object records a snapshot that is not listed, and not when it was begun: what is found may be the same.
    Renamed(ObjectKey),
}

impl Held {
    /// Whether it ends by itself within moments, so that the next scan is to look again.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        match self {
            Self::NoStatus(_, lost) => !lost,
            Self::MemoryIncomplete | Self::Renamed(_) => false,
        }
    }
}

/// What a scan knows about adoption.
pub struct Facts<'a> {
    /// The repository object.
    pub repository: &'a RepositoryView,
    /// The policies that adopt from it.
    pub claimants: &'a [Claimant],
    /// What was let go while its data stayed.
    pub let_go: &'a LetGo,
    /// Something that was let go is not remembered.
    pub incomplete: bool,
    /// UID of this cluster.
    pub cluster: &'a str,
    /// Now.
    pub now: Timestamp,
}

/// Decides about every snapshot of `free`; answers for every policy, whether it adopts something or not. `words` is what
/// people wrote on the row of one: it goes along; `doubt` is what is not known.
#[must_use]
pub fn decide<'a>(
    facts: &Facts<'_>,
    free: &[&'a ListedSnapshot],
    words: impl Fn(&str) -> Word,
    doubt: &Doubt,
) -> (Vec<Taken<'a>>, Vec<Told>) {
    let mut of: HashMap<&Source, Vec<usize>> = HashMap::new();
    for (n, claimant) in facts.claimants.iter().enumerate() {
        of.entry(&claimant.source).or_default().push(n);
    }
    let mut taken: BTreeMap<usize, Vec<Taken<'a>>> = BTreeMap::new();
    let mut told: Vec<Told> = facts
        .claimants
        .iter()
        .map(|claimant| Told {
            policy: Arc::clone(&claimant.policy),
            taken: 0,
            skipped: 0,
            contested_with: BTreeSet::new(),
            held: None,
        })
        .collect();
    for listed in free {
        let claim = of.get(&listed.source).map(Vec::as_slice).unwrap_or_default();
        let said = words(&listed.snapshot_id);
        for n in claim {
            let claimant = &facts.claimants[*n];
            let held = doubt.about(&claimant.key(), &claimant.source);
            match judge(facts, claimant, listed, claim.len() > 1, held.is_some()) {
                Adoption::Adopt { policy, pinned } => taken.entry(*n).or_default().push(Taken {
                    listed,
                    policy: Arc::clone(&facts.claimants[*n].policy),
                    gives: said.with(word(policy)),
                    pinned: pinned || said.pin,
                }),
                Adoption::Leave(Why::Contested) => {
                    let others = claim.iter().filter(|other| *other != n);
                    let names = others.map(|other| facts.claimants[*other].key().to_string());
                    told[*n].contested_with.extend(names);
                }
                Adoption::Leave(Why::Unknown) => {
                    told[*n].held = Some(held.cloned().unwrap_or(Held::MemoryIncomplete));
                }
                Adoption::Leave(
                    Why::OtherCluster
                    | Why::AlreadyRecorded
                    | Why::CameBack
                    | Why::OtherIdentity
                    | Why::OtherNamespace
                    | Why::LetGo
                    | Why::OfAnotherProgram,
                ) => {}
            }
        }
    }
    let mut all = Vec::new();
    for (n, mut those) in taken {
        let let_go = gone_at_once(facts, &facts.claimants[n], &those);
        let before = those.len();
        those.retain(|one| !let_go.contains(one.listed.snapshot_id.as_str()));
        told[n].skipped = before - those.len();
        told[n].taken = those.len();
        all.extend(those);
    }
    (all, told)
}

fn judge(
    facts: &Facts<'_>,
    claimant: &Claimant,
    listed: &ListedSnapshot,
    contested: bool,
    doubted: bool,
) -> Adoption {
    let tagged = match listed.cluster.as_deref() {
        None => Tagged::Nobody,
        Some(cluster) if cluster == facts.cluster => Tagged::Ours,
        Some(_) => Tagged::Another,
    };
    let entry = facts.let_go.get(listed);
    let remembered = if facts.incomplete {
        Remembered::Unreadable
    } else {
        entry
            .as_ref()
            .map_or(Remembered::Nothing, |entry| Remembered::Released {
                policy: read(entry.policy),
                pinned: entry.pinned,
            })
    };
    let found = Found {
        tagged,
        recorded: if doubted {
            Recorded::Unknown
        } else {
            Recorded::Free
        },
        identity: identity(&listed.source),
        remembered,
        pinned: listed.pinned,
        taken_since: taken_since(claimant, listed),
        let_go: was_let_go(
            claimant,
            listed,
            tagged,
            entry.as_ref().and_then(|entry| entry.under.as_deref()),
        ),
    };
    let key = claimant.key();
    let adopter = Adopter {
        namespace: &key.namespace,
        identity: identity(&claimant.source),
        shared: match facts.repository.key {
            RepositoryKey::Repository { .. } => false,
            RepositoryKey::ClusterRepository { .. } => true,
        },
        // There is no field for it.
        grants_hostname: false,
        policy: read(claimant.policy.spec.default_deletion_policy),
        contested,
    };
    adopt(&found, &adopter)
}

/// Whether its object went while this policy was there: it is remembered, or it was taken for an object here since the
/// policy was made, and that object is gone without a memory.
fn was_let_go(claimant: &Claimant, listed: &ListedSnapshot, tagged: Tagged, under: Option<&str>) -> bool {
    let taken_under_it = match tagged {
        Tagged::Ours => taken_since(claimant, listed),
        Tagged::Another | Tagged::Nobody => false,
    };
    taken_under_it || (under.is_some() && under == claimant.uid())
}

/// Whether it was taken since the policy was made, as far as is known.
fn taken_since(claimant: &Claimant, listed: &ListedSnapshot) -> bool {
    let made = claimant.policy.metadata.creation_timestamp.as_ref();
    made.is_none_or(|made| listed.start_time >= made.0)
}

/// Ids of those that retention would let go at once.
fn gone_at_once(facts: &Facts<'_>, claimant: &Claimant, those: &[Taken<'_>]) -> BTreeSet<String> {
    let keep = claimant.policy.spec.retention.as_ref().map(policy::keep);
    let mut all = policy::counted(&claimant.has, facts.now);
    for one in those {
        all.extend(policy::completed(
            &adopted::view(facts.repository, one),
            facts.now,
        ));
    }
    let pruned: BTreeSet<String> = retain(&all, keep.as_ref()).prune.into_iter().collect();
    let ids = those.iter().map(|one| one.listed.snapshot_id.clone());
    ids.filter(|id| pruned.contains(&adopted::uid(id))).collect()
}

fn identity(source: &Source) -> Identity<'_> {
    Identity {
        username: &source.username,
        hostname: &source.hostname,
        path: &source.path,
    }
}

fn read(policy: DeletionPolicy) -> Policy {
    match policy {
        DeletionPolicy::Delete => Policy::Delete,
        DeletionPolicy::Retain => Policy::Retain,
        DeletionPolicy::Orphan => Policy::Orphan,
        DeletionPolicy::Unknown => Policy::Unknown,
    }
}

fn word(policy: Policy) -> DeletionPolicy {
    match policy {
        Policy::Delete => DeletionPolicy::Delete,
        Policy::Orphan => DeletionPolicy::Orphan,
        Policy::Retain | Policy::Unknown => DeletionPolicy::Retain,
    }
}
