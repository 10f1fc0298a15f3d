//! What every controller is handed.

use crate::runtime::clock::Clock;
use crate::runtime::events::{Events, Published};
use crate::runtime::foreign::Foreign;
use crate::runtime::leader::{Leadership, NotLeader};
use crate::runtime::metrics::{ErrorClass, Metrics};
use crate::runtime::queue::Queue;
use crate::runtime::results::Results;
use crate::runtime::write::WriteError;
use crate::settings::Settings;
use crate::world::keys::{LaneKey, ObjectKey, RepositoryKey};
use crate::world::views::{RepositoryView, SnapshotView};
use crate::world::{Dirty, World};
use holdfast_api::{Maintenance, SnapshotPolicy, names};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::EventType;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// See the module.
pub struct Context {
    /// Client with the operator's rights.
    pub client: kube::Client,
    /// What is observed.
    pub world: Arc<World>,
    /// What the operator was told.
    pub settings: Settings,
    /// What time it is.
    pub clock: Clock,
    /// Whether this process may write.
    pub leadership: Leadership,
    /// Whether another manager of the API group is alive.
    pub foreign: Foreign,
    /// Tells people what happened.
    pub events: Events,
    /// Tells machines how much happened.
    pub metrics: Arc<Metrics>,
    /// Listings that movers post.
    pub results: Results,
    /// How movers reach the results port; `None` until the Service and the CA are known.
    pub endpoint: RwLock<Option<Endpoint>>,
    /// UID of the namespace `kube-system`.
    pub cluster: String,
    /// Who this process is in Leases; no other process has it.
    pub identity: String,
    /// The work queues.
    pub queues: Queues,
    /// Where mover Jobs pass one at a time.
    pub gates: Gates,
}

impl Context {
    /// A Warning event on a repository object.
    pub async fn warn_repository(&self, view: &RepositoryView, reason: &str, note: &str, action: &str) {
        self.event_repository(view, EventType::Warning, reason, note, action)
            .await;
    }

    /// An event on a repository object.
    pub async fn event_repository(
        &self,
        view: &RepositoryView,
        kind: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) {
        let about = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some(view.key.kind().to_owned()),
            name: Some(view.key.name().to_owned()),
            // Events about cluster-scoped objects go to `default`.
            namespace: view.key.namespace().map(str::to_owned),
            uid: view.metadata.uid.clone(),
            resource_version: view.metadata.resource_version.clone(),
            field_path: None,
        };
        let _ = self.events.publish(&about, kind, reason, note, action).await;
    }

    /// A Warning event on a policy.
    pub async fn warn_policy(&self, policy: &SnapshotPolicy, reason: &str, note: &str, action: &str) {
        self.event_policy(policy, EventType::Warning, reason, note, action)
            .await;
    }

    /// An event on a policy.
    pub async fn event_policy(
        &self,
        policy: &SnapshotPolicy,
        kind: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) {
        let meta = &policy.metadata;
        let about = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some("SnapshotPolicy".to_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: None,
        };
        let _ = self.events.publish(&about, kind, reason, note, action).await;
    }

    /// An event on a Maintenance.
    pub async fn event_maintenance(
        &self,
        view: &Maintenance,
        kind: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) {
        let about = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some("Maintenance".to_owned()),
            name: view.metadata.name.clone(),
            namespace: view.metadata.namespace.clone(),
            uid: view.metadata.uid.clone(),
            resource_version: view.metadata.resource_version.clone(),
            field_path: None,
        };
        let _ = self.events.publish(&about, kind, reason, note, action).await;
    }

    /// An event on a Snapshot; tells when its namespace takes no more events.
    pub async fn event_snapshot(
        &self,
        view: &SnapshotView,
        kind: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) -> Published {
        let about = ObjectReference {
            api_version: Some(names::API_VERSION.to_owned()),
            kind: Some("Snapshot".to_owned()),
            name: view.metadata.name.clone(),
            namespace: view.metadata.namespace.clone(),
            uid: view.metadata.uid.clone(),
            resource_version: view.metadata.resource_version.clone(),
            field_path: None,
        };
        self.events.publish(&about, kind, reason, note, action).await
    }
}

/// How movers reach the results port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `<ip>:<port>` of the Service.
    pub address: String,
    /// Name the certificate carries.
    pub server_name: String,
    /// CA bundle, PEM.
    pub ca: String,
}

/// All mover Jobs that must not meet are created through one of these (`docs/design.md` section 7).
#[derive(Default)]
pub struct Gates {
    /// Where a cap counts batch Jobs of all lanes.
    pub cap: Arc<tokio::sync::Mutex<()>>,
    lanes: std::sync::Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Gates {
    /// The gate at which delete batches and maintenance of one physical repository meet, whatever the engine. Taken before
    /// [`Gates::lane`], never after it.
    #[must_use]
    pub fn maintenance(&self, unique_id: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.lane(&format!("maintenance of {unique_id}"))
    }

    /// The gate of the physical repository of this unique id: batches and writers, where the engine minds.
    #[must_use]
    pub fn lane(&self, unique_id: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(unique_id.to_owned()).or_default())
    }
}

/// One queue per kind, one for all lanes keyed by lane.
pub struct Queues {
    /// Repositories of both kinds.
    pub repositories: Arc<Queue<RepositoryKey>>,
    /// Policies.
    pub policies: Arc<Queue<ObjectKey>>,
    /// Schedules.
    pub schedules: Arc<Queue<ObjectKey>>,
    /// Snapshots that are not being deleted.
    pub snapshots: Arc<Queue<ObjectKey>>,
    /// Restores.
    pub restores: Arc<Queue<ObjectKey>>,
    /// Maintenances.
    pub maintenances: Arc<Queue<ObjectKey>>,
    /// Lanes.
    pub lanes: Arc<Queue<LaneKey>>,
}

impl Queues {
    /// Empty queues.
    #[must_use]
    pub fn new() -> Self {
        Self {
            repositories: Queue::new(),
            policies: Queue::new(),
            schedules: Queue::new(),
            snapshots: Queue::new(),
            restores: Queue::new(),
            maintenances: Queue::new(),
            lanes: Queue::new(),
        }
    }

    /// Distributes dirty keys. What reads many objects waits a little, so that a wave of 700 events costs a few
    /// looks instead of 700.
    pub fn add(&self, dirty: BTreeSet<Dirty>) {
        for key in dirty {
            match key {
                Dirty::Repository(key) => self.repositories.add(key),
                Dirty::Policy(key) => self.policies.add_after(key, Duration::from_secs(1)),
                Dirty::Schedule(key) => self.schedules.add_after(key, Duration::from_millis(500)),
                Dirty::Snapshot(key) => self.snapshots.add(key),
                Dirty::Restore(key) => self.restores.add(key),
                Dirty::Maintenance(key) => self.maintenances.add_after(key, Duration::from_millis(200)),
                Dirty::Lane(key) => self.lanes.add_after(key, Duration::from_millis(200)),
            }
        }
    }
}

impl Default for Queues {
    fn default() -> Self {
        Self::new()
    }
}

/// Why a pass over an object ended early; the variant is the metric's label.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This process may not write.
    #[error("not the leader")]
    NotLeader,
    /// The object changed since it was judged.
    #[error("the object changed since it was judged; looking again")]
    Conflict,
    /// The API server refused or could not be reached.
    #[error("the API server answered: {0}")]
    Api(#[source] Box<kube::Error>),
    /// A Job could not be built.
    #[error(transparent)]
    Build(#[from] crate::jobs::build::BuildError),
}

impl Error {
    /// Class for the metric.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotLeader | Self::Conflict | Self::Api(_) => ErrorClass::Transient,
            Self::Build(_) => ErrorClass::Terminal,
        }
    }
}

impl Error {
    /// Whether the API server refused this one object, for good as far as one can tell (a webhook, a rule, a field):
    /// no reason to stop what concerns others.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Api(error) => matches!(
                error.as_ref(),
                kube::Error::Api(status) if (400..500).contains(&status.code)
                    && !matches!(status.code, 401 | 404 | 408 | 409 | 429)
            ),
            Self::NotLeader | Self::Conflict | Self::Build(_) => false,
        }
    }
}

impl From<NotLeader> for Error {
    fn from(_: NotLeader) -> Self {
        Self::NotLeader
    }
}

impl From<kube::Error> for Error {
    fn from(error: kube::Error) -> Self {
        Self::from(WriteError::from(error))
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Conflict | WriteError::Gone => Self::Conflict,
            WriteError::Api(error) => Self::Api(Box::new(error)),
        }
    }
}
