//! The chart, as helm sees it: it renders, refuses what is misspelt, and grants no more than it should.
//!
//! Assumes a helm program; no cluster.

mod monitoring;
mod policies;
mod quota;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::report::Outcome;
use crate::sh::{self, cmd};

/// The values that a user has to give.
const IMAGES: [&str; 2] = [
    "image.operator=registry.example/holdfast-operator:1",
    "image.mover=registry.example/holdfast-mover:1",
];

/// Settings that must be refused, and a word that the refusal must carry.
const REFUSED: &[(&str, &str)] = &[
    ("image.operatr=x", "operatr"),
    ("replicaCont=3", "replicaCont"),
    ("replicaCount=0", "replicaCount"),
    ("image.pullPolicy=Sometimes", "pullPolicy"),
    ("maxConcurrentDeleteJobs=-1", "maxConcurrentDeleteJobs"),
    ("deletions.pause=true", "pause"),
    ("deletions.paused=maybe", "paused"),
    ("admissionPolicies.enable=true", "enable"),
    ("logging.format=xml", "format"),
    ("monitoring.dashboard.enabled=true", "dashboard"),
    ("monitoring.serviceMonitor.interval=often", "interval"),
    ("crds.kept=false", "kept"),
    ("leaderElection.renewDeadlineSeconds=15", "renewDeadlineSeconds"),
    ("leaderElection.retryPeriodSeconds=5", "retryPeriodSeconds"),
    ("quota.enforced=true", "enforced"),
    ("quota.failurePolicy=Never", "failurePolicy"),
    ("quota.platformCRDs.installed=true", "installed"),
    ("image.mover=", "image.mover is required"),
    ("rbac.secret=x", "secret"),
    ("features.credentialProjection.enable=true", "enable"),
    (
        "features.credentialProjection.enabled=true,admissionPolicies.enabled=false",
        "set admissionPolicies.enabled: true",
    ),
    ("rbac.secrets[0].namespace=shop", "names"),
];

/// Helm and the chart.
struct Chart {
    helm: PathBuf,
    path: PathBuf,
}

impl Chart {
    fn helm(&self, verb: &str, settings: &[&str]) -> Command {
        let mut command = cmd(&self.helm, [verb]);
        if verb == "template" {
            command.arg("holdfast").args(["--namespace", "holdfast-system"]);
        }
        command.arg(&self.path).arg("--kube-version=1.37.0");
        for setting in IMAGES.iter().chain(settings) {
            command.arg(format!("--set={setting}"));
        }
        command
    }

    fn render(&self, settings: &[&str]) -> Result<Vec<Value>> {
        let text = sh::run("render the chart", &mut self.helm("template", settings))?;
        let documents: Vec<Value> = text
            .split("\n---")
            .map(|document| serde_saphyr::from_str::<Option<Value>>(document.trim_start_matches("---")))
            .collect::<std::result::Result<Vec<_>, _>>()
            .context("the chart does not render to YAML")?
            .into_iter()
            .flatten()
            .filter(Value::is_object)
            .collect();
        if documents.is_empty() {
            bail!("the chart renders to nothing");
        }
        Ok(documents)
    }
}

/// All checks of the chart in `workspace` with the program `helm`.
pub fn check(workspace: &Path, helm: PathBuf) -> Outcome {
    let chart = Chart {
        helm,
        path: workspace.join("charts/holdfast"),
    };
    let mut outcome = Outcome::default();
    outcome.check(
        "helm lint",
        sh::run("lint the chart", chart.helm("lint", &[]).arg("--strict")).map(drop),
    );
    for (setting, word) in REFUSED {
        outcome.check(
            &format!("--set {setting} is refused"),
            refused(&chart, setting, word),
        );
    }
    outcome.check("values reach the operator", values(&chart));
    match chart.render(&[]) {
        Ok(objects) => {
            outcome.check("definitions are those of the source", definitions(&objects));
            outcome.check("the operator's pod is restricted", restricted(&objects));
            outcome.check("the operator's rights are least", least_rights(&objects));
            outcome.check("admission policies", policies::check(&objects, false));
            outcome.check("the verbs prune and acknowledge", policies::verbs(&objects));
        }
        Err(error) => outcome.check("the chart renders", Err(error)),
    }
    outcome.check("rbac.secrets", named_secrets(&chart));
    outcome.check("features.credentialProjection.enabled", projection(&chart));
    outcome.check("crds.enabled and crds.keep", crd_switches(&chart));
    outcome.check("quota.*", quota::check(&chart));
    outcome.check("monitoring", monitoring::check(workspace, &chart));
    outcome.check(
        "admissionPolicies.enabled",
        chart
            .render(&["admissionPolicies.enabled=false"])
            .and_then(|objects| policies::are_absent(&objects)),
    );
    outcome
}

fn refused(chart: &Chart, setting: &str, word: &str) -> Result<()> {
    let output = chart.helm("template", &[setting]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        bail!("helm accepted it");
    }
    if !said.contains(word) {
        bail!("the refusal does not name {word}: {said}");
    }
    Ok(())
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

fn definitions(objects: &[Value]) -> Result<()> {
    let rendered = of_kind(objects, "CustomResourceDefinition");
    let wanted = holdfast_api::crd::all();
    if rendered.len() != wanted.len() {
        bail!("{} definitions instead of {}", rendered.len(), wanted.len());
    }
    for definition in wanted {
        let name = definition.metadata.name.clone().unwrap_or_default();
        let Some(there) = rendered
            .iter()
            .find(|crd| crd["metadata"]["name"] == name.as_str())
        else {
            bail!("{name} is missing");
        };
        if there["spec"] != serde_json::to_value(&definition.spec)? {
            bail!("{name} renders to another definition than the source has");
        }
        if there["metadata"]["annotations"]["helm.sh/resource-policy"] != "keep" {
            bail!("{name} would go, with every object of it, when the chart is uninstalled");
        }
    }
    Ok(())
}

fn crd_switches(chart: &Chart) -> Result<()> {
    let without = chart.render(&["crds.enabled=false"])?;
    if !of_kind(&without, "CustomResourceDefinition").is_empty() {
        bail!("crds.enabled=false still renders definitions");
    }
    for definition in of_kind(&chart.render(&["crds.keep=false"])?, "CustomResourceDefinition") {
        if !definition["metadata"]["annotations"]["helm.sh/resource-policy"].is_null() {
            bail!("crds.keep=false still keeps definitions");
        }
    }
    Ok(())
}

/// The pod fits the restricted pod security standard, has probes, and gets what the operator reads.
fn restricted(objects: &[Value]) -> Result<()> {
    const ENVIRONMENT: [&str; 17] = [
        "POD_NAME",
        "POD_IP",
        "HOLDFAST_NAMESPACE",
        "HOLDFAST_MOVER_IMAGE",
        "HOLDFAST_MOVER_PULL_POLICY",
        "HOLDFAST_DELETIONS_PAUSED",
        "HOLDFAST_CREDENTIAL_PROJECTION",
        "KOPIUR_MAX_CONCURRENT_DELETE_JOBS",
        "KOPIUR_LEASE_DURATION_SECONDS",
        "KOPIUR_RENEW_DEADLINE_SECONDS",
        "KOPIUR_RETRY_PERIOD_SECONDS",
        "HOLDFAST_QUOTA_ACCOUNTING",
        "HOLDFAST_QUOTA_ENFORCEMENT",
        "HOLDFAST_QUOTA_TOUCH_PLANS",
        "HOLDFAST_QUOTA_STRATEGY_GROUPS",
        "RUST_LOG",
        "KOPIUR_LOG_FORMAT",
    ];
    let deployments = of_kind(objects, "Deployment");
    let [deployment] = deployments.as_slice() else {
        bail!("{} Deployments instead of one", deployments.len());
    };
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let wrong: Vec<&str> = [
        ("runAsNonRoot", pod["securityContext"]["runAsNonRoot"] == true),
        ("runAsUser 65532", pod["securityContext"]["runAsUser"] == 65532),
        (
            "seccompProfile RuntimeDefault",
            pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault",
        ),
        (
            "allowPrivilegeEscalation false",
            container["securityContext"]["allowPrivilegeEscalation"] == false,
        ),
        (
            "readOnlyRootFilesystem",
            container["securityContext"]["readOnlyRootFilesystem"] == true,
        ),
        (
            "no capabilities",
            container["securityContext"]["capabilities"]["drop"][0] == "ALL",
        ),
        (
            "livenessProbe /healthz",
            container["livenessProbe"]["httpGet"]["path"] == "/healthz",
        ),
        (
            "readinessProbe /readyz",
            container["readinessProbe"]["httpGet"]["path"] == "/readyz",
        ),
    ]
    .into_iter()
    .filter(|(_, right)| !right)
    .map(|(what, _)| what)
    .collect();
    if !wrong.is_empty() {
        bail!("the pod lacks {}", wrong.join(", "));
    }
    let names: Vec<&str> = container["env"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    if names.len() != ENVIRONMENT.len() || ENVIRONMENT.iter().any(|name| !names.contains(name)) {
        bail!("the environment is {names:?} instead of {ENVIRONMENT:?}");
    }
    Ok(())
}

/// What stops or slows deletions reaches the operator's environment, by default and when it is set.
fn values(chart: &Chart) -> Result<()> {
    for (settings, paused, cap) in [
        (&[][..], "false", "0"),
        (
            &["deletions.paused=true", "maxConcurrentDeleteJobs=3"][..],
            "true",
            "3",
        ),
    ] {
        let objects = chart.render(settings)?;
        let deployments = of_kind(&objects, "Deployment");
        let variables = deployments
            .iter()
            .filter_map(|d| d["spec"]["template"]["spec"]["containers"][0]["env"].as_array())
            .flatten();
        let given = |name: &str| {
            variables
                .clone()
                .find(|v| v["name"] == name)
                .map(|v| v["value"].clone())
        };
        for (name, wanted) in [
            ("HOLDFAST_DELETIONS_PAUSED", paused),
            ("KOPIUR_MAX_CONCURRENT_DELETE_JOBS", cap),
        ] {
            let given = given(name);
            if given.as_ref().and_then(Value::as_str) != Some(wanted) {
                bail!("with {settings:?} {name} is {given:?} instead of {wanted}");
            }
        }
    }
    Ok(())
}

/// No wildcard anywhere, Secrets of other namespaces only by name, and nothing that widens itself.
fn least_rights(objects: &[Value]) -> Result<()> {
    let mut rules = 0;
    for kind in ["ClusterRole", "Role"] {
        for role in of_kind(objects, kind) {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            for rule in role["rules"].as_array().into_iter().flatten() {
                rules += 1;
                rule_is_narrow(kind, rule).with_context(|| format!("{kind} {name}"))?;
            }
        }
    }
    if rules == 0 {
        bail!("no rule at all");
    }
    Ok(())
}

fn rule_is_narrow(kind: &str, rule: &Value) -> Result<()> {
    let words = |key: &str| -> Vec<&str> {
        rule[key]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    };
    let (groups, resources, verbs) = (words("apiGroups"), words("resources"), words("verbs"));
    if [&groups, &resources, &verbs]
        .iter()
        .any(|list| list.is_empty() || list.contains(&"*"))
    {
        bail!("a wildcard, or nothing: {rule}");
    }
    if verbs
        .iter()
        .any(|verb| ["escalate", "bind", "impersonate"].contains(verb))
    {
        bail!("a verb that widens rights: {rule}");
    }
    if kind == "ClusterRole" && groups.contains(&"") && resources.contains(&"secrets") && verbs != ["get"] {
        bail!("Secrets of every namespace may only be read by name: {rule}");
    }
    if groups.contains(&"rbac.authorization.k8s.io") || resources.contains(&"pods/exec") {
        bail!("a right the operator has no use for: {rule}");
    }
    Ok(())
}

/// Secrets are written in every namespace with the switch alone, which brings the policy that bounds it; they are never
/// listed, and the operator is told.
fn projection(chart: &Chart) -> Result<()> {
    let switch = "features.credentialProjection.enabled=true";
    for (settings, wanted) in [
        (vec![], vec![]),
        (
            vec![switch],
            vec![serde_json::json!(["get", "create", "patch", "delete"])],
        ),
    ] {
        let objects = chart.render(&settings)?;
        let mut found = Vec::new();
        for role in of_kind(&objects, "ClusterRole") {
            let rules = role["rules"].as_array().into_iter().flatten();
            let of_secrets = rules.filter(|rule| rule["resources"] == serde_json::json!(["secrets"]));
            found.extend(of_secrets.map(|rule| rule["verbs"].clone()));
        }
        found.retain(|verbs| *verbs != serde_json::json!(["get"]));
        if found != wanted {
            bail!("with {settings:?} the rights on Secrets beside get are {found:?}");
        }
        policies::check(&objects, !settings.is_empty())?;
        let told = serde_json::to_string(&objects)?.contains(&format!(
            r#""name":"HOLDFAST_CREDENTIAL_PROJECTION","value":"{}""#,
            !settings.is_empty()
        ));
        if !told {
            bail!("with {settings:?} the operator is not told");
        }
    }
    Ok(())
}

/// With Secrets named, the operator reads these alone.
fn named_secrets(chart: &Chart) -> Result<()> {
    let objects = chart.render(&["rbac.secrets[0].namespace=shop", "rbac.secrets[0].names={a,b}"])?;
    let reads = |kind: &str| -> Vec<Value> {
        let roles = of_kind(&objects, kind).into_iter();
        let rules = roles.flat_map(|role| {
            let namespace = role["metadata"]["namespace"].clone();
            let rules = role["rules"].as_array().cloned().unwrap_or_default();
            rules.into_iter().map(move |rule| (namespace.clone(), rule))
        });
        let of_secrets = rules.filter(|(_, rule)| {
            let has = |key: &str, word: &str| {
                rule[key]
                    .as_array()
                    .is_some_and(|list| list.iter().any(|w| w == word))
            };
            has("resources", "secrets") && has("verbs", "get")
        });
        of_secrets
            .map(|(namespace, rule)| serde_json::json!([namespace, rule["resourceNames"]]))
            .collect()
    };
    let everywhere = reads("ClusterRole");
    if !everywhere.is_empty() {
        bail!("Secrets are read in every namespace: {everywhere:?}");
    }
    let found = reads("Role");
    let wanted = [
        serde_json::json!(["holdfast-system", ["holdfast-tls"]]),
        serde_json::json!(["shop", ["a", "b"]]),
    ];
    if found.len() != wanted.len() || wanted.iter().any(|one| !found.contains(one)) {
        bail!("the Secrets that are read are {found:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_role_that_grants_too_much_is_found() {
        let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
        rule_is_narrow("ClusterRole", &rule(&[""], &["secrets"], &["get"])).expect("narrow");
        rule_is_narrow("Role", &rule(&[""], &["secrets"], &["create"])).expect("narrow");
        for wide in [
            rule(&[""], &["secrets"], &["get", "list"]),
            rule(&["*"], &["snapshots"], &["get"]),
            rule(&["batch"], &["jobs"], &["*"]),
            rule(&["batch"], &[], &["get"]),
            rule(&["rbac.authorization.k8s.io"], &["roles"], &["get"]),
            rule(&[""], &["serviceaccounts"], &["impersonate"]),
        ] {
            rule_is_narrow("ClusterRole", &wide).expect_err(&wide.to_string());
        }
    }

    #[test]
    fn a_pod_that_is_not_restricted_is_found() {
        let error = restricted(&[json!({ "kind": "Deployment" })]).expect_err("nothing set");
        assert!(error.to_string().contains("runAsNonRoot"), "{error}");
    }
}
