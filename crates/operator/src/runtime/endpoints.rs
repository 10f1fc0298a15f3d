//! The Service `holdfast` has no selector: the leader writes itself into its EndpointSlice.
//!
//! **Promises.** While we lead, the slice names our pod and nobody else; it is written again every minute, so that
//! a slice that was removed or edited comes back. A former leader writes nothing.
//!
//! **Assumes.** The chart makes the Service. The slice is owned by it when it can be read, so that it goes with it.

use super::certs::SERVICE;
use super::leader::{Leadership, Standing};
use holdfast_api::names::{FIELD_MANAGER, MANAGED_BY, MANAGED_BY_LABEL};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::net::IpAddr;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Name of the port in Service and slice.
pub const PORT_NAME: &str = "https";
/// How often the slice is written again.
const AGAIN: Duration = Duration::from_secs(60);
/// Pause after a failure.
const RETRY: Duration = Duration::from_secs(2);
/// Longest time for one pass.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the server of this replica is reached.
#[derive(Debug, Clone)]
pub struct Here {
    /// The operator's namespace.
    pub namespace: String,
    /// The pod's address (`POD_IP` of the downward API).
    pub pod_ip: IpAddr,
    /// The pod's name, shown in the slice.
    pub pod: String,
    /// Port of the HTTPS server.
    pub port: u16,
}

/// Keeps the slice while we lead, until `end`.
pub async fn run(client: kube::Client, here: Here, leadership: Leadership, end: CancellationToken) {
    let mut standing = leadership.changed();
    let mut announced = None;
    loop {
        let now = *standing.borrow_and_update();
        let pause = if leadership.is_leader() {
            match tokio::time::timeout(PATIENCE, write(&client, &here, &leadership)).await {
                Ok(Ok(())) => {
                    if announced != Some(now) {
                        tracing::info!(address = %here.pod_ip, service = SERVICE, "the Service leads to this replica");
                        announced = Some(now);
                    }
                    AGAIN
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, service = SERVICE, "the EndpointSlice could not be written; trying again");
                    RETRY
                }
                Err(_) => {
                    tracing::warn!(
                        service = SERVICE,
                        "writing the EndpointSlice took too long; trying again"
                    );
                    RETRY
                }
            }
        } else {
            AGAIN
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            changed = standing.wait_for(|later| *later != now && *later != Standing::Standby) => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

async fn write(client: &kube::Client, here: &Here, leadership: &Leadership) -> anyhow::Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), &here.namespace);
    let owner = services
        .get(SERVICE)
        .await
        .ok()
        .and_then(|service| service.metadata.uid);
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &here.namespace);
    let slice = slice(here, owner.as_deref());
    let apply = || {
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let slice = Patch::Apply(slice.clone());
        let slices = slices.clone();
        async move { slices.patch(SERVICE, &parameters, &slice).await }
    };
    leadership.guard()?;
    match apply().await {
        Ok(_) => Ok(()),
        // The address family of a slice cannot be changed: replicas of different families need a new one.
        Err(kube::Error::Api(status)) if status.code == 422 => {
            tracing::warn!(reason = status.message, "the EndpointSlice is made anew");
            leadership.guard()?;
            slices.delete(SERVICE, &DeleteParams::default()).await?;
            leadership.guard()?;
            apply().await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// What is applied.
fn slice(here: &Here, owner: Option<&str>) -> Value {
    let family = match here.pod_ip {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    };
    let owners: Vec<Value> = owner
        .map(|uid| json!({ "apiVersion": "v1", "kind": "Service", "name": SERVICE, "uid": uid }))
        .into_iter()
        .collect();
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": SERVICE,
            "labels": {
                "kubernetes.io/service-name": SERVICE,
                "endpointslice.kubernetes.io/managed-by": MANAGED_BY,
                MANAGED_BY_LABEL: MANAGED_BY,
            },
            "ownerReferences": owners,
        },
        "addressType": family,
        "endpoints": [{
            "addresses": [here.pod_ip.to_string()],
            "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "namespace": here.namespace, "name": here.pod },
        }],
        "ports": [{ "name": PORT_NAME, "port": here.port, "protocol": "TCP" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(ip: &str) -> Here {
        Here {
            namespace: "holdfast-system".into(),
            pod_ip: ip.parse().expect("an address"),
            pod: "holdfast-0".into(),
            port: 8443,
        }
    }

    #[test]
    fn the_slice_is_one_that_the_service_finds() {
        let value = slice(&here("10.1.2.3"), Some("service-uid"));
        let slice: EndpointSlice = serde_json::from_value(value).expect("an EndpointSlice");
        let labels = slice.metadata.labels.expect("labels");
        assert_eq!(labels["kubernetes.io/service-name"], "holdfast");
        assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "holdfast");
        assert_eq!(slice.address_type, "IPv4");
        assert_eq!(slice.endpoints.len(), 1);
        assert_eq!(slice.endpoints[0].addresses, ["10.1.2.3"]);
        let ports = slice.ports.expect("ports");
        assert_eq!(
            (ports[0].name.as_deref(), ports[0].port),
            (Some("https"), Some(8443))
        );
        assert_eq!(
            slice.metadata.owner_references.expect("owners")[0].uid,
            "service-uid"
        );
    }

    #[test]
    fn the_family_follows_the_address() {
        assert_eq!(slice(&here("fd00::7"), None)["addressType"], "IPv6");
        assert_eq!(
            slice(&here("fd00::7"), None)["metadata"]["ownerReferences"],
            json!([])
        );
    }
}
