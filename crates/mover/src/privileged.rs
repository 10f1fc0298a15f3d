//! A mover that starts as root, and whose repository's files belong to another user.
//!
//! **Promises.** It becomes that user before it opens the repository, and so does every program that it starts: what it
//! writes there belongs to whom it always belongs. What its container was given to read or set whatever a volume holds
//! stays; the right to become somebody does not.
//!
//! **Assumes.** No other thread runs yet: the kernel keeps users and capabilities for each.

use crate::places::Places;
use crate::run::{failure, read_document, say};
use holdfast_protocol::outcome::{Failure, FailureClass};
use rustix::io;
use rustix::process::Uid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set, set_capabilities,
    set_keep_capabilities, set_thread_res_uid,
};

/// Becomes the user that the work document names, if it names one.
pub(crate) fn become_whom_the_document_names(places: &Places) -> Result<(), Failure> {
    // A document that cannot be read is told of by who needs what else is in it.
    let named = read_document(&places.work).ok().and_then(|d| d.repository.user);
    let Some(user) = named else {
        return Ok(());
    };
    become_user(user).map_err(|cause| {
        let message = format!(
            "the mover cannot become user {user}, whose the repository's files are: {cause}. Its container has to start \
             as root with the capability SETUID"
        );
        failure(FailureClass::OperationFailed, message)
    })
}

fn become_user(user: u32) -> io::Result<()> {
    let stays = capabilities(None)?.permitted - CapabilitySet::SETUID;
    // Without this the change of user would take all of them.
    set_keep_capabilities(true)?;
    let id = Uid::from_raw(user);
    set_thread_res_uid(id, id, id)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: stays,
            permitted: stays,
            inheritable: stays,
        },
    )?;
    // A program that is started has those of the ambient set alone.
    for one in stays.iter() {
        configure_capability_in_ambient_set(one, true)?;
    }
    say(&format!("this mover started as root and is user {user} now"));
    Ok(())
}
