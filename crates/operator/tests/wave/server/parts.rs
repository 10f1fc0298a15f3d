//! What a write may touch of an object, and what is left of it.

use super::objects::Change;
use super::path::Place;
use super::refusal::Refusal;
use axum::http::StatusCode;
use serde_json::Value;

pub fn parsed(path: &str) -> Result<Place<'_>, Refusal> {
    Place::parse(path).ok_or_else(|| {
        Refusal::plain(
            StatusCode::NOT_FOUND,
            "NotFound",
            "the server could not find the requested resource",
        )
    })
}

pub fn kind(object: &Value) -> &str {
    text(&object["kind"])
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub fn changed(old: &Value, change: &Change<'_>) -> Result<Value, Refusal> {
    let mut new = old.clone();
    match change {
        Change::Replace(body) => new = (*body).clone(),
        Change::Merge(body) => json_patch::merge(&mut new, body),
        Change::Json(body) => {
            let patch: json_patch::Patch =
                serde_json::from_value((*body).clone()).map_err(|_| Refusal::patch())?;
            json_patch::patch(&mut new, &patch).map_err(|_| Refusal::patch())?;
        }
    }
    Ok(new)
}

/// What one kind of write may not touch is as it was.
pub fn keep_apart(place: &Place<'_>, of_status: bool, old: &Value, new: &mut Value) {
    if of_status {
        let status = new["status"].take();
        *new = old.clone();
        new["status"] = status;
    } else if place.has_status() {
        new["status"] = old["status"].clone();
    }
    for key in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "resourceVersion",
    ] {
        new["metadata"][key] = old["metadata"][key].clone();
    }
    for key in ["kind", "apiVersion"] {
        new[key] = old[key].clone();
    }
}

/// Without what counts as nothing.
pub fn tidy(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        map.retain(|_, v| !v.is_null());
    }
    if let Some(meta) = object["metadata"].as_object_mut() {
        meta.retain(|_, v| {
            !v.is_null()
                && v.as_object().is_none_or(|m| !m.is_empty())
                && v.as_array().is_none_or(|a| !a.is_empty())
        });
    }
}

pub fn drop_key(value: &mut Value, key: &str) {
    if let Some(map) = value.as_object_mut() {
        map.remove(key);
    }
}

/// What a generation counts.
pub fn desired(object: &Value) -> Value {
    let mut object = object.clone();
    for key in ["metadata", "status"] {
        drop_key(&mut object, key);
    }
    object
}
