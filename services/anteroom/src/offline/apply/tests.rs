use std::fs;

use clap::Parser;
use serde_json::json;
use tempfile::TempDir;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: ApplyArgs,
}

/// A folder of files that the tests hand in.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Writes a file, and returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: hosts}
spec:
  rules:
    - name: free
      match: {any: [{resources: {kinds: [Pod]}}]}
      context: [{name: taken, globalReference: {name: hosts}}]
      validate:
        message: "taken"
        deny: {conditions: {any: [{key: "{{ request.object.metadata.name }}", operator: AnyIn, value: "{{ taken }}"}]}}
"#;

#[test]
fn remote_sources_and_unsupported_options_are_refused_with_the_reason() {
    for (line, says) in [
        (&["apply", "p.yaml", "--cluster"][..], "--cluster"),
        (&["apply", "p.yaml", "--json", "j.json"], "--resource"),
        (
            &["apply", "p.yaml", "-r", "r", "-b", "main"],
            "nothing is fetched from repositories",
        ),
        (
            &[
                "apply",
                "p.yaml",
                "-r",
                "r",
                "--context-file",
                "https://h/c",
            ],
            "https://h/c is not read",
        ),
        (
            &[
                "apply",
                "p.yaml",
                "-r",
                "r",
                "--target-resources",
                "git@h:t",
            ],
            "git@h:t is not read",
        ),
        (
            &["apply", "https://h/p.yaml", "-r", "r.yaml"],
            "fetch it, and name the file",
        ),
        (
            &["apply", "p.yaml", "--resources", "r.yaml,https://h/r.yaml"],
            "https://h/r.yaml is not read",
        ),
    ] {
        let args = Line::parse_from(line).args;
        let error = apply(&args).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let line = ["apply", "p.yaml", "-r", "a,b", "--warn-no-pass", "-itp"];
    let args = Line::parse_from(line).args;
    assert_eq!(args.resources, [Path::new("a"), Path::new("b")]);
    assert!(Line::try_parse_from(["apply", "p.yaml"]).is_err());
}

fn told(flags: &[&str]) -> (u8, Value) {
    let folder = Folder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
    let policy = write("policy.yaml", POLICY);
    let pods = write(
        "pods.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n\
         {apiVersion: v1, kind: Pod, metadata: {name: b}}",
    );
    let line = ["apply", &policy, "-r", &pods];
    let args = Line::parse_from(line.into_iter().chain(flags.iter().copied())).args;
    let told = apply(&args).unwrap();
    (exit_code(&told, &args), told.json()["summary"].clone())
}

#[test]
fn values_answer_and_what_none_is_given_for_is_an_error() {
    let (code, summary) = told(&["--set", "taken=[\"a\"]"]);
    assert_eq!(
        (code, &summary["fail"], &summary["pass"]),
        (1, &json!(1), &json!(1))
    );
    let (code, summary) = told(&["--set", "taken=[]"]);
    assert_eq!((code, &summary["pass"]), (0, &json!(2)));
    let exception = tempfile::NamedTempFile::new().unwrap();
    let text = "{apiVersion: kyverno.io/v2, kind: PolicyException, metadata: {name: e}, spec: {\
        match: {any: [{resources: {names: [a]}}]}, \
        exceptions: [{policyName: hosts, ruleNames: [free]}]}}";
    fs::write(exception.path(), text).unwrap();
    let path = exception.path().display().to_string();
    let (code, summary) = told(&["--set", "taken=[\"a\"]", "--exception", &path]);
    assert_eq!(
        (code, &summary["skip"], &summary["pass"]),
        (0, &json!(1), &json!(1))
    );
    let (code, summary) = told(&[
        "--set",
        "taken=[\"a\"]",
        "-r",
        &path,
        "--exceptions-within-resources",
        "--registry",
    ]);
    assert_eq!((code, &summary["skip"]), (0, &json!(1)));
    let (code, summary) = told(&[
        "--set",
        "taken=[\"a\"]",
        "--exceptions-within-policies",
        &path,
        "--output-format=json",
    ]);
    assert_eq!((code, &summary["skip"]), (0, &json!(1)));
    let (code, summary) = told(&["--set", "taken=[],x=1", "-e", &path]);
    assert_eq!((code, &summary["skip"]), (0, &json!(1)));
    let (code, summary) = told(&["--set", "taken=[]", "--warn-no-pass", "--warn-exit-code=3"]);
    assert_eq!((code, &summary["pass"]), (0, &json!(2)));
    let (code, summary) = told(&[]);
    assert_eq!((code, &summary["error"]), (1, &json!(2)));
    let (code, summary) = told(&[
        "--set",
        "taken=[\"a\"]",
        "--audit-warn",
        "--warn-exit-code",
        "3",
    ]);
    assert_eq!((code, &summary["warn"]), (3, &json!(1)));
}

#[test]
fn entries_among_the_resources_keep_some_of_them() {
    let entry = tempfile::NamedTempFile::new().unwrap();
    let text = "{apiVersion: kyverno.io/v2, kind: GlobalContextEntry, metadata: {name: hosts}, spec: {\
        kubernetesResource: {version: v1, resource: configmaps}}}\n---\n\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: c}}";
    fs::write(entry.path(), text).unwrap();
    let entry = entry.path().display().to_string();
    let (code, summary) = told(&["-r", &entry]);
    // It keeps the ConfigMap, which no Pod is named as; no rule is about it or the entry.
    assert_eq!(
        (code, &summary["pass"], &summary["error"]),
        (0, &json!(2), &json!(0))
    );
}

#[test]
fn targets_are_changed_where_they_are_given() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
    let policy = write(
        "policy.yaml",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: count}, spec: {rules: [{\
         name: label, match: {any: [{resources: {kinds: [Pod]}}]}, mutate: {\
         targets: [{apiVersion: v1, kind: ConfigMap, namespace: default, name: \"c*\"}], \
         patchStrategicMerge: {metadata: {labels: {last: '{{ request.object.metadata.name }}'}}}}}]}}",
    );
    let pod = write(
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
    );
    let maps = write(
        "maps.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c1}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: other}}",
    );
    let applied = |flags: &[&str]| {
        let line = ["apply", &policy, "-r", &pod].into_iter();
        let args = Line::parse_from(line.chain(flags.iter().copied())).args;
        apply(&args).unwrap().json()
    };
    let told = applied(&["--target-resource", &maps]);
    assert_eq!(told["summary"]["pass"], 1, "{told}");
    assert_eq!(told["patched"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["patched"][0]["metadata"]["name"], "c1");
    assert_eq!(told["patched"][0]["metadata"]["labels"]["last"], "a");
    let told = applied(&[]);
    assert_eq!(
        (told["notRun"][0]["rule"].as_str(), &told["patched"]),
        (Some("label"), &json!([]))
    );
    // Of a kind of which none is given nothing is known.
    let told = applied(&["--target-resources", &pod]);
    assert_eq!(told["summary"]["error"], 1, "{told}");
}

#[test]
fn an_output_that_judges_nothing_is_explained_in_every_format() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
    let generates = write(
        "generates.yaml",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: maps}, spec: {rules: [{name: make, \
         match: {any: [{resources: {kinds: [Pod]}}]}, generate: {apiVersion: v1, kind: ConfigMap, name: c, \
         namespace: default, data: {data: {a: b}}}}]}}",
    );
    let hosts = write("hosts.yaml", POLICY);
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    let pod = write("pod.yaml", pod);
    let map = write(
        "map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
    );
    let said = |line: &[&str]| {
        let args = Line::parse_from(["apply"].iter().chain(line)).args;
        let outcome = apply(&args).unwrap();
        warnings(&args, &outcome)
    };
    let not_run = "not run: policy maps, rule make, spec.rules[0].generate: ";
    for format in [
        &["-o", "text"][..],
        &["-o", "json"],
        &["-o", "yaml"],
        &["-o", "junit"],
        &["-o", "markdown"],
        &["--table"],
        &["--policy-report"],
        &["--stdin"],
    ] {
        let line = [&[&*generates, "-r", &*pod][..], format].concat();
        // Standard input is a terminal or has no documents here.
        if format == ["--stdin"] {
            let args = Line::parse_from(["apply"].iter().chain(&line)).args;
            assert!(!shows_left_out(&args));
            continue;
        }
        let said = said(&line);
        let last = said.last().unwrap();
        assert!(
            last.starts_with("nothing was judged: no rule that is run here matches"),
            "{said:?}"
        );
        let is_shown = ["text", "json", "yaml"].contains(&format[format.len() - 1]);
        let is_told = said[0].starts_with(not_run);
        assert_ne!(is_shown, is_told, "{format:?}: {said:?}");
    }
    let said_of_no_match = said(&[&*hosts, "-r", &*map]);
    assert!(
        said_of_no_match[0].starts_with("no rule matches any of the given resources"),
        "{said_of_no_match:?}"
    );
    // Where something is judged, only what the output leaves out is told.
    assert!(said(&[&*hosts, &*generates, "-r", &*pod]).is_empty());
    let beside = said(&[&*hosts, &*generates, "-r", &*pod, "--table"]);
    assert!(
        beside.len() == 1 && beside[0].starts_with(not_run),
        "{beside:?}"
    );
}

#[test]
fn documents_without_a_kind_are_named_up_to_a_limit() {
    let named = json!({"metadata": {"name": "a"}});
    let documents = [json!({"kind": "Pod"}), named, json!({"kind": ""}), json!(1)];
    let says = [
        "passed over: the object named `a` has no `kind`",
        "passed over: an object without a name has no `kind`",
        "passed over: a document is no object",
    ];
    assert_eq!(kindless(&documents), says);
    let said = kindless(&vec![json!(1); LEFT_OUT_NAMED_MAX + 3]);
    assert_eq!(said.len(), LEFT_OUT_NAMED_MAX + 1);
    assert_eq!(said[LEFT_OUT_NAMED_MAX], "not named here: 3 more");
}

/// The first document of the project's own introduction that holds this.
fn shown(what: &str) -> String {
    let readme = include_str!("../../../../../README.md");
    let mut blocks = readme.split("```");
    let block = blocks.find(|block| block.starts_with("yaml") && block.contains(what));
    let lines = block.unwrap().lines().skip(1);
    let lines: Vec<_> = lines
        .map(|line| line.strip_prefix("   ").unwrap_or(line))
        .collect();
    lines.join("\n")
}

#[test]
fn the_example_of_the_introduction_is_decided_as_in_a_cluster() {
    let folder = Folder::new();
    let write = |name: &str, text: &str| folder.write(name, text);
    let ingress = |name: &str, host: &str| {
        format!(
            "{{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {{name: {name}, namespace: shop}}, \
             spec: {{rules: [{{host: {host}}}]}}}}\n---\n"
        )
    };
    let entry = write("entry.yaml", &shown("kind: CachedContextEntry"));
    let policy = shown("kind: ClusterPolicy");
    let either = policy.replace("items[?!", "ingresses | items[?!");
    assert_ne!(policy, either);
    let given = [("a", "x"), ("b", "y"), ("c", "x")].map(|(name, host)| ingress(name, host));
    let ingresses = write("ingresses.yaml", &given.concat());
    for (name, text) in [("policy.yaml", policy), ("either.yaml", either)] {
        let policy = write(name, &text);
        // Also where the same objects are given to be read.
        for read in [&[][..], &["--parameter-resource", &*ingresses]] {
            let line = ["apply", &*entry, &*policy, "-r", &*ingresses].into_iter();
            let args = Line::parse_from(line.chain(read.iter().copied())).args;
            let told = apply(&args).unwrap().json();
            let statuses = told["results"].as_array().unwrap().iter();
            let statuses: Vec<_> = statuses.map(|of| of["status"].as_str().unwrap()).collect();
            assert_eq!(statuses, ["fail", "pass", "fail"], "{name}: {told}");
        }
    }
}

#[test]
fn other_options_of_kyvernos_are_taken_or_refused_with_the_reason() {
    let parsed = |more: &[&str]| {
        let line = ["apply", "p.yaml", "-r", "r.yaml"].into_iter();
        Line::try_parse_from(line.chain(more.iter().copied()))
            .unwrap_or_else(|error| panic!("{error}"))
            .args
    };
    for taken in [
        &["--concurrent", "4"][..],
        &["--batch-size=10"],
        &["--continue-on-error"],
        &["--continue-on-error=false"],
        &["--show-performance"],
    ] {
        assert!(check(&parsed(taken)).is_ok(), "{taken:?}");
    }
    for (refused, says) in [
        (&["--username", "u"][..], "clone it"),
        (&["--password=p"], "clone it"),
        (&["--generated-exception-ttl", "1h"], "--exception"),
        (&["--cluster-wide-resources"], "only files are read"),
    ] {
        let error = check(&parsed(refused)).unwrap_err().to_string();
        let (name, _) = refused[0].split_once('=').unwrap_or((refused[0], ""));
        assert!(error.starts_with(name) && error.contains(says), "{error}");
    }
}
