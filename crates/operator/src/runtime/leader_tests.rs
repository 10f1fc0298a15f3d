use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const TICK: Duration = Duration::from_millis(40);

/// A Lease in memory that can be made to fail, to hang, or to be removed.
#[derive(Clone, Default)]
struct Memory(Arc<Shelf>);

#[derive(Default)]
struct Shelf {
    record: Mutex<Option<Record>>,
    versions: AtomicU64,
    hang: AtomicBool,
    fail: AtomicBool,
}

impl Memory {
    fn holder(&self) -> Option<String> {
        self.0
            .record
            .lock()
            .expect("lock")
            .as_ref()
            .and_then(|record| record.holder.clone())
    }

    async fn trouble(&self) -> Result<(), StoreError> {
        if self.0.hang.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.0.fail.load(Ordering::SeqCst) {
            return Err(StoreError::Other("connection refused".into()));
        }
        Ok(())
    }
}

impl LeaseStore for Memory {
    async fn get(&self) -> Result<Option<Record>, StoreError> {
        self.trouble().await?;
        Ok(self.0.record.lock().expect("lock").clone())
    }

    async fn put(&self, wanted: &Record) -> Result<Record, StoreError> {
        self.trouble().await?;
        let mut shelf = self.0.record.lock().expect("lock");
        if shelf.as_ref().and_then(|record| record.version.clone()) != wanted.version {
            return Err(StoreError::Conflict);
        }
        let version = self.0.versions.fetch_add(1, Ordering::SeqCst);
        let stored = Record {
            version: Some(version.to_string()),
            ..wanted.clone()
        };
        *shelf = Some(stored.clone());
        Ok(stored)
    }
}

fn settings() -> Settings {
    Settings::new(TICK * 40, TICK * 25, TICK, TICK).expect("safe")
}

struct Process {
    leadership: Leadership,
    end: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start(store: &Memory, me: &str) -> Process {
    let leadership = Leadership::standby();
    let end = CancellationToken::new();
    let task = tokio::spawn(run(
        store.clone(),
        me.to_owned(),
        settings(),
        leadership.clone(),
        end.clone(),
    ));
    Process {
        leadership,
        end,
        task,
    }
}

impl Process {
    async fn leads(&self) -> u64 {
        let mut changed = self.leadership.changed();
        let standing = tokio::time::timeout(
            Duration::from_secs(10),
            changed.wait_for(|standing| *standing != Standing::Standby),
        )
        .await
        .expect("leads in time")
        .expect("the handle lives");
        match *standing {
            Standing::Leader { term } => term,
            Standing::Standby => unreachable!("waited for it"),
        }
    }

    async fn stands_by(&self) {
        let mut changed = self.leadership.changed();
        tokio::time::timeout(
            Duration::from_secs(10),
            changed.wait_for(|standing| *standing == Standing::Standby),
        )
        .await
        .expect("steps down in time")
        .expect("the handle lives");
    }
}

#[tokio::test]
async fn a_graceful_end_hands_over_at_once_and_a_kill_after_the_duration() {
    let store = Memory::default();
    let first = start(&store, "first");
    assert_eq!(first.leads().await, 1);
    let second = start(&store, "second");
    tokio::time::sleep(settings().duration() * 2).await;
    assert!(
        first.leadership.is_leader() && !second.leadership.is_leader(),
        "never while it is renewed"
    );

    first.end.cancel();
    let released = Instant::now();
    first.task.await.expect("ended");
    assert!(!first.leadership.is_leader());
    second.leads().await;
    assert!(
        released.elapsed() < settings().duration() / 2,
        "took {:?}",
        released.elapsed()
    );

    second.task.abort(); // a kill: nothing is released
    let killed = Instant::now();
    let third = start(&store, "third");
    third.leads().await;
    assert!(
        killed.elapsed() >= settings().duration() - TICK * 2,
        "took {:?}",
        killed.elapsed()
    );
}

#[tokio::test]
async fn leadership_ends_by_our_own_clock_when_renewals_hang_or_fail_and_comes_back_as_another_term() {
    for hang in [true, false] {
        let store = Memory::default();
        let process = start(&store, "me");
        assert_eq!(process.leads().await, 1);
        let trouble = if hang { &store.0.hang } else { &store.0.fail };
        trouble.store(true, Ordering::SeqCst);
        let since = Instant::now();
        process.stands_by().await;
        assert_eq!(process.leadership.guard(), Err(NotLeader));
        assert!(
            since.elapsed() < settings().duration(),
            "before anybody else could take over"
        );
        trouble.store(false, Ordering::SeqCst);
        assert_eq!(process.leads().await, 2);
    }
}

#[tokio::test]
async fn one_hung_attempt_does_not_cost_the_lease() {
    let store = Memory::default();
    let process = start(&store, "me");
    process.leads().await;
    store.0.hang.store(true, Ordering::SeqCst);
    tokio::time::sleep(settings().attempt_timeout()).await;
    store.0.hang.store(false, Ordering::SeqCst);
    tokio::time::sleep(settings().renew_deadline() * 2).await;
    assert_eq!(
        *process.leadership.changed().borrow(),
        Standing::Leader { term: 1 }
    );
    assert!(process.leadership.is_leader());
}

#[tokio::test]
async fn a_conflict_with_another_holder_ends_the_leadership_at_once() {
    let store = Memory::default();
    let process = start(&store, "me");
    process.leads().await;
    {
        let mut shelf = store.0.record.lock().expect("lock");
        let record = shelf.as_mut().expect("held");
        record.holder = Some("other".into());
        record.version = Some("forced".into());
    }
    let since = Instant::now();
    process.stands_by().await;
    assert!(
        since.elapsed() < settings().renew_deadline() / 2,
        "took {:?}",
        since.elapsed()
    );
    assert_eq!(store.holder().as_deref(), Some("other"), "not overwritten");
}

#[tokio::test]
async fn of_many_candidates_one_leads() {
    let store = Memory::default();
    let all: Vec<Process> = (0..8).map(|n| start(&store, &format!("replica-{n}"))).collect();
    for _ in 0..50 {
        tokio::time::sleep(TICK).await;
        assert!(
            all.iter()
                .filter(|process| process.leadership.is_leader())
                .count()
                <= 1
        );
    }
    assert_eq!(
        all.iter()
            .filter(|process| process.leadership.is_leader())
            .count(),
        1
    );
}

#[tokio::test]
async fn the_holder_makes_a_removed_lease_anew_and_stays() {
    let store = Memory::default();
    let first = start(&store, "first");
    first.leads().await;
    let second = start(&store, "second");
    tokio::time::sleep(TICK * 5).await;
    *store.0.record.lock().expect("lock") = None;
    tokio::time::sleep(settings().duration()).await;
    assert_eq!(store.holder().as_deref(), Some("first"));
    assert!(!second.leadership.is_leader());
}

#[test]
fn identities_differ() {
    assert_ne!(identity("pod"), identity("pod"));
    assert!(identity("pod").starts_with("pod_"));
}

#[tokio::test(start_paused = true)]
async fn a_write_without_precondition_is_given_up_when_the_lease_runs_out() {
    let leadership = Leadership::new(
        Some(Instant::now() + Duration::from_secs(10)),
        Standing::Leader { term: 1 },
    );
    assert_eq!(leadership.fence(async { 1 }).await, Ok(1));
    let stuck = leadership.fence(std::future::pending::<()>()).await;
    assert_eq!(stuck, Err(NotLeader));
    leadership.lapse();
    assert_eq!(leadership.fence(async { 1 }).await, Err(NotLeader));
}
