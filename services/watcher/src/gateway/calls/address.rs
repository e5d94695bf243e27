//! Classes of IP addresses, for connections to hosts that others name. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The class of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressKind {
    /// A public address.
    Public,
    /// A private network, inside or beside this cluster.
    Private,
    /// Loopback, link-local, metadata services, unassigned: the watcher never calls them.
    NeverCalled,
}

/// Metadata services and similar at addresses that look public or private.
const METADATA_V4: [Ipv4Addr; 2] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(168, 63, 129, 16),
];

/// The metadata service of Google Cloud, at an IPv6 address that looks private.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254);

/// Returns the class of an address. An IPv6 address that embeds an IPv4 address has the class of that address.
pub(crate) fn address_kind(address: IpAddr) -> AddressKind {
    match address {
        IpAddr::V4(address) => kind_v4(address),
        IpAddr::V6(address) => kind_v6(address),
    }
}

fn kind_v4(address: Ipv4Addr) -> AddressKind {
    let [a, b, c, _] = address.octets();
    match (a, b, c) {
        _ if METADATA_V4.contains(&address) => AddressKind::NeverCalled,
        // This network, loopback, link-local, protocol assignments, multicast, and what is reserved.
        (0 | 127 | 224.., ..) | (169, 254, _) | (192, 0, 0) => AddressKind::NeverCalled,
        (10, ..) | (192, 168, _) | (172, 16..=31, _) | (100, 64..=127, _) | (198, 18..=19, _) => {
            AddressKind::Private
        }
        _ => AddressKind::Public,
    }
}

fn kind_v6(address: Ipv6Addr) -> AddressKind {
    let of = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        kind_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        _ if address == METADATA_V6 => AddressKind::NeverCalled,
        // A network of such services: of metadata, names, time, credentials.
        [0xfd00, 0xec2, ..] => AddressKind::NeverCalled,
        // Written as IPv4 in IPv6, with `::` and `::1` among them, and as translators have it (RFC 2765 and RFC 6052).
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => of(high, low),
        [0x2002, high, low, ..] => of(high, low),
        // As a local translator has it, whose prefix has 96 bits, or 48 or 56: then these are zero, which is an inner address.
        [0x64, 0xff9b, 1, .., high, low] if of(high, low) == AddressKind::NeverCalled => {
            AddressKind::NeverCalled
        }
        // The same with a prefix of 64 bits, and eight zeros behind it (RFC 6052, section 2.2).
        [0x64, 0xff9b, 1, _, a @ ..=0xff, bc, d, 0]
            if d.trailing_zeros() >= 8
                && of(a << 8 | bc >> 8, bc << 8 | d >> 8) == AddressKind::NeverCalled =>
        {
            AddressKind::NeverCalled
        }
        // Local translators, what is unique locally, and what once was local to a site.
        [0x64, 0xff9b, 1, ..] | [0xfc00..=0xfdff | 0xfec0..=0xfeff, ..] => AddressKind::Private,
        // Tunnels to an address that is hidden in it, link-local, multicast.
        [0x2001, 0, ..] | [0xfe80..=0xfebf | 0xff00.., ..] => AddressKind::NeverCalled,
        _ => AddressKind::Public,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_machines_and_of_networks_are_told_from_anybodys() {
        for (kinds, addresses) in [
            (
                AddressKind::NeverCalled,
                "0.0.0.0 0.1.2.3 127.0.0.1 127.255.255.255 169.254.0.0 169.254.169.254 \
                 169.254.255.255 192.0.0.192 224.0.0.1 240.0.0.1 255.255.255.255 \
                 100.100.100.200 168.63.129.16 :: ::1 fe80::1 febf::1 ff00:: ff02::1 \
                 fd00:ec2::254 fd00:ec2::23 fd00:ec2:1::1 \
                 fd20:ce::254 64:ff9b:1::169.254.169.254 64:ff9b:1:2:3:4:7f00:1 \
                 64:ff9b:1:a9fe:a9:fe00:: 64:ff9b:1:ffa9:fe:a9fe:: 64:ff9b:1:ffff:a9:fea9:fe00:0 64:ff9b:1:2:7f:0:100:0 ::ffff:127.0.0.1 ::ffff:169.254.169.254 \
                 ::ffff:0:127.0.0.1 ::ffff:0:169.254.169.254 ::ffff:0:a9fe:a9fe \
                 ::169.254.169.254 64:ff9b::169.254.169.254 2002:a9fe:a9fe:: 2001::1",
            ),
            (
                AddressKind::Private,
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.1 100.64.0.0 \
                 100.127.255.255 198.18.0.1 198.19.255.255 fc00:: fdff::1 fec0::1 feff::1 \
                 64:ff9b:1::10.0.0.1 64:ff9b:1::1.1.1.1 64:ff9b:1:2:1:101:100:0 fd00:ec1::254 fd00:ec3::1 ::ffff:10.0.0.1 64:ff9b::10.0.0.1 2002:0a00:0001::",
            ),
            (
                AddressKind::Public,
                "1.1.1.1 9.255.255.255 11.0.0.0 126.255.255.255 128.0.0.1 169.253.255.255 \
                 169.255.0.0 172.15.255.255 172.32.0.0 192.0.1.0 192.167.255.255 192.169.0.0 \
                 100.63.255.255 100.128.0.0 168.63.129.17 198.17.255.255 198.20.0.0 \
                 223.255.255.255 2600:: 2001:4860:4860::8888 ::ffff:1.1.1.1 64:ff9b::1.1.1.1 \
                 fbff::1",
            ),
        ] {
            for address in addresses.split_whitespace() {
                assert_eq!(address_kind(address.parse().unwrap()), kinds, "{address}");
            }
        }
    }
}
