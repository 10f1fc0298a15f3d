//! Whether the scripted API server answers as a real one does.
//!
//! **Promises.** The same operations, in the same order, against both; each answer is compared field by field. Without a
//! real one the script runs against the scripted server alone, and says that nothing was compared.
//!
//! **Where.** On a control plane on which no operator runs (`HOLDFAST_E2E_CONTROL_PLANE`): one that runs takes up the
//! script's Snapshots between two operations.
//!
//! **Assumes.** What a short script cannot bring about in a real one (a version that is forgotten, a bookmark) is asked of
//! the scripted one alone. Server-side apply is answered 415: Protect never applies, it patches what it judged.

mod runner;
mod script;

use crate::server::Server;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use holdfast_operator::runtime::clock::Clock;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::conditions::is_crd_established;
use kube::runtime::wait::await_condition;
use kube::{Client, Config};
use runner::Runner;
use std::time::Duration;

/// Fewer operations than this are no conformance.
const OPERATIONS: usize = 60;

/// Up to Kubernetes 1.34 a merge at the status that only names the spec is stored as a new version; later ones leave the
/// object as it is. Nothing of ours writes so, and either answer is right.
const STORED_OR_NOT: &[&str] = &["merge spec and labels at the status"];

/// A definition that is not served by then is a failure.
const SERVED_AFTER: Duration = Duration::from_secs(60);

async fn real() -> Option<Client> {
    let path = std::env::var("HOLDFAST_E2E_CONTROL_PLANE")
        .ok()
        .filter(|p| !p.is_empty())?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    define(&client).await;
    Some(client)
}

/// The chart's definitions of our kinds, served.
async fn define(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in holdfast_api::crd::all() {
        let name = definition.metadata.name.clone().unwrap();
        let params = PatchParams::apply("tests").force();
        api.patch(&name, &params, &Patch::Apply(&definition))
            .await
            .unwrap();
        let established = await_condition(api.clone(), &name, is_crd_established());
        let served = tokio::time::timeout(SERVED_AFTER, established).await;
        served.unwrap_or_else(|_| panic!("{name} is not served")).unwrap();
    }
}

#[tokio::test]
async fn the_scripted_server_answers_as_a_real_one() {
    let server = Server::watched(Clock::system(), 0);
    let mut scripted = Runner::new(server.client(), "conformance");
    script::play(&mut scripted).await;
    let operations = scripted.log.len();
    assert!(operations >= OPERATIONS, "only {operations} operations");
    let Some(client) = real().await else {
        println!("{operations} operations against the scripted server alone");
        println!("skipped: conformance against a real API server: HOLDFAST_E2E_CONTROL_PLANE is not set");
        return;
    };
    let seconds = jiff::Timestamp::now().as_second();
    let mut real = Runner::new(client, &format!("conformance-{seconds}"));
    script::play(&mut real).await;
    let mut differ = 0;
    for ((name, scripted), (_, real)) in scripted.log.iter().zip(&real.log) {
        let (mut scripted, mut real) = (scripted.clone(), real.clone());
        if STORED_OR_NOT.contains(&name.as_str()) {
            for answer in [&mut scripted, &mut real] {
                answer["answer"]["metadata"]["resourceVersion"].take();
            }
        }
        if scripted != real {
            differ += 1;
            println!("{name}\n  scripted: {scripted}\n  real:     {real}");
        }
    }
    println!("{operations} operations compared with a real API server, {differ} differ");
    assert_eq!(differ, 0);
}

async fn asked(client: &Client, request: Request<Vec<u8>>) -> (u16, String) {
    let answer = client.send(request.map(kube::client::Body::from)).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = to_bytes(Body::new(answer.into_body()), 1_000_000).await.unwrap();
    (code, String::from_utf8_lossy(&bytes).into_owned())
}

#[tokio::test]
async fn a_version_that_is_forgotten_is_gone_and_a_watch_that_ends_says_how_far_it_was() {
    const MAPS: &str = "/api/v1/namespaces/a/configmaps";
    let server = Server::watched(Clock::system(), 0);
    let client = server.client();
    for n in 0..3 {
        let map = serde_json::json!({ "metadata": { "name": format!("m{n}") } });
        server.objects().put(&format!("{MAPS}/m{n}"), map);
    }
    let get = |query: &str| Request::get(format!("{MAPS}?{query}")).body(Vec::new()).unwrap();
    let (_, page) = asked(&client, get("limit=1")).await;
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    let token = page["metadata"]["continue"].as_str().unwrap().to_owned();
    let watch = "watch=1&timeoutSeconds=1&allowWatchBookmarks=true";
    let (_, told) = asked(&client, get(&format!("{watch}&resourceVersion=1"))).await;
    let lines: Vec<serde_json::Value> = told.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let types: Vec<&str> = lines.iter().map(|l| l["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED", "ADDED", "BOOKMARK"]);
    assert_eq!(lines[2]["object"]["metadata"]["resourceVersion"], "3");
    // Compacted.
    server.objects().put(
        &format!("{MAPS}/m3"),
        serde_json::json!({ "metadata": { "name": "m3" } }),
    );
    server.objects().compacted = 4;
    let (code, told) = asked(&client, get(&format!("{watch}&resourceVersion=3"))).await;
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["type"]), (200, &serde_json::json!("ERROR")));
    assert_eq!(told["object"]["code"], 410);
    let (code, _) = asked(&client, get(&format!("limit=1&continue={token}"))).await;
    assert_eq!(code, 410);
}

#[tokio::test]
async fn nothing_is_applied() {
    let server = Server::watched(Clock::system(), 0);
    let request = Request::patch("/api/v1/namespaces/a/configmaps/m?fieldManager=x")
        .header("content-type", "application/apply-patch+yaml")
        .body(b"{}".to_vec())
        .unwrap();
    assert_eq!(asked(&server.client(), request).await.0, 415);
}
