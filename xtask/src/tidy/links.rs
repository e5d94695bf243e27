//! Links of pages to each other: each file and each heading must exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::Context as _;

/// Folders whose pages are looked at, beside those at the root.
const FOLDERS: [&str; 2] = ["docs", "deploy"];

/// The complaints about all links of all pages under `root`.
///
/// # Errors
/// A folder or page cannot be read.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    for folder in [""].iter().chain(&FOLDERS) {
        for item in
            fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {folder}"))?
        {
            let path = item?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
                pages.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(of_pages(&pages, |path| root.join(path).exists()))
}

fn of_pages(pages: &BTreeMap<PathBuf, String>, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, text) in pages {
        for target in targets(text) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match path {
                "" => name.clone(),
                path => normal(&name.parent().unwrap_or(Path::new("")).join(path)),
            };
            if !exists(&file) {
                problems.push(format!(
                    "{}: links to {target}, which does not exist",
                    name.display()
                ));
                continue;
            }
            let known = pages
                .get(&file)
                .is_none_or(|text| anchors(text).contains(anchor));
            if !anchor.is_empty() && !known {
                problems.push(format!(
                    "{}: links to {target}: there is no such heading",
                    name.display()
                ));
            }
        }
    }
    problems
}

/// The lines of a page that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of links that lead to files.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = prose(text).flat_map(|line| line.split("](").skip(1));
    let targets = links.filter_map(|rest| Some(rest.split_once(')')?.0));
    targets.filter(|target| !target.contains("://"))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(normal.pop()),
            Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_no_file_or_no_heading_is_a_problem() {
        let page = |text: &str| {
            let other = (
                "docs/other.md".into(),
                "# Other\n\n## When `it` is, or not\n".to_owned(),
            );
            let pages = BTreeMap::from([("docs/page.md".into(), text.to_owned()), other]);
            of_pages(&pages, |path| {
                pages.contains_key(path) || path == Path::new("README.md")
            })
        };
        for good in [
            "[a](other.md) and [b](other.md#when-it-is-or-not), [c](../README.md#anything)",
            "# Here\n[d](#here) [e](https://example.org/x.md)",
            "```\n[f](nowhere.md)\n```",
        ] {
            assert_eq!(page(good), Vec::<String>::new(), "{good}");
        }
        assert!(page("[a](nowhere.md)")[0].contains("does not exist"));
        assert!(page("[a](other.md#nowhere)")[0].contains("no such heading"));
        assert!(page("[a](#nowhere)")[0].contains("no such heading"));
    }
}
