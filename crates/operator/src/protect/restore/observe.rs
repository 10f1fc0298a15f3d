//! What the decision on a Restore rests on. Reads live only what the stage it is in needs.

use super::access::{self, Why};
use super::claims::{self, Claim};
use super::job;
use super::source::{self, Source};
use crate::context::{Context, Error};
use crate::jobs::outcome::{self, JobFact};
use crate::jobs::privileged;
use crate::world::keys::{self, ObjectKey, RepositoryKey};
use crate::world::views::{JobView, RepositoryView};
use holdfast_api::Restore;
use holdfast_api::restore::{ResolvedRestore, RestorePhase};
use holdfast_core::identity::Named;
use holdfast_core::restore::Reason;
use jiff::Timestamp;
use std::sync::Arc;

/// Facts about one Restore.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The object.
    pub view: Arc<Restore>,
    /// Why its spec is refused; empty when it is not.
    pub refusals: Vec<String>,
    /// Where it goes.
    pub target: Target,
    /// Where it comes from; only while no snapshot is recorded.
    pub source: Option<Source>,
    /// The repository, for the Job that comes next; only when one does.
    pub repository: Option<Result<Arc<RepositoryView>, Why>>,
    /// Whether the operator itself recorded the name of the snapshot in that repository; asked when `repository` is.
    pub recorded_name: bool,
    /// The Job of the stage it is in, if there is one.
    pub job: Option<JobFact>,
    /// Jobs of this Restore that run and should not: those of a spec that was edited since, or of a Restore that has
    /// ended.
    pub leftovers: Vec<Arc<JobView>>,
    /// The repository that is kept on the claim it goes to.
    pub keeps: Option<RepositoryKey>,
}

/// Where a restore goes.
#[derive(Debug, Clone)]
pub enum Target {
    /// A claim to be made.
    New(Option<Claim>),
    /// A claim that is to be there.
    Existing(Option<Claim>),
    /// Claims that ask for it.
    Populate(Populate),
    /// Not looked at: the Restore has ended, or is refused.
    Unread,
}

/// Claims that ask to be filled.
#[derive(Debug, Clone, Default)]
pub struct Populate {
    /// Those that are bound to nothing, oldest first.
    pub unbound: Vec<Claim>,
    /// Those that are bound.
    pub bound: Vec<Claim>,
    /// The one that stands in for the recorded claim.
    pub prime: Option<Claim>,
}

impl Populate {
    /// The claim with this UID.
    #[must_use]
    pub fn find(&self, uid: &str) -> Option<&Claim> {
        self.unbound.iter().chain(&self.bound).find(|c| c.uid == uid)
    }
}

impl Facts {
    /// Whether it fills claims.
    #[must_use]
    pub fn populates(&self) -> bool {
        self.view.spec.target.populator.is_some()
    }

    /// What is recorded to be restored.
    #[must_use]
    pub fn resolved(&self) -> Option<&ResolvedRestore> {
        self.view.status.as_ref()?.resolved.as_ref()
    }

    /// Phase; none is that of a new object.
    #[must_use]
    pub fn phase(&self) -> Option<RestorePhase> {
        self.view.status.as_ref()?.phase
    }

    /// The claim that is recorded as the one to fill.
    #[must_use]
    pub fn filling(&self) -> Option<&str> {
        let target = self.view.status.as_ref()?.target.as_ref()?;
        target.pvc_ref.as_ref()?.uid.as_deref()
    }

    /// The volume that is recorded as the filled one.
    #[must_use]
    pub fn volume(&self) -> Option<&str> {
        self.view.status.as_ref()?.target.as_ref()?.volume.as_deref()
    }

    /// Whether the spec is another one than the status speaks of.
    #[must_use]
    pub fn is_edited(&self) -> bool {
        let observed = self.view.status.as_ref().and_then(|s| s.observed_generation);
        observed.is_some() && observed != self.view.metadata.generation
    }

    /// Whether it has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        match self.phase() {
            Some(RestorePhase::Completed | RestorePhase::Failed | RestorePhase::Unknown) => true,
            Some(RestorePhase::Pending | RestorePhase::Resolving | RestorePhase::Restoring) | None => false,
        }
    }

    /// Whether everything was written, and only the volume has to be handed over.
    #[must_use]
    pub fn is_written(&self) -> bool {
        job::is_written(&self.view)
    }
}

/// Gathers the facts.
pub async fn facts(ctx: &Context, view: Arc<Restore>) -> Result<Facts, Error> {
    let refusals: Vec<String> = holdfast_api::validate::restore(&view.spec)
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut facts = Facts {
        view,
        refusals,
        target: Target::Unread,
        source: None,
        repository: None,
        recorded_name: false,
        job: None,
        leftovers: Vec::new(),
        keeps: None,
    };
    facts.leftovers = leftovers(ctx, &facts);
    if !facts.refusals.is_empty() || (facts.has_ended() && !facts.populates()) {
        return Ok(facts);
    }
    facts.target = target(ctx, &facts).await?;
    if facts.has_ended() || (facts.populates() && facts.filling().is_none()) {
        return Ok(facts);
    }
    let now = ctx.clock.now();
    let namespace = ObjectKey::of(facts.view.as_ref()).namespace;
    let goes_to = goes_to(&facts.view);
    let keeps = |view: &RepositoryView| goes_to.iter().any(|name| claims::keeps(view, &namespace, name));
    facts.keeps = ctx
        .world
        .repositories_that(keeps)
        .first()
        .map(|view| view.key.clone());
    facts.job = current_job(ctx, &facts).await?;
    let needs_job = facts.job.is_none() && !facts.is_written();
    match facts.resolved().cloned() {
        None => {
            let source = source::source(ctx, &facts.view, now).await?;
            if let (Source::Asks(asks), true) = (&source, needs_job) {
                facts.repository = Some(access(ctx, &facts.view, asks.repository.as_ref()).await?);
            }
            facts.source = Some(source);
        }
        Some(resolved) if resolved.kopia_snapshot_id.is_some() && needs_job => {
            let key = resolved
                .repository
                .as_ref()
                .and_then(|r| keys::resolve(r, &namespace));
            let found = access(ctx, &facts.view, key.as_ref()).await?;
            if let (Ok(view), Some(identity)) = (&found, &resolved.identity) {
                let named = Named {
                    username: identity.username.clone(),
                    hostname: identity.hostname.clone(),
                };
                facts.recorded_name = source::is_recorded(&ctx.world, &facts.view, view, &named);
            }
            facts.repository = Some(found);
        }
        Some(_) => {}
    }
    Ok(facts)
}

/// The repository, if the movers of this Restore can reach it, and may be as it asks.
async fn access(
    ctx: &Context,
    restore: &Restore,
    key: Option<&RepositoryKey>,
) -> Result<Result<Arc<RepositoryView>, Why>, Error> {
    let of = ObjectKey::of(restore);
    let found = access::repository(ctx, &of.namespace, key, job::projects(restore)).await?;
    if found.is_ok() && job::is_privileged(restore) && !privileged::is_agreed(ctx, &of.namespace).await? {
        let message = privileged::not_agreed(&format!("Restore {of}"), &of.namespace);
        return Ok(Err((Reason::PrivilegedMoverNotPermitted, message)));
    }
    Ok(found)
}

async fn target(ctx: &Context, facts: &Facts) -> Result<Target, Error> {
    let restore = &facts.view;
    let namespace = ObjectKey::of(restore.as_ref()).namespace;
    let spec = &restore.spec.target;
    if let Some(new) = &spec.pvc {
        return Ok(Target::New(claims::claim(ctx, &namespace, &new.name).await?));
    }
    if let Some(there) = &spec.pvc_ref {
        return Ok(Target::Existing(
            claims::claim(ctx, &namespace, &there.name).await?,
        ));
    }
    let mut populate = Populate::default();
    for mut claim in claims::asking(ctx, restore).await? {
        if claim.volume.is_some() {
            populate.bound.push(claim);
        } else {
            claim.waits_for_consumer = claims::waits_for_consumer(ctx, &claim).await?;
            populate.unbound.push(claim);
        }
    }
    let status = restore.status.as_ref();
    let recorded = status
        .and_then(|s| s.target.as_ref())
        .and_then(|t| t.pvc_prime.as_deref());
    if let (Some(prime), false) = (recorded, facts.has_ended()) {
        populate.prime = claims::claim(ctx, &namespace, prime).await?;
    }
    Ok(Target::Populate(populate))
}

/// Names of the claims that get its files.
fn goes_to(restore: &Restore) -> Vec<String> {
    let target = restore.status.as_ref().and_then(|s| s.target.as_ref());
    let filled = target.and_then(|t| t.pvc_ref.as_ref()).map(|c| c.name.clone());
    let filled = filled.filter(|_| restore.spec.target.populator.is_some());
    filled.into_iter().chain([job::target(restore)]).collect()
}

/// Every Job that the Restore controls: a label alone makes none of them.
pub(super) fn jobs_of(ctx: &Context, restore: &Restore) -> Vec<Arc<JobView>> {
    let uid = restore.metadata.uid.as_deref().unwrap_or_default();
    let mut jobs = ctx.world.jobs_of(uid);
    jobs.retain(|job| job.is_of("Restore", &ObjectKey::of(restore), uid));
    jobs
}

fn leftovers(ctx: &Context, facts: &Facts) -> Vec<Arc<JobView>> {
    let wanted = (!facts.has_ended()).then(|| job::current(&facts.view));
    let mut all = jobs_of(ctx, &facts.view);
    all.retain(|job| job::is_left_over(job, wanted.as_deref()));
    all
}

/// The Job of the stage, with its outcome read live.
async fn current_job(ctx: &Context, facts: &Facts) -> Result<Option<JobFact>, Error> {
    let wanted = job::current(&facts.view);
    let Some(job) = jobs_of(ctx, &facts.view)
        .into_iter()
        .find(|j| j.key().name == wanted)
    else {
        return Ok(None);
    };
    let read = outcome::read(&ctx.client, &job).await?;
    Ok(Some(JobFact {
        state: job.state(),
        job,
        read,
    }))
}

/// Since when a snapshot is looked for: the Restore's creation, or that of the claim it fills.
#[must_use]
pub fn since(facts: &Facts) -> Timestamp {
    let created = facts.view.metadata.creation_timestamp.as_ref();
    let created = created.map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    match (&facts.target, facts.filling()) {
        (Target::Populate(populate), Some(uid)) => populate
            .find(uid)
            .map_or(created, |claim| claim.created.max(created)),
        (Target::Populate(_) | Target::New(_) | Target::Existing(_) | Target::Unread, _) => created,
    }
}
