//! The admission policies of the chart: narrow, in force everywhere, never in the way of a deletion, and with the
//! names that the source has.

use anyhow::{Context, Result, bail};
use holdfast_api::names;
use holdfast_core::quota::State;
use serde_json::{Value, json};

use super::of_kind;

const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Each policy, and words of the source that it must carry.
fn wanted() -> [(&'static str, Vec<String>); 10] {
    let operator = format!(
        "'system:serviceaccount:{}:holdfast-operator'",
        names::OPERATOR_NAMESPACE
    );
    let quoted = |name: &str| format!("'{name}'");
    [
        (
            "holdfast-stamp",
            vec![
                quoted(names::PRUNED_BY),
                quoted(names::PRUNED_AT),
                quoted(names::PRUNED_KEPT),
                "check('prune')".to_owned(),
            ],
        ),
        (
            "holdfast-protection",
            vec![
                quoted(names::ALLOW_MASS_DELETION),
                quoted(names::ACCEPT_INCOMPLETE_MEMORY),
                format!("? {} :", names::DEFAULT_THRESHOLD),
                "check('acknowledge')".to_owned(),
            ],
        ),
        (
            "holdfast-mass-prune",
            vec![quoted(names::ALLOW_MASS_PRUNE), "check('acknowledge')".to_owned()],
        ),
        (
            "holdfast-repository-records",
            vec![operator.clone(), "check('acknowledge')".to_owned()],
        ),
        (
            "holdfast-snapshot-records",
            vec![
                operator.clone(),
                quoted(holdfast_api::conditions::DELETION_HELD),
                "check('prune')".to_owned(),
            ],
        ),
        (
            "holdfast-artifacts",
            vec![
                operator.clone(),
                format!("'{}'", State::WrittenOff.as_str()),
                format!("check('{}')", names::WRITE_OFF_VERB),
            ],
        ),
        ("holdfast-artifact-deletion", vec![operator.clone()]),
        (
            "holdfast-backup-stores",
            vec![
                operator.clone(),
                quoted(names::APPROVE_RELEASE),
                names::LIST_REQUESTED_AT.to_owned(),
                format!("check('{}')", names::WRITE_OFF_VERB),
                "check('create')".to_owned(),
            ],
        ),
        (
            "holdfast-volumes",
            vec![operator.clone(), quoted(names::PRIME_PREFIX)],
        ),
        (
            "holdfast-batch-jobs",
            vec![
                operator,
                json!({
                    "key": names::OP_LABEL, "operator": "In", "values": [names::OP_DELETE_BATCH, names::OP_PIN],
                })
                .to_string(),
                format!("{}={}", names::OP_LABEL, names::OP_DELETE_BATCH),
                format!("op={}", names::OP_PIN),
            ],
        ),
    ]
}

/// The policy that goes with the right to write Secrets, and with nothing else.
fn of_secrets() -> (&'static str, Vec<String>) {
    let words = [
        format!(
            "system:serviceaccount:{}:holdfast-operator",
            names::OPERATOR_NAMESPACE
        ),
        format!("request.namespace != '{}'", names::OPERATOR_NAMESPACE),
        format!(
            "[?'{}'].orValue('') == '{}'",
            names::MANAGED_BY_LABEL,
            names::MANAGED_BY
        ),
        format!(
            "[?'{}'].orValue('') == '{}'",
            names::CREDS_SCOPE_LABEL,
            names::CREDS_SCOPE
        ),
        format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY),
        format!("{}={}", names::CREDS_SCOPE_LABEL, names::CREDS_SCOPE),
        r#""operations":["CREATE","UPDATE","DELETE"]"#.to_owned(),
    ];
    (OF_SECRETS, words.into())
}

/// All checks of the policies in `objects`; whether the operator may write Secrets in every namespace.
pub fn check(objects: &[Value], writes_secrets: bool) -> Result<()> {
    let policies = of_kind(objects, POLICY);
    let mut wanted = Vec::from(wanted());
    wanted.extend(writes_secrets.then(of_secrets));
    if policies.len() != wanted.len() || of_kind(objects, BINDING).len() != wanted.len() {
        bail!("{} policies instead of {}", policies.len(), wanted.len());
    }
    for (name, words) in wanted {
        let Some(policy) = policies.iter().find(|policy| policy["metadata"]["name"] == name) else {
            bail!("{name} is missing");
        };
        is_careful(policy).with_context(|| name.to_owned())?;
        let text = policy["spec"].to_string();
        if let Some(word) = words.iter().find(|word| !text.contains(*word)) {
            bail!("{name} does not have {word}");
        }
        let bound = of_kind(objects, BINDING).iter().any(|binding| {
            binding["spec"] == json!({ "policyName": name, "validationActions": ["Deny"] })
                && binding["metadata"]["name"] == name
        });
        if !bound {
            bail!("{name} is not in force everywhere");
        }
    }
    Ok(())
}

/// The one policy on deletions. Records of storage are of no namespace and nobody owns them, so neither a namespace's end
/// nor the garbage collector waits for one; and one that is gone is bytes that nobody is charged for.
const ON_DELETIONS: &str = "holdfast-artifact-deletion";
/// It looks at deletions too, and at the operator's alone, which takes part neither in a namespace's end nor in garbage
/// collection.
const OF_SECRETS: &str = "holdfast-secrets";

/// It fails closed, looks at nothing it has no need for, never at a deletion but of records of storage and the operator's
/// of Secrets, and says what to do.
fn is_careful(policy: &Value) -> Result<()> {
    let spec = &policy["spec"];
    if spec["failurePolicy"] != "Fail" {
        bail!("an error of the policy would let everything through");
    }
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rules = list(&spec["matchConstraints"]["resourceRules"]);
    for rule in &rules {
        for key in ["apiGroups", "apiVersions", "resources", "operations"] {
            let words = list(&rule[key]);
            if words.is_empty() || words.iter().any(|word| word == "*") {
                bail!("{key} is everything, or nothing: {rule}");
            }
        }
        let name = &policy["metadata"]["name"];
        let records_alone = name == ON_DELETIONS && rule["resources"] == json!(["artifacts"]);
        let of_the_operator = name == OF_SECRETS
            && rule["resources"] == json!(["secrets"])
            && list(&spec["matchConditions"]).iter().any(|condition| {
                let expression = condition["expression"].as_str().unwrap_or_default();
                expression.starts_with("request.userInfo.username == '") && !expression.contains("||")
            });
        if list(&rule["operations"]).iter().any(|operation| {
            operation != "CREATE" && operation != "UPDATE" && !records_alone && !of_the_operator
        }) {
            bail!("a deletion must never be refused: {rule}");
        }
    }
    let validations = list(&spec["validations"]);
    if rules.is_empty() || validations.is_empty() {
        bail!("no rule, or no validation");
    }
    for validation in validations {
        let sentence = validation["messageExpression"].as_str().unwrap_or_default();
        if validation["reason"] != "Forbidden"
            || validation["message"].as_str().is_none_or(str::is_empty)
            || !sentence.starts_with("request.userInfo.username")
        {
            bail!("a refusal is not Forbidden, or does not say who may not do what: {validation}");
        }
    }
    Ok(())
}

/// The switch takes all of them away.
pub fn are_absent(objects: &[Value]) -> Result<()> {
    if of_kind(objects, POLICY).is_empty() && of_kind(objects, BINDING).is_empty() {
        return Ok(());
    }
    bail!("admissionPolicies.enabled=false still renders policies");
}

/// Only the operator may stamp, only the approver may release, only the accountant may write off: no other role of the
/// chart carries these verbs.
pub fn verbs(objects: &[Value]) -> Result<()> {
    let mut found = Vec::new();
    for role in of_kind(objects, "ClusterRole")
        .into_iter()
        .chain(of_kind(objects, "Role"))
    {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for verb in ["prune", "acknowledge", names::WRITE_OFF_VERB] {
                if rule["verbs"]
                    .as_array()
                    .is_some_and(|verbs| verbs.contains(&json!(verb)))
                {
                    let name = role["metadata"]["name"].as_str().unwrap_or_default();
                    found.push(format!("{name}: {verb} {}", rule["resources"]));
                }
            }
        }
    }
    found.sort();
    let wanted = [
        r#"holdfast-accountant: write-off ["artifacts","backupstores"]"#,
        r#"holdfast-approver: acknowledge ["repositories","clusterrepositories","snapshotpolicies"]"#,
        r#"holdfast-operator: prune ["snapshots"]"#,
    ];
    if found != wanted {
        bail!("the verbs are given as {found:?} instead of {wanted:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Value {
        json!({ "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"], "operations": ["CREATE"] }] },
            "validations": [{ "expression": "true", "reason": "Forbidden", "message": "no",
                "messageExpression": "request.userInfo.username + ' may not'" }],
        } })
    }

    #[test]
    fn a_policy_that_is_not_careful_is_found() {
        is_careful(&policy()).expect("careful");
        for (at, value) in [
            ("/spec/failurePolicy", json!("Ignore")),
            (
                "/spec/matchConstraints/resourceRules/0/operations",
                json!(["DELETE"]),
            ),
            ("/spec/matchConstraints/resourceRules/0/operations", json!(["*"])),
            ("/spec/matchConstraints/resourceRules/0/resources", json!(["*"])),
            ("/spec/matchConstraints/resourceRules", json!([])),
            ("/spec/validations/0/reason", json!("Invalid")),
            ("/spec/validations/0/message", json!("")),
            ("/spec/validations/0/messageExpression", json!("'no'")),
        ] {
            let mut careless = policy();
            *careless.pointer_mut(at).expect("there") = value;
            is_careful(&careless).expect_err(at);
        }
    }

    #[test]
    fn only_the_operator_is_refused_a_deletion_of_secrets() {
        let mut secrets = policy();
        secrets["metadata"]["name"] = json!(OF_SECRETS);
        let rule = &mut secrets["spec"]["matchConstraints"]["resourceRules"][0];
        rule["resources"] = json!(["secrets"]);
        rule["operations"] = json!(["DELETE"]);
        is_careful(&secrets).expect_err("of everybody");
        for (condition, careful) in [
            ("request.userInfo.username == 'operator'", true),
            ("request.userInfo.username != 'operator'", false),
            ("request.userInfo.username == 'operator' || true", false),
        ] {
            secrets["spec"]["matchConditions"] = json!([{ "name": "who", "expression": condition }]);
            assert_eq!(is_careful(&secrets).is_ok(), careful, "{condition}");
        }
        secrets["metadata"]["name"] = json!("another");
        secrets["spec"]["matchConditions"][0]["expression"] =
            json!("request.userInfo.username == 'operator'");
        is_careful(&secrets).expect_err("another policy");
    }
}
