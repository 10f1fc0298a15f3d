//! The definitions as templates of the chart.
//!
//! Promise: each file is plain YAML but for the lines this module puts around it, and reads back as exactly the
//! definition of `holdfast_api::crd::all`.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{CRDS, Generated};

const HEAD: &str =
    "{{- /* Made by `cargo xtask generate`. Do not edit. */}}\n{{- if .Values.crds.enabled }}\n";
const METADATA: &str = "metadata:
  labels:
    {{- include \"holdfast.labels\" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
";
const END: &str = "{{- end }}\n";

/// One template for each definition.
pub fn files() -> Result<Vec<Generated>> {
    holdfast_api::crd::all()
        .iter()
        .map(|definition| {
            let value = serde_json::to_value(definition)?;
            let plural = &definition.spec.names.plural;
            Ok(Generated {
                path: Path::new(CRDS).join(format!("{plural}.yaml")),
                content: template(&value)
                    .with_context(|| format!("the definition of {plural} cannot be a template"))?,
            })
        })
        .collect()
}

fn template(definition: &Value) -> Result<String> {
    let yaml = serde_saphyr::to_string(definition)?;
    if yaml.contains("{{") || yaml.contains("}}") {
        bail!("it contains braces that Helm would take for its own");
    }
    let Some((before, after)) = yaml.split_once("\nmetadata:\n") else {
        bail!("its metadata is not where it was expected");
    };
    let end = if after.ends_with('\n') {
        END.to_owned()
    } else {
        format!("\n{END}")
    };
    Ok(format!("{HEAD}{before}\n{METADATA}{after}{end}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The template as Helm renders it with `crds.enabled` and without `crds.keep`, labels apart.
    fn render(template: &str) -> String {
        let mut text = String::new();
        let mut skip = false;
        for line in template.lines() {
            match line.trim() {
                "{{- if .Values.crds.keep }}" => skip = true,
                "{{- end }}" => skip = false,
                directive if directive.starts_with("{{-") => {}
                "labels:" => {}
                _ if skip => {}
                _ => {
                    text.push_str(line);
                    text.push('\n');
                }
            }
        }
        text
    }

    #[test]
    fn each_template_reads_back_as_its_definition() {
        for (file, definition) in files().expect("made").iter().zip(holdfast_api::crd::all()) {
            let read: Value = serde_saphyr::from_str(&render(&file.content)).expect("YAML");
            let wanted = serde_json::to_value(&definition).expect("JSON");
            assert_eq!(read, wanted, "{}", file.path.display());
        }
    }

    #[test]
    fn braces_of_helm_are_refused() {
        let error = template(&serde_json::json!({ "apiVersion": "v1", "metadata": { "name": "{{ x }}" } }))
            .expect_err("braces");
        assert!(error.to_string().contains("braces"), "{error}");
    }
}
