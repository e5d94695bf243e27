//! Addresses and blocks of addresses.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::{Answer, Function, Given, global, method};
use crate::{
    EvalError,
    compile::Kind::{self, Bool, Cidr as Block, Int, Ip as Address, Text},
    value::Val,
};

const OF_TEXT: &[Kind] = &[Text];
const OF_IP: &[Kind] = &[Address];
const OF_CIDR: &[Kind] = &[Block];

pub(super) const FUNCTIONS: &[Function] = &[
    global("ip", (1, 1), OF_TEXT, Address, ip),
    global("isIP", (1, 1), OF_TEXT, Bool, is_ip),
    global("ip.isCanonical", (1, 1), OF_TEXT, Bool, is_canonical),
    method("family", (1, 1), OF_IP, Int, family),
    method("isUnspecified", (1, 1), OF_IP, Bool, about_ip),
    method("isLoopback", (1, 1), OF_IP, Bool, about_ip),
    method("isLinkLocalMulticast", (1, 1), OF_IP, Bool, about_ip),
    method("isLinkLocalUnicast", (1, 1), OF_IP, Bool, about_ip),
    method("isGlobalUnicast", (1, 1), OF_IP, Bool, about_ip),
    global("cidr", (1, 1), OF_TEXT, Block, cidr),
    global("isCIDR", (1, 1), OF_TEXT, Bool, is_cidr),
    method("containsIP", (2, 2), OF_CIDR, Bool, contains),
    method("containsCIDR", (2, 2), OF_CIDR, Bool, contains),
    method("ip", (1, 1), OF_CIDR, Address, of_cidr),
    method("masked", (1, 1), OF_CIDR, Block, of_cidr),
    method("prefixLength", (1, 1), OF_CIDR, Int, of_cidr),
];

/// A block of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cidr {
    ip: IpAddr,
    prefix: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix)
    }
}

impl Cidr {
    fn parse(text: &str) -> Option<Self> {
        let (ip, prefix) = text.split_once('/')?;
        let is_number = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let is_short = prefix == "0" || !prefix.starts_with('0');
        let ip = parse_ip(ip)?;
        let prefix = prefix.parse().ok().filter(|_| is_number && is_short)?;
        (prefix <= bits(ip)).then_some(Self { ip, prefix })
    }

    fn masked(self) -> Self {
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

    fn contains(self, ip: IpAddr) -> bool {
        let of = Self {
            ip,
            prefix: self.prefix,
        };
        ip.is_ipv4() == self.ip.is_ipv4() && of.masked() == self.masked()
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Addresses of the old kind in the form of the new one are refused, as Kubernetes does.
fn parse_ip(text: &str) -> Option<IpAddr> {
    match text.parse().ok()? {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => None,
        ip => Some(ip),
    }
}

fn refused<'v>(text: &str, what: &str) -> Answer<'v> {
    let start: String = text.chars().take(50).collect();
    Err(EvalError::Refused(format!("`{start}` is no {what}")))
}

fn ip<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => match parse_ip(text) {
            Some(ip) => Ok(Val::Ip(ip)),
            None => refused(text, "IP address"),
        },
        other => given.mismatch(other),
    }
}

fn is_ip<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(parse_ip(text).is_some())),
        other => given.mismatch(other),
    }
}

fn is_canonical<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => match parse_ip(text) {
            Some(ip) => Ok(Val::Bool(ip.to_string() == **text)),
            None => refused(text, "IP address"),
        },
        other => given.mismatch(other),
    }
}

fn family<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Ip(ip)] => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        other => given.mismatch(other),
    }
}

fn about_ip<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Ip(ip)] = arguments else {
        return given.mismatch(arguments);
    };
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let link_local_multicast = match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    };
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    Ok(Val::Bool(match given.name {
        "isUnspecified" => ip.is_unspecified(),
        "isLoopback" => ip.is_loopback(),
        "isLinkLocalMulticast" => link_local_multicast,
        "isLinkLocalUnicast" => link_local,
        _ => {
            let is_special = ip.is_unspecified() || ip.is_loopback() || ip.is_multicast();
            !(is_special || link_local || is_broadcast)
        }
    }))
}

fn cidr<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => match Cidr::parse(text) {
            Some(cidr) => Ok(Val::Cidr(cidr)),
            None => refused(text, "block of addresses as in 10.0.0.0/8"),
        },
        other => given.mismatch(other),
    }
}

fn is_cidr<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(Cidr::parse(text).is_some())),
        other => given.mismatch(other),
    }
}

fn contains<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let inner = match (given.name, arguments) {
        ("containsIP", [_, Val::Ip(ip)]) => Some((*ip, bits(*ip))),
        ("containsIP", [_, Val::Text(text)]) => match parse_ip(text) {
            Some(ip) => Some((ip, bits(ip))),
            None => return refused(text, "IP address"),
        },
        ("containsCIDR", [_, Val::Cidr(cidr)]) => Some((cidr.ip, cidr.prefix)),
        ("containsCIDR", [_, Val::Text(text)]) => match Cidr::parse(text) {
            Some(cidr) => Some((cidr.ip, cidr.prefix)),
            None => return refused(text, "block of addresses as in 10.0.0.0/8"),
        },
        _ => None,
    };
    match (arguments, inner) {
        ([Val::Cidr(outer), _], Some((ip, prefix))) => {
            Ok(Val::Bool(outer.prefix <= prefix && outer.contains(ip)))
        }
        _ => given.mismatch(arguments),
    }
}

fn of_cidr<'v>(given: &mut Given<'_>, arguments: &[Val<'v>]) -> Answer<'v> {
    let [Val::Cidr(cidr)] = arguments else {
        return given.mismatch(arguments);
    };
    Ok(match given.name {
        "ip" => Val::Ip(cidr.ip),
        "masked" => Val::Cidr(cidr.masked()),
        _ => Val::Int(i64::from(cidr.prefix)),
    })
}
