//! The registry's challenge: the way to sign in. Pure.

use http::{HeaderMap, Uri, header, uri::Scheme};
use http_auth::{ChallengeRef, parse_challenges};

use super::allowed_addresses::Registries;
use crate::gateway::calls::CallFault;

/// A challenge of a registry.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// `Bearer realm="…",service="…",scope="…"`: a token is given elsewhere.
    Bearer(Realm),
    /// `Basic realm="…"`: a name and a password.
    Basic,
}

/// The token server, and the scope of its tokens.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Realm {
    url: String,
    service: String,
    scope: String,
}

impl Challenge {
    /// Reads the registry's challenge; `None`: the registry asks for something else. A challenge for a token is
    /// preferred over one for a password, since a token names its purpose.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let all = headers.get_all(header::WWW_AUTHENTICATE).iter();
        let texts = all.filter_map(|value| value.to_str().ok());
        let mut basic = None;
        for challenge in texts.flat_map(|text| parse_challenges(text).unwrap_or_default()) {
            match Self::read(&challenge) {
                Some(Self::Basic) => basic = Some(Self::Basic),
                Some(bearer) => return Some(bearer),
                None => {}
            }
        }
        basic
    }

    fn read(challenge: &ChallengeRef<'_>) -> Option<Self> {
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !challenge.scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut realm = Realm::default();
        for (name, value) in &challenge.params {
            let value = value.to_unescaped();
            match &*name.to_ascii_lowercase() {
                "realm" => realm.url = value,
                "service" => realm.service = value,
                "scope" => realm.scope = value,
                _ => {}
            }
        }
        (!realm.url.is_empty()).then_some(Self::Bearer(realm))
    }
}

impl Realm {
    /// Returns the token server's URL. It may be `http` only for an insecure registry and an
    /// insecure host, because the request may carry a password.
    ///
    /// # Errors
    /// The text is no URL that may be called.
    pub(super) fn url(&self, of_insecure: bool, registries: &Registries) -> Result<Uri, CallFault> {
        let no_url = || super::document::unusable("it sends for a token to no URL");
        if self.url.contains('#') {
            return Err(no_url());
        }
        let url: Uri = self.url.parse().map_err(|_| no_url())?;
        let host = url.authority().ok_or_else(no_url)?.as_str();
        if host.contains('@') || url.host().is_none_or(str::is_empty) {
            return Err(no_url());
        }
        match url.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => Ok(url),
            Some(scheme) if *scheme == Scheme::HTTP => {
                match of_insecure && registries.is_insecure(host) {
                    true => Ok(url),
                    false => Err(super::document::unusable("it sends for a token by http")),
                }
            }
            _ => Err(no_url()),
        }
    }

    /// Returns the realm's URL with the scope that the registry asks for.
    ///
    /// # Errors
    /// The result is no URL.
    pub(super) fn token_url(&self, url: &Uri, repository: &str) -> Result<Uri, CallFault> {
        let mut text = url.to_string();
        text.push(if url.query().is_some() { '&' } else { '?' });
        text.push_str(&self.form(repository));
        let asked = text.parse();
        asked.map_err(|_| super::document::unusable("it sends for a token to no URL"))
    }

    /// Returns `service=…&scope=…`: the right to pull from the repository, unless the registry names another scope.
    pub(super) fn form(&self, repository: &str) -> String {
        let own = format!("repository:{repository}:pull");
        let scope = if self.scope.is_empty() {
            &own
        } else {
            &self.scope
        };
        let mut form = String::new();
        if !self.service.is_empty() {
            form.push_str(&format!("service={}&", escaped(&self.service)));
        }
        form.push_str(&format!("scope={}", escaped(scope)));
        form
    }
}

/// Escapes a value of a query or a form.
pub(super) fn escaped(text: &str) -> String {
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

    fn challenge(texts: &[&str]) -> Option<Challenge> {
        let texts = texts.iter().map(|text| text.parse().unwrap());
        Challenge::of(&texts.map(|text| (header::WWW_AUTHENTICATE, text)).collect())
    }

    fn asked(text: &str, of_insecure: bool) -> Option<String> {
        let registries = Registries {
            insecure: vec!["reg.local:5000".to_owned()],
            ..Registries::default()
        };
        let Some(Challenge::Bearer(realm)) = challenge(&[text]) else {
            return None;
        };
        let url = realm.url(of_insecure, &registries).ok()?;
        Some(realm.token_url(&url, "a/b").ok()?.to_string())
    }

    #[test]
    fn a_challenge_says_where_the_token_is() {
        let full =
            r#"Bearer realm="https://auth.io/token",service="reg.io",scope="repository:x:pull""#;
        for (text, found) in [
            (
                full,
                "https://auth.io/token?service=reg.io&scope=repository:x:pull",
            ),
            (
                r#"bearer realm="https://a/t?x=1""#,
                "https://a/t?x=1&scope=repository:a/b:pull",
            ),
            (
                r#"Bearer service="a, b&c", realm="https://a/t", error="x\"y""#,
                "https://a/t?service=a%2C%20b%26c&scope=repository:a/b:pull",
            ),
            (
                r#"Negotiate, Basic realm="x", Bearer realm="https://a/t""#,
                "https://a/t?scope=repository:a/b:pull",
            ),
        ] {
            for of_insecure in [false, true] {
                assert_eq!(asked(text, of_insecure).as_deref(), Some(found), "{text}");
            }
        }
        for text in [
            "Bearer",
            r#"Bearer realm="""#,
            r#"Bearer realm="ftp://a""#,
            r#"Bearer realm="https://a"#,
            r#"Bearer realm="https://a#b""#,
            r#"Bearer realm="https://user@a/""#,
            r#"Bearer realm="https:///a""#,
            r#"Bearer realm="/a""#,
            r#"Bearer realm="https://a b/""#,
            "",
        ] {
            assert_eq!(asked(text, true), None, "{text}");
        }
    }

    /// Only a registry that is spoken to by http sends by http, and only to a host that is, too.
    #[test]
    fn a_token_is_fetched_by_http_only_of_those_who_are_named() {
        let of = |host: &str| format!(r#"Bearer realm="http://{host}/t""#);
        for (host, of_insecure, fits) in [
            ("reg.local:5000", true, true),
            ("REG.local:5000", true, true),
            ("reg.local:5000", false, false),
            ("reg.local:5001", true, false),
            ("169.254.169.254", true, false),
        ] {
            let found = asked(&of(host), of_insecure);
            assert_eq!(found.is_some(), fits, "{host} {of_insecure}");
        }
    }

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let bearer = r#"Bearer realm="https://a/t""#;
        let basic = r#"basic realm="x""#;
        let is_bearer = |texts: &[&str]| match challenge(texts) {
            None => None,
            Some(Challenge::Basic) => Some(false),
            Some(Challenge::Bearer(_)) => Some(true),
        };
        assert_eq!(is_bearer(&[basic, bearer]), Some(true));
        assert_eq!(is_bearer(&[bearer, basic]), Some(true));
        assert_eq!(is_bearer(&[basic]), Some(false));
        assert_eq!(is_bearer(&["Bearer", basic]), Some(false));
        assert_eq!(is_bearer(&["Digest realm=\"x\"", "("]), None);
        assert_eq!(is_bearer(&[]), None);
    }
}
