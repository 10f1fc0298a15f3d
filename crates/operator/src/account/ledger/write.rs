//! Writing records.
//!
//! **Promises.** A record is created first and says what it is for; what changes is written by a second request.
//! Every write carries the version that was judged; one that was overtaken is [`Error::Conflict`], which means: decide
//! again. What is written counts at once.

use super::is_transition;
use crate::account::Account;
use crate::account::book::{Step, Version};
use crate::context::Error;
use crate::runtime::write::WriteError;
use crate::runtime::{diff, write};
use holdfast_api::ledger::{ArtifactStatus, convert};
use holdfast_api::{Artifact, names};
use holdfast_core::quota::{Change, Record, RemoveReason};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, PostParams, PropagationPolicy};
use kube::runtime::events::EventType;

/// Carries out what was decided, in this order.
///
/// # Errors
/// [`Error`]; what was written before it stays written.
pub async fn carry_out(account: &Account, steps: Vec<Step>) -> Result<(), Error> {
    for step in steps {
        let version = match &step.change {
            Change::Write(record) => write(account, record, &step).await?,
            Change::Remove { name, reason } => {
                remove(account, name, step.version.as_ref()).await?;
                went(account, &step, *reason).await;
                None
            }
        };
        if let Change::Write(record) = &step.change
            && is_transition(step.before.as_ref(), &step.change)
        {
            account.metrics.quota.transition(record);
        }
        for namespace in account.book.wrote(&step.change, version) {
            account.touch(namespace);
        }
    }
    Ok(())
}

/// What nobody took up is for a person to look at: its controller is not there, or does not know the strategy.
async fn went(account: &Account, step: &Step, reason: RemoveReason) {
    account.metrics.quota.removed(reason);
    let before = step.before.as_ref();
    let namespace = before.map(Record::namespace).unwrap_or_default();
    let job = before.and_then(|run| run.job.as_ref());
    let name = job.map(|job| job.name.as_str());
    if reason != RemoveReason::NeverTakenUp {
        tracing::debug!(namespace, job = name, reason = reason.as_str(), "a record went");
        return;
    }
    tracing::warn!(
        namespace,
        job = name,
        reason = reason.as_str(),
        "no controller took the BackupJob up within a day"
    );
    let Some(job) = job else { return };
    let about = ObjectReference {
        api_version: Some(format!("{}/{}", names::BACKUPS_GROUP, names::BACKUPS_VERSION)),
        kind: Some("BackupJob".to_owned()),
        name: Some(job.name.clone()),
        namespace: Some(namespace.to_owned()),
        uid: Some(job.uid.clone()),
        ..ObjectReference::default()
    };
    let note = "no controller took this BackupJob up within a day: it is not counted as a run under way any more, \
                and is again if one takes it up. Look whether the controller of its strategy runs, or delete it";
    let _ = account
        .events
        .publish(&about, EventType::Warning, reason.as_str(), note, "Account")
        .await;
}

fn api(account: &Account) -> Api<Artifact> {
    Api::all(account.client.clone())
}

/// Writes a record; answers the version it has then, or nothing if the object says the same already.
async fn write(account: &Account, record: &Record, step: &Step) -> Result<Option<Version>, Error> {
    match &step.version {
        None => create(account, record).await.map(Some),
        Some(version) => {
            // What an object without a status reads as is not what it says.
            let before = step.before.as_ref().filter(|_| version.is_told);
            let before = before.map(convert::status).unwrap_or_default();
            change(account, &record.name, version, &before, &convert::status(record)).await
        }
    }
}

async fn create(account: &Account, record: &Record) -> Result<Version, Error> {
    let object = Artifact {
        status: None,
        ..convert::artifact(record)
    };
    let params = PostParams {
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    account.leadership.guard()?;
    // One that exists already is a conflict: its event is on its way, and what it says counts.
    let created = api(account)
        .create(&params, &object)
        .await
        .map_err(WriteError::from)?;
    let (name, version) = (&record.name, Version::of(&created));
    let written = change(
        account,
        name,
        &version,
        &ArtifactStatus::default(),
        &convert::status(record),
    )
    .await?;
    Ok(written.unwrap_or(version))
}

async fn change(
    account: &Account,
    name: &str,
    version: &Version,
    before: &ArtifactStatus,
    after: &ArtifactStatus,
) -> Result<Option<Version>, Error> {
    let Some(patch) = diff::merge_patch(before, after) else {
        return Ok(None);
    };
    account.leadership.guard()?;
    let written = write::patch_status(&api(account), name, &version.resource_version, patch).await?;
    Ok(Some(Version::of(&written)))
}

async fn remove(account: &Account, name: &str, version: Option<&Version>) -> Result<(), Error> {
    let Some(version) = version else {
        return Ok(());
    };
    account.leadership.guard()?;
    // Before the request: the event may come before the answer.
    account.book.removing(&version.uid);
    let removed = write::delete(
        &api(account),
        name,
        &version.uid,
        Some(&version.resource_version),
        PropagationPolicy::Background,
    )
    .await;
    if let Err(error) = removed {
        account.book.not_removed(&version.uid);
        return Err(error.into());
    }
    Ok(())
}

/// Writes a record again that somebody else deleted, as it was.
///
/// # Errors
/// [`Error`].
pub async fn restore(account: &Account, record: Record) -> Result<(), Error> {
    let existing = api(account).get_opt(&record.name).await?;
    if let Some(existing) = existing {
        // It is there: the list that did not have it was older.
        account.record_seen(&existing);
        return Ok(());
    }
    let version = create(account, &record).await?;
    account.metrics.quota.restored();
    let change = Change::Write(Box::new(record));
    for namespace in account.book.wrote(&change, Some(version)) {
        account.touch(namespace);
    }
    Ok(())
}
