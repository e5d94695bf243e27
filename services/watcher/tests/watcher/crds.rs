//! Holds `deploy/chart/files/crds` against the Rust types. `cargo xtask crds` writes it anew.

use std::{fs, path::PathBuf};

const HEADER: &str =
    "# Written by `cargo xtask crds` from the Rust types; a test holds it against them.\n";

#[test]
fn the_deployed_definitions_are_those_of_the_types() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/chart/files/crds");
    let write = std::env::var_os("ANTEROOM_UPDATE").is_some();
    let mut expected = Vec::new();
    for crd in anteroom_watcher::crds() {
        let name = format!("{}.yaml", crd.metadata.name.clone().unwrap());
        let text = format!("{HEADER}{}", serde_saphyr::to_string(&crd).unwrap());
        if write {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(&name), &text).unwrap();
        }
        let found = fs::read_to_string(folder.join(&name)).unwrap_or_default();
        assert_eq!(
            found, text,
            "deploy/chart/files/crds/{name} is out of date: run `cargo xtask crds`"
        );
        expected.push(name);
    }
    let mut found: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "kustomization.yaml")
        // An API that others define.
        .filter(|name| !name.ends_with(".wgpolicyk8s.io.yaml"))
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(
        found, expected,
        "deploy/chart/files/crds holds a file that no type stands behind"
    );
}
