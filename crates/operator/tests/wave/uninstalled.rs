//! A process that starts while some definitions are not installed any more.

use crate::server::{Fate, Server};
use axum::http::StatusCode;
use holdfast_operator::runtime::clock::Clock;
use holdfast_operator::runtime::foreign::Foreign;
use holdfast_operator::runtime::watch;
use holdfast_operator::world::World;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Whether the world comes to know everything, when the lists of schedules are not found and the API server says of
/// their definition what `defined` says.
async fn syncs(defined: bool) -> bool {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let server = Server::watched(Clock::system(), 0);
    if defined {
        let name = "snapshotschedules.kopiur.home-operations.com";
        server.put(
            &format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
            json!({ "metadata": { "name": name } }),
        );
    }
    let client = server.client_with(Arc::new(|_, path, _| {
        if path.ends_with("v1alpha1/snapshotschedules") {
            Fate::Refused(StatusCode::NOT_FOUND)
        } else {
            Fate::Answered
        }
    }));
    let world = World::new();
    let sink: watch::Sink = Arc::new(|_| {});
    let _watches = watch::start(&client, &world, &sink, false, &Clock::system(), &Foreign::none());
    for _ in 0..30 {
        if world.is_synced() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[tokio::test]
async fn a_kind_whose_definition_is_gone_has_no_objects_and_keeps_nobody_waiting() {
    assert!(syncs(false).await);
}

#[tokio::test]
async fn a_list_that_is_not_found_although_the_kind_is_defined_proves_nothing() {
    assert!(!syncs(true).await);
}
