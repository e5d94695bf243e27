//! Encodings, digests and certificates: all but compression is the library of JMESPath's functions.

use anteroom_functions::{
    gzip,
    json::{parsed_bytes_max, text_within},
    pure,
};

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    kind::Kind::{self, Any, Bytes, Map, Text},
    value::{of_json, to_json},
};

const OF_TEXT: &[Kind] = &[Text];
const OF_BYTES: &[Kind] = &[Bytes];

pub(super) const FUNCTIONS: &[Function] = &[
    global("base64.encode", (1, 1), OF_BYTES, Text, base64_encode),
    global("base64.decode", (1, 1), OF_TEXT, Bytes, base64_decode),
    global("gzip.compress", (1, 1), &[Text, Bytes], Bytes, compress),
    global("gzip.decompress", (1, 1), OF_BYTES, Text, decompress),
    global("hash.md5", (1, 1), OF_TEXT, Text, md5),
    global("hash.sha1", (1, 1), OF_TEXT, Text, sha1),
    global("hash.sha256", (1, 1), OF_TEXT, Text, sha256),
    global("json.marshal", (1, 1), &[], Text, marshal),
    global("json.unmarshal", (1, 1), OF_TEXT, Any, unmarshal),
    global("md5", (1, 1), OF_TEXT, Text, md5),
    global("sha1", (1, 1), OF_TEXT, Text, sha1),
    global("sha256", (1, 1), OF_TEXT, Text, sha256),
    global("x509.decode", (1, 1), OF_TEXT, Map, certificate),
    global("yaml.parse", (1, 1), OF_TEXT, Any, parse_yaml),
];

/// The size of what is in a certificate, in bytes for each byte of its text.
const CERTIFICATE_TIMES: usize = 8;

fn base64_encode<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Bytes(bytes)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(bytes.len().div_ceil(3) * 4)?;
    Ok(Val::text(pure::base64_text(bytes)))
}

/// The padding may be left out.
fn base64_decode<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(2 * text.len())?;
    let plain = text.chars().filter(|c| !matches!(c, '\n' | '\r')).count();
    let padding = match (text.contains('='), plain % 4) {
        (false, 2) => "==",
        (false, 3) => "=",
        _ => "",
    };
    let padded = format!("{}{padding}", &**text);
    match pure::base64_bytes(&without_trailing_bits(padded)) {
        Ok(bytes) => Ok(Val::Bytes(bytes.into())),
        Err(message) => Err(EvalError::Refused(message)),
    }
}

/// The digits of base64 in order.
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Go does not look at the bits of the last digit that are of no byte; the decoder here wants them to be zero.
fn without_trailing_bits(text: String) -> String {
    let plain = text.trim_end_matches(['=', '\n', '\r']);
    let bits = match text[plain.len()..].matches('=').count() {
        1 => 2,
        2 => 4,
        _ => return text,
    };
    let last = plain
        .chars()
        .next_back()
        .and_then(|last| u8::try_from(last).ok());
    let place = last.and_then(|last| DIGITS.iter().position(|digit| *digit == last));
    let digit = place.and_then(|place| DIGITS.get(place >> bits << bits));
    match digit {
        Some(digit) => format!(
            "{}{}{}",
            &plain[..plain.len() - 1],
            char::from(*digit),
            &text[plain.len()..]
        ),
        None => text,
    }
}

fn compress<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let bytes = match arguments {
        [Val::Text(text)] => text.as_bytes(),
        [Val::Bytes(bytes)] => bytes,
        other => return call.mismatch(other),
    };
    // It is looked for what stood before, byte by byte.
    call.budget().charge_scan(16 * bytes.len())?;
    let compressed =
        gzip::compress(bytes).map_err(|error| EvalError::Refused(error.to_string()))?;
    call.budget().build(compressed.len())?;
    Ok(Val::Bytes(compressed.into()))
}

fn decompress<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Bytes(bytes)] = arguments else {
        return call.mismatch(arguments);
    };
    let most = usize::try_from(call.budget().built_bytes).unwrap_or(usize::MAX);
    let held = match gzip::decompress(bytes, most) {
        Ok(held) => held,
        Err(gzip::GzipError::TooLong(most)) => {
            // More than the budget has.
            call.budget().build(most.saturating_add(1))?;
            return Err(EvalError::Bytes);
        }
        Err(error) => return Err(EvalError::Refused(error.to_string())),
    };
    call.budget().build(held.len())?;
    match String::from_utf8(held) {
        Ok(text) => Ok(Val::text(text)),
        Err(_) => Err(EvalError::refused(
            "what is compressed is not a text in UTF-8",
        )),
    }
}

fn digest<'v>(
    call: &mut CallContext<'_>,
    arguments: &[Val<'v>],
    digest: fn(&[u8]) -> String,
) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    // A digest reads a byte in a few nanoseconds.
    call.budget().charge_scan(4 * text.len())?;
    let digits = digest(text.as_bytes());
    call.budget().build(digits.len())?;
    Ok(Val::text(digits))
}

fn md5<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    digest(call, arguments, pure::md5)
}

fn sha1<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    digest(call, arguments, pure::sha1)
}

fn sha256<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    digest(call, arguments, pure::sha256)
}

fn marshal<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [value] = arguments else {
        return call.mismatch(arguments);
    };
    let before = call.budget().json_bytes;
    let json = to_json(value, None, call.budget())?;
    call.budget().json_bytes = before;
    let most = call.budget().built_bytes;
    let Some(text) = text_within(&json, most) else {
        // More than the budget has.
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        call.budget().build(most.saturating_add(1))?;
        return Err(EvalError::Bytes);
    };
    let escaped = text
        .chars()
        .map(|c| go_escape(c).map_or(c.len_utf8(), str::len));
    call.budget().build(escaped.sum())?;
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match go_escape(c) {
            Some(escape) => written.push_str(escape),
            None => written.push(c),
        }
    }
    Ok(Val::text(written))
}

/// Returns the escape that Go writes in JSON for a character with a meaning in HTML or JavaScript.
fn go_escape(c: char) -> Option<&'static str> {
    Some(match c {
        '<' => "\\u003c",
        '>' => "\\u003e",
        '&' => "\\u0026",
        '\u{2028}' => "\\u2028",
        '\u{2029}' => "\\u2029",
        _ => return None,
    })
}

fn unmarshal<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    let bytes = parsed_bytes_max(text.as_bytes());
    call.budget().passing_json(bytes)?;
    let json = pure::parsed_json(text).map_err(EvalError::Refused)?;
    of_json(&json, call.budget())
}

fn parse_yaml<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().steps(pure::yaml_steps(text))?;
    let (json, bytes) = pure::parsed_yaml(text, call.budget().json_bytes_max());
    call.budget().passing_json(bytes)?;
    of_json(&json.map_err(EvalError::Refused)?, call.budget())
}

fn certificate<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    // The numbers of it are divided by ten, digit by digit.
    call.budget().steps(text.len() as u64)?;
    call.budget()
        .build(text.len().saturating_mul(CERTIFICATE_TIMES))?;
    let json = pure::certificate(text).map_err(EvalError::Refused)?;
    of_json(&json, call.budget())
}
