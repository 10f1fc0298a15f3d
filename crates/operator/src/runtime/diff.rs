//! The difference of two statuses as a JSON merge patch.
//!
//! **Promises.** Only what changed is in the patch, removed fields as `null`; `None` means nothing changed and
//! nothing is to be written. Fields that only a newer version knows are not touched.

use serde::Serialize;
use serde_json::{Map, Value};

/// Difference of two values of one type; `None` when there is none.
pub fn merge_patch<T: Serialize>(old: &T, new: &T) -> Option<Value> {
    let old = serde_json::to_value(old).ok()?;
    let new = serde_json::to_value(new).ok()?;
    diff(&old, &new)
}

fn diff(old: &Value, new: &Value) -> Option<Value> {
    if old == new {
        return None;
    }
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return Some(new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) => {
                if let Some(change) = diff(before, value) {
                    patch.insert(key.clone(), change);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|k| !new.contains_key(*k)) {
        patch.insert(key.clone(), Value::Null);
    }
    Some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_changes_are_written_and_removals_are_null() {
        let old = json!({"a": 1, "b": {"c": 1, "d": 2}, "list": [1]});
        let new = json!({"a": 1, "b": {"c": 3}, "list": [1, 2], "e": {"f": null}});
        let patch = diff(&old, &new).unwrap();
        assert_eq!(
            patch,
            json!({"b": {"c": 3, "d": null}, "list": [1, 2], "e": {"f": null}})
        );
        assert_eq!(diff(&new, &new), None);
    }
}
