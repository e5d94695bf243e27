//! The part of JetStream's API that the bus uses, over its own inbox.
//!
//! Nobody is in the account of the log, if NATS is configured as in `deploy/chart/files/nats.conf`. Each service imports a
//! part of the API, under subjects of the cluster. Services learn so from the answer to their first question, that their own
//! account has no JetStream.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anteroom_model::{Incarnation, Revision};
use anteroom_wire::subject::Subjects;
use async_nats::jetstream::{self, response::Response, stream};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::time::Instant;

use super::{
    leave::Signs,
    mux::{Mux, Unanswered},
};
use crate::{BusError, LogHead, LogSize};

/// The time limit of one request to the API. A cluster without a leader elects one within about
/// five seconds, and does not answer meanwhile; the caller tries again.
const API_TIMEOUT: Duration = Duration::from_secs(3);

/// The key of the stream's metadata that holds the log's incarnation.
pub(super) const INCARNATION: &str = "anteroom.incarnation";

/// The words of the server for a stream that has no room.
const MAXIMUM_BYTES: &str = "maximum bytes exceeded";

/// Error codes of nats-server (`server/errors.json`) that mean something here.
pub(super) mod code {
    /// Too few servers for the copies of a stream: the others start, cannot be reached, or have no room.
    pub(crate) const NO_SUITABLE_PEERS: u64 = 10005;
    /// JetStream has no leader.
    pub(crate) const TEMPORARILY_UNAVAILABLE: u64 = 10008;
    /// The account has no JetStream.
    pub(crate) const NOT_ENABLED_FOR_ACCOUNT: u64 = 10039;
    /// No message with this subject.
    pub(crate) const NO_MESSAGE: u64 = 10037;
    /// A stream with this name exists, with a different configuration.
    pub(crate) const STREAM_NAME_IN_USE: u64 = 10058;
    /// No such stream.
    pub(crate) const STREAM_NOT_FOUND: u64 = 10059;
    /// The message was not stored, for a reason that the text names.
    pub(crate) const STORE_FAILED: u64 = 10077;
    /// The expected last sequence is another: another writer holds the lease.
    pub(crate) const WRONG_LAST_SEQUENCE: u64 = 10071;
    /// The expected last sequence is another, which the server does not name. A replicated stream
    /// answers this also while another write that names the same subject is under way.
    pub(crate) const WRONG_LAST_SEQUENCE_IN_FLIGHT: u64 = 10164;
    /// A consumer with this name exists, with a different configuration.
    pub(crate) const CONSUMER_EXISTS: u64 = 10148;
    /// The stream has as many atomic batches under way as it allows.
    pub(crate) const BATCHES_IN_FLIGHT: u64 = 10210;
}

/// Why the API gave no answer.
#[derive(Debug)]
pub(super) enum ApiError {
    /// The server said no.
    Refused(jetstream::Error),
    /// The server said nothing.
    Unanswered(Unanswered),
    /// The server said something else.
    Malformed(String),
}

impl ApiError {
    /// Returns true if nobody was there who could answer.
    fn is_without_leader(&self) -> bool {
        matches!(self, Self::Unanswered(_)) || self.code() == Some(code::TEMPORARILY_UNAVAILABLE)
    }

    pub(super) fn code(&self) -> Option<u64> {
        match self {
            Self::Refused(error) => Some(error.error_code().0),
            Self::Unanswered(_) | Self::Malformed(_) => None,
        }
    }
}

impl From<ApiError> for BusError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Refused(error) => refusal(&error),
            ApiError::Unanswered(why) => Self::Unavailable {
                message: why.to_string(),
            },
            ApiError::Malformed(message) => Self::Refused { message },
        }
    }
}

/// The server's own distinction: 5xx may pass, anything else will not. Servers that are missing are 400, and may come.
pub(super) fn refusal(error: &jetstream::Error) -> BusError {
    let message = error.to_string();
    if error.error_code().0 == code::STREAM_NOT_FOUND {
        BusError::NoLog
    } else if is_full(error) {
        BusError::Full { message }
    } else if error.code() >= 500 || error.error_code().0 == code::NO_SUITABLE_PEERS {
        BusError::Unavailable { message }
    } else {
        BusError::Refused { message }
    }
}

/// Returns whether the stream has no room. The server has no code of its own for it: the error is the one
/// of a store that failed, and its text says why.
fn is_full(error: &jetstream::Error) -> bool {
    error.error_code().0 == code::STORE_FAILED && error.to_string().contains(MAXIMUM_BYTES)
}

/// The end of the log, as reported by the stream's leading server.
#[derive(Debug)]
pub(super) struct End {
    pub(super) head: LogHead,
    /// True: there are copies, and another server may have led before.
    pub(super) is_replicated: bool,
}

/// The API for one stream.
#[derive(Clone, Debug)]
pub(super) struct Api {
    mux: Mux,
    stream: String,
    /// The subjects of the API in an account that imports it begin so.
    imported_prefix: String,
    /// The account imports the API, as far as is known.
    is_imported: Arc<AtomicBool>,
    signs: Arc<Signs>,
}

impl Api {
    pub(super) fn new(mux: Mux, subjects: &Subjects, signs: Arc<Signs>) -> Self {
        Self {
            mux,
            stream: subjects.stream(),
            imported_prefix: subjects.imported_api(),
            is_imported: Arc::default(),
            signs,
        }
    }

    /// Returns the subject of an operation on the stream.
    fn subject(&self, operation: &str) -> String {
        let prefix = match self.is_imported.load(Ordering::Relaxed) {
            true => &self.imported_prefix,
            false => "$JS.API",
        };
        format!("{prefix}.{operation}.{}", self.stream)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        subject: String,
        request: &impl Serialize,
    ) -> Result<T, ApiError> {
        let body =
            serde_json::to_vec(request).map_err(|error| ApiError::Malformed(error.to_string()))?;
        let begun = Instant::now();
        let body = Bytes::from(body);
        let asked = self
            .mux
            .request(subject, None, body, begun + API_TIMEOUT)
            .await;
        let answer = match asked {
            Ok(reply) => match serde_json::from_slice(&reply.payload) {
                Ok(Response::Ok(answer)) => Ok(answer),
                Ok(Response::Err { error }) => Err(ApiError::Refused(error)),
                Err(error) => Err(ApiError::Malformed(format!(
                    "an answer of JetStream cannot be decoded: {error}"
                ))),
            },
            Err(why) => Err(ApiError::Unanswered(why)),
        };
        match &answer {
            Err(error) if error.is_without_leader() => self.signs.unanswered(begun),
            _ => self.signs.answered(),
        }
        answer
    }

    /// Returns the stream's information. Finds out whether the account imports the API.
    pub(super) async fn info(&self) -> Result<stream::Info, ApiError> {
        let asked = async || self.call(self.subject("STREAM.INFO"), &json!({})).await;
        match asked().await {
            Err(error) if error.code() == Some(code::NOT_ENABLED_FOR_ACCOUNT) => {
                self.is_imported.store(true, Ordering::Relaxed);
                match asked().await {
                    Err(ApiError::Unanswered(Unanswered::NoResponders)) => {
                        self.is_imported.store(false, Ordering::Relaxed);
                        Err(error)
                    }
                    asked => asked,
                }
            }
            Err(error @ ApiError::Unanswered(Unanswered::NoResponders)) => {
                // The server may have another configuration by now.
                self.is_imported.store(false, Ordering::Relaxed);
                Err(error)
            }
            answer => answer,
        }
    }

    /// Returns the log's incarnation and last position. A stream without an incarnation in its
    /// metadata was not prepared by a writer yet, so it counts as no log.
    pub(super) async fn head(&self) -> Result<LogHead, BusError> {
        Ok(self.end().await?.head)
    }

    /// Returns the same, and whether the stream is replicated.
    pub(super) async fn end(&self) -> Result<End, BusError> {
        let info = self.info().await?;
        Ok(End {
            head: head(&info).ok_or(BusError::NoLog)?,
            is_replicated: info.config.num_replicas > 1,
        })
    }

    /// Returns the size of the stream, and its limit.
    pub(super) async fn size(&self) -> Result<LogSize, BusError> {
        Ok(size(&self.info().await?))
    }

    pub(super) async fn create(&self, config: &stream::Config) -> Result<stream::Info, ApiError> {
        let subject = self.subject("STREAM.CREATE");
        self.call(subject, config).await
    }

    pub(super) async fn update(&self, config: &stream::Config) -> Result<stream::Info, ApiError> {
        let subject = self.subject("STREAM.UPDATE");
        self.call(subject, config).await
    }

    /// The last message of a subject, from the stream's leader: what was just written is seen.
    pub(super) async fn last(
        &self,
        subject: &str,
    ) -> Result<Option<jetstream::message::StreamMessage>, ApiError> {
        #[derive(serde::Deserialize)]
        struct Got {
            message: stream::RawMessage,
        }
        let get = self.subject("STREAM.MSG.GET");
        match self.call(get, &json!({ "last_by_subj": subject })).await {
            Ok(Got { message }) => message
                .try_into()
                .map(Some)
                .map_err(|error: async_nats::Error| ApiError::Malformed(error.to_string())),
            Err(error) if error.code() == Some(code::NO_MESSAGE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the messages that match `filter` and are before position `before`.
    pub(super) async fn purge(&self, filter: &str, before: Revision) -> Result<(), ApiError> {
        let subject = self.subject("STREAM.PURGE");
        let request = json!({ "filter": filter, "seq": before.0 });
        let _: serde::de::IgnoredAny = self.call(subject, &request).await?;
        Ok(())
    }

    /// Removes every message.
    pub(super) async fn purge_all(&self) -> Result<(), ApiError> {
        let subject = self.subject("STREAM.PURGE");
        let _: serde::de::IgnoredAny = self.call(subject, &json!({})).await?;
        Ok(())
    }

    /// Makes a consumer; the number of messages that wait for it.
    pub(super) async fn create_consumer(
        &self,
        name: &str,
        config: &serde_json::Value,
    ) -> Result<u64, ApiError> {
        let subject = format!("{}.{name}", self.subject("CONSUMER.CREATE"));
        let request = json!({ "stream_name": self.stream, "config": config, "action": "create" });
        self.call(subject, &request)
            .await
            .map(|info: ConsumerInfo| info.num_pending)
    }

    /// Returns the subject at which the server takes pull requests for `consumer`.
    pub(super) fn next_subject(&self, consumer: &str) -> String {
        format!("{}.{consumer}", self.subject("CONSUMER.MSG.NEXT"))
    }
}

/// Reads the log's head from the stream's information; `None` if its metadata holds no incarnation.
pub(super) fn head(info: &stream::Info) -> Option<LogHead> {
    let incarnation = info.config.metadata.get(INCARNATION)?;
    Some(LogHead {
        incarnation: Incarnation(incarnation.clone()),
        last: Revision(info.state.last_sequence),
    })
}

/// Reads the size of the stream, and its limit, from the stream's information.
pub(super) fn size(info: &stream::Info) -> LogSize {
    // Below 1, the server means that there is none.
    let bytes_max = u64::try_from(info.config.max_bytes).ok();
    LogSize {
        bytes: info.state.bytes,
        bytes_max: bytes_max.filter(|bytes_max| *bytes_max > 0),
    }
}

#[derive(serde::Deserialize)]
struct ConsumerInfo {
    num_pending: u64,
}
