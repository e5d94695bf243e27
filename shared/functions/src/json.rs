//! JSON text: reading what nests deep, and the memory that it takes.
//!
//! serde_json follows 128 levels. The API server takes more, so an object that somebody made deep on purpose
//! must be read, or be known to be too deep.

mod parsed;

use std::io;

use serde::de::DeserializeSeed;
use serde_json::Value;
use thiserror::Error;

pub use parsed::parsed_bytes_max;

/// The deepest nesting that is read. Real objects stay under 100.
pub const DEPTH_MAX: usize = 512;

/// The deepest nesting that serde_json follows by default.
const DEPTH_BY_DEFAULT: usize = 127;

/// A text cannot be read.
#[derive(Debug, Error)]
pub enum JsonError {
    /// The text nests deeper than [`DEPTH_MAX`].
    #[error("it nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    /// The text is no JSON, or not of the shape that is expected.
    #[error(transparent)]
    Malformed(#[from] serde_json::Error),
}

/// Reads a text by `read`; one that nests too deep for it, with `seed`, on a stack that grows. It costs nothing
/// where `read` succeeds.
///
/// # Errors
/// See [`JsonError`].
pub fn read<'de, S: DeserializeSeed<'de>>(
    text: &'de [u8],
    seed: S,
    read: impl FnOnce() -> serde_json::Result<S::Value>,
) -> Result<S::Value, JsonError> {
    let error = match read() {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let depth = depth(text);
    if depth <= DEPTH_BY_DEFAULT {
        return Err(error.into());
    }
    if depth > DEPTH_MAX {
        return Err(JsonError::TooDeep);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let value = seed.deserialize(serde_stacker::Deserializer::new(&mut deserializer))?;
    deserializer.end()?;
    Ok(value)
}

/// Returns a value as compact JSON text of at most so many bytes; `None`: it is longer.
pub fn text_within(value: &Value, bytes_max: u64) -> Option<String> {
    let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let mut writer = LimitedText {
        text: Vec::new(),
        bytes_max,
    };
    serde_json::to_writer(&mut writer, value).ok()?;
    String::from_utf8(writer.text).ok()
}

/// A text that is written until it would be longer than it may.
struct LimitedText {
    text: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for LimitedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max - self.text.len() {
            return Err(io::Error::other("too long"));
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The deepest nesting of arrays and objects in a JSON text. Of a text that is no JSON, some number.
fn depth(text: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b'}' | b']' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use std::marker::PhantomData;

    use serde_json::json;

    use super::*;

    fn read_value(text: &str) -> Result<Value, JsonError> {
        let seed = PhantomData::<Value>;
        read(text.as_bytes(), seed, || serde_json::from_str(text))
    }

    fn nested(depth: usize) -> String {
        format!("{}{}", "[".repeat(depth), "]".repeat(depth))
    }

    #[test]
    fn a_text_is_written_up_to_its_longest() {
        for value in [json!(null), json!({"a": ["<\u{1}", 1.5]})] {
            let text = value.to_string();
            let within = |bytes: usize| text_within(&value, bytes as u64);
            assert_eq!(within(text.len()).as_ref(), Some(&text));
            assert_eq!(within(text.len() - 1), None);
        }
    }

    #[test]
    fn depth_counts_open_brackets_outside_of_strings() {
        for (text, expected) in [
            ("1", 0),
            ("{}", 1),
            (r#"{"a":[[]],"b":{}}"#, 3),
            (r#"["[[[{\"[[["]"#, 1),
            (r#"["\\",[1]]"#, 2),
            (r#"[["]]",[1]]]"#, 3),
            ("]]][", 1),
        ] {
            assert_eq!(depth(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_read_up_to_the_greatest_depth() {
        for depth in [1, 127, 128, 129, DEPTH_MAX] {
            assert_eq!(
                read_value(&nested(depth)).unwrap().to_string(),
                nested(depth)
            );
        }
        let too_deep = read_value(&nested(DEPTH_MAX + 1));
        assert!(matches!(too_deep, Err(JsonError::TooDeep)));
    }

    #[test]
    fn malformed_json_is_refused_as_malformed_at_any_depth() {
        for bad in ["{", &"[".repeat(200), &format!("{}1", nested(200))] {
            assert!(
                matches!(read_value(bad), Err(JsonError::Malformed(_))),
                "{bad}"
            );
        }
    }
}
