//! What Account is told at start (`docs/design.md` 4.4: visibility and enforcement are two switches).

use std::collections::BTreeSet;
use std::time::Duration;

/// Flags of Account, each also an environment variable.
#[derive(Debug, Clone, clap::Args)]
pub struct QuotaArgs {
    /// Keeps the ledger of backup storage and publishes its figures in ResourceQuotas.
    #[arg(long = "quota-accounting", env = "HOLDFAST_QUOTA_ACCOUNTING", default_value_t = false, action = clap::ArgAction::Set)]
    pub accounting: bool,
    /// Refuses BackupJobs above the limits. Needs the accounting.
    #[arg(long = "quota-enforcement", env = "HOLDFAST_QUOTA_ENFORCEMENT", default_value_t = false, action = clap::ArgAction::Set)]
    pub enforcement: bool,
    /// Touches a Plan whose run was refused when room appears while its tick is still due: one annotation.
    #[arg(long = "quota-touch-plans", env = "HOLDFAST_QUOTA_TOUCH_PLANS", default_value_t = true, action = clap::ArgAction::Set)]
    pub touch_plans: bool,
    /// API groups of strategies besides `strategy.backups.cozystack.io`, whose objects may declare what their drivers
    /// do; joined by commas.
    #[arg(
        long = "quota-strategy-groups",
        env = "HOLDFAST_QUOTA_STRATEGY_GROUPS",
        value_delimiter = ','
    )]
    pub strategy_groups: Vec<String>,
}

impl QuotaArgs {
    /// Whether anything of Account is on. With nothing on, nothing of it is watched or written.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.accounting || self.enforcement
    }
}

/// What the controllers of Account are told.
#[derive(Debug, Clone)]
pub struct AccountSettings {
    /// The operator's namespace.
    pub namespace: String,
    /// Name of this pod.
    pub pod_name: String,
    /// Objects of one kind worked on at once.
    pub concurrency: usize,
    /// Reads first lists as streams.
    pub streaming_lists: bool,
    /// Groups of strategies.
    pub strategy_groups: BTreeSet<String>,
    /// How long changes of a namespace's figures are collected before they are written.
    pub debounce: Duration,
}

impl AccountSettings {
    /// From what the operator is told.
    #[must_use]
    pub fn of(settings: &crate::settings::Settings) -> Self {
        let own = [holdfast_api::names::STRATEGY_GROUP.to_owned()];
        let more = settings.quota.strategy_groups.iter();
        Self {
            namespace: settings.namespace.clone(),
            pod_name: settings.pod_name.clone(),
            concurrency: settings.reconcile_concurrency.max(1),
            streaming_lists: settings.streaming_lists,
            strategy_groups: more
                .filter(|group| !group.is_empty())
                .cloned()
                .chain(own)
                .collect(),
            debounce: Duration::from_secs(1),
        }
    }
}
