//! The spellings of a kind in a policy.

use std::fmt;

use anteroom_functions::wildcard;

use crate::ir::AdmissionRequest;

/// A kind to match, each part with wildcards: `Pod`, `v1/Pod`, `networking.k8s.io/v1/Ingress`,
/// `Pod/exec`, `*/scale`, `*/*`.
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
        }
    }

    /// Returns whether it matches a kind that the API server serves. `group` is empty for the core group,
    /// `subresource` for the resource itself.
    pub fn covers(&self, group: &str, version: &str, kind: &str, subresource: &str) -> bool {
        // What is said of Pods themselves is said of their ephemeral containers too.
        let of_pod = self.subresource.is_empty()
            && (group, version, kind, subresource) == ("", "v1", "Pod", "ephemeralcontainers");
        self.covers_any_subresource(group, version, kind)
            && (wildcard::matches(&self.subresource, subresource) || of_pod)
    }

    /// Returns whether it matches a kind, or a subresource that carries objects of that kind.
    pub(crate) fn covers_any_subresource(&self, group: &str, version: &str, kind: &str) -> bool {
        wildcard::matches(&self.group, group)
            && wildcard::matches(&self.version, version)
            && wildcard::matches(&self.kind, kind)
    }

    pub(super) fn matches(&self, request: &AdmissionRequest) -> bool {
        self.covers(
            request.group(),
            request.version(),
            request.kind(),
            request.subresource(),
        )
    }
}

impl fmt::Display for KindPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.version, self.kind)?;
        if !self.subresource.is_empty() {
            write!(f, "/{}", self.subresource)?;
        }
        Ok(())
    }
}

/// `*`, `v1`, `v2beta1`: one digit each, which tells a version from a kind in two-part spellings.
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
            KindPattern::parse(pattern)
                .unwrap()
                .covers(group, version, kind, sub)
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
}
