//! Where a repository is.
//!
//! **Promises.** Keys show themselves to nobody: `Debug` prints placeholders, `Display` only names the place.

use crate::{EngineError, ErrorClass, Password};
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a repository is.
#[derive(Debug, Clone)]
pub enum Location {
    /// A directory.
    Directory(PathBuf),
    /// A part of an S3 bucket.
    Bucket(Bucket),
}

/// A part of a bucket on an S3 server.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// Name of the bucket.
    pub name: String,
    /// What the keys of the repository begin with; empty: the whole bucket. Kopia puts it before its names as it is,
    /// Restic takes it as a folder, with or without a slash at its end.
    pub prefix: String,
    /// `host` or `host:port` of the server; none: Amazon's.
    pub endpoint: Option<String>,
    /// Region; none: the server's own idea of it.
    pub region: Option<String>,
    /// Talk without TLS.
    pub plain: bool,
    /// Do not check the server's certificate.
    pub unverified: bool,
    /// PEM certificates of the authorities to trust; none: the public ones.
    pub authorities: Option<String>,
    /// What to sign in with.
    pub keys: Keys,
}

/// What to sign in with.
#[derive(Debug, Clone)]
pub struct Keys {
    /// `AWS_ACCESS_KEY_ID`.
    pub id: String,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret: Password,
    /// `AWS_SESSION_TOKEN`.
    pub session: Option<Password>,
}

impl From<&Path> for Location {
    fn from(directory: &Path) -> Self {
        Self::Directory(directory.to_owned())
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => path.display().fmt(f),
            Self::Bucket(bucket) => bucket.fmt(f),
        }
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3 bucket {}", self.name)?;
        if !self.prefix.is_empty() {
            write!(f, ", prefix {}", self.prefix)?;
        }
        match &self.endpoint {
            Some(endpoint) => write!(f, ", on {endpoint}"),
            None => Ok(()),
        }
    }
}

impl Bucket {
    /// The bucket cannot be read or written.
    pub(crate) fn unreachable(&self, what: &str, why: impl fmt::Display) -> EngineError {
        EngineError::new(
            ErrorClass::Unreachable,
            what,
            why,
            "Check the bucket's name, the server and the way to it, and the Secret with the keys",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_show_themselves_to_nobody() {
        let bucket = Bucket {
            name: "backups".to_owned(),
            prefix: "a/".to_owned(),
            endpoint: Some("s3.example.org".to_owned()),
            region: None,
            plain: false,
            unverified: false,
            authorities: None,
            keys: Keys {
                id: "id".to_owned(),
                secret: Password::new("hidden"),
                session: Some(Password::new("hidden too")),
            },
        };
        let location = Location::Bucket(bucket);
        assert!(!format!("{location:?}").contains("hidden"));
        assert_eq!(
            location.to_string(),
            "s3 bucket backups, prefix a/, on s3.example.org"
        );
    }
}
