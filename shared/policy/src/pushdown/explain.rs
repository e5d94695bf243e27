//! The reads of a rule, explained to people.

use anteroom_cel::{FactRead, ListUse, Program, Subquery};
use anteroom_model::EntryKind;

use super::{fact_uses::uses_in, multi_fact::FoundUse};
use crate::ir::{
    CollectionReference, Reference, Rule,
    cel::{Cel, CelDialect, NAMESPACE_OBJECT, PARAMS, PARAMS_QUERY},
    context::{ContextFact, FactOrigin, Loader},
    matching::{BINDINGS_OF_USER, LABELS, NAMESPACE_SELECTOR, ROLES},
    rule::Work,
};

/// The field of a policy's variables.
const VARIABLES: &str = "spec.variables";

/// A use of a fact in a rule, and how it is answered.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedRead {
    /// The context entry.
    pub variable: String,
    /// The source of the fact.
    pub source: ReadSource,
    /// The field that uses it, below the rule, as in `validate.deny.conditions.all[0].value`.
    pub field: String,
    /// The expression as the rule has it there.
    pub written: String,
    /// The part of the fact that is asked for.
    pub usage: Usage,
    /// The query: JMESPath over the source's data; empty: the data whole. An expression that is composed for each
    /// request is shown as the rule has it.
    pub expression: String,
    /// The names of the query's parameters, without the dollar sign.
    pub parameters: Vec<String>,
    /// The fact is read only for the message of a violation.
    pub in_message: bool,
    /// The reason why the fact is fetched whole, if it is.
    pub why_whole: Option<String>,
    /// The query is in CEL: the uses that it makes of lists of objects. None: no object is looked at.
    pub list_uses: Option<Vec<ListUse>>,
}

/// The part of a fact that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// All that the entry's own expression gives: it is evaluated further in the rule.
    Whole,
    /// The fields that expressions of the rule read.
    Cut,
    /// The value of the expression that uses the fact.
    Subquery,
    /// The verdict of a condition with this operator.
    Probe(&'static str),
}

/// The source of a fact, before any request. Variables stand as they are written.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadSource {
    /// `cachedContextEntry` or `globalReference`.
    Entry {
        /// The kind of resource that declares it.
        kind: EntryKind,
        /// The entry's name; for a `globalReference`, a projection may follow after a dot.
        name: String,
    },
    /// `resourceCache`, or a call of the API server that a view may answer.
    Kept {
        /// The reference to keep for the fact.
        reference: Reference,
        /// The path that is called; empty for a `resourceCache`.
        path: String,
        /// The answer is a list of objects, rather than one object.
        is_list: bool,
    },
    /// A fact about the request that it does not carry: the labels of its namespace, the roles of its user.
    Around {
        /// The reference to keep for the fact.
        reference: Reference,
        /// The answer is a list of objects, rather than one object.
        is_list: bool,
    },
    /// A call of the API server that only it can answer.
    Call {
        /// The path.
        path: String,
        /// The call is a POST, as of an access review.
        is_post: bool,
    },
    /// A call of a service.
    Service,
    /// `configMap`: one ConfigMap.
    ConfigMap {
        /// `namespace/name`, or the name alone.
        object: String,
    },
    /// `imageRegistry`: the data of an image.
    Image {
        /// The reference of the image.
        reference: String,
    },
}

impl Rule {
    /// Every use of every fact that the rule reads, in the order of its fields. Worked out anew for each
    /// call: it is for people, not for requests.
    pub fn reads(&self) -> Vec<ExplainedRead> {
        let around = self.around().into_iter();
        let mut reads: Vec<ExplainedRead> = around
            .chain(uses_in(self).iter().map(|found| read(self, found)))
            .collect();
        // An expression about `request.object` has another form for a DELETE, which reads the same.
        let but_for_form = |read: &ExplainedRead| ExplainedRead {
            written: String::new(),
            ..read.clone()
        };
        reads.dedup_by(|next, one| but_for_form(next) == but_for_form(one));
        reads
    }

    /// Returns the facts that the rule's CEL expressions read whole.
    fn beside_cel(&self) -> Vec<ExplainedRead> {
        let Some(cel) = self.cel() else {
            return Vec::new();
        };
        let read = |variable: &str, expression: &str, source, parameters: &[&str]| ExplainedRead {
            variable: variable.to_owned(),
            source,
            field: match cel.dialect {
                CelDialect::Rule => "validate.cel".to_owned(),
                CelDialect::Policy { .. } => "spec".to_owned(),
            },
            written: variable.to_owned(),
            usage: Usage::Whole,
            expression: expression.to_owned(),
            parameters: parameters.iter().map(|&name| name.to_owned()).collect(),
            in_message: false,
            why_whole: Some("a CEL expression reads it".to_owned()),
            list_uses: None,
        };
        let params = cel.params.iter().map(|params| {
            let source = ReadSource::Kept {
                reference: Reference::Collection(params.collection.clone()),
                path: String::new(),
                is_list: true,
            };
            read(PARAMS, PARAMS_QUERY, source, &["namespace"])
        });
        let namespace = cel.reads().namespace.then(|| {
            let source = ReadSource::Around {
                reference: Reference::Collection(CollectionReference::namespaces()),
                is_list: false,
            };
            read(NAMESPACE_OBJECT, "", source, &[])
        });
        let called = self.called_in_cel(cel);
        params.chain(namespace).chain(called).collect()
    }

    /// Returns the facts that the rule's CEL expressions read by calls, in the order of the policy's fields. A list
    /// counts where it is used, also through a variable.
    fn called_in_cel(&self, cel: &Cel) -> Vec<ExplainedRead> {
        let mut reads = Vec::new();
        for (field, program) in self.placed_programs(cel) {
            let is_variable = field.starts_with(VARIABLES);
            for asked in program.fact_reads(&cel.variables) {
                let (site, subquery) = match asked {
                    FactRead::Subquery(subquery) => match subquery.documents().first() {
                        Some((_, site)) => (site, Some(subquery)),
                        None => continue,
                    },
                    FactRead::Whole(site) => (site, None),
                };
                if is_variable && site.may_be_kept() {
                    continue;
                }
                let mut facts = cel.facts.iter();
                let fact = facts.find(|fact| fact.site.name() == site.name());
                let entries = fact.into_iter().flat_map(|fact| fact.entries.iter());
                reads.extend(entries.flatten().filter_map(|entry| {
                    let Loader::Fact(fact) = &entry.loader else {
                        return None;
                    };
                    let read = called(entry.name.clone(), fact, &field, program);
                    Some(match subquery {
                        Some(subquery) => of_subquery(read, subquery),
                        None => read,
                    })
                }));
            }
        }
        reads
    }

    /// Returns its CEL expressions, each with the path of its field.
    fn placed_programs<'r>(&'r self, cel: &'r Cel) -> impl Iterator<Item = (String, &'r Program)> {
        let conditions = cel.preconditions.iter();
        let conditions = conditions.map(|one| (one.path.clone(), &one.program));
        let variables = cel.variables.iter().enumerate();
        let variables = variables.map(|(at, program)| (format!("{VARIABLES}[{at}]"), program));
        let judged = cel.expressions.iter().flat_map(|one| {
            let own = std::iter::once(&one.expression.program);
            let path = &one.expression.path;
            own.chain(&one.message_expression)
                .map(|program| (path.clone(), program))
        });
        let annotations = cel.annotations.iter();
        let annotations = annotations.map(|one| ("spec.auditAnnotations".to_owned(), &one.value));
        let patches = match &self.work {
            Work::Patch(mutation) => &*mutation.patches,
            _ => &[],
        };
        let patches = patches
            .iter()
            .map(|patch| (patch.path.clone(), &patch.program));
        let judged = conditions.chain(variables).chain(judged);
        judged.chain(patches).chain(annotations)
    }

    /// Returns the facts about a request that it reads and the request does not carry.
    fn around(&self) -> Vec<ExplainedRead> {
        let side = |includes: bool| if includes { "match" } else { "exclude" };
        let read = |(variable, field): (&str, &str),
                    reference,
                    expression: &str,
                    parameters: &[&str]| ExplainedRead {
            variable: variable.to_owned(),
            source: ReadSource::Around {
                is_list: !parameters.is_empty(),
                reference: Reference::Collection(reference),
            },
            field: field.to_owned(),
            written: variable.to_owned(),
            usage: Usage::Subquery,
            expression: expression.to_owned(),
            parameters: parameters.iter().map(|&name| name.to_owned()).collect(),
            in_message: false,
            why_whole: None,
            list_uses: None,
        };
        let labels = self.asks_labels().then(|| {
            let namespaces = CollectionReference::namespaces();
            let field = side(self.matches.includes_by().0);
            read((NAMESPACE_SELECTOR, field), namespaces, LABELS, &[])
        });
        let field = match self.matches.asks_roles() {
            true => side(self.matches.includes_by().1),
            false => "request.roles",
        };
        let bindings = [false, true].map(|cluster| {
            let bindings = CollectionReference::role_bindings(cluster);
            read((ROLES, field), bindings, BINDINGS_OF_USER, &["names"])
        });
        let bindings = bindings.into_iter().filter(|_| self.reads_roles());
        labels
            .into_iter()
            .chain(bindings)
            .chain(self.beside_cel())
            .collect()
    }
}

/// The read of a call's whole result.
fn called(variable: String, fact: &ContextFact, field: &str, program: &Program) -> ExplainedRead {
    ExplainedRead {
        variable,
        source: source(&fact.source),
        field: field.to_owned(),
        written: program.source().trim().to_owned(),
        usage: Usage::Whole,
        expression: String::new(),
        parameters: Vec::new(),
        in_message: false,
        why_whole: Some("a CEL expression reads it".to_owned()),
        list_uses: None,
    }
}

/// The read of a subquery over a call's result.
fn of_subquery(whole: ExplainedRead, subquery: &Subquery) -> ExplainedRead {
    let variables = subquery.variables().iter();
    let variables = variables.map(|(name, text)| format!("variables.{name} = {text}; "));
    ExplainedRead {
        usage: Usage::Subquery,
        expression: format!("{}{}", variables.collect::<String>(), subquery.text()),
        parameters: subquery.parameter_names().collect(),
        why_whole: None,
        // Its texts were made of what compiled.
        list_uses: subquery.list_uses().ok(),
        ..whole
    }
}

fn read(rule: &Rule, found: &FoundUse<'_>) -> ExplainedRead {
    let part = match (&found.verdict, &found.value) {
        _ if !found.is_asked_for => None,
        (Some((part, _, operator)), _) => Some((part, Usage::Probe(operator.name()))),
        (None, Ok(part)) => Some((part, Usage::Subquery)),
        (None, Err(_)) => None,
    };
    let (expression, usage) = match part {
        Some((part, usage)) => (part.expression.as_str(), usage),
        None => match rule.pushdown.fact_fields(found.fact.id) {
            Some(cut) => (cut.as_str(), Usage::Cut),
            None => (own_expression(found.fact), Usage::Whole),
        },
    };
    let parameters: Vec<String> = match part {
        Some((part, _)) => part.expression.parameters().map(str::to_owned).collect(),
        None => found
            .fact
            .pushed_down_query()
            .into_iter()
            .flat_map(|query| query.expression().parameters().map(str::to_owned))
            .collect(),
    };
    ExplainedRead {
        variable: found.entry.name.clone(),
        source: source(&found.fact.source),
        field: found.site.field.clone(),
        written: found.prepared.source().to_owned(),
        usage,
        expression: expression.to_owned(),
        parameters,
        in_message: found.site.in_message,
        why_whole: match (part, &found.value) {
            (Some(_), _) => None,
            (None, Err(reason)) => Some(reason.clone()),
            (None, Ok(_)) => Some("another use wants it whole".to_owned()),
        },
        list_uses: None,
    }
}

/// Returns the entry's expression as it is sent; an expression that differs between requests is returned as the
/// manifest has it.
fn own_expression(fact: &ContextFact) -> &str {
    match fact.pushed_down_query() {
        None => "",
        Some(query) => match query.fixed() {
            Some(fixed) => fixed.as_str(),
            None => query.source(),
        },
    }
}

fn source(source: &FactOrigin) -> ReadSource {
    match source {
        FactOrigin::Entry { kind, name } => ReadSource::Entry {
            kind: *kind,
            name: name.source().to_owned(),
        },
        FactOrigin::Collection(collection) => ReadSource::Kept {
            reference: Reference::Collection(collection.clone()),
            path: String::new(),
            is_list: true,
        },
        FactOrigin::Api(call) => match (&call.by_view, &call.data) {
            (Some(plan), None) => ReadSource::Kept {
                reference: plan.reference.clone(),
                path: call.path.written(),
                is_list: plan.is_list(),
            },
            _ => ReadSource::Call {
                path: call.path.written(),
                is_post: call.data.is_some(),
            },
        },
        FactOrigin::Service(_) => ReadSource::Service,
        FactOrigin::Image(image) => ReadSource::Image {
            reference: image.reference.source().to_owned(),
        },
        FactOrigin::ConfigMap(call) => ReadSource::ConfigMap {
            object: match call.namespace.source() {
                "" => call.name.source().to_owned(),
                namespace => format!("{namespace}/{}", call.name.source()),
            },
        },
    }
}
