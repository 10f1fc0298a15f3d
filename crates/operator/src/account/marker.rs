//! The installation marker: it tells a first start from a lost ledger (`docs/design.md` 4.1).
//!
//! **Promises.** When the marker says that there were records and there is none, that is said loudly: what Backups
//! that are gone left behind is not known any more, and is charged to nobody. The Backups that live are recorded anew.
//!
//! **Assumes.** The marker is in the operator's namespace, the records are not: whoever loses the one keeps the other.

use super::Account;
use crate::context::Error;
use holdfast_api::names;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::json;

const RECORDS: &str = "records";
const REBUILT_AT: &str = "ledgerRebuiltAt";

/// What was found at the first look of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// There never was a ledger.
    FirstStart,
    /// It is as it was left.
    Known,
    /// It had records, and has none.
    Lost {
        /// How many it had when they were last counted.
        records: u64,
    },
}

fn judge(marker: Option<u64>, records: usize) -> Found {
    match (marker, records) {
        (None, _) => Found::FirstStart,
        (Some(before), 0) if before > 0 => Found::Lost { records: before },
        (Some(_), _) => Found::Known,
    }
}

fn api(account: &Account) -> Api<ConfigMap> {
    Api::namespaced(account.client.clone(), &account.settings.namespace)
}

/// Compares the marker with the records, before any is written.
///
/// # Errors
/// [`Error`] when the marker cannot be read or written: then nothing is decided yet.
pub async fn compare(account: &Account) -> Result<Found, Error> {
    let records = account.book.read(|ledger| ledger.len());
    let marker = api(account).get_opt(names::LEDGER_MARKER).await?;
    let counted = marker.as_ref().map(|marker| {
        let data = marker.data.as_ref();
        data.and_then(|data| data.get(RECORDS)?.parse().ok())
            .unwrap_or_default()
    });
    let found = judge(counted, records);
    if let Found::Lost { records } = found {
        let note = format!(
            "the records of the ledger are gone: there were {records}. The Backups that exist are recorded anew; what \
             deleted Backups left in storage is charged to nobody until a listing of the store finds it"
        );
        tracing::error!("{note}");
        account.metrics.quota.rebuilt();
        let about = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            name: Some(names::LEDGER_MARKER.to_owned()),
            namespace: Some(account.settings.namespace.clone()),
            uid: marker.and_then(|marker| marker.metadata.uid),
            ..ObjectReference::default()
        };
        let published =
            account
                .events
                .publish(&about, EventType::Warning, "LedgerRebuilt", &note, "CountRecords");
        let _ = published.await;
        let at = account.clock.now().to_string();
        write(account, json!({ RECORDS: "0", REBUILT_AT: at })).await?;
    }
    Ok(found)
}

/// Notes how many records there are.
///
/// # Errors
/// [`Error`].
pub async fn note(account: &Account, records: usize) -> Result<(), Error> {
    write(account, json!({ RECORDS: records.to_string() })).await
}

async fn write(account: &Account, data: serde_json::Value) -> Result<(), Error> {
    account.leadership.guard()?;
    let patch = json!({
        "metadata": { "labels": { names::MANAGED_BY_LABEL: names::MANAGED_BY } },
        "data": data,
    });
    let params = PatchParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let written = api(account)
        .patch(names::LEDGER_MARKER, &params, &Patch::Merge(&patch))
        .await;
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let mut object = patch;
            object["metadata"]["name"] = json!(names::LEDGER_MARKER);
            let object: ConfigMap = serde_json::from_value(object).unwrap_or_default();
            api(account)
                .create(&kube::api::PostParams::default(), &object)
                .await?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ledger_that_had_records_can_be_lost() {
        assert_eq!(judge(None, 0), Found::FirstStart);
        assert_eq!(judge(None, 5), Found::FirstStart);
        assert_eq!(judge(Some(0), 0), Found::Known);
        assert_eq!(judge(Some(7), 3), Found::Known);
        assert_eq!(judge(Some(7), 0), Found::Lost { records: 7 });
    }
}
