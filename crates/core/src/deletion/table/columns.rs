//! The facts of the tables, their values, and which table asks which of them.
//!
//! **Promises.** Each value of an enum of the facts is a value of its column. Columns are named as manifests and
//! people name the facts.
//!
//! **Assumes** [`Scene`].

use super::scene::{BEFORE, BEFORE_TEXT, DELETED, DELETED_TEXT, LATER, NOW, Scene};
use super::{Column, Part, Value};
use crate::deletion::{
    Cache, Cascade, Fired, HeldCondition, LaneLatch, LiveBatch, NamespaceState, OnNamespaceDelete, OwnMover,
    Owner, Place, Policy, RecordedAcknowledgement, RepositoryKey, Resolution, Sharing, SlidingWindow, Stamp,
};
use jiff::SignedDuration;

pub(super) const PARTS: &[Part] = &[
    Part {
        title: "Ahead of the rules, and rules 1 to 3",
        columns: &[&LANE, &JOB, &SKIP, &UNINSTALL, &RECORDED, &MOVER, &STAMP, &POLICY],
        until: 4,
    },
    Part {
        title: "Rule 4",
        columns: &[
            &NAMESPACE,
            &ON_NAMESPACE_DELETE,
            &RESOLVED,
            &PLACE,
            &STAMP,
            &HELD_BEFORE,
            &POLICY,
            &OWNER,
        ],
        until: 5,
    },
    Part {
        title: "Rules 5 to 7",
        columns: &[&STAMP, &HELD_BEFORE, &POLICY, &TEARDOWN, &OWNER, &CASCADE],
        until: 8,
    },
    Part {
        title: "Rule 8",
        columns: &[&SHARING, &REPOSITORY, &PRUNE, &HELD_BEFORE],
        until: 9,
    },
    Part {
        title: "Rule 9, and prunes that passed rule 8",
        columns: &[&PRUNE, &ACKNOWLEDGEMENT, &THRESHOLD, &LATCH, &COUNT],
        until: 10,
    },
];

const LANE: Column = Column {
    name: "operator",
    values: &[
        ("knows all", |_| {}),
        ("caches not filled", |s| s.lane.cache = Cache::Cold),
        ("another manager is alive", |s| s.lane.foreign_manager = true),
    ],
};

fn ride(scene: &mut Scene, started: bool) {
    scene.lane.live = Some(LiveBatch {
        job: "snapdel-nas-0".into(),
        repository: super::scene::key(),
        members: scene
            .member()
            .map(|member| member.uid.clone())
            .into_iter()
            .collect(),
        started,
        created_at: NOW,
    });
}

const JOB: Column = Column {
    name: "its delete Job",
    values: &[
        ("none", |_| {}),
        ("not started", |s| ride(s, false)),
        ("may have started", |s| ride(s, true)),
    ],
};

const SKIP: Column = Column {
    name: "`skip-snapshot-cleanup`",
    values: &[("no", |_| {}), ("yes", |s| s.change(|m| m.skip = true))],
};

const UNINSTALL: Column = Column {
    name: "CRD is deleted",
    values: &[("no", |_| {}), ("yes", |s| s.lane.api_going_away = true)],
};

const RECORDED: Column = Column {
    name: "snapshot id",
    values: &[
        ("recorded", |_| {}),
        ("none", |s| s.change(|m| m.snapshot = None)),
    ],
};

const MOVER: Column = Column {
    name: "its backup mover",
    values: &[
        ("none", |s| s.change(|m| m.mover = OwnMover::None)),
        ("runs", |s| s.change(|m| m.mover = OwnMover::Running)),
        ("result unread", |s| s.change(|m| m.mover = OwnMover::Unread)),
        ("not known", |s| s.change(|m| m.mover = OwnMover::Unknown)),
    ],
};

const NAMESPACE: Column = Column {
    name: "its namespace",
    values: &[
        ("live", |s| s.change(|m| m.namespace_state = NamespaceState::Live)),
        ("terminating", |s| {
            s.change(|m| m.namespace_state = NamespaceState::Terminating);
        }),
        ("not readable", |s| {
            s.change(|m| m.namespace_state = NamespaceState::Unreadable);
        }),
    ],
};

/// What rule 4 leaves of the namespace and of `onNamespaceDelete`.
const TEARDOWN: Column = Column {
    name: "its namespace",
    values: &[
        ("live", |_| {}),
        ("not readable", |s| {
            s.change(|m| m.namespace_state = NamespaceState::Unreadable);
        }),
        ("torn down with Delete", |s| {
            s.change(|m| m.namespace_state = NamespaceState::Terminating);
            s.repository(|r| r.on_namespace_delete = OnNamespaceDelete::Delete);
        }),
    ],
};

const ON_NAMESPACE_DELETE: Column = Column {
    name: "`onNamespaceDelete`",
    values: &[
        ("Orphan", |s| {
            s.repository(|r| r.on_namespace_delete = OnNamespaceDelete::Orphan);
        }),
        ("Delete", |s| {
            s.repository(|r| r.on_namespace_delete = OnNamespaceDelete::Delete);
        }),
        ("unknown", |s| {
            s.repository(|r| r.on_namespace_delete = OnNamespaceDelete::Unknown);
        }),
    ],
};

const HERE: Value = ("known", |_| {});
const GONE: Value = ("gone for good", |s| s.change(|m| m.repository = Resolution::Gone));
const UNREADABLE: Value = ("not readable", |s| {
    s.change(|m| m.repository = Resolution::Unreadable);
});

const RESOLVED: Column = Column {
    name: "repository",
    values: &[HERE, GONE, UNREADABLE],
};

fn elsewhere() -> RepositoryKey {
    RepositoryKey::ClusterRepository {
        name: "elsewhere".into(),
    }
}

const REPOSITORY: Column = Column {
    name: "repository",
    values: &[
        HERE,
        ("known without a pin", |s| s.change(|m| m.pin = None)),
        ("not the one of the pin", |s| {
            s.change(|m| m.pin = Some(elsewhere()));
        }),
        ("not one of this lane", |s| {
            s.change(|m| {
                m.pin = Some(elsewhere());
                m.repository = Resolution::Resolved(elsewhere());
            });
        }),
        GONE,
        UNREADABLE,
    ],
};

const PLACE: Column = Column {
    name: "namespace for the Job",
    values: &[
        ("fine", |s| s.change(|m| m.place = Place::Fine)),
        ("terminating", |s| s.change(|m| m.place = Place::Terminating)),
        ("not set", |s| s.change(|m| m.place = Place::NotSet)),
        ("not readable", |s| s.change(|m| m.place = Place::Unknown)),
    ],
};

fn stamp(scene: &mut Scene, stamp: Stamp) {
    scene.change(|member| {
        member.stamp = stamp;
        member.pruned_at = Some(DELETED);
    });
}

const STAMP: Column = Column {
    name: "`pruned-by`",
    values: &[
        ("none", |_| {}),
        ("another value", |s| stamp(s, Stamp::Unknown)),
        ("an old stamp", |s| {
            stamp(s, Stamp::Retention);
            s.change(|m| m.pruned_at = Some(jiff::Timestamp::UNIX_EPOCH));
        }),
        ("`retention`", |s| stamp(s, Stamp::Retention)),
        ("`retention`, and what it kept vanished", |s| {
            stamp(s, Stamp::Unjustified);
        }),
        ("`failed-history`", |s| stamp(s, Stamp::FailedHistory)),
        ("`policy-cascade`", |s| stamp(s, Stamp::PolicyCascade)),
        ("`replaced-run`", |s| stamp(s, Stamp::ReplacedRun)),
    ],
};

const PRUNE: Column = Column {
    name: "asked for by",
    values: &[
        ("someone else", |_| {}),
        ("our prune", |s| stamp(s, Stamp::Retention)),
    ],
};

const HELD_BEFORE: Column = Column {
    name: "held before",
    values: &[
        ("no", |_| {}),
        ("yes", |s| {
            s.change(|m| m.held = HeldCondition::Held { since: DELETED });
        }),
    ],
};

const POLICY: Column = Column {
    name: "deletion policy",
    values: &[
        ("Delete", |s| s.change(|m| m.policy = Policy::Delete)),
        ("Retain", |s| s.change(|m| m.policy = Policy::Retain)),
        ("Orphan", |s| s.change(|m| m.policy = Policy::Orphan)),
        ("unknown", |s| s.change(|m| m.policy = Policy::Unknown)),
    ],
};

const OWNER: Column = Column {
    name: "its schedule",
    values: &[
        ("none", |s| s.change(|m| m.owner = Owner::None)),
        ("alive", |s| s.change(|m| m.owner = Owner::Alive)),
        ("gone", |s| s.change(|m| m.owner = Owner::Gone)),
        ("replaced", |s| s.change(|m| m.owner = Owner::Replaced)),
        ("terminating", |s| s.change(|m| m.owner = Owner::Terminating)),
        ("not known", |s| s.change(|m| m.owner = Owner::Unknown)),
    ],
};

const CASCADE: Column = Column {
    name: "`onScheduleDelete`",
    values: &[
        ("Retain", |s| s.change(|m| m.cascade = Cascade::Retain)),
        ("Delete", |s| s.change(|m| m.cascade = Cascade::Delete)),
        ("unknown", |s| s.change(|m| m.cascade = Cascade::Unknown)),
    ],
};

const SHARING: Column = Column {
    name: "another live Snapshot records the same",
    values: &[
        ("no", |s| s.change(|m| m.sharing = Sharing::Alone)),
        ("yes", |s| {
            s.change(|m| m.sharing = Sharing::WithLive("app/b".into()))
        }),
        ("not known", |s| s.change(|m| m.sharing = Sharing::Unknown)),
    ],
};

const THRESHOLD: Column = Column {
    name: "threshold",
    values: &[
        ("set", |_| {}),
        ("0", |s| s.repository(|r| r.threshold = Some(0))),
        ("0, but not that of an object that went during the hold", |s| {
            s.repository(|r| r.threshold = Some(0));
            let gone = RepositoryKey::ClusterRepository { name: "gone".into() };
            s.lane.latch = Some(LaneLatch {
                held_through: None,
                thresholds: [(gone, super::scene::THRESHOLD)].into(),
            });
        }),
    ],
};

const COUNT: Column = Column {
    name: "pending that count",
    values: &[
        ("below the threshold", |_| {}),
        ("at the threshold", Scene::reach_threshold),
        (
            "below, with those fired lately at `slidingWindow.threshold`",
            |s| {
                s.repository(|r| {
                    r.sliding_window = Some(SlidingWindow {
                        duration: SignedDuration::from_hours(1),
                        threshold: 2,
                    });
                });
                s.lane.fired = vec![Fired {
                    uid: "z".into(),
                    at: DELETED,
                }];
            },
        ),
    ],
};

const LATCH: Column = Column {
    name: "held before",
    values: &[
        ("no", |_| {}),
        ("its own condition says so", |s| {
            s.change(|m| m.held = HeldCondition::Held { since: DELETED });
        }),
        ("its own condition is not readable", |s| {
            s.change(|m| m.held = HeldCondition::Unreadable);
        }),
        ("not after `heldThrough`", |s| {
            s.repository(|r| r.held_through = Some(DELETED));
        }),
        ("not after what the lane remembers", |s| {
            let latch = s.lane.latch.get_or_insert_default();
            latch.held_through = Some(DELETED);
        }),
    ],
};

fn acknowledge(scene: &mut Scene, value: &str, recorded: Option<jiff::Timestamp>) {
    scene.repository(|repository| {
        repository.acknowledgement = Some(value.into());
        repository.recorded_acknowledgement = recorded.map(|effective| RecordedAcknowledgement {
            value: value.into(),
            effective,
            seen_at: effective,
        });
    });
}

const ACKNOWLEDGEMENT: Column = Column {
    name: "acknowledgement",
    values: &[
        ("none", |_| {}),
        ("covers it", |s| acknowledge(s, DELETED_TEXT, Some(DELETED))),
        ("not recorded yet", |s| acknowledge(s, DELETED_TEXT, None)),
        ("earlier", |s| acknowledge(s, BEFORE_TEXT, Some(BEFORE))),
        ("not a time", |s| acknowledge(s, "yes", None)),
    ],
};

/// Facts that each keep an allowed deletion from being carried out at once.
pub(super) const OBSTACLES: &[Value] = &[
    ("its namespace cannot be read", |s| {
        s.change(|m| m.namespace_state = NamespaceState::Unreadable);
    }),
    (
        "its schedule cannot be read, whatever `onScheduleDelete` says",
        |s| {
            s.change(|m| {
                m.owner = Owner::Unknown;
                m.cascade = Cascade::Delete;
            });
        },
    ),
    ("its backup mover runs", |s| {
        s.change(|m| m.mover = OwnMover::Running);
    }),
    ("its backup mover's result is unread", |s| {
        s.change(|m| m.mover = OwnMover::Unread);
    }),
    ("whether it has a backup mover is not known", |s| {
        s.change(|m| m.mover = OwnMover::Unknown);
    }),
    ("it recorded no source", |s| {
        s.change(|m| m.snapshot.iter_mut().for_each(|recorded| recorded.source = None));
    }),
    ("the repository's unique id is not known", |s| {
        s.repository(|r| r.connected = false);
    }),
    ("a repository object of the lane is suspended", |s| {
        s.repository(|r| r.suspend = true);
    }),
    ("`deletions.paused`", |s| s.settings.paused = true),
    ("the repository could not be reached", |s| {
        s.repository(|r| r.backoff_until = Some(LATER));
    }),
    ("it failed before, and is not due", |s| {
        s.change(|m| {
            m.attempts = 1;
            m.next_attempt_at = Some(LATER);
        });
    }),
    ("it does not fit a work document", |s| {
        s.change(|m| m.document_bytes = usize::MAX);
    }),
    ("it was seen less than the quiet window ago", |s| {
        s.change(|m| m.first_seen = NOW);
    }),
    ("another batch of the lane is live", |s| {
        ride(s, true);
        s.lane
            .live
            .iter_mut()
            .for_each(|batch| batch.members = vec!["b".into()]);
    }),
    ("its Job has not started", |s| ride(s, false)),
    ("as many Jobs as allowed run in the cluster", |s| {
        s.settings.max_jobs = 1;
        s.lane.live_jobs_in_cluster = 1;
    }),
    ("a maintenance Job runs", |s| s.lane.maintenance = true),
];
