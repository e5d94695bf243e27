//! IP addresses, and blocks of them, as Kubernetes reads them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// A block of IP addresses, as in `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    ip: IpAddr,
    prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl Cidr {
    /// Reads an address, `/` and the length of the prefix in bits, without leading zeros.
    pub fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = prefix == "0" || !prefix.starts_with('0');
        let ip = parse_ip(ip)?;
        let prefix = prefix.parse().ok().filter(|_| is_number && is_short)?;
        (prefix <= bits(ip)).then_some(Self { ip, prefix })
    }

    /// The block with all bits behind the prefix zero.
    #[must_use]
    pub fn masked(self) -> Self {
        let ip = match self.ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX
                    .checked_shl(32 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX
                    .checked_shl(128 - u32::from(self.prefix))
                    .unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        };
        Self { ip, ..self }
    }

    /// The address as it was written.
    pub fn ip(self) -> IpAddr {
        self.ip
    }

    /// The length of the prefix, in bits.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Returns whether this block contains all addresses of `other`.
    pub fn contains(self, other: Self) -> bool {
        let start = Self {
            ip: other.ip,
            prefix: self.prefix,
        };
        self.prefix <= other.prefix
            && other.ip.is_ipv4() == self.ip.is_ipv4()
            && start.masked() == self.masked()
    }
}

/// The block of one address.
impl From<IpAddr> for Cidr {
    fn from(ip: IpAddr) -> Self {
        Self {
            ip,
            prefix: bits(ip),
        }
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Reads an IP address. Like Kubernetes it refuses an IPv4 address in the form of an IPv6 address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.parse().ok()? {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Cidr {
        Cidr::parse(text).unwrap_or_else(|| panic!("{text} is a block"))
    }

    #[test]
    fn a_prefix_is_a_plain_number_that_the_address_has_bits_for() {
        for text in ["0.0.0.0/0", "10.0.0.1/32", "::1/128"] {
            assert_eq!(block(text).to_string(), text);
        }
        for text in [
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "10.0.0.0/33",
            "::/129",
            "::ffff:1.2.3.4/120",
        ] {
            assert_eq!(Cidr::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_block_contains_itself_and_its_parts() {
        for (whole, part, contains) in [
            ("10.0.0.0/8", "10.0.0.0/8", true),
            ("10.0.0.0/8", "10.255.0.0/16", true),
            ("10.0.0.0/8", "11.0.0.0/16", false),
            ("10.0.0.0/16", "10.0.0.0/8", false),
            ("2001:db8::/32", "2001:db8:1::/48", true),
            ("2001:db8::/32", "2001:db9::/48", false),
            ("::/0", "10.0.0.0/8", false),
        ] {
            let found = block(whole).contains(block(part));
            assert_eq!(found, contains, "{part} in {whole}");
        }
    }
}
