//! Errors that a reader of facts gets in place of them.

mod class;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{EntryKind, Failure, Revision};

pub use class::{ErrorClass, ErrorSubject, Retry};

/// A stable code, shown with every error that a user sees; `docs/errors.md` has a section for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ErrorCode(&'static str);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: Self = Self($text);)*

            /// Every code there is, for the test that holds the documentation against them.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

// Hundreds: 1 facts, 2 queries, 3 policies, 4 admission, 5 entries, 6 the bus, 7 start-up.
codes! {
    /// No entry has this name.
    ENTRY_NOT_FOUND = "AR101";
    /// The entry cannot be served.
    ENTRY_INVALID = "AR102";
    /// The view has not been read to the end yet.
    VIEW_NOT_SYNCED = "AR103";
    /// The view's data is older than the reader accepts, or its watcher is silent.
    VIEW_STALE = "AR104";
    /// The source refuses, or does not exist.
    VIEW_FAILED = "AR105";
    /// No replica answers for the view.
    NO_REPLICA = "AR106";
    /// The view has not reached the revision that the reader asks for.
    REVISION_NOT_REACHED = "AR107";
    /// The view was evicted to save memory.
    VIEW_EVICTED = "AR108";
    /// Nobody has registered a reference to the object.
    OBJECT_NOT_REGISTERED = "AR109";
    /// The API server has no such object.
    OBJECT_NOT_FOUND = "AR110";
    /// A live read was refused, or failed.
    LIVE_READ_FAILED = "AR111";
    /// The watcher has as many live reads as it takes.
    LIVE_READ_BUSY = "AR112";
    /// No watcher takes live reads.
    NO_WATCHER = "AR113";
    /// The entry has no projection of this name.
    PROJECTION_NOT_FOUND = "AR114";
    /// Secrets may not be read without an administrator's word.
    SECRET_FORBIDDEN = "AR115";
    /// A sealed body or result cannot be opened.
    SEALED_UNREADABLE = "AR116";
    /// The view retains only fields that policies read, and the query reads a different field.
    NOT_RETAINED = "AR117";
    /// An object that exists could not be changed.
    WRITE_FAILED = "AR118";
    /// An object cannot be carried, so nothing but its key is known.
    OBJECT_UNREADABLE = "AR119";
    /// Somebody asks for Secrets without a key that the answering service knows.
    ASKER_UNKNOWN = "AR123";
    /// The expression cannot be parsed.
    EXPRESSION_INVALID = "AR201";
    /// The expression failed on this data.
    EVALUATION_FAILED = "AR202";
    /// Too many steps, too deep, or too large a result.
    BUDGET_EXCEEDED = "AR203";
    /// No time was left.
    DEADLINE_EXCEEDED = "AR204";
    /// The replica has as many queries as it takes.
    BUSY = "AR205";
    /// The request cannot be read, or speaks another protocol version.
    REQUEST_INVALID = "AR206";
    /// The rules of a review took all the steps that a review may take.
    REVIEW_TOO_COSTLY = "AR207";
    /// The reviews of one namespace or user take more than their part of the webhook's memory.
    REVIEWS_OVER_PART = "AR208";
    /// The policy uses a feature that this version does not evaluate.
    POLICY_UNSUPPORTED = "AR301";
    /// The policy is malformed.
    POLICY_INVALID = "AR302";
    /// A variable could not be resolved while a rule was evaluated.
    VARIABLE_UNRESOLVED = "AR303";
    /// The policy reads data without a right to do so.
    POLICY_FORBIDDEN = "AR304";
    /// A patch of a policy does not apply to the object.
    PATCH_FAILED = "AR305";
    /// A CEL expression of a rule came to an error.
    CEL_FAILED = "AR306";
    /// The request's body is not an AdmissionReview.
    REVIEW_INVALID = "AR401";
    /// The AdmissionReview is of a version that is not spoken here.
    REVIEW_VERSION = "AR402";
    /// The AdmissionReview is larger than the limit.
    REVIEW_TOO_LARGE = "AR403";
    /// The service has not read its policies yet.
    NOT_READY = "AR404";
    /// The caller of the webhook does not know the path of a webhook configuration.
    REVIEW_FORBIDDEN = "AR405";
    /// The request nests too deep to be read.
    REVIEW_TOO_DEEP = "AR406";
    /// The entry's spec is malformed.
    ENTRY_SPEC_INVALID = "AR501";
    /// The API server has no such resource.
    RESOURCE_NOT_FOUND = "AR502";
    /// The API server forbids it.
    RESOURCE_FORBIDDEN = "AR503";
    /// The bus is out of reach.
    BUS_UNAVAILABLE = "AR601";
    /// A configuration value is wrong.
    CONFIG_INVALID = "AR701";
}

impl ErrorCode {
    /// Returns the code's text, as in `AR101`.
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// Why a query has no answer. *Absent* is never among them: an object that the API server said is
/// not there is an answer.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum FactError {
    /// No entry has this name.
    #[error("{}", entry_not_found(*.kind, .entry))]
    EntryNotFound {
        /// The kind that should have declared it.
        #[serde(default)]
        kind: EntryKind,
        /// The name asked for.
        entry: String,
    },
    /// The entry holds an error.
    #[error("entry `{entry}` cannot be served: {failure}")]
    EntryInvalid {
        /// The entry's name.
        entry: String,
        /// The error that it holds.
        failure: Failure,
    },
    /// The reader is confined to a namespace, and the entry is not confined to the same one.
    #[error(
        "entry `{entry}` may hold more than namespace {namespace}, and a Policy reads nothing outside \
         its own: confine the entry with `resource.namespace`, or use a ClusterPolicy"
    )]
    OutsideNamespace {
        /// The entry's name.
        entry: String,
        /// The reader's namespace.
        namespace: String,
    },
    /// The view has not been read to the end.
    #[error("view `{view}` is not synced yet: {state}")]
    NotSynced {
        /// The view asked.
        view: String,
        /// The state of the view, for people.
        state: String,
    },
    /// The data is older than the reader accepts.
    #[error("view `{view}` is stale: {}", stale(*.age_ms, *.age_max_ms, *.silent_ms))]
    Stale {
        /// The view asked.
        view: String,
        /// The time since the source was last heard from.
        age_ms: u64,
        /// The age that the reader accepts.
        age_max_ms: u64,
        /// The time since the view's watcher was last heard from, if that is too long; `u64::MAX` if it
        /// never was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        silent_ms: Option<u64>,
    },
    /// The source cannot be read.
    #[error("view `{view}` cannot be read at its source: {failure}")]
    Failed {
        /// The view asked.
        view: String,
        /// The source's words.
        failure: Failure,
    },
    /// Nobody serves the view.
    #[error("no replica serves view `{view}`: check that the cache replicas are ready")]
    NoReplica {
        /// The view asked.
        view: String,
    },
    /// The view is behind what the reader asks for.
    #[error(
        "view `{view}` is at revision {have}, and the reader asks for {want}: the replica is behind the log, \
         so ask again"
    )]
    RevisionNotReached {
        /// The view asked.
        view: String,
        /// The position that it has reached.
        have: Revision,
        /// The position that the reader asks for.
        want: Revision,
    },
    /// The expression cannot be parsed.
    #[error("invalid expression: {message}")]
    ExpressionInvalid {
        /// The place in the expression, and the problem.
        message: String,
    },
    /// The expression failed on this data.
    #[error("evaluation failed: {message}")]
    EvaluationFailed {
        /// The cause.
        message: String,
    },
    /// A budget was used up.
    #[error("query over its budget: {message}")]
    BudgetExceeded {
        /// The budget, and its limit.
        message: String,
    },
    /// No time was left.
    #[error("deadline exceeded: no answer within {deadline_ms} ms{}", why(*.over_part))]
    DeadlineExceeded {
        /// The time that was given.
        deadline_ms: u64,
        /// See [`FactError::is_over_part`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over_part: bool,
    },
    /// Too many queries at once.
    #[error(
        "the replica is busy: {limit} requests are under way{}; ask again, or raise its `--concurrency`",
        why(*.over_part)
    )]
    Busy {
        /// The most queries that the replica runs at a time.
        limit: u64,
        /// See [`FactError::is_over_part`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over_part: bool,
    },
    /// The request cannot be read.
    #[error("invalid request: {message}")]
    RequestInvalid {
        /// The problem with it.
        message: String,
    },
    /// The view was evicted to save memory.
    #[error(
        "view `{view}` was evicted to save memory: {message}; raise the replicas' memory limit, or set \
         `spec.pinned: true` on the entry"
    )]
    Evicted {
        /// The view asked.
        view: String,
        /// When it comes back.
        message: String,
    },
    /// The view keeps of its objects only what policies read, and the query reads more.
    #[error(
        "view `{view}` keeps only what policies and projections read of its objects, and the query reads \
         `{path}`: ask for less, read it in a policy, or set `spec.retain: All` on the entry"
    )]
    NotRetained {
        /// The view asked.
        view: String,
        /// The fields that are read and not kept, as in `spec.containers`; `@`: objects whole.
        path: String,
    },
    /// Nobody has registered a reference to the object.
    #[error("{resource} `{object}` is not registered: no entry or policy refers to it by name")]
    ObjectNotRegistered {
        /// The type, as in `configmaps`.
        resource: String,
        /// The object's `namespace/name`.
        object: String,
    },
    /// The API server has no such object. In its own words, as clients match on them.
    #[error("{resource} \"{name}\" not found")]
    ObjectNotFound {
        /// The type, as in `configmaps` or `ingresses.networking.k8s.io`.
        resource: String,
        /// Empty for a cluster-scoped object.
        namespace: String,
        /// The object's name.
        name: String,
    },
    /// The query could see an object that cannot be carried, so its result is unknown.
    #[error(
        "view `{view}` cannot show object `{object}`: {reason}; correct or delete that object, or ask for less"
    )]
    ObjectUnreadable {
        /// The view asked.
        view: String,
        /// The object's `namespace/name`.
        object: String,
        /// The reason, for people.
        reason: String,
    },
    /// A live read was refused, or failed.
    #[error("{message}")]
    LiveReadFailed {
        /// The status code; 0 where there was no answer.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// An object that exists was not changed as a rule wants it: the API server refused, or did not answer.
    #[error("not written: {message}")]
    WriteFailed {
        /// The status code; 0 where there was no answer. 409: the object is not what it was.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The watcher has as many live reads as it takes.
    #[error("the watcher is busy: {message}")]
    LiveReadBusy {
        /// The limit.
        message: String,
        /// See [`FactError::is_over_part`].
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over_part: bool,
    },
    /// No watcher takes live reads.
    #[error("no watcher takes live reads: check that a watcher is ready")]
    NoWatcher,
    /// The entry has no projection of this name.
    #[error("projection `{projection}` not found: entry `{entry}` has {known}")]
    ProjectionNotFound {
        /// The entry's name.
        entry: String,
        /// The name asked for.
        projection: String,
        /// The names that there are, for people.
        known: String,
    },
    /// Secrets may not be read without an administrator's word.
    #[error(
        "{reader} may not read Secrets: an administrator has to name it in the watcher's \
         `--allow-secrets`"
    )]
    SecretForbidden {
        /// The reader, as in `ClusterPolicy name`.
        reader: String,
    },
    /// Secrets are read between services that hold a common key.
    #[error("Secrets are read by encrypted requests alone: {message}")]
    AskerUnknown {
        /// The problem with the asker's key.
        message: String,
    },
    /// The reader is confined to a namespace, and the path leads elsewhere.
    #[error(
        "path `{path}` leads outside namespace {namespace}, and a Policy reads nothing outside its own"
    )]
    PathOutsideNamespace {
        /// The path.
        path: String,
        /// The reader's namespace.
        namespace: String,
    },
    /// The bus is out of reach.
    #[error("the bus is unavailable: {message}")]
    BusUnavailable {
        /// The words of the transport.
        message: String,
    },
}

/// Says who was not heard from, for how long, and where to look.
fn stale(age_ms: u64, age_max_ms: u64, silent_ms: Option<u64>) -> String {
    match silent_ms {
        Some(u64::MAX) => {
            "its watcher has not been heard from yet: check that a watcher runs and reaches NATS"
                .to_owned()
        }
        Some(silent_ms) => format!(
            "its watcher has not been heard from for {silent_ms} ms, so changes may be missing: check that \
             a watcher runs and reaches NATS"
        ),
        None => format!(
            "its watcher last heard from the source {age_ms} ms ago, and the reader accepts {age_max_ms} \
             ms: check that the watcher reaches the source"
        ),
    }
}

/// Says whose requests take the places, where that is known.
fn why(over_part: bool) -> &'static str {
    match over_part {
        true => ", while other requests in the same namespace take more than their part",
        false => "",
    }
}

/// Users of Kyverno look for the words that it has for a `GlobalContextEntry` that is not there.
fn entry_not_found(kind: EntryKind, entry: &str) -> String {
    let theirs = match kind {
        EntryKind::Global => format!("failed to fetch entry key={entry}: "),
        EntryKind::Cached | EntryKind::Implicit => String::new(),
    };
    let kind = kind.name();
    format!("{theirs}entry `{entry}` not found: create a {kind} with this name")
}

impl FactError {
    /// Returns whether other reviews in the namespace of this one used up the part of the service that they have
    /// together. Then no other namespace is at fault, and neither is the service. False where that is not known.
    pub fn is_over_part(&self) -> bool {
        match self {
            Self::DeadlineExceeded { over_part, .. }
            | Self::Busy { over_part, .. }
            | Self::LiveReadBusy { over_part, .. } => *over_part,
            _ => false,
        }
    }

    /// Returns the error's stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::EntryNotFound { .. } => ErrorCode::ENTRY_NOT_FOUND,
            Self::EntryInvalid { .. } => ErrorCode::ENTRY_INVALID,
            Self::OutsideNamespace { .. } | Self::PathOutsideNamespace { .. } => {
                ErrorCode::POLICY_FORBIDDEN
            }
            Self::Evicted { .. } => ErrorCode::VIEW_EVICTED,
            Self::NotRetained { .. } => ErrorCode::NOT_RETAINED,
            Self::ObjectNotRegistered { .. } => ErrorCode::OBJECT_NOT_REGISTERED,
            Self::ObjectNotFound { .. } => ErrorCode::OBJECT_NOT_FOUND,
            Self::ObjectUnreadable { .. } => ErrorCode::OBJECT_UNREADABLE,
            Self::LiveReadFailed { .. } => ErrorCode::LIVE_READ_FAILED,
            Self::WriteFailed { .. } => ErrorCode::WRITE_FAILED,
            Self::LiveReadBusy { .. } => ErrorCode::LIVE_READ_BUSY,
            Self::NoWatcher => ErrorCode::NO_WATCHER,
            Self::ProjectionNotFound { .. } => ErrorCode::PROJECTION_NOT_FOUND,
            Self::SecretForbidden { .. } => ErrorCode::SECRET_FORBIDDEN,
            Self::AskerUnknown { .. } => ErrorCode::ASKER_UNKNOWN,
            Self::NotSynced { .. } => ErrorCode::VIEW_NOT_SYNCED,
            Self::Stale { .. } => ErrorCode::VIEW_STALE,
            Self::Failed { .. } => ErrorCode::VIEW_FAILED,
            Self::NoReplica { .. } => ErrorCode::NO_REPLICA,
            Self::RevisionNotReached { .. } => ErrorCode::REVISION_NOT_REACHED,
            Self::ExpressionInvalid { .. } => ErrorCode::EXPRESSION_INVALID,
            Self::EvaluationFailed { .. } => ErrorCode::EVALUATION_FAILED,
            Self::BudgetExceeded { .. } => ErrorCode::BUDGET_EXCEEDED,
            Self::DeadlineExceeded { .. } => ErrorCode::DEADLINE_EXCEEDED,
            Self::Busy { .. } => ErrorCode::BUSY,
            Self::RequestInvalid { .. } => ErrorCode::REQUEST_INVALID,
            Self::BusUnavailable { .. } => ErrorCode::BUS_UNAVAILABLE,
        }
    }
}
