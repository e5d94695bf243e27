//! The workflows of `.github` and the image that they build, as far as they can be read without running them.

use std::process::Command;

use super::*;

/// Jobs that may write, each with the permission. All others only read.
const WRITES: [(&str, &str, &str); 4] = [
    ("docs.yml", "publish", "id-token"),
    ("docs.yml", "publish", "pages"),
    ("release.yml", "draft", "contents"),
    ("release.yml", "publish", "id-token"),
];

/// Returns all workflows, by the names of their files.
fn workflows() -> BTreeMap<String, Value> {
    let files = fs::read_dir(root().join(".github/workflows")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut documents = documents(&path);
            assert_eq!(documents.len(), 1, "{name}");
            (name, documents.remove(0))
        })
        .collect()
}

fn jobs(workflow: &Value) -> impl Iterator<Item = (&String, &Value)> {
    workflow["jobs"].as_object().into_iter().flatten()
}

fn steps(workflow: &Value) -> impl Iterator<Item = &Value> {
    jobs(workflow).flat_map(|(_, job)| list(job, "/steps"))
}

/// Returns all shell scripts of the workflows, and the one that decides whether a change may land.
fn scripts() -> Vec<String> {
    let workflows = workflows();
    let runs = workflows.values().flat_map(steps);
    let runs = runs.filter_map(|step| step["run"].as_str().map(str::to_owned));
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    runs.chain([ci]).collect()
}

/// Returns the names of xtask's tasks. Each is one word.
fn tasks() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("xtask/src/main.rs")).unwrap();
    let (_, tasks) = text.split_once("enum Task {").unwrap();
    let (tasks, _) = tasks.split_once("\n}").unwrap();
    let lines = tasks.lines().filter_map(|line| line.strip_prefix("    "));
    lines
        .filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()))
        .filter_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric()).next())
        .map(str::to_lowercase)
        .collect()
}

/// Returns whether a text is an exact version, such as `1.2.3`.
fn is_exact(version: &str) -> bool {
    let parts: Vec<&str> = version.split('.').collect();
    let is_number = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.len() == 3 && parts.iter().all(is_number)
}

#[test]
fn workflows_give_no_rights_to_the_code_of_others() {
    let workflows = workflows();
    let names: Vec<&str> = workflows.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["advisories.yml", "ci.yml", "docs.yml", "release.yml"]
    );
    let mut writes = BTreeSet::new();
    for (name, workflow) in &workflows {
        let triggers = workflow["on"].as_object().unwrap();
        for trigger in ["pull_request_target", "workflow_run", "issue_comment"] {
            assert!(!triggers.contains_key(trigger), "{name}: {trigger}");
        }
        // What a workflow does not name here, its token may not do.
        let permissions = workflow["permissions"].as_object();
        let permissions = permissions.unwrap_or_else(|| panic!("{name} sets no permissions"));
        assert!(permissions.values().all(|right| right == "read"), "{name}");
        for (job, content) in jobs(workflow) {
            let permissions = content["permissions"].as_object().into_iter().flatten();
            for (permission, right) in permissions {
                match right.as_str() {
                    Some("read") => {}
                    Some("write") => {
                        writes.insert((name.as_str(), job.as_str(), permission.as_str()));
                    }
                    _ => panic!("{name}: {job}: {permission}: {right}"),
                }
            }
        }
    }
    assert_eq!(writes, BTreeSet::from(WRITES));
}

#[test]
fn every_action_and_runner_is_of_an_exact_version() {
    for (name, workflow) in &workflows() {
        let called = jobs(workflow).map(|(_, job)| job);
        for step in called.chain(steps(workflow)) {
            let Some(uses) = step["uses"].as_str() else {
                continue;
            };
            if let Some(own) = uses.strip_prefix("./") {
                assert!(root().join(own).is_file(), "{name}: {uses}");
                continue;
            }
            let (action, version) = uses.split_once('@').unwrap();
            let version = version.strip_prefix('v').unwrap_or_default();
            assert!(is_exact(version), "{name}: {uses}");
            if action == "actions/checkout" {
                assert_eq!(step["with"]["persist-credentials"], false, "{name}");
            }
        }
        assert!(!workflow.to_string().contains("-latest"), "{name}");
        for (job, content) in jobs(workflow) {
            let is_limited = content["timeout-minutes"].is_u64();
            assert!(is_limited || content.get("uses").is_some(), "{name}: {job}");
        }
    }
}

#[test]
fn scripts_of_workflows_are_shell_and_take_values_from_their_environment_alone() {
    for script in scripts() {
        // A value in the text of a script could be more than a value.
        assert!(!script.contains("${{"), "{script}");
        let checked = Command::new("bash").args(["-n", "-c", &script]).output();
        let checked = checked.unwrap();
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{script}\n{said}");
    }
}

#[test]
fn commands_of_workflows_exist() {
    let (scripts, tasks) = (scripts(), tasks());
    assert!(tasks.contains("ci") && tasks.contains("tidy"), "{tasks:?}");
    let mut own = 0;
    for line in scripts.iter().flat_map(|script| script.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2).filter(|pair| pair[0] == "xtask") {
            assert!(tasks.contains(pair[1]), "{line}");
            own += 1;
        }
        if words.first() == Some(&".ci/run") {
            assert!(root().join(".ci/run").is_file());
            own += 1;
        }
        if words.starts_with(&["cargo", "install"]) {
            let version = line.split_once('@').map(|(_, version)| version);
            assert!(version.is_some_and(is_exact), "{line}");
            assert!(words.contains(&"--locked"), "{line}");
        }
        if let Some(at) = words.iter().position(|word| *word == "--file") {
            let is_lock = words[at + 1].ends_with("Cargo.lock");
            assert!(!is_lock || root().join(words[at + 1]).is_file(), "{line}");
        }
    }
    assert_eq!(own, 2, "`.ci/run` is run, and runs `cargo xtask ci`");
}

/// The bases of the image are arguments, which a release gives by digest.
#[test]
fn bases_of_the_image_can_be_replaced() {
    let dockerfile = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let (arguments, stages) = dockerfile.split_once("\nFROM ").unwrap();
    let arguments: BTreeMap<&str, &str> = arguments
        .lines()
        .filter_map(|line| line.strip_prefix("ARG ")?.split_once('='))
        .collect();
    let mut known: BTreeSet<String> = arguments
        .keys()
        .map(|name| format!("${{{name}}}"))
        .collect();
    for line in format!("FROM {stages}").lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() == Some(&"FROM") {
            assert!(known.contains(words[1]), "{line}");
            known.extend(words.get(3).map(|name| (*name).to_owned()));
        }
    }
    let builder = arguments["BUILDER"].strip_prefix("rust:").unwrap();
    let (version, _) = builder.split_once('-').unwrap();
    assert!(is_exact(version), "{builder}");
    let oldest = concat!(env!("CARGO_PKG_RUST_VERSION"), ".");
    assert!(version.starts_with(oldest), "{builder}");
    let scripts = scripts().concat();
    for name in arguments.keys() {
        let given = format!("--build-arg \"{name}=${name}\"");
        assert!(scripts.contains(&given), "{given}");
    }
}
