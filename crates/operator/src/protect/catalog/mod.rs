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
//! Where to look: [`due`] says when, [`plan`] which rows, [`row`] what one looks like, [`act`] writes.

mod act;
pub mod due;
mod plan;
mod row;
#[cfg(test)]
mod tests;

pub use act::{arrived, void};
