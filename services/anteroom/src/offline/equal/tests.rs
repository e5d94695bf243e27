use std::fs;

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    args: EqualArgs,
}

const OLD: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labelled
  annotations: {pod-policies.kyverno.io/autogen-controllers: none}
spec:
  validationFailureAction: Enforce
  rules:
    - name: team
      match: {any: [{resources: {kinds: [ConfigMap]}}]}
      validate: {message: "name a team", allowExistingViolations: false, pattern: {metadata: {labels: {team: "?*"}}}}
"#;

const NEW: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: labelled}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps]}]
  validations:
    - {message: "name a team", expression: "object.metadata.?labels.?team.orValue('') != ''"}
"#;

/// The code and the page of a comparison of two policies.
fn told(old: &str, new: &str, flags: &[&str]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (old, new) = (write("old.yaml", old), write("new.yaml", new));
    let list = "{kind: List, apiVersion: v1, items: [\
        {apiVersion: v1, kind: ConfigMap, metadata: {name: m, labels: {team: a, x: y}}, data: {k: v}}]}";
    let resources = write("list.yaml", list);
    let line = [
        "equal",
        &old,
        &new,
        "-r",
        &resources,
        "--requests-max",
        "300",
        "--valid-only",
    ];
    let args = Line::parse_from(line.into_iter().chain(flags.iter().copied())).args;
    let found = compare(&args).unwrap();
    let page = page(&found, Path::new("old.yaml"), Path::new("new.yaml")).unwrap();
    (found.is_alike(), page)
}

#[test]
fn policies_that_decide_alike_are_told_with_their_coverage() {
    let (is_alike, page) = told(OLD, NEW, &["--operation", "CREATE,UPDATE"]);
    assert!(is_alike, "{page}");
    assert!(
        page.starts_with("OLD  old.yaml\nNEW  new.yaml\n\nRequests by the result of each rule:\n"),
        "{page}"
    );
    assert!(page.contains("OLD  labelled/team  "), "{page}");
    assert!(
        page.ends_with("No difference was found. This is a search, not a proof.\n"),
        "{page}"
    );
    assert!(
        !page.contains("Little is known") && !page.contains('\u{1b}'),
        "{page}"
    );
}

#[test]
fn a_difference_is_shown_by_a_small_object_and_both_explanations() {
    let other = NEW
        .replace("!= ''", "!= 'b'")
        .replace("orValue('')", "orValue('b')");
    let (is_alike, page) = told(OLD, &other, &["--operation", "create"]);
    assert!(!is_alike);
    for says in [
        "1. they judge otherwise (",
        "   OLD  admitted\n        pass: policy labelled, rule team\n",
        "   NEW  refused by a rule, and reported as a violation\n        fail: policy labelled, validation 0: name a team\n",
        "   object:\n     apiVersion: v1\n     kind: ConfigMap\n",
        "\nDifferent: ",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
    assert!(!page.contains("k: v"), "{page}");
}

#[test]
fn rules_that_were_hardly_tried_are_named() {
    let other = OLD.replace("[ConfigMap]", "[example.com/v1/Thing]");
    let (_, page) = told(&other, &other, &[]);
    assert!(
        !page.contains("Little is known"),
        "an object is made: {page}"
    );
    let other = OLD.replace("[ConfigMap]", "[Pod/exec]");
    let (_, page) = told(&other, &other, &[]);
    assert!(
        page.contains("Little is known of OLD labelled/team: "),
        "{page}"
    );
    assert!(!page.contains("No difference was found"), "{page}");
}

#[test]
fn a_search_in_which_no_rule_judged_anything_claims_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let given = folder.path().join("map.yaml").display().to_string();
    fs::write(
        &given,
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: m}}",
    )
    .unwrap();
    let path = folder.path().join("policy.yaml").display().to_string();
    let code = |kind: &str, flags: &[&str]| {
        fs::write(&path, OLD.replace("[ConfigMap]", kind)).unwrap();
        let line = ["equal", &path, &path, "-r", &given, "--requests-max", "20"].into_iter();
        run(&Line::parse_from(line.chain(flags.iter().copied())).args)
    };
    assert_eq!(code("[ConfigMap]", &[]), ExitCode::SUCCESS);
    for output in [&[][..], &["-o", "json"]] {
        assert_eq!(code("[Pod/exec]", output), UNUSABLE.into());
    }
}

#[test]
fn suites_below_a_folder_give_objects_and_values() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    };
    write("old/policy.yaml", OLD);
    write("new/policy.yaml", NEW);
    write(
        "old/.kyverno-test/map.yaml",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: of-suite}}",
    );
    write(
        "old/.kyverno-test/kyverno-test.yaml",
        "resources: [map.yaml]\nresults: []",
    );
    let [old, new] = ["old", "new"].map(|name| folder.path().join(name).display().to_string());
    let line = ["equal", &old, &new, "--requests-max", "50"];
    let found = compare(&Line::parse_from(line).args).unwrap();
    assert_eq!(found.objects_given, 1);
    let line = ["equal", &old, &new, "--suite", &new];
    let error = compare(&Line::parse_from(line).args)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no kyverno-test.yaml in"),
        "{error}"
    );
}

#[test]
fn input_that_cannot_be_used_ends_with_its_own_code() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.yaml").display().to_string();
    fs::write(&path, OLD.replace("pattern:", "patern:")).unwrap();
    let args = Line::parse_from(["equal", &path, &path]).args;
    let error = compare(&args).unwrap_err().to_string();
    assert!(
        error.contains("policy labelled of ") && error.contains("cannot be compiled: AR"),
        "{error}"
    );
    assert_eq!(run(&args), UNUSABLE.into());
    let missing = Line::parse_from(["equal", "no/such.yaml", &path]).args;
    assert!(
        compare(&missing)
            .unwrap_err()
            .to_string()
            .contains("no/such.yaml")
    );
    for line in [
        &["equal", "a"][..],
        &["equal", "a", "b", "--requests-max", "0"],
        &["equal", "a", "b", "--operation", "CONNECT"],
    ] {
        assert!(Line::try_parse_from(line).is_err(), "{line:?}");
    }
}
