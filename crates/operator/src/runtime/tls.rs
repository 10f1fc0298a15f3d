//! The operator's own certificates: what to keep and what to make anew, without clock or client.
//!
//! **Promises.** Whoever was given the bundle ([`Material::bundle`]) within the last [`OVERLAP`] trusts every
//! certificate that is served: a new authority is published for that long before it signs anything, and an old one
//! stays in the bundle until it expires. [`plan`] says which step is due; [`settle`] takes steps until none is.
//!
//! **Assumes.** Clocks are right within an hour ([`SLACK`]). The whole state is one document, written at once.

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Life of an authority.
pub const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// Life of a server certificate.
pub const LEAF_LIFE: SignedDuration = SignedDuration::from_hours(7 * 24);
/// An authority with less than this left gets a successor.
pub const AUTHORITY_RENEW: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A server certificate with less than this left is made anew.
pub const LEAF_RENEW: SignedDuration = SignedDuration::from_hours(4 * 24);
/// How long a successor is published before it signs: longer than any mover lives on the bundle it was given.
pub const OVERLAP: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Certificates are valid from this long before they were made, for clients whose clocks are behind.
pub const SLACK: SignedDuration = SignedDuration::from_hours(1);

/// A private key in PEM; never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateKey(String);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(not shown)")
    }
}

impl PrivateKey {
    /// The PEM text, to be written into the Secret.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.0
    }
}

/// A certificate authority of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// Common name, different for each.
    pub name: String,
    /// Certificate, PEM.
    pub certificate: String,
    /// Its key; absent on one that only is still trusted.
    pub key: Option<PrivateKey>,
    /// When it was made.
    pub made: Timestamp,
    /// When it expires.
    pub not_after: Timestamp,
}

/// The server's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Leaf {
    /// Certificate, PEM.
    pub certificate: String,
    /// Its key.
    pub key: PrivateKey,
    /// Name of the authority that signed it.
    pub issuer: String,
    /// DNS names it is valid for.
    pub names: Vec<String>,
    /// When it becomes valid.
    pub not_before: Timestamp,
    /// When it expires.
    pub not_after: Timestamp,
}

/// Everything that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Material {
    /// Signs.
    pub current: Authority,
    /// Published, will sign.
    pub next: Option<Authority>,
    /// Still trusted, signs no more.
    pub previous: Option<Authority>,
    /// What is served.
    pub leaf: Leaf,
}

impl Material {
    /// What clients trust, PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        [Some(&self.current), self.next.as_ref(), self.previous.as_ref()]
            .into_iter()
            .flatten()
            .map(|authority| authority.certificate.as_str())
            .collect()
    }

    /// The TLS configuration to serve with; refuses a key that does not belong to the certificate.
    ///
    /// # Errors
    /// [`TlsError`] when certificate or key cannot be used.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let chain = CertificateDer::pem_slice_iter(self.leaf.certificate.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| TlsError::Unusable(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(self.leaf.key.0.as_bytes())
            .map_err(|_| TlsError::Unusable("the private key cannot be read".into()))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
                .map_err(|error| TlsError::Unusable(error.to_string()))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Why certificates could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// What is kept cannot be served.
    #[error("the certificate cannot be used: {0}")]
    Unusable(String),
    /// A certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Making(#[from] rcgen::Error),
    /// The authority that should sign has no key.
    #[error("the authority that should sign has no key")]
    NoKey,
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing usable is there: everything is made anew.
    CreateAll,
    /// The authority grows old: publish a successor beside it.
    IntroduceAuthority,
    /// The successor was published long enough: it signs from now on.
    PromoteAuthority,
    /// An authority that signs no more has expired.
    DropPrevious,
    /// The server certificate grows old, is not valid yet, or is for other names.
    RenewLeaf,
    /// Nothing, until this moment.
    Keep(Timestamp),
}

/// Decides what is due at `now`.
#[must_use]
pub fn plan(material: Option<&Material>, names: &[String], now: Timestamp) -> Step {
    let Some(m) = material else {
        return Step::CreateAll;
    };
    if let Some(next) = m.next.as_ref().filter(|next| next.not_after > now) {
        if now >= next.made + OVERLAP || now >= m.current.not_after - LEAF_LIFE {
            return Step::PromoteAuthority;
        }
    } else if m.current.not_after <= now {
        return Step::CreateAll;
    } else if now >= m.current.not_after - AUTHORITY_RENEW {
        return Step::IntroduceAuthority;
    }
    if m.previous
        .as_ref()
        .is_some_and(|previous| previous.not_after <= now)
    {
        return Step::DropPrevious;
    }
    let leaf = &m.leaf;
    if now >= leaf.not_after - LEAF_RENEW
        || leaf.not_before > now
        || leaf.names != names
        || leaf.issuer != m.current.name
    {
        return Step::RenewLeaf;
    }
    let authority = m
        .next
        .as_ref()
        .map_or(m.current.not_after - AUTHORITY_RENEW, |next| {
            (next.made + OVERLAP).min(m.current.not_after - LEAF_LIFE)
        });
    let mut until = authority.min(leaf.not_after - LEAF_RENEW);
    if let Some(previous) = &m.previous {
        until = until.min(previous.not_after);
    }
    Step::Keep(until)
}

/// Takes the steps that are due; answers the material if it changed, and when the next step is due.
///
/// # Errors
/// [`TlsError`] when a certificate cannot be made.
pub fn settle(
    material: Option<Material>,
    names: &[String],
    now: Timestamp,
) -> Result<(Option<Material>, Timestamp), TlsError> {
    let mut material = material;
    let mut changed = false;
    loop {
        let step = plan(material.as_ref(), names, now);
        if let Step::Keep(until) = step {
            return Ok((material.filter(|_| changed), until));
        }
        material = Some(take(step, material, names, now)?);
        changed = true;
    }
}

fn take(
    step: Step,
    material: Option<Material>,
    names: &[String],
    now: Timestamp,
) -> Result<Material, TlsError> {
    let Some(mut m) = material.filter(|_| step != Step::CreateAll) else {
        let current = authority(now)?;
        let leaf = leaf(&current, names, now)?;
        return Ok(Material {
            current,
            next: None,
            previous: None,
            leaf,
        });
    };
    match step {
        Step::CreateAll | Step::Keep(_) => {}
        Step::IntroduceAuthority => m.next = Some(authority(now)?),
        Step::PromoteAuthority => {
            if let Some(next) = m.next.take() {
                let mut old = std::mem::replace(&mut m.current, next);
                old.key = None;
                m.previous = Some(old);
                m.leaf = leaf(&m.current, names, now)?;
            }
        }
        Step::DropPrevious => m.previous = None,
        Step::RenewLeaf => m.leaf = leaf(&m.current, names, now)?,
    }
    Ok(m)
}

/// Parameters with a validity; `rcgen` speaks the `time` crate, of which whole days and a sum are enough.
fn parameters(names: Vec<String>, from: Timestamp, to: Timestamp) -> Result<CertificateParams, TlsError> {
    let at = |time: Timestamp| {
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        rcgen::date_time_ymd(1970, 1, 1) + std::time::Duration::from_secs(seconds)
    };
    let mut parameters = CertificateParams::new(names)?;
    parameters.not_before = at(from);
    parameters.not_after = at(to);
    Ok(parameters)
}

fn authority_parameters(name: &str, from: Timestamp, to: Timestamp) -> Result<CertificateParams, TlsError> {
    let mut parameters = parameters(Vec::new(), from, to)?;
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(parameters)
}

fn authority(now: Timestamp) -> Result<Authority, TlsError> {
    let key = KeyPair::generate()?;
    let name = format!("holdfast authority {now:.0}");
    let not_after = now + AUTHORITY_LIFE;
    let certificate = authority_parameters(&name, now - DAY, not_after)?.self_signed(&key)?;
    Ok(Authority {
        name,
        certificate: certificate.pem(),
        key: Some(PrivateKey(key.serialize_pem())),
        made: now,
        not_after,
    })
}

fn leaf(authority: &Authority, names: &[String], now: Timestamp) -> Result<Leaf, TlsError> {
    let authority_key = authority.key.as_ref().ok_or(TlsError::NoKey)?;
    // Only name and key of the issuer matter for a signature; its validity is in its own certificate.
    let issuer = Issuer::new(
        authority_parameters(&authority.name, authority.made, authority.not_after)?,
        KeyPair::from_pem(&authority_key.0)?,
    );
    let (not_before, not_after) = (now - SLACK, (now + LEAF_LIFE).min(authority.not_after));
    let mut parameters = parameters(names.to_vec(), not_before, not_after)?;
    let common_name = names.first().map_or("holdfast", String::as_str);
    // A common name is at most 64 characters; clients look at the alternative names only.
    parameters.distinguished_name.push(
        DnType::CommonName,
        common_name.chars().take(64).collect::<String>(),
    );
    parameters.use_authority_key_identifier_extension = true;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, &issuer)?;
    Ok(Leaf {
        certificate: certificate.pem(),
        key: PrivateKey(key.serialize_pem()),
        issuer: authority.name.clone(),
        names: names.to_vec(),
        not_before,
        not_after,
    })
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
