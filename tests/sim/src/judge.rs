//! An oracle for the answers of webhooks: it knows every state that the API server had, and all earlier answers.
//!
//! A decision on facts is right if it is right for one state that the API server had between the age that the answer
//! tells and the moment at which it came. And no webhook goes back: of two answers one after the other, the later one
//! is of the same state or a later one.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use anteroom_load::Answer;
use anteroom_model::limits::BEAT_INTERVAL_MS;
use serde_json::Value;
use tokio::time::Instant;

/// The rounding of ages to milliseconds, on the way of an answer.
const AGE_SLACK: Duration = Duration::from_millis(5);

/// The same where beats wait on their way. A reader that has heard no beat of a term in time knows the delay of the first ones
/// but for the time between two beats, of which some may be lost.
const AGE_SLACK_OF_LATE_BEATS: Duration = Duration::from_millis(5 + 4 * BEAT_INTERVAL_MS);

/// The owner of each host that is owned: the hosts by the names of their Ingresses.
pub(crate) type Owners = BTreeMap<String, String>;

/// A review that was answered.
pub(crate) struct Answered {
    /// The webhook that answered.
    pub(crate) webhook: String,
    pub(crate) sent: Instant,
    pub(crate) answer: Answer,
    /// The record of the decision in the audit annotations.
    pub(crate) record: Value,
    /// The generation of the policy that had been told as ready when it was sent, if that counts for this webhook.
    pub(crate) told: Option<u64>,
}

/// An answer, as later ones are compared with it.
struct Seen {
    webhook: String,
    incarnation: String,
    at: Instant,
    revision: u64,
    state: usize,
}

/// The history of the API server and of the answers, the trace, and the violations found in them.
pub(crate) struct Judge {
    begun: Instant,
    prints: bool,
    reuses_positions: bool,
    /// The time by which an answer may be older than it tells.
    age_slack: Duration,
    trace: DefaultHasher,
    history: Vec<(Instant, Owners)>,
    seen: Vec<Seen>,
    /// When what had been told of the policy last ceased to count.
    unsaid: Option<Instant>,
    /// Facts may miss records that were lost in silence.
    doubts_facts: bool,
    /// Descriptions of answers and states that were wrong, in order of time.
    pub(crate) violations: Vec<String>,
    pub(crate) decided: u32,
    pub(crate) failed: u32,
    /// Decisions that were wrong while facts were in doubt.
    pub(crate) excused: u32,
}

impl Judge {
    /// `reuses_positions`: the log may give out a position twice.
    pub(crate) fn new(prints: bool, reuses_positions: bool) -> Self {
        let begun = Instant::now();
        Self {
            begun,
            prints,
            reuses_positions,
            age_slack: AGE_SLACK,
            trace: DefaultHasher::new(),
            history: vec![(begun, Owners::new())],
            seen: Vec::new(),
            unsaid: None,
            doubts_facts: false,
            violations: Vec::new(),
            decided: 0,
            failed: 0,
            excused: 0,
        }
    }

    /// Takes an event into the trace.
    #[allow(clippy::print_stdout, reason = "what it is for")]
    pub(crate) fn note(&mut self, event: &str) {
        let at = self.begun.elapsed();
        (at, event).hash(&mut self.trace);
        if self.prints {
            println!("{:>9.3} {event}", at.as_secs_f64());
        }
    }

    /// The hash of all events so far.
    pub(crate) fn trace(&self) -> u64 {
        self.trace.finish()
    }

    /// Notes that something is not as it must be.
    pub(crate) fn violation(&mut self, what: &str) {
        let at = self.begun.elapsed().as_secs_f64();
        self.note(&format!("VIOLATION {what}"));
        self.violations.push(format!("at {at:.3} s: {what}"));
    }

    /// The owners are these from now on.
    pub(crate) fn owners(&mut self, owners: Owners) {
        self.note(&format!("owners {owners:?}"));
        self.history.push((Instant::now(), owners));
    }

    /// What was told of the policy counts no more, also for requests that are on their way.
    pub(crate) fn unsay(&mut self, why: &str) {
        self.note(why);
        self.unsaid = Some(Instant::now());
    }

    /// Facts may miss records from now on, and nobody was told. A reader finds out by the digest of the next control
    /// record, which follows a change by 10 s. Until then it cannot know better, so wrong decisions are only counted.
    pub(crate) fn doubt_facts(&mut self) {
        self.doubts_facts = true;
    }

    /// Beats wait on their way from now on.
    pub(crate) fn beats_wait(&mut self) {
        self.age_slack = AGE_SLACK_OF_LATE_BEATS;
    }

    /// A decision was wrong by its facts.
    fn wrong_fact(&mut self, what: &str) {
        if self.doubts_facts {
            self.note(&format!("EXCUSED {what}"));
            self.excused += 1;
        } else {
            self.violation(what);
        }
    }

    /// The generation that counted when this was sent, and still does.
    fn told(&self, of: &Answered) -> Option<u64> {
        let is_unsaid = self.unsaid.is_some_and(|at| at >= of.sent);
        of.told.filter(|_| !is_unsaid)
    }

    /// Returns true if the host is taken now.
    pub(crate) fn is_taken(&self, host: &str) -> bool {
        self.history
            .last()
            .is_some_and(|(_, owners)| owns(owners, host))
    }

    /// The owners now.
    pub(crate) fn owners_now(&self) -> Owners {
        self.history
            .last()
            .map(|(_, owners)| owners.clone())
            .unwrap_or_default()
    }

    /// Judges an answer to a review of somebody else who wants `host`.
    pub(crate) fn answered(&mut self, host: &str, of: &Answered) {
        let rule = of.record["rules"].as_array().and_then(|rules| {
            rules
                .iter()
                .find(|rule| rule["policy"] == crate::manifests::UNIQUE_HOST)
        });
        let allowed = match &of.answer {
            Answer::Allowed => true,
            Answer::Denied { message } => {
                self.is_of_told(of, message);
                false
            }
            Answer::Failed { message } => {
                self.failed += 1;
                self.note(&format!("{} failed: {message}", of.webhook));
                return;
            }
        };
        self.decided += 1;
        let fact = rule
            .map(|rule| rule["facts"][0].clone())
            .unwrap_or_default();
        self.note(&format!("{} {host} allowed={allowed} {fact}", of.webhook));
        if rule.is_none() {
            if let (true, Some(generation)) = (allowed, self.told(of)) {
                self.violation(&format!(
                    "{} allowed {host} without the policy, whose generation {generation} is told as ready",
                    of.webhook
                ));
            }
            return;
        }
        let (Some(revision), Some(age_ms)) = (fact["revision"].as_u64(), fact["ageMs"].as_u64())
        else {
            self.violation(&format!("a decision without its fact: {}", of.record));
            return;
        };
        self.is_of_a_state(
            host,
            of,
            !allowed,
            fact["incarnation"].to_string(),
            revision,
            age_ms,
        );
    }

    fn is_of_a_state(
        &mut self,
        host: &str,
        of: &Answered,
        is_taken: bool,
        incarnation: String,
        revision: u64,
        age_ms: u64,
    ) {
        let now = Instant::now();
        let oldest = Duration::from_millis(age_ms) + self.age_slack;
        let from = of.sent.checked_sub(oldest).unwrap_or(self.begun);
        let before = self
            .seen
            .iter()
            .filter(|seen| seen.webhook == of.webhook && seen.at < of.sent);
        let same_log = before
            .clone()
            .filter(|seen| seen.incarnation == incarnation);
        if let Some(later) = same_log.clone().find(|seen| seen.revision > revision)
            && !self.reuses_positions
        {
            let text = format!(
                "{} went back from revision {} to {revision} of {incarnation}",
                of.webhook, later.revision
            );
            return self.violation(&text);
        }
        let floor = same_log.map(|seen| seen.state).max().unwrap_or_default();
        let states = self.history.iter().enumerate();
        let agrees = states.filter(|(at, (since, owners))| {
            let until = self.history.get(at + 1).map_or(now, |(next, _)| *next);
            *since <= now && until >= from && owns(owners, host) == is_taken
        });
        let agreeing: Vec<_> = agrees.map(|(at, _)| at).collect();
        match agreeing.iter().find(|at| **at >= floor) {
            Some(state) => {
                self.seen.push(Seen {
                    webhook: of.webhook.clone(),
                    incarnation,
                    at: now,
                    revision,
                    state: *state,
                });
            }
            None if agreeing.is_empty() => self.wrong_fact(&format!(
                "{} said that {host} is {}, which was not so within the {age_ms} ms that it told",
                of.webhook,
                if is_taken { "taken" } else { "free" }
            )),
            None => self.wrong_fact(&format!(
                "{} said that {host} is {}, which was so only before what it had said already",
                of.webhook,
                if is_taken { "taken" } else { "free" }
            )),
        }
    }

    /// A denial is by the generation that was told, or a later one.
    fn is_of_told(&mut self, of: &Answered, message: &str) {
        let by = message.split("generation ").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        if let (Some(told), Some(by)) = (self.told(of), by)
            && by < told
        {
            self.violation(&format!(
                "{} denied by generation {by} although {told} was told as ready",
                of.webhook
            ));
        }
    }
}

fn owns(owners: &Owners, host: &str) -> bool {
    owners.values().any(|owned| owned == host)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::advance;

    use super::*;
    use crate::manifests::UNIQUE_HOST;

    const SECOND: Duration = Duration::from_secs(1);

    fn taken(host: &str) -> Owners {
        Owners::from([("a".to_owned(), host.to_owned())])
    }

    fn answered(allowed: bool, age_ms: u64, revision: u64) -> Answered {
        let fact = json!({"incarnation": "i", "revision": revision, "ageMs": age_ms});
        let message = "taken, says generation 2".to_owned();
        Answered {
            webhook: "w".into(),
            sent: Instant::now(),
            answer: match allowed {
                true => Answer::Allowed,
                false => Answer::Denied { message },
            },
            record: json!({"rules": [{"policy": UNIQUE_HOST, "facts": [fact]}]}),
            told: None,
        }
    }

    /// The host `h` is free, taken and free again, for a second each; the last state stands for one.
    async fn judge() -> Judge {
        let mut judge = Judge::new(false, false);
        advance(SECOND).await;
        judge.owners(taken("h"));
        advance(SECOND).await;
        judge.owners(taken("other"));
        advance(SECOND).await;
        judge
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_of_a_state_within_the_age_that_it_tells() {
        for (allowed, age_ms, violations) in [
            (true, 0, 0),
            (false, 0, 1),
            (false, 900, 1),
            (false, 1_100, 0),
        ] {
            let mut judge = judge().await;
            judge.answered("h", &answered(allowed, age_ms, 1));
            assert_eq!(judge.violations.len(), violations, "{:?}", judge.violations);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_goes_back_is_found_by_revision_and_by_state() {
        for (second, violations) in [
            (answered(true, 3_000, 4), "went back from revision 5 to 4"),
            // The host was taken before it was said to be free, and not since.
            (answered(false, 3_000, 6), "only before what it had said"),
        ] {
            let mut judge = judge().await;
            // The answer says that the second host is taken, which is true in the last state alone.
            judge.answered("other", &answered(false, 0, 5));
            advance(Duration::from_millis(1)).await;
            let second = Answered {
                sent: Instant::now(),
                ..second
            };
            judge.answered("h", &second);
            assert!(
                judge.violations[0].contains(violations),
                "{:?}",
                judge.violations
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_policy_that_was_told_as_ready_decides() {
        let mut judge = judge().await;
        let told = |told, allowed| Answered {
            told: Some(told),
            ..answered(allowed, 3_000, 1)
        };
        judge.answered("h", &told(2, false));
        assert_eq!(judge.violations.len(), 0);
        judge.answered("h", &told(3, false));
        assert!(judge.violations[0].contains("denied by generation 2 although 3"));
        let mut without = told(2, true);
        without.record = json!({"rules": []});
        judge.answered("h", &without);
        assert!(judge.violations[1].contains("without the policy"));
        judge.unsay("the policy is deleted");
        judge.answered("h", &without);
        judge.answered("h", &told(3, false));
        assert_eq!(judge.violations.len(), 2, "it was deleted meanwhile");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wrong_decision_is_only_counted_while_facts_are_in_doubt() {
        let mut judge = judge().await;
        judge.doubt_facts();
        judge.answered("h", &answered(false, 0, 1));
        assert_eq!((judge.violations.len(), judge.excused), (0, 1));
    }
}
