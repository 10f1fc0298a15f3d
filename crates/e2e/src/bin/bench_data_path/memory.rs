//! What processes hold, looked at from outside a few times a second: their resident memory, without the files that the
//! kernel keeps for them and gives up when it needs the room.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const PACE: Duration = Duration::from_millis(50);

/// The most that was held, and how long it ran.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    /// From its start to its end.
    pub seconds: f64,
    /// All its processes together.
    pub mebibytes: f64,
}

impl Peak {
    /// As it is printed.
    pub fn json(self) -> Value {
        json!({ "seconds": self.seconds, "peakMebibytes": self.mebibytes })
    }
}

/// Looks on until it is ended.
pub struct Watch {
    over: Arc<AtomicBool>,
    looks: JoinHandle<u64>,
}

impl Watch {
    /// At every process of a container, by the runtime's id.
    pub fn container(id: String) -> Self {
        Self::start(move || of_container(&id))
    }

    /// At one process.
    pub fn process(id: u32) -> Self {
        Self::start(move || vec![id])
    }

    fn start(processes: impl Fn() -> Vec<u32> + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let looks = std::thread::spawn(move || {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(processes().into_iter().filter_map(resident).sum());
                std::thread::sleep(PACE);
            }
            most
        });
        Self { over, looks }
    }

    /// The most that it held, in MiB.
    ///
    /// # Errors
    /// When it was never seen.
    pub fn end(self) -> Result<f64> {
        self.over.store(true, Ordering::Relaxed);
        let most = self.looks.join().unwrap_or(0);
        ensure!(
            most > 0,
            "no process of it was seen: does the cluster run on this machine?"
        );
        Ok(most as f64 / 1024.0)
    }
}

/// Kibibytes of a process that are in memory and are no file's.
fn resident(id: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The processes of a container: the kernel's group of each is named after it.
fn of_container(container: &str) -> Vec<u32> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|id: &u32| {
            let groups = fs::read_to_string(format!("/proc/{id}/cgroup")).unwrap_or_default();
            groups.contains(container)
        })
        .collect()
}
