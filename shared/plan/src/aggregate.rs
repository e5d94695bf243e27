//! Numbers and texts that an expression takes of the list as a whole, and that can be kept while it
//! changes: how many there are, their sum, the largest. Pure.
//!
//! What such a term is about is a *chain*: projections, filters and flattenings of the list, each of
//! which takes every element by itself. So what a chain makes of the list is what it makes of each
//! object, one behind the other; and a term over it can be kept by what each object contributes.
//!
//! The term's value then stands in the expression as that of a parameter, and the rest is evaluated
//! as ever. A term can fail only where a chain fails on some object, or contributes what the term does
//! not take: then nothing is kept, and the expression is evaluated as it is. So a term that is not
//! reached, as behind `||`, makes no difference.

mod chain;
mod kept;
mod numbers;
mod tally;

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, Comparison, Term, TermId},
};

use crate::{
    Document, Matching, Narrow, Probe, Reading, narrow,
    text::{self, Swaps, Writer},
};
use chain::{Chains, Value};

pub use kept::{Aggregate, AggregateKey};
pub(crate) use numbers::Way;
pub(crate) use tally::Tally;
pub use tally::{Measure, TallyKind};

/// Terms of one expression that are kept. One with more is evaluated as it is.
const TERMS_MAX: usize = 16;

/// An expression whose terms over the whole list stand in it as parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregated {
    /// The expression with the parameters.
    pub rest: Expression,
    /// What each of them is.
    pub terms: Vec<AggregateTerm>,
}

/// A term over the whole list.
#[derive(Clone, Debug, PartialEq)]
pub struct AggregateTerm {
    /// The name of the parameter that it stands in the expression as, without the dollar sign.
    pub parameter: String,
    /// What is taken of the array of objects; each object contributes its part by itself.
    pub chain: Expression,
    /// What is taken of the chain's value.
    pub measure: Measure,
    /// What the objects are counted by, where the chain depends on the request.
    pub counted: Option<Counted>,
}

/// Objects that are counted by what they agree in with the request.
#[derive(Clone, Debug, PartialEq)]
pub struct Counted {
    /// Those that agree.
    pub probe: Probe,
    /// Whether those that do not are meant.
    pub others: bool,
}

impl AggregateTerm {
    /// Whether it is about the objects themselves, so that their number is all that matters.
    pub fn is_of_all_objects(&self) -> bool {
        matches!(
            self.chain.ast().term(self.chain.ast().root()),
            Term::Current
        )
    }
}

/// Which parts of a chain may depend on the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// None: it can be kept.
    Refused,
    /// Any: it is to be evaluated by slices of the list.
    Allowed,
}

/// The expression with its terms over the whole list taken out; `None` where it has none.
pub fn aggregate(
    expression: &Expression,
    document: Document<'_>,
    parameters: Parameters,
) -> Option<Aggregated> {
    let mut search = Search {
        ast: expression.ast(),
        chains: Chains::new(expression.ast(), document),
        parameters,
        prefix: free_prefix(expression),
        swaps: Swaps::default(),
        terms: Vec::new(),
    };
    let root = match document {
        Document::List { .. } => Value::Root,
        Document::Array => Value::objects(),
    };
    search.term(expression.ast().root(), &root);
    let terms = search.terms;
    if terms.is_empty() || terms.len() > TERMS_MAX {
        return None;
    }
    Some(Aggregated {
        rest: text::swapped(expression, &search.swaps)?,
        terms,
    })
}

/// The expression as a chain over the array of objects, where it is one whole.
pub(crate) fn chain(
    expression: &Expression,
    document: Document<'_>,
    parameters: Parameters,
) -> Option<Expression> {
    let chains = Chains::new(expression.ast(), document);
    if !text::is_writable(expression) {
        return None;
    }
    let root = match document {
        Document::List { .. } => Value::Root,
        Document::Array => Value::objects(),
    };
    let chain = match chains.value(expression.ast().root(), &root)? {
        Value::List(text) => Expression::parse(&text).ok()?,
        Value::Root | Value::Again => return None,
    };
    let refused = parameters == Parameters::Refused && chain.parameters().next().is_some();
    (!refused).then_some(chain)
}

/// What the objects of a chain are counted by, where their number is all that matters.
fn counted(chain: &Expression, measure: Measure) -> Option<Counted> {
    measure.of_count(0)?;
    let ast = chain.ast();
    let (condition, right) = match ast.term(ast.root()) {
        Term::Filter {
            left,
            condition,
            right,
        } if *ast.term(*left) == Term::Current => (*condition, *right),
        _ => return None,
    };
    let Term::Compare {
        operator,
        left,
        right: with,
    } = ast.term(condition)
    else {
        return None;
    };
    let others = match operator {
        Comparison::Equal => false,
        Comparison::NotEqual => true,
        _ => return None,
    };
    let none = Swaps::default();
    let writer = Writer::new(ast, &none);
    let agreeing = format!("[?{} == {}]", writer.operand(*left), writer.operand(*with));
    let agreeing = Expression::parse(&agreeing).ok()?;
    let is_plain =
        |probe: &Probe| probe.matching == Matching::Equal && probe.key.reading() == Reading::VALUE;
    match (narrow(&agreeing, Document::Array).ok()?, ast.term(right)) {
        (Narrow::Probe(probe), Term::Current) if is_plain(&probe) => {
            Some(Counted { probe, others })
        }
        _ => None,
    }
}

/// Names of parameters that the expression does not use.
fn free_prefix(expression: &Expression) -> String {
    let mut prefix = "kept".to_owned();
    while expression
        .parameters()
        .any(|name| name.starts_with(&prefix))
    {
        prefix.push('_');
    }
    prefix
}

struct Search<'e> {
    ast: &'e Ast,
    chains: Chains<'e>,
    parameters: Parameters,
    prefix: String,
    swaps: Swaps,
    terms: Vec<AggregateTerm>,
}

impl Search<'_> {
    /// Looks through a term that is evaluated on `at`: the document, or the list.
    fn term(&mut self, id: TermId, at: &Value) {
        if self.take(id, at) {
            return;
        }
        match self.ast.term(id) {
            Term::Path(steps) | Term::Pipe(steps) => self.stages(id, steps, at),
            Term::And(terms) => {
                let (last, truths) = terms
                    .split_last()
                    .map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
                truths.iter().for_each(|term| self.truth(*term, at));
                last.into_iter().for_each(|term| self.term(*term, at));
            }
            Term::Not(term) => self.truth(*term, at),
            Term::Compare {
                operator: Comparison::Equal | Comparison::NotEqual,
                left,
                right,
            } if self.is_empty_list(*right) => self.truth(*left, at),
            Term::Compare {
                operator: Comparison::Equal | Comparison::NotEqual,
                left,
                right,
            } if self.is_empty_list(*left) => self.truth(*right, at),
            Term::Compare { left, right, .. } => {
                self.term(*left, at);
                self.term(*right, at);
            }
            Term::Or(terms) | Term::List(terms) => {
                terms.iter().for_each(|term| self.term(*term, at));
            }
            Term::Object(entries) => {
                entries.iter().for_each(|(_, term)| self.term(*term, at));
            }
            Term::Call { arguments, .. } => {
                for argument in arguments {
                    if let Argument::Value(term) = argument {
                        self.term(*term, at);
                    }
                }
            }
            Term::Project { left, .. }
            | Term::Filter { left, .. }
            | Term::ProjectValues { left, .. }
            | Term::Flatten(left) => self.term(*left, at),
            _ => {}
        }
    }

    /// A term of which it only matters whether it is true; or empty, if it is a list.
    fn truth(&mut self, id: TermId, at: &Value) {
        match self.chains.value_behind(id, at) {
            Some(Value::List(chain)) => {
                if let Some(parameter) = self.keep(&chain, Measure::Existence) {
                    self.swaps.terms.insert(id, parameter);
                }
            }
            _ => self.term(id, at),
        }
    }

    /// A call of a function over a chain.
    fn take(&mut self, id: TermId, at: &Value) -> bool {
        let parameter = self
            .measured(id, at)
            .and_then(|(chain, measure)| self.keep(&chain, measure));
        let taken = parameter.is_some();
        self.swaps.terms.extend(parameter.map(|text| (id, text)));
        taken
    }

    /// Each stage of a pipe, or step of a path, on what the ones before make of the list. One that
    /// takes of it only what is kept stands first, then.
    fn stages(&mut self, id: TermId, stages: &[TermId], at: &Value) {
        let mut at = at.clone();
        for (place, stage) in stages.iter().enumerate() {
            let before = self.taken();
            self.term(*stage, &at);
            // Something is kept of what the stages before give: so they do not fail on any object.
            if place > 0 && self.taken() > before && !self.reads_current(*stage) {
                let text = Writer::new(self.ast, &self.swaps).grouped(*stage);
                self.swaps.stages.insert(id, (place + 1, text));
            }
            match self.chains.value_behind(*stage, &at) {
                Some(value) => at = value,
                None => return,
            }
        }
    }

    fn taken(&self) -> usize {
        self.swaps.terms.len() + self.swaps.stages.len()
    }

    /// Whether the value of a term depends on the one that it is evaluated on, which is not null.
    fn reads_current(&self, id: TermId) -> bool {
        if self.swaps.terms.contains_key(&id) || self.swaps.stages.contains_key(&id) {
            return false;
        }
        match self.ast.term(id) {
            Term::Literal(_) | Term::Parameter(_) => false,
            Term::Path(steps) | Term::Pipe(steps) => {
                steps.first().is_none_or(|first| self.reads_current(*first))
            }
            Term::Project { left, .. }
            | Term::ProjectValues { left, .. }
            | Term::Filter { left, .. }
            | Term::Flatten(left) => self.reads_current(*left),
            Term::Call { arguments, .. } => arguments.iter().any(|argument| match argument {
                Argument::Value(term) => self.reads_current(*term),
                Argument::Reference(_) => false, // On what the others hold.
            }),
            Term::Not(_)
            | Term::Compare { .. }
            | Term::Or(_)
            | Term::And(_)
            | Term::List(_)
            | Term::Object(_) => {
                let children = self.ast.term(id).children();
                children.iter().any(|child| self.reads_current(*child))
            }
            _ => true,
        }
    }

    /// The chain, and what is taken of it, where the term is a call that does so.
    fn measured(&self, id: TermId, at: &Value) -> Option<(String, Measure)> {
        let Term::Call {
            function,
            arguments,
        } = self.ast.term(id)
        else {
            return None;
        };
        let measure = Measure::of_function(self.ast.function_name(*function))?;
        let [Argument::Value(list)] = &**arguments else {
            return None;
        };
        match self.chains.value_behind(*list, at)? {
            Value::List(chain) => Some((chain, measure)),
            Value::Root | Value::Again => None,
        }
    }

    /// The parameter's text; `None` where the chain cannot be kept.
    fn keep(&mut self, chain: &str, measure: Measure) -> Option<String> {
        let chain = Expression::parse(chain).ok()?;
        let known = |term: &&AggregateTerm| term.measure == measure && term.chain == chain;
        if let Some(term) = self.terms.iter().find(known) {
            return Some(format!("${}", term.parameter));
        }
        let parameter = format!("{}{}", self.prefix, self.terms.len());
        let text = format!("${parameter}");
        let counted = match chain.parameters().next() {
            Some(_) if self.parameters == Parameters::Refused => Some(counted(&chain, measure)?),
            _ => None,
        };
        self.terms.push(AggregateTerm {
            parameter,
            chain,
            measure,
            counted,
        });
        Some(text)
    }

    fn is_empty_list(&self, id: TermId) -> bool {
        matches!(self.ast.term(id), Term::Literal(serde_json::Value::Array(list)) if list.is_empty())
    }
}

#[cfg(test)]
mod tests;
