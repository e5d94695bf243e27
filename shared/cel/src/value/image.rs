//! Image references, as Kyverno's functions name their parts.

use std::fmt;

use anteroom_functions::images::ImageRef;

/// The host that the default registry is asked at.
const DEFAULT_REGISTRY: &str = "index.docker.io";

/// The first part of the path of an image in the default registry that has only one.
const DEFAULT_PATH: &str = "library";

/// An image's name, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) registry: String,
    pub(crate) repository: String,
    pub(crate) tag: String,
    pub(crate) digest: String,
}

impl Image {
    /// Parses a name; `None` of what is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let parsed = ImageRef::parse(text)?;
        let is_default = [ImageRef::REGISTRY, DEFAULT_REGISTRY].contains(&parsed.registry);
        let is_short = is_default && !parsed.path.contains('/');
        let registry = if is_default {
            DEFAULT_REGISTRY
        } else {
            parsed.registry
        };
        Some(Self {
            registry: registry.to_owned(),
            repository: match is_short {
                true => format!("{DEFAULT_PATH}/{}", parsed.path),
                false => parsed.path.to_owned(),
            },
            tag: parsed.tag.to_owned(),
            digest: parsed.digest.to_owned(),
        })
    }

    /// The digest after an `@`, or else the tag after a `:`.
    pub(crate) fn identifier_with_separator(&self) -> String {
        match &*self.digest {
            "" => format!(":{}", self.tag),
            digest => format!("@{digest}"),
        }
    }

    /// The tag, the digest, or both with an `@` between.
    pub(crate) fn identifier(&self) -> String {
        match (&*self.tag, &*self.digest) {
            (tag, "") => tag.to_owned(),
            ("", digest) => digest.to_owned(),
            (tag, digest) => format!("{tag}@{digest}"),
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)?;
        }
        match &*self.digest {
            "" => Ok(()),
            digest => write!(f, "@{digest}"),
        }
    }
}
