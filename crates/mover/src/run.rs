//! From work document to outcome.
//!
//! **Promises.** Nothing but a bootstrap that has no unique id recorded ever creates a repository. Every other
//! operation first proves that the repository is the recorded one. The password appears in no text.

use crate::places::Places;
use crate::plan::Ids;
use crate::{backup, batch, list, location, maintain, pin, restore};
use holdfast_engine::kopia::Kopia;
use holdfast_engine::restic::Restic;
use holdfast_engine::{Engine, EngineError, ErrorClass, Password, Repository};
use holdfast_protocol::letters::{self, Letter};
use holdfast_protocol::outcome::{Failure, FailureClass, OperationResult, Outcome};
use holdfast_protocol::restore::RestoreAnswer;
use holdfast_protocol::work::{EngineKind, Operation, WorkDocument};
use std::io::Write;
use std::path::Path;

/// A failed operation together with what can still be said of its result.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    pub(crate) result: Box<OperationResult>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self {
            failure,
            result: Box::new(OperationResult::None),
        }
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        failure_of(&error).into()
    }
}

/// The engine's error as the protocol says it.
pub(crate) fn failure_of(error: &EngineError) -> Failure {
    let class = match error.class() {
        ErrorClass::InvalidPassword => FailureClass::InvalidPassword,
        ErrorClass::NotInitialized => FailureClass::RepositoryNotInitialized,
        ErrorClass::Replaced => FailureClass::RepositoryReplaced,
        ErrorClass::Unreachable => FailureClass::BackendUnreachable,
        ErrorClass::SourceUnreadable => FailureClass::SourceUnreadable,
        ErrorClass::Failed => FailureClass::OperationFailed,
    };
    failure(class, error.to_string())
}

pub(crate) fn failure(class: FailureClass, message: impl Into<String>) -> Failure {
    Failure {
        class,
        message: message.into(),
    }
}

/// One line of progress. A log that nobody reads any more is no reason to stop.
pub(crate) fn say(line: &str) {
    if cfg!(test) {
        println!("{line}");
    } else {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}

/// Whether another try is to be spared, which is exit code 0: everything asked for is confirmed, or files are restored
/// and something of them could not be set. Another try would find them, and could set no more.
pub(crate) fn confirmed(outcome: &Outcome) -> bool {
    let batch = match &outcome.result {
        OperationResult::Batch { missing: _, letters } => letters::read(letters, letters.chars().count())
            .is_some_and(|letters| letters.iter().all(|l| l.confirms())),
        OperationResult::None
        | OperationResult::Bootstrapped { .. }
        | OperationResult::BackedUp { .. }
        | OperationResult::Listed { .. }
        | OperationResult::Restore(_)
        | OperationResult::Maintained { .. }
        | OperationResult::Pinned { .. }
        | OperationResult::NotOwner { .. } => true,
    };
    let restored = matches!(
        outcome.result,
        OperationResult::Restore(RestoreAnswer::Restored { .. })
    );
    (outcome.error.is_none() && batch) || restored
}

/// Does what the work document asks.
pub(crate) fn perform(places: &Places) -> Outcome {
    let mut unique_id = None;
    let done = try_perform(places, &mut unique_id);
    outcome(done, unique_id)
}

pub(crate) fn outcome(done: Result<OperationResult, Failed>, unique_id: Option<String>) -> Outcome {
    let (result, error) = match done {
        Ok(result) => (result, None),
        Err(failed) => (*failed.result, Some(failed.failure)),
    };
    Outcome {
        version: holdfast_protocol::VERSION,
        unique_id,
        error,
        result,
    }
}

fn try_perform(places: &Places, unique_id: &mut Option<String>) -> Result<OperationResult, Failed> {
    let document = read_document(&places.work)?;
    let password = read_password(&places.secrets, &document.repository.password_key)?;
    let engine = engine(document.repository.engine);
    let at = location::of(&document.repository, &places.backend)?;
    say(&format!(
        "holdfast-mover {}: opening {at}",
        env!("CARGO_PKG_VERSION")
    ));
    std::thread::sleep(places.connect_delay);
    let (mut repository, created) = match engine.open(&at, &password) {
        Ok(repository) => (repository, false),
        Err(error) if error.class() == ErrorClass::NotInitialized && may_create(&document) => {
            (engine.initialize(&at, &password)?, true)
        }
        Err(error) => return Err(error.into()),
    };
    carry_out(repository.as_mut(), &document, created, places, unique_id)
}

fn engine(kind: EngineKind) -> Box<dyn Engine> {
    match kind {
        EngineKind::Kopia => Box::new(Kopia::default()),
        EngineKind::Restic => Box::new(Restic),
    }
}

/// The same on a repository that is open already.
pub(crate) fn on(repository: &mut dyn Repository, document: &str, places: &Places) -> Outcome {
    let mut unique_id = None;
    let done = WorkDocument::parse(document)
        .map_err(|error| Failed::from(failure(FailureClass::InvalidWork, error.to_string())))
        .and_then(|document| carry_out(repository, &document, false, places, &mut unique_id));
    outcome(done, unique_id)
}

fn carry_out(
    repository: &mut dyn Repository,
    document: &WorkDocument,
    created: bool,
    places: &Places,
    unique_id: &mut Option<String>,
) -> Result<OperationResult, Failed> {
    say(&format!("connected, unique id {}", repository.unique_id()));
    *unique_id = Some(repository.unique_id().to_owned());
    let recorded = document.repository.unique_id.as_deref();
    if let Some(recorded) = recorded.filter(|r| *r != repository.unique_id()) {
        return Err(replaced(&document.operation, recorded, repository));
    }
    match &document.operation {
        Operation::Bootstrap { create: _ } => {
            let listing = repository.list()?;
            let snapshots = (listing.snapshots.len() + listing.unreadable.len()) as u64;
            Ok(OperationResult::Bootstrapped { created, snapshots })
        }
        Operation::Backup { items } => backup::run(repository, &document.cluster, items),
        Operation::DeleteBatch { members, kept } => {
            batch::run(repository, &document.cluster, members, kept, ids_of(document))
        }
        Operation::Pin { item } => pin::run(repository, &document.cluster, item, ids_of(document)),
        Operation::List {} => list::run(repository, document.results.as_ref(), places),
        Operation::Resolve { wanted } => restore::resolve(repository, &document.cluster, wanted),
        Operation::Restore { item } => {
            let results = document.results.as_ref();
            restore::run(repository, item, ids_of(document), results, places)
        }
        Operation::Maintain { effort, claim } => maintain::run(repository, *effort, claim),
    }
}

fn ids_of(document: &WorkDocument) -> Ids {
    if engine(document.repository.engine).ids_may_change() {
        Ids::MayChange
    } else {
        Ids::Fixed
    }
}

/// A repository is made only where none was ever recorded.
fn may_create(document: &WorkDocument) -> bool {
    match &document.operation {
        Operation::Bootstrap { create } => *create && document.repository.unique_id.is_none(),
        Operation::Backup { .. }
        | Operation::DeleteBatch { .. }
        | Operation::Pin { .. }
        | Operation::List {}
        | Operation::Resolve { .. }
        | Operation::Restore { .. }
        | Operation::Maintain { .. } => false,
    }
}

fn replaced(operation: &Operation, recorded: &str, repository: &dyn Repository) -> Failed {
    let found = repository.unique_id();
    let failure = failure(
        FailureClass::RepositoryReplaced,
        format!(
            "the repository has the unique id {found}, recorded is {recorded}: it was replaced, or another \
             volume is mounted. Nothing was touched. Put the recorded repository back, or make a new object \
             for the new one"
        ),
    );
    let result = match operation {
        Operation::DeleteBatch { members, kept: _ } => OperationResult::Batch {
            missing: Vec::new(),
            letters: letters::write(&vec![Letter::RepositoryReplaced; members.len()]),
        },
        Operation::Bootstrap { .. }
        | Operation::Backup { .. }
        | Operation::Pin { .. }
        | Operation::List {}
        | Operation::Resolve { .. }
        | Operation::Restore { .. }
        | Operation::Maintain { .. } => OperationResult::None,
    };
    Failed {
        failure,
        result: Box::new(result),
    }
}

pub(crate) fn read_document(path: &Path) -> Result<WorkDocument, Failure> {
    let refused = |message: String| failure(FailureClass::InvalidWork, message);
    let text = std::fs::read_to_string(path).map_err(|cause| {
        let shown = path.display();
        refused(format!(
            "the work document {shown} cannot be read: {cause}. The Job must mount it"
        ))
    })?;
    let document = WorkDocument::parse(&text).map_err(|e| refused(e.to_string()))?;
    let identified = document
        .repository
        .unique_id
        .as_ref()
        .is_some_and(|id| !id.is_empty());
    match &document.operation {
        Operation::Bootstrap { create: true } if document.repository.unique_id.is_some() => Err(refused(
            "the work document asks to create a repository although one was recorded; it is never created \
             again. Send `create: false`"
                .to_owned(),
        )),
        Operation::Backup { .. }
        | Operation::DeleteBatch { .. }
        | Operation::Pin { .. }
        | Operation::List {}
        | Operation::Resolve { .. }
        | Operation::Restore { .. }
        | Operation::Maintain { .. }
            if !identified =>
        {
            Err(refused(
                "the work document names no unique id; only a bootstrap may go without. Bootstrap first"
                    .to_owned(),
            ))
        }
        Operation::Bootstrap { .. }
        | Operation::Backup { .. }
        | Operation::DeleteBatch { .. }
        | Operation::Pin { .. }
        | Operation::List {}
        | Operation::Resolve { .. }
        | Operation::Restore { .. }
        | Operation::Maintain { .. } => Ok(document),
    }
}

fn read_password(secrets: &Path, key: &str) -> Result<Password, Failure> {
    let refused = |why: &str| {
        let next = "Check the key in the repository's passwordSecretRef and the Secret it names";
        failure(
            FailureClass::InvalidPassword,
            format!("no password: {why} (key `{key}`). {next}"),
        )
    };
    if key.is_empty() || key.contains('/') || key.starts_with("..") {
        return Err(refused("the key is not a name of a Secret's entry"));
    }
    let text = std::fs::read(secrets.join(key)).map_err(|cause| refused(&cause.kind().to_string()))?;
    let text = String::from_utf8(text).map_err(|_| refused("it is not UTF-8 text"))?;
    // Secrets made from files end in a newline that nobody means.
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    if text.is_empty() {
        return Err(refused("it is empty"));
    }
    Ok(Password::new(text))
}
