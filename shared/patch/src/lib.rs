//! Patches of JSON documents, without IO and without a word on who asks for them.
//!
//! | module | content |
//! |---|---|
//! | [`json`] | RFC 6902: a list of operations, each at a pointer of RFC 6901 |
//! | [`merge`] | Kubernetes' strategic merge: a document over a document, lists by their keys |
//! | [`apply`] | Kubernetes' structured merge: a partial object over an object, by the kind's schema |
//! | [`anchors`] | Kyverno's anchors: what of a strategic merge patch is about this document |
//! | `schema`, `pointer`, `size`, `error` | list keys of kinds; pointers; limits; errors |
//!
//! A patch either applies whole or leaves the document as it was, and says why. Whatever patch and
//! document are, nothing here panics, and what is built is bounded by [`BUILT_BYTES_MAX`].

pub mod anchors;
pub mod apply;
mod error;
pub mod json;
pub mod merge;
mod pointer;
mod schema;
mod size;

pub use error::PatchError;
pub use pointer::decoded_step;
pub use schema::Schema;
pub use size::weight;

/// Levels of nesting of a patch, and of a document where a patch goes into it: those of a request that is
/// read. All of them fit into a thread's stack of 2 MiB, in an unoptimised build too.
pub const DEPTH_MAX: usize = 512;

/// Bytes, about, of what one patch builds, the document included; more is
/// [`PatchError::TooLarge`]. An API server takes objects of 1.5 MB.
pub const BUILT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The most memory that one patch adds to a document: a list of small objects takes a hundred times its bytes of text. A
/// patch that adds more is [`PatchError::TooLarge`].
pub const MADE_MEMORY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Operations of one JSON patch; more is an error.
pub const OPERATIONS_MAX: usize = 10_000;
