//! Creating the Snapshot of a recorded slot.
//!
//! **Promises.** The same slot meets the same name: one that exists is completed if it is ours and has no status yet, and
//! else left as it is.
//!
//! **Assumes.** The schedule was read live and is what was judged.

use super::act;
use super::observe::Observed;
use crate::context::{Context, Error};
use crate::runtime::write::{self, WriteError};
use crate::world::keys::ObjectKey;
use holdfast_api::shared::{Origin, PolicyRef};
use holdfast_api::snapshot::{Snapshot, SnapshotPhase, SnapshotSpec};
use holdfast_api::{SnapshotPolicy, SnapshotSchedule, names};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{Api, PostParams};
use serde_json::json;
use std::collections::BTreeMap;

/// Creates the Snapshot of the recorded slot and writes its first status; completes it when it exists already.
///
/// # Errors
/// [`Error`].
pub async fn snapshot(
    ctx: &Context,
    key: &ObjectKey,
    observed: &Observed,
    policy: &SnapshotPolicy,
    name: &str,
) -> Result<(), Error> {
    let schedule = &observed.schedule;
    let uid = schedule.metadata.uid.clone().unwrap_or_default();
    let policy_name = policy.metadata.name.clone().unwrap_or_default();
    let spec = SnapshotSpec {
        policy_ref: Some(PolicyRef {
            name: policy_name.clone(),
            namespace: None,
        }),
        deletion_policy: Some(policy.spec.default_deletion_policy),
        on_schedule_delete: Some(act::cascade(schedule)),
        ..SnapshotSpec::default()
    };
    let mut snapshot = Snapshot::new(name, spec);
    snapshot.metadata.namespace = Some(key.namespace.clone());
    snapshot.metadata.finalizers = Some(vec![names::FINALIZER.to_owned()]);
    snapshot.metadata.labels = Some(BTreeMap::from([
        (
            names::ORIGIN_LABEL.to_owned(),
            Origin::Scheduled.as_str().to_owned(),
        ),
        (names::SCHEDULE_LABEL.to_owned(), label_value(&key.name)),
        (names::CONFIG_LABEL.to_owned(), label_value(&policy_name)),
        (names::MANAGED_BY_LABEL.to_owned(), names::MANAGED_BY.to_owned()),
    ]));
    snapshot.metadata.owner_references = Some(vec![OwnerReference {
        api_version: names::API_VERSION.to_owned(),
        kind: SnapshotSchedule::kind(&()).into_owned(),
        name: key.name.clone(),
        uid: uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(false),
    }]);
    let api: Api<Snapshot> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    ctx.leadership.guard()?;
    let made = match api.create(&params, &snapshot).await.map_err(WriteError::from) {
        Ok(made) => made,
        Err(WriteError::Conflict) => match api.get_opt(name).await? {
            Some(known) => known,
            None => return Err(Error::Conflict),
        },
        Err(error) => return Err(error.into()),
    };
    let ours = made
        .metadata
        .owner_references
        .as_deref()
        .unwrap_or_default()
        .iter()
        .any(|o| o.uid == uid);
    let begun = made.status.as_ref().is_some_and(|s| s.phase.is_some());
    if !ours || begun || made.metadata.deletion_timestamp.is_some() {
        return Ok(());
    }
    let version = made.metadata.resource_version.as_deref().unwrap_or_default();
    let status = json!({ "origin": Origin::Scheduled, "phase": SnapshotPhase::Pending });
    ctx.leadership.guard()?;
    match write::patch_status(&api, name, version, status).await {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn label_value(name: &str) -> String {
    crate::jobs::job_name(name)
}
