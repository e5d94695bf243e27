//! The resources that the API server serves, and the lookup of an entry's names among them.
//!
//! Pure, but for [`fetch`]. A group whose server does not answer is remembered as such and takes
//! nothing from the others.

pub(crate) mod fetch;
pub(crate) mod follow;
mod loss;
mod parse;

use anteroom_model::{Failure, GroupVersionResource, KindRecord, source_reason};
use anteroom_policy::{KindPattern, ServedKind};

pub(crate) use parse::{DiscoveryDocument, parse_aggregated};

/// A resource of one group version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServedResource {
    /// The record that the other services read.
    pub record: KindRecord,
    /// The singular, as in `ingress`; may be empty.
    pub singular: String,
}

/// A group version that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    /// Empty for the core group.
    pub group: String,
    /// Empty where the whole group does not answer.
    pub version: String,
    /// The answer that came instead.
    pub problem: String,
}

/// Everything that the API server serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServedResources {
    /// The resources in the API server's order of preference: the core group first, then group by group, and in each
    /// the preferred version first.
    pub resources: Vec<ServedResource>,
    /// Groups that could not be asked.
    pub broken: Vec<Broken>,
}

/// A resource as an entry asks for it, in its own words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResourceQuery<'a> {
    /// See [`crate::source::api::ResourceSource::group`].
    pub group: Option<&'a str>,
    /// See [`crate::source::api::ResourceSource::version`].
    pub version: Option<&'a str>,
    /// The plural, or the kind.
    pub kind: &'a str,
}

/// The reason why names do not mean exactly one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// The words name no resource until the entry or the API server changes.
    Invalid(Failure),
    /// The API group that may serve it does not answer.
    Unknown(Failure),
}

impl ServedResources {
    /// Returns the one resource that these names mean.
    ///
    /// # Errors
    /// [`Unresolved`], with a message for the person who wrote the entry.
    pub(crate) fn resolve(&self, wanted: ResourceQuery<'_>) -> Result<&ServedResource, Unresolved> {
        let scope = GroupVersionFilter::parse(wanted).map_err(Unresolved::Invalid)?;
        let by_plural = |r: &ServedResource| r.record.gvr.resource == wanted.kind;
        let by_kind =
            |r: &ServedResource| r.record.kind == wanted.kind || r.singular == wanted.kind;
        let mut found = self.first_of_each_group(&scope, by_plural);
        if found.is_empty() {
            found = self.first_of_each_group(&scope, by_kind);
        }
        let resource = match found.as_slice() {
            [] => return Err(self.absent(&scope, wanted)),
            [one] => *one,
            // Only with the group left out can there be several: the core group comes first.
            [first, ..] if first.record.gvr.group.is_empty() => *first,
            several => return Err(Unresolved::Invalid(ambiguous(wanted, several))),
        };
        if resource.record.watchable {
            Ok(resource)
        } else {
            Err(Unresolved::Invalid(Failure::new(
                source_reason::NOT_WATCHABLE,
                format!(
                    "the API server serves `{}` but it cannot be listed and watched",
                    resource.record.gvr
                ),
            )))
        }
    }

    /// Returns whether there is a resource or a subresource of this kind.
    pub(crate) fn serves(&self, kind: &KindPattern) -> bool {
        self.resources.iter().any(|ServedResource { record, .. }| {
            let subresources = record.subresources.iter().map(String::as_str);
            let mut parts = subresources.chain([""]);
            parts.any(|part| kind.covers(ServedKind::of(record, part)))
        })
    }

    /// Takes over the earlier kinds of groups that do not answer now.
    pub(crate) fn carry_over(&mut self, before: &Self) {
        for broken in &self.broken {
            let silent = |r: &ServedResource| {
                r.record.gvr.group == broken.group
                    && (broken.version.is_empty() || r.record.gvr.version == broken.version)
            };
            if !self.resources.iter().any(silent) {
                let known = before.resources.iter().filter(|r| silent(r)).cloned();
                self.resources.extend(known.collect::<Vec<_>>());
            }
        }
    }

    /// Returns the most preferred version with a match, for every group in scope.
    fn first_of_each_group(
        &self,
        scope: &GroupVersionFilter,
        matches: impl Fn(&ServedResource) -> bool,
    ) -> Vec<&ServedResource> {
        let mut found: Vec<&ServedResource> = Vec::new();
        for resource in self
            .resources
            .iter()
            .filter(|r| scope.covers(&r.record.gvr))
        {
            let group = &resource.record.gvr.group;
            let known = found.iter().any(|other| other.record.gvr.group == *group);
            if !known && matches(resource) {
                found.push(resource);
            }
        }
        found
    }

    fn absent(&self, scope: &GroupVersionFilter, wanted: ResourceQuery<'_>) -> Unresolved {
        let silent = self.broken.iter().find(|broken| {
            scope
                .group
                .as_ref()
                .is_none_or(|group| *group == broken.group)
                && (broken.version.is_empty()
                    || scope
                        .version
                        .as_ref()
                        .is_none_or(|version| *version == broken.version))
        });
        match silent {
            // With the group left out, any silent group may be the one; a named group that answers
            // is believed.
            Some(broken) => Unresolved::Unknown(Failure::new(
                source_reason::GROUP_UNAVAILABLE,
                format!(
                    "no `{}` is known, and the API group `{}` does not answer: {}. \
                     Check its APIService; it is asked again",
                    wanted.kind, broken.group, broken.problem
                ),
            )),
            None => Unresolved::Invalid(Failure::new(
                source_reason::RESOURCE_NOT_FOUND,
                format!(
                    "the API server serves no `{}`{}: check the spelling (the plural, in lower \
                     case), or install its CustomResourceDefinition; the entry then becomes ready \
                     by itself",
                    wanted.kind,
                    scope.describe()
                ),
            )),
        }
    }
}

fn ambiguous(wanted: ResourceQuery<'_>, candidates: &[&ServedResource]) -> Failure {
    let names: Vec<_> = candidates
        .iter()
        .map(|r| format!("`{}`", r.record.gvr.group))
        .collect();
    Failure::new(
        source_reason::AMBIGUOUS_RESOURCE,
        format!(
            "`{}` is served by more than one API group: set `group` to one of {}",
            wanted.kind,
            names.join(", ")
        ),
    )
}

/// Group and version as they were meant; `None`: any.
#[derive(Debug, PartialEq, Eq)]
struct GroupVersionFilter {
    group: Option<String>,
    version: Option<String>,
}

impl GroupVersionFilter {
    /// `networking.k8s.io`, `apis/networking.k8s.io` and `apis/networking.k8s.io/v1` are one group;
    /// so are the empty text, `core`, `api` and `api/v1`.
    fn parse(wanted: ResourceQuery<'_>) -> Result<Self, Failure> {
        let mut version = wanted
            .version
            .map(str::trim)
            .filter(|v| !v.is_empty())
            .map(str::to_owned);
        let Some(group) = wanted.group else {
            return Ok(Self {
                group: None,
                version,
            });
        };
        let mut parts = group.trim().trim_matches('/').split('/').map(str::trim);
        let mut name = parts.next().unwrap_or_default();
        if name == "apis" {
            name = parts.next().unwrap_or_default();
        }
        let core = matches!(name, "" | "core" | "api");
        let in_group = parts.next();
        let too_long = parts.next().is_some();
        match (in_group, &version) {
            (Some(spelled), Some(version)) if spelled != version => {
                return Err(spec_invalid(format!(
                    "`group` says version `{spelled}` and `version` says `{version}`"
                )));
            }
            (Some(spelled), _) => version = Some(spelled.to_owned()),
            (None, _) => {}
        }
        if too_long {
            return Err(spec_invalid(format!(
                "`group` is `{group}`: expected a group, as in `networking.k8s.io`"
            )));
        }
        let group = if core { String::new() } else { name.to_owned() };
        Ok(Self {
            group: Some(group),
            version,
        })
    }

    fn covers(&self, gvr: &GroupVersionResource) -> bool {
        self.group.as_ref().is_none_or(|group| *group == gvr.group)
            && self
                .version
                .as_ref()
                .is_none_or(|version| *version == gvr.version)
    }

    fn describe(&self) -> String {
        let group = self.group.as_ref().map(|group| match group.as_str() {
            "" => " in the core API group".to_owned(),
            group => format!(" in the API group `{group}`"),
        });
        let version = self
            .version
            .as_ref()
            .map(|version| format!(" at version `{version}`"));
        group.unwrap_or_default() + &version.unwrap_or_default()
    }
}

/// A failure of the entry's own spec.
pub(crate) fn spec_invalid(message: impl Into<String>) -> Failure {
    Failure::new("InvalidSpec", message)
}

#[cfg(test)]
mod tests;
