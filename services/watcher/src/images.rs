//! What registries say of images: the manifest, and the configuration that it names.
//!
//! ```text
//! reference ── Place ──▶ manifest ─┬─ index ──▶ manifest of linux/amd64 ──▶ configuration
//!                          │       └──────────────────────────────────────▶ configuration
//!                          └─ 401 ── Challenge ──▶ token, and once more
//! ```
//!
//! Who writes a Pod names the registry, so nothing of one is trusted: each answer is limited in size and
//! time, redirects are counted and never lead from https to http, and what is asked for by its digest has to
//! have it. That is why the watcher's own caller asks, with its limits, rather than a client that reads
//! whatever comes.

mod cache;
mod challenge;
mod place;

use std::{sync::Arc, time::Duration};

use anteroom_model::FactError;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::{sync::Semaphore, time::timeout};

use crate::calls::{CallFault, HttpCall, Said, SystemRoots, client_config};
use cache::Cache;
use challenge::Challenge;
use place::Place;

pub(crate) use place::Registries;

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

/// Values in one document, about: a parsed one takes a hundred times the bytes of the shortest ones. Of
/// images that are used, none has a tenth of that.
const VALUES_MAX: usize = 10_000;

/// What a parsed value takes at most, beside its text.
const VALUE_BYTES: usize = 700;

/// What is taken of an index, as other tools do where nothing else is asked for.
const PLATFORM: (&str, &str) = ("linux", "amd64");

/// What a manifest may be.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// Asks registries, anonymously. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Images {
    registries: Arc<Registries>,
    roots: SystemRoots,
    cache: Arc<Cache>,
    places: Arc<Semaphore>,
}

impl Images {
    pub(crate) fn new(registries: Registries) -> Self {
        Self {
            registries: Arc::new(registries),
            roots: SystemRoots::default(),
            cache: Arc::default(),
            places: Arc::new(Semaphore::new(READS_AT_ONCE)),
        }
    }

    /// What its registry says of an image, and about how many bytes that takes. `wait` is how long a place
    /// is waited for.
    ///
    /// # Errors
    /// [`FactError::LiveReadBusy`] where there is none; [`FactError::LiveReadFailed`] with the registry's
    /// status, or 0 where there was no answer that can be used.
    pub(crate) async fn read(
        &self,
        reference: &str,
        wait: Duration,
    ) -> Result<(Arc<Value>, usize), FactError> {
        if let Some(known) = self.cache.get(reference) {
            return Ok(known);
        }
        let Ok(Ok(_place)) = timeout(wait, self.places.acquire()).await else {
            return Err(FactError::LiveReadBusy {
                message: format!("{READS_AT_ONCE} images are being read"),
            });
        };
        let read = async {
            let place = Place::parse(reference, &self.registries)?;
            let mut asker = Asker {
                images: self,
                place: &place,
                token: None,
            };
            asker.image(reference).await
        };
        let read = timeout(TIMEOUT, read).await;
        let read = read.unwrap_or(Err(CallFault::Slow { timeout: TIMEOUT }));
        let (data, bytes) = read.map_err(|fault| failed(reference, &fault))?;
        let data = Arc::new(data);
        self.cache.put(reference, &data, bytes);
        Ok((data, bytes))
    }
}

/// Who wrote a Pod reads it, and named the host: so of an answer it tells the status and the codes that
/// registries have, and of a connection not what was wrong with it.
fn failed(reference: &str, fault: &CallFault) -> FactError {
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
        message: format!("image {reference}: {told}"),
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

/// Of one image's registry, as long as the image is read.
struct Asker<'a> {
    images: &'a Images,
    place: &'a Place,
    token: Option<HeaderValue>,
}

impl Asker<'_> {
    /// All of it, and its size.
    async fn image(&mut self, reference: &str) -> Result<(Value, usize), CallFault> {
        let identifier = self.place.identifier.clone();
        let (mut manifest, digest, mut bytes) = self.manifest(&identifier).await?;
        let mut list = None;
        if let Some(entries) = entries_of_index(&manifest)? {
            let chosen = of_platform(entries)?.to_owned();
            let (of_platform, _, more) = self.manifest(&chosen).await?;
            list = Some(std::mem::replace(&mut manifest, of_platform));
            bytes += more;
        }
        let config = manifest.pointer("/config/digest").and_then(Value::as_str);
        let config = config.ok_or_else(|| unusable("the manifest names no configuration"))?;
        let path = format!("blobs/{}", checked_digest(config)?);
        let said = self.get(&path, "*/*", CONFIG_BYTES_MAX).await?;
        has_digest(&said.body, config)?;
        bytes += weight(&said.body);
        let mut data = Map::from_iter([
            ("image".to_owned(), reference.into()),
            (
                "resolvedImage".to_owned(),
                format!("{}@{digest}", self.place.name()).into(),
            ),
            ("registry".to_owned(), self.place.registry.clone().into()),
            (
                "repository".to_owned(),
                self.place.repository.clone().into(),
            ),
            ("identifier".to_owned(), identifier.into()),
            ("configData".to_owned(), parsed(&said.body)?),
            ("manifest".to_owned(), manifest),
        ]);
        data.extend(list.map(|list| ("manifestList".to_owned(), list)));
        Ok((Value::Object(data), bytes))
    }

    /// A manifest or an index, its digest and its size.
    async fn manifest(&mut self, identifier: &str) -> Result<(Value, String, usize), CallFault> {
        let path = format!("manifests/{identifier}");
        let said = self.get(&path, MANIFESTS, MANIFEST_BYTES_MAX).await?;
        if identifier.contains(':') {
            has_digest(&said.body, identifier)?;
            return Ok((
                parsed(&said.body)?,
                identifier.to_owned(),
                weight(&said.body),
            ));
        }
        Ok((parsed(&said.body)?, digest(&said.body), weight(&said.body)))
    }

    /// Something of the repository; with a token where the registry asks for one.
    async fn get(&mut self, path: &str, accept: &str, bytes_max: usize) -> Result<Said, CallFault> {
        let url = self.place.url(path);
        let said = self
            .ask(&url, accept, bytes_max, self.token.clone())
            .await?;
        if said.status != StatusCode::UNAUTHORIZED || self.token.is_some() {
            return said.succeeded();
        }
        let Some(challenge) = Challenge::of(&said.headers) else {
            return said.succeeded();
        };
        let token = self.token_for(&challenge).await?;
        self.token = Some(token.clone());
        self.ask(&url, accept, bytes_max, Some(token))
            .await?
            .succeeded()
    }

    async fn token_for(&self, challenge: &Challenge) -> Result<HeaderValue, CallFault> {
        let url = challenge.url(&self.place.repository)?;
        // Where the registry is spoken to in the clear, so may be whoever gives its tokens.
        if !url.starts_with("https://") && !self.place.is_insecure {
            return Err(unusable("it sends for a token by http"));
        }
        let said = self
            .ask(&url, "application/json", TOKEN_BYTES_MAX, None)
            .await?;
        let answer = parsed(&said.succeeded()?.body)?;
        let token = ["token", "access_token"];
        let token = token.iter().find_map(|name| answer.get(name)?.as_str());
        let token = token.ok_or_else(|| unusable("it gives no token"))?;
        let mut header = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| unusable("its token cannot be sent"))?;
        header.set_sensitive(true);
        Ok(header)
    }

    async fn ask(
        &self,
        url: &str,
        accept: &str,
        bytes_max: usize,
        token: Option<HeaderValue>,
    ) -> Result<Said, CallFault> {
        let accept = HeaderValue::try_from(accept).map_err(|_| CallFault::no_host())?;
        let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
        headers.extend(token.map(|token| (header::AUTHORIZATION, token)));
        let call = HttpCall {
            url: url.parse().map_err(|_| CallFault::no_host())?,
            headers,
            data: None,
            tls: client_config(None, &self.images.roots)?,
            bytes_max,
        };
        call.ask(TIMEOUT).await
    }
}

/// The manifests that an index names; `None` for a manifest. What could be read as either is neither: who
/// runs the image may read it otherwise.
fn entries_of_index(manifest: &Value) -> Result<Option<&Vec<Value>>, CallFault> {
    let entries = manifest.get("manifests").and_then(Value::as_array);
    let has_layers = ["config", "layers"]
        .iter()
        .any(|name| manifest.get(name).is_some());
    let media_type = manifest["mediaType"].as_str().unwrap_or_default();
    let says_index = media_type.contains("image.index") || media_type.contains("manifest.list");
    let says_otherwise = match entries {
        Some(_) => has_layers || !(media_type.is_empty() || says_index),
        None => says_index,
    };
    match says_otherwise {
        true => Err(unusable("it is both an index and a manifest")),
        false => Ok(entries),
    }
}

/// The digest of the manifest that is taken.
fn of_platform(entries: &[Value]) -> Result<&str, CallFault> {
    let (system, architecture) = PLATFORM;
    let is_chosen = |entry: &&Value| {
        let platform = &entry["platform"];
        platform["os"] == system && platform["architecture"] == architecture
    };
    let chosen = entries.iter().find(is_chosen);
    let digest = chosen.and_then(|entry| entry["digest"].as_str());
    let none = || unusable(&format!("there is none for {system}/{architecture}"));
    checked_digest(digest.ok_or_else(none)?)
}

/// As it may stand in a path.
fn checked_digest(digest: &str) -> Result<&str, CallFault> {
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    let is_hex = hex.len() == 64 && hex.chars().all(|c| c.is_ascii_hexdigit());
    is_hex
        .then_some(digest)
        .ok_or_else(|| unusable("it names a digest that is no sha256"))
}

fn digest(body: &[u8]) -> String {
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(body) {
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn has_digest(body: &[u8], wanted: &str) -> Result<(), CallFault> {
    match digest(body) == wanted {
        true => Ok(()),
        false => Err(unusable(&format!(
            "what it gives has not the digest {wanted}"
        ))),
    }
}

/// Values in a document, or more.
fn values(body: &[u8]) -> usize {
    let begins_one = |byte: &&u8| matches!(byte, b'{' | b'[' | b',');
    body.iter().filter(begins_one).count()
}

/// What a document takes, parsed, or more.
fn weight(body: &[u8]) -> usize {
    body.len() + values(body) * VALUE_BYTES
}

fn parsed(body: &[u8]) -> Result<Value, CallFault> {
    if values(body) > VALUES_MAX {
        return Err(unusable(&format!(
            "a document with more than {VALUES_MAX} values"
        )));
    }
    let value: Value = crate::calls::parse(body)?;
    match value.is_object() {
        true => Ok(value),
        false => Err(unusable("it gives no object")),
    }
}

fn unusable(problem: &str) -> CallFault {
    CallFault::Registry {
        problem: problem.to_owned(),
    }
}

#[cfg(test)]
mod tests;
