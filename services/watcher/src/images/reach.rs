//! Which hosts are asked, and where they may be. Pure.
//!
//! Who writes a Pod names the host, and who owns a name says where it is. So addresses are judged once a
//! name is resolved, and only those that may be are connected to: nobody resolves it again in between.

use std::net::SocketAddr;

use http::uri::Authority;

use super::address::{Kind, kind};
use crate::calls::CallFault;

/// Whom images are asked of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registries {
    /// Hosts, with their port where they have one, that are spoken to by http, wherever they are.
    pub(crate) insecure: Vec<String>,
    /// Hosts, likewise, that are asked wherever they are.
    pub(crate) trusted: Vec<String>,
    /// Whether others are asked only where anybody could ask them.
    pub(crate) public_only: bool,
}

impl Registries {
    /// Whether it is spoken to by http. Names of hosts are the same in large letters.
    pub(super) fn is_insecure(&self, host: &str) -> bool {
        has(&self.insecure, host)
    }

    /// Of the addresses that a host has, those that may be connected to.
    ///
    /// # Errors
    /// That there is none.
    pub(super) fn permitted(
        &self,
        host: &Authority,
        mut addresses: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, CallFault> {
        if self.is_insecure(host.as_str()) || has(&self.trusted, host.as_str()) {
            return Ok(addresses);
        }
        addresses.retain(|address| match kind(address.ip()) {
            Kind::Public => true,
            Kind::Private => !self.public_only,
            Kind::Inner => false,
        });
        if addresses.is_empty() {
            return Err(CallFault::NotAsked {
                host: host.to_string(),
            });
        }
        Ok(addresses)
    }
}

fn has(hosts: &[String], host: &str) -> bool {
    hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
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
            // Named hosts, with that port and no other.
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
                let found = registries.permitted(&host, addresses(resolved));
                let expected = match left {
                    "" => Err(CallFault::NotAsked {
                        host: host.to_string(),
                    }),
                    left => Ok(addresses(left)),
                };
                assert_eq!(found, expected, "{host} {resolved}");
            }
        }
    }
}
