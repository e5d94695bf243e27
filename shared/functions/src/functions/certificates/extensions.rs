//! Extensions of certificates and requests, as JSON.

use serde_json::{Map, Value, json};
use x509_parser::extensions::{
    DistributionPointName, ExtendedKeyUsage, GeneralName, ParsedExtension, X509Extension,
};

use super::{bytes, listed, names::Alternative, oid, put};

/// Go's numbers of what a key may be used for: a flag of the extension, and its number.
type UsageFlag = (fn(&ExtendedKeyUsage<'_>) -> bool, u8);

const USAGES: &[UsageFlag] = &[
    (|usage| usage.any, 0),
    (|usage| usage.server_auth, 1),
    (|usage| usage.client_auth, 2),
    (|usage| usage.code_signing, 3),
    (|usage| usage.email_protection, 4),
    (|usage| usage.time_stamping, 8),
    (|usage| usage.ocsp_signing, 9),
];

const OCSP: &str = "1.3.6.1.5.5.7.48.1";

const ISSUERS: &str = "1.3.6.1.5.5.7.48.2";

/// Fields of a certificate that are about constraints of names and of policies, which Kyverno's policies
/// have no use for: they read as if the certificate had none.
const NOT_TOLD: &[&str] = &[
    "ExcludedDNSDomains",
    "ExcludedEmailAddresses",
    "ExcludedIPRanges",
    "ExcludedURIDomains",
    "PermittedDNSDomains",
    "PermittedEmailAddresses",
    "PermittedIPRanges",
    "PermittedURIDomains",
    "Policies",
    "PolicyIdentifiers",
    "PolicyMappings",
    "UnhandledCriticalExtensions",
];

pub(super) struct Extensions<'e>(&'e [X509Extension<'e>]);

impl<'e> Extensions<'e> {
    pub(super) fn of(extensions: &'e [X509Extension<'e>]) -> Self {
        Self(extensions)
    }

    fn find<T>(&self, what: impl Fn(&'e ParsedExtension<'e>) -> Option<T>) -> Option<T> {
        self.0
            .iter()
            .find_map(|extension| what(extension.parsed_extension()))
    }

    /// Returns the extensions of a certificate request, which has only some of a certificate's.
    pub(super) fn of_request(&self) -> Map<String, Value> {
        let all = self.0.iter().map(|extension| {
            json!({
                "Id": oid(&extension.oid), "Critical": extension.critical,
                "Value": bytes(extension.value),
            })
        });
        let names = self.find(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
            _ => None,
        });
        let Alternative {
            dns,
            email,
            addresses,
            uris,
        } = Alternative::of(names.into_iter().flatten());
        let mut fields = Map::new();
        put(
            &mut fields,
            json!({
                "Extensions": listed(all.collect()), "ExtraExtensions": null,
                "DNSNames": listed(dns), "EmailAddresses": listed(email),
                "IPAddresses": listed(addresses), "URIs": listed(uris),
            }),
        );
        fields
    }

    pub(super) fn of_certificate(&self) -> Map<String, Value> {
        let mut fields = self.of_request();
        for name in NOT_TOLD {
            fields.insert((*name).to_owned(), Value::Null);
        }
        let keys = self.keys();
        put(&mut fields, self.usage());
        put(&mut fields, self.constraints());
        put(&mut fields, self.places());
        put(&mut fields, keys);
        fields
    }

    fn keys(&self) -> Value {
        let own = self.find(|extension| match extension {
            ParsedExtension::SubjectKeyIdentifier(key) => Some(bytes(key.0)),
            _ => None,
        });
        let issuer = self.find(|extension| match extension {
            ParsedExtension::AuthorityKeyIdentifier(key) => {
                key.key_identifier.as_ref().map(|key| bytes(key.0))
            }
            _ => None,
        });
        json!({ "SubjectKeyId": own, "AuthorityKeyId": issuer })
    }

    fn usage(&self) -> Value {
        let usage = self.find(|extension| match extension {
            ParsedExtension::KeyUsage(usage) => Some(usage.flags),
            _ => None,
        });
        let extended = self.find(|extension| match extension {
            ParsedExtension::ExtendedKeyUsage(usage) => Some(usage),
            _ => None,
        });
        let known = USAGES
            .iter()
            .filter(|(flag, _)| extended.is_some_and(flag))
            .map(|(_, number)| (*number).into());
        let unknown = extended.into_iter().flat_map(|usage| &usage.other).map(oid);
        json!({
            "KeyUsage": usage.unwrap_or_default(),
            "ExtKeyUsage": listed(known.collect()),
            "UnknownExtKeyUsage": listed(unknown.collect()),
        })
    }

    /// A length of -1: there is no limit.
    fn constraints(&self) -> Value {
        let basic = self.find(|extension| match extension {
            ParsedExtension::BasicConstraints(basic) => Some(basic),
            _ => None,
        });
        let length = basic.map(|basic| basic.path_len_constraint.map_or(-1, i64::from));
        json!({
            "BasicConstraintsValid": basic.is_some(),
            "IsCA": basic.is_some_and(|basic| basic.ca),
            "MaxPathLen": length.unwrap_or_default(), "MaxPathLenZero": length == Some(0),
            "PermittedDNSDomainsCritical": false,
            "InhibitAnyPolicy": 0, "InhibitAnyPolicyZero": false,
            "InhibitPolicyMapping": 0, "InhibitPolicyMappingZero": false,
            "RequireExplicitPolicy": 0, "RequireExplicitPolicyZero": false,
        })
    }

    /// The addresses of more information on a certificate.
    fn places(&self) -> Value {
        let access = self.find(|extension| match extension {
            ParsedExtension::AuthorityInfoAccess(access) => Some(&access.accessdescs),
            _ => None,
        });
        let by = |method: &str| {
            let found = access
                .into_iter()
                .flatten()
                .filter(|access| access.access_method.to_id_string() == method)
                .filter_map(|access| uri(&access.access_location));
            listed(found.collect())
        };
        let lists = self.find(|extension| match extension {
            ParsedExtension::CRLDistributionPoints(points) => Some(&points.points),
            _ => None,
        });
        let lists = lists.into_iter().flatten().flat_map(|point| {
            let names = match &point.distribution_point {
                Some(DistributionPointName::FullName(names)) => names.as_slice(),
                _ => &[],
            };
            names.iter().filter_map(uri)
        });
        json!({
            "OCSPServer": by(OCSP), "IssuingCertificateURL": by(ISSUERS),
            "CRLDistributionPoints": listed(lists.collect()),
        })
    }
}

fn uri(name: &GeneralName<'_>) -> Option<Value> {
    match name {
        GeneralName::URI(uri) => Some((*uri).into()),
        _ => None,
    }
}
