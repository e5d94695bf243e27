//! One worker's loop: wait for what is due, ask, hold the answer against what is right.

use super::{
    clock::Clock,
    glance::{Verdict, judge},
    question::Asker,
    tally::{Tally, Times},
    turns::Turns,
};

/// Whoever carries a body there and brings the answer. A seam: in tests a stub that stalls.
pub(crate) trait Exchange {
    /// Posts a body and returns the answer's.
    ///
    /// # Errors
    /// Why there is no answer, in a text that is the same for the same reason.
    fn post(&mut self, body: &[u8]) -> Result<&[u8], String>;
}

/// Works until no turn is left.
pub(crate) fn work(
    clock: &impl Clock,
    exchange: &mut impl Exchange,
    turns: &Turns,
    asker: &mut Asker,
    tally: &mut Tally,
) {
    let mut body = Vec::new();
    while let Some(due) = turns.next(clock.now()) {
        let asked = asker.ask(&mut body);
        clock.wait_until(due);
        let sent = clock.now();
        let answer = exchange.post(&body);
        let answered = clock.now();
        let verdict = match answer {
            Ok(answer) => judge(asked, answer),
            Err(kind) => Verdict::Error(kind),
        };
        let times = Times {
            due,
            sent,
            answered,
        };
        tally.record(times, verdict);
    }
}
