//! What a mover needs to reach the repository, asked for in this order.

use crate::context::{Context, Error};
use crate::jobs::create::{NOT_READ, SecretFact, secret};
use crate::jobs::needs::{self, Needs, Unmet};
use crate::jobs::projection::{self, Consent};
use crate::protect::snapshot::allows;
use crate::world::keys::RepositoryKey;
use crate::world::views::RepositoryView;
use holdfast_api::repository::RepositoryPhase;
use holdfast_core::restore::Reason;
use std::sync::Arc;

/// A reason and a sentence.
pub type Why = (Reason, String);

/// The repository, if a mover in `namespace` can reach it; `asked`: with a copy of its credentials. One that is degraded, suspended or waits for something of
/// its own still restores: only whether it was ever connected, and is not refused, counts.
pub async fn repository(
    ctx: &Context,
    namespace: &str,
    key: Option<&RepositoryKey>,
    asked: bool,
) -> Result<Result<Arc<RepositoryView>, Why>, Error> {
    let Some(view) = key.and_then(|k| ctx.world.repository(k)) else {
        let named = key.map_or_else(|| "repository of an unknown kind".to_owned(), ToString::to_string);
        return Ok(Err((
            Reason::RepositoryNotFound,
            format!("The {named} does not exist. Create it; the restore goes on then."),
        )));
    };
    let labels = ctx
        .world
        .namespace_view(namespace)
        .map(|n| n.labels)
        .unwrap_or_default();
    let allowed = match &view.allowed {
        None => view.key.namespace() == Some(namespace),
        Some(allowed) => allows(allowed, namespace, &labels),
    };
    if !allowed {
        return Ok(Err((
            Reason::NamespaceNotAllowed,
            format!(
                "This namespace may not use {}: a Repository serves its own namespace, a ClusterRepository those of spec.allowedNamespaces.",
                view.key
            ),
        )));
    }
    let failed = view.status.phase == Some(RepositoryPhase::Failed);
    if view.unique_id().is_none() || failed || !view.refusals.is_empty() {
        return Ok(Err((
            Reason::RepositoryNotReady,
            format!(
                "{} was never connected or needs a person; its conditions say why. The restore goes on then.",
                view.key
            ),
        )));
    }
    let password = &view.spec.encryption.password_secret_ref;
    let secrets = match projection::consent(ctx.settings.credential_projection, &view, asked) {
        Consent::NotAsked => namespace,
        Consent::Given => view.place(&ctx.settings.namespace),
        Consent::Missing(why) => return Ok(Err((Reason::CredentialProjectionNotAllowed, why))),
    };
    match secret(ctx, secrets, &password.name, &password.key).await? {
        SecretFact::Usable(_) => {}
        SecretFact::Missing | SecretFact::NoKey => {
            return Ok(Err((
                Reason::MissingCredentialsSecret,
                format!(
                    "Secret {secrets}/{} with key {} {NOT_READ}. Create it; the mover reads it from there.",
                    password.name, password.key
                ),
            )));
        }
    }
    if let Needs::Unmet(unmet) = needs::backend(ctx, namespace, secrets, &view).await? {
        let reason = match unmet {
            Unmet::Claim(_) => Reason::MissingRepositoryClaim,
            Unmet::Secret(_) | Unmet::Key(..) => Reason::MissingCredentialsSecret,
            Unmet::CaBundle(..) => Reason::MissingCaBundle,
        };
        return Ok(Err((reason, unmet.message())));
    }
    Ok(Ok(view))
}
