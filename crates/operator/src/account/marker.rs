//! The installation marker: it tells a first start from a lost ledger (`docs/design.md` 4.1).
//!
//! **Promises.** When the marker says that there were records and there is none, or that there were more that stand for
//! something in storage, that is said loudly: what Backups that are gone left behind is not known any more, and is
//! charged to nobody. The Backups that live are recorded anew.
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
/// Those of them that stand for something in storage.
const ARTIFACTS: &str = "artifacts";
const REBUILT_AT: &str = "ledgerRebuiltAt";

/// How many records there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counted {
    /// All of them.
    pub records: u64,
    /// Those that stand for something in storage; `None`: an older version did not note it.
    pub artifacts: Option<u64>,
}

impl Counted {
    /// As the ledger has them.
    #[must_use]
    pub fn of(account: &Account) -> Self {
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        account.book.read(|ledger| Self {
            records: number(ledger.len()),
            artifacts: Some(number(ledger.artifacts())),
        })
    }

    /// Whether what is noted has to be put right at once: whether there is any record is what the marker is for, and
    /// one that was removed rightly must not be missed later.
    #[must_use]
    pub fn is_urgent(self, noted: Option<Self>) -> bool {
        noted.is_none_or(|noted| {
            (noted.records == 0) != (self.records == 0) || self.artifacts < noted.artifacts
        })
    }
}

/// What was found at the first look of a term.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// There never was a ledger.
    FirstStart,
    /// It is as it was left.
    Known,
    /// Some of its records are gone.
    Fewer {
        /// How many.
        missing: u64,
    },
    /// It had records, and has none.
    Lost {
        /// How many it had when they were last counted.
        records: u64,
    },
}

fn judge(marker: Option<Counted>, now: Counted) -> Found {
    let Some(before) = marker else {
        return Found::FirstStart;
    };
    if before.records > 0 && now.records == 0 {
        return Found::Lost {
            records: before.records,
        };
    }
    let missing = before
        .artifacts
        .unwrap_or(0)
        .saturating_sub(now.artifacts.unwrap_or(u64::MAX));
    if missing > 0 {
        Found::Fewer { missing }
    } else {
        Found::Known
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
    let marker = api(account).get_opt(names::LEDGER_MARKER).await?;
    let counted = marker.as_ref().map(|marker| {
        let noted = |key: &str| marker.data.as_ref()?.get(key)?.parse().ok();
        Counted {
            records: noted(RECORDS).unwrap_or_default(),
            artifacts: noted(ARTIFACTS),
        }
    });
    let now = Counted::of(account);
    let found = judge(counted, now);
    let uid = marker.and_then(|marker| marker.metadata.uid);
    match found {
        Found::FirstStart | Found::Known => {}
        Found::Fewer { missing } => {
            let note = format!(
                "{missing} records of the ledger were deleted while nobody led (one that was removed rightly in the \
                 seconds before the last leader ended may be among them). What Backups that exist stand for is recorded \
                 anew; what deleted Backups left in storage is charged to nobody until a listing of the store finds it. \
                 Look in the audit log for who deletes artifacts"
            );
            account.metrics.quota.missing(missing);
            say(account, uid, "RecordsMissing", &note).await;
            note_counted(account, now).await?;
        }
        Found::Lost { records } => {
            let note = format!(
                "the records of the ledger are gone: there were {records}. The Backups that exist are recorded anew; what \
                 deleted Backups left in storage is charged to nobody until a listing of the store finds it"
            );
            account.metrics.quota.rebuilt();
            say(account, uid, "LedgerRebuilt", &note).await;
            let at = account.clock.now().to_string();
            write(account, json!({ RECORDS: "0", ARTIFACTS: "0", REBUILT_AT: at })).await?;
        }
    }
    Ok(found)
}

async fn say(account: &Account, uid: Option<String>, reason: &str, note: &str) {
    tracing::error!(reason, "{note}");
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ConfigMap".to_owned()),
        name: Some(names::LEDGER_MARKER.to_owned()),
        namespace: Some(account.settings.namespace.clone()),
        uid,
        ..ObjectReference::default()
    };
    let _ = account
        .events
        .publish(&about, EventType::Warning, reason, note, "CountRecords")
        .await;
}

/// Notes how many records there are.
///
/// # Errors
/// [`Error`].
pub async fn note_counted(account: &Account, counted: Counted) -> Result<(), Error> {
    let artifacts = counted.artifacts.unwrap_or_default().to_string();
    write(
        account,
        json!({ RECORDS: counted.records.to_string(), ARTIFACTS: artifacts }),
    )
    .await
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

    fn counted(records: u64, artifacts: u64) -> Counted {
        Counted {
            records,
            artifacts: Some(artifacts),
        }
    }

    #[test]
    fn only_a_ledger_that_had_records_can_be_lost() {
        assert_eq!(judge(None, counted(0, 0)), Found::FirstStart);
        assert_eq!(judge(None, counted(5, 5)), Found::FirstStart);
        assert_eq!(judge(Some(counted(0, 0)), counted(0, 0)), Found::Known);
        assert_eq!(
            judge(Some(counted(7, 7)), counted(0, 0)),
            Found::Lost { records: 7 }
        );
    }

    #[test]
    fn records_of_storage_that_are_missing_are_told_and_runs_that_ended_are_not() {
        assert_eq!(
            judge(Some(counted(7, 7)), counted(3, 3)),
            Found::Fewer { missing: 4 }
        );
        assert_eq!(
            judge(Some(counted(7, 3)), counted(3, 3)),
            Found::Known,
            "four runs ended"
        );
        assert_eq!(judge(Some(counted(3, 3)), counted(9, 5)), Found::Known);
        assert_eq!(
            judge(Some(counted(9, 3)), counted(9, 2)),
            Found::Fewer { missing: 1 }
        );
        let older = Counted {
            records: 7,
            artifacts: None,
        };
        assert_eq!(
            judge(Some(older), counted(3, 3)),
            Found::Known,
            "an older version noted no more"
        );
    }

    #[test]
    fn what_was_removed_rightly_is_noted_at_once() {
        assert!(counted(3, 3).is_urgent(None));
        assert!(counted(3, 2).is_urgent(Some(counted(3, 3))));
        assert!(counted(1, 0).is_urgent(Some(counted(0, 0))));
        assert!(!counted(2, 3).is_urgent(Some(counted(3, 3))), "a run ended");
        assert!(!counted(9, 9).is_urgent(Some(counted(3, 3))));
    }
}
