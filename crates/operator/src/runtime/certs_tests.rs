use super::*;
use std::sync::Mutex;

/// A Secret in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Option<Stored>>>);

impl CertStore for Memory {
    async fn get(&self) -> Result<Option<Stored>, StoreError> {
        Ok(self.0.lock().expect("lock").clone())
    }

    async fn put(&self, version: Option<&str>, material: &Material) -> Result<(), StoreError> {
        let mut shelf = self.0.lock().expect("lock");
        let known = shelf.as_ref().map(|stored| stored.version.clone());
        if known.as_deref() != version {
            return Err(StoreError::Conflict);
        }
        let next = known.map_or(0, |v| v.parse::<u64>().expect("a number") + 1);
        *shelf = Some(Stored {
            version: next.to_string(),
            material: Some(material.clone()),
        });
        Ok(())
    }
}

#[tokio::test]
async fn the_leader_makes_them_and_every_replica_serves_the_same() {
    let store = Memory::default();
    let end = CancellationToken::new();
    let (standby, leader) = (Certs::default(), Certs::default());
    let spawn = |certs: &Certs, leadership: Leadership| {
        tokio::spawn(run(
            store.clone(),
            names("ns"),
            certs.clone(),
            leadership,
            end.clone(),
        ))
    };
    let waiting = spawn(&standby, Leadership::standby());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(
        standby.bundle().is_none() && store.0.lock().expect("lock").is_none(),
        "a standby writes nothing"
    );
    let leading = spawn(&leader, Leadership::always());
    tokio::time::timeout(Duration::from_secs(10), async {
        leader.ready().await;
        standby.ready().await;
    })
    .await
    .expect("both serve");
    assert_eq!(standby.bundle(), leader.bundle());
    end.cancel();
    waiting.await.expect("ended");
    leading.await.expect("ended");
}

#[tokio::test]
async fn a_secret_that_cannot_be_used_is_left_by_a_standby_and_rewritten_by_the_leader() {
    let store = Memory::default();
    let (Some(mut bad), _) = settle(None, &names("ns"), Timestamp::now()).expect("made") else {
        panic!("made");
    };
    let (Some(other), _) = settle(None, &names("ns"), Timestamp::now()).expect("made") else {
        panic!("made");
    };
    bad.leaf.key = other.leaf.key;
    for material in [Some(bad), None] {
        *store.0.lock().expect("lock") = Some(Stored {
            version: "5".into(),
            material,
        });
        let seen = tend(&store, &names("ns"), &Leadership::standby())
            .await
            .expect("read");
        assert!(seen.is_none());
        let made = tend(&store, &names("ns"), &Leadership::always())
            .await
            .expect("made")
            .expect("made");
        assert!(made.server_config().is_ok());
        assert_eq!(
            store.0.lock().expect("lock").as_ref().expect("stored").version,
            "6"
        );
    }
}

#[tokio::test]
async fn a_leader_that_was_overtaken_does_not_overwrite() {
    struct Overtaken(Memory);
    impl CertStore for Overtaken {
        async fn get(&self) -> Result<Option<Stored>, StoreError> {
            let stored = self.0.get().await;
            let (Some(theirs), _) = settle(None, &names("ns"), Timestamp::now()).expect("made") else {
                panic!("made");
            };
            self.0.put(None, &theirs).await?; // between our read and our write
            stored
        }
        async fn put(&self, version: Option<&str>, material: &Material) -> Result<(), StoreError> {
            self.0.put(version, material).await
        }
    }
    let memory = Memory::default();
    let error = tend(&Overtaken(memory.clone()), &names("ns"), &Leadership::always()).await;
    assert!(error.is_err());
    assert_eq!(
        memory.0.lock().expect("lock").as_ref().expect("stored").version,
        "0"
    );
}

#[test]
fn a_new_certificate_is_served_by_the_configuration_handed_out_before() {
    let (Some(first), _) = settle(None, &names("ns"), Timestamp::now()).expect("made") else {
        panic!("made");
    };
    let (Some(second), _) = settle(None, &names("ns"), Timestamp::now()).expect("made") else {
        panic!("made");
    };
    let certs = Certs::default();
    certs.load(&first).expect("served");
    let handed = certs.0.borrow().as_ref().expect("loaded").rustls.clone();
    let before = handed.get_inner();
    certs.load(&second).expect("served");
    assert!(!Arc::ptr_eq(&before, &handed.get_inner()));
    assert_eq!(certs.bundle().as_deref(), Some(second.bundle().as_str()));
}
