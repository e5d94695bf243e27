//! The API call of an entry, checked in code, whatever the schema let through.

use std::{fmt, time::Duration};

use anteroom_model::{Failure, Source};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use serde_json::{Map, Value};

use crate::source::{
    api::{
        ApiCallSource, Datum, Header, Method, OnFailure as OnFailureSpec,
        STALENESS_DEFAULT_SECONDS, ServiceSource,
    },
    discovery::spec_invalid,
};

/// The default time between two calls.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(10 * 60);

/// The shortest interval: a shorter one is taken for this.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The longest interval: a longer one is taken for this.
const INTERVAL_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The default number of retries after a failed call.
const RETRIES_DEFAULT: u32 = 3;

/// The most retries: more are taken for this.
const RETRIES_MAX: u32 = 100;

/// An API call with all fields that identify the call. Fields that may hold secrets (headers, user information,
/// query, data) are never shown.
#[derive(Clone, PartialEq)]
pub(crate) struct CallSpec {
    /// The endpoint.
    pub target: CallTarget,
    /// `None`: GET. Otherwise POST with this body of JSON.
    pub data: Option<Bytes>,
    /// The time between two calls.
    pub interval: Duration,
    /// The retries after a failure, before readers get it.
    pub retries: u32,
    /// The readers' data after that.
    pub on_failure: OnFailure,
}

/// The endpoint of a call.
#[derive(Clone, PartialEq)]
pub(crate) enum CallTarget {
    /// A path of the API server.
    Api {
        /// The path with its query, as in `/api/v1/namespaces?limit=5`.
        path: String,
    },
    /// A service other than the API server.
    Service(Service),
}

/// A request to a service other than the API server.
#[derive(Clone, PartialEq)]
pub(crate) struct Service {
    /// `http` or `https`, with a host and without user information.
    pub url: Uri,
    /// The authorities that the endpoint's certificate is checked against, in PEM; `None`: those of the system.
    pub ca_bundle: Option<String>,
    /// Headers of the request.
    pub headers: HeaderMap,
}

/// The data that readers get while a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The error.
    Error,
    /// The last good data, until they are as old as this.
    ServeStale(Duration),
}

impl OnFailure {
    /// Reads the fields of an entry.
    pub(crate) fn new(kind: Option<OnFailureSpec>, staleness_max_seconds: Option<i64>) -> Self {
        match kind.unwrap_or_default() {
            OnFailureSpec::Error => Self::Error,
            OnFailureSpec::ServeStale => {
                let seconds = staleness_max_seconds.unwrap_or(STALENESS_DEFAULT_SECONDS);
                Self::ServeStale(Duration::from_secs(seconds.max(1).unsigned_abs()))
            }
        }
    }
}

impl CallSpec {
    /// Reads the call of an entry.
    ///
    /// # Errors
    /// For the person who wrote it.
    pub(crate) fn new(source: &ApiCallSource, on_failure: OnFailure) -> Result<Self, Failure> {
        let ApiCallSource {
            url,
            ca_bundle,
            url_path,
            service,
            ..
        } = source;
        let target = match (url, url_path, service) {
            (Some(url), None, None) => service_target(url, ca_bundle.as_deref(), &[])?,
            (None, Some(path), None) => {
                check_path(path).map_err(spec_invalid)?;
                if is_of_secrets(path) {
                    return Err(spec_invalid(
                        "`apiCall.urlPath` names Secrets, which an API call does not keep: use a \
                         `resource` that an administrator allows",
                    ));
                }
                CallTarget::Api { path: path.clone() }
            }
            (None, None, Some(service)) => target_of_service(service)?,
            _ => {
                return Err(spec_invalid(
                    "exactly one of `url`, `urlPath` and `service` must be set in `apiCall`",
                ));
            }
        };
        if ca_bundle.is_some() && url.is_none() {
            return Err(spec_invalid("`apiCall.caBundle` goes with `apiCall.url`"));
        }
        Ok(Self {
            target,
            data: data(source.method.unwrap_or_default(), source.data.as_deref())?,
            interval: interval(source)?,
            retries: source.retry_limit.map_or(RETRIES_DEFAULT, |retries| {
                u32::try_from(retries.max(1)).map_or(RETRIES_MAX, |n| n.min(RETRIES_MAX))
            }),
            on_failure,
        })
    }

    /// The source that it is.
    pub(crate) fn source(&self) -> Source {
        Source::ApiCall {
            url: self.shown(),
            id: self.id(),
        }
    }

    /// Returns the endpoint for people, without the parts that may be secret.
    pub(crate) fn shown(&self) -> String {
        match &self.target {
            CallTarget::Api { path } => without_query(path).to_owned(),
            CallTarget::Service(Service { url, .. }) => {
                let scheme = url.scheme_str().unwrap_or_default();
                let authority = url.authority().map_or("", |a| a.as_str());
                format!("{scheme}://{authority}{}", url.path())
            }
        }
    }

    /// Returns a digest of all fields that identify the call. The digest is cryptographic: an author who forged a
    /// collision would share the data of a foreign entry.
    fn id(&self) -> String {
        let mut text = String::new();
        let mut add = |part: &str| {
            // Lengths keep parts from running together.
            text.push_str(&part.len().to_string());
            text.push(':');
            text.push_str(part);
        };
        match &self.target {
            CallTarget::Api { path } => add(path),
            CallTarget::Service(Service {
                url,
                ca_bundle,
                headers,
            }) => {
                add(&url.to_string());
                add(ca_bundle.as_deref().unwrap_or("system"));
                for (name, value) in headers {
                    add(name.as_str());
                    add(&STANDARD.encode(value));
                }
            }
        }
        match &self.data {
            Some(data) => add(&STANDARD.encode(data)),
            None => add("GET"),
        }
        add(&format!(
            "{:?} {} {:?}",
            self.interval, self.retries, self.on_failure
        ));
        anteroom_seal::identity(text.as_bytes())
    }
}

/// Omits texts that may be secret.
impl fmt::Debug for CallSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallSpec")
            .field("target", &self.shown())
            .field("interval", &self.interval)
            .field("retries", &self.retries)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}

fn target_of_service(service: &ServiceSource) -> Result<CallTarget, Failure> {
    let headers = service.headers.as_deref().unwrap_or_default();
    let reference = headers.iter().any(|header| header.value_from.is_some());
    if reference || service.ca_bundle_from.is_some() {
        return Err(Failure::new(
            "Unsupported",
            "`caBundleFrom` and `valueFrom` are not resolved by this version of Anteroom: use \
             `caBundle` and `value`",
        ));
    }
    service_target(&service.url, service.ca_bundle.as_deref(), headers)
}

fn service_target(
    url: &str,
    ca_bundle: Option<&str>,
    headers: &[Header],
) -> Result<CallTarget, Failure> {
    let mut sent = HeaderMap::new();
    let url = parse_url(url, &mut sent)?;
    for Header { key, value, .. } in headers {
        let name = HeaderName::try_from(key);
        let name = name.map_err(|_| spec_invalid(format!("`{key}` is not a header's name")))?;
        let value = HeaderValue::try_from(value.as_deref().unwrap_or_default());
        let mut value =
            value.map_err(|_| spec_invalid(format!("the value of header `{key}` is not one")))?;
        value.set_sensitive(true);
        sent.insert(name, value);
    }
    Ok(CallTarget::Service(Service {
        url,
        ca_bundle: ca_bundle
            .filter(|pem| !pem.trim().is_empty())
            .map(str::to_owned),
        headers: sent,
    }))
}

/// User information becomes a header, since that is how it is sent.
pub(crate) fn parse_url(text: &str, headers: &mut HeaderMap) -> Result<Uri, Failure> {
    let not_one = || {
        spec_invalid(
            "the URL of the API call is not one, as in `https://service.namespace:8443/path`",
        )
    };
    let text = text.split('#').next().unwrap_or_default().trim();
    let uri: Uri = text.parse().map_err(|_| not_one())?;
    let mut parts = uri.into_parts();
    if !parts
        .scheme
        .as_ref()
        .is_some_and(|s| matches!(s.as_str(), "http" | "https"))
    {
        return Err(not_one());
    }
    let authority = parts.authority.take().ok_or_else(not_one)?;
    let authority = match authority.as_str().rsplit_once('@') {
        None => authority,
        Some((user, host)) => {
            let value = format!("Basic {}", STANDARD.encode(user));
            let mut value = HeaderValue::try_from(value).map_err(|_| not_one())?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
            host.parse().map_err(|_| not_one())?
        }
    };
    if authority.host().is_empty() {
        return Err(not_one());
    }
    parts.authority = Some(authority);
    Uri::from_parts(parts).map_err(|_| not_one())
}

fn data(method: Method, data: Option<&[Datum]>) -> Result<Option<Bytes>, Failure> {
    match (method, data) {
        (Method::Get, None) => Ok(None),
        (Method::Get, Some(_)) => Err(spec_invalid(
            "An External API call with data should have method as POST",
        )),
        (Method::Post, data) => {
            let fields = data.unwrap_or_default().iter();
            let body: Map<String, Value> = fields
                .map(|datum| (datum.key.clone(), datum.value.clone()))
                .collect();
            Ok(Some(Value::Object(body).to_string().into()))
        }
    }
}

fn interval(source: &ApiCallSource) -> Result<Duration, Failure> {
    let interval = match (&source.refresh_interval, source.refresh_interval_seconds) {
        (Some(_), Some(_)) => {
            return Err(spec_invalid(
                "only one of `refreshInterval` and `refreshIntervalSeconds` can be set",
            ));
        }
        (None, None) => INTERVAL_DEFAULT,
        (None, Some(seconds)) => Duration::from_secs(seconds.max(0).unsigned_abs()),
        (Some(text), None) => parse_duration(text).ok_or_else(|| {
            spec_invalid(format!(
                "`refreshInterval` is `{text}`: expected a duration, as in `1h30m`"
            ))
        })?,
    };
    if interval.is_zero() {
        return Err(spec_invalid(
            "A Resource entry requires a refresh interval greater than 0 seconds",
        ));
    }
    Ok(interval.clamp(INTERVAL_MIN, INTERVAL_MAX))
}

/// A positive duration as Go writes it.
fn parse_duration(text: &str) -> Option<Duration> {
    let nanoseconds = anteroom_functions::values::duration_ns(text.trim())?;
    Some(Duration::from_nanos(u64::try_from(nanoseconds).ok()?))
}

fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

/// Checks that a path has one meaning: absolute, no empty, `.` or `..` segment, nothing encoded, no
/// fragment.
///
/// # Errors
/// The fault of the path, for people.
pub(crate) fn check_path(path: &str) -> Result<(), String> {
    let bare = without_query(path);
    let problem = if !bare.starts_with('/') {
        "does not begin with `/`"
    } else if bare.contains('%') || bare.contains('\\') {
        "has encoded characters in it"
    } else if path.contains('#') {
        "has a fragment"
    } else if path.bytes().any(|byte| byte <= b' ' || byte >= 0x7f) {
        "has characters in it that a path does not have"
    } else if bare != "/" && bare[1..].trim_end_matches('/').split('/').any(is_odd) {
        "has an empty, `.` or `..` part"
    } else {
        return Ok(());
    };
    Err(format!("the path `{bare}` {problem}"))
}

fn is_odd(segment: &str) -> bool {
    matches!(segment, "" | "." | "..")
}

/// Returns true if a path of the API server leads to Secrets.
pub(crate) fn is_of_secrets(path: &str) -> bool {
    let mut segments = without_query(path).trim_matches('/').split('/').peekable();
    if segments.next() != Some("api") {
        return false;
    }
    segments.next(); // The version.
    segments.next_if_eq(&"watch");
    match segments.next() {
        Some("secrets") => true,
        Some("namespaces") => segments.nth(1) == Some("secrets"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
