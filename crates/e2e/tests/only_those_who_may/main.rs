//! Only those who may (`docs/design.md` 3.8): stamp, acknowledge, weaken the protection, make a batch Job. Everybody
//! who may edit the objects can still edit everything else, and nothing of it stands in the way of a deletion.

mod ledger;
mod secrets;
mod world;

use anyhow::{Result, ensure};
use holdfast_api::names;
use serde_json::{Value, json};

use world::{FINALIZER, NAME, allowed, batch_job, job, refused, snapshot, with};

/// An acknowledgement.
const THEN: &str = "2026-01-02T03:04:05Z";

fn threshold(threshold: Value) -> Value {
    json!({ "spec": { "deletionProtection": { "threshold": threshold } } })
}

fn on_namespace_delete(policy: &str) -> Value {
    json!({ "spec": { "onNamespaceDelete": policy } })
}

#[tokio::test]
async fn the_stamp_needs_the_verb_prune() -> Result<()> {
    with("stamp", async |world| {
        let (editor, admin) = (&world.editor, &world.admin);
        let command = format!(
            "kubectl auth can-i prune snapshots.{}/{NAME} -n {}",
            names::GROUP,
            world.namespace
        );
        for key in [names::PRUNED_BY, names::PRUNED_AT, names::PRUNED_KEPT] {
            let answer = editor.annotate("Snapshot", NAME, key, json!("retention")).await;
            refused(key, answer, &[&editor.name, "verb prune", &command])?;
            let answer = editor.create(snapshot("new", json!({ key: "retention" }))).await;
            refused("a stamp at the creation", answer, &["verb prune"])?;
            let mut unnamed = snapshot("", json!({ key: "retention" }));
            unnamed["metadata"] = json!({ "generateName": "new-", "annotations": { key: "retention" } });
            refused("without a name", editor.create(unnamed).await, &["verb prune"])?;
        }
        let answer = editor
            .apply(snapshot("new", json!({ names::PRUNED_BY: "retention" })))
            .await;
        refused("a stamp that is applied", answer, &["verb prune"])?;

        let stamp = json!({ "metadata": { "annotations": {
            names::PRUNED_BY: "retention", names::PRUNED_AT: THEN } } });
        allowed(
            "the operator's stamp",
            world.operator.patch("Snapshot", NAME, stamp).await,
        )?;
        let answer = editor
            .annotate("Snapshot", NAME, names::PRUNED_AT, json!("2027-01-01T00:00:00Z"))
            .await;
        refused("making a stamp newer", answer, &["verb prune"])?;
        let stay = editor
            .annotate("Snapshot", NAME, "example.org/note", json!("x"))
            .await;
        allowed("another annotation beside a stamp", stay)?;
        let answer = editor
            .annotate("Snapshot", NAME, names::PRUNED_BY, Value::Null)
            .await;
        let left = allowed("removing a stamp", answer)?;
        ensure!(
            !left
                .metadata
                .annotations
                .unwrap_or_default()
                .contains_key(names::PRUNED_BY)
        );
        let answer = admin
            .annotate("Snapshot", NAME, names::PRUNED_BY, json!("retention"))
            .await;
        allowed("an administrator's stamp", answer)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn releasing_and_weakening_need_the_verb_acknowledge() -> Result<()> {
    with("release", async |world| {
        let (editor, ns) = (&world.editor, world.namespace.as_str());
        for (kind, name) in [("Repository", NAME), ("ClusterRepository", ns)] {
            let command = match kind {
                "Repository" => format!("can-i acknowledge repositories.{}/{name} -n {ns}", names::GROUP),
                _ => format!("can-i acknowledge clusterrepositories.{}/{name}", names::GROUP),
            };
            let words: &[&str] = &[&editor.name, "verb acknowledge", "holdfast-approver", &command];
            let answer = editor
                .annotate(kind, name, names::ALLOW_MASS_DELETION, json!(THEN))
                .await;
            refused("an acknowledgement", answer, words)?;
            for weak in [json!(0), json!(11), json!(4_000_000_000_u32)] {
                let answer = editor.patch(kind, name, threshold(weak.clone())).await;
                refused(
                    "a weaker threshold",
                    answer,
                    &[words, &["protects less than 10"]].concat(),
                )?;
            }
            let answer = editor.patch(kind, name, on_namespace_delete("Delete")).await;
            refused("onNamespaceDelete: Delete", answer, words)?;

            allowed(
                "a stricter threshold",
                editor.patch(kind, name, threshold(json!(3))).await,
            )?;
            for weak in [
                threshold(Value::Null),
                threshold(json!(4)),
                json!({ "spec": { "deletionProtection": null } }),
            ] {
                let answer = editor.patch(kind, name, weak.clone()).await;
                refused(&format!("from 3 to {weak}"), answer, &["protects less than 3"])?;
            }
            allowed(
                "the same threshold",
                editor.patch(kind, name, threshold(json!(3))).await,
            )?;
            let window = |duration: &str, threshold: u32| {
                let window = json!({ "duration": duration, "threshold": threshold });
                json!({ "spec": { "deletionProtection": { "slidingWindow": window } } })
            };
            let none = json!({ "spec": { "deletionProtection": { "slidingWindow": null } } });
            allowed(
                "a sliding window",
                editor.patch(kind, name, window("1h", 20)).await,
            )?;
            for weak in [window("59m", 20), window("1h", 21), none.clone()] {
                let answer = editor.patch(kind, name, weak.clone()).await;
                let words: &[&str] = &[words, &["take away, shorten or raise"]].concat();
                refused(&format!("from 20 in an hour to {weak}"), answer, words)?;
            }
            allowed(
                "fewer in a longer time",
                editor.patch(kind, name, window("120m", 19)).await,
            )?;
            allowed(
                "no window by an administrator",
                world.admin.patch(kind, name, none).await,
            )?;
            allowed(
                "Orphan",
                editor.patch(kind, name, on_namespace_delete("Orphan")).await,
            )?;

            // What others set stays editable around, and can be made stricter.
            let weak = json!({
                "metadata": { "annotations": { names::ALLOW_MASS_DELETION: THEN } },
                "spec": { "deletionProtection": { "threshold": 0 }, "onNamespaceDelete": "Delete" },
            });
            allowed(
                "all of it by an administrator",
                world.admin.patch(kind, name, weak.clone()).await,
            )?;
            allowed("all of it, again", editor.patch(kind, name, weak).await)?;
            allowed(
                "a label",
                editor
                    .patch(kind, name, json!({ "metadata": { "labels": { "a": "b" } } }))
                    .await,
            )?;
            let answer = editor
                .annotate(
                    kind,
                    name,
                    names::ALLOW_MASS_DELETION,
                    json!("2027-01-01T00:00:00Z"),
                )
                .await;
            refused("another acknowledgement", answer, words)?;
            allowed(
                "any breaker instead of none",
                editor.patch(kind, name, threshold(json!(50))).await,
            )?;
            allowed(
                "Orphan again",
                editor.patch(kind, name, on_namespace_delete("Orphan")).await,
            )?;
            let answer = editor
                .annotate(kind, name, names::ALLOW_MASS_DELETION, Value::Null)
                .await;
            allowed("taking an acknowledgement back", answer)?;
        }
        Ok(())
    })
    .await
}

/// Else deleting a repository and making it anew under the same name would be the way around.
#[tokio::test]
async fn a_new_repository_counts_as_changed_from_the_defaults() -> Result<()> {
    with("create", async |world| {
        let editor = &world.editor;
        for (kind, name) in [
            ("Repository", "new"),
            ("ClusterRepository", &format!("{}-new", world.namespace)),
        ] {
            for weak in [
                json!({ "deletionProtection": { "threshold": 0 } }),
                json!({ "deletionProtection": { "threshold": 11 } }),
                json!({ "onNamespaceDelete": "Delete" }),
            ] {
                let object = world.repository(kind, name, &weak);
                refused(
                    &format!("{weak}"),
                    editor.create(object.clone()).await,
                    &["verb acknowledge"],
                )?;
                refused(
                    &format!("{weak}, applied"),
                    editor.apply(object.clone()).await,
                    &["verb acknowledge"],
                )?;
                allowed(
                    "the same by an administrator",
                    world.admin.dry().create(object).await,
                )?;
            }
            let mut acknowledged = world.repository(kind, name, &json!({}));
            acknowledged["metadata"]["annotations"] = json!({ names::ALLOW_MASS_DELETION: THEN });
            refused(
                "acknowledged",
                editor.create(acknowledged).await,
                &["verb acknowledge"],
            )?;

            let strict = json!({ "deletionProtection": { "threshold": 10 }, "onNamespaceDelete": "Orphan" });
            let mut object = world.repository(kind, name, &strict);
            object["status"] = json!({ "uniqueId": "forged" });
            let made = allowed("the defaults", editor.create(object).await)?;
            ensure!(made.data["status"].is_null(), "a status was created: {made:?}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_approver_may() -> Result<()> {
    with("approver", async |world| {
        let ns = world.namespace.as_str();
        let approver = world.user("approver").await?;
        world
            .bind(&approver.name, "RoleBinding", "holdfast-approver", "here")
            .await?;
        let acknowledge = json!({ "metadata": { "annotations": { names::ALLOW_MASS_DELETION: THEN } } });
        world
            .until("the approver's right", async || {
                approver
                    .dry()
                    .patch("Repository", NAME, acknowledge.clone())
                    .await
                    .is_ok()
            })
            .await?;
        allowed(
            "an acknowledgement",
            approver.patch("Repository", NAME, acknowledge.clone()).await,
        )?;
        allowed(
            "raising",
            approver.patch("Repository", NAME, threshold(json!(100))).await,
        )?;
        allowed(
            "no breaker",
            approver.patch("Repository", NAME, threshold(json!(0))).await,
        )?;
        allowed(
            "Delete",
            approver
                .patch("Repository", NAME, on_namespace_delete("Delete"))
                .await,
        )?;
        let weak = json!({ "deletionProtection": { "threshold": 0 } });
        let object = world.repository("Repository", "new", &weak);
        allowed("a repository without a breaker", approver.create(object).await)?;

        let answer = approver.patch("ClusterRepository", ns, acknowledge.clone()).await;
        refused(
            "bound in a namespace, in the cluster",
            answer,
            &["verb acknowledge"],
        )?;
        world
            .bind(&approver.name, "ClusterRoleBinding", "holdfast-approver", "wide")
            .await?;
        world
            .until("the approver's right in the cluster", async || {
                approver
                    .patch("ClusterRepository", ns, acknowledge.clone())
                    .await
                    .is_ok()
            })
            .await?;

        // For one repository by name.
        let narrow = world.user("narrow").await?;
        let role = format!("{ns}-narrow");
        let rules = json!([{ "apiGroups": [names::GROUP], "resources": ["repositories"],
            "resourceNames": ["new"], "verbs": ["acknowledge"] }]);
        world.role(&role, rules).await?;
        world.bind(&narrow.name, "RoleBinding", &role, "here").await?;
        world
            .until("the right for one repository", async || {
                narrow
                    .patch("Repository", "new", acknowledge.clone())
                    .await
                    .is_ok()
            })
            .await?;
        let other = narrow.annotate(
            "Repository",
            NAME,
            names::ALLOW_MASS_DELETION,
            json!("2027-01-01T00:00:00Z"),
        );
        refused("for another one", other.await, &["verb acknowledge"])?;
        let answer = narrow
            .annotate("Snapshot", NAME, names::PRUNED_BY, json!("retention"))
            .await;
        refused("a stamp", answer, &["verb prune"])
    })
    .await
}

/// Else whoever may edit a policy could have retention destroy what the breaker would hold.
#[tokio::test]
async fn allowing_a_mass_prune_needs_the_verb_acknowledge() -> Result<()> {
    with("mass-prune", async |world| {
        let (editor, ns) = (&world.editor, world.namespace.as_str());
        let keeps = |count: u32| json!({ "spec": { "retention": { "keepLatest": count } } });
        let key = names::ALLOW_MASS_PRUNE;
        let command = format!(
            "kubectl auth can-i acknowledge snapshotpolicies.{}/{NAME} -n {ns}",
            names::GROUP
        );
        let words: &[&str] = &[&editor.name, "verb acknowledge", "holdfast-approver", &command];

        refused(
            "on a policy",
            editor.annotate("SnapshotPolicy", NAME, key, json!("2")).await,
            words,
        )?;
        let mut with_edit = keeps(1);
        with_edit["metadata"] = json!({ "annotations": { key: "2" } });
        refused(
            "with the edit that it is for",
            editor.patch("SnapshotPolicy", NAME, with_edit).await,
            words,
        )?;
        let mut object = world.policy("new");
        object["metadata"]["annotations"] = json!({ key: "1" });
        let answer = editor.create(object.clone()).await;
        refused("at the creation", answer, &["verb acknowledge"])?;
        refused("applied", editor.apply(object).await, &["verb acknowledge"])?;
        allowed(
            "retention itself",
            editor.patch("SnapshotPolicy", NAME, keeps(1)).await,
        )?;
        let note = editor.annotate("SnapshotPolicy", NAME, "example.org/note", json!("x"));
        allowed("another annotation", note.await)?;

        let approver = world.user("approver").await?;
        world
            .bind(&approver.name, "RoleBinding", "holdfast-approver", "here")
            .await?;
        world
            .until("the approver's right", async || {
                let answer = approver
                    .dry()
                    .annotate("SnapshotPolicy", NAME, key, json!("2"))
                    .await;
                answer.is_ok()
            })
            .await?;
        let answer = approver.annotate("SnapshotPolicy", NAME, key, json!("2")).await;
        allowed("by an approver", answer)?;
        allowed(
            "an edit beside it",
            editor.patch("SnapshotPolicy", NAME, keeps(3)).await,
        )?;
        let answer = editor.annotate("SnapshotPolicy", NAME, key, json!("3")).await;
        refused("for another generation", answer, words)?;
        let answer = editor.annotate("SnapshotPolicy", NAME, key, Value::Null).await;
        allowed("taking it back", answer)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_the_operator_remembers_is_not_forged() -> Result<()> {
    with("records", async |world| {
        let (editor, operator, ns) = (&world.editor, &world.operator, world.namespace.as_str());
        let held = json!({ "deletionProtection": { "heldThrough": THEN } });
        let record = json!({ "deletionProtection": { "acknowledgement": {
            "value": THEN, "effective": THEN, "seenAt": THEN } } });
        for (kind, name) in [("Repository", NAME), ("ClusterRepository", ns)] {
            allowed(
                "the operator's latch",
                operator.patch_status(kind, name, held.clone()).await,
            )?;
            for forged in [
                json!({ "deletionProtection": { "heldThrough": null } }),
                json!({ "deletionProtection": null }),
                json!({ "uniqueId": "another" }),
                record.clone(),
            ] {
                let answer = editor.patch_status(kind, name, forged.clone()).await;
                refused(&format!("{forged}"), answer, &[&editor.name, "verb acknowledge"])?;
            }
            let answer = editor
                .patch_status(kind, name, json!({ "backend": "Filesystem" }))
                .await;
            allowed("the rest of the status", answer)?;
            allowed(
                "the operator's record",
                operator.patch_status(kind, name, record.clone()).await,
            )?;
            allowed(
                "an administrator's",
                world.admin.patch_status(kind, name, held.clone()).await,
            )?;
        }

        let condition = |kind: &str, status: &str| {
            json!({ "type": kind, "status": status, "reason": "MassDeletionBreaker", "message": "",
                "lastTransitionTime": THEN })
        };
        let held = json!({ "conditions": [condition("DeletionHeld", "True")] });
        allowed(
            "the operator's condition",
            operator.patch_status("Snapshot", NAME, held).await,
        )?;
        for forged in [
            json!({ "conditions": [condition("DeletionHeld", "False")] }),
            json!({ "conditions": [] }),
            json!({ "conditions": null }),
            json!({ "deletion": { "job": "forged", "outcome": "Deleted" } }),
        ] {
            let answer = editor.patch_status("Snapshot", NAME, forged.clone()).await;
            refused(&format!("{forged}"), answer, &[&editor.name, "verb prune"])?;
        }
        let now = world.admin.api("Snapshot").get(NAME).await?;
        let mut conditions = now.data["status"]["conditions"].clone();
        if let Some(list) = conditions.as_array_mut() {
            list.push(condition("Other", "True"));
        }
        let answer = editor
            .patch_status("Snapshot", NAME, json!({ "conditions": conditions }))
            .await;
        allowed("another condition beside it", answer)?;
        let claim = json!({ "deletion": { "job": "snapdel-one" } });
        allowed(
            "the operator's claim",
            operator.patch_status("Snapshot", NAME, claim).await,
        )?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn batch_jobs_are_the_operators() -> Result<()> {
    with("jobs", async |world| {
        let (editor, operator) = (&world.editor, &world.operator);
        for user in [editor, &world.admin] {
            let answer = user.create(batch_job("forged")).await;
            refused(
                &format!("a batch Job of {}", user.name),
                answer,
                &["may not create Job", "Snapshot objects"],
            )?;
        }
        allowed("a Job of their own", editor.create(job("own")).await)?;
        let labelled = json!({ "metadata": { "labels": { names::OP_LABEL: names::OP_DELETE_BATCH } } });
        refused(
            "the label",
            editor.patch("Job", "own", labelled).await,
            &["may not change Job"],
        )?;
        let work = json!({ "spec": { "template": { "metadata": { "annotations": { "work": "all" } } } } });
        allowed(
            "other work for it",
            editor.patch("Job", "own", work.clone()).await,
        )?;

        allowed(
            "the operator's Job",
            operator.create(batch_job("snapdel-one")).await,
        )?;
        for (what, change) in [
            ("its work", work.clone()),
            (
                "its label",
                json!({ "metadata": { "labels": { names::OP_LABEL: null } } }),
            ),
            (
                "its members",
                json!({ "metadata": { "annotations": { names::DELETE_MEMBERS: "c" } } }),
            ),
        ] {
            let answer = editor.patch("Job", "snapdel-one", change).await;
            refused(what, answer, &[&editor.name, "may not change Job"])?;
        }
        let answer = editor
            .annotate("Job", "snapdel-one", "example.org/note", json!("x"))
            .await;
        allowed("a note on it", answer)?;
        editor.delete_for_good("Job", "snapdel-one").await?;
        editor.delete_for_good("Job", "own").await
    })
    .await
}

#[tokio::test]
async fn everything_else_can_be_edited_and_deleted() -> Result<()> {
    with("rest", async |world| {
        let (editor, ns) = (&world.editor, world.namespace.as_str());
        for (kind, name) in [("Repository", NAME), ("ClusterRepository", ns), ("Snapshot", NAME)] {
            let meta = json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "example.org/note": "b" },
                "finalizers": [FINALIZER, "holdfast.test/two"] } });
            allowed("labels, annotations, finalizers", editor.patch(kind, name, meta).await)?;
        }
        for (kind, name) in [("Repository", NAME), ("ClusterRepository", ns)] {
            let spec = json!({ "spec": { "suspend": true,
                "backend": { "filesystem": { "volume": { "pvc": { "name": "other" } } } } } });
            allowed("other fields of the spec", editor.patch(kind, name, spec).await)?;
            let other = names::SCAN_REQUESTED_AT;
            allowed("another annotation of ours", editor.annotate(kind, name, other, json!("1")).await)?;
        }
        let spec = json!({ "spec": { "deletionPolicy": "Retain" } });
        allowed("the policy of a Snapshot", editor.patch("Snapshot", NAME, spec).await)?;
        let answer = editor.annotate("Snapshot", NAME, names::SKIP_SNAPSHOT_CLEANUP, json!("")).await;
        allowed("skip", answer)?;
        allowed("a Snapshot", editor.create(snapshot("two", json!({}))).await)?;

        // With all that is guarded on them, deleting and the removal of finalizers go through.
        let guarded = json!({ "metadata": { "annotations": {
            names::PRUNED_BY: "retention", names::PRUNED_AT: THEN, names::ALLOW_MASS_DELETION: THEN } } });
        let weak = json!({ "spec": { "deletionProtection": { "threshold": 0 }, "onNamespaceDelete": "Delete" } });
        for (kind, name) in [("Repository", NAME), ("ClusterRepository", ns), ("Snapshot", NAME), ("Snapshot", "two")] {
            allowed("guarded", world.admin.patch(kind, name, guarded.clone()).await)?;
            if kind != "Snapshot" {
                allowed("weak", world.admin.patch(kind, name, weak.clone()).await)?;
            }
            editor.delete_for_good(kind, name).await?;
        }
        Ok(())
    })
    .await
}

/// The API server checks the expressions against the definitions; a misspelt field would be a warning there.
#[tokio::test]
async fn the_expressions_fit_the_definitions() -> Result<()> {
    with("types", async |world| {
        let policies = world.admin.api("ValidatingAdmissionPolicy");
        for name in [
            "stamp",
            "protection",
            "repository-records",
            "snapshot-records",
            "batch-jobs",
            "artifacts",
            "backup-stores",
            "secrets",
        ] {
            let name = format!("holdfast-{name}");
            world
                .until("the API server to have checked the types", async || {
                    policies.get(&name).await.is_ok_and(|policy| {
                        policy.data["status"]["observedGeneration"] == json!(policy.metadata.generation)
                    })
                })
                .await?;
            let warnings =
                policies.get(&name).await?.data["status"]["typeChecking"]["expressionWarnings"].clone();
            ensure!(warnings.is_null(), "{name}: {warnings}");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn whoever_writes_policies_does_not_agree_to_privileged_movers_for_the_namespace() -> Result<()> {
    with("agrees", async |world| {
        let (editor, ns) = (&world.editor, world.namespace.as_str());
        let asks = json!({ "spec": { "mover": { "privilegedMode": true } } });
        allowed("asking for one", editor.patch("SnapshotPolicy", NAME, asks).await)?;
        let agreement = || json!("true");
        // Nor does the operator agree to what it is asked for.
        for user in [editor, &world.operator] {
            let answer = user
                .annotate("Namespace", ns, names::PRIVILEGED_MOVERS, agreement())
                .await;
            let Err(kube::Error::Api(status)) = answer else {
                anyhow::bail!("{} agreed: {answer:?}", user.name);
            };
            ensure!(status.code == 403, "{status:?}");
            let word = "cannot patch resource \"namespaces\"";
            ensure!(status.message.contains(word), "{status:?}");
        }
        let answer = world
            .admin
            .annotate("Namespace", ns, names::PRIVILEGED_MOVERS, agreement())
            .await;
        allowed("an administrator's", answer)?;
        Ok(())
    })
    .await
}
