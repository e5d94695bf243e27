//! Credentials that stand in the clear in a policy: values of `service.headers`. Pure.

use serde_json::Value;

/// Words in the names of headers that hold credentials.
const WORDS: [&str; 6] = ["auth", "cookie", "key", "password", "secret", "token"];

/// Headers that are warned of.
const WARNINGS_MAX: usize = 16;

/// Returns a warning for each header of a service that looks like a credential.
pub(super) fn warnings(manifest: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk(&manifest["spec"], "spec", &mut found);
    found
}

fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
    if found.len() == WARNINGS_MAX {
        return;
    }
    match value {
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate() {
                walk(value, &format!("{path}[{at}]"), found);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                match name == "apiCall" {
                    true => of_call(value, &path, found),
                    false => walk(value, &path, found),
                }
            }
        }
        _ => {}
    }
}

fn of_call(call: &Value, path: &str, found: &mut Vec<String>) {
    let headers = call["service"]["headers"].as_array().into_iter().flatten();
    for (at, header) in headers.enumerate() {
        let name = header["key"].as_str().unwrap_or_default();
        let has_value = header["value"]
            .as_str()
            .is_some_and(|value| !value.is_empty());
        if found.len() < WARNINGS_MAX && has_value && is_credential(name) {
            found.push(format!(
                "{path}.service.headers[{at}]: the value of `{name}` can be read by everyone who may read the \
                 policy, and is kept in the clear"
            ));
        }
    }
}

fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_header_with_a_credential_is_warned_of_without_its_value() {
        let policy = |name: &str, value: &str| {
            json!({"spec": {"rules": [{"context": [{"name": "x", "apiCall": {
                "service": {"url": "https://s/", "headers": [
                    {"key": "Accept", "value": "application/json"},
                    {"key": name, "value": value},
                ]},
            }}]}]}})
        };
        for name in ["Authorization", "X-API-Key", "cookie", "X-Auth-Token"] {
            let found = warnings(&policy(name, "hunter2"));
            assert_eq!(found.len(), 1, "{name}");
            let place = "spec.rules[0].context[0].apiCall.service.headers[1]: ";
            assert!(found[0].starts_with(place), "{found:?}");
            assert!(!found[0].contains("hunter2"), "{found:?}");
        }
        assert!(warnings(&policy("Authorization", "")).is_empty());
        assert!(warnings(&policy("X-Request-Id", "a")).is_empty());
        assert!(warnings(&json!({})).is_empty());
    }
}
