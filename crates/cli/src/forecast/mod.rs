//! `forecast delete`: what would be deleted, held and kept, before anyone deletes anything; `forecast retention`: what
//! a policy would prune ([`retention`]).
//!
//! **Promises.** The same code decides that would decide after the deletion: only the deletion itself is acted out
//! here ([`simulate`]). Nothing is changed in the cluster. What cannot be read is counted as unknown, and said.
//!
//! **Assumes.** kubectl's ordinary deletion (background). What other people do at the same time is not foreseen.

mod judge;
mod render;
mod retention;
mod simulate;
mod words;

use anyhow::Result;
use jiff::Timestamp;

pub use judge::{Forecast, after, forecast};
pub use words::{Judged, Outcome, to_release};

use crate::connect::Connection;
use crate::read;
use crate::style::Style;
use crate::target::Target;
use crate::waves::Output;

/// Arguments of `forecast`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What would be deleted, held and kept if this object were deleted now.
    Delete(Delete),
    /// What retention would prune and keep if a policy's pass began now, as the policy is or as it would be edited.
    Retention(retention::Args),
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// A snapshot, snapshotschedule, snapshotpolicy, repository, clusterrepository or namespace.
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Form of the output.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Namespace of the operator.
    #[arg(long, value_name = "NAMESPACE", default_value = holdfast_api::names::OPERATOR_NAMESPACE)]
    operator_namespace: String,
}

/// Runs `forecast`.
pub async fn run(connection: &Connection, args: &Args, style: Style) -> Result<String> {
    let args = match &args.what {
        What::Delete(args) => args,
        What::Retention(args) => return retention::run(connection, args, style).await,
    };
    let target = Target::parse(&args.object, &connection.namespace)?;
    let place = target.namespace().unwrap_or(&connection.namespace);
    let cluster = read::cluster(connection, place, &args.operator_namespace).await?;
    let found = forecast(cluster, &target, Timestamp::now())?;
    match args.output {
        Output::Table => Ok(render::table(&found, style)),
        Output::Json => render::json(&found),
    }
}

#[cfg(test)]
pub mod tests;
