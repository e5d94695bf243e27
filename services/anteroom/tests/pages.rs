//! Runs the `console` blocks of the project's pages, and compares what they print.
//!
//! All blocks of a page share a folder. A block after a sentence that ends with "as `NAME`:" is the file NAME there. A block
//! that is not run has a comment before it that says why.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The beginning of a comment that says why the next block is not run.
const NOT_RUN: &str = "<!-- not run: ";

/// A block of a page, and the text before it.
struct Block {
    language: String,
    before: String,
    text: String,
}

/// The blocks of a page, without the indentation that lists give them.
fn blocks(page: &str) -> Vec<Block> {
    let (mut blocks, mut before, mut open) = (Vec::new(), String::new(), None::<(usize, Block)>);
    for line in page.lines() {
        let (content, fence) = (line.trim_start(), line.trim_start().strip_prefix("```"));
        match (&mut open, fence) {
            (None, Some(language)) => {
                let block = Block {
                    language: language.to_owned(),
                    before: std::mem::take(&mut before),
                    text: String::new(),
                };
                open = Some((line.len() - content.len(), block));
            }
            (Some(_), Some(_)) => blocks.extend(open.take().map(|(_, block)| block)),
            (Some((indentation, block)), None) => {
                block.text += line.get(*indentation..).unwrap_or_default();
                block.text.push('\n');
            }
            (None, None) => {
                before += line;
                before.push('\n');
            }
        }
    }
    blocks
}

/// The name of the file that a block is, by the text before it.
fn file(block: &Block) -> Option<String> {
    let paragraph = block.before.trim_end().split("\n\n").last()?;
    let words: Vec<_> = paragraph.split_whitespace().collect();
    let name = words
        .join(" ")
        .strip_suffix("`:")?
        .rsplit_once(" as `")?
        .1
        .to_owned();
    (!name.contains('`')).then_some(name)
}

/// Why a block is not run, if it is not.
fn excuse(block: &Block) -> Option<&str> {
    let line = block.before.trim_end().lines().last()?;
    line.trim_start()
        .strip_prefix(NOT_RUN)?
        .strip_suffix(" -->")
}

/// The commands of a block, each with what it prints.
fn commands(text: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let starts = line.strip_prefix("$ ");
        match (starts, commands.last_mut()) {
            (Some(command), _) if !goes_on => commands.push((command.to_owned(), String::new())),
            (_, Some((command, _))) if goes_on => {
                command.push('\n');
                command.push_str(line);
            }
            (_, Some((_, printed))) => {
                printed.push_str(line);
                printed.push('\n');
            }
            (_, None) => panic!("a block begins without `$ `: {line}"),
        }
        goes_on = line.ends_with('\\') && (goes_on || starts.is_some());
    }
    commands
}

/// Runs a command in a folder. Returns both outputs as a terminal shows them.
fn printed(command: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_anteroom"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":");
    path.push(env::var_os("PATH").unwrap_or_default());
    let output = Command::new("sh")
        .args(["-c", &format!("exec 2>&1\n{command}")])
        .env("PATH", path)
        .current_dir(folder)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the blocks of a page that are not what they claim to be.
fn problems(page: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let mut problems = Vec::new();
    for block in blocks(page) {
        if let Some(name) = file(&block) {
            fs::write(folder.path().join(name), &block.text).unwrap();
        }
        match (block.language.as_str(), excuse(&block)) {
            ("console", None) => {
                for (command, expected) in commands(&block.text) {
                    let found = printed(&command, folder.path());
                    if found.trim_end() != expected.trim_end() {
                        problems.push(format!("$ {command}\nprints\n{found}\nand not\n{expected}"));
                    }
                }
            }
            ("console", Some(reason)) if reason.trim().is_empty() => {
                problems.push(format!("no reason why this is not run:\n{}", block.text));
            }
            ("console", Some(_)) | (_, None) => {}
            (language, Some(_)) => {
                problems.push(format!(
                    "a block of `{language}` is never run:\n{}",
                    block.text
                ));
            }
        }
    }
    problems
}

/// All pages, with their paths below the root.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = Vec::new();
    for folder in ["", "deploy", "docs"] {
        for item in fs::read_dir(root.join(folder)).unwrap() {
            let path = item.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(&root).unwrap().to_owned();
                pages.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    pages
}

#[test]
fn every_console_block_prints_what_it_shows_or_says_why_it_is_not_run() {
    let mut all = String::new();
    let mut run = 0;
    for (name, page) in pages() {
        let blocks = blocks(&page);
        run += blocks
            .iter()
            .filter(|block| block.language == "console" && excuse(block).is_none())
            .count();
        for problem in problems(&page) {
            all += &format!("{}: {problem}\n", name.display());
        }
    }
    assert!(all.is_empty(), "{all}");
    assert!(run >= 5, "only {run} blocks are run");
}

#[test]
fn a_block_that_is_not_as_it_claims_is_a_problem() {
    let file = "Save this as `a.txt`:\n\n```yaml\nb\n```\n\n";
    for good in [
        "```console\n$ cat a.txt\nb\n$ cat \\\n    a.txt | wc -l\n1\n```\n",
        "- In a list:\n\n  ```console\n  $ cat a.txt\n  b\n  ```\n",
        "<!-- not run: it needs a cluster -->\n```console\n$ cat a.txt\nc\n```\n",
        "```sh\nrm -r nowhere\n```\n",
    ] {
        assert_eq!(problems(&format!("{file}{good}")), [""; 0], "{good}");
    }
    for (bad, says) in [
        (
            "```console\n$ cat a.txt\nc\n```\n",
            "prints\nb\n\nand not\nc",
        ),
        ("```console\n$ cat a.txt\n```\n", "prints\nb"),
        ("```console\n$ no-such-program\n```\n", "not found"),
        (
            "<!-- not run:  -->\n```console\n$ cat a.txt\n```\n",
            "no reason",
        ),
        (
            "<!-- not run: it is slow -->\n```sh\ncat a.txt\n```\n",
            "never run",
        ),
    ] {
        let found = problems(&format!("{file}{bad}"));
        assert!(
            found.iter().any(|problem| problem.contains(says)),
            "{bad}: {found:?}"
        );
    }
}
