//! Events on the objects they are about (events.k8s.io/v1).
//!
//! **Promises.** Publishing never fails the caller: an event is for people, no decision rests on one. What the API
//! server would refuse is cut to size first. Where a namespace is terminating, events cannot be created in it; the
//! caller is told ([`Published::NamespaceTerminating`]) and publishes one on the repository instead
//! (`docs/design.md` 3.4).
//!
//! **Assumes.** Callers publish once per transition. Repeats within six minutes become a series.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Api;
use kube::api::PostParams;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::time::Duration;

/// Longest note the API accepts, in bytes.
pub const NOTE_LIMIT: usize = 1_024;
/// Longest reason and action the API accepts, in bytes.
const WORD_LIMIT: usize = 128;
/// An event is not worth more waiting than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "in a terminating namespace the event has to go elsewhere"]
pub enum Published {
    /// It is on the API server.
    Yes,
    /// Its namespace is terminating: nothing can be created there any more.
    NamespaceTerminating,
    /// Something else went wrong; it was logged.
    No,
}

/// Publishes events in the operator's name.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
    reporter: Reporter,
    client: kube::Client,
}

impl Events {
    /// Events reported by `instance` (the pod's name).
    #[must_use]
    pub fn new(client: kube::Client, instance: &str) -> Self {
        let reporter = Reporter {
            controller: holdfast_api::names::MANAGED_BY.to_owned(),
            instance: Some(cut(instance, WORD_LIMIT)),
        };
        Self {
            recorder: Recorder::new(client.clone(), reporter.clone()),
            reporter,
            client,
        }
    }

    /// Publishes one event under this name, unless there is one: who says the same again, another leader included,
    /// says nothing.
    pub async fn publish_once(
        &self,
        name: &str,
        about: &ObjectReference,
        reason: &str,
        note: &str,
        action: &str,
    ) -> Published {
        let namespace = about.namespace.clone().unwrap_or_default();
        let event = v1::Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            type_: Some("Warning".to_owned()),
            reason: Some(cut(reason, WORD_LIMIT)),
            note: Some(cut(note, NOTE_LIMIT)),
            action: Some(cut(action, WORD_LIMIT)),
            event_time: Some(MicroTime(Timestamp::now())),
            regarding: Some(about.clone()),
            reporting_controller: Some(self.reporter.controller.clone()),
            reporting_instance: self.reporter.instance.clone(),
            ..v1::Event::default()
        };
        let events: Api<v1::Event> = Api::namespaced(self.client.clone(), &namespace);
        let params = PostParams::default();
        match tokio::time::timeout(PATIENCE, events.create(&params, &event)).await {
            Ok(Ok(_)) => Published::Yes,
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => Published::Yes,
            Ok(Err(error)) => {
                tracing::warn!(%error, reason, object = about.name, "an event could not be published");
                refusal(&error)
            }
            Err(_) => {
                tracing::warn!(
                    reason,
                    object = about.name,
                    "an event took too long and was given up"
                );
                Published::No
            }
        }
    }

    /// Publishes one event about an object.
    pub async fn publish(
        &self,
        about: &ObjectReference,
        type_: EventType,
        reason: &str,
        note: &str,
        action: &str,
    ) -> Published {
        let event = Event {
            type_,
            reason: cut(reason, WORD_LIMIT),
            note: Some(cut(note, NOTE_LIMIT)),
            action: cut(action, WORD_LIMIT),
            secondary: None,
        };
        let published = match tokio::time::timeout(PATIENCE, self.recorder.publish(&event, about)).await {
            Ok(Ok(())) => return Published::Yes,
            Ok(Err(error)) => {
                let published = refusal(&error);
                if published == Published::No {
                    tracing::warn!(%error, reason, object = about.name, "an event could not be published");
                }
                published
            }
            Err(_) => {
                tracing::warn!(
                    reason,
                    object = about.name,
                    "an event took too long and was given up"
                );
                Published::No
            }
        };
        tracing::debug!(
            ?published,
            reason,
            object = about.name,
            "event not on the API server"
        );
        published
    }
}

/// Tells a terminating namespace from other refusals.
fn refusal(error: &kube::Error) -> Published {
    let kube::Error::Api(status) = error else {
        return Published::No;
    };
    let cause = status.details.as_ref().is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.reason == "NamespaceTerminating")
    });
    // Older servers give only the sentence; a namespace that is gone altogether answers 404.
    let sentence = status.code == 403 && status.message.contains("because it is being terminated");
    let gone = status.code == 404
        && status
            .details
            .as_ref()
            .is_some_and(|details| details.kind == "namespaces");
    if cause || sentence || gone {
        Published::NamespaceTerminating
    } else {
        Published::No
    }
}

/// The longest beginning of at most `limit` bytes that ends between characters, with an ellipsis if it was cut.
fn cut(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mark = '…';
    let end = (0..=limit - mark.len_utf8())
        .rev()
        .find(|&end| text.is_char_boundary(end))
        .unwrap_or(0);
    let mut short = text[..end].to_owned();
    short.push(mark);
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters() {
        assert_eq!(cut("short", NOTE_LIMIT), "short");
        for character in ["a", "ä", "…", "🗄"] {
            let long = character.repeat(NOTE_LIMIT + 1);
            let short = cut(&long, NOTE_LIMIT);
            assert!(short.len() <= NOTE_LIMIT && short.len() > NOTE_LIMIT - 8 && short.ends_with('…'));
        }
        assert_eq!(cut(&"x".repeat(NOTE_LIMIT), NOTE_LIMIT), "x".repeat(NOTE_LIMIT));
    }

    fn refused(json: serde_json::Value) -> kube::Error {
        kube::Error::Api(serde_json::from_value(json).expect("a Status"))
    }

    #[test]
    fn a_terminating_namespace_is_told_from_a_missing_right() {
        let terminating = serde_json::json!({
            "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "events is forbidden: unable to create new content in namespace a because it is being terminated",
            "details": {"causes": [{"reason": "NamespaceTerminating", "message": "namespace a is being terminated"}]},
        });
        assert_eq!(refusal(&refused(terminating)), Published::NamespaceTerminating);
        let sentence_only = serde_json::json!({
            "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "unable to create new content in namespace a because it is being terminated",
        });
        assert_eq!(refusal(&refused(sentence_only)), Published::NamespaceTerminating);
        let gone = serde_json::json!({
            "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": "namespaces \"a\" not found", "details": {"kind": "namespaces", "name": "a"},
        });
        assert_eq!(refusal(&refused(gone)), Published::NamespaceTerminating);
        let no_right = serde_json::json!({
            "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": "events.events.k8s.io is forbidden: User \"x\" cannot create resource \"events\"",
        });
        assert_eq!(refusal(&refused(no_right)), Published::No);
    }
}
