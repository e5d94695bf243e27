//! Timestamps and durations.

use anteroom_functions::values::duration_ns;
use jiff::{SignedDuration, Timestamp, Zoned, tz::TimeZone};

use super::{
    convert,
    function::{CallContext, CallResult, Function, global, method},
};
use crate::{
    EvalError,
    kind::Kind::{self, Duration, Int, Text, Timestamp as Moment},
    value::{Val, is_timestamp},
};

const OF_TIME: &[Kind] = &[Moment, Duration];
const OF_MOMENT: &[Kind] = &[Moment];

pub(super) const FUNCTIONS: &[Function] = &[
    global("timestamp", (1, 1), &[], Moment, timestamp),
    global("duration", (1, 1), &[Text, Duration], Duration, duration),
    method("getFullYear", (1, 2), OF_MOMENT, Int, part),
    method("getMonth", (1, 2), OF_MOMENT, Int, part),
    method("getDate", (1, 2), OF_MOMENT, Int, part),
    method("getDayOfMonth", (1, 2), OF_MOMENT, Int, part),
    method("getDayOfWeek", (1, 2), OF_MOMENT, Int, part),
    method("getDayOfYear", (1, 2), OF_MOMENT, Int, part),
    method("getHours", (1, 2), OF_TIME, Int, part),
    method("getMinutes", (1, 2), OF_TIME, Int, part),
    method("getSeconds", (1, 2), OF_TIME, Int, part),
    method("getMilliseconds", (1, 2), OF_TIME, Int, part),
];

const SECOND_NS: i64 = 1_000_000_000;

/// Minutes of an hour, and seconds of a minute.
const MINUTES: i64 = 60;

fn timestamp<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [value @ Val::Timestamp(_)] => Ok(value.clone()),
        [Val::Int(seconds)] => {
            let at = Timestamp::from_second(*seconds).ok();
            let at = at.filter(|at| is_timestamp(*at)).map(Val::Timestamp);
            at.ok_or(EvalError::Overflow("timestamp"))
        }
        [Val::Text(text)] => convert::timestamp(text).map(Val::Timestamp).ok_or_else(|| {
            let start: String = text.chars().take(40).collect();
            EvalError::Refused(format!(
                "`{start}` is no timestamp as in 2024-01-02T03:04:05Z"
            ))
        }),
        other => call.mismatch(other),
    }
}

fn duration<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    match arguments {
        [value @ Val::Duration(_)] => Ok(value.clone()),
        [Val::Text(text)] => parse_duration(text).map(Val::Duration).ok_or_else(|| {
            let start: String = text.chars().take(40).collect();
            EvalError::Refused(format!("`{start}` is no duration as in 1h30m"))
        }),
        other => call.mismatch(other),
    }
}

fn parse_duration(text: &str) -> Option<i64> {
    i64::try_from(duration_ns(text)?).ok()
}

fn part<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let at = match arguments {
        [Val::Duration(ns)] => return of_duration(call, *ns, arguments),
        [Val::Timestamp(at)] => at.to_zoned(TimeZone::UTC),
        [Val::Timestamp(at), Val::Text(zone)] => local(*at, zone)?.to_zoned(TimeZone::UTC),
        other => return call.mismatch(other),
    };
    let Some(value) = of_moment(call.name, &at) else {
        return call.mismatch(arguments);
    };
    Ok(Val::Int(value))
}

fn of_moment(name: &str, at: &Zoned) -> Option<i64> {
    Some(match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    })
}

/// The duration whole, in that unit.
fn of_duration<'v>(call: &CallContext<'_>, ns: i64, arguments: &[Val<'v>]) -> CallResult<'v> {
    let unit = match call.name {
        "getHours" => 3600 * SECOND_NS,
        "getMinutes" => 60 * SECOND_NS,
        "getSeconds" => SECOND_NS,
        "getMilliseconds" => 1_000_000,
        _ => return call.mismatch(arguments),
    };
    Ok(Val::Int(ns / unit))
}

/// The time that clocks have at an offset as in `+02:00`. Names of places are not known here.
fn local(at: Timestamp, zone: &str) -> Result<Timestamp, EvalError> {
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(at);
    }
    let seconds = || {
        let (hours, minutes) = zone.split_once(':')?;
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        let hours = hours.checked_mul(MINUTES)?;
        let minutes = match zone.starts_with('-') {
            true => hours.checked_sub(minutes)?,
            false => hours.checked_add(minutes)?,
        };
        minutes.checked_mul(MINUTES)
    };
    let Some(seconds) = seconds() else {
        let start: String = zone.chars().take(40).collect();
        return Err(EvalError::Refused(format!(
            "`{start}` is no time zone that is known here: UTC, or an offset as in +02:00"
        )));
    };
    at.checked_add(SignedDuration::from_secs(seconds))
        .map_err(|_| EvalError::Overflow("timestamp"))
}
