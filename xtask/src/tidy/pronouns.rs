//! Comments that are made of pronouns rather than nouns, which a reader has to translate first.

/// Words that stand for a noun which the reader has to find.
const PRONOUNS: &str = " it its one ones that this those these what which who whoever whatever other others another \
                        such so same ";

/// A comment with fewer words is not judged by its pronouns.
const WORDS_MIN: usize = 8;

/// The greatest share of pronouns in a comment: one word of so many.
const SHARE_MAX: usize = 4;

/// Comments of the repository that may exceed the share. The limit only ever falls.
const COMMENTS_MAX: usize = 5;

/// A sentence with fewer words is not judged by its pronouns.
const SENTENCE_WORDS_MIN: usize = 5;

/// The greatest share of pronouns in a sentence, in percent. No sentence may exceed it. The share only ever falls.
const SENTENCE_PERCENT_MAX: usize = 40;

/// The word that stands for code between backticks.
const CODE: &str = "`";

/// Adds the places of a file's comments that exceed the share of pronouns, and complaints about one-word docs and
/// about sentences of pronouns.
pub(super) fn read(name: &str, text: &str, places: &mut Vec<String>, problems: &mut Vec<String>) {
    for (line, mark, comment) in comments(text) {
        let words = words(&comment);
        if mark != "//" && words.len() == 1 && words[0] != CODE {
            let rule = "a doc comment of one word: say what the item is or does";
            problems.push(format!("{name}:{line}: {rule}"));
        }
        if words.len() >= WORDS_MIN && pronouns(&words) * SHARE_MAX > words.len() {
            places.push(format!("{name}:{line}"));
        }
        let prose: String = comment.split("```").step_by(2).collect();
        for sentence in sentences(&prose) {
            let of = self::words(sentence);
            let percent = pronouns(&of) * 100 / of.len().max(1);
            if of.len() >= SENTENCE_WORDS_MIN && percent > SENTENCE_PERCENT_MAX {
                let said = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
                problems.push(format!(
                    "{name}:{line}: {percent} % of a sentence's words are pronouns, {SENTENCE_PERCENT_MAX} % at most: \
                     name the nouns in \"{said}\""
                ));
            }
        }
    }
}

fn pronouns(words: &[String]) -> usize {
    let is_pronoun = |word: &&String| PRONOUNS.contains(&format!(" {word} "));
    words.iter().filter(is_pronoun).count()
}

/// Returns the sentences of a text. A sentence ends with a mark of punctuation before white space.
fn sentences(comment: &str) -> impl Iterator<Item = &str> {
    let is_end = |part: &&str| part.trim_end().ends_with(['.', ':', ';', '?', '!']);
    let mut rest = comment;
    std::iter::from_fn(move || {
        let length: usize = rest
            .split_inclusive(char::is_whitespace)
            .scan(false, |ended, part| {
                let taken = !std::mem::replace(ended, *ended || is_end(&part));
                taken.then_some(part.len())
            })
            .sum();
        let (sentence, after) = rest.split_at(length);
        rest = after;
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// Returns a complaint if there are more such comments than the limit.
pub(super) fn check(places: &[String]) -> Option<String> {
    let count = places.len();
    (count > COMMENTS_MAX).then(|| {
        format!(
            "{count} comments have a pronoun (`it`, `one`, `that`) for more than one word in {SHARE_MAX}, {COMMENTS_MAX} \
             at most: name who does what in one of {}",
            places.join(", ")
        )
    })
}

/// Returns the comments on lines of their own: first line, mark, and text without tables.
fn comments(text: &str) -> Vec<(usize, &str, String)> {
    let mut comments: Vec<(usize, &str, String)> = Vec::new();
    let mut last = (0, "");
    for (number, line) in (1..).zip(text.lines().map(str::trim_start)) {
        let marks = ["///", "//!", "//"];
        let Some(mark) = marks.into_iter().find(|mark| line.starts_with(mark)) else {
            continue;
        };
        if last != (number - 1, mark) {
            comments.push((number, mark, String::new()));
        }
        last = (number, mark);
        let said = line[mark.len()..].trim();
        if let Some((.., comment)) = comments.last_mut().filter(|_| !said.starts_with('|')) {
            comment.push_str(said);
            comment.push('\n');
        }
    }
    comments
}

/// Returns the words of a comment in lower case, without blocks of code; code in a line is [`CODE`].
fn words(comment: &str) -> Vec<String> {
    let prose = comment.split("```").step_by(2).collect::<String>();
    let mut words = Vec::new();
    for (at, part) in prose.split('`').enumerate() {
        let parts = part.split(|c: char| !c.is_alphabetic() && c != '\'' && c != '-');
        match at % 2 {
            0 => words.extend(parts.filter(|word| !word.is_empty()).map(str::to_lowercase)),
            _ => words.push(CODE.to_owned()),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_of_pronouns_are_a_problem_beyond_the_limit() {
        let text = "/// The leader of a group writes its views, and renews its lease.\nfn f() {}\n\
                    /// | it | one |\n/// The reader of a list that has\n/// another one in it is done.\n";
        let (mut places, mut problems) = (Vec::new(), Vec::new());
        read("a.rs", text, &mut places, &mut problems);
        assert_eq!(
            (&*places, &*problems),
            (&["a.rs:3".to_owned()][..], &[][..])
        );
        assert_eq!(check(&vec![places[0].clone(); COMMENTS_MAX]), None);
        let told = check(&vec![places[0].clone(); COMMENTS_MAX + 1]).unwrap();
        assert!(
            told.starts_with("6 comments") && told.ends_with("a.rs:3"),
            "{told}"
        );
    }

    #[test]
    fn a_sentence_of_pronouns_is_a_problem_within_a_long_comment_too() {
        let long = "/// Returns the views of a group in the order of their names, without views of other groups.";
        let text = format!("{long}\n/// What it is, others say. The one: it.\nfn f() {{}}\n");
        let (mut places, mut problems) = (Vec::new(), Vec::new());
        read("a.rs", &text, &mut places, &mut problems);
        assert_eq!(places, [""; 0]);
        assert_eq!(
            problems,
            [
                "a.rs:1: 60 % of a sentence's words are pronouns, 40 % at most: name the nouns in \
              \"What it is, others say.\""
            ]
        );
    }

    #[test]
    fn a_doc_comment_of_one_word_is_a_problem_unless_the_word_is_code() {
        for (text, expected) in [
            ("/// Counts.", 1),
            ("/// `a.b`", 0),
            ("// Counts.", 0),
            ("/// The counts.", 0),
        ] {
            let (mut places, mut problems) = (Vec::new(), Vec::new());
            read("a.rs", text, &mut places, &mut problems);
            assert_eq!(problems.len(), expected, "{text}: {problems:?}");
        }
    }
}
