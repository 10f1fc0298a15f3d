//! The publisher: what a namespace is charged with, in every quota that has a limit for it (`docs/design.md` 4.3).
//!
//! **Promises.** `status.used` alone, by server-side apply as `holdfast-quota`, the full set of our keys in
//! `spec.hard`; only when a value changes, at most once in a debounce window. A hand in the status is put right and
//! told. A quota that somebody forbids to write is left alone for a while that grows, and says why. A namespace that
//! is terminating gets nothing.
//!
//! **Assumes.** The namespace is added up; before that nothing is published.

use super::metrics::Limits;
use super::world::Change;
use super::world::views::QuotaView;
use super::world::wire::{self, WireQuota};
use super::{Account, DIMENSIONS};
use crate::context::Error;
use crate::runtime::queue::Next;
use holdfast_api::names;
use holdfast_core::quota::publish::{self, Published, WarningReason, Write, WriteReason};
use holdfast_core::quota::{Figures, Ledger, amount, tenancy};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::events::EventType;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// First pause after a refusal; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(60);
/// Longest pause after refusals.
const LONGEST_PAUSE: Duration = Duration::from_secs(30 * 60);

/// What this process remembers of its publications. Nothing rests on it after a restart.
#[derive(Default)]
pub struct Desk {
    /// What was published last, by UID of the quota.
    published: HashMap<String, Published>,
    /// Quotas that somebody forbids to write, by UID.
    refused: HashMap<String, Refusal>,
    /// Keys that were warned of, by UID of the quota.
    warned: HashMap<String, BTreeSet<(WarningReason, String)>>,
    /// Quotas that metrics know, by namespace.
    quotas: HashMap<String, BTreeMap<String, String>>,
    /// Namespaces that metrics know as stranded.
    stranded: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct Refusal {
    until: Instant,
    times: u32,
    /// Limits when it was refused: with others it is tried at once.
    hard: BTreeMap<String, String>,
}

impl Account {
    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is published of a namespace.
    #[must_use]
    pub fn published(&self, namespace: &str) -> Published {
        let live = self.world.namespaces();
        let (own, stranded) = self
            .book
            .read(|ledger| (ledger.figures(namespace), stranded(ledger, &live, namespace)));
        Published {
            own,
            stranded,
            unaccounted: self.unaccounted(namespace),
        }
    }

    /// Another process leads: what was said is its to say.
    pub fn leave_desk(&self) {
        *self.desk() = Desk::default();
        self.metrics.quota.clear();
    }
}

/// What a namespace is charged with for others that are gone.
pub(super) fn stranded(ledger: &Ledger, live: &BTreeSet<String>, heir: &str) -> Figures {
    let gone = ledger.namespaces().filter(|namespace| !live.contains(*namespace));
    gone.filter(|namespace| tenancy::nearest_living_ancestor(namespace, live) == Some(heir))
        .fold(Figures::default(), |sum, namespace| {
            sum.plus(ledger.figures(namespace))
        })
}

/// One pass over the quotas of a namespace.
///
/// # Errors
/// [`Error`].
pub async fn pass(account: &Account, namespace: &str) -> Result<Next, Error> {
    if !account.world.is_complete() || !account.arrears.is_added_up(namespace) {
        // The end of the first look brings it back.
        return Ok(Next::Settled);
    }
    let Some(view) = account.world.namespace(namespace) else {
        gone(account, namespace);
        return Ok(Next::Settled);
    };
    let views = account.world.quotas(namespace);
    let published = account.published(namespace);
    tell(account, namespace, &views, &published);
    if view.terminating {
        return Ok(Next::Settled);
    }
    warn(account, namespace, &views).await;
    let mut next = Next::Settled;
    for view in &views {
        let before = account.desk().published.get(&view.uid).copied();
        let writes = publish::writes(
            DIMENSIONS,
            std::slice::from_ref(&view.quota),
            &published,
            before.as_ref(),
        );
        if !writes.is_empty()
            && let Some(wait) = paused(account, view)
        {
            next = sooner(next, wait);
            continue;
        }
        for write in &writes {
            match apply(account, view, write).await {
                Ok(()) => {}
                Err(error) if is_final(&error) => {}
                Err(error) if is_forbidden(&error) => {
                    next = sooner(next, refused(account, view, &error).await);
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if !account.desk().refused.contains_key(&view.uid) {
            account.desk().published.insert(view.uid.clone(), published);
        }
    }
    Ok(next)
}

fn sooner(next: Next, wait: Duration) -> Next {
    match next {
        Next::After(other) => Next::After(other.min(wait)),
        Next::Settled | Next::Failed => Next::After(wait),
    }
}

/// How long a quota is left alone still.
fn paused(account: &Account, view: &QuotaView) -> Option<Duration> {
    let desk = account.desk();
    let refusal = desk.refused.get(&view.uid)?;
    if refusal.hard != view.quota.hard {
        return None;
    }
    let wait = refusal.until.saturating_duration_since(Instant::now());
    (!wait.is_zero()).then_some(wait)
}

async fn apply(account: &Account, view: &QuotaView, write: &Write) -> Result<(), kube::Error> {
    let api: Api<WireQuota> = Api::namespaced(account.client.clone(), &view.namespace);
    let patch = json!({
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {
            "name": write.quota,
            "namespace": view.namespace,
            // One that was made again under the same name is another quota: a conflict, and the next pass sees it.
            "uid": view.uid,
            "annotations": { names::BREAKDOWN: write.breakdown },
        },
        "status": { "used": write.used },
    });
    if account.leadership.guard().is_err() {
        return Ok(());
    }
    let params = PatchParams::apply(names::QUOTA_MANAGER).force();
    let answer = api
        .patch_status(&write.quota, &params, &Patch::Apply(&patch))
        .await?;
    account.metrics.quota.written(write.reason);
    // The watch brings it later; until then it must not look as if somebody had changed it.
    account.observe(Change::Set(wire::quota(answer)));
    let before = account.desk().refused.remove(&view.uid);
    if before.is_some() {
        account
            .metrics
            .quota
            .refused(&view.namespace, &write.quota, Some(false));
        tell_quota(
            account,
            view,
            EventType::Normal,
            "FigurePublished",
            "figures can be written again",
        )
        .await;
    }
    match write.reason {
        WriteReason::Drifted => {
            let there = &view.quota.used;
            let found: Vec<String> = write
                .used
                .iter()
                .filter_map(|(key, value)| {
                    let found = there.get(key).filter(|found| !amount::same(found, value))?;
                    Some(format!("{key} was {found} and is {value} again"))
                })
                .collect();
            let note = format!("somebody changed what Holdfast publishes: {}", found.join(", "));
            tracing::warn!(namespace = view.namespace, quota = write.quota, "{note}");
            tell_quota(account, view, EventType::Warning, "FigureDrifted", &note).await;
        }
        WriteReason::Missing | WriteReason::Changed | WriteReason::Breakdown => {}
    }
    Ok(())
}

/// Gone, or another quota of the same name: its own event brings it back.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 || status.code == 409)
}

fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403 || status.code == 422)
}

/// Notes that a quota cannot be written; answers how long it is left alone.
async fn refused(account: &Account, view: &QuotaView, error: &kube::Error) -> Duration {
    let (pause, first) = {
        let mut desk = account.desk();
        let times = desk.refused.get(&view.uid).map_or(0, |refusal| refusal.times);
        let pause = FIRST_PAUSE.saturating_mul(1 << times.min(10)).min(LONGEST_PAUSE);
        let refusal = Refusal {
            until: Instant::now() + pause,
            times: times + 1,
            hard: view.quota.hard.clone(),
        };
        desk.refused.insert(view.uid.clone(), refusal);
        (pause, times == 0)
    };
    let name = &view.quota.name;
    account.metrics.quota.refused(&view.namespace, name, Some(true));
    if first {
        tracing::warn!(namespace = view.namespace, quota = name, %error, "figures may not be written; left alone for a while");
        let note = format!(
            "the figures of backups cannot be written here, so what `kubectl describe quota` shows of them is old: \
             {error}. Allow Holdfast to patch resourcequotas/status."
        );
        tell_quota(account, view, EventType::Warning, "FigureRefused", &note).await;
    }
    pause
}

async fn tell_quota(account: &Account, view: &QuotaView, kind: EventType, reason: &str, note: &str) {
    let about = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("ResourceQuota".to_owned()),
        name: Some(view.quota.name.clone()),
        namespace: Some(view.namespace.clone()),
        uid: Some(view.uid.clone()),
        resource_version: Some(view.resource_version.clone()),
        ..ObjectReference::default()
    };
    let _ = account
        .events
        .publish(&about, kind, reason, note, "PublishFigures")
        .await;
}

/// Warns of keys that do not do what they look like, once each.
async fn warn(account: &Account, namespace: &str, views: &[Arc<QuotaView>]) {
    for view in views {
        let warnings = publish::warnings(DIMENSIONS, &view.quota);
        let now: BTreeSet<(WarningReason, String)> =
            warnings.iter().map(|w| (w.reason, w.key.clone())).collect();
        let before = {
            let mut desk = account.desk();
            if now.is_empty() {
                desk.warned.remove(&view.uid)
            } else {
                desk.warned.insert(view.uid.clone(), now.clone())
            }
        }
        .unwrap_or_default();
        for reason in WarningReason::ALL {
            let count =
                |all: &BTreeSet<(WarningReason, String)>| all.iter().filter(|(r, _)| r == reason).count();
            if count(&before) != count(&now) {
                account
                    .metrics
                    .quota
                    .misspelt(namespace, &view.quota.name, *reason, count(&now));
            }
        }
        for warning in warnings
            .iter()
            .filter(|w| !before.contains(&(w.reason, w.key.clone())))
        {
            tell_quota(
                account,
                view,
                EventType::Warning,
                warning.reason.as_str(),
                &warning.message,
            )
            .await;
        }
    }
}

/// Sets or takes back the metrics of a namespace that exists.
fn tell(account: &Account, namespace: &str, views: &[Arc<QuotaView>], published: &Published) {
    forget_quotas(account, namespace, views);
    if account.desk().stranded.remove(namespace) {
        account.metrics.quota.stranded(namespace, None);
    }
    let limits = Limits {
        size: limit(views, DIMENSIONS.size),
        count: limit(views, DIMENSIONS.count),
    };
    if published.charged().is_empty()
        && published.unaccounted.unwrap_or(0) == 0
        && limits == Limits::default()
    {
        account.metrics.quota.forget(namespace);
    } else {
        account.metrics.quota.figures(namespace, published, limits);
    }
}

fn limit(views: &[Arc<QuotaView>], key: &str) -> Option<i64> {
    let unscoped = views.iter().filter(|view| !view.quota.scoped);
    unscoped
        .filter_map(|view| amount::limit(view.quota.hard.get(key)?).ok())
        .min()
}

/// What is remembered of quotas that are gone goes.
fn forget_quotas(account: &Account, namespace: &str, views: &[Arc<QuotaView>]) {
    let now: BTreeMap<String, String> = views
        .iter()
        .map(|view| (view.uid.clone(), view.quota.name.clone()))
        .collect();
    let mut desk = account.desk();
    let before = if now.is_empty() {
        desk.quotas.remove(namespace)
    } else {
        desk.quotas.insert(namespace.to_owned(), now.clone())
    };
    for (uid, name) in before.unwrap_or_default() {
        if now.contains_key(&uid) {
            continue;
        }
        desk.refused.remove(&uid);
        desk.published.remove(&uid);
        let warned = desk.warned.remove(&uid).unwrap_or_default();
        // Another quota of the same name says its own.
        account.metrics.quota.refused(namespace, &name, None);
        for (reason, _) in warned {
            account.metrics.quota.misspelt(namespace, &name, reason, 0);
        }
    }
}

/// The namespace does not exist: what it leaves behind is its heir's, or nobody's.
fn gone(account: &Account, namespace: &str) {
    forget_quotas(account, namespace, &[]);
    account.metrics.quota.forget(namespace);
    let figures = account.book.read(|ledger| ledger.figures(namespace));
    let live = account.world.namespaces();
    let heir = tenancy::nearest_living_ancestor(namespace, &live);
    let mut desk = account.desk();
    if heir.is_none() && !figures.is_empty() {
        desk.stranded.insert(namespace.to_owned());
        account
            .metrics
            .quota
            .stranded(namespace, Some(figures.used_size()));
    } else if desk.stranded.remove(namespace) {
        account.metrics.quota.stranded(namespace, None);
    }
}
