//! Claims as a restore sees them. Read live: they are not watched.

use crate::context::{Context, Error};
use crate::world::keys::{ObjectKey, RepositoryKey};
use crate::world::views::RepositoryView;
use holdfast_api::{Restore, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, ListParams};

/// Where a claim says on which node its pod will run.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What decisions read of a claim.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was created.
    pub created: Timestamp,
    /// UID of the Restore that made it.
    pub made_by: Option<String>,
    /// The volume it is bound to, or is to be.
    pub volume: Option<String>,
    /// The volume and the claim both say so.
    pub bound: bool,
    /// Its class binds when a pod uses it, and no pod does.
    pub waits_for_consumer: bool,
    /// The whole object.
    pub object: PersistentVolumeClaim,
}

impl From<PersistentVolumeClaim> for Claim {
    fn from(object: PersistentVolumeClaim) -> Self {
        let meta = &object.metadata;
        let annotations = meta.annotations.as_ref();
        let spec = object.spec.as_ref();
        let phase = object.status.as_ref().and_then(|s| s.phase.as_deref());
        Self {
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            created: meta
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |t| t.0),
            made_by: annotations.and_then(|a| a.get(names::MADE_BY_RESTORE).cloned()),
            volume: spec.and_then(|s| s.volume_name.clone()).filter(|v| !v.is_empty()),
            bound: phase == Some("Bound"),
            waits_for_consumer: false,
            object,
        }
    }
}

/// A claim that is not being deleted.
pub async fn claim(ctx: &Context, namespace: &str, name: &str) -> Result<Option<Claim>, Error> {
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), namespace);
    let found = api.get_opt(name).await?;
    Ok(found
        .filter(|c| c.metadata.deletion_timestamp.is_none())
        .map(Claim::from))
}

/// The claims that ask this Restore to fill them, oldest first.
pub async fn asking(ctx: &Context, restore: &Restore) -> Result<Vec<Claim>, Error> {
    let ObjectKey { namespace, name } = ObjectKey::of(restore);
    let api: Api<PersistentVolumeClaim> = Api::namespaced(ctx.client.clone(), &namespace);
    let all = api.list(&ListParams::default()).await?.items;
    let mut asking: Vec<Claim> = all
        .into_iter()
        .filter(|claim| claim.metadata.deletion_timestamp.is_none() && names_restore(claim, &name))
        .map(Claim::from)
        .collect();
    asking.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    Ok(asking)
}

fn names_restore(claim: &PersistentVolumeClaim, name: &str) -> bool {
    let source = claim.spec.as_ref().and_then(|s| s.data_source_ref.as_ref());
    source.is_some_and(|source| {
        source.api_group.as_deref() == Some(names::GROUP)
            && source.kind == "Restore"
            && source.name == name
            && source.namespace.as_deref().unwrap_or_default().is_empty()
    })
}

/// Whether the repository is kept on this claim. A ClusterRepository's is one of its name in any namespace.
#[must_use]
pub fn keeps(view: &RepositoryView, namespace: &str, claim: &str) -> bool {
    let here = match &view.key {
        RepositoryKey::Repository { namespace: own, .. } => own == namespace,
        RepositoryKey::ClusterRepository { .. } => true,
    };
    here && view.claim() == Some(claim)
}

/// Whether the claim's class waits for a pod, and none has come.
pub async fn waits_for_consumer(ctx: &Context, claim: &Claim) -> Result<bool, Error> {
    let annotations = claim.object.metadata.annotations.as_ref();
    if annotations.is_some_and(|a| a.contains_key(SELECTED_NODE)) {
        return Ok(false);
    }
    let class = claim
        .object
        .spec
        .as_ref()
        .and_then(|s| s.storage_class_name.as_deref());
    let Some(class) = class.filter(|c| !c.is_empty()) else {
        return Ok(false);
    };
    let api: Api<StorageClass> = Api::all(ctx.client.clone());
    let class = api.get_opt(class).await?;
    Ok(class.is_some_and(|c| c.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_reference_to_this_very_restore_asks_for_it() {
        let claim = |source: serde_json::Value| -> PersistentVolumeClaim {
            serde_json::from_value(
                json!({ "metadata": { "name": "c" }, "spec": { "dataSourceRef": source } }),
            )
            .unwrap()
        };
        let ours = json!({ "apiGroup": names::GROUP, "kind": "Restore", "name": "r" });
        assert!(names_restore(&claim(ours.clone()), "r"));
        assert!(!names_restore(&claim(ours.clone()), "other"));
        for (field, value) in [
            ("kind", "Snapshot"),
            ("apiGroup", "example.org"),
            ("namespace", "n"),
        ] {
            let mut changed = ours.clone();
            changed[field] = json!(value);
            assert!(!names_restore(&claim(changed), "r"), "{field}");
        }
    }
}
