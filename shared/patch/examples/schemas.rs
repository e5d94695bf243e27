//! Writes the table of Kubernetes' own types from a folder of OpenAPI v3 documents. Run by
//! `cargo xtask schemas`, which knows the folder.

use std::{env, error::Error, fs, path::Path};

use anteroom_patch::apply::built_in_table;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, table] = &arguments[..] else {
        return Err("give the folder with the documents, and the file to write".into());
    };
    let mut files: Vec<_> = fs::read_dir(folder)?
        .map(|item| item.map(|item| item.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let is_document = |file: &Path| file.extension().is_some_and(|kind| kind == "json");
    let mut documents = Vec::new();
    for file in files.iter().filter(|file| is_document(file)) {
        documents.push(serde_json::from_slice(&fs::read(file)?)?);
    }
    fs::write(table, built_in_table(&documents)?)?;
    Ok(())
}
