//! What the decision on a repository rests on.

use crate::context::{Context, Error};
use crate::jobs::create::{SecretFact, secret};
use crate::jobs::needs::{self, Needs};
use crate::jobs::outcome::{JobFact, job_fact};
use crate::jobs::short_hash;
use crate::protect::maintenance;
use crate::world::views::RepositoryView;
use holdfast_api::names;
use holdfast_api::repository::{Engine, RepositorySpec};
use std::sync::Arc;

/// Facts about one repository object.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The object.
    pub view: Arc<RepositoryView>,
    /// Where its Jobs run.
    pub place: String,
    /// The password Secret there.
    pub secret: SecretFact,
    /// What the backend needs there.
    pub needs: Needs,
    /// Hash of what a connection is made with.
    pub inputs: String,
    /// The bootstrap Job, if there is one.
    pub bootstrap: Option<JobFact>,
    /// The listing Job, if there is one.
    pub list: Option<JobFact>,
    /// Other objects over the same physical repository.
    pub shared_with: Vec<String>,
    /// Other objects one of which lies below the other's prefix, so that Kopia takes what is there for its own.
    pub overlaps: Vec<String>,
    /// The Maintenance that is of it, if there is one.
    pub maintenance: Option<String>,
    /// Namespaces that may use a ClusterRepository.
    pub allowed_namespaces: Option<u32>,
}

/// Gathers the facts; reads what a mover needs live.
pub async fn facts(ctx: &Context, view: Arc<RepositoryView>) -> Result<Facts, Error> {
    let place = view.place(&ctx.settings.namespace).to_owned();
    let reference = &view.spec.encryption.password_secret_ref;
    let secret_fact = secret(ctx, &place, &reference.name, &reference.key).await?;
    let needs = needs::backend(ctx, &place, &place, &view).await?;
    let version = match &secret_fact {
        SecretFact::Usable(version) => version.as_str(),
        SecretFact::Missing | SecretFact::NoKey => "",
    };
    let backend = serde_json::to_string(&view.spec.backend).map_err(crate::jobs::build::BuildError::from)?;
    let mut inputs = format!(
        "{:?}|{backend}|{}|{}|{version}",
        view.spec.engine, reference.name, reference.key
    );
    if let Needs::Met(versions) = &needs {
        inputs.push_str(versions);
    }
    let inputs = short_hash(&inputs);
    let lane = ctx.world.lane_of(&view.key);
    let others = ctx
        .world
        .repositories_of(&lane)
        .into_iter()
        .filter(|r| r.key != view.key);
    let shared_with = others.map(|r| r.key.to_string()).collect();
    let overlapping = ctx
        .world
        .repositories_that(|r| r.key != view.key && overlap(&view.spec, &r.spec));
    let overlaps = overlapping.iter().map(|r| r.key.to_string()).collect();
    let allowed_namespaces = view.allowed.as_ref().map(|allowed| {
        let n = ctx
            .world
            .count_namespaces(|name, ns| super::super::snapshot::allows(allowed, name, &ns.labels));
        u32::try_from(n).unwrap_or(u32::MAX)
    });
    Ok(Facts {
        bootstrap: job_fact(ctx, view.uid(), names::OP_BOOTSTRAP).await?,
        list: job_fact(ctx, view.uid(), names::OP_LIST).await?,
        maintenance: maintenance::of_repository(ctx, &view.key),
        view,
        place,
        secret: secret_fact,
        needs,
        inputs,
        shared_with,
        overlaps,
        allowed_namespaces,
    })
}

/// Whether two repositories lie in one bucket, one below the prefix of the other, and the outer one is Kopia's: it lists
/// by the beginning of names, and its maintenance deletes what it does not know. Not two over one place.
#[must_use]
pub fn overlap(one: &RepositorySpec, other: &RepositorySpec) -> bool {
    let (Some(a), Some(b)) = (&one.backend.s3, &other.backend.s3) else {
        return false;
    };
    let below = |outer: &RepositorySpec, prefix: &str, inner: &str| {
        let lists_by_beginning = match outer.engine {
            // What a newer release knows may do so.
            Engine::Kopia | Engine::Unknown => true,
            Engine::Restic => false,
        };
        let rest = inner.strip_prefix(prefix);
        lists_by_beginning && rest.is_some_and(|rest| !rest.trim_matches('/').is_empty())
    };
    a.bucket == b.bucket
        && a.endpoint == b.endpoint
        && (below(one, &a.prefix, &b.prefix) || below(other, &b.prefix, &a.prefix))
}
