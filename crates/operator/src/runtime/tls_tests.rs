use super::*;

fn names() -> Vec<String> {
    vec!["holdfast.ns.svc".into(), "localhost".into()]
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn start() -> Timestamp {
    at("2026-01-01T00:00:00Z")
}

fn fresh() -> Material {
    settle(None, &names(), start()).expect("made").0.expect("changed")
}

fn days(n: i64) -> SignedDuration {
    SignedDuration::from_hours(24 * n)
}

#[test]
fn nothing_is_due_on_what_was_just_made() {
    let material = fresh();
    assert_eq!(
        plan(Some(&material), &names(), start()),
        Step::Keep(start() + days(3))
    );
    assert_eq!(
        settle(Some(material), &names(), start()).expect("settled").0,
        None
    );
}

#[test]
fn the_server_certificate_is_renewed_days_before_it_expires_under_the_same_authority() {
    let material = fresh();
    assert_eq!(
        plan(Some(&material), &names(), start() + days(2)),
        Step::Keep(start() + days(3))
    );
    assert_eq!(
        plan(Some(&material), &names(), start() + days(3)),
        Step::RenewLeaf
    );
    let now = start() + days(3);
    let renewed = settle(Some(material.clone()), &names(), now)
        .expect("settled")
        .0
        .expect("changed");
    assert_eq!(renewed.bundle(), material.bundle());
    assert_ne!(renewed.leaf.key, material.leaf.key);
    assert_eq!(renewed.leaf.not_after, now + days(7));
}

#[test]
fn other_names_or_a_certificate_from_the_future_are_made_anew() {
    let material = fresh();
    let other = vec!["holdfast.other.svc".to_owned()];
    assert_eq!(plan(Some(&material), &other, start()), Step::RenewLeaf);
    assert_eq!(
        plan(Some(&material), &names(), start() - SLACK * 2),
        Step::RenewLeaf
    );
}

#[test]
fn an_expired_authority_without_successor_is_made_anew() {
    let material = fresh();
    assert_eq!(
        plan(Some(&material), &names(), start() + days(365)),
        Step::CreateAll
    );
    assert_eq!(plan(None, &names(), start()), Step::CreateAll);
}

/// The fitting together of bundle and certificate, as a client sees it.
fn trusts(bundle: &str, material: &Material, now: Timestamp) -> bool {
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::{ServerName, UnixTime};
    let mut roots = rustls::RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.expect("pem")).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
        .build()
        .expect("a verifier");
    let leaf = CertificateDer::from_pem_slice(material.leaf.certificate.as_bytes()).expect("pem");
    let time = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now.as_second() as u64));
    let name = ServerName::try_from("holdfast.ns.svc").expect("a name");
    verifier.verify_server_cert(&leaf, &[], &name, &[], time).is_ok()
}

#[test]
fn through_two_years_of_renewals_nobody_with_a_bundle_of_the_last_two_weeks_is_ever_refused() {
    let mut material = fresh();
    let mut bundles = std::collections::VecDeque::new();
    let mut authorities = std::collections::BTreeSet::new();
    for hour in (0..2 * 365 * 24).step_by(12) {
        let now = start() + SignedDuration::from_hours(hour);
        let (changed, due) = settle(Some(material.clone()), &names(), now).expect("settled");
        assert!(due > now, "a due time lies ahead");
        material = changed.unwrap_or(material);
        authorities.insert(material.leaf.issuer.clone());
        bundles.push_back((now, material.bundle()));
        while bundles.front().is_some_and(|(given, _)| now > *given + OVERLAP) {
            bundles.pop_front();
        }
        if hour % 72 == 0 {
            let distinct: std::collections::BTreeSet<&String> = bundles.iter().map(|(_, b)| b).collect();
            for bundle in distinct {
                assert!(trusts(bundle, &material, now), "refused at {now}");
            }
        }
        assert!(material.server_config().is_ok());
    }
    assert!(authorities.len() >= 3, "authorities did change: {authorities:?}");
}

#[test]
fn a_leader_that_slept_through_the_whole_overlap_still_settles() {
    let mut material = fresh();
    let near = start() + days(280);
    material = settle(Some(material), &names(), near)
        .expect("settled")
        .0
        .expect("changed");
    assert!(material.next.is_some(), "a successor is published");
    let late = start() + days(366);
    let woken = settle(Some(material), &names(), late)
        .expect("settled")
        .0
        .expect("changed");
    assert_eq!((woken.next.is_some(), woken.previous), (false, None));
    assert!(woken.leaf.not_after > late);
}

#[test]
fn keys_are_not_shown() {
    let material = fresh();
    let shown = format!("{material:?}");
    assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    assert!(material.leaf.key.pem().contains("PRIVATE KEY"));
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let mut material = fresh();
    material.leaf.key = fresh().leaf.key;
    assert!(matches!(material.server_config(), Err(TlsError::Unusable(_))));
}

#[test]
fn the_state_survives_being_written_down() {
    let material = fresh();
    let text = serde_json::to_vec(&material).expect("json");
    assert_eq!(
        serde_json::from_slice::<Material>(&text).expect("read back"),
        material
    );
}
