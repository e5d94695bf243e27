//! The clock, and chance. Both come from the evaluation's arrival, so that a restart finds the same.

use anteroom_functions::pure::{self, Chance};
use jiff::Timestamp;

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    chance::Draw,
    kind::Kind::{self, Text, Timestamp as Time},
};

const OF_TEXT: &[Kind] = &[Text];
const OF_TIME: &[Kind] = &[Time];

/// The pattern of `random()`.
const RANDOM: &str = "[0-9a-z]{8}";

/// Why a time is none.
const OUT_OF_RANGE: &str = "the time is not within the years 0 to 9999";

pub(super) const FUNCTIONS: &[Function] = &[
    global("random", (0, 1), OF_TEXT, Text, random).nondeterministic(),
    global("random.random", (0, 1), OF_TEXT, Text, random).nondeterministic(),
    global("time.now", (0, 0), &[], Time, now).nondeterministic(),
    global("time.toCron", (1, 1), OF_TIME, Text, to_cron),
    global("time.truncate", (2, 2), OF_TIME, Time, truncate),
];

/// Random numbers, and the budget of what is made of them.
struct Drawing<'d, 't> {
    call: &'d mut CallContext<'t>,
    draw: Draw,
}

impl Chance for Drawing<'_, '_> {
    type Error = EvalError;

    fn charge(&mut self, steps: usize) -> Result<(), EvalError> {
        self.call.budget().steps(steps as u64)
    }

    fn draw(&mut self) -> Result<u64, EvalError> {
        Ok(self.draw.next())
    }

    fn refuse(&self, message: String) -> EvalError {
        EvalError::Refused(message)
    }
}

fn random<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let pattern = match arguments {
        [] => RANDOM,
        [Val::Text(pattern)] => pattern,
        other => return call.mismatch(other),
    };
    let arrival = call.arrival("random numbers are")?;
    let draw = call.tools.draws.at(arrival.seed, call.site);
    let text = pure::random_text(pattern, &mut Drawing { call, draw })?;
    call.budget().build(text.len())?;
    Ok(Val::text(text))
}

fn now<'v>(call: &mut CallContext<'_>, _: &[Val<'v>]) -> CallResult<'v> {
    time(call.arrival("the time is")?.now_ns)
}

fn time<'v>(unix_ns: i128) -> CallResult<'v> {
    match Timestamp::from_nanosecond(unix_ns) {
        Ok(time) => Ok(Val::Timestamp(time)),
        Err(_) => Err(EvalError::refused(OUT_OF_RANGE)),
    }
}

fn to_cron<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Timestamp(time)] = arguments else {
        return call.mismatch(arguments);
    };
    match pure::cron(time.as_nanosecond()) {
        Some(cron) => Ok(Val::text(cron)),
        None => Err(EvalError::refused(OUT_OF_RANGE)),
    }
}

fn truncate<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Timestamp(at), Val::Duration(ns)] = arguments else {
        return call.mismatch(arguments);
    };
    match pure::truncated(at.as_nanosecond(), i128::from(*ns)) {
        Some(truncated) => time(truncated),
        None => Err(EvalError::refused(OUT_OF_RANGE)),
    }
}
