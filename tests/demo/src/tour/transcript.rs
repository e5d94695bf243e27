//! What the tour has said.

use anteroom_command::output::print;
use parking_lot::Mutex;

use super::Step;

/// The lines of the tour, kept for the page, or printed at once where there is none.
#[derive(Debug)]
pub(crate) struct Transcript {
    lines: Mutex<Vec<String>>,
    prints: bool,
}

impl Transcript {
    /// Returns an empty transcript. With `prints`, its lines go to standard output too.
    pub(crate) fn new(prints: bool) -> Self {
        Self {
            lines: Mutex::default(),
            prints,
        }
    }

    pub(super) fn begin(&self, step: Step) {
        if !self.lines.lock().is_empty() {
            self.line("");
        }
        self.line(&format!("{}  {}", step.key(), step.title()));
    }

    /// Says something that happened.
    pub(crate) fn say(&self, text: &str) {
        self.line(&format!("   {text}"));
    }

    pub(super) fn end(&self, step: Step) {
        self.say(&format!("Read: {}", step.page()));
    }

    fn line(&self, text: &str) {
        self.lines.lock().push(text.to_owned());
        if self.prints {
            // A reader that is gone stops nothing.
            let _ = print(text);
        }
    }

    /// The last lines, at most so many.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let lines = self.lines.lock();
        let skipped = lines.len().saturating_sub(count);
        lines.iter().skip(skipped).cloned().collect()
    }
}
