//! Runs programs of a second revision beside the programs of the present revision.

use std::path::Path;

use crate::{
    parts,
    shell::{cargo, root, run, target},
};

/// Builds the programs of `revision`, and runs the story that replaces service after service.
pub(crate) fn mixed(revision: &str) -> anyhow::Result<()> {
    let folder = target().join("mixed");
    let (tree, built) = (folder.join("tree"), folder.join("build"));
    let checked_out = check_out(revision, &tree);
    let outcome = checked_out.and_then(|()| {
        run(cargo(&["build", "-p", "anteroom"])
            .current_dir(&tree)
            .env("CARGO_TARGET_DIR", &built))?;
        parts::build(&parts::ALL, false)?;
        run(&mut cargo(&[
            "build",
            "--bins",
            "--test",
            "e2e",
            "--workspace",
            "--all-features",
        ]))?;
        let story = "programs_of_two_releases";
        run(
            cargo(&["test", "-p", "anteroom-e2e", "--test", "e2e", story])
                .args(["--", "--nocapture"])
                .env("ANTEROOM_OTHER_PROGRAMS", built.join("debug")),
        )
    });
    let removed = run(git(&["worktree", "remove", "--force"]).arg(&tree));
    outcome.and(removed)
}

fn check_out(revision: &str, tree: &Path) -> anyhow::Result<()> {
    run(git(&["worktree", "add", "--force", "--detach"])
        .arg(tree)
        .arg(revision))
}

fn git(args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new("git");
    command.current_dir(root()).args(args);
    command
}
