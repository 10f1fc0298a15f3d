//! The catalog: what is in a repository and belongs to no object is seen again, as Snapshots with origin
//! `discovered` (`docs/protect.md`, "Where kept data reappears").
//!
//! **Promises.** Rows are records and nothing else: none is ever a reason to delete data, and deleting one deletes
//! none. A void listing changes nothing. Each scan ends with a record in the repository's status: how many rows
//! there are, or why it is void and when it is repeated. What was begun by a process that went is begun again.
//!
//! **Assumes.** The repository's controller creates the listing Job and never runs two passes over one object at
//! once. Retention and the breaker leave rows alone by themselves.
//!
//! What was taken of exactly what a policy backs up becomes the policy's instead of a row (`docs/design.md` 3.7).
//!
//! Where to look: [`due`] says when, [`plan`] which rows ([`known`] and [`memory_of`]: what is known), [`adopt`] what policies
//! take over, [`vanished`] what is missing, [`row`] and [`adopted`] what the objects look like, [`news`] what live Snapshots are
//! told of their own; [`act`], [`carry`], [`each`], [`under_way`] and [`tell`] write.

mod act;
mod adopt;
#[cfg(test)]
mod adopt_tests;
mod adopted;
mod carry;
pub mod due;
mod each;
mod known;
mod memory_of;
mod news;
mod plan;
mod row;
mod tell;
#[cfg(test)]
mod tests;
mod under_way;
mod vanished;

pub use act::{arrived, void};
pub use adopt::adoption_mode;
pub use under_way::{Ends, end as end_adoption};
