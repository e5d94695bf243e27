//! Sentences of pages: short enough to be understood at once.
//!
//! A paragraph, an item of a list and a cell of a table are a text each. Blocks of code, comments and headings are none.

use super::links::Pages;

/// The mean length of a page's sentences stays below this many words.
const MEAN_WORDS_LIMIT: usize = 15;

/// A sentence with more words is long.
const SENTENCE_WORDS_MAX: usize = 30;

/// The share of long sentences on a page stays below this many percent.
const LONG_PERCENT_LIMIT: usize = 2;

/// A text with fewer words is a name or a figure, and no sentence.
const SENTENCE_WORDS_MIN: usize = 3;

/// The word that stands for code between backticks.
const CODE: &str = "code";

/// Returns the complaints about pages whose sentences are too long.
pub(super) fn check(pages: &Pages) -> Vec<String> {
    let complaints = pages
        .iter()
        .flat_map(|(name, text)| complaints(&name.display().to_string(), text));
    complaints.collect()
}

fn complaints(page: &str, text: &str) -> Vec<String> {
    let sentences = sentences(text);
    let count = sentences.len();
    let words: usize = sentences.iter().map(|(words, _)| words).sum();
    let mut complaints = Vec::new();
    if words >= MEAN_WORDS_LIMIT * count.max(1) {
        complaints.push(format!(
            "{page}: its sentences have {} words on average, and must have less than {MEAN_WORDS_LIMIT}",
            words / count
        ));
    }
    let is_long = |sentence: &&(usize, String)| sentence.0 > SENTENCE_WORDS_MAX;
    let long: Vec<_> = sentences.iter().filter(is_long).collect();
    if !long.is_empty() && long.len() * 100 >= LONG_PERCENT_LIMIT * count {
        complaints.extend(long.into_iter().map(|(words, sentence)| {
            format!(
                "{page}: {LONG_PERCENT_LIMIT} % of its sentences or more have over {SENTENCE_WORDS_MAX} words: shorten \
                 \"{sentence}\", which has {words}"
            )
        }));
    }
    complaints
}

/// Returns the sentences of a page, each with its number of words. A sentence ends with a full stop, a question mark or
/// an exclamation mark before white space.
fn sentences(page: &str) -> Vec<(usize, String)> {
    let mut sentences = Vec::new();
    for text in texts(page) {
        let mut sentence = Vec::new();
        let shown = shown(&text);
        for part in shown.split_whitespace() {
            sentence.push(part);
            if part.ends_with(['.', '?', '!']) {
                take(&mut sentence, &mut sentences);
            }
        }
        take(&mut sentence, &mut sentences);
    }
    sentences
}

/// Moves a sentence to the others, unless it is too short for one.
fn take(sentence: &mut Vec<&str>, sentences: &mut Vec<(usize, String)>) {
    let text = std::mem::take(sentence).join(" ");
    let parts = text.split(|c: char| !c.is_alphabetic() && c != '\'');
    let words = parts.filter(|word| !word.is_empty()).count();
    if words >= SENTENCE_WORDS_MIN {
        sentences.push((words, text));
    }
}

/// Returns the texts of a page.
fn texts(page: &str) -> Vec<String> {
    let mut texts = vec![String::new()];
    let (mut is_code, mut is_comment) = (false, false);
    for line in page.lines().map(str::trim) {
        if line.starts_with("```") {
            is_code = !is_code;
            texts.push(String::new());
        } else if !is_code && (is_comment || line.starts_with("<!--")) {
            is_comment = !line.ends_with("-->");
            texts.push(String::new());
        } else if !is_code {
            add(line, &mut texts);
        }
    }
    texts
}

/// Adds a line to the last text, or begins one or more others.
fn add(line: &str, texts: &mut Vec<String>) {
    if line.starts_with('|') {
        texts.extend(cells(line));
        texts.push(String::new());
    } else if line.is_empty() || line.starts_with('#') {
        texts.push(String::new());
    } else if let Some(item) = item(line) {
        texts.push(item.to_owned());
    } else if let Some(text) = texts.last_mut() {
        text.push(' ');
        text.push_str(line);
    }
}

/// Returns the text of a list's item after its bullet or number.
fn item(line: &str) -> Option<&str> {
    let bulleted = line.strip_prefix("- ").or(line.strip_prefix("* "));
    bulleted.or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.strip_prefix(". ").filter(|_| rest.len() < line.len())
    })
}

/// Returns the cells of a table's row. A bar after a backslash or within code is a part of its cell.
fn cells(row: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let (mut is_code, mut last) = (false, ' ');
    for c in row.chars() {
        is_code ^= c == '`';
        if c == '|' && !is_code && last != '\\' {
            cells.push(String::new());
        } else if let Some(cell) = cells.last_mut() {
            cell.push(c);
        }
        last = c;
    }
    cells
}

/// Returns what a reader sees of a text: links by what is shown of them, and a word in place of code.
fn shown(text: &str) -> String {
    let mut prose = String::new();
    for (at, part) in text.split('`').enumerate() {
        prose.push_str(if at % 2 == 0 { part } else { CODE });
    }
    let mut parts = prose.split("](");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    shown.retain(|c| !['*', '[', '>'].contains(&c));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(page: &str) -> Vec<String> {
        let sentences = sentences(page).into_iter();
        sentences
            .map(|(words, text)| format!("{words} {text}"))
            .collect()
    }

    /// Returns a sentence of this many words.
    fn of_words(words: usize) -> String {
        format!("{}end. ", "word ".repeat(words - 1))
    }

    #[test]
    fn sentences_end_with_a_mark_before_white_space() {
        let page = "One of these is v1.2 of it. Is it one? That it is!\nThis line\ngoes on: here.\n\nAnd no mark";
        let expected = [
            "7 One of these is v1.2 of it.",
            "3 Is it one?",
            "3 That it is!",
            "5 This line goes on: here.",
            "3 And no mark",
        ];
        assert_eq!(said(page), expected);
    }

    #[test]
    fn items_and_cells_are_texts_and_code_comments_and_headings_are_none() {
        let page = "# A heading of five words\nA list has:\n\n- the first of two\n  items\n10. the tenth of all\n\n\
                    | one two | `a | b` is three |\n|---|---|\n| one \\| two three | **four** |\n\
                    ```sh\necho this is no text\n```\n<!-- nor is this -->\n<!-- nor\nis that one -->\nThe end of it\n";
        let expected = [
            "3 A list has:",
            "5 the first of two items",
            "4 the tenth of all",
            "3 code is three",
            "3 one \\| two three",
            "4 The end of it",
        ];
        assert_eq!(said(page), expected);
    }

    #[test]
    fn links_and_code_count_as_they_are_shown() {
        let page =
            "See [the *page* of it](docs/page.md#of-it) and `cargo xtask tidy`. It isn't long";
        let expected = ["7 See the page of it and code.", "3 It isn't long"];
        assert_eq!(said(page), expected);
    }

    #[test]
    fn a_page_of_long_sentences_is_a_problem() {
        let check = |text: &str| complaints("a.md", text);
        assert_eq!(check(""), [""; 0]);
        assert_eq!(check(&of_words(14)), [""; 0]);
        let told = check(&of_words(15));
        assert_eq!(
            told,
            ["a.md: its sentences have 15 words on average, and must have less than 15"]
        );
        // One in 51 is under 2 %, and one in 50 is not.
        let page = |short: usize| of_words(31) + &of_words(3).repeat(short);
        assert_eq!(check(&page(50)), [""; 0]);
        let told = check(&page(49)).concat();
        assert!(
            told.contains("shorten \"word word") && told.ends_with("which has 31"),
            "{told}"
        );
        assert_eq!(check(&(of_words(30) + &of_words(3).repeat(3))), [""; 0]);
    }
}
