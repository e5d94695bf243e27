//! The parts of objects that a view keeps, where it does not keep all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The parts of a value that are kept. Lists keep all their elements, and this of each; what is neither an object
/// nor a list is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RetainedFields {
    /// All of it.
    Whole,
    /// Some fields of an object, by name, and the parts of each that are kept.
    Fields(BTreeMap<String, RetainedFields>),
}

/// Nothing but that it is there, and whether it is an object, a list or something else.
impl Default for RetainedFields {
    fn default() -> Self {
        Self::Fields(BTreeMap::new())
    }
}

/// The fields of an object's metadata that every view retains: identity, version, and labels for selectors.
const METADATA: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "labels"];

impl RetainedFields {
    /// Returns the parts of every object that are kept whatever is read: `apiVersion`, `kind`, and of
    /// its `metadata` name, namespace, UID, resource version and labels.
    pub fn identity() -> Self {
        let mut kept = Self::default();
        kept.keep(&["apiVersion"]).keep(&["kind"]);
        for field in METADATA {
            kept.keep(&["metadata", field]);
        }
        kept
    }

    /// Keeps what stands at this path whole.
    pub fn keep<S: AsRef<str>>(&mut self, path: &[S]) -> &mut Self {
        *self.at(path) = Self::Whole;
        self
    }

    /// Retains the presence and the type of the value at this path.
    pub fn touch<S: AsRef<str>>(&mut self, path: &[S]) -> &mut Self {
        self.at(path);
        self
    }

    fn at<S: AsRef<str>>(&mut self, path: &[S]) -> &mut Self {
        match (path, self) {
            ([name, inner @ ..], Self::Fields(fields)) => {
                let name = name.as_ref().to_owned();
                fields.entry(name).or_default().at(inner)
            }
            (_, kept) => kept,
        }
    }

    /// Keeps what `other` does, too.
    pub fn join(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Whole, _) => {}
            (_, Self::Whole) => *self = Self::Whole,
            (Self::Fields(fields), Self::Fields(others)) => {
                for (name, other) in others {
                    fields.entry(name.clone()).or_default().join(other);
                }
            }
        }
    }

    /// The first path, in dots, that `wanted` keeps more of than this does; empty for the value itself.
    /// `None`: all that is wanted is kept.
    pub fn lacks(&self, wanted: &Self) -> Option<String> {
        match (self, wanted) {
            (Self::Whole, _) => None,
            (Self::Fields(_), Self::Whole) => Some(String::new()),
            (Self::Fields(fields), Self::Fields(wanted)) => {
                wanted.iter().find_map(|(name, wanted)| {
                    let lacking = match fields.get(name) {
                        None => String::new(),
                        Some(kept) => kept.lacks(wanted)?,
                    };
                    Some(match lacking.as_str() {
                        "" => name.clone(),
                        inner => format!("{name}.{inner}"),
                    })
                })
            }
        }
    }

    /// One text for one meaning: a part of a view's identity.
    pub(crate) fn canonical(&self) -> String {
        match self {
            Self::Whole => "*".to_owned(),
            Self::Fields(fields) => {
                let fields = fields.iter().map(|(name, kept)| {
                    // The length comes first, so that no name runs into the text after the name.
                    format!("{}:{name}{}", name.len(), kept.canonical())
                });
                format!("{{{}}}", fields.collect::<String>())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(whole: &[&[&str]], touched: &[&[&str]]) -> RetainedFields {
        let mut kept = RetainedFields::default();
        touched
            .iter()
            .for_each(|path| drop(kept.touch(path).clone()));
        whole.iter().for_each(|path| drop(kept.keep(path).clone()));
        kept
    }

    #[test]
    fn a_missing_field_is_named_by_its_path() {
        let some = kept(&[&["metadata", "labels"], &["spec", "a"]], &[]);
        for (wanted, lacking) in [
            (kept(&[&["spec", "a", "b"]], &[]), None),
            (kept(&[], &[&["spec"]]), None),
            (kept(&[&["spec"]], &[]), Some("spec")),
            (kept(&[&["spec", "b"]], &[]), Some("spec.b")),
            (kept(&[], &[&["status", "phase"]]), Some("status")),
            (RetainedFields::Whole, Some("")),
        ] {
            assert_eq!(some.lacks(&wanted).as_deref(), lacking, "{wanted:?}");
            assert_eq!(RetainedFields::Whole.lacks(&wanted), None);
            let mut both = some.clone();
            both.join(&wanted);
            assert_eq!(both.lacks(&wanted), None);
            assert_eq!(both.lacks(&some), None);
            assert_eq!(both == some, lacking.is_none());
        }
    }

    #[test]
    fn every_view_keeps_what_names_selects_and_versions_an_object() {
        let identity = RetainedFields::identity();
        for path in [
            "apiVersion",
            "kind",
            "metadata.name",
            "metadata.namespace",
            "metadata.uid",
            "metadata.resourceVersion",
            "metadata.labels",
        ] {
            let steps: Vec<&str> = path.split('.').collect();
            let wanted = kept(&[steps.as_slice()], &[]);
            assert_eq!(identity.lacks(&wanted), None, "{path}");
        }
        let all = kept(&[&["metadata"]], &[]);
        assert_eq!(identity.lacks(&all).as_deref(), Some("metadata"));
    }

    #[test]
    fn a_path_below_a_wholly_kept_field_changes_nothing() {
        let mut all = kept(&[&["spec"]], &[]);
        all.keep(&["spec", "a"]).touch(&["spec", "b", "c"]);
        assert_eq!(all, kept(&[&["spec"]], &[]));
        assert_eq!(RetainedFields::Whole.keep(&["a"]), &RetainedFields::Whole);
    }

    #[test]
    fn different_retained_fields_have_different_texts() {
        let all = [
            kept(&[&["a", "b"]], &[]),
            kept(&[&["a"], &["b"]], &[]),
            kept(&[&["ab"]], &[]),
            kept(&[], &[&["a", "b"]]),
            kept(&[&["a"]], &[&["b"]]),
            RetainedFields::Whole,
        ];
        let texts: std::collections::BTreeSet<_> =
            all.iter().map(RetainedFields::canonical).collect();
        assert_eq!(texts.len(), all.len());
    }
}
