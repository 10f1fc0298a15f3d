//! Whether the scripted API server answers as a real one does.
//!
//! **Promises.** The same operations, in the same order, against both; each answer is compared field by field. Without a
//! real one the script runs against the scripted server alone, and says that nothing was compared.

mod runner;
mod script;

use crate::server::Server;
use holdfast_operator::runtime::clock::Clock;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use runner::Runner;

/// Fewer operations than this are no conformance.
const OPERATIONS: usize = 60;

async fn real() -> Option<Client> {
    let path = std::env::var("HOLDFAST_E2E_KUBECONFIG")
        .ok()
        .filter(|p| !p.is_empty())?;
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Some(Client::try_from(config).unwrap())
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
        println!("skipped: conformance against a real API server: HOLDFAST_E2E_KUBECONFIG is not set");
        return;
    };
    let seconds = jiff::Timestamp::now().as_second();
    let mut real = Runner::new(client, &format!("conformance-{seconds}"));
    script::play(&mut real).await;
    let mut differ = 0;
    for ((name, scripted), (_, real)) in scripted.log.iter().zip(&real.log) {
        if scripted != real {
            differ += 1;
            println!("{name}\n  scripted: {scripted}\n  real:     {real}");
        }
    }
    println!("{operations} operations compared with a real API server, {differ} differ");
    assert_eq!(differ, 0);
}
