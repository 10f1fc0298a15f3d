//! Tests of the Snapshot controller's decisions.
