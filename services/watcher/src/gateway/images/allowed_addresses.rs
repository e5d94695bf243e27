//! The registries that may be asked, and their addresses. Pure.
//!
//! The author of a Pod names the host, and the owner of a domain name chooses its address. So addresses are checked
//! after a name is resolved, and the connection uses only the checked addresses, without resolving the name again.

use std::net::IpAddr;

use http::uri::Authority;

use crate::gateway::calls::{AddressFilter, AddressKind, address_kind};

/// The registries that may be asked for images.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registries {
    /// Hosts, with their port where they have one, that are spoken to by http, wherever they are.
    pub(crate) insecure: Vec<String>,
    /// Hosts, likewise, that are asked wherever they are.
    pub(crate) trusted: Vec<String>,
    /// True if others must be at public addresses.
    pub(crate) public_only: bool,
}

impl Registries {
    /// Returns true if a registry uses http. The case of letters does not count.
    pub(super) fn is_insecure(&self, host: &str) -> bool {
        has(&self.insecure, host)
    }
}

impl AddressFilter for Registries {
    fn is_trusted(&self, host: &Authority) -> bool {
        let named = |host: &str| self.is_insecure(host) || has(&self.trusted, host);
        // A URL leaves out the port of its scheme; an option may name it.
        let with_port = |port: u16| named(&format!("{host}:{port}"));
        named(host.as_str()) || (host.port().is_none() && (with_port(443) || with_port(80)))
    }

    fn permits(&self, address: IpAddr) -> bool {
        match address_kind(address) {
            AddressKind::Public => true,
            AddressKind::Private => !self.public_only,
            AddressKind::NeverCalled => false,
        }
    }

    fn refusal(&self) -> &'static str {
        "at no address that images are read from: the watcher's `--trusted-registry` and \
         `--registry-public-only` say from which"
    }
}

fn has(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn addresses(text: &str) -> Vec<SocketAddr> {
        let addresses = text.split_whitespace();
        addresses.map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn only_addresses_that_may_be_are_connected_to() {
        let others = Registries {
            insecure: vec!["localhost:5000".to_owned()],
            trusted: vec!["Registry.corp".to_owned(), "[::1]:8443".to_owned()],
            public_only: false,
        };
        let public_only = Registries {
            public_only: true,
            ..others.clone()
        };
        for (host, resolved, open, strict) in [
            ("ghcr.io", "1.1.1.1:443", "1.1.1.1:443", "1.1.1.1:443"),
            ("ghcr.io", "127.0.0.1:443", "", ""),
            ("ghcr.io:8443", "169.254.169.254:8443", "", ""),
            ("169.254.169.254", "169.254.169.254:443", "", ""),
            ("[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]:443", "", ""),
            ("harbor", "10.0.0.1:443", "10.0.0.1:443", ""),
            // Who answers with two has one of them at most.
            (
                "evil.example",
                "127.0.0.1:443 1.1.1.1:443 [::1]:443 10.0.0.1:443",
                "1.1.1.1:443 10.0.0.1:443",
                "1.1.1.1:443",
            ),
            // Named hosts with exactly this port.
            (
                "localhost:5000",
                "127.0.0.1:5000",
                "127.0.0.1:5000",
                "127.0.0.1:5000",
            ),
            ("localhost:5001", "127.0.0.1:5001", "", ""),
            ("localhost", "127.0.0.1:443", "", ""),
            (
                "registry.corp",
                "127.0.0.1:443",
                "127.0.0.1:443",
                "127.0.0.1:443",
            ),
            (
                "registry.corp",
                "10.0.0.1:443",
                "10.0.0.1:443",
                "10.0.0.1:443",
            ),
            ("registry.corp:22", "127.0.0.1:22", "", ""),
            ("[::1]:8443", "[::1]:8443", "[::1]:8443", "[::1]:8443"),
            ("nowhere", "", "", ""),
        ] {
            for (registries, left) in [(&others, open), (&public_only, strict)] {
                let host: Authority = host.parse().unwrap();
                let trusted = registries.is_trusted(&host);
                let mut found = addresses(resolved);
                found.retain(|address| trusted || registries.permits(address.ip()));
                assert_eq!(found, addresses(left), "{host} {resolved}");
            }
        }
    }
}
