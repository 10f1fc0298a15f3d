//! Where the repository of a work document is.
//!
//! **Promises.** Keys are read from the mounted files and are in no text.

use crate::run::failure;
use holdfast_engine::{Bucket, Keys, Location, Password};
use holdfast_protocol::BACKEND_CA;
use holdfast_protocol::outcome::{Failure, FailureClass};
use holdfast_protocol::work::{BucketAccess, RepositoryAccess};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The location, with the keys below `backend`.
///
/// # Errors
/// A failed connection: keys or certificates that are not there or not text.
pub(crate) fn of(access: &RepositoryAccess, backend: &Path) -> Result<Location, Failure> {
    let Some(bucket) = &access.bucket else {
        return Ok(Location::Directory(PathBuf::from(&access.path)));
    };
    let BucketAccess {
        name,
        prefix,
        endpoint,
        region,
        disable_tls,
        insecure_skip_verify,
        private_ca,
    } = bucket;
    let needed = |name: &str| read(backend, name)?.ok_or_else(|| refused(name, "it is not there"));
    Ok(Location::Bucket(Bucket {
        name: name.clone(),
        prefix: prefix.clone(),
        endpoint: endpoint.clone(),
        region: region.clone(),
        plain: *disable_tls,
        unverified: *insecure_skip_verify,
        authorities: if *private_ca {
            Some(needed(BACKEND_CA)?)
        } else {
            None
        },
        keys: Keys {
            id: needed("AWS_ACCESS_KEY_ID")?,
            secret: Password::new(needed("AWS_SECRET_ACCESS_KEY")?),
            session: read(backend, "AWS_SESSION_TOKEN")?.map(Password::new),
        },
    }))
}

fn refused(name: &str, why: &str) -> Failure {
    failure(
        FailureClass::BackendUnreachable,
        format!(
            "the object store cannot be asked: {why} (`{name}`). Check spec.backend.s3 of the repository, and the Secret and the ConfigMap that it names"
        ),
    )
}

/// The file's text without the line end that Secrets made from files have; none: no such file.
fn read(directory: &Path, name: &str) -> Result<Option<String>, Failure> {
    let bytes = match std::fs::read(directory.join(name)) {
        Ok(bytes) => bytes,
        Err(cause) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(refused(name, &cause.kind().to_string())),
    };
    let text = String::from_utf8(bytes).map_err(|_| refused(name, "it is not UTF-8 text"))?;
    let text = text.trim_end_matches(['\n', '\r']);
    if text.is_empty() {
        return Err(refused(name, "it is empty"));
    }
    Ok(Some(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_protocol::work::EngineKind;

    fn access() -> RepositoryAccess {
        RepositoryAccess {
            engine: EngineKind::Restic,
            path: String::new(),
            bucket: Some(BucketAccess {
                name: "backups".to_owned(),
                prefix: "a/".to_owned(),
                endpoint: Some("s3:9000".to_owned()),
                region: None,
                disable_tls: true,
                insecure_skip_verify: false,
                private_ca: true,
            }),
            password_key: "KOPIA_PASSWORD".to_owned(),
            unique_id: None,
            user: None,
        }
    }

    #[test]
    fn keys_and_authorities_are_read_from_the_mounted_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("written");
        for (name, text) in [
            ("AWS_ACCESS_KEY_ID", "id\n"),
            ("AWS_SECRET_ACCESS_KEY", ""),
            (BACKEND_CA, "PEM"),
        ] {
            let said = of(&access(), dir.path()).expect_err(name).message;
            assert!(said.contains("spec.backend.s3"), "{said}");
            write(name, text);
        }
        let said = of(&access(), dir.path()).expect_err("empty").message;
        assert!(said.contains("it is empty (`AWS_SECRET_ACCESS_KEY`)"), "{said}");
        write("AWS_SECRET_ACCESS_KEY", "hidden\n");
        let Location::Bucket(bucket) = of(&access(), dir.path()).expect("a location") else {
            panic!("no bucket");
        };
        assert_eq!(
            (bucket.keys.id.as_str(), bucket.keys.secret.expose()),
            ("id", "hidden")
        );
        assert_eq!(bucket.authorities.as_deref(), Some("PEM"));
        assert!(bucket.keys.session.is_none() && bucket.plain);
        write("AWS_SESSION_TOKEN", "token");
        let Location::Bucket(bucket) = of(&access(), dir.path()).expect("a location") else {
            panic!("no bucket");
        };
        assert_eq!(bucket.keys.session.expect("a token").expose(), "token");
    }
}
