//! The crash sweep (`docs/design.md` 8.5): the operator's own code against a scripted API server, dead after request
//! k for every k, and started again.
//!
//! **Promises.** Every shape is played undisturbed first. Then once for each request that the operator made: it dies right
//! after that request was carried out (which is also: before it read the answer, and before the next request). Then for
//! each write: the answer is lost, or the write is refused, and the process lives. Then again with watches that lag. The
//! end is that of the undisturbed play, and the rules of [`rules`] held after every request.
//!
//! `HOLDFAST_SWEEP=whole` plays everything; without it what is beside the deaths is sampled. `HOLDFAST_SWEEP_ONLY` names the
//! shapes that are played, `HOLDFAST_SWEEP_END` shows their ends.
//!
//! **Assumes.** Time is tokio's, paused: an hour costs nothing.

pub mod cluster;
pub mod model;
pub mod process;
mod rules;
pub mod scene;
pub mod shapes;
mod shapes_of_axes;
mod shapes_of_movers;

use crate::server::Server;
use cluster::Cluster;
use holdfast_operator::runtime::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use process::{Asked, Fault, Process, Trace};
use scene::{BEGIN, Scene};
use serde_json::Value;
use shapes::Shape;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Wall};
use tokio::time::Instant;

/// Fewer shapes than this are no sweep.
const SHAPES: usize = 20;
/// See [`faults`].
const SAMPLE: usize = 8;
/// Seconds from a death to the next start.
const RESTART: Duration = Duration::from_secs(3);
/// Lags of the watches, in requests.
const LAGS: [usize; 3] = [0, 3, 20];

struct Played {
    end: Value,
    broken: Vec<String>,
    asked: Vec<Asked>,
    undone: usize,
}

/// Plays one shape with one fault.
fn play(shape: &Shape, fault: Fault, lag: usize) -> Played {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let begin = Instant::now();
        let clock = Clock::new(move || {
            let passed = SignedDuration::try_from(begin.elapsed()).unwrap();
            // The wave in a story was deleted a minute ago.
            Timestamp::from_second(BEGIN + 60).unwrap() + passed
        });
        let server = Server::watched(clock.clone(), lag);
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        prepare(shape, &server, &cluster);
        let beside = tokio::spawn(beside(server.clone(), Arc::clone(&cluster)));
        let trace = Arc::new(Trace::default());
        let long = Duration::from_secs(shape.seconds);
        let process = Process::start(&server, &trace, fault, &clock, 0, shape);
        let died = tokio::select! {
            () = trace.death() => true,
            () = tokio::time::sleep(long) => false,
        };
        process.end().await;
        if died {
            tokio::time::sleep(RESTART).await;
            let process = Process::start(&server, &trace, Fault::Nothing, &clock, 1, shape);
            tokio::time::sleep(long).await;
            process.end().await;
        }
        beside.abort();
        let _ = beside.await;
        let objects = server.objects();
        let mut cluster = cluster.lock().unwrap();
        Played {
            end: scene::end(&objects, &cluster.model),
            broken: std::mem::take(&mut cluster.rules.broken),
            asked: trace.asked(),
            undone: cluster.steps.len(),
        }
    })
}

fn prepare(shape: &Shape, server: &Server, cluster: &Arc<Mutex<Cluster>>) {
    {
        let mut objects = server.objects();
        let mut cluster = cluster.lock().unwrap();
        let mut scene = Scene {
            objects: &mut objects,
            model: &mut cluster.model,
        };
        scene.ground();
        (shape.scene)(&mut scene);
        cluster.steps = (shape.steps)().into();
        cluster.storm = shape.storm;
        cluster.starts_after = Duration::from_secs(shape.starts_after);
        cluster.act(&mut objects, false);
    }
    let of_write = Arc::clone(cluster);
    server.on_write(move |write, objects| {
        of_write.lock().unwrap().meddle(objects, &write.path);
        None
    });
    let of_write = Arc::clone(cluster);
    server.after_write(move |_, objects| {
        of_write.lock().unwrap().act(objects, true);
    });
}

/// The rest of the cluster.
async fn beside(server: Server, cluster: Arc<Mutex<Cluster>>) {
    loop {
        let due = {
            let mut objects = server.objects();
            let version = objects.version;
            let due = cluster.lock().unwrap().act(&mut objects, false);
            if objects.version != version {
                server.notify();
            }
            due
        };
        let due = due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3_600));
        tokio::select! {
            () = server.changed() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

/// What a shape is played with, after it was played undisturbed: a death after every write, and after every read that
/// found something else stored than the request before it (a death after any other leaves the same to the next
/// process). What is beside that is played at one write of [`SAMPLE`], another one for each shape, unless the whole
/// is asked for; then a death after each request is a point of its own.
fn faults(asked: &[Asked], lag: usize, sample: Option<usize>) -> Vec<Fault> {
    let mut all = Vec::new();
    let mut before: Option<Asked> = None;
    let mut writes = sample.unwrap_or_default();
    for (k, asked) in asked.iter().enumerate() {
        let passed = before.is_none_or(|b| b.stored.1 != asked.stored.1);
        let changed = before.is_none_or(|b| b.stored.0 != asked.stored.0);
        let after_write = before.is_some_and(|b| b.write);
        if asked.write {
            writes += 1;
            let sampled = sample.is_none() || writes.is_multiple_of(SAMPLE);
            if lag == 0 || sampled {
                all.push(Fault::DiesAfter(k));
            }
            if lag == 0 && sampled {
                all.extend([Fault::AnswerLost(k), Fault::Refused(k)]);
            }
        } else if lag == 0 && (sample.is_none() || changed && (passed || !after_write)) {
            all.push(Fault::DiesAfter(k));
        }
        before = Some(*asked);
    }
    all
}

#[derive(Default)]
struct Tally {
    points: AtomicUsize,
    trouble: Mutex<Vec<String>>,
}

impl Tally {
    fn compare(&self, shape: &Shape, fault: Fault, lag: usize, played: &Played, wanted: &Value) {
        let mut wrong = played.broken.clone();
        if played.undone > 0 {
            wrong.push(format!("{} things never came to pass", played.undone));
        }
        if played.end != *wanted {
            wrong.push(format!("ended as {:#}\nand not as {wanted:#}", played.end));
        }
        if !wrong.is_empty() {
            let text = format!("{}, {fault:?}, lag {lag}: {}", shape.name, wrong.join("\n"));
            println!("WRONG {text}");
            self.trouble.lock().unwrap().push(text);
        }
    }
}

fn sweep(shape: &Shape, sample: Option<usize>, tally: &Tally) {
    let begin = Wall::now();
    let undisturbed = play(shape, Fault::Nothing, 0);
    let wanted = undisturbed.end.clone();
    assert!(
        undisturbed.asked.iter().any(|a| a.write),
        "{}: nothing happens",
        shape.name
    );
    if std::env::var("HOLDFAST_SWEEP_END").is_ok() {
        println!("{}: {wanted:#}", shape.name);
    }
    tally.compare(shape, Fault::Nothing, 0, &undisturbed, &wanted);
    let mut points = 0;
    for lag in LAGS {
        let asked = if lag == 0 {
            undisturbed.asked.clone()
        } else {
            let calm = play(shape, Fault::Nothing, lag);
            tally.compare(shape, Fault::Nothing, lag, &calm, &wanted);
            calm.asked
        };
        for fault in faults(&asked, lag, sample) {
            let played = play(shape, fault, lag);
            tally.compare(shape, fault, lag, &played, &wanted);
            points += 1;
        }
    }
    tally.points.fetch_add(points, Ordering::SeqCst);
    println!(
        "  {}: {points} crash points, {:.1} s",
        shape.name,
        begin.elapsed().as_secs_f64()
    );
}

#[test]
fn a_process_that_dies_between_any_two_requests_comes_to_the_same_end() {
    let begin = Wall::now();
    let whole = std::env::var("HOLDFAST_SWEEP").is_ok_and(|what| what == "whole");
    let only = std::env::var("HOLDFAST_SWEEP_ONLY").unwrap_or_default();
    let shapes: Vec<Shape> = shapes::all()
        .into_iter()
        .filter(|s| s.name.contains(&only))
        .collect();
    let tally = Tally::default();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(4);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::SeqCst);
                    let Some(shape) = shapes.get(index) else {
                        break;
                    };
                    sweep(shape, (!whole).then_some(index), &tally);
                }
            });
        }
    });
    let points = tally.points.load(Ordering::SeqCst);
    println!(
        "{} shapes, {points} crash points, {:.1} s",
        shapes.len(),
        begin.elapsed().as_secs_f64()
    );
    let trouble = tally.trouble.into_inner().unwrap();
    assert!(
        trouble.is_empty(),
        "{} of them went wrong:\n{}",
        trouble.len(),
        trouble.iter().take(5).cloned().collect::<Vec<_>>().join("\n\n")
    );
    if only.is_empty() {
        assert!(shapes.len() >= SHAPES, "only {} shapes", shapes.len());
    }
}
