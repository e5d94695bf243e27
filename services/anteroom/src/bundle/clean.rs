//! Text without what may be a secret: credentials, keys, and paths and queries of URLs. Pure.
//!
//! It leaves out too much rather than too little: who helps can ask for more.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

/// Patterns, and what they are replaced by, in this order.
static PATTERNS: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    let patterns = [
        (
            r"(?s)-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\z)",
            "(key left out)",
        ),
        // A URL with an `@` behind its first `/`, quote or the like: a password may hold those, so its host is not certain.
        (
            r#"\b([A-Za-z][A-Za-z0-9+.-]*://)\S*[/?#"'<>`]\S*@\S*"#,
            "$1…/…",
        ),
        // User, password, path, query and fragment of a URL. A password may hold `@`.
        (
            r#"\b([A-Za-z][A-Za-z0-9+.-]*://)(?:[^\s/?#"'<>]*@)?([^\s/?#"'<>`,;)]+)(?:[/?#][^\s"'<>`]*)?"#,
            "$1$2/…",
        ),
        // The query of a path.
        (r#"(/[^\s?"'<>`]*)\?[^\s"'<>`]+"#, "$1?…"),
        (r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}", "$1 …"),
        (
            r#"(?i)([a-z0-9_.-]*(?:authorization|cookie|password|passwd|secret|token|credential|api[_-]?key)[a-z0-9_.-]*["']?\s*[:=]\s*)(?:"[^"]*"|'[^']*'|[^\s"',;}\]]+)"#,
            "$1…",
        ),
        (
            r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+",
            "(token left out)",
        ),
        // Seeds of NATS' keys.
        (r"\bS[ACNOUX][A-Z2-7]{50,}", "(seed left out)"),
    ];
    let compiled = patterns
        .into_iter()
        .filter_map(|(pattern, by)| Some((Regex::new(pattern).ok()?, by)));
    compiled.collect()
});

/// Returns the text without what may be a secret.
pub(super) fn text(text: &str) -> String {
    let mut clean = text.to_owned();
    for (pattern, by) in PATTERNS.iter() {
        if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(&clean, *by) {
            clean = replaced;
        }
    }
    clean
}

/// Cleans all texts of a document.
pub(super) fn value(value: &mut Value) {
    match value {
        Value::String(said) => *said = text(said),
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::Object(fields) => fields.values_mut().for_each(self::value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert_eq!(PATTERNS.len(), 8);
    }

    #[test]
    fn secrets_go_and_the_rest_stays() {
        let seed = format!("SU{}", "A2".repeat(28));
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
        for (given, clean) in [
            (
                "view `pods.v1` is stale: 5015 ms ago",
                "view `pods.v1` is stale: 5015 ms ago",
            ),
            ("nats://user:CANARY@nats:4222", "nats://nats:4222/…"),
            ("nats://user:p@CANARY@nats:4222", "nats://nats:4222/…"),
            ("nats://user:p/CANARY@nats:4222/x", "nats://…/…"),
            ("nats://user:p\"CANARY@nats:4222", "nats://…/…"),
            (
                "Post \"https://anteroom-webhook.anteroom.svc:443/validate/CANARY?timeout=10s\": EOF",
                "Post \"https://anteroom-webhook.anteroom.svc:443/…\": EOF",
            ),
            (
                "GET https://example.org?key=a@CANARY failed",
                "GET https://…/… failed",
            ),
            (
                "GET https://example.org?key=CANARY failed",
                "GET https://example.org/… failed",
            ),
            (
                "at https://example.org, again",
                "at https://example.org/…, again",
            ),
            (
                "reads /apis/apps/v1/deployments?x=CANARY",
                "reads /apis/apps/v1/deployments?…",
            ),
            (
                "Authorization: Bearer CANARYCANARY",
                "Authorization: … CANARYCANARY",
            ),
        ] {
            let said = text(given);
            if given.starts_with("Authorization") {
                assert!(!said.contains("CANARY"), "{said}");
                continue;
            }
            assert_eq!(said, clean, "{given}");
        }
        for canary in [
            "password=CANARY",
            "{\"clientSecret\": \"CANARY of two words\"}",
            "X-Api-Key: CANARY",
            "DB_PASSWORD='CANARY'",
            "-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----\nCANARY",
        ] {
            assert!(!text(canary).contains("CANARY"), "{}", text(canary));
        }
        for secret in [&*seed, jwt] {
            let said = text(&format!("it is {secret} now"));
            assert!(!said.contains(secret), "{said}");
            assert!(
                said.starts_with("it is (") && said.ends_with(") now"),
                "{said}"
            );
        }
    }

    #[test]
    fn all_texts_of_a_document_are_cleaned() {
        let mut document = serde_json::json!({ "a": [{ "b": "token=CANARY" }, 1, null] });
        value(&mut document);
        assert_eq!(
            document,
            serde_json::json!({ "a": [{ "b": "token=…" }, 1, null] })
        );
    }
}
