//! A page in the terminal that is drawn again and again.

use std::io::{Write as _, stdout};

use anyhow::Context as _;
use crossterm::{
    cursor::{Hide, MoveTo, Show},
    event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    execute, queue,
    style::Print,
    terminal::{
        Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
        enable_raw_mode, size,
    },
};
use futures::StreamExt as _;

/// A key, as far as it means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPress {
    /// `q`, or Ctrl-C.
    Quit,
    /// The key Enter.
    Enter,
    /// The key Escape.
    Escape,
    /// The key Backspace.
    Backspace,
    /// Any other character.
    Character(char),
    /// The terminal has another size: everything is to be drawn again.
    Resized,
}

/// The terminal, until it is dropped.
pub struct Screen {
    events: EventStream,
}

impl Screen {
    /// Takes the terminal over.
    ///
    /// # Errors
    /// There is no terminal.
    pub fn open() -> anyhow::Result<Self> {
        enable_raw_mode().context("the terminal cannot be taken over")?;
        let screen = Self {
            events: EventStream::new(),
        };
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// The next key that means something.
    ///
    /// # Errors
    /// The terminal was closed.
    pub async fn key(&mut self) -> anyhow::Result<KeyPress> {
        loop {
            let event = self
                .events
                .next()
                .await
                .context("the terminal was closed")?;
            if let Some(key) = key_of(&event.context("the terminal cannot be read")?) {
                return Ok(key);
            }
        }
    }

    /// Draws a page: what does not fit is cut off.
    ///
    /// # Errors
    /// The terminal was closed.
    pub fn draw(&mut self, page: &str) -> anyhow::Result<()> {
        let (columns, rows) = size().context("the terminal has no size")?;
        let mut out = stdout().lock();
        queue!(out, Clear(ClearType::All))?;
        for (row, line) in (0..rows).zip(page.lines()) {
            queue!(out, MoveTo(0, row), Print(fit(line, columns)))?;
        }
        out.flush()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is nothing else to do if the terminal is gone.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// At most so many characters of a line, and none that moves the cursor: names come from the cluster.
fn fit(line: &str, columns: u16) -> String {
    let shown = line
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c });
    shown.take(columns.into()).collect()
}

fn key_of(event: &Event) -> Option<KeyPress> {
    match event {
        Event::Resize(..) => Some(KeyPress::Resized),
        Event::Key(KeyEvent {
            code,
            modifiers,
            kind: KeyEventKind::Press | KeyEventKind::Repeat,
            ..
        }) => match code {
            // In raw mode it sends no signal.
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Some(KeyPress::Quit),
            KeyCode::Char('q') => Some(KeyPress::Quit),
            KeyCode::Char(typed) => Some(KeyPress::Character(*typed)),
            KeyCode::Enter => Some(KeyPress::Enter),
            KeyCode::Esc => Some(KeyPress::Escape),
            KeyCode::Backspace => Some(KeyPress::Backspace),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_and_lines_cut() {
        let press = |code, modifiers| key_of(&Event::Key(KeyEvent::new(code, modifiers)));
        let plain = KeyModifiers::NONE;
        assert_eq!(
            press(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(KeyPress::Quit)
        );
        assert_eq!(
            press(KeyCode::Char('c'), plain),
            Some(KeyPress::Character('c'))
        );
        assert_eq!(press(KeyCode::Char('q'), plain), Some(KeyPress::Quit));
        assert_eq!(press(KeyCode::F(1), plain), None);
        assert_eq!(key_of(&Event::Resize(80, 24)), Some(KeyPress::Resized));
        assert_eq!(fit("abcdef", 3), "abc");
        assert_eq!(fit("a\u{1b}[2Jb", 80), "a\u{fffd}[2Jb");
    }
}
