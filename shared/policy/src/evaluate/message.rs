//! The messages of violations and errors, for users.

use anteroom_functions::pattern::Difference;

use super::{interrupt::Interrupt, scope::Scope};
use crate::ir::{Rule, template::Template};

/// Returns the message of a violation: the rule's message, and the messages of the conditions that were met. `None`
/// while a fact is missing.
///
/// A variable in the message that cannot be resolved must not hide the violation. Then, as in Kyverno, the message is
/// made of the conditions' messages; without these, it is the rule's message as the manifest has it.
pub(super) fn denial(
    rule: &Rule,
    conditions: &[&Template],
    scope: &mut Scope<'_>,
) -> Option<String> {
    if rule.message.is_none() && conditions.is_empty() {
        return Some(format!("validation error: rule {} failed", rule.name));
    }
    let own = match &rule.message {
        None => Some(String::new()),
        Some(template) => match template.text(scope) {
            Ok(text) => Some(text),
            Err(Interrupt::Pending) => return None,
            Err(_) => None,
        },
    };
    let conditions = join(condition_texts(conditions, scope)?);
    Some(match own {
        Some(own) => join([own, conditions]),
        None if conditions.is_empty() => rule
            .message
            .as_ref()
            .map(Template::source)
            .unwrap_or_default()
            .to_owned(),
        None => conditions,
    })
}

/// The message of an object that does not match a pattern, in Kyverno's words. `None` while a fact is
/// waited for.
pub(super) fn difference(
    rule: &Rule,
    difference: &Difference,
    scope: &mut Scope<'_>,
) -> Option<String> {
    let at = format!("rule {} failed at path {}", rule.name, difference.path);
    Some(match own(rule, scope)? {
        Some(own) => format!("validation error: {} {at}", sentence(own)),
        None => format!("validation error: {at}"),
    })
}

/// Like [`difference`], about an object that matches none of several patterns.
pub(super) fn differences(
    rule: &Rule,
    differences: &[(usize, Difference)],
    scope: &mut Scope<'_>,
) -> Option<String> {
    let one = |(at, difference): &(usize, Difference)| {
        format!(
            "rule {}[{at}] failed at path {}",
            rule.name, difference.path
        )
    };
    let all: Vec<_> = differences.iter().map(one).collect();
    let all = all.join(" ");
    Some(match own(rule, scope)? {
        Some(own) => format!("validation error: {} {all}", sentence(own)),
        None => format!("validation error: {all}"),
    })
}

/// The rule's own message, as written where a variable in it cannot be resolved. `None` while a fact is
/// waited for.
fn own(rule: &Rule, scope: &mut Scope<'_>) -> Option<Option<String>> {
    let Some(template) = &rule.message else {
        return Some(None);
    };
    match template.text(scope) {
        Ok(text) => Some(Some(text)),
        Err(Interrupt::Pending) => None,
        Err(_) => Some(Some(template.source().to_owned())),
    }
}

fn sentence(mut text: String) -> String {
    if !text.ends_with('.') {
        text.push('.');
    }
    text
}

/// Returns the reason why a rule was skipped, with the conditions' messages as the manifest has them. A rule that its
/// preconditions stop asks for nothing, not even for its messages.
pub(super) fn skip(conditions: &[&Template]) -> String {
    let messages = conditions
        .iter()
        .map(|template| template.source().to_owned());
    join(
        ["preconditions not met".to_owned()]
            .into_iter()
            .chain(messages),
    )
}

/// The messages of conditions, as written where a variable in them cannot be resolved. `None` while a
/// fact is waited for.
fn condition_texts(messages: &[&Template], scope: &mut Scope<'_>) -> Option<Vec<String>> {
    messages
        .iter()
        .map(|template| match template.text(scope) {
            Ok(text) => Some(text),
            Err(Interrupt::Pending) => None,
            Err(_) => Some(template.source().to_owned()),
        })
        .collect()
}

/// Joins the texts that are not empty with semicolons.
fn join(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
    texts.join("; ")
}
