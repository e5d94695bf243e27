//! Statuses of entries and policies: their content, when it changes, and who writes it or is told of it.
//!
//! | module | content |
//! |---|---|
//! | `views` | the states of views, as watchers and replicas say |
//! | `conditions`, `rules`, `cel_fields` | content: conditions; rules; fields of policies.kyverno.io |
//! | `reporter`, `writer` | when statuses change; how they are written |
//! | `server` | answers operators who ask for statuses |

pub(super) mod cel_fields;
pub(super) mod conditions;
pub(super) mod reporter;
pub(super) mod rules;
pub(super) mod server;
pub(super) mod views;
pub(super) mod writer;
