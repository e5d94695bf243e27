//! The ways to the type of a kind's objects.

use serde_json::Value;

use super::{
    built_in,
    error::ApplyError,
    openapi, record, smallest,
    types::{ObjectSchema, SchemaError},
};

impl ObjectSchema {
    /// Returns the type of one of Kubernetes' own kinds; `None` of any other.
    pub fn built_in(api_version: &str, kind: &str) -> Option<Self> {
        built_in::find(api_version, kind)
    }

    /// Returns whether an API group has kinds of Kubernetes' own. Others are those of definitions.
    pub fn is_built_in_group(group: &str) -> bool {
        built_in::has_group(group)
    }

    /// Returns the type of an object by its `apiVersion` and `kind`, of Kubernetes' own.
    ///
    /// # Errors
    /// [`ApplyError::NoSchema`]: it is of another kind.
    pub fn of(object: &Value) -> Result<Self, ApplyError> {
        let text = |name| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        Self::built_in(api_version, kind).ok_or_else(|| ApplyError::NoSchema {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Returns the type that the `openAPIV3Schema` of a version in a CustomResourceDefinition declares.
    ///
    /// # Errors
    /// [`SchemaError`]: it declares none.
    pub fn from_crd(schema: &Value) -> Result<Self, SchemaError> {
        openapi::of_custom(schema)
    }

    /// Returns the type as text, to be kept or sent.
    pub fn to_record(&self) -> String {
        let (types, roots) = smallest::table(self.types(), &[self.root()]);
        record::write_one(&types, roots.first().copied().unwrap_or_default())
    }

    /// Reads a record that [`ObjectSchema::to_record`] wrote.
    ///
    /// # Errors
    /// [`SchemaError`]: the text is no record.
    pub fn from_record(text: &str) -> Result<Self, SchemaError> {
        record::read_one(text)
    }
}
