//! A limit on backup storage cannot be reset by deleting objects, and it stands in the way of no restore.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use holdfast_api::ledger::ArtifactState;
use holdfast_api::names;
use holdfast_e2e::platform::{self, Asked, SIZED, Tenant};
use holdfast_e2e::scenario::suffix;
use holdfast_e2e::standin::{self, Standins};
use holdfast_e2e::{Lab, Look, until};
use serde_json::json;

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn at_the_limit_a_backup_is_refused_also_after_every_record_was_deleted_and_a_restore_is_not()
-> Result<()> {
    let Some(lab) = Lab::for_test("quota_outlives_its_objects").await? else {
        return Ok(());
    };
    platform::install(&lab.client).await?;
    platform::class(&lab).await?;
    let standins = Standins::start(&lab, &format!("standins-{}", suffix()), &standin::image()).await?;
    let hard = json!({ names::QUOTA_SIZE: "3Mi", names::QUOTA_COUNT: "10" });
    let tenant = Tenant::new(&lab, "tenant-small", hard).await?;
    for name in ["one", "two", "three"] {
        tenant.back_up(name, SIZED, "control", MIB).await?;
    }
    tenant.until_used("3Mi", "3", SOON).await?;
    let refused = refusal(tenant.ask("four", SIZED, "control", MIB).await?)?;
    ensure!(
        refused.contains("exceeded quota: backup-storage")
            && refused.contains("backups.cozystack.io/size=3Mi"),
        "{refused}"
    );

    ensure!(tenant.delete_backups().await? == 3, "three Backups were recorded");
    until("the records to be retained", SOON, || async {
        let records = tenant.records().await?;
        let states: Vec<ArtifactState> = records
            .iter()
            .filter_map(|r| Some(r.status.as_ref()?.state))
            .collect();
        Ok(if states == [ArtifactState::Retained; 3] {
            Look::Done(())
        } else {
            Look::Not(format!("{states:?}"))
        })
    })
    .await?;
    tenant.until_used("3Mi", "3", SOON).await?;
    refusal(tenant.ask("five", SIZED, "control", MIB).await?)?;
    // A restore is no backup.
    lab.create(json!({
        "apiVersion": "backups.cozystack.io/v1alpha1", "kind": "RestoreJob",
        "metadata": { "name": "back", "namespace": tenant.namespace },
        "spec": { "backupRef": { "name": "one" } },
    }))
    .await?;
    tenant.end().await?;
    standins.end(&lab).await
}

fn refusal(asked: Asked) -> Result<String> {
    match asked {
        Asked::Refused(why) => Ok(why),
        Asked::Admitted(name) => bail!("{name} was admitted over the limit"),
    }
}
