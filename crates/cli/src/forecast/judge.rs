//! From decisions to what a person wants to know: how many are deleted, held, kept, and why.
//!
//! **Promises.** Reasons, rules and sentences are those of conditions and docs. Every Snapshot that would be deleted
//! is counted exactly once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;
use holdfast_core::deletion::RepositoryKey;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::simulate;
use super::words::{Judged, Outcome, outcome, reason, to_release};
use crate::cluster::{Cluster, Foreseen};
use crate::target::Target;

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
    let after = after(&mut cluster, target, now)?;
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
    notes.extend(volumes(&cluster, target));
    Ok(Forecast {
        delete: target.to_string(),
        snapshots: after.asked.len(),
        totals,
        repositories,
        notes,
    })
}

/// The cluster after the deletion, with all that the operator recorded before.
pub fn after(cluster: &mut Cluster, target: &Target, now: Timestamp) -> Result<simulate::Simulated> {
    // Deletion times are whole seconds: one of this very second comes after what was recorded.
    let before = now.checked_sub(SignedDuration::from_secs(1)).unwrap_or(now);
    cluster.record(before)?;
    simulate::delete(cluster, target, now)
}

/// Outcome, rule and reason.
type Group = (Outcome, u8, &'static str);

struct Told<'a> {
    after: &'a simulate::Simulated,
    /// Logical bytes of each Snapshot whose size is known.
    sizes: HashMap<String, i64>,
    parts: BTreeMap<Option<RepositoryKey>, Sums>,
    /// What would become of those that are being deleted already if nothing else were.
    otherwise: HashMap<String, (Outcome, &'static str)>,
    /// UIDs not yet met in a decision.
    unmet: BTreeSet<String>,
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
            unmet: after.asked.clone(),
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
            let plan = foreseen.plan_of(decision);
            let judged = Judged::of(decision, member, plan, partly);
            let (outcome, reason) = (judged.outcome, judged.reason);
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
            let rows = if asked { &mut part.asked } else { &mut part.already };
            let row = rows.entry((outcome, judged.rule, reason)).or_insert_with(|| Row {
                outcome,
                count: 0,
                bytes: 0,
                unknown_size: 0,
                rule: judged.rule,
                rule_name: judged.rule_name,
                reason,
                message: judged.message,
                snapshots: Vec::new(),
            });
            row.count += 1;
            match self.sizes.get(&decision.uid) {
                Some(bytes) => row.bytes = row.bytes.saturating_add(*bytes),
                None => row.unknown_size += 1,
            }
            row.snapshots
                .push(format!("{}/{}", member.namespace, member.name));
            self.unmet.remove(&decision.uid);
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

/// A repository on a claim of the namespace goes with the claim: no rule of ours keeps a volume.
fn volumes(before: &Cluster, target: &Target) -> Vec<String> {
    let Target::Namespace(namespace) = target else {
        return Vec::new();
    };
    before
        .repositories
        .iter()
        .filter(|view| view.key.namespace() == Some(namespace.as_str()))
        .filter_map(|view| {
            let claim = view.claim()?;
            Some(format!(
                "The {} lies on the claim {claim} of this namespace, which goes with it: what is kept in it is only as safe as that volume, look at its reclaim policy.",
                view.key
            ))
        })
        .collect()
}

fn is_cluster(part: &Part) -> bool {
    part.repository
        .as_ref()
        .is_some_and(|name| name.starts_with("clusterrepository "))
}
