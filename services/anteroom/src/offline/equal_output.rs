//! The output of `anteroom equal`, for people.

use std::{fmt::Write as _, path::Path};

use anteroom_offline::{Comparison, Covered, Difference, Example, Outcome, Reported, Stopped};

use super::yaml;
use crate::output::counted;

/// The longest message of a rule, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// The result of a search as one page.
pub(super) fn page(found: &Comparison, old: &Path, new: &Path) -> anyhow::Result<String> {
    let mut page = format!("OLD  {}\nNEW  {}\n\n", old.display(), new.display());
    for (at, difference) in found.differences.iter().enumerate() {
        let _ = writeln!(page, "{}. {}", at + 1, title(difference));
        for example in &difference.examples {
            add_example(&mut page, example)?;
        }
        page.push('\n');
    }
    if found.untold > 0 {
        let untold = counted(found.untold, "request");
        let _ = writeln!(page, "{untold} with further differences\n");
    }
    page.push_str("Requests by the result of each rule:\n");
    add_coverage(&mut page, found);
    page.push('\n');
    page.push_str(&summary(found));
    Ok(page)
}

fn title(difference: &Difference) -> String {
    let mut title = format!(
        "{} ({})",
        difference.kind.explain(),
        counted(difference.requests, "request")
    );
    if difference.invalid {
        title.push_str(
            "\n   only of objects that an API server refuses before any policy (see --valid-only)",
        );
    }
    title
}

fn add_example(page: &mut String, example: &Example) -> anyhow::Result<()> {
    let user = example.user.as_ref().map(|user| format!(" by {user}"));
    let _ = writeln!(
        page,
        "\n   {} {}{}",
        example.operation,
        example.resource,
        user.unwrap_or_default()
    );
    let changes = match example.changes.is_empty() {
        true => String::new(),
        false => format!(" by {}", example.changes.join("; ")),
    };
    let _ = writeln!(page, "   found with {}{changes}", example.made_from);
    for (side, outcome) in [("OLD", &example.old), ("NEW", &example.new)] {
        add_outcome(page, side, outcome)?;
    }
    if let Some(old) = &example.old_object {
        let _ = writeln!(page, "   object before:");
        indent(page, &yaml(old)?);
    }
    let _ = writeln!(page, "   object:");
    indent(page, &yaml(&example.object)?);
    Ok(())
}

fn add_outcome(page: &mut String, side: &str, outcome: &Outcome) -> anyhow::Result<()> {
    let _ = write!(page, "   {side}  {}", outcome.decision);
    match outcome.reported {
        Reported::Fail => page.push_str(", and reported as a violation\n"),
        Reported::Error => page.push_str(", and reported as an error\n"),
        Reported::Pass | Reported::Nothing => page.push('\n'),
    }
    if outcome.rules.is_empty() {
        page.push_str("        no rule speaks of it\n");
    }
    for rule in &outcome.rules {
        let name = match rule.rule.is_empty() {
            true => String::new(),
            false => format!(", rule {}", rule.rule),
        };
        let validation = rule.validation.as_ref();
        let validation = validation.map(|at| format!(", validation {at}"));
        let words: Vec<_> = rule.message.split_whitespace().collect();
        let mut message = words.join(" ");
        if let Some((end, _)) = message.char_indices().nth(MESSAGE_CHARS_MAX) {
            message.truncate(end);
            message.push('…');
        }
        let colon = if message.is_empty() { "" } else { ": " };
        let _ = writeln!(
            page,
            "        {}: policy {}{name}{}{colon}{message}",
            rule.status,
            rule.policy,
            validation.unwrap_or_default()
        );
    }
    if let Some(patched) = &outcome.patched {
        page.push_str("        it becomes:\n");
        indent(page, &yaml(patched)?);
    }
    Ok(())
}

fn indent(page: &mut String, text: &str) {
    for line in text.lines() {
        let _ = writeln!(page, "     {line}");
    }
}

fn add_coverage(page: &mut String, found: &Comparison) {
    let sides = [("OLD", &found.old), ("NEW", &found.new)];
    let rules = || {
        sides
            .iter()
            .flat_map(|(side, rules)| rules.iter().map(move |rule| (side, rule)))
    };
    let width = rules().map(|(_, rule)| name(rule).chars().count()).max();
    let width = width.unwrap_or_default().max(4);
    let _ = writeln!(
        page,
        "     {:<width$}  {:>6} {:>6} {:>6} {:>6}",
        "RULE", "PASS", "FAIL", "ERROR", "SKIP"
    );
    for (side, rule) in rules() {
        let _ = writeln!(
            page,
            "{side}  {:<width$}  {:>6} {:>6} {:>6} {:>6}",
            name(rule),
            rule.pass,
            rule.fail,
            rule.error,
            rule.skip
        );
    }
    for (side, rule) in rules() {
        if let Some(gap) = rule.gap() {
            let _ = writeln!(
                page,
                "Little is known of {side} {}: {gap}. Give objects of its kind with --resource.",
                name(rule)
            );
        }
    }
    for rule in &found.not_run {
        let _ = writeln!(page, "Not run: {rule}");
    }
}

fn name(rule: &Covered) -> String {
    match rule.rule.is_empty() {
        true => rule.policy.clone(),
        false => format!("{}/{}", rule.policy, rule.rule),
    }
}

/// The verdict of a search in which no rule judged or changed an object.
pub(super) const NOTHING_COMPARED: &str = "nothing was compared: no rule of either set judged or changed an object. Give \
    objects that the policies are about with --resource, and what their rules read with --set or --parameter-resource";

fn summary(found: &Comparison) -> String {
    let mut text = format!(
        "{} from {} and {} made, varied in {} (seed {})",
        counted(found.requests, "request"),
        counted(found.objects_given, "given object"),
        found.objects_made,
        counted(found.places, "place"),
        found.seed
    );
    match found.stopped {
        Some(Stopped::Requests) => text.push_str("; there are more (--requests-max)"),
        Some(Stopped::Time) => text.push_str("; the time is over (--timeout-seconds)"),
        None => {}
    }
    if found.is_about_nothing() {
        return text;
    }
    let verdict = match found.is_alike() {
        true => "No difference was found.".to_owned(),
        false => format!(
            "Different: {}, in {}.",
            counted(found.different, "request"),
            counted(found.differences.len(), "way")
        ),
    };
    format!("{text}\n{verdict} This is a search, not a proof.\n")
}
