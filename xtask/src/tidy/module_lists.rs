//! Names of modules in the head of a file: a module that a table or a list describes exists, as the file's own. If there
//! is such a table, the head names all modules of the file.

/// The first cell of a table of modules.
const TABLE_HEAD: &str = "module";

/// The keywords after which a file defines a name.
const KEYWORDS: [&str; 8] = [
    "mod", "fn", "struct", "enum", "trait", "type", "const", "static",
];

/// Returns a complaint about each name in a table or list of modules that the file does not define, and about each module
/// that is missing there.
pub(super) fn check(name: &str, text: &str) -> Vec<String> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let head = (1..).zip(head.map(|line| line.trim_start_matches("//!").trim()));
    let (mut in_table, mut has_table, mut problems) = (false, false, Vec::new());
    for (number, line) in head {
        let listed = match line.strip_prefix('|') {
            Some(row) => {
                let first = row.split('|').next().unwrap_or_default().trim();
                in_table |= first == TABLE_HEAD;
                has_table |= in_table;
                in_table.then_some(first)
            }
            None => {
                in_table = false;
                let item = line.strip_prefix("- `").unwrap_or_default();
                let is_of_modules = item.split('`').next().is_some_and(is_module);
                is_of_modules.then_some(line)
            }
        };
        let unknown = listed
            .into_iter()
            .flat_map(modules)
            .filter(|module| !defines(text, module));
        problems.extend(unknown.map(|module| {
            format!(
                "{name}:{number}: `{module}` is no module of this file: write the name it has now"
            )
        }));
    }
    if has_table {
        problems.extend(unlisted(name, text));
    }
    problems
}

/// Returns a complaint about each module of a file that its head does not name. Modules with an attribute, as those for
/// tests, need not be named.
fn unlisted(name: &str, text: &str) -> Vec<String> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    let listed: Vec<&str> = head.flat_map(modules).collect();
    let before = std::iter::once("").chain(text.lines());
    let lines = (1..).zip(before.zip(text.lines()));
    let missing = lines.filter_map(|(number, (before, line)): (usize, _)| {
        let module = declared(line)?;
        let is_missing = !before.starts_with("#[") && !listed.contains(&module);
        is_missing.then(|| {
            format!("{name}:{number}: `{module}` is not in the table of modules: add its row")
        })
    });
    missing.collect()
}

/// Returns the module that a line declares at the top of a file.
fn declared(line: &str) -> Option<&str> {
    let (visibility, rest) = line.split_once("mod ")?;
    let is_declaration = visibility.is_empty() || visibility.starts_with("pub");
    let (module, _) = rest.split_once([';', ' '])?;
    (is_declaration && is_module(module)).then_some(module)
}

/// Returns the names of modules in code: words in lower case, and the first such word of a path.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    let codes = text.split('`').skip(1).step_by(2);
    let names = codes.map(|code| code.split("::").next().unwrap_or_default());
    names.filter(|name| is_module(name))
}

/// Returns whether this is written as names of modules are: in lower case, with digits and underscores.
fn is_module(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !name.is_empty() && name.chars().all(is_part)
}

/// Returns whether the file declares a module or an item of this name.
fn defines(text: &str, name: &str) -> bool {
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let words: Vec<&str> = line
            .split(|c| !is_word(c))
            .filter(|w| !w.is_empty())
            .collect();
        let pairs = words.windows(2);
        pairs
            .map(|pair| (pair[0].to_owned(), pair[1] == name))
            .collect::<Vec<_>>()
    })
    .any(|(keyword, is_name)| is_name && KEYWORDS.contains(&keyword.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_module_that_the_file_does_not_declare_is_a_problem() {
        let head = "//! A head.\n//!\n//! | module | content |\n//! |---|---|\n//! | `a`, `gone` | `other` things |\n//!\n\
                    //! - `b` lists, and `left` too;\n//! - `NumPending` is not a module, nor is `zero`.\n//!\n//! | word | |\n//! | `c` | |\n";
        let text = format!("{head}\nmod a;\npub(crate) fn b() {{}}\n// mod gone;\n");
        let told = check("a.rs", &text);
        let of = |line, name| {
            format!("a.rs:{line}: `{name}` is no module of this file: write the name it has now")
        };
        assert_eq!(told, [of(5, "gone"), of(7, "left")]);
        let mended = format!("{text}mod gone;\npub mod left {{}}\n");
        assert_eq!(check("a.rs", &mended), [""; 0]);
        let more = format!("{mended}pub(super) mod more;\n#[cfg(test)]\nmod tests;\n");
        let told = "a.rs:18: `more` is not in the table of modules: add its row";
        assert_eq!(check("a.rs", &more), [told]);
        let without_table = more.replace("| module |", "| word |");
        assert!(!check("a.rs", &without_table).contains(&told.to_owned()));
    }
}
