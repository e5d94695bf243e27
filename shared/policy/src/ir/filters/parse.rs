//! From the text of filters.

use thiserror::Error;

use super::Filter;
use crate::ir::KindPattern;

/// Filters of one text.
pub const FILTERS_MAX: usize = 1_000;

/// A problem in a text of filters, and its position (AR701).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("AR701: at character {at}: {problem}")]
pub struct FilterError {
    /// The number of the character in the text, counted from 1.
    pub at: usize,
    /// The problem there.
    pub problem: FilterProblem,
}

/// The problems that a text of filters can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FilterProblem {
    /// Something stands between filters.
    #[error("`{0}` is outside of any filter: write [Kind,namespace,name], as in [Event,*,*]")]
    Outside(char),
    /// A filter has no end.
    #[error("this `[` has no `]`")]
    Unclosed,
    /// A filter does not have three parts.
    #[error(
        "a filter has three parts, [Kind,namespace,name], and this one {0}: write `*` for any namespace or name"
    )]
    Parts(usize),
    /// The kind is none.
    #[error("`{0}` is no kind: write it as in Pod, Pod/exec, v1/Pod, apps/v1/Deployment, */*")]
    Kind(String),
    /// A part has a space in it.
    #[error("no kind, namespace or name has a space in it")]
    Space,
    /// There are too many.
    #[error("there are more than {FILTERS_MAX} filters")]
    TooMany,
}

/// All filters of a text, in its order.
pub(super) fn filters(text: &str) -> Result<Vec<Filter>, FilterError> {
    let mut filters = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        let Some(first) = rest.chars().next() else {
            return Ok(filters);
        };
        let here = |problem| error(text, rest, problem);
        let inner = rest.strip_prefix('[');
        let inner = inner.ok_or_else(|| here(FilterProblem::Outside(first)))?;
        let end = inner.find(['[', ']']);
        let end = end.filter(|end| inner[*end..].starts_with(']'));
        let end = end.ok_or_else(|| here(FilterProblem::Unclosed))?;
        if filters.len() == FILTERS_MAX {
            return Err(here(FilterProblem::TooMany));
        }
        filters.push(filter(text, &inner[..end])?);
        rest = &inner[end + 1..];
    }
}

/// Parses one filter from the text between its brackets.
fn filter(text: &str, inner: &str) -> Result<Filter, FilterError> {
    if let Some(space) = inner.find(char::is_whitespace) {
        return Err(error(text, &inner[space..], FilterProblem::Space));
    }
    let parts: Vec<&str> = inner.split(',').collect();
    let [kind, namespace, name] = *parts else {
        return Err(error(text, inner, FilterProblem::Parts(parts.len())));
    };
    let Some(kind) = KindPattern::parse(kind) else {
        let problem = FilterProblem::Kind(kind.to_owned());
        return Err(error(text, inner, problem));
    };
    Ok(Filter {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

/// At the beginning of `rest`, which is a part of `text`.
fn error(text: &str, rest: &str, problem: FilterProblem) -> FilterError {
    let before = rest.as_ptr() as usize - text.as_ptr() as usize;
    let at = text
        .get(..before)
        .map_or(0, |before| before.chars().count())
        + 1;
    FilterError { at, problem }
}
