//! Finds the counts of an expression.

use anteroom_jmespath::{
    Expression,
    ast::{Argument, Ast, CompareOperator, Expr, ExprId},
};

use super::{Count, CountedExpression, IndexedCount, Measure};
use crate::{
    Document, Matching, Narrow, Probe, Reading,
    chain::{ChainParameters, Chains, Value},
    narrow,
    text::{self, ExprWriter, Swaps},
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
    search.expr(expression.ast().root(), &Value::of(document));
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
    let (condition, right) = match ast.expr(ast.root()) {
        Expr::Filter {
            left,
            condition,
            right,
        } if *ast.expr(*left) == Expr::Current => (*condition, *right),
        _ => return None,
    };
    let Expr::Compare {
        operator,
        left,
        right: with,
    } = ast.expr(condition)
    else {
        return None;
    };
    let negated = match operator {
        CompareOperator::Equal => false,
        CompareOperator::NotEqual => true,
        _ => return None,
    };
    let none = Swaps::default();
    let writer = ExprWriter::new(ast, &none);
    let agreeing = format!("[?{} == {}]", writer.operand(*left), writer.operand(*with));
    let agreeing = Expression::parse(&agreeing).ok()?;
    let is_plain =
        |probe: &Probe| probe.matching == Matching::Equal && probe.key.reading() == Reading::VALUE;
    match (narrow(&agreeing, Document::Array).ok()?, ast.expr(right)) {
        (Narrow::Probe(probe), Expr::Current) if is_plain(&probe) => {
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
    /// Looks through a subexpression that is evaluated on `at`: the document, or the list.
    fn expr(&mut self, id: ExprId, at: &Value) {
        if self.take(id, at) {
            return;
        }
        match self.ast.expr(id) {
            Expr::Path(steps) | Expr::Pipe(steps) => self.stages(id, steps, at),
            Expr::And(exprs) => {
                let (last, truths) = exprs
                    .split_last()
                    .map_or((None, &[][..]), |(last, rest)| (Some(last), rest));
                truths.iter().for_each(|expr| self.truth(*expr, at));
                last.into_iter().for_each(|expr| self.expr(*expr, at));
            }
            Expr::Not(expr) => self.truth(*expr, at),
            Expr::Compare {
                operator: CompareOperator::Equal | CompareOperator::NotEqual,
                left,
                right,
            } if self.is_empty_list(*right) => self.truth(*left, at),
            Expr::Compare {
                operator: CompareOperator::Equal | CompareOperator::NotEqual,
                left,
                right,
            } if self.is_empty_list(*left) => self.truth(*right, at),
            Expr::Compare { left, right, .. } => {
                self.expr(*left, at);
                self.expr(*right, at);
            }
            Expr::Or(exprs) | Expr::List(exprs) => {
                exprs.iter().for_each(|expr| self.expr(*expr, at));
            }
            Expr::Object(entries) => {
                entries.iter().for_each(|(_, expr)| self.expr(*expr, at));
            }
            Expr::Call { arguments, .. } => {
                for argument in arguments {
                    if let Argument::Value(expr) = argument {
                        self.expr(*expr, at);
                    }
                }
            }
            Expr::Project { left, .. }
            | Expr::Filter { left, .. }
            | Expr::ProjectValues { left, .. }
            | Expr::Flatten(left) => self.expr(*left, at),
            _ => {}
        }
    }

    /// Looks through a subexpression of which only the truth matters, or whether the list that it gives is empty.
    fn truth(&mut self, id: ExprId, at: &Value) {
        match self.chains.value_behind(id, at) {
            Some(Value::List(chain)) => {
                if let Some(parameter) = self.count(&chain, Measure::Existence) {
                    self.swaps.exprs.insert(id, parameter);
                }
            }
            _ => self.expr(id, at),
        }
    }

    /// Replaces a call of `length()` over a chain by a parameter. Returns false if the subexpression is no such call.
    fn take(&mut self, id: ExprId, at: &Value) -> bool {
        let chain = self.counted_chain(id, at);
        let parameter = chain.and_then(|chain| self.count(&chain, Measure::Length));
        let taken = parameter.is_some();
        self.swaps.exprs.extend(parameter.map(|text| (id, text)));
        taken
    }

    /// Looks through the stages of a pipe, or the steps of a path, each on the value of those before it.
    /// A stage that needs nothing but counts then replaces those before it.
    fn stages(&mut self, id: ExprId, stages: &[ExprId], at: &Value) {
        let mut at = at.clone();
        for (place, stage) in stages.iter().enumerate() {
            let before = self.taken();
            self.expr(*stage, &at);
            // What the stages before give is counted: so they fail on no object.
            if place > 0 && self.taken() > before && !self.reads_current(*stage) {
                let text = ExprWriter::new(self.ast, &self.swaps).grouped(*stage);
                self.swaps.stages.insert(id, (place + 1, text));
            }
            match self.chains.value_behind(*stage, &at) {
                Some(value) => at = value,
                None => return,
            }
        }
    }

    fn taken(&self) -> usize {
        self.swaps.exprs.len() + self.swaps.stages.len()
    }

    /// Returns true if a subexpression reads the value that it is evaluated on, which is not null.
    fn reads_current(&self, id: ExprId) -> bool {
        if self.swaps.exprs.contains_key(&id) || self.swaps.stages.contains_key(&id) {
            return false;
        }
        match self.ast.expr(id) {
            Expr::Literal(_) | Expr::Parameter(_) => false,
            Expr::Path(steps) | Expr::Pipe(steps) => {
                steps.first().is_none_or(|first| self.reads_current(*first))
            }
            Expr::Project { left, .. }
            | Expr::ProjectValues { left, .. }
            | Expr::Filter { left, .. }
            | Expr::Flatten(left) => self.reads_current(*left),
            Expr::Call { arguments, .. } => arguments.iter().any(|argument| match argument {
                Argument::Value(expr) => self.reads_current(*expr),
                Argument::Reference(_) => false, // On what the others hold.
            }),
            Expr::Not(_)
            | Expr::Compare { .. }
            | Expr::Or(_)
            | Expr::And(_)
            | Expr::List(_)
            | Expr::Object(_) => {
                let children = self.ast.expr(id).children();
                children.iter().any(|child| self.reads_current(*child))
            }
            _ => true,
        }
    }

    /// The chain that the subexpression gives the length of.
    fn counted_chain(&self, id: ExprId, at: &Value) -> Option<String> {
        let Expr::Call {
            function,
            arguments,
        } = self.ast.expr(id)
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

    fn is_empty_list(&self, id: ExprId) -> bool {
        matches!(self.ast.expr(id), Expr::Literal(serde_json::Value::Array(list)) if list.is_empty())
    }
}

#[cfg(test)]
mod tests;
