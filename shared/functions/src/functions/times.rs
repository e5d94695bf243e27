//! Times: texts as RFC 3339 has them, or as a layout of Go says.
//!
//! Go knows zones by the abbreviations of where it runs; here, as in a container, that is UTC alone. What
//! time it is comes from the [`EvalSeed`](anteroom_jmespath::EvalSeed), so that it is one time throughout an
//! evaluation; it is written in UTC.

mod layout;
mod moment;

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};

use super::{arguments::string, arithmetic::duration_text};
use crate::values::Duration;
use moment::Moment;

/// RFC 3339, in the words of Go.
const RFC3339: &str = "2006-01-02T15:04:05Z07:00";

pub(super) fn register(table: &mut FunctionTable) {
    let strings = |count| Signature::of(vec![Types::STRING; count]);
    table
        .register("time_since", strings(3).nondeterministic(), time_since)
        .register("time_now", strings(0).nondeterministic(), time_now)
        .register("time_now_utc", strings(0).nondeterministic(), time_now)
        .register("time_add", strings(2), |call| {
            changed(call, |time, duration_ns| time.later(duration_ns))
        })
        .register("time_truncate", strings(2), |call| {
            changed(call, |time, duration_ns| time.truncated(duration_ns))
        })
        .register("time_parse", strings(2), time_parse)
        .register("time_to_cron", strings(1), |call| {
            let time = time(call, 0)?;
            call.new_string(&time.cron())
        })
        .register("time_utc", strings(1), |call| {
            let time = time(call, 0)?.in_utc();
            let time = time.ok_or_else(|| call.invalid_value(OUT_OF_RANGE))?;
            call.new_string(&time.text())
        })
        .register("time_diff", strings(2), |call| {
            let (start, end) = (time(call, 0)?, time(call, 1)?);
            call.new_string(&duration_text(end.since(&start)))
        })
        .register("time_before", strings(2), |call| {
            let is_before = time(call, 0)? < time(call, 1)?;
            call.new_boolean(is_before)
        })
        .register("time_after", strings(2), |call| {
            let is_after = time(call, 0)? > time(call, 1)?;
            call.new_boolean(is_after)
        })
        .register("time_between", strings(3), |call| {
            let (time, start, end) = (time(call, 0)?, time(call, 1)?, time(call, 2)?);
            call.new_boolean(start < time && time < end)
        });
}

/// The argument at `index` as a time.
fn time(call: &mut Call<'_>, index: usize) -> Result<Moment, EvalError> {
    let text = string(call, index)?;
    parsed(call, RFC3339, &text)
}

fn parsed(call: &Call<'_>, layout: &str, text: &str) -> Result<Moment, EvalError> {
    layout::parse(layout, text).map_err(|problem| {
        let shown: String = text.chars().take(64).collect();
        call.invalid_value(format!("`{shown}` is no time as in `{layout}`: {problem}"))
    })
}

fn now(call: &Call<'_>) -> Result<Moment, EvalError> {
    let now_ns = call.now_ns()?;
    Moment::of_unix_ns(now_ns).ok_or_else(|| call.invalid_value(OUT_OF_RANGE))
}

/// Why a time is none.
const OUT_OF_RANGE: &str = "the time is not within the years 0 to 9999";

fn time_now(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let now = now(call)?;
    call.new_string(&now.text())
}

/// A time changed by a duration.
fn changed(
    call: &mut Call<'_>,
    change: impl Fn(&Moment, i128) -> Option<Moment>,
) -> Result<Handle, EvalError> {
    let (time, text) = (time(call, 0)?, string(call, 1)?);
    let Some(duration) = Duration::parse(&text) else {
        let shown: String = text.chars().take(64).collect();
        return Err(call.invalid_value(format!("`{shown}` is no duration, as in `1h30m`")));
    };
    match change(&time, duration.nanoseconds()) {
        Some(changed) => call.new_string(&changed.text()),
        None => Err(call.invalid_value(OUT_OF_RANGE)),
    }
}

/// Returns a time, in nanoseconds after 1970, as the schedule of a job that runs then. `None`: it is not within the
/// years 0 to 9999.
pub fn cron(unix_ns: i128) -> Option<String> {
    Moment::of_unix_ns(unix_ns).map(|moment| moment.cron())
}

/// Returns the last whole multiple of a duration since the year 1, in nanoseconds after 1970; the same time where the
/// duration is not positive. `None`: it is not within the years 0 to 9999.
pub fn truncated(unix_ns: i128, duration_ns: i128) -> Option<i128> {
    let truncated = Moment::of_unix_ns(unix_ns)?.truncated(duration_ns)?;
    Some(truncated.unix_ns())
}

/// From the first time to the second, or to now; the layout is that of both.
fn time_since(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (layout, start, end) = (string(call, 0)?, string(call, 1)?, string(call, 2)?);
    let layout = if layout.is_empty() { RFC3339 } else { &layout };
    let start = parsed(call, layout, &start)?;
    let end = match &*end {
        "" => now(call)?,
        end => parsed(call, layout, end)?,
    };
    call.new_string(&duration_text(end.since(&start)))
}

/// A layout that is a number says that the time is one: seconds after 1970.
fn time_parse(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (layout, text) = (string(call, 0)?, string(call, 1)?);
    let time = match layout.parse::<i64>() {
        Ok(_) => {
            let seconds = text.parse::<i64>().ok();
            let time =
                seconds.and_then(|seconds| Moment::of_unix_ns(i128::from(seconds) * 1_000_000_000));
            let shown: String = text.chars().take(64).collect();
            let message = || format!("`{shown}` is no number of seconds after 1970");
            time.ok_or_else(|| call.invalid_value(message()))?
        }
        Err(_) => parsed(call, &layout, &text)?,
    };
    call.new_string(&time.text())
}

#[cfg(test)]
mod tests;
