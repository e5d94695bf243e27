//! The views of operators: `anteroom top`, `anteroom tap`, and the console.
//!
//! All of it comes over NATS, by a login that hears heartbeats, asks the coordinator for statuses, and opens taps. The login
//! reads no object.
//!
//! | module | content |
//! |---|---|
//! | `connection` | the connection: heartbeats, taps and statuses |
//! | `system` | the parts of a system and its views, put together from heartbeats. Pure |
//! | `window` | the decisions of the last seconds, put together from all webhooks. Pure |
//! | `table`, `screen` | text tables; the terminal |
//! | `status_text` | a system as text, for the demo's page |
//! | `top`, `tap` | the commands |

pub(crate) mod connection;
mod screen;
mod status_text;
pub(crate) mod system;
pub(crate) mod table;
pub(crate) mod tap;
pub(crate) mod top;
pub(crate) mod window;

pub use screen::{KeyPress, Screen};
pub use status_text::{LiveStatus, denial};
