//! Measures a wave of 700 deletions among many Snapshots: what each event costs, and the decision.
//!
//! Run by `cargo xtask bench wave`, which knows the limits; prints one line of JSON per size. Everything happens in
//! this process: the world is fed by hand, no API server is asked.

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use holdfast_api::{Repository, SnapshotPolicy, SnapshotSchedule, names};
use holdfast_operator::context::{Context, Gates, Queues};
use holdfast_operator::protect::wave;
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::events::Events;
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::metrics::Metrics;
use holdfast_operator::runtime::results::Results;
use holdfast_operator::runtime::review::{KubeReviewer, Reviews};
use holdfast_operator::settings::Settings;
use holdfast_operator::world::keys::LaneKey;
use holdfast_operator::world::views::{RepositoryView, SnapshotView};
use holdfast_operator::world::{Change, Kind, NamespaceView, Observed, World};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Deletions of the wave.
const WAVE: usize = 700;
/// Policies and schedules that the Snapshots are spread over; the wave is one schedule's.
const SCHEDULES: usize = 10;
/// How often the wave comes and goes.
const WAVES: usize = 15;
/// How often each wave is decided.
const DECISIONS: usize = 20;
const NAMESPACE: &str = "bench";
const UNIQUE_ID: &str = "unique";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another TLS provider was installed before ours"))?;
    let sizes: Vec<usize> = std::env::args()
        .skip(1)
        .map(|a| a.parse().context(a))
        .collect::<Result<_>>()?;
    for size in sizes {
        println!("{}", measure(size)?);
    }
    Ok(())
}

fn measure(size: usize) -> Result<Value> {
    let ctx = context()?;
    fill(&ctx.world, size)?;
    ensure!(
        ctx.world.snapshot_count() == size,
        "the world has {} Snapshots",
        ctx.world.snapshot_count()
    );
    let lane = LaneKey::Physical(UNIQUE_ID.to_owned());
    let (live, deleting): (Vec<_>, Vec<_>) = (0..WAVE)
        .map(|n| Ok((snapshot(n * SCHEDULES, false)?, snapshot(n * SCHEDULES, true)?)))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    let (mut events, mut decisions) = (Vec::new(), Vec::new());
    for _ in 0..WAVES {
        for view in &deleting {
            let change = Change::Set(Observed::Snapshot(Box::new(view.clone())));
            let started = Instant::now();
            let dirty = ctx.world.apply(change, Timestamp::now());
            events.push(started.elapsed());
            ensure!(!dirty.is_empty(), "a deletion makes nothing dirty");
        }
        for _ in 0..DECISIONS {
            let started = Instant::now();
            let plan = wave::preview(&ctx, &lane, Timestamp::now());
            decisions.push(started.elapsed());
            let held = plan.decisions.iter().filter(|d| d.verdict.is_held()).count();
            ensure!(held == WAVE, "{held} of {WAVE} are held");
        }
        for view in &live {
            ctx.world.apply(
                Change::Set(Observed::Snapshot(Box::new(view.clone()))),
                Timestamp::now(),
            );
        }
    }
    Ok(json!({
        "snapshots": size,
        "wave": WAVE,
        "eventMicros": figures(&mut events, 1e6),
        "decisionMillis": figures(&mut decisions, 1e3),
    }))
}

fn figures(times: &mut [Duration], unit: f64) -> Value {
    times.sort();
    let at = |n: usize| times.get(n).copied().unwrap_or_default().as_secs_f64() * unit;
    json!({
        "count": times.len(),
        "min": at(0),
        "median": at(times.len() / 2),
        "p99": at(times.len() * 99 / 100),
        "max": at(times.len().saturating_sub(1)),
    })
}

/// A context whose client has nobody to talk to.
fn context() -> Result<Arc<Context>> {
    let client = kube::Client::try_from(kube::Config::new("http://127.0.0.1:9".parse()?))?;
    let leadership = Leadership::always();
    let reviews = Reviews::new(Arc::new(KubeReviewer::new(client.clone())));
    Ok(Arc::new(Context {
        events: Events::new(client.clone(), "bench"),
        client,
        clock: Clock::system(),
        world: World::new(),
        settings: Settings::parse_from(["bench"]),
        results: Results::new(reviews, leadership.clone()),
        leadership,
        metrics: Arc::new(Metrics::new()),
        endpoint: RwLock::new(None),
        cluster: "bench".to_owned(),
        identity: "bench".to_owned(),
        queues: Queues::new(),
        foreign: Foreign::none(),
        gates: Gates::default(),
    }))
}

/// A synced world of one repository and `size` Snapshots.
fn fill(world: &World, size: usize) -> Result<()> {
    let now = Timestamp::now();
    for kind in Kind::ALL {
        world.apply(Change::ListBegins(kind), now);
        match kind {
            Kind::Repository => set(world, repository()?),
            Kind::Policy => {
                for n in 0..SCHEDULES {
                    set(world, policy(n)?);
                }
            }
            Kind::Schedule => {
                for n in 0..SCHEDULES {
                    set(world, schedule(n)?);
                }
            }
            Kind::Snapshot => {
                for n in 0..size {
                    set(world, Observed::Snapshot(Box::new(snapshot(n, false)?)));
                }
            }
            Kind::Namespace => {
                let view = NamespaceView {
                    terminating: false,
                    labels: BTreeMap::new(),
                };
                set(world, Observed::Namespace(NAMESPACE.to_owned(), view));
            }
            Kind::ClusterRepository | Kind::Restore | Kind::Maintenance | Kind::Job => {}
        }
        world.apply(Change::ListEnds(kind), now);
    }
    ensure!(world.is_synced(), "the world is not synced");
    Ok(())
}

fn set(world: &World, object: Observed) {
    world.apply(Change::Set(object), Timestamp::now());
}

fn repository() -> Result<Observed> {
    let object: Repository = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "Repository",
        "metadata": { "name": "vault", "namespace": NAMESPACE, "uid": "vault" },
        "spec": {
            "engine": "Restic",
            "backend": { "filesystem": { "volume": { "pvc": { "name": "vault" } } } },
            "encryption": { "passwordSecretRef": { "name": "secret" } },
        },
        "status": { "uniqueId": UNIQUE_ID, "phase": "Ready" },
    }))?;
    Ok(Observed::Repository(Box::new(RepositoryView::namespaced(object))))
}

fn policy(n: usize) -> Result<Observed> {
    let object: SnapshotPolicy = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotPolicy",
        "metadata": { "name": format!("policy-{n}"), "namespace": NAMESPACE },
        "spec": { "repository": { "name": "vault" }, "sources": [{ "pvc": { "name": "data" } }] },
    }))?;
    Ok(Observed::Policy(Box::new(object)))
}

fn schedule(n: usize) -> Result<Observed> {
    let object: SnapshotSchedule = serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "SnapshotSchedule",
        "metadata": { "name": format!("schedule-{n}"), "namespace": NAMESPACE, "uid": format!("schedule-{n}") },
        "spec": { "policyRef": { "name": format!("policy-{n}") }, "schedule": { "cron": "0 * * * *" } },
    }))?;
    Ok(Observed::Schedule(Box::new(object)))
}

/// The n-th Snapshot, of schedule n modulo [`SCHEDULES`].
fn snapshot(n: usize, deleting: bool) -> Result<SnapshotView> {
    let of = n % SCHEDULES;
    let mut object = json!({
        "metadata": {
            "name": format!("snapshot-{n:07}"), "namespace": NAMESPACE, "uid": format!("uid-{n:07}"),
            "resourceVersion": format!("{n}"),
            "finalizers": [names::FINALIZER],
            "labels": { names::ORIGIN_LABEL: "scheduled", names::SCHEDULE_LABEL: format!("schedule-{of}") },
            "ownerReferences": [{
                "apiVersion": names::API_VERSION, "kind": "SnapshotSchedule",
                "name": format!("schedule-{of}"), "uid": format!("schedule-{of}"),
            }],
        },
        "spec": { "policyRef": { "name": format!("policy-{of}") }, "deletionPolicy": "Delete", "onScheduleDelete": "Delete" },
        "status": {
            "phase": "Succeeded", "origin": "scheduled",
            "snapshot": { "kopiaSnapshotID": format!("{n:064x}"), "identity": {
                "username": format!("policy-{of}"), "hostname": NAMESPACE, "sourcePath": "/pvc/data",
            } },
            "timing": { "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z" },
            "resolved": { "repository": { "kind": "Repository", "name": "vault", "namespace": NAMESPACE }, "uniqueId": UNIQUE_ID },
        },
    });
    if deleting {
        object["metadata"]["deletionTimestamp"] = json!("2026-01-02T00:00:00Z");
    }
    Ok(serde_json::from_value(object)?)
}
