//! The live copy of a source: objects as compact bytes, and whether they may be answered from.
//!
//! Pure: no runtime, no bus, no clock. Whoever follows the log hands its events to a [`View`] one
//! after the other; whoever answers queries goes through [`View::read`], which refuses whatever is
//! not known to be complete.
//!
//! | module | content |
//! |---|---|
//! | `view` | [`View`]: one view, and the effect of each event |
//! | `life` | [`Life`]: the pure state machine behind it |
//! | `store` | [`Store`]: objects by key, with accounting and digest |
//! | `read`, `node`, `listing` | a view as queries see it: [`Read`], [`Snapshot`], [`ViewNode`] |
//! | `select` | [`Select`]: the part that a query is about, and its shape |
//! | `tree` | objects in order, in chunks that states share |
//! | `object`, `pack`, `size` | one object; several in one allocation; sizes |
//! | `unreadable` | objects of which the log has a stub |
//! | `testing` | a view that tests fill by hand |

mod life;
mod listing;
mod node;
mod object;
mod pack;
mod read;
mod select;
mod size;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tree;
mod unreadable;
mod view;

pub use life::{Event, Life, LifeState, Log, StoreEffect};
pub use node::{ViewElements, ViewEntries, ViewNode};
pub use object::Object;
pub use read::{Read, Snapshot};
pub use select::{Lazy, LazyList, ReferenceState, ReferencedObject, Select, Selected};
pub use store::{Applied, Ignored, Store, TOMBSTONES_MAX, ViewBytes};
pub use tree::{Change, Objects, Stretch, StretchMark};
pub use view::View;
