//! The functions, each by its name and by how it is called.

mod convert;
mod format;
mod formats;
mod function;
mod kyverno;
mod lists;
mod net;
mod optionals;
mod quantity;
mod regexes;
mod semvers;
mod sets;
mod strings;
mod time;
mod url;

pub(crate) use function::{CallContext, Function, Tools};
pub(crate) use regexes::pattern;

use crate::{dialect::Dialect, error::EvalError, value::Val};

const ALL: &[&[Function]] = &[
    convert::FUNCTIONS,
    formats::FUNCTIONS,
    lists::FUNCTIONS,
    net::FUNCTIONS,
    optionals::FUNCTIONS,
    quantity::FUNCTIONS,
    regexes::FUNCTIONS,
    semvers::FUNCTIONS,
    sets::FUNCTIONS,
    strings::FUNCTIONS,
    time::FUNCTIONS,
    url::FUNCTIONS,
];

/// In the order of the keys, which are of one type; what has the same key stays in the order that it is in.
pub(crate) fn sorted<'v, T>(
    name: &'static str,
    tools: &mut Tools,
    keyed: Vec<(Val<'v>, T)>,
) -> Result<Vec<(Val<'v>, T)>, EvalError> {
    let mut call = CallContext {
        name,
        pattern: None,
        site: 0,
        tools,
    };
    lists::sorted_alike(&mut call, keyed)
}

/// The functions of a dialect. Of two with one name, the first counts.
fn all(dialect: Dialect) -> impl Iterator<Item = &'static Function> {
    let own = match dialect {
        Dialect::Kubernetes => &[],
        Dialect::Kyverno => kyverno::ALL,
    };
    own.iter().chain(ALL).flat_map(|some| some.iter())
}

/// Returns the function with this name; `method` tells a method from a plain function.
pub(crate) fn find(name: &str, method: bool, dialect: Dialect) -> Option<&'static Function> {
    all(dialect).find(|function| function.name == name && function.method == method)
}

/// Every function's name in a dialect, with `x.` before that of a method, in order.
pub fn names(dialect: Dialect) -> Vec<String> {
    let mut names: Vec<_> = all(dialect)
        .map(|function| match function.method {
            true => format!("x.{}", function.name),
            false => function.name.to_owned(),
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests;
