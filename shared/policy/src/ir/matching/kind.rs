//! The spellings of a kind in a policy.

use std::fmt;

use anteroom_functions::wildcard;
use anteroom_model::KindRecord;

use crate::ir::AdmissionRequest;

/// Subresources that change the containers of a Pod: a rule on Pods is one on these too, since users would get around it
/// otherwise. Kyverno 1.18 does so for the first alone.
pub const POD_SUBRESOURCES: [&str; 2] = ["ephemeralcontainers", "resize"];

/// A kind that the API server serves, or that a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedKind<'a> {
    /// Empty for the core group.
    pub group: &'a str,
    /// The version, as in `v1`.
    pub version: &'a str,
    /// The kind, as in `Ingress`.
    pub kind: &'a str,
    /// The plural, as in `ingresses`; empty if it is unknown.
    pub resource: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
}

impl<'a> ServedKind<'a> {
    /// Returns a kind of the API server's discovery, or a subresource of that kind.
    pub fn of(record: &'a KindRecord, subresource: &'a str) -> Self {
        Self {
            group: &record.gvr.group,
            version: &record.gvr.version,
            kind: &record.kind,
            resource: &record.gvr.resource,
            subresource,
        }
    }
}

/// A kind to match, each part with wildcards: `Pod`, `v1/Pod`, `networking.k8s.io/v1/Ingress`,
/// `Pod/exec`, `*/scale`, `*/*`. Policies of policies.kyverno.io name its plural instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPattern {
    /// `*` where the policy names none.
    pub group: String,
    /// `*` where the policy names none.
    pub version: String,
    /// The kind, as in `Ingress`.
    pub kind: String,
    /// Empty: the resource itself.
    pub subresource: String,
    /// The resource by its plural, as a webhook configuration names it; the kind is `*` then.
    pub resource: Option<ResourcePattern>,
}

/// A resource by its plural.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourcePattern {
    /// The plural, or `*`.
    pub plural: String,
    /// Objects in other versions are meant too (`matchPolicy: Equivalent`): the API server sends them in the version
    /// that is registered, if there is only one.
    pub is_equivalent: bool,
}

impl KindPattern {
    /// Every kind, without subresources.
    pub fn any() -> Self {
        Self::new("*", "*", "*", "")
    }

    /// From a policy's spelling; `None` if it has more parts than a kind has.
    pub fn parse(text: &str) -> Option<Self> {
        // `Pod.exec` is an older spelling of `Pod/exec`.
        let (head, last) = match text.rsplit_once('/') {
            Some((head, last)) => (Some(head), last),
            None => (None, text),
        };
        let parts: Vec<&str> = head
            .into_iter()
            .flat_map(|head| head.split('/'))
            .chain(last.split('.'))
            .collect();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        Some(match *parts {
            [kind] => Self::new("*", "*", kind, ""),
            ["*", "*"] => Self::new("*", "*", "*", "*"),
            ["*", subresource] if !subresource.contains(char::is_uppercase) => {
                Self::new("*", "*", "*", subresource)
            }
            [version, kind] if is_version(version) => Self::new("*", version, kind, ""),
            [kind, subresource] => Self::new("*", "*", kind, subresource),
            [version, kind, subresource] if is_version(version) => {
                Self::new("*", version, kind, subresource)
            }
            [group, version, kind] => Self::new(group, version, kind, ""),
            [group, version, kind, subresource] => Self::new(group, version, kind, subresource),
            _ => return None,
        })
    }

    fn new(group: &str, version: &str, kind: &str, subresource: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            subresource: subresource.to_owned(),
            resource: None,
        }
    }

    /// A resource as the rule of a webhook configuration names it: `pods`, `pods/exec`, `*`, `*/scale`, `*/*`.
    pub fn of_resource(group: &str, version: &str, resource: &str, is_equivalent: bool) -> Self {
        let (plural, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        Self {
            resource: Some(ResourcePattern {
                plural: plural.to_owned(),
                is_equivalent,
            }),
            ..Self::new(group, version, "*", subresource)
        }
    }

    /// Returns whether it matches a kind that the API server serves.
    pub fn covers(&self, served: ServedKind<'_>) -> bool {
        match &self.resource {
            Some(resource) if resource.is_equivalent => self.covers_but_version(served),
            _ => self.is_called_for(served),
        }
    }

    /// Returns whether the pattern matches a kind in the kind's own version. The webhook is called for that version,
    /// and the API server converts objects to it.
    pub fn is_called_for(&self, served: ServedKind<'_>) -> bool {
        wildcard::matches(&self.version, served.version) && self.covers_but_version(served)
    }

    fn covers_but_version(&self, served: ServedKind<'_>) -> bool {
        let ServedKind {
            group,
            version,
            kind,
            resource,
            subresource,
        } = served;
        // What is said of Pods themselves is said of what changes their containers too.
        let of_pod = self.resource.is_none()
            && self.subresource.is_empty()
            && (group, version, kind) == ("", "v1", "Pod")
            && POD_SUBRESOURCES.contains(&subresource);
        wildcard::matches(&self.group, group)
            && wildcard::matches(&self.kind, kind)
            && self.is_of_resource(resource)
            && (wildcard::matches(&self.subresource, subresource) || of_pod)
    }

    fn is_of_resource(&self, resource: &str) -> bool {
        let plural = self.resource.as_ref().map(|resource| &*resource.plural);
        plural.is_none_or(|plural| plural == "*" || plural == resource)
    }

    /// Returns whether it matches a kind, or a subresource that carries objects of that kind.
    pub(crate) fn covers_any_subresource(&self, served: ServedKind<'_>) -> bool {
        let ServedKind {
            group,
            version,
            kind,
            resource,
            subresource: _,
        } = served;
        let is_equivalent = self.resource.as_ref().is_some_and(|own| own.is_equivalent);
        wildcard::matches(&self.group, group)
            && (is_equivalent || wildcard::matches(&self.version, version))
            && wildcard::matches(&self.kind, kind)
            && self.is_of_resource(resource)
    }

    pub(super) fn matches(&self, request: &AdmissionRequest) -> bool {
        // Every kind of every rule is asked, and most do not look at the plural.
        let resource = self.resource.as_ref().map_or("", |_| request.resource());
        self.covers(request.served_kind_as(resource))
    }
}

impl fmt::Display for KindPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self
            .resource
            .as_ref()
            .map_or(&self.kind, |resource| &resource.plural);
        write!(f, "{}/{}/{kind}", self.group, self.version)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        Ok(())
    }
}

/// Returns whether a text is a version: `*`, `v1`, `v2beta1`. One digit each distinguishes a version from a kind in
/// two-part spellings.
fn is_version(text: &str) -> bool {
    if text == "*" {
        return true;
    }
    let Some(rest) = text.strip_prefix('v') else {
        return false;
    };
    let digit = |text: &str| text.len() == 1 && text.as_bytes()[0].is_ascii_digit();
    if digit(rest) {
        return true;
    }
    ["alpha", "beta"].iter().any(|stage| {
        rest.split_once(stage)
            .is_some_and(|(major, minor)| digit(major) && digit(minor))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_kind_pattern_is_parsed() {
        for (text, parts) in [
            ("Pod", "*/*/Pod"),
            ("v1/Pod", "*/v1/Pod"),
            (
                "v2beta1/HorizontalPodAutoscaler",
                "*/v2beta1/HorizontalPodAutoscaler",
            ),
            ("*/Pod", "*/*/Pod"),
            ("Pod/exec", "*/*/Pod/exec"),
            ("Pod.exec", "*/*/Pod/exec"),
            ("*/scale", "*/*/*/scale"),
            ("*/*", "*/*/*/*"),
            ("v1/Pod/eviction", "*/v1/Pod/eviction"),
            // A version of two digits is none, where a kind may stand.
            ("v10/Pod", "*/*/v10/Pod"),
            ("v1beta10/Pod", "*/*/v1beta10/Pod"),
            (
                "networking.k8s.io/v1/Ingress",
                "networking.k8s.io/v1/Ingress",
            ),
            ("apps/*/Deploy*", "apps/*/Deploy*"),
            ("apps/v1/Deployment/scale", "apps/v1/Deployment/scale"),
        ] {
            assert_eq!(
                KindPattern::parse(text).unwrap().to_string(),
                parts,
                "{text}"
            );
        }
        for text in ["", "/Pod", "a/b/c/d/e", "Pod/", "v1//Pod"] {
            assert_eq!(KindPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_kind_pattern_covers_a_subresource_only_when_it_names_it() {
        let covers = |pattern: &str, group: &str, version: &str, kind: &str, sub: &str| {
            KindPattern::parse(pattern).unwrap().covers(ServedKind {
                group,
                version,
                kind,
                resource: "",
                subresource: sub,
            })
        };
        assert!(covers("Pod", "", "v1", "Pod", ""));
        assert!(!covers("Pod", "", "v1", "Pod", "exec"));
        for pattern in [
            "Pod",
            "v1/Pod",
            "*",
            "Pod/*",
            "*/*",
            "*/ephemeralcontainers",
        ] {
            assert!(
                covers(pattern, "", "v1", "Pod", "ephemeralcontainers"),
                "{pattern}"
            );
        }
        for pattern in ["Pod/exec", "*/scale", "Service"] {
            assert!(
                !covers(pattern, "", "v1", "Pod", "ephemeralcontainers"),
                "{pattern}"
            );
        }
        assert!(covers("Pod", "", "v1", "Pod", "resize"));
        assert!(!covers("Pod/exec", "", "v1", "Pod", "resize"));
        assert!(covers("Pod/exec", "", "v1", "Pod", "exec"));
        assert!(covers("*/scale", "apps", "v1", "Deployment", "scale"));
        assert!(covers("*/*", "apps", "v1", "Deployment", "status"));
        assert!(!covers("*", "apps", "v1", "Deployment", "status"));
        assert!(covers(
            "networking.k8s.io/*/Ingress",
            "networking.k8s.io",
            "v1",
            "Ingress",
            ""
        ));
        assert!(!covers(
            "extensions/*/Ingress",
            "networking.k8s.io",
            "v1",
            "Ingress",
            ""
        ));
    }

    #[test]
    fn a_subresource_carries_objects_of_a_kind_only_where_the_rest_fits() {
        let covers = |group: &str, version: &str, plural: &str| {
            let pattern = KindPattern::of_resource(group, version, plural, false);
            pattern.covers_any_subresource(ServedKind {
                group: "apps",
                version: "v1",
                kind: "Deployment",
                resource: "deployments",
                subresource: "",
            })
        };
        assert!(covers("apps", "v1", "deployments/scale"));
        assert!(!covers("batch", "v1", "deployments/scale"));
        assert!(!covers("apps", "v2", "deployments/scale"));
        assert!(!covers("apps", "v1", "jobs/scale"));
    }

    #[test]
    fn a_resource_is_covered_as_a_webhooks_rule_does() {
        let served = |version, resource, subresource| ServedKind {
            group: "",
            version,
            kind: "Pod",
            resource,
            subresource,
        };
        let exact = |resource| KindPattern::of_resource("", "v1", resource, false);
        for (rule, resource, subresource, expected) in [
            ("pods", "pods", "", true),
            ("pods", "pods", "ephemeralcontainers", false),
            ("pods/exec", "pods", "exec", true),
            ("pods/*", "pods", "exec", true),
            ("*", "pods", "", true),
            ("*", "pods", "exec", false),
            ("*/*", "pods", "exec", true),
            ("services", "pods", "", false),
        ] {
            let found = exact(rule).covers(served("v1", resource, subresource));
            assert_eq!(found, expected, "{rule} {resource}/{subresource}");
        }
        assert!(!exact("pods").covers(served("v2", "pods", "")));
        let equivalent = KindPattern::of_resource("", "v1", "pods", true);
        assert!(equivalent.covers(served("v2", "pods", "")));
        assert!(!equivalent.is_called_for(served("v2", "pods", "")));
    }
}
