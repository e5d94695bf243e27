//! The bodies of fuzz targets: answers of API servers, registries and other endpoints, and files of credentials.
//!
//! Each panics where a property does not hold. The parts of an input have a NUL between them.

pub use crate::{
    gateway::{
        calls::fuzzing::redirect,
        images::fuzzing::{challenge, credentials, registry},
    },
    source::reflect::fuzzing::{list, watch},
};
