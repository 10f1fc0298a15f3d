//! What was backed up comes back: after its namespace is gone, into claims that are there, that are made, and that ask
//! for it; also while a wave is held. What could not be set is said.

use anyhow::{Context, Result};
use holdfast_api::restore::{Resolution, RestorePhase, RestoreStatus};
use holdfast_api::{Restore, conditions, names};
use holdfast_e2e::restores::{
    admit, as_root, asking_claim, attributes, carry_over, claim, completed, content, ended, restore, says,
    set_attribute,
};
use holdfast_e2e::scenario::{
    DATA_CLAIM, POLICY, REPOSITORY, SECRET, Scenario, VAULT_CLAIM, remove_namespace,
};
use holdfast_e2e::{Lab, Look, none_left, objects, pods, until};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;

fn reason(status: &RestoreStatus) -> &str {
    conditions::get(&status.conditions, conditions::READY).map_or("", |c| c.reason.as_str())
}

/// Files of every kind that an unprivileged mover may read, some of another owner.
async fn furnish(lab: &Lab, namespace: &str) -> Result<()> {
    admit(lab, namespace, "privileged").await?;
    let script = format!(
        "cd /volumes/{DATA_CLAIM} && mkdir -p deep/er/est empty && echo deep > deep/er/est/file && : > nothing \
         && ln -s deep/er target-of-link && ln -s /nowhere dangling && echo twice > one && ln one two \
         && truncate -s 64M holed && printf x | dd of=holed bs=1 seek=1000000 conv=notrunc 2>/dev/null \
         && mkfifo pipe && echo run > tool && chmod 0755 tool && chmod 0750 deep && echo 'odd name' > 'with space' \
         && echo theirs > theirs && chown -hR {user}:{user} . && chown 1000:2000 theirs && chmod 0644 theirs \
         && chmod 4755 tool && touch -d '2020-01-02 03:04:05' one nothing empty",
        user = objects::USER
    );
    let mut job = objects::shell_job(
        namespace,
        "furnish",
        &lab.tools_image,
        &[DATA_CLAIM.to_owned()],
        &script,
    );
    as_root(&mut job);
    pods::run(lab, job, Duration::from_secs(120)).await?;
    admit(lab, namespace, "restricted").await
}

/// What a program may do that has the capability to bind low ports, as the kernel keeps it.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[tokio::test]
async fn everything_comes_back_into_a_new_namespace() -> Result<()> {
    let Some(lab) = Lab::for_test("everything_comes_back_into_a_new_namespace").await? else {
        return Ok(());
    };
    let old = Scenario::with_repository(&lab, "before", None).await?;
    furnish(&lab, &old.namespace).await?;
    let at = (old.namespace.as_str(), DATA_CLAIM);
    let local = set_attribute(&lab, at, "one", "user.note", b"kept").await?
        && set_attribute(&lab, at, "deep/er/est/file", "security.capability", &CAPABILITY).await?;
    let had = attributes(&lab, &old.namespace, DATA_CLAIM).await?;
    assert_eq!(
        had.len(),
        if local { 3 } else { 0 },
        "two names are of one file: {had:?}"
    );
    let was = content(&lab, &old.namespace, DATA_CLAIM).await?;
    let snapshot = old.back_up("kept", POLICY).await?;
    let id = snapshot
        .status
        .and_then(|s| s.snapshot)
        .context("recorded")?
        .kopia_snapshot_id;
    let (host, ns) = (old.namespace.clone(), format!("{}-again", old.namespace));
    carry_over(&lab, &host, &ns, VAULT_CLAIM).await?;

    lab.create(objects::secret(&ns, SECRET, objects::PASSWORD))
        .await?;
    let mut repository = objects::repository(&ns, REPOSITORY, VAULT_CLAIM, SECRET, None);
    repository["spec"]["create"]["enabled"] = json!(false);
    lab.create(repository).await?;
    lab.create(objects::claim(&ns, "back")).await?;
    let identity = json!({ "identity": { "username": POLICY, "hostname": host, "sourcePath": "/pvc/data" } });
    let mut wanted = restore(&ns, "back", identity, json!({ "pvcRef": { "name": "back" } }));
    wanted["spec"]["repository"] = json!({ "name": REPOSITORY });
    lab.create(wanted).await?;
    let status = completed(&lab, &ns, "back").await?;
    assert_eq!(
        (reason(&status), status.source_kind.as_deref()),
        ("RestoreSucceeded", Some("identity"))
    );
    let resolved = status.resolved.context("what was restored")?;
    assert_eq!(resolved.kopia_snapshot_id.as_deref(), Some(id.as_str()));

    let is = content(&lab, &ns, "back").await?;
    assert_eq!(is.entries, was.in_a_snapshot(), "bytes, modes, links, times");
    assert!(
        was.entries.iter().any(|e| e.starts_with("fifo ")),
        "{:?}",
        was.entries
    );
    assert!(is.entries.iter().any(|e| e.contains(" 4755 ")), "a setuid bit");
    let blocks = is.blocks_of("holed")?;
    assert!(
        blocks * 512 < 8 * 1024 * 1024,
        "the holes are back: {blocks} blocks"
    );

    // Unprivileged movers own what they write: said where the engine tells, and of nothing else.
    if objects::keeps_every_kind_of_file() {
        let lacks = status.not_restored.context("what could not be set")?;
        assert_eq!(
            (
                lacks.owners,
                lacks.modes,
                lacks.times,
                lacks.xattrs,
                lacks.special_files
            ),
            (1, 0, 0, i64::from(local), 0),
            "{lacks:?}"
        );
        let mut examples = lacks.examples;
        examples.sort();
        let mut expected = vec!["theirs: owner 1000:2000"];
        if local {
            expected.insert(0, "deep/er/est/file: extended attribute security.capability");
        }
        assert_eq!(examples, expected);
        let has = attributes(&lab, &ns, "back").await?;
        let may: Vec<_> = had
            .iter()
            .filter(|one| !one.contains(" security."))
            .cloned()
            .collect();
        assert_eq!(has, may, "attributes that its owner may set");
    } else {
        assert_eq!(status.not_restored, None, "it cannot be told");
    }
    let differ: Vec<_> = is.owners.iter().filter(|one| !was.owners.contains(one)).collect();
    assert_eq!(differ.len(), 1, "{differ:?}");
    assert!(differ[0].ends_with(" ./theirs"), "{differ:?}");
    let progress = status.progress.context("how much")?;
    assert!(progress.bytes_restored > 64 * 1024 * 1024, "{progress:?}");
    assert!(progress.files_restored >= 12, "{progress:?}");
    let timing = status.timing.context("when")?;
    assert!(timing.start_time <= timing.end_time);

    // A second one into the same claim writes nothing, and says what to do.
    let identity = json!({ "identity": { "username": POLICY, "hostname": host } });
    let mut again = restore(
        &ns,
        "again",
        identity.clone(),
        json!({ "pvcRef": { "name": "back" } }),
    );
    again["spec"]["repository"] = json!({ "name": REPOSITORY });
    lab.create(again.clone()).await?;
    let status = ended(&lab, &ns, "again").await?;
    assert_eq!(
        (status.phase, reason(&status)),
        (Some(RestorePhase::Failed), "TargetNotEmpty")
    );
    assert_eq!(content(&lab, &ns, "back").await?.entries, is.entries);
    again["metadata"]["name"] = json!("over");
    again["spec"]["options"] = json!({ "overwriteFiles": true, "ignorePermissionErrors": false });
    lab.create(again).await?;
    let status = ended(&lab, &ns, "over").await?;
    assert_eq!(status.phase, Some(RestorePhase::Failed));
    if objects::keeps_every_kind_of_file() {
        assert_eq!(reason(&status), "NotAllSet");
    } else {
        // Not even that far: the program would write through a link.
        let said = conditions::get(&status.conditions, conditions::READY).context("why")?;
        assert_eq!(said.reason, "RestoreFailed");
        assert!(
            said.message
                .contains("dangling is a link to a directory or to nothing"),
            "{}",
            said.message
        );
    }
    assert_eq!(content(&lab, &ns, "back").await?.entries, is.entries);

    // A Restore that goes takes nothing with it.
    let api: Api<Restore> = lab.api(&ns);
    api.delete("back", &DeleteParams::default()).await?;
    claim(&lab, &ns, "back").await?;
    remove_namespace(&lab, &ns).await
}

#[tokio::test]
async fn a_claim_is_made_and_stays() -> Result<()> {
    let Some(lab) = Lab::for_test("a_claim_is_made_and_stays").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "makes", None).await?;
    let ns = &scenario.namespace;
    scenario.back_up("first", POLICY).await?;
    let first = content(&lab, ns, DATA_CLAIM).await?;
    let change = format!("echo changed > /volumes/{DATA_CLAIM}/blob");
    let job = objects::shell_job(ns, "change", &lab.tools_image, &[DATA_CLAIM.to_owned()], &change);
    pods::run(&lab, job, Duration::from_secs(60)).await?;
    scenario.back_up("second", POLICY).await?;
    let second = content(&lab, ns, DATA_CLAIM).await?;
    assert_ne!(first.entries, second.entries);

    let cases = [
        ("named", json!({ "snapshotRef": { "name": "first" } }), &first),
        ("newest", json!({ "fromPolicy": { "name": POLICY } }), &second),
        (
            "earlier",
            json!({ "fromPolicy": { "name": POLICY, "offset": 1 } }),
            &first,
        ),
    ];
    for (name, source, expected) in cases {
        let target = json!({ "pvc": { "name": name, "capacity": "1Gi" } });
        lab.create(restore(ns, name, source, target)).await?;
        let status = completed(&lab, ns, name).await?;
        assert_eq!(status.not_restored.unwrap_or_default().examples, [""; 0]);
        assert_eq!(content(&lab, ns, name).await?.entries, expected.entries, "{name}");
        let made = claim(&lab, ns, name).await?;
        assert_eq!(made.metadata.owner_references, None, "it belongs to nobody");
    }
    let api: Api<Restore> = lab.api(ns);
    api.delete("named", &DeleteParams::default()).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    claim(&lab, ns, "named").await?;

    // A claim that is there is not taken for one that was made.
    let source = json!({ "snapshotRef": { "name": "first" } });
    lab.create(restore(
        ns,
        "taken",
        source,
        json!({ "pvc": { "name": DATA_CLAIM } }),
    ))
    .await?;
    let status = ended(&lab, ns, "taken").await?;
    assert_eq!(
        (status.phase, reason(&status)),
        (Some(RestorePhase::Failed), "TargetExists")
    );
    assert_eq!(content(&lab, ns, DATA_CLAIM).await?.entries, second.entries);
    scenario.end().await
}

#[tokio::test]
async fn without_a_snapshot_it_fails_or_goes_on_as_it_says() -> Result<()> {
    let Some(lab) = Lab::for_test("without_a_snapshot_it_fails_or_goes_on_as_it_says").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "missing", None).await?;
    let ns = &scenario.namespace;
    let source = || json!({ "fromPolicy": { "name": POLICY } });
    lab.create(restore(
        ns,
        "goes-on",
        source(),
        json!({ "pvc": { "name": "empty" } }),
    ))
    .await?;
    let mut fails = restore(ns, "fails", source(), json!({ "pvc": { "name": "never" } }));
    fails["spec"]["policy"] = json!({ "onMissingSnapshot": "Fail" });
    lab.create(fails).await?;
    let nobody = json!({ "snapshotRef": { "name": "nobody" } });
    lab.create(restore(
        ns,
        "nobody",
        nobody,
        json!({ "pvc": { "name": "never" } }),
    ))
    .await?;
    let mut waits = restore(ns, "waits", source(), json!({ "pvc": { "name": "late" } }));
    waits["spec"]["policy"] = json!({ "onMissingSnapshot": "Fail", "waitTimeout": "5m" });
    lab.create(waits).await?;

    let status = completed(&lab, ns, "goes-on").await?;
    assert_eq!(reason(&status), "NoSnapshot");
    assert_eq!(
        status.resolved.map(|r| r.resolution),
        Some(Resolution::NoSnapshot)
    );
    assert_eq!(content(&lab, ns, "empty").await?.entries, [""; 0]);
    for name in ["fails", "nobody"] {
        let status = ended(&lab, ns, name).await?;
        assert_eq!(
            (status.phase, reason(&status)),
            (Some(RestorePhase::Failed), "SnapshotMissing"),
            "{name}"
        );
    }
    let claims: Api<PersistentVolumeClaim> = lab.api(ns);
    assert!(
        claims.get_opt("never").await?.is_none(),
        "nothing is made for nothing"
    );
    let events: Api<Event> = lab.api(ns);
    let warned = ListParams::default().fields("reason=SnapshotMissing");
    assert_eq!(events.list(&warned).await?.items.len(), 2);

    // The one that waits takes what comes.
    says(&lab, ns, "waits", "SnapshotNotFound").await?;
    scenario.back_up("late", POLICY).await?;
    let status = completed(&lab, ns, "waits").await?;
    assert_eq!(reason(&status), "RestoreSucceeded");
    let was = content(&lab, ns, DATA_CLAIM).await?;
    assert_eq!(content(&lab, ns, "late").await?.entries, was.entries);
    scenario.end().await
}

#[tokio::test]
async fn a_held_wave_a_suspended_repository_and_its_members_restore() -> Result<()> {
    let Some(lab) = Lab::for_test("a_held_wave_a_suspended_repository_and_its_members_restore").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "held", Some(3)).await?;
    let ns = &scenario.namespace;
    let was = content(&lab, ns, DATA_CLAIM).await?;
    let (_, members) = scenario.seeded("nightly", "Retain", 4).await?;
    scenario.delete_each(&members).await?;
    scenario.held(&members).await?;
    // One of those whose deletion is held, in a repository that is not to be touched by deletions.
    let repositories: Api<holdfast_api::Repository> = lab.api(ns);
    let suspend = Patch::Merge(json!({ "spec": { "suspend": true } }));
    repositories
        .patch(REPOSITORY, &PatchParams::default(), &suspend)
        .await?;
    let source = json!({ "snapshotRef": { "name": members[0].name } });
    lab.create(restore(
        ns,
        "rescue",
        source,
        json!({ "pvc": { "name": "rescue" } }),
    ))
    .await?;
    completed(&lab, ns, "rescue").await?;
    assert_eq!(content(&lab, ns, "rescue").await?.entries, was.entries);
    scenario.held(&members).await?;
    assert_eq!(
        scenario.count().await?,
        4,
        "a restore changes nothing in the repository"
    );
    let resume = Patch::Merge(json!({ "spec": { "suspend": false } }));
    repositories
        .patch(REPOSITORY, &PatchParams::default(), &resume)
        .await?;
    for member in &members {
        scenario.skip(&member.name).await?;
    }
    scenario.end().await
}

#[tokio::test]
async fn a_claim_that_asks_is_filled_before_it_is_bound_and_again_when_it_is_made_anew() -> Result<()> {
    let Some(lab) = Lab::for_test("a_claim_that_asks_is_filled_before_it_is_bound").await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, "populates", None).await?;
    let ns = &scenario.namespace;
    let was = content(&lab, ns, DATA_CLAIM).await?;
    scenario.back_up("one", POLICY).await?;
    let source = json!({ "fromPolicy": { "name": POLICY } });
    lab.create(restore(ns, "fill", source, json!({ "populator": {} })))
        .await?;
    says(&lab, ns, "fill", "WaitingForClaim").await?;
    lab.create(asking_claim(ns, "app", "fill")).await?;
    let first = claim(&lab, ns, "app").await?;
    let status = says(&lab, ns, "fill", "RestoreSucceeded").await?;
    let filled = status.target.and_then(|t| t.pvc_ref).context("a target")?;
    assert_eq!((filled.name.as_str(), filled.uid), ("app", first.uid()));
    assert_eq!(content(&lab, ns, "app").await?.entries, was.entries);
    no_primes(&lab, ns).await?;

    // Made anew, as after a namespace came back from Git: it is filled anew, with what is the newest then.
    let more = format!("echo more > /volumes/{DATA_CLAIM}/more");
    let job = objects::shell_job(ns, "more", &lab.tools_image, &[DATA_CLAIM.to_owned()], &more);
    pods::run(&lab, job, Duration::from_secs(60)).await?;
    scenario.back_up("two", POLICY).await?;
    let now = content(&lab, ns, DATA_CLAIM).await?;
    let claims: Api<PersistentVolumeClaim> = lab.api(ns);
    claims.delete("app", &DeleteParams::default()).await?;
    until("the claim to be gone", Duration::from_secs(60), || async {
        let left = claims.get_opt("app").await?.is_some();
        Ok(if left {
            Look::Not("it is there".into())
        } else {
            Look::Done(())
        })
    })
    .await?;
    lab.create(asking_claim(ns, "app", "fill")).await?;
    let second = claim(&lab, ns, "app").await?;
    assert_ne!(first.uid(), second.uid());
    assert_eq!(content(&lab, ns, "app").await?.entries, now.entries);
    no_primes(&lab, ns).await?;

    // Without a snapshot, and told to go on: an empty volume.
    lab.create(objects::policy(ns, "new", REPOSITORY, "new", None))
        .await?;
    let source = json!({ "fromPolicy": { "name": "new" } });
    lab.create(restore(ns, "nothing", source, json!({ "populator": {} })))
        .await?;
    lab.create(asking_claim(ns, "new", "nothing")).await?;
    claim(&lab, ns, "new").await?;
    assert_eq!(content(&lab, ns, "new").await?.entries, [""; 0]);
    says(&lab, ns, "nothing", "NoSnapshot").await?;
    no_primes(&lab, ns).await?;
    scenario.end().await
}

/// The claims that stood in for others are gone.
async fn no_primes(lab: &Lab, namespace: &str) -> Result<()> {
    let claims: Api<PersistentVolumeClaim> = lab.api(namespace);
    none_left(
        &claims,
        "the claims that stood in to be gone",
        Duration::from_secs(60),
        |name| name.starts_with(names::PRIME_PREFIX),
    )
    .await
}

#[tokio::test]
async fn a_source_and_a_target_have_to_be_one_each() -> Result<()> {
    let Some(lab) = Lab::for_test("a_source_and_a_target_have_to_be_one_each").await? else {
        return Ok(());
    };
    let source = json!({ "snapshotRef": { "name": "s" } });
    let good = restore("default", "r", source, json!({ "pvcRef": { "name": "c" } }));
    assert_eq!(lab.refusal(good.clone()).await?, None);
    let with = |path: &[&str], value: Value| {
        let mut bad = good.clone();
        let mut node = &mut bad["spec"];
        for part in path {
            node = &mut node[*part];
        }
        *node = value;
        bad
    };
    for (bad, word) in [
        (
            with(&["source", "fromPolicy"], json!({ "name": "p" })),
            "spec.source needs exactly one",
        ),
        (
            with(&["target", "populator"], json!({})),
            "spec.target needs exactly one",
        ),
        (with(&["target"], json!({})), "spec.target needs exactly one"),
        (
            with(&["repository"], json!({ "name": "r" })),
            "whose Snapshot names it",
        ),
        (
            with(&["mover"], json!({ "securityContext": { "runAsGroup": 0 } })),
            "0 is for privilegedMode: true",
        ),
        (
            with(
                &["mover"],
                json!({ "securityContext": { "runAsUser": 0 }, "privilegedMode": false }),
            ),
            "0 is for privilegedMode: true",
        ),
        (
            with(&["mover"], json!({ "securityContext": { "capabilities": {} } })),
            "spec.mover.securityContext.capabilities is not supported",
        ),
        (
            with(&["options"], json!({ "parallel": 8 })),
            "spec.options.parallel is not supported",
        ),
        (
            with(
                &["options"],
                json!({ "overwriteFiles": true, "skipExisting": true }),
            ),
            "skipExisting",
        ),
        (
            with(&["policy"], json!({ "waitTimeout": "a while" })),
            "spec.policy.waitTimeout",
        ),
        (
            with(&["source", "snapshotRef", "namespace"], json!("other")),
            "spec.source.snapshotRef.namespace is not supported",
        ),
    ] {
        let refusal = lab.refusal(bad).await?.context(word)?;
        assert!(refusal.contains(word), "{word}: {refusal}");
    }
    Ok(())
}
