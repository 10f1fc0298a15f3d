//! The part of a cluster that a decision reads, as plain data that can be changed and asked what would be.
//!
//! **Promises.** The questions are answered by the operator's own code: its world, its translation of objects into
//! facts, and `core::deletion::wave`.
//!
//! **Assumes.** What could not be read is listed in [`Cluster::unread`], or a note says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use holdfast_api::{Snapshot, SnapshotPolicy, SnapshotSchedule, names};
use holdfast_core::deletion::{Decision, Lane, Plan, RepositoryPlan, Settings, wave};
use holdfast_operator::protect::wave::foresee::{self, Unread};
use holdfast_operator::world::keys::LaneKey;
use holdfast_operator::world::views::{JobView, RepositoryView, SnapshotView};
use holdfast_operator::world::{Change, Kind, NamespaceView, Observed, World};
use jiff::{SignedDuration, Timestamp};

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// Repository objects of both kinds.
    pub repositories: Vec<RepositoryView>,
    /// SnapshotPolicies.
    pub policies: Vec<SnapshotPolicy>,
    /// SnapshotSchedules.
    pub schedules: Vec<SnapshotSchedule>,
    /// Snapshots.
    pub snapshots: Vec<Snapshot>,
    /// Jobs of ours.
    pub jobs: Vec<JobView>,
    /// Namespaces, and whether each is being deleted.
    pub namespaces: BTreeMap<String, bool>,
    /// What could not be read.
    pub unread: Unread,
    /// The only namespaces whose Snapshots were read; none: all.
    pub only: Option<BTreeSet<String>>,
    /// The operator's namespace.
    pub home: String,
    /// That namespace could not be read and is taken to be fine.
    pub home_assumed: bool,
    /// `deletions.paused`; none: it could not be read.
    pub paused: Option<bool>,
    /// What could not be read, in sentences.
    pub notes: Vec<String>,
}

/// A lane with what would be decided about it.
pub struct Foreseen {
    /// The facts.
    pub lane: Lane,
    /// The decision.
    pub plan: Plan,
}

impl Foreseen {
    /// The plan of the repository object that a member belongs to.
    pub fn plan_of(&self, decision: &Decision) -> Option<&RepositoryPlan> {
        let mut plans = self.plan.repositories.iter();
        plans.find(|plan| Some(&plan.key) == decision.repository.as_ref())
    }
}

impl Cluster {
    /// What the operator would decide about every lane once the quiet window is over, if nothing else happened.
    pub fn foresee(&self, now: Timestamp) -> Result<Vec<Foreseen>> {
        let window = Settings::default().quiet_window + SignedDuration::from_secs(1);
        self.decide(now, now.checked_add(window).unwrap_or(now))
    }

    /// What it would decide `at` a moment, having seen all that is deleted at `now`.
    fn decide(&self, now: Timestamp, at: Timestamp) -> Result<Vec<Foreseen>> {
        let world = self.world(now)?;
        let settings = Settings {
            paused: self.paused.unwrap_or(false),
            default_threshold: names::DEFAULT_THRESHOLD,
            ..Settings::default()
        };
        let keys: BTreeSet<LaneKey> = self
            .repositories
            .iter()
            .map(|repository| world.lane_of(&repository.key))
            .chain([LaneKey::Unresolved])
            .collect();
        Ok(keys
            .into_iter()
            .map(|key| {
                let lane = foresee::lane(&world, &self.home, &key, &self.unread);
                let plan = wave(&lane, &settings, at);
                Foreseen { lane, plan }
            })
            .collect())
    }

    /// Writes down what the operator had recorded by `now`: acknowledgements first of all, which cover nothing that
    /// is deleted after they were seen.
    pub fn record(&mut self, now: Timestamp) -> Result<()> {
        for foreseen in self.decide(now, now)? {
            for plan in &foreseen.plan.repositories {
                for view in self.repositories.iter_mut().filter(|view| view.key == plan.key) {
                    foresee::record(view, plan);
                }
            }
        }
        Ok(())
    }

    /// The operator's picture of this cluster, complete.
    pub fn world(&self, now: Timestamp) -> Result<Arc<World>> {
        let world = World::new();
        let set = |observed| {
            world.apply(Change::Set(observed), now);
        };
        for kind in Kind::ALL {
            world.apply(Change::ListBegins(kind), now);
        }
        for (name, terminating) in &self.namespaces {
            let view = NamespaceView {
                terminating: *terminating,
                labels: BTreeMap::new(),
            };
            set(Observed::Namespace(name.clone(), view));
        }
        for view in &self.repositories {
            set(Observed::Repository(Box::new(view.clone())));
        }
        for policy in &self.policies {
            set(Observed::Policy(Box::new(policy.clone())));
        }
        for schedule in &self.schedules {
            set(Observed::Schedule(Box::new(schedule.clone())));
        }
        for job in &self.jobs {
            set(Observed::Job(Box::new(job.clone())));
        }
        for snapshot in &self.snapshots {
            set(Observed::Snapshot(Box::new(view_of(snapshot)?)));
        }
        for kind in Kind::ALL {
            world.apply(Change::ListEnds(kind), now);
        }
        Ok(world)
    }

    /// Whether Snapshots that could not be read may belong to a lane. A namespaced Repository serves its own
    /// namespace; one wave counts for all objects of a lane, so not seeing all of one is not seeing all of any.
    pub fn sees_part_of_any(&self, foreseen: &Foreseen) -> bool {
        let mut repositories = foreseen.plan.repositories.iter();
        self.only.is_some() && repositories.any(|plan| plan.key.namespace().is_none())
    }
}

/// A Snapshot as the operator sees it.
pub fn view_of(snapshot: &Snapshot) -> Result<SnapshotView> {
    serde_json::to_value(snapshot)
        .and_then(serde_json::from_value)
        .context("a Snapshot cannot be read; the plugin and the cluster's Holdfast are of different releases")
}
