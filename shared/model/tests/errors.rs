//! Holds the documentation of error codes against the codes.

use std::{fs, path::Path};

use anteroom_model::ErrorCode;

#[test]
fn every_code_is_documented_once_and_every_documented_code_exists() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors.md");
    let page = fs::read_to_string(page).unwrap();
    let mut documented: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let mut codes: Vec<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    documented.sort_unstable();
    codes.sort_unstable();
    assert_eq!(documented, codes);
}
