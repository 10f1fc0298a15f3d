//! Four thousand pending prunes in one lane, against the API server in memory, with a stand-in for the mover that takes
//! two seconds to connect. (The real mover does the same on a cluster: `four_thousand_prunes` of the end-to-end tests.)
//!
//! **Promises.** Never more than one live delete Job on the lane, 20 of them, each member written as often as it has to
//! be and no more; listings for second looks are no connections of the lane's batches; another lane's single deletion
//! is done within 30 seconds meanwhile.

use crate::server::Server;
use crate::server::objects::Objects;
use crate::server::path::Place;
use crate::sweep::model::Model;
use crate::sweep::process::{Fault, Process, Trace};
use crate::sweep::scene::{Scene, delete, repository_path, snapshot_path, stamped};
use crate::sweep::shapes;
use axum::http::Method;
use holdfast_operator::runtime::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const PRUNES: usize = 4_000;
const CONNECT: Duration = Duration::from_secs(2);

/// What kubelet and mover do: a container starts after a second, connects for two, and answers.
#[derive(Default)]
struct Cluster {
    model: Model,
    due: BTreeMap<String, Instant>,
    begun: usize,
    most: BTreeMap<String, usize>,
    connects: BTreeMap<String, usize>,
    left: Vec<usize>,
    single_done: Option<Instant>,
}

fn batches(objects: &Objects) -> Vec<(String, Value)> {
    let jobs = objects.by_path.iter().filter(|(path, job)| {
        Place::parse(path).is_some_and(|p| p.plural == "jobs")
            && job["metadata"]["labels"]["kopiur.home-operations.com/op"] == "snapshot-delete-batch"
    });
    jobs.map(|(path, job)| (path.clone(), job.clone())).collect()
}

impl Cluster {
    /// Once for each new Job, and once for each that has had its time.
    fn act(&mut self, objects: &mut Objects) {
        let now = Instant::now();
        let jobs = batches(objects);
        let mut live: BTreeMap<String, usize> = BTreeMap::new();
        for (path, job) in &jobs {
            if !job["status"]["conditions"].is_null() {
                continue;
            }
            let lane = job["metadata"]["annotations"]["kopiur.home-operations.com/delete-unique-id"].as_str();
            *live.entry(lane.unwrap().to_owned()).or_default() += 1;
            let uid = job["metadata"]["uid"].as_str().unwrap().to_owned();
            let due = *self.due.entry(uid.clone()).or_insert_with(|| {
                self.begun += 1;
                *self.connects.entry(lane.unwrap().to_owned()).or_default() += 1;
                now + Duration::from_secs(1) + CONNECT
            });
            if due > now {
                continue;
            }
            let left = self.model.work(job, None);
            let place = Place::parse(path).unwrap();
            let pod = format!("/api/v1/namespaces/{}/pods/{uid}", place.namespace.unwrap());
            objects.put(
                &pod,
                json!({
                    "apiVersion": "v1", "kind": "Pod",
                    "metadata": {
                        "name": uid, "namespace": place.namespace,
                        "labels": { "batch.kubernetes.io/controller-uid": uid },
                        "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "", "uid": uid, "controller": true }],
                    },
                    "status": { "phase": "Succeeded", "containerStatuses": [{
                        "name": "mover", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                        "state": { "terminated": { "exitCode": 0, "message": left.message } },
                    }] },
                }),
            );
            objects.edit(path, |job| {
                job["status"] = json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
            });
        }
        for (lane, live) in live {
            let most = self.most.entry(lane).or_default();
            *most = live.max(*most);
        }
        if self.single_done.is_none() && !objects.by_path.contains_key(&snapshot_path("single")) {
            self.single_done = Some(now);
        }
    }
}

#[test]
fn four_thousand_prunes_go_in_twenty_batches_and_hold_up_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(play());
}

async fn play() {
    let begin = Instant::now();
    let start = Timestamp::from_second(crate::sweep::scene::BEGIN + 60).unwrap();
    let clock = Clock::new(move || start + SignedDuration::try_from(begin.elapsed()).unwrap());
    let server = Server::watched(clock.clone(), 0);
    let cluster = Arc::new(Mutex::new(Cluster::default()));
    {
        let mut objects = server.objects();
        let mut cluster = cluster.lock().unwrap();
        let mut scene = Scene {
            objects: &mut objects,
            model: &mut cluster.model,
        };
        scene.ground();
        scene.repository("nas", "id", 10);
        scene.repository("other", "id2", 10);
        scene.kept();
        for n in 0..PRUNES {
            scene.snapshot(&format!("p{n:04}"), |o| {
                stamped(o, i64::try_from(n % 50).unwrap())
            });
        }
        // Not deleted yet: a person does that while the prunes go on.
        scene.snapshot("single", |o| {
            o["status"]["resolved"]["repository"]["name"] = json!("other")
        });
    }
    let trace = Arc::new(Trace::default());
    let shape = shapes::shape("four thousand prunes", |_| {});
    let process = Process::start(&server, &trace, Fault::Nothing, &clock, 0, &shape);
    let mut deleted_at = None;
    let mut last = Instant::now();
    let finished = loop {
        tokio::time::sleep(Duration::from_millis(250)).await;
        {
            let mut objects = server.objects();
            let mut cluster = cluster.lock().unwrap();
            let version = objects.version;
            cluster.act(&mut objects);
            if cluster.begun == 5 && deleted_at.is_none() {
                deleted_at = Some(Instant::now());
                let second = clock
                    .now()
                    .duration_since(Timestamp::from_second(crate::sweep::scene::BEGIN).unwrap());
                objects.edit(&snapshot_path("single"), |o| delete(o, second.as_secs()));
            }
            if last.elapsed() >= Duration::from_secs(10) {
                last = Instant::now();
                let left = cluster.model.stores["id"].len() - 1;
                cluster.left.push(left);
            }
            let empty = cluster.model.stores["id"].len() == 1 && batches(&objects).is_empty();
            if objects.version != version {
                server.notify();
            }
            if empty && cluster.single_done.is_some() {
                break begin.elapsed();
            }
        }
        assert!(
            begin.elapsed() < Duration::from_secs(1_800),
            "not done after half an hour"
        );
    };
    process.end().await;
    let cluster = cluster.lock().unwrap();
    let single = cluster.single_done.unwrap() - deleted_at.unwrap();
    println!(
        "{PRUNES} prunes in {:.0} s of the cluster's time: {} batches, most at once {:?}; left every 10 s: {:?}; the other lane's single deletion took {:.0} s",
        finished.as_secs_f64(),
        cluster.connects["id"],
        cluster.most,
        cluster.left,
        single.as_secs_f64()
    );
    assert_eq!(cluster.connects["id"], 20, "batches of 200");
    assert_eq!(cluster.most["id"], 1, "never two at once");
    assert!(single <= Duration::from_secs(30), "{single:?}");
    assert!(
        cluster.left.windows(2).all(|w| w[1] <= w[0]) && cluster.left.len() > 3,
        "progress is visible"
    );
    assert!(
        cluster.left.windows(6).all(|w| w[5] < w[0]),
        "it never stands still for a minute"
    );
    // Connections of second looks are those of listing Jobs; none is due before ten minutes have passed.
    let lists = server.writes(&Method::POST, "/jobs");
    let lists = lists
        .iter()
        .filter(|w| w.body["metadata"]["labels"]["kopiur.home-operations.com/op"] == "repository-list");
    assert_eq!(lists.count(), 0, "counted apart");
    let nas = server.get(&repository_path("nas")).unwrap();
    assert!(
        !nas["status"]["catalog"]["secondLookAt"].is_null(),
        "and scheduled"
    );
    // Claim, outcome, finalizer: three writes for a member, and one more for those that were told to wait.
    let writes = server.writes(&Method::PATCH, "/snapshots/p").len();
    assert!(writes <= PRUNES * 4 + 500, "{writes} writes");
}
