//! Where a registry sends for a token. Pure.

use http::{HeaderMap, header};

use crate::calls::CallFault;

/// What a registry says to whoever has no token: `Bearer realm="…",service="…",scope="…"`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    realm: String,
    service: String,
    scope: String,
}

impl Challenge {
    /// `None` where it asks for something else.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let all = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let mut texts = all.filter_map(|value| value.to_str().ok());
        texts.find_map(Self::parse)
    }

    fn parse(text: &str) -> Option<Self> {
        let (scheme, mut rest) = text.trim().split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut challenge = Self::default();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, left) = match after.strip_prefix('"') {
                Some(quoted) => quoted.split_once('"')?,
                None => after.split_at(after.find(',').unwrap_or(after.len())),
            };
            match name.trim_matches([' ', ',']).to_ascii_lowercase().as_str() {
                "realm" => challenge.realm = value.to_owned(),
                "service" => challenge.service = value.to_owned(),
                "scope" => challenge.scope = value.to_owned(),
                _ => {}
            }
            rest = left;
        }
        (!challenge.realm.is_empty()).then_some(challenge)
    }

    /// Where the token is, to pull from the repository.
    ///
    /// # Errors
    /// That it is no URL that is called.
    pub(super) fn url(&self, repository: &str) -> Result<String, CallFault> {
        let Self {
            realm,
            service,
            scope,
        } = self;
        if realm.contains('#') || !(realm.starts_with("https://") || realm.starts_with("http://")) {
            return Err(super::unusable("it sends for a token to no URL"));
        }
        let own = format!("repository:{repository}:pull");
        let scope = if scope.is_empty() { &own } else { scope };
        let mut url = realm.clone();
        for (name, value) in [("service", service), ("scope", scope)] {
            if !value.is_empty() {
                url.push(if url.contains('?') { '&' } else { '?' });
                url.push_str(&format!("{name}={}", escaped(value)));
            }
        }
        Ok(url)
    }
}

/// As a value in a query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b if b.is_ascii_alphanumeric() || b"-._~:/".contains(&b) => escaped.push(char::from(b)),
            b => escaped.push_str(&format!("%{b:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Option<String> {
        Challenge::parse(text)?.url("a/b").ok()
    }

    #[test]
    fn a_challenge_says_where_the_token_is() {
        let full =
            r#"Bearer realm="https://auth.io/token",service="reg.io",scope="repository:x:pull""#;
        assert_eq!(
            url(full).as_deref(),
            Some("https://auth.io/token?service=reg.io&scope=repository:x:pull")
        );
        for (text, found) in [
            (
                r#"bearer realm="https://a/t?x=1""#,
                "https://a/t?x=1&scope=repository:a/b:pull",
            ),
            (
                r#"Bearer service="a, b&c", realm="http://a/t""#,
                "http://a/t?service=a%2C%20b%26c&scope=repository:a/b:pull",
            ),
            (
                "Bearer realm=https://a/t,error=x",
                "https://a/t?scope=repository:a/b:pull",
            ),
        ] {
            assert_eq!(url(text).as_deref(), Some(found), "{text}");
        }
        for text in [
            r#"Basic realm="x""#,
            "Bearer",
            r#"Bearer realm="""#,
            r#"Bearer realm="ftp://a""#,
            r#"Bearer realm="https://a"#,
            r#"Bearer realm="https://a#b""#,
            "",
        ] {
            assert_eq!(url(text), None, "{text}");
        }
    }
}
