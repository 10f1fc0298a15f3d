//! A Snapshot is backed up by an unprivileged mover, and its status says what the repository holds for it.

use anyhow::{Context, Result};
use holdfast_api::{conditions, names};
use holdfast_e2e::scenario::{DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM, json};
use holdfast_e2e::{Lab, Look, lab, objects, until};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn a_manual_snapshot_records_what_the_repository_holds() -> Result<()> {
    let Some(lab) = Lab::for_test("a_manual_snapshot_records_what_the_repository_holds").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "manual", None).await?;
    let first = scenario.back_up("first", POLICY).await?;
    let finalizers = first.metadata.finalizers.clone().unwrap_or_default();
    assert_eq!(finalizers, [names::FINALIZER]);
    let status = first.status.context("a status")?;
    let recorded = status.snapshot.context("a recorded snapshot")?;
    assert_eq!(recorded.kopia_snapshot_id.len(), objects::id_length());
    let identity = recorded.identity.context("an identity")?;
    assert_eq!(
        (
            identity.username.as_str(),
            identity.hostname.as_str(),
            identity.source_path.as_str()
        ),
        (POLICY, scenario.namespace.as_str(), "/pvc/data")
    );
    let stats = status.stats.context("stats")?;
    assert!(
        stats.size_bytes > 20_000 && stats.bytes_new > Some(0),
        "{stats:?}"
    );
    assert_eq!((stats.files_new, stats.files_unchanged), (5, 0));
    let timing = status.timing.context("times")?;
    let (start, end) = (
        timing.start_time.context("a start")?,
        timing.end_time.context("an end")?,
    );
    assert!(start <= end && end <= jiff::Timestamp::now(), "{start} {end}");
    for (kind, wanted) in [
        (conditions::READY, "True"),
        (conditions::RECONCILING, "False"),
        (conditions::STALLED, "False"),
        (conditions::CREDENTIALS_AVAILABLE, "True"),
        (conditions::SOURCE_PVC_AVAILABLE, "True"),
    ] {
        let condition = conditions::get(&status.conditions, kind).context(kind)?;
        assert_eq!(condition.status, wanted, "{kind}: {}", condition.message);
    }
    let resolved = status.resolved.context("what it was pinned to")?;
    let repository = scenario.repository_ready().await?.status.unwrap_or_default();
    assert_eq!(resolved.unique_id, repository.unique_id);

    // What has not changed is not stored again.
    let second = scenario
        .back_up("second", POLICY)
        .await?
        .status
        .and_then(|s| s.stats)
        .context("stats")?;
    assert_eq!(
        (second.size_bytes, second.files_new, second.files_unchanged),
        (stats.size_bytes, 0, 5)
    );
    assert!(second.bytes_new < stats.bytes_new, "{second:?}");
    assert_eq!(scenario.count().await?, 2);
    scenario.end().await
}

#[tokio::test]
async fn the_mover_is_unprivileged_and_has_no_api_access() -> Result<()> {
    let Some(lab) = Lab::for_test("the_mover_is_unprivileged_and_has_no_api_access").await? else {
        return Ok(());
    };
    // The namespace admits restricted pods only: a mover that asked for more would not run at all.
    let scenario = Scenario::with_repository(&lab, "unprivileged", None).await?;
    scenario.back_up("one", POLICY).await?;
    let ns = &scenario.namespace;
    let pods: Api<Pod> = lab.api(ns);
    let of_job = ListParams::default().labels("batch.kubernetes.io/job-name=one");
    let pod = json(
        pods.list(&of_job)
            .await?
            .items
            .first()
            .context("the mover's pod")?,
    )?;
    let spec = &pod["spec"];
    assert_eq!(spec["serviceAccountName"], names::MOVER_SERVICE_ACCOUNT);
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(spec[key].is_null() || spec[key] == false, "{key}");
    }
    let container = &spec["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }));
    assert!(
        container["env"].is_null() && container["args"].is_null(),
        "{container}"
    );
    let mounts = container["volumeMounts"].as_array().context("mounts")?;
    let source = mounts
        .iter()
        .find(|m| m["mountPath"] == "/data/data")
        .context("the source's mount")?;
    assert_eq!(source["readOnly"], true);
    let kubernetes = mounts
        .iter()
        .find(|m| m["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount");
    assert!(kubernetes.is_none(), "the mover has a token for the API server");
    // Even with a token of its ServiceAccount: no rights.
    let reviews: Api<SubjectAccessReview> = Api::all(lab.client.clone());
    for (group, resource) in [
        ("", "secrets"),
        ("", "pods"),
        (names::GROUP, "snapshots"),
        ("batch", "jobs"),
    ] {
        let review: SubjectAccessReview = serde_json::from_value(json!({ "spec": {
            "user": format!("system:serviceaccount:{ns}:{}", names::MOVER_SERVICE_ACCOUNT),
            "groups": ["system:serviceaccounts", "system:authenticated"],
            "resourceAttributes": { "namespace": ns, "verb": "get", "group": group, "resource": resource },
        } }))?;
        let answer = reviews
            .create(&PostParams::default(), &review)
            .await?
            .status
            .context("an answer")?;
        assert!(!answer.allowed, "a mover may read {resource}");
    }
    scenario.end().await
}

#[tokio::test]
async fn a_schedule_makes_one_snapshot_for_its_slot() -> Result<()> {
    let Some(lab) = Lab::for_test("a_schedule_makes_one_snapshot_for_its_slot").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "scheduled", None).await?;
    let schedule = objects::schedule(&scenario.namespace, "now", POLICY, true, Some("Delete"));
    let uid = lab.create(schedule).await?.metadata.uid.context("a UID")?;
    let made = until("the schedule's Snapshot", Duration::from_secs(30), || async {
        let all = scenario.snapshots().await?;
        Ok(all
            .into_iter()
            .next()
            .map_or_else(|| Look::Not("none".into()), Look::Done))
    })
    .await?;
    let name = made.metadata.name.clone().context("a name")?;
    let slot = name
        .strip_prefix("now-")
        .context("the schedule's name comes first")?;
    assert!(
        slot.len() == 14 && slot.bytes().all(|b| b.is_ascii_digit()),
        "{name} is not named by its slot"
    );
    let owner = &made.metadata.owner_references.as_deref().unwrap_or_default()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.uid.as_str()),
        ("SnapshotSchedule", uid.as_str())
    );
    let labels = made.metadata.labels.clone().unwrap_or_default();
    for (label, value) in [
        (names::ORIGIN_LABEL, "scheduled"),
        (names::SCHEDULE_LABEL, "now"),
        (names::CONFIG_LABEL, POLICY),
    ] {
        assert_eq!(labels.get(label).map(String::as_str), Some(value), "{label}");
    }
    assert_eq!(json(&made.spec)?["onScheduleDelete"], "Delete");
    assert_eq!(json(&made.spec)?["deletionPolicy"], "Delete");
    scenario.succeeded(&name).await?;
    assert_eq!(scenario.snapshots().await?.len(), 1);
    let jobs: Api<Job> = lab.api(&scenario.namespace);
    let backups = ListParams::default().labels(&format!("{}={}", names::OP_LABEL, names::OP_BACKUP));
    assert_eq!(jobs.list(&backups).await?.items.len(), 1);
    scenario.end().await
}

#[tokio::test]
async fn of_two_replicas_only_the_leader_writes() -> Result<()> {
    let Some(lab) = Lab::for_test("of_two_replicas_only_the_leader_writes").await? else {
        return Ok(());
    };
    let system = names::OPERATOR_NAMESPACE;
    let deployment = lab.api::<Deployment>(system).get(lab::DEPLOYMENT).await?;
    let ready = deployment.status.and_then(|s| s.ready_replicas).unwrap_or(0);
    assert_eq!(ready, 2, "the standby knows, so it is ready too");
    let holder = || async {
        let lease = lab.api::<Lease>(system).get(names::LEADER_LEASE).await?;
        let identity = lease
            .spec
            .and_then(|s| s.holder_identity)
            .context("nobody leads")?;
        anyhow::Ok(identity.split('_').next().unwrap_or_default().to_owned())
    };
    let leader = holder().await?;
    // A repository that was never made, and may not be: the operator says so in an event, with its pod's name.
    let scenario = Scenario::bare(&lab, "leader").await?;
    let ns = &scenario.namespace;
    lab.create(objects::secret(ns, SECRET, "x")).await?;
    let mut repository = objects::repository(ns, REPOSITORY, VAULT_CLAIM, SECRET, None);
    repository["spec"]["create"]["enabled"] = json!(false);
    lab.create(repository).await?;
    scenario
        .repository_condition(conditions::BOOTSTRAPPED, |c| {
            c.reason == "RepositoryNotInitialized"
        })
        .await?;
    lab.create(objects::policy(ns, POLICY, REPOSITORY, DATA_CLAIM, None))
        .await?;
    let events: Api<Event> = lab.api(ns);
    let ours = until("the event", Duration::from_secs(30), || async {
        let all = events.list(&ListParams::default()).await?.items;
        let ours: Vec<Event> = all
            .into_iter()
            .filter(|e| e.reporting_controller.as_deref() == Some(names::MANAGED_BY))
            .collect();
        Ok(if ours.is_empty() {
            Look::Not("none".into())
        } else {
            Look::Done(ours)
        })
    })
    .await?;
    let pod = lab
        .api::<Pod>(system)
        .get(&leader)
        .await
        .context("the holder of the Lease is no pod")?;
    let ip = pod.status.and_then(|s| s.pod_ip).context("an address")?;
    let slices = lab
        .api::<EndpointSlice>(system)
        .list(&ListParams::default())
        .await?
        .items;
    let led: Vec<String> = slices
        .into_iter()
        .filter(|s| {
            s.metadata.labels.as_ref().is_some_and(|l| {
                l.get("kubernetes.io/service-name")
                    .is_some_and(|n| n == "holdfast")
            })
        })
        .flat_map(|s| s.endpoints)
        .flat_map(|e| e.addresses)
        .collect();
    if holder().await? == leader {
        for event in ours {
            assert_eq!(event.reporting_instance.as_deref(), Some(leader.as_str()));
        }
        assert_eq!(led, [ip], "movers are led to another replica than the leader");
    }
    scenario.end().await
}
