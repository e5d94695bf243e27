use std::{cell::Cell, sync::Arc, time::Duration};

use serde_json::json;

use super::{
    clock::Clock,
    drive::{Exchange, work},
    glance::{Verdict, judge},
    http1::Head,
    question::Asker,
    tally::Tally,
    turns::Turns,
    *,
};
use crate::Expected;

const MS: Duration = Duration::from_millis(1);

/// Time that goes by only when somebody waits for it, or takes it to answer.
#[derive(Default)]
struct StubClock(Cell<Duration>);

impl Clock for &StubClock {
    fn now(&self) -> Duration {
        self.0.get()
    }
    fn wait_until(&self, at: Duration) {
        self.0.set(self.0.get().max(at));
    }
}

/// A webhook that admits everything, each in 0.2 ms, but one that takes `stall`.
struct Stub<'a> {
    clock: &'a StubClock,
    posts: u64,
    stalls_at: u64,
    stall: Duration,
    answer: Vec<u8>,
}

impl Exchange for Stub<'_> {
    fn post(&mut self, body: &[u8]) -> Result<&[u8], String> {
        let takes = match self.posts == self.stalls_at {
            true => self.stall,
            false => MS / 5,
        };
        self.posts += 1;
        self.clock.0.set(self.clock.0.get() + takes);
        let asked: serde_json::Value = serde_json::from_slice(body).unwrap();
        let response = json!({ "response": { "uid": asked["uid"], "allowed": true } });
        self.answer = response.to_string().into_bytes();
        Ok(&self.answer)
    }
}

fn questions(cases: Vec<Case>) -> Questions {
    let marks = json!({ "uid": Slot::Uid.mark(), "name": Slot::Name.mark(),
        "host": Slot::Host.mark(), "path": Slot::Path.mark(), "again": Slot::Host.mark() });
    Questions {
        template: Arc::new(Template::new(&marks)),
        cases,
    }
}

fn free() -> Case {
    Case {
        weight: 1,
        hosts: Hosts::Free,
        path: "/".into(),
        expected: Expected::Allowed,
    }
}

/// 10 s at 1,000 a second over one connection, with a stall of one second in the middle.
fn with_a_stall(pace: Pace) -> PacedReport {
    let clock = StubClock::default();
    let mut stub = Stub {
        clock: &clock,
        posts: 0,
        stalls_at: 5_000,
        stall: 1_000 * MS,
        answer: Vec::new(),
    };
    let turns = Turns::new(pace, 10_000 * MS, Paced::GRACE);
    let mut asker = Asker::new(&questions(vec![free()]), 0);
    let mut tally = Tally::new();
    work(&&clock, &mut stub, &turns, &mut asker, &mut tally);
    tally.report(turns.left(), &[])
}

#[test]
fn a_stall_counts_for_all_that_were_due_meanwhile() {
    let report = with_a_stall(Pace::Open {
        per_second: 1_000.0,
    });
    assert_eq!(
        (report.decisions, report.errors, report.unsent),
        (10_000, 0, 0)
    );
    assert_eq!(report.latency_ms.p50, 0.2);
    // 1,000 requests became due in the stall, and as it takes 0.2 ms for each, 250 more until all
    // are caught up with: the latency of these goes evenly from 1,000 ms down, and they are an
    // eighth of all.
    let near = |ms: f64, wanted: f64| (ms - wanted).abs() < wanted / 100.0;
    assert!(near(report.latency_ms.max, 1_000.0), "{report:?}");
    assert!(near(report.latency_ms.p99, 920.0), "{report:?}");
    assert!(near(report.latency_ms.p95, 600.0), "{report:?}");
    assert!(near(report.late_ms.max, 999.0), "{report:?}");
}

#[test]
fn a_closed_loop_hides_a_stall_that_an_open_loop_sees() {
    let report = with_a_stall(Pace::Closed);
    assert_eq!(report.latency_ms.p999, 0.2);
    assert!(report.latency_ms.max >= 999.0, "{report:?}");
    assert_eq!(report.late_ms.max, 0.0);
}

#[test]
fn requests_that_were_due_and_never_sent_are_counted() {
    let clock = StubClock::default();
    let mut stub = Stub {
        clock: &clock,
        posts: 0,
        stalls_at: 10,
        stall: 60_000 * MS,
        answer: Vec::new(),
    };
    let turns = Turns::new(Pace::Open { per_second: 100.0 }, 1_000 * MS, Paced::GRACE);
    let mut asker = Asker::new(&questions(vec![free()]), 0);
    let mut tally = Tally::new();
    work(&&clock, &mut stub, &turns, &mut asker, &mut tally);
    let report = tally.report(turns.left(), &[]);
    assert_eq!((report.decisions, report.unsent), (11, 89));
}

#[test]
fn requests_are_due_evenly() {
    let turns = Turns::new(
        Pace::Open {
            per_second: 4_000.0,
        },
        MS,
        Paced::GRACE,
    );
    let due: Vec<_> = std::iter::from_fn(|| turns.next(Duration::ZERO)).collect();
    let us = Duration::from_micros;
    assert_eq!(due, [us(0), us(250), us(500), us(750)]);
}

#[test]
fn a_template_is_filled_at_every_mark() {
    let case = Case {
        hosts: Hosts::Of(Arc::new(vec!["a.example".into()])),
        path: "/p".into(),
        ..free()
    };
    let mut asker = Asker::new(&questions(vec![case]), 3);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let asked = asker.ask(&mut first);
    let uid = asked.uid.to_owned();
    assert_eq!(uid.len(), 36);
    asker.ask(&mut second);
    let parse = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).unwrap();
    let (first, second) = (parse(&first), parse(&second));
    assert_eq!(first["uid"], uid.as_str());
    assert_eq!(first["host"], "a.example");
    assert_eq!(first["again"], "a.example");
    assert_eq!(first["path"], "/p");
    assert_ne!(first["uid"], second["uid"]);
    assert_ne!(first["name"], second["name"]);
}

#[test]
fn cases_are_asked_in_proportion_to_their_weight() {
    let cases = vec![
        Case {
            weight: 3,
            ..free()
        },
        Case {
            weight: 1,
            expected: Expected::Denied,
            ..free()
        },
    ];
    let mut asker = Asker::new(&questions(cases), 0);
    let mut body = Vec::new();
    let denied = (0..4_000).filter(|_| asker.ask(&mut body).expected == Expected::Denied);
    assert!((800..1_200).contains(&denied.count()));
}

#[test]
fn answers_are_compared_with_the_expected_decision() {
    let mut asker = Asker::new(&questions(vec![free()]), 0);
    let mut body = Vec::new();
    let mut asked = asker.ask(&mut body);
    let uid = asked.uid;
    let answer = |uid: &str, allowed: bool, message: &str| {
        let status = json!({ "message": message });
        json!({ "response": { "uid": uid, "allowed": allowed, "status": status } }).to_string()
    };
    assert_eq!(
        judge(asked, answer(uid, true, "").as_bytes()),
        Verdict::Right
    );
    let wrong = judge(asked, answer(uid, false, "taken").as_bytes());
    assert!(matches!(wrong, Verdict::Wrong(_)), "{wrong:?}");
    let failed = judge(asked, answer(uid, false, "x\nAR106: no replica").as_bytes());
    assert_eq!(failed, Verdict::Error("AR106: no replica".into()));
    let others = judge(asked, answer("another", true, "").as_bytes());
    assert!(matches!(others, Verdict::Error(_)), "{others:?}");
    assert!(matches!(judge(asked, b"nothing"), Verdict::Error(_)));
    asked.expected = Expected::Denied;
    assert_eq!(
        judge(asked, answer(uid, false, "taken").as_bytes()),
        Verdict::Right
    );
    let wrong = judge(asked, answer(uid, true, "").as_bytes());
    assert!(matches!(wrong, Verdict::Wrong(_)), "{wrong:?}");
}

#[test]
fn http_response_heads_are_parsed() {
    let parse = |text: &str| Head::parse(text.as_bytes());
    assert_eq!(parse("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n"), Ok(None));
    let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    let head = Head {
        status: 200,
        body_start: whole.len() - 2,
        body_end: whole.len(),
        closes: true,
    };
    assert_eq!(parse(whole), Ok(Some(head)));
    assert!(parse("HTTP/1.1 200 OK\r\n\r\n").is_err());
    assert!(parse("nonsense\r\n\r\n").is_err());
}
