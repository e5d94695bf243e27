//! Policy exceptions.

use anteroom_policy::{Driver, PolicyException, Problem, Reference};

use super::{Identity, cel_api_version, published, unpublished};
use crate::{
    coordinator::{effect::Record, exception_store::ExceptionKind},
    source::reflect::RawObject,
};

/// The API version that exceptions of kyverno.io are published in: all say the same.
const EXCEPTION_API_VERSION: &str = "kyverno.io/v2";

/// A `PolicyException` of either group.
#[derive(Clone, Debug)]
pub(crate) struct ExceptionManifest {
    /// The object's UID.
    pub uid: String,
    /// The problems for which the exception exempts nothing.
    pub problems: Vec<Problem>,
    /// References that views have to be kept for.
    pub references: Vec<Reference>,
}

impl ExceptionManifest {
    /// Reads and compiles an exception. An exception that does not compile is published too, so that readers report
    /// the same problems.
    pub(crate) fn read(object: &RawObject, kind: ExceptionKind) -> (Self, Option<Record>) {
        let mut read = Self {
            uid: Identity::read(object).uid,
            problems: Vec::new(),
            references: Vec::new(),
        };
        let api_version = match kind {
            ExceptionKind::Classic => EXCEPTION_API_VERSION,
            ExceptionKind::Cel => cel_api_version(object),
        };
        let key = kind.key(&object.key);
        let published = published(object, key, api_version, "PolicyException", |_| ());
        match published {
            Ok((manifest, _, published)) => {
                match PolicyException::compile(&manifest, Driver::IN_CLUSTER) {
                    Ok(exception) => read.references = exception.references().collect(),
                    Err(problems) => read.problems = problems,
                }
                (read, Some(published))
            }
            Err(error) => {
                read.problems = vec![unpublished(&error)];
                (read, None)
            }
        }
    }
}
