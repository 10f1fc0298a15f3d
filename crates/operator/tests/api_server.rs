//! The runtime against a real API server: Lease, Secret, EndpointSlice, TokenReview, events.
//!
//! Runs where `HOLDFAST_E2E_KUBECONFIG` names one; elsewhere it says that it was skipped.

use holdfast_api::names;
use holdfast_operator::runtime::certs::{self, Certs, KubeCerts};
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::endpoints::{self, Here};
use holdfast_operator::runtime::events::{Events, Published};
use holdfast_operator::runtime::foreign::{self, Answer, Foreign};
use holdfast_operator::runtime::leader::{self, Leadership, Standing};
use holdfast_operator::runtime::lease::Settings;
use holdfast_operator::runtime::lease_store::KubeLease;
use holdfast_operator::runtime::review::{KubeReviewer, Reviewer, Verdict};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::EventType;
use kube::{Client, Resource};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// A namespace of its own, or nothing where there is no API server.
async fn cluster(test: &str) -> Option<(Client, String)> {
    let Some(path) = std::env::var_os("HOLDFAST_E2E_KUBECONFIG") else {
        println!("skipped: no API server (HOLDFAST_E2E_KUBECONFIG is not set)");
        return None;
    };
    // A second test of the same process finds the provider installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("config");
    let client = Client::try_from(config).expect("a client");
    let suffix = leader::identity("").split_off(9);
    let name = format!("runtime-{test}-{suffix}");
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await
        .expect("a namespace");
    Some((client, name))
}

async fn gone(client: Client, namespace: &str) {
    let namespaces: Api<Namespace> = Api::all(client);
    namespaces
        .delete(namespace, &DeleteParams::default())
        .await
        .expect("deleted");
}

async fn leads(leadership: &Leadership) {
    let mut changed = leadership.changed();
    let leading = changed.wait_for(|standing| *standing != Standing::Standby);
    drop(
        tokio::time::timeout(Duration::from_secs(30), leading)
            .await
            .expect("in time")
            .expect("alive"),
    );
}

#[tokio::test]
async fn two_replicas_share_a_lease_and_a_graceful_end_hands_it_over() {
    let Some((client, namespace)) = cluster("lease").await else {
        return;
    };
    let second = Duration::from_secs(1);
    let settings = Settings::new(second * 15, second * 10, second, second).expect("safe");
    let start = |me: &str| {
        let leadership = Leadership::standby();
        let end = CancellationToken::new();
        let store = KubeLease::new(client.clone(), &namespace, "holdfast-leader");
        let me = leader::identity(me);
        let task = tokio::spawn(leader::run(store, me, settings, leadership.clone(), end.clone()));
        (leadership, end, task)
    };
    let (first, end_first, task_first) = start("first");
    leads(&first).await;
    let (other, end_other, task_other) = start("other");
    tokio::time::sleep(second * 3).await;
    assert!(first.is_leader() && !other.is_leader());
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    // An edit of somebody else costs a conflict, not the leadership.
    let edit = serde_json::json!({ "metadata": { "labels": { "edited": "yes" } } });
    leases
        .patch("holdfast-leader", &PatchParams::default(), &Patch::Merge(edit))
        .await
        .expect("edited");
    tokio::time::sleep(second * 3).await;
    assert_eq!(*first.changed().borrow(), Standing::Leader { term: 1 });

    let released = Instant::now();
    end_first.cancel();
    task_first.await.expect("ended");
    leads(&other).await;
    assert!(released.elapsed() < second * 5, "took {:?}", released.elapsed());
    let lease = leases
        .get("holdfast-leader")
        .await
        .expect("a Lease")
        .spec
        .expect("a spec");
    assert!(
        lease
            .holder_identity
            .is_some_and(|holder| holder.starts_with("other_"))
    );
    assert_eq!(lease.lease_transitions, Some(1));
    end_other.cancel();
    task_other.await.expect("ended");
    gone(client, &namespace).await;
}

#[tokio::test]
async fn certificates_are_made_once_and_served_by_both_replicas() {
    let Some((client, namespace)) = cluster("certs").await else {
        return;
    };
    let end = CancellationToken::new();
    let (leader, standby) = (Certs::default(), Certs::default());
    for (certs, leadership) in [(&standby, Leadership::standby()), (&leader, Leadership::always())] {
        let store = KubeCerts::new(client.clone(), &namespace);
        let names = certs::names(&namespace);
        tokio::spawn(certs::run(store, names, certs.clone(), leadership, end.clone()));
    }
    tokio::time::timeout(Duration::from_secs(20), async {
        leader.ready().await;
        standby.ready().await;
    })
    .await
    .expect("both serve");
    assert_eq!(leader.bundle(), standby.bundle());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let secret = secrets.get(certs::SECRET).await.expect("the Secret");
    let bundle = secret.data.expect("data")["ca.crt"].0.clone();
    assert_eq!(
        String::from_utf8(bundle).expect("text"),
        *leader.bundle().expect("a bundle")
    );
    end.cancel();
    gone(client, &namespace).await;
}

#[tokio::test]
async fn the_leader_writes_itself_into_the_endpoint_slice_whatever_stood_there() {
    let Some((client, namespace)) = cluster("slice").await else {
        return;
    };
    let slices: Api<EndpointSlice> = Api::namespaced(client.clone(), &namespace);
    for ip in ["10.1.2.3", "10.1.2.4", "fd00::7"] {
        let here = Here {
            namespace: namespace.clone(),
            pod_ip: ip.parse().expect("an address"),
            pod: "holdfast-0".into(),
            port: 8443,
        };
        let end = CancellationToken::new();
        let running = tokio::spawn(endpoints::run(
            client.clone(),
            here,
            Leadership::always(),
            end.clone(),
        ));
        let seen = async {
            loop {
                let slice = slices.get_opt(certs::SERVICE).await.expect("read");
                if slice
                    .is_some_and(|slice| slice.endpoints.len() == 1 && slice.endpoints[0].addresses == [ip])
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(15), seen)
            .await
            .expect("written");
        end.cancel();
        running.await.expect("ended");
    }
    gone(client, &namespace).await;
}

#[tokio::test]
async fn only_a_token_of_our_audience_is_a_mover() {
    let Some((client, namespace)) = cluster("token").await else {
        return;
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: Some("holdfast-mover".into()),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    accounts
        .create(&PostParams::default(), &account)
        .await
        .expect("an account");
    let reviewer = KubeReviewer::new(client.clone());
    for (audience, ours) in [
        ("holdfast-results", true),
        ("https://kubernetes.default.svc", false),
    ] {
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![audience.into()],
                expiration_seconds: Some(600),
                bound_object_ref: None,
            },
            ..TokenRequest::default()
        };
        let issued = accounts
            .create_token_request("holdfast-mover", &PostParams::default(), &request)
            .await
            .expect("a token");
        let token = issued.status.expect("a status").token;
        let verdict = reviewer.review(&token).await.expect("an answer");
        let expected = format!("system:serviceaccount:{namespace}:holdfast-mover");
        assert_eq!(
            verdict,
            if ours {
                Verdict::User(expected)
            } else {
                Verdict::Refused
            }
        );
    }
    assert_eq!(reviewer.review("forged").await, Ok(Verdict::Refused));
    gone(client, &namespace).await;
}

#[tokio::test]
async fn an_event_is_published_once_and_not_in_a_terminating_namespace() {
    let Some((client, namespace)) = cluster("event").await else {
        return;
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some("about".into()),
            finalizers: Some(vec!["holdfast.test/hold".into()]),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    let map = maps
        .create(&PostParams::default(), &map)
        .await
        .expect("a ConfigMap");
    let about = map.object_ref(&());
    let events = Events::new(client.clone(), "holdfast-0");
    let note = "🗄".repeat(1_000);
    let publish = |reason: &'static str| {
        let (events, about, note) = (events.clone(), about.clone(), note.clone());
        async move {
            events
                .publish(
                    &about,
                    EventType::Warning,
                    reason,
                    &note,
                    "AcknowledgeMassDeletion",
                )
                .await
        }
    };
    assert_eq!(publish("SnapshotDeletionHeld").await, Published::Yes);
    assert_eq!(
        publish("SnapshotDeletionHeld").await,
        Published::Yes,
        "a repeat is a series"
    );
    gone(client.clone(), &namespace).await;
    assert_eq!(
        publish("SnapshotRetainedOnScheduleDelete").await,
        Published::NamespaceTerminating
    );
    let free = serde_json::json!({ "metadata": { "finalizers": null } });
    maps.patch("about", &PatchParams::default(), &Patch::Merge(free))
        .await
        .expect("let go");
}

/// The Lease of the Kopia operator, in a namespace that nobody told us of.
#[tokio::test]
async fn a_lease_of_another_manager_is_found_wherever_it_is_and_noticed_when_it_is_given_back() {
    let Some((client, namespace)) = cluster("foreign").await else {
        return;
    };
    let leases: Api<Lease> = Api::namespaced(client.clone(), &namespace);
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(jiff::Timestamp::now());
    let lease = Lease {
        metadata: ObjectMeta {
            name: Some("kopiur-leader".to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(k8s_openapi::api::coordination::v1::LeaseSpec {
            holder_identity: Some("kopiur-0".to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(now),
            ..k8s_openapi::api::coordination::v1::LeaseSpec::default()
        }),
    };
    leases
        .create(&PostParams::default(), &lease)
        .await
        .expect("created");
    let foreign = Foreign::unknown();
    let end = CancellationToken::new();
    let mut answer = foreign.changed();
    let looking = tokio::spawn(foreign::run(
        client.clone(),
        foreign.clone(),
        // Our own, where Holdfast runs beside this test; elsewhere there is none.
        (
            names::OPERATOR_NAMESPACE.to_owned(),
            names::LEADER_LEASE.to_owned(),
        ),
        Clock::system(),
        end.clone(),
    ));
    let minute = Duration::from_secs(60);
    let alive = answer.wait_for(|now| matches!(now, Answer::Alive(_)));
    drop(
        tokio::time::timeout(minute, alive)
            .await
            .expect("in time")
            .expect("running"),
    );
    assert!(foreign.alive().is_some_and(|why| why.contains("kopiur-leader")));
    let given_back = Patch::Merge(serde_json::json!({ "spec": { "holderIdentity": "" } }));
    leases
        .patch("kopiur-leader", &PatchParams::default(), &given_back)
        .await
        .expect("given back");
    let gone_now = answer.wait_for(|now| *now == Answer::None);
    drop(
        tokio::time::timeout(minute, gone_now)
            .await
            .expect("in time")
            .expect("running"),
    );
    end.cancel();
    looking.await.expect("ended");
    gone(client, &namespace).await;
}
