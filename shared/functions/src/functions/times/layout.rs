//! Layouts of Go: how the reference time, Mon Jan 2 15:04:05 MST 2006, would be written.

use jiff::civil::DateTime;

use super::moment::Moment;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// An element of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    LongMonth,
    Month,
    NumberOfMonth {
        padded: bool,
    },
    LongWeekday,
    Weekday,
    Day {
        padded: bool,
        spaced: bool,
    },
    DayOfYear {
        padded: bool,
    },
    Hour,
    Hour12 {
        padded: bool,
    },
    Minute {
        padded: bool,
    },
    Second {
        padded: bool,
    },
    LongYear,
    Year,
    Noon {
        upper: bool,
    },
    Zone,
    /// A fraction of a second: so many digits, or as many as there are.
    Fraction(Option<usize>),
    Offset {
        shape: &'static str,
        or_z: bool,
    },
}

/// The elements by their text in a layout, longer texts before their prefixes.
const ELEMENTS: &[(&str, Element)] = &[
    ("January", Element::LongMonth),
    ("Jan", Element::Month),
    ("Monday", Element::LongWeekday),
    ("Mon", Element::Weekday),
    ("MST", Element::Zone),
    ("002", Element::DayOfYear { padded: true }),
    ("01", Element::NumberOfMonth { padded: true }),
    (
        "02",
        Element::Day {
            padded: true,
            spaced: false,
        },
    ),
    ("03", Element::Hour12 { padded: true }),
    ("04", Element::Minute { padded: true }),
    ("05", Element::Second { padded: true }),
    ("06", Element::Year),
    ("15", Element::Hour),
    ("1", Element::NumberOfMonth { padded: false }),
    ("2006", Element::LongYear),
    (
        "2",
        Element::Day {
            padded: false,
            spaced: false,
        },
    ),
    ("__2", Element::DayOfYear { padded: false }),
    (
        "_2",
        Element::Day {
            padded: false,
            spaced: true,
        },
    ),
    ("3", Element::Hour12 { padded: false }),
    ("4", Element::Minute { padded: false }),
    ("5", Element::Second { padded: false }),
    ("PM", Element::Noon { upper: true }),
    ("pm", Element::Noon { upper: false }),
    ("-070000", offset("+hhmmss", false)),
    ("-07:00:00", offset("+hh:mm:ss", false)),
    ("-0700", offset("+hhmm", false)),
    ("-07:00", offset("+hh:mm", false)),
    ("-07", offset("+hh", false)),
    ("Z070000", offset("+hhmmss", true)),
    ("Z07:00:00", offset("+hh:mm:ss", true)),
    ("Z0700", offset("+hhmm", true)),
    ("Z07:00", offset("+hh:mm", true)),
    ("Z07", offset("+hh", true)),
];

const fn offset(shape: &'static str, or_z: bool) -> Element {
    Element::Offset { shape, or_z }
}

/// The text before the first element, the element, and what follows it.
fn next_element(layout: &str) -> (&str, Option<Element>, &str) {
    for (at, _) in layout.char_indices() {
        let rest = &layout[at..];
        // `_2006` is a year behind an underscore.
        if rest.starts_with("_2006") {
            continue;
        }
        if let Some((digits, after)) = fraction(rest) {
            return (&layout[..at], Some(Element::Fraction(digits)), after);
        }
        let found = ELEMENTS.iter().find(|(text, _)| rest.starts_with(text));
        if let Some((text, element)) = found {
            let after = &rest[text.len()..];
            // `Janet` and `Month` are words.
            let is_word = matches!(element, Element::Month | Element::Weekday)
                && after.starts_with(|c: char| c.is_ascii_lowercase());
            if !is_word {
                return (&layout[..at], Some(*element), after);
            }
        }
    }
    (layout, None, "")
}

/// `.000` or `,999`, which no digit follows.
fn fraction(rest: &str) -> Option<(Option<usize>, &str)> {
    let digits = rest.strip_prefix(['.', ','])?;
    let digit = digits.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let after = digits.trim_start_matches(digit);
    let count = digits.len() - after.len();
    let is_one = !after.starts_with(|c: char| c.is_ascii_digit());
    is_one.then_some(((digit == '0').then_some(count), after))
}

/// The parts of a time that were read so far.
#[derive(Debug, Default)]
struct ParsedTime {
    year: i16,
    month: Option<i8>,
    day: Option<i8>,
    day_of_year: Option<i16>,
    hour: i8,
    minute: i8,
    second: i8,
    ns: i32,
    is_afternoon: Option<bool>,
    offset_s: i32,
    /// The offset at which an abbreviation shows the time; the moment stays the same.
    shown_offset_s: i32,
}

/// The time that a text is, by a layout.
///
/// # Errors
/// The text does not fit the layout: the difference, in words.
pub(super) fn parse(layout: &str, text: &str) -> Result<Moment, String> {
    let mut read = ParsedTime::default();
    let (mut layout, mut rest) = (layout, text);
    loop {
        let (before, element, after) = next_element(layout);
        rest = skip(rest, before).ok_or_else(|| expected(&format!("`{before}`"), rest))?;
        let Some(element) = element else {
            return match rest {
                "" => read.moment(),
                more => Err(format!("`{}` is too much", shown(more))),
            };
        };
        rest = read.element(element, rest)?;
        let (_, next, _) = next_element(after);
        if matches!(element, Element::Second { .. }) && !matches!(next, Some(Element::Fraction(_)))
        {
            rest = read.fraction(None, rest)?;
        }
        layout = after;
    }
}

/// Skips a literal text of the layout, and returns the rest. A blank stands for any number of them.
fn skip<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let (mut text, mut literal) = (text, literal);
    while let Some(c) = literal.chars().next() {
        if c == ' ' {
            if !text.is_empty() && !text.starts_with(' ') {
                return None;
            }
            (text, literal) = (
                text.trim_start_matches(' '),
                literal.trim_start_matches(' '),
            );
            continue;
        }
        text = text.strip_prefix(c)?;
        literal = &literal[c.len_utf8()..];
    }
    Some(text)
}

impl ParsedTime {
    /// Reads an element; gives what follows it.
    fn element<'t>(&mut self, element: Element, text: &'t str) -> Result<&'t str, String> {
        match element {
            Element::LongMonth => self.month(text, |name| name),
            Element::Month => self.month(text, |name| &name[..3]),
            Element::LongWeekday => named(&DAYS, |name| name, text, "a day's name").map(|it| it.1),
            Element::Weekday => {
                named(&DAYS, |name| &name[..3], text, "a day's name").map(|it| it.1)
            }
            Element::NumberOfMonth { padded } => {
                let (month, rest) = number(text, padded, "a month", 1, 12)?;
                self.month = Some(month);
                Ok(rest)
            }
            Element::Day { padded, spaced } => {
                let text = text.strip_prefix(' ').filter(|_| spaced).unwrap_or(text);
                let (day, rest) = number(text, padded, "a day", 0, 99)?;
                self.day = Some(day);
                Ok(rest)
            }
            Element::DayOfYear { padded } => self.day_of_year(text, padded),
            Element::Hour => put(&mut self.hour, number(text, false, "an hour", 0, 23)?),
            Element::Hour12 { padded } => {
                put(&mut self.hour, number(text, padded, "an hour", 0, 12)?)
            }
            Element::Minute { padded } => {
                put(&mut self.minute, number(text, padded, "a minute", 0, 59)?)
            }
            Element::Second { padded } => {
                put(&mut self.second, number(text, padded, "a second", 0, 59)?)
            }
            Element::Fraction(digits) => self.fraction(digits, text),
            Element::LongYear => {
                let (digits, rest) = digits(text, 4).ok_or_else(|| expected("a year", text))?;
                self.year = digits as i16;
                Ok(rest)
            }
            Element::Year => {
                let (digits, rest) = digits(text, 2).ok_or_else(|| expected("a year", text))?;
                let century = if digits >= 69 { 1900 } else { 2000 };
                self.year = century + digits as i16;
                Ok(rest)
            }
            Element::Noon { upper } => {
                let (before, after) = if upper { ("AM", "PM") } else { ("am", "pm") };
                let rest = text.strip_prefix(before).or(text.strip_prefix(after));
                self.is_afternoon = Some(text.starts_with(after));
                rest.ok_or_else(|| expected(&format!("`{before}` or `{after}`"), text))
            }
            Element::Zone => self.zone(text),
            Element::Offset { shape, or_z } => match text.strip_prefix('Z').filter(|_| or_z) {
                Some(rest) => Ok(rest),
                None => self.offset(shape, text),
            },
        }
    }

    fn month<'t>(
        &mut self,
        text: &'t str,
        short: impl Fn(&'static str) -> &'static str,
    ) -> Result<&'t str, String> {
        let (at, rest) = named(&MONTHS, short, text, "a month's name")?;
        self.month = Some(at as i8 + 1);
        Ok(rest)
    }

    fn day_of_year<'t>(&mut self, text: &'t str, padded: bool) -> Result<&'t str, String> {
        let mut rest = text;
        if !padded {
            for _ in 0..2 {
                rest = rest.strip_prefix(' ').unwrap_or(rest);
            }
        }
        let count = rest.bytes().take(3).take_while(u8::is_ascii_digit).count();
        let fits = count == 3 || (!padded && count > 0);
        let read = digits(rest, count).filter(|_| fits);
        let (day, rest) = read.ok_or_else(|| expected("a day of the year", text))?;
        self.day_of_year = Some(day as i16);
        Ok(rest)
    }

    /// So many digits behind a point or a comma; without a number, as many as there are, or none.
    fn fraction<'t>(&mut self, count: Option<usize>, text: &'t str) -> Result<&'t str, String> {
        let behind = text.strip_prefix(['.', ',']).unwrap_or_default();
        let found = behind.bytes().take_while(u8::is_ascii_digit).count();
        let count = match count {
            None if found == 0 => return Ok(text),
            None => found,
            Some(count) if count <= found => count,
            Some(_) => return Err(expected("a fraction of a second", text)),
        };
        // Digits behind the ninth are less than a nanosecond.
        let nine = behind.bytes().take(count).chain(std::iter::repeat(b'0'));
        self.ns = nine
            .take(9)
            .fold(0, |ns, digit| ns * 10 + i32::from(digit - b'0'));
        Ok(&behind[count..])
    }

    /// An abbreviation, which says nothing beyond UTC's and those of GMT with hours.
    fn zone<'t>(&mut self, text: &'t str) -> Result<&'t str, String> {
        let length = zone_length(text).ok_or_else(|| expected("a time zone", text))?;
        let (name, rest) = text.split_at(length);
        if let Some(hours) = name.strip_prefix("GMT").filter(|hours| !hours.is_empty()) {
            self.shown_offset_s = 3600 * hours.parse::<i32>().unwrap_or_default();
        }
        Ok(rest)
    }

    fn offset<'t>(&mut self, shape: &str, text: &'t str) -> Result<&'t str, String> {
        let wrong = || expected("an offset", text);
        let (own, rest) = text.split_at_checked(shape.len()).ok_or_else(wrong)?;
        let mut parts = [0; 3];
        for (shape, c) in shape.chars().zip(own.chars()) {
            let at = match shape {
                'h' => 0,
                'm' => 1,
                's' => 2,
                '+' if c == '+' || c == '-' => continue,
                same if same == c => continue,
                _ => return Err(wrong()),
            };
            let digit = c.to_digit(10).ok_or_else(wrong)?;
            parts[at] = parts[at] * 10 + digit as i32;
        }
        let [hours, minutes, seconds] = parts;
        if hours > 24 || minutes > 60 || seconds > 60 {
            return Err("the offset is out of range".to_owned());
        }
        let offset_s = hours * 3600 + minutes * 60 + seconds;
        self.offset_s = if own.starts_with('-') {
            -offset_s
        } else {
            offset_s
        };
        Ok(rest)
    }

    fn moment(self) -> Result<Moment, String> {
        let (month, day) = self.date()?;
        let hour = match self.is_afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let shown = DateTime::new(
            self.year,
            month,
            day,
            hour,
            self.minute,
            self.second,
            self.ns,
        )
        .map_err(|_| "the day is out of range".to_owned())?;
        let moment = Moment::of_civil(shown, self.offset_s);
        let moment = match self.shown_offset_s {
            0 => moment,
            offset_s => moment.and_then(|moment| moment.shown_at(offset_s)),
        };
        moment.ok_or_else(|| super::OUT_OF_RANGE.to_owned())
    }

    /// Month and day, by whichever of both, and of the day of the year, there is.
    fn date(&self) -> Result<(i8, i8), String> {
        let Some(days) = self.day_of_year else {
            return Ok((self.month.unwrap_or(1), self.day.unwrap_or(1)));
        };
        let of_year = DateTime::new(self.year, 1, 1, 0, 0, 0, 0)
            .ok()
            .and_then(|first| first.date().with().day_of_year(days).build().ok())
            .ok_or("the day of the year is out of range")?;
        let is_other = |read: Option<i8>, by_days| read.is_some_and(|read| read != by_days);
        if is_other(self.month, of_year.month()) || is_other(self.day, of_year.day()) {
            return Err("the day of the year is another one".to_owned());
        }
        Ok((of_year.month(), of_year.day()))
    }
}

fn put<'t>(place: &mut i8, (number, rest): (i8, &'t str)) -> Result<&'t str, String> {
    *place = number;
    Ok(rest)
}

/// A number of two digits, or of one unless it is padded.
fn number<'t>(
    text: &'t str,
    padded: bool,
    what: &str,
    least: i8,
    most: i8,
) -> Result<(i8, &'t str), String> {
    let read = digits(text, 2).or_else(|| digits(text, 1).filter(|_| !padded));
    let (number, rest) = read.ok_or_else(|| expected(what, text))?;
    match i8::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Ok((number, rest)),
        _ => Err(format!("`{number}` is {what} out of range")),
    }
}

/// Exactly so many digits, at most four.
fn digits(text: &str, count: usize) -> Option<(u16, &str)> {
    let (own, rest) = text.split_at_checked(count)?;
    let all = !own.is_empty() && own.bytes().all(|b| b.is_ascii_digit());
    own.parse()
        .ok()
        .filter(|_| all)
        .map(|number| (number, rest))
}

/// Finds the name that a text begins with, in any case; returns its index and the rest.
fn named<'t>(
    names: &[&'static str],
    short: impl Fn(&'static str) -> &'static str,
    text: &'t str,
    what: &str,
) -> Result<(usize, &'t str), String> {
    let found = names.iter().enumerate().find_map(|(at, name)| {
        let name = short(name);
        let (own, rest) = text.split_at_checked(name.len())?;
        own.eq_ignore_ascii_case(name).then_some((at, rest))
    });
    found.ok_or_else(|| expected(what, text))
}

/// Returns the length of the zone abbreviation that a text begins with.
fn zone_length(text: &str) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with("ChST") || text.starts_with("MeST") {
        return Some(4);
    }
    if let Some(rest) = text.strip_prefix("GMT") {
        return Some(3 + signed_hours(rest).unwrap_or_default());
    }
    if text.starts_with(['+', '-']) {
        return signed_hours(text);
    }
    let upper = text.bytes().take(6).take_while(u8::is_ascii_uppercase);
    match upper.count() {
        3 => Some(3),
        4 if text.as_bytes()[3] == b'T' || text.starts_with("WITA") => Some(4),
        5 if text.as_bytes()[4] == b'T' => Some(5),
        _ => None,
    }
}

/// The length of a sign with hours behind it.
fn signed_hours(text: &str) -> Option<usize> {
    let hours = text.strip_prefix(['+', '-'])?;
    let count = hours.bytes().take_while(u8::is_ascii_digit).count();
    let hours: u32 = hours[..count].parse().ok()?;
    (hours <= 23).then_some(1 + count)
}

fn expected(what: &str, found: &str) -> String {
    match found {
        "" => format!("{what} is missing at its end"),
        found => format!("{what} is expected where `{}` stands", shown(found)),
    }
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}
