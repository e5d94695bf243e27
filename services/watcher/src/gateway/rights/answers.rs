//! The API server's answers to questions about rights, and when to ask again. Pure.

use std::{collections::BTreeMap, time::Duration};

use anteroom_model::ExistingObjects;
use tokio::time::Instant;

/// The first wait before a right that lacks is asked for again; it doubles each time.
const LACKING_AGAIN_MIN: Duration = Duration::from_secs(5);

/// The longest such wait.
const LACKING_AGAIN_MAX: Duration = Duration::from_secs(300);

/// The wait before a right that is granted is asked for again: it may be taken away.
const GRANTED_AGAIN: Duration = Duration::from_secs(600);

/// The most needs that are asked for; of more nothing is known.
const NEEDS_MAX: usize = 2_000;

/// Objects that a policy changes, as far as it says before there is a trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Need {
    pub(crate) group: String,
    pub(crate) version: String,
    /// Empty where the plural says it.
    pub(crate) kind: String,
    /// Empty where the kind says it.
    pub(crate) resource: String,
    /// Empty for all, as the name.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl From<ExistingObjects> for Need {
    fn from(objects: ExistingObjects) -> Self {
        let plain = |text: String| match text.contains(['*', '?', '{']) {
            true => String::new(),
            false => text,
        };
        Self {
            group: objects.group,
            version: objects.version,
            kind: objects.kind,
            resource: objects.resource,
            namespace: plain(objects.namespace),
            name: plain(objects.name),
        }
    }
}

#[derive(Debug)]
struct Question {
    /// The answer: the missing right, or `None` if none is missing. Without an answer yet: nothing.
    answer: Option<Option<String>>,
    due: Instant,
    /// The wait after the next answer, if it lacks still.
    pause: Duration,
}

/// The questions about all needs, with the last answers.
#[derive(Debug, Default)]
pub(super) struct Answers {
    questions: BTreeMap<Need, Question>,
}

impl Answers {
    /// Replaces the needs. They are sorted, since there may be thousands.
    pub(super) fn set_needs(&mut self, needs: &[Need]) {
        debug_assert!(needs.is_sorted(), "needs are looked up");
        self.questions
            .retain(|need, _| needs.binary_search(need).is_ok());
        for need in needs {
            if self.questions.len() < NEEDS_MAX && !self.questions.contains_key(need) {
                let question = Question {
                    answer: None,
                    due: Instant::now(),
                    pause: LACKING_AGAIN_MIN,
                };
                self.questions.insert(need.clone(), question);
            }
        }
    }

    /// Returns the need to ask for now: one without an answer first.
    pub(super) fn due(&self, now: Instant) -> Option<Need> {
        let due = self
            .questions
            .iter()
            .filter(|(_, question)| question.due <= now);
        let first = due.min_by_key(|(_, question)| (question.answer.is_some(), question.due));
        first.map(|(need, _)| need.clone())
    }

    /// Returns when the next need is to be asked for.
    pub(super) fn next(&self) -> Option<Instant> {
        self.questions.values().map(|question| question.due).min()
    }

    /// Takes the answer: the missing right, if one is missing. `None`: there was no answer, and the last one stays.
    pub(super) fn answered(&mut self, need: &Need, answer: Option<Option<String>>, now: Instant) {
        let Some(question) = self.questions.get_mut(need) else {
            return;
        };
        if matches!(answer, Some(None)) {
            question.pause = LACKING_AGAIN_MIN;
            question.due = now + GRANTED_AGAIN;
        } else {
            question.due = now + question.pause;
            question.pause = (question.pause * 2).min(LACKING_AGAIN_MAX);
        }
        question.answer = answer.or(question.answer.take());
    }

    /// Returns all answers.
    pub(super) fn all(&self) -> BTreeMap<Need, Option<String>> {
        let questions = self.questions.iter();
        questions
            .filter_map(|(need, question)| Some((need.clone(), question.answer.clone()?)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str) -> Need {
        ExistingObjects {
            kind: "Pod".into(),
            namespace: "shop".into(),
            name: name.into(),
            ..ExistingObjects::default()
        }
        .into()
    }

    #[test]
    fn a_name_that_only_a_trigger_says_needs_the_right_to_all_objects() {
        assert_eq!(need("web-*").name, "");
        assert_eq!(need("web").name, "web");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lacking_right_is_asked_for_ever_more_seldom() {
        let (mut answers, mut now) = (Answers::default(), Instant::now());
        let (a, b) = (need("a"), need("b"));
        answers.set_needs(&[a.clone(), b.clone()]);
        assert_eq!(answers.due(now), Some(a.clone()));
        let lacks = || Some(Some("no".to_owned()));
        let mut waits = Vec::new();
        for _ in 0..8 {
            answers.answered(&a, lacks(), now);
            answers.answered(&b, Some(None), now);
            let next = answers.next().unwrap();
            waits.push((next - now).as_secs());
            now = next;
            assert_eq!(answers.due(now), Some(a.clone()));
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        // Where the API server does not say, what it said stands.
        answers.answered(&a, None, now);
        assert_eq!(answers.all()[&a], Some("no".to_owned()));
        // Granted: it is taken back.
        answers.answered(&a, Some(None), now);
        assert_eq!((&answers.all()[&a], answers.due(now)), (&None, None));
        assert_eq!(answers.questions[&a].due - now, GRANTED_AGAIN);
        answers.set_needs(std::slice::from_ref(&b));
        assert_eq!(answers.all().into_keys().collect::<Vec<_>>(), [b]);
    }

    #[tokio::test(start_paused = true)]
    async fn needs_beyond_the_limit_are_not_asked_for() {
        let needs = (0..=NEEDS_MAX).map(|at| need(&format!("p{at:04}")));
        let (needs, mut answers) = (needs.collect::<Vec<_>>(), Answers::default());
        answers.set_needs(&needs);
        assert_eq!(answers.questions.len(), NEEDS_MAX);
        // The remaining needs keep their answers.
        answers.set_needs(&needs[..NEEDS_MAX / 2]);
        assert!(answers.questions.keys().eq(&needs[..NEEDS_MAX / 2]));
    }
}
