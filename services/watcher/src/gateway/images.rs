//! Images as registries describe them: the manifest, and the configuration that it names.
//!
//! ```text
//! reference ── Location ──▶ manifest ─┬─ index ──▶ … ──▶ manifest of linux/amd64 ──▶ configuration
//!                          │       └────────────────────────────────────────────▶ configuration
//!                          └─ 401 ── Challenge ──▶ credentials, token, and once more
//! ```
//!
//! The author of a Pod names the registry, so nothing of a registry is trusted. Each answer is limited in size and time.
//! Redirects are counted and never lead from https to http. Content that is named by its digest must have it. The watcher
//! connects only to permitted addresses ([`allowed_addresses`]).
//!
//! `reqwest` makes the connections, and `http-auth` parses challenges. `oci-client` is not used. It reads manifests, errors
//! and tokens without a limit, resolves names itself, and asks for a token wherever the registry says. So anyone who may
//! create a Pod could exhaust a watcher's memory.

mod allowed_addresses;
mod args;
mod cache;
mod challenge;
mod credentials;
mod document;
pub(crate) mod fuzzing;
mod keyring;
mod location;
mod reader;

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use anteroom_policy::ImageCredentials;
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::gateway::calls::{CallFault, HttpClients};
use cache::Cache;
use keyring::Keyring;
use location::Location;
use reader::ImageReader;

pub(crate) use allowed_addresses::Registries;
pub use args::RegistryArgs;

/// The largest manifest or index.
const MANIFEST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest configuration.
const CONFIG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest answer of a token server.
const TOKEN_BYTES_MAX: usize = 64 * 1024;

/// The longest time for one image, with all its requests.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks registries. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Images {
    registries: Arc<Registries>,
    keyring: Arc<Keyring>,
    clients: HttpClients,
    cache: Arc<Cache>,
}

/// An image, with the credentials to use for its registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageRequest {
    pub reference: String,
    pub credentials: ImageCredentials,
}

/// An image as its registry describes it.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub data: Arc<Value>,
    /// The bytes that the image takes, about.
    pub bytes: usize,
    /// The time at which the registry was asked.
    pub begun: Instant,
}

impl Images {
    /// `keyring` says who signs in where.
    pub(crate) fn new(registries: Registries, keyring: Keyring) -> Self {
        let registries = Arc::new(registries);
        Self {
            clients: HttpClients::new(registries.clone()),
            registries,
            keyring: Arc::new(keyring),
            cache: Arc::default(),
        }
    }

    /// Logs faults of the files of credentials.
    pub(crate) async fn tell_files(&self) {
        self.keyring.log_state().await;
    }

    /// Returns a remembered image.
    pub(crate) fn cached(&self, request: &ImageRequest) -> Option<Image> {
        self.cache.get(request)
    }

    /// Returns an image, from memory or from its registry.
    ///
    /// # Errors
    /// [`FactError::LiveReadFailed`] with the registry's status, or 0 without a usable answer.
    pub(crate) async fn read(&self, request: &ImageRequest) -> Result<Image, FactError> {
        if let Some(known) = self.cached(request) {
            return Ok(known);
        }
        let begun = Instant::now();
        let (data, bytes) = self.fetch(request).await?;
        let image = Image {
            data: Arc::new(data),
            bytes,
            begun,
        };
        self.cache.put(request, &image);
        Ok(image)
    }

    async fn fetch(&self, request: &ImageRequest) -> Result<(Value, usize), FactError> {
        let location = Location::parse(&request.reference, &self.registries);
        let location = location.map_err(|fault| failed(request, &fault, ""))?;
        let mut reader = ImageReader::new(self, request, &location);
        let read = timeout(TIMEOUT, reader.image()).await;
        let read = read.unwrap_or(Err(CallFault::Slow { timeout: TIMEOUT }));
        read.map_err(|fault| {
            let hint = hint(&fault, request, &location, reader.signs_in);
            failed(request, &fault, hint)
        })
    }
}

/// Returns a hint to the watcher's options that may explain the fault.
fn hint(
    fault: &CallFault,
    request: &ImageRequest,
    location: &Location,
    signs_in: bool,
) -> &'static str {
    let credentials = &request.credentials;
    match fault {
        CallFault::Status {
            code: 401 | 403, ..
        } if !signs_in => match credentials.secrets.is_empty() {
            true => "; no file of the watcher's `--registry-config` signs in to it",
            false => "; none of the Secrets that the policy names signs in to it",
        },
        CallFault::Unreachable { .. } | CallFault::NotAsked { .. }
            if credentials.insecure && !location.is_insecure =>
        {
            "; `allowInsecureRegistry` counts for hosts that the watcher's `--insecure-registry` names, \
             with their port, and this is none of them"
        }
        _ => "",
    }
}

/// Returns the error of a read. A Pod's author chose the host and reads the error. So it has only
/// the status and the standard error codes of an answer, and no detail of a connection.
fn failed(request: &ImageRequest, fault: &CallFault, hint: &str) -> FactError {
    let reference = &request.reference;
    if request.credentials.namespaced
        && let Some(reason) = withheld(fault)
    {
        tracing::debug!(reference, %fault, "image of a namespaced policy not read");
        return FactError::LiveReadFailed {
            code: 0,
            message: format!("image {reference}: {reason}"),
        };
    }
    let reason = match fault {
        CallFault::Status { code, message } => {
            let codes = registry_codes(message);
            format!("the registry answers HTTP {code}{codes}")
        }
        CallFault::Unreachable { .. } => {
            tracing::debug!(reference, %fault, "registry not reached");
            "the registry is out of reach".to_owned()
        }
        fault => fault.to_string(),
    };
    FactError::LiveReadFailed {
        code: fault.code(),
        message: format!("image {reference}: {reason}{hint}"),
    }
}

/// Returns the words for a fault that would tell the author of a namespaced policy what is at an address: whether a port is
/// open, speaks TLS or HTTP, or answers at all. `None`: the fault tells no more than its own words, such as the error of
/// a registry.
fn withheld(fault: &CallFault) -> Option<&'static str> {
    let is_told = match fault {
        CallFault::Status { message, .. } => !registry_codes(message).is_empty(),
        CallFault::Unreachable { .. }
        | CallFault::Slow { .. }
        | CallFault::TooLarge { .. }
        | CallFault::Redirected { .. }
        | CallFault::Unreadable { .. }
        | CallFault::Registry { .. } => false,
        CallFault::Credentials
        | CallFault::NotMounted { .. }
        | CallFault::NotAsked { .. }
        | CallFault::Bundle { .. } => true,
    };
    (!is_told).then_some("no registry gives a usable answer there")
}

/// Returns the standard error codes of an answer, as in `: MANIFEST_UNKNOWN`.
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
impl ImageRequest {
    /// Returns a read without `imageRegistryCredentials`.
    pub(crate) fn plain(reference: &str) -> Self {
        Self {
            reference: reference.to_owned(),
            credentials: ImageCredentials::default(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
