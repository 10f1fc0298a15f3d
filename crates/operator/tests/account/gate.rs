//! The gate as people meet it: through the API server.

use super::driver;
use super::lab::{CONTROLLER_MANAGER, COUNT, Lab, SIZE, refusal};
use super::office::Tenant;
use super::webhook::{Webhook, job, material, server_names};
use holdfast_api::backups::{Backup, RestoreJob};
use holdfast_api::names;
use holdfast_operator::account::gate::publish_bundle;
use holdfast_operator::runtime::leader::Leadership;
use holdfast_operator::runtime::tls::{AUTHORITY_LIFE, AUTHORITY_RENEW, Material, OVERLAP, settle};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Cases webhook 1 and 13: the kubeconfig of the tests is one of `system:masters`.
#[tokio::test]
async fn a_dry_run_is_refused_at_the_limit_and_admitted_below_it_without_a_trace_also_for_an_administrator() {
    let Some(tenant) = Tenant::new("dry-run").await else {
        return;
    };
    let reviews: Api<SelfSubjectReview> = Api::all(tenant.lab.client.clone());
    let review = SelfSubjectReview::default();
    let review = reviews.create(&PostParams::default(), &review).await;
    let status = review.expect("answered").status.expect("a status");
    let groups = status.user_info.and_then(|user| user.groups).unwrap_or_default();
    assert!(groups.contains(&"system:masters".to_owned()), "{groups:?}");
    tenant.lab.quota("cap", json!({ COUNT: "1" })).await;
    tenant.etcd("one", 1).await;
    tenant.lab.until_used("cap", &[(COUNT, "1")]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    for dry_run in [true, false] {
        let (code, sentence) = refusal(webhook.ask("nightly", dry_run).await);
        assert_eq!(code, 403, "{sentence}");
        assert!(
            sentence.contains(
                "backupjobs.backups.cozystack.io \"nightly\" is forbidden: exceeded quota: cap, \
                 requested: backups.cozystack.io/count=1, used: backups.cozystack.io/count=1, \
                 limited: backups.cozystack.io/count=1"
            ),
            "{sentence}"
        );
    }
    tenant.lab.merge_hard("cap", json!({ COUNT: "2" })).await;
    webhook.until(true).await;
    // There is room for one: a trace of any of these would refuse the next.
    for _ in 0..3 {
        webhook.ask("nightly", true).await.expect("admitted");
    }
    assert_eq!(webhook.gate.settle_recorded(), 0, "something was reserved");
    let jobs = tenant.jobs().list(&ListParams::default()).await.expect("listed");
    assert!(jobs.items.is_empty(), "{:?}", jobs.items);
    webhook.ask("nightly", false).await.expect("admitted");
    let (_, sentence) = refusal(webhook.ask("another", true).await);
    assert!(
        sentence.contains("backups.cozystack.io/count=1 (+1 running)"),
        "{sentence}"
    );
    webhook.close().await;
    tenant.end().await;
}

/// Cases real 11, webhook 10 and 11.
#[tokio::test]
async fn a_quota_that_appears_below_usage_refuses_and_of_two_the_one_that_is_exceeded_is_named() {
    let Some(tenant) = Tenant::new("appears").await else {
        return;
    };
    tenant.etcd("one", 5 << 10).await;
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    webhook.ask("free", true).await.expect("no limit");
    tenant.lab.quota("large", json!({ SIZE: "10Gi" })).await;
    tenant.lab.quota("small", json!({ SIZE: "4Gi" })).await;
    for quota in ["large", "small"] {
        tenant.lab.until_used(quota, &[(SIZE, "5Gi")]).await;
    }
    let (_, first) = refusal(webhook.ask("nightly", false).await);
    assert!(
        first.contains(
            "exceeded quota: small, requested: backups.cozystack.io/size=unknown, \
             used: backups.cozystack.io/size=5Gi, limited: backups.cozystack.io/size=4Gi"
        ),
        "{first}"
    );
    // Another one that is exceeded too, earlier in the order of names.
    tenant.lab.quota("also", json!({ COUNT: "1" })).await;
    tenant.lab.until_used("also", &[(COUNT, "1")]).await;
    let (_, second) = refusal(webhook.ask("nightly", false).await);
    assert!(second.contains("exceeded quota: also, "), "{second}");
    let (_, third) = refusal(webhook.ask("nightly", false).await);
    assert_eq!(second, third, "the text is stable");
    webhook.close().await;
    tenant.end().await;
}

/// Case webhook 14: the field does not exist, and the gate counts where the request goes.
#[tokio::test]
async fn a_job_cannot_name_an_application_of_another_namespace_and_counts_in_its_own() {
    let Some(tenant) = Tenant::new("own").await else {
        return;
    };
    let neighbour = Lab::new("neighbour").await.expect("as the tenant");
    tenant.lab.quota("cap", json!({ COUNT: "1" })).await;
    tenant.etcd("one", 1).await;
    tenant.lab.until_used("cap", &[(COUNT, "1")]).await;
    neighbour.quota("cap", json!({ COUNT: "1" })).await;
    neighbour.until_used("cap", &[(COUNT, "0")]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace(), &neighbour.namespace]).await;
    let (_, before) = refusal(webhook.ask("nightly", true).await);

    let mut foreign = job("nightly");
    foreign["spec"]["applicationRef"]["namespace"] = json!(tenant.namespace());
    let made = webhook
        .ask_for(&neighbour.namespace, foreign.clone(), false)
        .await;
    let made = made.expect("there is room where it is asked for");
    let kept = &made.data["spec"]["applicationRef"];
    assert!(kept["namespace"].is_null(), "{kept}");
    let (_, after) = refusal(webhook.ask("nightly", true).await);
    assert_eq!(
        before, after,
        "it was counted where its application is said to be"
    );
    foreign["metadata"]["name"] = json!("another");
    let (_, sentence) = refusal(webhook.ask_for(&neighbour.namespace, foreign, true).await);
    assert!(sentence.contains("count=0 (+1 running)"), "{sentence}");
    webhook.close().await;
    neighbour.end().await;
    tenant.end().await;
}

/// Case webhook 8: only what begins a backup waits for somebody to answer.
#[tokio::test]
async fn while_nobody_answers_a_new_run_is_refused_by_name_and_everything_else_goes_on() {
    let Some(tenant) = Tenant::new("silent").await else {
        return;
    };
    tenant.lab.quota("cap", json!({ COUNT: "10" })).await;
    tenant.lab.until_used("cap", &[(COUNT, "0")]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    webhook.ask("running", false).await.expect("admitted");
    webhook.let_through(false);
    let (code, sentence) = refusal(webhook.ask("refused", false).await);
    assert_eq!(code, 500, "{sentence}");
    assert!(
        sentence.contains("failed calling webhook \"quota.holdfast.backups.cozystack.io\""),
        "{sentence}"
    );
    // The run that there is goes on to its end, and what it made may go.
    let label = Patch::Merge(json!({ "metadata": { "labels": { "looked": "at" } } }));
    let labelled = tenant
        .jobs()
        .patch("running", &PatchParams::default(), &label)
        .await;
    labelled.expect("labelled");
    tenant.job_status("running", json!({ "phase": "Running" })).await;
    tenant.etcd("running", 1).await;
    tenant
        .job_status("running", json!({ "phase": "Succeeded" }))
        .await;
    let restores: Api<RestoreJob> = tenant.lab.api();
    let restore = json!({ "metadata": { "name": "back" }, "spec": { "backupRef": { "name": "running" } } });
    let restore: RestoreJob = serde_json::from_value(restore).expect("a RestoreJob");
    let restored = restores.create(&PostParams::default(), &restore).await;
    restored.expect("restored");
    let gone = DeleteParams::default();
    tenant.jobs().delete("running", &gone).await.expect("deleted");
    let backups: Api<Backup> = tenant.backups();
    tenant.until_states(&[("Attributed BackupSeen", 1)]).await;
    backups.delete("running", &gone).await.expect("deleted");
    tenant.until_states(&[("Retained NotPurged", 1)]).await;

    webhook.let_through(true);
    webhook.ask("refused", false).await.expect("admitted");
    webhook.close().await;
    tenant.end().await;
}

/// Cases real 22 and webhook 15: the API server's own quota refuses after the gate, and what the gate had reserved ends.
#[tokio::test]
async fn the_native_limit_of_jobs_refuses_after_the_gate_and_leaks_no_reservation() {
    let Some(tenant) = Tenant::new("native").await else {
        return;
    };
    let native = "count/backupjobs.backups.cozystack.io";
    tenant
        .lab
        .quota("cap", json!({ native: "2", SIZE: "10Gi", COUNT: "10" }))
        .await;
    tenant
        .lab
        .until_used("cap", &[(native, "0"), (SIZE, "0"), (COUNT, "0")])
        .await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    for name in ["one", "two"] {
        webhook.ask(name, false).await.expect("admitted");
    }
    tenant.until_states(&[("InFlight Admitted", 2)]).await;
    tenant
        .lab
        .until("both to be settled", async || webhook.gate.settle_recorded() == 0)
        .await;
    let before = webhook.answers();
    let (code, sentence) = refusal(webhook.ask("three", false).await);
    assert_eq!(code, 403, "{sentence}");
    assert!(
        sentence.contains(&format!(
            "exceeded quota: cap, requested: {native}=1, used: {native}=2, limited: {native}=2"
        )),
        "{sentence}"
    );
    assert!(
        !sentence.contains("admission webhook"),
        "it was not the gate's: {sentence}"
    );
    assert_eq!(webhook.answers(), before + 1, "the gate was asked first");
    assert_eq!(webhook.gate.settle_recorded(), 1, "and reserved");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(webhook.gate.settle_recorded(), 1, "its job might still come");
    tenant
        .lab
        .until("the reservation to end", async || {
            webhook.gate.settle_recorded() == 0
        })
        .await;
    tenant.until_states(&[("InFlight Admitted", 2)]).await;
    webhook.close().await;
    tenant.end().await;
}

/// Case real 18: the gate reads `spec.hard`, which no controller manager has to mirror first.
#[tokio::test]
async fn a_limit_that_is_raised_counts_while_the_controller_manager_is_paused() {
    let Some(tenant) = Tenant::new("paused").await else {
        return;
    };
    let _mine = tenant.lab.controller_manager().await;
    tenant.lab.quota("cap", json!({ SIZE: "1Gi" })).await;
    tenant.etcd("one", 1 << 10).await;
    tenant.lab.until_used("cap", &[(SIZE, "1Gi")]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    let (_, sentence) = refusal(webhook.ask("nightly", false).await);
    assert!(sentence.contains("exceeded quota: cap"), "{sentence}");
    tenant.lab.program("pause", CONTROLLER_MANAGER).await;
    tenant.lab.merge_hard("cap", json!({ SIZE: "2Gi" })).await;
    let mut answer = webhook.ask("nightly", true).await;
    for _ in 0..50 {
        if answer.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        answer = webhook.ask("nightly", true).await;
    }
    let quota = tenant.lab.quotas().get("cap").await.expect("read");
    tenant.lab.program("resume", CONTROLLER_MANAGER).await;
    answer.expect("the raised limit decides");
    let mirrored = quota.status.and_then(|status| status.hard).unwrap_or_default();
    assert_eq!(mirrored[SIZE].0, "1Gi", "it was not mirrored yet");
    webhook.close().await;
    tenant.end().await;
}

/// Case webhook 3.
#[tokio::test]
async fn a_run_whose_job_was_deleted_a_second_after_admission_is_in_the_way_until_it_ends() {
    let Some(tenant) = Tenant::new("deleted").await else {
        return;
    };
    driver::install(&tenant).await;
    tenant.lab.quota("cap", json!({ COUNT: "1" })).await;
    tenant.lab.until_used("cap", &[(COUNT, "0")]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    webhook.ask("short", false).await.expect("admitted");
    driver::run_of(&tenant, "short", "InProgress").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gone = tenant.jobs().delete("short", &DeleteParams::default()).await;
    gone.expect("deleted");
    tenant.until_states(&[("InFlight JobDeleted", 1)]).await;
    let (_, sentence) = refusal(webhook.ask("next", false).await);
    assert!(sentence.contains("count=0 (+1 running)"), "{sentence}");
    driver::run_of(&tenant, "short", "Failed").await;
    webhook.until(true).await;
    webhook.ask("next", false).await.expect("admitted");
    webhook.close().await;
    tenant.end().await;
}

/// Case webhook 4: told as an event on the job, in a metric and in the log.
#[tokio::test]
async fn a_job_that_nobody_takes_up_for_a_day_is_in_nobodys_way_and_says_so() {
    let Some(tenant) = Tenant::alone("never").await else {
        return;
    };
    tenant.lab.quota("cap", json!({ COUNT: "1" })).await;
    tenant.lab.until_used("cap", &[(COUNT, "0")]).await;
    tenant.job("orphan").await;
    tenant.until_states(&[("InFlight Admitted", 1)]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    webhook.until(false).await;
    webhook.close().await;
    tenant.office.stop();
    tenant.office.start_ahead(SignedDuration::from_hours(25));
    tenant.until_states(&[]).await;
    let webhook = Webhook::open(&tenant, &[tenant.namespace()]).await;
    webhook.until(true).await;
    webhook.close().await;
    let removed = tenant
        .office
        .metric("cozystack_backup_quota_records_removed_total{reason=\"NeverTakenUp\"}");
    tenant
        .lab
        .until("the event", async || {
            !tenant.events("NeverTakenUp").await.is_empty()
        })
        .await;
    let told = tenant.events("NeverTakenUp").await;
    tenant
        .jobs()
        .delete("orphan", &DeleteParams::default())
        .await
        .expect("deleted");
    tenant.office.stop();
    tenant.office.start();
    // Of other tests too: a day has passed for all.
    assert!(removed.is_some_and(|jobs| jobs >= 1.0), "{removed:?}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("within a day"), "{told:?}");
    tenant.end().await;
}

/// The stages of a rotation, all of them good now: one authority; its successor beside it; the successor signs.
fn rotation() -> [Material; 3] {
    let (names, now) = (server_names(), Timestamp::now());
    // The successor has been published for so long that it has just begun to sign.
    let promoted = now - SignedDuration::from_hours(1);
    let introduced = promoted - OVERLAP;
    let made = introduced - (AUTHORITY_LIFE - AUTHORITY_RENEW);
    let mut then: Option<Material> = None;
    for at in [made, introduced, promoted - SignedDuration::from_hours(1)] {
        let (changed, _) = settle(then.clone(), &names, at).expect("made");
        then = changed.or(then);
    }
    let published = then.expect("made");
    assert!(published.next.is_some(), "the successor is there");
    let alone = Material {
        next: None,
        ..published.clone()
    };
    let (rotated, _) = settle(Some(published.clone()), &names, now).expect("made");
    let rotated = rotated.expect("it signs now");
    assert_ne!(rotated.leaf.issuer, published.leaf.issuer);
    [alone, published, rotated]
}

/// Case webhook 9: each question shakes hands anew, while certificates and what the API server trusts change under it.
#[tokio::test]
async fn while_the_certificates_are_rotated_no_question_is_refused() {
    let Some(tenant) = Tenant::new("rotated").await else {
        return;
    };
    let stages = rotation();
    let webhook = Webhook::open_as(
        &tenant,
        names::GATE_CONFIGURATION,
        &[tenant.namespace()],
        &stages[0],
    )
    .await;
    let end = CancellationToken::new();
    tokio::spawn(publish_bundle(
        tenant.office.account().client.clone(),
        webhook.certs.clone(),
        Leadership::always(),
        end.clone(),
    ));
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(tenant.lab.client.clone());
    let trusted = async || {
        let configuration = configurations.get(names::GATE_CONFIGURATION).await.expect("read");
        let webhook = configuration.webhooks.unwrap_or_default().remove(0);
        let bundle = webhook.client_config.ca_bundle.map(|bundle| bundle.0);
        String::from_utf8(bundle.unwrap_or_default()).expect("PEM")
    };
    let mut asked = 0;
    for stage in &stages {
        webhook.certs.load(stage).expect("served");
        let mut published = 0;
        // Before the bundle of this stage is published, and for a while after it.
        while published < 20 {
            webhook.cut().await;
            let answer = webhook.ask("nightly", true).await;
            answer.unwrap_or_else(|error| panic!("refused after {asked} questions: {error}"));
            asked += 1;
            published += i32::from(trusted().await == stage.bundle());
            assert!(asked < 1_000, "the bundle is never published");
        }
    }
    println!("{asked} questions, each over a connection of its own");
    // That the handshake is looked at: an authority that nobody published.
    end.cancel();
    webhook.certs.load(&material()).expect("served");
    webhook.cut().await;
    let (_, sentence) = refusal(webhook.ask("nightly", true).await);
    assert!(
        sentence.contains("certificate signed by unknown authority"),
        "{sentence}"
    );
    webhook.close().await;
    tenant.end().await;
}
