//! Subqueries: each is one query, composed of an entry's own expression and of one use of the entry, and asked in
//! place of the fact.
//!
//! | the entry's expression | the use of `rules` | the query |
//! |---|---|---|
//! | none | `items[?a == '{{ x }}']` of `rules` | `items[?a == $q0]` |
//! | `items[].spec.rules[]` | `rules[?host == '{{ x }}'].path` | `items[].spec.rules[] \| [?host == $q0].path` |
//! | the same | `rules[0].host` | `(items[].spec.rules[])[0].host` |
//! | the same | AnyIn `rules[].host` | `any_in($key, items[].spec.rules[] \| [].host)` |
//!
//! A pipe gives null for a missing key at each of its stages, so it is used only where no key can be missing.

use anteroom_functions::{condition_function, operator::Operator};
use anteroom_jmespath::{
    Expression,
    ast::{Ast, Expr, ExprId},
};

use serde_json::Value;

use super::{
    dependency::{Dependency, Function, can_miss, charge},
    fact::NamesProjection,
};
use crate::ir::subquery::{ConditionSide, Subquery};

const FORGIVEN: &str = "a key that is missing would be an error, and null in the query";
const REFUSED: &str =
    "an argument that its function refuses would be an error, and null in the query";

/// An expression about a fact, and the expression of the fact.
pub(super) struct FactUse<'u> {
    pub(super) names_projection: NamesProjection,
    pub(super) variable: &'u str,
    pub(super) entry: usize,
    /// The data are a list as the API server gives it: an object with `items`.
    pub(super) has_items: bool,
    /// The entry's expression; `None`: its data whole.
    pub(super) own: Option<&'u Expression>,
    pub(super) expression: &'u Expression,
    pub(super) dependency: &'u Dependency,
}

impl FactUse<'_> {
    /// The query for the expression's value.
    ///
    /// # Errors
    /// Why the fact is wanted whole.
    pub(super) fn value(&self) -> Result<Subquery, String> {
        let function = match self.dependency {
            Dependency::Function(function) if !function.may_be_itself => function,
            Dependency::Lone | Dependency::Function(_) => {
                return Err("its value is used as it is".to_owned());
            }
        };
        let text = self.composed(function)?;
        self.finish(&text, Some(function))
    }

    /// The query for whether a condition is met of which the expression is one side.
    ///
    /// # Errors
    /// Why it is better asked for the expression's value.
    pub(super) fn verdict(
        &self,
        operator: Operator,
        side: ConditionSide,
    ) -> Result<Subquery, String> {
        let name = condition_function(operator).ok_or("its operator says nothing of lists")?;
        let (list, function) = match (self.dependency, self.own) {
            // What a projection gives is of no known type, and most often a list.
            (Dependency::Lone, None) if self.names_projection == NamesProjection::Yes => {
                ("@".to_owned(), None)
            }
            (Dependency::Lone, None) => return Err("its data are used whole".to_owned()),
            (Dependency::Lone, Some(own)) => {
                check(is_list(own.ast(), own.ast().root(), &|_| false))?;
                self.check_own()?;
                (own.as_str().to_owned(), None)
            }
            (Dependency::Function(function), _) => {
                let own_is_list = self
                    .own
                    .is_some_and(|own| is_list(own.ast(), own.ast().root(), &|_| false));
                let ast = self.expression.ast();
                check(is_list(ast, ast.root(), &|id| {
                    own_is_list && function.variables.contains(&ast.span_bytes(id))
                }))?;
                self.check_own()?;
                if function.may_miss {
                    return Err(FORGIVEN.to_owned());
                }
                (self.composed(function)?, Some(function))
            }
        };
        let asked = |list: &str| match side {
            ConditionSide::Value => format!("{name}(${}, {list})", side.other()),
            ConditionSide::Key => format!("{name}({list}, ${})", side.other()),
        };
        let text = match alternative(&list) {
            // A list is looked up, and whether it is empty is kept.
            Some((list, other)) => {
                let (some, none) = (asked("@"), asked(&other));
                format!("{list} | (!!@ && {some} || !@ && {none})")
            }
            None => asked(&list),
        };
        self.finish(&text, function)
    }

    /// A key that the entry's own expression misses is an error that nothing here may forgive.
    fn check_own(&self) -> Result<(), String> {
        match self.own_may_miss() && self.names_projection != NamesProjection::Yes {
            true => Err(FORGIVEN.to_owned()),
            false => Ok(()),
        }
    }

    fn own_may_miss(&self) -> bool {
        self.own.is_some_and(|own| {
            let ast = own.ast();
            let first = match ast.expr(ast.root()) {
                Expr::Path(steps) => steps.first().copied(),
                _ => Some(ast.root()),
            };
            let is_items = |id| *ast.expr(id) == Expr::Field("items".into());
            let items = first.filter(|id| self.has_items && is_items(*id));
            can_miss(ast, ast.root(), &|id| items == Some(id))
        })
    }

    fn composed(&self, function: &Function) -> Result<String, String> {
        if self.names_projection != NamesProjection::No {
            self.check_own()?;
            if function.may_miss {
                return Err(FORGIVEN.to_owned());
            }
            let stages = self.own.map(ToString::to_string).into_iter();
            let stages: Vec<_> = stages.chain([self.written(function, "@")]).collect();
            return Ok(stages.join(" | "));
        }
        let Some(own) = self.own else {
            return Ok(self.written(function, "@"));
        };
        match (self.own_may_miss(), function.may_miss) {
            (false, false) => Ok(format!("{own} | {}", self.written(function, "@"))),
            (true, _) if !function.is_strict => Err(FORGIVEN.to_owned()),
            _ if function.forgives_refusals && !own.ast().functions().is_empty() => {
                Err(REFUSED.to_owned())
            }
            _ => Ok(self.written(function, &format!("({own})"))),
        }
    }

    /// The use with `variable` in place of the variable, and its parameters renamed.
    fn written(&self, function: &Function, variable: &str) -> String {
        let text = self.expression.as_str();
        let variables = function
            .variables
            .iter()
            .map(|span| (span.clone(), variable.to_owned()));
        let parameters = function.parameters.iter().map(|span| {
            (
                span.clone(),
                format!("${}", renamed(&text[span.clone()][1..])),
            )
        });
        let arguments = function
            .arguments
            .iter()
            .enumerate()
            .map(|(at, (span, _))| (span.clone(), format!("${}", argument(at))));
        let mut edits: Vec<_> = variables.chain(parameters).chain(arguments).collect();
        edits.sort_by_key(|(span, _)| span.start);
        let (mut written, mut done) = (String::new(), 0);
        for (span, replacement) in edits {
            written.push_str(&text[done..span.start]);
            written.push_str(&replacement);
            done = span.end;
        }
        written.push_str(&text[done..]);
        // `@[0]` is `[0]`, and `@.a` is `a`.
        match written.strip_prefix('@') {
            Some(rest) if rest.starts_with('[') => rest.to_owned(),
            Some(rest) if rest.starts_with('.') => rest[1..].to_owned(),
            _ => written,
        }
    }

    fn finish(&self, text: &str, function: Option<&Function>) -> Result<Subquery, String> {
        charge(text.len())?;
        let expression = Expression::parse(text)
            .map_err(|error| format!("it cannot be asked for as `{text}`: {error}"))?;
        let own: Vec<&str> = self.expression.parameters().collect();
        let asked: Vec<&str> = expression.parameters().collect();
        let used = |name: &String| asked.contains(&name.as_str());
        let arguments = function.into_iter().flat_map(|function| {
            let numbered = function.arguments.iter().enumerate();
            numbered.map(|(at, (_, value))| (argument(at), value.clone()))
        });
        let renamed = match function {
            Some(_) => own
                .iter()
                .map(|name| ((*name).to_owned(), renamed(name)))
                .filter(|(_, name)| used(name))
                .collect(),
            None => Vec::new(),
        };
        Ok(Subquery {
            variable: self.variable.to_owned(),
            entry: self.entry,
            renamed,
            arguments: arguments.collect(),
            misses_itself: !self.own_may_miss(),
            expression,
        })
    }
}

/// Returns a parameter's name in the subquery. Parameters of expressions are named `p0`, `p1`, …; those of the use
/// are renamed, since the entry's expression has such names too.
fn renamed(name: &str) -> String {
    format!("q{}", name.trim_start_matches('p'))
}

fn argument(at: usize) -> String {
    format!("h{at}")
}

/// Splits `LIST || LITERAL` into the list and the literal. An empty list is no literal here, since it changes
/// nothing.
fn alternative(list: &str) -> Option<(String, String)> {
    let expression = Expression::parse(list).ok()?;
    let ast = expression.ast();
    let (before, last) = match ast.expr(ast.root()) {
        Expr::Pipe(stages) => {
            let (last, rest) = stages.split_last()?;
            let rest = rest
                .iter()
                .map(|stage| format!("({}) | ", ast.text(*stage)));
            (rest.collect(), *last)
        }
        _ => (String::new(), ast.root()),
    };
    let Expr::Or(operands) = ast.expr(last) else {
        return None;
    };
    match &**operands {
        [first, other] => match ast.expr(*other) {
            Expr::Literal(Value::Array(none)) if none.is_empty() => None,
            Expr::Literal(_) => {
                let list = format!("{before}({})", ast.text(*first));
                // Not every tree can be written.
                Expression::parse(&list).ok()?;
                Some((list, ast.text(*other).to_string()))
            }
            _ => None,
        },
        _ => None,
    }
}

/// Checks whether a query for a verdict is worthwhile: it is if it saves a list from travelling.
fn check(is_list: bool) -> Result<(), String> {
    match is_list {
        true => Ok(()),
        false => Err("its value is no list".to_owned()),
    }
}

/// Returns whether the value is a list, if it exists. `known` returns whether a subexpression is a field that is a
/// list.
fn is_list(ast: &Ast, id: ExprId, known: &dyn Fn(ExprId) -> bool) -> bool {
    match ast.expr(id) {
        Expr::Field(_) => known(id),
        Expr::Project { .. }
        | Expr::ProjectValues { .. }
        | Expr::Filter { .. }
        | Expr::Flatten(_) => true,
        Expr::Or(operands) => operands
            .first()
            .is_some_and(|first| is_list(ast, *first, known)),
        Expr::Pipe(stages) => stages
            .last()
            .is_some_and(|last| is_list(ast, *last, &|_| false)),
        Expr::Call { function, .. } => {
            matches!(ast.function_name(*function), "map" | "sort" | "sort_by")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_before_an_alternative_keeps_its_meaning() {
        for (list, expected) in [
            ("items[?!(a.b)].c || `[1]`", "(items[?!(a.b)].c)"),
            ("items | (a.b)[*] || `[1]`", "(items) | ((a.b)[*])"),
        ] {
            let (split, literal) = alternative(list).unwrap();
            assert_eq!((&*split, &*literal), (expected, "`[1]`"));
        }
    }
}
