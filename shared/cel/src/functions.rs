//! The functions, each by its name and by how it is called.

mod convert;
mod format;
mod formats;
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

use regex::Regex;

pub(crate) use formats::Format;
pub(crate) use net::Cidr;
pub(crate) use quantity::Quantity;
pub(crate) use regexes::pattern;
pub(crate) use url::Url;

use crate::{Budget, EvalError, compile::Kind, value::Val};

/// What comes of a call.
pub(crate) type Answer<'v> = Result<Val<'v>, EvalError>;

/// A function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function {
    pub(crate) name: &'static str,
    /// Called as `x.name()`, rather than as `name(x)`.
    method: bool,
    /// How many arguments it takes, at least and at most; what it is called on is the first.
    pub(crate) arguments: (usize, usize),
    /// What the first may be; empty: anything.
    pub(crate) of: &'static [Kind],
    pub(crate) result: Kind,
    /// The second argument is a regular expression.
    pub(crate) takes_pattern: bool,
    pub(crate) run: for<'v> fn(&mut Given<'_>, &[Val<'v>]) -> Answer<'v>,
}

/// What a function works with.
pub(crate) struct Given<'t> {
    pub(crate) name: &'static str,
    /// Of a pattern that is written out.
    pub(crate) pattern: Option<&'t Regex>,
    pub(crate) tools: &'t mut Tools,
}

/// What all functions of an evaluation share.
pub(crate) struct Tools {
    pub(crate) budget: Budget,
    /// The last pattern that was made for an object, and its text.
    made: Option<(String, Regex)>,
}

impl Tools {
    pub(crate) fn new(budget: Budget) -> Self {
        Self { budget, made: None }
    }
}

impl Given<'_> {
    pub(crate) fn budget(&mut self) -> &mut Budget {
        &mut self.tools.budget
    }

    /// That it is not for these arguments.
    pub(crate) fn mismatch<'v>(&self, arguments: &[Val<'_>]) -> Answer<'v> {
        Err(EvalError::overload(self.name, arguments))
    }
}

type Run = for<'v> fn(&mut Given<'_>, &[Val<'v>]) -> Answer<'v>;

/// `x.name(…)`
const fn method(
    name: &'static str,
    arguments: (usize, usize),
    of: &'static [Kind],
    result: Kind,
    run: Run,
) -> Function {
    Function {
        name,
        method: true,
        arguments,
        of,
        result,
        takes_pattern: false,
        run,
    }
}

/// `name(…)`
const fn global(
    name: &'static str,
    arguments: (usize, usize),
    of: &'static [Kind],
    result: Kind,
    run: Run,
) -> Function {
    Function {
        method: false,
        ..method(name, arguments, of, result, run)
    }
}

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

/// In the order of the keys; what has the same key stays in the order that it is in.
pub(crate) fn sorted<'v, T>(
    name: &'static str,
    tools: &mut Tools,
    keyed: Vec<(Val<'v>, T)>,
) -> Result<Vec<(Val<'v>, T)>, EvalError> {
    let mut given = Given {
        name,
        pattern: None,
        tools,
    };
    lists::sorted(&mut given, keyed)
}

/// The function of this name that is called so.
pub(crate) fn find(name: &str, method: bool) -> Option<&'static Function> {
    let mut all = ALL.iter().flat_map(|some| some.iter());
    all.find(|function| function.name == name && function.method == method)
}

/// Every function's name, with `x.` before that of a method, in order.
pub fn names() -> Vec<String> {
    let all = ALL.iter().flat_map(|some| some.iter());
    let mut names: Vec<_> = all
        .map(|function| match function.method {
            true => format!("x.{}", function.name),
            false => function.name.to_owned(),
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
