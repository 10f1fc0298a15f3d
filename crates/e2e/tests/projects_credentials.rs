//! The Secrets of a ClusterRepository are copied to where its movers run, with three consents, for one Job each; who may
//! read them there otherwise, and what the operator's account may write, is in `only_those_who_may`. And a policy's own
//! name is what its data is found by again.

use anyhow::{Context, Result, ensure};
use holdfast_api::restore::RestoreStatus;
use holdfast_api::{ClusterRepository, SnapshotPolicy, conditions, names};
use holdfast_e2e::restores::{completed, content, restore, says};
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, Scenario, remove_namespace, shared_ready, suffix};
use holdfast_e2e::{Lab, Look, objects, standin, until, until_every};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The name that the policies here say for themselves.
const OWN_NAME: &str = "shop-db";

/// A ClusterRepository in a bucket, whose Secret is in the operator's namespace alone, and a namespace that uses it.
struct Shared {
    scenario: Scenario,
    name: String,
    repositories: Api<ClusterRepository>,
}

impl Shared {
    async fn start(lab: &Lab) -> Result<Self> {
        let name = format!("lake-{}", suffix());
        let endpoint = standin::s3(lab, &name).await?;
        let scenario = Scenario::bare(lab, "projects").await?;
        lab.create(json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": { "name": name, "namespace": names::OPERATOR_NAMESPACE },
            "stringData": {
                objects::PASSWORD_KEY: objects::PASSWORD,
                "AWS_ACCESS_KEY_ID": standin::KEYS.0,
                "AWS_SECRET_ACCESS_KEY": standin::KEYS.1,
                "not-for-movers": "stays",
            },
        }))
        .await?;
        let repository = objects::repository_in_bucket("", &name, &endpoint, "shared/", &name);
        let allowed = json!({ "list": [scenario.namespace] });
        lab.create(objects::shared(repository, allowed)).await?;
        let repositories: Api<ClusterRepository> = Api::all(lab.client.clone());
        shared_ready(lab, &name).await?;
        Ok(Self {
            scenario,
            name,
            repositories,
        })
    }

    fn reference(&self) -> Value {
        json!({ "kind": "ClusterRepository", "name": self.name })
    }

    /// A policy for the claim with data that says its own name.
    async fn policy(&self, name: &str, username: &str, asks: bool) -> Result<()> {
        let mut policy = objects::policy(&self.scenario.namespace, name, "", DATA_CLAIM, None);
        policy["spec"]["repository"] = self.reference();
        policy["spec"]["identity"] = json!({ "username": username });
        if asks {
            policy["spec"]["credentialProjection"] = json!({ "enabled": true });
        }
        self.scenario.lab.create(policy).await?;
        Ok(())
    }

    async fn snapshot(&self, name: &str) -> Result<()> {
        let mut snapshot = objects::snapshot(&self.scenario.namespace, name, POLICY);
        snapshot["spec"]["deletionPolicy"] = json!("Delete");
        self.scenario.lab.create(snapshot).await?;
        Ok(())
    }

    async fn edit(&self, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        self.repositories
            .patch(&self.name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    async fn copies(&self) -> Result<Vec<Secret>> {
        let api: Api<Secret> = self.scenario.lab.api(&self.scenario.namespace);
        let ours = ListParams::default().labels(&format!(
            "{}={},{}={}",
            names::MANAGED_BY_LABEL,
            names::MANAGED_BY,
            names::CREDS_SCOPE_LABEL,
            names::CREDS_SCOPE
        ));
        Ok(api.list(&ours).await?.items)
    }

    /// The copy, as soon as there is one: it is there from before its Job runs.
    async fn a_copy(&self) -> Result<Secret> {
        let (pace, limit) = (Duration::from_millis(100), Duration::from_secs(120));
        until_every(pace, "a copy of the credentials", limit, || async {
            Ok(match self.copies().await?.pop() {
                Some(copy) => Look::Done(copy),
                None => Look::Not("none".into()),
            })
        })
        .await
    }

    async fn no_copies(&self) -> Result<()> {
        until("the copies to be gone", Duration::from_secs(60), || async {
            let left = self.copies().await?;
            Ok(match left.as_slice() {
                [] => Look::Done(()),
                _ => Look::Not(format!("{} are there", left.len())),
            })
        })
        .await
    }

    async fn restored(&self, name: &str) -> Result<RestoreStatus> {
        self.restore(name, POLICY).await?;
        completed(&self.scenario.lab, &self.scenario.namespace, name).await
    }

    /// Asks for what a policy backed up, in a claim of the Restore's name.
    async fn restore(&self, name: &str, policy: &str) -> Result<()> {
        let (lab, ns) = (&self.scenario.lab, &self.scenario.namespace);
        lab.create(objects::claim(ns, name)).await?;
        let source = json!({ "fromPolicy": { "name": policy } });
        let mut wanted = restore(ns, name, source, json!({ "pvcRef": { "name": name } }));
        wanted["spec"]["credentialProjection"] = json!({ "enabled": true });
        lab.create(wanted).await?;
        Ok(())
    }

    async fn end(self) -> Result<()> {
        let lab = self.scenario.lab.clone();
        self.scenario.end().await?;
        let gone = DeleteParams::default();
        self.repositories.delete(&self.name, &gone).await?;
        let secrets: Api<Secret> = lab.api(names::OPERATOR_NAMESPACE);
        secrets.delete(&self.name, &gone).await?;
        remove_namespace(&lab, &self.name).await
    }
}

/// Whether this installation may copy at all; else the test is skipped, aloud.
async fn may_copy(lab: &Lab, test: &str) -> Result<bool> {
    let deployments: Api<k8s_openapi::api::apps::v1::Deployment> = lab.api(names::OPERATOR_NAMESPACE);
    let deployment = deployments.get(holdfast_e2e::lab::DEPLOYMENT).await?;
    let on = serde_json::to_string(&deployment)?
        .contains(r#"{"name":"HOLDFAST_CREDENTIAL_PROJECTION","value":"true"}"#);
    if !on {
        eprintln!("skipped: {test}: features.credentialProjection.enabled is not set in this installation");
    }
    Ok(on)
}

#[tokio::test]
async fn copies_come_with_three_consents_and_go_with_their_job() -> Result<()> {
    let test = "copies_come_with_three_consents_and_go_with_their_job";
    let Some(lab) = Lab::for_test(test).await? else {
        return Ok(());
    };
    if !may_copy(&lab, test).await? {
        return Ok(());
    }
    let shared = Shared::start(&lab).await?;
    let scenario = &shared.scenario;
    let ns = scenario.namespace.as_str();
    let available = conditions::CREDENTIALS_AVAILABLE;

    // Nobody asks, then the user alone: nothing is copied, and what is missing is said.
    shared.policy(POLICY, OWN_NAME, false).await?;
    shared.snapshot("one").await?;
    scenario
        .snapshot_condition("one", available, |c| c.reason == "MissingCredentialsSecret")
        .await?;
    let policies: Api<SnapshotPolicy> = lab.api(ns);
    let asks = Patch::Merge(json!({ "spec": { "credentialProjection": { "enabled": true } } }));
    policies.patch(POLICY, &PatchParams::default(), &asks).await?;
    scenario
        .snapshot_condition("one", available, |c| {
            c.reason == "CredentialProjectionNotAllowed"
                && c.message.contains("spec.credentialProjection.allowed")
        })
        .await?;
    ensure!(shared.copies().await?.is_empty(), "copied without consent");

    // All: it holds what movers read and nothing else, goes with its Job, and the backup runs.
    shared
        .edit(json!({ "credentialProjection": { "allowed": true } }))
        .await?;
    let copy = shared.a_copy().await?;
    let held: BTreeSet<String> = copy.data.unwrap_or_default().into_keys().collect();
    let wanted = [
        objects::PASSWORD_KEY,
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ];
    assert_eq!(held, wanted.map(str::to_owned).into());
    let snapshot = scenario.succeeded("one").await?;
    let recorded = snapshot.status.and_then(|s| s.snapshot).context("recorded")?;
    let identity = recorded.identity.context("as whom")?;
    assert_eq!(
        (identity.username.as_str(), identity.hostname.as_str()),
        (OWN_NAME, ns)
    );
    shared.no_copies().await?;

    // What it backed up comes back, found by the name that the policy says.
    let status = shared.restored("back").await?;
    let resolved = status.resolved.context("what was restored")?;
    assert_eq!(resolved.kopia_snapshot_id, Some(recorded.kopia_snapshot_id));
    shared.no_copies().await?;
    let (was, is) = (
        content(&lab, ns, DATA_CLAIM).await?,
        content(&lab, ns, "back").await?,
    );
    assert_eq!(is.entries, was.in_a_snapshot());

    // Deletions run where the Secrets are: they outlast the policy that asked, and its consent.
    policies.delete(POLICY, &DeleteParams::default()).await?;
    shared
        .edit(json!({ "credentialProjection": { "allowed": false } }))
        .await?;
    let snapshots: Api<holdfast_api::Snapshot> = lab.api(ns);
    snapshots.delete("one", &DeleteParams::default()).await?;
    scenario.gone("one").await?;
    ensure!(shared.copies().await?.is_empty(), "a deletion copied");
    shared.end().await
}

#[tokio::test]
async fn a_policy_that_says_another_name_leaves_no_volume_empty() -> Result<()> {
    let test = "a_policy_that_says_another_name_leaves_no_volume_empty";
    let Some(lab) = Lab::for_test(test).await? else {
        return Ok(());
    };
    if !may_copy(&lab, test).await? {
        return Ok(());
    }
    let shared = Shared::start(&lab).await?;
    let ns = shared.scenario.namespace.as_str();
    shared
        .edit(json!({ "credentialProjection": { "allowed": true } }))
        .await?;
    shared.policy(POLICY, OWN_NAME, true).await?;
    shared.snapshot("one").await?;
    shared.scenario.succeeded("one").await?;

    // Another object of the same claim, as a namespace that is made anew would have it, with another name.
    shared.policy("renamed", "another", true).await?;
    shared.restore("held", "renamed").await?;
    let status = says(&lab, ns, "held", "OtherIdentity").await?;
    let ready = conditions::get(&status.conditions, conditions::READY).context("why")?;
    ensure!(
        ready.message.contains(&format!("{OWN_NAME}@{ns}")),
        "{}",
        ready.message
    );
    ensure!(status.resolved.is_none(), "{:?}", status.resolved);
    let is = content(&lab, ns, "held").await?;
    ensure!(is.entries.is_empty(), "{:?}", is.entries);
    shared.end().await
}
