//! The book: each page of `docs` stands in its contents once, and leads to no page outside of it.
//!
//! mdBook copies nothing from outside of the book's folder. A link that leaves it would be dead in the book.

use std::{collections::BTreeMap, path::Path};

use super::links::{Pages, resolved, targets};

/// The folder of the book's pages.
const FOLDER: &str = "docs";

/// The book's contents, below the root.
const CONTENTS: &str = "docs/SUMMARY.md";

/// The complaints about the book's contents, and about links of its pages that leave it.
pub(super) fn check(pages: &Pages) -> Vec<String> {
    let contents = Path::new(CONTENTS);
    let Some(text) = pages.get(contents) else {
        return vec![format!("{CONTENTS}: is missing")];
    };
    let mut problems = Vec::new();
    let mut places: BTreeMap<_, usize> = BTreeMap::new();
    for target in targets(text) {
        *places.entry(resolved(contents, target).0).or_default() += 1;
    }
    let own = pages.iter().filter(|(name, _)| name.starts_with(FOLDER));
    for (name, text) in own {
        match places.get(name).copied().unwrap_or(0) {
            _ if name == contents => {}
            0 => problems.push(format!(
                "{}: is not in the book: give it a line in {CONTENTS}",
                name.display()
            )),
            1 => {}
            n => problems.push(format!("{CONTENTS}: {} is in it {n} times", name.display())),
        }
        let out = targets(text).filter(|target| !resolved(name, target).0.starts_with(FOLDER));
        problems.extend(out.map(|target| {
            format!(
                "{}: links to {target}, which is outside of the book: name the file as code",
                name.display()
            )
        }));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complaints about a book with these contents and one page.
    fn said(contents: &str, page: &str) -> Vec<String> {
        let pages = [(CONTENTS, contents), ("docs/a.md", page), ("README.md", "")];
        check(&pages.map(|(name, text)| (name.into(), text.into())).into())
    }

    #[test]
    fn a_page_is_in_the_contents_exactly_once() {
        assert_eq!(said("# Reference\n\n- [A](a.md)\n", ""), [""; 0]);
        let never = said("# Reference\n", "");
        assert_eq!(
            never,
            ["docs/a.md: is not in the book: give it a line in docs/SUMMARY.md"]
        );
        let twice = said("- [A](a.md)\n- [B](./a.md#b)\n", "");
        assert_eq!(twice, ["docs/SUMMARY.md: docs/a.md is in it 2 times"]);
        assert_eq!(check(&Pages::new()), ["docs/SUMMARY.md: is missing"]);
    }

    #[test]
    fn a_page_leads_to_no_page_outside_of_the_book() {
        let contents = "- [A](a.md)\n";
        assert_eq!(
            said(contents, "[a](#a) [b](a.md) [c](https://example.org)"),
            [""; 0]
        );
        for outside in ["[a](../README.md#use-it)", "[a]: ../README.md#use-it"] {
            let found = said(contents, outside);
            assert!(
                found[0].starts_with("docs/a.md: links to ../README.md#use-it"),
                "{found:?}"
            );
        }
    }
}
