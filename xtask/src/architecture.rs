//! ARCHITECTURE.md's list of crates: written from the manifests, and checked against them.

use std::fs;

use anyhow::Context;

use crate::{
    crates::{self, Crate},
    shell::{root, say},
};

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- crates: written by `cargo xtask architecture` -->\n```text\n";
const END: &str = "```\n<!-- end of crates -->\n";

/// Writes the list into the page.
pub(crate) fn write() -> anyhow::Result<()> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let (before, _, after) = parts(&page)?;
    let floors = crates::floors(&crates::all(root())?);
    fs::write(&path, [before, BEGIN, &floors, END, after].concat())?;
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
