//! A copy while its Job runs, and how it goes.
//!
//! **Promises.** Whether a Job may have a copy is asked again at every look, of the object it works for, of that object's
//! pinned repository and of the installation; nothing that stands on the Job is asked, for whoever may write Jobs could
//! have written it. Without a consent the copy goes.

use super::{Consent, Hold, Projection, consent, ensure, is_ours, name};
use crate::context::{Context, Error};
use crate::protect::snapshot::allows;
use crate::runtime::write::{self, WriteError};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::{JobView, RepositoryView};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, PropagationPolicy};

/// The object that a Job works for, as it stands recorded.
#[derive(Debug, Clone)]
pub struct User<'a> {
    /// `Snapshot` or `Restore`.
    pub kind: &'static str,
    /// Which.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// Name of the Job that it has, or is to have.
    pub job: String,
    /// The repository it is pinned to.
    pub repository: Option<RepositoryKey>,
    /// What that was when it was pinned; none where that is not known yet.
    pub unique_id: Option<&'a str>,
    /// A copy is asked for, as the specs are now.
    pub asked: bool,
}

impl User<'_> {
    /// Whether the Job is the one that the object is to have: of its name, and controlled by it.
    fn has(&self, job: &JobView) -> bool {
        job.key().name == self.job && job.is_of(self.kind, &self.key, self.uid)
    }
}

/// What became of the copy of a running Job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followed {
    /// It has none.
    Without,
    /// It is there as it should be.
    There,
    /// It is not in line with its source: the next look tries again.
    Behind(Hold),
    /// A consent is missing, so there is none any more; which, in a sentence.
    Withdrawn(String),
    /// A consent is missing, and the right to remove it too.
    Stays(String),
}

/// Whether the copy may be: the namespace may use the repository, and all consent.
///
/// # Errors
/// What is missing, in a sentence.
pub fn permitted(ctx: &Context, view: &RepositoryView, namespace: &str) -> Result<(), String> {
    let labels = ctx.world.namespace_view(namespace).map(|n| n.labels);
    let listed = view.allowed.as_ref();
    if !listed.is_some_and(|allowed| allows(allowed, namespace, &labels.unwrap_or_default())) {
        return Err(format!(
            "Namespace {namespace} may not use {}: spec.allowedNamespaces there does not name it.",
            view.key
        ));
    }
    match consent(ctx.settings.credential_projection, view, true) {
        Consent::Given | Consent::NotAsked => Ok(()),
        Consent::Missing(why) => Err(why),
    }
}

/// A Job runs: its copy follows the source, and belongs to it, as long as all consent. What cannot be done now is done
/// at the next look.
///
/// # Errors
/// [`Error`].
pub async fn follow(ctx: &Context, job: &JobView, user: &User<'_>) -> Result<Followed, Error> {
    let Some(repository @ RepositoryKey::ClusterRepository { .. }) = &user.repository else {
        return Ok(Followed::Without);
    };
    if !user.has(job) {
        return Ok(Followed::Without);
    }
    let view = ctx.world.repository(repository);
    let same = |view: &RepositoryView| user.unique_id.is_none() || view.unique_id() == user.unique_id;
    let refused = match view.as_deref() {
        _ if !user.asked => {
            Err("spec.credentialProjection.enabled does not ask for a copy any more.".to_owned())
        }
        None => Err(format!("The {repository} is gone.")),
        Some(view) if !same(view) => Err(format!(
            "The {repository} is another repository than the run began with."
        )),
        Some(view) => permitted(ctx, view, &user.key.namespace).map(|()| view),
    };
    let view = match refused {
        Ok(view) => view,
        Err(why) if !ctx.settings.credential_projection => {
            return Ok(if user.asked {
                Followed::Stays(why)
            } else {
                Followed::Without
            });
        }
        Err(why) => {
            let went = withdraw(ctx, &user.job, user).await?;
            return Ok(if went || user.asked {
                Followed::Withdrawn(why)
            } else {
                Followed::Without
            });
        }
    };
    let projection = Projection::of(ctx, view, &user.key.namespace, &user.job, user.uid);
    let owner = owner(user.job.clone(), job.uid().to_owned());
    Ok(match ensure(ctx, &projection, &owner).await? {
        None => Followed::There,
        Some(hold) => {
            tracing::warn!(job = %job.key(), reason = hold.reason(), "the copy of the credentials does not follow: {}", hold.message());
            Followed::Behind(hold)
        }
    })
}

/// The Job of this name is done with its copy, or does not come to be: it goes. Without the right it goes with the Job.
/// True: it was there.
///
/// # Errors
/// [`Error`].
pub async fn withdraw(ctx: &Context, job: &str, user: &User<'_>) -> Result<bool, Error> {
    // Whatever the repository is by now: it may have been a ClusterRepository when the copy was made.
    if !ctx.settings.credential_projection {
        return Ok(false);
    }
    withdraw_named(ctx, &user.key.namespace, &name(job, user.uid), user.uid).await
}

/// The Job of this copy does not come to be: it goes.
///
/// # Errors
/// [`Error`].
pub async fn withdraw_unused(ctx: &Context, projection: &Projection) -> Result<(), Error> {
    let Projection {
        namespace,
        name,
        owner_uid,
        ..
    } = projection;
    withdraw_named(ctx, namespace, name, owner_uid).await.map(drop)
}

async fn withdraw_named(ctx: &Context, namespace: &str, name: &str, owner_uid: &str) -> Result<bool, Error> {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), namespace);
    let found = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        other => other?,
    };
    let Some(secret) = found.filter(|secret| is_ours(secret, owner_uid)) else {
        return Ok(false);
    };
    ctx.leadership.guard()?;
    let uid = secret.metadata.uid.as_deref().unwrap_or_default();
    match write::delete(&api, name, uid, None, PropagationPolicy::Background).await {
        Ok(()) | Err(WriteError::Gone | WriteError::Conflict) => Ok(true),
        Err(error) => {
            let error = Error::from(error);
            if !error.is_refusal() {
                return Err(error);
            }
            tracing::warn!(secret = %format!("{namespace}/{name}"), "the copy of the credentials stays until its owner goes: {error}");
            Ok(false)
        }
    }
}

/// The Job of the user, live, as the owner of its copy; none where its name is another's.
///
/// # Errors
/// [`Error`].
pub async fn own_job(ctx: &Context, user: &User<'_>) -> Result<Option<OwnerReference>, Error> {
    let api: Api<JobView> = Api::namespaced(ctx.client.clone(), &user.key.namespace);
    let found = api.get_opt(&user.job).await?;
    let own = found.filter(|job| user.has(job) && job.metadata.deletion_timestamp.is_none());
    Ok(own.map(|job| owner(user.job.clone(), job.uid().to_owned())))
}

/// The Job as the owner of its copy.
#[must_use]
pub fn owned_by(job: &Job) -> OwnerReference {
    owner(
        job.metadata.name.clone().unwrap_or_default(),
        job.metadata.uid.clone().unwrap_or_default(),
    )
}

fn owner(name: String, uid: String) -> OwnerReference {
    OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name,
        uid,
        controller: Some(true),
        block_owner_deletion: Some(false),
    }
}
