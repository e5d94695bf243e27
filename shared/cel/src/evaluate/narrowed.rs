//! Macros over those elements alone that can matter: see [`crate::narrow`].

use anteroom_jmespath::Scalar;

use super::{Machine, transform::Range};
use crate::{
    EvalError,
    ast::{Expr, Macro},
    narrow::{Matching, Narrow, Operand, Probe},
    objects::Candidates,
    probes::Probes,
    value::{List, Val, no_overload, scalar_of},
};

/// Elements of a collection for each of which other elements are looked up: with more, all are looked at.
const OVER_MAX: usize = 4_096;

impl<'v> Machine<'v> {
    /// The range without elements that an index leaves out; as it is, where none can tell.
    pub(super) fn narrowed(
        &mut self,
        made: &'v Macro,
        range: Range<'v>,
    ) -> Result<Range<'v>, EvalError> {
        let Range::Elements(List::Objects(objects)) = &range else {
            return Ok(range);
        };
        let Some(access) = made.access(self.locals.len()) else {
            return Ok(range);
        };
        let Some(probes) = self.probes(made.deciding(), &access.narrow)? else {
            return Ok(range);
        };
        Ok(match objects.find(&probes) {
            Some(found) => Range::Found(found),
            None => range,
        })
    }

    /// Evaluates what is looked for. `None`: something of it cannot be looked up.
    ///
    /// An error here is a limit's. Any other is the evaluation's to find.
    fn probes(
        &mut self,
        body: &'v Expr,
        narrow: &'v Narrow,
    ) -> Result<Option<Probes<'v>>, EvalError> {
        Ok(match narrow {
            Narrow::Probe(probe) => self.values(body, probe)?.map(|values| Probes::One {
                key: &probe.key,
                values,
            }),
            Narrow::Any(parts) => {
                let mut all = Vec::with_capacity(parts.len());
                for part in parts {
                    let Some(probes) = self.probes(body, part)? else {
                        return Ok(None);
                    };
                    all.push(probes);
                }
                Some(Probes::Any(all))
            }
            Narrow::All(ways) => {
                let mut all = Vec::with_capacity(ways.len());
                for way in ways {
                    all.extend(self.probes(body, way)?);
                }
                (!all.is_empty()).then_some(Probes::All(all))
            }
            Narrow::Over {
                range,
                place,
                inner,
            } => self.probes_over(body, range, *place, inner)?,
        })
    }

    fn probes_over(
        &mut self,
        body: &'v Expr,
        range: &'v Operand,
        place: usize,
        inner: &'v Narrow,
    ) -> Result<Option<Probes<'v>>, EvalError> {
        let elements = match self.operand(body, range)? {
            Some(Val::List(List::Objects(_))) => None,
            Some(Val::List(list)) => Some(list),
            Some(Val::Map(map)) => Some(List::Own(map.keys().into())),
            _ => None,
        };
        let Some(elements) = elements.filter(|elements| elements.len() <= OVER_MAX) else {
            return Ok(None);
        };
        let around = self.locals.len();
        let mut all = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            self.locals.resize(place, Val::Null);
            self.locals.push(element);
            let probes = self.probes(body, inner);
            self.locals.truncate(around);
            match probes? {
                Some(probes) => all.push(probes),
                None => return Ok(None),
            }
        }
        Ok(Some(Probes::Any(all)))
    }

    /// The values that a probe looks for; `None`: an operand cannot be looked up in an index.
    fn values(
        &mut self,
        body: &'v Expr,
        probe: &'v Probe,
    ) -> Result<Option<Vec<Scalar>>, EvalError> {
        let Some(value) = self.operand(body, &probe.operand)? else {
            return Ok(None);
        };
        let scalars = match (probe.matching, value) {
            (Matching::Equal, Val::Double(value)) if value.is_nan() => Some(Vec::new()),
            (Matching::Equal, value) => scalar_of(&value).map(|value| vec![value]),
            (Matching::OptionalEqual, Val::Optional(Some(value))) => {
                scalar_of(&value).map(|value| vec![value])
            }
            (Matching::Among, Val::List(list)) if !matches!(list, List::Objects(_)) => {
                self.tools.budget.elements(list.len())?;
                list.iter().map(|value| scalar_of(&value)).collect()
            }
            (Matching::Among, Val::Map(map)) => {
                self.tools.budget.elements(map.len())?;
                map.keys().iter().map(scalar_of).collect()
            }
            _ => None,
        };
        Ok(scalars)
    }

    /// Evaluates a subexpression of a body, without the elements that the body is about.
    fn operand(
        &mut self,
        body: &'v Expr,
        operand: &'v Operand,
    ) -> Result<Option<Val<'v>>, EvalError> {
        let Some(expr) = body.at(&operand.path) else {
            return Ok(None);
        };
        let around = self.locals.len();
        self.locals.resize(operand.depth, Val::Null);
        let value = self.eval(expr);
        self.locals.truncate(around);
        match value {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.is_budget() => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Returns whether the body is `decides` for any of these.
    ///
    /// What is irregular cannot decide: it is looked at for the first error alone.
    pub(super) fn any_found(
        &mut self,
        made: &'v Macro,
        candidates: &dyn Candidates<'v>,
        decides: bool,
    ) -> Result<Val<'v>, EvalError> {
        let (mut failed, mut at) = (None, 0);
        while let Some(element) = candidates.matching(at) {
            match self.decision(made, Val::of_node(element))? {
                Ok(value) if value == decides => return Ok(Val::Bool(decides)),
                Ok(_) => {}
                Err(error) => failed = failed.or(Some((at, error))),
            }
            at += 1;
        }
        let before = failed.as_ref().map(|(at, _)| *at);
        for element in candidates.irregular(before) {
            match self.decision(made, Val::of_node(element))? {
                Ok(value) if value == decides => return Ok(Val::Bool(decides)),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        match failed {
            Some((_, error)) => Err(error),
            None => Ok(Val::Bool(!decides)),
        }
    }

    /// Evaluates the body on an element. The outer error is a limit's.
    fn decision(
        &mut self,
        made: &'v Macro,
        element: Val<'v>,
    ) -> Result<Result<bool, EvalError>, EvalError> {
        match self.of_element(&made.body, (element, None)) {
            Ok(Val::Bool(value)) => Ok(Ok(value)),
            Ok(other) => Ok(Err(no_overload("_&&_", &[other]))),
            Err(error) if error.is_budget() => Err(error),
            Err(error) => Ok(Err(error)),
        }
    }
}
