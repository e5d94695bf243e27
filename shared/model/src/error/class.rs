//! The class of an error: its meaning for the reader. [`FactError::class`] names every variant, so the compiler asks for
//! the class of a new variant.
//!
//! | question | decided by |
//! |---|---|
//! | Is it an outage, rather than an answer? | [`Retry::NobodyThere`], [`Retry::TimedOut`] |
//! | Is another replica asked at once? | [`Retry::AnotherReplica`], [`Retry::SoonServed`] |
//! | Does a reader with time left ask the view again? | [`Retry::NobodyThere`], [`Retry::SoonServed`] |
//! | May a reader fall back from a view to another backend? | [`About`], in `facts::route` of the engine |
//! | May a policy's default stand in? | [`About::Absent`], [`About::Source`] |
//! | Is a part in place of a whole fact given up? | [`About::Evaluation`], [`About::Request`] |

use super::FactError;

/// The meaning of an error for its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorClass {
    /// The possible result of a retry.
    pub retry: Retry,
    /// The subject of the error.
    pub about: About,
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
pub enum About {
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

impl FactError {
    /// Returns the error's class.
    pub fn class(&self) -> ErrorClass {
        let (retry, about) = match self {
            Self::NoReplica { .. } | Self::NoWatcher | Self::BusUnavailable { .. } => {
                (Retry::NobodyThere, About::Service)
            }
            Self::DeadlineExceeded { .. } => (Retry::TimedOut, About::Service),
            Self::NotSynced { .. } | Self::Evicted { .. } => (Retry::SoonServed, About::Service),
            Self::Stale { .. } | Self::RevisionNotReached { .. } | Self::Busy { .. } => {
                (Retry::AnotherReplica, About::Service)
            }
            Self::LiveReadBusy { .. } => (Retry::Final, About::Service),
            Self::ExpressionInvalid { .. }
            | Self::EvaluationFailed { .. }
            | Self::BudgetExceeded { .. } => (Retry::Final, About::Evaluation),
            Self::RequestInvalid { .. } => (Retry::Final, About::Request),
            Self::ObjectUnreadable { .. } => (Retry::Final, About::Unreadable),
            Self::ObjectNotFound { .. } | Self::LiveReadFailed { code: 404, .. } => {
                (Retry::Final, About::Absent)
            }
            // The source may be well, and nobody knows what it holds: no default stands in.
            Self::Failed { failure, .. } | Self::EntryInvalid { failure, .. }
                if failure.is_own() =>
            {
                (Retry::Final, About::Service)
            }
            Self::EntryInvalid { .. } | Self::Failed { .. } | Self::LiveReadFailed { .. } => {
                (Retry::Final, About::Source)
            }
            Self::EntryNotFound { .. }
            | Self::ProjectionNotFound { .. }
            | Self::ObjectNotRegistered { .. }
            | Self::NotRetained { .. }
            | Self::OutsideNamespace { .. }
            | Self::PathOutsideNamespace { .. }
            | Self::SecretForbidden { .. }
            | Self::AskerUnknown { .. } => (Retry::Final, About::Reader),
            Self::WriteFailed { .. } => (Retry::Final, About::Write),
        };
        ErrorClass { retry, about }
    }

    /// Returns whether the question is worth a retry at another replica.
    pub fn another_replica_may_answer(&self) -> bool {
        match self.class().retry {
            Retry::SoonServed | Retry::AnotherReplica => true,
            Retry::NobodyThere | Retry::TimedOut | Retry::Final => false,
        }
    }

    /// Returns whether somebody answered with this error, rather than nobody at all.
    pub fn is_answer(&self) -> bool {
        match self.class().retry {
            Retry::SoonServed | Retry::AnotherReplica | Retry::Final => true,
            Retry::NobodyThere | Retry::TimedOut => false,
        }
    }

    /// Returns whether the view that was asked may be served in a moment.
    pub fn comes_back(&self) -> bool {
        match self.class().retry {
            Retry::NobodyThere | Retry::SoonServed => true,
            Retry::TimedOut | Retry::AnotherReplica | Retry::Final => false,
        }
    }

    /// Returns whether the error is about the query, rather than about the fact.
    pub fn is_of_query(&self) -> bool {
        match self.class().about {
            About::Evaluation | About::Request => true,
            About::Service
            | About::Unreadable
            | About::Absent
            | About::Source
            | About::Reader
            | About::Write => false,
        }
    }

    /// Returns whether the error is the source's answer: it has no such thing, or refuses, or fails.
    /// Unknown data are none.
    pub fn is_said_by_source(&self) -> bool {
        match self.class().about {
            About::Absent | About::Source => true,
            About::Service
            | About::Evaluation
            | About::Request
            | About::Unreadable
            | About::Reader
            | About::Write => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntryKind, Failure, Revision, own_reason};

    /// The table of all variants. Its `match` does not compile without one of them.
    macro_rules! table {
        ($($variant:ident { $($fields:tt)* } => $retry:ident, $about:ident;)*) => {{
            fn stands_in_the_table(error: &FactError) {
                match error {
                    $(FactError::$variant { .. } => {})*
                }
            }
            let rows = vec![
                $((FactError::$variant { $($fields)* }, Retry::$retry, About::$about),)*
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
            DeadlineExceeded { deadline_ms: 1 } => TimedOut, Service;
            NotSynced { view: text(), state: text() } => SoonServed, Service;
            Evicted { view: text(), message: text() } => SoonServed, Service;
            Stale { view: text(), age_ms: 2, age_max_ms: 1, silent_ms: None } => AnotherReplica, Service;
            RevisionNotReached { view: text(), have: Revision(1), want: Revision(2) } => AnotherReplica, Service;
            Busy { limit: 1 } => AnotherReplica, Service;
            LiveReadBusy { message: text() } => Final, Service;
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
        rows.push((not_found, Retry::Final, About::Absent));
        let full = FactError::Failed {
            view: text(),
            failure: Failure::new(own_reason::LOG_FULL, text()),
        };
        rows.push((full, Retry::Final, About::Service));
        for (error, retry, about) in rows {
            assert_eq!(error.class(), ErrorClass { retry, about }, "{error:?}");
        }
    }

    #[test]
    fn each_class_answers_every_question() {
        let error = |retry| match retry {
            Retry::NobodyThere => FactError::NoWatcher,
            Retry::TimedOut => FactError::DeadlineExceeded { deadline_ms: 1 },
            Retry::SoonServed => FactError::Evicted {
                view: text(),
                message: text(),
            },
            Retry::AnotherReplica => FactError::Busy { limit: 1 },
            Retry::Final => FactError::RequestInvalid { message: text() },
        };
        for (retry, is_answer, another, comes_back) in [
            (Retry::NobodyThere, false, false, true),
            (Retry::TimedOut, false, false, false),
            (Retry::SoonServed, true, true, true),
            (Retry::AnotherReplica, true, true, false),
            (Retry::Final, true, false, false),
        ] {
            let error = error(retry);
            assert_eq!(error.class().retry, retry, "{error}");
            assert_eq!(error.is_answer(), is_answer, "{error}");
            assert_eq!(error.another_replica_may_answer(), another, "{error}");
            assert_eq!(error.comes_back(), comes_back, "{error}");
        }
        let refused = FactError::LiveReadFailed {
            code: 500,
            message: text(),
        };
        let query = FactError::EvaluationFailed { message: text() };
        assert!(refused.is_said_by_source() && !refused.is_of_query());
        assert!(query.is_of_query() && !query.is_said_by_source());
        assert!(!FactError::NoWatcher.is_said_by_source() && !FactError::NoWatcher.is_of_query());
    }
}
