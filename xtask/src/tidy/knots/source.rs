//! The modules of a crate, read from its files: the items that each defines, imports, re-exports and names.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path, segment by segment: of a module below the crate's root, or as it is written in the code.
pub(in crate::tidy) type Segments = Vec<String>;

/// The names that a file defines and reaches.
#[derive(Debug, Default)]
pub(in crate::tidy) struct Module {
    pub(super) items: BTreeSet<String>,
    /// Imports by the name that each has here; `*` for all names of a module.
    pub(super) imports: BTreeSet<(String, Segments)>,
    pub(super) reexports: BTreeSet<(String, Segments)>,
    /// Paths in the code, beside those of `use`.
    pub(super) paths: BTreeSet<Segments>,
}

/// All modules below a crate's `src`, by path; tests are left out. A `main.rs` beside a `lib.rs` is left out
/// too, since nothing can import it.
pub(in crate::tidy) fn modules(src: &Path) -> anyhow::Result<BTreeMap<Segments, Module>> {
    let mut modules = BTreeMap::new();
    let roots: &[&str] = if src.join("lib.rs").exists() {
        &["lib"]
    } else {
        &["main"]
    };
    collect(src, &mut Vec::new(), roots, &mut modules)?;
    Ok(modules)
}

fn collect(
    folder: &Path,
    above: &mut Segments,
    roots: &[&str],
    modules: &mut BTreeMap<Segments, Module>,
) -> anyhow::Result<()> {
    for item in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = item?.path();
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name == "tests" {
            continue;
        }
        if path.is_dir() {
            above.push(name);
            collect(&path, above, roots, modules)?;
            above.pop();
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let mut module = above.clone();
        let is_top = above.is_empty();
        match name.as_str() {
            "mod" => {}
            "lib" | "main" if is_top && roots.contains(&name.as_str()) => {}
            "lib" | "main" if is_top => continue,
            _ => module.push(name),
        }
        let text = fs::read_to_string(&path)?;
        let stream: TokenStream = text
            .parse()
            .map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        modules.insert(module, read(&tokens));
    }
    Ok(())
}

/// The tokens of a file's code, and those of its items behind `#[cfg(test)]`.
pub(in crate::tidy) fn tokens(text: &str) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let stream: TokenStream = text.parse().map_err(|error| anyhow!("{error}"))?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    let (mut source, mut tests, mut at) = (Vec::new(), Vec::new(), 0);
    while at < tokens.len() {
        let (into, end) = match is_for_tests(&tokens, at) {
            true => (&mut tests, behind_item(&tokens, at)),
            false => (&mut source, at + 1),
        };
        into.extend_from_slice(&tokens[at..end]);
        at = end;
    }
    Ok((source, tests))
}

/// Returns whether `#[cfg(test)]` stands here.
fn is_for_tests(tokens: &[String], at: usize) -> bool {
    let here = tokens.iter().skip(at).take(6);
    here.eq(["#", "[", "cfg", "(", "test", ")"])
}

/// Tokens without comments and literals, with `::` as one.
fn flatten(stream: TokenStream, tokens: &mut Vec<String>) {
    let mut stream = stream.into_iter().peekable();
    while let Some(tree) = stream.next() {
        match tree {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                tokens.push(open.to_owned());
                flatten(group.stream(), tokens);
                tokens.push(close.to_owned());
            }
            TokenTree::Punct(punct) => {
                let next = stream.peek();
                let is_colons = punct.as_char() == ':'
                    && matches!(next, Some(TokenTree::Punct(next)) if next.as_char() == ':');
                if is_colons {
                    stream.next();
                    tokens.push("::".to_owned());
                } else {
                    tokens.push(punct.to_string());
                }
            }
            TokenTree::Ident(ident) => tokens.push(ident.to_string()),
            TokenTree::Literal(_) => {}
        }
    }
}

/// Reads a file's tokens.
fn read(tokens: &[String]) -> Module {
    const ITEMS: [&str; 9] = [
        "struct",
        "enum",
        "trait",
        "fn",
        "const",
        "static",
        "type",
        "union",
        "macro_rules",
    ];
    let mut module = Module::default();
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", token);
        if is_for_tests(tokens, at) {
            at = behind_item(tokens, at);
            continue;
        }
        if token(at) == "use" && before != "::" {
            let mut leaves = Vec::new();
            at = use_tree(tokens, at + 1, &[], &mut leaves);
            let is_public = before == "pub" || before == ")";
            let into = if is_public {
                &mut module.reexports
            } else {
                &mut module.imports
            };
            into.extend(leaves);
            continue;
        }
        if ITEMS.contains(&token(at)) {
            let name = if token(at + 1) == "!" { at + 2 } else { at + 1 };
            module.items.insert(token(name).to_owned());
        }
        if is_name(token(at)) && token(at + 1) == "::" && before != "::" {
            let mut path = vec![token(at).to_owned()];
            at += 1;
            while token(at) == "::" && is_name(token(at + 1)) {
                path.push(token(at + 1).to_owned());
                at += 2;
            }
            module.paths.insert(path);
            continue;
        }
        at += 1;
    }
    module
}

/// The place behind an item for tests, which begins at its first attribute.
fn behind_item(tokens: &[String], mut at: usize) -> usize {
    while tokens.get(at).is_some_and(|token| token == "#") {
        at = behind_group(tokens, at + 1);
    }
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            ";" => return at + 1,
            "{" => return behind_group(tokens, at),
            _ => at += 1,
        }
    }
    at
}

/// The place behind the group that opens here.
fn behind_group(tokens: &[String], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "{" | "[" | "(" => depth += 1,
            "}" | "]" | ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// Reads the `use` tree that begins here, and returns the place behind it.
fn use_tree(
    tokens: &[String],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(String, Segments)>,
) -> usize {
    let token = |at: usize| tokens.get(at).map_or("", String::as_str);
    let mut path = prefix.to_vec();
    loop {
        match token(at) {
            "{" => {
                at += 1;
                while !matches!(token(at), "}" | "") {
                    at = use_tree(tokens, at, &path, leaves);
                    at += usize::from(token(at) == ",");
                }
                return at + 1;
            }
            "*" => {
                leaves.push(("*".to_owned(), path));
                return at + 1;
            }
            "::" => at += 1,
            "as" => {
                leaves.push((token(at + 1).to_owned(), path));
                return at + 2;
            }
            name if is_name(name) => {
                path.push(name.to_owned());
                at += 1;
                if !matches!(token(at), "::" | "as") {
                    break;
                }
            }
            // No `use` tree: what follows is read as code.
            _ => return at,
        }
    }
    if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
        path.pop();
    }
    leaves.extend(path.last().cloned().map(|name| (name, path)));
    at
}

fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}
