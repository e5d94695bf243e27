//! The numbers of a manifest by which it is limited, before anything of it is compiled.

use serde_json::Value;

use crate::ir::problem::Problems;

/// Kinds that the rules of one policy name, each counted as often as a rule names it. In `resourceRules` each group, version
/// and resource is one with each other. Requests are compared with all of them.
pub const KINDS_MAX: usize = 2_048;

/// The text of all kinds of one policy: the API server may have to be told of it.
pub const KINDS_BYTES_MAX: usize = 64 * 1024;

/// The numbers of rules and kinds in a manifest, as far as it can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManifestCounts {
    /// Rules; a policy of policies.kyverno.io is one rule.
    pub rules: usize,
    /// Kinds that rules include or exclude, each counted as often as a rule names it.
    pub kinds: usize,
    /// The length of the text of these kinds.
    pub kinds_bytes: usize,
}

impl ManifestCounts {
    /// Counts the rules and kinds of a manifest of any kind of policy.
    pub fn of(manifest: &Value) -> Self {
        let spec = &manifest["spec"];
        let mut counts = Self::default();
        match spec["rules"].as_array() {
            Some(rules) => {
                counts.rules = rules.len();
                rules.iter().for_each(|rule| counts.add_rule(rule));
            }
            None => counts.rules = 1,
        }
        for constraints in ["matchConstraints", "targetMatchConstraints"] {
            for list in ["resourceRules", "excludeResourceRules"] {
                let rules = elements(&spec[constraints][list]);
                rules.for_each(|rule| counts.add_resource_rule(rule));
            }
        }
        counts
    }

    /// Notes a problem if the kinds are over a limit.
    pub(super) fn check(&self, problems: &mut Problems) {
        let Self {
            rules: _,
            kinds,
            kinds_bytes,
        } = self;
        if *kinds > KINDS_MAX {
            let message = format!(
                "its rules name {kinds} kinds, and {KINDS_MAX} are the limit: use wildcards, or divide it"
            );
            problems.invalid("spec", message);
        }
        if *kinds_bytes > KINDS_BYTES_MAX {
            let message = format!(
                "the kinds that its rules name have {kinds_bytes} bytes, and {KINDS_BYTES_MAX} are the limit: \
                 use wildcards, or divide it"
            );
            problems.invalid("spec", message);
        }
    }

    /// Adds the kinds of a rule of kyverno.io.
    fn add_rule(&mut self, rule: &Value) {
        for block in [&rule["match"], &rule["exclude"]] {
            let listed = ["any", "all"].into_iter();
            let filters = listed.flat_map(|list| elements(&block[list]));
            for filter in filters.chain([block]) {
                for kind in elements(&filter["resources"]["kinds"]) {
                    self.kinds += 1;
                    self.kinds_bytes += kind.as_str().map_or(0, str::len);
                }
            }
        }
    }

    /// Adds each group, version and resource of a rule, one with each other.
    fn add_resource_rule(&mut self, rule: &Value) {
        // One that is not there is a wildcard.
        let part = |field: &str| {
            let texts = || elements(&rule[field]).filter_map(Value::as_str);
            let bytes: usize = texts().map(str::len).sum();
            (texts().count().max(1), bytes.max(1))
        };
        let (groups, versions) = (part("apiGroups"), part("apiVersions"));
        let resources = part("resources");
        let times =
            |one: usize, with: usize, and: usize| one.saturating_mul(with).saturating_mul(and);
        let kinds = times(groups.0, versions.0, resources.0);
        self.kinds = self.kinds.saturating_add(kinds);
        for (part, others) in [
            (groups, (versions, resources)),
            (versions, (groups, resources)),
            (resources, (groups, versions)),
        ] {
            let bytes = times(part.1, others.0.0, others.1.0);
            self.kinds_bytes = self.kinds_bytes.saturating_add(bytes);
        }
    }
}

/// The elements of a list; none of a value that is no list.
fn elements(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn counts(spec: &Value) -> (usize, usize, usize) {
        let counts = ManifestCounts::of(&json!({ "spec": spec }));
        (counts.rules, counts.kinds, counts.kinds_bytes)
    }

    #[test]
    fn each_rule_counts_the_kinds_that_it_includes_and_excludes() {
        let kinds = |kinds: &[&str]| json!({ "resources": { "kinds": kinds } });
        let spec = json!({ "rules": [
            { "match": { "any": [kinds(&["Pod", "Service"]), kinds(&["Pod"])] }, "exclude": kinds(&["v1/Pod"]) },
            { "match": { "all": [kinds(&["Pod"])] } },
            { "match": 5 },
        ] });
        assert_eq!(counts(&spec), (3, 5, 3 + 7 + 3 + 6 + 3));
    }

    #[test]
    fn resource_rules_count_each_group_version_and_resource_with_each_other() {
        let rule = json!({
            "apiGroups": ["a", "bb"], "apiVersions": ["v1", "v2", "v3"], "resources": ["r"],
        });
        let six = 6 * ("a".len() + "v1".len() + "r".len()) + 3;
        let constraints = |rules: &[&Value]| json!({ "resourceRules": rules });
        let spec = json!({ "matchConstraints": constraints(&[&rule]) });
        assert_eq!(counts(&spec), (1, 6, six));
        let twice = json!({
            "matchConstraints": { "excludeResourceRules": [rule] },
            "targetMatchConstraints": constraints(&[&rule]),
        });
        assert_eq!(counts(&twice), (1, 12, 2 * six));
        let of_all_groups =
            json!({ "matchConstraints": constraints(&[&json!({ "resources": ["r"] })]) });
        assert_eq!(counts(&of_all_groups), (1, 1, 3));
    }

    #[test]
    fn a_manifest_that_cannot_be_read_counts_as_one_rule_without_kinds() {
        for spec in [json!(null), json!({ "rules": 5 }), json!("x")] {
            assert_eq!(counts(&spec), (1, 0, 0), "{spec}");
        }
    }
}
