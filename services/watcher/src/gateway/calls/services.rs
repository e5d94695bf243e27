//! The services that policies and entries may call, and their addresses. Pure.

use std::net::IpAddr;

use http::uri::Authority;

use super::{AddressFilter, AddressKind, address_kind};

/// The services that may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Services {
    /// Hosts that are called wherever they are. One without a port stands for each of its ports.
    pub(crate) trusted: Vec<Authority>,
}

impl AddressFilter for Services {
    fn is_trusted(&self, host: &Authority) -> bool {
        self.trusted.iter().any(|trusted| {
            let is_port = match (trusted.port_u16(), host.port_u16()) {
                (None, _) => true,
                // A URL leaves out the port of its scheme.
                (Some(port), None) => matches!(port, 80 | 443),
                (Some(port), Some(called)) => port == called,
            };
            is_port && trusted.host().eq_ignore_ascii_case(host.host())
        })
    }

    fn permits(&self, address: IpAddr) -> bool {
        address_kind(address) != AddressKind::NeverCalled
    }

    fn refusal(&self) -> &'static str {
        "at a loopback, link-local or metadata address, where no service is called: if it is meant, name the host in \
         the watcher's `--trusted-service`"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_trusted_with_the_port_that_is_named_or_with_any() {
        let trusted = ["Vault.corp:8200", "localhost", "[::1]:80"];
        let trusted = trusted.map(|host| host.parse().unwrap()).to_vec();
        let services = Services { trusted };
        for (host, is_trusted) in [
            ("vault.corp:8200", true),
            ("vault.corp:8201", false),
            ("vault.corp", false),
            ("LOCALHOST", true),
            ("localhost:9090", true),
            ("127.0.0.1", false),
            ("localhost.evil.example", false),
            ("[::1]", true),
            ("[::1]:81", false),
        ] {
            assert_eq!(
                services.is_trusted(&host.parse().unwrap()),
                is_trusted,
                "{host}"
            );
        }
    }

    #[test]
    fn services_of_the_cluster_are_called_and_what_is_local_to_a_machine_is_not() {
        let services = Services::default();
        for (address, permits) in [
            ("10.96.0.10", true),
            ("1.1.1.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("fd00:ec2::254", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
        ] {
            assert_eq!(
                services.permits(address.parse().unwrap()),
                permits,
                "{address}"
            );
        }
    }
}
