//! ARCHITECTURE.md's list of crates: written from the manifests, and checked against them.

use std::{ffi::OsStr, fs};

use anyhow::Context;

use crate::{
    crates::{self, Crate},
    shell::{root, say},
    tidy,
};

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: written by `cargo xtask architecture` -->\n```text\n";
const END: &str = "```\n<!-- end of crates -->\n";

/// Writes the list into the page.
pub(crate) fn write() -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (before, _, after) = parts(&page)?;
    let before = with_figures(before, Lines::of(&["services", "shared"])?)?;
    let floors = crates::floors(&crates::all(root())?);
    fs::write(&path, [&before, BEGIN, &floors, END, after].concat())?;
    say(&format!("wrote the crates into {PAGE}"));
    Ok(())
}

/// The complaints about the page: a list that is not what the manifests say, a crate that is not explained.
pub(crate) fn check(crates: &[Crate]) -> anyhow::Result<Vec<String>> {
    let page =
        fs::read_to_string(root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    complaints(&page, crates)
}

fn complaints(page: &str, crates: &[Crate]) -> anyhow::Result<Vec<String>> {
    let (_, floors, _) = parts(page)?;
    let mut problems = Vec::new();
    if floors != crates::floors(crates) {
        problems.push(format!(
            "{PAGE}: its list of crates is not what the manifests say: run `cargo xtask architecture`"
        ));
    }
    let unexplained = crates
        .iter()
        .filter(|of| !page.contains(&format!("`{}`", of.folder)));
    problems
        .extend(unexplained.map(|of| format!("{PAGE}: does not say what `{}` is for", of.folder)));
    Ok(problems)
}

/// The numbers of lines of source files, without empty lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lines {
    code: usize,
    comments: usize,
    /// Lines of tests, benchmarks and examples, with their comments.
    tests: usize,
}

impl Lines {
    /// Counts the lines of all source files in these folders.
    fn of(folders: &[&str]) -> anyhow::Result<Self> {
        let (mut lines, mut files) = (Self::default(), Vec::new());
        for folder in folders {
            tidy::collect(&root().join(folder), &mut files)?;
        }
        for file in files
            .iter()
            .filter(|file| file.extension().is_some_and(|e| e == "rs"))
        {
            let is_test = |part: &OsStr| {
                ["tests", "tests.rs", "benches", "examples"]
                    .iter()
                    .any(|test| part == *test)
            };
            let text = fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            lines.add(&text, file.iter().any(is_test));
        }
        Ok(lines)
    }

    /// Adds the lines of a file. A module `tests` of a file is at its end.
    fn add(&mut self, text: &str, mut is_test: bool) {
        for line in text.lines() {
            is_test |= line.starts_with("mod tests {");
            match line.trim_start() {
                "" => {}
                _ if is_test => self.tests += 1,
                line if line.starts_with("//") => self.comments += 1,
                _ => self.code += 1,
            }
        }
    }
}

/// Returns the page with these numbers, in thousands.
fn with_figures(page: &str, lines: Lines) -> anyhow::Result<String> {
    let mut page = page.to_owned();
    for (before, number, after) in [
        ("`shared` have ", lines.code, " lines of code"),
        ("beside ", lines.comments, " of comments"),
        (" of comments and ", lines.tests, " of tests"),
    ] {
        let missing = || format!("{PAGE} has no text `{before}NUMBER{after}`");
        let end = page.find(after).with_context(missing)?;
        let start = page[..end].rfind(before).with_context(missing)? + before.len();
        page.replace_range(start..end, &format!("{},000", (number + 500) / 1_000));
    }
    Ok(page)
}

/// The page before the list, the list, and the page behind it.
fn parts(page: &str) -> anyhow::Result<(&str, &str, &str)> {
    let (before, rest) = page
        .split_once(BEGIN)
        .with_context(|| format!("{PAGE} has no line {BEGIN:?}"))?;
    let (floors, after) = rest
        .split_once(END)
        .with_context(|| format!("{PAGE} has no line {END:?}"))?;
    Ok((before, floors, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lines_are_written_in_thousands() {
        let mut lines = Lines::default();
        lines.add(
            "// A.\n\nfn a() {\n    // B.\n}\n#[cfg(test)]\nmod tests {\n    // C.\n}\n",
            false,
        );
        lines.add("// A test.\nfn a() {}\n", true);
        let expected = Lines {
            code: 3,
            comments: 2,
            tests: 5,
        };
        assert_eq!(lines, expected);
        let page = "`services` and `shared` have 1,000 lines of code, beside 1,000 of comments and 1,000 of tests.";
        let lines = Lines {
            code: 122_499,
            comments: 18_500,
            tests: 82_000,
        };
        assert_eq!(
            with_figures(page, lines).unwrap(),
            "`services` and `shared` have 122,000 lines of code, beside 19,000 of comments and 82,000 of tests."
        );
        assert!(with_figures("", lines).is_err());
    }

    #[test]
    fn a_crate_that_the_page_does_not_draw_or_explain_is_a_problem() {
        let model = Crate {
            folder: "shared/model".to_owned(),
            name: "anteroom-model".to_owned(),
            manifest: String::new(),
        };
        let said = |text: &str, list: &str| {
            complaints(
                &format!("{text}\n{BEGIN}{list}{END}"),
                std::slice::from_ref(&model),
            )
            .unwrap()
        };
        assert!(said("`shared/model`", "0  shared/model\n").is_empty());
        assert!(said("`shared/model`", "")[0].contains("cargo xtask architecture"));
        assert!(said("", "0  shared/model\n")[0].contains("what `shared/model` is for"));
    }
}
