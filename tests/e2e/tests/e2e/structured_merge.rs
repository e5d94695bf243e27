//! The structured merge against the API server's own, in its `MutatingAdmissionPolicy`: random objects and
//! random partial ones, each pair merged by both.
//!
//! Each case is three creates that store nothing. The first is of the object: with its defaults it is what
//! admission sees. The second is of that in a namespace with the policies, so that the API server merges. The
//! third is of what we merged, in a namespace without. The last two must end alike: with the same object, or
//! both refused.
//!
//! `ANTEROOM_MERGES=10000` runs more, `ANTEROOM_MERGES_SEED` others.

mod cases;
mod dice;
mod expression;
mod things;
mod workloads;

use std::collections::BTreeMap;

use anteroom_e2e::{
    cluster::{Cluster, Identity},
    folder::Folder,
    manifests, turn,
    wait::{self, setting},
};
use anteroom_patch::apply::{ApplyError, Atomics, ObjectSchema, apply, published};
use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};

use cases::{Case, KINDS, Kind, case};

const MERGES_DEFAULT: u64 = 320;
const SEED_DEFAULT: u64 = 1;

/// Cases of one policy, whose expression has all their patches.
const CASES_OF_POLICY: u64 = 40;

/// Policies that are there at once.
const POLICIES_AT_ONCE: u64 = 10;

const REQUESTS_AT_ONCE: usize = 16;

/// A namespace without policies.
const PLAIN: &str = "plain";
/// The namespace that policies are bound to.
const MERGED: &str = "merged";

/// Labels that lead an object to its policy, and to its patch there.
const POLICY: &str = "policy";
const CASE: &str = "case";

/// The API server's words before the message of a policy that fails.
const BY_POLICY: &str = "denied request: ";

#[tokio::test(flavor = "multi_thread")]
async fn partial_objects_are_merged_as_by_the_api_server() -> anyhow::Result<()> {
    let merges = setting("ANTEROOM_MERGES", MERGES_DEFAULT)?;
    let seed = setting("ANTEROOM_MERGES_SEED", SEED_DEFAULT)?;
    anteroom_runtime::process::install_crypto_provider();
    let _turn = turn::take().await?;
    let folder = Folder::new()?;
    let cluster = Cluster::start(folder.path()).await?;
    let client = cluster.client(Identity::Admin).await?;
    for namespace in [PLAIN, MERGED] {
        manifests::apply_namespace(&client, namespace).await?;
    }
    manifests::apply(&client, &things::definition()).await?;
    the_schema_table_equals_the_published_schemas(&client).await?;

    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let numbers: Vec<u64> = (0..merges).collect();
    for wave in numbers.chunks((CASES_OF_POLICY * POLICIES_AT_ONCE) as usize) {
        let policies: Vec<Vec<u64>> = wave
            .chunks(CASES_OF_POLICY as usize)
            .map(<[u64]>::to_vec)
            .collect();
        let policies = &policies;
        let each = || stream::iter(0..policies.len()).map(anyhow::Ok);
        each()
            .try_for_each_concurrent(None, |policy| {
                bind(&client, seed, policy, &policies[policy])
            })
            .await?;
        let cases = policies.iter().enumerate().flat_map(|(policy, numbers)| {
            numbers
                .iter()
                .enumerate()
                .map(move |(place, number)| (policy, place, *number))
        });
        let outcomes: Vec<Result<&str, anyhow::Error>> = stream::iter(cases)
            .map(|(policy, place, number)| {
                let client = &client;
                async move {
                    let case = case(seed, number);
                    let compared = compare(client, &case, policy, place).await;
                    compared.with_context(|| {
                        format!(
                            "case {number} of ANTEROOM_MERGES_SEED={seed}: {}\nunder {}",
                            case.object, case.patch
                        )
                    })
                }
            })
            .buffer_unordered(REQUESTS_AT_ONCE)
            .collect()
            .await;
        let mut failures = Vec::new();
        for outcome in outcomes {
            match outcome {
                Ok(outcome) => *counts.entry(outcome).or_default() += 1,
                Err(error) => failures.push(format!("{error:#}")),
            }
        }
        tell(&format!("{counts:?}"));
        let count = failures.len();
        failures.truncate(10);
        ensure!(
            count == 0,
            "{count} of {} differ, among them:\n{}",
            wave.len(),
            failures.join("\n")
        );
        each()
            .try_for_each_concurrent(None, |policy| unbind(&client, policy))
            .await?;
    }
    let of = |outcome| counts.get(outcome).copied().unwrap_or_default();
    ensure!(
        of(MERGED_ALIKE) * 2 > merges,
        "too few were merged: {counts:?}"
    );
    ensure!(
        of(REFUSED_ATOMIC) > 0 && of(REFUSED_TYPE) > 0,
        "too few were refused: {counts:?}"
    );
    Ok(())
}

/// Says how far the story is; seen with `--nocapture`.
#[expect(clippy::print_stdout, reason = "progress of a long test")]
fn tell(text: &str) {
    println!("{text}");
}

/// Both have the same object.
const MERGED_ALIKE: &str = "merged alike";
/// Both have the same object, but for empty lists.
const MERGED_BUT_EMPTY_LISTS: &str = "merged alike, but for empty lists";
/// Both refuse the same atomic fields.
const REFUSED_ATOMIC: &str = "refused as atomic";
/// Both refuse a patch that is not of the type.
const REFUSED_TYPE: &str = "refused by type";
/// Both merge, and the API server takes neither result, with the same words.
const INVALID_ALIKE: &str = "merged, and invalid alike";
/// The policy fails on a value of its result, and so does the API server on ours.
const UNREADABLE_ALIKE: &str = "merged, and unreadable alike";

/// Creates an object without storing it.
async fn create(
    client: &Client,
    kind: Kind,
    namespace: &str,
    object: &Value,
) -> Result<Value, kube::Error> {
    let path = format!("{}?dryRun=All&fieldValidation=Ignore", kind.path(namespace));
    let request = http::Request::post(path)
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .map_err(kube::core::request::Error::BuildRequest)
        .map_err(kube::Error::BuildRequest)?;
    client.request(request).await
}

/// An object without what the API server alone sets, and without its namespace.
fn stripped(mut object: Value) -> Value {
    let of_server = [
        "creationTimestamp",
        "generation",
        "managedFields",
        "namespace",
        "resourceVersion",
        "uid",
    ];
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !of_server.contains(&name.as_str()));
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    object
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(elements) => elements.is_empty() || elements.iter().any(has_empty_list),
        Value::Object(fields) => fields.values().any(has_empty_list),
        _ => false,
    }
}

/// A value without fields that are null or an empty list.
fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Array(elements) => elements.iter().map(without_empty).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !is_empty(value));
            let kept = kept.map(|(name, value)| (name.clone(), without_empty(value)));
            Value::Object(kept.collect())
        }
        single => single.clone(),
    }
}

/// The message of a refusal; anything else is a failure of the test.
fn refusal(error: kube::Error) -> anyhow::Result<String> {
    match error {
        kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422) => Ok(status.message),
        // What the API server cannot convert is its own fault, in its words.
        kube::Error::Api(status) if status.code == 500 => Ok(status.message),
        error => Err(error.into()),
    }
}

async fn compare(
    client: &Client,
    case: &Case,
    policy: usize,
    place: usize,
) -> anyhow::Result<&'static str> {
    let mut object = case.object.clone();
    object["metadata"]["labels"][POLICY] = policy.to_string().into();
    object["metadata"]["labels"][CASE] = place.to_string().into();
    let object = create(client, case.kind, PLAIN, &object).await;
    let object = stripped(object.context("the object itself")?);

    let theirs = create(client, case.kind, MERGED, &object)
        .await
        .map(stripped);
    let ours = apply(&object, &case.patch, &schema(case.kind)?, Atomics::Refused);
    let merged = match (&theirs, ours) {
        (_, Ok(merged)) => merged,
        (Ok(theirs), Err(error)) => bail!("refused: {error}\ntheirs: {theirs}"),
        (Err(_), Err(error)) => {
            let message = theirs.map_or_else(refusal, |theirs| Ok(theirs.to_string()))?;
            return refused_alike(&message, &error);
        }
    };
    let ours = create(client, case.kind, PLAIN, &merged)
        .await
        .map(stripped);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) if ours == theirs => Ok(MERGED_ALIKE),
        // Of an empty list in an expression the API server makes null: where it stays, ours is a list.
        (Ok(ours), Ok(theirs))
            if has_empty_list(&case.patch) && without_empty(&ours) == without_empty(&theirs) =>
        {
            Ok(MERGED_BUT_EMPTY_LISTS)
        }
        (Err(ours), Err(theirs)) => {
            let (ours, theirs) = (refusal(ours)?, refusal(theirs)?);
            match theirs.contains(BY_POLICY) {
                true => Ok(UNREADABLE_ALIKE),
                false if ours == theirs.replace(MERGED, PLAIN) => Ok(INVALID_ALIKE),
                false => bail!("ours: {ours}\ntheirs: {theirs}"),
            }
        }
        (Ok(ours), Ok(theirs)) => bail!("ours: {ours}\ntheirs: {theirs}"),
        (Ok(ours), Err(theirs)) => bail!("ours: {ours}\ntheirs: {theirs}"),
        (Err(ours), Ok(theirs)) => bail!("ours: {ours} of {merged}\ntheirs: {theirs}"),
    }
}

/// The API server names all faults, and we the first.
fn refused_alike(message: &str, error: &ApplyError) -> anyhow::Result<&'static str> {
    ensure!(
        message.contains(BY_POLICY),
        "refused: {error}\ntheirs: {message}"
    );
    match error {
        ApplyError::Atomic { paths } => {
            let theirs = message.rsplit_once("maps or structs: ");
            let (_, theirs) =
                theirs.with_context(|| format!("refused: {error}\ntheirs: {message}"))?;
            let mut theirs: Vec<&str> = theirs.trim().split(", ").collect();
            theirs.sort_unstable();
            let mut ours: Vec<&str> = paths.iter().map(String::as_str).collect();
            ours.sort_unstable();
            ensure!(ours == theirs, "refused: {error}\ntheirs: {message}");
            Ok(REFUSED_ATOMIC)
        }
        ApplyError::Patch { path, .. } => {
            let is_of_patch = message.contains("failed to convert patch object to typed object");
            // It writes keys that are no single values otherwise, and names the list where an element is there
            // twice. So the path before the first element and that after the last are compared.
            let (before, _) = path.split_once('[').unwrap_or((path, ""));
            let (_, after) = path.rsplit_once(']').unwrap_or(("", path));
            ensure!(
                is_of_patch && message.contains(before) && message.contains(after),
                "refused: {error}\ntheirs: {message}"
            );
            Ok(REFUSED_TYPE)
        }
        error => bail!("refused: {error}\ntheirs: {message}"),
    }
}

fn schema(kind: Kind) -> anyhow::Result<ObjectSchema> {
    match ObjectSchema::built_in(kind.api_version, kind.name) {
        Some(schema) => Ok(schema),
        None => Ok(ObjectSchema::from_crd(&things::schema())?),
    }
}

/// Applies a policy with the patches of these cases and one more, and waits until the API server has it.
async fn bind(client: &Client, seed: u64, policy: usize, numbers: &[u64]) -> anyhow::Result<()> {
    let seen = json!({"metadata": {"annotations": {"seen": format!("{seed}-{}", numbers[0])}}});
    let patches = numbers.iter().map(|number| case(seed, *number).patch);
    let patches: Vec<Value> = patches.chain([seen.clone()]).collect();
    for manifest in manifests_of(policy, &patches) {
        manifests::apply(client, &manifest).await?;
    }
    // The API server reads the types of definitions now and then.
    for kind in KINDS
        .iter()
        .filter(|kind| ["ConfigMap", "Thing"].contains(&kind.name))
    {
        let probe = json!({"apiVersion": kind.api_version, "kind": kind.name, "metadata": {"name": "probe",
            "labels": {POLICY: policy.to_string(), CASE: numbers.len().to_string()}}});
        wait::until("the policy to be in force", async || {
            let merged = create(client, *kind, MERGED, &probe).await?;
            let annotations = &merged["metadata"]["annotations"];
            ensure!(
                *annotations == seen["metadata"]["annotations"],
                "{annotations}"
            );
            anyhow::Ok(())
        })
        .await?;
    }
    Ok(())
}

fn manifests_of(policy: usize, patches: &[Value]) -> [Value; 2] {
    let name = format!("merge-{policy}");
    let rules = KINDS.iter().map(|kind| {
        json!({"apiGroups": [kind.group()], "apiVersions": ["*"], "resources": [kind.plural], "operations": ["CREATE"]})
    });
    let patches: Vec<String> = patches
        .iter()
        .map(|patch| expression::write(patch, "Object"))
        .collect();
    let expression = format!(
        "[{}][int(object.metadata.labels[\"{CASE}\"])]",
        patches.join(",\n")
    );
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {
                    "resourceRules": rules.collect::<Vec<_>>(),
                    "objectSelector": {"matchLabels": {POLICY: policy.to_string()}},
                },
                "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {
                "policyName": name,
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": MERGED}}},
            },
        }),
    ]
}

async fn unbind(client: &Client, policy: usize) -> anyhow::Result<()> {
    let [policy, binding] = manifests_of(policy, &[]);
    manifests::delete(client, &binding).await?;
    manifests::delete(client, &policy).await
}

/// The table of own types, and the type that is read from a definition, are what the API server publishes.
async fn the_schema_table_equals_the_published_schemas(client: &Client) -> anyhow::Result<()> {
    let get = async |path: &str| -> anyhow::Result<Value> {
        let request = http::Request::get(path).body(Vec::new())?;
        Ok(client.request(request).await?)
    };
    let group = format!("apis/{}/v1", things::GROUP);
    let documents = wait::until("the definition to be published", async || {
        let index = get("/openapi/v3").await?;
        let paths = index["paths"].as_object().context("no paths")?;
        ensure!(paths.contains_key(&group), "{group} is not there");
        let paths = paths.iter().filter(|(path, _)| path.starts_with("api"));
        let urls: Vec<&str> = paths
            .filter_map(|(_, of)| of["serverRelativeURL"].as_str())
            .collect();
        stream::iter(urls)
            .map(get)
            .buffered(4)
            .try_collect::<Vec<_>>()
            .await
    })
    .await?;
    let published = published(&documents)?;
    let mut own = 0;
    for (kind, published) in &published {
        let (api_version, name) = kind.split_once(' ').context("no kind")?;
        let ours = match api_version.starts_with(things::GROUP) {
            true => ObjectSchema::from_crd(&things::schema())?,
            false => {
                ObjectSchema::built_in(api_version, name).with_context(|| format!("no {kind}"))?
            }
        };
        ensure!(
            ours.to_record() == published.to_record(),
            "{kind} is published otherwise:\n{}\n{}",
            published.to_record(),
            ours.to_record()
        );
        own += 1;
    }
    ensure!(own > 50, "{own} kinds are published");
    Ok(())
}
