//! JSON text: a whole number is written as an integer, and characters with a meaning in HTML are escaped.
//!
//! So does Go, whose text policies were written against.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};

use super::json::{JsonText, text_of};

/// The value as JSON text, as `to_string()` writes it.
pub fn json_text(value: &serde_json::Value) -> String {
    let mut text = Vec::new();
    match write_json(&mut text, value) {
        Ok(()) => text_of(text),
        // Nothing is written to but memory.
        Err(_) => value.to_string(),
    }
}

/// The value as JSON text of at most so many bytes; `None`: it is longer.
pub fn json_text_within(value: &serde_json::Value, bytes_max: usize) -> Option<String> {
    JsonText::of(value, bytes_max as u64).ok()
}

pub(crate) fn write_json(writer: impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, GoText))
}

struct GoText;

/// Below it, and from the other on, a float is written with an exponent.
const PLAIN_MIN: f64 = 1e-6;
const PLAIN_END: f64 = 1e21;

impl Formatter for GoText {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        let is_plain = value == 0.0 || (PLAIN_MIN..PLAIN_END).contains(&value.abs());
        match is_plain {
            true => write!(writer, "{value}"),
            false => CompactFormatter.write_f64(writer, value),
        }
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut written = 0;
        for (at, found) in fragment.match_indices(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let code = found.chars().next().map_or(0, u32::from);
            writer.write_all(&fragment.as_bytes()[written..at])?;
            write!(writer, "\\u{code:04x}")?;
            written = at + found.len();
        }
        writer.write_all(&fragment.as_bytes()[written..])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn json_text_is_written_as_go_writes_it() {
        for (value, text) in [
            (json!(1.0), "1"),
            (json!(-2.5), "-2.5"),
            (json!(0.0), "0"),
            (json!(1_000_000.0), "1000000"),
            (json!(1e20), "100000000000000000000"),
            (json!(1e21), "1e+21"),
            (json!(0.000_001), "0.000001"),
            (json!(1e-7), "1e-7"),
            (json!(u64::MAX), "18446744073709551615"),
            (
                json!({"a<": ["<&>\"", 1.0, null]}),
                r#"{"a\u003c":["\u003c\u0026\u003e\"",1,null]}"#,
            ),
            (json!("\u{2028}é\n"), "\"\\u2028é\\n\""),
        ] {
            assert_eq!(json_text(&value), text);
            let within = |bytes: usize| json_text_within(&value, bytes);
            assert_eq!(within(text.len()).as_deref(), Some(text));
            assert_eq!(within(text.len() - 1), None);
        }
    }

    proptest! {
        #[test]
        fn json_text_reads_back_as_the_same_value(text in "[a<>&\\\\\"\u{2028}é\n]{0,12}", number in any::<f64>()) {
            let value = json!([text, {text.clone(): text}]);
            let read: serde_json::Value = serde_json::from_str(&json_text(&value)).unwrap();
            prop_assert_eq!(read, value);
            if number.is_finite() {
                prop_assert_eq!(json_text(&json!(number)).parse::<f64>(), Ok(number));
            }
        }
    }
}
