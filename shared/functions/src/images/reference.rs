//! An image's name, taken apart as registries do.

use serde_json::{Value, json};

/// The registry of an image that names none.
const REGISTRY: &str = "docker.io";

/// The tag of an image that names neither tag nor digest.
const TAG: &str = "latest";

/// Bytes of a path, and characters of a tag, that registries take.
const PATH_BYTES_MAX: usize = 255;
const TAG_CHARACTERS_MAX: usize = 128;

/// Algorithms of digests, and how many hexadecimal digits theirs have.
const DIGESTS: &[(&str, usize)] = &[("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// Returns an image with its registry, and its digest or its tag; `None`: the text is no image.
pub(crate) fn normal(image: &str) -> Option<String> {
    ImageRef::parse(image).map(|image| image.reference())
}

/// The parts of an image's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageRef<'a> {
    /// Its registry; [`ImageRef::REGISTRY`] where none is named.
    pub registry: &'a str,
    /// Its path in the registry.
    pub path: &'a str,
    /// Its tag; `latest` where neither tag nor digest is named, and empty where only a digest is.
    pub tag: &'a str,
    /// Its digest, or an empty text.
    pub digest: &'a str,
}

impl<'a> ImageRef<'a> {
    /// The registry of an image that names none.
    pub const REGISTRY: &'static str = REGISTRY;

    /// Parses a name; `None` of what is none.
    pub fn parse(text: &'a str) -> Option<Self> {
        let (text, digest) = match text.split_once('@') {
            Some((text, digest)) => (text, Some(digest)),
            None => (text, None),
        };
        let (registry, rest) = text
            .split_once('/')
            .filter(|(first, _)| is_registry(first))
            .unwrap_or((REGISTRY, text));
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        let is_path = path.len() <= PATH_BYTES_MAX && path.split('/').all(is_path_part);
        // As Kyverno has it, a registry may be spelled as parts of a path are.
        let is_host = is_host(registry) || is_path_part(registry);
        let is_tag = tag.is_none_or(is_tag);
        let is_digest = digest.is_none_or(is_digest);
        let digest = digest.unwrap_or_default();
        let tag = tag.unwrap_or(if digest.is_empty() { TAG } else { "" });
        (is_path && is_host && is_tag && is_digest).then_some(Self {
            registry,
            path,
            tag,
            digest,
        })
    }

    /// The reference by digest, or by tag if there is no digest.
    fn reference(&self) -> String {
        let Self { registry, path, .. } = self;
        match self.digest {
            "" => format!("{registry}/{path}:{}", self.tag),
            digest => format!("{registry}/{path}@{digest}"),
        }
    }

    /// The image as rules see it.
    pub(super) fn value(&self) -> Value {
        let Self {
            registry,
            path,
            tag,
            digest,
        } = self;
        let mut image = json!({
            "registry": registry, "path": path, "name": path.rsplit('/').next(),
            "reference": self.reference(), "referenceWithTag": format!("{registry}/{path}:{tag}"),
        });
        for (name, value) in [("tag", tag), ("digest", digest)] {
            if !value.is_empty() {
                image[name] = (*value).into();
            }
        }
        image
    }
}

/// Small letters and digits, with `.`, `_`, `__` or any number of `-` between.
fn is_path_part(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_between =
        |between: &str| matches!(between, "." | "_" | "__") || between.bytes().all(|b| b == b'-');
    let mut between = text.split(is_plain).filter(|between| !between.is_empty());
    text.starts_with(is_plain) && text.ends_with(is_plain) && between.all(is_between)
}

/// Names with dots between, or an address of IPv6 in brackets; a port may follow.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let is_name = |name: &str| {
        let is_end = |c: char| c.is_ascii_alphanumeric();
        name.starts_with(is_end)
            && name.ends_with(is_end)
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    let address = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let is_address = |address: &str| {
        let is_of = |b: u8| b.is_ascii_hexdigit() || b == b':';
        !address.is_empty() && address.bytes().all(is_of)
    };
    port.is_none_or(is_port) && address.map_or_else(|| host.split('.').all(is_name), is_address)
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.starts_with(is_word)
        && text.len() <= TAG_CHARACTERS_MAX
        && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    DIGESTS.iter().any(|(algorithm, digits)| {
        let found = text
            .strip_prefix(algorithm)
            .and_then(|rest| rest.strip_prefix(':'));
        found.is_some_and(|found| found.len() == *digits && found.bytes().all(is_digit))
    })
}

/// Returns whether the part before the first `/` is a registry, not a part of the path.
fn is_registry(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.contains(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_reference_is_parsed_into_its_parts() {
        let digest = format!("sha256:{}", "1f".repeat(32));
        let (by_digest, by_both) = (
            format!("reg:5000/app@{digest}"),
            format!("a.io/app:v1@{digest}"),
        );
        let longest = format!(
            "a.io/{}:{}",
            "p".repeat(PATH_BYTES_MAX),
            "t".repeat(TAG_CHARACTERS_MAX)
        );
        for (text, expected) in [
            ("nginx", ("docker.io", "nginx", "latest", "")),
            ("nginx:1.2", ("docker.io", "nginx", "1.2", "")),
            ("team/app", ("docker.io", "team/app", "latest", "")),
            ("ghcr.io/team/app:v1", ("ghcr.io", "team/app", "v1", "")),
            ("localhost/app", ("localhost", "app", "latest", "")),
            ("reg:5000/app:v1", ("reg:5000", "app", "v1", "")),
            ("REG/app:_1", ("REG", "app", "_1", "")),
            ("[::1]:5000/app", ("[::1]:5000", "app", "latest", "")),
            ("[::1]/app", ("[::1]", "app", "latest", "")),
            (
                "my_reg.io/a__b.c--d",
                ("my_reg.io", "a__b.c--d", "latest", ""),
            ),
            (&by_digest, ("reg:5000", "app", "", &*digest)),
            (&by_both, ("a.io", "app", "v1", &*digest)),
        ] {
            let image = ImageRef::parse(text).unwrap();
            let found = (image.registry, image.path, image.tag, image.digest);
            assert_eq!(found, expected, "{text}");
        }
        assert!(ImageRef::parse(&longest).is_some());
    }

    #[test]
    fn a_malformed_image_reference_is_refused() {
        let hex = "1f".repeat(32);
        let (short, large, other) = (
            format!("a@sha256:{}", &hex[1..]),
            format!("a@sha256:{}", hex.to_uppercase()),
            format!("a@md5:{hex}"),
        );
        let long = format!("a.io/{}", "p".repeat(PATH_BYTES_MAX + 1));
        let long_tag = format!("a:{}", "t".repeat(TAG_CHARACTERS_MAX + 1));
        for text in [
            "",
            ":v1",
            "a b",
            "app:",
            "Team",
            "a.io/",
            "a@",
            "a@sha256:xyz",
            "a//b",
            "a..b",
            "a___b",
            "-a",
            "a.",
            "a:-1",
            "a:b:c",
            "reg:x/app",
            "my_reg:5000/app",
            "-.io/app",
            "-a.io/app",
            "a-.io/app",
            "[]:5000/app",
            "[x:1]/app",
            "*",
            &short,
            &large,
            &other,
            &long,
            &long_tag,
        ] {
            assert_eq!(ImageRef::parse(text), None, "{text}");
        }
    }
}
