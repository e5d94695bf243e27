//! The class of an error: its meaning for the reader. [`FactError::class`] names every variant, so the compiler asks for
//! the class of a new variant.
//!
//! | question | decided by |
//! |---|---|
//! | Is it an outage, rather than an answer? | [`Retry::is_outage`] |
//! | Is another replica asked at once? | [`Retry::another_replica_may_answer`] |
//! | Does a reader with time left ask the view again? | [`Retry::view_may_come_back`] |
//! | May a reader fall back from a view to another backend? | [`ErrorSubject`], in `facts::route` of the engine |
//! | Does the error say that there is no such object? | [`ErrorSubject::is_absence`] |
//! | May a policy's default stand in? | [`ErrorSubject::is_said_by_source`] |
//! | Is a part in place of a whole fact given up? | [`ErrorSubject::is_of_query`] |

use super::FactError;

/// The meaning of an error for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorClass {
    /// The possible result of a retry.
    pub retry: Retry,
    /// The subject of the error.
    pub subject: ErrorSubject,
}

/// The possible result of a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Nobody was there to be asked: an outage, which a reader may wait out.
    NobodyThere,
    /// Nobody answered in time: an outage, and no time is left.
    TimedOut,
    /// Another replica may answer now, and the asked replica may answer soon.
    SoonServed,
    /// Another replica may answer now, but the asked replica hardly soon.
    AnotherReplica,
    /// The answer is final: no further replica is asked.
    Final,
}

/// The subject of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorSubject {
    /// The service that was to answer, or the state of its data.
    Service,
    /// The expression on the data: every replica finds the same error.
    Evaluation,
    /// The form of the request.
    Request,
    /// An object that exists and cannot be carried.
    Unreadable,
    /// An object that the API server does not have.
    Absent,
    /// The source, which refuses or fails.
    Source,
    /// The reader, which names an undeclared source or has no right to read the data.
    Reader,
    /// A change of an object, which was not made.
    Write,
}

impl Retry {
    /// Returns whether nobody answered at all: an outage.
    pub fn is_outage(self) -> bool {
        match self {
            Self::NobodyThere | Self::TimedOut => true,
            Self::SoonServed | Self::AnotherReplica | Self::Final => false,
        }
    }

    /// Returns whether the question is worth a retry at another replica.
    pub fn another_replica_may_answer(self) -> bool {
        match self {
            Self::SoonServed | Self::AnotherReplica => true,
            Self::NobodyThere | Self::TimedOut | Self::Final => false,
        }
    }

    /// Returns whether the view that was asked may be served in a moment.
    pub fn view_may_come_back(self) -> bool {
        match self {
            Self::NobodyThere | Self::SoonServed => true,
            Self::TimedOut | Self::AnotherReplica | Self::Final => false,
        }
    }
}

impl ErrorSubject {
    /// Returns whether the error is about the query, rather than about the fact.
    pub fn is_of_query(self) -> bool {
        match self {
            Self::Evaluation | Self::Request => true,
            Self::Service
            | Self::Unreadable
            | Self::Absent
            | Self::Source
            | Self::Reader
            | Self::Write => false,
        }
    }

    /// Returns whether the error says that there is no such object.
    pub fn is_absence(self) -> bool {
        match self {
            Self::Absent => true,
            Self::Service
            | Self::Evaluation
            | Self::Request
            | Self::Unreadable
            | Self::Source
            | Self::Reader
            | Self::Write => false,
        }
    }

    /// Returns whether the error is the source's answer: it has no such thing, or refuses, or fails.
    /// Unknown data are none.
    pub fn is_said_by_source(self) -> bool {
        match self {
            Self::Absent | Self::Source => true,
            Self::Service
            | Self::Evaluation
            | Self::Request
            | Self::Unreadable
            | Self::Reader
            | Self::Write => false,
        }
    }
}

impl FactError {
    /// Returns the error's class.
    pub fn class(&self) -> ErrorClass {
        let (retry, subject) = match self {
            Self::NoReplica { .. } | Self::NoWatcher | Self::BusUnavailable { .. } => {
                (Retry::NobodyThere, ErrorSubject::Service)
            }
            Self::DeadlineExceeded { .. } => (Retry::TimedOut, ErrorSubject::Service),
            Self::NotSynced { .. }
            | Self::Evicted { .. }
            | Self::Stale { .. }
            | Self::RevisionNotReached { .. } => (Retry::SoonServed, ErrorSubject::Service),
            Self::Busy { .. } => (Retry::AnotherReplica, ErrorSubject::Service),
            // An answer over a limit of ours says nothing of the source: whoever makes it long would choose the default.
            Self::LiveReadBusy { .. } | Self::LiveReadFailed { code: 413, .. } => {
                (Retry::Final, ErrorSubject::Service)
            }
            Self::ExpressionInvalid { .. }
            | Self::EvaluationFailed { .. }
            | Self::BudgetExceeded { .. } => (Retry::Final, ErrorSubject::Evaluation),
            Self::RequestInvalid { .. } => (Retry::Final, ErrorSubject::Request),
            Self::ObjectUnreadable { .. } => (Retry::Final, ErrorSubject::Unreadable),
            Self::ObjectNotFound { .. } | Self::LiveReadFailed { code: 404, .. } => {
                (Retry::Final, ErrorSubject::Absent)
            }
            // The source may be well, and nobody knows what it holds: no default stands in.
            Self::Failed { failure, .. } | Self::EntryInvalid { failure, .. }
                if failure.is_own() =>
            {
                (Retry::Final, ErrorSubject::Service)
            }
            Self::EntryInvalid { .. } | Self::Failed { .. } | Self::LiveReadFailed { .. } => {
                (Retry::Final, ErrorSubject::Source)
            }
            Self::EntryNotFound { .. }
            | Self::ProjectionNotFound { .. }
            | Self::ObjectNotRegistered { .. }
            | Self::NotRetained { .. }
            | Self::OutsideNamespace { .. }
            | Self::PathOutsideNamespace { .. }
            | Self::SecretForbidden { .. }
            | Self::AskerUnknown { .. } => (Retry::Final, ErrorSubject::Reader),
            Self::WriteFailed { .. } => (Retry::Final, ErrorSubject::Write),
        };
        ErrorClass { retry, subject }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryKind, Failure, Revision, own_reason};

    /// The table of all variants. Its `match` does not compile without one of them.
    macro_rules! table {
        ($($variant:ident { $($fields:tt)* } => $retry:ident, $subject:ident;)*) => {{
            fn stands_in_the_table(error: &FactError) {
                match error {
                    $(FactError::$variant { .. } => {})*
                }
            }
            let rows = vec![
                $((FactError::$variant { $($fields)* }, Retry::$retry, ErrorSubject::$subject),)*
            ];
            rows.iter().for_each(|(error, ..)| stands_in_the_table(error));
            rows
        }};
    }

    fn text() -> String {
        "x".to_owned()
    }

    #[test]
    fn each_error_has_its_class() {
        let failure = || Failure {
            reason: text(),
            message: text(),
        };
        let mut rows = table! {
            NoReplica { view: text() } => NobodyThere, Service;
            NoWatcher {} => NobodyThere, Service;
            BusUnavailable { message: text() } => NobodyThere, Service;
            DeadlineExceeded { deadline_ms: 1, over_part: false } => TimedOut, Service;
            NotSynced { view: text(), state: text() } => SoonServed, Service;
            Evicted { view: text(), message: text() } => SoonServed, Service;
            Stale { view: text(), age_ms: 2, age_max_ms: 1, silent_ms: None } => SoonServed, Service;
            RevisionNotReached { view: text(), have: Revision(1), want: Revision(2) } => SoonServed, Service;
            Busy { limit: 1, over_part: true } => AnotherReplica, Service;
            LiveReadBusy { message: text(), over_part: true } => Final, Service;
            ExpressionInvalid { message: text() } => Final, Evaluation;
            EvaluationFailed { message: text() } => Final, Evaluation;
            BudgetExceeded { message: text() } => Final, Evaluation;
            RequestInvalid { message: text() } => Final, Request;
            ObjectUnreadable { view: text(), object: text(), reason: text() } => Final, Unreadable;
            ObjectNotFound { resource: text(), namespace: text(), name: text() } => Final, Absent;
            LiveReadFailed { code: 403, message: text() } => Final, Source;
            Failed { view: text(), failure: failure() } => Final, Source;
            EntryInvalid { entry: text(), failure: failure() } => Final, Source;
            EntryNotFound { kind: EntryKind::Cached, entry: text() } => Final, Reader;
            ProjectionNotFound { entry: text(), projection: text(), known: text() } => Final, Reader;
            ObjectNotRegistered { resource: text(), object: text() } => Final, Reader;
            NotRetained { view: text(), path: text() } => Final, Reader;
            OutsideNamespace { entry: text(), namespace: text() } => Final, Reader;
            PathOutsideNamespace { path: text(), namespace: text() } => Final, Reader;
            SecretForbidden { reader: text() } => Final, Reader;
            AskerUnknown { message: text() } => Final, Reader;
            WriteFailed { code: 409, message: text() } => Final, Write;
        };
        let not_found = FactError::LiveReadFailed {
            code: 404,
            message: text(),
        };
        rows.push((not_found, Retry::Final, ErrorSubject::Absent));
        let too_large = FactError::LiveReadFailed {
            code: 413,
            message: text(),
        };
        rows.push((too_large, Retry::Final, ErrorSubject::Service));
        let full = FactError::Failed {
            view: text(),
            failure: Failure::new(own_reason::LOG_FULL, text()),
        };
        rows.push((full, Retry::Final, ErrorSubject::Service));
        for (error, retry, subject) in rows {
            assert_eq!(error.class(), ErrorClass { retry, subject }, "{error:?}");
        }
    }

    #[test]
    fn each_class_answers_every_question() {
        for (retry, is_outage, another, comes_back) in [
            (Retry::NobodyThere, true, false, true),
            (Retry::TimedOut, true, false, false),
            (Retry::SoonServed, false, true, true),
            (Retry::AnotherReplica, false, true, false),
            (Retry::Final, false, false, false),
        ] {
            assert_eq!(retry.is_outage(), is_outage, "{retry:?}");
            assert_eq!(retry.another_replica_may_answer(), another, "{retry:?}");
            assert_eq!(retry.view_may_come_back(), comes_back, "{retry:?}");
        }
        for (subject, is_of_query, is_absence, is_said_by_source) in [
            (ErrorSubject::Service, false, false, false),
            (ErrorSubject::Evaluation, true, false, false),
            (ErrorSubject::Request, true, false, false),
            (ErrorSubject::Unreadable, false, false, false),
            (ErrorSubject::Absent, false, true, true),
            (ErrorSubject::Source, false, false, true),
            (ErrorSubject::Reader, false, false, false),
            (ErrorSubject::Write, false, false, false),
        ] {
            assert_eq!(subject.is_of_query(), is_of_query, "{subject:?}");
            assert_eq!(subject.is_absence(), is_absence, "{subject:?}");
            assert_eq!(
                subject.is_said_by_source(),
                is_said_by_source,
                "{subject:?}"
            );
        }
    }
}
