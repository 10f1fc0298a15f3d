//! A policy that may have something to adopt asks for one scan of its repository.
//!
//! **Promises.** Once for each identity and repository: that it was asked for is recorded after the scan is due, so that
//! a crash in between costs a scan and never loses one. Where the last listing left nothing without an object, none is
//! asked for. Adopting is the scan's business ([`crate::protect::catalog`]).

use super::source;
use crate::context::{Context, Error};
use crate::protect::catalog::{Ends, adoption_mode, due, end_adoption};
use crate::protect::repository::patch_status;
use crate::runtime::write;
use crate::world::keys::{self, ObjectKey};
use crate::world::views::RepositoryView;
use holdfast_api::SnapshotPolicy;
use holdfast_api::repository::CatalogStatus;
use holdfast_api::shared::AdoptionMode;
use holdfast_protocol::work::Source;
use jiff::{SignedDuration, Timestamp};
use kube::api::Api;
use kube::runtime::events::EventType;
use serde_json::json;

/// No scan takes longer to make its objects.
const TOO_LONG: SignedDuration = SignedDuration::from_secs(3600);

/// What a policy asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asks {
    /// Nothing, or nothing yet.
    Nothing,
    /// A scan, for this.
    Scan(String),
    /// No scan: nothing in the repository is without an object. Recorded all the same.
    NoScan(String),
    /// It adopts nothing any more; should it again, it asks again.
    Forget,
}

/// Decides.
fn asks(policy: &SnapshotPolicy, source: Option<&Source>, repository: &RepositoryView) -> Asks {
    let adoption = policy.status.as_ref().and_then(|s| s.adoption.as_ref());
    let known = adoption.and_then(|adoption| adoption.looked_for.as_deref());
    if adoption_mode(policy, repository) != AdoptionMode::Adopt {
        let skipped = adoption.and_then(|adoption| adoption.skipped_by_retention);
        return if known.is_some() || skipped.is_some() {
            Asks::Forget
        } else {
            Asks::Nothing
        };
    }
    let catalog = repository.status.catalog.as_ref();
    let listed = catalog.filter(|catalog| catalog.last_refresh_at.is_some());
    let (Some(source), Some(unique_id), Some(catalog)) = (source, repository.unique_id(), listed) else {
        // Not known yet, or the first scan is still to come and finds this policy.
        return Asks::Nothing;
    };
    let wanted = format!(
        "{}@{}:{} in {unique_id}",
        source.username, source.hostname, source.path
    );
    if known == Some(wanted.as_str()) {
        Asks::Nothing
    } else if is_left(catalog) {
        Asks::Scan(wanted)
    } else {
        Asks::NoScan(wanted)
    }
}

/// Whether the last listing had something that belongs to no object.
fn is_left(catalog: &CatalogStatus) -> bool {
    [
        catalog.discovered_backup_count,
        catalog.not_shown_count,
        catalog.unplaced_count,
    ]
    .into_iter()
    .flatten()
    .any(|count| count > 0)
}

/// Asks if it has to; answers whether the policy's status was written.
///
/// # Errors
/// [`Error`].
pub async fn look(
    ctx: &Context,
    key: &ObjectKey,
    policy: &SnapshotPolicy,
    now: Timestamp,
) -> Result<bool, Error> {
    let named = policy.spec.repository.as_ref();
    let named = named.and_then(|named| keys::resolve(named, &key.namespace));
    let repository = named.as_ref().and_then(|named| ctx.world.repository(named));
    if is_abandoned(policy, repository.as_deref(), now) {
        // Whatever came of it is judged as what is only a part of it.
        end_adoption(ctx, key, Ends::Partial).await?;
        return Ok(true);
    }
    let Some(repository) = repository else {
        return Ok(false);
    };
    if is_left_waiting(policy, now) {
        // The scan that has retention wait did not come to its end: the next one lets it go on.
        ask(ctx, &repository, now).await?;
    }
    if !holdfast_api::validate::policy(&policy.spec).is_empty() {
        return Ok(false);
    }
    let source = source(&ctx.world, key, policy);
    let looked_for = match asks(policy, source.as_ref(), &repository) {
        Asks::Nothing => return Ok(false),
        Asks::Forget => None,
        Asks::NoScan(wanted) => Some(wanted),
        Asks::Scan(wanted) => {
            ask(ctx, &repository, now).await?;
            let note = format!(
                "{} is listed once more: it has snapshots that belong to no object, and some of them may be of this policy.",
                repository.key
            );
            let normal = EventType::Normal;
            ctx.event_policy(policy, normal, "AdoptionScanRequested", &note, "AwaitCatalogScan")
                .await;
            Some(wanted)
        }
    };
    ctx.leadership.guard()?;
    let api: Api<SnapshotPolicy> = Api::namespaced(ctx.client.clone(), &key.namespace);
    let version = policy.metadata.resource_version.as_deref().unwrap_or_default();
    let patch = match looked_for {
        Some(wanted) => json!({ "adoption": { "lookedFor": wanted } }),
        None => json!({ "adoption": { "lookedFor": null, "skippedByRetention": null } }),
    };
    write::patch_status(&api, &key.name, version, patch).await?;
    Ok(true)
}

/// Whether retention has waited for longer than a scan takes.
#[must_use]
pub fn is_left_waiting(policy: &SnapshotPolicy, now: Timestamp) -> bool {
    let adoption = policy.status.as_ref().and_then(|s| s.adoption.as_ref());
    let since = adoption.and_then(|adoption| adoption.under_way);
    since.is_some_and(|since| since + TOO_LONG <= now)
}

/// Whether no scan is at work on it any more, and none may ever come to its end.
fn is_abandoned(policy: &SnapshotPolicy, repository: Option<&RepositoryView>, now: Timestamp) -> bool {
    let at_work = |repository: &RepositoryView| {
        let catalog = repository.status.catalog.as_ref();
        catalog.is_some_and(|catalog| catalog.progress.is_some())
    };
    // One that tells how far it is may take longer; if its process went, it tells that for ever.
    let later = now - TOO_LONG;
    is_left_waiting(policy, now) && (!repository.is_some_and(at_work) || is_left_waiting(policy, later))
}

/// Makes a scan due, unless one is.
async fn ask(ctx: &Context, repository: &RepositoryView, now: Timestamp) -> Result<(), Error> {
    let catalog = repository.status.catalog.as_ref();
    let Some(scan) = due::put_off(catalog.and_then(|c| c.scan_due.as_ref()), now) else {
        return Ok(());
    };
    ctx.leadership.guard()?;
    let version = repository
        .metadata
        .resource_version
        .as_deref()
        .unwrap_or_default();
    let patch = json!({ "catalog": { "scanDue": scan } });
    patch_status(ctx, &repository.key, version, patch).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn policy(adoption: Value, looked_for: Value) -> SnapshotPolicy {
        serde_json::from_value(json!({
            "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "SnapshotPolicy",
            "metadata": { "name": "p", "namespace": "a" },
            "spec": {
                "repository": { "name": "r" }, "sources": [{ "pvc": { "name": "data" } }], "adoption": adoption,
            },
            "status": { "adoption": { "lookedFor": looked_for } },
        }))
        .unwrap()
    }

    fn repository(adoption: Value, catalog: Value) -> RepositoryView {
        RepositoryView::namespaced(
            serde_json::from_value(json!({
                "apiVersion": "kopiur.home-operations.com/v1alpha1", "kind": "Repository",
                "metadata": { "name": "r", "namespace": "a" },
                "spec": {
                    "engine": "Restic",
                    "backend": { "filesystem": { "volume": { "pvc": { "name": "repo" } } } },
                    "encryption": { "passwordSecretRef": { "name": "s" } },
                    "catalog": { "adoption": adoption },
                },
                "status": { "uniqueId": "id", "phase": "Ready", "catalog": catalog },
            }))
            .unwrap(),
        )
    }

    /// What the policy asks for, which backs up `/pvc/data` as `p@a`.
    fn asks(policy: &SnapshotPolicy, repository: &RepositoryView) -> Asks {
        let source = Source {
            username: "p".into(),
            hostname: "a".into(),
            path: "/pvc/data".into(),
        };
        super::asks(policy, Some(&source), repository)
    }

    const WANTED: &str = "p@a:/pvc/data in id";
    const AT: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn a_scan_is_asked_for_once_and_only_where_something_is_left() {
        for left in ["discoveredBackupCount", "notShownCount", "unplacedCount"] {
            let repository = repository(Value::Null, json!({ "lastRefreshAt": AT, left: 3 }));
            let new = policy(Value::Null, Value::Null);
            assert_eq!(asks(&new, &repository), Asks::Scan(WANTED.into()), "{left}");
            let asked = policy(Value::Null, json!(WANTED));
            assert_eq!(asks(&asked, &repository), Asks::Nothing);
            let moved = policy(Value::Null, json!("p@a:/pvc/other in id"));
            assert_eq!(asks(&moved, &repository), Asks::Scan(WANTED.into()));
        }
        let empty = repository(
            Value::Null,
            json!({ "lastRefreshAt": AT, "discoveredBackupCount": 0 }),
        );
        let new = policy(Value::Null, Value::Null);
        assert_eq!(asks(&new, &empty), Asks::NoScan(WANTED.into()));
        let never = repository(Value::Null, json!({ "discoveredBackupCount": 3 }));
        assert_eq!(asks(&new, &never), Asks::Nothing, "the first scan finds it");
    }

    #[test]
    fn who_waits_for_longer_than_a_scan_takes_was_left_by_it() {
        let mut waits = policy(Value::Null, Value::Null);
        let now: Timestamp = AT.parse().unwrap();
        assert!(!is_left_waiting(&waits, now));
        let since = |minutes| now - SignedDuration::from_mins(minutes);
        for (minutes, left) in [(1, false), (59, false), (60, true), (600, true)] {
            let status = json!({ "adoption": { "underWay": since(minutes).to_string() } });
            waits.status = serde_json::from_value(status).unwrap();
            assert_eq!(is_left_waiting(&waits, now), left, "{minutes}");
        }
    }

    #[test]
    fn who_ignores_asks_for_nothing_and_forgets_that_it_asked() {
        let left = json!({ "lastRefreshAt": AT, "discoveredBackupCount": 3 });
        for (own, theirs, adopts) in [
            (Value::Null, Value::Null, true),
            (Value::Null, json!("Ignore"), false),
            (json!("Adopt"), json!("Ignore"), true),
            (json!("Ignore"), json!("Adopt"), false),
            (json!("Ignore"), Value::Null, false),
        ] {
            let repository = repository(theirs, left.clone());
            let new = asks(&policy(own.clone(), Value::Null), &repository);
            assert_eq!(new != Asks::Nothing, adopts, "{own}");
            let asked = asks(&policy(own.clone(), json!(WANTED)), &repository);
            assert_eq!(asked == Asks::Forget, !adopts);
            let mut skipping = policy(own, Value::Null);
            let status = json!({ "adoption": { "skippedByRetention": 7 } });
            skipping.status = serde_json::from_value(status).unwrap();
            assert_eq!(asks(&skipping, &repository) == Asks::Forget, !adopts);
        }
    }
}
