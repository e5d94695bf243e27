//! `x509_decode`: what is in a certificate, or in a request for one, by the names of Go's `crypto/x509`.
//!
//! Only RSA keys are described, as in Kyverno; a certificate with another key is refused. Signatures are not checked.

mod extensions;
mod names;

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};
use x509_parser::{
    asn1_rs::Oid,
    certificate::X509Certificate,
    certification_request::X509CertificationRequest,
    cri_attributes::ParsedCriAttribute,
    num_bigint::BigUint,
    pem::Pem,
    prelude::FromDer,
    public_key::{PublicKey, RSAPublicKey},
    time::ASN1Time,
    x509::{AlgorithmIdentifier, SubjectPublicKeyInfo},
};

use super::arguments::string;
use extensions::Extensions;

/// Bytes of a certificate's text; more is an error.
const TEXT_BYTES_MAX: usize = 64 * 1024;

/// Bytes of the modulus of a key; more is an error.
const MODULUS_BYTES_MAX: usize = 2048;

/// Go's numbers of what signs: OID and, with PSS, a part of its parameters, which name the digest.
const SIGNATURES: &[(&str, &[u8], u8)] = &[
    ("1.2.840.113549.1.1.4", &[], 2),
    ("1.2.840.113549.1.1.5", &[], 3),
    ("1.3.14.3.2.29", &[], 3),
    ("1.2.840.113549.1.1.11", &[], 4),
    ("1.2.840.113549.1.1.12", &[], 5),
    ("1.2.840.113549.1.1.13", &[], 6),
    ("1.2.840.10040.4.3", &[], 7),
    ("2.16.840.1.101.3.4.3.2", &[], 8),
    ("1.2.840.10045.4.1", &[], 9),
    ("1.2.840.10045.4.3.2", &[], 10),
    ("1.2.840.10045.4.3.3", &[], 11),
    ("1.2.840.10045.4.3.4", &[], 12),
    (PSS, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1], 13),
    (PSS, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2], 14),
    (PSS, &[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3], 15),
    ("1.3.101.112", &[], 16),
];

const PSS: &str = "1.2.840.113549.1.1.10";

const RSA: &str = "1.2.840.113549.1.1.1";

/// Go's number of RSA.
const RSA_NUMBER: u8 = 1;

pub(super) fn register(table: &mut FunctionTable) {
    table.register("x509_decode", Signature::of([Types::STRING]), x509_decode);
}

fn x509_decode(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let text = string(call, 0)?;
    // The numbers of it are divided by ten, digit by digit.
    call.charge_steps(text.len())?;
    match certificate(&text) {
        Ok(decoded) => call.new_json(&decoded),
        Err(problem) => Err(call.invalid_value(problem)),
    }
}

/// Returns the fields of the certificate, or of the request for one, in a PEM block.
///
/// # Errors
/// The reason why a text is no certificate and no request, in words.
pub fn certificate(text: &str) -> Result<Value, String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("the text is longer than {TEXT_BYTES_MAX} bytes"));
    }
    let block = Pem::iter_from_buffer(text.as_bytes()).next();
    let Some(Ok(block)) = block else {
        return Err("the text is no PEM block".to_owned());
    };
    match &*block.label {
        "CERTIFICATE" => match X509Certificate::from_der(&block.contents) {
            Ok(([], certificate)) => of_certificate(&certificate),
            Ok(_) => Err("something follows the certificate in its block".to_owned()),
            Err(error) => Err(format!("it is no certificate: {error}")),
        },
        "CERTIFICATE REQUEST" => match X509CertificationRequest::from_der(&block.contents) {
            Ok(([], request)) => of_request(&request),
            Ok(_) => Err("something follows the request in its block".to_owned()),
            Err(error) => Err(format!("it is no certificate request: {error}")),
        },
        _ => Err("the PEM block is neither a `CERTIFICATE` nor a `CERTIFICATE REQUEST`".to_owned()),
    }
}

fn of_certificate(certificate: &X509Certificate<'_>) -> Result<Value, String> {
    let tbs = &certificate.tbs_certificate;
    let mut fields = Extensions::of(tbs.extensions()).of_certificate();
    put(
        &mut fields,
        json!({
            "Raw": bytes(certificate.as_raw()),
            "RawTBSCertificate": bytes(tbs.as_ref()),
            "RawIssuer": bytes(tbs.issuer.as_raw()),
            "Version": tbs.version.0.saturating_add(1),
            "SerialNumber": number(&tbs.serial),
            "Issuer": names::name(&tbs.issuer),
            "NotBefore": time(tbs.validity.not_before)?,
            "NotAfter": time(tbs.validity.not_after)?,
        }),
    );
    of_both(
        &mut fields,
        &tbs.subject,
        &tbs.subject_pki,
        &certificate.signature_algorithm,
        &certificate.signature_value.data,
    )?;
    Ok(Value::Object(fields))
}

fn of_request(request: &X509CertificationRequest<'_>) -> Result<Value, String> {
    let info = &request.certification_request_info;
    let asked = info
        .iter_attributes()
        .find_map(|attribute| match attribute.parsed_attribute() {
            ParsedCriAttribute::ExtensionRequest(asked) => Some((attribute, &*asked.extensions)),
            _ => None,
        });
    let extensions = asked.map_or(&[][..], |(_, extensions)| extensions);
    let mut fields = Extensions::of(extensions).of_request();
    // An older form of the extensions: those without a mark that they are critical fit into it.
    let attributes = asked.filter(|_| !extensions.iter().any(|extension| extension.critical));
    let attributes = attributes.map(|(attribute, extensions)| {
        let values: Vec<_> = extensions
            .iter()
            .map(
                |extension| json!({ "Type": oid(&extension.oid), "Value": bytes(extension.value) }),
            )
            .collect();
        json!([{ "Type": oid(&attribute.oid), "Value": [values] }])
    });
    put(
        &mut fields,
        json!({
            "Raw": bytes(request.as_raw()),
            "RawTBSCertificateRequest": bytes(info.raw),
            "Version": info.version.0,
            "Attributes": attributes,
        }),
    );
    of_both(
        &mut fields,
        &info.subject,
        &info.subject_pki,
        &request.signature_algorithm,
        &request.signature_value.data,
    )?;
    Ok(Value::Object(fields))
}

/// Returns the fields that certificates and requests have in common, without extensions.
fn of_both(
    fields: &mut Map<String, Value>,
    subject: &x509_parser::x509::X509Name<'_>,
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    signature: &[u8],
) -> Result<(), String> {
    put(
        fields,
        json!({
            "RawSubject": bytes(subject.as_raw()),
            "RawSubjectPublicKeyInfo": bytes(key.raw),
            "Subject": names::name(subject),
            "PublicKey": public_key(key)?,
            "PublicKeyAlgorithm": RSA_NUMBER,
            "Signature": bytes(signature),
            "SignatureAlgorithm": signature_number(algorithm),
        }),
    );
    Ok(())
}

fn put(fields: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        fields.extend(more);
    }
}

fn public_key(key: &SubjectPublicKeyInfo<'_>) -> Result<Value, String> {
    if key.algorithm.algorithm.to_id_string() != RSA {
        return Err("the key is no RSA key: only RSA keys are supported".to_owned());
    }
    match key.parsed() {
        Ok(PublicKey::RSA(RSAPublicKey { modulus, .. })) if modulus.len() > MODULUS_BYTES_MAX => {
            Err(format!("the key is longer than {MODULUS_BYTES_MAX} bytes"))
        }
        Ok(PublicKey::RSA(key)) => {
            let exponent = key
                .try_exponent()
                .map_err(|error| format!("the key's exponent is none: {error}"))?;
            let modulus = BigUint::from_bytes_be(key.modulus).to_string();
            Ok(json!({ "N": modulus, "E": exponent }))
        }
        _ => Err("the key is malformed".to_owned()),
    }
}

fn signature_number(algorithm: &AlgorithmIdentifier<'_>) -> u8 {
    let name = algorithm.algorithm.to_id_string();
    let parameters = algorithm
        .parameters
        .as_ref()
        .map_or(&[][..], |any| any.data);
    let has = |part: &[u8]| {
        part.is_empty() || parameters.windows(part.len()).any(|window| window == part)
    };
    let found = SIGNATURES
        .iter()
        .find(|(of, part, _)| *of == name && has(part));
    found.map_or(0, |(_, _, number)| *number)
}

/// Returns the number exactly up to 64 bits. A larger number becomes a float, as in JSON readers without larger
/// integers.
fn number(number: &BigUint) -> Value {
    match u64::try_from(number) {
        Ok(number) => number.into(),
        Err(_) => number.to_string().parse::<f64>().unwrap_or(f64::MAX).into(),
    }
}

fn time(time: ASN1Time) -> Result<String, String> {
    jiff::Timestamp::from_second(time.timestamp())
        .map(|time| time.to_string())
        .map_err(|_| "a time of it is out of range".to_owned())
}

fn bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn oid(oid: &Oid<'_>) -> Value {
    match oid.iter() {
        Some(arcs) => arcs.collect(),
        // An arc of it is beyond 64 bits.
        None => Value::Null,
    }
}

/// A list, or null where there is nothing in it.
fn listed(values: Vec<Value>) -> Value {
    match values.is_empty() {
        true => Value::Null,
        false => Value::Array(values),
    }
}

#[cfg(test)]
mod tests;
