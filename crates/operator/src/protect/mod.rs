//! Protect: the controllers, one folder per kind, each `observe -> decide -> act -> report`.

pub mod catalog;
pub mod maintenance;
pub mod policy;
pub mod repository;
pub mod restore;
pub mod schedule;
pub mod snapshot;
pub mod wave;
mod worker;

pub use worker::start;
pub(crate) use worker::work;
