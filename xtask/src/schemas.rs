//! The table of Kubernetes' own types, from the OpenAPI documents in the pinned version's Go module.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, bail};

use crate::shell::{cargo, root, run};

const MODULE: &str = "k8s.io/kubernetes";

/// The folder of the documents in the module, one for each group and version.
const DOCUMENTS: &str = "api/openapi-spec/v3";

const TABLE: &str = "shared/patch/src/apply/built_in.json";

/// Writes the table.
pub(crate) fn write() -> anyhow::Result<()> {
    let documents = module()?.join(DOCUMENTS);
    let crate_and_example = ["-p", "anteroom-patch", "--example", "schemas", "--"];
    run(cargo(&["run"])
        .args(crate_and_example)
        .arg(documents)
        .arg(root().join(TABLE)))
}

/// The folder of the module's sources, which are downloaded if they are not there.
fn module() -> anyhow::Result<PathBuf> {
    let output = Command::new("go")
        .current_dir(root().join("tests/parts"))
        .args(["mod", "download", "-json", MODULE])
        .output()
        .context("cannot start `go`: install Go 1.26 or newer")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("go mod download {MODULE}: {said}");
    }
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let folder = answer["Dir"].as_str();
    Ok(folder.context("go mod download tells no folder")?.into())
}
