//! Certificates and kubeconfigs.
//!
//! One authority per cluster signs the API server's certificate and one client certificate for
//! each program and for the administrator. Everything lives and dies with the cluster.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};

use super::NODE;
use crate::paths::ClusterPaths;

/// The keys and certificates of a cluster, all under one folder.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
}

/// Who gets a client certificate: file name, common name, organisation.
const CLIENTS: [(&str, &str, Option<&str>); 6] = [
    ("admin", "holdfast-admin", Some("system:masters")),
    (
        "apiserver-kubelet",
        "kube-apiserver-kubelet-client",
        Some("system:masters"),
    ),
    ("kube-controller-manager", "system:kube-controller-manager", None),
    ("kube-scheduler", "system:kube-scheduler", None),
    ("kube-proxy", "system:kube-proxy", None),
    ("kubelet", NODE_USER, Some("system:nodes")),
];
const NODE_USER: &str = "system:node:holdfast";

impl Pki {
    /// Makes everything anew for an API server at `address`.
    pub fn create(paths: &ClusterPaths, address: Ipv4Addr) -> Result<Self> {
        debug_assert!(NODE_USER.ends_with(NODE));
        let pki = Self {
            dir: paths.data.join("pki"),
        };
        fs::create_dir_all(&pki.dir)?;
        pki.fill(address)
            .context("the cluster's certificates could not be made")?;
        for (name, _, _) in CLIENTS {
            let file = pki.kubeconfig(name);
            write_private(&file, &pki.kubeconfig_text(name, address)?)?;
        }
        fs::create_dir_all(&paths.out)?;
        write_private(&paths.kubeconfig(), &pki.kubeconfig_text("admin", address)?)?;
        Ok(pki)
    }

    fn fill(&self, address: Ipv4Addr) -> Result<()> {
        let mut authority = CertificateParams::new(Vec::<String>::new())?;
        authority.distinguished_name = name("holdfast-cluster", None);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        let authority_key = KeyPair::generate()?;
        let certificate = authority.self_signed(&authority_key)?;
        write_private(&self.file("ca.crt"), &certificate.pem())?;
        let issuer = Issuer::new(authority, authority_key);

        let server_names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            super::control_plane::KUBERNETES_SERVICE,
        ];
        let mut server_names: Vec<String> = server_names.map(str::to_owned).to_vec();
        server_names.push(address.to_string());
        let mut server = CertificateParams::new(server_names)?;
        server.distinguished_name = name("kube-apiserver", None);
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign("apiserver", server, &issuer)?;

        for (file, common_name, organisation) in CLIENTS {
            let mut client = CertificateParams::new(Vec::<String>::new())?;
            client.distinguished_name = name(common_name, organisation);
            client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            self.sign(file, client, &issuer)?;
        }

        let accounts = KeyPair::generate()?;
        write_private(&self.file("service-accounts.key"), &accounts.serialize_pem())?;
        write_private(&self.file("service-accounts.pub"), &accounts.public_key_pem())
    }

    fn sign(&self, file: &str, mut params: CertificateParams, issuer: &Issuer<'_, KeyPair>) -> Result<()> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        write_private(&self.file(&format!("{file}.crt")), &certificate.pem())?;
        write_private(&self.file(&format!("{file}.key")), &key.serialize_pem())
    }

    /// The file `name` of the folder, as in `ca.crt` or `apiserver.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The kubeconfig of the client `name`.
    pub fn kubeconfig(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.kubeconfig"))
    }

    fn kubeconfig_text(&self, client: &str, address: Ipv4Addr) -> Result<String> {
        let data = |file: &str| -> Result<String> {
            let bytes = ByteString(fs::read(self.file(file))?);
            let text = serde_json::to_value(bytes)?;
            Ok(text.as_str().unwrap_or_default().to_owned())
        };
        let ca = data("ca.crt")?;
        let certificate = data(&format!("{client}.crt"))?;
        let key = data(&format!("{client}.key"))?;
        Ok(format!(
            "apiVersion: v1
kind: Config
clusters:
- name: holdfast
  cluster:
    server: https://{address}:6443
    certificate-authority-data: {ca}
users:
- name: {client}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: holdfast
  context:
    cluster: holdfast
    user: {client}
current-context: holdfast
"
        ))
    }
}

fn name(common_name: &str, organisation: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    if let Some(organisation) = organisation {
        name.push(DnType::OrganizationName, organisation);
    }
    name.push(DnType::CommonName, common_name);
    name
}

/// Writes a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let written = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("{} cannot be written", path.display()))
}
