//! What a Plan is told of a refused run, and when it is touched, with the rights of the chart.

use super::lab::COUNT;
use super::office::{ETCD, Tenant};
use axum::http::Request;
use holdfast_api::backups::Plan;
use holdfast_api::names;
use holdfast_operator::account::gate::{self, Gate, KubeNames, Plans};
use holdfast_operator::runtime::leader::Leadership;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Config};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Longer than the pause between two looks for room, several times.
const A_WHILE: Duration = Duration::from_secs(7);

/// A gate as the leader has it, asked over HTTP; it ends when dropped.
struct Door {
    client: Client,
    end: CancellationToken,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

impl Door {
    async fn open(tenant: &Tenant, touch: bool) -> Self {
        let account = tenant.office.account();
        let (client, events) = (account.client.clone(), account.events.clone());
        let (plans, refusals) = Plans::new();
        let gate = Gate::new(
            account.clone(),
            Arc::new(KubeNames(client.clone())),
            Leadership::always(),
            account.metrics.clone(),
            plans,
        );
        let end = CancellationToken::new();
        tokio::spawn(gate::take_over(Arc::clone(&gate), client.clone(), end.clone()));
        tokio::spawn(gate::tell_plans(
            Arc::clone(&gate),
            refusals,
            client,
            events,
            touch,
            end.clone(),
        ));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a port");
        let address = listener.local_addr().expect("an address");
        let (router, until) = (gate.router(), end.clone());
        tokio::spawn(async move {
            let served = axum::serve(listener, router);
            served.with_graceful_shutdown(until.cancelled_owned()).await
        });
        let config = Config::new(format!("http://{address}").parse().expect("an address"));
        let door = Self {
            client: Client::try_from(config).expect("a client"),
            end,
        };
        // Until it has taken over it refuses everything, for a reason that is not what is tested here.
        tenant
            .lab
            .until("the gate to have taken over", async || {
                let (_, sentence) = door.ask(tenant, "none", "first", true).await;
                !sentence.contains("just taken over")
            })
            .await;
        door
    }

    /// Asks as the API server does; whether it is allowed, and the sentence.
    async fn ask(&self, tenant: &Tenant, plan: &str, job: &str, dry_run: bool) -> (bool, String) {
        let application = json!({ "apiGroup": "apps.cozystack.io", "kind": ETCD, "name": "control" });
        let object = json!({
            "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "BackupJob",
            "metadata": { "name": job, "namespace": tenant.namespace(), "uid": format!("uid-of-{job}") },
            "spec": { "planRef": { "name": plan }, "applicationRef": application, "backupClassName": "any" },
        });
        let version = |key: &str, what: &str| json!({ "group": "backups.cozystack.io", "version": "v1alpha1", key: what });
        let review = json!({
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {
                "uid": "call", "kind": version("kind", "BackupJob"), "resource": version("resource", "backupjobs"),
                "name": job, "namespace": tenant.namespace(), "operation": "CREATE", "userInfo": {},
                "object": object, "dryRun": dry_run,
            },
        });
        let request = Request::post(gate::PATH)
            .header("content-type", "application/json")
            .body(serde_json::to_vec(&review).expect("JSON"))
            .expect("a request");
        let answer: Value = self.client.request(request).await.expect("an answer");
        let response = &answer["response"];
        let sentence = response["status"]["message"].as_str().unwrap_or_default();
        (response["allowed"] == true, sentence.to_owned())
    }

    /// Asks until the answer is as expected: a limit that was changed is seen a moment later.
    async fn until(&self, tenant: &Tenant, job: &str, allowed: bool) {
        let what = format!("a question whose answer is {allowed}");
        tenant
            .lab
            .until(&what, async || {
                self.ask(tenant, "none", job, true).await.0 == allowed
            })
            .await;
    }
}

/// A namespace with one Backup and room for no other, and a Plan.
async fn full(test: &str) -> Option<Tenant> {
    let tenant = Tenant::new(test).await?;
    tenant.lab.quota("cap", json!({ COUNT: "1" })).await;
    tenant.backup("one", ETCD, Some("s3://b/one"), Some(1)).await;
    tenant.lab.until_used("cap", &[(COUNT, "1")]).await;
    let plan = json!({
        "metadata": { "name": "shop" },
        "spec": {
            "applicationRef": { "apiGroup": "apps.cozystack.io", "kind": ETCD, "name": "control" },
            "backupClassName": "any", "schedule": { "type": "cron", "cron": "0 3 * * *" },
        },
    });
    let plan: Plan = serde_json::from_value(plan).expect("a Plan");
    let plans: Api<Plan> = tenant.lab.api();
    plans
        .create(&PostParams::default(), &plan)
        .await
        .expect("created");
    Some(tenant)
}

/// The name that the platform gives the run of a tick so many minutes ago.
fn run_of(minutes_ago: i64) -> String {
    format!("shop-{}", jiff::Timestamp::now().as_second() / 60 - minutes_ago)
}

async fn touched(tenant: &Tenant) -> Option<String> {
    let plans: Api<Plan> = tenant.lab.api();
    let plan = plans.get("shop").await.expect("read");
    plan.metadata.annotations?.remove(names::ROOM_APPEARED_AT)
}

/// How often the Plan was told something: repeats within six minutes are one event with a count.
async fn times(tenant: &Tenant) -> i32 {
    let once = |event: Event| event.series.map_or(1, |series| series.count);
    told(tenant).await.into_iter().map(once).sum()
}

/// Events on the Plan, all of them.
async fn told(tenant: &Tenant) -> Vec<Event> {
    let events: Api<Event> = tenant.lab.api();
    let all = events.list(&ListParams::default()).await.expect("listed");
    let on_plan = |event: &Event| {
        event
            .regarding
            .as_ref()
            .is_some_and(|about| about.kind.as_deref() == Some("Plan"))
    };
    all.items.into_iter().filter(on_plan).collect()
}

/// Case webhook 5.
#[tokio::test]
async fn a_refused_scheduled_run_is_one_event_on_its_plan_which_is_touched_once_when_room_appears() {
    let Some(tenant) = full("plan-touched").await else {
        return;
    };
    let door = Door::open(&tenant, true).await;
    let run = run_of(0);
    door.until(&tenant, &run, false).await;
    let (allowed, sentence) = door.ask(&tenant, "shop", &run, true).await;
    assert!(!allowed && sentence.contains("exceeded quota: cap"), "{sentence}");
    tokio::time::sleep(A_WHILE).await;
    assert!(told(&tenant).await.is_empty(), "a dry run was told");

    // Its controller tries again and again.
    for _ in 0..5 {
        assert!(!door.ask(&tenant, "shop", &run, false).await.0);
    }
    tenant
        .lab
        .until("an event on the Plan", async || !told(&tenant).await.is_empty())
        .await;
    tokio::time::sleep(A_WHILE).await;
    let events = told(&tenant).await;
    let [event] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(event.reason.as_deref(), Some("ExceededQuota"));
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.series.is_none(), "told again: {event:?}");
    let note = event.note.clone().unwrap_or_default();
    assert!(
        note.contains(&run) && note.contains("exceeded quota: cap"),
        "{note}"
    );
    assert_eq!(touched(&tenant).await, None, "there is no room");

    tenant.lab.merge_hard("cap", json!({ COUNT: "2" })).await;
    tenant
        .lab
        .until("the Plan to be touched", async || {
            touched(&tenant).await.is_some()
        })
        .await;
    let first = touched(&tenant).await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(touched(&tenant).await, first, "touched again");
    assert!(door.ask(&tenant, "shop", &run, false).await.0, "there is room");

    // The next tick is another matter.
    let next = run_of(-1);
    assert!(
        !door.ask(&tenant, "shop", &next, false).await.0,
        "the room was taken"
    );
    tenant
        .lab
        .until("the Plan to be told again", async || times(&tenant).await == 2)
        .await;
    tenant.end().await;
}

#[tokio::test]
async fn a_plan_is_not_touched_when_that_is_switched_off_nor_when_its_tick_is_not_due_any_more() {
    let Some(tenant) = full("plan-untouched").await else {
        return;
    };
    for (touch, minutes_ago) in [(false, 0), (true, 10)] {
        tenant.lab.merge_hard("cap", json!({ COUNT: "1" })).await;
        let door = Door::open(&tenant, touch).await;
        let run = run_of(minutes_ago);
        door.until(&tenant, &run, false).await;
        let before = times(&tenant).await;
        assert!(!door.ask(&tenant, "shop", &run, false).await.0);
        tenant
            .lab
            .until("the event", async || times(&tenant).await == before + 1)
            .await;
        tenant.lab.merge_hard("cap", json!({ COUNT: "2" })).await;
        door.until(&tenant, &run, true).await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(
            touched(&tenant).await,
            None,
            "touch {touch}, {minutes_ago} minutes after its tick"
        );
    }
    tenant.end().await;
}
