//! Registry credentials of Docker configuration files. Pure.
//!
//! ```text
//! {"auths": {"registry.corp/team": {"auth": base64(NAME:PASSWORD)}, "https://index.docker.io/v1/": …}}
//! ```
//!
//! The credentials that name most of the image's repository are taken, of all that match.

use std::{collections::BTreeMap, fmt};

use anteroom_functions::wildcard;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::Value;

use super::location::{HUB_HOST, HUB_NAMES};

/// The user name to send with an identity token, where a name is needed.
const TOKEN_NAME: &str = "<token>";

/// A credential for a registry, or for its token server.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// A name and a password.
    Password { name: String, password: String },
    /// A token that others are given for.
    Identity(String),
    /// A token that the registry itself takes.
    Token(String),
}

/// Omits secret values.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Password { name, .. } => write!(f, "a password of {name}"),
            Self::Identity(_) => f.write_str("an identity token"),
            Self::Token(_) => f.write_str("a token"),
        }
    }
}

/// A problem of a file, or of one of its entries. It holds no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Wrong(String);

/// The entries of a file.
#[derive(Debug, Default)]
pub(super) struct Config(Vec<(CredentialScope, Result<Credential, Wrong>)>);

/// The registry and the repositories that a credential is for.
#[derive(Debug, PartialEq, Eq)]
struct CredentialScope {
    /// The host, perhaps with wildcards and a port.
    host: String,
    /// Parts of repositories' names, the first ones.
    path: Vec<String>,
}

#[derive(Deserialize)]
struct File {
    auths: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CredentialEntry {
    username: String,
    password: String,
    auth: String,
    identitytoken: String,
    registrytoken: String,
}

impl Config {
    /// Parses a file of credentials.
    ///
    /// # Errors
    /// The file is no such file. A fault in an entry is an error of the entry alone.
    pub(super) fn parse(text: &[u8]) -> Result<Self, Wrong> {
        let file: File = serde_json::from_slice(text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Wrong(format!(
                "it is no JSON object with `auths` (line {line}, column {column})"
            ))
        })?;
        let read = |(key, entry): (String, Value)| {
            let credential = Credential::of(&entry).transpose()?;
            let of_entry = |wrong: Wrong| Wrong(format!("`auths` of `{key}`: {wrong}"));
            Some((CredentialScope::parse(&key), credential.map_err(of_entry)))
        };
        Ok(Self(file.auths.into_iter().filter_map(read).collect()))
    }

    /// Finds the best entry for a repository, and how well it fits.
    pub(super) fn find(
        &self,
        host: &str,
        repository: &str,
    ) -> Option<(Fit, &Result<Credential, Wrong>)> {
        let fits = self.0.iter().filter_map(|(scope, credential)| {
            let fit = scope.fit(host, repository)?;
            Some((fit, credential))
        });
        fits.max_by_key(|(fit, _)| *fit)
    }

    /// Returns the problems of its entries.
    pub(super) fn wrong(&self) -> impl Iterator<Item = &Wrong> {
        self.0
            .iter()
            .filter_map(|(_, credential)| credential.as_ref().err())
    }
}

/// The precision of a scope: the parts of the repository, whether the host has no wildcard, the
/// host's length.
pub(super) type Fit = (usize, bool, usize);

impl CredentialScope {
    fn parse(key: &str) -> Self {
        let key = key
            .strip_prefix("https://")
            .or(key.strip_prefix("http://"))
            .unwrap_or(key);
        let mut parts = key.split('/').filter(|part| !part.is_empty());
        let host = parts.next().unwrap_or_default().to_ascii_lowercase();
        let mut path: Vec<_> = parts.map(str::to_owned).collect();
        // As Docker has long written registries.
        if path
            .first()
            .is_some_and(|first| first == "v1" || first == "v2")
        {
            path.remove(0);
        }
        let is_hub = HUB_NAMES.contains(&&*host);
        let host = if is_hub { HUB_HOST.to_owned() } else { host };
        Self { host, path }
    }

    fn fit(&self, host: &str, repository: &str) -> Option<Fit> {
        let mut parts = repository.split('/');
        let is_for = is_host(&self.host, &host.to_ascii_lowercase())
            && self.path.iter().all(|own| parts.next() == Some(own));
        let plain = !self.host.contains(['*', '?']);
        is_for.then_some((self.path.len(), plain, self.host.len()))
    }
}

/// A wildcard stands for characters of one part of a name, never for several parts, and not in a port.
fn is_host(pattern: &str, host: &str) -> bool {
    let (pattern, own_port) = pattern.split_once(':').unwrap_or((pattern, ""));
    let (host, port) = host.split_once(':').unwrap_or((host, ""));
    let parts = || pattern.split('.').zip(host.split('.'));
    own_port == port
        && pattern.split('.').count() == host.split('.').count()
        && parts().all(|(pattern, part)| wildcard::matches(pattern, part))
}

impl Credential {
    /// Reads the entry of a registry; `None`: it has no credential, for example because the password is kept
    /// elsewhere.
    fn of(entry: &Value) -> Result<Option<Self>, Wrong> {
        let entry = CredentialEntry::deserialize(entry)
            .map_err(|_| Wrong("it is no object of texts".to_owned()))?;
        if !entry.registrytoken.is_empty() {
            return Ok(Some(Self::Token(entry.registrytoken)));
        }
        if !entry.identitytoken.is_empty() {
            return Ok(Some(Self::Identity(entry.identitytoken)));
        }
        let (name, password) = match entry.auth.is_empty() {
            true => (entry.username, entry.password),
            false => Self::decoded(&entry.auth)?,
        };
        if name.is_empty() && password.is_empty() {
            return Ok(None);
        }
        if name == TOKEN_NAME {
            return Ok(Some(Self::Identity(password)));
        }
        Ok(Some(Self::Password { name, password }))
    }

    fn decoded(auth: &str) -> Result<(String, String), Wrong> {
        let decoded = BASE64_STANDARD.decode(auth.trim()).ok();
        let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
        let both = decoded.as_deref().and_then(|text| text.split_once(':'));
        let (name, password) =
            both.ok_or_else(|| Wrong("`auth` is no NAME:PASSWORD in base64".to_owned()))?;
        Ok((name.to_owned(), password.trim_matches('\0').to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(name: &str) -> Credential {
        Credential::Password {
            name: name.to_owned(),
            password: "x:y".to_owned(),
        }
    }

    fn config(keys: &[&str]) -> Config {
        let auths = keys.iter().map(|key| {
            let entry = serde_json::json!({"username": key, "password": "x:y"});
            ((*key).to_owned(), entry)
        });
        let auths: serde_json::Map<_, _> = auths.collect();
        let text = serde_json::json!({"auths": auths}).to_string();
        Config::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_most_specific_credential_for_an_image_is_taken() {
        let keys = [
            "ghcr.io",
            "ghcr.io/shop",
            "https://ghcr.io/v2/shop/web",
            "*.corp.example",
            "a.corp.example",
            "*.corp.example/team",
            "https://index.docker.io/v1/",
            "docker.io/shop",
            "reg?.local:5000",
            "LARGE.example",
        ];
        let config = config(&keys);
        for (host, repository, key) in [
            ("ghcr.io", "a", Some("ghcr.io")),
            ("ghcr.io", "shop/api", Some("ghcr.io/shop")),
            ("ghcr.io", "shop", Some("ghcr.io/shop")),
            ("ghcr.io", "shopper/api", Some("ghcr.io")),
            ("ghcr.io", "shop/web/a", Some("https://ghcr.io/v2/shop/web")),
            ("ghcr.io", "shop/webs", Some("ghcr.io/shop")),
            ("GHCR.io", "a", Some("ghcr.io")),
            ("a.corp.example", "a", Some("a.corp.example")),
            ("b.corp.example", "a", Some("*.corp.example")),
            ("a.corp.example", "team/a", Some("*.corp.example/team")),
            (
                "registry-1.docker.io",
                "library/a",
                Some("https://index.docker.io/v1/"),
            ),
            ("registry-1.docker.io", "shop/a", Some("docker.io/shop")),
            ("reg1.local:5000", "a", Some("reg?.local:5000")),
            ("large.example", "a", Some("LARGE.example")),
            // Credentials never apply to a different host, even with a common prefix or suffix.
            ("ghcr.io:443", "a", None),
            ("reg1.local", "a", None),
            ("reg1.local:5001", "a", None),
            ("reg12.local:5000", "a", None),
            ("evil.ghcr.io", "shop/web", None),
            ("ghcr.io.evil.example", "shop/web", None),
            ("xghcr.io", "a", None),
            ("corp.example", "a", None),
            ("a.b.corp.example", "a", None),
            ("a.corp.example.evil.example", "a", None),
            ("evil.example", "ghcr.io/shop/web", None),
        ] {
            let found = config.find(host, repository);
            let found = found.map(|(_, credential)| credential.clone().unwrap());
            assert_eq!(found, key.map(password), "{host} {repository}");
        }
    }

    #[test]
    fn every_form_of_credential_is_read() {
        let parsed = |entry: &str| {
            let text = format!(r#"{{"auths": {{"a": {entry}}}}}"#);
            let config = Config::parse(text.as_bytes()).unwrap();
            config
                .find("a", "b")
                .map(|(_, credential)| credential.clone())
        };
        for (entry, credential) in [
            (
                r#"{"username": "me", "password": "x:y"}"#,
                Some(password("me")),
            ),
            (r#"{"auth": "bWU6eDp5"}"#, Some(password("me"))),
            (
                r#"{"auth": "bWU6eDp5", "username": "you"}"#,
                Some(password("me")),
            ),
            (
                r#"{"auth": "bWU6eDp5", "identitytoken": "i"}"#,
                Some(Credential::Identity("i".to_owned())),
            ),
            (
                r#"{"username": "<token>", "password": "i"}"#,
                Some(Credential::Identity("i".to_owned())),
            ),
            (
                r#"{"registrytoken": "r"}"#,
                Some(Credential::Token("r".to_owned())),
            ),
            (r#"{"email": "me@x"}"#, None),
            ("{}", None),
        ] {
            assert_eq!(parsed(entry), credential.map(Ok), "{entry}");
        }
        for entry in [
            r#"{"auth": "?"}"#,
            r#"{"auth": "bWU="}"#,
            "1",
            r#"{"auth": 1}"#,
        ] {
            let wrong = parsed(entry).unwrap().unwrap_err().to_string();
            assert!(wrong.starts_with("`auths` of `a`: "), "{wrong}");
        }
    }

    #[test]
    fn an_invalid_credentials_file_is_refused_without_its_content() {
        for text in ["", "[]", "{}", r#"{"auths": []}"#, "hunter2"] {
            let wrong = Config::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(wrong.contains("no JSON object with `auths`"), "{wrong}");
            assert!(!wrong.contains("hunter2"), "{wrong}");
        }
        let shown = format!("{:?}", config(&["a"]));
        assert!(!shown.contains("x:y"), "{shown}");
    }
}
