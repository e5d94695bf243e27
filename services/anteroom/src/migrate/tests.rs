//! A small made-up installation, and the three files for it.

mod schema;

use std::{fs, path::Path};

use anteroom_simapi::{SimApi, SimConfig};
use clap::Parser;
use kube::{Client, Config};

use super::{
    chart_keys::{CHART_KEYS, ChartKey},
    rights::SOURCES,
    *,
};

const INSTALLATION: &str = include_str!("tests/installation.yaml");

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: MigrateArgs,
}

/// Runs the command in a folder that has the installation.
async fn run_in(folder: &Path, rest: &[&str]) -> anyhow::Result<bool> {
    let input = folder.join("input.yaml");
    fs::write(&input, INSTALLATION).unwrap();
    let input = input.display().to_string();
    let line = ["migrate", "kyverno", &input]
        .into_iter()
        .chain(rest.iter().copied());
    let MigrateCommand::Kyverno(args) = Line::try_parse_from(line)?.args.command;
    kyverno(&args).await
}

fn plan(text: &str) -> Move {
    let documents = anteroom_offline::listed(anteroom_offline::yaml(text).unwrap());
    Move::of(&Installation::of(documents).unwrap())
}

fn deployed(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    fs::read_to_string(root.join(path)).unwrap()
}

#[tokio::test]
async fn a_migration_writes_values_roles_and_a_report_of_the_whole_installation() {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("move");
    let directory = into.display().to_string();
    let all_run = run_in(folder.path(), &["--directory", &directory])
        .await
        .unwrap();
    assert!(!all_run);
    let [values, roles, report] = FILES.map(|name| fs::read_to_string(into.join(name)).unwrap());
    for text in [&values, &roles, &report] {
        assert!(
            !text.contains("never-to-be-seen") && !text.contains("kyverno-tls"),
            "{text}"
        );
    }
    for line in [
        "  # From excludeGroups of ConfigMap kyverno/kyverno.\n  excludeGroups: [\"system:nodes\"]",
        "  exemptNamespaces: [\"kube-system\",\"kyverno\",\"legacy\"]",
        "  resourceFilters: [\"[Event,*,*]\",\"[*/*,kube-system,*]\"]",
        "  webhookLabels: {\"owner\":\"platform\"}",
        "  allowWrites: [\"clusterpolicy/*\",\"mutatingpolicy/*\",\"policy/shop/restart\"]",
        "    namespace: \"exempt\"",
        "    maxApiCallResponseLength: \"5000000\"",
        "    backgroundScanInterval: \"2h\"",
        "  replicas: 3",
        "# - excludeClusterRoles of ConfigMap kyverno/kyverno: Users are not exempt by role.",
        "# - forceFailurePolicyIgnore of Deployment kyverno/kyverno-admission-controller: Say it in each policy",
        "# - ConfigMap kyverno/kyverno: Nothing here is like enableDefaultRegistryMutation, generateSuccessEvents,\n# newerThanThis.",
        "# - resourceFilters of ConfigMap kyverno/kyverno: No filters are: [Node,?].",
    ] {
        assert!(values.contains(line), "{line}\n{values}");
    }
    for absent in ["webhookAnnotations", "\n  logging", "reportsController"] {
        assert!(!values.contains(absent), "{absent}\n{values}");
    }
    for line in [
        "| policies | 6 |",
        "| policies that run | 4 |",
        "| policies that run in part | 1 |",
        "| policies that do not run | 1 |",
        "| exceptions that do not count | 1 |",
        "| ClusterPolicy | `namespaces` | partly | [AR301](docs/errors.md#ar301) | 0 | 0 | 0 |",
        "- [AR301](docs/errors.md#ar301) `spec.rules[1].generate`: the rule quota is not run: generate is not",
        "- rule `host-is-free`: An update violates a rule with `preconditions`",
        "- A validation of a `ValidatingPolicy` fails with an error",
        "index: objects with a value of spec.rules[].host",
        "scan: all objects are looked through, since `` metadata.generation > `3` `` has",
        "(only to tell a violation)",
        "- `ClusterCleanupPolicy old-pods`",
        "ClusterPolicy reads-secrets reads Secrets.",
    ] {
        assert!(report.contains(line), "{line}\n{report}");
    }
}

#[tokio::test]
async fn files_that_are_there_are_kept_unless_the_user_insists() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().display().to_string();
    fs::write(folder.path().join("values.yaml"), "mine").unwrap();
    let error = run_in(folder.path(), &["--directory", &directory])
        .await
        .unwrap_err();
    assert!(format!("{error:#}").contains("--force"), "{error:#}");
    assert_eq!(
        fs::read_to_string(folder.path().join("values.yaml")).unwrap(),
        "mine"
    );
    run_in(folder.path(), &["--directory", &directory, "--force"])
        .await
        .unwrap();
    assert_ne!(
        fs::read_to_string(folder.path().join("values.yaml")).unwrap(),
        "mine"
    );
    assert!(run_in(folder.path(), &["no/such/file"]).await.is_err());
    let nothing = Installation::of(vec![json!({ "kind": "Pod" })]).unwrap_err();
    assert!(
        nothing.to_string().contains("nothing of Kyverno's"),
        "{nothing}"
    );
}

#[test]
fn roles_grant_what_the_chart_does_not_and_no_secret() {
    let plan = plan(INSTALLATION);
    let rules = |name: &str| {
        let roles = plan.rights.roles();
        let role = roles
            .iter()
            .find(|role| role["metadata"]["name"] == name)
            .unwrap();
        let rules = role["rules"].as_array().unwrap().iter().map(|rule| {
            format!(
                "{}/{} {}",
                rule["apiGroups"][0], rule["resources"][0], rule["verbs"]
            )
        });
        (
            role["metadata"]["labels"].clone(),
            rules.collect::<Vec<_>>(),
        )
    };
    let (label, reads) = rules("anteroom-reads-for-policies");
    assert_eq!(
        label,
        json!({ "anteroom.dev/aggregate-to-watcher": "true" })
    );
    assert_eq!(
        reads,
        [
            r#""authorization.k8s.io"/"subjectaccessreviews" ["create"]"#,
            r#""farm.example.com"/"oxen" ["get","list","watch"]"#,
            r#""mesh.example.com"/"virtualservices" ["get","list","watch"]"#,
        ]
    );
    // Of what is scanned, oxen are read by an entry too.
    let (_, scans) = rules("anteroom-reads-for-scans");
    assert_eq!(scans, [r#"""/"nodes" ["get","list","watch"]"#]);
    // What changes objects is a policy of a namespace.
    assert_eq!(plan.rights.roles().len(), 2);
    let documents = anteroom_offline::yaml(&plan.rights.yaml()).unwrap();
    assert_eq!(documents, plan.rights.roles());
}

#[test]
fn a_policy_of_a_namespace_gets_no_right_in_others_and_nobody_one_to_create() {
    let plan = plan(
        r#"
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: home, namespace: shop}
spec:
  rules:
    - name: r
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      context: [{name: oxen, apiCall: {urlPath: /apis/farm.example.com/v1/namespaces/shop/oxen}}]
      mutate:
        targets: [{apiVersion: apps/v1, kind: Deployment, namespace: shop, name: web}]
        patchStrategicMerge: {metadata: {annotations: {n: "{{ oxen.items | length(@) }}"}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: writes}
spec:
  rules:
    - name: r
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets: [{apiVersion: apps/v1, kind: Deployment, namespace: "*", name: web}]
        patchStrategicMerge: {metadata: {annotations: {n: x}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: posts}
spec:
  rules:
    - name: r
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      context: [{name: token, apiCall: {method: POST, urlPath: /api/v1/namespaces/shop/serviceaccounts/x/token}}]
      validate: {deny: {conditions: {all: [{key: "{{ token }}", operator: Equals, value: x}]}}}
    - name: secret
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets: [{apiVersion: v1, kind: secret, namespace: shop, name: web}]
        patchStrategicMerge: {metadata: {annotations: {n: x}}}
"#,
    );
    let roles = plan.rights.roles();
    assert_eq!(roles.len(), 1, "{roles:#?}");
    let label = &roles[0]["metadata"]["labels"];
    assert_eq!(
        label,
        &json!({ "anteroom.dev/aggregate-to-watcher-writes": "true" })
    );
    let rule = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list", "update"]});
    assert_eq!(roles[0]["rules"], json!([rule]));
    let by_hand: Vec<_> = plan.rights.by_hand.iter().collect();
    for part in [
        "reads `oxen.farm.example.com` in shop alone",
        "changes `deployments.apps` in shop alone",
        "posts to `/api/v1/namespaces/shop/serviceaccounts/x/token`",
        "changes Secrets",
    ] {
        let is_there = by_hand.iter().any(|sentence| sentence.contains(part));
        assert!(is_there, "{part}: {by_hand:#?}");
    }
}

#[test]
fn flags_are_parsed_as_in_go_and_a_private_key_is_not_shown() {
    let args = [
        "--exceptionNamespace",
        "exempt",
        "--backgroundScan=1",
        "-v",
        "--key",
        "-----BEGIN PRIVATE KEY-----",
        "--enabled",
    ];
    let deployment = json!({"spec": {"template": {"spec": {"containers": [{"name": "kyverno", "args": args}]}}}});
    let flags = settings::flags(&deployment);
    let flags: Vec<_> = flags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    assert_eq!(
        flags,
        [
            "backgroundScan=1",
            "enabled=true",
            "exceptionNamespace=exempt",
            "key=true",
            "v=true"
        ]
    );
    let around = chart_keys::SettingContext::default();
    for (text, expected) in [
        ("1", Some(json!(true))),
        ("F", Some(json!(false))),
        ("maybe", None),
    ] {
        assert_eq!(
            convert::boolean(&text.into(), &around).value,
            expected,
            "{text}"
        );
    }
}

#[test]
fn values_are_what_the_schema_allows() {
    let schema = serde_json::from_str(&deployed("chart/values.schema.json")).unwrap();
    let alone = INSTALLATION
        .split("  - apiVersion")
        .take(2)
        .collect::<Vec<_>>()
        .join("  - apiVersion");
    for text in [INSTALLATION, &alone] {
        let plan = plan(text);
        let values = anteroom_functions::yaml::read(&plan.settings.yaml()).unwrap();
        assert_eq!(values, plan.settings.values());
        assert_eq!(schema::problems(&schema, &values), [] as [String; 0]);
    }
    let wrong = json!({ "config": { "no": 1 }, "admissionController": { "replicas": "2" },
        "features": { "policyExceptions": { "enabled": true } } });
    assert_eq!(schema::problems(&schema, &wrong).len(), 3);
}

#[test]
fn every_chart_key_is_in_the_schema_with_the_default_of_values_yaml() {
    let schema: Value = serde_json::from_str(&deployed("chart/values.schema.json")).unwrap();
    let values = anteroom_functions::yaml::read(&deployed("chart/values.yaml")).unwrap();
    for (_, ours) in &CHART_KEYS {
        let ChartKey::Key(key, default, _) = ours else {
            continue;
        };
        let default: Value = serde_json::from_str(default).unwrap();
        let pointer = format!("/{}", key.replace('.', "/"));
        assert_eq!(values.pointer(&pointer), Some(&default), "{key}");
        let pointer = format!("/properties/{}", key.replace('.', "/properties/"));
        assert!(schema.pointer(&pointer).is_some(), "{key}");
    }
}

#[test]
fn the_chart_grants_what_is_left_out() {
    let manifests = anteroom_offline::yaml(&deployed("install/default.yaml")).unwrap();
    let role = manifests
        .iter()
        .find(|one| one["metadata"]["name"] == "anteroom-watcher-sources");
    let rules: Vec<_> = SOURCES
        .iter()
        .map(|(group, plurals)| json!({ "apiGroups": [group], "resources": plurals, "verbs": ["get", "list", "watch"] }))
        .collect();
    assert_eq!(role.unwrap()["rules"], json!(rules));
}

#[test]
fn the_json_plan_has_policies_roles_and_values() {
    let json = plan(INSTALLATION).json();
    assert_eq!(json["summary"]["runs"], 4);
    assert_eq!(json["policies"][2]["name"], "signed");
    assert_eq!(json["policies"][2]["runs"], "not");
    assert_eq!(
        json["policies"][3]["rules"][0]["reads"][0]["plan"]["kind"],
        "index"
    );
    assert_eq!(json["roles"][0]["kind"], "ClusterRole");
    assert_eq!(
        json["values"]["config"]["excludeGroups"],
        json!(["system:nodes"])
    );
}

#[tokio::test]
async fn a_cluster_says_the_same_as_its_manifests() {
    anteroom_runtime::process::install_crypto_provider();
    let sim = SimApi::start(SimConfig::default()).await.unwrap();
    for crd in anteroom_watcher::crds() {
        let crd = serde_json::to_value(crd).unwrap();
        sim.put("customresourcedefinitions.apiextensions.k8s.io", crd)
            .unwrap();
    }
    sim.put("namespaces", json!({ "metadata": { "name": "kyverno" } }))
        .unwrap();
    let documents = anteroom_offline::listed(anteroom_offline::yaml(INSTALLATION).unwrap());
    let resource = |kind: &str| match kind {
        "ClusterPolicy" => Some("clusterpolicies.kyverno.io"),
        "ConfigMap" => Some("configmaps"),
        "Deployment" => Some("deployments.apps"),
        _ => None,
    };
    for document in &documents {
        if let Some(resource) = resource(document["kind"].as_str().unwrap()) {
            sim.put(resource, document.clone()).unwrap();
        }
    }
    let client = Client::try_from(Config::new(sim.url().parse().unwrap())).unwrap();
    let read = live::read(&client, "kyverno").await.unwrap();
    let live = Move::of(&Installation::of(read).unwrap());
    let given = documents
        .into_iter()
        .filter(|one| resource(one["kind"].as_str().unwrap()).is_some());
    let given = Move::of(&Installation::of(given.collect()).unwrap());
    assert_eq!(live.settings.yaml(), given.settings.yaml());
    assert_eq!(live.json()["summary"], given.json()["summary"]);
    sim.shutdown().await;
}

/// Helpers of a test say what they skip.
#[allow(clippy::print_stdout)]
#[test]
fn every_published_policy_has_a_verdict() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    for name in ["kyverno-policies", "kyverno-policies-cel"] {
        let folder = corpus.join(name);
        if !folder.is_dir() {
            let required = std::env::var_os("ANTEROOM_CORPUS_REQUIRED").is_some();
            assert!(!required, "there is no {}", folder.display());
            println!("skipped: there is no {}", folder.display());
            continue;
        }
        let found = input::manifests(&[folder]).unwrap();
        let plan = Move::of(&Installation::of(found.documents).unwrap());
        let counts = plan.verdicts.counts();
        assert!(counts["policies"] > 100, "{counts:?}");
        assert_eq!(
            counts["policies"],
            counts["runs"] + counts["partly"] + counts["not"]
        );
        for policy in &plan.verdicts.policies {
            let runs = policy.runs == verdicts::Runs::Fully;
            assert_eq!(
                runs,
                policy.reasons.is_empty(),
                "{} {}",
                policy.kind,
                policy.name
            );
        }
        println!("{name}:\n{}", report::numbers(&plan, false));
        for (text, documents) in [
            (plan.rights.yaml(), plan.rights.roles().len()),
            (plan.settings.yaml(), 1),
        ] {
            assert_eq!(anteroom_offline::yaml(&text).unwrap().len(), documents);
        }
        assert!(report::page(&plan).lines().count() > 100);
        assert!(
            !plan.rights.yaml().contains("\"secrets"),
            "{}",
            plan.rights.yaml()
        );
    }
}
