//! The ledger of backup storage: only the operator writes records, and only who has the verb `write-off` takes one off
//! the bill, in their own name.

use anyhow::{Result, ensure};
use holdfast_api::names;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use super::world::{Answer, User, World, allowed, refused, with};

const THEN: &str = "2026-01-02T03:04:05Z";

/// A record of the world's namespace.
fn record(world: &World, name: &str) -> Value {
    json!({
        "apiVersion": format!("{}/v1alpha1", names::LEDGER_GROUP), "kind": "Artifact",
        "metadata": { "name": name, "labels": { "holdfast.test/world": world.namespace } },
        "spec": {
            "namespace": world.namespace,
            "strategy": { "apiGroup": names::STRATEGY_GROUP, "kind": "Etcd" },
            "backupUid": format!("uid-of-{name}"),
            "applicationRef": { "kind": "Etcd", "name": "control" },
        },
    })
}

fn status(state: &str, reason: &str) -> Value {
    json!({ "state": state, "reason": reason, "sizeBytes": 1000, "size": "1k", "sizeSource": "claim",
        "times": { "recordedAt": THEN } })
}

/// What `kubectl holdfast quota write-off` writes.
fn written_off(by: &User) -> Value {
    json!({ "state": "WrittenOff", "reason": "WrittenOff", "writtenOffBy": by.name, "message": "written off",
        "times": { "releasedAt": THEN } })
}

/// Somebody who may edit records, Backups and stores, as RBAC goes, and nothing more.
async fn clerk(world: &World) -> Result<User> {
    let edit = ["get", "list", "watch", "create", "update", "patch", "delete"];
    let change = ["get", "list", "update", "patch", "delete"];
    let role = format!("{}-ledger", world.namespace);
    let rules = json!([
        { "apiGroups": [names::LEDGER_GROUP], "verbs": edit, "resources": ["artifacts", "artifacts/status"] },
        { "apiGroups": [names::LEDGER_GROUP], "verbs": change, "resources": ["backupstores", "backupstores/status"] },
        { "apiGroups": [names::BACKUPS_GROUP], "verbs": edit, "resources": ["backups"] },
    ]);
    world.role(&role, rules).await?;
    let clerk = world.nobody("clerk").await?;
    world
        .bind(&clerk.name, "ClusterRoleBinding", &role, "ledger")
        .await?;
    let forged = record(world, &format!("forged-{}", world.namespace));
    world
        .until("the policy on records, and the clerk's right", async || {
            let answer = clerk.dry().create(forged.clone()).await;
            refused("a record", answer, &["only Holdfast writes"]).is_ok()
        })
        .await?;
    Ok(clerk)
}

/// Somebody who has the role of the chart and no other right.
async fn accountant(world: &World, of: &str) -> Result<User> {
    let user = world.nobody("accountant").await?;
    world
        .bind(&user.name, "ClusterRoleBinding", "holdfast-accountant", "wide")
        .await?;
    world
        .until("the accountant's right", async || {
            user.dry()
                .patch_status("Artifact", of, written_off(&user))
                .await
                .is_ok()
        })
        .await?;
    Ok(user)
}

/// A record that the operator wrote.
async fn recorded(world: &World, name: &str, state: &str, reason: &str) -> Result<String> {
    let name = format!("{name}-{}", world.namespace);
    allowed(
        "the operator's record",
        world.operator.create(record(world, &name)).await,
    )?;
    let told = world
        .operator
        .patch_status("Artifact", &name, status(state, reason))
        .await;
    allowed("the operator's state", told)?;
    Ok(name)
}

/// RBAC alone refuses.
fn forbidden(what: &str, answer: Answer) -> Result<()> {
    let by_rbac = matches!(&answer, Err(kube::Error::Api(status))
        if status.code == 403 && !status.message.contains("ValidatingAdmissionPolicy"));
    ensure!(by_rbac, "{what} is not forbidden: {answer:?}");
    Ok(())
}

#[tokio::test]
async fn nobody_but_the_operator_writes_records() -> Result<()> {
    with("records-of-storage", async |world| {
        let clerk = clerk(world).await?;
        let name = recorded(world, "kept", "Retained", "NotPurged").await?;
        let command = format!("kubectl holdfast quota write-off {name}");
        for user in [&clerk, &world.admin] {
            let words: &[&str] = &["only Holdfast writes those", "No role gives this right"];
            let forged = record(world, &format!("forged-{}", world.namespace));
            refused("a record", user.create(forged.clone()).await, words)?;
            refused("one that is applied", user.apply(forged).await, words)?;
            for smaller in [
                json!({ "sizeBytes": 0 }),
                json!({ "sizeBytes": null, "size": null }),
                json!({ "state": "Released", "reason": "PurgeProven" }),
                json!({ "state": "InFlight" }),
                json!({ "state": null }),
                json!({ "capabilities": { "deletion": "confirmed" } }),
                json!({ "times": { "recordedAt": null } }),
            ] {
                let answer = user.patch_status("Artifact", &name, smaller.clone()).await;
                refused(&format!("{smaller} of {}", user.name), answer, &[&command])?;
            }
            let answer = user
                .patch(
                    "Artifact",
                    &name,
                    json!({ "spec": { "namespace": "somebody-else" } }),
                )
                .await;
            ensure!(answer.is_err(), "{} charged another namespace", user.name);
        }
        let now = world.admin.api("Artifact").get(&name).await?;
        ensure!(now.data["status"]["sizeBytes"] == 1000, "it is another: {now:?}");

        // What is no record of storage is anybody's.
        let meta =
            json!({ "metadata": { "labels": { "team": "a" }, "annotations": { "example.org/note": "b" } } });
        allowed(
            "labels and annotations",
            clerk.patch("Artifact", &name, meta).await,
        )?;
        let dry = DeleteParams {
            dry_run: true,
            ..DeleteParams::default()
        };
        for user in [&clerk, &world.admin] {
            let answer = user.api("Artifact").delete(&name, &dry).await;
            refused(
                &format!("a record's deletion by {}", user.name),
                // What is there after it is of no interest.
                answer.map(|_| DynamicObject {
                    types: None,
                    metadata: Default::default(),
                    data: Value::Null,
                }),
                &[
                    "may not delete Artifact",
                    "charged to nobody",
                    &command,
                    "No role gives this right",
                ],
            )?;
        }
        world.operator.api("Artifact").delete(&name, &dry).await?;
        world.platform().await?;
        let backup = json!({
            "apiVersion": format!("{}/{}", names::BACKUPS_GROUP, names::BACKUPS_VERSION), "kind": "Backup",
            "metadata": { "name": "mine" },
            "spec": {
                "applicationRef": { "kind": "Etcd", "name": "control" },
                "strategyRef": { "apiGroup": names::STRATEGY_GROUP, "kind": "Etcd", "name": "any" },
                "takenAt": THEN,
            },
        });
        let clerk = clerk.dry();
        allowed("a Backup", clerk.create(backup).await)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn writing_off_needs_the_verb_and_ones_own_name() -> Result<()> {
    with("write-off", async |world| {
        let clerk = clerk(world).await?;
        let kept = recorded(world, "kept", "Retained", "NotPurged").await?;
        let asked = recorded(world, "asked", "PendingPurge", "DeletionRequested").await?;
        let live = recorded(world, "live", "Attributed", "BackupSeen").await?;
        let command = format!("kubectl auth can-i write-off artifacts.{}/{kept}", names::LEDGER_GROUP);
        let answer = clerk.patch_status("Artifact", &kept, written_off(&clerk)).await;
        refused("without the verb", answer, &[&clerk.name, "verb write-off", "holdfast-accountant", &command])?;

        let accountant = accountant(world, &kept).await?;
        let with = |more: Value| {
            let mut status = written_off(&accountant);
            for (key, value) in more.as_object().into_iter().flatten() {
                status[key] = value.clone();
            }
            status
        };
        for (what, wrong) in [
            ("in another's name", with(json!({ "writtenOffBy": clerk.name }))),
            ("in nobody's name", with(json!({ "writtenOffBy": null }))),
            ("with another size", with(json!({ "sizeBytes": 1 }))),
            ("with another reason", with(json!({ "reason": "PurgeProven" }))),
            ("with another past", with(json!({ "times": { "recordedAt": "2020-01-01T00:00:00Z" } }))),
            ("with Backups", with(json!({ "backupCount": 7 }))),
        ] {
            let answer = accountant.patch_status("Artifact", &kept, wrong).await;
            refused(what, answer, &[&accountant.name, "nothing else may change"])?;
        }
        let answer = accountant.patch_status("Artifact", &live, written_off(&accountant)).await;
        refused("what a Backup refers to", answer, &["it is Attributed"])?;
        let released = json!({ "state": "Released", "reason": "PurgeProven" });
        refused(
            "releasing",
            accountant.patch_status("Artifact", &kept, released).await,
            &["only Holdfast writes those"],
        )?;

        for name in [&kept, &asked] {
            let done = accountant.patch_status("Artifact", name, written_off(&accountant)).await;
            let done = allowed("an accountant's decision", done)?;
            ensure!(done.data["status"]["writtenOffBy"] == accountant.name.as_str(), "{done:?}");
            ensure!(done.data["status"]["sizeBytes"] == 1000, "{done:?}");
            let back = accountant.patch_status("Artifact", name, status("Retained", "NotPurged")).await;
            refused("taking it back", back, &["only Holdfast writes those"])?;
        }

        // The role is no more than that.
        let forged = record(world, &format!("forged-{}", world.namespace));
        forbidden("a record", accountant.create(forged).await)?;
        let spec = json!({ "spec": { "backupUid": "another" } });
        forbidden("a record's spec", accountant.patch("Artifact", &live, spec).await)?;
        allowed("reading", accountant.api("Artifact").get(&live).await)?;
        let deleted = accountant.api("Artifact").delete(&live, &DeleteParams::default()).await;
        ensure!(deleted.is_err(), "the accountant deleted a record");
        let whole = accountant.api("Artifact").delete_collection(&DeleteParams::default(), &ListParams::default()).await;
        ensure!(whole.is_err(), "the accountant deleted records");

        // For one record by name.
        let other = recorded(world, "other", "Retained", "NotPurged").await?;
        let narrow = world.nobody("narrow").await?;
        let role = format!("{}-narrow", world.namespace);
        let rules = json!([
            { "apiGroups": [names::LEDGER_GROUP], "resources": ["artifacts"], "resourceNames": [other], "verbs": ["write-off"] },
            { "apiGroups": [names::LEDGER_GROUP], "resources": ["artifacts/status"], "verbs": ["get", "patch"] },
        ]);
        world.role(&role, rules).await?;
        world.bind(&narrow.name, "ClusterRoleBinding", &role, "wide").await?;
        world
            .until("the right for one record", async || {
                narrow.dry().patch_status("Artifact", &other, written_off(&narrow)).await.is_ok()
            })
            .await?;
        let another = recorded(world, "another", "Retained", "NotPurged").await?;
        let answer = narrow.patch_status("Artifact", &another, written_off(&narrow)).await;
        refused("for another one", answer, &["verb write-off"])?;
        let answer = narrow.patch_status("Artifact", &other, written_off(&narrow)).await;
        allowed("for its own", answer)?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_a_store_is_and_what_its_listings_found_is_not_everybodys() -> Result<()> {
    with("stores", async |world| {
        let clerk = clerk(world).await?;
        let kept = recorded(world, "kept", "Retained", "NotPurged").await?;
        let accountant = accountant(world, &kept).await?;
        let name = format!("store-{}", world.namespace);
        let store = json!({
            "apiVersion": format!("{}/v1alpha1", names::LEDGER_GROUP), "kind": "BackupStore",
            "metadata": { "name": name, "labels": { "holdfast.test/world": world.namespace } },
            "spec": {
                "suspend": true, "endpoint": "https://s3.example.org", "bucket": "one",
                "credentials": { "name": "none" }, "layout": { "path": "{namespace}/{artifact...}" },
            },
        });
        let approve = |value: Value| json!({ "metadata": { "annotations": { names::APPROVE_RELEASE: value } } });
        let elsewhere = json!({ "spec": { "endpoint": "https://s3.example.net" } });
        forbidden("a store", clerk.create(store.clone()).await)?;
        allowed("an administrator's store", world.admin.create(store).await)?;

        let command = format!("kubectl auth can-i write-off backupstores.{}/{name}", names::LEDGER_GROUP);
        let answer = clerk.patch("BackupStore", &name, approve(json!("token"))).await;
        refused("approving", answer, &[&clerk.name, "verb write-off", "holdfast-accountant", &command])?;
        let answer = accountant.patch("BackupStore", &name, approve(json!("token"))).await;
        allowed("an accountant's approval", answer)?;
        let answer = clerk.patch("BackupStore", &name, approve(json!("another"))).await;
        refused("approving something else", answer, &["verb write-off"])?;
        let note = json!({ "metadata": { "annotations": { "example.org/note": "b" } } });
        allowed("a note beside an approval", clerk.patch("BackupStore", &name, note).await)?;
        let answer = clerk.patch("BackupStore", &name, approve(Value::Null)).await;
        allowed("taking an approval back", answer)?;
        let asked = json!({ "metadata": { "annotations": {
            "ledger.backups.cozystack.io/list-requested-at": THEN } } });
        allowed("asking for a listing", accountant.patch("BackupStore", &name, asked).await)?;

        for user in [&clerk, &accountant] {
            let answer = user.patch("BackupStore", &name, elsewhere.clone()).await;
            refused("another address", answer, &[&user.name, "verb create"])?;
        }
        allowed(
            "an administrator's change",
            world.admin.patch("BackupStore", &name, elsewhere).await,
        )?;
        let found = json!({ "pendingRelease": { "token": "t", "records": 1, "bytes": 1, "reason": "ManyRecords", "since": THEN } });
        for user in [&clerk, &world.admin] {
            let answer = user.patch_status("BackupStore", &name, found.clone()).await;
            refused("what listings found", answer, &["only Holdfast writes it"])?;
        }
        Ok(())
    })
    .await
}
