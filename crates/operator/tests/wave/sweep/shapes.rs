//! The shapes that waves have. Here: how the breaker answers.

use super::cluster::Step;
use super::scene::{
    ALLOW, OP, PRUNED_KEPT, SKIP, Scene, at, condition, delete, is_true, repository_path, snapshot_path,
    stamped,
};
use super::{shapes_of_axes, shapes_of_movers};
use crate::server::objects::Objects;
use crate::server::path::Place;
use serde_json::{Value, json};

/// One shape: what is there, what people do, how long it takes.
pub struct Shape {
    pub name: &'static str,
    pub scene: fn(&mut Scene<'_>),
    pub steps: fn() -> Vec<Step>,
    /// Seconds from a start of the operator to the end.
    pub seconds: u64,
    /// See [`super::cluster::Cluster::storm`].
    pub storm: usize,
    /// Seconds that a container waits until it starts.
    pub starts_after: u64,
    /// Most Jobs in the cluster.
    pub cap: u32,
    /// Deletions need silence.
    pub silence: bool,
}

/// A shape in which people do something.
pub const fn told(name: &'static str, scene: fn(&mut Scene<'_>), steps: fn() -> Vec<Step>) -> Shape {
    Shape {
        name,
        scene,
        steps,
        seconds: 180,
        storm: 0,
        starts_after: 1,
        cap: 0,
        silence: false,
    }
}

/// A shape in which nobody does anything.
pub const fn shape(name: &'static str, scene: fn(&mut Scene<'_>)) -> Shape {
    told(name, scene, Vec::new)
}

/// As soon as the objects are so, this is done to one of them.
pub fn step(
    when: impl Fn(&Objects) -> bool + Send + 'static,
    path: String,
    then: impl Fn(&mut Value) + Send + 'static,
) -> Step {
    Step {
        when: Box::new(when),
        then: Box::new(move |objects| objects.edit(&path, &then)),
    }
}

/// The condition of an object is True.
pub fn says(path: String, kind: &'static str) -> impl Fn(&Objects) -> bool + Send {
    move |objects| objects.by_path.get(&path).is_some_and(|o| is_true(o, kind))
}

/// So many of `s0`, `s1`, … are held, and the repository says so.
pub fn held(count: usize) -> impl Fn(&Objects) -> bool + Send {
    move |objects| {
        let marked = (0..count).all(|n| says(snapshot_path(&format!("s{n}")), "DeletionHeld")(objects));
        marked && says(repository_path("nas"), "MassDeletionHeld")(objects)
    }
}

pub fn gone(name: &'static str) -> impl Fn(&Objects) -> bool + Send {
    move |objects| !objects.by_path.contains_key(&snapshot_path(name))
}

pub fn acknowledge(value: String) -> impl Fn(&mut Value) + Send {
    move |repository| repository["metadata"]["annotations"][ALLOW] = json!(value)
}

pub fn skip(snapshot: &mut Value) {
    snapshot["metadata"]["annotations"][SKIP] = json!("");
}

/// The batch Job, if there is one.
pub fn job(objects: &Objects) -> Option<(&String, &Value)> {
    objects.by_path.iter().find(|(path, object)| {
        Place::parse(path).is_some_and(|p| p.plural == "jobs")
            && object["metadata"]["labels"][OP] == "snapshot-delete-batch"
    })
}

/// A pod of a batch Job is running.
pub fn running(objects: &Objects) -> bool {
    objects
        .by_path
        .iter()
        .any(|(path, o)| path.contains("/pods/") && o["status"]["phase"] == "Running")
}

pub fn all() -> Vec<Shape> {
    let mut all = breaker();
    all.extend(shapes_of_axes::all());
    all.extend(shapes_of_movers::all());
    all
}

fn wave(scene: &mut Scene<'_>, count: i64, threshold: u32) {
    scene.repository("nas", "id", threshold);
    scene.deleted(count);
}

fn nas() -> String {
    repository_path("nas")
}

fn breaker() -> Vec<Shape> {
    vec![
        shape("one deleted by hand", |s| wave(s, 1, 10)),
        shape("three deleted, below the threshold", |s| wave(s, 3, 10)),
        shape("held, and nobody comes", |s| wave(s, 3, 3)),
        told(
            "held, then acknowledged",
            |s| wave(s, 3, 2),
            || vec![step(held(3), nas(), acknowledge(at(2)))],
        ),
        told(
            "acknowledged before it was seen",
            |s| wave(s, 3, 2),
            || vec![step(|_| true, nas(), acknowledge(at(2)))],
        ),
        told(
            "held, and acknowledged in part",
            |s| wave(s, 3, 2),
            || vec![step(held(3), nas(), acknowledge(at(0)))],
        ),
        told("acknowledged into the future, then another wave", future, || {
            vec![
                step(held(2), nas(), acknowledge(at(200))),
                Step {
                    when: Box::new(|o| gone("s0")(o) && gone("s1")(o) && job(o).is_none()),
                    then: Box::new(|o| {
                        for name in ["later0", "later1"] {
                            let time = json!(o.time());
                            o.edit(&snapshot_path(name), |s| {
                                s["metadata"]["deletionTimestamp"] = time.clone();
                            });
                        }
                    }),
                },
            ]
        }),
        told(
            "an acknowledgement that cannot be read, then one that can",
            |s| wave(s, 2, 2),
            || {
                vec![
                    step(held(2), nas(), acknowledge("yes please".into())),
                    step(
                        |o| {
                            !o.by_path[&nas()]["status"]["deletionProtection"]["invalidAcknowledgement"]
                                .is_null()
                        },
                        nas(),
                        acknowledge(at(30)),
                    ),
                ]
            },
        ),
        told(
            "latched, then two of four rescued",
            |s| wave(s, 4, 3),
            || {
                vec![
                    step(held(4), snapshot_path("s0"), skip),
                    step(|_| true, snapshot_path("s1"), skip),
                ]
            },
        ),
        told(
            "latched, then threshold 0",
            |s| wave(s, 3, 3),
            || {
                vec![step(held(3), nas(), |r| {
                    r["spec"]["deletionProtection"]["threshold"] = json!(0)
                })]
            },
        ),
        told(
            "latched, then a threshold raised",
            |s| wave(s, 3, 3),
            || {
                vec![step(held(3), nas(), |r| {
                    r["spec"]["deletionProtection"]["threshold"] = json!(50)
                })]
            },
        ),
        shape("threshold 0", |s| wave(s, 3, 0)),
        shape("prunes beside nothing", |s| {
            s.repository("nas", "id", 2);
            s.kept();
            for n in 0..3 {
                s.snapshot(&format!("s{n}"), |o| stamped(o, n));
            }
        }),
        shape("a prune that stands on nothing", |s| {
            s.repository("nas", "id", 2);
            s.snapshot("s0", |o| {
                stamped(o, 0);
                let annotations = o["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.remove(PRUNED_KEPT);
            });
        }),
        told(
            "prunes while a wave is held, then the wave acknowledged",
            held_and_pruned,
            || {
                vec![step(
                    |o| held(2)(o) && gone("p0")(o) && gone("p1")(o),
                    nas(),
                    acknowledge(at(5)),
                )]
            },
        ),
        shape("prunes of the policy itself, while a wave is held", |s| {
            wave(s, 3, 3);
            s.policy(1);
            for n in 0..3 {
                s.snapshot(&format!("old{n}"), |o| {
                    o["status"]["timing"] = json!({ "startTime": at(-900 + n), "endTime": at(-800 + n) });
                });
            }
        }),
        told(
            "two objects over one bucket: the strictest threshold, each its own acknowledgement",
            two_objects,
            || {
                vec![step(
                    |o| {
                        ["a0", "a1", "b0", "b1"]
                            .iter()
                            .all(|n| says(snapshot_path(n), "DeletionHeld")(o))
                            && says(nas(), "MassDeletionHeld")(o)
                            && says(repository_path("nas2"), "MassDeletionHeld")(o)
                    },
                    nas(),
                    acknowledge(at(9)),
                )]
            },
        ),
        Shape {
            storm: 7,
            ..told(
                "a storm of conflicts, held, then acknowledged",
                |s| wave(s, 3, 2),
                || vec![step(held(3), nas(), acknowledge(at(2)))],
            )
        },
        told(
            "versions forgotten while the Job runs",
            |s| wave(s, 2, 10),
            || {
                vec![Step {
                    when: Box::new(running),
                    then: Box::new(|o| o.compacted = o.version + 1),
                }]
            },
        ),
        told(
            "one more deleted while the Job runs, that makes a wave",
            one_more,
            || {
                vec![Step {
                    when: Box::new(running),
                    then: Box::new(|o| {
                        for (n, name) in ["late0", "late1", "late2"].iter().enumerate() {
                            let time = json!(at(20 + i64::try_from(n).unwrap()));
                            o.edit(&snapshot_path(name), |s| {
                                s["metadata"]["deletionTimestamp"] = time.clone()
                            });
                        }
                    }),
                }]
            },
        ),
    ]
}

fn future(scene: &mut Scene<'_>) {
    scene.repository("nas", "id", 2);
    scene.deleted(2);
    for name in ["later0", "later1"] {
        scene.snapshot(name, |_| {});
    }
}

fn held_and_pruned(scene: &mut Scene<'_>) {
    wave(scene, 2, 2);
    scene.kept();
    for n in 0..2 {
        scene.snapshot(&format!("p{n}"), |o| stamped(o, 3 + n));
    }
}

fn two_objects(scene: &mut Scene<'_>) {
    scene.repository("nas", "id", 9);
    scene.repository("nas2", "id", 4);
    for n in 0..2 {
        scene.snapshot(&format!("a{n}"), |o| delete(o, n));
        scene.snapshot(&format!("b{n}"), |o| {
            delete(o, n);
            o["status"]["resolved"]["repository"]["name"] = json!("nas2");
        });
    }
}

fn one_more(scene: &mut Scene<'_>) {
    scene.repository("nas", "id", 3);
    scene.deleted(1);
    for name in ["late0", "late1", "late2"] {
        scene.snapshot(name, |_| {});
    }
}

/// A repository says why its delete Jobs fail.
pub fn fails_with(reason: &'static str) -> impl Fn(&Objects) -> bool + Send {
    move |objects| {
        condition(&objects.by_path[&nas()], "DeletionJobsFailing")
            .is_some_and(|(s, r)| s == "True" && r == reason)
    }
}
