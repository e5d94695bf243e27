//! The two forms in which rules select requests. Pure.

use super::{
    Constraints, Filter, KindPattern, Lacking, Match, Matched, RegisteredKinds, Surroundings,
};
use crate::ir::{AdmissionRequest, Operation, Phase};

/// The requests that a rule matches.
#[derive(Debug)]
pub(crate) enum Matches {
    /// `match` and `exclude` of kyverno.io.
    Filters(Match),
    /// `matchConstraints` of policies.kyverno.io.
    Constraints(Constraints),
    /// Every request: of an exception of policies.kyverno.io, whose conditions alone select.
    All,
}

impl Matches {
    /// Returns whether the rule matches the request, as far as `known` decides that.
    pub(crate) fn matches(&self, request: &AdmissionRequest, known: &Surroundings) -> Matched {
        match self {
            Self::Filters(matches) => matches.matches(request, known),
            Self::Constraints(constraints) => constraints.matches(request, known),
            Self::All => Matched::Yes,
        }
    }

    /// Returns the facts about the request that it needs and that are not known.
    pub(crate) fn lacks(&self, request: &AdmissionRequest, known: &Surroundings) -> Lacking {
        match self {
            Self::Filters(matches) => matches.lacks(request, known),
            Self::Constraints(constraints) => constraints.lacks(request, known),
            Self::All => Lacking::default(),
        }
    }

    /// Returns whether it selects by the labels of namespaces.
    pub(crate) fn asks_labels(&self) -> bool {
        match self {
            Self::Filters(matches) => matches.asks_labels(),
            Self::Constraints(constraints) => constraints.asks_labels(),
            Self::All => false,
        }
    }

    /// Returns whether it selects by roles.
    pub(crate) fn asks_roles(&self) -> bool {
        match self {
            Self::Filters(matches) => matches.asks_roles(),
            Self::Constraints(_) | Self::All => false,
        }
    }

    /// Returns whether the inclusions of the rule, not its exclusions, select by the labels of namespaces and by
    /// roles.
    pub(crate) fn includes_by(&self) -> (bool, bool) {
        match self {
            Self::Filters(matches) => {
                let include = &matches.include;
                (include.asks_labels(), include.asks_roles())
            }
            Self::Constraints(constraints) => (constraints.asks_labels(), false),
            Self::All => (false, false),
        }
    }

    /// Returns whether it selects by users.
    pub(crate) fn asks_users(&self) -> bool {
        self.filters().any(|filter| !filter.users.is_empty())
    }

    /// Returns whether a deletion is named.
    pub(crate) fn names_deletion(&self) -> bool {
        let is_deletion = |operations: &[Operation]| operations.contains(&Operation::Delete);
        match self {
            Self::Filters(matches) => {
                let mut filters = matches.included().iter();
                filters.any(|filter| is_deletion(&filter.operations))
            }
            Self::Constraints(constraints) => {
                let mut rules = constraints.include.iter();
                rules.any(|rule| is_deletion(&rule.operations))
            }
            Self::All => true,
        }
    }

    /// The kinds that it includes.
    pub(crate) fn kinds(&self) -> Box<dyn Iterator<Item = &KindPattern> + '_> {
        match self {
            Self::Filters(matches) => {
                let filters = matches.included().iter();
                Box::new(filters.flat_map(|filter| &filter.kinds))
            }
            Self::Constraints(constraints) => Box::new(constraints.kinds()),
            Self::All => Box::new(std::iter::empty()),
        }
    }

    /// Returns the kinds and operations to register for.
    pub(crate) fn registered_kinds(
        &self,
        phase: Phase,
    ) -> Box<dyn Iterator<Item = RegisteredKinds> + '_> {
        match self {
            Self::Filters(matches) => Box::new(matches.registered_kinds(phase)),
            Self::Constraints(constraints) => Box::new(constraints.registered_kinds(phase)),
            Self::All => Box::new(std::iter::empty()),
        }
    }

    /// The filters, of either side, of rules that have them.
    fn filters(&self) -> impl Iterator<Item = &Filter> {
        let matches = match self {
            Self::Filters(matches) => Some(matches),
            Self::Constraints(_) | Self::All => None,
        };
        matches.into_iter().flat_map(Match::filters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::matching::{Filters, ResourceRule, Selector, Users};

    fn of(include: Filter, exclude: Filter) -> Matches {
        Matches::Filters(Match {
            include: Filters::Any(vec![include]),
            exclude: Some(Filters::Any(vec![exclude])),
            kinds_alone: Vec::new(),
            spares: false,
        })
    }

    #[test]
    fn an_exclusion_is_nothing_that_a_rule_includes_by() {
        let by_labels = || Filter {
            namespace_selector: Some(Selector::default()),
            ..Filter::default()
        };
        let by_roles = || Filter {
            users: Users {
                roles: vec!["ns:r".to_owned()],
                ..Users::default()
            },
            ..Filter::default()
        };
        assert_eq!(of(by_labels(), by_roles()).includes_by(), (true, false));
        assert_eq!(of(by_roles(), by_labels()).includes_by(), (false, true));
    }

    #[test]
    fn a_deletion_is_named_only_by_what_includes_it() {
        let on = |operations: &[Operation]| Filter {
            operations: operations.to_vec(),
            ..Filter::default()
        };
        let (create, delete) = (Operation::Create, Operation::Delete);
        assert!(of(on(&[create, delete]), on(&[])).names_deletion());
        assert!(!of(on(&[]), on(&[delete])).names_deletion());
        let constraints = |operation| {
            Matches::Constraints(Constraints {
                include: vec![ResourceRule {
                    kinds: vec![KindPattern::any()],
                    operations: vec![operation],
                    names: Vec::new(),
                    in_namespace: None,
                }],
                ..Constraints::default()
            })
        };
        assert!(constraints(delete).names_deletion());
        assert!(!constraints(create).names_deletion());
    }
}
