//! A small provisioner of hostPath volumes, so that claims get volumes as in a real cluster.
//!
//! Promise: a claim of one of its two classes gets a volume that is an empty folder anyone may
//! write to (the kubelet applies no fsGroup to hostPath volumes, and movers are not root). A
//! released volume's folder is removed with everything in it. Claims with a data source are left
//! alone, as provisioners do: a populator has its turn there.
//! Assumes that only one of it runs per cluster; it runs on the host, outside the node's mounts.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, ObjectReference,
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, VolumeNodeAffinity,
};
use kube::Client;
use kube::api::{Api, DeleteParams, ObjectMeta, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};

use super::NODE;

/// The provisioner's name in StorageClasses.
const NAME: &str = "holdfast.local/hostpath";
/// The default class: volumes are made at once.
const CLASS: &str = "holdfast-hostpath";
/// Volumes are made when a pod is to use them.
const CLASS_WAIT: &str = "holdfast-hostpath-wait";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The StorageClasses as a manifest.
pub fn classes() -> String {
    let class = |name: &str, default: bool, binding: &str| {
        format!(
            "---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: {name}
  annotations:
    storageclass.kubernetes.io/is-default-class: \"{default}\"
provisioner: {NAME}
reclaimPolicy: Delete
volumeBindingMode: {binding}
"
        )
    };
    class(CLASS, true, "Immediate") + &class(CLASS_WAIT, false, "WaitForFirstConsumer")
}

enum Seen {
    Claim(Box<PersistentVolumeClaim>),
    Volume(Box<PersistentVolume>),
}

/// Serves claims and volumes until a watch fails.
pub async fn serve(client: Client, root: &Path) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = Api::all(client.clone());
    let volumes: Api<PersistentVolume> = Api::all(client);
    let claims = watcher(claims, watcher::Config::default())
        .applied_objects()
        .map_ok(|claim| Seen::Claim(Box::new(claim)))
        .boxed();
    let seen = watcher(volumes.clone(), watcher::Config::default())
        .applied_objects()
        .map_ok(|volume| Seen::Volume(Box::new(volume)))
        .boxed();
    let mut events = stream::select(claims, seen);
    while let Some(event) = events.try_next().await? {
        match event {
            Seen::Claim(claim) => provide(&volumes, &claim, root).await?,
            Seen::Volume(volume) => reclaim(&volumes, &volume, root).await?,
        }
    }
    bail!("the watch ended")
}

/// Makes the volume of `claim`, if it is for us to make and not there.
async fn provide(volumes: &Api<PersistentVolume>, claim: &PersistentVolumeClaim, root: &Path) -> Result<()> {
    let Some(volume) = volume_for(claim, root) else {
        return Ok(());
    };
    let name = volume.metadata.name.clone().unwrap_or_default();
    let folder = root.join(&name);
    fs::create_dir_all(&folder)
        .and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)))
        .with_context(|| format!("the folder {} cannot be made", folder.display()))?;
    match volumes.create(&PostParams::default(), &volume).await {
        Ok(_) => eprintln!("made {name}"),
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(error) => return Err(error).with_context(|| format!("{name} cannot be created")),
    }
    Ok(())
}

/// The volume that `claim` asks of us; none if it asks nothing of us.
fn volume_for(claim: &PersistentVolumeClaim, root: &Path) -> Option<PersistentVolume> {
    let annotations = claim.metadata.annotations.as_ref()?;
    let spec = claim.spec.as_ref()?;
    let class = spec.storage_class_name.as_deref()?;
    let ours = annotations.get(PROVISIONER).is_some_and(|name| name == NAME);
    let unbound = spec.volume_name.as_deref().unwrap_or_default().is_empty();
    let sourced = spec.data_source.is_some() || spec.data_source_ref.is_some();
    let waits = class == CLASS_WAIT && !annotations.contains_key(SELECTED_NODE);
    if !ours || !unbound || sourced || waits || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let uid = claim.metadata.uid.as_ref()?;
    let size = spec
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")?
        .clone();
    let name = format!("pvc-{uid}");
    let on_node = NodeSelectorRequirement {
        key: "kubernetes.io/hostname".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![NODE.to_owned()]),
    };
    Some(PersistentVolume {
        metadata: ObjectMeta {
            annotations: Some(BTreeMap::from([(PROVISIONED_BY.to_owned(), NAME.to_owned())])),
            ..ObjectMeta::default()
        }
        .named(&name),
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes.clone(),
            capacity: Some(BTreeMap::from([("storage".to_owned(), size)])),
            claim_ref: Some(ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("PersistentVolumeClaim".to_owned()),
                namespace: claim.metadata.namespace.clone(),
                name: claim.metadata.name.clone(),
                uid: Some(uid.clone()),
                ..ObjectReference::default()
            }),
            host_path: Some(HostPathVolumeSource {
                path: root.join(&name).display().to_string(),
                type_: Some("Directory".to_owned()),
            }),
            node_affinity: Some(VolumeNodeAffinity {
                required: Some(NodeSelector {
                    node_selector_terms: vec![NodeSelectorTerm {
                        match_expressions: Some(vec![on_node]),
                        ..NodeSelectorTerm::default()
                    }],
                }),
            }),
            persistent_volume_reclaim_policy: Some("Delete".to_owned()),
            storage_class_name: Some(class.to_owned()),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    })
}

trait Named {
    fn named(self, name: &str) -> Self;
}

impl Named for ObjectMeta {
    fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }
}

/// Removes the folder of a released volume, then the volume.
async fn reclaim(volumes: &Api<PersistentVolume>, volume: &PersistentVolume, root: &Path) -> Result<()> {
    let Some((name, folder)) = to_reclaim(volume, root) else {
        return Ok(());
    };
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("{} cannot be removed", folder.display()));
        }
        _ => {}
    }
    match volumes.delete(&name, &DeleteParams::default()).await {
        Ok(_) => eprintln!("removed {name}"),
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => return Err(error).with_context(|| format!("{name} cannot be deleted")),
    }
    Ok(())
}

/// Name and folder of `volume`, if it is one of ours, released, and to be deleted.
fn to_reclaim(volume: &PersistentVolume, root: &Path) -> Option<(String, PathBuf)> {
    let name = volume.metadata.name.clone()?;
    let spec = volume.spec.as_ref()?;
    let made_by = volume.metadata.annotations.as_ref()?.get(PROVISIONED_BY)?;
    let released = volume.status.as_ref()?.phase.as_deref() == Some("Released");
    let delete = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    let folder = root.join(&name);
    let in_place = spec.host_path.as_ref()?.path == folder.display().to_string();
    let plain = name.starts_with("pvc-") && !name.contains(['/', '.']);
    (made_by == NAME && released && delete && in_place && plain).then_some((name, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(text: &str) -> PersistentVolumeClaim {
        serde_json::from_str(text).expect("a claim")
    }

    const CLAIM: &str = r#"{"metadata": {"name": "data", "namespace": "a", "uid": "u-1",
        "annotations": {"volume.kubernetes.io/storage-provisioner": "holdfast.local/hostpath"}},
        "spec": {"storageClassName": "holdfast-hostpath", "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}"#;

    #[test]
    fn a_claim_of_our_class_gets_a_volume_of_its_own() {
        let volume = volume_for(&claim(CLAIM), Path::new("/v")).expect("ours");
        assert_eq!(volume.metadata.name.as_deref(), Some("pvc-u-1"));
        let spec = volume.spec.expect("spec");
        assert_eq!(spec.host_path.expect("path").path, "/v/pvc-u-1");
    }

    #[test]
    fn claims_of_others_and_of_populators_are_left_alone() {
        let foreign = CLAIM.replace("holdfast.local/hostpath", "other");
        assert!(volume_for(&claim(&foreign), Path::new("/v")).is_none());
        let sourced = CLAIM.replace(
            r#""resources""#,
            r#""dataSourceRef": {"kind": "Restore", "name": "r", "apiGroup": "x.y"}, "resources""#,
        );
        assert!(volume_for(&claim(&sourced), Path::new("/v")).is_none());
        let waiting = CLAIM.replace(r#""holdfast-hostpath""#, r#""holdfast-hostpath-wait""#);
        assert!(volume_for(&claim(&waiting), Path::new("/v")).is_none());
    }

    #[test]
    fn only_a_released_volume_in_its_own_folder_is_removed() {
        let mut volume = volume_for(&claim(CLAIM), Path::new("/v")).expect("ours");
        assert!(to_reclaim(&volume, Path::new("/v")).is_none(), "not released");
        volume.status = serde_json::from_str(r#"{"phase": "Released"}"#).expect("status");
        assert!(to_reclaim(&volume, Path::new("/v")).is_some());
        assert!(to_reclaim(&volume, Path::new("/elsewhere")).is_none());
    }
}
