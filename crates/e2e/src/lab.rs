//! A cluster with Holdfast in it.
//!
//! **Promises.** Nothing is guessed: the mover's image is the one that the installed operator uses.

use anyhow::{Context, Result};
use holdfast_api::names;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::gvk::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, Config, Resource};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Name of the operator's Deployment as the chart installs it.
pub const DEPLOYMENT: &str = "holdfast-operator";
/// The image with a shell that the local cluster's node has.
pub const TOOLS_IMAGE: &str = "localhost/holdfast-busybox:dev";

/// Told how far a long step is.
pub type Note = Arc<dyn Fn(&str) + Send + Sync>;

/// A cluster with Holdfast in it.
#[derive(Clone)]
pub struct Lab {
    /// An administrator's client.
    pub client: Client,
    /// Where its kubeconfig is.
    pub kubeconfig: PathBuf,
    /// UID of `kube-system`: which cluster this is.
    pub cluster: String,
    /// The mover's image, as the operator uses it.
    pub mover_image: String,
    /// An image with a shell.
    pub tools_image: String,
    note: Note,
}

impl Lab {
    /// Opens the cluster of `kubeconfig`.
    ///
    /// # Errors
    /// When it does not answer, or Holdfast is not installed in it.
    pub async fn open(kubeconfig: &Path, tools_image: &str) -> Result<Self> {
        // Another part of the process may have done so already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("the kubeconfig {} cannot be read", kubeconfig.display()))?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let client = Client::try_from(config)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let system = namespaces
            .get("kube-system")
            .await
            .with_context(|| format!("the cluster of {} does not answer", kubeconfig.display()))?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::OPERATOR_NAMESPACE);
        let deployment = deployments.get(DEPLOYMENT).await.with_context(|| {
            format!(
                "Holdfast is not installed in the cluster of {}: run `cargo xtask deploy`",
                kubeconfig.display()
            )
        })?;
        let mover_image = deployment
            .spec
            .and_then(|s| s.template.spec)
            .into_iter()
            .flat_map(|pod| pod.containers)
            .flat_map(|container| container.env.unwrap_or_default())
            .find(|variable| variable.name == "HOLDFAST_MOVER_IMAGE")
            .and_then(|variable| variable.value)
            .context("the operator's Deployment names no HOLDFAST_MOVER_IMAGE")?;
        Ok(Self {
            client,
            kubeconfig: kubeconfig.to_path_buf(),
            cluster: system.metadata.uid.unwrap_or_default(),
            mover_image,
            tools_image: tools_image.to_owned(),
            note: Arc::new(|_| {}),
        })
    }

    /// The cluster for tests: of `HOLDFAST_E2E_KUBECONFIG`, else the checkout's own. None: there is none, and
    /// standard error says that the test was skipped.
    ///
    /// # Errors
    /// When there is a kubeconfig and its cluster cannot be used.
    pub async fn for_test(test: &str) -> Result<Option<Self>> {
        let kubeconfig = match std::env::var_os("HOLDFAST_E2E_KUBECONFIG").filter(|v| !v.is_empty()) {
            Some(path) => PathBuf::from(path),
            None => {
                let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/cluster/kubeconfig");
                if !own.exists() {
                    eprintln!(
                        "skipped: {test}: no cluster; run `cargo xtask cluster up` and `cargo xtask deploy`, or set HOLDFAST_E2E_KUBECONFIG"
                    );
                    return Ok(None);
                }
                own
            }
        };
        let tools = std::env::var("HOLDFAST_E2E_TOOLS_IMAGE").unwrap_or_else(|_| TOOLS_IMAGE.to_owned());
        Self::open(&kubeconfig, &tools).await.map(Some)
    }

    /// The same cluster through a client of its own: no connection is shared with another one.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read any more.
    pub async fn another_client(&self) -> Result<Self> {
        let file = Kubeconfig::read_from(&self.kubeconfig)?;
        let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(Self {
            client: Client::try_from(config)?,
            ..self.clone()
        })
    }

    /// The same, telling `note` how far long steps are.
    #[must_use]
    pub fn heard_by(mut self, note: Note) -> Self {
        self.note = note;
        self
    }

    /// Tells how far a long step is.
    pub fn note(&self, text: impl AsRef<str>) {
        (self.note)(text.as_ref());
    }

    /// Creates an object of any kind; the API server's refusal is the error.
    ///
    /// # Errors
    /// What the API server says.
    pub async fn create(&self, object: Value) -> Result<DynamicObject, kube::Error> {
        self.post(object, false).await
    }

    /// What the API server says against creating an object; none if nothing. Nothing is created.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn refusal(&self, object: Value) -> Result<Option<String>, kube::Error> {
        match self.post(object, true).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if (400..500).contains(&status.code) => {
                Ok(Some(status.message.clone()))
            }
            Err(error) => Err(error),
        }
    }

    async fn post(&self, object: Value, dry_run: bool) -> Result<DynamicObject, kube::Error> {
        let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        let types = object.types.clone().unwrap_or_default();
        let (group, version) = types
            .api_version
            .split_once('/')
            .unwrap_or(("", types.api_version.as_str()));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let params = PostParams {
            dry_run,
            ..PostParams::default()
        };
        api.create(&params, &object).await
    }

    /// The API of a namespaced kind.
    #[must_use]
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }
}
