//! What every step of the story shares: the cluster, the watch on Jobs, the telling and the final table.

use std::borrow::Cow;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use comfy_table::{CellAlignment, Table, presets};
use holdfast_api::names;
use holdfast_api::snapshot::Snapshot;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::{Lab, Look, count, until_every};
use kube::api::{Api, ListParams};

use crate::progress::{Step, say, seconds};

/// The repository's object and claim.
pub const VAULT: &str = "vault";
/// The Secret with its password.
pub const SECRET: &str = "vault-password";

/// The step that is shown now, if any.
#[derive(Clone, Default)]
pub struct Shown(Arc<Mutex<Option<Step>>>);

impl Shown {
    /// Shows `note` beside the current step.
    pub fn note(&self, note: &str) {
        if let Some(step) = self.lock().as_ref() {
            step.note(note);
        }
    }

    /// Shows the work `name` while `work` goes on.
    pub async fn during<T>(&self, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let step = Step::start(format!("   {name}"));
        drop(self.lock().replace(step));
        let outcome = work.await;
        drop(self.lock().take());
        outcome
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of the final table.
pub struct Row {
    /// Which step.
    pub what: Cow<'static, str>,
    /// Snapshot objects it is about.
    pub objects: usize,
    /// Jobs created for it.
    pub jobs: String,
    /// Most of them alive at once.
    pub most: String,
    /// How long it took.
    pub took: Duration,
    /// Snapshots in the repository before.
    pub before: u64,
    /// And after.
    pub after: u64,
}

/// What every step shares.
pub struct Stage {
    /// The cluster.
    pub lab: Lab,
    /// The demo's namespace.
    pub namespace: String,
    /// Sees every batch delete Job from the first second on.
    pub watch: Watch,
    /// The folder of our kubectl.
    pub kubectl: Option<PathBuf>,
    /// Objects of each set.
    pub objects: usize,
    /// Snapshots on the repository's volume when counted last.
    pub counted: u64,
    shown: Shown,
    rows: Vec<Row>,
    started: Instant,
}

impl Stage {
    /// An empty namespace, watched.
    pub async fn new(
        lab: Lab,
        namespace: &str,
        shown: Shown,
        kubectl: Option<PathBuf>,
        objects: usize,
    ) -> Result<Self> {
        lab.create(holdfast_e2e::objects::namespace(namespace, "demo"))
            .await?;
        let watch = Watch::start(&lab.client, namespace).await?;
        Ok(Self {
            lab,
            namespace: namespace.to_owned(),
            watch,
            kubectl,
            objects,
            counted: 0,
            shown,
            rows: Vec::new(),
            started: Instant::now(),
        })
    }

    /// Shows the work `name` while `work` goes on.
    pub async fn during<T>(&self, name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.shown.during(name, work).await
    }

    /// How many snapshots the repository's volume holds.
    pub async fn count(&mut self) -> Result<u64> {
        let work = count::files(&self.lab, &self.namespace, VAULT);
        let shown = "counting the snapshots on the repository's volume";
        self.counted = self.during(shown, work).await?;
        Ok(self.counted)
    }

    /// The same as the operator sees it.
    pub async fn scan(&self) -> Result<u64> {
        let work = count::scan(&self.lab, &self.namespace, VAULT);
        self.during("asking the operator for a listing", work).await
    }

    /// Both ways, which must agree.
    pub async fn count_both(&mut self) -> Result<u64> {
        let files = self.count().await?;
        let scan = self.scan().await?;
        ensure!(
            files == scan,
            "the repository's volume holds {files} snapshots, the operator's listing {scan}"
        );
        Ok(files)
    }

    /// Adds a line to the final table.
    pub fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// The end: both counts once more, and the table.
    pub async fn close(mut self) -> Result<()> {
        let last = self.count_both().await?;
        let rows = rediscovered(&self.lab, &self.namespace, self.objects);
        let rows = self
            .during("waiting until what was kept is seen again", rows)
            .await?;
        say(format!(
            "\n   What step b kept is seen again: the catalog made {rows} Snapshots with origin discovered; deleting those deletes no data."
        ));
        ensure!(
            self.watch.most() <= 1,
            "{} batch delete Jobs were alive at once on the repository",
            self.watch.most()
        );
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header([
            "step",
            "objects",
            "Jobs created",
            "most at once",
            "seconds",
            "snapshots before",
            "after",
        ]);
        for row in &self.rows {
            table.add_row([
                row.what.to_string(),
                row.objects.to_string(),
                row.jobs.clone(),
                row.most.clone(),
                format!("{:.0}", row.took.as_secs_f64()),
                row.before.to_string(),
                row.after.to_string(),
            ]);
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        say(format!("\n{table}"));
        let again = match self.watch.interruptions() {
            0 => String::new(),
            n => format!("; the watch on Jobs had to start again {n} times"),
        };
        say(format!(
            "   At the end the repository holds {last} snapshots, on its volume and in the operator's listing; {} batch delete Jobs ever existed, never two at once{again}. The story took {}.",
            self.watch.all().len(),
            seconds(self.started.elapsed())
        ));
        Ok(())
    }
}

/// Waits until the catalog shows everything that was kept in step b, and nothing else.
async fn rediscovered(lab: &Lab, namespace: &str, many: usize) -> Result<usize> {
    let api: Api<Snapshot> = lab.api(namespace);
    let rows = ListParams::default().labels(&format!("{}=discovered", names::ORIGIN_LABEL));
    let what = "what was kept to be seen again";
    until_every(Duration::from_secs(1), what, Duration::from_secs(120), || async {
        let there = api.list_metadata(&rows).await?.items.len();
        lab.note(format!("{there} of {many}"));
        Ok(if there == many {
            Look::Done(there)
        } else {
            Look::Not(format!(
                "{there} Snapshots with origin discovered, {many} were kept"
            ))
        })
    })
    .await
}
