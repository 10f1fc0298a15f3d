//! The program inside Holdfast's Jobs: one work document in, one termination message out.
//!
//! **Promises.** It ends with exit code 0 exactly when everything asked for is confirmed, and otherwise with 1 and
//! a message that says why. A panic is a failed outcome. SIGTERM ends it at once with 143, also as process 1,
//! for which the kernel has no default action. It never talks to the Kubernetes API, and only a listing needs
//! the operator to answer.
//!
//! **Assumes.** The files of [`places::Places`] are mounted as `holdfast_protocol` says.

mod backup;
mod batch;
mod list;
mod location;
mod maintain;
mod pin;
mod places;
mod plan;
mod post;
mod privileged;
mod restore;
mod run;

use holdfast_engine::Repository;
use holdfast_protocol::outcome::{Failure, FailureClass, OperationResult, Outcome};
use places::Places;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const HELP: &str = "\
holdfast-mover: backs up, restores, deletes, pins, lists in and maintains a backup repository; the program inside Holdfast's Jobs.

It takes no arguments. What to do stands in the work document, how it went is written to the termination
message. Exit code 0: everything asked for is confirmed. 1: not so, the message says why.

  --help       this text
  --version    version of the program and of the protocol it speaks

Environment (for tests and other runtimes; the defaults are those of the Jobs):
  HOLDFAST_WORK_PATH                  the work document (/etc/holdfast/work/work.json)
  HOLDFAST_SECRET_DIR                 directory with the password file (/etc/holdfast/secret)
  HOLDFAST_BACKEND_DIR                directory with the keys of an object store (/etc/holdfast/backend)
  HOLDFAST_TOKEN_PATH                 token for posting listings (/var/run/secrets/holdfast/token)
  HOLDFAST_TERMINATION_PATH           where the outcome is written (/dev/termination-log)
  HOLDFAST_RESULTS_PATIENCE_SECONDS   how long one chunk of a listing is offered before giving up (60)
  KOPIA_BIN                           the kopia program (the one in PATH)
";

/// The program: reads what to do from where a Job mounts it, and answers with its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => work(),
        ["--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        ["--version" | "-V"] => {
            let protocol = holdfast_protocol::VERSION;
            println!(
                "holdfast-mover {} (protocol {protocol})",
                env!("CARGO_PKG_VERSION")
            );
            ExitCode::SUCCESS
        }
        [first, ..] => {
            eprintln!("holdfast-mover takes no argument `{first}`; see --help");
            ExitCode::from(2)
        }
    }
}

/// Carries out a work document on a repository that is open already, and answers with what the program would leave as
/// its termination message: for tests that put an engine of theirs in the place of a real one.
#[must_use]
pub fn on(repository: &mut dyn Repository, document: &str) -> Outcome {
    run::on(repository, document, &Places::from_environment())
}

fn work() -> ExitCode {
    let always = Arc::new(AtomicBool::new(true));
    for (signal, code) in [(SIGTERM, 143), (SIGINT, 130)] {
        if let Err(cause) =
            signal_hook::flag::register_conditional_shutdown(signal, code, Arc::clone(&always))
        {
            eprintln!("signal {signal} cannot be handled ({cause}); going on without");
        }
    }
    // Named once for the process: should a dependency switch a second provider on, rustls would refuse to choose.
    if rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("a TLS provider was installed already");
    }
    let places = Places::from_environment();
    let settled = privileged::become_whom_the_document_names(&places);
    holdfast_engine::bound_threads();
    let outcome = catch_unwind(|| match settled {
        Ok(()) => run::perform(&places),
        Err(failure) => run::outcome(Err(failure.into()), None),
    })
    .unwrap_or_else(|_| Outcome {
        version: holdfast_protocol::VERSION,
        unique_id: None,
        error: Some(Failure {
            class: FailureClass::OperationFailed,
            message: "the mover panicked; the container's log has the place. Report it; nothing is confirmed"
                .to_owned(),
        }),
        result: OperationResult::None,
    });
    finish(&places, &outcome)
}

/// Writes the outcome and turns it into an exit code.
fn finish(places: &Places, outcome: &Outcome) -> ExitCode {
    if let Some(failure) = &outcome.error {
        eprintln!("failed ({:?}): {}", failure.class, failure.message);
    }
    if let Err(cause) = std::fs::write(&places.termination, outcome.encode()) {
        eprintln!(
            "the outcome cannot be written to {}: {cause}",
            places.termination.display()
        );
        return ExitCode::FAILURE;
    }
    if run::confirmed(outcome) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
