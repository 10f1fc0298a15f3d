//! Refusals in the words of the API server.

use super::path::Place;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal: the code, the word, the sentence, the details.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub code: StatusCode,
    reason: &'static str,
    message: String,
    details: Value,
}

impl Refusal {
    fn about(code: StatusCode, reason: &'static str, place: &Place<'_>, name: &str, message: String) -> Self {
        let mut details = json!({ "name": name, "kind": place.plural });
        if !place.group.is_empty() {
            details["group"] = json!(place.group);
        }
        Self {
            code,
            reason,
            message,
            details,
        }
    }

    pub fn not_found(place: &Place<'_>, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", place.resource());
        Self::about(StatusCode::NOT_FOUND, "NotFound", place, name, message)
    }

    pub fn exists(place: &Place<'_>, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", place.resource());
        Self::about(StatusCode::CONFLICT, "AlreadyExists", place, name, message)
    }

    pub fn conflict(place: &Place<'_>, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            place.resource()
        );
        Self::about(StatusCode::CONFLICT, "Conflict", place, name, message)
    }

    pub fn modified(place: &Place<'_>, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(place, name, why)
    }

    /// A precondition of a deletion does not hold. Here the API server names the kind.
    pub fn precondition(
        kind: &str,
        place: &Place<'_>,
        name: &str,
        word: &str,
        wanted: &str,
        found: &str,
    ) -> Self {
        let might = if word == "UID" {
            "deleted and then recreated"
        } else {
            "modified"
        };
        let why = format!(
            "the {word} in the precondition ({wanted}) does not match the {word} in record ({found}). The object might have been {might}"
        );
        let place = Place {
            plural: kind,
            ..*place
        };
        Self::conflict(&place, name, &why)
    }

    /// The API server takes no more content in this namespace.
    pub fn terminating(place: &Place<'_>, name: &str, namespace: &str) -> Self {
        let sentence =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let message = format!("{} \"{name}\" is forbidden: {sentence}", place.resource());
        let mut refusal = Self::about(StatusCode::FORBIDDEN, "Forbidden", place, name, message);
        refusal.details["causes"] = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        refusal
    }

    /// A JSON patch that does not apply: the sentence by which the operator knows it.
    pub fn patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        let mut refusal = Self::plain(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        refusal.details = json!({});
        refusal
    }

    /// One field of an object is refused.
    pub fn invalid(kind: &str, place: &Place<'_>, name: &str, field: &str, word: &str, why: &str) -> Self {
        let named = if place.group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{}", place.group)
        };
        let message = format!("{named} \"{name}\" is invalid: {field}: {why}");
        let cause = json!({ "reason": word, "message": why, "field": field });
        // Objects of our definitions are checked twice.
        let twice = place.is_custom() && field != "metadata.resourceVersion";
        let causes = vec![cause; if twice { 2 } else { 1 }];
        let mut details = json!({ "name": name, "kind": kind, "causes": causes });
        if !place.group.is_empty() {
            details["group"] = json!(place.group);
        }
        Self {
            code: StatusCode::UNPROCESSABLE_ENTITY,
            reason: "Invalid",
            message,
            details,
        }
    }

    pub fn plain(code: StatusCode, reason: &'static str, message: &str) -> Self {
        Self {
            code,
            reason,
            message: message.to_owned(),
            details: Value::Null,
        }
    }

    /// Too old to be watched or continued from.
    pub fn expired(message: &str) -> Self {
        Self::plain(StatusCode::GONE, "Expired", message)
    }

    /// What a test wants to be answered.
    pub fn scripted(code: StatusCode) -> Self {
        let reason = match code {
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
            _ => "InternalError",
        };
        Self::plain(code, reason, "refused by the test")
    }

    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
            "code": self.code.as_u16(), "message": self.message,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.code, axum::Json(self.body())).into_response()
    }
}
