//! A random history: whatever happens in whatever order, what is published is what a count from scratch gives.

use super::lab::{COUNT, SIZE};
use super::office::Tenant;
use holdfast_core::quota::amount;
use kube::api::DeleteParams;
use serde_json::json;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Small and good enough to choose from; the seed is printed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).expect("few")).expect("fits")
    }
}

/// Case ledger 23. Backups come and go under few names and addresses, jobs run and fail, claims change, and the operator
/// is ended in the middle. The model counts an address once, at the largest size that was ever claimed of it.
#[tokio::test]
async fn after_any_history_the_figures_are_what_a_count_from_scratch_gives() {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let Some(tenant) = Tenant::alone("history").await else {
        return;
    };
    tenant.quota().await;
    let seed = RandomState::new().build_hasher().finish() | 1;
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let mut live: BTreeMap<String, usize> = BTreeMap::new();
    let mut charged: BTreeMap<usize, i64> = BTreeMap::new();
    let mut jobs = 0;
    let (mut stopped, mut restarts) = (false, 0);
    for step in 0..150 {
        match dice.roll(12) {
            0..=4 => {
                let name = format!("backup-{}", dice.roll(12));
                if let Entry::Vacant(free) = live.entry(name.clone()) {
                    let (address, size) = (dice.roll(8), i64::try_from(dice.roll(50)).expect("small") + 1);
                    let uri = tenant.uri(&format!("address-{address}"));
                    tenant
                        .backup(&name, super::office::ETCD, Some(&uri), Some(size << 20))
                        .await;
                    free.insert(address);
                    let largest = charged.entry(address).or_insert(size);
                    *largest = size.max(*largest);
                }
            }
            5..=7 => {
                let names: Vec<String> = live.keys().cloned().collect();
                if !names.is_empty() {
                    let name = &names[dice.roll(names.len())];
                    // What lived and died while nobody looked leaves no trace to count.
                    if !stopped {
                        settle(&tenant).await;
                        tenant.delete_backup(name).await;
                        live.remove(name);
                    }
                }
            }
            8 | 9 => {
                jobs += 1;
                let name = format!("job-{jobs}");
                tenant.job(&name).await;
                match dice.roll(3) {
                    0 => tenant.job_status(&name, json!({ "phase": "Failed" })).await,
                    1 => drop(
                        tenant
                            .jobs()
                            .delete(&name, &DeleteParams::default())
                            .await
                            .expect("deleted"),
                    ),
                    _ => tenant.job_status(&name, json!({ "phase": "Running" })).await,
                }
            }
            _ => {
                if stopped {
                    tenant.office.start();
                } else {
                    tenant.office.stop();
                    restarts += 1;
                }
                stopped = !stopped;
            }
        }
        if step % 50 == 49 && !stopped {
            check(&tenant, &charged).await;
        }
    }
    if stopped {
        tenant.office.start();
    }
    check(&tenant, &charged).await;
    println!(
        "150 steps, {} addresses, {jobs} jobs, {restarts} restarts",
        charged.len()
    );
    tenant.end().await;
}

async fn settle(tenant: &Tenant) {
    let account = tenant.office.account();
    tenant
        .lab
        .until("everything to be recorded", async || {
            account.world.is_complete() && account.arrears.has_looked() && account.arrears.is_empty()
        })
        .await;
}

async fn check(tenant: &Tenant, charged: &BTreeMap<usize, i64>) {
    let size = amount::bytes(charged.values().sum::<i64>() << 20);
    let expected = [(SIZE, size.as_str()), (COUNT, &charged.len().to_string())];
    tenant.lab.until_used("cap", &expected).await;
    settle(tenant).await;
    tenant.assert_recount().await;
}
