//! The way to the cluster, with the caller's kubeconfig, and errors in words.

use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Config, Resource};
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::path::PathBuf;

use crate::failure::{Code, failure};

/// Where to look.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Namespace; otherwise the one of the context.
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,
    /// Kubeconfig file; otherwise $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; otherwise its current one.
    #[arg(long, global = true)]
    context: Option<String>,
}

/// A cluster to ask.
pub struct Connection {
    /// Asks it.
    pub client: Client,
    /// The namespace that was chosen.
    pub namespace: String,
}

impl Connection {
    /// Asks for each right in turn and fails with the sentence beside the first one that is missing. Where one may not
    /// even ask, the write itself is the question.
    ///
    /// # Errors
    /// The sentence, or that the API server could not be asked.
    pub async fn need(&self, rights: impl IntoIterator<Item = (ResourceAttributes, String)>) -> Result<()> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        for (right, missing) in rights {
            let review = SelfSubjectAccessReview {
                spec: SelfSubjectAccessReviewSpec {
                    resource_attributes: Some(right),
                    ..SelfSubjectAccessReviewSpec::default()
                },
                ..SelfSubjectAccessReview::default()
            };
            match api.create(&PostParams::default(), &review).await {
                Ok(answer) if answer.status.as_ref().is_some_and(|status| !status.allowed) => {
                    return Err(failure(Code::Forbidden, missing));
                }
                Ok(_) => {}
                Err(error) if Asked::forbidden(&error) => return Ok(()),
                Err(error) => {
                    let asked = Asked {
                        verb: "create",
                        plural: "selfsubjectaccessreviews",
                        name: None,
                        namespace: None,
                    };
                    return Err(asked.failed(error));
                }
            }
        }
        Ok(())
    }
}

impl Args {
    /// Reads the kubeconfig; nothing is sent yet.
    pub async fn connect(&self) -> Result<Connection> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path)
                    .with_context(|| format!("the kubeconfig {} cannot be used", path.display()))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await
            }
            None => Config::from_kubeconfig(&options).await,
        }
        .context(
            "no cluster to ask: name a kubeconfig with --kubeconfig, or a context of it with --context",
        )?;
        let namespace = self
            .namespace
            .clone()
            .unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).context("the kubeconfig describes no cluster that can be asked")?;
        Ok(Connection { client, namespace })
    }
}

/// The API of a namespaced kind; no namespace: in the whole cluster.
pub fn scoped<K>(connection: &Connection, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(connection.client.clone(), namespace),
        None => Api::all(connection.client.clone()),
    }
}

/// Every object, page by page.
pub async fn list<K>(api: &Api<K>) -> Result<Vec<K>, kube::Error>
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let mut all = Vec::new();
    let mut params = ListParams::default().limit(500);
    loop {
        let page = api.list(&params).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// What was asked for, to tell what went wrong.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// `get`, `list` or `patch`.
    pub verb: &'a str,
    /// Plural of the kind.
    pub plural: &'a str,
    /// The object, for `get`.
    pub name: Option<&'a str>,
    /// Where; none: in the whole cluster.
    pub namespace: Option<&'a str>,
}

impl Asked<'_> {
    fn place(&self) -> String {
        self.namespace.map_or_else(
            || "in the whole cluster".to_owned(),
            |n| format!("in namespace {n}"),
        )
    }

    fn is_of_the_ledger(&self) -> bool {
        ["artifacts", "backupstores"].contains(&self.plural)
    }

    /// Which right is missing, and which role carries it. What a policy refuses says so itself.
    fn forbids(&self, said: &str) -> String {
        let Self { verb, plural, .. } = self;
        let role = match (*verb, self.namespace) {
            _ if said.contains("ValidatingAdmissionPolicy") => said,
            _ if self.is_of_the_ledger() => {
                "ask for the right, the ClusterRole holdfast-accountant carries it"
            }
            ("get" | "list", Some(_)) => {
                "ask for the right, the ClusterRole view carries it, or choose another namespace with -n"
            }
            ("get" | "list", None) => "ask for the right, the ClusterRole holdfast-view carries it",
            _ if plural.ends_with("repositories") => {
                "ask for the right, the ClusterRole holdfast-approver carries it"
            }
            _ => "ask for the right, the ClusterRole edit carries it",
        };
        format!("you may not {verb} {plural} {}: {role}", self.place())
    }

    /// `error` in words.
    pub fn failed(&self, error: kube::Error) -> anyhow::Error {
        let Self { verb, plural, .. } = self;
        match (&error, self.name) {
            (kube::Error::Api(status), _) if status.code == 401 => anyhow!(
                "the cluster does not accept your credentials: {}; log in again or choose another context with --context",
                status.message
            ),
            (kube::Error::Api(status), _) if status.code == 403 => {
                failure(Code::Forbidden, self.forbids(&status.message))
            }
            (kube::Error::Api(status), Some(name))
                if status.code == 404 && status.message.contains(name) && self.is_of_the_ledger() =>
            {
                anyhow!(
                    "there is no {} {name}: `kubectl get {plural}` lists those there are",
                    plural.trim_end_matches('s'),
                )
            }
            (kube::Error::Api(status), Some(name)) if status.code == 404 && status.message.contains(name) => {
                anyhow!(
                    "there is no {} {name} {}: choose another namespace with -n; one that is gone was decided about, look at `kubectl get events`",
                    plural.trim_end_matches('s'),
                    self.place()
                )
            }
            (kube::Error::Api(status), _) if status.code == 404 && self.is_of_the_ledger() => anyhow!(
                "this cluster does not know {plural} of {}: Holdfast keeps no ledger of backup storage in it; install the chart with quota.accounting=true or choose another cluster with --context",
                holdfast_api::names::LEDGER_GROUP
            ),
            (kube::Error::Api(status), _) if status.code == 404 => anyhow!(
                "this cluster does not know {plural} of {}: Holdfast is not installed in it; install the chart or choose another cluster with --context",
                holdfast_api::names::API_VERSION
            ),
            (kube::Error::Api(status), _) => {
                anyhow!(
                    "the cluster refused to {verb} {plural} {}: {}",
                    self.place(),
                    status.message
                )
            }
            (error, _) => anyhow!(
                "the cluster could not be asked to {verb} {plural}: {}; see that it runs and that --kubeconfig and --context name it",
                innermost(error)
            ),
        }
    }

    /// Whether `error` only says that the caller lacks the right.
    pub fn forbidden(error: &kube::Error) -> bool {
        matches!(error, kube::Error::Api(status) if status.code == 403)
    }
}

/// The last cause of an error, which is the one that names the reason.
fn innermost(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    let mut boxed = error.source();
    while let Some(next) = boxed {
        cause = next;
        boxed = next.source();
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, "").with_code(code).boxed())
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let list = Asked {
            verb: "list",
            plural: "repositories",
            name: None,
            namespace: Some("a"),
        };
        let text = list.failed(api(403, "forbidden")).to_string();
        assert!(
            text.contains("may not list repositories in namespace a"),
            "{text}"
        );
        let text = list.failed(api(404, "page not found")).to_string();
        assert!(text.contains("not installed"), "{text}");
        let get = Asked {
            verb: "get",
            plural: "snapshots",
            name: Some("x"),
            namespace: Some("a"),
        };
        let text = get
            .failed(api(404, "snapshots.kopiur.home-operations.com \"x\" not found"))
            .to_string();
        assert!(text.contains("there is no snapshot x in namespace a"), "{text}");
        assert!(
            get.failed(api(401, "Unauthorized"))
                .to_string()
                .contains("log in")
        );
        assert!(Asked::forbidden(&api(403, "")) && !Asked::forbidden(&api(404, "")));
    }
}
