//! Tests of the repository controller's decisions.
