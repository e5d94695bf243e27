//! An AdmissionReview, as the API server sends it.
//!
//! Only the fields that decide which policies are concerned are read here. The rest stays text, in one pass over the
//! body. Of that text only the parts are read that some policy reads.

mod fields;

use std::{borrow::Cow, sync::OnceLock};

use anteroom_engine::incoming::{self, Incoming, KindName, ResourcePath, ReviewOwner};
use anteroom_functions::json::{self, JsonError};
use anteroom_model::ErrorCode;
use anteroom_policy::{AdmissionRequest, Arrival, Operation, RequestParts};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};
use thiserror::Error;

use fields::Fields;
pub(crate) use fields::{ReviewHead, User};

/// The first bytes of a review, in which the API server writes the request's `uid`.
pub(crate) const UID_WITHIN_BYTES: usize = 1024;

/// The version that is spoken here.
const API_VERSION: &str = "admission.k8s.io/v1";

/// An error of a review.
#[derive(Debug, Error)]
pub(crate) enum ReviewError {
    /// The body is over the limit.
    #[error("the review is larger than {bytes_max} bytes: make the object smaller")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
        /// The request's `uid`, if the body begins as the API server's do.
        uid: Option<String>,
    },
    /// Deciding on it may take more memory than there is for all reviews.
    #[error(
        "deciding on the request may take {bytes} bytes of the webhook's memory, which are more than {bytes_max}: \
         make the object smaller"
    )]
    TooMuchMemory {
        /// The request's `uid`.
        uid: String,
        /// The most memory that it takes.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// The body did not arrive whole.
    #[error("the body did not arrive: {problem}")]
    Body {
        /// The message of the transport.
        problem: String,
    },
    /// The body is not JSON, or not of the shape of an AdmissionReview.
    #[error("the body is not an AdmissionReview: {source}")]
    NotJson {
        /// The request's `uid`, if the body begins as the API server's do.
        uid: Option<String>,
        /// The error of the parser, with its position.
        source: serde_json::Error,
    },
    /// The body is of another kind or version.
    #[error(
        "the body is {kind:?} of {api_version:?}; only AdmissionReview of {API_VERSION} is spoken \
         here"
    )]
    Version {
        /// The kind that it names.
        kind: String,
        /// The API version of the body.
        api_version: String,
    },
    /// There is no `request`.
    #[error("the AdmissionReview has no request")]
    NoRequest,
    /// A part of the request that policies read nests too deep to be read.
    #[error("the request's {field} cannot be read: {}", JsonError::TooDeep)]
    TooDeep {
        /// The request's `uid`.
        uid: String,
        /// The field, as in `object`.
        field: String,
    },
    /// A part of the request that policies read cannot be read, although the API server takes it.
    #[error("the request's {field} cannot be read: {source}")]
    Unreadable {
        /// The request's `uid`.
        uid: String,
        /// The field, as in `object`.
        field: String,
        /// The error of the parser, with its position.
        source: serde_json::Error,
    },
    /// The requests of one namespace or user take more than their part of the memory for reviews.
    #[error(
        "the requests {owner} that are being decided take their part of the webhook's memory: try again"
    )]
    OverPart {
        /// The request's `uid`.
        uid: String,
        /// The owner of the other requests, as in `in namespace shop`.
        owner: String,
    },
    /// The `request` is not one.
    #[error("the AdmissionReview's request is malformed: {problem}")]
    Request {
        /// The request's `uid`, if present: with a `uid` the answer can be a review.
        uid: Option<String>,
        /// The problem, for people.
        problem: String,
    },
}

impl ReviewError {
    /// Returns the error's stable code.
    pub(crate) fn code(&self) -> ErrorCode {
        match self {
            Self::TooLarge { .. } | Self::TooMuchMemory { .. } => ErrorCode::REVIEW_TOO_LARGE,
            Self::Version { .. } => ErrorCode::REVIEW_VERSION,
            Self::TooDeep { .. } => ErrorCode::REVIEW_TOO_DEEP,
            Self::OverPart { .. } => ErrorCode::REVIEWS_OVER_PART,
            Self::Body { .. }
            | Self::NotJson { .. }
            | Self::NoRequest
            | Self::Unreadable { .. }
            | Self::Request { .. } => ErrorCode::REVIEW_INVALID,
        }
    }

    /// The HTTP status of an answer that is not a review.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::TooLarge { .. } | Self::TooMuchMemory { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// The uid to answer to, where the review got as far as having one.
    pub(crate) fn uid(&self) -> Option<&str> {
        match self {
            Self::Request { uid, .. } | Self::TooLarge { uid, .. } | Self::NotJson { uid, .. } => {
                uid.as_deref()
            }
            Self::TooMuchMemory { uid, .. }
            | Self::TooDeep { uid, .. }
            | Self::Unreadable { uid, .. }
            | Self::OverPart { uid, .. } => Some(uid),
            _ => None,
        }
    }

    /// Returns whether the request is refused under any failure policy, since its size, the unreadable part or the other
    /// requests are the requester's choice. The API server passes some texts on as they came: of these, a parser in Go
    /// reads more than ours.
    pub(crate) fn always_refuses(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::TooMuchMemory { .. }
                | Self::NotJson { .. }
                | Self::TooDeep { .. }
                | Self::Unreadable { .. }
                | Self::OverPart { .. }
        )
    }
}

/// Returns the `uid` of the request in the first bytes of a review. The API server writes it before the object.
pub(crate) fn uid_at_start(start: &[u8]) -> Option<String> {
    let start = String::from_utf8_lossy(start);
    let (_, request) = start.split_once("\"request\":")?;
    let (_, uid) = request.split_once("\"uid\":\"")?;
    let (uid, _) = uid.split_once('"')?;
    let is_uid = |uid: &str| uid.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    is_uid(uid).then(|| uid.to_owned())
}

/// A review whose request can be answered.
#[derive(Debug)]
pub(crate) struct Review<'a> {
    /// The fields that select the policies.
    pub(crate) head: ReviewHead<'a>,
    operation: Operation,
    arrival: Arrival,
    fields: Fields<'a>,
    /// Read on demand.
    owner: OnceLock<ReviewOwner>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, R> {
    #[serde(borrow, default)]
    api_version: Cow<'a, str>,
    #[serde(borrow, default)]
    kind: Cow<'a, str>,
    #[serde(default = "Option::default")]
    request: Option<R>,
}

impl<'a> Review<'a> {
    /// Reads a body, whose size is within the limit.
    ///
    /// # Errors
    /// The fault for which the review cannot be decided.
    pub(crate) fn parse(body: &'a [u8]) -> Result<Self, ReviewError> {
        // As text, it is not looked at once more for each string whether that is UTF-8.
        if let Ok(body) = std::str::from_utf8(body)
            && let Ok(envelope) = serde_json::from_str::<Envelope<'a, Fields<'a>>>(body)
        {
            return Self::of(envelope);
        }
        // Is it the request alone that is malformed? Then it may have a uid.
        let envelope: Envelope<'a, &'a RawValue> =
            serde_json::from_slice(body).map_err(|source| ReviewError::NotJson {
                uid: uid_at_start(&body[..body.len().min(UID_WITHIN_BYTES)]),
                source,
            })?;
        let request = envelope.request.map(|request| {
            serde_json::from_str(request.get()).map_err(|error| ReviewError::Request {
                uid: None,
                problem: error.to_string(),
            })
        });
        Self::of(Envelope {
            api_version: envelope.api_version,
            kind: envelope.kind,
            request: request.transpose()?,
        })
    }

    fn of(envelope: Envelope<'a, Fields<'a>>) -> Result<Self, ReviewError> {
        if envelope.kind != "AdmissionReview" || envelope.api_version != API_VERSION {
            return Err(ReviewError::Version {
                kind: shortened(&envelope.kind),
                api_version: shortened(&envelope.api_version),
            });
        }
        let fields = envelope.request.ok_or(ReviewError::NoRequest)?;
        let head = ReviewHead::of(&fields).map_err(|error| ReviewError::Request {
            uid: None,
            problem: error.to_string(),
        })?;
        let operation = check(&head).map_err(|problem| ReviewError::Request {
            uid: Some(head.uid.clone().into_owned()).filter(|uid| !uid.is_empty()),
            problem,
        })?;
        Ok(Self {
            head,
            operation,
            owner: OnceLock::new(),
            arrival: Arrival {
                now_ns: anteroom_runtime::wall_clock::now().as_nanosecond(),
                seed: rand::random(),
            },
            fields,
        })
    }

    /// The time and chance of its rules.
    pub(crate) fn arrival(&self) -> Arrival {
        self.arrival
    }

    /// The operation that the user asks for.
    pub(crate) fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the most memory that its parts take once they are parsed, with so many copies of the object.
    pub(crate) fn parsed_bytes_max(&self, objects: u64) -> u64 {
        let fields = self.fields.iter().map(|(name, text)| match name {
            "object" => objects.saturating_mul(json::parsed_bytes_max(text.as_bytes())),
            _ => json::parsed_bytes_max(text.as_bytes()),
        });
        fields.fold(0, u64::saturating_add)
    }

    /// The error of a review that takes more memory than one may have.
    pub(crate) fn over_review_memory(&self, bytes: u64, bytes_max: u64) -> ReviewError {
        let uid = self.head.uid.clone().into_owned();
        ReviewError::TooMuchMemory {
            uid,
            bytes,
            bytes_max,
        }
    }

    /// The error of a review that finds no memory, since others of its namespace or user take more than their part.
    pub(crate) fn over_its_part(&self) -> ReviewError {
        let owner = match &*self.head.namespace {
            "" => {
                let user = self.user().unwrap_or_default();
                format!("of user {}", shortened(&user.username))
            }
            namespace => format!("in namespace {}", shortened(namespace)),
        };
        let uid = self.head.uid.clone().into_owned();
        ReviewError::OverPart { uid, owner }
    }

    /// The user of the request; `None` if that cannot be read. Read on demand.
    pub(crate) fn user(&self) -> Option<User<'a>> {
        let user = self.fields.iter().find(|(name, _)| *name == "userInfo");
        user.and_then(|(_, text)| serde_json::from_str(text).ok())
    }
}

impl Incoming for Review<'_> {
    type Error = ReviewError;

    fn head(&self) -> incoming::RequestHead<'_> {
        let ReviewHead { kind, resource, .. } = &self.head;
        incoming::RequestHead {
            kind: KindName {
                group: &kind.group,
                version: &kind.version,
                kind: &kind.kind,
            },
            resource: ResourcePath {
                group: &resource.group,
                version: &resource.version,
                resource: &resource.resource,
                subresource: &self.head.sub_resource,
            },
            operation: self.operation,
            namespace: &self.head.namespace,
        }
    }

    fn bytes(&self) -> usize {
        self.fields.iter().map(|(_, text)| text.len()).sum()
    }

    fn owner(&self) -> ReviewOwner {
        *self.owner.get_or_init(|| {
            let namespace = &*self.head.namespace;
            let user = namespace.is_empty().then(|| self.user());
            let user = user.flatten().unwrap_or_default();
            ReviewOwner::of(namespace, &user.username)
        })
    }

    fn is_dry_run(&self) -> bool {
        self.fields.iter().any(|field| field == ("dryRun", "true"))
    }

    fn field_manager(&self) -> String {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Options {
            field_manager: String,
        }
        let options = self.fields.iter().find(|(name, _)| *name == "options");
        let options = options.and_then(|(_, text)| serde_json::from_str::<Options>(text).ok());
        options.unwrap_or_default().field_manager
    }

    fn request(&self, parts: &RequestParts) -> Result<AdmissionRequest, ReviewError> {
        let malformed = |problem: String| ReviewError::Request {
            uid: Some(self.head.uid.clone().into_owned()),
            problem,
        };
        let mut request = Map::new();
        for (name, text) in self.fields.iter() {
            if let Some(value) = parts.field(name, text) {
                let value = value.map_err(|error| {
                    let uid = self.head.uid.clone().into_owned();
                    let field = name.to_owned();
                    match error {
                        JsonError::TooDeep => ReviewError::TooDeep { uid, field },
                        JsonError::Malformed(source) => {
                            ReviewError::Unreadable { uid, field, source }
                        }
                    }
                })?;
                request.insert(name.to_owned(), value);
            }
        }
        let request = AdmissionRequest::new(Value::Object(request));
        request
            .map(|request| request.arrived(self.arrival))
            .map(|request| request.of_review_bytes(self.bytes()))
            .map_err(|error| malformed(error.to_string()))
    }
}

/// Checks a request: its operation, or the problem in words.
fn check(head: &ReviewHead<'_>) -> Result<Operation, String> {
    if head.uid.is_empty() {
        return Err("request.uid is missing".to_owned());
    }
    let operation = Operation::parse(&head.operation).ok_or_else(|| {
        format!(
            "request.operation is {:?}, none of CREATE, UPDATE, DELETE, CONNECT",
            shortened(&head.operation)
        )
    })?;
    if head.kind.kind.is_empty() || head.kind.version.is_empty() {
        return Err("request.kind is missing".to_owned());
    }
    let (field, object) = match operation {
        Operation::Delete => ("oldObject", head.old_object),
        _ => ("object", head.object),
    };
    match object.starts_with('{') {
        true => Ok(operation),
        false => Err(format!(
            "request.{field} is missing: a {operation} request carries it"
        )),
    }
}

/// Cuts text of an unknown sender before it is repeated.
fn shortened(text: &str) -> String {
    const CHARACTERS_MAX: usize = 64;
    text.chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests;
