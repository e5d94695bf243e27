//! Permissions that an administrator gives: the readers of Secrets, the policies that change existing objects, and
//! the calls of policies that views may answer.

use std::str::FromStr;

use anteroom_model::{EntryKind, EntryRecord, EntryState, ErrorCode, Failure, ObjectKey};
use anteroom_policy::{CALLS, CALLS_DECLARED, CALLS_OFF, PolicyKind, Reference};

use crate::coordinator::resolve::Resolution;

/// The policies' calls of the API server that are answered from views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum CacheApiCalls {
    /// No call: all are read live, even those that declare `cache: true`.
    Off,
    /// Calls that declare `cache: true`. Further calls are read live.
    Declared,
    /// All calls that a view can answer as the API server does.
    #[default]
    Auto,
}

impl CacheApiCalls {
    /// Returns whether a view is kept for this reference. A `configMap` is no call.
    pub(crate) fn keeps(self, reference: &Reference) -> bool {
        let config_map = match reference {
            Reference::LabelledConfigMaps => true,
            Reference::Object(object) => object.group.is_empty() && object.resource == "configmaps",
            Reference::Collection(_) => false,
        };
        match self {
            Self::Auto => true,
            Self::Declared => config_map || reference.is_declared(),
            Self::Off => config_map || reference.is_inline(),
        }
    }

    /// Returns a record that tells readers about the choice; `None`: no record is needed. Readers need it,
    /// because a view may exist for a call and yet not answer this call: something else needs the view.
    pub(crate) fn record(self) -> Option<EntryRecord> {
        let (reason, message) = match self {
            Self::Auto => return None,
            Self::Declared => (
                CALLS_DECLARED,
                "only calls that declare `cache: true` are answered from views",
            ),
            Self::Off => (CALLS_OFF, "no call is answered from a view"),
        };
        let failure = Failure::new(reason, message);
        Some(EntryRecord {
            kind: EntryKind::Implicit,
            name: CALLS.to_owned(),
            uid: String::new(),
            generation: 0,
            state: EntryState::Invalid { failure },
            projections: Vec::new(),
        })
    }
}

/// Entries or policies: a resource, a namespace for those that have one, and a name, each with `*` for any run of
/// characters, as in `clusterpolicy/*` or `policy/team-a/check-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NamePattern {
    kind: String,
    /// The pattern of names, without the kind.
    pattern: String,
}

/// Kinds of entries that a pattern may name, with how many parts follow.
const ENTRIES: [(&str, usize); 2] = [("cachedcontextentry", 1), ("globalcontextentry", 1)];

/// Kinds of policies, likewise.
const POLICIES: [(&str, usize); 6] = [
    ("clusterpolicy", 1),
    ("policy", 2),
    ("validatingpolicy", 1),
    ("namespacedvalidatingpolicy", 2),
    ("mutatingpolicy", 1),
    ("namespacedmutatingpolicy", 2),
];

/// The forms in which they are written, for people.
const POLICIES_FORMS: &str = "clusterpolicy/NAME, policy/NAMESPACE/NAME, validatingpolicy/NAME, \
    namespacedvalidatingpolicy/NAMESPACE/NAME, mutatingpolicy/NAME and namespacedmutatingpolicy/NAMESPACE/NAME";

impl NamePattern {
    /// Parses `text`; `None` unless it names one of the kinds, with all parts.
    fn parse(text: &str, kinds: &[(&str, usize)]) -> Option<Self> {
        let (kind, pattern) = text.trim().split_once('/')?;
        let parts = pattern.split('/').count();
        let is_whole = kinds.contains(&(kind, parts)) && !pattern.split('/').any(str::is_empty);
        is_whole.then(|| Self {
            kind: kind.to_owned(),
            pattern: pattern.to_owned(),
        })
    }

    fn is(&self, kind: &str, name: &str) -> bool {
        self.kind == kind && matches(&self.pattern, name)
    }

    /// Returns whether the pattern includes a policy, by its key among the policies of all kinds.
    fn is_policy(&self, key: &ObjectKey) -> bool {
        let (kind, name) = PolicyKind::of_key(key);
        let kind = kind.as_str().to_ascii_lowercase();
        match &*key.namespace {
            "" => self.is(&kind, name),
            namespace => self.is(&kind, &format!("{namespace}/{name}")),
        }
    }
}

/// Entries or policies that may read Secrets, as in `clusterpolicy/*` or `policy/team-a/check-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretsReader(NamePattern);

impl FromStr for SecretsReader {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let kinds = [&ENTRIES[..], &POLICIES[..]].concat();
        NamePattern::parse(text, &kinds).map(Self).ok_or_else(|| {
            format!(
                "`{text}` is none of cachedcontextentry/NAME, globalcontextentry/NAME, {POLICIES_FORMS}"
            )
        })
    }
}

/// Policies that may change existing objects, as in `clusterpolicy/*` or `policy/team-a/label-*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWriter(NamePattern);

impl FromStr for PolicyWriter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let pattern = NamePattern::parse(text, &POLICIES);
        pattern
            .map(Self)
            .ok_or_else(|| format!("`{text}` is none of {POLICIES_FORMS}"))
    }
}

/// All who may change existing objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyWriters(pub Vec<PolicyWriter>);

impl PolicyWriters {
    /// Returns whether the policy with this key may write.
    pub(crate) fn allows(&self, policy: &ObjectKey) -> bool {
        let mut writers = self.0.iter();
        writers.any(|writer| writer.0.is_policy(policy))
    }
}

/// All who may read Secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct SecretsReaders(pub Vec<SecretsReader>);

impl SecretsReaders {
    /// Returns whether this entry may read Secrets.
    pub(crate) fn allows_entry(&self, kind: EntryKind, name: &str) -> bool {
        let kind = match kind {
            EntryKind::Cached => "cachedcontextentry",
            EntryKind::Global => "globalcontextentry",
            EntryKind::Implicit => return false,
        };
        self.0.iter().any(|reader| reader.0.is(kind, name))
    }

    /// Returns whether the policy that has this key may read Secrets.
    pub(crate) fn allows_policy(&self, policy: &ObjectKey) -> bool {
        let mut readers = self.0.iter();
        readers.any(|reader| reader.0.is_policy(policy))
    }
}

/// Matches the names part by part, so that a `*` matches within its part only.
fn matches(pattern: &str, name: &str) -> bool {
    let (mut patterns, mut names) = (pattern.split('/'), name.split('/'));
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if part_matches(pattern, name) => {}
            _ => return false,
        }
    }
}

fn part_matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut rest_of_name) = name.strip_prefix(head) else {
        return false;
    };
    let mut parts: Vec<_> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match rest_of_name.find(part) {
            Some(at) => rest_of_name = &rest_of_name[at + part.len()..],
            None => return false,
        }
    }
    rest_of_name.ends_with(last)
}

/// Returns the failure for `who`, which reads Secrets without the permission.
pub(crate) fn forbidden(who: &str) -> Failure {
    Failure::new(
        "SecretsForbidden",
        format!(
            "{}: {who} reads Secrets, which an administrator has to allow: name it in the \
             watcher's `--allow-secrets`",
            ErrorCode::SECRET_FORBIDDEN
        ),
    )
}

/// Returns the failure for `who`, which calls the API server for Secrets: only a `resource` keeps them sealed.
pub(crate) fn uncallable(who: &str) -> Failure {
    Failure::new(
        "SecretsForbidden",
        format!(
            "{}: {who} reads Secrets by an API call, which would keep them in the clear: use \
             `resource` instead",
            ErrorCode::SECRET_FORBIDDEN
        ),
    )
}

/// Returns whether the reference can only mean Secrets.
pub(crate) fn is_of_secrets(reference: &Reference) -> bool {
    let (group, resource) = match reference {
        Reference::Collection(c) => (c.group.as_deref().unwrap_or_default(), &c.resource),
        Reference::Object(o) => (o.group.as_str(), &o.resource),
        Reference::LabelledConfigMaps => return false,
    };
    group.is_empty() && ["secret", "secrets"].contains(&resource.to_lowercase().as_str())
}

/// Returns the meaning of a reference for a policy that `may` read Secrets, or may not.
pub(crate) fn without_secrets(resolution: Resolution, may: bool) -> Resolution {
    match resolution {
        Resolution::Found(found) if found.binding.secret && !may => {
            Resolution::Invalid(forbidden("the policy"))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use anteroom_policy::{CollectionReference, NamedObject};

    use super::*;

    #[test]
    fn only_the_named_entries_and_policies_read_secrets() {
        let readers = [
            "cachedcontextentry/ca-*",
            "policy/team-*/*",
            "clusterpolicy/a*b*c",
        ];
        let readers = SecretsReaders(readers.map(|r| r.parse().unwrap()).to_vec());
        assert!(readers.allows_entry(EntryKind::Cached, "ca-bundle"));
        assert!(!readers.allows_entry(EntryKind::Cached, "my-ca-bundle"));
        assert!(!readers.allows_entry(EntryKind::Global, "ca-bundle"));
        assert!(!readers.allows_entry(EntryKind::Implicit, "ca-bundle"));
        let allows =
            |namespace: &str, name: &str| readers.allows_policy(&ObjectKey::new(namespace, name));
        assert!(allows("team-a", "x"));
        assert!(!allows("other", "x"));
        assert!(!allows("", "team-a/x"));
        for (name, allowed) in [
            ("abc", true),
            ("axxbyyc", true),
            ("ab", false),
            ("acb", false),
        ] {
            assert_eq!(allows("", name), allowed, "{name}");
        }
        assert!(!SecretsReaders::default().allows_policy(&ObjectKey::new("", "x")));
    }

    #[test]
    fn only_the_named_policies_change_existing_objects() {
        let writers = ["clusterpolicy/*", "policy/team-a/label-*"];
        let writers = PolicyWriters(writers.map(|writer| writer.parse().unwrap()).to_vec());
        for (namespace, name, allowed) in [
            ("", "any", true),
            ("team-a", "label-all", true),
            ("team-a", "any", false),
            ("team-b", "label-all", false),
        ] {
            assert_eq!(
                writers.allows(&ObjectKey::new(namespace, name)),
                allowed,
                "{namespace}/{name}"
            );
        }
        for odd in ["", "policy/x", "cachedcontextentry/x", "clusterpolicy/"] {
            assert!(odd.parse::<PolicyWriter>().is_err(), "{odd}");
        }
    }

    #[test]
    fn a_pattern_names_policies_of_one_kind() {
        let of = |kind: PolicyKind| kind.key("team-a", "labels");
        for (pattern, allowed) in [
            ("clusterpolicy/*", PolicyKind::Cluster),
            ("policy/*/*", PolicyKind::Namespaced),
            ("validatingpolicy/*", PolicyKind::Validating),
            (
                "namespacedvalidatingpolicy/*/lab*",
                PolicyKind::NamespacedValidating,
            ),
            ("mutatingpolicy/labels", PolicyKind::Mutating),
            (
                "namespacedmutatingpolicy/team-a/*",
                PolicyKind::NamespacedMutating,
            ),
        ] {
            let writers = PolicyWriters(vec![pattern.parse().unwrap()]);
            for kind in PolicyKind::ALL {
                assert_eq!(
                    writers.allows(&of(kind)),
                    kind == allowed,
                    "{pattern} {kind}"
                );
            }
        }
    }

    #[test]
    fn a_malformed_secrets_reader_is_refused() {
        for odd in [
            "",
            "x/y",
            "policy/x",
            "clusterpolicy/",
            "clusterpolicy/a/b",
            "policy//b",
        ] {
            assert!(odd.parse::<SecretsReader>().is_err(), "{odd}");
        }
    }

    #[test]
    fn the_option_cache_api_calls_decides_which_calls_are_cached() {
        let reference = |declared, inline| {
            Reference::Collection(CollectionReference {
                declared,
                inline,
                ..CollectionReference::default()
            })
        };
        let config_map = Reference::Object(NamedObject {
            resource: "configmaps".into(),
            ..NamedObject::default()
        });
        for (option, undeclared, declared) in [
            (CacheApiCalls::Auto, true, true),
            (CacheApiCalls::Declared, false, true),
            (CacheApiCalls::Off, false, false),
        ] {
            assert_eq!(option.keeps(&reference(false, false)), undeclared);
            assert_eq!(option.keeps(&reference(true, false)), declared);
            assert!(option.keeps(&reference(true, true)), "resourceCache");
            let told = option.record().map(|record| record.name);
            assert_eq!(told.is_none(), undeclared, "readers have to know");
            assert!(option.keeps(&config_map) && option.keeps(&Reference::LabelledConfigMaps));
        }
    }
}
