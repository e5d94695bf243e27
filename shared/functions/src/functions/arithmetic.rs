//! Sums and the like, of numbers, of quantities and of durations.
//!
//! | | numbers | quantities | durations |
//! |---|---|---|---|
//! | `add`, `subtract`, `modulo` | two | two | two |
//! | `multiply` | two | with a number | with a number |
//! | `divide` | two | two give a number; by a number | two give a number; by a number |
//!
//! `sum` adds what is in a list, one to the other: numbers as JMESPath does, quantities and durations too.
//! Of nothing there is none.
//!
//! A text is a quantity if it can be read as one, otherwise a duration. Quantities are kept to a
//! billionth.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Number, Signature, Types};

use crate::values::{Duration, Quantity, Scale};

/// Decimal places of a number; more are not in a float.
const PLACES_MAX: u64 = 15;

/// Billionths in one.
const ONE: i128 = 1_000_000_000;

/// Decimal places that are kept of a quantity.
const PLACES_KEPT: i64 = 9;

/// Steps for writing a quantity.
const WRITING_STEPS: usize = 4;

pub(super) fn register(table: &mut FunctionTable) {
    let any = Types::NUMBER | Types::STRING;
    let pair = || Signature::of([any, any]);
    table
        .register("add", pair(), |call| compute(call, Operation::Add))
        .register("subtract", pair(), |call| {
            compute(call, Operation::Subtract)
        })
        .register("multiply", pair(), |call| {
            compute(call, Operation::Multiply)
        })
        .register("divide", pair(), |call| compute(call, Operation::Divide))
        .register("modulo", pair(), |call| compute(call, Operation::Modulo))
        .register("sum", Signature::of([Types::ARRAY]), sum)
        .register(
            "round",
            Signature::of([Types::NUMBER, Types::NUMBER]),
            round,
        );
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
}

/// One side, or what comes of both.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Operand {
    Number(f64),
    /// In billionths, and how it is written.
    Quantity(i128, Notation),
    /// In nanoseconds.
    Duration(i128),
}

/// The notation of a quantity: its suffixes, and the decimal places that Kubernetes keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notation {
    suffixes: Suffixes,
    places: i64,
}

impl Notation {
    fn of(text: &str, billionths: i128) -> Self {
        let suffixes = match Suffixes::of(text) {
            // A part of one would lose by powers of two.
            Suffixes::Binary if billionths != 0 && billionths / ONE == 0 => Suffixes::Decimal,
            suffixes => suffixes,
        };
        let places = decimal_places(text, billionths);
        Self { suffixes, places }
    }
}

/// The suffixes of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffixes {
    /// `k`, `M`
    Decimal,
    /// `Ki`, `Mi`
    Binary,
    /// `e3`, `e6`
    Exponent,
}

impl Suffixes {
    fn of(quantity: &str) -> Self {
        match quantity.find(['e', 'E']) {
            _ if quantity.ends_with('i') => Self::Binary,
            Some(at) if at + 1 < quantity.len() => Self::Exponent,
            _ => Self::Decimal,
        }
    }
}

impl Operand {
    fn read(call: &mut Call<'_>, value: Handle) -> Result<Self, EvalError> {
        if let Ok(number) = call.number(value) {
            return Ok(Self::Number(number.float()));
        }
        let text = call.string(value)?.to_owned();
        call.charge_steps(text.len())?;
        if let Some(quantity) = Quantity::parse(&text) {
            let billionths = quantity.billionths();
            return billionths
                .map(|of| Self::Quantity(of, Notation::of(&text, of)))
                .ok_or_else(|| call.invalid_value(format!("`{text}` is too large")));
        }
        match Duration::parse(&text) {
            Some(duration) => Ok(Self::Duration(duration.nanoseconds())),
            None => {
                let message = format!("`{text}` is no number, quantity or duration");
                Err(call.invalid_value(message))
            }
        }
    }

    fn write(self, call: &mut Call<'_>) -> Result<Handle, EvalError> {
        match self {
            Self::Number(number) => call.new_number(whole(number)),
            Self::Quantity(billionths, notation) => {
                call.new_string(&quantity_text(billionths, notation.suffixes))
            }
            Self::Duration(ns) => call.new_string(&duration_text(ns)),
        }
    }
}

fn compute(call: &mut Call<'_>, operation: Operation) -> Result<Handle, EvalError> {
    let (left, right) = (call.argument(0), call.argument(1));
    let (left, right) = (Operand::read(call, left)?, Operand::read(call, right)?);
    match computed(operation, left, right) {
        Ok(result) => result.write(call),
        Err(message) => Err(call.invalid_value(message)),
    }
}

/// Adds up the elements of a list in order.
fn sum(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let list = call.argument(0);
    let elements = call.elements(list)?;
    let is_number = |call: &Call<'_>, value| call.number(value).is_ok();
    if elements.len() > 1
        && elements.clone().all(|element| is_number(call, element))
        && let Some(standard) = FunctionTable::standard_shared().get("sum")
    {
        return standard.run(call);
    }
    let mut elements = elements;
    let Some(first) = elements.next() else {
        return Err(call.invalid_value("of nothing there is no sum"));
    };
    // The sum of a single element is the element, of any type.
    if elements.len() == 0 {
        return Ok(first);
    }
    let mut sum = Operand::read(call, first)?;
    for element in elements {
        let element = Operand::read(call, element)?;
        sum = computed(Operation::Add, sum, element)
            .map_err(|message| call.invalid_value(message))?;
        // Each sum is written, and read for the next.
        if let Operand::Quantity(of, notation) = &mut sum
            && notation.suffixes != Suffixes::Decimal
        {
            call.charge_steps(WRITING_STEPS)?;
            notation.suffixes = Suffixes::of(&quantity_text(*of, notation.suffixes));
        }
    }
    sum.write(call)
}

fn computed(operation: Operation, left: Operand, right: Operand) -> Result<Operand, &'static str> {
    use Operand::{Duration, Number, Quantity};
    if matches!(operation, Operation::Divide | Operation::Modulo) && is_zero(right) {
        return Err("division by zero");
    }
    let large = "the result is too large";
    match (left, right) {
        (Number(left), Number(right)) => numbers(operation, left, right).map(Number),
        (Quantity(left, _), Quantity(right, _)) if operation == Operation::Divide => {
            Ok(Number(left as f64 / right as f64))
        }
        (Duration(left), Duration(right)) if operation == Operation::Divide => {
            Ok(Number(seconds(left) / seconds(right)))
        }
        (Quantity(left, notation), Quantity(right, other)) => {
            // Nothing has no way of its own to be written.
            let notation = match (operation, left) {
                (Operation::Add | Operation::Subtract, 0) => other,
                _ => notation,
            };
            let result = match operation {
                Operation::Modulo if left % ONE != 0 || right % ONE != 0 => {
                    return Err(NO_INTEGERS);
                }
                _ => units(operation, left, right)?,
            };
            result.map(|of| Quantity(of, notation)).ok_or(large)
        }
        (Duration(left), Duration(right)) => {
            units(operation, left, right)?.map(Duration).ok_or(large)
        }
        (Number(by), of) if operation == Operation::Multiply => scaled(operation, of, by),
        (of, Number(by)) => scaled(operation, of, by),
        _ => Err(MIXED),
    }
}

const NO_INTEGERS: &str = "modulo is of integers";

const MIXED: &str = "both sides are of types that do not go together";

fn is_zero(operand: Operand) -> bool {
    match operand {
        Operand::Number(number) => number == 0.0,
        Operand::Quantity(units, _) | Operand::Duration(units) => units == 0,
    }
}

fn numbers(operation: Operation, left: f64, right: f64) -> Result<f64, &'static str> {
    Ok(match operation {
        Operation::Add => left + right,
        Operation::Subtract => left - right,
        Operation::Multiply => left * right,
        Operation::Divide => left / right,
        Operation::Modulo if left.fract() == 0.0 && right.fract() == 0.0 => left % right,
        Operation::Modulo => return Err(NO_INTEGERS),
    })
}

/// Computes with two quantities, or two durations; `None`: too large.
fn units(operation: Operation, left: i128, right: i128) -> Result<Option<i128>, &'static str> {
    match operation {
        Operation::Add => Ok(left.checked_add(right)),
        Operation::Subtract => Ok(left.checked_sub(right)),
        Operation::Modulo => Ok(left.checked_rem(right)),
        Operation::Multiply | Operation::Divide => Err(MIXED),
    }
}

/// A quantity, or a duration, and a number.
fn scaled(operation: Operation, of: Operand, by: f64) -> Result<Operand, &'static str> {
    let large = "the result is too large";
    match (of, operation) {
        (Operand::Quantity(of, notation), Operation::Multiply | Operation::Divide) => {
            let text = number_text(by);
            let by = Quantity::parse(&text).and_then(|by| by.billionths());
            let scaled = by.and_then(|by| match operation {
                Operation::Multiply => multiplied(of, by),
                _ => divided(of, by, notation.places.max(decimal_places(&text, by))),
            });
            scaled
                .map(|of| Operand::Quantity(of, notation))
                .ok_or(large)
        }
        (Operand::Duration(ns), Operation::Multiply | Operation::Divide) => {
            let scaled = match operation {
                Operation::Multiply => seconds(ns) * by,
                _ => seconds(ns) / by,
            };
            let scaled = scaled * ONE as f64;
            match scaled.abs() < i64::MAX as f64 {
                true => Ok(Operand::Duration(scaled as i128)),
                false => Err(large),
            }
        }
        _ => Err(MIXED),
    }
}

/// Returns the seconds of a duration, which Go rounds as whole ones and a rest.
fn seconds(ns: i128) -> f64 {
    (ns / ONE) as f64 + (ns % ONE) as f64 / ONE as f64
}

/// Multiplies billionths. `None`: too large.
fn multiplied(of: i128, by: i128) -> Option<i128> {
    let rest = (of % ONE).checked_mul(by)? / ONE;
    (of / ONE).checked_mul(by)?.checked_add(rest)
}

/// Divides billionths, and cuts off what is beyond so many decimal places. `None`: too large.
fn divided(of: i128, by: i128, places: i64) -> Option<i128> {
    // The least number by -1 is no number of this type.
    let (whole, rest) = (of.checked_div(by)?, of.checked_rem(by)?);
    let rest = rest.checked_mul(ONE)?.checked_div(by)?;
    let quotient = whole.checked_mul(ONE)?.checked_add(rest)?;
    let unit = u32::try_from(PLACES_KEPT.saturating_sub(places).max(0)).ok();
    let unit = unit.and_then(|zeros| 10_i128.checked_pow(zeros));
    // No quotient has as many digits.
    Some(unit.map_or(0, |unit| quotient / unit * unit))
}

/// Returns a number as Go's `%v` writes it.
fn number_text(number: f64) -> String {
    let scientific = format!("{number:e}");
    let exponent = scientific.rsplit_once('e').map(|(_, exponent)| exponent);
    match exponent.and_then(|exponent| exponent.parse().ok()) {
        Some(-4..=5) => number.to_string(),
        _ => scientific,
    }
}

/// Returns how many decimal places Kubernetes keeps of a quantity that is written so, less than none of `1k`. What does
/// not fit into 64 bits has all nine, and so has a fraction with a binary suffix.
fn decimal_places(text: &str, billionths: i128) -> i64 {
    // Larger ones have become the largest integer.
    let largest = ONE * i128::from(i64::MAX);
    let is_largest = [-largest, largest].contains(&billionths);
    match Scale::of(text) {
        Some(scale) if scale.is_int || billionths == 0 => -scale.power,
        _ if Suffixes::of(text) == Suffixes::Binary && is_largest => 0,
        _ => PLACES_KEPT,
    }
}

/// An integer as one.
fn whole(number: f64) -> Number {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        return match number < 0.0 {
            true => Number::I64(number as i64),
            false => Number::U64(number as u64),
        };
    }
    Number::F64(number)
}

/// In Kubernetes's canonical form: the largest suffix that leaves an integer.
fn quantity_text(billionths: i128, suffixes: Suffixes) -> String {
    const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const EXPONENT: [&str; 13] = [
        "e-9", "e-6", "e-3", "", "e3", "e6", "e9", "e12", "e15", "e18", "e21", "e24", "e27",
    ];
    // What is small, or not whole, would lose by powers of two.
    let is_binary = billionths / ONE <= -1024 || billionths / ONE >= 1024;
    let is_binary = is_binary && billionths % ONE == 0;
    let (mut number, suffixes, base) = match suffixes {
        Suffixes::Binary if is_binary => (billionths / ONE, &BINARY[..], 1024),
        Suffixes::Exponent => (billionths, &EXPONENT[..], 1000),
        Suffixes::Binary | Suffixes::Decimal => (billionths, &DECIMAL[..], 1000),
    };
    if number == 0 {
        return "0".to_owned();
    }
    let mut at = 0;
    while number % base == 0 && at + 1 < suffixes.len() {
        number /= base;
        at += 1;
    }
    format!("{number}{}", suffixes[at])
}

/// Writes a duration like Go: `1h30m0s`, `1.5s`, `20ms`.
pub(super) fn duration_text(ns: i128) -> String {
    const SECOND: u128 = 1_000_000_000;
    let (sign, rest) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
    let part = |units: u128, of: u128| {
        let fraction = format!("{:0width$}", units % of, width = of.ilog10() as usize);
        match fraction.trim_end_matches('0') {
            "" => (units / of).to_string(),
            fraction => format!("{}.{fraction}", units / of),
        }
    };
    match rest {
        0 => "0s".to_owned(),
        1..=999 => format!("{sign}{rest}ns"),
        1_000..=999_999 => format!("{sign}{}µs", part(rest, 1_000)),
        1_000_000..=999_999_999 => format!("{sign}{}ms", part(rest, 1_000_000)),
        _ => {
            let (minutes, seconds) = (rest / (60 * SECOND), part(rest % (60 * SECOND), SECOND));
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Returns a number with so many decimal places, at most 15, halves away from zero.
pub fn rounded(number: f64, places: u64) -> f64 {
    let factor = 10_f64.powi(places.min(PLACES_MAX) as i32);
    let rounded = (number * factor).round() / factor;
    // What is too large for it has no places to round.
    match rounded.is_finite() {
        true => rounded,
        false => number,
    }
}

fn round(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let number = call.number(call.argument(0))?.float();
    let places = match call.number(call.argument(1))? {
        Number::U64(places) => places,
        Number::I64(places) if places >= 0 => places.unsigned_abs(),
        Number::F64(places) if places >= 0.0 && places.fract() == 0.0 => places as u64,
        _ => return Err(call.invalid_value("places are a whole number, and none is negative")),
    };
    call.new_number(whole(rounded(number, places)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_written_as_kubernetes_does() {
        for (text, expected) in [
            ("0", "0"),
            ("1000", "1k"),
            ("1500m", "1500m"),
            ("2000m", "2"),
            ("1024Mi", "1Gi"),
            ("1000Ki", "1000Ki"),
            ("512Ki", "512Ki"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("0.9765625Ki", "1k"),
            ("-2048Ki", "-2Mi"),
            ("1.5", "1500m"),
            ("2048.5Ki", "2097664"),
            ("1025.0001Ki", "1049600102400u"),
            ("1e3", "1e3"),
            ("1500e0", "1500"),
            ("1.5e-3", "1500e-6"),
            ("1E", "1E"),
            ("1000E", "1000E"),
            ("5E3", "5e3"),
        ] {
            let of = Quantity::parse(text).unwrap().billionths().unwrap();
            assert_eq!(quantity_text(of, Suffixes::of(text)), expected, "{text}");
        }
    }

    #[test]
    fn durations_are_written_as_go_does() {
        for (ns, expected) in [
            (0, "0s"),
            (15, "15ns"),
            (1_500, "1.5µs"),
            (20_000_000, "20ms"),
            (1_500_000_000, "1.5s"),
            (-90_000_000_000, "-1m30s"),
            (5_400_000_000_000, "1h30m0s"),
        ] {
            assert_eq!(duration_text(ns), expected);
        }
    }

    #[test]
    fn the_least_number_of_billionths_is_divided_and_written() {
        assert_eq!(divided(i128::MIN, -1, PLACES_KEPT), None);
        let text = quantity_text(i128::MIN, Suffixes::Binary);
        assert_eq!(text, "-170141183460469231731687303715884105728n");
        assert_eq!(decimal_places("-1", i128::MIN), 0);
    }

    #[test]
    fn a_quotient_has_as_many_places_as_what_it_is_of() {
        for (text, places) in [
            ("0", 0),
            ("10", 0),
            ("1.50", 2),
            ("-00.5", 1),
            ("100m", 3),
            ("1.5m", 4),
            ("2k", -3),
            ("1.5E", -17),
            ("1e6", -6),
            ("12e-4", 4),
            // Too small, or too long for 64 bits.
            ("12e-10", 9),
            ("1234567890123456789", 9),
            ("1Gi", 0),
            ("1.5Gi", 9),
            ("10Ti", 0),
            ("100Ti", 9),
            ("0.0Ki", 1),
            ("16Ei", 0),
        ] {
            let of = Quantity::parse(text).unwrap().billionths().unwrap();
            assert_eq!(decimal_places(text, of), places, "{text}");
        }
        for (number, text) in [
            (100_000.0, "100000"),
            (1_234_567.5, "1.2345675e6"),
            (0.0001, "0.0001"),
            (-0.000_01, "-1e-5"),
        ] {
            assert_eq!(number_text(number), text);
        }
    }

    proptest! {
        #[test]
        fn written_quantities_and_durations_are_read_back(billionths in any::<i64>(), ns in any::<i64>()) {
            for suffixes in [Suffixes::Decimal, Suffixes::Binary, Suffixes::Exponent] {
                let text = quantity_text(i128::from(billionths), suffixes);
                let read = Quantity::parse(&text).unwrap().billionths().unwrap();
                prop_assert_eq!(read, i128::from(billionths), "{}", text);
            }
            let text = duration_text(i128::from(ns));
            prop_assert_eq!(Duration::parse(&text).unwrap().nanoseconds(), i128::from(ns));
        }
    }
}
