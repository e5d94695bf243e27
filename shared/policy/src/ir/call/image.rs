//! `imageRegistry`: an image, and who signs in to its registry.

use crate::ir::template::Template;

/// `imageRegistry`: an image whose data are read.
#[derive(Debug)]
pub(crate) struct ImageCall {
    /// The reference of the image, as in `ghcr.io/shop/web:1.2`.
    pub(crate) reference: Template,
    pub(crate) credentials: ImageCredentials,
}

/// The credentials for an image's registry, as a policy names them (`imageRegistryCredentials`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ImageCredentials {
    /// The Secrets that hold the credentials, in their order.
    pub secrets: Vec<SecretName>,
    /// The credentials for every policy count too, after the Secrets: where no Secrets are named, or the
    /// provider is `default`.
    pub shared: bool,
    /// The entry is of a namespaced `Policy`. It does not get the credentials for all policies, unless an option of
    /// the watcher allows that.
    pub namespaced: bool,
    /// `allowInsecureRegistry`: by http where need be.
    pub insecure: bool,
}

/// The credentials where `imageRegistryCredentials` is left out.
impl Default for ImageCredentials {
    fn default() -> Self {
        Self {
            secrets: Vec::new(),
            shared: true,
            namespaced: false,
            insecure: false,
        }
    }
}

/// The longest name in Kubernetes.
const NAME_BYTES_MAX: usize = 253;

/// The name of a Secret: `NAME`, or `NAMESPACE/NAME`. Each part is a name of Kubernetes, so that none leads
/// elsewhere as a part of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SecretName(String);

impl SecretName {
    /// `None`: it is no such name. A `/` may stand before it, as for Kyverno.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('/').unwrap_or(text);
        let mut parts = text.split('/');
        let fits = parts.by_ref().take(2).all(is_name) && parts.next().is_none();
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the name as a `Policy` of the namespace `home` means it, `home/NAME`; `None`: it names another namespace.
    pub fn within(self, home: &str) -> Option<Self> {
        match self.0.split_once('/') {
            None => Some(Self(format!("{home}/{}", self.0))),
            Some((namespace, _)) => (namespace == home).then_some(self),
        }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for SecretName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_name(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let ends = [label.bytes().next(), label.bytes().next_back()];
        ends.iter().all(|end| end.is_some_and(edge)) && label.bytes().all(|b| edge(b) || b == b'-')
    };
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_name_of_a_policy_is_of_its_own_namespace() {
        let within = |name| SecretName::parse(name).unwrap().within("a");
        assert_eq!(within("b"), SecretName::parse("a/b"));
        assert_eq!(within("a/b"), SecretName::parse("a/b"));
        assert_eq!(within("b/a"), None);
    }

    #[test]
    fn a_secret_name_cannot_lead_to_another_path() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for name in ["regcred", "a", "team/reg-1.example", &longest, "0/0"] {
            let parsed = SecretName::parse(name);
            assert_eq!(parsed.as_ref().map(SecretName::as_str), Some(name));
        }
        let rooted = SecretName::parse("/team/regcred");
        assert_eq!(rooted.unwrap().as_str(), "team/regcred");
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for text in [
            "", "/", "//a", "a/", "a/b/c", ".", "..", "../a", "a/..", "a/.b", "a..b", "-a", "a-",
            "A", "a b", "a\\b", "a\0", "{{a}}", "~", &long,
        ] {
            assert_eq!(SecretName::parse(text), None, "{text}");
        }
    }
}
