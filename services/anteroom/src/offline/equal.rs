//! `anteroom equal`: do two sets of policies decide alike?

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use anteroom_offline::{
    Comparison, Context, DeclaredEntry, LoadedPolicies, REQUESTS_MAX, Resource, Scenario, Search,
    Suite, User, Values, equal, suites, take_suite,
};
use anteroom_policy::{Arrival, Driver, Operation, PolicyException};
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;

use super::{
    UNUSABLE, arrival,
    assignments::Assignments,
    equal_output::{NOTHING_COMPARED, page},
};
use crate::{
    input,
    output::{Output, failed, input_error, print, warn},
};

/// The file name of suites.
const SUITE: &str = "kyverno-test.yaml";

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom equal old.yaml new.yaml\n  \
    anteroom equal old.yaml new.yaml --suite old/.kyverno-test -r pods.yaml\n  \
    anteroom equal clusterpolicies/ validatingpolicies/ --valid-only --operation CREATE\n  \
    kubectl get pods -A -o yaml | anteroom equal old.yaml new.yaml -r -\n  \
    anteroom equal old.yaml new.yaml -o json --requests-max 100000 --seed 7\n\n\
    Both sets decide requests that are made from the given objects, as they are and with changes of the places \
    that the policies read. Differences are shrunk to small objects. This is a search, not a proof: coverage \
    says how much each rule was tried.\n\n\
    Exit codes: 0 no difference was found, 1 there is one, 2 wrong usage, an input cannot be used, or nothing was compared.")]
pub(crate) struct EqualArgs {
    /// The file or folder of the first set of policies, of either language.
    #[arg(value_name = "OLD")]
    old: PathBuf,

    /// The file or folder of the second set.
    #[arg(value_name = "NEW")]
    new: PathBuf,

    /// Suites in Kyverno's format, or folders with such: their resources and values are used. Suites
    /// below OLD and NEW are used in any case. May be given more than once.
    #[arg(long = "suite", value_name = "DIR", value_delimiter = ',')]
    suites: Vec<PathBuf>,

    /// Files of objects to begin at, as of `kubectl get -o yaml`, or folders with such files,
    /// separated by commas; `-` for standard input. May be given more than once, also as `--resources`.
    #[arg(
        short,
        long = "resource",
        alias = "resources",
        value_name = "FILE",
        value_delimiter = ','
    )]
    resources: Vec<PathBuf>,

    /// Files of objects that rules only read, or folders with such files, separated by commas. May be
    /// given more than once.
    #[arg(
        long = "parameter-resource",
        value_name = "FILE",
        value_delimiter = ','
    )]
    parameters: Vec<PathBuf>,

    /// A file with the values of variables, in Kyverno's format.
    #[arg(short = 'f', long, value_name = "FILE")]
    values_file: Option<PathBuf>,

    /// Set variables for all policies and resources, separated by commas, as for `anteroom apply`. May
    /// be given more than once.
    #[arg(short, long = "set", value_name = "NAME=VALUE", value_parser = Assignments::parse)]
    set: Vec<Assignments>,

    /// A file with the user who makes most requests, in Kyverno's format.
    #[arg(short, long, value_name = "FILE")]
    userinfo: Option<PathBuf>,

    /// Files of PolicyExceptions, or folders with such files, separated by commas. May be given more
    /// than once, also as `--exceptions`.
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

    /// Make requests of these operations only, separated by commas.
    #[arg(long = "operation", value_enum, value_name = "OPERATION", value_delimiter = ',', ignore_case = true,
        default_values = ["CREATE", "UPDATE", "DELETE"])]
    operations: Vec<RequestOperation>,

    /// Leave out objects that the API server itself refuses: with null or a value of another type in
    /// a field, or Pods without what they must have.
    #[arg(long)]
    valid_only: bool,

    /// The most requests.
    #[arg(long, value_name = "N", default_value_t = REQUESTS_MAX, value_parser = positive)]
    requests_max: usize,

    /// The longest time to search, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout_seconds: u64,

    /// The seed of random choices: equal seeds make equal requests.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// An operation of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum RequestOperation {
    /// An object is made.
    Create,
    /// An object is changed.
    Update,
    /// An object is deleted.
    Delete,
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".to_owned()),
        Ok(number) => Ok(number),
        Err(error) => Err(format!("{error}")),
    }
}

/// Compares, prints, and returns the exit code.
pub(crate) fn run(args: &EqualArgs) -> ExitCode {
    let is_json = args.output == Output::Json;
    let found = match compare(args) {
        Ok(found) => found,
        Err(error) => return failed(is_json, input_error(error), UNUSABLE),
    };
    let text = match args.output {
        Output::Text => page(&found, &args.old, &args.new),
        Output::Json => serde_json::to_string_pretty(&found).map_err(Into::into),
    };
    match text.and_then(|text| print(text.trim_end())) {
        Ok(()) if found.is_about_nothing() => {
            warn(NOTHING_COMPARED);
            UNUSABLE.into()
        }
        Ok(()) if found.is_alike() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(error) => failed(false, error, UNUSABLE),
    }
}

pub(super) fn compare(args: &EqualArgs) -> anyhow::Result<Comparison> {
    let (old, old_entries) = side(&args.old)?;
    let (new, new_entries) = side(&args.new)?;
    let mut declared = old_entries;
    declared.extend(new_entries);
    let mut manifests = read(&args.resources)?;
    declared.extend(manifests.iter().filter_map(DeclaredEntry::new));
    manifests.retain(|manifest| DeclaredEntry::new(manifest).is_none());
    let mut scenario = Scenario::new(Vec::new(), objects(manifests))
        .with_entries(declared)
        .with_read(objects(read(&args.parameters)?));
    scenario.arrival = Some(Arrival {
        seed: args.seed,
        ..arrival()
    });
    for path in [&args.old, &args.new]
        .into_iter()
        .filter(|path| path.is_dir())
        .chain(&args.suites)
    {
        let found = suites(path, SUITE)?;
        if found.is_empty() && args.suites.contains(path) {
            bail!("there is no {SUITE} in {}", path.display());
        }
        for file in found {
            for suite in Suite::read(&file)? {
                take_suite(&mut scenario, &suite)
                    .with_context(|| format!("suite {}", file.display()))?;
            }
        }
    }
    if let Some(path) = &args.values_file {
        scenario.variables.add(Values::read(path)?);
    }
    for (path, value) in args.set.iter().flat_map(|set| &set.0) {
        scenario.variables.set(path.clone(), value.clone());
    }
    for manifest in read(&args.exceptions)? {
        scenario.exceptions.push(exception(&manifest)?);
    }
    if let Some(path) = &args.context_file {
        scenario = scenario.with_context(Context::read(path)?);
    }
    if let Some(path) = &args.userinfo {
        scenario.user = User::read(path)?;
    }
    let search = Search {
        requests_max: args.requests_max,
        seed: args.seed,
        operations: args.operations.iter().map(|one| one.operation()).collect(),
        valid_only: args.valid_only,
    };
    let (begun, most) = (Instant::now(), Duration::from_secs(args.timeout_seconds));
    Ok(equal(scenario, [old, new], &search, &|| {
        begun.elapsed() >= most
    })?)
}

impl RequestOperation {
    fn operation(self) -> Operation {
        match self {
            Self::Create => Operation::Create,
            Self::Update => Operation::Update,
            Self::Delete => Operation::Delete,
        }
    }
}

/// The policies of a file or a folder, and the entries that they read.
fn side(path: &Path) -> anyhow::Result<(LoadedPolicies, Vec<DeclaredEntry>)> {
    let manifests = read(std::slice::from_ref(&path.to_owned()))?;
    let declared = manifests.iter().filter_map(DeclaredEntry::new).collect();
    Ok((
        LoadedPolicies::new(manifests, &path.display().to_string())?,
        declared,
    ))
}

fn objects(manifests: Vec<Value>) -> Vec<Resource> {
    manifests.into_iter().filter_map(Resource::new).collect()
}

fn exception(manifest: &Value) -> anyhow::Result<PolicyException> {
    PolicyException::compile(manifest, Driver::ALL).map_err(|problems| {
        let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let name = manifest["metadata"]["name"].as_str().unwrap_or("?");
        anyhow!(
            "exception {name} cannot be compiled: {}",
            problems.join("; ")
        )
    })
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Value>> {
    let mut found = Vec::new();
    for path in paths {
        match path == Path::new("-") {
            true => found.extend(anteroom_offline::listed(input::documents(path)?)),
            false => found.extend(anteroom_offline::manifests(path)?),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
