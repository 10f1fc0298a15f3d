//! The ground that published figures stand on: what a real API server and a real controller manager do with quota
//! keys that no evaluator of theirs knows (`docs/design.md` 4.3).
//!
//! Kubernetes promises none of this, so a release is gated on it: `cargo xtask test` runs it on the oldest and the
//! newest supported control plane, `--kubernetes all` on every one. Each has a resync period of ten seconds. Each name says what is shown.
//!
//! Runs where `HOLDFAST_E2E_CONTROL_PLANE` names a kubeconfig and `HOLDFAST_E2E_PROGRAM` the command that pauses,
//! resumes and restarts a program of that control plane; elsewhere each test says that it was skipped.

mod admission;
mod lab;
mod resync;
mod values;
mod writers;
