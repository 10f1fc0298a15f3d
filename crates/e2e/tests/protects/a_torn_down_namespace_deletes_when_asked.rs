//! `onNamespaceDelete: Delete`: the data goes with the namespace, though its Snapshots say that their schedule takes
//! none along; and at the threshold the breaker holds both, the data and the namespace. As long as nobody asked for it,
//! the data stays where it is. (With the repository in the namespace itself: `namespace_teardown.rs`.)

use anyhow::{Context, Result, ensure};
use holdfast_api::{ClusterRepository, Repository, conditions, names};
use holdfast_e2e::deletions::uids;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::scenario::{
    DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM, release_command, remove_namespace, shell,
    suffix, told,
};
use holdfast_e2e::seed::{self, Home, Member, Set};
use holdfast_e2e::{Lab, Look, count, objects, until};
use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Secret};
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;

/// A namespace with a policy over a repository that is elsewhere, and Snapshots that a schedule made there.
async fn tenant(
    lab: &Lab,
    name: &str,
    repository: &str,
    home: &Home,
    claim: &str,
    count: usize,
) -> Result<(Scenario, Vec<Member>)> {
    let scenario = Scenario {
        lab: lab.clone(),
        namespace: name.to_owned(),
    };
    lab.create(objects::namespace(name, "e2e")).await?;
    let mut policy = objects::policy(name, POLICY, repository, claim, None);
    policy["spec"]["repository"] = json!({ "kind": home.kind, "name": repository });
    if home.kind == "Repository" {
        policy["spec"]["repository"]["namespace"] = json!(home.namespace);
    }
    lab.create(policy).await?;
    let set = Set {
        namespace: name.to_owned(),
        repository: repository.to_owned(),
        home: home.clone(),
        policy: POLICY.to_owned(),
        claim: claim.to_owned(),
        schedule: "nightly".to_owned(),
        schedule_uid: scenario.schedule("nightly", "Retain").await?,
        on_schedule_delete: "Retain",
    };
    let members = seed::objects(lab, &set, count).await?;
    let taken = seed::snapshots(lab, &set, &members).await?;
    seed::record(lab, &set, &members, &taken).await?;
    Ok((scenario, members))
}

/// Begins to tear a namespace down.
async fn tear_down(lab: &Lab, name: &str) -> Result<()> {
    let api: Api<Namespace> = Api::all(lab.client.clone());
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn of_a_cluster_repository() -> Result<()> {
    let Some(lab) = Lab::for_test("of_a_cluster_repository").await? else {
        return Ok(());
    };
    let home = Home {
        kind: "ClusterRepository",
        namespace: names::OPERATOR_NAMESPACE.to_owned(),
    };
    let ns = &home.namespace;
    let id = suffix();
    let (repository, vault, data) = (format!("all-{id}"), format!("vault-{id}"), format!("data-{id}"));
    let (kept, few, many) = (format!("kept-{id}"), format!("few-{id}"), format!("many-{id}"));
    for claim in [&vault, &data] {
        lab.create(objects::claim(ns, claim)).await?;
    }
    lab.create(objects::secret(ns, &repository, "correct horse battery staple"))
        .await?;
    Scenario::fill(&lab, ns, &data).await?;
    let object = objects::repository(ns, &repository, &vault, &repository, Some(3));
    let allowed = json!({ "list": [kept, few, many] });
    lab.create(objects::shared(object, allowed)).await?;
    let api: Api<ClusterRepository> = Api::all(lab.client.clone());
    let condition = async |kind: &str, wanted: &dyn Fn(&str, Option<i64>, &str) -> bool| {
        until(
            &format!("{kind} of the ClusterRepository"),
            Duration::from_secs(120),
            || async {
                let list = api.get(&repository).await?.status.unwrap_or_default().conditions;
                Ok(match conditions::get(&list, kind) {
                    Some(c) if wanted(&c.status, c.observed_generation, &c.message) => {
                        Look::Done(c.message.clone())
                    }
                    Some(_) | None => Look::Not(told(&list, kind)),
                })
            },
        )
        .await
    };
    condition(conditions::READY, &|status, _, _| status == "True").await?;
    let watch = Watch::start(&lab.client, ns).await?;
    let (_, stay) = tenant(&lab, &kept, &repository, &home, &data, 2).await?;
    let (_, gone) = tenant(&lab, &few, &repository, &home, &data, 2).await?;
    let (held, wave) = tenant(&lab, &many, &repository, &home, &data, 4).await?;
    ensure!(count::files(&lab, ns, &vault).await? == 8);

    // Nobody asked for more than that the namespace goes.
    remove_namespace(&lab, &kept).await?;
    assert_eq!(count::files(&lab, ns, &vault).await?, 8);
    assert!(
        watch.with_member_of(&uids(&stay)).is_empty(),
        "a delete Job existed"
    );

    let delete = Patch::Merge(json!({ "spec": { "onNamespaceDelete": "Delete" } }));
    let edited = api.patch(&repository, &PatchParams::default(), &delete).await?;
    condition(conditions::READY, &|status, generation, _| {
        status == "True" && generation == edited.metadata.generation
    })
    .await?;
    // Two are below the threshold.
    remove_namespace(&lab, &few).await?;
    assert_eq!(count::files(&lab, ns, &vault).await?, 6);
    let jobs = watch.with_member_of(&uids(&gone));
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].members, uids(&gone));

    // Four are not.
    tear_down(&lab, &many).await?;
    held.held(&wave).await?;
    let said = condition(conditions::MASS_DELETION_HELD, &|status, _, message| {
        status == "True" && message.contains("4 held here") && message.contains(&format!("{many} (4)"))
    })
    .await?;
    assert!(
        watch.with_member_of(&uids(&wave)).is_empty(),
        "a delete Job existed"
    );
    assert_eq!(count::files(&lab, ns, &vault).await?, 6);
    shell(&lab, &release_command(&said)?, lab.kubeconfig.parent()).await?;
    remove_namespace(&lab, &many).await?;
    assert_eq!(count::files(&lab, ns, &vault).await?, 2);
    let jobs = watch.with_member_of(&uids(&wave));
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].members, uids(&wave));

    api.delete(&repository, &DeleteParams::default()).await?;
    let secrets: Api<Secret> = lab.api(ns);
    secrets.delete(&repository, &DeleteParams::default()).await?;
    let claims: Api<PersistentVolumeClaim> = lab.api(ns);
    for claim in [&vault, &data] {
        claims.delete(claim, &DeleteParams::default()).await?;
    }
    Ok(())
}

/// This release makes no backup into a Repository of another namespace, and says so; what an earlier one recorded
/// there is deleted there.
#[tokio::test]
async fn of_a_repository_in_another_namespace() -> Result<()> {
    let Some(lab) = Lab::for_test("of_a_repository_in_another_namespace").await? else {
        return Ok(());
    };
    let main = Scenario::with_repository(&lab, "elsewhere", Some(3)).await?;
    let ns = &main.namespace;
    let repositories: Api<Repository> = lab.api(ns);
    let watch = Watch::start(&lab.client, ns).await?;
    let home = Home::repository(ns);

    // Nobody asked for more than that the namespace goes.
    let kept = format!("kept-{}", suffix());
    tenant(&lab, &kept, REPOSITORY, &home, DATA_CLAIM, 2).await?;
    remove_namespace(&lab, &kept).await?;
    assert_eq!(main.count().await?, 2);
    assert!(watch.all().is_empty(), "a delete Job existed");

    let delete = Patch::Merge(json!({ "spec": { "onNamespaceDelete": "Delete" } }));
    repositories
        .patch(REPOSITORY, &PatchParams::default(), &delete)
        .await?;
    let name = format!("guest-{}", suffix());
    let (guest, members) = tenant(&lab, &name, REPOSITORY, &home, DATA_CLAIM, 2).await?;
    lab.create(objects::secret(&name, SECRET, "correct horse battery staple"))
        .await?;
    lab.create(objects::claim(&name, VAULT_CLAIM)).await?;
    lab.create(objects::snapshot(&name, "refused", POLICY)).await?;
    let said = guest
        .snapshot_condition("refused", conditions::READY, |c| {
            c.reason == "NamespaceNotAllowed"
        })
        .await?;
    assert!(
        said.message.contains("a Repository serves its own namespace"),
        "{}",
        said.message
    );

    remove_namespace(&lab, &name).await?;
    assert_eq!(main.count().await?, 2);
    let jobs = watch.all();
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].members, uids(&members));
    main.end().await.context("the repository's own namespace")
}
