//! Messages on the bus: from whoever has a login.

use anteroom_model::{ObjectKey, ViewId};
use anteroom_seal::Keys;
use anteroom_wire::{
    beat, body, call, envelope, lease, live, query, referenced, replica_beat, status,
    subject::Subjects, tap, unreadable, violation, webhook_beat,
};
use bytes::Bytes;

/// A record of the log: a subject, and five headers (protocol, operation, epoch, version, trace), each ended by a NUL; then
/// the body.
pub(crate) fn record(input: &[u8]) {
    let mut parts = input.splitn(7, |byte| *byte == 0);
    let mut text = || std::str::from_utf8(parts.next()?).ok();
    let (Some(subject), Some(protocol), Some(op), Some(epoch), Some(version), Some(trace)) =
        (text(), text(), text(), text(), text(), text())
    else {
        return;
    };
    let Some(bytes) = parts.next().map(Bytes::copy_from_slice) else {
        return;
    };
    let header = |name: &str| match name {
        "Anteroom-Protocol" => Some(protocol),
        "Anteroom-Op" => Some(op),
        "Anteroom-Epoch" => Some(epoch),
        "Anteroom-Version" => Some(version),
        "traceparent" => Some(trace),
        _ => None,
    };
    let Ok(subjects) = Subjects::new("c") else {
        return;
    };
    let Ok(mut decoded) = envelope::decode(subject, header, bytes, &subjects) else {
        return;
    };
    // A header may hold what none can be written with, such as a line break. It is left out then.
    let written = envelope::encode(&decoded, &subjects).map(|encoded| encoded.headers.len());
    assert!(written.is_ok(), "{written:?}");
    decoded.trace = None;
    let encoded = envelope::encode(&decoded, &subjects);
    let encoded = encoded.unwrap_or_else(|error| panic!("{error}: {decoded:?}"));
    let header = |name: &str| {
        let mut headers = encoded.headers.iter();
        headers
            .find(|(of, _)| *of == name)
            .map(|(_, value)| value.as_str())
    };
    let again = envelope::decode(&encoded.subject, header, encoded.body.clone(), &subjects);
    assert_eq!(again.ok(), Some(decoded), "it is read as it was written");
}

/// Asserts that encoding a decoded message and decoding it again gives an equal message.
fn round<T: PartialEq + std::fmt::Debug, E>(
    input: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, E>,
    encode: impl Fn(&T) -> Result<Bytes, E>,
) {
    let Ok(first) = decode(input) else { return };
    // What is read may be too large to be written again.
    let Ok(encoded) = encode(&first) else { return };
    assert_eq!(decode(&encoded).ok(), Some(first));
}

/// Decodes a message; the first byte of the input selects its kind.
pub(crate) fn message(input: &[u8]) {
    let Some((kind, input)) = input.split_first() else {
        return;
    };
    match kind % 18 {
        0 => round(input, beat::decode, beat::encode),
        1 => round(input, replica_beat::decode, replica_beat::encode),
        2 => round(input, webhook_beat::decode, webhook_beat::encode),
        3 => round(input, violation::decode, violation::encode),
        4 => round(input, query::decode_request, query::encode_request),
        5 => round(input, query::decode_outcome, query::encode_outcome),
        6 => round(input, live::decode_request, live::encode_request),
        7 => round(input, live::decode_outcome, live::encode_outcome),
        8 => round(input, lease::decode, |(term, holder)| {
            lease::encode(*term, holder)
        }),
        9 => drop(call::take_prefix(Bytes::copy_from_slice(input))),
        10 => document(input),
        11 => {
            if body::validate(input).is_ok() {
                let _ = referenced::read(body::BodyNode::new(input));
            }
        }
        12 => sealed(input),
        13 => drop(unreadable::document(input)),
        14 => round(input, tap::decode, tap::encode),
        15 => tapped(input),
        16 => round(input, status::decode_request, status::encode_request),
        _ => round(input, status::decode_reply, status::encode_reply),
    }
}

/// A webhook's message to an operator, which adds up what several tell.
fn tapped(input: &[u8]) {
    round(input, tap::decode_tapped, tap::encode_tapped);
    let told = tap::decode_tapped(input).ok();
    let Some(summary) = told.and_then(|told| told.summary) else {
        return;
    };
    let mut latencies = summary.latencies;
    for row in &summary.rows {
        latencies.merge(&row.latencies);
    }
    assert!(latencies.quantile(0.5) <= latencies.quantile(0.99));
    assert_eq!(latencies.quantile(1.0).is_none(), latencies.count() == 0);
}

fn document(input: &[u8]) {
    if body::validate(input).is_err() {
        return;
    }
    let Ok(json) = body::to_json(input) else {
        return;
    };
    let encoded = body::encode_json(&json);
    let encoded = encoded.unwrap_or_else(|error| panic!("{error}: {json}"));
    assert_eq!(body::to_json(&encoded).ok(), Some(json));
}

/// Nobody without the keys makes a body or a question that is believed.
fn sealed(input: &[u8]) {
    let Ok(keys) = Keys::ephemeral() else { return };
    let (view, key) = (ViewId::new("v"), ObjectKey::new("n", "o"));
    assert!(keys.open(&view, &key, input).is_err());
    assert!(
        keys.open_question(anteroom_seal::AskedOf::View(&view), input)
            .is_err()
    );
}
