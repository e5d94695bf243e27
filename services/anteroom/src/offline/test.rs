//! `anteroom test`: suites of expected results.

use std::path::PathBuf;

use anteroom_offline::{
    Checked, Counts, Row, RowResult, Selector, Suite, check, json, junit, markdown, suites, table,
};
use anyhow::bail;
use clap::Args;

use super::{Format, arrival, yaml};
use crate::output::{counted, input_error, print, print_json_error};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom test policies/\n  \
    anteroom test policies/ -t 'policy=require-*,resource=bad*' --detailed-results\n  \
    anteroom test policies/ -o junit > results.xml\n\n\
    A suite is a file in Kyverno's format: policies, resources, values of variables, and for each rule and \
    resource the expected result. A row fails if the result differs, or if no rule has a result for the \
    resource.\n\n\
    Exit codes: 0 every row is as expected, 1 a row differs, a suite cannot be read, or there is none, \
    2 wrong usage.")]
pub(crate) struct TestArgs {
    /// Folders with suites anywhere below them, or suites.
    #[arg(required = true, value_name = "DIR")]
    paths: Vec<PathBuf>,

    /// The file name of suites.
    #[arg(short, long, value_name = "NAME", default_value = "kyverno-test.yaml")]
    file_name: String,

    /// Run only these rows, as in `policy=disallow-*,rule=*,resource=bad*`.
    #[arg(short, long, value_name = "SELECTOR")]
    test_case_selector: Option<Selector>,

    /// Show only rows that fail.
    #[arg(long)]
    fail_only: bool,

    /// Also show the rules' messages.
    #[arg(long)]
    detailed_results: bool,

    /// The format of the output. Also `--output-format`
    #[arg(short, long, alias = "output-format", value_enum, default_value_t)]
    output: Format,

    /// Accepted without effect: a run without suites always fails.
    #[arg(long)]
    require_tests: bool,

    /// Accepted without effect: the output has no colors.
    #[arg(long)]
    remove_color: bool,

    /// Accepted without effect: no registry is read, and values describe images.
    #[arg(long)]
    registry: bool,

    /// Accepted without effect: there are no deprecation warnings.
    #[arg(long)]
    warnings_as_errors: bool,

    /// Refused: nothing is fetched from repositories.
    #[arg(short = 'b', long, value_name = "NAME")]
    git_branch: Option<String>,
}

/// Why the command line asks for what is not done here.
fn check_line(args: &TestArgs) -> anyhow::Result<()> {
    let mut paths = args.paths.iter().map(|path| path.to_string_lossy());
    let url = paths.find(|path| path.contains("://") || path.starts_with("git@"));
    match (url, &args.git_branch) {
        (Some(url), _) => bail!(
            "{url} is not read: nothing is fetched from repositories; clone it, and name its folder"
        ),
        (None, Some(_)) => bail!(
            "--git-branch is not supported: nothing is fetched from repositories; clone it, and name its folder"
        ),
        (None, None) => Ok(()),
    }
}

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<()> {
    let is_json = args.output == Format::Json;
    let checked = print_json_error(is_json, run_suites(args).map_err(input_error))?;
    let counts = Counts::of(&checked);
    match args.output {
        Format::Text => print(page(&checked, counts, args).trim_end())?,
        Format::Json => print(&serde_json::to_string_pretty(&json(&checked))?)?,
        Format::Yaml => print(&yaml(&json(&checked))?)?,
        Format::Junit => print(junit(&checked).trim_end())?,
        Format::Markdown => {
            let is_shown = |row: &&Row| !args.fail_only || row.result == RowResult::Fail;
            let rows = checked.iter().flat_map(|suite| &suite.rows);
            let rows = rows.filter(is_shown);
            print(markdown(rows, args.detailed_results).trim_end())?;
        }
    }
    verdict(&checked, counts, args)
}

fn run_suites(args: &TestArgs) -> anyhow::Result<Vec<Checked>> {
    check_line(args)?;
    let mut checked = Vec::new();
    for path in &args.paths {
        for file in suites(path, &args.file_name)? {
            checked.extend(run_file(file, args));
        }
    }
    Ok(checked)
}

fn run_file(path: PathBuf, args: &TestArgs) -> Vec<Checked> {
    match Suite::read(&path) {
        Ok(suites) => {
            let suites = suites.into_iter();
            suites.filter_map(|suite| run_suite(suite, args)).collect()
        }
        Err(error) => vec![Checked {
            name: path.display().to_string(),
            path,
            rows: Vec::new(),
            error: Some(error.to_string()),
        }],
    }
}

/// `None` where no row of it is selected.
fn run_suite(mut suite: Suite, args: &TestArgs) -> Option<Checked> {
    suite.arrival = Some(arrival());
    if let Some(selector) = &args.test_case_selector
        && !selector.narrow(&mut suite)
    {
        return None;
    }
    let (rows, error) = match check(&suite) {
        Ok(rows) => (rows, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    Some(Checked {
        name: suite.name,
        path: suite.path,
        rows,
        error,
    })
}

fn page(checked: &[Checked], counts: Counts, args: &TestArgs) -> String {
    let is_failure = |row: &&Row| row.result == RowResult::Fail;
    let mut page = String::new();
    for suite in checked {
        let rows: Vec<_> = match args.fail_only {
            true => suite.rows.iter().filter(is_failure).collect(),
            false => suite.rows.iter().collect(),
        };
        if rows.is_empty() && suite.error.is_none() {
            continue;
        }
        page.push_str(&format!("{} ({})\n", suite.name, suite.path.display()));
        match &suite.error {
            Some(error) => page.push_str(&format!("cannot be run: {error}\n")),
            None => page.push_str(&table(rows, args.detailed_results)),
        }
        page.push('\n');
    }
    let failed: Vec<_> = checked.iter().flat_map(|suite| &suite.rows).collect();
    let failed: Vec<_> = failed.into_iter().filter(is_failure).collect();
    if !failed.is_empty() && !args.fail_only && checked.len() > 1 {
        page.push_str("What failed:\n");
        page.push_str(&table(failed, args.detailed_results));
        page.push('\n');
    }
    let Counts {
        passed,
        failed,
        not_run,
        errors,
    } = counts;
    // Programs read the first half, which is Kyverno's: `tests` whatever the numbers are.
    page.push_str(&format!(
        "Test Summary: {passed} tests passed and {failed} tests failed; {not_run} not run, of {}",
        counted(checked.len(), "suite")
    ));
    if errors > 0 {
        page.push_str(&format!(", of which {errors} cannot be run"));
    }
    page
}

fn verdict(checked: &[Checked], counts: Counts, args: &TestArgs) -> anyhow::Result<()> {
    if checked.is_empty() {
        match &args.test_case_selector {
            Some(_) => bail!("no row is selected by --test-case-selector"),
            None => bail!(
                "there is no {} in what was given: name the folder of a suite, or the name of its file with \
                 --file-name",
                args.file_name
            ),
        }
    }
    if !counts.is_success() {
        let Counts { failed, errors, .. } = counts;
        let (failed, errors) = (counted(failed, "row"), counted(errors, "suite"));
        bail!("not as expected: {failed}; cannot be run: {errors}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: TestArgs,
    }

    const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labelled}
spec:
  rules:
    - name: label
      match: {any: [{resources: {kinds: [Pod]}}]}
      validate: {message: "label it", pattern: {metadata: {labels: {a: "?*"}}}}
"#;

    fn suite(expected: &str) -> String {
        format!(
            "policies: [policy.yaml]\nresources: [pod.yaml]\n\
             results: [{{policy: labelled, rule: label, kind: Pod, resources: [p], result: {expected}}}]"
        )
    }

    /// The result and the page for suites with these texts.
    fn run_on(suites: &[&str], flags: &[&str]) -> (anyhow::Result<()>, String) {
        let folder = tempfile::tempdir().unwrap();
        for (at, text) in suites.iter().enumerate() {
            let inside = folder.path().join(format!("{at}/.kyverno-test"));
            fs::create_dir_all(&inside).unwrap();
            fs::write(inside.join("policy.yaml"), POLICY).unwrap();
            let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p}}";
            fs::write(inside.join("pod.yaml"), pod).unwrap();
            fs::write(inside.join("kyverno-test.yaml"), text).unwrap();
        }
        let path = folder.path().display().to_string();
        let line = ["test", &path].into_iter().chain(flags.iter().copied());
        let args = Line::parse_from(line).args;
        let found = anteroom_offline::suites(folder.path(), &args.file_name).unwrap();
        let checked: Vec<_> = found
            .into_iter()
            .flat_map(|file| run_file(file, &args))
            .collect();
        let counts = Counts::of(&checked);
        let page = page(&checked, counts, &args);
        (verdict(&checked, counts, &args), page)
    }

    #[test]
    fn suites_that_are_as_expected_succeed() {
        let (result, page) = run_on(&[&suite("fail")], &[]);
        assert!(result.is_ok());
        assert!(page.contains("│ 1  │ labelled │ label │ Pod/default/p │ Pass   │ Ok     │"));
        assert!(
            page.ends_with(
                "Test Summary: 1 tests passed and 0 tests failed; 0 not run, of 1 suite"
            ),
            "{page}"
        );
    }

    #[test]
    fn a_row_that_is_not_as_expected_fails_the_run_and_is_shown_again() {
        let suites = [suite("fail"), suite("pass")];
        let suites: Vec<_> = suites.iter().map(String::as_str).collect();
        let (result, page) = run_on(&suites, &["--detailed-results"]);
        assert!(
            result
                .unwrap_err()
                .to_string()
                .starts_with("not as expected: 1 row; cannot be run: 0 suites")
        );
        assert!(
            page.contains("What failed:") && page.contains("label it"),
            "{page}"
        );
        let (_, page) = run_on(&suites, &["--fail-only"]);
        assert!(!page.contains("Pass   │"), "{page}");
    }

    #[test]
    fn suites_in_remote_repositories_are_refused_with_the_reason() {
        for line in [
            &["test", "https://h/suites"][..],
            &["test", "git@h:suites"],
            &["test", "suites", "--git-branch", "main"],
        ] {
            let error = run_suites(&Line::parse_from(line).args).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("clone it"), "{error}");
        }
    }

    #[test]
    fn options_of_kyvernos_command_line_are_taken() {
        let (result, _) = run_on(
            &[&suite("fail")],
            &[
                "--require-tests",
                "--remove-color",
                "--registry",
                "--warnings-as-errors",
                "--output-format",
                "yaml",
            ],
        );
        assert!(result.is_ok());
    }

    #[test]
    fn unreadable_suites_and_empty_selections_fail_the_run() {
        let (result, page) = run_on(&["results: [{rool: a}]"], &[]);
        assert!(page.contains("cannot be run: "), "{page}");
        assert!(result.is_err());
        assert!(run_on(&[], &[]).0.is_err());
        let (result, _) = run_on(&[&suite("fail")], &["-t", "rule=other"]);
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("--test-case-selector")
        );
    }
}
