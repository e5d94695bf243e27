//! Every place of a rule where an expression is evaluated on the context.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_functions::{meter, operator::Operator};
use anteroom_jmespath::Expression;

use crate::ir::{
    Rule,
    call::{ApiCall, PathTemplate},
    conditions::{Condition, Conditions},
    context::{ContextEntry, ContextFact, FactOrigin, Loader},
    mutate_existing::TargetSpec,
    mutation::{MutateEach, Mutation, Patch},
    rule::{Check, ForEach, Validation, Work},
    subquery::ConditionSide,
    template::{Prepared, Template, ValueTemplate},
};

/// A place of a rule.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionSite<'r> {
    /// The field, below the rule.
    pub(super) field: String,
    /// The entries of the context there.
    pub(super) entries: &'r [Arc<ContextEntry>],
    /// The number of entries that are visible at this place; the first ones are.
    pub(super) visible: usize,
    /// The expression is evaluated only for the message of a violation.
    pub(super) in_message: bool,
    /// The condition that has the whole expression as an operand.
    pub(super) side: Option<(Operator, ConditionSide)>,
    /// The use of its value.
    pub(super) flow: Flow<'r>,
}

impl<'r> ExpressionSite<'r> {
    /// The last visible entry of this name, by its place among the entries.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        meter::charge((self.visible / meter::BYTES_PER_STEP) as u64);
        self.entries[..self.visible]
            .iter()
            .rposition(|entry| entry.name == name)
    }

    /// Returns the fact that the entry at this index reads, if any.
    pub(super) fn fact(&self, at: usize) -> Option<&'r ContextFact> {
        match &self.entries[at].loader {
            Loader::Fact(fact) => Some(fact),
            Loader::Given | Loader::Variable { .. } => None,
        }
    }

    /// The facts that an expression refers to, by the places of their entries.
    pub(super) fn facts_of(&self, expression: &Expression) -> BTreeMap<usize, &'r ContextFact> {
        let names = expression.ast().root_fields();
        let entries = names.into_iter().filter_map(|name| self.find(name));
        entries
            .filter_map(|at| Some((at, self.fact(at)?)))
            .collect()
    }
}

/// The use of an expression's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Flow<'r> {
    /// The value is used here.
    Used,
    /// The value becomes the value of this context entry, or decides whether that entry gets one.
    Entry(usize),
    /// The value's elements are the elements of a `foreach`.
    Elements(&'r ForEach),
}

type Visitor<'v, 'r> = dyn FnMut(&ExpressionSite<'r>, &'r Prepared) + 'v;

/// Tells of each expression of a rule and its place.
pub(crate) fn each<'r>(rule: &'r Rule, visit: &mut Visitor<'_, 'r>) {
    // Every field by its name: the compiler asks whether a new one holds expressions.
    let Rule {
        context,
        preconditions,
        work,
        // `validation` visits it, where it is shown.
        message: _,
        name: _,
        action: _,
        overrides: _,
        allow_existing_violations: _,
        matches: _,
        pushdown: _,
        names_roles: _,
        paths_beside_facts: _,
    } = rule;
    let mut walk = RuleVisitor {
        site: ExpressionSite {
            field: String::new(),
            entries: context,
            visible: context.len(),
            in_message: false,
            side: None,
            flow: Flow::Used,
        },
        visit,
    };
    walk.entries("context", 0);
    walk.conditions("preconditions", preconditions);
    match work {
        Work::Mutate(mutation) => walk.mutation("mutate", mutation, context),
        // It has expressions in CEL alone.
        Work::Patch(_) => {}
        Work::MutateExisting(existing) => {
            for (at, target) in existing.targets().iter().enumerate() {
                walk.target(&format!("mutate.targets[{at}]"), target, context);
            }
        }
        Work::Validate(validation) => {
            walk.validation("validate", validation, context, rule);
        }
    }
}

struct RuleVisitor<'v, 'r> {
    site: ExpressionSite<'r>,
    visit: &'v mut Visitor<'v, 'r>,
}

impl<'r> RuleVisitor<'_, 'r> {
    fn at(&mut self, field: &str, walk: impl FnOnce(&mut Self)) {
        field.clone_into(&mut self.site.field);
        walk(self);
    }

    fn visit(&mut self, prepared: &'r Prepared) {
        (self.visit)(&self.site, prepared);
    }

    /// Visits an expression on the context, and its nested expressions.
    fn root(&mut self, prepared: &'r Prepared, flow: Flow<'r>) {
        self.site.flow = flow;
        self.visit(prepared);
        self.site.flow = Flow::Used;
        self.inside(prepared);
    }

    /// Visits the expressions inside an expression that is not about the context.
    fn inside(&mut self, prepared: &'r Prepared) {
        let mut all = Vec::new();
        prepared.visit_all(&mut |prepared| all.push(prepared));
        all.into_iter()
            .skip(1)
            .for_each(|prepared| self.visit(prepared));
    }

    fn template(&mut self, template: &'r Template) {
        let mut all = Vec::new();
        template.visit_all(&mut |prepared| all.push(prepared));
        all.into_iter().for_each(|prepared| self.visit(prepared));
    }

    fn value(&mut self, value: &'r ValueTemplate) {
        let mut all = Vec::new();
        value.visit_all(&mut |prepared| all.push(prepared));
        all.into_iter().for_each(|prepared| self.visit(prepared));
    }

    fn message(&mut self, rule: &'r Rule) {
        self.site.in_message = true;
        if let Some(message) = &rule.message {
            self.at("validate.message", |walk| walk.template(message));
        }
        self.site.in_message = false;
    }

    fn conditions(&mut self, field: &str, conditions: &'r Conditions) {
        for (at, condition) in conditions.any.iter().flatten().enumerate() {
            self.condition(&format!("{field}.any[{at}]"), condition);
        }
        for (at, condition) in conditions.all.iter().enumerate() {
            self.condition(&format!("{field}.all[{at}]"), condition);
        }
    }

    fn condition(&mut self, field: &str, condition: &'r Condition) {
        let Condition {
            key,
            operator,
            value,
            message,
        } = condition;
        let sides = [
            ("key", ConditionSide::Key, key),
            ("value", ConditionSide::Value, value),
        ];
        for (name, side, template) in sides {
            let lone: Vec<_> = template
                .lone_variable()
                .into_iter()
                .flat_map(|variable| variable.forms())
                .collect();
            let mut all = Vec::new();
            template.visit_all(&mut |prepared| all.push(prepared));
            self.at(&format!("{field}.{name}"), |walk| {
                for prepared in all {
                    let is_lone = lone.iter().any(|lone| std::ptr::eq(*lone, prepared));
                    walk.site.side = is_lone.then_some((*operator, side));
                    walk.visit(prepared);
                }
                walk.site.side = None;
            });
        }
        if let Some(message) = message {
            self.site.in_message = true;
            self.at(&format!("{field}.message"), |walk| walk.template(message));
            self.site.in_message = false;
        }
    }

    fn check(&mut self, field: &str, check: &'r Check) {
        match check {
            Check::Deny(conditions) => {
                self.conditions(&format!("{field}.deny.conditions"), conditions);
            }
            // No JMESPath stands in them.
            Check::PodSecurity(_) | Check::Cel(_) => {}
            Check::Pattern(pattern) => {
                self.at(&format!("{field}.pattern"), |walk| walk.value(pattern));
            }
            Check::AnyPattern(patterns) => {
                for (at, pattern) in patterns.iter().enumerate() {
                    let field = format!("{field}.anyPattern[{at}]");
                    self.at(&field, |walk| walk.value(pattern));
                }
            }
        }
    }

    /// With these entries around it.
    fn validation(
        &mut self,
        field: &str,
        validation: &'r Validation,
        entries: &'r [Arc<ContextEntry>],
        rule: &'r Rule,
    ) {
        let all = match validation {
            Validation::Whole(check) => {
                self.check(field, check);
                self.message(rule);
                return;
            }
            Validation::ForEach(all) => all,
        };
        for (at, each) in all.iter().enumerate() {
            let field = format!("{field}.foreach[{at}]");
            let ForEach {
                list,
                context,
                outer,
                preconditions,
                work,
                element_scope: _,
            } = each;
            (self.site.entries, self.site.visible) = (entries, entries.len());
            self.at(&format!("{field}.list"), |walk| {
                walk.root(list, Flow::Elements(each));
            });
            self.site.entries = context;
            self.entries(&format!("{field}.context"), *outer);
            self.site.visible = context.len();
            self.conditions(&format!("{field}.preconditions"), preconditions);
            self.validation(&field, work, context, rule);
        }
    }

    fn target(&mut self, field: &str, target: &'r TargetSpec, outer: &'r [Arc<ContextEntry>]) {
        let TargetSpec {
            group: _,
            version: _,
            kind: _,
            // In `texts`.
            namespace: _,
            name: _,
            uid: _,
            selector,
            context,
            outer: rules,
            preconditions,
            work,
        } = target;
        (self.site.entries, self.site.visible) = (outer, outer.len());
        for (name, text) in target.texts() {
            self.at(&format!("{field}.{name}"), |walk| walk.template(text));
        }
        if let Some(selector) = selector {
            self.at(&format!("{field}.selector"), |walk| walk.value(selector));
        }
        self.site.entries = context;
        self.entries(&format!("{field}.context"), *rules);
        self.conditions(&format!("{field}.preconditions"), preconditions);
        self.mutation("mutate", work, context);
    }

    fn mutation(&mut self, field: &str, mutation: &'r Mutation, entries: &'r [Arc<ContextEntry>]) {
        match mutation {
            Mutation::Once(patch) => self.patch(field, patch),
            Mutation::ForEach(all) => {
                for (at, each) in all.iter().enumerate() {
                    (self.site.entries, self.site.visible) = (entries, entries.len());
                    self.mutate_each(&format!("{field}.foreach[{at}]"), each);
                }
            }
        }
    }

    fn mutate_each(&mut self, field: &str, each: &'r MutateEach) {
        let MutateEach {
            list,
            context,
            outer,
            preconditions,
            is_descending: _,
            work,
        } = each;
        self.at(&format!("{field}.list"), |walk| {
            walk.root(list, Flow::Used);
        });
        self.site.entries = context;
        self.entries(&format!("{field}.context"), *outer);
        self.site.visible = context.len();
        self.conditions(&format!("{field}.preconditions"), preconditions);
        self.mutation(field, work, context);
    }

    fn patch(&mut self, field: &str, patch: &'r Patch) {
        match patch {
            Patch::Merge(patch) => {
                self.at(&format!("{field}.patchStrategicMerge"), |walk| {
                    walk.value(patch);
                });
            }
            Patch::Computed(operations) => {
                let field = format!("{field}.patchesJson6902");
                self.at(&field, |walk| walk.template(operations));
            }
            Patch::Json(operations) => {
                for (at, operation) in operations.iter().enumerate() {
                    let field = format!("{field}.patchesJson6902[{at}]");
                    for (name, path) in operation.paths() {
                        self.at(&format!("{field}.{name}"), |walk| walk.template(path));
                    }
                    if let Some(value) = &operation.value {
                        self.at(&format!("{field}.value"), |walk| walk.value(value));
                    }
                }
            }
        }
    }

    /// Visits the entries from `first` on. Each entry sees the entries before.
    fn entries(&mut self, field: &str, first: usize) {
        let entries = self.site.entries;
        // A `foreach` gives a few of its own, which the manifest does not have.
        let written = entries.iter().enumerate().skip(first);
        let written = written.filter(|(_, entry)| !matches!(entry.loader, Loader::Given));
        for (number, (at, entry)) in written.enumerate() {
            self.site.visible = at;
            self.at(&format!("{field}[{number}]"), |walk| {
                walk.loader(at, &entry.loader);
            });
        }
        self.site.visible = entries.len();
    }

    fn loader(&mut self, at: usize, loader: &'r Loader) {
        match loader {
            Loader::Given => {}
            Loader::Fact(fact) => self.fact(fact),
            Loader::Variable {
                value,
                query,
                default,
            } => {
                value
                    .iter()
                    .chain(default)
                    .for_each(|value| self.value(value));
                match (value, query) {
                    (None, Some(query)) => self.root(query, Flow::Entry(at)),
                    (Some(_), Some(query)) => self.inside(query),
                    (_, None) => {}
                }
            }
        }
    }

    fn fact(&mut self, fact: &'r ContextFact) {
        let ContextFact {
            source,
            query,
            default,
            age_max_ms: _,
            id: _,
        } = fact;
        query.iter().for_each(|query| self.inside(query));
        default.iter().for_each(|default| self.value(default));
        match source {
            FactOrigin::Entry { name, .. } => self.template(name),
            FactOrigin::Image(image) => self.template(&image.reference),
            FactOrigin::Collection(_) => {}
            FactOrigin::Api(ApiCall { path, data, .. }) => self.call(path, data.as_ref()),
            FactOrigin::Service(call) => self.call(call.url.path(), call.data.as_ref()),
            FactOrigin::ConfigMap(call) => {
                self.template(&call.namespace);
                self.template(&call.name);
            }
        }
    }

    fn call(&mut self, path: &'r PathTemplate, data: Option<&'r ValueTemplate>) {
        path.templates()
            .for_each(|template| self.template(template));
        data.into_iter().for_each(|data| self.value(data));
    }
}
