//! The end of a leader: what it admitted is handed over.
//!
//! **Promises.** A leader that ends in good order answers nothing more and waits until everything it admitted is in the
//! ledger. Only then may it release its Lease, and the next leader need not wait. One that cannot leaves its Lease to
//! grow old, which tells the next leader to be careful.

use super::Gate;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl Gate {
    /// Stops answering and waits at most `patience`; answers whether nothing is left to hand over.
    pub async fn close(&self, patience: Duration) -> bool {
        self.closed.store(true, Ordering::Release);
        let began = Instant::now();
        loop {
            let left = self.settle_recorded();
            if left == 0 {
                return true;
            }
            if began.elapsed() >= patience {
                tracing::warn!(
                    left,
                    "BackupJobs were admitted that are not in the ledger yet; the next leader waits before it admits"
                );
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Settles what is in the ledger; answers how many reservations are left.
    pub fn settle_recorded(&self) -> usize {
        let mut desk = self.desk();
        let all = desk.all().map(|one| one.uid.clone()).collect();
        self.settle(&mut desk, all);
        self.count.reserved(desk.len());
        desk.len()
    }
}
