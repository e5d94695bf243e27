//! Finds the keys by which objects make a difference to an expression's value. Pure.
//!
//! A walk down the tree, from the document on. JMESPath has no way back to the document from inside an
//! expression. So the list of objects is reached only through subexpressions that are evaluated on the document itself.
//! Projections, filters and `[]` turn each object of the list into a run of elements, independently of the other
//! objects (see [`stream`]). So the walk follows this stream until a subexpression uses it whole. The objects that
//! matter match an indexed filter or have the requested member. Without such a filter or member, every object matters.
//!
//! An object that no probe finds must make no difference. The filter leaves the object out of the result. The object
//! raises no error either: every subexpression that is evaluated on it before that filter is part of the key, or cannot
//! fail. An object whose key fails is a candidate in every query.

mod dependence;
mod document;
mod inner;
mod labels;
mod missing_value;
mod probe;
mod stream;

use anteroom_jmespath::Expression;

use crate::Key;

pub(crate) use dependence::{VOLATILE, are_empty_lists, standing_in};
use document::Search;
pub use labels::selected;

/// The most probes of an expression. An expression with more has its objects scanned.
const PROBES_MAX: usize = 16;

/// The document that an expression is evaluated on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document<'d> {
    /// An object whose field `items` is the list; and that holds the same once more under the plural,
    /// if one is given.
    List {
        /// The other name.
        plural: Option<&'d str>,
    },
    /// The list itself.
    Array,
}

/// Finds the objects that make a difference to an expression's value.
#[derive(Clone, Debug, PartialEq)]
pub enum Narrow {
    /// Objects that a probe finds.
    Probe(Probe),
    /// The objects that any of these lookups finds. Without any lookup, no object makes a difference.
    Any(Vec<Narrow>),
    /// The objects that any of the lookups finds. A single lookup is enough, since each finds all objects that
    /// matter.
    All(Vec<Narrow>),
}

/// Objects that have something at a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The key of each object.
    pub key: Key,
    /// The condition under which a key agrees with the operand.
    pub matching: Matching,
    /// The value that the key has to agree with.
    pub operand: Operand,
    /// One object for each looked-up value is enough: the expression only asks whether any exists.
    pub once: bool,
    /// The list that an object contributes to this request, if its key may find more objects than the expression does.
    /// An object that stands for all others must contribute the value that is looked up.
    pub check: Option<Expression>,
}

/// The condition under which a key agrees with an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Matching {
    /// A value of the object equals the operand by `==`.
    Equal,
    /// A value of the object equals an element of the operand, which is a list.
    Among,
    /// A value of the object and the operand, or an element of the operand, are alike as texts: with wildcards in either,
    /// as in conditions of policies.
    Alike,
    /// [`Alike`](Self::Alike) for an operand that is no list.
    AlikeOne,
    /// The key's entry is an entry of the operand, which is an object. An empty operand always agrees.
    AmongEntries,
    /// The key has all entries of the operand, which is an object. The index looks up one of these entries.
    HasEntries,
}

/// The value that a key is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// The parameter of this name, without the dollar sign.
    Parameter(String),
    /// A literal.
    Literal(serde_json::Value),
}

/// The reason why all objects have to be scanned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The part of the expression that needs all objects.
    pub part: String,
    /// The reason why the part needs all objects.
    pub why: NoIndexReason,
}

/// A reason why a part of an expression needs all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIndexReason {
    /// The expression uses the whole document, with the list in it.
    Document,
    /// The expression uses the whole list, or a value of all its objects.
    Whole,
    /// A filter's condition is none that an index can answer.
    Condition,
    /// The subexpression takes places of the list, which depend on the objects before.
    Places,
    /// The expression asks for more than [`PROBES_MAX`] things.
    Probes,
}

impl Narrow {
    /// All probes in it.
    pub fn probes(&self) -> Vec<&Probe> {
        match self {
            Self::Probe(probe) => vec![probe],
            Self::Any(parts) | Self::All(parts) => {
                parts.iter().flat_map(|part| part.probes()).collect()
            }
        }
    }

    fn asks_parameters(&self) -> bool {
        let asks = |probe: &&Probe| matches!(probe.operand, Operand::Parameter(_));
        self.probes().iter().any(asks)
    }

    /// Combines several lookups; a single lookup stays as it is.
    fn all(mut ways: Vec<Self>) -> Option<Self> {
        ways.dedup();
        // Most objects may have what a policy names itself: that is for want of anything else.
        if ways.iter().any(Self::asks_parameters) {
            ways.retain(Self::asks_parameters);
        }
        match ways.len() {
            0 => None,
            1 => ways.pop(),
            _ => Some(Self::All(ways)),
        }
    }
}

/// Returns probes that find, together, every object that can make a difference to the expression's
/// value.
///
/// # Errors
/// All objects have to be looked through, and why.
pub fn narrow(expression: &Expression, document: Document<'_>) -> Result<Narrow, Scan> {
    let mut search = Search::new(expression.ast(), document);
    search.run()?;
    let narrow = match &mut search.found[..] {
        [only] => only.clone(),
        _ => Narrow::Any(search.found),
    };
    match narrow.probes().len() <= PROBES_MAX {
        true => Ok(narrow),
        false => Err(Scan {
            part: expression.to_string(),
            why: NoIndexReason::Probes,
        }),
    }
}

#[cfg(test)]
mod tests;
