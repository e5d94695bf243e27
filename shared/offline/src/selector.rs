//! The choice of a suite's rows that are run.

use anteroom_functions::wildcard;
use thiserror::Error;

use crate::suite::{Expected, Suite};

/// The reason why a selector is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no selector: write policy=NAME,rule=NAME,resource=NAME, each with `*` and `?`, or less"
)]
pub struct SelectorError(String);

/// A choice of rows: each part with wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    policy: String,
    rule: String,
    resource: String,
}

impl Default for Selector {
    fn default() -> Self {
        let any = || "*".to_owned();
        Self {
            policy: any(),
            rule: any(),
            resource: any(),
        }
    }
}

impl std::str::FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let mut selector = Self::default();
        for part in text.split(',') {
            let none = || SelectorError(text.to_owned());
            let (name, pattern) = part.split_once('=').ok_or_else(none)?;
            let place = match name.trim() {
                "policy" => &mut selector.policy,
                "rule" => &mut selector.rule,
                "resource" => &mut selector.resource,
                _ => return Err(none()),
            };
            pattern.trim().clone_into(place);
        }
        Ok(selector)
    }
}

impl Selector {
    /// Leaves only what is selected in a suite; whether that is anything.
    pub fn narrow(&self, suite: &mut Suite) -> bool {
        suite
            .file
            .results
            .retain_mut(|expected| self.keep(expected));
        !suite.file.results.is_empty()
    }

    fn keep(&self, expected: &mut Expected) -> bool {
        if !wildcard::matches(&self.policy, &expected.policy)
            || !wildcard::matches(&self.rule, &expected.rule)
        {
            return false;
        }
        let mut names = std::mem::take(&mut expected.resources);
        names.extend(expected.resource.take());
        let specs = &mut expected.resource_specs;
        if names.is_empty() && specs.is_empty() {
            return self.resource == "*";
        }
        names.retain(|name| wildcard::matches(&self.resource, name));
        specs.retain(|spec| wildcard::matches(&self.resource, &spec.name));
        expected.resources = names;
        !expected.resources.is_empty() || !expected.resource_specs.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(resources: &[&str]) -> Expected {
        Expected {
            policy: "p".to_owned(),
            rule: "r".to_owned(),
            resources: resources.iter().map(|name| (*name).to_owned()).collect(),
            ..Expected::default()
        }
    }

    #[test]
    fn rows_are_selected_by_each_part() {
        for (selector, kept) in [
            ("policy=*,rule=*,resource=*", Some(&["a1", "b1"][..])),
            ("policy=p", Some(&["a1", "b1"])),
            ("resource=a?, rule=r", Some(&["a1"])),
            ("resource=c", None),
            ("policy=q", None),
            ("rule=s", None),
        ] {
            let mut row = expected(&["a1", "b1"]);
            let selector: Selector = selector.parse().unwrap();
            let is_kept = selector.keep(&mut row);
            assert_eq!(
                is_kept.then_some(&*row.resources),
                kept.map(|kept| {
                    kept.iter()
                        .map(|name| (*name).to_owned())
                        .collect::<Vec<_>>()
                })
                .as_deref(),
                "{selector:?}"
            );
        }
        assert!("policy".parse::<Selector>().is_err());
        assert!("kind=Pod".parse::<Selector>().is_err());
    }
}
