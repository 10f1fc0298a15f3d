//! Asking the API server who asks, and what they may do, to name a missing right kindly.

use anyhow::{Result, anyhow};
use holdfast_api::names;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::Api;
use kube::api::PostParams;

use crate::connect::{Asked, Connection};

/// A verb on a kind of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// `write-off`, `patch`.
    pub verb: &'static str,
    /// Plural.
    pub plural: &'static str,
    /// `status`, or nothing.
    pub subresource: Option<&'static str>,
}

impl Right {
    fn resource(&self) -> String {
        let subresource = self
            .subresource
            .map(|name| format!("/{name}"))
            .unwrap_or_default();
        format!("{}.{}{subresource}", self.plural, names::LEDGER_GROUP)
    }
}

/// Who asks, as the API server knows them.
pub async fn who(connection: &Connection) -> Result<String> {
    let api: Api<SelfSubjectReview> = Api::all(connection.client.clone());
    let asked = Asked {
        verb: "create",
        plural: "selfsubjectreviews",
        name: None,
        namespace: None,
    };
    let answer = api
        .create(&PostParams::default(), &SelfSubjectReview::default())
        .await
        .map_err(|error| asked.failed(error))?;
    answer
        .status
        .and_then(|status| status.user_info)
        .and_then(|user| user.username)
        .ok_or_else(|| anyhow!("the cluster does not say who you are; nothing was changed"))
}

/// Fails with a sentence that names the first right that is missing on `name`.
pub async fn need(connection: &Connection, what: &str, name: &str, rights: &[Right]) -> Result<()> {
    let rights = rights.iter().map(|right| {
        let attributes = ResourceAttributes {
            group: Some(names::LEDGER_GROUP.to_owned()),
            resource: Some(right.plural.to_owned()),
            subresource: right.subresource.map(str::to_owned),
            name: Some(name.to_owned()),
            verb: Some(right.verb.to_owned()),
            ..ResourceAttributes::default()
        };
        (attributes, missing(what, name, *right))
    });
    connection.need(rights).await
}

/// The sentence.
pub fn missing(what: &str, name: &str, right: Right) -> String {
    format!(
        "you may not {what}: you lack the verb {} on {} {name}. The ClusterRole holdfast-accountant carries it; somebody who administers the cluster can do it or give you the role:\n  kubectl create clusterrolebinding backup-accountants --clusterrole=holdfast-accountant --user=YOU",
        right.verb,
        right.resource(),
    )
}
