//! The chart's README: its values, from the schema (what each does) and `values.yaml` (what it is by default).
//!
//! Promise: a value without a description, one in the schema without a default, or a default without a schema entry
//! is an error that names it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{Generated, MARKDOWN_HEAD, cell};

const CHART: &str = "charts/holdfast";

/// `charts/holdfast/README.md`.
pub fn readme(workspace: &Path) -> Result<Generated> {
    let read = |name: &str| {
        let path = workspace.join(CHART).join(name);
        fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))
    };
    let schema: Value =
        serde_json::from_str(&read("values.schema.json")?).context("values.schema.json is not JSON")?;
    let defaults: Value = serde_saphyr::from_str(&read("values.yaml")?).context("values.yaml is not YAML")?;
    let mut rows = Vec::new();
    walk(&schema, Some(&defaults), "", &mut rows)?;
    let mut text = format!(
        "{MARKDOWN_HEAD}# Chart holdfast

Installs the Holdfast operator and its definitions into the release's namespace. How to install, upgrade and remove it
is in [docs/install.md](../../docs/install.md). A value that is not in this table is refused.

| value | default | what it does |
|---|---|---|
"
    );
    for row in rows {
        text.push_str(&format!(
            "| `{}` | {} | {} |\n",
            row.path,
            cell(&row.default),
            cell(&row.description)
        ));
    }
    Ok(Generated {
        path: PathBuf::from(CHART).join("README.md"),
        content: text,
    })
}

struct Row {
    path: String,
    default: String,
    description: String,
}

/// Adds a row for each value at or below `schema`, whose defaults are `defaults`.
fn walk(schema: &Value, defaults: Option<&Value>, path: &str, rows: &mut Vec<Row>) -> Result<()> {
    let properties = schema["properties"].as_object();
    let described = schema["description"].as_str();
    if !path.is_empty()
        && let Some(description) = described
    {
        let Some(default) = defaults else {
            bail!("{path} is in values.schema.json but has no default in values.yaml: add one");
        };
        rows.push(Row {
            path: path.to_owned(),
            default: shown(default),
            description: description.to_owned(),
        });
        return Ok(());
    }
    let Some(properties) = properties else {
        bail!("{path} has no description in values.schema.json: add one");
    };
    if schema["additionalProperties"] != Value::Bool(false) {
        bail!("{path:?} would take misspelt values: set additionalProperties to false in values.schema.json");
    }
    for key in defaults
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|o| o.keys())
    {
        if !properties.contains_key(key) {
            bail!(
                "{} is in values.yaml but not in values.schema.json: add it",
                join(path, key)
            );
        }
    }
    for (key, child) in properties {
        // Helm's own.
        if path.is_empty() && key == "global" {
            continue;
        }
        walk(child, defaults.and_then(|d| d.get(key)), &join(path, key), rows)?;
    }
    Ok(())
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn shown(default: &Value) -> String {
    match default.as_str() {
        Some("") => "none".to_owned(),
        Some(text) => format!("`{text}`"),
        None => format!("`{default}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(schema: &Value, defaults: &Value) -> String {
        walk(schema, Some(defaults), "", &mut Vec::new())
            .expect_err("must be refused")
            .to_string()
    }

    #[test]
    fn what_schema_and_defaults_do_not_both_have_is_refused_by_name() {
        let schema = json!({ "additionalProperties": false, "properties": {
            "a": { "additionalProperties": false, "properties": { "b": { "description": "B." } } } } });
        let mut rows = Vec::new();
        walk(&schema, Some(&json!({ "a": { "b": 1 } })), "", &mut rows).expect("both agree");
        assert_eq!(
            (rows.len(), rows[0].path.as_str(), rows[0].default.as_str()),
            (1, "a.b", "`1`")
        );
        assert!(error(&schema, &json!({ "a": {} })).contains("a.b is in values.schema.json"));
        assert!(error(&schema, &json!({ "a": { "b": 1, "c": 2 } })).contains("a.c is in values.yaml"));
        let open = json!({ "properties": { "a": { "description": "A." } } });
        assert!(error(&open, &json!({ "a": 1 })).contains("misspelt"));
        let mute = json!({ "additionalProperties": false, "properties": { "a": { "type": "string" } } });
        assert!(error(&mute, &json!({ "a": "" })).contains("a has no description"));
    }
}
