//! Copies of a ClusterRepository's Secrets, where a mover needs them.
//!
//! **Promises.** A copy is made only with three consents: the repository's, its user's, and the installation's, which is
//! what gives the operator the rights for it. It holds the keys that movers read and no other, is labelled as ours, says
//! what it was copied from, and belongs to one Job: it goes when that Job's result is recorded, and with the Job at the
//! latest. While the Job is there it follows its source, and goes as soon as one of the consents does ([`follow`]). What
//! stands on a Job says nothing about whose credentials it may have: that is asked of the object it works for. A Secret
//! that is not ours is never written: the run waits and says so. No content is kept, logged or put into an error.
//!
//! **Assumes.** The Secrets of a ClusterRepository are in the operator's namespace (its own pass sees to that), where
//! everything runs that works for the repository itself: deletions and maintenance need no copy, and outlast every policy.

mod follow;

pub use follow::{Followed, User, follow, own_job, owned_by, permitted, withdraw, withdraw_unused};

use super::build::{Mover, Storage};
use super::create::{NOT_READ, is_no_place};
use super::needs::BUCKET_KEYS;
use super::{job_name, name_repository, short_hash};
use crate::context::{Context, Error};
use crate::runtime::write::{self, WriteError};
use crate::world::keys::RepositoryKey;
use crate::world::views::RepositoryView;
use holdfast_api::names;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{Api, PostParams, PropagationPolicy};
use kube::core::Status;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The key of temporary credentials, which only some Secrets have.
const SESSION_TOKEN: &str = "AWS_SESSION_TOKEN";

/// Whether Secrets may be copied for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Consent {
    /// Nobody asks: the Secrets are where the mover runs.
    NotAsked,
    /// All three.
    Given,
    /// Which one is missing, in a sentence.
    Missing(String),
}

/// The consents of one use of a repository; `asked` is the user's.
#[must_use]
pub fn consent(installed: bool, view: &RepositoryView, asked: bool) -> Consent {
    if !asked {
        return Consent::NotAsked;
    }
    if let RepositoryKey::Repository { .. } = view.key {
        return Consent::Missing(format!(
            "spec.credentialProjection is for a ClusterRepository: the Secrets of {} are in this namespace already. Remove it.",
            view.key
        ));
    }
    if !view.projects {
        return Consent::Missing(format!(
            "spec.credentialProjection.enabled asks for a copy of the credentials of {}, which does not allow it. Set spec.credentialProjection.allowed: true there, or remove the field here and put the Secret into this namespace.",
            view.key
        ));
    }
    if !installed {
        return Consent::Missing(
            "spec.credentialProjection.enabled asks for a copy of the credentials, and this installation has no right to write Secrets. Set the chart value features.credentialProjection.enabled: true, or remove the field here and put the Secret into this namespace."
                .to_owned(),
        );
    }
    Consent::Given
}

/// Name of the copy for this Job of this object: never one that somebody else says.
fn name(job: &str, owner_uid: &str) -> String {
    job_name(&format!("{job}-credentials-{}", short_hash(owner_uid)))
}

/// One copy: what of, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    /// Where its Job runs.
    pub namespace: String,
    /// Its name.
    pub name: String,
    from: String,
    password: (String, String),
    keys: Option<String>,
    repository: RepositoryKey,
    repository_uid: String,
    owner_uid: String,
}

impl Projection {
    /// For the Job of this name in `namespace`, which works for the object with UID `owner_uid`.
    #[must_use]
    pub fn of(ctx: &Context, view: &RepositoryView, namespace: &str, job: &str, owner_uid: &str) -> Self {
        let password = &view.spec.encryption.password_secret_ref;
        Self {
            namespace: namespace.to_owned(),
            name: name(job, owner_uid),
            from: view.place(&ctx.settings.namespace).to_owned(),
            password: (password.name.clone(), password.key.clone()),
            keys: view.s3().map(|s3| s3.auth.secret_name().to_owned()),
            repository: view.key.clone(),
            repository_uid: view.uid().to_owned(),
            owner_uid: owner_uid.to_owned(),
        }
    }

    /// Has a mover read the copy.
    pub fn apply(&self, mover: &mut Mover) {
        mover.secret.clone_from(&self.name);
        names::PASSWORD_KEY.clone_into(&mut mover.secret_key);
        names::PASSWORD_KEY.clone_into(&mut mover.document.repository.password_key);
        match &mut mover.storage {
            Storage::Bucket {
                secret,
                authorities: _,
            } => secret.clone_from(&self.name),
            Storage::Claim(_) | Storage::Nfs(_) => {}
        }
        // For whoever looks at the Job; nothing here reads it.
        let told = (names::PROJECTED_CREDENTIALS.to_owned(), self.name.clone());
        mover.annotations.extend([told]);
    }

    fn shown(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    fn object(&self, data: BTreeMap<String, ByteString>, owner: &OwnerReference, at: String) -> Secret {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        Secret {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                labels: Some(BTreeMap::from([
                    label(names::MANAGED_BY_LABEL, names::MANAGED_BY),
                    label(names::COMPONENT_LABEL, "credentials"),
                    label(names::CREDS_SCOPE_LABEL, names::CREDS_SCOPE),
                    label(names::CLUSTER_REPOSITORY_UID_LABEL, &self.repository_uid),
                    label(names::OWNER_UID_LABEL, &self.owner_uid),
                ])),
                annotations: Some(BTreeMap::from([
                    label(names::PROJECTED_FROM, &self.sources()),
                    label(names::PROJECTED_AT, &at),
                    label(names::WORKS_FOR, &name_repository(&self.repository)),
                ])),
                owner_references: Some(vec![owner.clone()]),
                ..ObjectMeta::default()
            },
            data: Some(data),
            type_: Some("Opaque".to_owned()),
            ..Secret::default()
        }
    }

    fn sources(&self) -> String {
        let names: BTreeSet<&str> = [self.password.0.as_str()]
            .into_iter()
            .chain(self.keys.as_deref())
            .collect();
        let names: Vec<String> = names.iter().map(|name| format!("{}/{name}", self.from)).collect();
        names.join(",")
    }
}

/// Why there is no copy yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hold {
    /// The source, or a key of it, is not there.
    Source(String),
    /// A Secret of its name is somebody else's.
    Taken(String),
    /// The API server does not let us.
    Forbidden(String),
}

impl Hold {
    /// The word.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Source(_) => "MissingCredentialsSecret",
            Self::Taken(_) => "ProjectedSecretTaken",
            Self::Forbidden(_) => "CredentialProjectionNotAllowed",
        }
    }

    /// What happened, and what to do.
    #[must_use]
    pub fn message(&self) -> &str {
        match self {
            Self::Source(text) | Self::Taken(text) | Self::Forbidden(text) => text,
        }
    }
}

/// Makes the copy, or brings it in line with its source and its owner. None: it is there as it should be.
///
/// # Errors
/// [`Error`].
pub async fn ensure(
    ctx: &Context,
    projection: &Projection,
    owner: &OwnerReference,
) -> Result<Option<Hold>, Error> {
    let data = match data(ctx, projection).await? {
        Ok(data) => data,
        Err(hold) => return Ok(Some(hold)),
    };
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &projection.namespace);
    match api.get_opt(&projection.name).await {
        Ok(None) => create(ctx, &api, projection, data, owner).await,
        Ok(Some(there)) if !is_ours(&there, &projection.owner_uid) => Ok(Some(taken(projection))),
        Ok(Some(there)) => update(ctx, &api, projection, &there, data, owner).await,
        Err(error) => refused(ctx, projection, error.into()),
    }
}

async fn create(
    ctx: &Context,
    api: &Api<Secret>,
    projection: &Projection,
    data: BTreeMap<String, ByteString>,
    owner: &OwnerReference,
) -> Result<Option<Hold>, Error> {
    let secret = projection.object(data, owner, ctx.clock.now().to_string());
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match ctx.leadership.fence(api.create(&params, &secret)).await? {
        Ok(_) => Ok(None),
        // Whose it is is looked at next.
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Error::Conflict),
        // The Job will meet the same, and says it.
        Err(kube::Error::Api(status)) if is_no_place(&status) => Ok(None),
        Err(error) => refused(ctx, projection, error.into()),
    }
}

async fn update(
    ctx: &Context,
    api: &Api<Secret>,
    projection: &Projection,
    there: &Secret,
    data: BTreeMap<String, ByteString>,
    owner: &OwnerReference,
) -> Result<Option<Hold>, Error> {
    let owners = there.metadata.owner_references.as_deref().unwrap_or_default();
    let before = there.data.clone().unwrap_or_default();
    if before == data && owners == [owner.clone()] {
        return Ok(None);
    }
    if there.immutable == Some(true) {
        // Nothing can be written into it: another one takes its place.
        ctx.leadership.guard()?;
        let uid = there.metadata.uid.as_deref().unwrap_or_default();
        let version = there.metadata.resource_version.as_deref();
        let background = PropagationPolicy::Background;
        return match write::delete(api, &projection.name, uid, version, background).await {
            Ok(()) | Err(WriteError::Gone) => create(ctx, api, projection, data, owner).await,
            Err(error) => refused(ctx, projection, error.into()),
        };
    }
    let mut patched = json!(data);
    for gone in before.keys().filter(|key| !data.contains_key(*key)) {
        patched[gone] = Value::Null;
    }
    let patch = json!({
        "metadata": {
            "ownerReferences": [owner],
            "annotations": { names::PROJECTED_AT: ctx.clock.now().to_string() },
        },
        "data": patched,
    });
    let version = there.metadata.resource_version.as_deref().unwrap_or_default();
    ctx.leadership.guard()?;
    match write::patch(api, &projection.name, version, patch).await {
        Ok(_) => Ok(None),
        Err(error) => refused(ctx, projection, error.into()),
    }
}

fn taken(projection: &Projection) -> Hold {
    Hold::Taken(format!(
        "Secret {} exists and is not of Holdfast for this run, so it is left as it is, and the credentials are not copied. Remove it, or rename what uses it.",
        projection.shown()
    ))
}

/// What the API server does not take is said where the run waits: a missing right and a quota (403), a webhook (400 unless
/// it says otherwise), an admission policy (422).
fn refused(ctx: &Context, projection: &Projection, error: Error) -> Result<Option<Hold>, Error> {
    if error.is_refusal()
        && let Error::Api(api) = &error
        && let kube::Error::Api(status) = api.as_ref()
    {
        return Ok(Some(forbidden(ctx, projection, status)));
    }
    Err(error)
}

/// The server's own words go first: a quota and an admission policy answer like a missing right.
fn forbidden(ctx: &Context, projection: &Projection, status: &Status) -> Hold {
    let advice = if ctx.settings.credential_projection {
        "The feature is installed, so these words say what to correct: the operator's role, an admission policy, or a quota of the namespace."
    } else {
        "Set the chart value features.credentialProjection.enabled: true."
    };
    let words = status.message.trim_end_matches('.');
    Hold::Forbidden(format!(
        "The API server does not let the operator read or write Secret {}, the copy of the credentials: {words}. {advice}",
        projection.shown()
    ))
}

/// What the copy holds: the password under its default key, and the keys of a bucket.
async fn data(
    ctx: &Context,
    projection: &Projection,
) -> Result<Result<BTreeMap<String, ByteString>, Hold>, Error> {
    let mut data = BTreeMap::new();
    let (name, key) = &projection.password;
    let password = match source(ctx, projection, name).await? {
        Ok(password) => password,
        Err(hold) => return Ok(Err(hold)),
    };
    match password.get(key).filter(|value| !value.0.is_empty()) {
        Some(value) => data.insert(names::PASSWORD_KEY.to_owned(), value.clone()),
        None => return Ok(Err(no_key(projection, name, key))),
    };
    let Some(name) = &projection.keys else {
        return Ok(Ok(data));
    };
    let keys = match source(ctx, projection, name).await? {
        Ok(keys) => keys,
        Err(hold) => return Ok(Err(hold)),
    };
    for key in BUCKET_KEYS {
        match keys.get(key).filter(|value| !value.0.is_empty()) {
            Some(value) => data.insert(key.to_owned(), value.clone()),
            None => return Ok(Err(no_key(projection, name, key))),
        };
    }
    if let Some(token) = keys.get(SESSION_TOKEN) {
        data.insert(SESSION_TOKEN.to_owned(), token.clone());
    }
    Ok(Ok(data))
}

async fn source(
    ctx: &Context,
    projection: &Projection,
    name: &str,
) -> Result<Result<BTreeMap<String, ByteString>, Hold>, Error> {
    let api: Api<Secret> = Api::namespaced(ctx.client.clone(), &projection.from);
    let found = match api.get_opt(name).await {
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let (from, words) = (&projection.from, status.message.trim_end_matches('.'));
            return Ok(Err(Hold::Source(format!(
                "The API server does not let the operator read Secret {from}/{name}, which is to be copied: {words}."
            ))));
        }
        other => other?,
    };
    Ok(found
        .map(|secret| secret.data.unwrap_or_default())
        .ok_or_else(|| {
            let from = &projection.from;
            Hold::Source(format!(
                "Secret {from}/{name} {NOT_READ}. Create it; it is copied from there."
            ))
        }))
}

fn no_key(projection: &Projection, name: &str, key: &str) -> Hold {
    let from = &projection.from;
    Hold::Source(format!(
        "Secret {from}/{name} has no key {key}. Add it; it is copied from there."
    ))
}

fn is_ours(secret: &Secret, owner_uid: &str) -> bool {
    let is = |key: &str, value: &str| {
        let labels = secret.metadata.labels.as_ref();
        labels
            .and_then(|all| all.get(key))
            .is_some_and(|found| found == value)
    };
    is(names::MANAGED_BY_LABEL, names::MANAGED_BY)
        && is(names::CREDS_SCOPE_LABEL, names::CREDS_SCOPE)
        && is(names::OWNER_UID_LABEL, owner_uid)
}
