//! Finds the counts of an expression.

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, CompareOperator, Term, TermId},
};

use super::{Count, CountedExpression, IndexedCount, Measure};
use crate::{
    Document, Matching, Narrow, Probe, Reading,
    chain::{ChainParameters, Chains, Value},
    narrow,
    text::{self, Swaps, TermWriter},
};

/// The most counts of one expression. An expression with more is evaluated without counters.
const COUNTS_MAX: usize = 16;

/// Puts parameters in the place of an expression's counts over the whole list. `None`: it has none.
pub fn extract_counts(
    expression: &Expression,
    document: Document<'_>,
    parameters: ChainParameters,
) -> Option<CountedExpression> {
    let mut search = Search {
        ast: expression.ast(),
        chains: Chains::new(expression.ast(), document),
        parameters,
        prefix: free_prefix(expression),
        swaps: Swaps::default(),
        counts: Vec::new(),
    };
    search.term(expression.ast().root(), &Value::of(document));
    let counts = search.counts;
    if counts.is_empty() || counts.len() > COUNTS_MAX {
        return None;
    }
    Some(CountedExpression {
        rest: text::swapped(expression, &search.swaps)?,
        counts,
    })
}

/// The index that counts the elements of a chain, if the chain is `[?path == value]` or `!=`.
fn by_index(chain: &Expression) -> Option<IndexedCount> {
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
    let negated = match operator {
        CompareOperator::Equal => false,
        CompareOperator::NotEqual => true,
        _ => return None,
    };
    let none = Swaps::default();
    let writer = TermWriter::new(ast, &none);
    let agreeing = format!("[?{} == {}]", writer.operand(*left), writer.operand(*with));
    let agreeing = Expression::parse(&agreeing).ok()?;
    let is_plain =
        |probe: &Probe| probe.matching == Matching::Equal && probe.key.reading() == Reading::VALUE;
    match (narrow(&agreeing, Document::Array).ok()?, ast.term(right)) {
        (Narrow::Probe(probe), Term::Current) if is_plain(&probe) => {
            Some(IndexedCount { probe, negated })
        }
        _ => None,
    }
}

/// A beginning that no parameter of the expression has.
fn free_prefix(expression: &Expression) -> String {
    let mut prefix = "count".to_owned();
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
    parameters: ChainParameters,
    prefix: String,
    swaps: Swaps,
    counts: Vec<Count>,
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
                operator: CompareOperator::Equal | CompareOperator::NotEqual,
                left,
                right,
            } if self.is_empty_list(*right) => self.truth(*left, at),
            Term::Compare {
                operator: CompareOperator::Equal | CompareOperator::NotEqual,
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

    /// Looks through a term of which only the truth matters, or whether the list that it gives is empty.
    fn truth(&mut self, id: TermId, at: &Value) {
        match self.chains.value_behind(id, at) {
            Some(Value::List(chain)) => {
                if let Some(parameter) = self.count(&chain, Measure::Existence) {
                    self.swaps.terms.insert(id, parameter);
                }
            }
            _ => self.term(id, at),
        }
    }

    /// Replaces a call of `length()` over a chain by a parameter. Returns false if the term is no such call.
    fn take(&mut self, id: TermId, at: &Value) -> bool {
        let chain = self.counted_chain(id, at);
        let parameter = chain.and_then(|chain| self.count(&chain, Measure::Length));
        let taken = parameter.is_some();
        self.swaps.terms.extend(parameter.map(|text| (id, text)));
        taken
    }

    /// Looks through the stages of a pipe, or the steps of a path, each on the value of those before it.
    /// A stage that needs nothing but counts then replaces those before it.
    fn stages(&mut self, id: TermId, stages: &[TermId], at: &Value) {
        let mut at = at.clone();
        for (place, stage) in stages.iter().enumerate() {
            let before = self.taken();
            self.term(*stage, &at);
            // What the stages before give is counted: so they fail on no object.
            if place > 0 && self.taken() > before && !self.reads_current(*stage) {
                let text = TermWriter::new(self.ast, &self.swaps).grouped(*stage);
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

    /// Returns true if a term reads the value that it is evaluated on, which is not null.
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

    /// The chain that the term gives the length of.
    fn counted_chain(&self, id: TermId, at: &Value) -> Option<String> {
        let Term::Call {
            function,
            arguments,
        } = self.ast.term(id)
        else {
            return None;
        };
        match (self.ast.function_name(*function), &**arguments) {
            ("length", [Argument::Value(list)]) => self.chains.value_behind(*list, at)?.into_list(),
            _ => None,
        }
    }

    /// Adds a count, or finds an equal one. Returns its parameter, as text for an expression; `None`: neither a
    /// counter nor an index can count this.
    fn count(&mut self, chain: &str, measure: Measure) -> Option<String> {
        let chain = Expression::parse(chain).ok()?;
        let equal = |count: &&Count| count.measure == measure && count.chain == chain;
        if let Some(count) = self.counts.iter().find(equal) {
            return Some(format!("${}", count.parameter));
        }
        let parameter = format!("{}{}", self.prefix, self.counts.len());
        let text = format!("${parameter}");
        let by_index = match chain.parameters().next() {
            Some(_) if self.parameters == ChainParameters::Refused => Some(by_index(&chain)?),
            _ => None,
        };
        self.counts.push(Count {
            parameter,
            chain,
            measure,
            by_index,
        });
        Some(text)
    }

    fn is_empty_list(&self, id: TermId) -> bool {
        matches!(self.ast.term(id), Term::Literal(serde_json::Value::Array(list)) if list.is_empty())
    }
}

#[cfg(test)]
mod tests;
