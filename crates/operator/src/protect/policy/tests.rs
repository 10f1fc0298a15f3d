//! Tests of the policy controller's decisions.
