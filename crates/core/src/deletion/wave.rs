//! One decision for one lane: facts in, [`Plan`] out.
//!
//! **Promises.** The plan is a function of its arguments and does not depend on the order of members or
//! repositories. Its cost is that of sorting the pending members. With cold caches, or while another manager is
//! alive, it decides nothing and writes nothing.
//!
//! **Assumes.** A member listed twice is the same object; its first listing counts.

use super::ack::{self, Acknowledgement};
use super::batch::{self, Candidate, after};
use super::breaker::{self, Breaker};
use super::facts::{
    Cache, Lane, LiveBatch, MemberFacts, OnNamespaceDelete, RepositoryFacts, RepositoryKey, Resolution,
};
use super::guard::{self, Context, Guarded};
use super::plan::{Batch, Plan};
use super::report::undecided;
use super::settings::Settings;
use super::silence::{self, Turn, Writers};
use super::verdict::{DeleteReason, HeldReason, Rule, Verdict, Wait, Withdraw};
use super::wake::Wakes;
use jiff::Timestamp;
use std::collections::{BTreeMap, HashSet};

/// Decides what becomes of every member of a lane, and whether a batch fires.
#[must_use]
pub fn wave(lane: &Lane, settings: &Settings, now: Timestamp) -> Plan {
    let repositories = sorted_repositories(lane);
    let members = sorted_members(&lane.members);
    if lane.foreign_manager {
        return undecided(
            &members,
            &repositories,
            Wait::ForeignManager,
            after(now, settings.recheck),
        );
    }
    match lane.cache {
        Cache::Cold => {
            return undecided(
                &members,
                &repositories,
                Wait::CacheCold,
                after(now, settings.recheck),
            );
        }
        Cache::Synced => {}
    }

    let facts = LaneFacts::new(lane, repositories, settings);
    let mut judged: Vec<Judged<'_>> = members.into_iter().map(|member| facts.guard(member)).collect();
    let acknowledgements = facts.acknowledgements(&judged, now);
    let breaker = facts.count(&mut judged, &acknowledgements, lane, now);
    for member in &mut judged {
        member.meet(breaker);
    }
    share_blocks(&mut judged, &lane.unplaced);
    let mut wakes = Wakes::new(now, after(now, settings.recheck));
    let withdraw = facts.live_batch(&mut judged, now, &mut wakes);
    let fire = facts.board(&mut judged, now);

    for member in &judged {
        wakes.waits(member.verdict, member.not_yet);
    }
    let latch_needed = judged.iter().any(|m| m.latched && m.could_be_destructive);
    let plans = facts.repository_plans(&judged, acknowledgements, breaker, latch_needed, now);
    let latch = facts.lane_latch(&plans, latch_needed, lane.latch.as_ref());
    Plan {
        decisions: judged
            .into_iter()
            .map(|member| member.decide(&facts.repositories))
            .collect(),
        repositories: plans,
        latch,
        fire,
        withdraw,
        wake_at: wakes.earliest(),
    }
}

fn sorted_members(members: &[MemberFacts]) -> Vec<&MemberFacts> {
    let mut sorted: Vec<&MemberFacts> = members.iter().collect();
    sorted.sort_by(|a, b| (a.deleted_at, &a.uid).cmp(&(b.deleted_at, &b.uid)));
    let mut seen = HashSet::with_capacity(sorted.len());
    sorted.retain(|member| seen.insert(member.uid.as_str()));
    sorted
}

fn sorted_repositories(lane: &Lane) -> Vec<&RepositoryFacts> {
    let mut sorted: Vec<&RepositoryFacts> = lane.repositories.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    sorted.dedup_by(|a, b| a.key == b.key);
    sorted
}

/// The lane, and what is the same for all members.
pub(super) struct LaneFacts<'a> {
    pub(super) repositories: Vec<&'a RepositoryFacts>,
    pub(super) live: Option<&'a LiveBatch>,
    pub(super) live_members: HashSet<&'a str>,
    pub(super) api_going_away: bool,
    pub(super) held_through: Option<Timestamp>,
    pub(super) job_cap_reached: bool,
    pub(super) most_members: Option<usize>,
    pub(super) writers: Option<&'a Writers>,
    pub(super) maintenance: bool,
    pub(super) settings: &'a Settings,
    pub(super) threshold: u32,
    /// Thresholds of the lane's objects, those included that it remembers and that are gone.
    pub(super) thresholds: BTreeMap<RepositoryKey, u32>,
}

/// One member on its way through the rules.
pub(super) struct Judged<'a> {
    pub(super) member: &'a MemberFacts,
    pub(super) repository: Option<usize>,
    pub(super) riding: bool,
    pub(super) latched: bool,
    pub(super) could_be_destructive: bool,
    pub(super) covered: bool,
    pub(super) guarded: Guarded,
    pub(super) verdict: Verdict,
    pub(super) rule: Rule,
    pub(super) not_yet: Option<Wait>,
}

impl<'a> LaneFacts<'a> {
    fn new(lane: &'a Lane, repositories: Vec<&'a RepositoryFacts>, settings: &'a Settings) -> Self {
        let mut thresholds = lane
            .latch
            .as_ref()
            .map(|latch| latch.thresholds.clone())
            .unwrap_or_default();
        for repository in &repositories {
            let threshold = repository.threshold.unwrap_or(settings.default_threshold);
            thresholds.insert(repository.key.clone(), threshold);
        }
        Self {
            held_through: repositories
                .iter()
                .map(|repository| repository.held_through)
                .chain(lane.latch.as_ref().map(|latch| latch.held_through))
                .flatten()
                .max(),
            thresholds,
            repositories,
            live: lane.live.as_ref(),
            live_members: lane
                .live
                .iter()
                .flat_map(|live| live.members.iter().map(String::as_str))
                .collect(),
            api_going_away: lane.api_going_away,
            job_cap_reached: settings.max_jobs != 0 && lane.live_jobs_in_cluster >= settings.max_jobs,
            most_members: lane.most_members,
            writers: lane.writers.as_ref(),
            maintenance: lane.maintenance,
            threshold: breaker::strictest_threshold(&lane.repositories, settings),
            settings,
        }
    }

    fn context(&self, member: &MemberFacts, repository: Option<usize>) -> Context {
        Context {
            api_going_away: self.api_going_away,
            on_namespace_delete: repository.map_or(OnNamespaceDelete::Unknown, |index| {
                self.repositories[index].on_namespace_delete
            }),
            in_lane: repository.is_some(),
            latched: breaker::is_latched(member, self.held_through),
        }
    }

    /// Rules 1 to 8, and what comes before them.
    fn guard(&self, member: &'a MemberFacts) -> Judged<'a> {
        let repository = match &member.repository {
            Resolution::Resolved(key) => self
                .repositories
                .binary_search_by(|facts| facts.key.cmp(key))
                .ok(),
            Resolution::Gone | Resolution::Unreadable => None,
        };
        let context = self.context(member, repository);
        let riding = self.live_members.contains(member.uid.as_str());
        let in_flight = riding && self.live.is_some_and(|live| live.started);
        let guarded = if in_flight {
            Guarded::Decided(Verdict::InFlight, Rule::InFlight)
        } else {
            guard::judge(member, &context)
        };
        // Held until the breaker has been asked.
        let (verdict, rule) = match guarded {
            Guarded::Decided(verdict, rule) => (verdict, rule),
            Guarded::Prune => (Verdict::Delete(DeleteReason::OwnPrune), Rule::OwnStamp),
            Guarded::External => (Verdict::Held(HeldReason::MassDeletionBreaker), Rule::Breaker),
        };
        Judged {
            member,
            repository,
            riding,
            latched: context.latched,
            could_be_destructive: if in_flight {
                // Whatever its facts say now, the Job may delete it.
                !guard::is_own_prune(member, context.latched)
            } else {
                guard::could_be_destructive(member, &context)
            },
            covered: false,
            guarded,
            verdict,
            rule,
            not_yet: None,
        }
    }

    fn acknowledgements(&self, judged: &[Judged<'_>], now: Timestamp) -> Vec<Acknowledgement> {
        let mut newest: Vec<Option<Timestamp>> = vec![None; self.repositories.len()];
        for member in judged.iter().filter(|member| member.could_be_destructive) {
            if let Some(slot) = member.repository.and_then(|index| newest.get_mut(index)) {
                *slot = (*slot).max(Some(member.member.deleted_at));
            }
        }
        self.repositories
            .iter()
            .zip(newest)
            .map(|(facts, newest)| ack::read(facts, newest, now))
            .collect()
    }

    /// Marks the covered and counts the rest of those that could turn out external and destructive.
    fn count(
        &self,
        judged: &mut [Judged<'_>],
        acknowledgements: &[Acknowledgement],
        lane: &Lane,
        now: Timestamp,
    ) -> Breaker {
        let mut count = 0;
        for member in judged.iter_mut() {
            // One that is pinned elsewhere needs the acknowledgement of that object, and is not deleted here anyway.
            let pinned_here = match (&member.member.pin, &member.member.repository) {
                (Some(pin), Resolution::Resolved(key)) => pin == key,
                (Some(_), Resolution::Gone | Resolution::Unreadable) => false,
                (None, _) => true,
            };
            member.covered = member
                .repository
                .filter(|_| pinned_here)
                .and_then(|index| acknowledgements[index].in_force)
                .is_some_and(|effective| member.member.deleted_at <= effective);
            count += usize::from(member.could_be_destructive && !member.covered);
        }
        // Those that belong nowhere yet could end here under the least protective setting of the lane.
        let opted_in = self
            .repositories
            .iter()
            .any(|r| r.on_namespace_delete == OnNamespaceDelete::Delete);
        let widest = if opted_in {
            OnNamespaceDelete::Delete
        } else {
            OnNamespaceDelete::Unknown
        };
        for member in &lane.unplaced {
            let context = Context {
                on_namespace_delete: widest,
                ..self.context(member, None)
            };
            count += usize::from(guard::could_be_destructive(member, &context));
        }
        let pending: HashSet<&str> = judged.iter().map(|m| m.member.uid.as_str()).collect();
        Breaker {
            threshold: self.threshold,
            count,
            latch_threshold: breaker::strictest(
                self.thresholds.values().map(|threshold| Some(*threshold)),
                self.settings.default_threshold,
            ),
            window: breaker::reached(
                self.repositories.iter().filter_map(|r| r.sliding_window),
                &lane.fired,
                |uid| pending.contains(uid),
                count,
                now,
            ),
        }
    }

    /// What the live batch means for its own members; whether it must be withdrawn.
    fn live_batch(&self, judged: &mut [Judged<'_>], now: Timestamp, wakes: &mut Wakes) -> Option<Withdraw> {
        let live = self.live.filter(|live| !live.started)?;
        let start_by = after(live.created_at, self.settings.start_within);
        wakes.at(start_by);
        let mut found = 0;
        let mut deletable = true;
        for member in judged.iter().filter(|member| member.riding) {
            found += 1;
            let stopped = member.repository.and_then(|index| {
                batch::stopped(&self.repositories, self.repositories[index], self.settings)
            });
            deletable &= member.verdict.deletes() && member.not_yet.is_none() && stopped.is_none();
        }
        // A member whose object is gone: somebody took its finalizer off by hand, perhaps to keep the data.
        deletable &= found == self.live_members.len();
        let withdraw = if !deletable {
            Some(Withdraw::MemberNotDeletable)
        } else if start_by <= now {
            Some(Withdraw::NotStarted)
        } else {
            None
        };
        for member in judged
            .iter_mut()
            .filter(|member| member.riding && member.not_yet.is_none())
        {
            member.not_yet = Some(if withdraw.is_some() {
                Wait::Withdrawing
            } else {
                Wait::JobNotStarted
            });
        }
        withdraw
    }

    /// Decides what rides now and says of everyone else why not.
    fn board(&self, judged: &mut [Judged<'a>], now: Timestamp) -> Option<Batch> {
        let mut eligible: Vec<usize> = Vec::new();
        let mut candidates: Vec<Candidate<'a>> = Vec::new();
        for (position, member) in judged.iter_mut().enumerate() {
            let Verdict::Delete(reason) = member.verdict else {
                continue;
            };
            if member.not_yet.is_some() {
                continue;
            }
            let Some(own) = member.repository.map(|index| self.repositories[index]) else {
                member.not_yet = Some(Wait::RepositoryMismatch);
                continue;
            };
            member.not_yet = batch::stopped(&self.repositories, own, self.settings)
                .or_else(|| batch::backing_off(member.member, own, self.settings, now))
                .or_else(|| self.live.map(|_| Wait::BatchLive));
            if member.not_yet.is_none() {
                eligible.push(position);
                candidates.push(Candidate {
                    member: member.member,
                    repository: &own.key,
                    reason,
                });
            }
        }
        let mut ready: Vec<Candidate<'a>> = Vec::new();
        let windows = batch::quiet_window(&candidates, self.settings, now);
        let writers = self
            .writers
            .and_then(|writers| match silence::turn(writers, now) {
                Turn::Alone | Turn::BesideWriters => None,
                Turn::AfterWriters(until) => Some(Wait::WritersRunning(until)),
                Turn::WritersFirst(until) => Some(Wait::WritersFirst(until)),
            });
        for ((position, candidate), window) in eligible.into_iter().zip(candidates).zip(windows) {
            judged[position].not_yet = match window {
                Some(until) => Some(Wait::QuietWindow(until)),
                None if self.job_cap_reached => Some(Wait::JobCapReached),
                None if self.maintenance => Some(Wait::MaintenanceRunning),
                None if writers.is_some() => writers,
                None => {
                    ready.push(candidate);
                    Some(batch::left_behind(&candidate))
                }
            };
        }
        let fire = batch::cut(&ready, self.settings, self.most_members)?;
        let riding: HashSet<&str> = fire.members.iter().map(String::as_str).collect();
        for member in judged
            .iter_mut()
            .filter(|member| riding.contains(member.member.uid.as_str()))
        {
            member.not_yet = None;
        }
        Some(fire)
    }
}

impl Judged<'_> {
    /// Rule 9, for those no other rule decided.
    fn meet(&mut self, breaker: Breaker) {
        match self.guarded {
            Guarded::Decided(..) | Guarded::Prune => {}
            Guarded::External => self.verdict = breaker::judge(breaker, self.covered, self.latched),
        }
        if self.verdict.deletes() {
            self.not_yet = batch::not_certain(self.member);
        }
    }
}

/// A snapshot that a held or waiting member records too must not go with another member: two objects may record
/// one snapshot, and the doubt about one is a doubt about both.
fn share_blocks(judged: &mut [Judged<'_>], unplaced: &[MemberFacts]) {
    fn id(member: &MemberFacts) -> Option<&str> {
        member.snapshot.as_ref().map(|snapshot| snapshot.id.as_str())
    }
    let doubtful: HashSet<&str> = judged
        .iter()
        .filter(|member| match member.verdict {
            Verdict::Held(_) | Verdict::Wait(_) => true,
            Verdict::Delete(_) => member.not_yet.is_some(),
            Verdict::InFlight | Verdict::Release(_) | Verdict::Orphan(_) | Verdict::Retain(_) => false,
        })
        .filter_map(|member| id(member.member))
        .chain(unplaced.iter().filter_map(id))
        .collect();
    if doubtful.is_empty() {
        return;
    }
    for member in judged
        .iter_mut()
        .filter(|member| member.verdict.deletes() && member.not_yet.is_none())
    {
        if id(member.member).is_some_and(|id| doubtful.contains(id)) {
            member.not_yet = Some(Wait::SharedWithPending);
        }
    }
}
