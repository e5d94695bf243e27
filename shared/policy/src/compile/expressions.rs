//! Checks of an expression before a request comes: that its functions exist, and that the
//! variables it starts from do.

use std::collections::BTreeSet;

use anteroom_functions::{functions, meter};

use crate::ir::{cost, problem::Problems, template::Prepared};

/// The variables that every rule has.
const GIVEN: &[&str] = &[
    "images",
    "request",
    "serviceAccountName",
    "serviceAccountNamespace",
];

/// The variables that a `foreach` gives. No entry may have these names, wherever it stands.
const ELEMENT: &[&str] = &["element", "elementIndex"];

/// The variables that Kyverno has in some places alone. An entry of the context may have the name of the last
/// two.
const LATER: &[&str] = &["element", "elementIndex", "image", "target"];

/// The names that an expression may start from, at one place of a rule.
#[derive(Clone, Default)]
pub(super) struct RootNames {
    defined: BTreeSet<String>,
    /// The names of all entries, for those that are used before they are defined.
    of_context: BTreeSet<String>,
    /// Whatever else is named may be there.
    is_open: bool,
}

impl RootNames {
    /// Adds the names of all entries of a context; none of the entries is defined yet.
    pub(super) fn with_context<'a>(mut self, names: impl Iterator<Item = &'a str>) -> Self {
        self.of_context.extend(names.map(str::to_owned));
        self
    }

    /// Returns the names of a place that several rules may lend their context to: any may be there.
    pub(super) fn open() -> Self {
        Self {
            is_open: true,
            ..Self::default()
        }
    }

    /// Returns the names for a place within, which further names are defined for. `None`: compiling takes too many steps.
    pub(super) fn within(&self, problems: &mut Problems) -> Option<Self> {
        let names = self.defined.len() + self.of_context.len();
        let is_within_limit = meter::charge(1 + names as u64);
        if !is_within_limit {
            problems.invalid("spec", cost::OVER_LIMIT);
        }
        is_within_limit.then(|| self.clone())
    }

    pub(super) fn define(&mut self, name: &str) {
        self.defined.insert(name.to_owned());
    }

    /// Returns whether an entry must not have the name.
    pub(super) fn is_reserved(name: &str) -> bool {
        GIVEN.contains(&name) || ELEMENT.contains(&name)
    }

    /// Functions and variables of an expression that is about the context.
    pub(super) fn check(&self, path: &str, prepared: &Prepared, problems: &mut Problems) {
        check_functions(path, prepared, problems);
        self.check_root(path, prepared, problems);
    }

    pub(super) fn check_root(&self, path: &str, prepared: &Prepared, problems: &mut Problems) {
        if self.is_open {
            return;
        }
        let ast = prepared.expression().ast();
        let fields = ast.root_fields();
        let is_known = |name: &str| GIVEN.contains(&name) || self.defined.contains(name);
        // As in Kyverno, which looks for one thing that may be known: `request.object.a || none`, where a
        // text was meant. What is not known is missing then, as any key may be.
        let is_computed = !ast.functions().is_empty() || prepared.source().contains('@');
        let may_be_meant = is_computed || fields.iter().any(|name| is_known(name));
        for name in fields {
            if is_known(name) {
                continue;
            }
            // Messages quote the expression and the names, so those that nobody gets are not made.
            if problems.is_full() {
                return;
            }
            let source = prepared.source();
            if LATER.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit())) {
                let message =
                    format!("`{source}`: the variable `{name}` is not known to this version");
                problems.unsupported(path, message);
            } else if self.of_context.contains(name) {
                let message =
                    format!("`{source}`: the context entry `{name}` must stand before its use");
                problems.invalid(path, message);
            } else if !may_be_meant {
                let message = format!(
                    "`{source}`: there is no variable `{name}`; there are {}",
                    self.list()
                );
                problems.invalid(path, message);
            }
        }
    }

    fn list(&self) -> String {
        let given = GIVEN.iter().copied();
        let names: Vec<_> = given
            .chain(self.defined.iter().map(String::as_str))
            .collect();
        names.join(", ")
    }
}

/// Checks that every function exists, and has as many arguments as it takes.
pub(super) fn check_functions(path: &str, prepared: &Prepared, problems: &mut Problems) {
    if let Err(error) = prepared.expression().check(functions()) {
        problems.invalid(path, format!("`{}`: {error}", prepared.source()));
    }
}
