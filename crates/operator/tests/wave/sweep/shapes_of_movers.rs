//! Shapes: what goes wrong where the deletion is carried out.

use super::cluster::Step;
use super::model::Trouble;
use super::scene::{Scene, repository_path, snapshot_path};
use super::shapes::{Shape, fails_with, job, running, shape, skip, step, told};
use crate::server::objects::Objects;
use holdfast_core::deletion::RepositoryKey;
use holdfast_core::deletion::names::job_name;
use serde_json::json;

pub fn all() -> Vec<Shape> {
    let long = |shape: Shape, seconds| Shape { seconds, ..shape };
    vec![
        long(shape("one of three fails once", |s| letter(s, 'F', 1)), 300),
        long(
            shape("one of three is still there, twice", |s| letter(s, 'S', 2)),
            600,
        ),
        long(
            told(
                "one of three never matches, and is skipped",
                |s| letter(s, 'M', 99),
                || {
                    vec![step(
                        |o| {
                            let s1 = o.by_path.get(&snapshot_path("s1"));
                            s1.is_some_and(|s| s["status"]["deletion"]["attempts"].as_u64() >= Some(2))
                        },
                        snapshot_path("s1"),
                        skip,
                    )]
                },
            ),
            600,
        ),
        long(
            shape("the message is lost", |s| trouble(s, &[Trouble::MessageLost])),
            300,
        ),
        long(
            shape("the message is lost twice: smaller batches", |s| {
                trouble(s, &[Trouble::MessageLost; 2])
            }),
            300,
        ),
        shape("what came back is deleted again", |s| came_back(s, 2)),
        told(
            "what came back is held, then acknowledged",
            |s| came_back(s, 3),
            || {
                vec![step(
                    super::shapes::says(repository_path("nas"), "DeletedSnapshotsReappeared"),
                    repository_path("nas"),
                    super::shapes::acknowledge(super::scene::at(10)),
                )]
            },
        ),
        Shape {
            silence: true,
            ..told("a batch waits for a writer", with_writer, || {
                vec![Step {
                    when: Box::new(|o| {
                        o.by_path.iter().any(|(path, lease)| {
                            path.contains("/leases/")
                                && !lease["metadata"]["annotations"]
                                    ["kopiur.home-operations.com/lane-waiting-since"]
                                    .is_null()
                        })
                    }),
                    then: Box::new(|o| {
                        o.edit(&super::scene::writer_path("nightly"), |job| {
                            job["status"] =
                                json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
                        });
                    }),
                }]
            })
        },
        Shape {
            silence: true,
            ..told(
                "a writer that has not started waits for a batch",
                with_waiting_writer,
                || {
                    let path = || super::scene::writer_path("nightly");
                    let suspended = |wanted: bool| {
                        let path = path();
                        move |o: &Objects| (o.by_path[&path]["spec"]["suspend"] == true) == wanted
                    };
                    vec![
                        step(suspended(true), path(), |job| {
                            job["status"] =
                                json!({ "conditions": [{ "type": "Suspended", "status": "True" }] });
                        }),
                        step(suspended(false), path(), |job| {
                            job["status"] =
                                json!({ "conditions": [{ "type": "Complete", "status": "True" }] });
                        }),
                    ]
                },
            )
        },
        long(
            shape("the mover is killed half-way", |s| {
                trouble(s, &[Trouble::KilledHalfWay])
            }),
            300,
        ),
        long(
            shape("the repository cannot be reached, twice", |s| {
                trouble(s, &[Trouble::Unreachable, Trouble::Unreachable]);
            }),
            400,
        ),
        long(
            shape("a Job that does not start", |s| {
                trouble(s, &[Trouble::NeverStarts])
            }),
            900,
        ),
        long(
            told(
                "a Job deleted by hand while it runs",
                |s| trouble(s, &[]),
                || {
                    vec![Step {
                        when: Box::new(running),
                        then: Box::new(|o| {
                            let path = job(o).map(|(path, _)| path.clone());
                            path.and_then(|path| o.remove(&path));
                        }),
                    }]
                },
            ),
            300,
        ),
        long(
            told(
                "a Job deleted by hand after it ended",
                |s| trouble(s, &[]),
                || {
                    vec![Step {
                        when: Box::new(|o| job(o).is_some_and(|(_, j)| !j["status"]["conditions"].is_null())),
                        then: Box::new(|o| {
                            let path = job(o).map(|(path, _)| path.clone());
                            path.and_then(|path| o.remove(&path));
                        }),
                    }]
                },
            ),
            300,
        ),
        long(
            told(
                "the password Secret is missing, then there",
                without_secret,
                || {
                    vec![Step {
                        when: Box::new(fails_with("MissingCredentialsSecret")),
                        then: Box::new(|o| {
                            o.put(
                            SECRET,
                            json!({ "apiVersion": "v1", "metadata": { "name": "key", "namespace": "backup" }, "data": { "KOPIA_PASSWORD": "eA==" } }),
                        );
                        }),
                    }]
                },
            ),
            300,
        ),
        long(
            told("a Job that is not ours has the name", name_taken, || {
                vec![Step {
                    when: Box::new(fails_with("JobNameTaken")),
                    then: Box::new(|o| _ = o.remove(&taken())),
                }]
            }),
            300,
        ),
    ]
}

const SECRET: &str = "/api/v1/namespaces/backup/secrets/key";

fn three(scene: &mut Scene<'_>) {
    scene.repository("nas", "id", 10);
    scene.deleted(3);
}

fn letter(scene: &mut Scene<'_>, letter: char, times: u32) {
    three(scene);
    scene.model.letters.insert("id-s1".to_owned(), (letter, times));
}

fn came_back(scene: &mut Scene<'_>, count: usize) {
    scene.repository("nas", "id", 3);
    scene.came_back(count);
}

fn with_writer(scene: &mut Scene<'_>) {
    three(scene);
    scene.writer("nightly", "id");
}

fn with_waiting_writer(scene: &mut Scene<'_>) {
    with_writer(scene);
    scene.objects.edit(&super::scene::writer_path("nightly"), |job| {
        job["status"] = json!({})
    });
}

fn trouble(scene: &mut Scene<'_>, runs: &[Trouble]) {
    three(scene);
    scene.model.trouble.extend(runs.iter().copied().enumerate());
}

fn without_secret(scene: &mut Scene<'_>) {
    three(scene);
    scene.objects.remove(SECRET);
}

fn taken() -> String {
    let uids = ["u-s0".to_owned(), "u-s1".to_owned(), "u-s2".to_owned()];
    let nas = RepositoryKey::Repository {
        namespace: "backup".to_owned(),
        name: "nas".to_owned(),
    };
    let name = job_name(&nas, &uids).unwrap();
    format!("/apis/batch/v1/namespaces/backup/jobs/{name}")
}

fn name_taken(scene: &mut Scene<'_>) {
    three(scene);
    let path = taken();
    let name = path.rsplit('/').next().unwrap();
    scene.objects.put(
        &path,
        json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name, "namespace": "backup" }, "spec": {} }),
    );
}
