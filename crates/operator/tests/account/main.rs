//! Account itself against a real API server and controller manager: the operator's half runs in this process, as a
//! user that has the rights of the chart and no others (`docs/design.md` section 4).
//!
//! The numbers in the comments are those of the cases (`xtask/src/checks/quota_cases.rs`). Runs
//! where `HOLDFAST_E2E_CONTROL_PLANE` names a kubeconfig, after the target `quota_keys`; elsewhere each test says that
//! it was skipped.

mod driver;
mod figures;
mod gate;
mod hierarchy;
mod history;
#[allow(dead_code, reason = "the target quota_keys uses the rest")]
#[path = "../quota_keys/lab.rs"]
mod lab;
mod manifests;
mod office;
mod plans;
mod records;
mod restarts;
#[allow(dead_code, reason = "the target stores uses the rest")]
#[path = "../stores/scripted.rs"]
mod scripted;
mod stores;
mod webhook;
