//! Formats of names and texts: DNS labels, dates, UUIDs and their kin, as Kubernetes checks them.

use jiff::civil::Date;

use super::url::Url;

/// A format of names and texts, as `format.dns1123Label()` of CEL has them.
#[derive(Debug)]
pub struct Format {
    /// The name by which it is found.
    name: &'static str,
    /// Lists the faults of a text, one line each.
    check: fn(&str) -> Vec<String>,
}

impl Format {
    /// Returns the format of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The name by which it is found, as in `dns1123Label`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Lists the faults of a text, one line each; none if it has the format.
    pub fn check(&self, text: &str) -> Vec<String> {
        (self.check)(text)
    }
}

const FORMATS: &[Format] = &[
    format("byte", |text| {
        message_unless(is_base64(text), "it is no base64")
    }),
    format("date", |text| {
        message_unless(is_date(text), "it is no date")
    }),
    format("datetime", |text| {
        message_unless(is_datetime(text), "it is no date and time")
    }),
    format("dns1035Label", dns1035_label),
    format("dns1035LabelPrefix", |text| {
        dns1035_label(&without_dash(text))
    }),
    format("dns1123Label", dns1123_label),
    format("dns1123LabelPrefix", |text| {
        dns1123_label(&without_dash(text))
    }),
    format("dns1123Subdomain", dns1123_subdomain),
    format("dns1123SubdomainPrefix", |text| {
        dns1123_subdomain(&without_dash(text))
    }),
    format("labelValue", |text| {
        let mut wrong = at_most(text, NAME_BYTES_MAX);
        wrong.extend(message_unless(text.is_empty() || is_name(text), NAME));
        wrong
    }),
    format("qualifiedName", qualified_name),
    format("uri", |text| {
        message_unless(
            Url::parse(text).is_some(),
            "it is neither a URI with a scheme nor a path",
        )
    }),
    format("uuid", |text| {
        message_unless(is_uuid(text), "it is no UUID")
    }),
];

const fn format(name: &'static str, check: fn(&str) -> Vec<String>) -> Format {
    Format { name, check }
}

const LABEL_BYTES_MAX: usize = 63;
const SUBDOMAIN_BYTES_MAX: usize = 253;
const NAME_BYTES_MAX: usize = 63;

const NAME: &str = "it must consist of letters, digits, `-`, `_` and `.`, with a letter or a digit \
                    at both ends";

fn message_unless(is_fit: bool, wrong: &str) -> Vec<String> {
    (!is_fit).then(|| wrong.to_owned()).into_iter().collect()
}

fn at_most(text: &str, bytes: usize) -> Vec<String> {
    let wrong = format!("it must have no more than {bytes} bytes");
    message_unless(text.len() <= bytes, &wrong)
}

/// Drops a dash at the end of a prefix, and replaces the character before it by `a`.
fn without_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let kept: String = rest.chars().take(rest.chars().count() - 1).collect();
            kept + "a"
        }
        _ => text.to_owned(),
    }
}

fn is_label(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let bytes = text.as_bytes();
    let is_inside = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inside)
}

fn dns1123_label(text: &str) -> Vec<String> {
    let mut wrong = at_most(text, LABEL_BYTES_MAX);
    wrong.extend(message_unless(
        is_label(text),
        "it must consist of lower case letters, digits and `-`, with a letter or a digit at both ends",
    ));
    wrong
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut wrong = at_most(text, LABEL_BYTES_MAX);
    wrong.extend(message_unless(
        is_label(text) && text.starts_with(|first: char| first.is_ascii_lowercase()),
        "it must consist of lower case letters, digits and `-`, begin with a letter, and end with a \
         letter or a digit",
    ));
    wrong
}

fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut wrong = at_most(text, SUBDOMAIN_BYTES_MAX);
    wrong.extend(message_unless(
        text.split('.').all(is_label),
        "it must consist of lower case letters, digits, `-` and `.`, with a letter or a digit before \
         and after each `.` and at both ends",
    ));
    wrong
}

fn is_name(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let is_inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    is_end(bytes.first()) && is_end(bytes.last()) && bytes.iter().all(is_inside)
}

/// A name, with a subdomain and `/` before it or without.
fn qualified_name(text: &str) -> Vec<String> {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    let mut wrong = prefix.map_or_else(Vec::new, dns1123_subdomain);
    wrong.extend(at_most(name, NAME_BYTES_MAX));
    wrong.extend(message_unless(is_name(name), NAME));
    wrong
}

/// Groups of digits, each with or without a hyphen before the next.
fn is_uuid(text: &str) -> bool {
    let mut rest = text.as_bytes();
    for length in [8, 4, 4, 4, 12] {
        let Some((digits, after)) = rest.split_at_checked(length) else {
            return false;
        };
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return false;
        }
        rest = after.strip_prefix(b"-").unwrap_or(after);
    }
    text.ends_with(|last: char| last.is_ascii_hexdigit()) && rest.is_empty()
}

/// With padding, and not empty.
fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - digits.len() <= 2
        && digits
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(&byte))
}

/// Two digits each, and what stands between them.
fn numbers(text: &str, between: u8) -> Option<Vec<i16>> {
    let parts = text.split(char::from(between));
    let number = |part: &str| {
        let is_number = part.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && matches!(part.len(), 2 | 4)).then(|| part.parse().ok())?
    };
    parts.map(number).collect()
}

fn is_date(text: &str) -> bool {
    let is_written = text.len() == 10 && text.as_bytes().get(4) == Some(&b'-');
    let date = numbers(text, b'-').and_then(|parts| match *parts {
        [year, month, day] => Date::new(year, month.try_into().ok()?, day.try_into().ok()?).ok(),
        _ => None,
    });
    is_written && date.is_some()
}

/// A date, `T`, a time, and `Z` or an offset, in letters of either case.
fn is_datetime(text: &str) -> bool {
    let Some((date, time)) = text.split_once(['T', 't']) else {
        return false;
    };
    let (time, zone) = match time.find(['Z', 'z', '+', '-']) {
        Some(at) => time.split_at(at),
        None => return false,
    };
    let is_zone = match zone.strip_prefix(['+', '-']) {
        Some(offset) => offset.len() == 5 && numbers(offset, b':').is_some(),
        None => zone.len() == 1,
    };
    let (whole, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = whole.len() == 8
        && numbers(whole, b':').is_some_and(|parts| {
            matches!(*parts, [hour, minute, second] if hour <= 23 && minute <= 59 && second <= 59)
        });
    is_date(date) && is_time && is_fraction && is_zone
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_tell_the_last_that_fits_from_the_first_that_does_not() {
        let (longest, long) = ("a".repeat(63), "a".repeat(64));
        let subdomain = |last: usize| ["a".repeat(61).as_str(); 4].join(".") + &"a".repeat(last);
        let (widest, wide) = (subdomain(6), subdomain(7));
        for (name, text, is_fit) in [
            ("dns1123Label", &*longest, true),
            ("dns1123Label", &long, false),
            ("dns1123Subdomain", &widest, true),
            ("dns1123Subdomain", &wide, false),
            // Whatever stands before the dash may be cut off.
            ("dns1123LabelPrefix", "a_-", true),
            ("dns1123LabelPrefix", "A-b-", false),
            ("dns1123LabelPrefix", "-", false),
            ("labelValue", "_a", false),
            ("labelValue", "a_", false),
            ("date", "2024-2-029", false),
            ("date", "24-0002-29", false),
            ("date", "2024-02-0029", false),
            ("datetime", "2024-02-29T00:00:00+0100", false),
            ("datetime", "2024-02-29T00:00:00.Z", false),
            ("datetime", "2024-02-29T00:00:00.5xZ", false),
        ] {
            let format = Format::find(name).unwrap();
            let wrong = format.check(text);
            assert_eq!(wrong.is_empty(), is_fit, "{name} {text} {wrong:?}");
        }
    }
}
