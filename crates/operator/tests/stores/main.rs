//! Listing a real S3 server, in this process, into a ledger: what `docs/design.md` 4.5 promises of it.
//!
//! The server is the stand-in of the demo, over a folder; archives are files in it.

mod scripted;

use holdfast_api::ledger::scope::{place, scope};
use holdfast_api::ledger::{BackupStore, BackupStoreSpec};
use holdfast_core::quota::capability::{CAREFUL, DeclaredBy, InForce};
use holdfast_core::quota::enumerate::{HeldReason, Outcome, judge, waiting};
use holdfast_core::quota::record::{Application, BackupEntry, Reason, Record, Size, Subject, Times};
use holdfast_core::quota::{Change, Identity, Ledger, Location, State, StrategyKind, Thing};
use holdfast_operator::account::enumerate::bucket::{Bucket, Keys, Page, Pages};
use holdfast_operator::account::enumerate::reason::{StoreReason, Trouble};
use holdfast_operator::account::enumerate::walk::{Step, Walk};
use jiff::Timestamp;
use scripted::{PAGE, Scripted};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

const BUCKET: &str = "shared-archive";
const TENANT: &str = "tenant-a";

/// A server with one bucket, gone when this is dropped.
struct Server {
    folder: PathBuf,
    endpoint: String,
    _thread: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Server {
    async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("holdfast-stores-{}-{number}", std::process::id()));
        std::fs::create_dir_all(folder.join(BUCKET)).expect("a folder");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let served = folder.clone();
        let thread = tokio::spawn(async move {
            let ended = holdfast_standin::s3::serve(listener, &served, "id", "secret").await;
            panic!("the server ended: {ended:?}");
        });
        Self {
            folder,
            endpoint,
            _thread: thread,
        }
    }

    fn put(&self, key: &str, bytes: usize) {
        let path = self.folder.join(BUCKET).join(key);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, vec![7_u8; bytes]).expect("written");
    }

    fn prune(&self, key: &str) {
        std::fs::remove_file(self.folder.join(BUCKET).join(key)).expect("it was there");
    }

    fn store(&self) -> BackupStore {
        store_at(&self.endpoint)
    }

    fn bucket(&self) -> Bucket {
        self.signed_in_with("secret")
    }

    fn signed_in_with(&self, secret: &str) -> Bucket {
        signed_in_with(&self.store(), secret)
    }
}

fn store_at(endpoint: &str) -> BackupStore {
    let spec: BackupStoreSpec = serde_json::from_value(json!({
        "bucket": BUCKET, "endpoint": endpoint, "credentials": { "name": "keys" },
        "layout": { "path": "{namespace}/{artifact...}" },
    }))
    .expect("a spec");
    BackupStore::new("shared", spec)
}

fn signed_in_with(store: &BackupStore, secret: &str) -> Bucket {
    let keys = Keys {
        id: "id".to_owned(),
        secret: secret.to_owned(),
    };
    Bucket::open(&store.spec, keys, None).expect("a client")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// A record of something that has a Backup and whose size nobody knows.
fn record(name: &str, key: &str) -> Record {
    Record {
        name: name.to_owned(),
        subject: Subject::Artifact(Identity {
            namespace: TENANT.to_owned(),
            strategy: StrategyKind {
                group: "strategy.backups.cozystack.io".to_owned(),
                kind: "MongoDB".to_owned(),
            },
            thing: Thing::At(Location {
                place: place(BUCKET),
                key: key.to_owned(),
            }),
        }),
        state: State::Attributed,
        reason: Reason::BackupSeen,
        size: Size::UNKNOWN,
        in_force: InForce {
            capabilities: CAREFUL,
            from: DeclaredBy::Unknown,
        },
        backups: BTreeMap::from([(
            format!("uid-{name}"),
            BackupEntry {
                name: name.to_owned(),
                created_at: Some(at(1)),
                claimed: None,
            },
        )]),
        application: Application::default(),
        job: None,
        namespace_uid: None,
        shared_across_namespaces: false,
        written_off_by: None,
        times: Times {
            recorded_at: Some(at(1)),
            attributed_at: Some(at(1)),
            last_backup_at: Some(at(1)),
            ..Times::default()
        },
        listing: None,
    }
}

fn begin(server: &Server, ledger: &Ledger, second: i64) -> Walk {
    let scope = scope(&server.store()).expect("a scope");
    Walk::begin(ledger, scope, at(second))
}

/// One listing to its end, and what it leads to, applied.
async fn listing(server: &Server, ledger: &mut Ledger, second: i64) -> (Outcome, BTreeMap<String, i64>) {
    let bucket = server.bucket();
    let mut walk = begin(server, ledger, second);
    while walk.step(&bucket).await.expect("a page") == Step::More {}
    let complete = walk.finish(at(second + 1));
    let outcome = judge(ledger, &complete, at(second + 2));
    for change in &outcome.changes {
        ledger.apply(change);
    }
    let unaccounted = complete.unaccounted.iter();
    let unaccounted = unaccounted
        .map(|(namespace, sum)| (namespace.clone(), sum.bytes))
        .collect();
    (outcome, unaccounted)
}

fn ledger(records: impl IntoIterator<Item = Record>) -> Ledger {
    Ledger::of(records)
}

#[tokio::test]
async fn what_drivers_left_unsized_is_measured_and_the_rest_is_unaccounted() {
    let server = Server::start().await;
    server.put("tenant-a/one.db", 100);
    // A folder is an artifact of several objects.
    server.put("tenant-a/two/part-1", 30);
    server.put("tenant-a/two/part-2", 12);
    server.put("tenant-a/left-behind", 5);
    server.put("tenant-b/by-hand", 6);
    server.put("at-the-top", 1);
    let mut ledger = ledger([record("one", "tenant-a/one.db"), record("two", "tenant-a/two")]);
    let (outcome, unaccounted) = listing(&server, &mut ledger, 100).await;
    assert_eq!(outcome.held, None);
    assert_eq!(ledger.get("one").expect("there").size, Size::measured(100));
    assert_eq!(ledger.get("two").expect("there").size, Size::measured(42));
    assert_eq!(ledger.figures(TENANT).used_size(), 142);
    let expected = [("", 1), (TENANT, 5), ("tenant-b", 6)].map(|(name, bytes)| (name.to_owned(), bytes));
    assert_eq!(unaccounted, BTreeMap::from(expected));
    let (again, _) = listing(&server, &mut ledger, 200).await;
    assert_eq!(again.changes, [], "nothing is written about what is as it was");
}

#[tokio::test]
async fn what_was_pruned_is_released_after_two_complete_listings_and_not_after_one() {
    let server = Server::start().await;
    server.put("tenant-a/one.db", 10);
    server.put("tenant-a/two.db", 100);
    let mut ledger = ledger([record("one", "tenant-a/one.db"), record("two", "tenant-a/two.db")]);
    listing(&server, &mut ledger, 100).await;
    server.prune("tenant-a/one.db");
    listing(&server, &mut ledger, 200).await;
    assert_eq!(ledger.get("one").expect("there").state, State::Attributed);
    assert_eq!(ledger.figures(TENANT).used_size(), 110);
    listing(&server, &mut ledger, 300).await;
    let one = ledger.get("one").expect("there");
    assert_eq!((one.state, one.reason), (State::Released, Reason::NoLongerListed));
    assert_eq!(ledger.figures(TENANT).used_size(), 100);
}

#[tokio::test]
async fn half_the_bytes_or_more_than_ten_records_wait_for_an_administrator() {
    let server = Server::start().await;
    server.put("tenant-a/large", 1000);
    server.put("tenant-a/small", 10);
    let mut half = ledger([
        record("large", "tenant-a/large"),
        record("small", "tenant-a/small"),
    ]);
    let many = (0..12).map(|number| record(&format!("r{number}"), &format!("tenant-a/many/{number}")));
    let mut many = ledger(many.chain([record("large", "tenant-a/large")]));
    for number in 0..12 {
        server.put(&format!("tenant-a/many/{number}"), 1);
    }
    listing(&server, &mut many, 100).await;
    listing(&server, &mut half, 100).await;
    for number in 0..12 {
        server.prune(&format!("tenant-a/many/{number}"));
    }
    for second in [200, 300] {
        let (outcome, _) = listing(&server, &mut many, second).await;
        let held = outcome.held.map(|held| (held.reason, held.names.len()));
        assert_eq!(held, (second == 300).then_some((HeldReason::ManyRecords, 12)));
    }
    assert_eq!(many.figures(TENANT).used_count(), 13);
    server.prune("tenant-a/large");
    for second in [200, 300] {
        let (outcome, _) = listing(&server, &mut half, second).await;
        let held = outcome.held.map(|held| held.reason);
        assert_eq!(held, (second == 300).then_some(HeldReason::HalfTheBytes));
    }
    assert_eq!(half.figures(TENANT).used_size(), 1010);
    // What waits is found again from the records alone, as the approval and the CLI do.
    let scope = scope(&server.store()).expect("a scope");
    assert_eq!(waiting(&half, &scope).expect("it waits").names, ["large"]);
}

/// A server that breaks off after some pages.
struct Breaking<'a> {
    bucket: &'a Bucket,
    good: AtomicUsize,
}

impl Pages for Breaking<'_> {
    async fn page(&self, prefix: &str, token: Option<String>) -> Result<Page, String> {
        let before = self
            .good
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |good| good.checked_sub(1));
        match before {
            Ok(_) => self.bucket.page(prefix, token).await,
            Err(_) => Err("connection reset".to_owned()),
        }
    }
}

#[tokio::test]
async fn a_listing_that_breaks_off_changes_nothing_and_goes_on_where_it_was() {
    let server = Server::start().await;
    // More than a page.
    for number in 0..1_500 {
        server.put(&format!("tenant-a/{number:05}"), 1);
    }
    server.put("tenant-a/last", 9);
    let before = ledger([record("first", "tenant-a/00000"), record("last", "tenant-a/last")]);
    let bucket = server.bucket();
    let breaking = Breaking {
        bucket: &bucket,
        good: AtomicUsize::new(1),
    };
    let mut walk = begin(&server, &before, 100);
    assert_eq!(walk.step(&breaking).await, Ok(Step::More));
    let halfway = walk.progress();
    assert_eq!(halfway.objects, 1_000);
    let trouble = walk.step(&breaking).await.expect_err("it broke off");
    assert_eq!(trouble.reason, StoreReason::ListingFailed);
    assert!(trouble.message.contains("connection reset"), "{trouble}");
    assert_eq!(walk.progress(), halfway, "what was not whole is not counted");
    assert_eq!(walk.last_key.as_deref(), Some("tenant-a/00999"));
    // The same walk goes on: nothing is counted twice.
    assert_eq!(walk.step(&bucket).await, Ok(Step::End));
    let complete = walk.finish(at(101));
    assert_eq!((complete.all.objects, complete.all.bytes), (1_501, 1_509));
    assert_eq!(complete.found.len(), 2);
}

#[tokio::test]
async fn wrong_keys_are_an_error_and_never_an_empty_bucket() {
    let server = Server::start().await;
    server.put("tenant-a/one.db", 10);
    let mut walk = begin(&server, &Ledger::default(), 100);
    let trouble = walk
        .step(&server.signed_in_with("hunter2"))
        .await
        .expect_err("they are wrong");
    assert_eq!(trouble.reason, StoreReason::ListingFailed);
    assert!(!trouble.message.contains("hunter2"), "{trouble}");
    assert_eq!(walk.progress().objects, 0);
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_an_error() {
    let server = Server::start().await;
    std::fs::remove_dir_all(server.folder.join(BUCKET)).expect("removed");
    let mut walk = begin(&server, &Ledger::default(), 100);
    let trouble = walk.step(&server.bucket()).await.expect_err("nothing to list");
    assert_eq!(trouble.reason, StoreReason::ListingFailed);
}

#[tokio::test]
async fn a_server_that_does_not_tell_of_versions_is_not_taken_for_one_without() {
    let server = Server::start().await;
    assert_eq!(server.bucket().is_versioned().await, None);
}

#[tokio::test]
async fn a_bucket_that_keeps_or_has_kept_versions_is_noticed_and_a_refusal_is_no_answer() {
    let server = Scripted::start(0, |_| String::new()).await;
    let bucket = signed_in_with(&store_at(&server.endpoint), "secret");
    assert_eq!(bucket.is_versioned().await, Some(false));
    for (status, versioned) in [
        ("Enabled", Some(true)),
        ("Suspended", Some(true)),
        ("Dreaming", None),
    ] {
        server.with(|script| script.versions(Some(status)));
        assert_eq!(bucket.is_versioned().await, versioned, "{status}");
    }
    server.with(|script| script.forbid_versions());
    assert_eq!(bucket.is_versioned().await, None);
    server.with(|script| script.versioning = (200, "<html>Welcome</html>".to_owned()));
    assert_eq!(bucket.is_versioned().await, None);
}

/// Knows the largest page that was held.
struct Counting<'a> {
    bucket: &'a Bucket,
    largest: AtomicUsize,
}

impl Pages for Counting<'_> {
    async fn page(&self, prefix: &str, token: Option<String>) -> Result<Page, String> {
        let page = self.bucket.page(prefix, token).await?;
        self.largest.fetch_max(page.objects.len(), Ordering::Relaxed);
        Ok(page)
    }
}

/// What a listing holds is one page and its sums: those grow with records and namespaces, not with objects.
#[tokio::test]
async fn two_hundred_thousand_keys_are_listed_page_by_page_and_what_is_held_does_not_grow() {
    const KEYS: usize = 200_000;
    let key = |number: usize| format!("tenant-{}/control/nightly-{number:06}.db", number % 10);
    let server = Scripted::start(KEYS, key).await;
    let store = store_at(&server.endpoint);
    let bucket = signed_in_with(&store, "secret");
    let pages = Counting {
        bucket: &bucket,
        largest: AtomicUsize::new(0),
    };
    // Records all over the bucket: one in ten thousand keys.
    let records = (0..KEYS).step_by(10_000);
    let ledger = ledger(records.map(|number| record(&format!("r{number}"), &key(number))));
    let mut walk = Walk::begin(&ledger, scope(&store).expect("a scope"), at(100));
    // Everything that a walk holds is in what it is printed as.
    let held = |walk: &Walk| format!("{walk:?}").len();
    let (mut asked, mut first, mut peak) = (0, 0, 0);
    loop {
        let step = walk.step(&pages).await.expect("a page");
        asked += 1;
        let asked_for = server.with(|script| script.pages);
        assert_eq!(
            asked_for, asked,
            "a page was asked for before the last one was folded"
        );
        peak = peak.max(held(&walk));
        if asked == 1 {
            first = peak;
        }
        if step == Step::End {
            break;
        }
    }
    assert_eq!(asked, KEYS / PAGE);
    assert_eq!(pages.largest.into_inner(), PAGE);
    let listed: usize = (0..KEYS).map(|number| key(number).len()).sum();
    assert!(
        peak < first + 4_096 && peak * 100 < listed,
        "{first} characters after one page, {peak} at most, of {listed} of keys"
    );
    let complete = walk.finish(at(101));
    assert_eq!((complete.all.objects, complete.all.bytes), (200_000, 600_000));
    assert_eq!(complete.found.len(), 20);
    assert_eq!(complete.unaccounted.len(), 10);
    let unexplained: i64 = complete.unaccounted.values().map(|sum| sum.objects).sum();
    assert_eq!(unexplained, 200_000 - 20);
}

/// Answers made up for what no good server does.
struct Odd(Page);

impl Pages for Odd {
    async fn page(&self, _: &str, _: Option<String>) -> Result<Page, String> {
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn answers_that_make_no_sense_are_no_listing() {
    let server = Server::start().await;
    let mut store = server.store();
    store.spec.prefix = "tenant-a/".to_owned();
    let walk = || Walk::begin(&Ledger::default(), scope(&store).expect("a scope"), at(1));
    let page = |key: &str, next: Option<&str>| {
        Odd(Page {
            objects: vec![(key.to_owned(), 1)],
            next: next.map(str::to_owned),
        })
    };
    let mut circle = walk();
    let same = page("tenant-a/x", Some("t"));
    assert_eq!(circle.step(&same).await, Ok(Step::More));
    let trouble: Trouble = circle.step(&same).await.expect_err("a circle");
    assert!(trouble.message.contains("again and again"), "{trouble}");
    let trouble = walk()
        .step(&page("tenant-b/x", None))
        .await
        .expect_err("elsewhere");
    assert!(trouble.message.contains("spec.prefix"), "{trouble}");
    // The object that stands for the folder is nothing strange.
    assert_eq!(walk().step(&page("tenant-a", None)).await, Ok(Step::End));
}

#[test]
fn an_address_that_is_none_is_refused_by_name() {
    for endpoint in ["s3.example.org", "ftp://x", "https://"] {
        let spec: BackupStoreSpec = serde_json::from_value(json!({
            "bucket": BUCKET, "endpoint": endpoint, "credentials": { "name": "keys" },
            "layout": { "path": "{namespace}/{artifact...}" },
        }))
        .expect("a spec");
        let keys = Keys {
            id: String::new(),
            secret: String::new(),
        };
        let trouble = Bucket::open(&spec, keys, None).err().expect("refused");
        assert_eq!(trouble.reason, StoreReason::BadSpec);
        assert!(trouble.message.contains("spec.endpoint"), "{trouble}");
    }
}

/// The changes that a listing leads to are of the kinds that the ledger writes.
#[tokio::test]
async fn a_listing_removes_no_record() {
    let server = Server::start().await;
    server.put("tenant-a/one.db", 10);
    let mut ledger = ledger([record("one", "tenant-a/one.db")]);
    let (outcome, _) = listing(&server, &mut ledger, 100).await;
    assert!(!outcome.changes.is_empty());
    for change in outcome.changes {
        assert!(matches!(change, Change::Write(_)), "{change:?}");
    }
}
