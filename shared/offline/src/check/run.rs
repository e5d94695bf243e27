//! The rows of a suite, out of what the rules came to.

use super::{
    Row, RowResult,
    load::Loaded,
    patched::{PatchComparison, compare},
    row_results::ObjectResult,
};
use crate::{
    loaded_policy::LoadedPolicy,
    resource::Resource,
    scenario::{Response, RuleResponse, Status},
    suite::{Expected, ResourceSpec, Suite},
    values::is_rule,
};

/// The context of rows.
pub(super) struct Run<'a> {
    pub(super) suite: &'a Suite,
    pub(super) loaded: &'a Loaded,
    pub(super) responses: &'a [Response],
    /// The reason why nothing was run.
    pub(super) problem: Option<String>,
}

/// The form in which a row names its resources.
#[derive(Clone, Copy)]
pub(super) enum Named<'a> {
    All,
    Name(&'a str),
    Spec(&'a ResourceSpec),
}

impl Named<'_> {
    fn is(self, resource: &Resource) -> bool {
        match self {
            Self::All => true,
            Self::Name(name) => resource.is_selected_by(name),
            Self::Spec(spec) => spec.is(resource),
        }
    }

    fn title(self) -> String {
        match self {
            Self::All => String::new(),
            Self::Name(name) => name.to_owned(),
            Self::Spec(spec) => spec.title(),
        }
    }
}

/// The most rules that are named in place of one that is not there.
const RULES_NAMED_MAX: usize = 5;

impl Run<'_> {
    pub(super) fn rows(&self, expected: &Expected) -> Vec<Row> {
        let names = match (&*expected.resources, &expected.resource) {
            ([], Some(name)) => std::slice::from_ref(name),
            (names, _) => names,
        };
        let names = names.iter().map(|name| Named::Name(name));
        let specs = expected.resource_specs.iter().map(Named::Spec);
        let mut named: Vec<_> = names.chain(specs).collect();
        if named.is_empty() {
            named.push(Named::All);
        }
        let rows = named.into_iter().map(|named| self.rows_of(expected, named));
        rows.flatten().collect()
    }

    /// The rows of the resources that are named, or of all of the kind.
    fn rows_of(&self, expected: &Expected, named: Named<'_>) -> Vec<Row> {
        let title = named.title();
        let within = expected.namespace.as_deref().unwrap_or_default();
        let parts = [&*expected.kind, within, &*title].into_iter();
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        let wanted = self.wanted_rule(expected);
        let row = |result, reason: &str, message: String| Row {
            policy: expected.policy.clone(),
            rule: wanted.to_owned(),
            resource: parts.join("/"),
            result,
            reason: reason.to_owned(),
            message,
            remark: String::new(),
        };
        if let Some(reason) = self.not_run(expected) {
            return vec![row(RowResult::NotRun, "Not run", reason)];
        }
        if let Some((reason, message)) = self.not_answered(expected) {
            return vec![row(RowResult::Fail, reason, message)];
        }
        let mut remarks = self.loaded.remarks.clone();
        if !expected.kind.is_empty() && !self.has_kind(expected, named) {
            let kind = &expected.kind;
            remarks.push(format!(
                "there is no {kind} of this name: its kind is passed over"
            ));
        }
        let mut rows = Vec::new();
        for told in self.results(expected, named) {
            let mut remarks = remarks.clone();
            let (result, reason) = self.verdict(expected, &told, &mut remarks);
            rows.push(Row {
                rule: match wanted.is_empty() {
                    true => told.rule.rule.clone(),
                    false => wanted.to_owned(),
                },
                remark: remarks.join("; "),
                ..row(result, &reason, told.message.to_owned())
            });
            if let Some(last) = rows.last_mut() {
                last.resource = told.title;
            }
        }
        if rows.is_empty() {
            let is_meant = |response: &&Response| self.is_meant(response, expected, named);
            let meant = self.responses.iter().filter(is_meant);
            let unanswered = meant.filter_map(|of| self.unanswered(expected, of));
            rows.extend(unanswered.map(|(resource, reason, message)| Row {
                resource,
                ..row(RowResult::Pass, reason, message)
            }));
        }
        if rows.is_empty() {
            let message = self.not_found(expected, named, wanted);
            rows.push(row(RowResult::Fail, "Not found", message));
        }
        rows
    }

    /// Says which part of a row is missing: the policy, the resource, or the rule.
    fn not_found(&self, expected: &Expected, named: Named<'_>, wanted: &str) -> String {
        let scenario = &self.loaded.scenario;
        let mut policies = scenario.policies.iter();
        let Some(policy) = policies.find(|policy| self.is_policy(policy, expected)) else {
            return self.no_policy(expected);
        };
        let mut given = scenario.resources.iter().chain(&scenario.world.targets);
        if !given.any(|resource| self.means(resource, expected, named)) {
            return "there is no such resource in the files of `resources`".to_owned();
        }
        let rules = policy.outcome.iter().flat_map(|compiled| compiled.rules());
        let names: Vec<_> = rules.map(|rule| rule.name().to_owned()).collect();
        if wanted.is_empty() || names.iter().any(|name| is_rule(name, wanted)) {
            return "the rule says nothing of such a resource: compare its `match` and `exclude`, and the operation"
                .to_owned();
        }
        if names.is_empty() {
            return format!("the policy has no rule `{wanted}`: none of its rules is run here");
        }
        let first: Vec<_> = names.into_iter().take(RULES_NAMED_MAX).collect();
        format!(
            "the policy has no rule `{wanted}`; it has {}",
            first.join(", ")
        )
    }

    /// Says that the policy of a row is missing, or that the one of its name is of another kind.
    fn no_policy(&self, expected: &Expected) -> String {
        let name = &expected.policy;
        let mut policies = self.loaded.scenario.policies.iter();
        let of_name = policies.find(|policy| policy.is_named(name));
        match of_name.zip(expected.said_kind()) {
            Some((policy, (field, kind))) => format!(
                "policy `{name}` is a {}, and the row is about a {kind} (`{field}`)",
                policy.kind
            ),
            None => format!("there is no policy `{name}` in the files of `policies`"),
        }
    }

    /// Passes a row although its rule has no result for the resource. Either the row expects `skip` and the
    /// rule exists. Or the policy has no rule of that name, as where a suite kept an old one, and none of its
    /// rules contradicts the row.
    fn unanswered(
        &self,
        expected: &Expected,
        response: &Response,
    ) -> Option<(String, &'static str, String)> {
        let policy = self.loaded.scenario.policies.get(response.policy)?;
        let policy = policy.outcome.as_ref().ok()?;
        let mut rules = policy.rules().iter();
        let resource = self.title(response);
        let wanted = self.wanted_rule(expected);
        if wanted.is_empty() || rules.any(|rule| is_rule(rule.name(), wanted)) {
            let message = "the rule does not speak of the resource".to_owned();
            return (expected.result == Status::Skip.as_str())
                .then_some((resource, "Excluded", message));
        }
        let other = response.rules.first()?;
        let is_mild = |one: &RuleResponse| matches!(one.status, Status::Pass | Status::Skip);
        let mut all = response.rules.iter();
        let is_expected = all.any(|one| one.status.as_str() == expected.result)
            || ["pass", "skip"].contains(&&*expected.result) && response.rules.iter().all(is_mild);
        let (none, other) = (wanted, &other.rule);
        let message = format!("the policy has no rule `{none}`; it has `{other}`");
        is_expected.then_some((resource, "Other rule", message))
    }

    fn title(&self, response: &Response) -> String {
        self.loaded.scenario.resources[response.resource].title()
    }

    /// Returns whether a resource that is named, or a target, is of the row's kind.
    fn has_kind(&self, expected: &Expected, named: Named<'_>) -> bool {
        let scenario = &self.loaded.scenario;
        let mut all = scenario.resources.iter().chain(&scenario.world.targets);
        all.any(|own| own.kind == expected.kind && named.is(own))
    }

    pub(super) fn is_meant(
        &self,
        response: &Response,
        expected: &Expected,
        named: Named<'_>,
    ) -> bool {
        let scenario = &self.loaded.scenario;
        self.is_policy(&scenario.policies[response.policy], expected)
            && self.means(&scenario.resources[response.resource], expected, named)
    }

    pub(super) fn means(&self, resource: &Resource, expected: &Expected, named: Named<'_>) -> bool {
        let within = expected.namespace.as_ref();
        (resource.kind == expected.kind || self.is_any_kind(expected, named))
            && within.is_none_or(|namespace| resource.namespace == *namespace)
            && named.is(resource)
    }

    /// Names mean resources of any kind, as for Kyverno; where there is none, the kind is what selects.
    fn is_any_kind(&self, expected: &Expected, named: Named<'_>) -> bool {
        !matches!(named, Named::All) || expected.kind.is_empty() || !self.has_kind(expected, named)
    }

    /// Returns whether a row is about a policy: of the name, or where none is, of the name without its namespace.
    pub(super) fn is_policy(&self, policy: &LoadedPolicy, expected: &Expected) -> bool {
        let name = &expected.policy;
        let is_of_kind = |policy: &LoadedPolicy| expected.is_about(policy.kind);
        let all = || {
            self.loaded
                .scenario
                .policies
                .iter()
                .filter(|own| is_of_kind(own))
        };
        let is_named = match all().any(|policy| policy.is_named(name)) {
            true => policy.is_named(name),
            false => policy.is_nearly_named(name),
        };
        // Of a pair in both languages a row that says no kind is about the one with rules.
        let is_other = |own: &LoadedPolicy| !own.kind.is_cel() && own.is_named(name);
        let is_of_pair = policy.kind.is_cel() && !expected.says_kind() && all().any(is_other);
        is_named && is_of_kind(policy) && !is_of_pair
    }

    /// The name of the row's rule; empty: all of the policy. Policies in CEL have no rules with names.
    pub(super) fn wanted_rule<'e>(&self, expected: &'e Expected) -> &'e str {
        let mut policies = self.loaded.scenario.policies.iter();
        match policies.find(|policy| self.is_policy(policy, expected)) {
            Some(policy) if policy.kind.is_cel() => "",
            _ => &expected.rule,
        }
    }

    /// Returns the reason why nothing of it is run.
    fn not_run(&self, expected: &Expected) -> Option<String> {
        if let Some(kind) = expected.other_language() {
            return Some(format!("a {kind} is not run"));
        }
        let scenario = &self.loaded.scenario;
        let mut policies = self.loaded.scenario.policies.iter();
        let policy = policies.find(|policy| self.is_policy(policy, expected));
        let mut others = self.loaded.others.iter();
        if policy.is_none()
            && let Some((kind, _)) = others.find(|(_, name)| *name == expected.policy)
        {
            return Some(format!("a {kind} is not run"));
        }
        if let Some(problems) = policy.and_then(LoadedPolicy::is_of_another_payload) {
            return Some(problems);
        }
        // Of a policy of which no rule is run, a row may be about any of them.
        let is_any = expected.rule.is_empty() && policy.is_some_and(|of| of.outcome.is_err());
        let mut not_run = policy.into_iter().flat_map(|policy| &policy.not_run);
        if let Some(rule) = not_run.find(|not_run| is_any || is_rule(&expected.rule, &not_run.rule))
        {
            let kind = rule.kind;
            return Some(match kind {
                "mutate.targets" if scenario.world.targets.is_empty() => format!(
                    "a rule with `{kind}` is not run without targets: name files of what it changes in \
                     `targetResources`"
                ),
                _ => format!("a rule with `{kind}` is not run"),
            });
        }
        let is_generated =
            expected.generated_resource.is_some() || !expected.generated_resources.is_empty();
        is_generated.then(|| "what is generated is not made".to_owned())
    }

    /// Returns the reason why nothing can be said of it.
    fn not_answered(&self, expected: &Expected) -> Option<(&'static str, String)> {
        if let Some(problem) = &self.problem {
            return Some(("Not a result", problem.clone()));
        }
        let mut policies = self.loaded.scenario.policies.iter();
        let policy = policies.find(|policy| self.is_policy(policy, expected))?;
        if let Some(problems) = policy.problems() {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            return Some(("Policy error", problems.join("; ")));
        }
        let mut broken = self.loaded.broken.iter();
        let (_, message) = broken.find(|(policies, _)| {
            let is_it = |name: &String| policy.is_named(name) || name.contains(['*', '?']);
            policies.is_empty() || policies.iter().any(is_it)
        })?;
        Some(("Exception error", message.clone()))
    }

    fn verdict(
        &self,
        expected: &Expected,
        told: &ObjectResult<'_>,
        remarks: &mut Vec<String>,
    ) -> (RowResult, String) {
        let ObjectResult { title, status, .. } = told;
        for name in &told.rule.left_out {
            remarks.push(format!(
                "nothing was given for `{name}`, which is taken as missing"
            ));
        }
        if let Some(path) = &expected.patched_resources {
            match compare(&self.suite.at(path), &told.became) {
                Ok(PatchComparison::Same) => {}
                // An expected `fail` means that the object differs from the expected object.
                Ok(PatchComparison::Differs) if expected.result == Status::Fail.as_str() => {
                    return (RowResult::Pass, "Ok".to_owned());
                }
                Ok(PatchComparison::Differs) => {
                    return (RowResult::Fail, "Resource diff".to_owned());
                }
                Ok(PatchComparison::Missing) if expected.fail_on_missing_resources => {
                    return (RowResult::Fail, "Resource missing".to_owned());
                }
                Ok(PatchComparison::Missing) => {
                    remarks.push(format!(
                        "{title} does not stand in {}: what it became is not compared",
                        path.display()
                    ));
                    // As above: it did not become what the file says.
                    if expected.result == Status::Fail.as_str() {
                        return (RowResult::Pass, "Ok".to_owned());
                    }
                }
                Err(reason) => return (RowResult::Fail, reason),
            }
        }
        if status.as_str() == expected.result {
            return (RowResult::Pass, "Ok".to_owned());
        }
        let reason = format!("Want {}, got {status}", expected.result);
        (RowResult::Fail, reason)
    }
}
