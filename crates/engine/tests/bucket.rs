//! Both engines in a bucket of a real S3 server: the conformance suite, and what is particular to buckets. Kopia needs the
//! program: `KOPIA_BIN`.
//!
//! **Assumes.** The server keeps a bucket as a folder, so that what the suite does to a directory it does to a bucket.
#![allow(clippy::unwrap_used, missing_docs)]

// Some of it is about directories alone.
#[allow(dead_code)]
mod conformance;

use conformance::{Bench, PASSWORD, back_up, password};
use holdfast_engine::kopia::Kopia;
use holdfast_engine::restic::Restic;
use holdfast_engine::{Bucket, Engine, EngineError, ErrorClass, Keys, Location, Password, Repository};
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::{TcpListener, TcpStream};

const SECRET: &str = "not to be seen anywhere";

/// S3 servers, each over the folder that holds its buckets.
#[derive(Default)]
struct Servers(Mutex<BTreeMap<PathBuf, SocketAddr>>);

impl Servers {
    fn over(&self, folder: &Path) -> SocketAddr {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry(folder.to_owned()).or_insert_with(|| serve(folder))
    }
}

/// Runs on a thread of its own until the process ends; answers with the address that it listens at.
fn listen(serve: impl AsyncFnOnce(TcpListener) + Send + 'static) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            serve(listener).await
        })
    });
    told.recv().unwrap()
}

fn serve(folder: &Path) -> SocketAddr {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let folder = folder.to_owned();
    listen(async move |listener| {
        let _ = holdfast_standin::s3::serve(listener, &folder, "key-id", SECRET).await;
    })
}

/// Ends TLS in front of a server; answers with its address and the authority's certificate.
fn with_tls(inner: SocketAddr) -> (SocketAddr, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let outside = listen(async move |listener| {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut outer = acceptor.accept(socket).await?;
                let mut inner = TcpStream::connect(inner).await?;
                tokio::io::copy_bidirectional(&mut outer, &mut inner).await
            });
        }
    });
    (outside, made.cert.pem())
}

fn bucket(server: SocketAddr, name: &str, prefix: &str) -> Bucket {
    Bucket {
        name: name.to_owned(),
        prefix: prefix.to_owned(),
        endpoint: Some(server.to_string()),
        region: None,
        plain: true,
        unverified: false,
        authorities: None,
        keys: Keys {
            id: "key-id".to_owned(),
            secret: Password::new(SECRET),
            session: None,
        },
    }
}

/// An engine that takes each directory for a bucket: the folder above it is what a server serves.
struct InBuckets<'a> {
    engine: &'a dyn Engine,
    servers: Servers,
}

impl<'a> InBuckets<'a> {
    fn new(engine: &'a dyn Engine) -> Self {
        let servers = Servers::default();
        Self { engine, servers }
    }

    fn bucket(&self, directory: &Path) -> Location {
        let server = self.servers.over(directory.parent().unwrap());
        let name = directory.file_name().unwrap().to_str().unwrap();
        Location::Bucket(bucket(server, name, ""))
    }
}

impl Engine for InBuckets<'_> {
    fn deletes_need_silence(&self) -> bool {
        self.engine.deletes_need_silence()
    }

    fn ids_may_change(&self) -> bool {
        self.engine.ids_may_change()
    }

    fn open(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        match at {
            Location::Directory(directory) => self.engine.open(&self.bucket(directory), password),
            Location::Bucket(_) => self.engine.open(at, password),
        }
    }

    fn initialize(&self, at: &Location, password: &Password) -> Result<Box<dyn Repository>, EngineError> {
        match at {
            Location::Directory(directory) => {
                // A bucket is there before a repository is.
                fs::create_dir_all(directory).unwrap();
                self.engine.initialize(&self.bucket(directory), password)
            }
            Location::Bucket(_) => self.engine.initialize(at, password),
        }
    }
}

/// The engine, if it can run.
fn kopia() -> Option<Kopia> {
    let there = std::env::var_os("KOPIA_BIN").is_some_and(|name| !name.is_empty());
    if !there {
        println!("skipped: no kopia (KOPIA_BIN names none)");
    }
    there.then(Kopia::default)
}

macro_rules! conforms {
    ($($name:ident),* $(,)?) => {
        mod restic {
            $(#[test]
            fn $name() {
                super::conformance::$name(&super::InBuckets::new(&super::Restic));
            })*
        }
        mod kopia {
            $(#[test]
            fn $name() {
                if let Some(kopia) = super::kopia() {
                    super::conformance::$name(&super::InBuckets::new(&kopia));
                }
            })*
        }
    };
}

conforms!(
    create_then_connect_have_one_stable_id,
    a_wrong_password_is_named_as_such,
    creating_never_builds_over_anything,
    a_backup_is_listed_as_it_was_reported,
    a_change_is_stored_once,
    an_unreadable_source_writes_no_snapshot,
    a_source_that_is_only_partly_readable_writes_no_snapshot,
    reserved_tags_and_crooked_paths_are_refused,
    deleting_takes_present_absent_and_repeated_ids,
    our_pin_is_read_back_and_taken_back_and_binds_no_deletion,
    a_part_of_an_id_deletes_nothing,
    a_listing_is_fresh,
    another_repository_in_its_place_is_noticed,
    a_restore_is_the_source_as_it_was,
    reclaiming_keeps_what_is_needed_and_tells_what_is_not,
);

/// Each engine that can run, in a fresh bucket beside a source.
fn each(test: impl Fn(&dyn Engine, &Bench, SocketAddr)) {
    let kopia = kopia();
    let kopia = kopia.as_ref().map(|kopia| kopia as &dyn Engine);
    for engine in [Some(&Restic as &dyn Engine), kopia].into_iter().flatten() {
        let bench = Bench::new();
        fs::create_dir(bench.repository()).unwrap();
        let server = serve(bench.repository().parent().unwrap());
        test(engine, &bench, server);
    }
}

fn class<T>(result: Result<T, EngineError>) -> (ErrorClass, String) {
    let error = result.err().expect("an error");
    let text = error.to_string();
    assert!(!text.contains(SECRET) && !text.contains(PASSWORD), "{text}");
    (error.class(), text)
}

#[test]
fn two_prefixes_of_one_bucket_are_two_repositories() {
    each(|engine, bench, server| {
        let at = |prefix| Location::Bucket(bucket(server, "repository", prefix));
        let mut one = engine.initialize(&at("cluster-a/"), &password()).unwrap();
        let two = engine.initialize(&at("cluster-b/nested/"), &password()).unwrap();
        assert_ne!(one.unique_id(), two.unique_id());
        back_up(bench, one.as_mut(), &["one"]);
        assert_eq!(one.list().unwrap().snapshots.len(), 1);
        assert_eq!(two.list().unwrap().snapshots.len(), 0);
        assert_eq!(
            engine.open(&at("cluster-a/"), &password()).unwrap().unique_id(),
            one.unique_id()
        );
        assert_eq!(
            class(engine.open(&at("cluster-c/"), &password())).0,
            ErrorClass::NotInitialized
        );
        assert_eq!(
            class(engine.initialize(&at("cluster-a/"), &password())).0,
            ErrorClass::Failed
        );
        assert!(bench.repository().join("cluster-a").is_dir());
    });
}

#[test]
fn a_bucket_that_cannot_be_read_is_never_an_empty_one() {
    each(|engine, bench, server| {
        let at = Location::Bucket(bucket(server, "repository", ""));
        let mut repository = engine.initialize(&at, &password()).unwrap();
        back_up(bench, repository.as_mut(), &["one"]);
        let mut wrong = bucket(server, "repository", "");
        wrong.keys.secret = Password::new("another secret");
        let refused = class(engine.open(&Location::Bucket(wrong.clone()), &password()));
        assert_eq!(refused.0, ErrorClass::Unreachable, "{}", refused.1);
        assert!(!refused.1.contains("another secret"), "{}", refused.1);
        let refused = class(engine.initialize(&Location::Bucket(wrong), &password()));
        assert_eq!(refused.0, ErrorClass::Unreachable, "{}", refused.1);
        // The bucket goes.
        let aside = bench.repository().with_extension("aside");
        fs::rename(bench.repository(), &aside).unwrap();
        let gone = class(repository.list());
        assert_eq!(gone.0, ErrorClass::Unreachable, "{}", gone.1);
        fs::rename(&aside, bench.repository()).unwrap();
        assert_eq!(repository.list().unwrap().snapshots.len(), 1);
    });
}

#[test]
fn a_private_authority_is_trusted_where_it_is_named_and_nowhere_else() {
    each(|engine, bench, server| {
        let (server, authority) = with_tls(server);
        let mut place = bucket(server, "repository", "");
        place.plain = false;
        let refused = class(engine.initialize(&Location::Bucket(place.clone()), &password()));
        assert_eq!(refused.0, ErrorClass::Unreachable, "{}", refused.1);
        place.authorities = Some(authority);
        let at = Location::Bucket(place.clone());
        let mut repository = engine.initialize(&at, &password()).unwrap();
        back_up(bench, repository.as_mut(), &["one"]);
        place.authorities = None;
        place.unverified = true;
        let again = engine.open(&Location::Bucket(place), &password()).unwrap();
        assert_eq!(again.list().unwrap().snapshots.len(), 1);
    });
}

#[test]
fn a_damaged_record_in_a_bucket_counts_as_present() {
    let bench = Bench::new();
    fs::create_dir(bench.repository()).unwrap();
    let server = serve(bench.repository().parent().unwrap());
    let at = Location::Bucket(bucket(server, "repository", "deep/er"));
    let mut repository = Restic.initialize(&at, &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    let record = bench.repository().join("deep/er/snapshots").join(&taken[0].id);
    fs::write(record, "damaged").unwrap();
    let listing = repository.list().unwrap();
    assert_eq!(listing.unreadable, [taken[0].id.clone()]);
    assert_eq!(conformance::ids(&listing), [taken[1].id.as_str()]);
}

/// A link to nothing: the server lists it and does not find it.
#[test]
fn a_record_that_is_listed_and_not_found_counts_as_present() {
    let bench = Bench::new();
    fs::create_dir(bench.repository()).unwrap();
    let server = serve(bench.repository().parent().unwrap());
    let at = Location::Bucket(bucket(server, "repository", "deep/er"));
    let mut repository = Restic.initialize(&at, &password()).unwrap();
    let taken = back_up(&bench, repository.as_mut(), &["one", "two"]);
    let record = bench.repository().join("deep/er/snapshots").join(&taken[0].id);
    fs::remove_file(&record).unwrap();
    std::os::unix::fs::symlink("nowhere", &record).unwrap();
    let listing = repository.list().unwrap();
    assert_eq!(listing.unreadable, [taken[0].id.clone()]);
    assert_eq!(conformance::ids(&listing), [taken[1].id.as_str()]);
    fs::remove_file(&record).unwrap();
    assert!(repository.list().unwrap().unreadable.is_empty(), "it went away");
}

#[test]
fn the_keys_of_a_creation_that_may_be_under_way_stay() {
    let bench = Bench::new();
    let keys = bench.repository().join("keys");
    fs::create_dir_all(&keys).unwrap();
    let server = serve(bench.repository().parent().unwrap());
    let at = Location::Bucket(bucket(server, "repository", ""));
    let name = "ab".repeat(32);
    fs::write(keys.join(&name), "a key").unwrap();
    let (refused, text) = class(Restic.initialize(&at, &password()));
    assert_eq!(refused, ErrorClass::Failed);
    assert!(text.contains("under way"), "{text}");
    assert!(keys.join(&name).exists());
    let file = fs::File::options().write(true).open(keys.join(&name)).unwrap();
    let two_hours = std::time::Duration::from_secs(7_200);
    file.set_modified(std::time::SystemTime::now() - two_hours)
        .unwrap();
    Restic.initialize(&at, &password()).unwrap();
    assert!(!keys.join(&name).exists(), "of an interrupted one");
    Restic.open(&at, &password()).unwrap();
}

/// In a process of its own, to which the system's authorities are others.
#[test]
fn what_the_system_trusts_is_not_trusted_where_authorities_are_named() {
    const NAME: &str = "what_the_system_trusts_is_not_trusted_where_authorities_are_named";
    const CHILD: &str = "HOLDFAST_TEST_SYSTEM_AUTHORITIES";
    let Some(system) = std::env::var_os(CHILD) else {
        let folder = tempfile::tempdir().unwrap();
        let system = folder.path().join("system.pem");
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(CHILD, &system)
            .env("SSL_CERT_FILE", &system)
            .output()
            .unwrap();
        assert!(
            child.status.success(),
            "{}",
            String::from_utf8_lossy(&child.stderr)
        );
        return;
    };
    let bench = Bench::new();
    fs::create_dir(bench.repository()).unwrap();
    let (server, of_system) = with_tls(serve(bench.repository().parent().unwrap()));
    fs::write(system, of_system).unwrap();
    let mut place = bucket(server, "repository", "");
    place.plain = false;
    Restic
        .initialize(&Location::Bucket(place.clone()), &password())
        .unwrap();
    let (_, another) = with_tls(server);
    place.authorities = Some(another);
    let refused = class(Restic.open(&Location::Bucket(place), &password()));
    assert_eq!(refused.0, ErrorClass::Unreachable, "{}", refused.1);
}
