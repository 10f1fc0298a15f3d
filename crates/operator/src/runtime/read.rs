//! Looking for an object that may not be there.
//!
//! **Promises.** An object of a kind without a definition is not there either: the API server answers 404 as plain
//! text then (and 503 as long as it does not know its definitions yet), which `Api::get_opt` takes for an error.

use kube::api::Api;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// Reads an object; none if there is none.
///
/// # Errors
/// Whatever the API server answers, unless it says that there is none.
pub async fn find<K>(api: &Api<K>, name: &str) -> Result<Option<K>, kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    absent(api.get(name).await)
}

fn absent<K>(answer: Result<K, kube::Error>) -> Result<Option<K>, kube::Error> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn answer(code: u16, reason: &str) -> Result<(), kube::Error> {
        let status = Status::failure("404 page not found", reason).with_code(code);
        Err(kube::Error::Api(status.boxed()))
    }

    #[test]
    fn without_the_definition_of_its_kind_an_object_is_not_there() {
        assert!(matches!(
            absent(answer(404, "Failed to parse error data")),
            Ok(None)
        ));
        assert!(matches!(absent(answer(404, "NotFound")), Ok(None)));
        assert!(matches!(absent(Ok(())), Ok(Some(()))));
        // Not known yet is not absent.
        assert!(absent(answer(503, "Failed to parse error data")).is_err());
        assert!(absent(answer(403, "Forbidden")).is_err());
    }
}
