//! What registries say of images: the manifest, and the configuration that it names.
//!
//! ```text
//! reference ── Place ──▶ manifest ─┬─ index ──▶ … ──▶ manifest of linux/amd64 ──▶ configuration
//!                          │       └────────────────────────────────────────────▶ configuration
//!                          └─ 401 ── Challenge ──▶ credentials, token, and once more
//! ```
//!
//! Who writes a Pod names the registry, so nothing of one is trusted: each answer is limited in size and
//! time, redirects are counted and never lead from https to http, what is asked for by its digest has to
//! have it, and only addresses are connected to where registries may be ([`reach`]).
//!
//! That is why the watcher's own caller asks. The crates that speak to registries (`oci-client` is the one
//! that is kept best) read a manifest, an error and a token to their end, whatever comes; they stream blobs
//! alone, resolve names themselves, and send for a token wherever they are told. Whoever may write a Pod
//! could end a watcher with them. What needs no connection is theirs: the grammar of references is
//! `oci-spec`'s, that of challenges `http-auth`'s.

mod address;
mod args;
mod asker;
mod cache;
mod challenge;
mod credentials;
mod document;
mod keyring;
mod place;
mod reach;

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_model::FactError;
use anteroom_policy::ImageCredentials;
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use crate::calls::{CallFault, Gate, SystemRoots};
use asker::Asker;
use cache::Cache;
use keyring::Keyring;
use place::Place;

pub use args::RegistryArgs;
pub(crate) use reach::Registries;

/// The largest manifest or index.
const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest configuration.
const CONFIG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest answer of whoever gives tokens.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// How long an image may take, with all answers that it takes.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Images that are read at one time.
const READS_AT_ONCE: usize = 8;

/// Asks registries. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Images {
    registries: Arc<Registries>,
    keyring: Arc<Keyring>,
    gate: Arc<Gate>,
    roots: SystemRoots,
    cache: Arc<Cache>,
    places: Arc<Semaphore>,
}

/// An image, and who signs in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub reference: String,
    pub credentials: ImageCredentials,
}

/// What a registry said of an image.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub data: Arc<Value>,
    /// About what it takes.
    pub bytes: usize,
    /// When the registry was asked.
    pub begun: Instant,
}

impl Images {
    /// `files` say who signs in where, and folders of them.
    pub(crate) fn new(registries: Registries, files: Vec<PathBuf>) -> Self {
        let registries = Arc::new(registries);
        let of_gate = Arc::clone(&registries);
        Self {
            gate: Arc::new(move |host, addresses| of_gate.permitted(host, addresses)),
            registries,
            keyring: Arc::new(Keyring(files)),
            roots: SystemRoots::default(),
            cache: Arc::default(),
            places: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// Tells in the log what is wrong with the files of credentials.
    pub(crate) async fn tell_files(&self) {
        self.keyring.tell().await;
    }

    /// What is remembered of an image, while it may be.
    pub(crate) fn known(&self, wanted: &Wanted) -> Option<Image> {
        self.cache.get(wanted)
    }

    /// What its registry says of an image. `wait` is how long a place is waited for.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there is none; [`FactError::LiveReadFailed`] with the registry's
    /// status, or 0 where there was no answer that can be used.
    pub(crate) async fn read(&self, wanted: &Wanted, wait: Duration) -> Result<Image, FactError> {
        if let Some(known) = self.known(wanted) {
            return Ok(known);
        }
        let Ok(Ok(_place)) = timeout(wait, self.places.acquire()).await else {
            return Err(FactError::LiveReadBusy {
                message: format!("{READS_AT_ONCE} images are being read"),
            });
        };
        let begun = Instant::now();
        let (data, bytes) = self.asked(wanted).await?;
        let image = Image {
            data: Arc::new(data),
            bytes,
            begun,
        };
        self.cache.put(wanted, &image);
        Ok(image)
    }

    async fn asked(&self, wanted: &Wanted) -> Result<(Value, usize), FactError> {
        let place = Place::parse(&wanted.reference, &self.registries);
        let place = place.map_err(|fault| failed(wanted, &fault, ""))?;
        let mut asker = Asker::new(self, wanted, &place);
        let read = timeout(TIMEOUT, asker.image()).await;
        let read = read.unwrap_or(Err(CallFault::Slow { timeout: TIMEOUT }));
        read.map_err(|fault| {
            let settled = settled(&fault, wanted, &place, asker.signs_in);
            failed(wanted, &fault, settled)
        })
    }
}

/// What whoever runs the watcher has settled, where an image cannot be read for it.
fn settled(fault: &CallFault, wanted: &Wanted, place: &Place, signs_in: bool) -> &'static str {
    let credentials = &wanted.credentials;
    match fault {
        CallFault::Status {
            code: 401 | 403, ..
        } if !signs_in => match credentials.secrets.is_empty() {
            true => "; no file of the watcher's `--registry-config` signs in to it",
            false => "; none of the Secrets that the policy names signs in to it",
        },
        CallFault::Unreachable { .. } | CallFault::NotAsked { .. }
            if credentials.insecure && !place.is_insecure =>
        {
            "; `allowInsecureRegistry` counts for hosts that the watcher's `--insecure-registry` names, \
             with their port, and this is none of them"
        }
        _ => "",
    }
}

/// Who wrote a Pod reads it, and named the host: so of an answer it tells the status and the codes that
/// registries have, and of a connection not what was wrong with it.
fn failed(wanted: &Wanted, fault: &CallFault, settled: &str) -> FactError {
    let reference = &wanted.reference;
    let told = match fault {
        CallFault::Status { code, message } => {
            let codes = registry_codes(message);
            format!("the registry answers HTTP {code}{codes}")
        }
        CallFault::Unreachable { .. } => {
            tracing::debug!(reference, %fault, "a registry cannot be read");
            "the registry is out of reach".to_owned()
        }
        fault => fault.to_string(),
    };
    FactError::LiveReadFailed {
        code: fault.code(),
        message: format!("image {reference}: {told}{settled}"),
    }
}

/// As in `: MANIFEST_UNKNOWN`: what the distribution specification has for clients.
fn registry_codes(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let errors = body["errors"].as_array().into_iter().flatten();
    let codes = errors.filter_map(|error| error["code"].as_str());
    let is_code =
        |code: &&str| code.len() <= 40 && code.chars().all(|c| c.is_ascii_uppercase() || c == '_');
    let codes: Vec<_> = codes.filter(is_code).take(3).collect();
    match codes.is_empty() {
        true => String::new(),
        false => format!(": {}", codes.join(", ")),
    }
}

#[cfg(test)]
impl Wanted {
    /// As without `imageRegistryCredentials`.
    pub(crate) fn plain(reference: &str) -> Self {
        Self {
            reference: reference.to_owned(),
            credentials: ImageCredentials::default(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
