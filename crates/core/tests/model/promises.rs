//! What must hold in every state, and what must be possible.
//!
//! **Promises.** Each property begins with the number of its promise in `docs/design.md` section 8; 0 is the
//! principle that records come before acts.
//!
//! **Assumes.** Steps note what they broke when they break it ([`super::world::Broken`]).

use super::drain;
use super::model::Model;
use super::world::Life;
use stateright::Property;

/// What must hold. `drains`: with the end of each sampled state, and what has to be possible.
pub fn properties(drains: bool) -> Vec<Property<Model>> {
    let mut properties = vec![
        Property::<Model>::always("0: records come before acts", |_, s| !s.broken.is(0)),
        Property::<Model>::always("1: nothing is deleted that may not be", |_, s| !s.broken.is(1)),
        Property::<Model>::always("2: a hold ends by those who may", |_, s| !s.broken.is(2)),
        Property::<Model>::always(
            "3: never two live batches, nor two Jobs over one member",
            |_, s| !s.broken.is(3),
        ),
        Property::<Model>::always("4: a finalizer goes after a decision or a listing", |_, s| {
            !s.broken.is(4)
        }),
    ];
    if drains {
        properties.push(Property::<Model>::always(
            "2: it drains or says why not",
            |model, s| !model.samples(s) || drain::ends_well(model, s),
        ));
        properties.extend(reachable());
    }
    properties
}

/// What has to be possible, or the rest would prove nothing.
pub fn reachable() -> Vec<Property<Model>> {
    vec![
        Property::<Model>::sometimes("a member is held and marked", |_, s| {
            s.objects.iter().any(|object| object.held)
        }),
        Property::<Model>::sometimes("a held member fires", |_, s| {
            let jobs = s.jobs.iter().flatten();
            jobs.fold(0, |mask, job| mask | job.members) & s.was_held != 0
        }),
        Property::<Model>::sometimes("a whole wave is gone with its data", |_, s| {
            s.bytes == 0 && s.objects.iter().all(|object| object.life == Life::Gone)
        }),
        Property::<Model>::sometimes("a former leader is still at work beside the next", |_, s| {
            s.former.is_some() && s.leader.pass.is_some()
        }),
    ]
}
