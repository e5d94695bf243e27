//! `anteroom test`, `anteroom apply` and `anteroom equal`: policies against files, with the webhook's own evaluation.

pub(crate) mod apply;
mod apply_output;
mod assignments;
pub(crate) mod equal;
mod equal_output;
mod kyverno_options;
pub(crate) mod test;

use anteroom_policy::Arrival;
use clap::ValueEnum;
use serde_json::Value;

/// The exit code of `apply` and `equal` for input that cannot be used, as for wrong usage.
const UNUSABLE: u8 = 2;

/// The error where no policy that is run was given.
pub(crate) const NO_POLICY: &str = "there is no policy that is run here in what was given: ClusterPolicy and Policy of \
    kyverno.io are, and ValidatingPolicy, MutatingPolicy and their namespaced kinds of policies.kyverno.io. In folders, \
    files whose names end in .yaml, .yml or .json are read";

/// The format of printed results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For machines: one JSON document.
    Json,
    /// For machines: one YAML document.
    Yaml,
    /// For CI systems: JUnit's XML.
    Junit,
    /// A table in Markdown.
    Markdown,
}

/// A value as a document of YAML.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?.trim_end().to_owned())
}

/// Values as documents of YAML, each with its mark before it.
pub(crate) fn yaml_documents(values: &[Value]) -> anyhow::Result<String> {
    let mut text = String::new();
    for value in values {
        text.push_str(&format!("---\n{}\n", yaml(value)?));
    }
    Ok(text)
}

/// A request that comes now.
pub(crate) fn arrival() -> Arrival {
    Arrival {
        now_ns: anteroom_runtime::wall_clock::now().as_nanosecond(),
        seed: rand::random(),
    }
}
