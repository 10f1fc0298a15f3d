//! How far a wave is: every Snapshot of a namespace and its delete Job, by watches of our own.
//!
//! **Promises.** [`Wave::live`] reads the API server; [`Wave::seen`] is what the watch delivered last, at no cost.

use crate::jobs::Watch;
use crate::lab::Lab;
use anyhow::Result;
use futures::StreamExt;
use holdfast_api::{Snapshot, conditions};
use kube::api::{Api, ListParams};
use kube::runtime::watcher::{self, Event};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// What one member shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Shows {
    held: bool,
    claim: Option<String>,
    recorded: bool,
}

impl Shows {
    fn of(snapshot: &Snapshot) -> Self {
        let status = snapshot.status.clone().unwrap_or_default();
        let deletion = status.deletion.unwrap_or_default();
        Self {
            held: conditions::is_true(&status.conditions, conditions::DELETION_HELD),
            claim: deletion.job,
            recorded: deletion.outcome.is_some(),
        }
    }
}

/// How far a wave is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Members.
    pub members: usize,
    /// Objects that are there.
    pub left: usize,
    /// Held.
    pub held: usize,
    /// Naming a Job.
    pub claimed: usize,
    /// With a recorded outcome.
    pub recorded: usize,
    /// Jobs with a member of it that have not ended.
    pub alive: usize,
    /// Jobs with a member of it that ended and are not reaped.
    pub ended: usize,
}

/// Follows a wave.
pub struct Wave {
    api: Api<Snapshot>,
    members: BTreeSet<String>,
    shows: Arc<Mutex<BTreeMap<String, Shows>>>,
    task: JoinHandle<()>,
}

impl Drop for Wave {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wave {
    /// Follows these members from now on.
    #[must_use]
    pub fn follow(lab: &Lab, namespace: &str, members: BTreeSet<String>) -> Self {
        let api: Api<Snapshot> = lab.api(namespace);
        let shows: Arc<Mutex<BTreeMap<String, Shows>>> = Arc::default();
        let (shared, watched) = (Arc::clone(&shows), api.clone());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(watcher::watcher(watched, watcher::Config::default()));
            while let Some(event) = events.next().await {
                let mut shows = shared.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Ok(Event::Init) => shows.clear(),
                    Ok(Event::InitApply(s) | Event::Apply(s)) => {
                        shows.insert(s.metadata.uid.clone().unwrap_or_default(), Shows::of(&s));
                    }
                    Ok(Event::Delete(s)) => {
                        shows.remove(s.metadata.uid.as_deref().unwrap_or_default());
                    }
                    Ok(Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self {
            api,
            members,
            shows,
            task,
        }
    }

    /// What the watch delivered last.
    #[must_use]
    pub fn seen(&self, jobs: &Watch) -> State {
        let shows = self.shows.lock().unwrap_or_else(PoisonError::into_inner);
        self.add_up(shows.iter().map(|(uid, shows)| (uid.as_str(), shows)), jobs)
    }

    /// What the API server says.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn live(&self, jobs: &Watch) -> Result<State> {
        let all = self.api.list(&ListParams::default()).await?.items;
        let shows: Vec<(String, Shows)> = all
            .iter()
            .map(|s| (s.metadata.uid.clone().unwrap_or_default(), Shows::of(s)))
            .collect();
        Ok(self.add_up(shows.iter().map(|(uid, shows)| (uid.as_str(), shows)), jobs))
    }

    fn add_up<'a>(&self, shows: impl Iterator<Item = (&'a str, &'a Shows)>, jobs: &Watch) -> State {
        let mut state = State {
            members: self.members.len(),
            ..State::default()
        };
        for (_, shows) in shows.filter(|(uid, _)| self.members.contains(*uid)) {
            state.left += 1;
            state.held += usize::from(shows.held);
            state.claimed += usize::from(shows.claim.is_some());
            state.recorded += usize::from(shows.recorded);
        }
        for batch in jobs.with_member_of(&self.members) {
            state.alive += usize::from(batch.is_alive());
            state.ended += usize::from(batch.ended.is_some() && batch.removed.is_none());
        }
        state
    }
}
