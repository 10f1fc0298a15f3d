//! Plan: when the platform makes BackupJobs.

use super::TypedRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A schedule of BackupJobs for one application.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "backups.cozystack.io",
    version = "v1alpha1",
    kind = "Plan",
    plural = "plans",
    namespaced,
    status = "PlanStatus",
    derive = "PartialEq",
    selectable = ".spec.applicationRef.apiGroup",
    selectable = ".spec.applicationRef.kind",
    selectable = ".spec.applicationRef.name"
)]
#[serde(rename_all = "camelCase")]
pub struct PlanSpec {
    /// What is backed up.
    pub application_ref: TypedRef,
    /// Which BackupClass says how. The platform accepts an empty one here and refuses the BackupJobs it leads to.
    pub backup_class_name: String,
    /// When.
    pub schedule: PlanSchedule,
}

/// When a Plan is due.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanSchedule {
    /// `cron` or empty.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// Five fields, or a word such as `@daily`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
}

/// State of a Plan.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanStatus {
    /// The platform writes one of type `Error` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
