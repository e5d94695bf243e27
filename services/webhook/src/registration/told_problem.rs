//! The problem of a configuration, told once in the log until it changes or ends. Pure.

use std::time::Duration;

use tokio::time::Instant;

/// The time that a problem may last which ends by itself, as where two webhooks write at the same time.
const PATIENCE: Duration = Duration::from_secs(30);

/// The last problem that was told.
#[derive(Debug, Default)]
pub(super) struct ToldProblem {
    told: Option<String>,
    /// The begin of the problem that may end by itself.
    since: Option<Instant>,
}

impl ToldProblem {
    /// Returns true if the problem was not told yet: it is to be told now.
    pub(super) fn is_news(&mut self, problem: &str) -> bool {
        self.since = None;
        self.tell(problem)
    }

    /// Like [`Self::is_news`], for a problem that is worth a word only once it lasts.
    pub(super) fn is_lasting_news(&mut self, problem: &str, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_news = now.saturating_duration_since(since) >= PATIENCE && self.tell(problem);
        if is_news {
            // Said in other words, the problem has to last anew: an error may name another port each time.
            self.since = Some(now);
        }
        is_news
    }

    /// Notes that there is no problem any more.
    pub(super) fn ends(&mut self) {
        *self = Self::default();
    }

    fn tell(&mut self, problem: &str) -> bool {
        let is_told = self.told.as_deref() == Some(problem);
        self.told = Some(problem.to_owned());
        !is_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_told_once_and_again_when_it_changes() {
        let mut told = ToldProblem::default();
        let said = ["a", "a", "b", "b", "a"].map(|problem| told.is_news(problem));
        assert_eq!(said, [true, false, true, false, true]);
        told.ends();
        assert!(told.is_news("a"), "it has come back");
    }

    #[test]
    fn a_lasting_problem_in_other_words_each_time_is_told_once_in_its_patience() {
        let (mut told, begun) = (ToldProblem::default(), Instant::now());
        let told_at = (0..=100_u64).filter(|second| {
            let problem = format!("connection from port {second} reset");
            told.is_lasting_news(&problem, begun + Duration::from_secs(*second))
        });
        assert_eq!(told_at.collect::<Vec<_>>(), [30, 60, 90]);
    }

    #[test]
    fn a_problem_that_may_end_by_itself_is_told_once_it_lasts() {
        let (mut told, begun) = (ToldProblem::default(), Instant::now());
        let mut at = |seconds| told.is_lasting_news("a", begun + Duration::from_secs(seconds));
        assert_eq!(
            [0, 29, 30, 31, 90].map(&mut at),
            [false, false, true, false, false]
        );
        told.ends();
        assert!(!told.is_lasting_news("a", begun + Duration::from_secs(91)));
        // What the API server refuses meanwhile is another problem.
        assert!(told.is_news("b"));
        assert!(!told.is_lasting_news("a", begun + Duration::from_secs(120)));
        assert!(told.is_lasting_news("a", begun + Duration::from_secs(150)));
    }
}
