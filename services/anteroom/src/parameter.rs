//! Parameters of queries on the command line.

use serde_json::Value;

/// `NAME=VALUE`, where the value is JSON, or else a string.
pub(crate) fn parse_parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    let is_name = !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    if !is_name {
        return Err(format!("{name:?} is not a name: letters, digits and _"));
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_json_or_strings() {
        assert_eq!(parse_parameter("a=1"), Ok(("a".into(), json!(1))));
        assert_eq!(parse_parameter("a=b=c"), Ok(("a".into(), json!("b=c"))));
        assert_eq!(parse_parameter("a="), Ok(("a".into(), json!(""))));
        assert_eq!(parse_parameter("a=\"1\""), Ok(("a".into(), json!("1"))));
        for bad in ["a", "=1", "a-b=1", "1a=1"] {
            assert!(parse_parameter(bad).is_err(), "{bad}");
        }
    }
}
