//! Tables of known fields: their names, and the list of them.

use std::{fs, path::Path};

/// The names of the tables in the files of `folder`, each with its file's path below `compile`.
fn tables(folder: &Path, below: &str, found: &mut Vec<(String, String)>) {
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        let name = format!("{below}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            tables(&path, &format!("{name}/"), found);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            let heads = text.lines().filter_map(|line| line.split_once("const "));
            let names = heads.filter_map(|(_, rest)| rest.split_once(": KnownFields = "));
            found.extend(names.map(|(constant, _)| (constant.to_owned(), name.clone())));
        }
    }
}

/// The parts of a text that stand in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

#[test]
fn each_table_of_known_fields_has_its_own_name_and_a_place_in_the_docs() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    tables(&source.join("compile"), "", &mut found);
    found.sort();
    let mut documented = Vec::new();
    let text = fs::read_to_string(source.join("compile.rs")).unwrap();
    for line in text.lines() {
        let cells: Vec<_> = line.split(" | ").collect();
        if let [_, _, constants, file] = cells[..] {
            let file = quoted(file).concat();
            let constants = quoted(constants).into_iter();
            documented.extend(constants.map(|name| (name.to_owned(), file.clone())));
        }
    }
    documented.sort();
    assert_eq!(documented, found, "the table at the head of compile.rs");
    let same = found.windows(2).find(|pair| pair[0].0 == pair[1].0);
    assert_eq!(same, None, "two tables have one name");
}
