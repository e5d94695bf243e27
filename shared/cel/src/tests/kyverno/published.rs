//! Published policies: every expression of them compiles.

use std::path::{Path, PathBuf};

use anteroom_functions::yaml;
use serde_json::Value;

use crate::{CompileError, FactScope, Names, Program};

/// Expressions of a policy that are compiled, at least.
const COMPILED_MIN: usize = 150;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
        {
            found.push(path);
        }
    }
}

/// The texts of the fields of these names in the elements of a list.
fn expressions<'p>(spec: &'p Value, list: &str, fields: &[&str]) -> Vec<&'p str> {
    let elements = spec[list].as_array().into_iter().flatten();
    let texts = elements.flat_map(|element| {
        let found = fields.iter().filter_map(|field| {
            let found = field.split('.').fold(element, |value, name| &value[name]);
            found.as_str()
        });
        found.collect::<Vec<_>>()
    });
    texts.collect()
}

#[derive(Default)]
struct Run {
    compiled: usize,
    failed: Vec<String>,
}

impl Run {
    fn compile(&mut self, name: &str, source: &str, names: &Names) -> Option<Program> {
        match Program::compile(source, names) {
            Ok(program) => {
                self.compiled += 1;
                Some(program)
            }
            Err(CompileError::Invalid(error) | CompileError::Unsupported(error)) => {
                self.failed.push(format!("{name}: {error}: {source}"));
                None
            }
        }
    }

    fn policy(&mut self, policy: &Value) {
        let (spec, kind) = (&policy["spec"], policy["kind"].as_str().unwrap_or_default());
        let name = policy["metadata"]["name"].as_str().unwrap_or_default();
        let before = super::names().with_facts(FactScope::Cluster);
        let mut names = before.clone();
        // What stands for a variable that is not compiled: any type.
        let any = Program::compile("object", &names).unwrap();
        for variable in spec["variables"].as_array().into_iter().flatten() {
            let source = variable["expression"].as_str().unwrap_or_default();
            let program = self.compile(name, source, &names);
            let variable = variable["name"].as_str().unwrap_or_default();
            names.define(variable, program.as_ref().unwrap_or(&any));
        }
        let is_mutating = kind.ends_with("MutatingPolicy");
        let of_conditions = if is_mutating { &names } else { &before };
        for source in expressions(spec, "matchConditions", &["expression"]) {
            self.compile(name, source, of_conditions);
        }
        for source in expressions(spec, "validations", &["expression", "messageExpression"]) {
            self.compile(name, source, &names);
        }
        for source in expressions(spec, "auditAnnotations", &["valueExpression"]) {
            self.compile(name, source, &names);
        }
        for source in expressions(spec, "mutations", &["applyConfiguration.expression"]) {
            let program = self.compile(name, source, &names);
            assert!(
                program.is_none_or(|program| program.can_be_object()),
                "{source}"
            );
        }
        for source in expressions(spec, "mutations", &["jsonPatch.expression"]) {
            let program = self.compile(name, source, &names);
            assert!(
                program.is_none_or(|program| program.can_be_patches()),
                "{source}"
            );
        }
    }
}

#[test]
fn published_policies_compile() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/corpus/kyverno-policies-cel"
    );
    let folder = Path::new(folder);
    if !folder.is_dir() {
        eprintln!("skipped: the published policies are not there");
        return;
    }
    let mut all = Vec::new();
    files(folder, &mut all);
    let mut run = Run::default();
    for file in all {
        let text = std::fs::read_to_string(&file).unwrap();
        for document in yaml::read_all(&text).unwrap_or_default() {
            let kind = document["kind"].as_str().unwrap_or_default();
            if kind.ends_with("ValidatingPolicy") || kind.ends_with("MutatingPolicy") {
                run.policy(&document);
            }
        }
    }
    assert!(run.failed.is_empty(), "{}", run.failed.join("\n\n"));
    assert!(run.compiled >= COMPILED_MIN, "only {}", run.compiled);
}
