//! How the pods of movers are: what a repository says for all of its movers, and a policy for its own.
//!
//! **Promises.** Fields are merged one by one ([`MoverDefaults::over`]); lists and maps are one field each. Whatever a
//! repository says, its movers are never root. Those of a policy's backups or of a restore are when it asks for that
//! ([`MoverSpec::asks_for_privileges`]) and the namespace agreed; never is one privileged as the container runtime
//! understands the word, and its file system stays read-only.

use crate::shared::NotYet;
use k8s_openapi::api::core::v1::Toleration;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every mover of a repository inherits.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoverDefaults {
    /// Of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<MoverSecurity>,
    /// Of the pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_security_context: Option<MoverPodSecurity>,
    /// What the container is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<MoverResources>,
    /// Labels of the nodes that movers run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Taints of nodes that movers run on all the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub tolerations: Option<Vec<Toleration>>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_colocation: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_labels: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_annotations: Option<NotYet>,
}

/// What the movers of a policy or of a restore are beside what their repository says.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoverSpec {
    /// The same fields; one that is set here counts.
    #[serde(flatten)]
    pub own: MoverDefaults,
    /// Root, with the capabilities to read (backups) or to set (restores) whatever the volume holds. The namespace has to
    /// agree by its annotation kopiur.home-operations.com/privileged-movers: "true". Default: whether runAsUser is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged_mode: Option<bool>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inherit_security_context_from: Option<NotYet>,
}

/// Security context of a mover's container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoverSecurity {
    /// User that reads the source and writes the repository. Default 65532; 0 only in spec.mover, where it asks for
    /// privilegedMode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<i64>,
    /// Its group. Default 65532; 0 only in spec.mover with privilegedMode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<i64>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_privilege_escalation: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privileged: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proc_mount: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only_root_filesystem: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_options: Option<NotYet>,
}

/// Security context of a mover's pod.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoverPodSecurity {
    /// Group that the volumes are made to belong to. Default 65532; never 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_group: Option<i64>,
    /// When they are. Default OnRootMismatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_group_change_policy: Option<FsGroupChange>,
    /// Further groups of the user; none is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub supplemental_groups: Option<Vec<i64>>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_armor_profile: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_group: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_non_root: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_as_user: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub se_linux_change_policy: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub se_linux_options: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seccomp_profile: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supplemental_groups_policy: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysctls: Option<NotYet>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows_options: Option<NotYet>,
}

/// When volumes are made to belong to `fsGroup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FsGroupChange {
    /// Where the volume's root does not belong to it.
    OnRootMismatch,
    /// Each time.
    Always,
    /// Written by a newer version.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

/// What a mover's container is given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MoverResources {
    /// At most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, IntOrString>>,
    /// At least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<BTreeMap<String, IntOrString>>,
    /// Not supported yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claims: Option<NotYet>,
}

impl MoverDefaults {
    /// These over those of the repository: each field that is set here counts.
    #[must_use]
    pub fn over(&self, defaults: &Self) -> Self {
        let mut merged = serde_json::to_value(defaults).unwrap_or_default();
        let own = serde_json::to_value(self).unwrap_or_default();
        lay_over(&mut merged, &own);
        serde_json::from_value(merged).unwrap_or_default()
    }
}

impl MoverSpec {
    /// Whether it is to read or set whatever the volume holds, which the namespace has to agree to.
    #[must_use]
    pub fn asks_for_privileges(&self) -> bool {
        let context = self.own.security_context.as_ref();
        let root = context.is_some_and(|context| context.run_as_user == Some(0));
        self.privileged_mode.unwrap_or(root)
    }

    /// These over those of the repository. That root is asked for says nothing of whose the repository's files are: of
    /// users only those above 0 count.
    #[must_use]
    pub fn over(&self, defaults: &MoverDefaults) -> MoverDefaults {
        let mut own = self.own.clone();
        if let Some(context) = &mut own.security_context {
            context.run_as_user = context.run_as_user.filter(|user| *user > 0);
        }
        own.over(defaults)
    }
}

/// The objects of fields; everything in them is one value.
const NESTED: [&str; 3] = ["securityContext", "podSecurityContext", "resources"];

fn lay_over(under: &mut serde_json::Value, over: &serde_json::Value) {
    for (field, value) in over.as_object().into_iter().flatten() {
        if NESTED.contains(&field.as_str()) && under[field].is_object() {
            for (inner, value) in value.as_object().into_iter().flatten() {
                under[field][inner] = value.clone();
            }
        } else {
            under[field] = value.clone();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn merged(own: Value, defaults: Value) -> Value {
        let read = |value: Value| serde_json::from_value::<MoverDefaults>(value).expect("decodes");
        serde_json::to_value(read(own).over(&read(defaults))).expect("JSON")
    }

    #[test]
    fn each_field_is_the_recipes_where_it_says_one_and_the_repositorys_else() {
        let defaults = json!({
            "securityContext": { "runAsUser": 1000, "runAsGroup": 1000 },
            "podSecurityContext": { "fsGroup": 1000, "supplementalGroups": [5, 6] },
            "resources": { "limits": { "memory": "1Gi", "cpu": 1 }, "requests": { "cpu": "100m" } },
            "nodeSelector": { "disk": "fast", "zone": "a" },
            "tolerations": [{ "key": "backup", "operator": "Exists" }],
        });
        assert_eq!(merged(json!({}), defaults.clone()), defaults);
        assert_eq!(merged(defaults.clone(), json!({})), defaults);
        let own = json!({
            "securityContext": { "runAsUser": 1050 },
            "podSecurityContext": { "supplementalGroups": [] },
            "resources": { "limits": { "memory": "2Gi" } },
            "nodeSelector": { "zone": "b" },
        });
        assert_eq!(
            merged(own, defaults),
            json!({
                "securityContext": { "runAsUser": 1050, "runAsGroup": 1000 },
                "podSecurityContext": { "fsGroup": 1000, "supplementalGroups": [] },
                "resources": { "limits": { "memory": "2Gi" }, "requests": { "cpu": "100m" } },
                "nodeSelector": { "zone": "b" },
                "tolerations": [{ "key": "backup", "operator": "Exists" }],
            }),
            "lists and maps are one field each"
        );
    }

    #[test]
    fn root_is_asked_for_by_name_or_by_number_and_the_repositorys_user_stays() {
        let read = |value: Value| serde_json::from_value::<MoverSpec>(value).expect("decodes");
        for (spec, asks) in [
            (json!({}), false),
            (json!({ "securityContext": { "runAsUser": 1000 } }), false),
            (json!({ "securityContext": { "runAsUser": 0 } }), true),
            (json!({ "privilegedMode": true }), true),
            (
                json!({ "privilegedMode": true, "securityContext": { "runAsUser": 1000 } }),
                true,
            ),
            (json!({ "privilegedMode": false }), false),
        ] {
            assert_eq!(read(spec.clone()).asks_for_privileges(), asks, "{spec}");
        }
        let defaults: MoverDefaults =
            serde_json::from_value(json!({ "securityContext": { "runAsUser": 1000, "runAsGroup": 1000 } }))
                .expect("decodes");
        for (own, user, group) in [
            (json!({ "runAsUser": 0, "runAsGroup": 0 }), 1000, 0),
            (json!({ "runAsUser": 1050 }), 1050, 1000),
        ] {
            let merged = read(json!({ "securityContext": own })).over(&defaults);
            let context = merged.security_context.expect("a context");
            assert_eq!(
                (context.run_as_user, context.run_as_group),
                (Some(user), Some(group))
            );
        }
    }
}
