//! Push-down of a rule: the queries that may stand for its expressions, and for its facts. Pure.
//!
//! The analysis fills it once; an evaluation looks expressions and facts up by their numbers.

use anteroom_jmespath::Expression;

/// The number of an expression or of a fact within its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExpressionId(u32);

impl ExpressionId {
    /// The number of every expression that stands in no rule: nothing is pushed down for it.
    pub(crate) const NONE: Self = Self(u32::MAX);
}

/// A counter that gives the expressions and facts of one policy their numbers.
#[derive(Debug)]
pub(crate) struct ExpressionIds(Option<u32>);

impl ExpressionIds {
    /// Returns a counter for a policy.
    pub(crate) fn of_policy() -> Self {
        Self(Some(0))
    }

    /// Returns a counter that gives no numbers: an exception's expressions are evaluated in the context of
    /// rules, whose numbers are others.
    pub(crate) fn of_exception() -> Self {
        Self(None)
    }

    pub(crate) fn next(&mut self) -> ExpressionId {
        let Some(next) = &mut self.0 else {
            return ExpressionId::NONE;
        };
        let id = ExpressionId(*next);
        *next += 1;
        id
    }
}

/// The queries of a rule that are asked where its facts are kept.
#[derive(Debug, Default)]
pub(crate) struct Pushdown {
    /// Sorted by the expression that each stands for.
    subqueries: Vec<(ExpressionId, Subqueries)>,
    /// Sorted by the fact that each stands for.
    fact_fields: Vec<(ExpressionId, Expression)>,
}

impl Pushdown {
    /// Builds the table. The first of several queries for one expression counts.
    pub(crate) fn new(
        mut subqueries: Vec<(ExpressionId, Subqueries)>,
        mut fact_fields: Vec<(ExpressionId, Expression)>,
    ) -> Self {
        subqueries.sort_by_key(|(id, _)| *id);
        subqueries.dedup_by_key(|(id, _)| *id);
        fact_fields.sort_by_key(|(id, _)| *id);
        Self {
            subqueries,
            fact_fields,
        }
    }

    /// The queries that may stand for an expression.
    pub(crate) fn subqueries(&self, expression: ExpressionId) -> Option<&Subqueries> {
        found(&self.subqueries, expression)
    }

    /// Returns the query for the fields that the rule reads of a fact, if that is less than the fact.
    pub(crate) fn fact_fields(&self, fact: ExpressionId) -> Option<&Expression> {
        found(&self.fact_fields, fact)
    }
}

fn found<T>(sorted: &[(ExpressionId, T)], id: ExpressionId) -> Option<&T> {
    let at = sorted.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    Some(&sorted[at].1)
}

/// The queries that may stand for one expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subqueries {
    /// For its value.
    pub(crate) value: Option<Subquery>,
    /// The query for the verdict of the condition in which the expression is an operand.
    pub(crate) verdict: Option<(Subquery, ConditionSide)>,
}

/// A query that stands for an expression, or for a condition, about one variable.
#[derive(Clone, Debug)]
pub(crate) struct Subquery {
    /// The context entry.
    pub(crate) variable: String,
    /// The entry's index among the entries.
    pub(crate) entry: usize,
    /// The query over the fact's data.
    pub(crate) expression: Expression,
    /// Parameters of the expression, each with its name in the query.
    pub(crate) renamed: Vec<(String, String)>,
    /// Parts of the expression that are evaluated before, each with its name in the query.
    pub(crate) arguments: Vec<(String, SubqueryArgument)>,
    /// A key that is missing is missing in the expression, and not in the entry's own one.
    pub(crate) misses_itself: bool,
}

/// A part of an expression that does not depend on the variable.
#[derive(Clone, Debug)]
pub(crate) struct SubqueryArgument {
    pub(crate) expression: Expression,
    /// A missing key in it is null.
    pub(crate) is_forgiven: bool,
    /// The nested subquery, if the subquery is about a different fact.
    pub(crate) subquery: Option<Box<Subquery>>,
}

/// The side of a condition that a query stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionSide {
    Key,
    Value,
}

impl ConditionSide {
    /// The name of the parameter that holds the other side.
    pub(crate) fn other(self) -> &'static str {
        match self {
            Self::Key => "value",
            Self::Value => "key",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_found_by_its_number_whatever_the_order() {
        let of = |id, text: &str| (ExpressionId(id), Expression::parse(text).unwrap());
        let subqueries = vec![(ExpressionId(3), Subqueries::default())];
        let table = Pushdown::new(subqueries, vec![of(2, "b"), of(1, "a")]);
        let fields = |id| table.fact_fields(ExpressionId(id)).map(Expression::as_str);
        assert_eq!([1, 2, 3].map(fields), [Some("a"), Some("b"), None]);
        assert!(table.subqueries(ExpressionId(3)).is_some());
        assert!(table.subqueries(ExpressionId(1)).is_none());
    }
}
