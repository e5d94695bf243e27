//! Where an image is. Pure.

use crate::calls::CallFault;

/// The registry of what names none, and what answers for it.
const HUB: (&str, &str) = ("index.docker.io", "registry-1.docker.io");

/// Names of it.
const HUB_NAMES: [&str; 2] = ["docker.io", "index.docker.io"];

/// How registries are reached.
#[derive(Debug, Default)]
pub(crate) struct Registries {
    /// Hosts, with their port where they have one, that are spoken to by http.
    pub(crate) insecure: Vec<String>,
}

/// An image, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) registry: String,
    pub(super) repository: String,
    /// A tag or a digest.
    pub(super) identifier: String,
    /// Whom to ask.
    host: String,
    /// By http.
    pub(super) is_insecure: bool,
}

impl Place {
    /// # Errors
    /// That it is no reference of an image.
    pub(super) fn parse(reference: &str, registries: &Registries) -> Result<Self, CallFault> {
        let place = Self::parts(reference, registries);
        place.ok_or_else(|| super::unusable("it is no reference of an image"))
    }

    fn parts(reference: &str, registries: &Registries) -> Option<Self> {
        let (rest, digest) = match reference.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (reference, None),
        };
        let is_registry = |first: &str| first.contains(['.', ':']) || first == "localhost";
        let (registry, path) = match rest.split_once('/') {
            Some((first, path)) if is_registry(first) => (first, path),
            _ => (HUB.0, rest),
        };
        let (repository, tag) = match path.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        let is_hub = HUB_NAMES.contains(&registry);
        let identifier = digest.or(tag).unwrap_or("latest");
        let library = if is_hub && !repository.contains('/') {
            "library/"
        } else {
            ""
        };
        let (registry, host) = if is_hub { HUB } else { (registry, registry) };
        let is_fit = is_host(host)
            && repository.split('/').all(is_part)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(|digest| super::checked_digest(digest).is_ok());
        is_fit.then(|| Self {
            registry: registry.to_owned(),
            repository: format!("{library}{repository}"),
            identifier: identifier.to_owned(),
            is_insecure: registries.insecure.iter().any(|own| own == host),
            host: host.to_owned(),
        })
    }

    /// Registry and repository.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Of something in the repository.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.is_insecure { "http" } else { "https" };
        format!("{scheme}://{}/v2/{}/{path}", self.host, self.repository)
    }
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let of_name = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    !name.is_empty()
        && name.chars().all(of_name)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// One part of a repository's name.
fn is_part(text: &str) -> bool {
    let of_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    text.chars()
        .next()
        .is_some_and(|c| c.is_ascii_alphanumeric())
        && text.chars().all(of_part)
}

fn is_tag(text: &str) -> bool {
    let of_tag = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let first = text.chars().next();
    first.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_')
        && text.len() <= 128
        && text.chars().all(of_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_apart() {
        let registries = Registries {
            insecure: vec!["localhost:5000".to_owned()],
        };
        let digest = format!("sha256:{}", "a".repeat(64));
        let by_digest = format!("ghcr.io/shop/web@{digest}");
        let both = format!("ghcr.io/shop/web:1@{digest}");
        for (reference, name, identifier, url) in [
            (
                "nginx",
                "index.docker.io/library/nginx",
                "latest",
                "https://registry-1.docker.io/v2/library/nginx/x",
            ),
            (
                "docker.io/library/nginx:1.2",
                "index.docker.io/library/nginx",
                "1.2",
                "https://registry-1.docker.io/v2/library/nginx/x",
            ),
            (
                "shop/web",
                "index.docker.io/shop/web",
                "latest",
                "https://registry-1.docker.io/v2/shop/web/x",
            ),
            (
                "ghcr.io/shop/web:1.2",
                "ghcr.io/shop/web",
                "1.2",
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                &by_digest,
                "ghcr.io/shop/web",
                &digest,
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                &both,
                "ghcr.io/shop/web",
                &digest,
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                "localhost:5000/a/b/c:d",
                "localhost:5000/a/b/c",
                "d",
                "http://localhost:5000/v2/a/b/c/x",
            ),
            (
                "localhost:5001/a",
                "localhost:5001/a",
                "latest",
                "https://localhost:5001/v2/a/x",
            ),
        ] {
            let place = Place::parse(reference, &registries).unwrap();
            assert_eq!(place.name(), name);
            assert_eq!(
                (&*place.identifier, &*place.url("x")),
                (identifier, url),
                "{reference}"
            );
        }
        for reference in [
            "",
            "/",
            "ghcr.io/",
            "ghcr.io/a//b",
            "ghcr.io/../b",
            "ghcr.io/A",
            "ghcr.io/a:",
            "ghcr.io/a:b/c",
            "ghcr.io/a?b",
            "ghcr.io/a@sha256:1",
            "ghcr.io/a@md5:aa",
            "user@ghcr.io/a",
            "gh cr.io/a",
            "[::1]:5000/a",
            "ghcr.io:99999/a",
            "ghcr.io/a%2fb",
            "ghcr.io/a#b",
            "ghcr.io/a:b:c",
            "ghcr.io/.a",
        ] {
            assert!(Place::parse(reference, &registries).is_err(), "{reference}");
        }
    }
}
