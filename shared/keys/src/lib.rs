//! The keys and certificates of an installation, and the files that they are handed on in.
//!
//! NATS gets a certificate, signed by an authority whose key is thrown away at once, and each service an NKey: an Ed25519
//! key whose public half stands in the server's configuration. The server never holds what a service logs in with.
//!
//! | module | content |
//! |---|---|
//! | [`NatsKeys`] | the certificate, the authority, the logins |
//! | `files` | keys in a folder, by login |

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod files;

use anteroom_runtime::certs::{CertError, Pem, issue::Authority};
use jiff::{SignedDuration, Timestamp};
use nkeys::KeyPair;
use thiserror::Error;

/// The logins of `deploy/chart/files/nats.conf`.
pub const LOGINS: [&str; 6] = [
    "watcher", "replica", "webhook", "reporter", "operator", "system",
];

/// The file with the public keys of all logins, which `nats.conf` includes.
pub const PUBLIC_KEYS: &str = "keys.conf";

/// The files of the server's certificate and key, and of the authority's certificate.
pub const SERVER_CHAIN: &str = "tls.crt";
/// See [`SERVER_CHAIN`].
pub const SERVER_KEY: &str = "tls.key";
/// See [`SERVER_CHAIN`].
pub const AUTHORITY: &str = "ca.crt";

/// The file of a login's secret key.
pub const SEED: &str = "seed";

/// An error of keys.
#[derive(Debug, Error)]
pub enum KeysError {
    /// A certificate cannot be made.
    #[error(transparent)]
    Certificate(#[from] CertError),
    /// An NKey cannot be made.
    #[error("an NKey cannot be made: {0}")]
    NKey(#[from] nkeys::error::Error),
    /// A file cannot be written.
    #[error("{path} cannot be written")]
    Write {
        /// The file's path.
        path: String,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The keys by which NATS authenticates its clients, and clients authenticate NATS.
#[derive(Clone, Debug)]
pub struct NatsKeys {
    /// The authority's certificate, in PEM.
    pub authority_pem: String,
    /// The server's certificate and key.
    pub server: Pem,
    /// One for each of [`LOGINS`].
    pub logins: Vec<Login>,
}

/// The NKey of a login.
#[derive(Clone)]
pub struct Login {
    /// The login's name.
    pub name: &'static str,
    /// The public key, as in `UABC…`.
    pub public: String,
    /// The secret key, as in `SUABC…`.
    pub seed: String,
}

/// The seed stays out of logs.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("name", &self.name)
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

impl NatsKeys {
    /// Makes all of them anew. The server is reached by `names` (DNS names and IP addresses), and its certificate is valid
    /// for so long.
    ///
    /// # Errors
    /// [`KeysError::Certificate`] for a name that is none, or a time that is too long; [`KeysError::NKey`].
    pub fn new(
        names: &[String],
        validity: SignedDuration,
        now: Timestamp,
    ) -> Result<Self, KeysError> {
        let authority = Authority::valid_for("anteroom-nats", validity, now)?;
        let logins = LOGINS.map(Login::new).into_iter();
        Ok(Self {
            server: authority.issue_for(names, validity, now)?,
            authority_pem: authority.certificate_pem,
            logins: logins.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the text of [`PUBLIC_KEYS`].
    pub fn public_keys(&self) -> String {
        self.logins.iter().map(Login::line).collect()
    }
}

impl Login {
    /// Makes the NKey of a login, one of [`LOGINS`], anew.
    ///
    /// # Errors
    /// [`KeysError::NKey`].
    pub fn new(name: &'static str) -> Result<Self, KeysError> {
        let pair = KeyPair::new_user();
        Ok(Self {
            name,
            public: pair.public_key(),
            seed: pair.seed()?,
        })
    }

    fn variable(name: &str) -> String {
        format!("NATS_NKEY_{}", name.to_uppercase())
    }

    /// Returns its line of [`PUBLIC_KEYS`].
    fn line(&self) -> String {
        format!("{}: {}\n", Self::variable(self.name), self.public)
    }

    /// Returns whether a text of [`PUBLIC_KEYS`] has a key of the login of this name.
    pub fn is_known(name: &str, public_keys: &str) -> bool {
        let start = format!("{}:", Self::variable(name));
        public_keys.lines().any(|line| line.starts_with(&start))
    }

    /// Returns a text of [`PUBLIC_KEYS`] with this login in the place of what it had of the same name.
    pub fn put_into(&self, public_keys: &str) -> String {
        let start = format!("{}:", Self::variable(self.name));
        let others = public_keys.lines().filter(|line| !line.starts_with(&start));
        let mut text: String = others.map(|line| format!("{line}\n")).collect();
        text.push_str(&self.line());
        text
    }
}

/// Returns the public key of a login's secret key.
///
/// # Errors
/// [`KeysError::NKey`].
pub fn public_key(seed: &str) -> Result<String, KeysError> {
    Ok(KeyPair::from_seed(seed.trim())?.public_key())
}

/// Returns the names that NATS has in a namespace of a cluster, and on this machine.
pub fn names_in_cluster(namespace: &str) -> Vec<String> {
    let services = ["nats", "nats-headless", "*.nats-headless"].into_iter();
    let in_cluster = services.flat_map(|service| {
        [
            service.to_owned(),
            format!("{service}.{namespace}"),
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}.svc.cluster.local"),
        ]
    });
    in_cluster
        .chain(["localhost", "127.0.0.1", "::1"].map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use anteroom_runtime::wall_clock;

    use super::*;

    #[test]
    fn all_keys_are_made_and_no_seed_is_shown() {
        let now = wall_clock::now();
        let validity = SignedDuration::from_hours(24 * 365);
        let keys = NatsKeys::new(&names_in_cluster("anteroom"), validity, now).unwrap();
        assert_eq!(keys.public_keys().lines().count(), LOGINS.len());
        for login in &keys.logins {
            assert!(login.public.starts_with('U') && login.seed.starts_with("SU"));
            // A file's text may end with a new line.
            let public = public_key(&format!("{}\n", login.seed)).unwrap();
            assert_eq!(public, login.public);
            assert!(!format!("{keys:?}").contains(&login.seed), "{}", login.name);
            assert!(!keys.public_keys().contains(&login.seed), "{}", login.name);
        }
        let seeds: std::collections::BTreeSet<_> =
            keys.logins.iter().map(|login| &login.seed).collect();
        assert_eq!(seeds.len(), LOGINS.len());
    }

    #[test]
    fn a_login_is_put_in_the_place_of_the_one_before() {
        let (first, second) = (Login::new("operator"), Login::new("operator"));
        let (first, second) = (first.unwrap(), second.unwrap());
        let keys = "NATS_NKEY_WATCHER: U1\n";
        assert!(!Login::is_known("operator", keys));
        let with = second.put_into(&first.put_into(keys));
        assert!(Login::is_known("operator", &with) && Login::is_known("watcher", &with));
        let line = format!("NATS_NKEY_OPERATOR: {}\n", second.public);
        assert_eq!(with, format!("{keys}{line}"));
    }

    #[test]
    fn nats_is_reached_by_its_services_in_the_cluster_and_on_this_machine() {
        let names = names_in_cluster("n");
        for name in [
            "nats",
            "nats.n.svc",
            "*.nats-headless.n.svc.cluster.local",
            "localhost",
            "127.0.0.1",
        ] {
            assert!(names.iter().any(|one| one == name), "{name}");
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let names = ["näts".to_owned()];
        let made = NatsKeys::new(&names, SignedDuration::from_hours(24), wall_clock::now());
        assert!(matches!(made, Err(KeysError::Certificate(_))));
    }
}
