//! Plain manifests, rendered from the Helm chart.

use std::{fs, process::Command};

use anyhow::{Context as _, ensure};

use crate::{
    parts,
    shell::{root, say},
};

/// The flags of every rendering. The version is the oldest that the chart is for.
const COMMON: [&str; 7] = [
    "template",
    "anteroom",
    "deploy/chart",
    "--namespace",
    "anteroom",
    "--kube-version",
    "1.30.0",
];

/// A file of `deploy/install`, and the flags that it is rendered with.
const FILES: [(&str, &[&str]); 4] = [
    ("crds", &["--show-only", "templates/crds.yaml"]),
    ("default", WITHOUT_HELM),
    (
        "ha",
        &[
            WITHOUT_HELM[0],
            WITHOUT_HELM[1],
            "--values",
            "deploy/chart/values-ha.yaml",
        ],
    ),
    (
        "one-nats-server",
        &[
            WITHOUT_HELM[0],
            WITHOUT_HELM[1],
            "--values",
            "deploy/chart/values-one-nats-server.yaml",
        ],
    ),
];

/// What Helm does otherwise: hooks, and the namespace. Definitions have a file of their own.
const WITHOUT_HELM: &[&str] = &[
    "--set",
    "hooks.enabled=false,namespace.create=true,crds.install=false",
];

/// Renders the chart into each file of `deploy/install`.
pub(crate) fn write() -> anyhow::Result<()> {
    parts::build(&[parts::HELM], false)?;
    for (name, flags) in FILES {
        let path = root().join("deploy/install").join(format!("{name}.yaml"));
        let args: Vec<_> = COMMON.iter().chain(flags).copied().collect();
        let text = format!(
            "# Rendered from deploy/chart by `cargo xtask chart`: change it there.\n# helm {}\n{}",
            args.join(" "),
            render(&args)?
        );
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        say(&format!("wrote deploy/install/{name}.yaml"));
    }
    Ok(())
}

fn render(args: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(parts::folder().join(parts::HELM));
    command.current_dir(root()).args(args);
    let output = command
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
