//! What protects data, on a real cluster: a file for each promise. All of it runs at once, each scenario in
//! namespaces of its own; nothing here changes what others see.

mod a_batch_has_the_repository_to_itself;
mod a_batch_that_cannot_start_stops_no_backup;
mod a_read_only_repository_releases_nothing;
mod a_replaced_schedule_has_gone;
mod a_rescue_fires_nothing;
mod a_run_that_is_deleted_is_stopped_and_read;
mod a_tightening_edit_wins;
mod a_torn_down_namespace_deletes_when_asked;
mod an_acknowledgement_covers_what_is_not_after_it;
mod an_orphaned_schedule_decides_nothing;
mod deletes_one;
mod holds_a_wave;
mod keeps_on_schedule_delete;
mod namespace_teardown;
mod policy_deleted;
mod pruning_goes_on_while_a_wave_is_held;
mod rediscovers_what_was_kept;
mod what_goes_before_its_snapshots;

use anyhow::Result;
use holdfast_e2e::jobs::Watch;
use holdfast_e2e::{Lab, Scenario};

/// Runs a scenario in a namespace with a repository, watched for batch Jobs. If it fails, the namespace stays to be
/// looked at.
async fn with(
    name: &str,
    threshold: Option<u32>,
    scene: impl AsyncFnOnce(&Scenario, &Watch) -> Result<()>,
) -> Result<()> {
    let Some(lab) = Lab::for_test(name).await? else {
        return Ok(());
    };
    let scenario = Scenario::with_repository(&lab, name, threshold).await?;
    let watch = Watch::start(&lab.client, &scenario.namespace).await?;
    scene(&scenario, &watch).await?;
    scenario.end().await
}
