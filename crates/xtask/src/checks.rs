//! Checks of the checkout that no compiler makes. Each can fail, and has a test with a bad sample.

mod cases;
mod examples;
mod fields;
mod links;
mod purity;
mod quota_cases;
mod shown;

use std::process::Command;

pub use self::cases::every_case_has_a_test;
pub use self::examples::examples_are_accepted;
pub use self::fields::every_field_has_a_test;
pub use self::links::links_lead_somewhere;
pub use self::purity::{api_has_no_client, core_is_pure};
pub use self::quota_cases::every_quota_case_has_a_test;
pub use self::shown::manifests_are_shown;

/// The cargo that started this program.
pub fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_checkout_passes() {
        let workspace = crate::paths::workspace().expect("a checkout");
        core_is_pure(&workspace).expect("core");
        api_has_no_client(&workspace).expect("api");
        assert!(examples_are_accepted(&workspace).expect("examples") >= 4);
        links_lead_somewhere(&workspace).expect("links");
        every_case_has_a_test(&workspace).expect("cases");
        every_quota_case_has_a_test(&workspace).expect("quota cases");
        every_field_has_a_test(&workspace).expect("fields");
        manifests_are_shown(&workspace).expect("manifests");
    }
}
