//! Addresses and blocks of addresses.

use std::net::IpAddr;

use anteroom_functions::values::{Cidr, parse_ip};

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    EvalError,
    kind::Kind::{self, Bool, Cidr as Block, Int, Ip as Address, Text},
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

fn refused<'v>(text: &str, what: &str) -> CallResult<'v> {
    let start: String = text.chars().take(50).collect();
    Err(EvalError::Refused(format!("`{start}` is no {what}")))
}

fn ip<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => match parse_ip(text) {
            Some(ip) => Ok(Val::Ip(ip)),
            None => refused(text, "IP address"),
        },
        other => call.mismatch(other),
    }
}

fn is_ip<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(parse_ip(text).is_some())),
        other => call.mismatch(other),
    }
}

fn is_canonical<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => match parse_ip(text) {
            Some(ip) => Ok(Val::Bool(ip.to_string() == **text)),
            None => refused(text, "IP address"),
        },
        other => call.mismatch(other),
    }
}

fn family<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Ip(ip)] => Ok(Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        other => call.mismatch(other),
    }
}

fn about_ip<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Ip(ip)] = arguments else {
        return call.mismatch(arguments);
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
    Ok(Val::Bool(match call.name {
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

fn cidr<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => match Cidr::parse(text) {
            Some(cidr) => Ok(Val::Cidr(cidr)),
            None => refused(text, "block of addresses as in 10.0.0.0/8"),
        },
        other => call.mismatch(other),
    }
}

fn is_cidr<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [Val::Text(text)] => Ok(Val::Bool(Cidr::parse(text).is_some())),
        other => call.mismatch(other),
    }
}

fn contains<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let inner = match (call.name, arguments) {
        ("containsIP", [_, Val::Ip(ip)]) => Some(Cidr::from(*ip)),
        ("containsIP", [_, Val::Text(text)]) => match parse_ip(text) {
            Some(ip) => Some(Cidr::from(ip)),
            None => return refused(text, "IP address"),
        },
        ("containsCIDR", [_, Val::Cidr(cidr)]) => Some(*cidr),
        ("containsCIDR", [_, Val::Text(text)]) => match Cidr::parse(text) {
            Some(cidr) => Some(cidr),
            None => return refused(text, "block of addresses as in 10.0.0.0/8"),
        },
        _ => None,
    };
    match (arguments, inner) {
        ([Val::Cidr(outer), _], Some(inner)) => Ok(Val::Bool(outer.contains(inner))),
        _ => call.mismatch(arguments),
    }
}

fn of_cidr<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Cidr(cidr)] = arguments else {
        return call.mismatch(arguments);
    };
    Ok(match call.name {
        "ip" => Val::Ip(cidr.ip()),
        "masked" => Val::Cidr(cidr.masked()),
        _ => Val::Int(i64::from(cidr.prefix())),
    })
}
