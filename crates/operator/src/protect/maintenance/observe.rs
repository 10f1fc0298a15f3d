//! What the decision on a Maintenance rests on.

use super::works_on;
use crate::context::{Context, Error};
use crate::jobs::create::{SecretFact, secret};
use crate::jobs::needs::{self, Needs, Unmet};
use crate::jobs::outcome::{JobFact, job_fact};
use crate::protect::wave;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_api::maintenance::{CronSpec, FULL_CRON, Maintenance, QUICK_CRON, RunStatus};
use holdfast_api::repository::{Engine, RepositoryPhase};
use holdfast_api::{conditions, names, shared, validate};
use holdfast_core::maintenance::{Effort, Facts, Lane, Reason, Repository, Request, Track};
use holdfast_core::schedule::Timetable;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;

/// A Maintenance, its repository, its Job, and the facts made of them.
pub struct Observed {
    /// Which.
    pub key: ObjectKey,
    /// The object.
    pub view: Arc<Maintenance>,
    /// What of the spec is refused.
    pub refusals: Vec<String>,
    /// Its repository, if it exists.
    pub repository: Option<Arc<RepositoryView>>,
    /// Its Job, if there is one.
    pub job: Option<JobFact>,
    /// The facts, or why a schedule cannot be read.
    pub facts: Result<Facts, String>,
    /// What is known beyond the reason in the facts, for people.
    pub sentence: Option<String>,
    /// What a person asked for in words that cannot be read: the annotation's value and why.
    pub bad_request: Option<(String, String)>,
}

/// Gathers the facts.
pub async fn observe(
    ctx: &Context,
    key: &ObjectKey,
    view: Arc<Maintenance>,
    now: Timestamp,
) -> Result<Observed, Error> {
    let named = keys::resolve(&view.spec.repository, &key.namespace);
    let repository = named.as_ref().and_then(|named| ctx.world.repository(named));
    let (state, sentence) = state(ctx, key, repository.as_deref()).await?;
    let mut refusals: Vec<String> = validate::maintenance(&view.spec)
        .iter()
        .map(ToString::to_string)
        .collect();
    if view.spec.ownership.is_some()
        && repository
            .as_ref()
            .is_some_and(|r| r.spec.engine == Engine::Restic)
    {
        refusals.push(
            "spec.ownership is for engine Kopia: repositories of engine Restic have no record of who maintains them. Remove it, and let only one program maintain the repository"
                .to_owned(),
        );
    }
    let lane = match &repository {
        Some(repository) => lane(ctx, repository, now).await?,
        None => Lane::default(),
    };
    let (request, bad_request) = match requested(&view) {
        Ok(request) => (request, None),
        Err(bad) => (None, Some(bad)),
    };
    let uid = view.metadata.uid.clone().unwrap_or_default();
    let tracks =
        track(&view, Effort::Quick, &uid).and_then(|quick| Ok((quick, track(&view, Effort::Full, &uid)?)));
    let facts = tracks.map(|(quick, full)| Facts {
        created_at: created(&view),
        quick,
        full,
        request,
        repository: state,
        another: named
            .as_ref()
            .is_some_and(|named| another(ctx, key, &view, named)),
        lane,
        quick_frees: repository
            .as_ref()
            .is_none_or(|repository| match repository.spec.engine {
                Engine::Kopia => false,
                Engine::Restic | Engine::Unknown => true,
            }),
    });
    Ok(Observed {
        job: job_fact(ctx, &uid, names::OP_MAINTENANCE).await?,
        key: key.clone(),
        refusals,
        repository,
        facts,
        sentence,
        bad_request,
        view,
    })
}

fn created(view: &Maintenance) -> Timestamp {
    let created = view.metadata.creation_timestamp.as_ref();
    created.map_or(Timestamp::MAX, |t| t.0)
}

/// Whether an older one is of the same physical repository. One that is refused for its place has no turn.
fn another(ctx: &Context, key: &ObjectKey, view: &Maintenance, named: &RepositoryKey) -> bool {
    let lane = ctx.world.lane_of(named);
    let order = |key: &ObjectKey, view: &Maintenance| (created(view), key.clone());
    let own = order(key, view);
    let before = ctx.world.maintenances(|other, theirs| {
        let Some(repository) = keys::resolve(&theirs.spec.repository, &other.namespace) else {
            return false;
        };
        let in_place = repository.namespace().unwrap_or(&ctx.settings.namespace) == other.namespace;
        let same = repository == *named || ctx.world.lane_of(&repository) == lane;
        other != key
            && same
            && in_place
            && theirs.metadata.deletion_timestamp.is_none()
            && order(other, theirs) < own
    });
    !before.is_empty()
}

/// Whether a mover can run, and what is known beyond the reason why not.
async fn state(
    ctx: &Context,
    key: &ObjectKey,
    repository: Option<&RepositoryView>,
) -> Result<(Repository, Option<String>), Error> {
    let not = |why, sentence| Ok((Repository::Not(why), sentence));
    let Some(view) = repository else {
        return not(Reason::RepositoryNotFound, None);
    };
    let place = view.place(&ctx.settings.namespace);
    if place != key.namespace {
        let sentence = format!(
            "The movers of {} run in {place}: a Maintenance of it is made there.",
            view.key
        );
        return not(Reason::NamespaceNotAllowed, Some(sentence));
    }
    if view.spec.suspend {
        return not(Reason::RepositorySuspended, None);
    }
    let failed = view.status.phase == Some(RepositoryPhase::Failed);
    let going = view.metadata.deletion_timestamp.is_some();
    if view.unique_id().is_none() || failed || going || !view.refusals.is_empty() {
        return not(Reason::RepositoryNotReady, None);
    }
    // Slow is no reason to wait: less to read may be what makes it faster.
    let reached = conditions::get(&view.status.conditions, conditions::BACKEND_REACHABLE);
    if reached.is_some_and(|c| c.status == "False" && c.reason == Reason::BackendUnreachable.as_str()) {
        return not(Reason::BackendUnreachable, None);
    }
    let password = &view.spec.encryption.password_secret_ref;
    match secret(ctx, place, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing => {
            let sentence = format!("Secret {place}/{} does not exist. Create it.", password.name);
            return not(Reason::MissingCredentialsSecret, Some(sentence));
        }
        SecretFact::NoKey => {
            let sentence = format!(
                "Secret {place}/{} has no key {}. Add it.",
                password.name, password.key
            );
            return not(Reason::MissingCredentialsKey, Some(sentence));
        }
    }
    if let Needs::Unmet(unmet) = needs::backend(ctx, place, place, view).await? {
        let reason = match unmet {
            Unmet::Claim(_) => Reason::MissingRepositoryClaim,
            Unmet::Secret(_) => Reason::MissingCredentialsSecret,
            Unmet::Key(..) => Reason::MissingCredentialsKey,
            Unmet::CaBundle(..) => Reason::MissingCaBundle,
        };
        return not(reason, Some(unmet.message()));
    }
    Ok((Repository::Usable, None))
}

/// What is known of the lane: of every object of the physical repository, what is most careful.
async fn lane(ctx: &Context, repository: &RepositoryView, now: Timestamp) -> Result<Lane, Error> {
    let Some(id) = repository.unique_id() else {
        return Ok(Lane::default());
    };
    let objects = ctx.world.repositories_of(&ctx.world.lane_of(&repository.key));
    let looks = objects
        .iter()
        .filter_map(|view| view.status.catalog.as_ref()?.second_look_at);
    let held = |view: &RepositoryView| {
        view.protection().held_through.is_some()
            || conditions::is_true(&view.status.conditions, conditions::MASS_DELETION_HELD)
    };
    Ok(Lane {
        paused: ctx.settings.deletions_paused,
        held: objects.iter().any(|view| held(view)),
        reappeared: objects.iter().any(|view| view.protection().reappeared.is_some()),
        // One that is overdue is made now.
        look_at: looks.min().map(|at| at.max(now)),
        deleting: wave::is_deleting(ctx, id).await?,
        other_running: !ctx.world.jobs(|job| works_on(job, id)).is_empty(),
    })
}

/// Cron, jitter and time zone of an effort.
fn times(view: &Maintenance, effort: Effort) -> (CronSpec, Option<String>) {
    let schedule = view.spec.schedule.clone().unwrap_or_default();
    let (own, default) = match effort {
        Effort::Quick => (schedule.quick, QUICK_CRON),
        Effort::Full => (schedule.full, FULL_CRON),
    };
    let own = own.unwrap_or_else(|| CronSpec {
        cron: default.to_owned(),
        jitter: None,
    });
    (own, schedule.timezone)
}

/// What `status.<effort>.scheduledWith` says.
pub fn scheduled_with(view: &Maintenance, effort: Effort) -> String {
    let (CronSpec { cron, jitter }, timezone) = times(view, effort);
    let jitter = jitter.map(|j| format!(" jitter {j}")).unwrap_or_default();
    format!("{cron}{jitter} {}", timezone.as_deref().unwrap_or("UTC"))
}

/// `status.<effort>`.
pub fn run_status(view: &Maintenance, effort: Effort) -> RunStatus {
    let status = view.status.clone().unwrap_or_default();
    let own = match effort {
        Effort::Quick => status.quick,
        Effort::Full => status.full,
    };
    own.unwrap_or_default()
}

fn track(view: &Maintenance, effort: Effort, uid: &str) -> Result<Track, String> {
    let (CronSpec { cron, jitter }, timezone) = times(view, effort);
    let jitter = match jitter.as_deref() {
        None => SignedDuration::ZERO,
        Some(text) => shared::duration(text).ok_or_else(|| {
            format!(
                "spec.schedule.{}.jitter {text:?} is not a duration",
                effort.as_str()
            )
        })?,
    };
    let timetable = Timetable::new(&cron, timezone.as_deref(), jitter, uid).map_err(|error| {
        let field = format!("spec.schedule.{}", effort.as_str());
        // The time zone is of both.
        let text = error.to_string();
        if text.starts_with("spec.schedule.timezone") {
            text
        } else {
            text.replacen("spec.schedule", &field, 1)
        }
    })?;
    let status = run_status(view, effort);
    let with = status.scheduled_with.as_deref();
    Ok(Track {
        timetable,
        pinned: status.next_scheduled_at,
        last: status.last_handled_at,
        changed: with.is_some_and(|with| with != scheduled_with(view, effort)),
        next_attempt_at: status.next_attempt_at,
    })
}

/// What a person asked for and did not get yet; the error is the annotation's value and what is wrong with it.
fn requested(view: &Maintenance) -> Result<Option<Request>, (String, String)> {
    let annotation = |name: &str| view.metadata.annotations.as_ref()?.get(name);
    let Some(value) = annotation(names::RUN_REQUESTED) else {
        return Ok(None);
    };
    let status = view.status.as_ref();
    let handled = status.and_then(|s| s.manual_run.as_ref());
    if handled.is_some_and(|run| run.requested_at == *value) {
        return Ok(None);
    }
    let bad = |why: &str| (value.clone(), why.to_owned());
    let at: Timestamp = value
        .parse()
        .map_err(|_| bad("it is not a time in RFC 3339, such as 2026-01-31T12:00:00Z"))?;
    let effort = match annotation(names::RUN_MODE).map(String::as_str) {
        None | Some("full") => Effort::Full,
        Some("quick") => Effort::Quick,
        Some(_) => return Err(bad("the annotation run-mode is neither quick nor full")),
    };
    Ok(Some(Request { effort, at }))
}
