//! Runs the built mover as a Job would, with every mounted file in a temporary directory.

use holdfast_protocol::outcome::{FailureClass, OperationResult, Outcome, TakenSnapshot};
use holdfast_protocol::work::{
    BackupItem, BatchMember, EngineKind, Operation, RepositoryAccess, ResultsEndpoint, Source, WorkDocument,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

pub const PASSWORD: &str = "correct horse battery staple";
pub const CLUSTER: &str = "0c9e7f3a-cluster";

/// A repository, a source, a Secret, a token.
pub struct Bench {
    pub dir: TempDir,
    pub unique_id: Option<String>,
    pub engine: EngineKind,
    /// Whom the mover becomes.
    pub user: Option<u32>,
}

/// How a run ended.
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub message: String,
    pub outcome: Option<Outcome>,
}

impl Run {
    pub fn outcome(&self) -> &Outcome {
        self.outcome
            .as_ref()
            .unwrap_or_else(|| panic!("no outcome: {:?} {}", self.code, self.message))
    }

    pub fn class(&self) -> Option<FailureClass> {
        self.outcome().error.as_ref().map(|e| e.class)
    }

    pub fn letters(&self) -> &str {
        match &self.outcome().result {
            OperationResult::Batch { letters, .. } => letters,
            other => panic!("no letters: {other:?}"),
        }
    }

    pub fn taken(&self) -> Vec<TakenSnapshot> {
        let lines = self.stdout.lines().filter(|l| l.starts_with("{\"taken\":"));
        let values = lines.map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap());
        values
            .map(|v| serde_json::from_value(v["taken"].clone()).unwrap())
            .collect()
    }
}

impl Bench {
    /// Everything but the repository.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("source/sub")).unwrap();
        fs::write(root.join("source/a"), "a".repeat(1000)).unwrap();
        fs::write(root.join("source/sub/b"), "b".repeat(500)).unwrap();
        fs::create_dir(root.join("repository")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        fs::write(root.join("secret/KOPIA_PASSWORD"), format!("{PASSWORD}\n")).unwrap();
        fs::write(root.join("token"), "secret-token\n").unwrap();
        Self {
            dir,
            unique_id: None,
            engine: EngineKind::Restic,
            user: None,
        }
    }

    /// With a repository whose id is recorded.
    pub fn new() -> Self {
        Self::with(EngineKind::Restic)
    }

    /// The same with this engine.
    pub fn with(engine: EngineKind) -> Self {
        let mut bench = Self::empty();
        bench.engine = engine;
        let run = bench.run(Operation::Bootstrap { create: true });
        assert_eq!(run.code, Some(0), "{}", run.message);
        bench.unique_id.clone_from(&run.outcome().unique_id);
        assert!(bench.unique_id.is_some());
        bench
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn document(&self, operation: Operation) -> WorkDocument {
        WorkDocument {
            version: holdfast_protocol::VERSION,
            cluster: CLUSTER.to_owned(),
            repository: RepositoryAccess {
                engine: self.engine,
                path: self.path("repository").to_str().unwrap().to_owned(),
                bucket: None,
                password_key: "KOPIA_PASSWORD".to_owned(),
                unique_id: self.unique_id.clone(),
                user: self.user,
            },
            operation,
            results: None,
        }
    }

    /// The mover's command line for a document, ready to start.
    pub fn command(&self, document: &WorkDocument) -> Command {
        self.prepared(document, Command::new(env!("CARGO_BIN_EXE_holdfast-mover")))
    }

    /// The same with the repository mounted read-only, which binds root too; `None` where that is not allowed.
    pub fn command_read_only(&self, document: &WorkDocument) -> Option<Command> {
        let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && exec \"$2\"";
        let wrapped = |program: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", script, "sh"]);
            command.arg(self.path("repository")).arg(program);
            command
        };
        let possible = wrapped("true").output().is_ok_and(|o| o.status.success());
        possible.then(|| self.prepared(document, wrapped(env!("CARGO_BIN_EXE_holdfast-mover"))))
    }

    fn prepared(&self, document: &WorkDocument, mut command: Command) -> Command {
        fs::write(self.path("work.json"), serde_json::to_string(document).unwrap()).unwrap();
        let _ = fs::remove_file(self.path("termination"));
        command
            .env("HOLDFAST_WORK_PATH", self.path("work.json"))
            .env("HOLDFAST_SECRET_DIR", self.path("secret"))
            .env("HOLDFAST_TOKEN_PATH", self.path("token"))
            .env("HOLDFAST_TERMINATION_PATH", self.path("termination"))
            .env("HOLDFAST_RESULTS_PATIENCE_SECONDS", "2")
            .env("RUST_BACKTRACE", "0");
        command
    }

    pub fn run(&self, operation: Operation) -> Run {
        self.run_document(&self.document(operation))
    }

    pub fn run_document(&self, document: &WorkDocument) -> Run {
        self.finish(self.command(document))
    }

    /// Runs it to its end and reads what it left; no secret may be anywhere.
    pub fn finish(&self, mut command: Command) -> Run {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let message = fs::read_to_string(self.path("termination")).unwrap_or_default();
        for text in [&stdout, &stderr, &message] {
            assert!(
                !text.contains(PASSWORD) && !text.contains("secret-token"),
                "a secret: {text}"
            );
        }
        assert!(message.len() <= holdfast_protocol::MESSAGE_LIMIT);
        let outcome = Outcome::decode(&message).ok();
        Run {
            code: output.status.code(),
            stdout,
            message,
            outcome,
        }
    }

    pub fn item(&self, uid: &str) -> BackupItem {
        BackupItem {
            uid: uid.to_owned(),
            read_from: self.path("source").to_str().unwrap().to_owned(),
            source: source(),
            tags: BTreeMap::new(),
        }
    }

    /// Takes one snapshot per number, in one run.
    pub fn back_up(&self, numbers: std::ops::Range<usize>) -> Vec<TakenSnapshot> {
        let items = numbers.map(|n| self.item(&format!("uid-{n}"))).collect();
        let run = self.run(Operation::Backup { items });
        assert_eq!(run.code, Some(0), "{}", run.message);
        run.taken()
    }

    pub fn with_results(&self, operation: Operation, results: ResultsEndpoint) -> WorkDocument {
        WorkDocument {
            results: Some(results),
            ..self.document(operation)
        }
    }

    /// Ids that are in the repository, by its own files.
    pub fn ids(&self) -> Vec<String> {
        ids_in(&self.path("repository"))
    }
}

pub fn ids_in(repository: &Path) -> Vec<String> {
    let files = fs::read_dir(repository.join("snapshots")).unwrap();
    let mut ids: Vec<_> = files
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    ids.sort();
    ids
}

pub fn source() -> Source {
    Source {
        username: "policy".to_owned(),
        hostname: "namespace".to_owned(),
        path: "/pvc/data".to_owned(),
    }
}

/// The member as the operator records it: whole seconds.
pub fn member(taken: &TakenSnapshot) -> BatchMember {
    BatchMember {
        uid: taken.uid.clone(),
        snapshot_id: taken.snapshot_id.clone(),
        source: source(),
        start_time: Some(jiff::Timestamp::from_second(taken.start_time.as_second()).unwrap()),
        justified_by: None,
        seen_here: true,
    }
}

/// A batch without a prune.
pub fn batch(members: Vec<BatchMember>) -> Operation {
    Operation::DeleteBatch {
        members,
        kept: Vec::new(),
    }
}
