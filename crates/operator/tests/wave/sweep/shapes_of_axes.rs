//! Shapes: who deleted it, and what keeps it.

use super::scene::{ORIGIN, Scene, delete, owned, repository_path, schedule_path, snapshot_path, stamped};
use super::shapes::{Shape, acknowledge, held, job, says, shape, skip, step, told};
use serde_json::json;

pub fn all() -> Vec<Shape> {
    vec![
        shape("schedule gone, Retain", |s| cascade(s, 10, "Retain")),
        shape("schedule gone, Delete, below the threshold", |s| {
            cascade(s, 10, "Delete")
        }),
        shape("schedule gone, Delete, held", |s| cascade(s, 3, "Delete")),
        shape("schedule re-created under the same name", |s| {
            cascade(s, 10, "Retain");
            s.schedule("nightly");
            s.objects.edit(&schedule_path("nightly"), |o| {
                o["metadata"]["uid"] = json!("another")
            });
        }),
        shape("schedule terminating", |s| {
            cascade(s, 10, "Retain");
            s.schedule("nightly");
            s.objects.edit(&schedule_path("nightly"), |o| {
                o["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
                o["metadata"]["finalizers"] = json!(["foregroundDeletion"]);
            });
        }),
        shape("schedule alive, deleted by hand", |s| {
            cascade(s, 10, "Retain");
            s.schedule("nightly");
        }),
        shape(
            "cascade, hand, policy, discovered, without data: all at once",
            mixed,
        ),
        shape("namespace torn down, Orphan", |s| teardown(s, None)),
        shape("namespace torn down, Delete", |s| teardown(s, Some(10))),
        shape("namespace torn down, Delete, held", |s| teardown(s, Some(3))),
        shape("namespace of the Jobs torn down", |s| {
            s.repository("nas", "id", 10);
            s.deleted(2);
            terminate(s, "backup");
        }),
        Shape {
            cap: 1,
            ..shape("two lanes under a cap of one", |s| {
                s.repository("nas", "id", 10);
                s.repository("other", "id2", 10);
                s.deleted(2);
                s.snapshot("o0", |o| {
                    delete(o, 0);
                    o["status"]["resolved"]["repository"]["name"] = json!("other");
                });
            })
        },
        shape("without a pin: each alone, through the policy", |s| {
            s.repository("nas", "id", 10);
            s.policy(50);
            s.deleted(1);
            for n in 0..2 {
                s.snapshot(&format!("u{n}"), |o| {
                    delete(o, n);
                    o["status"]["resolved"] = json!(null);
                });
            }
        }),
        shape("one snapshot recorded by two, one of them alive", |s| {
            shared(s, false)
        }),
        shape("one snapshot recorded by two, both deleted", |s| shared(s, true)),
        shape("repository object gone", |s| {
            s.repository("nas", "id", 10);
            s.deleted(2);
            s.objects.remove(&repository_path("nas"));
        }),
        told(
            "repository object gone while its Job runs",
            |s| {
                s.repository("nas", "id", 10);
                s.deleted(2);
            },
            || {
                vec![super::cluster::Step {
                    when: Box::new(super::shapes::running),
                    then: Box::new(|o| _ = o.remove(&repository_path("nas"))),
                }]
            },
        ),
        shape("the definitions are deleted", |s| {
            s.repository("nas", "id", 1);
            s.deleted(2);
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/snapshots.kopiur.home-operations.com";
            s.objects.edit(path, |o| {
                o["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z")
            });
        }),
        Shape {
            starts_after: 60,
            ..told(
                "skipped before the container starts",
                |s| plain(s, 3),
                || {
                    vec![step(
                        |o| job(o).is_some_and(|(_, j)| j["status"]["active"].is_null()),
                        snapshot_path("s0"),
                        skip,
                    )]
                },
            )
        },
        told(
            "skipped in flight",
            |s| plain(s, 2),
            || vec![step(super::shapes::running, snapshot_path("s0"), skip)],
        ),
        told("suspended, then resumed", suspended, || {
            vec![step(
                says(snapshot_path("s0"), "DeletionBlocked"),
                repository_path("nas"),
                |r| {
                    r["spec"]["suspend"] = json!(false);
                },
            )]
        }),
        told("everything at once, held, acknowledged", everything, || {
            vec![step(
                held(3),
                repository_path("nas"),
                acknowledge(super::scene::at(40)),
            )]
        }),
    ]
}

fn plain(scene: &mut Scene<'_>, count: i64) {
    scene.repository("nas", "id", 10);
    scene.deleted(count);
}

fn cascade(scene: &mut Scene<'_>, threshold: u32, policy: &str) {
    scene.repository("nas", "id", threshold);
    for n in 0..3 {
        scene.snapshot(&format!("s{n}"), |o| {
            delete(o, n);
            owned(o, "nightly");
            o["spec"]["onScheduleDelete"] = json!(policy);
        });
    }
}

fn suspended(scene: &mut Scene<'_>) {
    plain(scene, 2);
    scene
        .objects
        .edit(&repository_path("nas"), |r| r["spec"]["suspend"] = json!(true));
}

fn terminate(scene: &mut Scene<'_>, namespace: &str) {
    scene
        .objects
        .edit(&format!("/api/v1/namespaces/{namespace}"), |o| {
            o["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
        });
}

fn teardown(scene: &mut Scene<'_>, deletes_at: Option<u32>) {
    scene.repository("nas", "id", deletes_at.unwrap_or(1));
    if deletes_at.is_some() {
        scene.objects.edit(&repository_path("nas"), |r| {
            r["spec"]["onNamespaceDelete"] = json!("Delete")
        });
    }
    for n in 0..3 {
        scene.snapshot_in("team", &format!("t{n}"), |o| delete(o, n));
    }
    terminate(scene, "team");
}

fn shared(scene: &mut Scene<'_>, both: bool) {
    scene.repository("nas", "id", 10);
    for n in 0..2 {
        scene.snapshot(&format!("s{n}"), |o| {
            o["status"]["snapshot"]["kopiaSnapshotID"] = json!("id-shared");
            if n == 0 || both {
                delete(o, n);
            }
        });
    }
}

fn mixed(scene: &mut Scene<'_>) {
    scene.repository("nas", "id", 2);
    scene.snapshot("cascade", |o| {
        delete(o, 0);
        owned(o, "nightly");
    });
    scene.snapshot("hand", |o| delete(o, 1));
    scene.snapshot("kept", |o| {
        delete(o, 2);
        o["spec"]["deletionPolicy"] = json!("Retain");
    });
    scene.snapshot("found", |o| {
        delete(o, 3);
        o["metadata"]["labels"][ORIGIN] = json!("discovered");
        o["status"]["origin"] = json!("discovered");
    });
    scene.snapshot("empty", |o| {
        delete(o, 4);
        o["status"]["snapshot"] = json!(null);
        o["status"]["phase"] = json!("Failed");
    });
    scene.snapshot("skipped", |o| {
        delete(o, 5);
        skip(o);
    });
}

fn everything(scene: &mut Scene<'_>) {
    mixed(scene);
    scene.objects.edit(&repository_path("nas"), |r| {
        r["spec"]["deletionProtection"]["threshold"] = json!(3)
    });
    scene.deleted(3);
    scene.kept();
    for n in 0..2 {
        scene.snapshot(&format!("p{n}"), |o| stamped(o, 20 + n));
    }
    scene.snapshot_in("team", "t0", |o| delete(o, 30));
    terminate(scene, "team");
}
