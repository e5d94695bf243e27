//! `anteroom explain`: what each rule of a policy asks, and how a replica finds the answer.
//!
//! ```text
//! files ── manifests ──▶ policies, entries ── plan ──▶ Explained ──▶ text, JSON
//!                                              ▲
//!                             live: what a running system holds
//! ```

mod live;
mod manifests;
mod plan;
mod text;

use std::path::PathBuf;

use anteroom_bus::nats::NatsArgs;
use anteroom_policy::Policy;
use anteroom_runtime::telemetry::TelemetryArgs;
use anyhow::bail;
use clap::Args;
use serde::Serialize;
use serde_json::Value;

use self::live::Live;
pub(crate) use self::{
    manifests::{MANIFESTS_MAX, Manifests},
    plan::{Plan, ReadPlan},
};
use crate::{
    offline::NO_POLICY,
    output::{Output, counted, input_error, print, print_json_error, warn},
};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom explain policy.yaml\n  \
    anteroom explain policies/ entries/ -o json\n  \
    kubectl get clusterpolicies -o yaml | anteroom explain -\n  \
    anteroom explain policy.yaml --live --nats-url nats://localhost:4222\n\n\
    Exit codes: 0 every policy is explained, 1 one cannot be compiled or read, or --fail-on-scan found \
    a scan, 2 wrong usage.")]
pub(crate) struct ExplainArgs {
    /// Files of policies, and of the entries that they read; folders with such files; `-` for
    /// standard input.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Query a running system for the number of objects, and how many of them a lookup finds.
    #[arg(long)]
    live: bool,

    /// Fail if a rule's query scans all objects, for use in a pipeline.
    #[arg(long)]
    fail_on_scan: bool,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// A policy, explained.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    /// The kind, as in `ClusterPolicy`.
    kind: String,
    /// The policy's name, as `namespace/name` for a namespaced policy.
    name: String,
    rules: Vec<RulePlan>,
    /// Rules of kinds that are not run here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_run: Vec<RuleNotRun>,
    /// Why it cannot be compiled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// A rule that is never run, with the path of the unsupported field, as in `spec.rules[0].generate`.
#[derive(Debug, Serialize)]
struct RuleNotRun {
    rule: String,
    field: String,
}

/// A rule, with its reads.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RulePlan {
    pub(crate) rule: String,
    pub(crate) reads: Vec<ReadPlan>,
}

pub(crate) async fn run(args: ExplainArgs) -> anyhow::Result<()> {
    let is_json = args.output == Output::Json;
    let manifests = print_json_error(is_json, policies(&args.files).map_err(input_error))?;
    let mut explained: Vec<_> = manifests
        .policies
        .iter()
        .map(|manifest| explain(manifest, &manifests))
        .collect();
    if args.live {
        print_json_error(is_json, estimate(&args.nats, &mut explained).await)?;
    }
    for file in &manifests.passed_over {
        warn(file);
    }
    for policy in &manifests.not_run {
        warn(&format!(
            "passed over: {policy} is no policy that is run here"
        ));
    }
    match args.output {
        Output::Text => print(text::page(&explained).trim_end())?,
        Output::Json => print(&serde_json::to_string_pretty(&explained)?)?,
    }
    verdict(&explained, args.fail_on_scan)
}

/// Reads the policies, with the entries that they read.
fn policies(files: &[PathBuf]) -> anyhow::Result<Manifests> {
    let manifests = Manifests::read(files)?;
    if manifests.policies.is_empty() {
        match manifests.not_run.is_empty() {
            true => bail!(NO_POLICY),
            false => bail!("{NO_POLICY}. There are {}", manifests.not_run.join(", ")),
        }
    }
    Ok(manifests)
}

/// Asks a running system for the number of objects that each read looks at.
async fn estimate(nats: &NatsArgs, explained: &mut [Explained]) -> anyhow::Result<()> {
    let live = Live::connect(nats).await?;
    let reads = explained
        .iter_mut()
        .flat_map(|policy| &mut policy.rules)
        .flat_map(|rule| &mut rule.reads);
    for read in reads {
        read.rows = live.estimate(read).await?;
    }
    live.close().await;
    let rules = explained.iter().flat_map(|policy| &policy.rules);
    let is_unknown = |read: &&ReadPlan| {
        let is_list = matches!(
            read.plan,
            Plan::Index { .. } | Plan::Kept { .. } | Plan::Scan { .. }
        );
        is_list && read.rows.is_none()
    };
    let unknown = rules.flat_map(|rule| &rule.reads).filter(is_unknown);
    match unknown.count() {
        0 => {}
        unknown => warn(&format!(
            "{} without rows: no replica holds the objects, or a sample does not tell",
            counted(unknown, "read")
        )),
    }
    Ok(())
}

fn explain(manifest: &Value, manifests: &Manifests) -> Explained {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &manifest["metadata"];
    let (namespace, name) = (text(&metadata["namespace"]), text(&metadata["name"]));
    let (rules, not_run, problems) = match anteroom_policy::compile(manifest) {
        Ok(policy) => (rules(&policy, manifests), not_run(&policy), Vec::new()),
        Err(problems) => (
            Vec::new(),
            Vec::new(),
            problems.iter().map(ToString::to_string).collect(),
        ),
    };
    Explained {
        kind: text(&manifest["kind"]),
        name: match namespace.is_empty() {
            true => name,
            false => format!("{namespace}/{name}"),
        },
        rules,
        not_run,
        problems,
    }
}

fn not_run(policy: &Policy) -> Vec<RuleNotRun> {
    let rules = policy.not_run().iter().map(|one| RuleNotRun {
        rule: one.rule.clone(),
        field: one.path.clone(),
    });
    rules.collect()
}

/// Returns the rules of a policy with their reads.
pub(crate) fn rules(policy: &Policy, manifests: &Manifests) -> Vec<RulePlan> {
    let plan = |rule: &anteroom_policy::Rule| {
        let mut reads = rule.reads();
        // The same, written twice in one field, is asked once.
        reads.dedup();
        RulePlan {
            rule: rule.name().to_owned(),
            reads: reads
                .iter()
                .map(|read| plan::read_plan(read, manifests))
                .collect(),
        }
    };
    policy.rules().iter().map(plan).collect()
}

fn verdict(explained: &[Explained], fail_on_scan: bool) -> anyhow::Result<()> {
    let failed = explained
        .iter()
        .filter(|policy| !policy.problems.is_empty());
    let (failed, scans) = (
        failed.count(),
        explained.iter().map(Explained::scans).sum::<usize>(),
    );
    if failed > 0 {
        bail!(
            "{failed} of {} cannot be compiled: the output has their problems",
            counted(explained.len(), "policy")
        );
    }
    if fail_on_scan && scans > 0 {
        let scans = counted(scans, "scan");
        bail!(
            "{scans} of all objects (--fail-on-scan): the line `better` of each says what avoids it"
        );
    }
    Ok(())
}

impl Explained {
    /// Queries at admission that look through all objects.
    fn scans(&self) -> usize {
        let reads = self.rules.iter().flat_map(|rule| &rule.reads);
        reads.filter(|read| read.is_scan()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMO: [&str; 2] = [
        include_str!("../../../tests/demo/manifests/entry.yaml"),
        include_str!("../../../tests/demo/manifests/policy.yaml"),
    ];

    const BY_LABEL: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: by-label}
spec:
  rules:
    - name: newer
      match: {any: [{resources: {kinds: [Pod]}}]}
      context:
        - name: newer
          globalReference: {name: pods, jmesPath: "[?metadata.generation > `3`].metadata.name"}
        - name: config
          configMap: {name: settings, namespace: default}
        - name: node
          apiCall: {urlPath: "/api/v1/nodes/{{ request.object.spec.nodeName }}", jmesPath: metadata.name}
        - name: names
          globalReference: {name: pods.names}
      validate:
        message: "{{ newer }}"
        deny:
          conditions:
            any:
              - {key: "{{ config.data.a }}", operator: Equals, value: "{{ newer[0] }}"}
              - {key: "{{ node }}", operator: Equals, value: "{{ length(names) }}"}
"#;

    fn explained(texts: &[&str]) -> Vec<Explained> {
        let folder = tempfile::tempdir().unwrap();
        for (at, text) in texts.iter().enumerate() {
            std::fs::write(folder.path().join(format!("{at}.yaml")), text).unwrap();
        }
        let manifests = Manifests::read(&[folder.path().to_owned()]).unwrap();
        let policies = manifests.policies.iter();
        policies
            .map(|manifest| explain(manifest, &manifests))
            .collect()
    }

    #[test]
    fn a_policy_is_explained_read_by_read() {
        let explained = explained(&DEMO);
        let page = text::page(&explained);
        for line in [
            "ClusterPolicy unique-ingress-host",
            "rule host-is-free",
            "hosts <- CachedContextEntry ingresses",
            "used in validate.deny.conditions.any[0].value as `hosts`",
            "gets    whether the condition with AnyIn is met",
            "plan    index: objects with a value of spec.rules[].host",
            "policies: 1; reads: 1; by index 1; kept 0",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(verdict(&explained, true).is_ok());
    }

    #[test]
    fn a_scan_is_explained_with_reason_and_remedy_and_can_fail_the_run() {
        let pods = r#"
apiVersion: kyverno.io/v2alpha1
kind: GlobalContextEntry
metadata: {name: pods}
spec:
  kubernetesResource: {version: v1, resource: pods}
  projections: [{name: names, jmesPath: "[].metadata.name"}]
"#;
        let explained = explained(&[BY_LABEL, pods]);
        let page = text::page(&explained);
        for line in [
            "plan    SCAN: all objects are looked through",
            "`metadata.generation > `3`` has to be evaluated on every object",
            "better  ",
            "config <- configMap default/settings",
            "plan    one object, by its name",
            "node <- /api/v1/nodes/{{request.object.spec.nodeName}} (kept as /v1/nodes/?&)",
            "names <- GlobalContextEntry pods.names",
            "plan    kept: how many there are, of (@)[].metadata.name",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(verdict(&explained, false).is_ok());
        let error = verdict(&explained, true).unwrap_err().to_string();
        assert!(error.contains("--fail-on-scan"), "{error}");
    }

    #[test]
    fn reads_of_roles_and_namespace_labels_are_explained() {
        let by_role = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: taints}
spec:
  rules:
    - name: taints
      match: {any: [{resources: {kinds: [Pod], namespaceSelector: {matchLabels: {a: b}}}}]}
      exclude: {any: [{clusterRoles: [cluster-admin]}]}
      validate: {deny: {}}
"#;
        let explained = explained(&[by_role]);
        let page = text::page(&explained);
        for line in [
            "the object's namespace (kept as /v1/namespaces/?&)",
            "the user's roles (kept as rbac.authorization.k8s.io/v1/clusterrolebindings/?&)",
            "the user's roles (kept as rbac.authorization.k8s.io/v1/rolebindings/?&)",
            "plan    one object, by its name",
            "plan    index: objects with one of $names among subjects[].name",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(verdict(&explained, true).is_ok());
    }

    #[test]
    fn a_projection_of_an_entry_that_is_not_given_is_not_guessed() {
        let explained = explained(&[BY_LABEL]);
        let page = text::page(&explained);
        assert!(page.contains("not known here: give the manifest of GlobalContextEntry pods too"));
    }

    #[test]
    fn reads_of_mutate_rules_are_explained() {
        let policy = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: noted}
spec:
  rules:
    - name: adds
      match: {any: [{resources: {kinds: [Pod]}}]}
      context:
        - name: hosts
          cachedContextEntry: {name: ingresses, jmesPath: "items[].spec.rules[].host"}
      mutate: {patchStrategicMerge: {metadata: {annotations: {hosts: "{{ length(hosts) }}"}}}}
"#;
        let explained = explained(&[policy, DEMO[0]]);
        let page = text::page(&explained);
        assert!(explained[0].problems.is_empty(), "{page}");
        for line in ["hosts <- CachedContextEntry ingresses", "used in mutate."] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn calls_of_policies_in_cel_are_explained_by_their_expressions() {
        let policy = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: unique}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  variables:
  - {name: limits, expression: "resource.get('v1', 'configmaps', 'default', 'limits')"}
  validations:
  - expression: "namespaceObject.metadata.name != 'x' && size(resource.list('v1', 'pods', '').items) < 3 && variables.limits != null"
  - expression: "http.get('http://a.b/c').ok && globalContext.get('hosts', 'names') != null"
"#;
        let explained = explained(&[policy]);
        let page = text::page(&explained);
        assert!(explained[0].problems.is_empty(), "{page}");
        for line in [
            "ValidatingPolicy unique\n  rule\n",
            "  rule defaults\n",
            "namespaceObject <- the object's namespace (kept as /v1/namespaces/?&)",
            "resource.get(\"v1\", \"configmaps\", \"default\", \"limits\") <- /api/v1/namespaces/default/configmaps/limits",
            "used in spec.variables[0]",
            "resource.list(\"v1\", \"pods\", \"\") <- /api/v1/pods (kept as /v1/pods/?&)",
            "used in spec.validations[0]",
            "asks    p0 && size(view.items) < 3 && p1",
            "plan    kept: no object is looked at but by its place",
            "a call of a service",
            "<- GlobalContextEntry hosts.names",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
    }

    #[test]
    fn parts_in_cel_say_by_which_index_or_why_all_objects_are_looked_through() {
        let policy = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: unique}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [ingresses]}]
  variables:
  - {name: all, expression: "resource.list('networking.k8s.io/v1', 'ingresses', '').items"}
  validations:
  - expression: "!object.spec.rules.exists(r, variables.all.exists(o, o.spec.rules.exists(t, t.host == r.host)))"
  - expression: "variables.all.filter(o, o.metadata.generation > 3).size() < 5"
"#;
        let explained = explained(&[policy]);
        let page = text::page(&explained);
        for line in [
            "used in spec.validations[0]",
            "asks    variables.all = view.items; !p0.exists(_0, variables.all.exists(_1, _1.spec.rules.exists(_2, _2.host == _0.host)))",
            "plan    index: objects with _0.host among spec.rules[].host",
            "used in spec.validations[1]",
            "plan    SCAN: all objects are looked through",
            "`variables.all.filter(_0, _0.metadata.generation > 3)` has to be evaluated on every object",
            "better  An index answers `path == value`",
            "reads: 2; by index 1;",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        assert!(verdict(&explained, true).is_err());
    }

    #[test]
    fn a_rule_that_is_never_run_is_named() {
        let policy = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: part}
spec:
  rules:
  - name: made
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: x, namespace: a, data: {data: {a: b}}}
  - name: team
    match: {any: [{resources: {kinds: [Namespace]}}]}
    validate: {message: "team", pattern: {metadata: {labels: {team: "?*"}}}}
"#;
        let page = text::page(&explained(&[policy]));
        let line = "  rule made\n    not run: spec.rules[0].generate is not supported\n";
        assert!(page.contains(line), "{page}");
    }

    #[test]
    fn a_policy_that_cannot_be_compiled_says_why() {
        let explained = explained(&[
            "{apiVersion: kyverno.io/v1, kind: Policy, metadata: {name: web, namespace: team}}",
        ]);
        assert!(text::page(&explained).contains("Policy team/web\n  cannot be compiled: AR302"));
        assert!(verdict(&explained, false).is_err());
    }
}
