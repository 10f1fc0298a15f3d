//! The operator is killed at twelve moments of a wave, and the outcome is the same: held until a person says so,
//! then drained, each snapshot deleted once, never two Jobs at once.
//!
//! Waves of 150 instead of 700, so that three rounds take minutes; threshold and batch size are the defaults. Each
//! round kills the leader once while it marks, once while it claims, once with a live Job and once while it removes
//! finalizers; how far into the phase is drawn from a seed that is printed (`HOLDFAST_KILL_SEED` repeats it). What
//! a kill hit is read from the API server after it, while nobody leads.

use anyhow::{Context, Result, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use holdfast_api::{Snapshot, conditions};
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::kill::{self, How, Leader, Leaders};
use holdfast_e2e::progress::{State, Wave};
use holdfast_e2e::scenario::{Scenario, release_command, shell};
use holdfast_e2e::seed::AT_ONCE;
use holdfast_e2e::{Lab, Look, until};
use kube::api::{Api, DeleteParams};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const MEMBERS: usize = 150;
const NEEDED: usize = 3;
const MOST_ROUNDS: usize = 6;

/// What the leader was doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Marking,
    Claiming,
    LiveJob,
    RemovingFinalizers,
}

impl Phase {
    const ALL: [Self; 4] = [
        Self::Marking,
        Self::Claiming,
        Self::LiveJob,
        Self::RemovingFinalizers,
    ];

    /// Which phase a state is in the middle of, if any.
    fn of(state: &State) -> Option<Self> {
        let some = |n: usize| n > 0 && n < state.members;
        if state.alive > 0 {
            Some(Self::LiveJob)
        } else if state.ended > 0 && (some(state.left) || some(state.recorded)) {
            Some(Self::RemovingFinalizers)
        } else if state.ended == 0 && some(state.claimed) && state.left == state.members {
            Some(Self::Claiming)
        } else if state.claimed == 0 && some(state.held) {
            Some(Self::Marking)
        } else {
            None
        }
    }

    /// How far into this phase a state is, of 0 to 1.
    fn part(self, state: &State) -> f64 {
        let done = match self {
            Self::Marking => state.held,
            Self::Claiming => state.claimed,
            Self::LiveJob => return 1.0,
            Self::RemovingFinalizers => state.members - state.left,
        };
        done as f64 / state.members as f64
    }
}

/// splitmix64: the same moments for the same seed.
struct Dice(u64);

impl Dice {
    /// Between 0 and 1.
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

struct Run {
    lab: Lab,
    scenario: Scenario,
    jobs: Watch,
    leaders: Leaders,
    dice: Dice,
    hits: BTreeMap<Phase, usize>,
    kills: usize,
    /// The leader that was killed last.
    killed: Option<Leader>,
}

impl Run {
    /// Waits until the leader is as far into `phase` as the dice say, kills it, and notes what it hit.
    async fn strike(&mut self, wave: &Wave, phase: Phase) -> Result<()> {
        let leader = self.leaders.other_than(self.killed.as_ref()).await?;
        let roll = self.dice.roll();
        let started = Instant::now();
        loop {
            let state = wave.seen(&self.jobs);
            if Phase::of(&state) == Some(phase) && phase.part(&state) >= 0.1 + 0.6 * roll {
                break;
            }
            if state.left == 0 || started.elapsed() > Duration::from_secs(120) {
                println!("  {phase:?} went by without a kill: {state:?}");
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if phase == Phase::LiveJob {
            tokio::time::sleep(Duration::from_secs_f64(roll * 1.5)).await;
        }
        let how = self.kill(&leader).await?;
        self.killed = Some(leader);
        let after = wave.live(&self.jobs).await?;
        let hit = Phase::of(&after);
        self.kills += 1;
        println!(
            "  kill {:>2} ({}) meant {phase:?}, hit {}: {after:?}",
            self.kills,
            match how {
                How::Sigkill => "SIGKILL",
                How::PodDeleted => "pod deleted without grace",
            },
            hit.map_or_else(|| "nothing".to_owned(), |p| format!("{p:?}")),
        );
        if let Some(hit) = hit {
            *self.hits.entry(hit).or_default() += 1;
        }
        Ok(())
    }

    async fn kill(&self, leader: &Leader) -> Result<How> {
        let now = self.leaders.now().context("nobody leads")?;
        ensure!(now == *leader, "{} leads by now, not {}", now.pod, leader.pod);
        let how = leader.kill(&self.lab).await?;
        let (lab, leader) = (self.lab.clone(), leader.clone());
        tokio::spawn(async move { leader.replace(&lab).await });
        Ok(how)
    }

    async fn round(&mut self, n: usize) -> Result<()> {
        let name = format!("wave-{n}");
        let before = self.scenario.count().await?;
        let (_, members) = self.scenario.seeded(&name, "Retain", MEMBERS).await?;
        kill::rolled_out(&self.lab).await?;
        let uids = members.iter().map(|m| m.uid.clone()).collect();
        let wave = Wave::follow(&self.lab, &self.scenario.namespace, uids);
        println!("round {n}: {MEMBERS} Snapshots are deleted");
        let api: Api<Snapshot> = self.lab.api(&self.scenario.namespace);
        let api = &api;
        stream::iter(&members)
            .map(|m| async move { api.delete(&m.name, &DeleteParams::default()).await.map(drop) })
            .buffer_unordered(AT_ONCE)
            .try_collect::<Vec<()>>()
            .await?;
        self.strike(&wave, Phase::Marking).await?;
        let all = format!("{MEMBERS} held");
        let said = self
            .scenario
            .repository_condition(conditions::MASS_DELETION_HELD, |c| {
                c.status == "True" && c.message.contains(&all)
            })
            .await?;
        // Longer than the quiet window: if anything could fire, it would.
        tokio::time::sleep(Duration::from_secs(12)).await;
        let state = wave.live(&self.jobs).await?;
        ensure!(
            state.held == MEMBERS && state.claimed == 0 && state.alive + state.ended == 0,
            "not held until a person says so: {state:?}"
        );
        kill::rolled_out(&self.lab).await?;
        shell(
            &self.lab,
            &release_command(&said.message)?,
            self.lab.kubeconfig.parent(),
        )
        .await?;
        for phase in [Phase::Claiming, Phase::LiveJob, Phase::RemovingFinalizers] {
            self.strike(&wave, phase).await?;
        }
        until("the wave to drain", Duration::from_secs(180), || async {
            let state = wave.seen(&self.jobs);
            let done = state.left == 0 && state.alive + state.ended == 0;
            Ok(if done {
                Look::Done(())
            } else {
                Look::Not(format!("{state:?}"))
            })
        })
        .await?;
        let after = self.scenario.count().await?;
        ensure!(
            after == before,
            "the repository held {before} snapshots before the wave and {after} after it"
        );
        ensure!(
            self.jobs.most() <= 1,
            "{} batch Jobs were alive at once",
            self.jobs.most()
        );
        println!("round {n}: drained, the repository is back at {after} snapshots");
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twelve_kills_do_not_change_the_outcome() -> Result<()> {
    let Some(lab) = Lab::for_test("twelve_kills_do_not_change_the_outcome").await? else {
        return Ok(());
    };
    let seed = match std::env::var("HOLDFAST_KILL_SEED") {
        Ok(text) => text.parse().context("HOLDFAST_KILL_SEED is no number")?,
        Err(_) => u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(1),
    };
    println!("seed: HOLDFAST_KILL_SEED={seed}");
    let short = [
        ("KOPIUR_LEASE_DURATION_SECONDS", "4"),
        ("KOPIUR_RENEW_DEADLINE_SECONDS", "3"),
        ("KOPIUR_RENEW_PERIOD_SECONDS", "1"),
        ("KOPIUR_RETRY_PERIOD_SECONDS", "1"),
    ]
    .map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    let before = kill::operator_environment(&lab, &short).await?;
    let outcome = kills(&lab, seed).await;
    kill::operator_environment(&lab, &before).await?;
    outcome
}

async fn kills(lab: &Lab, seed: u64) -> Result<()> {
    let scenario = Scenario::with_repository(lab, "kills", None).await?;
    // Something that must stay, whatever happens.
    scenario.seeded("stays", "Retain", 20).await?;
    let mut run = Run {
        lab: lab.clone(),
        jobs: Watch::start(&lab.client, &scenario.namespace).await?,
        leaders: Leaders::start(lab),
        scenario,
        dice: Dice(seed),
        hits: BTreeMap::new(),
        kills: 0,
        killed: None,
    };
    let enough = |run: &Run| {
        Phase::ALL
            .iter()
            .all(|p| run.hits.get(p).is_some_and(|n| *n >= NEEDED))
    };
    for n in 1..=MOST_ROUNDS {
        if run.kills >= 12 && enough(&run) {
            break;
        }
        run.round(n).await?;
    }
    println!("{} kills: {:?}", run.kills, run.hits);
    if !enough(&run) {
        bail!(
            "not every phase was hit {NEEDED} times in {MOST_ROUNDS} rounds: {:?}",
            run.hits
        );
    }
    ensure!(
        run.scenario.snapshots().await?.len() == 20,
        "what was not deleted is gone"
    );
    run.scenario.clone().end().await
}
