//! Asks the registry of one image for as long as the image is read, and signs in if the registry asks for it.
//!
//! The author of a Pod chooses the registry, which may belong to anyone. So credentials are found by the registry's
//! own name. They are sent to the registry and to the token server that it names, and never to the target of a
//! redirect: only an answer of the registry itself counts as its challenge.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use serde_json::{Map, Value};

use super::{
    CONFIG_BYTES_MAX, ImageRequest, Images, MANIFEST_BYTES_MAX, TIMEOUT, TOKEN_BYTES_MAX,
    challenge::{Challenge, Realm, escaped},
    credentials::Credential,
    document::{
        config, digest, entries_of_index, has_digest, has_size, is_as_said, of_entry, of_platform,
        parsed, unusable, weight,
    },
    location::Location,
};
use crate::gateway::calls::{CallFault, HttpAnswer, HttpCall, Redirects};

/// The accepted media types of a manifest.
const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, \
    application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json";

/// The longest chain of indexes, each named by the one before.
pub(super) const INDEXES_MAX: usize = 4;

/// The client name for tokens by an identity token.
const CLIENT_ID: &str = "anteroom";

/// Reads one image from its registry.
pub(super) struct ImageReader<'a> {
    images: &'a Images,
    request: &'a ImageRequest,
    location: &'a Location,
    /// The `Authorization` header, once the registry has asked for it.
    access: Option<HeaderValue>,
    /// True if there are credentials for the registry.
    pub(super) signs_in: bool,
}

impl<'a> ImageReader<'a> {
    pub(super) fn new(
        images: &'a Images,
        request: &'a ImageRequest,
        location: &'a Location,
    ) -> Self {
        Self {
            images,
            request,
            location,
            access: None,
            signs_in: false,
        }
    }

    /// Returns the whole image, and its size.
    pub(super) async fn image(&mut self) -> Result<(Value, usize), CallFault> {
        let location = self.location;
        let (mut manifest, digest, mut bytes) = self.manifest(&location.asked).await?;
        let mut list = Value::Null;
        let mut indexes = 0;
        while let Some(entries) = entries_of_index(&manifest)? {
            indexes += 1;
            if indexes > INDEXES_MAX {
                let problem = format!("more than {INDEXES_MAX} indexes, each in the one before");
                return Err(unusable(&problem));
            }
            let entry = of_platform(entries)?;
            let (named, _, more) = self.manifest(of_entry(entry)?).await?;
            is_as_said(entry, &named)?;
            let index = std::mem::replace(&mut manifest, named);
            // With nested indexes, the list is the index that the reference names.
            if list.is_null() {
                list = index;
            }
            bytes += more;
        }
        let config = config(&manifest)?;
        let said = self
            .get(&format!("blobs/{config}"), "*/*", CONFIG_BYTES_MAX)
            .await?;
        has_digest(&said.body, config)?;
        has_size(&said.body, &manifest)?;
        bytes += weight(&said.body);
        let data = Map::from_iter([
            ("image".to_owned(), self.request.reference.clone().into()),
            (
                "resolvedImage".to_owned(),
                format!("{}@{digest}", location.name()).into(),
            ),
            ("registry".to_owned(), location.registry.clone().into()),
            ("repository".to_owned(), location.repository.clone().into()),
            ("identifier".to_owned(), location.identifier.clone().into()),
            ("configData".to_owned(), parsed(&said.body)?),
            ("manifest".to_owned(), manifest),
            ("manifestList".to_owned(), list),
        ]);
        Ok((Value::Object(data), bytes))
    }

    /// A manifest or an index, its digest and its size.
    async fn manifest(&mut self, asked: &str) -> Result<(Value, String, usize), CallFault> {
        let path = format!("manifests/{asked}");
        let said = self.get(&path, MANIFESTS, MANIFEST_BYTES_MAX).await?;
        let digest = digest(&said.body);
        if asked.contains(':') {
            has_digest(&said.body, asked)?;
        }
        Ok((parsed(&said.body)?, digest, weight(&said.body)))
    }

    /// Something of the repository; signed in where the registry asks for it.
    async fn get(
        &mut self,
        path: &str,
        accept: &str,
        bytes_max: usize,
    ) -> Result<HttpAnswer, CallFault> {
        let url = self.location.url(path);
        let url: Uri = url.parse().map_err(|_| CallFault::no_host())?;
        let said = self.ask(&url, accept, bytes_max).await?;
        let asks = said.status == StatusCode::UNAUTHORIZED && !said.from_other_origin;
        if !asks || self.access.is_some() {
            return said.succeeded();
        }
        let Some(access) = self.access_for(&said.headers).await? else {
            return said.succeeded();
        };
        self.access = Some(access);
        self.ask(&url, accept, bytes_max).await?.succeeded()
    }

    async fn ask(
        &self,
        url: &Uri,
        accept: &str,
        bytes_max: usize,
    ) -> Result<HttpAnswer, CallFault> {
        let accept = HeaderValue::try_from(accept).map_err(|_| CallFault::no_host())?;
        let mut headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
        headers.extend(
            self.access
                .clone()
                .map(|access| (header::AUTHORIZATION, access)),
        );
        self.call(url, headers, None, bytes_max).await
    }

    /// Returns the `Authorization` header for a challenge; `None` if nothing answers it.
    async fn access_for(&mut self, headers: &HeaderMap) -> Result<Option<HeaderValue>, CallFault> {
        let Some(challenge) = Challenge::of(headers) else {
            return Ok(None);
        };
        let Location {
            host, repository, ..
        } = self.location;
        let who = &self.request.credentials;
        let credential = self.images.keyring.find(who, host, repository).await?;
        self.signs_in = credential.is_some();
        match (challenge, credential) {
            (Challenge::Basic, Some(Credential::Password { name, password })) => {
                basic(&name, &password).map(Some)
            }
            (Challenge::Basic, _) => Ok(None),
            (Challenge::Bearer(_), Some(Credential::Token(token))) => bearer(&token).map(Some),
            (Challenge::Bearer(realm), credential) => {
                self.token(&realm, credential.as_ref()).await.map(Some)
            }
        }
    }

    /// Gets a token of the realm, for the credential's user, or without a user.
    async fn token(
        &self,
        realm: &Realm,
        credential: Option<&Credential>,
    ) -> Result<HeaderValue, CallFault> {
        let url = realm.url(self.location.is_insecure, &self.images.registries)?;
        let repository = &self.location.repository;
        let mut headers = HeaderMap::new();
        let said = if let Some(Credential::Identity(token)) = credential {
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(header::CONTENT_TYPE, form);
            let body = format!(
                "grant_type=refresh_token&client_id={CLIENT_ID}&{}&refresh_token={}",
                realm.form(repository),
                escaped(token),
            );
            let body = Some(Bytes::from(body));
            self.call(&url, headers, body, TOKEN_BYTES_MAX).await?
        } else {
            if let Some(Credential::Password { name, password }) = credential {
                headers.insert(header::AUTHORIZATION, basic(name, password)?);
            }
            let url = realm.token_url(&url, repository)?;
            self.call(&url, headers, None, TOKEN_BYTES_MAX).await?
        };
        let answer = parsed(&said.succeeded()?.body)?;
        let token = ["token", "access_token"];
        let token = token.iter().find_map(|name| answer.get(name)?.as_str());
        bearer(token.ok_or_else(|| unusable("it gives no token"))?)
    }

    async fn call(
        &self,
        url: &Uri,
        headers: HeaderMap,
        data: Option<Bytes>,
        bytes_max: usize,
    ) -> Result<HttpAnswer, CallFault> {
        let call = HttpCall {
            url: url.clone(),
            headers,
            data,
            clients: self.images.clients.clone(),
            ca_bundle: None,
            redirects: Redirects::AnyOrigin,
            bytes_max,
            reads_errors_whole: false,
        };
        call.ask(TIMEOUT).await
    }
}

fn basic(name: &str, password: &str) -> Result<HeaderValue, CallFault> {
    let both = BASE64_STANDARD.encode(format!("{name}:{password}"));
    hidden(&format!("Basic {both}"))
}

fn bearer(token: &str) -> Result<HeaderValue, CallFault> {
    hidden(&format!("Bearer {token}"))
}

fn hidden(text: &str) -> Result<HeaderValue, CallFault> {
    let header = HeaderValue::try_from(text);
    let mut header = header.map_err(|_| unusable("its token cannot be sent"))?;
    header.set_sensitive(true);
    Ok(header)
}
