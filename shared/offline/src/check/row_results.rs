//! The objects of which the rules of a row say something, with their results.

use anteroom_policy::Rule;
use serde_json::Value;

use super::run::{Named, Run};
use crate::{
    resource::Resource,
    scenario::{Response, RuleResponse, Status},
    suite::Expected,
    values::is_rule,
};

/// The result of a rule on an object.
pub(super) struct ObjectResult<'a> {
    pub(super) rule: &'a RuleResponse,
    /// The result; of a target its own, since that of the rule is about all of them.
    pub(super) status: Status,
    pub(super) message: &'a str,
    pub(super) title: String,
    /// The object as the rule changed it.
    pub(super) became: Value,
}

impl<'a> ObjectResult<'a> {
    fn of_target(rule: &'a RuleResponse, status: Status, target: Resource) -> Self {
        Self {
            rule,
            status,
            message: "",
            title: target.title(),
            became: target.value,
        }
    }
}

impl Run<'_> {
    /// Returns the results of the row's rules for the selected resources, the changed targets, and named targets that did
    /// not change. If files hold the expected targets, the trigger has no result.
    pub(super) fn results(&self, expected: &Expected, named: Named<'_>) -> Vec<ObjectResult<'_>> {
        let mut told = Vec::new();
        for response in self.responses(expected) {
            let resource = &self.loaded.scenario.resources[response.resource];
            let is_meant = self.is_meant(response, expected, named);
            for rule in self.rules(response, expected) {
                let targets = rule.changed.iter().cloned().filter_map(Resource::new);
                let targets = targets.filter(|target| self.means(target, expected, named));
                let before = told.len();
                // The rule changed these targets, even if it failed on its further targets.
                told.extend(targets.map(|own| ObjectResult::of_target(rule, Status::Pass, own)));
                let is_of_targets =
                    !rule.changed.is_empty() && expected.patched_resources.is_some();
                if is_meant && told.len() == before && !is_of_targets {
                    told.push(ObjectResult {
                        rule,
                        status: rule.status,
                        message: &rule.message,
                        title: resource.title(),
                        became: response.patched.as_ref().unwrap_or(&resource.value).clone(),
                    });
                }
            }
        }
        if told.is_empty() && !matches!(named, Named::All) {
            let targets = self.loaded.scenario.world.targets.iter();
            let targets = targets.filter(|target| self.means(target, expected, named));
            told.extend(targets.filter_map(|target| self.left_alone(expected, target)));
        }
        told
    }

    /// Returns the result for a target that no rule changed; `None`: a rule failed, so that the outcome is unknown.
    fn left_alone(&self, expected: &Expected, target: &Resource) -> Option<ObjectResult<'_>> {
        let mut found = None;
        for response in self.responses(expected) {
            let policy = &self.loaded.scenario.policies[response.policy];
            let compiled = policy.outcome.as_ref().ok()?;
            for rule in self.rules(response, expected) {
                let mut all = compiled.rules().iter();
                let is_it = |one: &&Rule| one.name() == rule.rule && one.changes_existing();
                match (all.find(is_it), rule.status) {
                    (None, _) => {}
                    (_, Status::Pass | Status::Skip) => found = Some(rule),
                    _ => return None,
                }
            }
        }
        found.map(|rule| ObjectResult::of_target(rule, Status::Skip, target.clone()))
    }

    /// Returns the results of the row's policies.
    fn responses(&self, expected: &Expected) -> impl Iterator<Item = &Response> {
        let policies = &self.loaded.scenario.policies;
        let responses = self.responses.iter();
        responses.filter(|of| self.is_policy(&policies[of.policy], expected))
    }

    /// The rules of a row.
    fn rules<'r>(
        &self,
        response: &'r Response,
        expected: &Expected,
    ) -> impl Iterator<Item = &'r RuleResponse> {
        let wanted = self.wanted_rule(expected);
        let all = response.rules.iter();
        all.filter(move |rule| wanted.is_empty() || is_rule(&rule.rule, wanted))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::check;
    use crate::suite::Suite;

    const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: mark}
spec:
  rules:
    - name: workloads
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets:
          - apiVersion: apps/v1
            kind: Deployment
            preconditions: {all: [{key: "{{ target.metadata.name }}", operator: NotEquals, value: left}]}
          - {apiVersion: apps/v1, kind: StatefulSet}
        patchStrategicMerge: {metadata: {labels: {by: "{{ request.object.metadata.name }}"}}}
    - name: deployments
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      mutate:
        targets:
          - apiVersion: apps/v1
            kind: Deployment
            preconditions: {all: [{key: "{{ target.metadata.name }}", operator: NotEquals, value: left}]}
        patchStrategicMerge: {metadata: {labels: {by: "{{ request.object.metadata.name }}"}}}
"#;

    /// The rows of `rule` and a result with these parts.
    fn told(rule: &str, of: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("policy.yaml", POLICY);
        write(
            "map.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}",
        );
        write(
            "targets.yaml",
            "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}}\n---\n\
             {apiVersion: apps/v1, kind: Deployment, metadata: {name: left}}",
        );
        let became = |by: &str| {
            format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, labels: {{by: {by}}}}}}}"
            )
        };
        write("same.yaml", &became("m"));
        write("differs.yaml", &became("n"));
        let test = folder.path().join("kyverno-test.yaml");
        let text = format!(
            "policies: [policy.yaml]\nresources: [map.yaml]\ntargetResources: [targets.yaml]\n\
             results: [{{policy: mark, rule: {rule}, {of}}}]"
        );
        fs::write(&test, text).unwrap();
        let rows = check(&Suite::read(&test).unwrap().remove(0)).unwrap();
        rows.iter()
            .map(|row| format!("{} {}", row.resource, row.reason))
            .collect()
    }

    #[test]
    fn a_target_has_the_result_of_its_own_mutation() {
        let target = |name: &str, result: &str| {
            format!("kind: Deployment, resources: [{name}], result: {result}")
        };
        for (rule, of, rows) in [
            // Of StatefulSets none is given, so that the rule as a whole is an error; the Deployment was changed.
            (
                "workloads",
                target("web", "pass"),
                &["Deployment/default/web Ok"][..],
            ),
            (
                "workloads",
                target("web", "error"),
                &["Deployment/default/web Want error, got pass"],
            ),
            // Whether it would be left alone is not known there.
            (
                "workloads",
                target("left", "skip"),
                &["Deployment/left Not found"],
            ),
            (
                "workloads",
                "kind: ConfigMap, resources: [m], result: error".to_owned(),
                &["ConfigMap/default/m Ok"],
            ),
            (
                "deployments",
                target("web", "pass"),
                &["Deployment/default/web Ok"],
            ),
            (
                "deployments",
                target("left", "skip"),
                &["Deployment/default/left Ok"],
            ),
            (
                "deployments",
                target("left", "pass"),
                &["Deployment/default/left Want pass, got skip"],
            ),
            (
                "deployments",
                target("nope", "skip"),
                &["Deployment/nope Not found"],
            ),
            (
                "deployments",
                "kind: ConfigMap, resources: [m], result: pass".to_owned(),
                &["ConfigMap/default/m Ok"],
            ),
        ] {
            assert_eq!(told(rule, &of), rows, "{rule} {of}");
        }
    }

    #[test]
    fn a_row_that_nothing_answers_says_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "policy.yaml",
            "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: p}, spec: {rules: [{name: r, \
             match: {any: [{resources: {kinds: [Pod]}}]}, validate: {pattern: {metadata: {name: a}}}}]}}",
        );
        write(
            "given.yaml",
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n\
             {apiVersion: v1, kind: Service, metadata: {name: s}}",
        );
        write(
            "generates.yaml",
            "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: g}, spec: {rules: [{name: r, \
             match: {any: [{resources: {kinds: [Pod]}}]}, generate: {apiVersion: v1, kind: ConfigMap, name: c, \
             namespace: default, data: {data: {a: b}}}}]}}",
        );
        for (row, says) in [
            (
                "policy: q, rule: r, kind: Pod, resources: [a]",
                "there is no policy `q`",
            ),
            (
                "policy: p, rule: r, kind: Pod, resources: [none]",
                "there is no such resource",
            ),
            (
                "policy: p, rule: r, kind: Service, resources: [s]",
                "the rule says nothing",
            ),
            (
                "policy: p, rule: other, kind: Pod, resources: [a]",
                "the policy has no rule `other`; it has r",
            ),
            (
                "policy: g, rule: other, kind: Pod, resources: [a]",
                "the policy has no rule `other`: none of its rules is run here",
            ),
            (
                "policy: p, kind: Pod, resources: [a], isValidatingPolicy: true",
                "policy `p` is a ClusterPolicy, and the row is about a ValidatingPolicy (`isValidatingPolicy`)",
            ),
        ] {
            let result = format!("[{{{row}, result: fail}}]");
            let text = format!(
                "policies: [policy.yaml, generates.yaml]\nresources: [given.yaml]\nresults: {result}"
            );
            write("kyverno-test.yaml", &text);
            let suite = Suite::read(&folder.path().join("kyverno-test.yaml"))
                .unwrap()
                .remove(0);
            let rows = check(&suite).unwrap();
            assert_eq!(rows[0].reason, "Not found", "{rows:?}");
            assert!(rows[0].message.starts_with(says), "{rows:?}");
        }
    }

    #[test]
    fn a_row_without_targets_says_what_to_add() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("policy.yaml", POLICY);
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}";
        write("map.yaml", map);
        let text = "policies: [policy.yaml]\nresources: [map.yaml]\n\
                    results: [{policy: mark, rule: deployments, resources: [web], result: pass}]";
        write("kyverno-test.yaml", text);
        let suite = Suite::read(&folder.path().join("kyverno-test.yaml"))
            .unwrap()
            .remove(0);
        let rows = check(&suite).unwrap();
        assert_eq!(rows[0].reason, "Not run");
        assert!(rows[0].message.contains("`targetResources`"), "{rows:?}");
    }

    #[test]
    fn a_patched_target_is_compared() {
        for (file, result, reason) in [
            ("same", "pass", "Ok"),
            ("differs", "pass", "Resource diff"),
            ("differs", "fail", "Ok"),
        ] {
            let of = format!(
                "kind: Deployment, resources: [web], result: {result}, patchedResources: {file}.yaml"
            );
            let expected = format!("Deployment/default/web {reason}");
            assert_eq!(told("deployments", &of), [expected], "{file} {result}");
        }
    }

    #[test]
    fn a_mutating_policy_changes_the_targets_that_are_given() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write(
            "policy.yaml",
            "{apiVersion: policies.kyverno.io/v1, kind: MutatingPolicy, metadata: {name: mark}, spec: {\
             evaluation: {mutateExisting: {enabled: true}}, \
             matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], \
               resources: [configmaps]}]}, \
             targetMatchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], \
               resources: [deployments]}]}, \
             targetMatchConditions: [{name: c, expression: \"object.metadata.name != 'left'\"}], \
             mutations: [{applyConfiguration: {expression: \
               'Object{metadata: Object.metadata{labels: Object.metadata.labels{by: request.name}}}'}}]}}",
        );
        write(
            "map.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: m, namespace: shop}}",
        );
        let deployment = |name: &str, labels: &str| {
            format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, namespace: shop{labels}}}}}\n---\n"
            )
        };
        write(
            "targets.yaml",
            &(deployment("web", "") + &deployment("left", "")),
        );
        write("became.yaml", &deployment("web", ", labels: {by: m}"));
        write("wrong.yaml", &deployment("web", ", labels: {by: other}"));
        let rows = |name: &str, became: &str, targets: &str| {
            let test = folder.path().join("kyverno-test.yaml");
            let text = format!(
                "policies: [policy.yaml]\nresources: [map.yaml]\n{targets}results: [{{policy: mark, kind: Deployment, \
                 isMutatingPolicy: true, resources: [shop/{name}], {became}}}]"
            );
            fs::write(&test, text).unwrap();
            let rows = check(&Suite::read(&test).unwrap().remove(0)).unwrap();
            let rows = rows.iter();
            rows.map(|row| format!("{} {}", row.resource, row.reason))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let given = "targetResources: [targets.yaml]\n";
        let became = |file: &str| format!("result: pass, patchedResources: {file}");
        for (name, became, targets, expected) in [
            ("web", became("became.yaml"), given, "Ok"),
            ("web", became("wrong.yaml"), given, "Resource diff"),
            ("left", "result: skip".to_owned(), given, "Ok"),
            ("web", became("became.yaml"), "", "Not run"),
        ] {
            let told = rows(name, &became, targets);
            assert!(told.contains(expected), "{name} {became} {targets}: {told}");
        }
    }
}
