//! The operator's right to write Secrets is bounded to its copies of credentials.

use anyhow::Result;
use holdfast_api::names;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::world::{Answer, User, allowed, refused, with};

/// With or without the two labels of a copy.
fn secret(name: &str, managed: bool, scoped: bool) -> Value {
    let mut labels = json!({});
    if managed {
        labels[names::MANAGED_BY_LABEL] = json!(names::MANAGED_BY);
    }
    if scoped {
        labels[names::CREDS_SCOPE_LABEL] = json!(names::CREDS_SCOPE);
    }
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": name, "labels": labels },
        "stringData": { "a": "b" },
    })
}

async fn delete(user: &User, name: &str) -> Answer {
    let api = user.api("Secret");
    api.delete(name, &DeleteParams::default()).await?;
    api.get(name).await
}

#[tokio::test]
async fn the_operator_writes_no_secret_but_its_copies() -> Result<()> {
    with("secrets", async |world| {
        let (operator, admin) = (&world.operator, &world.admin);
        // The chart installs the policy with the right; the API server heeds both after a moment.
        let there = admin.api("ValidatingAdmissionPolicyBinding").get_opt("holdfast-secrets").await?;
        if there.is_none() {
            println!("skipped: this installation has no right to write Secrets (features.credentialProjection.enabled)");
            return Ok(());
        }
        world
            .until("the policy to refuse", async || {
                operator.dry().create(secret("none", false, false)).await.is_err()
            })
            .await?;
        let ns = &world.namespace;
        let name = |what: &str| format!("{what} Secret {ns}/");
        for (managed, scoped) in [(false, false), (true, false), (false, true)] {
            let what = format!("managed: {managed}, scoped: {scoped}");
            let (mine, theirs) = (secret("mine", managed, scoped), secret("theirs", managed, scoped));
            refused(&what, operator.create(mine).await, &[&operator.name, &name("create")])?;
            allowed("a tenant's", admin.create(theirs).await)?;
            let change = json!({ "data": { "a": "Yw==" } });
            let answer = operator.patch("Secret", "theirs", change).await;
            refused(&what, answer, &[&name("change"), names::CREDS_SCOPE_LABEL])?;
            let labels = secret("theirs", true, true)["metadata"]["labels"].clone();
            let answer = operator
                .patch("Secret", "theirs", json!({ "metadata": { "labels": labels } }))
                .await;
            refused("taking it over", answer, &[&name("change")])?;
            refused(&what, delete(operator, "theirs").await, &[&name("delete")])?;
            allowed("still there", admin.api("Secret").get("theirs").await)?;
            admin.api("Secret").delete("theirs", &DeleteParams::default()).await?;
        }
        let mut token = secret("token", true, true);
        token["type"] = json!("kubernetes.io/basic-auth");
        token["stringData"] = json!({ "username": "a", "password": "b" });
        refused("another type", operator.create(token).await, &["Opaque"])?;

        allowed("a copy", operator.create(secret("copy", true, true)).await)?;
        let change = json!({ "data": { "a": "Yw==" } });
        allowed("its change", operator.patch("Secret", "copy", change).await)?;
        for label in [names::MANAGED_BY_LABEL, names::CREDS_SCOPE_LABEL] {
            let bare = json!({ "metadata": { "labels": { label: null } } });
            let answer = operator.patch("Secret", "copy", bare).await;
            refused("taking its label off", answer, &[&name("change")])?;
        }
        let gone = delete(operator, "copy").await;
        anyhow::ensure!(
            matches!(&gone, Err(kube::Error::Api(status)) if status.code == 404),
            "the copy: {gone:?}"
        );
        Ok(())
    })
    .await
}
