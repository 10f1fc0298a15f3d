//! Where things are: the checkout, the cache, and the places of one cluster.
//!
//! Assumes that it runs inside a checkout, as `cargo xtask` does.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// The name a cluster has when none is given.
pub const DEFAULT_CLUSTER: &str = "default";

/// The root of the checkout that this command was started in.
pub fn workspace() -> Result<PathBuf> {
    let start = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => std::env::current_dir().context("the current directory cannot be read")?,
    };
    for dir in start.ancestors() {
        if dir.join("Cargo.lock").is_file() && dir.join("crates/xtask").is_dir() {
            return Ok(dir.to_path_buf());
        }
    }
    bail!(
        "{} is not inside a checkout of Holdfast: run `cargo xtask` from one",
        start.display()
    )
}

/// The folder for what is kept between runs and checkouts: `$XDG_CACHE_HOME/holdfast`.
pub fn cache() -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()) {
        return Ok(PathBuf::from(dir).join("holdfast"));
    }
    let home = std::env::var_os("HOME")
        .filter(|dir| !dir.is_empty())
        .context("neither XDG_CACHE_HOME nor HOME is set: set one, programs are cached below it")?;
    Ok(PathBuf::from(home).join(".cache/holdfast"))
}

/// The places of one cluster.
///
/// Data and sockets live outside the checkout, so that removing `target/` under a running cluster
/// neither breaks it nor hides it from `cluster down`.
#[derive(Clone, Debug)]
pub struct ClusterPaths {
    /// The name within the checkout.
    pub name: String,
    /// Eight hex digits of the checkout's path and the name: unique on the machine.
    pub id: String,
    /// The checkout.
    pub workspace: PathBuf,
    /// What people use: kubeconfig, links to kubectl and logs.
    pub out: PathBuf,
    /// State file, certificates, etcd, containers, volumes, logs.
    pub data: PathBuf,
    /// Sockets and container state.
    pub run: PathBuf,
}

impl ClusterPaths {
    /// The places of the cluster `name` of the checkout at `workspace`.
    pub fn new(workspace: &Path, name: &str) -> Result<Self> {
        let valid = !name.is_empty()
            && name.len() <= 32
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if !valid {
            bail!("{name:?} cannot be a cluster's name: use up to 32 lower-case letters, digits and dashes");
        }
        let mut hash = Sha256::new();
        hash.update(workspace.as_os_str().as_encoded_bytes());
        hash.update([0]);
        hash.update(name);
        let id = hex(&hash.finalize()[..4]);
        let out = match name {
            DEFAULT_CLUSTER => workspace.join("target/cluster"),
            other => workspace.join(format!("target/cluster-{other}")),
        };
        Ok(Self {
            name: name.to_owned(),
            workspace: workspace.to_path_buf(),
            out,
            data: PathBuf::from(DATA_ROOT).join(&id),
            run: PathBuf::from(RUN_ROOT).join(&id),
            id,
        })
    }

    /// The kubeconfig for people and tests.
    pub fn kubeconfig(&self) -> PathBuf {
        self.out.join("kubeconfig")
    }

    /// The state file.
    pub fn state(&self) -> PathBuf {
        self.data.join("state.json")
    }

    /// The folder of the logs.
    pub fn logs(&self) -> PathBuf {
        self.data.join("logs")
    }

    /// The socket of the cluster's containerd.
    pub fn containerd_socket(&self) -> PathBuf {
        self.run.join("containerd.sock")
    }

    /// The network namespace, and the host's end of the pair that leads to it.
    pub fn netns(&self) -> String {
        format!("hf-{}", self.id)
    }
}

/// Data of all clusters of this machine.
pub const DATA_ROOT: &str = "/var/lib/holdfast";
/// Sockets of all clusters of this machine.
pub const RUN_ROOT: &str = "/run/holdfast";

/// `bytes` in lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_of_other_checkouts_and_names_have_other_places() {
        let one = ClusterPaths::new(Path::new("/a"), DEFAULT_CLUSTER).expect("valid");
        let other = ClusterPaths::new(Path::new("/b"), DEFAULT_CLUSTER).expect("valid");
        let named = ClusterPaths::new(Path::new("/a"), "old").expect("valid");
        assert_ne!(one.id, other.id);
        assert_ne!(one.id, named.id);
        assert_eq!(one.kubeconfig(), Path::new("/a/target/cluster/kubeconfig"));
        assert_eq!(named.kubeconfig(), Path::new("/a/target/cluster-old/kubeconfig"));
        assert!(
            one.netns().len() <= 15,
            "interface names have 15 characters at most"
        );
    }

    #[test]
    fn a_name_that_would_leave_its_folder_is_refused() {
        for name in ["", "../x", "A", "a/b"] {
            assert!(ClusterPaths::new(Path::new("/a"), name).is_err(), "{name}");
        }
    }
}
