//! The definitions as templates of the chart.
//!
//! Promise: each file is plain YAML but for the lines this module puts around it, and reads back as exactly the
//! definition of `holdfast_api::crd::all`, or of `holdfast_api::crd::platform` for the kinds that belong to others.
//! The latter are in the chart behind a switch that is off, and once more as plain files for development.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::{CRDS, Generated, PLATFORM_CRDS, PLATFORM_DEV};

/// The switch of our own kinds.
const OURS: &str = ".Values.crds.enabled";
/// The switch of the platform's kinds.
const PLATFORM: &str = ".Values.quota.platformCRDs.install";
const DEV_HEAD: &str = "# Made by `cargo xtask generate`. Do not edit.\n";
const METADATA: &str = "metadata:
  labels:
    {{- include \"holdfast.labels\" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
";
const END: &str = "{{- end }}\n";

/// One template for each definition, and one plain file for each of the platform's.
pub fn files() -> Result<Vec<Generated>> {
    let mut files = templates(CRDS, OURS, &holdfast_api::crd::all())?;
    let platform = holdfast_api::crd::platform();
    files.extend(templates(PLATFORM_CRDS, PLATFORM, &platform)?);
    for definition in &platform {
        files.push(Generated {
            path: Path::new(PLATFORM_DEV).join(file_name(definition)),
            content: format!(
                "{DEV_HEAD}{}",
                serde_saphyr::to_string(&serde_json::to_value(definition)?)?
            ),
        });
    }
    Ok(files)
}

fn templates(folder: &str, switch: &str, definitions: &[CustomResourceDefinition]) -> Result<Vec<Generated>> {
    definitions
        .iter()
        .map(|definition| {
            let value = serde_json::to_value(definition)?;
            let plural = &definition.spec.names.plural;
            Ok(Generated {
                path: Path::new(folder).join(file_name(definition)),
                content: template(&value, switch)
                    .with_context(|| format!("the definition of {plural} cannot be a template"))?,
            })
        })
        .collect()
}

fn file_name(definition: &CustomResourceDefinition) -> String {
    format!("{}.yaml", definition.spec.names.plural)
}

fn template(definition: &Value, switch: &str) -> Result<String> {
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
    let head =
        format!("{{{{- /* Made by `cargo xtask generate`. Do not edit. */}}}}\n{{{{- if {switch} }}}}\n");
    Ok(format!("{head}{before}\n{METADATA}{after}{end}"))
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
        let ours = holdfast_api::crd::all();
        let platform = holdfast_api::crd::platform();
        let definitions = ours.iter().chain(&platform).chain(&platform);
        let files = files().expect("made");
        assert_eq!(files.len(), ours.len() + 2 * platform.len());
        for (file, definition) in files.iter().zip(definitions) {
            let read: Value = serde_saphyr::from_str(&render(&file.content)).expect("YAML");
            let wanted = serde_json::to_value(definition).expect("JSON");
            assert_eq!(read, wanted, "{}", file.path.display());
        }
    }

    #[test]
    fn braces_of_helm_are_refused() {
        let error = template(
            &serde_json::json!({ "apiVersion": "v1", "metadata": { "name": "{{ x }}" } }),
            OURS,
        )
        .expect_err("braces");
        assert!(error.to_string().contains("braces"), "{error}");
    }
}
