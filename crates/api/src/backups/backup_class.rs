//! BackupClass: which strategy backs up which kind of application.

use super::TypedRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maps kinds of applications to strategies. Cluster-scoped.
#[derive(Debug, Clone, PartialEq, Default, CustomResource, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "backups.cozystack.io",
    version = "v1alpha1",
    kind = "BackupClass",
    plural = "backupclasses",
    status = "BackupClassStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct BackupClassSpec {
    /// The first entry that matches an application counts.
    #[serde(default)]
    pub strategies: Vec<BackupClassStrategy>,
}

impl BackupClassSpec {
    /// The strategy for an application: the first entry whose group and kind match, as the platform resolves it.
    /// `None`: the platform fails the job for good.
    #[must_use]
    pub fn strategy_for(&self, application: &TypedRef) -> Option<&TypedRef> {
        self.strategies
            .iter()
            .find(|entry| {
                entry.application.kind == application.kind
                    && entry.application.group() == application.application_group()
            })
            .map(|entry| &entry.strategy_ref)
    }
}

/// One entry of a BackupClass.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupClassStrategy {
    /// The strategy. A foreign group is left to whoever serves it.
    pub strategy_ref: TypedRef,
    /// For which applications.
    pub application: ApplicationSelector,
    /// What the strategy's templates read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// A kind of application.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSelector {
    /// API group; absent means `apps.cozystack.io`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// Kind.
    pub kind: String,
}

impl ApplicationSelector {
    fn group(&self) -> &str {
        match self.api_group.as_deref() {
            None | Some("") => crate::names::APPLICATION_GROUP,
            Some(group) => group,
        }
    }
}

/// State of a BackupClass.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BackupClassStatus {
    /// Conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
