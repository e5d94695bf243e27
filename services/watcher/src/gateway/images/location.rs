//! The parts of an image reference. Pure.
//!
//! References have the grammar of container runtimes, without what a registry cannot be asked for here: an address of
//! IPv6, a port that is none, another digest than sha256.

use anteroom_functions::images::ImageRef;

use super::{allowed_addresses::Registries, document::checked_digest};
use crate::gateway::calls::CallFault;

/// The host of Docker Hub's registry.
pub(super) const HUB_HOST: &str = "registry-1.docker.io";

/// The names of Docker Hub: in references, in image names, and as a host.
pub(super) const HUB_NAMES: [&str; 3] = ["docker.io", "index.docker.io", HUB_HOST];

/// The longest reference, and more than any that can be written.
const REFERENCE_BYTES_MAX: usize = 1_024;

/// An image, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) registry: String,
    pub(super) repository: String,
    /// A tag, a digest, or both as `TAG@DIGEST`.
    pub(super) identifier: String,
    /// The digest, or else the tag.
    pub(super) asked: String,
    /// The host to ask, with a port if the reference has one.
    pub(super) host: String,
    /// True if the registry uses http.
    pub(super) is_insecure: bool,
}

impl Location {
    /// # Errors
    /// The text is no reference of an image.
    pub(super) fn parse(reference: &str, registries: &Registries) -> Result<Self, CallFault> {
        let location = Self::parts(reference, registries);
        location.ok_or_else(|| super::document::unusable("it is no reference of an image"))
    }

    fn parts(reference: &str, registries: &Registries) -> Option<Self> {
        if reference.len() > REFERENCE_BYTES_MAX {
            return None;
        }
        let image = ImageRef::parse(reference)?;
        let is_hub = HUB_NAMES[..2].contains(&image.registry);
        let (registry, host) = match is_hub {
            true => (HUB_NAMES[1], HUB_HOST),
            false => (image.registry, image.registry),
        };
        let is_host = host == "localhost" || host.contains(['.', ':']);
        let port = host.split_once(':').map(|(_, port)| port);
        let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let is_digest = image.digest.is_empty() || checked_digest(image.digest).is_ok();
        // Docker Hub has its own images in a folder that their names leave out.
        let is_official = is_hub && !image.path.contains('/');
        let folder = if is_official { "library/" } else { "" };
        let (identifier, asked) = match (image.tag, image.digest) {
            (tag, "") => (tag.to_owned(), tag),
            ("", digest) => (digest.to_owned(), digest),
            (tag, digest) => (format!("{tag}@{digest}"), digest),
        };
        (is_host && is_port && is_digest).then(|| Self {
            registry: registry.to_owned(),
            repository: format!("{folder}{}", image.path),
            identifier,
            asked: asked.to_owned(),
            is_insecure: registries.is_insecure(host),
            host: host.to_ascii_lowercase(),
        })
    }

    /// Registry and repository.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// Returns a URL within the repository.
    pub(super) fn url(&self, path: &str) -> String {
        let scheme = if self.is_insecure { "http" } else { "https" };
        format!("{scheme}://{}/v2/{}/{path}", self.host, self.repository)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registries() -> Registries {
        Registries {
            insecure: vec!["localhost:5000".to_owned()],
            ..Registries::default()
        }
    }

    #[test]
    fn references_are_taken_apart() {
        let hub = |rest: &str| format!("https://registry-1.docker.io/v2/{rest}/x");
        let digest = format!("sha256:{}", "a".repeat(64));
        let by_digest = format!("ghcr.io/shop/web@{digest}");
        let both = format!("ghcr.io/shop/web:1@{digest}");
        let both_identifier = format!("1@{digest}");
        let at_port = format!("localhost:5000/a@{digest}");
        for (reference, name, identifier, url) in [
            (
                "nginx",
                "index.docker.io/library/nginx",
                "latest",
                &*hub("library/nginx"),
            ),
            (
                "a",
                "index.docker.io/library/a",
                "latest",
                &hub("library/a"),
            ),
            (
                "docker.io/library/nginx:1.2",
                "index.docker.io/library/nginx",
                "1.2",
                &hub("library/nginx"),
            ),
            (
                "index.docker.io/nginx",
                "index.docker.io/library/nginx",
                "latest",
                &hub("library/nginx"),
            ),
            (
                "shop/web",
                "index.docker.io/shop/web",
                "latest",
                &hub("shop/web"),
            ),
            (
                "ghcr.io/shop/web:1.2",
                "ghcr.io/shop/web",
                "1.2",
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                "ghcr.io/a__b",
                "ghcr.io/a__b",
                "latest",
                "https://ghcr.io/v2/a__b/x",
            ),
            ("GHCR.io/a", "GHCR.io/a", "latest", "https://ghcr.io/v2/a/x"),
            (
                &by_digest,
                "ghcr.io/shop/web",
                &digest,
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                &both,
                "ghcr.io/shop/web",
                &both_identifier,
                "https://ghcr.io/v2/shop/web/x",
            ),
            (
                &at_port,
                "localhost:5000/a",
                &digest,
                "http://localhost:5000/v2/a/x",
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
            let location = Location::parse(reference, &registries()).unwrap();
            assert_eq!(location.name(), name);
            let found = (&*location.identifier, &*location.url("x"));
            assert_eq!(found, (identifier, url), "{reference}");
            let asked = location.identifier.rsplit('@').next();
            assert_eq!(Some(&*location.asked), asked, "{reference}");
        }
    }

    #[test]
    fn a_malformed_image_reference_is_refused() {
        let long = "a/".repeat(REFERENCE_BYTES_MAX / 2);
        let other = format!("ghcr.io/a@sha512:{}", "a".repeat(128));
        for reference in [
            "",
            "/",
            "ghcr.io/",
            "ghcr.io/a//b",
            "ghcr.io/../b",
            "ghcr.io/A",
            "SHOP/a",
            "ghcr.io/a:",
            "ghcr.io/a:b/c",
            "ghcr.io/a?b",
            "ghcr.io/a@sha256:1",
            "ghcr.io/a@md5:aa",
            &other,
            "user@ghcr.io/a",
            "gh cr.io/a",
            "[::1]:5000/a",
            "ghcr.io:99999/a",
            "ghcr.io:0/a",
            "ghcr.io:/a",
            "ghcr.io/a%2fb",
            "ghcr.io/a#b",
            "ghcr.io/a:b:c",
            "ghcr.io/.a",
            "ghcr.io./a",
            "https://ghcr.io/a",
            "ghcr.io/a\n",
            &long,
        ] {
            assert!(
                Location::parse(reference, &registries()).is_err(),
                "{reference}"
            );
        }
    }
}
