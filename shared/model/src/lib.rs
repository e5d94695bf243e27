//! The words of Anteroom, as types: sources, views, entries, epochs, revisions, digests, errors and
//! limits.
//!
//! Pure: no IO, no clock, no runtime, no wire format. Every other crate of the workspace may depend
//! on this one; it depends on none of them.
//!
//! | word | type |
//! |---|---|
//! | source | [`Source`], [`Collection`] |
//! | view | [`ViewId`], [`ViewRecord`] |
//! | entry | [`EntryRecord`] |
//! | dependent | [`Dependent`] |
//! | delta | [`Delta`] |
//! | epoch, revision | [`Epoch`], [`Revision`] |
//!
//! | module | content |
//! |---|---|
//! | `source` | [`Source`], and the identity of its view |
//! | `entry` | records of entries, views and kinds |
//! | `key`, `version`, `digest` | keys of objects; versions; digests of views |
//! | `group` | groups of views, which writers divide |
//! | [`system`] | the views that the watcher derives |
//! | `selector`, `retained_fields` | selectors; the parts of objects that are kept |
//! | `existing_objects` | existing objects that a rule is about |
//! | `error`, [`limits`] | errors in place of facts, and the class of each; the limits |

mod digest;
mod entry;
mod error;
mod existing_objects;
mod group;
mod key;
pub mod limits;
mod retained_fields;
mod selector;
mod source;
pub mod system;
mod version;

pub use digest::Digest;
pub use entry::{
    Binding, Dependent, DesiredView, EntryKind, EntryRecord, EntryState, Failure, KindRecord,
    ObjectReference, Projection, Shape, SourceInfo, ViewOptions, ViewRecord, ViewState, own_reason,
    source_reason,
};
pub use error::{ErrorClass, ErrorCode, ErrorSubject, FactError, Retry};
pub use existing_objects::ExistingObjects;
pub use group::Group;
pub use key::{KeyBytes, ObjectKey, key_name};
pub use retained_fields::RetainedFields;
pub use selector::{LabelSelector, NameSelector, SelectorError};
pub use source::{Collection, GroupVersionResource, Source, SourceKind, ViewId};
pub use version::{Delta, Epoch, Incarnation, Op, ResourceVersion, Revision};
