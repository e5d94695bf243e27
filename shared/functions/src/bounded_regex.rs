//! Regular expressions whose work is charged by what it costs.
//!
//! The author of an expression and the sender of a text are not trusted, and a search takes time in proportion to both.
//! So nothing here is free: reading an expression is charged by its length and its classes, compiling by the size of
//! the result, and a search by the text.
//!
//! A search runs on an automaton that is made as the text needs it, and costs some nanoseconds a byte. Where that
//! automaton would grow beyond [`AUTOMATON_BYTES_MAX`], all states are followed side by side instead, which costs as much
//! for each byte *and* state, and is charged before it begins. Steps are those of [`meter`](crate::meter).

pub(crate) mod go_syntax;
mod parse;

use std::ops::Range;

use regex_automata::{
    Anchored, Input, MatchKind,
    hybrid::{dfa::DFA, regex as automaton},
    nfa::thompson::{self, NFA, WhichCaptures, pikevm},
    util::{captures::Captures, iter::Searcher, pool::Pool},
};
use regex_syntax::hir::Hir;

use crate::meter::BYTES_PER_STEP;
pub use parse::parse;

/// The most bytes of an expression's text.
pub const PATTERN_BYTES_MAX: usize = 8 * 1024;

/// The most bytes of an automaton, in each of the two directions.
const AUTOMATON_BYTES_MAX: usize = 64 * 1024;

/// Bytes that the automaton grows by in a step.
const GROWTH_PER_STEP: usize = 4;

/// The pairs of a byte and a state that are gone through in a step.
const STATES_PER_STEP: usize = 4;

/// The most bytes of what is kept for the groups of all states. An expression with more has no groups.
const GROUPS_BYTES_MAX: usize = 1024 * 1024;

/// A size of compiled expressions, and the steps that it takes to compile one of them.
#[derive(Clone, Copy)]
struct Size {
    bytes_max: usize,
    steps: usize,
}

/// The sizes, in the order in which they are tried. An expression that is larger is an error.
const SIZES: [Size; 2] = [
    Size {
        bytes_max: 64 * 1024,
        steps: 20_000,
    },
    Size {
        bytes_max: 1024 * 1024,
        steps: 200_000,
    },
];

/// The reason why a text is no expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The text is longer than [`PATTERN_BYTES_MAX`].
    #[error("the expression has more than {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// The compiled expression is too large.
    #[error("the expression takes more than {} bytes when it is compiled", SIZES[1].bytes_max)]
    TooLarge,
    /// The syntax is wrong.
    #[error("{0}")]
    Syntax(String),
}

/// An expression is not compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError<E> {
    /// `charge` refused the work.
    TooCostly(E),
    /// The text is no expression.
    Invalid(PatternError),
}

/// A compiled expression.
#[derive(Debug)]
pub struct BoundedRegex {
    automaton: automaton::Regex,
    /// Follows all states side by side, and knows the groups.
    states: pikevm::PikeVM,
    states_count: usize,
    /// The groups that the text has, the whole match left out.
    groups: usize,
    has_groups: bool,
    caches: Pool<Caches, fn() -> Caches>,
}

/// The memory of searches. Each thread that searches at the same time has one.
#[derive(Debug, Default)]
struct Caches {
    automaton: Option<automaton::Cache>,
    states: Option<pikevm::Cache>,
}

impl BoundedRegex {
    /// Compiles an expression in Go's syntax. `charge` takes the steps before the work is done.
    ///
    /// # Errors
    /// The text is no expression, or `charge` refuses the work.
    pub fn compile<E>(
        text: &str,
        mut charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Self, CompileError<E>> {
        let translated = go_syntax::translate(text).map_err(CompileError::Invalid)?;
        let parsed = parse(&translated, &mut charge)?;
        for size in SIZES {
            charge(size.steps).map_err(CompileError::TooCostly)?;
            match Self::build(&parsed, size.bytes_max, AUTOMATON_BYTES_MAX) {
                Err(PatternError::TooLarge) => {}
                built => return built.map_err(CompileError::Invalid),
            }
        }
        Err(CompileError::Invalid(PatternError::TooLarge))
    }

    fn build(
        parsed: &Hir,
        bytes_max: usize,
        automaton_bytes_max: usize,
    ) -> Result<Self, PatternError> {
        let groups = parsed.properties().explicit_captures_len();
        let config = NFA::config().nfa_size_limit(Some(bytes_max));
        let captures = |which| compiled(parsed, config.clone().which_captures(which));
        let slots = 2 * (groups + 1) * size_of::<usize>();
        let mut forward = captures(WhichCaptures::Implicit)?;
        let has_groups = forward.states().len().saturating_mul(slots) <= GROUPS_BYTES_MAX;
        if has_groups && groups > 0 {
            forward = captures(WhichCaptures::All)?;
        }
        let backward = config.clone().which_captures(WhichCaptures::None);
        let reverse = compiled(parsed, backward.reverse(true))?;
        let config = DFA::config()
            .cache_capacity(automaton_bytes_max)
            // An expression whose automaton has no room for the first states needs more.
            .skip_cache_capacity_check(true)
            // The search ends once the automaton is full.
            .minimum_cache_clear_count(Some(0))
            .unicode_word_boundary(true);
        let dfa = |config, nfa: &NFA| {
            let built = DFA::builder().configure(config).build_from_nfa(nfa.clone());
            built.map_err(|error| PatternError::Syntax(error.to_string()))
        };
        let backward = config.clone().match_kind(MatchKind::All);
        let automaton = automaton::Builder::new()
            .build_from_dfas(dfa(config, &forward)?, dfa(backward, &reverse)?);
        let states_count = forward.states().len();
        let states = pikevm::PikeVM::new_from_nfa(forward);
        Ok(Self {
            automaton,
            states: states.map_err(|error| PatternError::Syntax(error.to_string()))?,
            states_count,
            groups,
            has_groups,
            caches: Pool::new(Caches::default),
        })
    }

    /// The number of groups, the whole match left out.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The bytes of the compiled expression.
    pub fn bytes(&self) -> usize {
        self.states.get_nfa().memory_usage()
    }

    /// Returns whether the text has a match.
    ///
    /// # Errors
    /// `charge` refuses the work.
    pub fn is_match<E>(
        &self,
        text: &str,
        mut charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<bool, E> {
        let found = self.search(&Input::new(text).earliest(true), &mut charge)?;
        Ok(found.is_some())
    }

    /// Returns the first match.
    ///
    /// # Errors
    /// `charge` refuses the work.
    pub fn find<E>(
        &self,
        text: &str,
        mut charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        self.search(&Input::new(text), &mut charge)
    }

    /// The matches of a text, which do not overlap.
    pub fn matches<'r, 't>(&'r self, text: &'t str) -> Matches<'r, 't> {
        Matches {
            regex: self,
            searcher: Searcher::new(Input::new(text)),
        }
    }

    /// Returns the groups of a match that was found; `None`: the expression has too many for its size.
    ///
    /// # Errors
    /// `charge` refuses the work.
    pub fn captures<E>(
        &self,
        text: &str,
        found: Range<usize>,
        mut charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Captures>, E> {
        if !self.has_groups {
            return Ok(None);
        }
        let input = Input::new(text).range(found).anchored(Anchored::Yes);
        self.charge_states(&input, &mut charge)?;
        let mut captures = self.states.create_captures();
        let mut caches = self.caches.get();
        let cache = caches
            .states
            .get_or_insert_with(|| self.states.create_cache());
        self.states.search(cache, &input, &mut captures);
        Ok(Some(captures))
    }

    fn search<E>(
        &self,
        input: &Input<'_>,
        charge: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        charge(input.get_span().len() / BYTES_PER_STEP)?;
        let mut caches = self.caches.get();
        let cache = &mut caches.automaton;
        let cache = cache.get_or_insert_with(|| self.automaton.create_cache());
        let before = cache.memory_usage();
        let found = match input.get_earliest() {
            // Where the match begins is of no interest.
            true => {
                let (forward, cache) = (self.automaton.forward(), cache.as_parts_mut().0);
                let end = forward.try_search_fwd(cache, input);
                end.map(|end| end.map(|end| end.offset()..end.offset()))
            }
            false => {
                let found = self.automaton.try_search(cache, input);
                found.map(|found| found.map(|found| found.range()))
            }
        };
        charge(cache.memory_usage().saturating_sub(before) / GROWTH_PER_STEP)?;
        if let Ok(found) = found {
            return Ok(found);
        }
        self.charge_states(input, charge)?;
        let cache = caches
            .states
            .get_or_insert_with(|| self.states.create_cache());
        let mut slots = [None; 2];
        let found = self.states.search_slots(cache, input, &mut slots);
        let [start, end] = slots.map(|slot| slot.map_or(0, |at| at.get()));
        Ok(found.map(|_| start..end))
    }

    fn charge_states<E>(
        &self,
        input: &Input<'_>,
        charge: &mut impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let pairs = (input.get_span().len() + 1).saturating_mul(self.states_count);
        charge(pairs / STATES_PER_STEP)
    }
}

fn compiled(parsed: &Hir, config: thompson::Config) -> Result<NFA, PatternError> {
    let compiled = NFA::compiler().configure(config).build_from_hir(parsed);
    compiled.map_err(|error| match error.size_limit() {
        Some(_) => PatternError::TooLarge,
        None => PatternError::Syntax(error.to_string()),
    })
}

/// The matches of a text. See [`BoundedRegex::matches`].
#[derive(Debug)]
pub struct Matches<'r, 't> {
    regex: &'r BoundedRegex,
    searcher: Searcher<'t>,
}

impl Matches<'_, '_> {
    /// Returns the next match. Each search may look through all of the rest of the text, and is charged so.
    ///
    /// # Errors
    /// `charge` refuses the work.
    pub fn next<E>(
        &mut self,
        mut charge: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<Option<Range<usize>>, E> {
        let mut refused = None;
        let found = self.searcher.advance(|input| {
            let found = self.regex.search(input, &mut charge);
            let found = found.unwrap_or_else(|error| {
                refused = Some(error);
                None
            });
            Ok(found.map(|range| regex_automata::Match::must(0, range)))
        });
        match refused {
            Some(error) => Err(error),
            None => Ok(found.map(|found| found.range())),
        }
    }
}

#[cfg(test)]
mod tests;
