//! `anteroom apply`: what policies say of resources.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anteroom_offline::{
    Applied, Bench, LoadedPolicy, Resource, User, Values, Variables, applied, junit, manifests,
};
use anteroom_policy::{Driver, PolicyException};
use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::Value;

use super::{Format, arrival};
use crate::{
    cli::{print, warn},
    input,
};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom apply policy.yaml --resource pod.yaml\n  \
    anteroom apply policies/ -r manifests/ -o junit > results.xml\n  \
    helm template chart | anteroom apply policies/ --resource -\n  \
    anteroom apply policy.yaml -r pod.yaml --set request.operation=UPDATE --set allowed.data.hosts=a\n\n\
    Rules that read the cluster read the given resources: those of a kind are all that there are of it, and \
    a kind of which none is given is an error.\n\n\
    Exit codes: 0 nothing is violated, 1 something is, or a policy or rule has an error, 2 wrong usage, and \
    what --warn-exit-code says where there are warnings alone.")]
pub(crate) struct ApplyArgs {
    /// Files of policies, or folders with such files; `-` for standard input.
    #[arg(required = true, value_name = "POLICY")]
    policies: Vec<PathBuf>,

    /// Files of resources, or folders with such files; `-` for standard input. May be given more than once.
    #[arg(short, long = "resource", value_name = "FILE", required = true)]
    resources: Vec<PathBuf>,

    /// A file with the values of variables, in Kyverno's format.
    #[arg(short = 'f', long, value_name = "FILE")]
    values_file: Option<PathBuf>,

    /// Give a variable a value for all policies and resources. May be given more than once.
    #[arg(short, long = "set", value_name = "NAME=VALUE", value_parser = parse_value)]
    set: Vec<(String, Value)>,

    /// A file that says who makes the requests, in Kyverno's format.
    #[arg(short, long, value_name = "FILE")]
    userinfo: Option<PathBuf>,

    /// A file of PolicyExceptions, or a folder with such files. May be given more than once.
    #[arg(long = "exception", value_name = "FILE")]
    exceptions: Vec<PathBuf>,

    /// Count a violation of a rule that only audits as a warning.
    #[arg(long)]
    audit_warn: bool,

    /// The exit code where there are warnings, and nothing worse.
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    warn_exit_code: u8,

    /// How it is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// `NAME=VALUE`, where the name may be a path; numbers, booleans and JSON keep their type.
fn parse_value(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    if name.is_empty() {
        return Err("expected NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

pub(crate) fn run(args: &ApplyArgs) -> anyhow::Result<ExitCode> {
    let told = apply(args)?;
    match args.output {
        Format::Text => print(&told.text())?,
        Format::Json => print(&serde_json::to_string_pretty(&told.json())?)?,
        Format::Junit => print(junit(&told.suites()).trim_end())?,
    }
    Ok(exit_code(&told, args.warn_exit_code).into())
}

fn apply(args: &ApplyArgs) -> anyhow::Result<Applied> {
    let mut policies = Vec::new();
    for manifest in read(&args.policies)? {
        match LoadedPolicy::new(&manifest) {
            Some(policy) => policies.push(policy),
            None => warn(&format!(
                "{} is no policy that is run here",
                title(&manifest)
            )),
        }
    }
    if policies.is_empty() {
        bail!("there is no ClusterPolicy or Policy of kyverno.io in what was given");
    }
    let resources: Vec<_> = read(&args.resources)?
        .into_iter()
        .filter_map(Resource::new)
        .collect();
    if resources.is_empty() {
        bail!("there is no resource in what was given with --resource");
    }
    let mut bench = Bench::new(policies, resources);
    bench.variables = variables(args)?;
    bench.exceptions = exceptions(args)?;
    if let Some(path) = &args.userinfo {
        bench.user = User::read(path)?;
    }
    bench.arrival = Some(arrival());
    let responses = anteroom_offline::apply(&bench);
    Ok(applied(&bench, &responses, args.audit_warn))
}

fn exceptions(args: &ApplyArgs) -> anyhow::Result<Vec<PolicyException>> {
    let compile = |manifest: &Value| {
        PolicyException::compile(manifest, Driver::ALL).map_err(|problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            anyhow!(
                "{} cannot be compiled: {}",
                title(manifest),
                problems.join("; ")
            )
        })
    };
    read(&args.exceptions)?.iter().map(compile).collect()
}

fn variables(args: &ApplyArgs) -> anyhow::Result<Variables> {
    let mut variables = Variables::default();
    if let Some(path) = &args.values_file {
        variables.add(Values::read(path)?);
    }
    for (path, value) in &args.set {
        variables.set(path.clone(), value.clone());
    }
    Ok(variables)
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            found.extend(input::documents(path)?);
        } else {
            found.extend(manifests(path)?);
        }
    }
    Ok(found)
}

fn title(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let (kind, name) = (text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    format!("{kind} {name}")
}

fn exit_code(told: &Applied, warn_exit_code: u8) -> u8 {
    let counts = told.counts;
    match (counts.fail + counts.error, counts.warn) {
        (0, 0) => 0,
        (0, _) => warn_exit_code,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ApplyArgs,
    }

    const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: hosts}
spec:
  rules:
    - name: free
      match: {any: [{resources: {kinds: [Pod]}}]}
      context: [{name: taken, globalReference: {name: hosts}}]
      validate:
        message: "taken"
        deny: {conditions: {any: [{key: "{{ request.object.metadata.name }}", operator: AnyIn, value: "{{ taken }}"}]}}
"#;

    fn told(flags: &[&str]) -> (u8, Value) {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let policy = write("policy.yaml", POLICY);
        let pods = write(
            "pods.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n\
             {apiVersion: v1, kind: Pod, metadata: {name: b}}",
        );
        let line = ["apply", &policy, "-r", &pods];
        let args = Line::parse_from(line.into_iter().chain(flags.iter().copied())).args;
        let told = apply(&args).unwrap();
        (
            exit_code(&told, args.warn_exit_code),
            told.json()["summary"].clone(),
        )
    }

    #[test]
    fn values_answer_and_what_none_is_given_for_is_an_error() {
        let (code, summary) = told(&["--set", "taken=[\"a\"]"]);
        assert_eq!(
            (code, &summary["fail"], &summary["pass"]),
            (1, &json!(1), &json!(1))
        );
        let (code, summary) = told(&["--set", "taken=[]"]);
        assert_eq!((code, &summary["pass"]), (0, &json!(2)));
        let exception = tempfile::NamedTempFile::new().unwrap();
        let text = "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {\
            match: {any: [{resources: {names: [a]}}]}, \
            exceptions: [{policyName: hosts, ruleNames: [free]}]}}";
        fs::write(exception.path(), text).unwrap();
        let path = exception.path().display().to_string();
        let (code, summary) = told(&["--set", "taken=[\"a\"]", "--exception", &path]);
        assert_eq!(
            (code, &summary["skip"], &summary["pass"]),
            (0, &json!(1), &json!(1))
        );
        let (code, summary) = told(&[]);
        assert_eq!((code, &summary["error"]), (1, &json!(2)));
        let (code, summary) = told(&[
            "--set",
            "taken=[\"a\"]",
            "--audit-warn",
            "--warn-exit-code",
            "3",
        ]);
        assert_eq!((code, &summary["warn"]), (3, &json!(1)));
    }
}
