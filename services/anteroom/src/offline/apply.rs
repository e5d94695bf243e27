//! `anteroom apply`: what policies say of resources.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anteroom_offline::{
    Applied, Context, DeclaredEntry, LoadedPolicy, Resource, Scenario, User, Values, Variables,
    applied, manifests,
};
use anteroom_policy::{Driver, PolicyException};
use anyhow::{anyhow, bail};
use clap::Args;
use serde_json::Value;

use super::{
    Format, NO_POLICY, UNUSABLE,
    apply_output::{print_outcome, shows_left_out},
    arrival,
    assignments::Assignments,
    kyverno_options::OtherOptions,
};
use crate::{
    input,
    output::{failed, finish, input_error, warn},
};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom apply policy.yaml --resource pod.yaml\n  \
    anteroom apply policies/ -r manifests/ -o junit > results.xml\n  \
    helm template chart | anteroom apply policies/ --resource -\n  \
    anteroom apply policy.yaml -r pod.yaml --set request.operation=UPDATE,allowed.data.hosts=a\n  \
    helm template chart | anteroom apply policies/ --stdin | kubectl apply -f -\n\n\
    Objects that rules changed are printed as YAML before the results; --patched writes them to files.\n\n\
    Rules that read the cluster read the given resources. They count as all objects of their kind, and a \
    kind without any given resource is an error.\n\n\
    Exit codes: 0 no violation, 1 a violation, or an error of a policy or rule, 2 wrong usage, or an input \
    cannot be used. With warnings only, the exit code is that of --warn-exit-code.")]
pub(crate) struct ApplyArgs {
    /// Files of policies, or folders with such files; `-` for standard input.
    #[arg(required = true, value_name = "POLICY")]
    policies: Vec<PathBuf>,

    /// Files of resources, or folders with such files, separated by commas; `-` for standard input.
    /// May be given more than once, also as `--resources`.
    #[arg(
        short,
        long = "resource",
        alias = "resources",
        value_name = "FILE",
        value_delimiter = ',',
        required_unless_present_any = ["stdin", "cluster", "json", "http_payload", "envoy_payload"]
    )]
    resources: Vec<PathBuf>,

    /// Files of objects that rules with `mutate.targets` change, or folders with such files,
    /// separated by commas. Such rules run only with this option. May be given more than once, also
    /// as `--target-resources`.
    #[arg(
        long = "target-resource",
        alias = "target-resources",
        value_name = "FILE",
        value_delimiter = ','
    )]
    targets: Vec<PathBuf>,

    /// Files of resources that rules only read as parameters, or folders with such files, separated
    /// by commas. They have no results of their own. May be given more than once.
    #[arg(
        long = "parameter-resource",
        value_name = "FILE",
        value_delimiter = ','
    )]
    parameters: Vec<PathBuf>,

    /// A file with the values of variables, in Kyverno's format.
    #[arg(short = 'f', long, value_name = "FILE")]
    values_file: Option<PathBuf>,

    /// Set variables for all policies and resources, separated by commas. A value is text, or JSON
    /// for lists, objects and quoted text. May be given more than once.
    #[arg(short, long = "set", value_name = "NAME=VALUE", value_parser = Assignments::parse)]
    set: Vec<Assignments>,

    /// A file with the user who makes the requests, in Kyverno's format.
    #[arg(short, long, value_name = "FILE")]
    userinfo: Option<PathBuf>,

    /// Files of PolicyExceptions, or folders with such files, separated by commas. May be given
    /// more than once, also as `--exceptions`.
    #[arg(
        short,
        long = "exception",
        alias = "exceptions",
        value_name = "FILE",
        value_delimiter = ','
    )]
    exceptions: Vec<PathBuf>,

    /// A file of kind `Context` in Kyverno's format: the cluster, images and answers of services for
    /// policies in CEL.
    #[arg(long, value_name = "FILE")]
    context_file: Option<PathBuf>,

    /// Count a violation of a rule in Audit mode as a warning.
    #[arg(long)]
    audit_warn: bool,

    /// The exit code if there are warnings, but no violations or errors.
    #[arg(long, value_name = "CODE", default_value_t = 0)]
    warn_exit_code: u8,

    /// Exit with the code of warnings if nothing passes.
    #[arg(long)]
    warn_no_pass: bool,

    /// Also read PolicyExceptions from the files of resources. Also `--exceptions-with-resources`.
    #[arg(long, alias = "exceptions-with-resources")]
    exceptions_within_resources: bool,

    /// Also read PolicyExceptions from the files of policies.
    #[arg(long)]
    exceptions_within_policies: bool,

    /// The format of the output. Also `--output-format`.
    #[arg(short, long, alias = "output-format", value_enum, default_value_t)]
    pub(super) output: Format,

    /// Write the objects that rules changed to this path instead of printing them. A file gets all
    /// of them; a folder gets a file for each.
    #[arg(long, value_name = "PATH")]
    pub(super) patched: Option<PathBuf>,

    /// Print PolicyReports.
    #[arg(short, long)]
    pub(super) policy_report: bool,

    /// Read resources from standard input, and print only the objects that rules changed.
    #[arg(short = 'i', long)]
    pub(super) stdin: bool,

    /// Also show results that passed and were skipped.
    #[arg(long)]
    pub(super) detailed_results: bool,

    /// Show a table.
    #[arg(short, long)]
    pub(super) table: bool,

    #[command(flatten)]
    others: OtherOptions,
}

/// Applies, prints, and returns the exit code.
pub(crate) fn run(args: &ApplyArgs) -> ExitCode {
    let is_json = args.output == Format::Json;
    let outcome = match apply(args) {
        Ok(outcome) => outcome,
        Err(error) => return failed(is_json, input_error(error), UNUSABLE),
    };
    for line in warnings(args, &outcome) {
        warn(&line);
    }
    match print_outcome(args, &outcome) {
        Ok(()) => exit_code(&outcome, args).into(),
        Err(error) => finish(Err(error)),
    }
}

/// The most policies and rules, and the most documents, that warnings name.
const LEFT_OUT_NAMED_MAX: usize = 10;

/// Returns the first warnings, and how many more there are.
fn first_of(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(LEFT_OUT_NAMED_MAX);
    lines.truncate(LEFT_OUT_NAMED_MAX);
    if more > 0 {
        lines.push(format!("not named here: {more} more"));
    }
    lines
}

/// Returns what is said beside the output: what the output does not show of the policies, and that nothing was judged.
fn warnings(args: &ApplyArgs, outcome: &Applied) -> Vec<String> {
    let left_out = outcome.left_out();
    let is_silent = left_out.is_empty();
    let mut lines = Vec::new();
    if !shows_left_out(args) {
        lines.extend(first_of(left_out));
    }
    match (outcome.is_about_nothing(), is_silent) {
        (true, true) => lines.push(
            "no rule matches any of the given resources: nothing was judged. Compare the kinds in `match` with \
             those of --resource"
                .to_owned(),
        ),
        (true, false) => lines.push(
            "nothing was judged: no rule that is run here matches any of the given resources. Of the others, `not run` \
             says why"
                .to_owned(),
        ),
        (false, _) => {}
    }
    lines
}

/// Why the command line asks for what is not done here.
fn check(args: &ApplyArgs) -> anyhow::Result<()> {
    args.others.check()?;
    let named = [
        &args.policies,
        &args.resources,
        &args.exceptions,
        &args.targets,
        &args.parameters,
    ];
    let mut named = named
        .into_iter()
        .flatten()
        .chain(&args.context_file)
        .map(|path| path.to_string_lossy());
    if let Some(url) = named.find(|path| path.contains("://") || path.starts_with("git@")) {
        bail!(
            "{url} is not read: nothing is fetched from elsewhere, from repositories neither; fetch it, and name \
             the file"
        );
    }
    Ok(())
}

fn apply(args: &ApplyArgs) -> anyhow::Result<Applied> {
    check(args)?;
    let mut policies = Vec::new();
    let mut manifests = read(&args.policies)?;
    let mut excepting = read(&args.exceptions)?;
    if args.exceptions_within_policies {
        excepting.extend(manifests.extract_if(.., |manifest| is_exception(manifest)));
    }
    let mut declared: Vec<_> = manifests.iter().filter_map(DeclaredEntry::new).collect();
    manifests.retain(|manifest| DeclaredEntry::new(manifest).is_none());
    for manifest in manifests {
        let loaded = match args.targets.is_empty() {
            true => LoadedPolicy::new(&manifest),
            false => LoadedPolicy::with_targets(&manifest),
        };
        match loaded {
            Some(policy) => policies.push(policy),
            None => warn(&format!(
                "passed over: {} is no policy that is run here",
                title(&manifest)
            )),
        }
    }
    if policies.is_empty() {
        bail!(NO_POLICY);
    }
    let mut named = args.resources.clone();
    if args.stdin && !named.iter().any(|path| path == Path::new("-")) {
        named.push("-".into());
    }
    let mut resources = read(&named)?;
    if args.exceptions_within_resources {
        excepting.extend(resources.extract_if(.., |manifest| is_exception(manifest)));
    }
    declared.extend(resources.iter().filter_map(DeclaredEntry::new));
    resources.retain(|manifest| DeclaredEntry::new(manifest).is_none());
    warn_of_kindless(&resources);
    let resources = objects(resources);
    if resources.is_empty() {
        bail!(
            "there is no resource in what was given with --resource: the files hold no object, or no file of a \
             folder has a name that ends in .yaml, .yml or .json"
        );
    }
    let mut scenario = Scenario::new(policies, resources)
        .with_entries(declared)
        .with_targets(objects(read(&args.targets)?))
        .with_read(objects(read(&args.parameters)?));
    scenario.variables = variables(args)?;
    scenario.exceptions = exceptions(&excepting)?;
    if let Some(path) = &args.context_file {
        scenario = scenario.with_context(Context::read(path)?);
    }
    if let Some(path) = &args.userinfo {
        scenario.user = User::read(path)?;
    }
    scenario.arrival = Some(arrival());
    let responses = anteroom_offline::apply(&scenario);
    Ok(applied(&scenario, &responses, args.audit_warn))
}

/// Warns of documents that are passed over, since they are no objects with a kind.
fn warn_of_kindless(manifests: &[Value]) {
    for line in kindless(manifests) {
        warn(&line);
    }
}

fn kindless(manifests: &[Value]) -> Vec<String> {
    let has_kind = |manifest: &&Value| {
        let kind = manifest["kind"].as_str();
        kind.is_some_and(|kind| !kind.is_empty())
    };
    let passed_over = manifests.iter().filter(|manifest| !has_kind(manifest));
    let lines = passed_over.map(|manifest| {
        let name = manifest["metadata"]["name"].as_str();
        match (manifest.is_object(), name) {
            (false, _) => "passed over: a document is no object".to_owned(),
            (true, Some(name)) => format!("passed over: the object named `{name}` has no `kind`"),
            (true, None) => "passed over: an object without a name has no `kind`".to_owned(),
        }
    });
    first_of(lines.collect())
}

fn objects(manifests: Vec<Value>) -> Vec<Resource> {
    manifests.into_iter().filter_map(Resource::new).collect()
}

fn is_exception(manifest: &Value) -> bool {
    let version = manifest["apiVersion"].as_str().unwrap_or_default();
    let groups = ["kyverno.io/", "policies.kyverno.io/"];
    manifest["kind"] == "PolicyException" && groups.iter().any(|group| version.starts_with(group))
}

fn exceptions(manifests: &[Value]) -> anyhow::Result<Vec<PolicyException>> {
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
    manifests.iter().map(compile).collect()
}

fn variables(args: &ApplyArgs) -> anyhow::Result<Variables> {
    let mut variables = Variables::default();
    if let Some(path) = &args.values_file {
        variables.add(Values::read(path)?);
    }
    for (path, value) in args.set.iter().flat_map(|set| &set.0) {
        variables.set(path.clone(), value.clone());
    }
    Ok(variables)
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            found.extend(anteroom_offline::listed(input::documents(path)?));
        } else {
            found.extend(manifests(path)?);
        }
    }
    Ok(found)
}

/// Names a manifest for people, with its API version: a policy may only lack the right one.
fn title(manifest: &Value) -> String {
    let text = |value: &Value, without: &str| value.as_str().unwrap_or(without).to_owned();
    if !manifest.is_object() {
        return "a document that is no object".to_owned();
    }
    let kind = text(&manifest["kind"], "a document without a kind");
    let version = text(&manifest["apiVersion"], "without an apiVersion");
    let name = text(&manifest["metadata"]["name"], "without a name");
    format!("{kind} {name} ({version})")
}

fn exit_code(told: &Applied, args: &ApplyArgs) -> u8 {
    let counts = told.counts;
    match (counts.fail + counts.error, counts.warn) {
        (0, 0) if args.warn_no_pass && counts.pass == 0 => args.warn_exit_code,
        (0, 0) => 0,
        (0, _) => args.warn_exit_code,
        _ => 1,
    }
}

#[cfg(test)]
mod tests;
