//! Single requests to the API server, to other services and to registries: live reads, API calls, images,
//! and questions about this watcher's own rights.

pub(crate) mod calls;
pub(crate) mod images;
pub(crate) mod live;
pub(crate) mod rights;
