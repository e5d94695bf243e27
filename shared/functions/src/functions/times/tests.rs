use anteroom_jmespath::{Environment, EvalSeed, Expression};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::functions;

/// The present time in these tests: `2023-12-16T01:46:11.5Z`.
const NOW_NS: i128 = 1_702_691_171_500_000_000;

fn evaluate(expression: &str) -> Result<Value, String> {
    let seed = EvalSeed::new(NOW_NS, 0);
    let environment = Environment::standard()
        .with_functions(functions())
        .with_seed(Some(&seed));
    let expression = Expression::parse(expression).unwrap();
    let found = expression.evaluate_json(&Value::Null, &environment);
    found.map_err(|error| error.to_string())
}

#[test]
fn time_functions_give_the_same_as_in_kyverno() {
    for (expression, value) in [
        ("time_now()", json!("2023-12-16T01:46:11Z")),
        ("time_now_utc()", json!("2023-12-16T01:46:11Z")),
        (
            "time_since('', '2021-01-02T15:04:05-07:00', '2021-01-10T03:14:05-07:00')",
            json!("180h10m0s"),
        ),
        (
            "time_since('', '2021-01-10T03:14:05-07:00', '2021-01-02T15:04:05-07:00')",
            json!("-180h10m0s"),
        ),
        (
            "time_since('Mon Jan _2 15:04:05 MST 2006', 'Mon Jan 02 15:04:05 MST 2021', 'Mon Jan 10 03:14:16 MST 2021')",
            json!("180h10m11s"),
        ),
        ("time_since('', '2023-12-16T01:46:10Z', '')", json!("1.5s")),
        (
            "time_since('', '0001-01-01T00:00:00Z', '9999-01-01T00:00:00Z')",
            json!("2562047h47m16.854775807s"),
        ),
        ("time_to_cron('2023-02-02T15:04:05Z')", json!("4 15 2 2 4")),
        (
            "time_to_cron(time_utc('2023-02-02T15:04:05-07:00'))",
            json!("4 22 2 2 4"),
        ),
        ("time_to_cron('2023-02-05T00:00:00Z')", json!("0 0 5 2 0")),
        (
            "time_add('2021-01-02T15:04:05-07:00', '3h')",
            json!("2021-01-02T18:04:05-07:00"),
        ),
        (
            "time_add('2021-01-02T15:04:05Z', '-24h')",
            json!("2021-01-01T15:04:05Z"),
        ),
        (
            "time_add(time_parse('Mon Jan 02 15:04:05 -0700 2006', 'Sat Jan 02 15:04:05 -0700 2021'), '5h30m40s')",
            json!("2021-01-02T20:34:45-07:00"),
        ),
        (
            "time_parse('1702691171', '1702691171')",
            json!("2023-12-16T01:46:11Z"),
        ),
        ("time_parse('1', '-1')", json!("1969-12-31T23:59:59Z")),
        (
            "time_utc('2023-02-02T15:04:05-07:00')",
            json!("2023-02-02T22:04:05Z"),
        ),
        (
            "time_diff('2021-01-02T15:04:05-07:00', '2021-01-10T03:14:05-07:00')",
            json!("180h10m0s"),
        ),
        (
            "time_diff('2021-01-02T15:04:05.25Z', '2021-01-02T15:04:05Z')",
            json!("-250ms"),
        ),
        (
            "time_before('2021-01-02T15:04:05-07:00', '2021-01-02T16:04:05-07:00')",
            json!(true),
        ),
        (
            "time_before('2021-01-02T15:04:05-07:00', '2021-01-02T22:04:05Z')",
            json!(false),
        ),
        (
            "time_after('2021-01-02T16:04:05-07:00', '2021-01-02T15:04:05-07:00')",
            json!(true),
        ),
        (
            "time_after('2021-01-02T16:04:05-07:00', '2021-01-02T16:04:05-07:00')",
            json!(false),
        ),
        (
            "time_between('2021-01-02T17:04:05Z', '2021-01-02T15:04:05Z', '2021-01-02T18:04:05Z')",
            json!(true),
        ),
        (
            "time_between('2021-01-02T15:04:05Z', '2021-01-02T15:04:05Z', '2021-01-02T18:04:05Z')",
            json!(false),
        ),
        (
            "time_between('2021-01-02T18:04:05Z', '2021-01-02T15:04:05Z', '2021-01-02T18:04:05Z')",
            json!(false),
        ),
        (
            "time_truncate('2021-01-02T17:04:05Z', '1h')",
            json!("2021-01-02T17:00:00Z"),
        ),
        (
            "time_truncate('2021-01-02T17:04:05+00:30', '1h')",
            json!("2021-01-02T16:30:00+00:30"),
        ),
        (
            "time_truncate('2021-01-02T17:04:05Z', '0s')",
            json!("2021-01-02T17:04:05Z"),
        ),
    ] {
        assert_eq!(evaluate(expression), Ok(value), "{expression}");
    }
}

#[test]
fn malformed_times_are_refused_with_their_reason() {
    for (expression, says) in [
        ("time_utc('')", "is missing at its end"),
        ("time_utc('2021-01-02')", "`T` is missing"),
        ("time_utc('2021-13-02T15:04:05Z')", "out of range"),
        ("time_utc('2021-01-02T15:04:05Z ')", "` ` is too much"),
        ("time_utc(`1`)", "expected a string"),
        ("time_add('2021-01-02T15:04:05Z', '3 h')", "no duration"),
        ("time_add('2021-01-02T15:04:05Z', '')", "no duration"),
        ("time_add('9999-12-31T23:00:00Z', '1h')", "years 0 to 9999"),
        (
            "time_add('0000-01-01T00:00:00Z', '-1ns')",
            "years 0 to 9999",
        ),
        ("time_parse('1', 'x')", "seconds after 1970"),
        ("time_parse('1', '99999999999999')", "seconds after 1970"),
        ("time_parse('', 'x')", "`x` is too much"),
        ("time_between('a', 'b', 'c')", "no time"),
    ] {
        let error = evaluate(expression).unwrap_err();
        assert!(error.contains(says), "{expression}: {error}");
    }
}

#[test]
fn without_a_seed_the_time_is_not_available() {
    let environment = Environment::standard().with_functions(functions());
    for (expression, is_known) in [
        ("time_now()", false),
        ("time_now_utc()", false),
        ("time_since('', '2021-01-02T15:04:05Z', '')", false),
        ("time_since('2006', '2020', '2021')", true),
    ] {
        let parsed = Expression::parse(expression).unwrap();
        let found = parsed.evaluate_json(&Value::Null, &environment);
        assert_eq!(found.is_ok(), is_known, "{expression}");
    }
}

/// Expected: the values that Go 1.26 reads, in UTC.
#[test]
fn layouts_are_read_as_go_reads_them() {
    for (layout, text, expected) in [
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T15:04:05-07:00",
            Some("2021-01-02T15:04:05-07:00"),
        ),
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T15:04:05.123456789Z",
            Some("2021-01-02T15:04:05Z"),
        ),
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T15:04:05,5+01:30",
            Some("2021-01-02T15:04:05+01:30"),
        ),
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T5:04:05Z",
            Some("2021-01-02T05:04:05Z"),
        ),
        ("2006-01-02T15:04:05Z07:00", "2021-02-29T15:04:05Z", None),
        ("2006-01-02T15:04:05Z07:00", "2020-02-29T24:04:05Z", None),
        ("2006-01-02T15:04:05Z07:00", "2021-01-02T15:04:05", None),
        ("2006-01-02T15:04:05Z07:00", "2021-01-02t15:04:05Z", None),
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T15:04:05+25:00",
            None,
        ),
        (
            "2006-01-02T15:04:05Z07:00",
            "2021-01-02T15:04:05+24:00",
            Some("2021-01-02T15:04:05+24:00"),
        ),
        ("2006-01-02T15:04:05Z07:00", "2021-01-02T15:04:05Zx", None),
        (
            "2006-01-02T15:04:05Z07:00",
            "0000-01-01T00:00:00Z",
            Some("0000-01-01T00:00:00Z"),
        ),
        ("2006-01-02T15:04:05Z07:00", "", None),
        (
            "Mon Jan _2 15:04:05 MST 2006",
            "Mon Jan 02 15:04:05 MST 2021",
            Some("2021-01-02T15:04:05Z"),
        ),
        (
            "Mon Jan _2 15:04:05 MST 2006",
            "Mon Jan  2 15:04:05 CEST 2021",
            Some("2021-01-02T15:04:05Z"),
        ),
        (
            "Mon Jan _2 15:04:05 MST 2006",
            "mon JAN 2 15:04:05 UTC 2021",
            Some("2021-01-02T15:04:05Z"),
        ),
        (
            "Mon Jan _2 15:04:05 MST 2006",
            "Mon Jan 2 15:04:05 GMT+3 2021",
            Some("2021-01-02T18:04:05+03:00"),
        ),
        (
            "Mon Jan 02 15:04:05 -0700 2006",
            "Sat Jan 02 15:04:05 -0700 2021",
            Some("2021-01-02T15:04:05-07:00"),
        ),
        (
            "Monday, 02-Jan-06 15:04:05 MST",
            "Saturday, 02-Jan-69 15:04:05 GMT",
            Some("1969-01-02T15:04:05Z"),
        ),
        (
            "Monday, 02-Jan-06 15:04:05 MST",
            "Saturday, 02-Jan-68 15:04:05 WITA",
            Some("2068-01-02T15:04:05Z"),
        ),
        (
            "Monday, 02-Jan-06 15:04:05 MST",
            "Saturday, 02-Jan-68 15:04:05 ABCD",
            None,
        ),
        (
            "January 2, 2006 at 3:04pm (MST)",
            "February 3, 2013 at 7:54pm (PST)",
            Some("2013-02-03T19:54:00Z"),
        ),
        (
            "January 2, 2006 at 3:04PM",
            "February 3, 2013 at 12:54AM",
            Some("2013-02-03T00:54:00Z"),
        ),
        (
            "January 2, 2006 at 3:04PM",
            "February 3, 2013 at 13:54AM",
            None,
        ),
        ("2006-002", "2021-365", Some("2021-12-31T00:00:00Z")),
        ("2006-002", "2020-366", Some("2020-12-31T00:00:00Z")),
        ("2006-002", "2021-366", None),
        ("2006 __2", "2021   5", Some("2021-01-05T00:00:00Z")),
        (
            "2006-01-02 002",
            "2021-03-01 060",
            Some("2021-03-01T00:00:00Z"),
        ),
        ("2006-01-02 002", "2021-03-01 061", None),
        ("15:04:05.000", "10:11:12.345", Some("0000-01-01T10:11:12Z")),
        ("15:04:05.000", "10:11:12.34", None),
        ("15:04:05.999", "10:11:12", Some("0000-01-01T10:11:12Z")),
        ("15:04:05.999", "10:11:12.3", Some("0000-01-01T10:11:12Z")),
        (
            "15:04.05.00 x",
            "10:11.12.34 x",
            Some("0000-01-01T10:11:12Z"),
        ),
        ("1/2/06", "12/31/99", Some("1999-12-31T00:00:00Z")),
        ("1/2/06", "13/31/99", None),
        ("1/2/06", "2/30/99", None),
        (
            "2006-01-02 -07",
            "2021-01-02 +05",
            Some("2021-01-02T00:00:00+05:00"),
        ),
        (
            "2006-01-02 -07:00:00",
            "2021-01-02 +05:30:20",
            Some("2021-01-02T00:00:00+05:30"),
        ),
        (
            "2006-01-02 Z070000",
            "2021-01-02 -053020",
            Some("2021-01-02T00:00:00-05:30"),
        ),
        (
            "2006-01-02 Z0700",
            "2021-01-02 Z",
            Some("2021-01-02T00:00:00Z"),
        ),
        ("2006_2006", "2021_2022", Some("2022-01-01T00:00:00Z")),
        ("Janet 2006", "Janet 2021", Some("2021-01-01T00:00:00Z")),
        (
            "20060102150405",
            "20210203040506",
            Some("2021-02-03T04:05:06Z"),
        ),
        (
            "2006-01-02  x",
            "2021-01-02 x",
            Some("2021-01-02T00:00:00Z"),
        ),
        ("2006-01-02x", "2021-01-02", None),
        ("2006-01-02 x", "2021-01-02x", None),
        ("2006-01-02", "2021-01-+5", None),
        ("2006__2", "2021  5", Some("2021-01-05T00:00:00Z")),
        ("2006-002", "2021-36", None),
        ("15:04 MST", "10:11 +5", None),
        ("2006-01-02 -0700", "2021-01-02 x0530", None),
        ("2006-01-02 -07:00", "2021-01-02 +05x30", None),
        (
            "2006-01-02 -07:00",
            "2021-01-02 +01:60",
            Some("2021-01-02T00:00:00+02:00"),
        ),
        ("2006-01-02 -07:00", "2021-01-02 +01:61", None),
        (
            "2006-01-02 -07:00:00",
            "2021-01-02 +01:00:60",
            Some("2021-01-02T00:00:00+01:01"),
        ),
        ("3:04PM", "12:54PM", Some("0000-01-01T12:54:00Z")),
        ("3:04PM", "7:54AM", Some("0000-01-01T07:54:00Z")),
        ("15:04 MST", "10:11 ChST", Some("0000-01-01T10:11:00Z")),
        ("15:04 MST", "10:11 CHAST", Some("0000-01-01T10:11:00Z")),
        ("15:04 MST", "10:11 ABCDE", None),
        (
            "15:04 MST",
            "10:11 GMT+23",
            Some("0000-01-02T09:11:00+23:00"),
        ),
    ] {
        let found = layout::parse(layout, text).ok().map(|time| time.text());
        assert_eq!(found.as_deref(), expected, "{layout} {text}");
    }
}

proptest! {
    #[test]
    fn a_written_time_is_read_back(seconds in -62_167_219_200_i64..253_402_300_800, minutes in -1439..1440_i32) {
        let at = Moment::of_unix_ns(i128::from(seconds) * 1_000_000_000).unwrap();
        let timestamp = jiff::Timestamp::from_second(seconds).unwrap();
        prop_assert_eq!(at.text(), timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        if let Some(shown) = at.shown_at(minutes * 60) {
            prop_assert_eq!(layout::parse(RFC3339, &shown.text()).unwrap().in_utc().unwrap().text(), at.text());
        }
    }

    #[test]
    fn a_truncated_time_is_a_multiple_of_its_step(seconds in 0_i64..4_000_000_000, step in 1_i64..100_000_000) {
        let at = Moment::of_unix_ns(i128::from(seconds) * 1_000_000_000).unwrap();
        let truncated = at.truncated(i128::from(step) * 1_000_000_000).unwrap();
        let lost = at.since(&truncated) / 1_000_000_000;
        prop_assert!((0..i128::from(step)).contains(&lost));
        prop_assert_eq!((i128::from(seconds) - lost + 62_135_596_800) % i128::from(step), 0);
    }

    #[test]
    fn parsing_with_any_layout_never_panics(layout in "(Mon|Jan|2006|01|02|_2|15|04|05|MST|-07|Z07|PM|[ .,:é/0-9-]){0,6}", text in "[A-Za-z0-9 .,:é/+-]{0,24}") {
        let _ = layout::parse(&layout, &text);
        let _ = layout::parse(&layout, &layout);
    }
}
