//! The names in a certificate.

use std::net::IpAddr;

use serde_json::{Value, json};
use x509_parser::{extensions::GeneralName, x509::X509Name};

use super::{listed, oid};

/// Fields of a name that may stand in it more than once, by the last number of 2.5.4.x.
const LISTS: &[(u64, &str)] = &[
    (6, "Country"),
    (7, "Locality"),
    (8, "Province"),
    (9, "StreetAddress"),
    (10, "Organization"),
    (11, "OrganizationalUnit"),
    (17, "PostalCode"),
];

/// Fields of a name that hold one value: of several, the last counts.
const SINGLE: &[(u64, &str)] = &[(3, "CommonName"), (5, "SerialNumber")];

/// A distinguished name.
pub(super) fn name(name: &X509Name<'_>) -> Value {
    let mut made = json!({ "ExtraNames": null });
    for (_, field) in SINGLE {
        made[*field] = "".into();
    }
    for (_, field) in LISTS {
        made[*field] = Value::Null;
    }
    let mut names = Vec::new();
    for attribute in name.iter_attributes() {
        let kind = attribute.attr_type();
        let text = attribute.as_str().ok();
        names.push(json!({ "Type": oid(kind), "Value": text }));
        let (Some(text), Some([2, 5, 4, last])) = (text, arcs(kind)) else {
            continue;
        };
        let of = |table: &[(u64, &'static str)]| {
            let found = table.iter().find(|(number, _)| *number == last);
            found.map(|(_, field)| *field)
        };
        if let Some(field) = of(SINGLE) {
            made[field] = text.into();
        }
        if let Some(field) = of(LISTS) {
            match &mut made[field] {
                Value::Array(all) => all.push(text.into()),
                none => *none = json!([text]),
            }
        }
    }
    made["Names"] = listed(names);
    made
}

/// The four numbers of an OID that has as many.
fn arcs(oid: &x509_parser::asn1_rs::Oid<'_>) -> Option<[u64; 4]> {
    let arcs: Vec<u64> = oid.iter()?.take(5).collect();
    arcs.try_into().ok()
}

/// The names of a subject beside its own, by what they are.
#[derive(Default)]
pub(super) struct Alternative {
    pub(super) dns: Vec<Value>,
    pub(super) email: Vec<Value>,
    pub(super) addresses: Vec<Value>,
    pub(super) uris: Vec<Value>,
}

impl Alternative {
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n GeneralName<'n>>) -> Self {
        let mut found = Self::default();
        for name in names {
            match name {
                GeneralName::DNSName(name) => found.dns.push((*name).into()),
                GeneralName::RFC822Name(name) => found.email.push((*name).into()),
                GeneralName::URI(uri) => found.uris.push(url(uri)),
                GeneralName::IPAddress(bytes) => found.addresses.extend(address(bytes)),
                _ => {}
            }
        }
        found
    }
}

fn address(bytes: &[u8]) -> Option<Value> {
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical(),
        _ => return None,
    };
    Some(address.to_string().into())
}

/// A URL taken apart, by the names of Go's `net/url`.
fn url(text: &str) -> Value {
    let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
    let (scheme, rest) = text.split_once(':').unwrap_or(("", text));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let (user, host) = match authority.rsplit_once('@') {
        Some((_, host)) => (json!({}), host),
        None => (Value::Null, authority),
    };
    let is_opaque = !path.is_empty() && !path.starts_with('/');
    let (opaque, path) = if is_opaque { (path, "") } else { ("", path) };
    json!({
        "Scheme": scheme.to_ascii_lowercase(), "Opaque": opaque, "User": user, "Host": host,
        "Path": path, "RawPath": "", "OmitHost": false, "ForceQuery": text.ends_with('?'),
        "RawQuery": query, "Fragment": fragment, "RawFragment": "",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go's `url.Parse` takes such names apart in the same way.
    #[test]
    fn what_is_no_path_behind_a_scheme_is_opaque() {
        for (text, opaque, path) in [
            ("urn:uuid:1", "uuid:1", ""),
            ("mailto:a@b.example?subject=c", "a@b.example", ""),
            ("file:/a/b", "", "/a/b"),
            ("spiffe://a/b", "", "/b"),
        ] {
            let found = url(text);
            assert_eq!(found["Opaque"], opaque, "{text}");
            assert_eq!(found["Path"], path, "{text}");
        }
    }
}
