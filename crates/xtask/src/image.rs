//! Container images without a container engine.
//!
//! An image is one layer in a docker-archive tar: a program, the libraries that `ldd` names, a
//! user file and /tmp. Promise: the same files give the same bytes, and the tag of a program's
//! image is the digest of its content, so a Deployment rolls exactly when the program changed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cluster;
use crate::paths::{ClusterPaths, hex};
use crate::sh::{cmd, run};

/// The image that holds a pod's namespaces.
pub const PAUSE: &str = "localhost/holdfast-pause:dev";
/// A small image with a shell, for tests.
pub const BUSYBOX: &str = "localhost/holdfast-busybox:dev";
/// Where Debian keeps the certificates of public authorities.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The user of every image: a number, so that `runAsNonRoot` can be checked.
const USER: u32 = 65532;

/// An image in a tar.
#[derive(Clone, Debug)]
pub struct Image {
    /// The full reference, as in `localhost/holdfast-operator:1a2b3c4d5e6f`.
    pub reference: String,
    /// The docker-archive tar.
    pub archive: PathBuf,
}

/// What an image is made of.
#[derive(Clone, Debug, Default)]
pub struct Content {
    files: BTreeMap<String, Source>,
    entrypoint: Vec<String>,
}

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf, u32),
    Text(String),
    Link(String),
    Dir(u32),
}

impl Content {
    /// An image that runs `program`, with the libraries it is linked with.
    pub fn program(program: &Path) -> Result<Self> {
        let name = program
            .file_name()
            .and_then(|name| name.to_str())
            .context("a program has a name")?;
        let mut content = Self::default();
        let place = format!("usr/bin/{name}");
        content.add_program(program, &place)?;
        // What a client checks a server of the world against; one of a private authority is configured beside them.
        let authorities = Path::new(AUTHORITIES);
        if authorities.exists() {
            let place = AUTHORITIES.trim_start_matches('/').to_owned();
            content
                .files
                .insert(place, Source::File(authorities.to_path_buf(), 0o644));
        }
        content.entrypoint = vec![format!("/{place}")];
        Ok(content)
    }

    /// Adds another program and its libraries at `place` (without a leading slash).
    pub fn add_program(&mut self, program: &Path, place: &str) -> Result<()> {
        for library in libraries(program)? {
            let place = library.trim_start_matches('/').to_owned();
            self.files
                .insert(place, Source::File(PathBuf::from(library), 0o755));
        }
        self.files
            .insert(place.to_owned(), Source::File(program.to_path_buf(), 0o755));
        Ok(())
    }
}

/// Makes the image `repository` (with its registry) in `folder`; the tag is `tag`, or the digest.
pub fn build(folder: &Path, repository: &str, tag: Option<&str>, content: &Content) -> Result<Image> {
    fs::create_dir_all(folder)?;
    let short = repository.rsplit('/').next().unwrap_or(repository);
    let layer = folder.join(format!("{short}.layer"));
    let digest =
        write_layer(&layer, content).with_context(|| format!("the image {repository} could not be made"))?;
    let config = serde_json::to_vec(&json!({
        "architecture": match std::env::consts::ARCH { "x86_64" => "amd64", "aarch64" => "arm64", other => other },
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "Entrypoint": content.entrypoint,
            "User": format!("{USER}:{USER}"),
            "WorkingDir": "/",
            "Env": ["PATH=/usr/bin:/bin"],
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask"}],
    }))?;
    let config_digest = hex(&Sha256::digest(&config));
    let reference = format!("{repository}:{}", tag.unwrap_or(&config_digest[..12]));
    let manifest = serde_json::to_vec(&json!([{
        "Config": format!("{config_digest}.json"),
        "RepoTags": [reference],
        "Layers": [format!("{digest}.tar")],
    }]))?;
    let archive = folder.join(format!("{short}.tar"));
    let mut tar = tar::Builder::new(BufWriter::new(File::create(&archive)?));
    append(
        &mut tar,
        &format!("{config_digest}.json"),
        0o644,
        config.len() as u64,
        config.as_slice(),
    )?;
    let size = fs::metadata(&layer)?.len();
    append(
        &mut tar,
        &format!("{digest}.tar"),
        0o644,
        size,
        BufReader::new(File::open(&layer)?),
    )?;
    append(
        &mut tar,
        "manifest.json",
        0o644,
        manifest.len() as u64,
        manifest.as_slice(),
    )?;
    tar.into_inner()?.flush()?;
    fs::remove_file(layer)?;
    Ok(Image { reference, archive })
}

/// Loads `image` into the node of the cluster at `paths`; nothing happens if it is there.
pub fn load(paths: &ClusterPaths, image: &Image) -> Result<()> {
    let address = format!("--address={}", paths.containerd_socket().display());
    let ctr = cluster::ctr(&paths.workspace)?;
    let ctr = |args: &[&str]| cmd(&ctr, [&[address.as_str(), "--namespace=k8s.io"], args].concat());
    let reference = image.reference.as_str();
    let known = run("list the node's images", &mut ctr(&["images", "ls", "-q"]))?;
    let fixed = reference.ends_with(":dev");
    if !fixed && known.lines().any(|line| line == reference) {
        return Ok(());
    }
    let archive = image.archive.to_string_lossy().into_owned();
    run(
        &format!("load the image {reference}"),
        &mut ctr(&["images", "import", "--local", "--digests=false", &archive]),
    )?;
    Ok(())
}

/// The images every node has: pause, and busybox for tests.
pub fn node_images(paths: &ClusterPaths) -> Result<Vec<Image>> {
    let folder = paths.data.join("images");
    let pause = Content::program(&cluster::pause(&paths.workspace)?)?;
    Ok(vec![
        build(&folder, "localhost/holdfast-pause", Some("dev"), &pause)?,
        tools(&folder, "localhost")?,
    ])
}

/// The reference of [`tools`].
pub fn tools_reference(prefix: &str) -> String {
    format!("{prefix}/holdfast-busybox:dev")
}

/// The image with a shell, `<prefix>/holdfast-busybox:dev`, in `folder`.
pub fn tools(folder: &Path, prefix: &str) -> Result<Image> {
    let program = cluster::busybox()?;
    let mut busybox = Content::program(&program)?;
    let applets = run("list busybox's programs", &mut cmd(&program, ["--list"]))?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        let link = Source::Link("/usr/bin/busybox".to_owned());
        busybox.files.insert(format!("bin/{applet}"), link);
    }
    busybox.entrypoint.clear();
    build(
        folder,
        &format!("{prefix}/holdfast-busybox"),
        Some("dev"),
        &busybox,
    )
}

/// The libraries that `program` is linked with, as absolute paths.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = cmd("ldd", [program])
        .output()
        .context("`ldd` could not be started: install libc-bin")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    if text.contains("not found") {
        bail!("{} misses a library on this machine:\n{text}", program.display());
    }
    if !output.status.success()
        && !errors.contains("not a dynamic executable")
        && !text.contains("statically")
    {
        bail!(
            "the libraries of {} cannot be listed: {errors}",
            program.display()
        );
    }
    Ok(parse_ldd(&text))
}

fn parse_ldd(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| line.split_ascii_whitespace().find(|word| word.starts_with('/')))
        .map(str::to_owned)
        .collect()
}

/// Writes the layer and returns its SHA-256.
fn write_layer(path: &Path, content: &Content) -> Result<String> {
    let mut entries = content.files.clone();
    entries.insert("tmp".to_owned(), Source::Dir(0o1777));
    entries.insert(
        "etc/passwd".to_owned(),
        Source::Text(format!(
            "root:x:0:0:root:/:/bin/false\nnonroot:x:{USER}:{USER}:nonroot:/tmp:/bin/false\n"
        )),
    );
    entries.insert(
        "etc/group".to_owned(),
        Source::Text(format!("root:x:0:\nnonroot:x:{USER}:\n")),
    );
    let places: Vec<String> = entries.keys().cloned().collect();
    for place in places {
        for parent in Path::new(&place).ancestors().skip(1) {
            let parent = parent.to_string_lossy().into_owned();
            if !parent.is_empty() {
                entries.entry(parent).or_insert(Source::Dir(0o755));
            }
        }
    }
    let file = BufWriter::new(File::create(path)?);
    let mut tar = tar::Builder::new(Hashing {
        inner: file,
        hash: Sha256::new(),
    });
    for (place, source) in &entries {
        match source {
            Source::File(from, mode) => {
                // ldd may name a link: what it leads to is copied.
                let file = File::open(from).with_context(|| format!("{} cannot be read", from.display()))?;
                let size = file.metadata()?.len();
                append(&mut tar, place, *mode, size, BufReader::new(file))?;
            }
            Source::Text(text) => append(&mut tar, place, 0o644, text.len() as u64, text.as_bytes())?,
            Source::Link(target) => {
                let mut header = header(tar::EntryType::Symlink, 0o777, 0);
                tar.append_link(&mut header, place, target)?;
            }
            Source::Dir(mode) => {
                let mut header = header(tar::EntryType::Directory, *mode, 0);
                tar.append_data(&mut header, format!("{place}/"), io::empty())?;
            }
        }
    }
    let mut hashing = tar.into_inner()?;
    hashing.flush()?;
    Ok(hex(&hashing.hash.finalize()))
}

fn append(
    tar: &mut tar::Builder<impl Write>,
    place: &str,
    mode: u32,
    size: u64,
    data: impl Read,
) -> Result<()> {
    let mut header = header(tar::EntryType::Regular, mode, size);
    tar.append_data(&mut header, place, data)
        .with_context(|| format!("{place} cannot be archived"))
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_names_paths() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        assert_eq!(parse_ldd(text), ["/lib/x/libc.so.6", "/lib64/ld.so"]);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn the_same_program_gives_the_same_image() {
        let dir = std::env::temp_dir().join(format!("holdfast-image-{}", std::process::id()));
        let program = std::env::current_exe().expect("this test");
        let content = Content::program(&program).expect("libraries");
        let first = build(&dir, "localhost/one", None, &content).expect("built");
        let bytes = fs::read(&first.archive).expect("read");
        let second = build(&dir, "localhost/one", None, &content).expect("built");
        assert_eq!(first.reference, second.reference);
        assert_eq!(bytes, fs::read(&second.archive).expect("read"));
        fs::remove_dir_all(dir).expect("removed");
    }
}
