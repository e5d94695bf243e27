//! The part of a policy's status about its rules: the count of each kind, the rules derived for Pod
//! controllers, and the rules that do not run. Pure.
//!
//! `rulecount` and `autogen` are Kyverno's fields, with its meaning: derived rules are counted too. `notRun` is ours:
//! `[{rule, kind, message}]`. So is `notPermitted`, for rules that change existing objects without the right to:
//! `[{rule, message}]`, while there are any. Policies of policies.kyverno.io have `autogen` alone, with Kyverno's
//! `configs`.

use std::sync::Arc;

use anteroom_policy::{NotRun, derived_rules};
use serde_json::{Value, json};

use crate::gateway::rights::{LackingRights, Need, WRITES_FORBIDDEN};

/// Kinds of rules: the field that makes a rule one of this kind, and the name of the count in the status.
const KINDS: [(&str, &str); 4] = [
    ("validate", "validate"),
    ("mutate", "mutate"),
    ("generate", "generate"),
    ("verifyImages", "verifyimages"),
];

/// The field of the rules that lack a right.
const NOT_PERMITTED: &str = "notPermitted";

/// The longest text of derived rules that a status repeats whole. Beyond it, it gives their names alone:
/// a policy of a megabyte must not become one of three.
const DERIVED_BYTES_MAX: usize = 64 << 10;

/// The fields of a policy's status about its rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RulesStatus {
    /// All of these fields but `not_permitted`, as JSON with sorted keys: as a value they would take ten times as
    /// many bytes.
    fields: Arc<str>,
    /// Rules that may change nothing, as [`not_permitted`] returns them.
    pub(crate) not_permitted: Value,
    /// The policy is of policies.kyverno.io: its status has no place for these fields.
    is_cel: bool,
}

impl RulesStatus {
    /// Returns the status of a policy whose rules lack no right.
    pub(crate) fn of_policy(manifest: &Value, not_run: &[NotRun]) -> Self {
        Self {
            fields: status_fields(manifest, not_run).to_string().into(),
            not_permitted: Value::Null,
            is_cel: false,
        }
    }

    /// Returns the status of a policy of policies.kyverno.io with these derived policies.
    pub(crate) fn of_cel_policy(configs: Option<Value>) -> Self {
        let autogen = configs.map(|configs| json!({"configs": configs}));
        Self::of_cel(&autogen.unwrap_or_default())
    }

    fn of_cel(autogen: &Value) -> Self {
        Self {
            fields: json!({AUTOGEN: autogen}).to_string().into(),
            not_permitted: Value::Null,
            is_cel: true,
        }
    }

    /// Reads the same fields from a status.
    pub(crate) fn read(status: &Value) -> Self {
        let fields = FIELDS.map(|field| (field.to_owned(), status[field].clone()));
        Self {
            fields: Value::Object(fields.into_iter().collect())
                .to_string()
                .into(),
            not_permitted: status[NOT_PERMITTED].clone(),
            is_cel: false,
        }
    }

    /// Reads the fields from the status of a policy of policies.kyverno.io.
    pub(crate) fn read_cel(status: &Value) -> Self {
        Self::of_cel(&status[AUTOGEN])
    }

    /// Returns the status with the rules that lack a right.
    pub(crate) fn with_not_permitted(&self, not_permitted: Value) -> Self {
        Self {
            fields: Arc::clone(&self.fields),
            not_permitted: match self.is_cel {
                true => Value::Null,
                false => not_permitted,
            },
            is_cel: self.is_cel,
        }
    }

    /// Sets the fields in a merge patch of the status. All fields are set, so that the patch removes older values.
    pub(crate) fn set_in(&self, status: &mut Value) {
        if let Ok(Value::Object(fields)) = serde_json::from_str(&self.fields) {
            for (field, value) in fields {
                status[field] = value;
            }
        }
        if !self.is_cel {
            status[NOT_PERMITTED] = self.not_permitted.clone();
        }
    }
}

/// The field of derived rules and policies.
const AUTOGEN: &str = "autogen";

/// The fields of [`status_fields`].
const FIELDS: [&str; 3] = ["rulecount", AUTOGEN, "notRun"];

fn status_fields(manifest: &Value, not_run: &[NotRun]) -> Value {
    let derived = derived_rules(manifest);
    let own = manifest["spec"]["rules"].as_array();
    let all = || own.into_iter().flatten().chain(&derived);
    let mut counts = json!({});
    for (field, counted_as) in KINDS {
        counts[counted_as] = all().filter(|rule| !rule[field].is_null()).count().into();
    }
    let not_run = not_run.iter().map(|NotRun { rule, kind, path }| {
        let message =
            format!("{path} is not supported: the rule is not run; the policy's other rules are");
        json!({"rule": rule, "kind": kind, "message": message})
    });
    json!({
        "rulecount": counts,
        "autogen": {"rules": within_bounds(derived)},
        "notRun": not_run.collect::<Vec<_>>(),
    })
}

fn within_bounds(derived: Vec<Value>) -> Value {
    let derived = Value::Array(derived);
    if derived.to_string().len() <= DERIVED_BYTES_MAX {
        return derived;
    }
    let rules = derived.as_array().into_iter().flatten();
    rules.map(|rule| json!({"name": rule["name"]})).collect()
}

/// Returns the rules that may change nothing because the watcher lacks a right: `[{rule, message}]`; null: there are
/// none. `None`: the rights for some rule are not known yet.
pub(crate) fn not_permitted(changes: &[(String, Need)], found: &LackingRights) -> Option<Value> {
    let mut all = Vec::new();
    for (rule, need) in changes {
        if let Some(message) = found.get(need)? {
            all.push(json!({"rule": rule, "message": message}));
        }
    }
    Some(match all.is_empty() {
        true => Value::Null,
        false => all.into(),
    })
}

/// Returns the rules that change existing objects, for a policy without that permission: `[{rule, message}]`.
pub(crate) fn forbidden(changes: &[(String, Need)]) -> Value {
    let mut rules: Vec<_> = changes.iter().map(|(rule, _)| rule).collect();
    rules.dedup();
    let rules = rules.into_iter();
    rules
        .map(|rule| json!({"rule": rule, "message": WRITES_FORBIDDEN}))
        .collect()
}

/// The end of the message of a policy that is ready: which of its rules are not run, or change nothing.
pub(crate) fn remark(not_run: &[NotRun], not_permitted: &Value) -> String {
    let lacking = not_permitted.as_array().into_iter().flatten();
    let lacking: Vec<_> = lacking
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default();
            // Of a policy of policies.kyverno.io there is one.
            let rule = match text("rule") {
                "" => "the policy".to_owned(),
                rule => format!("rule `{rule}`"),
            };
            format!("; {rule} may change nothing: {}", text("message"))
        })
        .collect();
    let each: Vec<_> = not_run
        .iter()
        .map(|NotRun { rule, kind, .. }| format!("`{rule}` ({kind})"))
        .collect();
    let not_run = match each.is_empty() {
        true => String::new(),
        false => format!("; not run: {}", each.join(", ")),
    };
    not_run + &lacking.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(annotations: &Value) -> Value {
        let pods = json!({"any": [{"resources": {"kinds": ["Pod"]}}]});
        let services = json!({"any": [{"resources": {"kinds": ["Service"]}}]});
        json!({
            "metadata": {"name": "p", "annotations": annotations},
            "spec": {"rules": [
                {"name": "a", "match": pods, "validate": {"pattern": {"spec": {"x": "?*"}}}},
                {"name": "b", "match": services, "mutate": {"patchStrategicMerge": {}}},
                {"name": "c", "match": services, "verifyImages": []},
            ]},
        })
    }

    #[test]
    fn derived_rules_are_counted_and_shown() {
        let not_run = [NotRun {
            rule: "c".into(),
            kind: "verifyImages",
            path: "spec.rules[2].verifyImages".into(),
        }];
        let told = status_fields(&manifest(&json!({})), &not_run);
        let counts = json!({"validate": 3, "mutate": 1, "generate": 0, "verifyimages": 1});
        assert_eq!(told["rulecount"], counts);
        let rules = told["autogen"]["rules"].as_array().unwrap();
        let names: Vec<_> = rules
            .iter()
            .map(|rule| rule["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["autogen-a", "autogen-cronjob-a"]);
        assert_eq!(told["notRun"][0]["rule"], "c");
        let message = told["notRun"][0]["message"].as_str().unwrap();
        assert!(message.starts_with("spec.rules[2].verifyImages is not supported"));
        assert_eq!(
            remark(&not_run, &Value::Null),
            "; not run: `c` (verifyImages)"
        );
    }

    #[test]
    fn a_status_that_was_written_reads_as_what_was_to_be_written() {
        let mut desired = RulesStatus::of_policy(&manifest(&json!({})), &[]);
        for not_permitted in [Value::Null, json!([{"rule": "a", "message": "no"}])] {
            desired.not_permitted = not_permitted;
            let mut status = json!({"conditions": []});
            desired.set_in(&mut status);
            assert_eq!(status["rulecount"]["validate"], 3);
            assert_eq!(RulesStatus::read(&status), desired);
            assert_ne!(RulesStatus::read(&json!({})), desired);
        }
    }

    #[test]
    fn derived_policies_of_a_policy_in_cel_stand_among_its_configs() {
        let none = RulesStatus::of_cel_policy(None);
        assert_eq!(RulesStatus::read_cel(&json!({})), none);
        let configs = json!({"defaults": {"targets": []}});
        let some = RulesStatus::of_cel_policy(Some(configs.clone()));
        let lacking = some.with_not_permitted(json!([{"rule": "", "message": "no"}]));
        let mut status = json!({});
        lacking.set_in(&mut status);
        assert_eq!(status, json!({"autogen": {"configs": configs}}));
        assert_eq!(RulesStatus::read_cel(&status), some);
        none.set_in(&mut status);
        assert_eq!(
            status,
            json!({"autogen": null}),
            "in a merge patch, null removes it"
        );
    }

    #[test]
    fn no_rules_are_derived_where_autogen_is_off() {
        let none = json!({"pod-policies.kyverno.io/autogen-controllers": "none"});
        let told = status_fields(&manifest(&none), &[]);
        assert_eq!(told["rulecount"]["validate"], 1);
        assert_eq!(told["autogen"], json!({"rules": []}));
        assert_eq!(told["notRun"], json!([]));
        assert_eq!(remark(&[], &Value::Null), "");
    }

    #[test]
    fn very_long_derived_rules_show_only_their_names() {
        let mut manifest = manifest(&json!({}));
        let long = "x".repeat(DERIVED_BYTES_MAX);
        manifest["spec"]["rules"][0]["validate"]["message"] = long.into();
        let told = status_fields(&manifest, &[]);
        let names = json!([{"name": "autogen-a"}, {"name": "autogen-cronjob-a"}]);
        assert_eq!(told["autogen"]["rules"], names);
    }

    #[test]
    fn lacking_rights_are_shown_by_rule_and_only_withdrawn_when_known() {
        let need = |name: &str| {
            Need::from(anteroom_model::ExistingObjects {
                name: name.to_owned(),
                ..Default::default()
            })
        };
        let changes = [("r".to_owned(), need("a")), ("s".to_owned(), need("b"))];
        let mut found = LackingRights::from([(need("a"), None)]);
        assert_eq!(not_permitted(&changes, &found), None);
        found.insert(need("b"), Some("it may not".to_owned()));
        let lacks = not_permitted(&changes, &found).unwrap();
        assert_eq!(lacks, json!([{"rule": "s", "message": "it may not"}]));
        assert_eq!(
            remark(&[], &lacks),
            "; rule `s` may change nothing: it may not"
        );
        found.insert(need("b"), None);
        assert_eq!(not_permitted(&changes, &found), Some(Value::Null));
        assert_eq!(not_permitted(&[], &LackingRights::new()), Some(Value::Null));
        let told = remark(&[], &forbidden(&changes));
        assert!(told.contains("; rule `s` may change nothing: "), "{told}");
        assert!(told.contains("`--allow-writes`"), "{told}");
    }
}
