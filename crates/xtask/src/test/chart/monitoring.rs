//! What the chart installs for monitoring: nothing unless asked for, and then the files as they are.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{Chart, of_kind};
use crate::generate::monitoring::{ALERTS, DASHBOARDS};

/// All checks.
pub fn check(workspace: &Path, chart: &Chart) -> Result<()> {
    let nothing = chart.render(&[])?;
    ensure!(
        dashboards(&nothing).is_empty()
            && of_kind(&nothing, "PrometheusRule").is_empty()
            && of_kind(&nothing, "ServiceMonitor").is_empty(),
        "the default installs something for monitoring, whose kinds a cluster may not have"
    );
    dashboards_are_the_files(workspace, chart)?;
    rules_are_the_files(workspace, chart)?;
    scrapes_the_metrics_service(chart)
}

fn dashboards(objects: &[Value]) -> Vec<&Value> {
    let maps = of_kind(objects, "ConfigMap").into_iter();
    maps.filter(|map| !map["metadata"]["labels"]["grafana_dashboard"].is_null())
        .collect()
}

fn dashboards_are_the_files(workspace: &Path, chart: &Chart) -> Result<()> {
    let objects = chart.render(&["monitoring.dashboards.enabled=true"])?;
    let mut shown: Vec<(String, Value)> = Vec::new();
    for map in dashboards(&objects) {
        let data = map["data"].as_object().context("a dashboard without data")?;
        for (name, text) in data {
            let text = text.as_str().context("a dashboard that is no text")?;
            shown.push((name.clone(), serde_json::from_str(text).context(name.clone())?));
        }
    }
    let mut wanted = Vec::new();
    for entry in std::fs::read_dir(workspace.join(DASHBOARDS))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let content = serde_json::from_slice(&std::fs::read(&path)?)?;
        wanted.push((format!("holdfast-{name}"), content));
    }
    wanted.sort_by(|(a, _), (b, _)| a.cmp(b));
    shown.sort_by(|(a, _), (b, _)| a.cmp(b));
    ensure!(
        !wanted.is_empty() && shown == wanted,
        "the dashboards are not those of {DASHBOARDS}"
    );
    Ok(())
}

fn groups(objects: &[Value]) -> Result<Vec<Value>> {
    let rules = of_kind(objects, "PrometheusRule");
    let [rule] = rules.as_slice() else {
        bail!("{} PrometheusRules instead of one", rules.len());
    };
    Ok(rule["spec"]["groups"].as_array().context("no groups")?.clone())
}

fn file(workspace: &Path, name: &str) -> Result<Vec<Value>> {
    let path = workspace.join(ALERTS).join(format!("{name}.yaml"));
    Ok(serde_saphyr::from_str(&std::fs::read_to_string(path)?)?)
}

fn rules_are_the_files(workspace: &Path, chart: &Chart) -> Result<()> {
    let on = "monitoring.prometheusRule.enabled=true";
    let mut wanted = file(workspace, "operator")?;
    wanted.extend(file(workspace, "protect")?);
    let without = groups(&chart.render(&[on, "quota.accounting=false"])?)?;
    ensure!(
        without == wanted,
        "without accounting the groups are not those of operator and protect"
    );
    wanted.extend(file(workspace, "account")?);
    let with = groups(&chart.render(&[on])?)?;
    ensure!(with == wanted, "the groups are not those of {ALERTS}");
    let enforced = groups(&chart.render(&[on, "quota.accounting=false", "quota.enforcement=true"])?)?;
    ensure!(
        enforced == wanted,
        "with enforcement alone the rules of Account are missing"
    );

    let elsewhere =
        groups(&chart.render(&[on, "monitoring.prometheusRule.runbooks=https://example.org/r/"])?)?;
    for rule in elsewhere
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
    {
        let url = rule["annotations"]["runbook_url"].as_str().unwrap_or_default();
        ensure!(
            url.starts_with("https://example.org/r/") && !url.contains("r//") && url.ends_with(".md"),
            "monitoring.prometheusRule.runbooks leads to {url:?}"
        );
    }
    Ok(())
}

fn scrapes_the_metrics_service(chart: &Chart) -> Result<()> {
    let objects = chart.render(&[
        "monitoring.serviceMonitor.enabled=true",
        "monitoring.serviceMonitor.interval=15s",
    ])?;
    let monitors = of_kind(&objects, "ServiceMonitor");
    let [monitor] = monitors.as_slice() else {
        bail!("{} ServiceMonitors instead of one", monitors.len());
    };
    let endpoint = &monitor["spec"]["endpoints"][0];
    ensure!(
        endpoint["interval"] == "15s" && endpoint["path"] == "/metrics",
        "it scrapes {endpoint}"
    );
    let labels = monitor["spec"]["selector"]["matchLabels"]
        .as_object()
        .context("no selector")?;
    let found: Vec<&Value> = of_kind(&objects, "Service")
        .into_iter()
        .filter(|service| {
            labels
                .iter()
                .all(|(key, value)| service["metadata"]["labels"][key] == *value)
        })
        .collect();
    let [service] = found.as_slice() else {
        bail!("it selects {} Services instead of one", found.len());
    };
    let port = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|port| port["name"] == endpoint["port"]);
    ensure!(port, "the Service it selects has no port {}", endpoint["port"]);
    Ok(())
}
