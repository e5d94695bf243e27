//! Runs the `console` and `sh` blocks of the project's pages. A `console` block prints what it shows, and an `sh` block, which
//! shows no output, succeeds.
//!
//! All blocks of a page share a folder. A block after a sentence that ends with "as `NAME`:" is the file NAME there. A block
//! that is not run has a comment before it that says why. Its syntax, and the options of our own commands in it, are checked.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The beginning of a comment that says why the next block is not run.
const NOT_RUN: &str = "<!-- not run: ";

/// Has our commands parse their options and do nothing else.
const PARSE_ONLY: &str = "anteroom() { command anteroom \"$@\" --help > /dev/null; }\n";

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

/// Runs a command in a folder. Returns both outputs as a terminal shows them; the error is that of a command that failed.
fn run(command: &str, folder: &Path) -> Result<String, String> {
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
    let printed = String::from_utf8(output.stdout).unwrap();
    match output.status.success() {
        true => Ok(printed),
        false => Err(printed),
    }
}

/// Returns the output of a command, which may fail.
fn printed(command: &str, folder: &Path) -> String {
    run(command, folder).unwrap_or_else(|printed| printed)
}

/// The commands of a block of either language.
fn lines(block: &Block) -> Vec<String> {
    match block.language.as_str() {
        "console" => commands(&block.text)
            .into_iter()
            .map(|(command, _)| command)
            .collect(),
        _ => block
            .text
            .replace("\\\n", " ")
            .lines()
            .map(str::to_owned)
            .collect(),
    }
}

/// Returns the faults of a block that is not run, as far as they can be seen.
fn faults(block: &Block) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let lines = lines(block);
    let mut faults = Vec::new();
    let script = lines.join("\n");
    fs::write(folder.path().join("block"), &script).unwrap();
    if let Err(said) = run("sh -n block", folder.path()) {
        faults.push(format!("no shell reads this:\n{script}\n{said}"));
    }
    let own = lines.iter().filter(|line| line.starts_with("anteroom "));
    for line in own {
        if let Err(said) = run(&format!("{PARSE_ONLY}{line}"), folder.path()) {
            faults.push(format!("{line}\nsays\n{said}"));
        }
    }
    faults
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
            ("sh", None) => {
                if let Err(said) = run(&format!("set -e\n{}", block.text), folder.path()) {
                    problems.push(format!("{}fails:\n{said}", block.text));
                }
            }
            ("console" | "sh", Some(reason)) if reason.trim().is_empty() => {
                problems.push(format!("no reason why this is not run:\n{}", block.text));
            }
            ("console" | "sh", Some(_)) => problems.extend(faults(&block)),
            (_, None) => {}
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
fn every_block_of_commands_does_what_it_shows_or_says_why_it_is_not_run() {
    let mut all = String::new();
    let mut count = 0;
    for (name, page) in pages() {
        let blocks = blocks(&page);
        count += blocks
            .iter()
            .filter(|block| block.language == "console" && excuse(block).is_none())
            .count();
        for problem in problems(&page) {
            all += &format!("{}: {problem}\n", name.display());
        }
    }
    assert!(all.is_empty(), "{all}");
    assert!(count >= 5, "only {count} blocks are run");
}

#[test]
fn a_block_that_is_not_as_it_claims_is_a_problem() {
    let file = "Save this as `a.txt`:\n\n```yaml\nb\n```\n\n";
    for good in [
        "```console\n$ cat a.txt\nb\n$ cat \\\n    a.txt | wc -l\n1\n```\n",
        "- In a list:\n\n  ```console\n  $ cat a.txt\n  b\n  ```\n",
        "<!-- not run: it needs a cluster -->\n```console\n$ cat a.txt\nc\n```\n",
        "```sh\ncat a.txt\ncat \\\n  a.txt > b.txt\n```\n",
        "<!-- not run: it needs a cluster -->\n```sh\nrm -r nowhere\nanteroom check --pre  # before\n```\n",
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
        ("```sh\ncat b.txt\ncat a.txt\n```\n", "fails:\n"),
        (
            "<!-- not run: it is slow -->\n```sh\nfor file in a b; do\n```\n",
            "no shell reads this",
        ),
        (
            "<!-- not run: it is slow -->\n```sh\nanteroom check \\\n  --no-such\n```\n",
            "--no-such",
        ),
        (
            "<!-- not run: it is slow -->\n```console\n$ anteroom nothing\n```\n",
            "nothing",
        ),
        (
            "<!-- not run: it is slow -->\n```yaml\na\n```\n",
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
