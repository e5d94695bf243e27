//! Links of pages to each other: each file and each heading must exist.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::Context as _;

/// Folders whose pages are looked at, with those below them, beside the pages at the root.
const FOLDERS: [&str; 2] = ["deploy", "docs"];

/// Pages by their paths below the root.
pub(super) type Pages = BTreeMap<PathBuf, String>;

/// Reads all pages under `root`.
///
/// # Errors
/// A folder or page cannot be read.
pub(super) fn pages(root: &Path) -> anyhow::Result<Pages> {
    let mut pages = Pages::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let items = fs::read_dir(&folder);
        for item in items.with_context(|| format!("cannot read {}", folder.display()))? {
            let path = item?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).to_owned();
            if path.is_dir() {
                let is_looked_at = FOLDERS.iter().any(|folder| name.starts_with(folder));
                folders.extend(is_looked_at.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(pages)
}

/// The complaints about all links of these pages, some of which lead to other files.
pub(super) fn check(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, text) in pages {
        for target in targets(text) {
            let (file, anchor) = resolved(name, target);
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

/// The file that a link of this page leads to, and the anchor in it.
pub(super) fn resolved<'t>(page: &Path, target: &'t str) -> (PathBuf, &'t str) {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = match path {
        "" => page.to_owned(),
        path => normal(&page.parent().unwrap_or(Path::new("")).join(path)),
    };
    (file, anchor)
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

/// The targets of links that lead to files, without their titles.
pub(super) fn targets(text: &str) -> impl Iterator<Item = &str> {
    let of_line = |line| {
        let links = str::split(line, "](").skip(1);
        let links = links.filter_map(|rest| Some(rest.split_once(')')?.0));
        // `[text]: target` stands for the target of `[text]`.
        let named = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        links.chain(named.map(|(_, target)| target))
    };
    let targets = prose(text).flat_map(of_line);
    let targets = targets.filter_map(|target| target.split_whitespace().next());
    targets.filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
}

/// The anchors of a page's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let anchors = prose(text).filter_map(heading).map(|heading| {
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let before = times.entry(anchor.clone()).or_default();
        *before += 1;
        match *before {
            1 => anchor,
            n => format!("{anchor}-{}", n - 1),
        }
    });
    anchors.collect()
}

/// The text of a heading in lower case; of a link in it, what is shown.
fn heading(line: &str) -> Option<String> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    if !(1..=6).contains(&level) || !text.starts_with(' ') {
        return None;
    }
    let mut parts = text.split("](");
    let mut shown = parts.next()?.to_owned();
    for part in parts {
        shown.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    Some(shown.trim().to_lowercase())
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
            let other = "# Other\n\n## When `it` is, or not\n\n## Twice\n\n## Twice\n\n\
                         ### See [the rest](#other) & more\n\n#no-heading\n";
            let pages = [("docs/page.md", text), ("docs/other.md", other)];
            let pages = Pages::from(pages.map(|(name, text)| (name.into(), text.into())));
            check(&pages, |path| {
                pages.contains_key(path) || path == Path::new("README.md")
            })
        };
        for good in [
            "[a](other.md) and [b](other.md#when-it-is-or-not), [c](../README.md#anything)",
            "# Here\n[d](#here) [e](https://example.org/x.md) [m](mailto:a@example.org)",
            "```\n[f](nowhere.md)\n```",
            "[g](other.md#twice) [h](other.md#twice-1 \"its title\") [i](other.md#see-the-rest--more)",
            "[j]\n\n[j]: other.md#twice",
        ] {
            assert_eq!(page(good), Vec::<String>::new(), "{good}");
        }
        for (bad, says) in [
            ("[a](nowhere.md)", "does not exist"),
            ("[a](nowhere.md \"its title\")", "does not exist"),
            ("[a]\n\n[a]: nowhere.md", "does not exist"),
            ("[a](other.md#nowhere)", "no such heading"),
            ("[a](#nowhere)", "no such heading"),
            ("[a](other.md#twice-2)", "no such heading"),
            ("[a](other.md#no-heading)", "no such heading"),
        ] {
            assert!(page(bad)[0].contains(says), "{bad}: {:?}", page(bad));
        }
    }
}
