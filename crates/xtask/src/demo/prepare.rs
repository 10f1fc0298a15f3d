//! Step a: real files, 24 snapshots through schedules, and sets of 700 (or as many as asked for).

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use holdfast_api::repository::{Repository, RepositoryPhase};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase};
use holdfast_api::{conditions, names};
use holdfast_e2e::scenario::told;
use holdfast_e2e::seed::{self, Home, Member, Set};
use holdfast_e2e::{Lab, Look, objects, pods, until, until_every};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, ListParams};

use super::stage::{Row, SECRET, Stage, VAULT};
use crate::progress::{say, seconds};

/// The sources; each has a policy and [`RUNS`] schedules of its own.
const SOURCES: [&str; 4] = ["orders", "invoices", "mail", "photos"];
/// Schedules for each source.
const RUNS: usize = 6;
/// The policy with retention: it keeps this many.
pub const KEEPS: (&str, u32) = ("orders", 6);
/// The source and policy of the sets.
const ARCHIVE: &str = "archive";
/// Objects of a set, unless others are asked for: an incident that was.
pub const SET: usize = 700;

/// A set.
pub struct Seeded {
    /// What its members have in common.
    pub set: Set,
    /// The objects.
    pub members: Vec<Member>,
    /// Snapshots in the repository once they were there.
    pub count: u64,
}

impl Seeded {
    /// How many there are.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// The members' UIDs.
    pub fn uids(&self) -> BTreeSet<String> {
        self.members.iter().map(|m| m.uid.clone()).collect()
    }
}

/// A few megabytes of files of different kinds and sizes on every claim; little on the archive's.
fn files() -> String {
    let sources = SOURCES.join(" ");
    format!(
        "set -e
for source in {sources}; do
  cd /volumes/$source
  for folder in 2024 2025 2026; do
    mkdir -p $folder
    for n in 1 2 3 4 5 6 7 8; do
      seq $n 7 $((n * 3000)) > $folder/$source-$n.csv
      head -c $((n * 15000)) /dev/urandom > $folder/$source-$n.bin
    done
  done
  ln -s 2026 current
done
cd /volumes/{ARCHIVE}
mkdir -p a/b && echo one > a/one && seq 1 50 > a/b/two
du -sk /volumes | cut -f1 > /dev/termination-log"
    )
}

/// Step a, first half: 24 snapshots through schedules and mover Jobs.
pub async fn twenty_four(stage: &mut Stage) -> Result<()> {
    let started = Instant::now();
    let ns = stage.namespace.clone();
    let lab = stage.lab.clone();
    say("\na. Real backups first.");
    let volumes: Vec<String> = SOURCES
        .iter()
        .chain(&[ARCHIVE])
        .map(|s| (*s).to_owned())
        .collect();
    let written = stage.during("writing files to back up", async {
        for claim in volumes.iter().map(String::as_str).chain([VAULT]) {
            lab.create(objects::claim(&ns, claim)).await?;
        }
        let job = objects::shell_job(&ns, "files", &lab.tools_image, &volumes, &files());
        pods::run(&lab, job, Duration::from_secs(120)).await
    });
    let kib: u64 = written
        .await?
        .message
        .trim()
        .parse()
        .context("the size of the files")?;
    say(format!(
        "   {} claims hold {:.1} MB of files, random and not.",
        volumes.len(),
        kib as f64 / 1000.0
    ));

    lab.create(objects::secret(&ns, SECRET, objects::PASSWORD))
        .await?;
    let create = Instant::now();
    lab.create(objects::repository(&ns, VAULT, VAULT, SECRET, None))
        .await?;
    let unique = stage
        .during("creating the repository", repository_ready(&lab, &ns))
        .await?;
    say(format!(
        "   Repository {VAULT} (engine: {:?}) was created by a bootstrap Job in {}; its unique id is {}….",
        objects::engine(),
        seconds(create.elapsed()),
        &unique[..unique.len().min(12)]
    ));
    for source in SOURCES {
        let keep = (source == KEEPS.0).then_some(KEEPS.1);
        lab.create(objects::policy(&ns, source, VAULT, source, keep))
            .await?;
    }
    lab.create(objects::policy(&ns, ARCHIVE, VAULT, ARCHIVE, None))
        .await?;

    let begun = Instant::now();
    for n in 1..=RUNS {
        for source in SOURCES {
            let name = format!("{source}-{n}");
            lab.create(objects::schedule(&ns, &name, source, true, None))
                .await?;
        }
    }
    let wanted = SOURCES.len() * RUNS;
    let taken = stage
        .during("24 schedules, 24 mover Jobs", all_succeeded(&lab, &ns, wanted))
        .await?;
    let took = begun.elapsed();
    let (mut logical, mut new, mut ids) = (0, 0, BTreeSet::new());
    for snapshot in &taken {
        let status = snapshot.status.as_ref().context("a Snapshot lost its status")?;
        let stats = status.stats.clone().unwrap_or_default();
        ensure!(stats.size_bytes > 0, "a Snapshot records no bytes");
        logical += stats.size_bytes;
        new += stats.bytes_new.unwrap_or_default();
        ids.extend(status.snapshot.iter().map(|s| s.kopia_snapshot_id.clone()));
    }
    ensure!(
        ids.len() == wanted,
        "{} snapshot ids for {wanted} Snapshots",
        ids.len()
    );
    let jobs = backup_jobs(&lab, &ns).await?;
    ensure!(jobs == wanted, "{jobs} backup Jobs for {wanted} Snapshots");
    let files = stage.count().await?;
    let scan = stage.scan().await?;
    ensure!(
        files == wanted as u64 && scan == files,
        "after {wanted} backups the repository's volume holds {files} snapshots and the operator's listing {scan}"
    );
    say(format!(
        "   {wanted} schedules with runOnCreate (cron is no finer than a minute) made {wanted} Snapshots; {jobs} mover Jobs took them in {}: {:.1} MB read, the repository grew by {:.1} MB.",
        seconds(took),
        logical as f64 / 1e6,
        new as f64 / 1e6,
    ));
    say(format!(
        "   Counted twice: {files} records on the repository's volume, {scan} in the operator's listing, which came through its HTTPS port."
    ));
    stage.row(Row {
        what: "a. backups through schedules".into(),
        objects: wanted,
        jobs: jobs.to_string(),
        most: "-".into(),
        took: started.elapsed(),
        before: 0,
        after: files,
    });
    Ok(())
}

async fn repository_ready(lab: &Lab, ns: &str) -> Result<String> {
    let api: Api<Repository> = lab.api(ns);
    until("the repository to be Ready", Duration::from_secs(120), || async {
        let status = api.get(VAULT).await?.status.unwrap_or_default();
        let said = told(&status.conditions, conditions::READY);
        lab.note(&said);
        Ok(match (status.phase, status.unique_id) {
            (Some(RepositoryPhase::Ready), Some(id)) => Look::Done(id),
            (_, _) => Look::Not(said),
        })
    })
    .await
}

async fn all_succeeded(lab: &Lab, ns: &str, wanted: usize) -> Result<Vec<Snapshot>> {
    let api: Api<Snapshot> = lab.api(ns);
    until_every(
        Duration::from_secs(1),
        "every Snapshot to succeed",
        Duration::from_secs(600),
        || async {
            let all = api.list(&ListParams::default()).await?.items;
            let phase = |s: &Snapshot| s.status.as_ref().and_then(|s| s.phase);
            let done = all
                .iter()
                .filter(|s| phase(s) == Some(SnapshotPhase::Succeeded))
                .count();
            lab.note(format!("{done} of {wanted} succeeded"));
            if done == wanted && all.len() == wanted {
                return Ok(Look::Done(all));
            }
            let failed: Vec<String> = all
                .iter()
                .filter(|s| phase(s) == Some(SnapshotPhase::Failed))
                .map(|s| {
                    let status = s.status.clone().unwrap_or_default();
                    let why = status.failure.map(|f| f.message).unwrap_or_default();
                    format!("{} failed: {why}", s.metadata.name.clone().unwrap_or_default())
                })
                .collect();
            Ok(Look::Not(format!(
                "{done} of {wanted} succeeded, {} objects {}",
                all.len(),
                failed.join("; ")
            )))
        },
    )
    .await
}

/// How many backup Jobs there are.
pub async fn backup_jobs(lab: &Lab, ns: &str) -> Result<usize> {
    let api: Api<Job> = lab.api(ns);
    let params = ListParams::default().labels(&format!("{}={}", names::OP_LABEL, names::OP_BACKUP));
    Ok(api.list_metadata(&params).await?.items.len())
}

/// The Snapshots of a set, whole.
pub async fn of_set(lab: &Lab, set: &Set) -> Result<Vec<Snapshot>> {
    let api: Api<Snapshot> = lab.api(&set.namespace);
    let params = ListParams::default().labels(&format!("{}={}", names::SCHEDULE_LABEL, set.schedule));
    Ok(api.list(&params).await?.items)
}

/// Step a, second half: objects of one schedule, and as many real snapshots for them.
pub async fn one_schedule(stage: &mut Stage, name: &'static str, on_delete: &'static str) -> Result<Seeded> {
    let started = Instant::now();
    let (lab, ns, many) = (stage.lab.clone(), stage.namespace.clone(), stage.objects);
    let before = stage.counted;
    let jobs_before = backup_jobs(&lab, &ns).await?;
    let made = lab
        .create(objects::schedule(&ns, name, ARCHIVE, false, Some(on_delete)))
        .await?;
    let set = Set {
        namespace: ns.clone(),
        repository: VAULT.into(),
        home: Home::repository(&ns),
        policy: ARCHIVE.into(),
        claim: ARCHIVE.into(),
        schedule: name.into(),
        schedule_uid: made.metadata.uid.context("the schedule has no UID")?,
        on_schedule_delete: on_delete,
    };
    let creating = seed::objects(&lab, &set, many);
    let members = stage
        .during(
            &format!("creating {many} Snapshot objects of schedule {name}"),
            creating,
        )
        .await?;
    say(format!(
        "   {many} Snapshot objects owned by the schedule {name} (onScheduleDelete: {on_delete}) are there after {}; no snapshot is in the repository for them yet.",
        seconds(started.elapsed())
    ));
    let lost = Instant::now();
    stage
        .during(
            "waiting for StatusLost on each of them",
            all_lost(&lab, &set, many, true),
        )
        .await?;
    let touched = backup_jobs(&lab, &ns).await? - jobs_before;
    ensure!(
        touched == 0,
        "the operator ran {touched} Snapshots that have no status"
    );
    ensure!(
        stage.count().await? == before,
        "the repository changed while the objects had no status"
    );
    say(format!(
        "   Meanwhile the operator shows StatusLost on all {many} (after {}) and touches nothing: no Job ran for them, the repository still holds {before}.",
        seconds(lost.elapsed())
    ));
    let seeding = Instant::now();
    let jobs = many.div_ceil(seed::PER_JOB);
    let taken = seed::snapshots(&lab, &set, &members);
    let taken = stage
        .during(&format!("{jobs} seeding Jobs take {many} real snapshots"), taken)
        .await?;
    let took = seeding.elapsed();
    let recording = seed::record(&lab, &set, &members, &taken);
    stage
        .during("writing their ids into the statuses", recording)
        .await?;
    stage
        .during("waiting for StatusLost to go", all_lost(&lab, &set, many, false))
        .await?;
    let after = stage.count().await?;
    ensure!(
        after == before + many as u64,
        "the seeding Jobs reported {many} snapshots, the repository went from {before} to {after}"
    );
    say(format!(
        "   {jobs} seeding Jobs with the mover's image took {many} real snapshots in {} ({:.0} ms each); their ids are in the statuses, StatusLost is gone. The repository went from {before} to {after}.",
        seconds(took),
        took.as_secs_f64() * 1000.0 / many as f64,
    ));
    stage.row(Row {
        what: match on_delete {
            "Delete" => "c. second set, seeded".into(),
            _ => format!("a. {many} of one schedule, seeded").into(),
        },
        objects: many,
        jobs: format!("{jobs} seeding"),
        most: "1".into(),
        took: started.elapsed(),
        before,
        after,
    });
    Ok(Seeded {
        set,
        members,
        count: after,
    })
}

async fn all_lost(lab: &Lab, set: &Set, many: usize, lost: bool) -> Result<()> {
    let what = if lost {
        "StatusLost on every Snapshot"
    } else {
        "StatusLost to be taken back"
    };
    until_every(Duration::from_secs(1), what, Duration::from_secs(180), || async {
        let all = of_set(lab, set).await?;
        let with = all
            .iter()
            .filter_map(|s| s.status.as_ref())
            .filter(|s| conditions::is_true(&s.conditions, conditions::STATUS_LOST))
            .count();
        lab.note(format!("{with} of {} show it", all.len()));
        ensure!(all.len() == many, "{} Snapshots are left of {many}", all.len());
        let wanted = if lost { many } else { 0 };
        Ok(if with == wanted {
            Look::Done(())
        } else {
            Look::Not(format!("{with} of {many} show it"))
        })
    })
    .await
}

/// Makes Snapshots of a policy as a person would, and waits for them.
pub async fn by_hand(lab: &Lab, ns: &str, policy: &str, names: &[&str]) -> Result<()> {
    let api: Api<Snapshot> = lab.api(ns);
    let api = &api;
    stream::iter(names)
        .map(|name| async move {
            lab.create(objects::snapshot(ns, name, policy)).await?;
            until(&format!("Snapshot {name}"), Duration::from_secs(180), || async {
                // With retention at work a new Snapshot may be pruned later, never before it succeeded.
                let snapshot = api.get(name).await?;
                let status = snapshot.status.unwrap_or_default();
                Ok(match status.phase {
                    Some(SnapshotPhase::Succeeded) => Look::Done(()),
                    phase => Look::Not(format!(
                        "{phase:?} {}",
                        told(&status.conditions, conditions::READY)
                    )),
                })
            })
            .await
        })
        .buffer_unordered(2)
        .try_collect::<Vec<()>>()
        .await
        .map(drop)
}
