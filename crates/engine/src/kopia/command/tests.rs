#![allow(clippy::unwrap_used)]
use super::*;

/// A session over a script.
fn stand_in(script: &str) -> (TempDir, Session) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    // Written by another process: a file that ours holds open for writing could not be started meanwhile.
    let write = "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\"; chmod 755 \"$0\"";
    let written = Command::new("sh")
        .args(["-c", write])
        .arg(&program)
        .arg(script)
        .status();
    assert!(written.unwrap().success());
    let password = Password::new("open sesame");
    let at = Location::Directory("/repository".into());
    (dir, Session::new(program, &password, &at).unwrap())
}

fn call(arguments: &[&'static str]) -> Call<'static> {
    Call::new("it failed", View::Reading, arguments.iter().copied())
}

#[test]
fn the_password_is_in_the_childs_environment_and_in_no_argument_or_text() {
    let (_dir, session) =
        stand_in("echo \"$KOPIA_PASSWORD\"; echo \"said $KOPIA_PASSWORD\" >&2; echo \"$*\"");
    let ended = session.run(&call(&["snapshot", "list"])).unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    let (password, arguments) = out.trim().split_once('\n').unwrap();
    assert_eq!(password, "open sesame");
    assert_eq!(
        arguments,
        "--no-progress --no-auto-maintenance --disable-file-logging snapshot list"
    );
    assert_eq!(ended.stderr.trim(), "said (secret)");
    assert!(ended.success && !ended.cut);
}

#[test]
fn nothing_of_our_environment_steers_the_program() {
    let (_dir, session) = stand_in("env");
    let ended = session.run(&call(&[])).unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    let home = session.home().display().to_string();
    for line in out.lines() {
        let name = line.split_once('=').map_or(line, |(name, _)| name);
        assert!(
            INHERITED.contains(&name) || line.contains(&home) || name.starts_with("KOPIA_") || name == "_",
            "{line}"
        );
    }
    assert!(out.contains("KOPIA_CHECK_FOR_UPDATES=false"));
    assert!(!out.contains("CARGO"), "{out}");
}

#[test]
fn the_two_views_have_configs_of_their_own() {
    let (_dir, session) = stand_in("echo \"$KOPIA_CONFIG_PATH\"");
    let config = |view| {
        let ended = session.run(&Call::new("it failed", view, ["x"])).unwrap();
        String::from_utf8(ended.stdout).unwrap()
    };
    assert_ne!(config(View::Reading), config(View::Writing));
}

#[test]
fn a_program_that_does_not_answer_is_ended() {
    let (_dir, session) = stand_in("exec sleep 60");
    let mut slow = call(&[]);
    slow.patience = Some(Duration::from_millis(200));
    let begun = Instant::now();
    let error = session.run(&slow).unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unreachable);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn much_talk_is_bounded_and_its_end_is_kept() {
    let (_dir, session) = stand_in("yes chatter | head -c 1000000 >&2; echo the end >&2; exit 1");
    let ended = session.run(&call(&[])).unwrap();
    assert!(ended.cut && !ended.success);
    assert!(ended.stderr.len() <= SAID_LIMIT && ended.stderr.ends_with("the end\n"));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let at = Location::Directory("/repository".into());
    let session = Session::new("/no/such/program".into(), &Password::new("p"), &at).unwrap();
    let error = session.run(&call(&[])).unwrap_err();
    assert!(error.to_string().contains("/no/such/program"), "{error}");
}

#[test]
fn its_files_go_with_the_session() {
    let (_dir, session) = stand_in("touch \"$KOPIA_CONFIG_PATH\"");
    assert!(!session.connected(View::Writing));
    session
        .run(&Call::new("it failed", View::Writing, ["x"]))
        .unwrap();
    assert!(session.connected(View::Writing) && !session.connected(View::Reading));
    let home = session.home().to_owned();
    drop(session);
    assert!(!home.exists());
}
