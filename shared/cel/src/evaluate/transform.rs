//! Ranges of macros, and the macros that make maps or sort.

use std::slice;

use anteroom_wire::body::BodyNode;

use super::{
    Machine,
    fact::{complete, known},
};
use crate::{
    Budget, EvalError,
    ast::{Macro, MacroKind},
    functions,
    objects::Candidates,
    value::{Iter, List, Map, Val, no_overload, same_key},
};

/// The values of a macro's variables for one element.
pub(super) type Bindings<'v> = (Val<'v>, Option<Val<'v>>);

/// The collection that a macro iterates over.
pub(super) enum Range<'v> {
    Elements(List<'v>),
    /// Places or keys, and what is there.
    Pairs(Vec<(Val<'v>, Val<'v>)>),
    /// The objects of a list that can matter.
    Found(Box<dyn Candidates<'v> + 'v>),
}

impl<'v> Range<'v> {
    pub(super) fn of(made: &Macro, value: Val<'v>, budget: &mut Budget) -> Result<Self, EvalError> {
        match (value, made.is_of_pairs) {
            (Val::List(elements), false) => Ok(Self::Elements(elements)),
            (Val::List(elements), true) => {
                budget.elements(2 * elements.len())?;
                let all = elements.iter().enumerate();
                Ok(Self::Pairs(
                    all.map(|(at, value)| (Val::Int(at as i64), value))
                        .collect(),
                ))
            }
            (Val::Map(entries), false) if made.kind != MacroKind::SortBy => {
                budget.elements(entries.len())?;
                Ok(Self::Elements(List::Own(entries.keys().into())))
            }
            (Val::Map(entries), true) => {
                budget.elements(2 * entries.len())?;
                Ok(Self::Pairs(entries.entries()))
            }
            (other, _) => Err(no_overload(name(made), &[other])),
        }
    }

    pub(super) fn iter(&self) -> RangeElements<'_, 'v> {
        match self {
            Self::Elements(elements) => RangeElements::Single(elements.iter()),
            Self::Pairs(pairs) => RangeElements::Pairs(pairs.iter()),
            Self::Found(candidates) => RangeElements::Found(candidates.all()),
        }
    }
}

/// The elements of a range.
pub(super) enum RangeElements<'r, 'v> {
    Single(Iter<'r, 'v>),
    Pairs(slice::Iter<'r, (Val<'v>, Val<'v>)>),
    Found(Box<dyn Iterator<Item = BodyNode<'v>> + 'r>),
}

impl<'v> Iterator for RangeElements<'_, 'v> {
    type Item = Bindings<'v>;

    #[inline]
    fn next(&mut self) -> Option<Bindings<'v>> {
        match self {
            Self::Single(elements) => Some((elements.next()?, None)),
            Self::Pairs(pairs) => {
                let (key, value) = pairs.next()?;
                Some((key.clone(), Some(value.clone())))
            }
            Self::Found(objects) => Some((Val::of_node(objects.next()?), None)),
        }
    }
}

fn name(made: &Macro) -> &'static str {
    match made.kind {
        MacroKind::All => "all",
        MacroKind::Exists => "exists",
        MacroKind::ExistsOne => "exists_one",
        MacroKind::SortBy => "sortBy",
        MacroKind::TransformMap => "transformMap",
        MacroKind::TransformMapEntry => "transformMapEntry",
        _ if made.is_of_pairs => "transformList",
        _ => "map",
    }
}

impl<'v> Machine<'v> {
    /// `transformMap` and `transformMapEntry`
    pub(super) fn transform(
        &mut self,
        made: &'v Macro,
        range: &Range<'v>,
    ) -> Result<Val<'v>, EvalError> {
        let mut entries: Vec<(Val<'v>, Val<'v>)> = Vec::new();
        let mut lacks = false;
        for element in range.iter() {
            if known(self.passes(made, &element), &mut lacks)? != Some(true) {
                continue;
            }
            let key = element.0.clone();
            let Some(value) = known(self.of_element(&made.body, element), &mut lacks)? else {
                continue;
            };
            match (made.kind, value) {
                (MacroKind::TransformMap, value) => {
                    self.tools.budget.elements(2)?;
                    entries.push((key, value));
                }
                (_, Val::Map(own)) => {
                    self.tools.budget.elements(2 * own.len())?;
                    for (key, value) in own.entries() {
                        self.tools.budget.steps(entries.len() as u64 / 8)?;
                        if entries.iter().any(|(known, _)| same_key(known, &key)) {
                            return Err(EvalError::refused(
                                "transformMapEntry() makes a key twice",
                            ));
                        }
                        entries.push((key, value));
                    }
                }
                (_, other) => return Err(no_overload(name(made), &[other])),
            }
        }
        complete(lacks)?;
        Ok(Val::Map(Map::Own(entries.into())))
    }

    pub(super) fn sort_by(
        &mut self,
        made: &'v Macro,
        range: &Range<'v>,
    ) -> Result<Val<'v>, EvalError> {
        let (mut keyed, mut lacks) = (Vec::new(), false);
        for element in range.iter() {
            self.tools.budget.elements(2)?;
            let value = element.0.clone();
            let key = known(self.of_element(&made.body, element), &mut lacks)?;
            keyed.extend(key.map(|key| (key, value)));
        }
        complete(lacks)?;
        let sorted = functions::sorted(name(made), &mut self.tools, keyed)?;
        Ok(Val::list(
            sorted.into_iter().map(|(_, value)| value).collect(),
        ))
    }
}
