//! Values that texts are read as: durations, quantities, numbers, ranges, addresses, URLs, names.

mod address;
mod duration;
mod format;
mod json;
mod number;
mod quantity;
mod range;
mod url;

pub use address::{Cidr, parse_ip};
pub use duration::{Duration, duration_ns};
pub use format::Format;
pub(crate) use json::equal;
pub use json::{text, text_within};
pub(crate) use number::Number;
pub use quantity::{Quantity, Scale};
pub(crate) use range::Range;
pub use url::{Url, unescaped};

/// Returns the nanoseconds after 1970 of a time as RFC 3339 writes it.
pub fn timestamp_ns(text: &str) -> Option<i128> {
    let time: jiff::Timestamp = text.parse().ok()?;
    Some(time.as_nanosecond())
}
