//! Every write of the operator, in the few forms that are safe.
//!
//! **Promises.** A status is patched only against the resourceVersion that was judged; a finalizer is removed
//! only where the API server still finds it; "not found" after a removal is success, a conflict is
//! [`WriteError::Conflict`] and means *look again*.
//!
//! **Assumes.** The caller has asked its leadership guard before.

use holdfast_api::names;
use kube::Resource;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object changed since it was judged, or a precondition did not hold.
    #[error("the object changed since it was judged")]
    Conflict,
    /// The object is gone.
    #[error("the object is gone")]
    Gone,
    /// Everything else.
    #[error("the API server answered: {0}")]
    Api(kube::Error),
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else {
            return Self::Api(error);
        };
        match status.code {
            404 => Self::Gone,
            409 => Self::Conflict,
            // A JSON patch whose `test` fails is answered 422 with this sentence; where an object is refused, the
            // message names the field instead.
            422 if status.message.contains("rejected our request due to an error") => Self::Conflict,
            _ => Self::Api(error),
        }
    }
}

/// Patches a status (JSON merge patch) if the object is still at `resource_version`.
///
/// # Errors
/// [`WriteError`].
pub async fn patch_status<K>(
    api: &Api<K>,
    name: &str,
    resource_version: &str,
    status: Value,
) -> Result<K, WriteError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let patch = json!({ "metadata": { "resourceVersion": resource_version }, "status": status });
    let params = PatchParams {
        field_manager: Some(names::STATUS_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    Ok(api.patch_status(name, &params, &Patch::Merge(patch)).await?)
}

/// Patches metadata (annotations, labels, finalizers) or spec if the object is still at `resource_version`.
///
/// # Errors
/// [`WriteError`].
pub async fn patch<K>(
    api: &Api<K>,
    name: &str,
    resource_version: &str,
    mut patch: Value,
) -> Result<K, WriteError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    patch["metadata"]["resourceVersion"] = json!(resource_version);
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    Ok(api.patch(name, &params, &Patch::Merge(patch)).await?)
}

/// Releases our finalizer with a tested JSON patch (`docs/design.md` 3.6). Gone counts as released.
///
/// # Errors
/// [`WriteError::Conflict`] when the finalizer is not where it was seen, or the object is another one.
pub async fn release_finalizer<K>(api: &Api<K>, object: &K) -> Result<(), WriteError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    release(api, object, names::FINALIZER).await
}

/// The same for another finalizer of ours.
///
/// # Errors
/// As [`release_finalizer`].
pub async fn release<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<(), WriteError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let meta = object.meta();
    let finalizers = meta.finalizers.as_deref().unwrap_or_default();
    let Some(index) = finalizers.iter().position(|f| f == finalizer) else {
        return Ok(());
    };
    let path = format!("/metadata/finalizers/{index}");
    let operations = json!([
        { "op": "test", "path": "/metadata/uid", "value": meta.uid },
        { "op": "test", "path": path, "value": finalizer },
        { "op": "remove", "path": path },
    ]);
    let patch: json_patch::Patch = serde_json::from_value(operations).map_err(|_| WriteError::Conflict)?;
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = meta.name.as_deref().unwrap_or_default();
    match api
        .patch(name, &params, &Patch::<()>::Json(patch))
        .await
        .map_err(WriteError::from)
    {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes one object with UID and, when given, resourceVersion as preconditions. Gone counts as deleted.
///
/// # Errors
/// [`WriteError::Conflict`] when a precondition does not hold.
pub async fn delete<K>(
    api: &Api<K>,
    name: &str,
    uid: &str,
    resource_version: Option<&str>,
    propagation: PropagationPolicy,
) -> Result<(), WriteError>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: resource_version.map(str::to_owned),
        }),
        propagation_policy: Some(propagation),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await.map_err(WriteError::from) {
        Ok(_) | Err(WriteError::Gone) => Ok(()),
        Err(error) => Err(error),
    }
}
