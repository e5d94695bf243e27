//! Requests that no policy is asked about, whatever the policies say: of some resources, and of some users.

use std::sync::Arc;

use anteroom_engine::incoming::KindName;
use anteroom_functions::wildcard;
use anteroom_policy::{Filtered, ResourceFilters};

use crate::{args::Args, review::Review};

/// The requests that no policy decides on. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exempt(Arc<ExemptRules>);

#[derive(Debug, Default)]
struct ExemptRules {
    filters: ResourceFilters,
    users: Patterns,
    groups: Patterns,
}

/// Names with wildcards.
#[derive(Debug, Default)]
struct Patterns {
    exempt: Vec<String>,
    /// The patterns that begin with `!`: a name that matches one is not exempt, even if another pattern matches.
    asked: Vec<String>,
}

/// The reason why no policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExemptBy {
    /// A resource filter.
    Resource,
    /// The user, or one of the user's groups.
    User,
}

impl ExemptBy {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Resource => "resource",
            Self::User => "user",
        }
    }
}

impl Exempt {
    /// Built from the options.
    pub(crate) fn new(args: &Args) -> Self {
        Self(Arc::new(ExemptRules {
            filters: args.filters.resource_filters.clone(),
            users: Patterns::new(&args.exempt_users),
            groups: Patterns::new(&args.exempt_groups),
        }))
    }

    /// Returns the reason why no policy decides on a request, if there is one. `kind` is that of the
    /// resource, also where a subresource is accessed.
    pub(crate) fn by(&self, kind: KindName<'_>, review: &Review<'_>) -> Option<ExemptBy> {
        let ExemptRules {
            filters,
            users,
            groups,
        } = &*self.0;
        let head = &review.head;
        let subject = Filtered {
            group: kind.group,
            version: kind.version,
            kind: kind.kind,
            subresource: &head.sub_resource,
            namespace: &head.namespace,
            name: &head.name,
        };
        if filters.filter(&subject) {
            return Some(ExemptBy::Resource);
        }
        if users.exempt.is_empty() && groups.exempt.is_empty() {
            return None; // The user is not read in this case.
        }
        let user = review.user()?;
        let name = [&*user.username];
        let is_asked = users.asks(&name) || groups.asks(&user.groups);
        let is_exempt = users.exempts(&name) || groups.exempts(&user.groups);
        (is_exempt && !is_asked).then_some(ExemptBy::User)
    }
}

impl Patterns {
    fn new(given: &[String]) -> Self {
        let mut patterns = Self::default();
        for pattern in given {
            let pattern = pattern.trim();
            let (list, pattern) = match pattern.strip_prefix('!') {
                Some(asked) => (&mut patterns.asked, asked.trim_start()),
                None => (&mut patterns.exempt, pattern),
            };
            if !pattern.is_empty() {
                list.push(pattern.to_owned());
            }
        }
        patterns
    }

    fn exempts<S: AsRef<str>>(&self, names: &[S]) -> bool {
        any(&self.exempt, names)
    }

    fn asks<S: AsRef<str>>(&self, names: &[S]) -> bool {
        any(&self.asked, names)
    }
}

fn any<S: AsRef<str>>(patterns: &[String], names: &[S]) -> bool {
    let matches = |name: &S| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| wildcard::matches(pattern, name.as_ref()))
    };
    names.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::*;

    #[derive(clap::Parser)]
    struct ParsedArgs {
        #[command(flatten)]
        args: Args,
    }

    fn exempt(given: &[&str], user: &Value) -> Option<ExemptBy> {
        let args = ParsedArgs::parse_from(["webhook"].iter().chain(given)).args;
        let body = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": { "uid": "u", "operation": "CREATE", "namespace": "shop", "name": "p",
                "kind": { "group": "", "version": "v1", "kind": "Pod" },
                "object": {}, "userInfo": user } });
        let body = body.to_string();
        let review = Review::parse(body.as_bytes()).unwrap();
        let kind = KindName {
            group: "",
            version: "v1",
            kind: "Pod",
        };
        Exempt::new(&args).by(kind, &review)
    }

    #[test]
    fn users_and_groups_are_exempt_by_their_names() {
        let node = json!({ "username": "system:node:n", "groups": ["system:nodes", "system:all"] });
        let ann = json!({ "username": "ann", "groups": ["dev"] });
        let (no, by_user) = (None, Some(ExemptBy::User));
        for (given, user, expected) in [
            (&[][..], &node, no),
            (&["--exempt-groups=system:nodes"], &node, by_user),
            (&["--exempt-groups=system:nodes"], &ann, no),
            (&["--exempt-groups=a, system:n*"], &node, by_user),
            (&["--exempt-groups=system:node"], &node, no),
            (&["--exempt-users=system:node:?"], &node, by_user),
            (&["--exempt-users=system:nodes"], &node, no),
            (&["--exempt-users=a,ann"], &ann, by_user),
            (&["--exempt-users=*,!ann"], &node, by_user),
            (&["--exempt-users=*,!ann"], &ann, no),
            (&["--exempt-users=*, ! ann"], &ann, no),
            // A user whom either list includes is not exempt.
            (&["--exempt-users=*", "--exempt-groups=!dev"], &ann, no),
            (&["--exempt-users=!ann", "--exempt-groups=*"], &ann, no),
            (&["--exempt-users=!bob", "--exempt-groups=*"], &ann, by_user),
            (&["--exempt-users=", "--exempt-groups=!"], &ann, no),
        ] {
            assert_eq!(exempt(given, user), expected, "{given:?} {user}");
        }
    }

    /// A request without a readable user is never exempt by its user.
    #[test]
    fn a_request_without_a_readable_user_is_not_exempt() {
        for user in [
            json!(null),
            json!("ann"),
            json!({ "username": 5 }),
            json!({ "groups": "a" }),
        ] {
            assert_eq!(
                exempt(&["--exempt-users=?*", "--exempt-groups=?*"], &user),
                None
            );
        }
        let unnamed = json!({ "groups": [] });
        assert_eq!(exempt(&["--exempt-users=?*"], &unnamed), None);
    }

    #[test]
    fn a_filtered_resource_is_exempt_for_every_user() {
        let of = |filters: &str| exempt(&[filters], &json!({ "username": "ann" }));
        let by_resource = Some(ExemptBy::Resource);
        assert_eq!(of("--resource-filters=[Pod,shop,p]"), by_resource);
        assert_eq!(of("--resource-filters=[Pod,shop,q]"), None);
        assert_eq!(of("--resource-filters="), None);
    }

    #[test]
    fn a_malformed_resource_filter_is_refused_with_its_position() {
        let error = ParsedArgs::try_parse_from(["webhook", "--resource-filters=[Event,*,*] Node"]);
        let error = error
            .map(|alone| alone.args.filters)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("AR701: at character 13: `N` is outside"),
            "{error}"
        );
    }
}
