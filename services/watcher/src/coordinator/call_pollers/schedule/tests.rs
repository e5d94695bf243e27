use anteroom_model::Failure;

use super::*;
use crate::source::api::ApiCallSource;

const SECOND: Duration = Duration::from_secs(1);

fn spec(interval_seconds: i64, retries: i64, on_failure: OnFailure) -> CallSpec {
    let source = ApiCallSource {
        url_path: Some("/version".into()),
        refresh_interval_seconds: Some(interval_seconds),
        retry_limit: Some(retries),
        ..ApiCallSource::default()
    };
    CallSpec::new(&source, on_failure).unwrap()
}

/// Returns the state that readers see after each outcome: `+` answered, `-` failed; `g`, `o`, `t`
/// or `F`. A second passes between two.
fn told(spec: &CallSpec, outcomes: &str) -> String {
    let begun = Instant::now();
    let mut schedule = Schedule::default();
    let outcomes = outcomes.chars().enumerate();
    let told = outcomes.map(|(at, outcome)| {
        let outcome = match outcome {
            '+' => CallOutcome::Answered,
            _ => CallOutcome::Failed(Failure::new("CallFailed", "500")),
        };
        let now = begun + SECOND * u32::try_from(at).unwrap();
        letter(&schedule.step(spec, outcome, now, 0.5).report)
    });
    told.collect()
}

fn letter(report: &Report) -> char {
    match report {
        Report::Good => 'g',
        Report::Old(..) => 'o',
        Report::Troubled(_) => 't',
        Report::Failed(_) => 'F',
    }
}

/// Retries first, then the error or the last good data; recovery at once.
#[test]
fn a_failing_call_reports_trouble_then_the_error_or_stale_data() {
    let stale = |seconds| OnFailure::ServeStale(SECOND * seconds);
    for (retries, on_failure, outcomes, expected) in [
        (1, OnFailure::Error, "+++", "ggg"),
        (1, OnFailure::Error, "+---+-", "gtFFgt"),
        (3, OnFailure::Error, "----+", "tttFg"),
        (1, stale(3), "+-----+", "gooFFFg"),
        (3, stale(2), "+-----", "gottFF"),
        // Nothing was ever read: there is nothing to serve.
        (1, stale(60), "---+", "tFFg"),
    ] {
        let spec = spec(60, retries, on_failure);
        assert_eq!(told(&spec, outcomes), expected, "{retries} {on_failure:?}");
    }
}

/// Data of an earlier term are served once readers say how old they are, and never before; while
/// readers may still say it, no failure is reported.
#[test]
fn data_of_an_earlier_term_are_served_by_their_age() {
    let stale = |seconds| OnFailure::ServeStale(SECOND * seconds);
    let age = SECOND * 10;
    for (on_failure, said_after, expected) in [
        (stale(60), Some(0), "oooooo"),
        (stale(60), Some(2), "ttoooo"),
        (stale(60), Some(4), "tttFoo"),
        (stale(60), None, "tttFFF"),
        (stale(12), Some(1), "toFFFF"),
        (stale(10), Some(1), "tFFFFF"),
        (OnFailure::Error, Some(1), "tFFFFF"),
    ] {
        let spec = spec(60, 0, on_failure);
        let begun = Instant::now() + age;
        let mut schedule = Schedule::with_data(begun);
        let told = (0..6).map(|second| {
            if said_after == Some(second) {
                schedule.report_good_at(begun - age);
            }
            let failed = CallOutcome::Failed(Failure::new("CallFailed", "500"));
            letter(
                &schedule
                    .step(&spec, failed, begun + SECOND * second, 0.5)
                    .report,
            )
        });
        let told: String = told.collect();
        assert_eq!(told, expected, "{on_failure:?} {said_after:?}");
    }
}

/// An interval with jitter, and retries that are sooner.
#[test]
fn a_call_waits_its_interval_and_retries_sooner() {
    let now = Instant::now();
    let spec = spec(100, 20, OnFailure::Error);
    let mut schedule = Schedule::default();
    for (random, seconds) in [(0.0, 90), (0.5, 100), (1.0, 110)] {
        let wait = schedule
            .step(&spec, CallOutcome::Answered, now, random)
            .wait;
        assert!(
            wait.abs_diff(SECOND * seconds) < Duration::from_millis(1),
            "{wait:?}"
        );
    }
    let failed = || CallOutcome::Failed(Failure::new("CallFailed", "500"));
    let waits: Vec<_> = (0..10)
        .map(|_| schedule.step(&spec, failed(), now, 1.0).wait.as_millis())
        .collect();
    let expected = [
        250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000,
    ];
    assert_eq!(waits, expected);
    let short = super::tests::spec(1, 20, OnFailure::Error);
    let mut schedule = Schedule::default();
    for _ in 0..40 {
        assert!(
            schedule.step(&short, failed(), now, 1.0).wait <= SECOND,
            "never over the interval"
        );
    }
}

/// The schedule wakes in time to report that stale data are too old.
#[test]
fn the_schedule_wakes_when_stale_data_become_too_old() {
    let spec = spec(600, 1, OnFailure::ServeStale(SECOND * 5));
    let (now, mut schedule) = (Instant::now(), Schedule::default());
    schedule.step(&spec, CallOutcome::Answered, now, 0.5);
    let mut at = now + SECOND * 4;
    for _ in 0..10 {
        let outcome = CallOutcome::Failed(Failure::new("CallFailed", "500"));
        let next = schedule.step(&spec, outcome, at, 1.0);
        if let Report::Failed(_) = next.report {
            assert_eq!(at, now + SECOND * 5);
            return;
        }
        at += next.wait;
    }
    panic!("it never told");
}

/// An age that a poller keeps to while nothing is wrong with it.
#[test]
fn the_age_covers_interval_retries_and_staleness() {
    let age = |interval, retries, on_failure| age_max(&spec(interval, retries, on_failure));
    let ordinary = age(100, 1, OnFailure::Error);
    assert_eq!(ordinary, SECOND * 110 + CALL_TIMEOUT * 2 + RETRY_BASE);
    let stale = age(100, 1, OnFailure::ServeStale(SECOND * 10_000));
    assert_eq!(stale, SECOND * 10_000 + CALL_TIMEOUT);
    assert!(age(1, 100, OnFailure::Error) < SECOND * 10_000);
}
