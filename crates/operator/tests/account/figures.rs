//! What is published, and into what.

use super::lab::{COUNT, Lab, MANAGER, SIZE};
use super::office::{Tenant, USER};
use holdfast_api::names;
use holdfast_core::quota::amount;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, DeleteParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn version(lab: &Lab) -> String {
    let quota = lab.quotas().get("cap").await.expect("read");
    quota.metadata.resource_version.expect("a version")
}

/// Cases real 2 and 10: the figure is ours, survives resyncs, and comes back, retained bytes included, when the quota is
/// made again.
#[tokio::test]
async fn a_figure_survives_resyncs_and_returns_with_what_is_retained_when_the_quota_is_made_again() {
    let Some(tenant) = Tenant::new("returns").await else {
        return;
    };
    let hard = json!({ SIZE: "10Gi", COUNT: "100", "configmaps": "100" });
    tenant.lab.quota("cap", hard.clone()).await;
    tenant.etcd("one", 48).await;
    tenant.etcd("two", 2).await;
    tenant
        .lab
        .until("both to be counted", async || {
            tenant.lab.used("cap").await.get(SIZE) == Some(&"50Mi".to_owned())
        })
        .await;
    tenant.delete_backup("one").await;
    tenant
        .until_states(&[("Retained NotPurged", 1), ("Attributed BackupSeen", 1)])
        .await;
    for _ in 0..3 {
        tenant.lab.resync("cap").await;
        assert_eq!(tenant.lab.used("cap").await[SIZE], "50Mi");
    }
    let quota = tenant.lab.quotas().get("cap").await.expect("read");
    let fields = quota.metadata.managed_fields.expect("managed fields");
    let ours = fields
        .iter()
        .find(|entry| entry.manager.as_deref() == Some(MANAGER))
        .expect("ours");
    let used = &ours.fields_v1.as_ref().expect("fields").0["f:status"]["f:used"];
    assert_eq!(
        used.as_object().expect("used").len(),
        2,
        "our two keys and nothing else: {used}"
    );

    tenant
        .lab
        .quotas()
        .delete("cap", &DeleteParams::default())
        .await
        .expect("deleted");
    tenant.lab.quota("cap", hard).await;
    tenant
        .lab
        .until("the figures to return", async || {
            tenant.lab.used("cap").await.get(SIZE) == Some(&"50Mi".to_owned())
        })
        .await;
    assert_eq!(tenant.lab.used("cap").await[COUNT], "2");
    tenant.end().await;
}

/// Cases real 8 and 9.
#[tokio::test]
async fn a_key_that_leaves_the_limits_takes_its_figure_along_and_a_key_that_returns_gets_it_again() {
    let Some(tenant) = Tenant::new("leaves").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 3).await;
    tenant.until_used("3Mi", "1").await;
    tenant.lab.merge_hard("cap", json!({ SIZE: null })).await;
    tenant.lab.until_used("cap", &[(COUNT, "1")]).await;
    tenant.etcd("two", 4).await;
    tenant.lab.until_used("cap", &[(COUNT, "2")]).await;
    tenant.lab.merge_hard("cap", json!({ SIZE: "1Gi" })).await;
    tenant.until_used("7Mi", "2").await;
    tenant.end().await;
}

/// Cases real 11 and 12: every quota with a key shows the same, one with scopes nothing.
#[tokio::test]
async fn every_quota_with_a_key_shows_the_figure_and_a_scoped_one_is_left_alone() {
    let Some(tenant) = Tenant::new("several").await else {
        return;
    };
    tenant.lab.quota("large", json!({ SIZE: "10Gi" })).await;
    tenant
        .lab
        .quota("small", json!({ SIZE: "4Gi", "pods": "1" }))
        .await;
    tenant
        .lab
        .try_quota(
            "scoped",
            json!({ "hard": { SIZE: "1Gi", "pods": "10" }, "scopes": ["BestEffort"] }),
        )
        .await
        .expect("accepted");
    tenant.etcd("one", 5 << 10).await;
    tenant.lab.until_used("large", &[(SIZE, "5Gi")]).await;
    tenant
        .lab
        .until_used("small", &[(SIZE, "5Gi"), ("pods", "0")])
        .await;
    tenant
        .lab
        .until("the warning about the scoped one", async || {
            !tenant.events("ScopedQuota").await.is_empty()
        })
        .await;
    assert!(!tenant.lab.used("scoped").await.contains_key(SIZE));
    tenant.end().await;
}

/// Case real 21: an amount that is written another way is the same amount.
#[tokio::test]
async fn an_amount_that_is_written_another_way_is_not_written_again() {
    let Some(tenant) = Tenant::new("spelling").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 1 << 10).await;
    tenant.until_used("1Gi", "1").await;
    tenant
        .lab
        .merge_status("cap", json!({ "used": { SIZE: "1073741824" } }))
        .await;
    let before = version(&tenant.lab).await;
    // Something else has to be looked at meanwhile, so that a pass is made.
    tenant.office.account().touch(tenant.namespace().to_owned());
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(version(&tenant.lab).await, before);
    assert_eq!(tenant.lab.used("cap").await[SIZE], "1073741824");
    tenant.end().await;
}

/// Case real 23.
#[tokio::test]
async fn a_restart_of_the_controller_manager_between_two_figures_loses_neither() {
    let Some(tenant) = Tenant::new("kcm").await else {
        return;
    };
    let _mine = tenant.lab.controller_manager().await;
    tenant.quota().await;
    tenant.etcd("one", 1).await;
    tenant.until_used("1Mi", "1").await;
    tenant
        .lab
        .program("restart", super::lab::CONTROLLER_MANAGER)
        .await;
    tenant.etcd("two", 1).await;
    tenant.until_used("2Mi", "2").await;
    tenant.end().await;
}

/// Case real 27: who changes a figure by hand sees it put right, and told.
#[tokio::test]
async fn a_hand_in_the_status_is_put_right_and_told() {
    let Some(tenant) = Tenant::new("hand").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 3).await;
    tenant.until_used("3Mi", "1").await;
    // The way `kubectl edit --subresource=status` does it: another manager takes the field.
    tenant
        .lab
        .merge_status("cap", json!({ "used": { SIZE: "1Gi" } }))
        .await;
    tenant.until_used("3Mi", "1").await;
    tenant
        .lab
        .until("the event", async || {
            !tenant.events("FigureDrifted").await.is_empty()
        })
        .await;
    let note = &tenant.events("FigureDrifted").await[0];
    assert!(
        note.contains("backups.cozystack.io/size was 1Gi and is 3Mi again"),
        "{note}"
    );
    tenant.end().await;
}

/// Keys that do not do what they look like are warned of, once each; nothing is published for them.
#[tokio::test]
async fn misspelt_keys_are_warned_of_once() {
    let Some(tenant) = Tenant::new("misspelt").await else {
        return;
    };
    let hard = json!({
        format!("limits.{SIZE}"): "20Gi", format!("requests.{SIZE}"): "20Gi",
        names::NATIVE_BACKUP_COUNT: "5", "backups.cozystack.io/sise": "1Gi",
    });
    tenant
        .lab
        .try_quota("cap", json!({ "hard": hard }))
        .await
        .expect("accepted");
    for reason in [
        "LimitsPrefix",
        "RequestsPrefix",
        "NativeBackupCount",
        "UnknownKey",
    ] {
        tenant
            .lab
            .until(reason, async || tenant.events(reason).await.len() == 1)
            .await;
    }
    for _ in 0..3 {
        tenant.office.account().touch(tenant.namespace().to_owned());
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    for reason in [
        "LimitsPrefix",
        "RequestsPrefix",
        "NativeBackupCount",
        "UnknownKey",
    ] {
        assert_eq!(tenant.events(reason).await.len(), 1, "{reason}");
    }
    assert!(
        !tenant
            .lab
            .used("cap")
            .await
            .contains_key(&format!("limits.{SIZE}"))
    );
    tenant.end().await;
}

/// The breakdown says what a figure is made of: an unsized archive is not nothing.
#[tokio::test]
async fn the_breakdown_says_what_a_figure_is_made_of() {
    let Some(tenant) = Tenant::new("breakdown").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("sized", 48).await;
    tenant.etcd("gone", 2).await;
    tenant.backup("unsized", "Altinity", None, None).await;
    tenant.until_used("50Mi", "3").await;
    tenant.delete_backup("gone").await;
    let breakdown = async || -> Value {
        let quota = tenant.lab.quotas().get("cap").await.expect("read");
        let text = quota.metadata.annotations.unwrap_or_default();
        text.get(names::BREAKDOWN)
            .map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"))
    };
    tenant
        .lab
        .until("what was deleted to be told as retained", async || {
            breakdown().await["retained"] == json!(2 << 20)
        })
        .await;
    let told = breakdown().await;
    assert_eq!(
        (&told["attributed"], &told["unreported"]),
        (&json!(48 << 20), &json!(1)),
        "{told}"
    );
    let labels = format!("{{namespace=\"{}\"}}", tenant.namespace());
    let metric = |name: &str| {
        tenant
            .office
            .metric(&format!("cozystack_backup_quota_{name}{labels}"))
    };
    assert_eq!(metric("attributed_bytes"), Some(f64::from(48 << 20)));
    assert_eq!(metric("retained_bytes"), Some(f64::from(2 << 20)));
    assert_eq!(metric("unreported_artifacts"), Some(1.0));
    assert_eq!(metric("limit_bytes"), Some(10.0 * f64::from(1 << 30)));
    tenant.end().await;
}

/// Cases real 17 and ledger 16, our writes: a thousand Backups at once cost one write in each debounce window.
#[tokio::test]
async fn a_thousand_backups_cost_one_write_in_a_window() {
    let Some(tenant) = Tenant::new("thousand").await else {
        return;
    };
    tenant.quota().await;
    let quotas: Api<ResourceQuota> = tenant.lab.quotas();
    let from = quotas
        .get("cap")
        .await
        .expect("read")
        .metadata
        .resource_version
        .expect("a version");
    let started = Instant::now();
    let create = async {
        for lot in 0..20 {
            let lot = (0..50).map(|n| {
                let name = format!("b-{lot}-{n}");
                let tenant = &tenant;
                async move { drop(tenant.etcd(&name, 1).await) }
            });
            futures::future::join_all(lot).await;
        }
    };
    let count = async {
        use futures::TryStreamExt as _;
        let params = WatchParams::default().fields("metadata.name=cap").timeout(290);
        let mut events = Box::pin(quotas.watch(&params, &from).await.expect("watched"));
        let mut values: Vec<String> = Vec::new();
        while let Some(event) = events.try_next().await.expect("an event") {
            let WatchEvent::Modified(quota) = event else {
                continue;
            };
            let used = quota.status.and_then(|status| status.used).unwrap_or_default();
            let Some(value) = used.get(COUNT) else { continue };
            if values.last() != Some(&value.0) {
                values.push(value.0.clone());
            }
            if amount::same(&value.0, "1000") {
                return values;
            }
        }
        panic!("the watch ended before all were counted: {values:?}");
    };
    let ((), values) = tokio::join!(create, count);
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "1,000 Backups counted after {seconds:.1} s with {} writes: {values:?}",
        values.len()
    );
    #[allow(clippy::cast_precision_loss)]
    let writes = values.len() as f64;
    assert!(writes <= seconds + 2.0, "{writes} writes in {seconds:.1} s");
    tenant.until_used("1000Mi", "1k").await;
    tenant.end().await;
}

/// Whoever forbids the write is told on the quota and left alone for a while; figures come again when it is allowed.
#[tokio::test]
async fn a_policy_that_forbids_the_write_is_told_and_not_pestered() {
    let Some(tenant) = Tenant::new("forbidden").await else {
        return;
    };
    tenant.quota().await;
    tenant.etcd("one", 1).await;
    tenant.until_used("1Mi", "1").await;
    let policy = format!("forbid-{}", tenant.namespace());
    forbid(&tenant, &policy).await;
    let refused = format!(
        "cozystack_backup_quota_write_refused{{namespace=\"{}\",quota=\"cap\"}}",
        tenant.namespace()
    );
    tenant.etcd("two", 1).await;
    tenant
        .lab
        .until("the refusal to be told", async || {
            !tenant.events("FigureRefused").await.is_empty()
        })
        .await;
    assert_eq!(tenant.office.metric(&refused), Some(1.0));
    let before = version(&tenant.lab).await;
    for n in 0..3 {
        tenant.etcd(&format!("more-{n}"), 1).await;
        tokio::time::sleep(Duration::from_millis(1_500)).await;
    }
    assert_eq!(tenant.events("FigureRefused").await.len(), 1, "told once");
    assert_eq!(version(&tenant.lab).await, before);
    let all = DeleteParams::default();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(tenant.lab.client.clone());
    bindings.delete(&policy, &all).await.expect("deleted");
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(tenant.lab.client.clone());
    policies.delete(&policy, &all).await.expect("deleted");
    // Other limits end the pause; the API server forgets the policy in its own time.
    let mut limit = 11;
    tenant
        .lab
        .until("the figures to come again", async || {
            limit += 1;
            tenant
                .lab
                .merge_hard("cap", json!({ SIZE: format!("{limit}Gi") }))
                .await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            tenant.lab.used("cap").await.get(SIZE) == Some(&"5Mi".to_owned())
        })
        .await;
    let drifted = tenant.events("FigureDrifted").await;
    assert!(
        drifted.is_empty(),
        "what could not be written was changed by nobody: {drifted:?}"
    );
    tenant.end().await;
}

async fn forbid(tenant: &Tenant, name: &str) {
    let params = PatchParams::apply("tests").force();
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["resourcequotas/status"],
            }] },
            "validations": [{ "expression": "!request.userInfo.username.startsWith('holdfast')", "message": "hands off" }],
        },
    });
    let api: Api<ValidatingAdmissionPolicy> = Api::all(tenant.lab.client.clone());
    api.patch(name, &params, &Patch::Apply(&policy))
        .await
        .expect("applied");
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": {
            "policyName": name, "validationActions": ["Deny"],
            "matchResources": { "namespaceSelector": {
                "matchLabels": { "kubernetes.io/metadata.name": tenant.namespace() },
            } },
        },
    });
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(tenant.lab.client.clone());
    api.patch(name, &params, &Patch::Apply(&binding))
        .await
        .expect("applied");
    let quotas: Api<ResourceQuota> = Api::namespaced(tenant.lab.as_user(USER).await, tenant.namespace());
    let probe = PatchParams::default().dry_run();
    let patch = Patch::Merge(json!({ "metadata": { "annotations": { "probe": "1" } } }));
    tenant
        .lab
        .until("the policy to be in force", async || {
            let answer = quotas.patch_status("cap", &probe, &patch).await;
            answer.is_err_and(|error| error.to_string().contains("hands off"))
        })
        .await;
}
