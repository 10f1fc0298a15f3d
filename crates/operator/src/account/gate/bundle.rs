//! What the API server trusts: our authorities, written into the webhook's configuration.
//!
//! **Promises.** Only the bundle of the one configuration is written, only by the leader, and only when it differs. A
//! new authority is published long before it signs (`runtime::tls`), so a rotation refuses nobody.

use crate::runtime::certs::Certs;
use crate::runtime::leader::Leadership;
use holdfast_api::names;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the configuration is looked at; a Helm upgrade may have emptied it.
const PAUSE: Duration = Duration::from_secs(5);

/// Keeps the bundle published until `end`.
pub async fn publish(client: Client, certs: Certs, leadership: Leadership, end: CancellationToken) {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let mut said = String::new();
    loop {
        if let (Some(bundle), true) = (certs.bundle(), leadership.is_leader()) {
            let outcome = once(&configurations, bundle.as_bytes(), &leadership).await;
            let now = outcome.err().unwrap_or_default();
            if !now.is_empty() && now != said {
                tracing::warn!(
                    error = now,
                    "the gate's certificate authority cannot be published"
                );
            }
            said = now;
        }
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

async fn once(
    configurations: &Api<ValidatingWebhookConfiguration>,
    bundle: &[u8],
    leadership: &Leadership,
) -> Result<(), String> {
    let Some(configuration) = configurations
        .get_opt(names::GATE_CONFIGURATION)
        .await
        .map_err(|error| error.to_string())?
    else {
        return Err(format!(
            "there is no ValidatingWebhookConfiguration {}: install the chart with quota.enforcement=true",
            names::GATE_CONFIGURATION
        ));
    };
    let mut patch = Vec::new();
    for (at, webhook) in configuration.webhooks.iter().flatten().enumerate() {
        let known = webhook.client_config.ca_bundle.as_ref();
        if known.is_none_or(|known| known.0 != bundle) {
            patch
                .push(json!({ "op": "test", "path": format!("/webhooks/{at}/name"), "value": webhook.name }));
            patch.push(json!({
                "op": "add",
                "path": format!("/webhooks/{at}/clientConfig/caBundle"),
                "value": k8s_openapi::ByteString(bundle.to_vec()),
            }));
        }
    }
    if patch.is_empty() {
        return Ok(());
    }
    leadership.guard().map_err(|error| error.to_string())?;
    let patch: json_patch::Patch = serde_json::from_value(patch.into()).map_err(|error| error.to_string())?;
    configurations
        .patch(
            names::GATE_CONFIGURATION,
            &PatchParams::default(),
            &Patch::<()>::Json(patch),
        )
        .await
        .map_err(|error| error.to_string())?;
    tracing::info!("the gate's certificate authority is published");
    Ok(())
}
