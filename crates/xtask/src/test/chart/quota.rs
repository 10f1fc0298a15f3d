//! The switches of backup storage quota: what each renders, and that nothing is on that nobody switched on.

use anyhow::{Result, bail, ensure};
use serde_json::Value;

use super::{Chart, least_rights, of_kind};

/// Definitions of the platform are never the chart's own, unless asked for.
const PLATFORM: [&str; 2] = [".backups.cozystack.io", ".strategy.backups.cozystack.io"];

/// All of it.
pub fn check(chart: &Chart) -> Result<()> {
    let off = chart.render(&[])?;
    ensure!(
        webhooks(&off).is_empty(),
        "the gate is on although nobody switched it on"
    );
    ensure!(
        environment(&off, "HOLDFAST_QUOTA_ENFORCEMENT") == "false",
        "enforcement by default"
    );
    ensure!(
        environment(&off, "HOLDFAST_QUOTA_ACCOUNTING") == "true",
        "no accounting by default"
    );
    ensure!(
        platform(&off).is_empty(),
        "definitions of the platform by default: {:?}",
        platform(&off)
    );

    let on = chart.render(&["quota.enforcement=true"])?;
    least_rights(&on)?;
    gate(&on, "Fail")?;
    gate(
        &chart.render(&["quota.enforcement=true", "quota.failurePolicy=Ignore"])?,
        "Ignore",
    )?;
    let only = chart.render(&["quota.enforcement=true", "quota.accounting=false"])?;
    ensure!(
        environment(&only, "HOLDFAST_QUOTA_ACCOUNTING") == "true",
        "a gate without a ledger refuses everything"
    );

    let none = chart.render(&["quota.accounting=false"])?;
    least_rights(&none)?;
    ensure!(
        !rights(&none).contains("resourcequotas/status"),
        "rights on quotas with all of it off"
    );
    for (touch, rendered) in [("true", true), ("false", false)] {
        let setting = format!("quota.touchPlans={touch}");
        let objects = chart.render(&["quota.enforcement=true", &setting])?;
        ensure!(
            environment(&objects, "HOLDFAST_QUOTA_TOUCH_PLANS") == touch,
            "{setting} is not told"
        );
        ensure!(
            may_patch_plans(&objects) == rendered,
            "{setting}: patch on plans is {}",
            !rendered
        );
    }

    let asked = chart.render(&["quota.platformCRDs.install=true"])?;
    let wanted: Vec<String> = holdfast_api::crd::platform()
        .iter()
        .filter_map(|definition| definition.metadata.name.clone())
        .collect();
    let there = platform(&asked);
    let missing: Vec<&String> = wanted
        .iter()
        .filter(|name| !there.contains(&name.as_str()))
        .collect();
    ensure!(missing.is_empty(), "asked for and not rendered: {missing:?}");
    Ok(())
}

fn webhooks(objects: &[Value]) -> Vec<&Value> {
    of_kind(objects, "ValidatingWebhookConfiguration")
}

/// The gate asks about BackupJobs that are created or changed, and about nothing else.
fn gate(objects: &[Value], policy: &str) -> Result<()> {
    let [configuration] = webhooks(objects)[..] else {
        bail!(
            "{} webhook configurations instead of one",
            webhooks(objects).len()
        );
    };
    let hooks = configuration["webhooks"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let [hook] = hooks else {
        bail!("{} webhooks instead of one", hooks.len());
    };
    ensure!(
        hook["failurePolicy"] == policy,
        "failurePolicy is {}",
        hook["failurePolicy"]
    );
    ensure!(
        hook["sideEffects"] == "NoneOnDryRun",
        "a dry run leaves a trace: {hook}"
    );
    for rule in hook["rules"].as_array().into_iter().flatten() {
        ensure!(
            rule["resources"] == serde_json::json!(["backupjobs"])
                && rule["operations"] == serde_json::json!(["CREATE", "UPDATE"]),
            "the gate stands before more than the beginning of backups: {rule}"
        );
    }
    Ok(())
}

/// Definitions of the platform's groups; those of the ledger are ours.
fn platform(objects: &[Value]) -> Vec<&str> {
    let names = of_kind(objects, "CustomResourceDefinition")
        .into_iter()
        .filter_map(|definition| definition["metadata"]["name"].as_str());
    names
        .filter(|name| !name.ends_with(".ledger.backups.cozystack.io"))
        .filter(|name| PLATFORM.iter().any(|group| name.ends_with(group)))
        .collect()
}

fn environment(objects: &[Value], name: &str) -> String {
    let variables = of_kind(objects, "Deployment")
        .into_iter()
        .filter_map(|one| one["spec"]["template"]["spec"]["containers"][0]["env"].as_array());
    let found = variables.flatten().find(|variable| variable["name"] == name);
    let value = found.and_then(|variable| variable["value"].as_str());
    value.unwrap_or_default().to_owned()
}

fn rules(objects: &[Value]) -> impl Iterator<Item = &Value> {
    let roles = of_kind(objects, "ClusterRole").into_iter().filter(|role| {
        // Those of people say nothing of the operator.
        role["metadata"]["name"] == "holdfast-operator"
    });
    roles.filter_map(|role| role["rules"].as_array()).flatten()
}

fn rights(objects: &[Value]) -> String {
    rules(objects).map(Value::to_string).collect()
}

fn may_patch_plans(objects: &[Value]) -> bool {
    let has = |rule: &Value, key: &str, word: &str| {
        rule[key].as_array().is_some_and(|all| all.contains(&word.into()))
    };
    rules(objects).any(|rule| has(rule, "resources", "plans") && has(rule, "verbs", "patch"))
}
