//! From decisions to what a person wants to know: how many are deleted, held, kept, and why.
//!
//! **Promises.** Reasons, rules and sentences are those of conditions and docs. Every Snapshot that would be deleted
//! is counted exactly once.

use std::collections::{BTreeMap, HashMap};

use anyhow::Result;
use holdfast_core::deletion::messages::describe;
use holdfast_core::deletion::{Decision, DeleteReason, RepositoryKey, RepositoryPlan, Verdict, Wait};
use holdfast_operator::protect::wave::foresee::WORDS;
use jiff::Timestamp;
use serde::Serialize;

use super::simulate;
use crate::cluster::{Cluster, Foreseen};
use crate::target::Target;
use crate::waves::without_commands;

/// What becomes of the data of a Snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// Gone from the repository.
    Deleted,
    /// Held by the breaker until a person decides.
    Held,
    /// The object goes, the data stays (or there is none).
    Kept,
    /// Nothing happens until something else does.
    Waits,
    /// Not to be told with what can be read.
    Unknown,
}

impl Outcome {
    /// Every outcome, in the order of tables.
    pub const ALL: [Self; 5] = [Self::Deleted, Self::Held, Self::Kept, Self::Waits, Self::Unknown];

    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Held => "held",
            Self::Kept => "kept",
            Self::Waits => "waits",
            Self::Unknown => "unknown",
        }
    }
}

/// Snapshots with the same outcome for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What becomes of the data.
    pub outcome: Outcome,
    /// How many.
    pub count: usize,
    /// Logical bytes of those whose size is known.
    pub bytes: i64,
    /// How many have no known size.
    pub unknown_size: usize,
    /// Number of the rule that decides; 0 before rule 1.
    pub rule: u8,
    /// Its name.
    pub rule_name: &'static str,
    /// The reason's word, as in conditions and docs.
    pub reason: &'static str,
    /// What the operator would write about one of them.
    pub message: String,
    /// They, as namespace/name.
    pub snapshots: Vec<String>,
}

/// What happens in one repository object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Which; none: Snapshots that belong to no repository that is there.
    pub repository: Option<String>,
    /// At how many pending deletions everything is held; 0: never.
    pub threshold: Option<u32>,
    /// How many would count.
    pub pending: usize,
    /// More may count that cannot be read.
    pub at_least: bool,
    /// Those that this deletion deletes.
    pub asked: Vec<Row>,
    /// Those that are being deleted already.
    pub already: Vec<Row>,
    /// What a person would have to do for what is held to be deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_release: Option<String>,
}

/// Everything there is to tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// What would be deleted.
    pub delete: String,
    /// How many Snapshots would be deleted with it.
    pub snapshots: usize,
    /// How many of them come to which end.
    pub totals: BTreeMap<&'static str, usize>,
    /// Repository by repository.
    pub repositories: Vec<Part>,
    /// What else there is to know, and what could not be read.
    pub notes: Vec<String>,
}

/// What would happen if `target` were deleted now.
pub fn forecast(mut cluster: Cluster, target: &Target, now: Timestamp) -> Result<Forecast> {
    cluster.record(now)?;
    let after = simulate::delete(&cluster, target, now)?;
    let mut told = Told::new(&cluster, &after, now)?;
    for foreseen in after.cluster.foresee(now)? {
        told.lane(&after.cluster, &foreseen);
    }
    let (mut repositories, unguarded) = told.parts();
    repositories.retain(|part| !(part.asked.is_empty() && part.already.is_empty()));
    let mut totals: BTreeMap<&'static str, usize> =
        Outcome::ALL.iter().map(|outcome| (outcome.word(), 0)).collect();
    for row in repositories.iter().flat_map(|part| &part.asked) {
        *totals.entry(row.outcome.word()).or_default() += row.count;
    }
    let mut notes = after.cluster.notes.clone();
    notes.extend(remarks(&after.cluster, target, &repositories, unguarded));
    Ok(Forecast {
        delete: target.to_string(),
        snapshots: after.asked.len(),
        totals,
        repositories,
        notes,
    })
}

/// The word for a decision. `partly`: others may count against the threshold that cannot be read.
pub fn outcome(decision: &Decision, partly: bool) -> Outcome {
    let wait = match decision.verdict {
        Verdict::InFlight => return Outcome::Deleted,
        Verdict::Held(_) => return Outcome::Held,
        Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) => return Outcome::Kept,
        Verdict::Delete(DeleteReason::BelowThreshold) if partly => return Outcome::Unknown,
        Verdict::Delete(_) => match decision.not_yet {
            Some(wait) => wait,
            None => return Outcome::Deleted,
        },
        Verdict::Wait(wait) => wait,
    };
    match wait {
        // Its turn comes by itself.
        Wait::QuietWindow(_)
        | Wait::BatchLive
        | Wait::JobNotStarted
        | Wait::Withdrawing
        | Wait::JobCapReached
        | Wait::NextBatch
        | Wait::RidesAlone
        | Wait::BackingOff(_)
        | Wait::RepositoryBackingOff(_) => Outcome::Deleted,
        Wait::CacheCold
        | Wait::OwnMoverUnknown
        | Wait::PlaceUnknown
        | Wait::OwnerUnknown
        | Wait::SharingUnknown
        | Wait::RepositoryUnreadable
        | Wait::NamespaceUnreadable => Outcome::Unknown,
        Wait::ForeignManager
        | Wait::OwnMoverRunning
        | Wait::OwnResultUnread
        | Wait::PolicyUnreadable
        | Wait::CascadeUnreadable
        | Wait::SharedWithPending
        | Wait::RepositoryMismatch
        | Wait::SourceNotRecorded
        | Wait::RepositoryNotConnected
        | Wait::RepositorySuspended
        | Wait::DeletionsPaused
        | Wait::MemberTooLarge => Outcome::Waits,
    }
}

/// The word for why: of the verdict where its turn comes by itself.
fn reason(decision: &Decision, outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Deleted => decision.verdict.reason(),
        Outcome::Held | Outcome::Kept | Outcome::Waits | Outcome::Unknown => decision.reason(),
    }
}

type Group = (Outcome, &'static str);

struct Told<'a> {
    after: &'a simulate::Simulated,
    /// Logical bytes of each Snapshot whose size is known.
    sizes: HashMap<String, i64>,
    parts: BTreeMap<Option<RepositoryKey>, Sums>,
    /// What would become of those that are being deleted already if nothing else were.
    otherwise: HashMap<String, (Outcome, &'static str)>,
    /// UIDs not yet met in a decision.
    unmet: Vec<String>,
}

#[derive(Default)]
struct Sums {
    threshold: Option<u32>,
    pending: usize,
    at_least: bool,
    asked: BTreeMap<Group, Row>,
    already: BTreeMap<Group, Row>,
}

impl<'a> Told<'a> {
    fn new(before: &Cluster, after: &'a simulate::Simulated, now: Timestamp) -> Result<Self> {
        let mut otherwise = HashMap::new();
        for foreseen in before.foresee(now)? {
            let partly = before.sees_part_of_any(&foreseen);
            for decision in &foreseen.plan.decisions {
                let outcome = outcome(decision, partly);
                otherwise.insert(decision.uid.clone(), (outcome, reason(decision, outcome)));
            }
        }

        let sizes = before.snapshots.iter().filter_map(|snapshot| {
            let stats = snapshot.status.as_ref()?.stats.as_ref()?;
            Some((snapshot.metadata.uid.clone()?, stats.size_bytes.max(0)))
        });
        Ok(Self {
            sizes: sizes.collect(),
            parts: BTreeMap::new(),
            otherwise,
            unmet: after.asked.iter().cloned().collect(),
            after,
        })
    }

    fn lane(&mut self, cluster: &Cluster, foreseen: &Foreseen) {
        let members: HashMap<&str, _> = foreseen
            .lane
            .members
            .iter()
            .map(|member| (member.uid.as_str(), member))
            .collect();
        let partly = cluster.sees_part_of_any(foreseen);
        let mut decisions = foreseen.plan.decisions.iter();
        let touched = decisions.any(|decision| self.after.asked.contains(&decision.uid));
        for decision in &foreseen.plan.decisions {
            let Some(member) = members.get(decision.uid.as_str()) else {
                continue;
            };
            let plan = foreseen
                .plan
                .repositories
                .iter()
                .find(|plan| Some(&plan.key) == decision.repository.as_ref());
            let outcome = outcome(decision, partly);
            let reason = reason(decision, outcome);
            let asked = self.after.asked.contains(&decision.uid);
            // Of the others, only those that this deletion meets.
            if !asked && !touched && self.otherwise.get(&decision.uid) == Some(&(outcome, reason)) {
                continue;
            }
            let part = self.parts.entry(decision.repository.clone()).or_default();
            if let Some(plan) = plan {
                part.threshold = plan.threshold;
                part.pending = plan.count;
                part.at_least = partly;
            }
            let message = match (outcome, plan) {
                (Outcome::Unknown, Some(plan))
                    if decision.verdict.deletes() && decision.not_yet.is_none() =>
                {
                    perhaps(plan)
                }
                _ => without_commands(&describe(WORDS, member, decision, plan)).to_owned(),
            };
            let rows = if asked { &mut part.asked } else { &mut part.already };
            let row = rows.entry((outcome, reason)).or_insert_with(|| Row {
                outcome,
                count: 0,
                bytes: 0,
                unknown_size: 0,
                rule: decision.rule.number(),
                rule_name: decision.rule.name(),
                reason,
                message,
                snapshots: Vec::new(),
            });
            row.count += 1;
            match self.sizes.get(&decision.uid) {
                Some(bytes) => row.bytes = row.bytes.saturating_add(*bytes),
                None => row.unknown_size += 1,
            }
            row.snapshots
                .push(format!("{}/{}", member.namespace, member.name));
            self.unmet.retain(|uid| *uid != decision.uid);
        }
    }

    /// The parts, and how many Snapshots are gone at once because Holdfast's finalizer is not on them.
    fn parts(self) -> (Vec<Part>, usize) {
        let parts = self
            .parts
            .into_iter()
            .map(|(key, sums)| {
                let rows = |rows: BTreeMap<Group, Row>| -> Vec<Row> { rows.into_values().collect() };
                let (asked, already) = (rows(sums.asked), rows(sums.already));
                let holds = asked
                    .iter()
                    .chain(&already)
                    .any(|row| row.outcome == Outcome::Held);
                Part {
                    to_release: key.as_ref().filter(|_| holds).map(to_release),
                    repository: key.map(|key| key.to_string()),
                    threshold: sums.threshold,
                    pending: sums.pending,
                    at_least: sums.at_least,
                    asked,
                    already,
                }
            })
            .collect();
        (parts, self.unmet.len())
    }
}

fn perhaps(plan: &RepositoryPlan) -> String {
    format!(
        "{} pending deletions can be seen and the threshold is {}: it is deleted if fewer than {} others are pending in namespaces that you may not read, else held.",
        plan.count,
        plan.threshold.unwrap_or_default(),
        (plan.threshold.unwrap_or_default() as usize).saturating_sub(plan.count)
    )
}

/// The sentence that says how a hold ends.
fn to_release(key: &RepositoryKey) -> String {
    let scope = key
        .namespace()
        .map(|namespace| format!(" -n {namespace}"))
        .unwrap_or_default();
    let object = format!("{}/{}", key.kind().to_lowercase(), key.name());
    format!(
        "Somebody with the verb acknowledge on {key} would have to run `kubectl holdfast release {object}{scope}`; `kubectl holdfast reject {object}{scope}` keeps the data and lets the objects go."
    )
}

fn remarks(cluster: &Cluster, target: &Target, parts: &[Part], unguarded: usize) -> Vec<String> {
    let mut notes = Vec::new();
    if unguarded > 0 {
        notes.push(format!(
            "{unguarded} Snapshots do not carry Holdfast's finalizer: their objects go at once and their data, if they have any, stays."
        ));
    }
    if cluster.home_assumed && parts.iter().any(|part| part.at_least || is_cluster(part)) {
        notes.push(format!(
            "The operator's namespace {} cannot be read and is taken to be fine.",
            cluster.home
        ));
    }
    if let Target::Repository(key) = target {
        let users = cluster
            .snapshots
            .iter()
            .filter(|snapshot| {
                crate::cluster::view_of(snapshot).is_ok_and(|view| {
                    view.pin().as_ref() == Some(key) && view.metadata.deletion_timestamp.is_none()
                })
            })
            .count();
        notes.push(format!(
            "The repository's data stays. {users} Snapshots that are not being deleted record what is in it; deleting one of them later would keep its data too, until a {} of this name is there again.",
            key.kind()
        ));
    }
    notes
}

fn is_cluster(part: &Part) -> bool {
    part.repository
        .as_ref()
        .is_some_and(|name| name.starts_with("clusterrepository "))
}
