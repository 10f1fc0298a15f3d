//! The one gate through which every mover Job is created (`docs/design.md` section 7).
//!
//! **Promises.** CREATE only, never apply: a Job that exists is reported, not overwritten. The namespace's
//! mover ServiceAccount exists before. Nothing is created without leadership.

use super::build::Mover;
use crate::context::{Context, Error};
use holdfast_api::names;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaim, Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::core::PartialObjectMeta;
use serde_json::json;

/// What CREATE answered.
#[derive(Debug, Clone, PartialEq)]
pub enum Created {
    /// The Job is new.
    Yes(Box<Job>),
    /// A Job of this name exists.
    Exists,
    /// The namespace is terminating or gone: no Job can be created there.
    NoPlace,
}

/// Creates a mover Job.
///
/// # Errors
/// [`Error`].
pub async fn create(ctx: &Context, mover: &Mover) -> Result<Created, Error> {
    create_job(ctx, &mover.namespace, mover.job()?).await
}

/// Creates a Job that a mover built.
///
/// # Errors
/// [`Error`].
pub async fn create_job(ctx: &Context, namespace: &str, mut job: Job) -> Result<Created, Error> {
    if ctx.settings.connect_delay_seconds > 0 {
        delay(&mut job, ctx.settings.connect_delay_seconds);
    }
    ctx.leadership.guard()?;
    if !ensure_service_account(ctx, namespace).await? {
        return Ok(Created::NoPlace);
    }
    let api: Api<Job> = Api::namespaced(ctx.client.clone(), namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    match ctx.leadership.fence(api.create(&params, &job)).await? {
        Ok(job) => Ok(Created::Yes(Box::new(job))),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Created::Exists),
        Err(kube::Error::Api(status)) if is_no_place(&status) => Ok(Created::NoPlace),
        Err(error) => Err(error.into()),
    }
}

/// For tests: the mover waits before it connects.
fn delay(job: &mut Job, seconds: u32) {
    let pod = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut());
    for container in pod.into_iter().flat_map(|pod| &mut pod.containers) {
        container.env.get_or_insert_default().push(EnvVar {
            name: holdfast_protocol::TEST_CONNECT_DELAY.to_owned(),
            value: Some(seconds.to_string()),
            ..EnvVar::default()
        });
    }
}

pub(super) fn is_no_place(status: &kube::core::Status) -> bool {
    status.code == 404 || (status.code == 403 && status.message.contains("being terminated"))
}

/// Makes sure that the namespace has the movers' ServiceAccount (without any rights). False: no place.
async fn ensure_service_account(ctx: &Context, namespace: &str) -> Result<bool, Error> {
    let api: Api<ServiceAccount> = Api::namespaced(ctx.client.clone(), namespace);
    if api.get_opt(names::MOVER_SERVICE_ACCOUNT).await?.is_some() {
        return Ok(true);
    }
    let account = json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": names::MOVER_SERVICE_ACCOUNT,
            "namespace": namespace,
            "labels": { names::MANAGED_BY_LABEL: names::MANAGED_BY },
        },
        "automountServiceAccountToken": false,
    });
    let account: ServiceAccount =
        serde_json::from_value(account).map_err(crate::jobs::build::BuildError::from)?;
    ctx.leadership.guard()?;
    match api.create(&PostParams::default(), &account).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
        Err(kube::Error::Api(status)) if is_no_place(&status) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What is known of a password Secret without reading it into a log or a status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretFact {
    /// It is there and has the key; its resourceVersion.
    Usable(String),
    /// There is none of this name, or none that the operator may read (`rbac.secrets` of the chart).
    Missing,
    /// It lacks the key.
    NoKey,
}

/// What a sentence says of a Secret that is not found.
pub const NOT_READ: &str =
    "does not exist, or is not among those that the operator may read (chart value rbac.secrets)";

/// Looks at a password Secret: whether it exists and has the key. Its content is dropped at once.
///
/// # Errors
/// [`Error`].
pub async fn secret(ctx: &Context, namespace: &str, name: &str, key: &str) -> Result<SecretFact, Error> {
    fact(&Api::namespaced(ctx.client.clone(), namespace), name, key).await
}

async fn fact(api: &Api<Secret>, name: &str, key: &str) -> Result<SecretFact, Error> {
    let found = match api.get_opt(name).await {
        // Its rights may end at the Secrets that the chart names: the same to do for a person, said in the same sentence.
        Err(kube::Error::Api(status)) if status.code == 403 => None,
        other => other?,
    };
    let Some(secret) = found else {
        return Ok(SecretFact::Missing);
    };
    let has_key = secret
        .data
        .as_ref()
        .is_some_and(|d| d.get(key).is_some_and(|v| !v.0.is_empty()));
    if !has_key {
        return Ok(SecretFact::NoKey);
    }
    Ok(SecretFact::Usable(
        secret.metadata.resource_version.unwrap_or_default(),
    ))
}

/// Whether a claim exists.
///
/// # Errors
/// [`Error`].
pub async fn claim_exists(ctx: &Context, namespace: &str, name: &str) -> Result<bool, Error> {
    let api: Api<PartialObjectMeta<PersistentVolumeClaim>> = Api::namespaced(ctx.client.clone(), namespace);
    Ok(api
        .get_opt(name)
        .await?
        .is_some_and(|c| c.metadata.deletion_timestamp.is_none()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::StatusCode;
    use serde_json::Value;

    async fn answered(code: u16, body: Value) -> Result<SecretFact, Error> {
        let router = axum::Router::new().fallback(move || {
            let answer = (
                StatusCode::from_u16(code).unwrap_or_default(),
                axum::Json(body.clone()),
            );
            async move { answer }
        });
        let api = Api::namespaced(kube::Client::new(router, "a"), "a");
        fact(&api, "s", "k").await
    }

    #[tokio::test]
    async fn a_secret_that_may_not_be_read_is_one_that_is_not_there_and_an_outage_is_neither() {
        let status = |code: u16, reason: &str| json!({ "kind": "Status", "status": "Failure", "reason": reason, "code": code });
        let there = json!({ "metadata": { "name": "s", "resourceVersion": "7" }, "data": { "k": "eA==" } });
        assert_eq!(
            answered(200, there.clone()).await.unwrap(),
            SecretFact::Usable("7".into())
        );
        let mut empty = there;
        empty["data"]["k"] = json!("");
        assert_eq!(answered(200, empty).await.unwrap(), SecretFact::NoKey);
        for (code, reason) in [(403, "Forbidden"), (404, "NotFound")] {
            assert_eq!(
                answered(code, status(code, reason)).await.unwrap(),
                SecretFact::Missing,
                "{code}"
            );
        }
        assert!(answered(500, status(500, "InternalError")).await.is_err());
    }
}
