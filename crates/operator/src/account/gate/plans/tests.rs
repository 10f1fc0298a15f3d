//! One event per tick, and none for what is no tick.

use super::*;
use axum::body::Body;
use axum::http::{Method, Request, Response};
use holdfast_core::quota::gate::Request as Question;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn the_name_of_a_scheduled_job_tells_its_tick() {
    let tick = tick_of("shop-daily", "shop-daily-29790000").expect("a tick");
    assert_eq!(tick.as_second(), 29_790_000 * 60);
    for other in [
        "shop-daily",
        "shop-daily-x",
        "other-29790000",
        "shop-daily-99999999999999999",
        "shop-daily--29790000",
        "shop-daily-+29790000",
    ] {
        assert_eq!(tick_of("shop-daily", other), None, "{other}");
    }
}

#[test]
fn a_note_promises_what_is_done() {
    let now = note("shop-1", "exceeded quota: cap", true);
    assert!(now.contains("before if room appears"), "{now}");
    let never = note("shop-1", "exceeded quota: cap", false);
    assert!(never.contains("next tick") && !never.contains("room"), "{never}");
}

#[test]
fn a_tick_is_of_now_for_twenty_minutes_and_two_ahead() {
    let now = Timestamp::from_second(29_790_000 * 60).expect("a time");
    for (minutes, of_now) in [
        (-21, false),
        (-20, false),
        (-19, true),
        (0, true),
        (2, true),
        (3, false),
    ] {
        let tick = now + SignedDuration::from_mins(minutes);
        assert_eq!(is_of_now(tick, now), of_now, "{minutes}");
    }
}

/// An API server with one Plan, `shop`, and the events that were created.
#[derive(Default)]
struct Server {
    events: Mutex<Vec<Value>>,
    asked_for_plans: AtomicUsize,
}

impl Server {
    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        let refused = |code: u16, reason: &str| {
            (
                code,
                json!({ "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason }),
            )
        };
        if path.contains("/plans/") {
            self.asked_for_plans.fetch_add(1, Ordering::SeqCst);
            if !path.ends_with("/plans/shop") {
                return refused(404, "NotFound");
            }
            return (
                200,
                json!({
                    "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "Plan",
                    "metadata": { "name": "shop", "namespace": "tenant-acme", "uid": "plan-uid" },
                    "spec": {
                        "applicationRef": { "kind": "Etcd", "name": "control" },
                        "backupClassName": "any", "schedule": { "type": "cron", "cron": "0 3 * * *" },
                    },
                }),
            );
        }
        assert_eq!(
            (method, path),
            (
                &Method::POST,
                "/apis/events.k8s.io/v1/namespaces/tenant-acme/events"
            )
        );
        let event: Value = serde_json::from_slice(body).expect("JSON");
        let mut events = self.events.lock().expect("no panic");
        if events
            .iter()
            .any(|known| known["metadata"]["name"] == event["metadata"]["name"])
        {
            return refused(409, "AlreadyExists");
        }
        events.push(event.clone());
        (201, event)
    }

    fn told(&self) -> usize {
        self.events.lock().expect("no panic").len()
    }
}

/// What a leader has that has just begun.
fn desk(server: &Arc<Server>) -> Desk {
    let serving = Arc::clone(server);
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let server = Arc::clone(&serving);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let (code, told) = server.answer(&head.method, head.uri.path(), &body);
            let response = Response::builder()
                .status(code)
                .body(Body::from(told.to_string()));
            Ok::<_, Infallible>(response.expect("a response"))
        }
    });
    let client = Client::new(service, "default");
    Desk {
        ticks: BTreeMap::new(),
        events: Events::new(client.clone(), "test"),
        client,
        touch: true,
    }
}

fn refused(plan: &str, job: &str) -> Refused {
    Refused {
        plan: plan.to_owned(),
        job: job.to_owned(),
        reason: "ExceededQuota",
        message: "exceeded quota: cap".to_owned(),
        request: Question {
            namespace: "tenant-acme".to_owned(),
            uid: job.to_owned(),
            application: holdfast_core::quota::Application::default(),
            name_exists: holdfast_core::quota::gate::NameExists::NotKnown,
            operation: holdfast_core::quota::gate::Operation::Create,
            dry_run: false,
        },
    }
}

#[tokio::test]
async fn one_tick_is_one_event_whoever_leads_and_the_next_tick_another() {
    let server = Arc::new(Server::default());
    let now = Timestamp::now();
    let minutes = now.as_second() / 60;
    let run = format!("shop-{minutes}");
    for _leader in 0..3 {
        let mut desk = desk(&server);
        for _try in 0..3 {
            desk.hear(refused("shop", &run), now).await;
        }
        assert_eq!(desk.ticks.len(), 1);
    }
    assert_eq!(server.told(), 1);
    let mut desk = desk(&server);
    desk.hear(refused("shop", &format!("shop-{}", minutes - 1)), now)
        .await;
    assert_eq!(server.told(), 2);
    let events = server.events.lock().expect("no panic");
    let first = &events[0];
    assert_eq!(first["regarding"]["uid"], "plan-uid");
    assert_eq!(
        (&first["type"], &first["reason"]),
        (&json!("Warning"), &json!("ExceededQuota"))
    );
}

#[tokio::test]
async fn names_that_a_tenant_makes_up_fill_neither_a_plans_events_nor_memory() {
    let server = Arc::new(Server::default());
    let mut desk = desk(&server);
    let now = Timestamp::now();
    let minutes = now.as_second() / 60;
    for n in 0..500 {
        for job in [
            format!("by-hand-{n}"),
            format!("shop-x{n}"),
            format!("shop-{}", minutes - 30 - n),
        ] {
            desk.hear(refused("shop", &job), now).await;
        }
    }
    assert_eq!(
        server.asked_for_plans.load(Ordering::SeqCst),
        0,
        "they are no ticks of now"
    );
    for n in 0..500 {
        let plan = format!("none-{n}");
        desk.hear(refused(&plan, &format!("{plan}-{minutes}")), now).await;
    }
    assert_eq!(
        (server.told(), desk.ticks.len()),
        (0, 0),
        "there are no such Plans"
    );
    for n in 0..500 {
        desk.hear(refused("shop", &format!("shop-{}", minutes - n)), now)
            .await;
    }
    assert_eq!(
        (server.told(), desk.ticks.len()),
        (20, 20),
        "those of twenty minutes"
    );
}
