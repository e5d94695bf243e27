//! The deployment holds together: the manifests among each other, with the image, with the rules
//! for what a service may do, and with what the simulator reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod chart;
mod nats;
mod workflows;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anteroom_keys::{LOGINS, files};
use serde_json::{Value, json};

const SERVICES: [&str; 4] = [
    "anteroom-cache-replica",
    "anteroom-reporter",
    "anteroom-watcher",
    "anteroom-webhook",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn documents(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap();
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn yaml(path: &str) -> Value {
    let mut documents = documents(&root().join(path));
    assert_eq!(documents.len(), 1, "{path}");
    documents.remove(0)
}

/// Every object of an installation. A story on real parts holds the file against the chart that it is rendered from.
fn manifests() -> Vec<Value> {
    rendered("default")
}

fn rendered(name: &str) -> Vec<Value> {
    documents(&root().join(format!("deploy/install/{name}.yaml")))
}

fn of_kind<'a>(manifests: &'a [Value], kinds: &'a [&str]) -> impl Iterator<Item = &'a Value> {
    manifests
        .iter()
        .filter(|object| kinds.contains(&text(object, "/kind")))
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

const WORKLOADS: [&str; 2] = ["Deployment", "StatefulSet"];

#[test]
fn every_manifest_is_in_the_namespace() {
    let cluster_scoped = ["Namespace", "ClusterRole", "ClusterRoleBinding"];
    for object in manifests() {
        let expected = if cluster_scoped.contains(&text(&object, "/kind")) {
            ""
        } else {
            "anteroom"
        };
        assert_eq!(text(&object, "/metadata/namespace"), expected, "{object}");
    }
}

/// An alert about a metric that there is not would never speak.
#[test]
fn alerts_are_about_metrics_that_there_are() {
    let documented = fs::read_to_string(root().join("docs/metrics.md")).unwrap();
    let alerts = yaml("deploy/chart/files/rules.yaml");
    let mut metrics = 0;
    for rule in list(&alerts, "/groups/0/rules") {
        let words = text(rule, "/expr").split(|of: char| !(of.is_alphanumeric() || of == '_'));
        for name in words.filter(|word| word.starts_with("anteroom_")) {
            let name = name.trim_end_matches("_total").trim_end_matches("_bucket");
            assert!(documented.contains(&format!("| `{name}` |")), "{name}");
            metrics += 1;
        }
    }
    assert!(metrics > 4);
}

/// Whoever gets an alert finds what to do, and has an alert that was seen to fire and to clear.
#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let alerts = yaml("deploy/chart/files/rules.yaml");
    let runbooks = fs::read_to_string(root().join("docs/runbooks.md")).unwrap();
    let headings: BTreeSet<_> = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("## Anteroom"))
        .map(|rest| format!("Anteroom{rest}"))
        .collect();
    let tests = yaml("tests/alerts/rules_test.yaml");
    let mut names = BTreeSet::new();
    for rule in list(&alerts, "/groups/0/rules") {
        let name = text(rule, "/alert");
        let runbook = format!("docs/runbooks.md#{}", name.to_lowercase());
        assert_eq!(text(rule, "/annotations/runbook"), runbook);
        let test = list(&tests, "/tests").find(|test| test["name"] == name);
        let expected = list(
            test.unwrap_or_else(|| panic!("{name} has no test")),
            "/alert_rule_test",
        );
        let fires: Vec<_> = expected
            .inspect(|look| assert_eq!(text(look, "/alertname"), name))
            .map(|look| {
                look["exp_alerts"]
                    .as_array()
                    .is_some_and(|alerts| !alerts.is_empty())
            })
            .collect();
        assert_eq!(fires, [false, true, false], "{name}");
        names.insert(name.to_owned());
    }
    assert_eq!(names, headings);
}

#[test]
fn manifests_use_a_single_image_and_a_single_nats() {
    let compose = yaml("docker-compose.yml");
    let mut images: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut add = |image: &str| {
        let kind = if image.starts_with("nats:") {
            "nats"
        } else {
            "anteroom"
        };
        images.entry(kind).or_default().insert(image.to_owned());
    };
    for workload in of_kind(&manifests(), &WORKLOADS) {
        list(workload, "/spec/template/spec/containers")
            .for_each(|container| add(text(container, "/image")));
    }
    for service in ["nats", "watcher", "replica-1", "replica-2", "webhook"] {
        add(text(&compose, &format!("/services/{service}/image")));
    }
    let chart = yaml("deploy/chart/Chart.yaml");
    let released = format!("anteroom:{}", text(&chart, "/appVersion"));
    assert_eq!(text(&chart, "/appVersion"), env!("CARGO_PKG_VERSION"));
    assert_eq!(
        images["anteroom"],
        BTreeSet::from([released, "anteroom:dev".to_owned()])
    );
    assert_eq!(images["nats"].len(), 1, "{images:?}");
    // Whatever is started is in the image, and the simulator in one of its own.
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let (_, installed) = dockerfile.rsplit_once("\nFROM ").unwrap();
    assert!(installed.contains("COPY --from=build /out/"), "{installed}");
    let (built, _) = dockerfile.split_once("FROM build AS build-simapi").unwrap();
    assert!(!built.contains("anteroom-simapi"), "{built}");
    assert_eq!(compose["services"]["simapi"]["build"]["target"], "simapi");
    for wanted in ["--package anteroom ", "target/release/anteroom "] {
        assert!(dockerfile.contains(wanted), "{wanted}");
    }
}

#[test]
fn containers_are_probed_and_confined() {
    let manifests = manifests();
    let mut seen = BTreeSet::new();
    for workload in of_kind(&manifests, &WORKLOADS) {
        let pod = &workload["spec"]["template"]["spec"];
        seen.insert(name(workload).to_owned());
        assert_eq!(
            pod["securityContext"]["runAsNonRoot"],
            true,
            "{}",
            name(workload)
        );
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert!(list(pod, "/topologySpreadConstraints").next().is_some());
        for container in list(pod, "/containers") {
            let ports: Vec<&str> = list(container, "/ports")
                .map(|port| text(port, "/name"))
                .collect();
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let port = text(container, &format!("/{probe}/httpGet/port"));
                assert!(ports.contains(&port), "{} {probe}", name(workload));
            }
            let security = &container["securityContext"];
            let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]}});
            assert_eq!(*security, expected, "{}", name(workload));
            for resource in [
                "/resources/requests/cpu",
                "/resources/requests/memory",
                "/resources/limits/memory",
            ] {
                assert!(
                    !text(container, resource).is_empty(),
                    "{} {resource}",
                    name(workload)
                );
            }
        }
        if name(workload) != "nats" {
            let container = &pod["containers"][0];
            assert_eq!(text(container, "/livenessProbe/httpGet/path"), "/livez");
            assert_eq!(text(container, "/readinessProbe/httpGet/path"), "/readyz");
            assert_eq!(text(container, "/command/0"), "anteroom");
            let service = text(container, "/command/1");
            assert!(name(workload).ends_with(service), "{service}");
        }
    }
    assert!(
        SERVICES.iter().all(|service| seen.contains(*service)),
        "{seen:?}"
    );
}

/// The labels of each workload's pods, by its name.
fn pods(manifests: &[Value]) -> BTreeMap<String, Value> {
    let labels = |workload: &Value| workload["spec"]["template"]["metadata"]["labels"].clone();
    of_kind(manifests, &WORKLOADS)
        .map(|workload| (name(workload).to_owned(), labels(workload)))
        .collect()
}

/// Returns true if `matchLabels` and `In` expressions select these labels; an empty selector selects all.
fn selects(selector: &Value, labels: &Value) -> bool {
    let equal = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let listed = list(selector, "/matchExpressions").all(|expression| {
        assert_eq!(expression["operator"], "In");
        let value = &labels[text(expression, "/key")];
        list(expression, "/values").any(|listed| listed == value)
    });
    listed && equal.into_iter().all(|(key, value)| labels[key] == *value)
}

#[test]
fn selectors_select_what_they_are_for() {
    let manifests = manifests();
    let pods = pods(&manifests);
    let selected = |selector: &Value| -> Vec<&str> {
        let selected = pods.iter().filter(|(_, labels)| selects(selector, labels));
        selected.map(|(name, _)| name.as_str()).collect()
    };
    for object in of_kind(
        &manifests,
        &["Deployment", "StatefulSet", "PodDisruptionBudget"],
    ) {
        assert_eq!(
            selected(&object["spec"]["selector"]),
            [name(object)],
            "{}",
            name(object)
        );
    }
    for workload in of_kind(&manifests, &WORKLOADS) {
        for spread in list(workload, "/spec/template/spec/topologySpreadConstraints") {
            assert_eq!(selected(&spread["labelSelector"]), [name(workload)]);
        }
    }
    for service in of_kind(&manifests, &["Service"]) {
        let selector = json!({"matchLabels": service["spec"]["selector"]});
        let [workload] = selected(&selector)[..] else {
            panic!("{service}")
        };
        let workload = of_kind(&manifests, &WORKLOADS)
            .find(|of| name(of) == workload)
            .unwrap();
        let ports: Vec<&str> = list(workload, "/spec/template/spec/containers/0/ports")
            .map(|port| text(port, "/name"))
            .collect();
        for port in list(service, "/spec/ports") {
            assert!(ports.contains(&text(port, "/targetPort")), "{service}");
        }
    }
    for policy in of_kind(&manifests, &["NetworkPolicy"]) {
        assert!(
            !selected(&policy["spec"]["podSelector"]).is_empty(),
            "{policy}"
        );
    }
    let nats = of_kind(&manifests, &["NetworkPolicy"])
        .find(|policy| name(policy) == "nats")
        .unwrap();
    let clients = list(nats, "/spec/ingress/0/from").map(|from| selected(&from["podSelector"]));
    assert_eq!(clients.collect::<Vec<_>>(), [SERVICES], "who reaches NATS");
}

#[test]
fn rights_are_the_least() {
    let manifests = manifests();
    for role in of_kind(&manifests, &["ClusterRole", "Role"]) {
        for rule in list(role, "/rules") {
            let strings = ["/apiGroups", "/resources", "/verbs"]
                .iter()
                .flat_map(|field| list(rule, field));
            assert!(
                strings
                    .into_iter()
                    .all(|item| !item.as_str().unwrap().contains('*')),
                "{rule}"
            );
            for field in ["nonResourceURLs", "escalate", "impersonate"] {
                assert!(rule.get(field).is_none(), "{rule}");
            }
            let secrets = list(rule, "/resources").any(|resource| resource == "secrets");
            let own_secrets = ["anteroom-init", "anteroom-webhook"].contains(&name(role));
            assert!(
                !secrets || own_secrets && text(role, "/kind") == "Role",
                "{rule}"
            );
            let webhooks =
                list(rule, "/apiGroups").any(|group| group == "admissionregistration.k8s.io");
            assert!(
                !webhooks || rule["resourceNames"] == json!(["anteroom"]),
                "{rule}"
            );
            // Only a POST cannot be held to a name, and only the Job that makes Secrets has that right.
            let creates_only = rule["verbs"] == json!(["create"]) && name(role) == "anteroom-init";
            if name(role) == "anteroom-init" {
                // A free name is one for a Secret in which the cluster puts the token of another account.
                let reads = |key: &str| list(rule, "/resourceNames").any(|name| name == key);
                let keys = ["anteroom-asker-keys", "anteroom-seal-keys"];
                assert!(
                    !keys.into_iter().any(reads),
                    "init makes none of them: {rule}"
                );
            }
            let mut names = list(rule, "/resourceNames").peekable();
            let is_named = names.peek().is_some()
                && names.all(|name| name.as_str().unwrap().starts_with("anteroom-"));
            assert!(!secrets || creates_only || is_named, "{rule}");
        }
    }
    // Each binding is of the account that its role is for; replicas have none, and no token.
    for binding in of_kind(&manifests, &["ClusterRoleBinding", "RoleBinding"]) {
        let role = text(binding, "/roleRef/name");
        let kind = text(binding, "/roleRef/kind");
        assert!(
            of_kind(&manifests, &[kind]).any(|of| name(of) == role),
            "{binding}"
        );
        for subject in list(binding, "/subjects") {
            let account = text(subject, "/name");
            assert!(
                role.starts_with(account) && account != "anteroom-cache-replica",
                "{binding}"
            );
            assert_eq!(text(subject, "/namespace"), "anteroom");
        }
    }
    for account in of_kind(&manifests, &["ServiceAccount"]) {
        assert_eq!(account["automountServiceAccountToken"], false, "{account}");
    }
    for workload in of_kind(&manifests, &WORKLOADS) {
        let pod = &workload["spec"]["template"]["spec"];
        let account = text(pod, "/serviceAccountName");
        assert!(
            of_kind(&manifests, &["ServiceAccount"]).any(|of| name(of) == account),
            "{account}"
        );
        let callers = ["anteroom-reporter", "anteroom-watcher", "anteroom-webhook"];
        let mounted = callers.contains(&name(workload));
        assert_eq!(
            pod["automountServiceAccountToken"],
            mounted,
            "{}",
            name(workload)
        );
    }
}

/// Returns how a volume has the Secret: as all of it, or among others.
fn of_volume<'a>(volume: &'a Value, secret: &str) -> Option<&'a Value> {
    let whole = volume.get("secret").into_iter();
    let parts = list(volume, "/projected/sources").filter_map(|source| source.get("secret"));
    let is_it = |source: &&Value| {
        let names = ["/secretName", "/name"];
        names.iter().any(|name| text(source, name) == secret)
    };
    whole.chain(parts).find(is_it)
}

/// The keys that Secrets are sealed with are mounted in watchers and replicas alone, those that they are asked for with
/// in webhooks too, what signs in to registries in watchers; where each is looked for.
#[test]
fn secrets_are_mounted_where_they_are_read_and_nowhere_else() {
    let manifests = manifests();
    let all: &[&str] = &[
        "anteroom-watcher",
        "anteroom-cache-replica",
        "anteroom-webhook",
    ];
    for (secret, variable, readers) in [
        ("anteroom-seal-keys", "ANTEROOM_SEAL_KEYS_FILE", &all[..2]),
        ("anteroom-asker-keys", "ANTEROOM_ASKER_KEYS_FILE", all),
        ("anteroom-registries", "ANTEROOM_REGISTRY_CONFIG", &all[..1]),
    ] {
        for workload in of_kind(&manifests, &WORKLOADS) {
            let pod = &workload["spec"]["template"]["spec"];
            let volumes = list(pod, "/volumes");
            let mut found = volumes.filter_map(|volume| Some((volume, of_volume(volume, secret)?)));
            let volume = found.next();
            let wanted = readers.contains(&name(workload));
            assert_eq!(volume.is_some(), wanted, "{} {secret}", name(workload));
            let Some((volume, source)) = volume else {
                continue;
            };
            assert_eq!(source["optional"], true, "Secrets are opt-in");
            let mount = list(pod, "/containers/0/volumeMounts")
                .find(|mount| mount["name"] == volume["name"])
                .unwrap();
            assert_eq!(mount["readOnly"], true);
            let file = list(pod, "/containers/0/env")
                .find(|found| text(found, "/name") == variable)
                .unwrap();
            let file = text(file, "/value");
            // The option names a file in the mount, or the whole mount.
            assert!(
                Path::new(file).starts_with(text(mount, "/mountPath")),
                "{file}"
            );
        }
    }
}

/// Memory is limited below what the kernel allows, and watchers are more than one.
#[test]
fn limits_leave_room_and_watchers_share_the_work() {
    let mebibytes = |quantity: &str| -> u64 {
        let number = quantity
            .strip_suffix("Mi")
            .unwrap_or_else(|| panic!("{quantity}"));
        number.parse().unwrap()
    };
    let manifests = manifests();
    for (of, variable) in [
        ("anteroom-watcher", "ANTEROOM_WATCHER_MEMORY_LIMIT"),
        ("anteroom-cache-replica", "ANTEROOM_MEMORY_LIMIT"),
    ] {
        let workload = of_kind(&manifests, &WORKLOADS)
            .find(|workload| name(workload) == of)
            .unwrap();
        assert!(workload["spec"]["replicas"].as_u64() >= Some(2), "{of}");
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        let limit = list(container, "/env")
            .find(|found| text(found, "/name") == variable)
            .unwrap();
        let (own, kernel) = (
            mebibytes(text(limit, "/value")),
            mebibytes(text(container, "/resources/limits/memory")),
        );
        // What is accounted may be exceeded by a fifth.
        assert!(own * 6 / 5 < kernel, "{of}: {own} of {kernel}");
    }
}

#[test]
fn compose_binds_loopback_and_mounts_what_there_is() {
    let compose = yaml("docker-compose.yml");
    for (name, service) in compose["services"].as_object().unwrap() {
        for port in list(service, "/ports") {
            assert!(
                port.as_str().unwrap().starts_with("127.0.0.1:"),
                "{name}: {port}"
            );
        }
        for volume in list(service, "/volumes") {
            let source = volume.as_str().unwrap().split(':').next().unwrap();
            if let Some(path) = source.strip_prefix("./") {
                assert!(root().join(path).exists(), "{name}: {path}");
            } else {
                assert!(compose["volumes"].get(source).is_some(), "{name}: {source}");
            }
        }
    }
}

/// The root of a service's container cannot be written to, so each folder of keys is a volume. A volume belongs to whom its
/// folder in the image belongs to.
#[test]
fn compose_has_a_volume_and_a_folder_for_the_keys_of_each_login() {
    let compose = yaml("docker-compose.yml");
    let keys = &compose["services"]["keys"];
    assert_eq!(keys["read_only"], true);
    let arguments: Vec<&str> = list(keys, "/command").filter_map(Value::as_str).collect();
    assert_eq!(arguments[..2], ["anteroom", "keys"]);
    let at = arguments
        .iter()
        .position(|of| *of == "--directory")
        .unwrap();
    let directory = arguments[at + 1];
    let wanted: BTreeSet<&str> = LOGINS.into_iter().chain([files::SERVER]).collect();
    let mounted: BTreeSet<&str> = list(keys, "/volumes").filter_map(Value::as_str).collect();
    let mounts = wanted.iter();
    let mounts: Vec<_> = mounts
        .map(|login| format!("keys-{login}:{directory}/{login}"))
        .collect();
    let mounts: BTreeSet<&str> = mounts.iter().map(String::as_str).collect();
    assert_eq!(mounted, mounts);
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let (_, made) = dockerfile.split_once("for login in ").unwrap();
    let (logins, made) = made.split_once(';').unwrap();
    assert_eq!(logins.split_whitespace().collect::<BTreeSet<_>>(), wanted);
    let loop_begins = format!(" do mkdir -p {directory}/$login;");
    assert!(made.starts_with(loop_begins.as_str()), "{made}");
    let (_, installed) = dockerfile.rsplit_once("\nFROM ").unwrap();
    let copied = format!("COPY --from=build --chown=65532:65532 {directory}/ {directory}/\n");
    assert!(installed.contains(&copied), "{installed}");
}

/// The composition's simulator loads the given objects, and prints the objects that it cannot load.
#[tokio::test]
async fn the_simulator_loads_the_composition() {
    use clap::Parser;
    let path = |path: &str| root().join(path).to_str().unwrap().to_owned();
    let arguments = |loaded: &[String]| {
        let fixed = ["simapi", "--listen", "127.0.0.1:0", "--services=3"].map(str::to_owned);
        let load = loaded
            .iter()
            .flat_map(|path| ["--load".to_owned(), path.clone()]);
        anteroom_simapi::Args::parse_from(fixed.into_iter().chain(load))
    };
    let definitions = tempfile::tempdir().unwrap();
    for (kind, plural) in [
        ("CachedContextEntry", "cachedcontextentries"),
        ("ClusterPolicy", "clusterpolicies"),
    ] {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.kyverno.io")}, "spec": {"group": "kyverno.io",
                "scope": "Cluster", "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true}]}});
        fs::write(
            definitions.path().join(format!("{plural}.yaml")),
            crd.to_string(),
        )
        .unwrap();
    }
    let demo = path("tests/demo/manifests");
    let without = arguments(std::slice::from_ref(&demo))
        .start()
        .await
        .unwrap_err();
    assert!(
        format!("{without:#}").contains("CachedContextEntry"),
        "{without:#}"
    );
    let definitions = definitions.path().to_str().unwrap().to_owned();
    let loaded = [definitions, path("deploy/compose/namespace.yaml"), demo];
    let sim = arguments(&loaded).start().await.unwrap();
    assert!(sim.get("namespaces", "", "anteroom").is_some());
    assert!(
        sim.get("cachedcontextentries.kyverno.io", "", "ingresses")
            .is_some()
    );
    assert_eq!(sim.objects("services").unwrap().len(), 3);
}
