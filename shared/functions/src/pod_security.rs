//! `podSecurity`: the Pod Security Standards of Kubernetes, and what a rule exempts from them.

mod checks;
mod pod;

use std::collections::HashMap;

use serde_json::Value;

use crate::{meter, operator, wildcard};
pub use pod::Pod;

/// A standard, and what is exempted.
#[derive(Debug)]
pub struct PodSecurity {
    /// The standard itself.
    pub level: Level,
    /// The minor version of Kubernetes whose standard it is.
    pub version: Version,
    /// The violations that are let pass.
    pub exclusions: Vec<Exclusion>,
}

/// The strictness of a standard. Like Kyverno's, `privileged` asks for all that `restricted` does: a rule of that
/// level is written for its exclusions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The level `privileged`.
    Privileged,
    /// The level `baseline`.
    Baseline,
    /// The level `restricted`.
    Restricted,
}

impl Level {
    /// The names in policies.
    pub const NAMES: &[&str] = &["privileged", "baseline", "restricted"];

    /// Reads one of [`Self::NAMES`].
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "privileged" => Self::Privileged,
            "baseline" => Self::Baseline,
            "restricted" => Self::Restricted,
            _ => return None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// A minor version of Kubernetes; `None`: the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub Option<u32>);

impl Version {
    /// `latest`, or as in `v1.24`.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "latest" => Some(Self(None)),
            text => Some(Self(Some(text.strip_prefix("v1.")?.parse().ok()?))),
        }
    }

    fn is_since(self, minor: u32) -> bool {
        self.0.is_none_or(|version| version >= minor)
    }
}

/// An exemption of a rule: all its conditions must hold.
///
/// With images it is about containers with these. Without, Kyverno evaluates the Pod with one container in
/// place of its own, which says nothing. It lets pass one violation for each that is found there, of the same
/// field. So what a Pod of one container owes is let pass, and of a Pod of several only of the first.
#[derive(Debug)]
pub struct Exclusion {
    /// The control's name.
    pub control: String,
    /// About containers with these images; none: about what the Pod itself says.
    pub images: Vec<String>,
    /// The field, with `[*]` for places; `None`: any.
    pub field: Option<String>,
    /// The values; none: any.
    pub values: Vec<String>,
}

/// The steps of the [`meter`] for each violation: it is found, compared with exclusions, and told.
const VIOLATION_STEPS: u64 = 40;

/// The steps for each violation that an exclusion is compared with.
const EXCLUSION_STEPS: u64 = 8;

/// Something in a Pod that the standard does not allow.
#[derive(Debug, PartialEq)]
pub struct Violation {
    /// The check that failed; a control may have a check for each level.
    check: usize,
    control: &'static str,
    reason: &'static str,
    /// The path of the field, like `spec.containers[0].securityContext.privileged`.
    path: String,
    /// The image, for a violation of a container.
    image: Option<String>,
    /// The values found; an empty text where a value is missing.
    values: Vec<String>,
    /// An exclusion's values are compared with what stands there.
    is_compared: bool,
}

/// The names of all controls.
pub fn controls() -> impl Iterator<Item = &'static str> {
    checks::CHECKS.iter().map(|check| check.control)
}

/// Returns whether a control is about containers, so that an exclusion may name images.
pub fn has_containers(control: &str) -> bool {
    let mut of_control = checks::CHECKS
        .iter()
        .filter(|check| check.control == control);
    of_control.any(|check| check.is_of_containers)
}

impl PodSecurity {
    /// Lists the violations of a Pod, in the order of the controls.
    pub fn violations(&self, pod: &Pod<'_>) -> Vec<Violation> {
        let mut found = self.found(pod);
        self.exclude(&self.exclusions, pod, &mut found);
        found
    }

    /// Takes out of what was found of a Pod what these exclusions let pass.
    pub fn exclude<'e>(
        &self,
        exclusions: impl IntoIterator<Item = &'e Exclusion>,
        pod: &Pod<'_>,
        found: &mut Vec<Violation>,
    ) {
        let mut alone = None;
        for exclusion in exclusions {
            if !meter::charge(EXCLUSION_STEPS * found.len() as u64) {
                return;
            }
            if exclusion.images.is_empty() {
                let alone = alone.get_or_insert_with(|| self.found_alone(pod));
                let covered = alone.iter().filter(|one| exclusion.covers(one));
                remove_one_for_each(covered, found);
            } else {
                found.retain(|one| !(exclusion.is_of_image(one) && exclusion.covers(one)));
            }
        }
    }

    /// The violations of the Pod itself, with one empty container.
    fn found_alone(&self, pod: &Pod<'_>) -> Vec<Violation> {
        let spec = pod.spec_alone();
        self.found(&Pod {
            spec: &spec,
            ..*pod
        })
    }

    /// Lists the violations before anything is excluded. Each is charged to the [`meter`]; where nothing is left of
    /// the meter, the list is not complete.
    fn found(&self, pod: &Pod<'_>) -> Vec<Violation> {
        let mut found = Vec::new();
        if !meter::charge(operator::length(pod.spec)) {
            return found;
        }
        let checks = checks::CHECKS.iter().enumerate();
        for (at, check) in checks.filter(|(_, check)| check.applies(self.level)) {
            (check.find)(pod, self.version, &mut |path, image, values| {
                if !meter::charge(VIOLATION_STEPS) {
                    return;
                }
                found.push(Violation {
                    check: at,
                    control: check.control,
                    reason: check.reason,
                    path,
                    image,
                    is_compared: check.is_compared && values.iter().any(|value| !value.is_empty()),
                    values,
                });
            });
        }
        found
    }

    /// Writes the message for users, in Kyverno's words.
    pub fn message(&self, rule: &str, violations: &[Violation]) -> String {
        let (level, version) = (self.level.name(), self.version);
        let version = version
            .0
            .map_or("latest".to_owned(), |minor| format!("v1.{minor}"));
        let mut text = format!(
            "Validation rule '{rule}' failed. It violates PodSecurity \"{level}:{version}\": "
        );
        let violations: Vec<_> = told(violations).collect();
        for (at, violation) in violations.iter().enumerate() {
            let is_first = at == 0 || violations[at - 1].check != violation.check;
            let is_last = violations
                .get(at + 1)
                .is_none_or(|next| next.check != violation.check);
            if is_first {
                let reason = violation.reason;
                text.push_str(&format!("(Forbidden reason: {reason}, field error list: ["));
            }
            text.push_str(&violation.text());
            text.push_str(if is_last { "])" } else { ", " });
        }
        text
    }
}

/// Returns the violations that a message tells: of missing profiles of seccomp none, where there is a forbidden one.
fn told(violations: &[Violation]) -> impl Iterator<Item = &Violation> {
    let is_of_profile = |one: &Violation| one.control == checks::SECCOMP;
    let mut of_profiles = violations.iter().filter(|one| is_of_profile(one));
    let is_forbidden = of_profiles.any(|one| !one.is_required());
    let is_told =
        move |one: &&Violation| !(is_forbidden && is_of_profile(one) && one.is_required());
    violations.iter().filter(is_told)
}

/// For each of `excluded`, removes the first of `found` with the same check and field.
fn remove_one_for_each<'v>(
    excluded: impl Iterator<Item = &'v Violation>,
    found: &mut Vec<Violation>,
) {
    let mut counts: HashMap<(usize, String), usize> = HashMap::new();
    for one in excluded {
        *counts.entry((one.check, one.field())).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    found.retain(|one| match counts.get_mut(&(one.check, one.field())) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
}

impl Violation {
    /// A value is missing.
    fn is_required(&self) -> bool {
        matches!(&*self.values, [value] if value.is_empty())
    }

    fn text(&self) -> String {
        let path = &self.path;
        match &*self.values {
            [value] if value.is_empty() => format!("{path}: Required value"),
            [value] => format!("{path} is forbidden, forbidden values found: {value}"),
            values => {
                let values = values.join(" ");
                format!("{path} is forbidden, forbidden values found: [{values}]")
            }
        }
    }

    /// The path with `*` for every number, those in the keys of annotations too.
    fn field(&self) -> String {
        let mut field = String::with_capacity(self.path.len());
        for character in self.path.chars() {
            match character {
                '0'..='9' if field.ends_with('*') => {}
                '0'..='9' => field.push('*'),
                character => field.push(character),
            }
        }
        field
    }
}

impl Exclusion {
    /// About a container with one of the images.
    fn is_of_image(&self, violation: &Violation) -> bool {
        let image = violation.image.as_deref();
        let is_like = |image| {
            let mut patterns = self.images.iter();
            patterns.any(|pattern| wildcard::matches(pattern, image))
        };
        image.is_some_and(is_like)
    }

    /// About the control, the field and the values.
    fn covers(&self, violation: &Violation) -> bool {
        let is_field = |field: &String| violation.field() == *field;
        let is_value = |value: &String| {
            self.values.is_empty()
                || self
                    .values
                    .iter()
                    .any(|known| wildcard::matches(known, value))
        };
        self.control == violation.control
            && self.field.as_ref().is_none_or(is_field)
            && (!violation.is_compared || violation.values.iter().all(is_value))
    }
}

/// A value as messages show it and exclusions compare it.
fn shown(value: &Value) -> String {
    crate::values::text(value).into_owned()
}

#[cfg(test)]
mod tests;
